//! The middle of a list of values: the median, and the mean without the slow tail.
//!
//! For: a few per-run figures (median), and tables that leave out the slowest share. Not for:
//! percentiles of samples, which are nearest-rank (see [`percentile`](super::percentile)).
//! Source of the mean of the fastest: the trimmed mean TM(95) of the IETF draft "Responsiveness
//! under Working Conditions" (draft-ietf-ippm-responsiveness), with lost ones as the slowest.

use super::moments::Moments;
use super::percentile::rank;

/// The median of `values`, in any order and not NaN: the middle one, or the mean of the middle
/// two. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    middle(&mut values.to_vec())
}

/// [`median`] without a copy: `values` are left in another order.
pub(super) fn middle(values: &mut [f64]) -> Option<f64> {
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

/// The mean of the fastest `share` (0 < share ≤ 1) of the `sent` exchanges, those lost counting
/// as slower than all others: the mean of the first ceil(share · sent) values of `sorted`.
///
/// `sorted` holds the delays that were measured, ascending. `None` when nothing was sent or more
/// than 1 − share was lost: then a lost exchange, which has no delay, is among the fastest.
pub fn mean_of_fastest(sorted: &[f64], share: f64, sent: u64) -> Option<f64> {
    let fastest = sorted.get(..rank(sent, share) as usize)?;
    fastest.iter().copied().collect::<Moments>().mean()
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

    #[test]
    fn fastest_of_those_sent() {
        let delays: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(mean_of_fastest(&delays, 0.95, 100), Some(48.0));
        assert_eq!(mean_of_fastest(&delays, 1.0, 100), Some(50.5));
        // 5 of 100 lost: the 95 that came are the fastest 95 %.
        assert_eq!(mean_of_fastest(&delays[..95], 0.95, 100), Some(48.0));
        assert_eq!(mean_of_fastest(&delays[..94], 0.95, 100), None);
        // 1 of 10 is more than 5 %.
        assert_eq!(mean_of_fastest(&delays[..9], 0.95, 10), None);
        assert_eq!(mean_of_fastest(&[], 0.95, 0), None);
        assert_eq!(mean_of_fastest(&[], 0.95, 3), None);
    }

    proptest! {
        #[test]
        fn median_is_the_middle_of_the_sorted_list(values in prop::collection::vec(-1e9f64..1e9, 1..60)) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
            prop_assert_eq!(median(&values), Some((low + high) / 2.0));
        }

        #[test]
        fn too_many_lost_and_only_then_is_there_no_mean(sent in 1u64..400, lost in 0u64..40) {
            let received = sent.saturating_sub(lost);
            let delays = vec![1.0; received as usize];
            let too_many = (sent - received) * 100 > 5 * sent;
            prop_assert_eq!(mean_of_fastest(&delays, 0.95, sent).is_none(), too_many);
        }
    }
}
