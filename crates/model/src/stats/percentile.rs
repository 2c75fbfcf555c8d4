//! Percentiles by rank: the rank of the sample, whether there are enough samples, and its confidence
//! interval.
//!
//! For: ranks for a given number of samples, for look-up in a histogram or a sorted list. Not for: storing
//! samples. No distribution is assumed.
//! Sources: nearest rank, Hyndman and Fan, "Sample quantiles in statistical packages", 1996,
//! definition 1; order-statistic intervals, David and Nagaraja, "Order Statistics", 3rd ed., §7.1;
//! the skewness term, Cornish and Fisher 1938.

use super::normal::half_width;

/// The probability on either side of the interval that a percentile must support: half of 5 %.
const SUPPORT_TAIL: f64 = 0.025;

/// Maximum expected number of samples beyond the percentile for which the binomial is summed term by term: every n ≤ 20 000, and
/// the far tails of any n. The sum has at most about 10 000 steps.
const MAX_EXACT_EXPECTED: f64 = 10_000.0;

/// The nearest rank of percentile `p` among `n` sorted samples: ceil(p·n), 1 to n.
///
/// `p` is a share, 0 < p ≤ 1. A product that differs from an integer only by rounding (0.07 · 100) counts as
/// that integer. 0 if `n` is 0: there is no such sample.
pub fn nearest_rank(n: u64, p: f64) -> u64 {
    // p and the product each have an error of at most half an epsilon, and p may come from a division.
    let nearest = (p * n as f64 * (1.0 - 4.0 * f64::EPSILON)).ceil() as u64;
    nearest.max(1).min(n)
}

/// Whether `n` samples support percentile `p`, a share between 0 and 1.
///
/// They do if the largest of them (for p < 0.5 the smallest) lies beyond the true percentile with a
/// probability of at least 97.5 %, so that a 95 % interval exists: n ≥ ln 0.025 / ln p. That is 6 for the
/// median, 36 for p90, 368 for p99, 3688 for p99.9. Never for 0 and 1: the smallest and the largest possible
/// value cannot be estimated.
pub fn is_supported(n: u64, p: f64) -> bool {
    let inner = p.max(1.0 - p);
    inner < 1.0 && n as f64 >= SUPPORT_TAIL.ln() / inner.ln()
}

/// The ranks (1 to n, both included) of the two sorted samples that enclose the true percentile `p` with at
/// least the given `confidence`, with half of the remaining probability on either side.
///
/// `p` and `confidence` are shares between 0 and 1, ends excluded. Samples must be independent; ties only
/// increase the coverage. `None` if `n` samples are too few, or an argument is out of range. Exact while at
/// most 10 000 samples are expected beyond the percentile (so for every n ≤ 20 000); above, a normal
/// approximation with continuity and skewness corrections.
pub fn interval_ranks(n: u64, p: f64, confidence: f64) -> Option<(u64, u64)> {
    let inside = |share: f64| share > 0.0 && share < 1.0;
    if n == 0 || !inside(p) || !inside(confidence) {
        return None;
    }
    if n as f64 * p.min(1.0 - p) <= MAX_EXACT_EXPECTED {
        exact_ranks(n, p, (1.0 - confidence) / 2.0)
    } else {
        Some(approximate_ranks(n, p, half_width(confidence)))
    }
}

/// Sums the binomial distribution of R, the number of samples on the rarer side of the percentile.
fn exact_ranks(n: u64, p: f64, tail: f64) -> Option<(u64, u64)> {
    let rare = p.min(1.0 - p);
    let odds = rare.ln() - (-rare).ln_1p();
    // In logarithms: the first terms of a long sum are below the smallest f64.
    let mut log_term = n as f64 * (-rare).ln_1p();
    let mut cumulative = log_term.exp();
    if cumulative > tail {
        return None;
    }
    let mut few = 0; // the largest r with P(R ≤ r) ≤ tail
    let mut many = 0; // the smallest r with P(R > r) ≤ tail
    while cumulative < 1.0 - tail {
        log_term += ((n - many) as f64 / (many + 1) as f64).ln() + odds;
        many += 1;
        if many >= n {
            return None;
        }
        let term = log_term.exp();
        cumulative += term;
        if cumulative <= tail {
            few = many;
        }
        // Past the peak the remaining terms are smaller than the rounding error.
        if many as f64 > n as f64 * rare && term < f64::EPSILON * tail {
            break;
        }
    }
    if p < 0.5 { Some((few + 1, many + 1)) } else { Some((n - many, n - few)) }
}

/// Ranks from a normal approximation with the binomial's mean, deviation and skewness.
fn approximate_ranks(n: u64, p: f64, z: f64) -> (u64, u64) {
    let deviation = (n as f64 * p * (1.0 - p)).sqrt();
    let skew = (z * z - 1.0) * (1.0 - 2.0 * p) / 6.0;
    let centre = n as f64 * p + 0.5 + skew;
    let low = (centre - z * deviation).floor() as u64;
    let high = (centre + z * deviation).ceil() as u64;
    (low.max(1), high.min(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rank_is_not_misled_by_rounding() {
        assert_eq!(nearest_rank(10, 0.9), 9);
        assert_eq!(nearest_rank(100, 0.07), 7); // 0.07 * 100.0 is 7.000000000000001
        assert_eq!(nearest_rank(1000, 0.999), 999);
        assert_eq!(nearest_rank(10, 0.91), 10);
        assert_eq!(nearest_rank(10, 1.0), 10);
        assert_eq!(nearest_rank(10, 1e-9), 1);
        assert_eq!(nearest_rank(1, 0.5), 1);
        assert_eq!(nearest_rank(0, 0.5), 0);
    }

    #[test]
    fn support_starts_with_the_first_interval() {
        let minimum_samples = [(0.5, 6), (0.9, 36), (0.99, 368), (0.999, 3688), (0.99999, 368_887)];
        for (p, n) in minimum_samples {
            for p in [p, 1.0 - p] {
                assert!(is_supported(n, p) && !is_supported(n - 1, p), "{p}");
                assert!(interval_ranks(n, p, 0.95).is_some(), "{p}");
                assert!(interval_ranks(n - 1, p, 0.95).is_none(), "{p}");
            }
        }
        assert!(!is_supported(u64::MAX, 1.0) && !is_supported(u64::MAX, 0.0));
        assert!(!is_supported(0, 0.5));
    }

    #[test]
    fn interval_agrees_with_scipy() {
        // SciPy 1.17.1: a = (1 - c)/2;
        // (scipy.stats.binom.ppf(a, n, p), scipy.stats.binom.ppf(1 - a, n, p) + 1)
        for (n, p, confidence, ranks) in [
            (6, 0.5, 0.95, (1, 6)),
            (36, 0.9, 0.95, (29, 36)),
            (100, 0.5, 0.95, (40, 61)),
            (100, 0.1, 0.95, (5, 17)),
            (368, 0.99, 0.95, (360, 368)),
            (1000, 0.9, 0.99, (875, 925)),
            (10_000, 0.5, 0.95, (4902, 5099)),
            (10_000, 0.999, 0.95, (9983, 9997)),
            (368_887, 0.99999, 0.95, (368_879, 368_887)),
            (1_000_000, 0.999, 0.95, (998_938, 999_062)),
            // The normal approximation begins here; the ranks are identical.
            (1_000_000, 0.5, 0.95, (499_020, 500_981)),
            (10_000_000, 0.99, 0.99, (9_899_189, 9_900_811)),
            (1_000_000, 0.05, 0.95, (49_573, 50_429)),
            (5_000_000_000, 0.5, 0.95, (2_499_930_705, 2_500_069_296)),
        ] {
            assert_eq!(interval_ranks(n, p, confidence), Some(ranks), "{n} {p}");
        }
    }

    #[test]
    fn out_of_range_has_no_interval() {
        for (n, p, confidence) in [
            (0, 0.5, 0.95),
            (100, 0.0, 0.95),
            (100, 1.0, 0.95),
            (100, f64::NAN, 0.95),
            (100, 0.5, 0.0),
            (100, 0.5, 1.0),
        ] {
            assert_eq!(interval_ranks(n, p, confidence), None);
        }
    }

    /// P(B ≤ k) for every k, B binomial (n, p), by factorials.
    fn binomial_cumulative(n: u64, p: f64) -> Vec<f64> {
        let mut log_factorial = vec![0.0];
        (1..=n).for_each(|k| log_factorial.push(log_factorial[k as usize - 1] + (k as f64).ln()));
        let choose =
            |k: u64| log_factorial[n as usize] - log_factorial[k as usize] - log_factorial[(n - k) as usize];
        let term = |k| (choose(k) + k as f64 * p.ln() + (n - k) as f64 * (1.0 - p).ln()).exp();
        let running = |sum: &mut f64, k| {
            *sum += term(k);
            Some(*sum)
        };
        (0..=n).scan(0.0, running).collect()
    }

    #[test]
    fn coverage_is_at_least_nominal_and_no_narrower_pair_would_do() {
        for n in [6, 7, 20, 36, 99, 368, 1000, 5000] {
            for p in [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99] {
                for confidence in [0.5, 0.9, 0.95, 0.99] {
                    let Some((low, high)) = interval_ranks(n, p, confidence) else {
                        continue;
                    };
                    // The percentile lies at or above sample k when at least k samples are below it.
                    let cumulative = binomial_cumulative(n, p);
                    let fewer_than = |k: u64| {
                        if k == 0 { 0.0 } else { cumulative[k as usize - 1] }
                    };
                    let tail = (1.0 - confidence) / 2.0 + 1e-9;
                    let case = format!("{n} {p} {confidence}: {low} {high}");
                    assert!(1 <= low && low < high && high <= n, "{case}");
                    assert!(fewer_than(low) <= tail && 1.0 - fewer_than(high) <= tail, "{case}");
                    assert!(fewer_than(low + 1) > tail - 2e-9, "{case}");
                    assert!(1.0 - fewer_than(high - 1) > tail - 2e-9, "{case}");
                }
            }
        }
    }

    #[test]
    fn approximation_meets_the_exact_sum() {
        for p in [0.3, 0.5, 0.9, 0.97] {
            for confidence in [0.9, 0.95, 0.999] {
                let exact = exact_ranks(400_000, p, (1.0 - confidence) / 2.0).unwrap();
                let approximate = approximate_ranks(400_000, p, half_width(confidence));
                assert!(
                    approximate.0 <= exact.0 && exact.0 - approximate.0 <= 1,
                    "{p}: {approximate:?} {exact:?}"
                );
                assert!(
                    approximate.1 >= exact.1 && approximate.1 - exact.1 <= 1,
                    "{p}: {approximate:?} {exact:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn rank_is_the_whole_number_division_rounded_up(n in 1u64..1_000_000_000, mills in 1u64..=1000) {
            prop_assert_eq!(nearest_rank(n, mills as f64 / 1000.0), (n * mills).div_ceil(1000));
        }

        #[test]
        fn interval_holds_the_nearest_rank(n in 1u64..30_000, p in 0.001f64..0.999) {
            if let Some((low, high)) = interval_ranks(n, p, 0.95) {
                prop_assert!((low..=high).contains(&nearest_rank(n, p)));
            }
        }
    }
}
