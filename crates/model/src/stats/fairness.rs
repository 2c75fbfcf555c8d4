//! Measures how equally something is shared.

/// Jain's fairness index: (Σx)² ÷ (n · Σx²). 1 if all parts are equal, 1 ÷ n if one has everything. `None` if nothing was
/// shared.
///
/// Source: Jain, Chiu and Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared
/// computer systems", DEC-TR-301, 1984.
pub fn jain_index(parts: &[f64]) -> Option<f64> {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    (squares > 0.0).then(|| sum * sum / (parts.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_for_equal_parts_and_lowest_for_one_owner() {
        assert_eq!(jain_index(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain_index(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        // The example of the source: k of n users share equally.
        assert_eq!(jain_index(&[1.0, 1.0, 0.0, 0.0]), Some(0.5));
        assert_eq!(jain_index(&[0.0, 0.0]), None);
        assert_eq!(jain_index(&[]), None);
    }
}
