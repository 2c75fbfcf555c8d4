//! The interval of a percentile within one run, widened for samples that resemble their predecessors.
//!
//! It is the uncertainty of the percentile of this run, not that of the next run: for that, see
//! `repetitions.rs`. Source: batch means, Schmeiser, "Batch size effects in the analysis of simulation output", 1982;
//! applied to the share of samples below the percentile, Chen and Kelton, "Quantile and tolerance-interval estimation
//! in simulation", 2006.

use super::normal::two_sided_p;
use super::percentile::{interval_ranks, nearest_rank};
use super::series::{autocorrelation, batch_means};
use super::{Moments, student};

/// Number of batches at the first attempt: each is long enough to forget the one before, in most runs.
const MAX_BATCHES: usize = 40;

/// Minimum number of batches; with fewer, the deviation of the batches is not known well enough.
const MIN_BATCHES: usize = 10;

/// Minimum number of samples of a batch; shorter batches say nothing about dependence.
const MIN_BATCH_SAMPLES: usize = 10;

/// Neighbouring batches with a larger correlation, in standard errors, are too short.
const MAX_CORRELATION_SCORE: f64 = 1.0;

/// A run with fewer does not show how long its samples depend on each other.
const MIN_INDEPENDENT_SAMPLES: f64 = 100.0;

const CONFIDENCE_LEVEL: f64 = 0.95;

/// Loss of information about a percentile because the samples of a run depend on each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dependence {
    /// Samples that tell as much as one independent sample; 1 and above.
    pub(crate) samples_per_independent: f64,
    /// Batches from which it was computed.
    batches: usize,
}

/// The dependence of `series`, samples in order of time, for percentile `p` (0 < p < 1). `None` if the series is too
/// short to show how long its memory is.
pub fn dependence(series: &[f64], p: f64) -> Option<Dependence> {
    // A rare event shows dependence badly: the median, which depends more, counts as well.
    let (at_median, own) = (dependence_at(series, 0.5)?, dependence_at(series, p)?);
    let stronger =
        if own.samples_per_independent > at_median.samples_per_independent { own } else { at_median };
    (series.len() as f64 >= MIN_INDEPENDENT_SAMPLES * stronger.samples_per_independent).then_some(stronger)
}

fn dependence_at(series: &[f64], p: f64) -> Option<Dependence> {
    let mut sorted = series.to_vec();
    let rank = nearest_rank(series.len() as u64, p).checked_sub(1)? as usize;
    let (_, &mut limit, _) = sorted.select_nth_unstable_by(rank, f64::total_cmp);
    let is_below: Vec<f64> = series.iter().map(|&value| if value <= limit { 1.0 } else { 0.0 }).collect();
    let below = is_below.iter().sum::<f64>() / is_below.len() as f64;
    let mut batches = MAX_BATCHES.min(series.len() / MIN_BATCH_SAMPLES);
    while batches >= MIN_BATCHES {
        let size = series.len() / batches;
        let means = batch_means(&is_below, size);
        if autocorrelation(&means, 1) * (means.len() as f64).sqrt() < MAX_CORRELATION_SCORE {
            let variance = means.iter().copied().collect::<Moments>().variance()?;
            let independent_variance = below * (1.0 - below) / size as f64;
            let ratio = if independent_variance > 0.0 { variance / independent_variance } else { 1.0 };
            return Some(Dependence { samples_per_independent: ratio.max(1.0), batches: means.len() });
        }
        batches = batches * 2 / 3;
    }
    None
}

/// The ranks (1 to n, both included) that enclose percentile `p` of a run of `n` samples with 95 % confidence. `None`
/// if the run holds too few independent samples.
pub fn within_run_ranks(n: u64, p: f64, dependence: Dependence) -> Option<(u64, u64)> {
    let independent = (n as f64 / dependence.samples_per_independent).floor().max(1.0);
    // The deviation of the batches is an estimate: Student's distribution instead of the normal one.
    let tail = two_sided_p(student::half_width(dependence.batches as u32 - 1, CONFIDENCE_LEVEL));
    let (low, high) = interval_ranks(independent as u64, p, 1.0 - tail)?;
    let scale = n as f64 / independent;
    let rank = |rank: f64| (rank as u64).clamp(1, n);
    Some((rank((low as f64 * scale).floor()), rank((high as f64 * scale).ceil())))
}

#[cfg(test)]
mod tests {
    use super::super::simulate::autoregressive;
    use super::*;

    #[test]
    fn independent_samples_count_fully_and_dependent_ones_less() {
        let of =
            |rho, n| dependence(&autoregressive(n, rho, 3), 0.5).map(|found| found.samples_per_independent);
        assert!(of(0.0, 4000).unwrap() < 2.0);
        // The median of a normal AR(1) series: (1 + 2·Σ asin(ρ^k)·2/π) samples, 11.8 at 0.9.
        let at_nine_tenths = of(0.9, 100_000).unwrap();
        assert!((6.0..24.0).contains(&at_nine_tenths), "{at_nine_tenths}");
        assert_eq!(of(0.999, 400), None);
        assert_eq!(dependence(&[], 0.5), None);
        assert_eq!(dependence(&[4.0; 1000], 0.5).unwrap().samples_per_independent, 1.0);
    }

    #[test]
    fn ranks_widen_with_dependence_until_there_are_none() {
        let ranks = |samples_per_independent| {
            within_run_ranks(10_000, 0.5, Dependence { samples_per_independent, batches: 40 })
        };
        let (low, high) = ranks(1.0).unwrap();
        assert!(low < 4902 && low > 4880 && high > 5099 && high < 5120, "{low} {high}");
        let (wide_low, wide_high) = ranks(100.0).unwrap();
        assert!(wide_low <= 4000 && wide_high >= 6000, "{wide_low} {wide_high}");
        assert_eq!(ranks(5000.0), None);
    }

    #[test]
    fn nine_of_ten_intervals_hold_the_true_percentile() {
        for (rho, n) in [(0.0, 1000), (0.5, 1000), (0.9, 2000)] {
            let (mut covered, mut all) = (0, 0);
            for seed in 0..300 {
                let mut series = autoregressive(n, rho, seed);
                if let Some((low, high)) =
                    dependence(&series, 0.5).and_then(|found| within_run_ranks(n as u64, 0.5, found))
                {
                    series.sort_unstable_by(f64::total_cmp);
                    all += 1;
                    covered +=
                        usize::from(series[low as usize - 1] <= 0.0 && 0.0 <= series[high as usize - 1]);
                }
            }
            assert!(all >= 200 && covered * 10 >= all * 9, "{covered} of {all} at {rho}");
        }
    }
}
