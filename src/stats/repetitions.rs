//! The interval of a figure of a run, from its repetitions: where the same figure of other runs lies.
//!
//! For: figures of some repetitions of one case, each on a fresh connection. Not for: samples within a repetition, which
//! depend on each other (`within_run.rs`), and not for comparisons, which use the repetitions themselves (`rank.rs`).
//! Sources: random effects, Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013; the deviation without
//! outliers, Tukey and McLaughlin, "Less vulnerable confidence and significance procedures for location", 1963.

use super::groups::separate_groups;
use super::{Interval, Moments, student};

/// Fewer repetitions have no interval: they show no groups, and of two placements they often hold one alone.
pub const MIN_INTERVAL_REPETITIONS: usize = 6;

const CONFIDENCE_LEVEL: f64 = 0.95;

/// This share of the repetitions on either side does not widen the interval.
const OUTLIER_SHARE: f64 = 0.1;

/// The 95 % interval of a run's figure `value`, by the same figure of each repetition. It holds the median of many such
/// runs, and `value`.
///
/// Runs differ more than the error of their mean suggests, because host and processes change between runs: on
/// loopback, a new process added as much as a new connection. So a run counts as one more draw with the deviation of
/// its repetitions. The deviation is that of the logarithms, without outliers. Where repetitions fall into groups, the
/// interval is their range: another run may be in any of them. `None` below 6 repetitions, and if a value is not positive
/// and finite.
pub fn run_interval(value: f64, repetitions: &[f64]) -> Option<Interval> {
    let n = repetitions.len();
    let is_usable = |value: &f64| *value > 0.0 && value.is_finite();
    if n < MIN_INTERVAL_REPETITIONS || !is_usable(&value) || !repetitions.iter().all(is_usable) {
        return None;
    }
    if !separate_groups(repetitions).is_empty() {
        let (low, high) =
            repetitions.iter().fold((value, value), |(low, high), &x| (low.min(x), high.max(x)));
        return Some(Interval { low, high });
    }
    let outliers = (OUTLIER_SHARE * n as f64) as usize;
    let mut logarithms: Vec<f64> = repetitions.iter().map(|value| value.ln()).collect();
    logarithms.sort_unstable_by(f64::total_cmp);
    let (low, high) = (logarithms[outliers], logarithms[n - 1 - outliers]);
    let limited: Moments = logarithms.iter().map(|value| value.clamp(low, high)).collect();
    let inner = n - 2 * outliers;
    let deviation = limited.standard_deviation()? * n as f64 / inner as f64;
    let reach =
        student::half_width(inner as u32 - 1, CONFIDENCE_LEVEL) * deviation * (1.0 + 1.0 / n as f64).sqrt();
    Some(Interval { low: value * (-reach).exp(), high: value * reach.exp() })
}

#[cfg(test)]
mod tests {
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
    fn few_repetitions_and_values_that_are_no_figures_have_no_interval() {
        assert_eq!(run_interval(5.0, &[5.0; 5]), None);
        assert_eq!(run_interval(5.0, &[5.0; 6]), Some(Interval { low: 5.0, high: 5.0 }));
        assert_eq!(run_interval(0.0, &[5.0; 6]), None);
        assert_eq!(run_interval(5.0, &[5.0, 5.0, 5.0, 5.0, 5.0, f64::INFINITY]), None);
    }

    /// The share of the intervals that hold the median of all of 1000 simulated runs.
    fn coverage(noise: Noise, repetitions: usize) -> f64 {
        let random = &mut SplitMix64::new(7);
        let figures: Vec<(f64, Interval)> = (0..1000)
            .map(|_| {
                let run = simulate::run(noise, repetitions, 15, random);
                let of_each: Vec<f64> = run.iter().filter_map(|samples| median(samples)).collect();
                let value = median(&run.concat()).unwrap();
                (value, run_interval(value, &of_each).unwrap())
            })
            .collect();
        let centre = median(&figures.iter().map(|(value, _)| *value).collect::<Vec<f64>>()).unwrap();
        let covered = figures.iter().filter(|(_, interval)| (interval.low..=interval.high).contains(&centre));
        covered.count() as f64 / 1000.0
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
