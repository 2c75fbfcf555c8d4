//! Counts: the tail of a binomial distribution, and whether events came more often in one time than in another.
//!
//! For: counts of events of up to some million. Source of the two-sample test: Przyborowski and Wilenski, "Homogeneity of
//! results in testing samples from Poisson series", 1940.

/// P(X ≥ `count`) of a binomial variable with `trials` and the probability `share` (0 < share < 1) of each.
pub(super) fn upper_tail(count: u64, trials: u64, share: f64) -> f64 {
    if count == 0 {
        return 1.0;
    }
    if count > trials {
        return 0.0;
    }
    // The terms from the largest of the tail on, in proportion to it: then none overflows.
    let n = trials as f64;
    let odds = share / (1.0 - share);
    let peak = (((n + 1.0) * share) as u64).clamp(count, trials);
    let (mut sum, mut term) = (1.0, 1.0);
    for k in peak..trials {
        term *= (n - k as f64) / (k as f64 + 1.0) * odds;
        sum += term;
        if term < f64::EPSILON * sum {
            break;
        }
    }
    term = 1.0;
    for k in (count + 1..=peak).rev() {
        term *= k as f64 / (n - k as f64 + 1.0) / odds;
        sum += term;
        if term < f64::EPSILON * sum {
            break;
        }
    }
    let at_peak = ln_choose(trials, peak) + peak as f64 * share.ln() + (n - peak as f64) * (1.0 - share).ln();
    (sum * at_peak.exp()).min(1.0)
}

/// ln of n over k.
fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// ln n!: the sum below 30, Stirling's series above.
fn ln_factorial(n: u64) -> f64 {
    if n < 30 {
        return (2..=n).map(|k| (k as f64).ln()).sum();
    }
    let n = n as f64;
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3))
}

/// Whether a counter moved more in one time than in another: P of at least `count` of all events in the first time, 0 to
/// 1, if both have the same rate. Times above zero, in one unit.
pub fn more_often_p((count, time): (u64, f64), (other_count, other_time): (u64, f64)) -> f64 {
    upper_tail(count, count + other_count, time / (time + other_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_agree_with_scipy() {
        // SciPy 1.17.1: scipy.stats.binom.sf(k - 1, n, p)
        for (k, n, p, tail) in [
            (10, 12, 1.0 / 3.0, 0.0005438044862929279),
            (0, 12, 0.3, 1.0),
            (12, 12, 0.5, 0.000244140625),
            (3, 10, 0.5, 0.9453125),
            (60, 100, 0.5, 0.02844396682049039),
        ] {
            let actual = upper_tail(k, n, p);
            assert!((actual / tail - 1.0).abs() < 1e-6, "{k} {n} {p}: {actual} is not {tail}");
        }
        assert_eq!(upper_tail(13, 12, 0.5), 0.0);
        assert!((upper_tail(500_000, 1_000_000, 0.5) - 0.5004).abs() < 1e-3);
    }

    #[test]
    fn events_that_come_as_often_are_no_sign() {
        assert!(more_often_p((40, 1.0), (0, 1.0)) < 1e-11);
        assert!(more_often_p((5, 1.0), (5, 1.0)) > 0.5);
        assert!(more_often_p((10, 1.0), (100, 10.0)) > 0.3);
        assert_eq!(more_often_p((0, 1.0), (0, 1.0)), 1.0);
    }
}
