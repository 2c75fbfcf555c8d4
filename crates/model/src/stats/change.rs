//! Changes of level in a history of results.
//!
//! For: a figure of up to some thousand runs, in order of time. Not for: samples within a run, and not for slow trends.
//! Sources: the largest rank-sum difference of all splits, Pettitt, "A non-parametric approach to the change-point
//! problem", 1979, each split divided by its standard deviation; its p-value by permutation; several changes by binary
//! segmentation, Scott and Knott 1974.

use super::SplitMix64;

/// A level has at least this many results.
const MIN_LEVEL_RESULTS: usize = 4;

/// The false-alarm rate of a history without change.
const SIGNIFICANCE_LEVEL: f64 = 0.02;

/// Permutations of a test: with these the share of false alarms is exact.
const PERMUTATIONS: usize = 499;

/// Seed of the permutations: the same history always gives the same changes.
const SEED: u64 = 0x1f0e_57a9;

/// The indices at which a new level begins, in order; empty if the level never changes.
///
/// A history without change and without dependence between its results has a change with a probability of 2 %.
pub fn level_changes(history: &[f64]) -> Vec<usize> {
    let mut random = SplitMix64::new(SEED);
    let mut changes = Vec::new();
    // Halves that still have to be searched, the earliest last.
    let mut left = vec![(0, history.len())];
    while let Some((from, to)) = left.pop() {
        if let Some(cut) = level_change(&history[from..to], &mut random) {
            changes.push(from + cut);
            left.push((from + cut, to));
            left.push((from, from + cut));
        }
    }
    changes.sort_unstable();
    changes
}

/// The most likely change of level, if one is significant.
fn level_change(values: &[f64], random: &mut SplitMix64) -> Option<usize> {
    if values.len() < 2 * MIN_LEVEL_RESULTS {
        return None;
    }
    let mut ranks = centred_ranks(values);
    let (cut, score) = best_split(&ranks)?;
    let max_exceeding = (SIGNIFICANCE_LEVEL * (PERMUTATIONS + 1) as f64) as usize;
    let mut exceeding = 1;
    for _ in 0..PERMUTATIONS {
        shuffle(&mut ranks, random);
        exceeding += usize::from(best_split(&ranks).is_some_and(|(_, other)| other >= score));
        if exceeding > max_exceeding {
            return None;
        }
    }
    Some(cut)
}

/// The mid-ranks less their mean.
fn centred_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for tied in order.chunk_by(|&i, &j| values[i] == values[j]) {
        let rank = below as f64 + (tied.len() as f64 - values.len() as f64) / 2.0;
        tied.iter().for_each(|&index| ranks[index] = rank);
        below += tied.len();
    }
    ranks
}

/// The split with the largest standardized difference, and the square of that difference but for a constant factor.
/// `None` if all ranks are equal.
fn best_split(centred: &[f64]) -> Option<(usize, f64)> {
    let n = centred.len();
    let (mut sum, mut best) = (0.0, (0, 0.0));
    for (index, rank) in centred.iter().enumerate().take(n - MIN_LEVEL_RESULTS) {
        sum += rank;
        let before = index + 1;
        let score = sum * sum / (before * (n - before)) as f64;
        if before >= MIN_LEVEL_RESULTS && score > best.1 {
            best = (before, score);
        }
    }
    (best.0 > 0).then_some(best)
}

/// Fisher and Yates 1938.
fn shuffle(values: &mut [f64], random: &mut SplitMix64) {
    for last in (1..values.len()).rev() {
        values.swap(last, (random.uniform() * (last + 1) as f64) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate::{autoregressive, log_normal};
    use super::*;

    #[test]
    fn planted_changes_are_found_in_their_places() {
        let level = |n: usize, level: f64, seed: u64| {
            log_normal(n, 0.01, seed).iter().map(|value| level * value).collect::<Vec<f64>>()
        };
        let history = [level(20, 1.0, 1), level(15, 1.3, 2), level(25, 1.1, 3)].concat();
        assert_eq!(level_changes(&history), [20, 35]);
        assert_eq!(level_changes(&[level(5, 1.0, 1), level(5, 2.0, 2)].concat()), [5]);
    }

    #[test]
    fn nothing_changes_in_short_and_constant_histories() {
        for n in [0, 1, 7, 8, 100] {
            assert_eq!(level_changes(&vec![5.0; n]), [0usize; 0], "{n}");
        }
        assert_eq!(level_changes(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]), [0usize; 0]);
    }

    #[test]
    fn steady_histories_rarely_change_and_shifts_of_two_deviations_are_found() {
        let steady =
            (0..1000).filter(|&seed| !level_changes(&autoregressive(30, 0.0, seed)).is_empty()).count();
        assert!(steady <= 35, "{steady} of 1000");
        let found = (0..300).filter(|&seed| {
            let mut history = autoregressive(30, 0.0, seed);
            history[20..].iter_mut().for_each(|value| *value += 2.0);
            level_changes(&history).iter().any(|change| change.abs_diff(20) <= 3)
        });
        let found = found.count();
        assert!(found >= 240, "{found} of 300");
    }

    #[test]
    fn ranks_share_ties_and_sum_to_nothing() {
        assert_eq!(centred_ranks(&[3.0, 1.0, 3.0, 2.0]), [1.0, -1.5, 1.0, -0.5]);
    }
}
