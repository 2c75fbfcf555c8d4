//! The interval of a figure of a run, from its repetitions: where the same figure of other runs lies.
//!
//! For: figures of some repetitions of one case, each on a fresh connection. Not for: samples within a repetition, which
//! depend on each other (`within_run.rs`), and not for comparisons, which use the repetitions themselves (`rank.rs`).
//! Sources: random effects, Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013; the deviation without
//! outliers, Tukey and McLaughlin, "Less vulnerable confidence and significance procedures for location", 1963.

use super::change::level_changes;
use super::groups::separate_groups;
use super::prediction::MIN_EARLIER_RESULTS;
use super::series::autocorrelation;
use super::{Interval, Moments, student};

/// Minimum number of repetitions for an interval: fewer show no groups, and of two placements they often hold one alone.
pub const MIN_INTERVAL_REPETITIONS: usize = 6;

const CONFIDENCE_LEVEL: f64 = 0.95;

/// Number of earlier runs that shows how much runs differ. They count, whatever changed among them: a host that alternates
/// between two levels has both.
const ENOUGH_RUNS: usize = 20;

/// The standard error of a median beside that of a mean, of normal values: √(π ÷ 2).
const MEDIAN_ERROR: f64 = 1.253_314_137_3;

/// Share of the repetitions on either side that does not widen the interval.
const OUTLIER_SHARE: f64 = 0.1;

/// A stronger resemblance of successive values cannot be distinguished from a trend.
const MAX_CORRELATION: f64 = 0.9;

/// The 95 % interval of a run's figure `value`, by the same figure of each repetition. It holds the median of many such
/// runs, and `value`.
///
/// Runs differ more than the error of their mean suggests, because host and processes change between runs: on
/// loopback, a new process added as much as a new connection. So a run counts as one more draw with the deviation of
/// its repetitions. The deviation is that of the logarithms, without outliers; it is widened where repetitions, which are in
/// order of time, resemble their predecessors. Where repetitions fall into groups, the
/// interval is their range: another run may be in any of them. `None` below 6 repetitions, and if a value is not positive
/// and finite.
pub fn run_interval(value: f64, repetitions: &[f64]) -> Option<Interval> {
    let n = repetitions.len();
    if n < MIN_INTERVAL_REPETITIONS || !is_usable(&value) || !repetitions.iter().all(is_usable) {
        return None;
    }
    if !separate_groups(repetitions).is_empty() {
        let (low, high) =
            repetitions.iter().fold((value, value), |(low, high), &x| (low.min(x), high.max(x)));
        return Some(Interval { low, high });
    }
    let reach = reach(repetitions)? * (1.0 + 1.0 / n as f64).sqrt();
    Some(Interval { low: value * (-reach).exp(), high: value * reach.exp() })
}

/// Interval of the median of a run by its repetitions, whatever other runs have. `None` below 3 repetitions without outliers, and
/// if a value is not positive and finite.
pub fn error_interval(value: f64, repetitions: &[f64]) -> Option<Interval> {
    let standard_error = reach(repetitions)? * MEDIAN_ERROR / (repetitions.len() as f64).sqrt();
    Some(Interval { low: value * (-standard_error).exp(), high: value * standard_error.exp() })
}

/// The `interval` of a run's figure `value`, corrected by the same figure of `earlier` runs of the same case, in order of time.
/// `error` is the interval without the difference between runs.
///
/// A run cannot show what changes more slowly than it lasts, as neighbours and clock rates of a host do; earlier runs
/// show it. With 8 of them and more the interval reaches to `value` × e^±(t · s), with the deviation s of their logarithms
/// without outliers, but not beyond their range: the median of all runs lies outside of the range of n with a
/// probability of 2 in 2^n. Below 20 it holds `interval` as well. From 20 on the difference between runs is known: `error` takes the
/// place of `interval`, and that, too, reaches not beyond the range, because the error of each earlier run is part of their difference.
/// Runs before the last change of level do not count, but the last 20
/// always do. `interval` itself with fewer than 8, or if a value is not positive and finite.
pub fn interval_with_earlier_runs(
    interval: Interval,
    value: f64,
    error: Option<Interval>,
    earlier: &[f64],
) -> Interval {
    let since = level_changes(earlier).last().copied().unwrap_or(0);
    let counted = &earlier[since.min(earlier.len().saturating_sub(ENOUGH_RUNS))..];
    let Some(between_runs) = reach(counted).filter(|_| counted.len() >= MIN_EARLIER_RESULTS) else {
        return interval;
    };
    let least = counted.iter().copied().fold(value, f64::min);
    let most = counted.iter().copied().fold(value, f64::max);
    let within = |low: f64, high: f64| Interval { low: low.max(least), high: high.min(most) };
    let (low, high) = (value * (-between_runs).exp(), value * between_runs.exp());
    match error.filter(|_| counted.len() >= ENOUGH_RUNS) {
        Some(error) => within(low.min(error.low), high.max(error.high)),
        None => {
            let usual = within(low, high);
            Interval { low: usual.low.min(interval.low), high: usual.high.max(interval.high) }
        }
    }
}

/// Student's quantile × the deviation of the logarithms without outliers × [`dependence`], of values in order of time.
/// `None` below 3 values, and if one is not positive and finite.
fn reach(values: &[f64]) -> Option<f64> {
    let inner = values.len().checked_sub(2 * outliers(values.len())).filter(|&inner| inner > 2)?;
    let logarithms = limited_logarithms(values)?;
    let quantile = student::half_width(inner as u32 - 1, CONFIDENCE_LEVEL);
    Some(quantile * relative_deviation(values)? * dependence(&logarithms))
}

/// Factor by which values that resemble their predecessors widen an interval, 1 and more: √((1 + ρ) ÷ (1 − ρ)), with the
/// autocorrelation ρ at lag 1. Of n values it is estimated too low by 1 ÷ n. `benches/coverage.rs` measures how far this holds.
fn dependence(values: &[f64]) -> f64 {
    let rho = autocorrelation(values, 1) + 1.0 / values.len() as f64;
    let rho = rho.clamp(0.0, MAX_CORRELATION);
    ((1.0 + rho) / (1.0 - rho)).sqrt()
}

/// Values on either side that do not widen the interval.
fn outliers(n: usize) -> usize {
    (OUTLIER_SHARE * n as f64) as usize
}

/// The standard deviation of the logarithms, without outliers: that of the values as a share of their median. `None` below
/// 2 repetitions, and if a value is not positive and finite.
pub fn relative_deviation(repetitions: &[f64]) -> Option<f64> {
    let (n, outliers) = (repetitions.len(), outliers(repetitions.len()));
    let limited: Moments = limited_logarithms(repetitions)?.into_iter().collect();
    Some(limited.standard_deviation()? * n as f64 / (n - 2 * outliers) as f64)
}

/// The logarithms in their order, with outliers moved to the outermost other value. `None` without values, and if one is not
/// positive and finite.
fn limited_logarithms(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || !values.iter().all(is_usable) {
        return None;
    }
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let mut sorted = logarithms.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let outliers = outliers(values.len());
    let (low, high) = (sorted[outliers], sorted[values.len() - 1 - outliers]);
    Some(logarithms.into_iter().map(|value| value.clamp(low, high)).collect())
}

fn is_usable(value: &f64) -> bool {
    *value > 0.0 && value.is_finite()
}

#[cfg(test)]
mod tests {
    use super::super::simulate::simulations;
    use super::super::simulate::{self, Noise};
    use super::super::{SplitMix64, median};
    use super::*;

    #[test]
    fn the_interval_agrees_with_the_formula_by_hand() {
        // Logarithms ±1 %, three of each: deviation 0.01·√(6/5); Student's 2.5705818 for 5 degrees, √(1 + 1/6).
        let repetitions: Vec<f64> =
            (0..6).map(|index| if index % 2 == 0 { 0.01f64 } else { -0.01 }.exp()).collect();
        let interval = run_interval(1.0, &repetitions).unwrap();
        let reach = 2.570_581_8 * 0.01 * (6.0f64 / 5.0).sqrt() * (7.0f64 / 6.0).sqrt();
        assert!((interval.high.ln() - reach).abs() < 1e-8 && (interval.low.ln() + reach).abs() < 1e-8);
    }

    #[test]
    fn an_outlier_does_not_widen_and_groups_give_their_range() {
        let steady = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.1, 9.9, 10.05, 10.2];
        let with_outlier = steady.map(|value| if value == 10.2 { 1000.0 } else { value });
        let width = |repetitions: &[f64]| {
            let interval = run_interval(10.0, repetitions).unwrap();
            interval.high - interval.low
        };
        assert!((width(&with_outlier) / width(&steady) - 1.0).abs() < 1e-9);
        let groups = [13.0, 45.0, 13.4, 44.0, 12.9, 13.1, 46.0, 13.2];
        assert_eq!(run_interval(13.3, &groups), Some(Interval { low: 12.9, high: 46.0 }));
        assert_eq!(run_interval(47.0, &groups), Some(Interval { low: 12.9, high: 47.0 }));
    }

    #[test]
    fn repetitions_that_resemble_their_predecessors_widen_the_interval() {
        let rising: Vec<f64> = (0..10).map(|index| 10.0 * (0.01 * f64::from(index)).exp()).collect();
        let mixed = [0, 9, 1, 8, 2, 7, 3, 6, 4, 5].map(|index| rising[index]);
        let reach = |repetitions: &[f64]| run_interval(10.0, repetitions).unwrap().high.ln() - 10f64.ln();
        // Lag 1 of 1, 1, 2 … 7, 8, 8 by hand: 50.75 ÷ 66.5; √((1 + ρ) ÷ (1 − ρ)) with a tenth more.
        let rho = 50.75 / 66.5 + 0.1;
        let expected = ((1.0f64 + rho) / (1.0 - rho)).sqrt();
        assert!(
            (reach(&rising) / reach(&mixed) - expected).abs() < 1e-9,
            "{}",
            reach(&rising) / reach(&mixed)
        );
        assert!(autocorrelation(&mixed, 1) < -0.1);
    }

    #[test]
    fn few_repetitions_and_values_that_are_no_figures_have_no_interval() {
        assert_eq!(run_interval(5.0, &[5.0; 5]), None);
        assert_eq!(run_interval(5.0, &[5.0; 6]), Some(Interval { low: 5.0, high: 5.0 }));
        assert_eq!(run_interval(0.0, &[5.0; 6]), None);
        assert_eq!(run_interval(5.0, &[5.0, 5.0, 5.0, 5.0, 5.0, f64::INFINITY]), None);
    }

    #[test]
    fn earlier_runs_widen_up_to_their_range() {
        let narrow = Interval { low: 9.9, high: 10.1 };
        let widened = |earlier: &[f64]| {
            interval_with_earlier_runs(narrow, 10.0, error_interval(10.0, &[10.0; 10]), earlier)
        };
        let alternating =
            |n: usize| (0..n).map(|run| if run % 6 < 3 { 8.0 } else { 12.0 }).collect::<Vec<f64>>();
        assert_eq!(widened(&alternating(7)), narrow);
        assert_eq!(widened(&[10.0; 19]), narrow);
        assert_eq!(widened(&alternating(24)), Interval { low: 8.0, high: 12.0 });
        // By hand: logarithms ±1 %, six each with the outlier on either side limited: deviation 0.01·√(12/11)·12/10;
        // Student's 2.2621572 for 9 degrees.
        let near = (0..10).map(|run| 10.0 * if run % 2 == 0 { 0.01f64 } else { -0.01 }.exp());
        let earlier: Vec<f64> = near.clone().chain([5.0, 20.0]).collect();
        let reach = 2.262_157_2 * 0.01 * (12.0f64 / 11.0).sqrt() * 1.2;
        let interval = widened(&earlier);
        assert!(((interval.high / 10.0).ln() - reach).abs() < 1e-8, "{interval:?}");
        assert!(((interval.low / 10.0).ln() + reach).abs() < 1e-8, "{interval:?}");
        // After a change, the level before counts for 20 runs.
        let changed = |after: usize| [vec![30.0; 30], vec![10.0; after]].concat();
        assert_eq!(widened(&changed(12)).high, 30.0);
        assert!(widened(&changed(25)).high < 10.2);
    }

    #[test]
    fn enough_earlier_runs_replace_the_assumed_difference_between_runs() {
        let repetitions: Vec<f64> =
            (0..10).map(|index| 10.0 * if index % 2 == 0 { 0.1f64 } else { -0.1 }.exp()).collect();
        let own = run_interval(10.0, &repetitions).unwrap();
        let steady = simulate::log_normal(30, 0.01, 1).iter().map(|x| 10.0 * x).collect::<Vec<f64>>();
        let by = |runs: usize| {
            interval_with_earlier_runs(own, 10.0, error_interval(10.0, &repetitions), &steady[..runs])
        };
        assert_eq!(by(19), own);
        // The repetitions of one run vary more than whole runs do: their error ends at the range of the earlier runs.
        let least = steady.iter().copied().fold(10.0, f64::min);
        let most = steady.iter().copied().fold(10.0, f64::max);
        assert_eq!(by(30), Interval { low: least, high: most });
    }

    #[test]
    fn runs_that_drift_more_slowly_than_they_last_are_covered_by_their_history() {
        // Levels that resemble those of the runs before (ρ = 0.7); repetitions show a fifth of that.
        let (mut covered, mut alone, mut widths) = (0, 0, Vec::new());
        for seed in 0..simulations(40) {
            let levels: Vec<f64> =
                simulate::autoregressive(100, 0.7, seed).iter().map(|x| (0.1 * x).exp()).collect();
            for run in 30..100 {
                let repetitions: Vec<f64> = simulate::log_normal(10, 0.02, seed * 1000 + run as u64)
                    .iter()
                    .map(|x| levels[run] * x)
                    .collect();
                let value = median(&repetitions).unwrap();
                let own = run_interval(value, &repetitions).unwrap();
                let with = interval_with_earlier_runs(
                    own,
                    value,
                    error_interval(value, &repetitions),
                    &levels[..run],
                );
                alone += u32::from((own.low..=own.high).contains(&1.0));
                covered += u32::from((with.low..=with.high).contains(&1.0));
                widths.push((with.high / with.low).ln() / (2.0 * 1.96 * 0.1));
            }
        }
        let width = median(&widths).unwrap();
        let share = |count: u32| f64::from(count) / widths.len() as f64;
        let (covered, alone) = (share(covered), share(alone));
        assert!(covered >= 0.9 && alone < 0.54, "{covered} and {alone} of {}", widths.len());
        assert!(width < 1.5, "{width}");
    }

    /// The share of the intervals that hold the median of all of 1000 simulated runs, or a part of them.
    fn coverage(noise: Noise, repetitions: usize) -> f64 {
        let random = &mut SplitMix64::new(7);
        let figures: Vec<(f64, Interval)> = (0..simulations(1000))
            .map(|_| {
                let run = simulate::run(noise, repetitions, 15, random);
                let of_each: Vec<f64> = run.iter().filter_map(|samples| median(samples)).collect();
                let value = median(&run.concat()).unwrap();
                (value, run_interval(value, &of_each).unwrap())
            })
            .collect();
        let centre = median(&figures.iter().map(|(value, _)| *value).collect::<Vec<f64>>()).unwrap();
        let covered = figures.iter().filter(|(_, interval)| (interval.low..=interval.high).contains(&centre));
        covered.count() as f64 / figures.len() as f64
    }

    #[test]
    fn nineteen_of_twenty_intervals_hold_the_median_of_all_runs() {
        for (noise, lowest) in [
            (Noise::Samples { rho: 0.0 }, 0.93),
            (Noise::Samples { rho: 0.9 }, 0.93),
            (Noise::HeavyTails, 0.93),
            (Noise::TwoPlacements { slow_share: 0.3 }, 0.90),
            (Noise::LevelShift, 0.90),
            (Noise::Repetitions { rho: 0.3 }, 0.90),
        ] {
            for repetitions in [6, 10, 20] {
                let share = coverage(noise, repetitions);
                assert!(share >= lowest, "{noise:?}, {repetitions}: {share}");
            }
        }
    }
}
