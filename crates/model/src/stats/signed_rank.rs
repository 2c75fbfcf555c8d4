//! Comparison of pairs by the ranks of their differences: does one of the two tend to be larger, and by how much?
//!
//! For: figures of measurements that were made in pairs, shortly after each other: what both have in common drops out.
//! Not for: samples within a measurement, which depend on each other, and lists without pairs (`rank.rs`).
//! Sources: Wilcoxon, "Individual comparisons by ranking methods", 1945; Hodges and Lehmann 1963 for the estimate; its
//! interval from the critical value, Tukey 1949.

use super::Interval;
use super::centre::median_in_place;
use super::normal::{half_width, two_sided_p};

/// Maximum number of differences for which all signs are counted.
const MAX_EXACT_PAIRS: usize = 25;

/// Probability of each tail outside the interval.
const TAIL: f64 = 0.025;

/// The two-sided p-value, 0 to 1, of the signed-rank test of differences without NaN; differences of zero do not count.
/// 1 if none is left.
///
/// Exact up to 25 differences, including ties; above, the normal approximation with corrections for ties and continuity.
pub fn signed_rank_p(differences: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|value| *value != 0.0).collect();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    if sorted.is_empty() {
        return 1.0;
    }
    // Twice the mid-ranks: integers even with ties.
    let (mut ranks, mut tied, mut positive) = (Vec::with_capacity(sorted.len()), 0.0, 0);
    for group in sorted.chunk_by(|a, b| a.abs() == b.abs()) {
        let rank = 2 * ranks.len() + group.len() + 1;
        ranks.extend(std::iter::repeat_n(rank, group.len()));
        tied += (group.len() as f64).powi(3) - group.len() as f64;
        positive += rank * group.iter().filter(|value| **value > 0.0).count();
    }
    if ranks.len() <= MAX_EXACT_PAIRS {
        return exact_p(&ranks, positive);
    }
    let n = ranks.len() as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tied / 48.0;
    let apart = (positive as f64 / 2.0 - n * (n + 1.0) / 4.0).abs();
    two_sided_p((apart - 0.5).max(0.0) / variance.sqrt())
}

/// Twice the smaller tail: the share of all choices of signs whose sum of positive ranks is at least as extreme.
fn exact_p(ranks: &[usize], sum: usize) -> f64 {
    let counts = sign_counts(ranks);
    let all: f64 = counts.iter().sum();
    let (low, high): (f64, f64) = (counts[..=sum].iter().sum(), counts[sum..].iter().sum());
    (2.0 * low.min(high) / all).min(1.0)
}

/// Number of choices of signs for each sum whose positive ranks have it.
fn sign_counts(ranks: &[usize]) -> Vec<f64> {
    let mut counts = vec![0.0; ranks.iter().sum::<usize>() + 1];
    counts[0] = 1.0;
    for &rank in ranks {
        for sum in (rank..counts.len()).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    counts
}

/// The middle of the differences (median of the means of all pairs of them), and its 95 % interval. `None` without
/// differences; no interval below 6.
pub fn hodges_lehmann_centre(differences: &[f64]) -> Option<(f64, Option<Interval>)> {
    let mut averages = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (index, one) in differences.iter().enumerate() {
        averages.extend(differences[index..].iter().map(|other| mean(*one, *other)));
    }
    let centre = median_in_place(&mut averages)?;
    averages.sort_unstable_by(f64::total_cmp);
    let interval = critical_sum(differences.len()).and_then(|sum| {
        let (low, high) = (averages.get(sum)?, averages.get(averages.len().checked_sub(sum + 1)?)?);
        Some(Interval { low: *low, high: *high })
    });
    Some((centre, interval))
}

/// An infinite gain and an infinite loss cancel out.
fn mean(a: f64, b: f64) -> f64 {
    let mean = a.midpoint(b);
    if mean.is_nan() { 0.0 } else { mean }
}

/// The largest sum of positive ranks of `n` differences whose probability is at most 2.5 %.
fn critical_sum(n: usize) -> Option<usize> {
    if n > MAX_EXACT_PAIRS {
        let n = n as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return Some((n * (n + 1.0) / 4.0 - half_width(1.0 - 2.0 * TAIL) * deviation).floor() as usize);
    }
    let ranks: Vec<usize> = (1..=n).collect();
    let counts = sign_counts(&ranks);
    let (all, mut below) = (counts.iter().sum::<f64>(), 0.0);
    let sums = counts.iter().take_while(|count| {
        below += **count;
        below <= TAIL * all
    });
    sums.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::SplitMix64;
    use super::super::simulate::normal;
    use super::*;

    #[test]
    fn agrees_with_scipy() {
        // SciPy 1.17.1: scipy.stats.wilcoxon(d, method='exact').pvalue
        let one_to_ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(signed_rank_p(&one_to_ten), 0.001953125);
        let one_negative: Vec<f64> = one_to_ten.iter().map(|&d| if d == 1.0 { -d } else { d }).collect();
        assert_eq!(signed_rank_p(&one_negative), 0.00390625);
        assert_eq!(signed_rank_p(&[0.1, 0.2, 0.15, 0.3, -0.05, 0.12]), 0.0625);
        assert_eq!((signed_rank_p(&[]), signed_rank_p(&[0.0, 0.0])), (1.0, 1.0));
        // By counting: 0.0890290.
        let many: Vec<f64> = (1..=26).map(|k| f64::from(k) * if k % 3 == 0 { -1.0 } else { 1.0 }).collect();
        let approximate = signed_rank_p(&many);
        assert!((approximate - 0.0890290).abs() < 5e-4, "{approximate}");
    }

    #[test]
    fn interval_ranks_agree_with_the_tables() {
        for (n, sum) in
            [(6, Some(0)), (8, Some(3)), (10, Some(8)), (12, Some(13)), (20, Some(52)), (5, None), (0, None)]
        {
            assert_eq!(critical_sum(n), sum, "{n}");
        }
        let (centre, interval) = hodges_lehmann_centre(&[0.1, 0.2, 0.15, 0.3, -0.05, 0.12]).unwrap();
        let interval = interval.unwrap();
        assert!(
            (centre - 0.135).abs() < 1e-12 && (interval.low, interval.high) == (-0.05, 0.3),
            "{centre} {interval:?}"
        );
        assert_eq!(hodges_lehmann_centre(&[]), None);
        assert_eq!(hodges_lehmann_centre(&[3.0]), Some((3.0, None)));
    }

    /// Ten pairs of blocks whose level drifts, the second of each with this shift.
    fn pairs(shift: f64, random: &mut SplitMix64) -> Vec<f64> {
        let mut level = 0.0;
        let mut block = || {
            level = 0.87 * level + 0.5 * normal(random);
            level
        };
        (0..10).map(|_| (block(), block())).map(|(a, b)| shift + b - a).collect()
    }

    #[test]
    fn false_alarms_and_coverage_are_as_stated_under_drift() {
        let random = &mut SplitMix64::new(7);
        let (mut alarms, mut covered, mut shown) = (0, 0, 0);
        for _ in 0..2000 {
            let differences = pairs(0.0, random);
            alarms += usize::from(signed_rank_p(&differences) < 0.05);
            let interval = hodges_lehmann_centre(&differences).unwrap().1.unwrap();
            covered += usize::from(interval.low <= 0.0 && 0.0 <= interval.high);
            shown += usize::from(signed_rank_p(&pairs(1.0, random)) < 0.05);
        }
        // Neighbouring pairs are on opposite sides of the drift: fewer false alarms than the nominal 4.9 %.
        assert!((20..=120).contains(&alarms), "{alarms} of 2000");
        assert!((1880..=1980).contains(&covered), "{covered} of 2000");
        assert!(shown >= 1900, "{shown} of 2000");
    }

    proptest! {
        #[test]
        fn signs_may_be_swapped(values in prop::collection::vec(-20i8..20, 1..40)) {
            let differences: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
            let reversed: Vec<f64> = differences.iter().map(|value| -value).collect();
            prop_assert!((signed_rank_p(&differences) - signed_rank_p(&reversed)).abs() < 1e-12);
            let (centre, interval) = hodges_lehmann_centre(&differences).unwrap();
            let (negative, reverse) = hodges_lehmann_centre(&reversed).unwrap();
            prop_assert_eq!(centre, -negative);
            prop_assert_eq!(interval.map(|i| (i.low, i.high)), reverse.map(|i| (-i.high, -i.low)));
        }
    }
}
