//! The interval of a figure of one transfer, from the parts of its time series.
//!
//! For: a mean that was measured as a whole, as the rate of a transfer, with the same quantity in parts of equal length. Not
//! for: percentiles (`within_run.rs`) and repetitions (`repetitions.rs`). Successive parts depend on each other: a burst
//! that arrives late is missing as a whole and doubles the next, so the covariances of near parts count with their sign.
//! Source: the variance of the mean of a stationary series, Anderson, "The statistical analysis of time series", 1971, 8.2.

use super::{Interval, median, student};

/// Minimum number of parts that show how they depend on each other.
const MIN_PARTS: usize = 10;

/// Maximum number of parts. More are joined: shorter ones have more of the noise that the next part cancels.
const MAX_PARTS: usize = 40;

/// The covariances at one lag for this many parts count: more would use up the degrees of freedom.
const PARTS_PER_LAG: usize = 7;

/// A start below this share of the middle, as slow start has, is not part of the steady series.
const STARTED_SHARE: f64 = 0.8;

const CONFIDENCE_LEVEL: f64 = 0.95;

/// The normal deviate of the confidence level.
const NORMAL_DEVIATE: f64 = 1.959_964;

/// The intervals of a figure by its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesIntervals {
    /// Interval of the mean of this run; it says nothing of other runs.
    pub within_run: Interval,
    /// Interval of the same figure of other runs.
    pub of_runs: Interval,
}

/// The 95 % intervals of `value` (positive, in any unit), the mean of a quantity whose successive `parts` have equal
/// lengths. `between_runs` is the standard deviation between runs, as a share, 0 and more.
///
/// A slow start is left out. `None` with fewer than 10 parts, without a positive mean, and if a value is not finite.
pub fn series_intervals(value: f64, parts: &[f64], between_runs: f64) -> Option<SeriesIntervals> {
    let blocks = joined(without_start(parts)?)?;
    let n = blocks.len();
    let mean = blocks.iter().sum::<f64>() / n as f64;
    if !(value > 0.0 && mean > 0.0 && value.is_finite() && mean.is_finite()) {
        return None;
    }
    let deviations: Vec<f64> = blocks.iter().map(|block| block / mean - 1.0).collect();
    let covariance = |lag: usize| {
        let products = deviations.iter().zip(&deviations[lag..]).map(|(a, b)| a * b);
        products.sum::<f64>() / (n - 1) as f64
    };
    let lags = n / PARTS_PER_LAG;
    let near: f64 = (1..=lags).map(covariance).sum();
    // Parts that cancel each other completely leave what one part at either end has.
    let variance = (covariance(0) + 2.0 * near).max(covariance(0) / n as f64);
    // The mean is that of the same parts, which makes every covariance too low by the variance of the mean.
    let variance = variance * n as f64 / (n - 1 - 2 * lags) as f64;
    let freedom = (n / (lags + 1)) as u32;
    let own = student::half_width(freedom, CONFIDENCE_LEVEL) * (variance / n as f64).sqrt();
    let around = |reach: f64| Interval { low: value * (-reach).exp(), high: value * reach.exp() };
    let of_runs = around(own.hypot(NORMAL_DEVIATE * between_runs));
    Some(SeriesIntervals { within_run: around(own), of_runs })
}

/// The parts from the first that reaches the usual height; at least half of them. `None` if there are none.
fn without_start(parts: &[f64]) -> Option<&[f64]> {
    let height = STARTED_SHARE * median(parts)?;
    let start = parts.iter().position(|&part| part >= height)?;
    Some(&parts[start.min(parts.len() / 2)..])
}

/// Sums of as many neighbouring parts each as leave at most [`MAX_PARTS`]; the first parts that fill no sum are left out.
fn joined(parts: &[f64]) -> Option<Vec<f64>> {
    let size = parts.len().div_ceil(MAX_PARTS).max(1);
    let blocks: Vec<f64> = parts.rchunks_exact(size).rev().map(|block| block.iter().sum()).collect();
    (blocks.len() >= MIN_PARTS).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::super::simulate;
    use super::super::simulate::simulations;
    use super::*;

    /// The share of the intervals of simulated transfers, in percent, that hold the true rate of 100; and their median width.
    fn coverage(parts: impl Fn(u64) -> Vec<f64>) -> (f64, f64) {
        let count = simulations(1000);
        let all: Vec<Interval> = (0..count)
            .filter_map(|seed| {
                let parts = parts(seed);
                let value = parts.iter().sum::<f64>() / parts.len() as f64;
                Some(series_intervals(value, &parts, 0.0)?.within_run)
            })
            .collect();
        assert_eq!(all.len() as u64, count);
        let held = all.iter().filter(|interval| (interval.low..=interval.high).contains(&100.0)).count();
        let widths: Vec<f64> = all.iter().map(|interval| interval.high - interval.low).collect();
        (100.0 * held as f64 / count as f64, median(&widths).unwrap())
    }

    #[test]
    fn nine_of_ten_intervals_hold_the_rate_however_the_parts_depend() {
        let series = |rho: f64, seed: u64| -> Vec<f64> {
            simulate::autoregressive(100, rho, seed).iter().map(|x| 100.0 + 5.0 * x).collect()
        };
        for (rho, lowest) in [(0.0, 88.0), (0.5, 88.0), (-0.5, 88.0)] {
            let (held, _) = coverage(|seed| series(rho, seed));
            assert!(held >= lowest, "{held} % at {rho}");
        }
    }

    #[test]
    fn bursts_that_the_next_part_makes_up_for_hardly_widen_the_interval() {
        // A link of constant rate: each part lacks what arrives in the next.
        let bursts = |seed: u64| -> Vec<f64> {
            let late = simulate::autoregressive(101, 0.0, seed);
            late.windows(2).map(|pair| 100.0 + 10.0 * (pair[0] - pair[1])).collect()
        };
        let independent = |seed: u64| -> Vec<f64> {
            simulate::autoregressive(100, 0.0, seed).iter().map(|x| 100.0 + 14.1 * x).collect()
        };
        let ((held, width), (_, plain)) = (coverage(bursts), coverage(independent));
        assert!(held >= 90.0 && width < plain / 2.0, "{held} %, {width} beside {plain}");
    }

    #[test]
    fn a_slow_start_and_the_difference_between_runs() {
        let steady: Vec<f64> = (0..40).map(|index| 100.0 + f64::from(index % 3)).collect();
        let started = [vec![1.0, 10.0, 50.0], steady.clone()].concat();
        let of = |parts: &[f64], between| series_intervals(100.0, parts, between).unwrap();
        assert_eq!(of(&started, 0.0), of(&steady, 0.0));
        let wide = of(&steady, 0.1);
        assert_eq!(wide.within_run, of(&steady, 0.0).of_runs);
        assert!(((wide.of_runs.high / 100.0).ln() - 0.196).abs() < 0.002, "{wide:?}");
    }

    #[test]
    fn few_parts_and_impossible_values_have_no_interval() {
        assert_eq!(series_intervals(5.0, &[5.0; 9], 0.0), None);
        let constant = series_intervals(5.0, &[5.0; 10], 0.0).unwrap();
        assert_eq!(constant.within_run, Interval { low: 5.0, high: 5.0 });
        assert_eq!(series_intervals(5.0, &[0.0; 10], 0.0), None);
        assert_eq!(series_intervals(0.0, &[5.0; 10], 0.0), None);
        assert_eq!(series_intervals(5.0, &[f64::NAN; 10], 0.0), None);
    }
}
