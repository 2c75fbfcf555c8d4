//! Correction for several tests at once: p-values that hold for all of them together.
//!
//! Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.

/// The p-values (0 to 1, no NaN) corrected for their number, in the same order: below a level, the chance that any of
/// them is wrong stays below it.
pub fn holm_adjusted(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_values[index]).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_statsmodels() {
        // statsmodels 0.14: multipletests([0.01, 0.04, 0.03, 0.005], method='holm')[1]
        let adjusted = holm_adjusted(&[0.01, 0.04, 0.03, 0.005]);
        for (actual, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((actual - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm_adjusted(&[0.7, 0.9]), [1.0, 1.0]);
        assert!(holm_adjusted(&[]).is_empty());
    }
}
