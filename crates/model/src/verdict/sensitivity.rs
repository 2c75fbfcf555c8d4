//! Smallest change that comparisons of such repetitions would show.
//!
//! Assumed: repetitions that do not depend on each other, and another side whose repetitions differ as much.

use std::f64::consts::SQRT_2;

use serde::Serialize;

use super::{MIN_PAIRS, MIN_REPETITIONS};
use crate::metric::Metric;
use crate::run::CaseResult;
use crate::stats;

/// The advice is at least that many repetitions.
const MIN_ADVISED_REPETITIONS: u32 = 10;

/// Changes that a comparison shows in 4 of 5 cases with p < 0.05, as a share of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The smallest change that these repetitions show. Absent below 4 on a side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_change: Option<f64>,
    /// A larger number of repetitions on each side that is advised.
    pub with_repetitions: u32,
    /// The smallest change that this larger number would show.
    pub would_show: f64,
}

/// The sensitivity of a comparison of these sides. `None` if the repetitions do not show how much they differ: below 2
/// on a side, all equal, or not positive.
pub(crate) fn sensitivity(sides: &[&[f64]]) -> Option<Sensitivity> {
    let deviations: Option<Vec<f64>> = sides.iter().map(|side| stats::relative_deviation(side)).collect();
    let deviations = deviations?;
    let variance = deviations.iter().map(|one| one * one).sum::<f64>() / deviations.len() as f64;
    from_deviation(variance.sqrt(), sides.iter().map(|side| side.len()).min()?, MIN_REPETITIONS)
}

/// The sensitivity of a comparison in pairs: what both of a pair share does not hide a change.
pub(crate) fn sensitivity_of_pairs(a: &[f64], b: &[f64]) -> Option<Sensitivity> {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| b / a).collect();
    // Differences of two independent values would have this times their deviation.
    from_deviation(stats::relative_deviation(&ratios)? / SQRT_2, ratios.len(), MIN_PAIRS)
}

/// `deviation`: of the logarithms of the repetitions of one side. Fewer than `min_repetitions` show nothing.
fn from_deviation(deviation: f64, repetitions: usize, min_repetitions: usize) -> Option<Sensitivity> {
    let share = |repetitions| {
        let shift = stats::smallest_detectable_shift(deviation, repetitions)?;
        Some(shift.exp_m1()).filter(|share| *share > 0.0 && share.is_finite())
    };
    let is_enough = repetitions >= min_repetitions;
    let repetitions = u32::try_from(repetitions).ok()?;
    let with_repetitions = repetitions.saturating_mul(2).max(MIN_ADVISED_REPETITIONS);
    Some(Sensitivity {
        smallest_change: share(repetitions).filter(|_| is_enough),
        with_repetitions,
        would_show: share(with_repetitions)?,
    })
}

/// The sensitivity of a comparison of this case with another run like it, by the headline figure of its repetitions. The
/// parts of one measurement stand for repetitions of it, which are longer and differ less.
pub fn case_sensitivity(case: &CaseResult) -> Option<Sensitivity> {
    let metric = Metric::headline(case);
    let values: Vec<f64> =
        case.repeats.iter().filter_map(|part| metric.value_of_part(case, &part.figures)).collect();
    sensitivity(&[&values])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulate::log_normal;

    #[test]
    fn more_repetitions_show_smaller_changes() {
        let (a, b) = (log_normal(10, 0.05, 1), log_normal(12, 0.05, 2));
        let found = sensitivity(&[&a, &b]).unwrap();
        assert_eq!(found.with_repetitions, 20);
        let smallest = found.smallest_change.unwrap();
        assert!((0.04..0.12).contains(&smallest) && found.would_show < 0.8 * smallest, "{found:?}");
        // 3 and 3 show nothing, however clear.
        let few = sensitivity(&[&a[..3], &b]).unwrap();
        assert_eq!((few.smallest_change, few.with_repetitions), (None, 10));
    }

    #[test]
    fn the_smallest_change_is_shown_in_four_of_five_comparisons() {
        let side = |seed, factor: f64| -> Vec<f64> {
            log_normal(10, 0.05, seed).into_iter().map(|value| value * factor).collect()
        };
        let mut shown = 0;
        for seed in 0..1000 {
            // By the true deviation, which a comparison only estimates.
            let shift = stats::smallest_detectable_shift(0.05, 10).unwrap();
            let p = stats::mann_whitney_p(&side(2 * seed, 1.0), &side(2 * seed + 1, shift.exp()));
            shown += u32::from(p < super::super::SIGNIFICANCE_LEVEL);
        }
        assert!((740..=850).contains(&shown), "{shown} of 1000");
        let mut estimates: Vec<f64> = (0..500)
            .filter_map(|seed| {
                sensitivity(&[&side(2 * seed, 1.0), &side(2 * seed + 1, 1.0)])?.smallest_change
            })
            .collect();
        estimates.sort_unstable_by(f64::total_cmp);
        let truth = stats::smallest_detectable_shift(0.05, 10).unwrap().exp_m1();
        assert!((estimates[250] / truth - 1.0).abs() < 0.15, "{} beside {truth}", estimates[250]);
    }

    #[test]
    fn what_a_pair_shares_does_not_hide_a_change() {
        let shared = log_normal(10, 0.3, 1);
        let side = |seed| -> Vec<f64> {
            log_normal(10, 0.02, seed).into_iter().zip(&shared).map(|(own, shared)| own * shared).collect()
        };
        let (a, b) = (side(2), side(3));
        let [pairs, sides] = [sensitivity_of_pairs(&a, &b), sensitivity(&[&a, &b])]
            .map(|found| found.and_then(|found| found.smallest_change).unwrap());
        assert!((0.01..0.05).contains(&pairs) && sides > 0.2, "{pairs} {sides}");
        assert_eq!(sensitivity_of_pairs(&a[..5], &b[..5]).unwrap().smallest_change, None);
    }

    #[test]
    fn repetitions_that_do_not_differ_have_no_sensitivity() {
        assert_eq!(sensitivity(&[&[5.0; 10], &[5.0; 10]]), None);
        assert_eq!(sensitivity(&[&[5.0]]), None);
        assert_eq!(sensitivity(&[&[0.0, 1.0, 2.0]]), None);
        assert_eq!(sensitivity(&[&[1.0, 2.0, f64::INFINITY]]), None);
    }
}
