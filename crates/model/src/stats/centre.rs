//! The centre of a list of values.
//!
//! For: figures of a few repetitions. Not for: percentiles of samples, which are nearest-rank
//! (`percentile.rs`).

/// The median of `values`, in any order and without NaN: the middle one, or the mean of the middle two.
/// `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_in_place(&mut values.to_vec())
}

/// [`median`] without a copy: changes the order of `values`.
pub(super) fn median_in_place(values: &mut [f64]) -> Option<f64> {
    let half = values.len() / 2;
    let odd = !values.len().is_multiple_of(2);
    if values.is_empty() {
        return None;
    }
    let (lower, &mut upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    if odd {
        return Some(upper);
    }
    let below = lower.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(below.midpoint(upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn median_of_few() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0, -4.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn median_is_the_middle_of_the_sorted_list(values in prop::collection::vec(-1e9f64..1e9, 1..60)) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
            prop_assert_eq!(median(&values), Some((low + high) / 2.0));
        }
    }
}
