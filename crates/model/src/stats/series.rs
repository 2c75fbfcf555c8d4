//! A run as a time series: autocorrelation, warm-up, and drift from beginning to end.
//!
//! For: skipping the warm-up and warning of drift. Not for: naming causes.
//! Sources: effective size of a first-order autoregressive series, Bartlett 1946; MSER-5, White,
//! "An effective truncation heuristic for bias reduction in simulation output", Simulation 1997,
//! and Spratt 1998; those of the two drift tests are in `kolmogorov.rs` and `kendall.rs`.

use super::moments::Moments;
use super::{kendall, kolmogorov, mann_whitney_p, median};

/// Samples averaged into one before MSER: the 5 of MSER-5.
const WARM_UP_BATCH_SAMPLES: usize = 5;

/// Maximum number of batch means in the trend test; its cost is quadratic.
const MAX_TREND_BATCHES: usize = 200;

/// Maximum number of samples in the test of the halves. More would detect irrelevant differences: with 2500 a
/// side the distribution functions must differ by 4 %.
const MAX_HALF_SAMPLES: usize = 5000;

/// Minimum number of samples, and of independent samples that tell as much.
const MIN_SAMPLES: usize = 20;

/// The trend test decides, at the usual strict level.
const MAX_TREND_P: f64 = 0.01;

/// The halves must confirm it, at the usual level. In simulations of 1000 samples with a standard deviation
/// of 25 %, 0.01 here missed 11 % of the drifts of one fifth, 0.05 missed 3 %.
const MAX_HALVES_P: f64 = 0.05;

/// Minimum number of independent samples of a slow start.
const MIN_START_SAMPLES: usize = 5;
/// Significance level at which a slow start differs from the rest. It is strict because the cut is the best of many.
const MAX_START_P: f64 = 0.001;

/// Result of the test for a change during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// The p-value, 0 to 1, of both halves having one distribution (Kolmogorov–Smirnov).
    pub(crate) halves_p: f64,
    /// The trend, −1 (falls throughout) to 1 (rises throughout): Kendall's τ_b of batch means.
    pub(crate) trend_tau: f64,
    /// The two-sided p-value, 0 to 1, of no trend.
    pub(crate) trend_p: f64,
    /// `trend_p` is below 0.01 and `halves_p` below 0.05: the values moved in one direction, far enough to
    /// separate the halves.
    pub(crate) is_drifting: bool,
}

/// The autocorrelation of `series` at `lag`, −1 to 1 (divisor n, so it decreases with the lag). 1 at lag 0; 0
/// if all values are equal or the lag is not below their number.
pub(crate) fn autocorrelation(series: &[f64], lag: usize) -> f64 {
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let later = series.get(lag..).unwrap_or_default();
    let shared: f64 = series.iter().zip(later).map(|(a, b)| (a - mean) * (b - mean)).sum();
    let own: f64 = series.iter().map(|x| (x - mean).powi(2)).sum();
    match lag {
        0 => 1.0,
        _ if own > 0.0 => shared / own,
        _ => 0.0,
    }
}

/// The number of independent samples with the same information about the mean as `series`: n·(1 − ρ₁)/(1 +
/// ρ₁), limited to 1 … n. 0 for an empty series.
pub(crate) fn effective_size(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let rho = autocorrelation(series, 1);
    (n * (1.0 - rho) / (1.0 + rho)).max(1.0).min(n)
}

/// The number of samples to skip as warm-up: 0 to n/2, a multiple of 5 (MSER-5).
///
/// The cut with the smallest standard error of the remaining batch means. A cut near n/2 means that the
/// series had not settled by then. 0 for fewer than 20 samples.
pub fn warm_up_samples(series: &[f64]) -> usize {
    if series.len() < MIN_SAMPLES {
        return 0;
    }
    let means = batch_means(series, WARM_UP_BATCH_SAMPLES);
    let (mut rest, mut best) = (Moments::new(), (f64::INFINITY, 0));
    for (cut, &mean) in means.iter().enumerate().rev() {
        rest.add(mean);
        if cut <= means.len() / 2 {
            let count = rest.count() as f64;
            let score = rest.variance().unwrap_or(0.0) * (count - 1.0) / (count * count);
            if score <= best.0 {
                best = (score, cut);
            }
        }
    }
    best.1 * WARM_UP_BATCH_SAMPLES
}

/// Whether the samples before `cut` are higher than those after it, and not by chance: Mann–Whitney of samples so far apart
/// that they do not depend on each other.
pub fn starts_higher(series: &[f64], cut: usize) -> bool {
    let (start, rest) = series.split_at(cut);
    // The start falls, which looks like dependence: the rest shows whether it is.
    let apart = samples_apart(rest.len(), residual_size(rest)).max(series.len().div_ceil(MAX_HALF_SAMPLES));
    let thinned = |part: &[f64]| part.iter().copied().step_by(apart).collect::<Vec<f64>>();
    let (start, rest) = (thinned(start), thinned(rest));
    start.len() >= MIN_START_SAMPLES && mann_whitney_p(&start, &rest) < MAX_START_P && {
        let middle = |part: &[f64]| median(part).unwrap_or(0.0);
        middle(&start) > middle(&rest)
    }
}

/// The effective size of `series` without its change: a ramp or a step in the middle is no dependence.
fn residual_size(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let (first, second) = series.split_at(series.len() / 2);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let (low, high) = (mean(first), mean(second));
    let without_step: Vec<f64> =
        first.iter().map(|value| value - low).chain(second.iter().map(|value| value - high)).collect();
    let centre = mean(series);
    let place = |index: usize| index as f64 - (n - 1.0) / 2.0;
    let products: f64 = series.iter().enumerate().map(|(index, value)| place(index) * (value - centre)).sum();
    let slope = products / ((n * n - 1.0) * n / 12.0).max(f64::MIN_POSITIVE);
    let without_ramp: Vec<f64> =
        series.iter().enumerate().map(|(index, value)| value - centre - slope * place(index)).collect();
    effective_size(&without_step).max(effective_size(&without_ramp))
}

/// Distance at which samples hardly depend on each other.
fn samples_apart(samples: usize, independent: f64) -> usize {
    (samples as f64 / independent).ceil().max(1.0) as usize
}

/// Tests whether `series` (finite values, in order) changed from its beginning to its end.
///
/// Both tests need independent values, so the halves are thinned, and the batches of the trend test lengthened, by the
/// effective size of the series without its ramp or step. A series with the information of fewer than 20 independent
/// samples shows no drift: it may just wander. The measured error rates stand in docs/metrics.md.
pub fn detect_drift(series: &[f64]) -> Drift {
    let n = series.len();
    let independent = residual_size(series);
    if n < MIN_SAMPLES || independent < MIN_SAMPLES as f64 {
        return Drift { halves_p: 1.0, trend_tau: 0.0, trend_p: 1.0, is_drifting: false };
    }
    let apart = samples_apart(n, independent);
    let step = |most: usize| apart.max(n.div_ceil(most)).min(n / MIN_SAMPLES);
    let thinned = |half: &[f64]| {
        let mut values: Vec<f64> = half.iter().copied().step_by(step(MAX_HALF_SAMPLES)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (first, second) = series.split_at(n / 2);
    let halves_p = kolmogorov::two_sample_p(&thinned(first), &thinned(second));
    let (trend_tau, trend_p) = kendall::mann_kendall_trend(&batch_means(series, step(MAX_TREND_BATCHES)));
    let drifted = halves_p < MAX_HALVES_P && trend_p < MAX_TREND_P;
    Drift { halves_p, trend_tau, trend_p, is_drifting: drifted }
}

/// The means of consecutive batches of `size` ≥ 1 values; an incomplete last batch is dropped.
pub(super) fn batch_means(series: &[f64], size: usize) -> Vec<f64> {
    series.chunks_exact(size).map(|batch| batch.iter().sum::<f64>() / size as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::super::simulate;
    use super::super::simulate::simulations;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn autocorrelation_agrees_with_numpy() {
        // NumPy 2.4.6: t = np.arange(200); z = np.sin(t/7.) + 0.1*(t*37 % 101); z -= z.mean();
        // (z[:200-k]*z[k:]).sum()/(z**2).sum() for k in (1, 2, 7)
        let wave = |t: u32| (f64::from(t) / 7.0).sin() + 0.1 * f64::from(t * 37 % 101);
        let series: Vec<f64> = (0..200).map(wave).collect();
        for (lag, rho) in
            [(0, 1.0), (1, -0.3172752226609508), (2, -0.12979973943857698), (7, -0.41106657128532503)]
        {
            assert!((autocorrelation(&series, lag) - rho).abs() < 1e-12, "{lag}");
        }
        assert_eq!(autocorrelation(&series, 200), 0.0);
        assert_eq!(autocorrelation(&[5.0; 9], 1), 0.0);
        assert_eq!(autocorrelation(&[], 1), 0.0);
    }

    #[test]
    fn effective_size_of_known_series() {
        assert_eq!(effective_size(&[]), 0.0);
        assert_eq!(effective_size(&[5.0]), 1.0);
        assert_eq!(effective_size(&[5.0; 9]), 9.0);
        let ramp: Vec<f64> = (0..1000).map(f64::from).collect();
        assert!(effective_size(&ramp) < 2.0);
        // (1 − 0.5)/(1 + 0.5) of 100 000
        let size = effective_size(&simulate::autoregressive(100_000, 0.5, 1));
        assert!((size / 33_333.0 - 1.0).abs() < 0.05, "{size}");
        let alternating: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        assert_eq!(effective_size(&alternating), 100.0);
    }

    #[test]
    fn warm_up_agrees_with_numpy() {
        // NumPy 2.4.6: t = np.arange(503); w = 5 + 20*np.exp(-t/15.) + (t*37 % 101)/50.;
        // q = w[:500].reshape(-1, 5).mean(1); n = len(q);
        // np.argmin([q[d:].var()/(n - d) for d in range(n//2 + 1)])*5
        let settling = |t: u32| 5.0 + 20.0 * (-f64::from(t) / 15.0).exp() + f64::from(t * 37 % 101) / 50.0;
        let series: Vec<f64> = (0..503).map(settling).collect();
        assert_eq!(warm_up_samples(&series), 80);
        assert_eq!(warm_up_samples(&series[..19]), 0);
        assert_eq!(warm_up_samples(&[7.0; 100]), 0);
    }

    /// The share, in percent, of `count` simulated series in which a drift is found.
    fn drift_share(count: u64, series: impl Fn(u64) -> Vec<f64>) -> f64 {
        let drifted = (0..count).filter(|&seed| detect_drift(&series(seed)).is_drifting).count();
        100.0 * drifted as f64 / count as f64
    }

    #[test]
    fn steady_series_rarely_count_as_drifting() {
        let count = simulations(1000);
        let independent = drift_share(count, |seed| simulate::log_normal(1000, 0.5, seed));
        assert!(independent <= 2.0, "{independent} %");
        for (rho, most) in [(0.5, 5.0), (0.9, 5.0), (0.99, 5.0), (0.999, 5.0), (-0.5, 2.0)] {
            let rate = drift_share(count, |seed| simulate::autoregressive(1000, rho, seed));
            assert!(rate <= most, "{rate} % at {rho}");
        }
    }

    #[test]
    fn steady_series_rarely_start_higher_and_slow_starts_are_found() {
        for rho in [0.0, 0.9, 0.99, 0.999] {
            let started = (0..300).filter(|&seed| {
                let series = simulate::autoregressive(1000, rho, seed);
                starts_higher(&series, warm_up_samples(&series))
            });
            let started = started.count();
            assert!(started <= 15, "{started} of 300 at {rho}");
        }
        let slow = |seed| -> Vec<f64> {
            let steady = simulate::log_normal(1000, 0.1, seed);
            let slower = |index: usize| if index < 250 { 2.0 - index as f64 / 250.0 } else { 1.0 };
            steady.iter().enumerate().map(|(index, value)| value * slower(index)).collect()
        };
        let found = (0..100).filter(|&seed| starts_higher(&slow(seed), warm_up_samples(&slow(seed)))).count();
        assert!(found >= 95, "{found} of 100");
        assert!(!starts_higher(&[], 0) && !starts_higher(&[1.0; 100], 50));
    }

    #[test]
    fn a_drift_is_found() {
        let ramp = |x: Vec<f64>, total: f64| -> Vec<f64> {
            let n = x.len() as f64;
            x.iter().enumerate().map(|(i, x)| x * (1.0 + total * i as f64 / n)).collect()
        };
        for total in [0.2, -0.2] {
            let rate = drift_share(300, |seed| ramp(simulate::log_normal(1000, 0.25, seed), total));
            assert!(rate >= 95.0, "{rate} %");
        }
        let long = drift_share(20, |seed| ramp(simulate::log_normal(20_000, 0.5, seed), 0.2));
        assert!(long >= 95.0, "{long} %");
    }

    #[test]
    fn plain_ramps_and_steps_are_drifts_and_constants_are_not() {
        let ramp: Vec<f64> = (0..1000).map(f64::from).collect();
        let result = detect_drift(&ramp);
        assert!(result.is_drifting && result.trend_tau == 1.0, "{result:?}");
        let step: Vec<f64> = (0..1000).map(|i| if i < 500 { 1.0 } else { 2.0 }).collect();
        assert!(detect_drift(&step).is_drifting);
        for n in [0, 1, 19, 20, 1000] {
            let steady = Drift { halves_p: 1.0, trend_tau: 0.0, trend_p: 1.0, is_drifting: false };
            assert_eq!(detect_drift(&vec![3.0; n]), steady, "{n}");
        }
    }

    proptest! {
        #[test]
        fn warm_up_agrees_with_trying_every_cut(series in prop::collection::vec(0.0f64..1e6, 20..200)) {
            let means = batch_means(&series, 5);
            let score = |cut: usize| {
                let rest = &means[cut..];
                let mean = rest.iter().sum::<f64>() / rest.len() as f64;
                rest.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
            };
            let cut = warm_up_samples(&series);
            prop_assert!(cut.is_multiple_of(5) && cut <= series.len() / 2);
            let least = (0..=means.len() / 2).map(score).fold(f64::INFINITY, f64::min);
            prop_assert!(score(cut / 5) <= least * (1.0 + 1e-9));
        }

        #[test]
        fn results_stay_in_range(series in prop::collection::vec(-1e6f64..1e6, 0..120)) {
            let n = series.len() as f64;
            let size = effective_size(&series);
            prop_assert!(size >= n.min(1.0) && size <= n);
            for lag in 0..5 {
                prop_assert!(autocorrelation(&series, lag).abs() <= 1.0);
            }
            let result = detect_drift(&series);
            prop_assert!((0.0..=1.0).contains(&result.halves_p));
            prop_assert!((0.0..=1.0).contains(&result.trend_p));
            prop_assert!((-1.0..=1.0).contains(&result.trend_tau));
        }
    }
}
