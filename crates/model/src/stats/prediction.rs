//! Prediction of one new result by earlier results of the same kind.
//!
//! For: a figure of a run beside that of earlier runs. Not for: intervals of a median (`repetitions.rs`).
//! Sources: ranks of exchangeable values, David and Nagaraja, "Order Statistics", 3rd ed., §7.3; the prediction
//! interval of a normal variable, Hahn and Meeker, "Statistical Intervals", §4.7.

use super::change::level_changes;
use super::student;
use super::{Interval, Moments};

/// Minimum number of earlier results that predict anything.
pub const MIN_EARLIER_RESULTS: usize = 8;

const CONFIDENCE_LEVEL: f64 = 0.95;

/// Confidence level of the model. Higher, because real results have longer tails than the model.
const MODEL_CONFIDENCE_LEVEL: f64 = 0.98;

/// Prediction from earlier results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// Interval that holds 95 % of new results.
    pub interval: Interval,
    /// The first of the earlier results that counts: the level changed there, or it is 0.
    pub since: usize,
}

/// Predicts a new result by `earlier` results, in order of time: the prediction from those since the last change of level. `None`
/// if these are fewer than 8.
pub fn usual(earlier: &[f64]) -> Option<Usual> {
    let since = level_changes(earlier).last().copied().unwrap_or(0);
    Some(Usual { interval: prediction_interval(&earlier[since..])?, since })
}

/// The 95 % interval of one new result, by `earlier` positive results in any order.
///
/// From 39 results on two of them, by rank: a new result is equally likely to have any rank, whatever its
/// distribution. Below, minimum and maximum, or the interval of a log-normal variable where that is wider: the ranks
/// alone would miss 2 in n + 1. `None` below 8 results, or if one is not positive and finite.
pub fn prediction_interval(earlier: &[f64]) -> Option<Interval> {
    let n = earlier.len();
    let is_usable = earlier.iter().all(|&value| value > 0.0 && value.is_finite());
    if n < MIN_EARLIER_RESULTS || !is_usable {
        return None;
    }
    let mut sorted = earlier.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let outside =
        ((1.0 - CONFIDENCE_LEVEL) / 2.0 * (n + 1) as f64 + f64::EPSILON * n as f64).floor() as usize;
    if outside > 0 {
        return Some(Interval { low: sorted[outside - 1], high: sorted[n - outside] });
    }
    let logarithms: Moments = sorted.iter().map(|value| value.ln()).collect();
    let (centre, deviation) = (logarithms.mean()?, logarithms.standard_deviation()?);
    let reach =
        student::half_width(n as u32 - 1, MODEL_CONFIDENCE_LEVEL) * deviation * (1.0 + 1.0 / n as f64).sqrt();
    Some(Interval {
        low: sorted[0].min((centre - reach).exp()),
        high: sorted[n - 1].max((centre + reach).exp()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::simulate::log_normal;
    use super::*;

    #[test]
    fn enough_results_are_taken_by_rank_and_fewer_by_the_wider_of_range_and_model() {
        let equal_steps = |n: u32| (1..=n).map(f64::from).collect::<Vec<f64>>();
        assert_eq!(prediction_interval(&equal_steps(39)), Some(Interval { low: 1.0, high: 39.0 }));
        assert_eq!(prediction_interval(&equal_steps(79)), Some(Interval { low: 2.0, high: 78.0 }));
        assert_eq!(prediction_interval(&equal_steps(7)), None);
        assert_eq!(prediction_interval(&[0.0; 9]), None);
        assert_eq!(prediction_interval(&[f64::INFINITY; 9]), None);
        let equal = prediction_interval(&[3.0; 9]).unwrap();
        assert!(equal.low <= 3.0 && equal.high >= 3.0 && equal.high - equal.low < 1e-12, "{equal:?}");

        // By hand, in logarithms: mean ± 2.997951566868529 (Student, 7 degrees) · deviation · √(1 + 1/8).
        let interval = prediction_interval(&[8.0, 9.0, 10.0, 10.0, 11.0, 12.0, 10.0, 9.0]).unwrap();
        assert!(
            (interval.low - 6.567634061745229).abs() < 1e-9
                && (interval.high - 14.642940163466827).abs() < 1e-9,
            "{interval:?}"
        );
    }

    #[test]
    fn one_new_result_in_twenty_is_unusual_at_most() {
        for n in [8, 20, 60] {
            let outside = (0..1000).filter(|&seed| {
                let mut history = log_normal(n + 1, 0.1, seed);
                let newest = history.pop().unwrap();
                usual(&history)
                    .is_some_and(|usual| newest < usual.interval.low || newest > usual.interval.high)
            });
            let outside = outside.count();
            assert!(outside <= 60, "{outside} of 1000 after {n}");
        }
    }

    #[test]
    fn usual_means_since_the_level_changed() {
        let mut history = log_normal(30, 0.02, 1);
        history.extend(log_normal(12, 0.02, 2).iter().map(|value| 2.0 * value));
        let usual = usual(&history).unwrap();
        assert!(usual.since.abs_diff(30) <= 1 && usual.interval.low > 1.5, "{usual:?}");
        assert_eq!(super::usual(&history[..34]), None);
    }
}
