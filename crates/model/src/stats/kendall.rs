//! Kendall's rank correlation with time (the Mann–Kendall trend test).
//!
//! For: a trend, straight or not, in up to some hundred independent values (the cost is n²).
//! Not for: autocorrelated values; average them in batches first.
//! Sources: Kendall, "The treatment of ties in ranking problems", Biometrika 1945 (tau-b and its
//! variance under ties); Mann 1945.

use super::normal::two_sided_p;

/// (τ_b of `values` against their order, −1 to 1; its two-sided p-value, normal approximation).
/// (0, 1) for fewer than two different values.
pub(super) fn mann_kendall_trend(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let pairs = n * (n - 1.0) / 2.0;
    let ties = tie_counts(values.to_vec());
    let tied_pairs: f64 = ties.iter().map(|t| t * (t - 1.0) / 2.0).sum();
    if pairs - tied_pairs < 1.0 {
        return (0.0, 1.0);
    }
    let mut score = 0.0;
    for (i, earlier) in values.iter().enumerate() {
        for later in &values[i + 1..] {
            score += f64::from(i8::from(later > earlier) - i8::from(later < earlier));
        }
    }
    let variance = score_variance(values.len(), &[ties]);
    let tau = score / (pairs * (pairs - tied_pairs)).sqrt();
    (tau, two_sided_p(score / variance.sqrt()))
}

/// The number of occurrences of each value that occurs more than once.
pub(super) fn tie_counts(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.chunk_by(|a, b| a == b).map(|group| group.len() as f64).filter(|&count| count > 1.0).collect()
}

/// Variance of the score of `values` independent values, with the ties of either side.
pub(super) fn score_variance(values: usize, ties: &[Vec<f64>]) -> f64 {
    let of = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    (of(values as f64) - ties.iter().flatten().map(|&count| of(count)).sum::<f64>()) / 18.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_scipy() {
        // SciPy 1.17.1: scipy.stats.kendalltau(np.arange(len(x)), x, method='asymptotic')
        for (values, tau, p) in [
            (
                vec![10, 12, 11, 15, 14, 19, 18, 22, 21, 21, 25, 24],
                0.8091838819320086,
                0.00026956263420192036,
            ),
            (vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3], 0.41778637429367477, 0.028680264322081636),
        ] {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let actual = mann_kendall_trend(&values);
            assert!((actual.0 - tau).abs() < 1e-12 && (actual.1 / p - 1.0).abs() < 1e-9, "{actual:?}");
            let backwards: Vec<f64> = values.into_iter().rev().collect();
            let turned = mann_kendall_trend(&backwards);
            assert!((turned.0 + tau).abs() < 1e-12 && (turned.1 / p - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn no_trend_without_two_values_that_differ() {
        for values in [&[][..], &[1.0], &[2.0; 9]] {
            assert_eq!(mann_kendall_trend(values), (0.0, 1.0));
        }
    }
}
