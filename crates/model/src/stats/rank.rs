//! Comparison of two lists of values by their ranks: does one tend to be larger, and by how much?
//!
//! For: figures of a few to some hundred repetitions of any distribution. Not for: samples within a run,
//! which depend on each other.
//! Sources: Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other",
//! 1947; its exact distribution under ties by counting arrangements, Streitberg and Röhmel 1986; Hodges and Lehmann,
//! "Estimates of location based on rank tests", 1963.

use super::Interval;
use super::centre::median_in_place;
use super::normal::{half_width, two_sided_p};

/// Maximum number of values in both lists together for which all arrangements are counted, within some milliseconds.
const MAX_EXACT_VALUES: usize = 60;

/// The two-sided p-value, 0 to 1, of the Mann–Whitney test of two lists without NaN; 1 when either is empty.
///
/// Exact up to 60 values together, including ties; above, the normal approximation with corrections for ties
/// and continuity.
pub fn mann_whitney_p(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(a, b);
    let sum: usize = ranks[..a.len()].iter().sum();
    if ranks.len() <= MAX_EXACT_VALUES {
        exact_p(&ranks, a.len(), sum)
    } else {
        approximate_p(&ranks, a.len(), sum)
    }
}

/// Twice the mid-rank of each value, those of `a` first: integers even with ties.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0; values.len()];
    let mut below = 0;
    for tied in order.chunk_by(|&i, &j| values[i] == values[j]) {
        // Twice the mean of the ranks below + 1 … below + tied.
        tied.iter().for_each(|&index| ranks[index] = 2 * below + tied.len() + 1);
        below += tied.len();
    }
    ranks
}

/// Twice the smaller tail: the share of all choices of `n` ranks whose sum is at least as extreme as `sum`.
fn exact_p(ranks: &[usize], n: usize, sum: usize) -> f64 {
    let max_sum: usize = ranks.iter().sum();
    // choices[k][s]: number of choices of k ranks with the sum s.
    let mut choices = vec![vec![0.0f64; max_sum + 1]; n + 1];
    choices[0][0] = 1.0;
    for &rank in ranks {
        for k in (1..=n).rev() {
            let (fewer, these) = choices.split_at_mut(k);
            for s in (rank..=max_sum).rev() {
                these[0][s] += fewer[k - 1][s - rank];
            }
        }
    }
    let all: f64 = choices[n].iter().sum();
    let (low, high): (f64, f64) = (choices[n][..=sum].iter().sum(), choices[n][sum..].iter().sum());
    (2.0 * low.min(high) / all).min(1.0)
}

fn approximate_p(ranks: &[usize], n: usize, sum: usize) -> f64 {
    let (all, n) = (ranks.len() as f64, n as f64);
    let m = all - n;
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let ties: f64 =
        sorted.chunk_by(|a, b| a == b).map(|tied| (tied.len() as f64).powi(3) - tied.len() as f64).sum();
    let variance = n * m / 12.0 * ((all + 1.0) - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let apart = (sum as f64 / 2.0 - n * (all + 1.0) / 2.0).abs();
    two_sided_p((apart - 0.5).max(0.0) / variance.sqrt())
}

/// The shift from `a` to `b`: the median of all differences, and its 95 % interval, if the lists differ by a
/// shift. `None` if either is empty; no interval if the lists are too short for one (below 4 and 4).
pub fn hodges_lehmann_shift(a: &[f64], b: &[f64]) -> Option<(f64, Option<Interval>)> {
    let mut differences: Vec<f64> =
        a.iter().flat_map(|x| b.iter().map(move |y| difference(*x, *y))).collect();
    let centre = median_in_place(&mut differences)?;
    differences.sort_unstable_by(f64::total_cmp);
    let rank = critical_rank(a.len(), b.len());
    let interval = (rank > 0)
        .then(|| Interval { low: differences[rank - 1], high: differences[differences.len() - rank] });
    Some((centre, interval))
}

/// Difference of two values; 0 for two infinite ones (not reached on either side).
fn difference(x: f64, y: f64) -> f64 {
    if x == y { 0.0 } else { y - x }
}

/// The largest k with P(U < k) ≤ 2.5 %, for lists of these lengths without ties; 0 if there is none.
fn critical_rank(n: usize, m: usize) -> usize {
    const TAIL: f64 = 0.025;
    if n + m > MAX_EXACT_VALUES {
        let (n, m) = (n as f64, m as f64);
        let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
        return (n * m / 2.0 - half_width(1.0 - 2.0 * TAIL) * deviation).floor().max(0.0) as usize;
    }
    // counts[k][u]: number of arrangements of k values so far with U = u.
    let mut counts = vec![vec![0.0f64; n * m + 1]; n + 1];
    counts[0][0] = 1.0;
    for rank in 1..=n + m {
        for k in (1..=n.min(rank)).rev() {
            // If the k-th of them has this rank, rank − k values of the other list are below it.
            let others = rank - k;
            if others > m {
                continue;
            }
            let (fewer, these) = counts.split_at_mut(k);
            for u in (others..=n * m).rev() {
                these[0][u] += fewer[k - 1][u - others];
            }
        }
    }
    let all: f64 = counts[n].iter().sum();
    let mut below = 0.0;
    counts[n]
        .iter()
        .take_while(|count| {
            below += **count;
            below <= TAIL * all
        })
        .count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::simulate::log_normal;

    /// Values from the Python expression [(i*factor % modulus)/scale + offset for i in range(n)].
    fn list(n: u32, factor: u32, modulus: u32, scale: f64, offset: f64) -> Vec<f64> {
        (0..n).map(|i| f64::from(i * factor % modulus) / scale + offset).collect()
    }

    #[test]
    fn agrees_with_scipy() {
        // SciPy 1.17.1: scipy.stats.mannwhitneyu(x, y, method=…).pvalue, with 'exact' where there are no ties,
        // PermutationMethod(n_resamples=10**7), which then counts all arrangements, where there are, and 'asymptotic'
        // (with continuity) above 60 values; numpy.median(numpy.subtract.outer(y, x)).
        for (x, y, p, centre) in [
            (vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0], 0.02857142857142857, 4.0),
            (vec![1.1, 2.5, 3.2, 4.8, 5.0], vec![2.2, 3.9, 6.1, 7.7], 0.4126984126984127, 1.35),
            (list(10, 37, 101, 10.0, 0.0), list(10, 53, 97, 10.0, 6.05), 0.001050033557773496, 5.9),
            (list(30, 37, 101, 10.0, 0.0), list(30, 53, 97, 10.0, 1.05), 0.4231613414870329, 0.65),
            (list(10, 37, 101, 10.0, 0.0), list(10, 53, 97, 10.0, 1.0), 0.6174413821472645, 0.85),
            (list(12, 7, 11, 1.0, 0.0), list(9, 5, 13, 1.0, 1.0), 0.2841492872452625, 2.0),
            (list(40, 37, 101, 10.0, 0.0), list(35, 53, 97, 10.0, 2.05), 0.03323052941976942, 1.55),
            (list(60, 37, 101, 10.0, 0.0), list(60, 53, 97, 10.0, 1.0), 0.2842650385234703, 0.6),
            (list(80, 37, 23, 1.0, 0.0), list(70, 53, 29, 1.0, 1.0), 0.0028824770526740084, 4.0),
        ] {
            let actual = mann_whitney_p(&x, &y);
            assert!((actual / p - 1.0).abs() < 1e-9, "{actual} is not {p}");
            let (actual, _) = hodges_lehmann_shift(&x, &y).unwrap();
            assert!((actual - centre).abs() < 1e-9, "{actual} is not {centre}");
        }
    }

    #[test]
    fn interval_ranks_agree_with_scipy() {
        // SciPy 1.17.1: w = scipy.stats._mannwhitneyu._MWU(n, m); the first k with w.cdf(k) > 0.025; above 60 values
        // floor(n*m/2 - scipy.stats.norm.ppf(0.975)*sqrt(n*m*(n+m+1)/12)).
        for (n, m, k) in [
            (3, 4, 0),
            (4, 4, 1),
            (5, 5, 3),
            (4, 10, 6),
            (10, 10, 24),
            (20, 15, 91),
            (30, 30, 318),
            (40, 35, 515),
            (100, 100, 4197),
        ] {
            assert_eq!((critical_rank(n, m), critical_rank(m, n)), (k, k), "{n} {m}");
        }
        // The 24th and the 77th of 100 sorted differences: numpy.sort(…)[[23, 76]].
        let (_, interval) =
            hodges_lehmann_shift(&list(10, 37, 101, 10.0, 0.0), &list(10, 53, 97, 10.0, 6.05)).unwrap();
        let interval = interval.unwrap();
        assert!((interval.low - 2.95).abs() < 1e-9 && (interval.high - 9.35).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn intervals_have_their_stated_coverage() {
        let covered = (0..1000).filter(|&seed| {
            let (a, b) = (log_normal(10, 0.02, 2 * seed), log_normal(10, 0.02, 2 * seed + 1));
            hodges_lehmann_shift(&a, &b)
                .unwrap()
                .1
                .is_some_and(|interval| interval.low <= 0.0 && 0.0 <= interval.high)
        });
        let covered = covered.count();
        assert!((930..=980).contains(&covered), "{covered} of 1000");
    }

    #[test]
    fn empty_and_equal_lists() {
        assert_eq!((mann_whitney_p(&[], &[1.0]), hodges_lehmann_shift(&[], &[1.0])), (1.0, None));
        assert_eq!(mann_whitney_p(&[2.0; 5], &[2.0; 5]), 1.0);
        assert_eq!(mann_whitney_p(&[2.0; 50], &[2.0; 50]), 1.0);
        assert_eq!(hodges_lehmann_shift(&[1.0; 3], &[f64::INFINITY; 3]), Some((f64::INFINITY, None)));
        assert_eq!(hodges_lehmann_shift(&[f64::INFINITY; 3], &[f64::INFINITY; 3]), Some((0.0, None)));
    }

    proptest! {
        #[test]
        fn sides_may_be_swapped(
            a in prop::collection::vec(0u8..20, 1..20), b in prop::collection::vec(0u8..20, 1..20),
        ) {
            let floats = |list: &[u8]| list.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let (a, b) = (floats(&a), floats(&b));
            prop_assert!((mann_whitney_p(&a, &b) - mann_whitney_p(&b, &a)).abs() < 1e-12);
            let (shift, interval) = hodges_lehmann_shift(&a, &b).unwrap();
            let (reverse_shift, reverse_interval) = hodges_lehmann_shift(&b, &a).unwrap();
            prop_assert_eq!(shift, -reverse_shift);
            prop_assert_eq!(interval.map(|i| (i.low, i.high)), reverse_interval.map(|i| (-i.high, -i.low)));
            prop_assert!(interval.is_none_or(|interval| interval.low <= shift && shift <= interval.high));
        }
    }
}
