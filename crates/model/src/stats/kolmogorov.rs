//! The two-sample Kolmogorov–Smirnov test: were these two lists drawn from one distribution?
//!
//! For: a difference of any kind (level, spread, shape) between independent values. Not for:
//! autocorrelated values; thin them first.
//! Sources: Smirnov 1948; the small-sample correction of the asymptotic p-value, Stephens 1970.

/// Minimum argument of the series; below, the tail is above 0.99999 and the series needs many terms.
const MIN_SERIES_ARGUMENT: f64 = 0.3;
/// The terms of the series fall as e^(−2k²λ²): 20 are enough above `MIN_SERIES_ARGUMENT`.
const SERIES_TERMS: i32 = 20;

/// The p-value, 0 to 1, of two ascending lists coming from one distribution; 1 if either is empty. Ties only
/// raise it.
pub(super) fn two_sample_p(a: &[f64], b: &[f64]) -> f64 {
    let (m, n) = (a.len() as f64, b.len() as f64);
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let root = (m * n / (m + n)).sqrt();
    kolmogorov_tail((root + 0.12 + 0.11 / root) * ks_distance(a, b))
}

/// The greatest distance, 0 to 1, between the empirical distribution functions of two lists.
fn ks_distance(a: &[f64], b: &[f64]) -> f64 {
    let (mut i, mut j, mut greatest) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        // `total_cmp` also advances past NaN.
        let next = if a[i].total_cmp(&b[j]).is_le() { a[i] } else { b[j] };
        let reached = |value: &&f64| value.total_cmp(&next).is_le();
        i += a[i..].iter().take_while(reached).count();
        j += b[j..].iter().take_while(reached).count();
        let apart = i as f64 / a.len() as f64 - j as f64 / b.len() as f64;
        greatest = greatest.max(apart.abs());
    }
    greatest
}

/// P(K > λ) of Kolmogorov's limiting distribution.
fn kolmogorov_tail(lambda: f64) -> f64 {
    if lambda < MIN_SERIES_ARGUMENT {
        return 1.0;
    }
    let term = |k: i32| f64::from(1 - 2 * ((k - 1) % 2)) * (-2.0 * (f64::from(k) * lambda).powi(2)).exp();
    (2.0 * (1..=SERIES_TERMS).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tail_agrees_with_scipy() {
        // SciPy 1.17.1: scipy.stats.kstwobign.sf(l)
        for (lambda, p) in [
            (0.3, 0.9999906941986655),
            (0.5, 0.9639452436648751),
            (0.8, 0.5441424115741981),
            (1.0, 0.26999967167735456),
            (1.3581, 0.0499996304316674),
            (1.6276, 0.010001537333060776),
            (2.5, 7.453306344157342e-06),
        ] {
            assert!((kolmogorov_tail(lambda) / p - 1.0).abs() < 1e-9, "{lambda}");
        }
        assert_eq!((kolmogorov_tail(0.0), kolmogorov_tail(50.0)), (1.0, 0.0));
    }

    #[test]
    fn p_is_near_scipys_exact_one() {
        // SciPy 1.17.1, i = np.arange(n): scipy.stats.ks_2samp(a, b, method='exact')
        // n = 60: a = (i*37 % 101)/10, b = (i*53 % 97)/8 + 1; statistic 0.233333, p 0.0760752
        // n = 500: a = (i*37 % 1009)/10, b = (i*53 % 1013)/10 + 8; statistic 0.092, p 0.0289960
        let list = |n: u32, factor, modulus, scale: f64, offset: f64| {
            let mut values: Vec<f64> =
                (0..n).map(|i| f64::from(i * factor % modulus) / scale + offset).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        for (a, b, statistic, p) in [
            (list(60, 37, 101, 10.0, 0.0), list(60, 53, 97, 8.0, 1.0), 0.23333333, 0.0760752),
            (list(500, 37, 1009, 10.0, 0.0), list(500, 53, 1013, 10.0, 8.0), 0.092, 0.0289960),
        ] {
            assert!((ks_distance(&a, &b) - statistic).abs() < 1e-6);
            let actual = two_sample_p(&a, &b);
            assert!((actual / p - 1.0).abs() < 0.2, "{actual} is not near {p}");
        }
    }

    #[test]
    fn extremes() {
        assert_eq!(two_sample_p(&[], &[1.0]), 1.0);
        assert_eq!(two_sample_p(&[f64::NAN], &[f64::NAN]), 1.0);
        assert_eq!(two_sample_p(&[2.0; 50], &[2.0; 50]), 1.0);
        assert!(two_sample_p(&[1.0; 10], &[2.0; 10]) < 1e-4);
    }

    proptest! {
        #[test]
        fn distance_agrees_with_counting(
            mut a in prop::collection::vec(0u8..30, 1..40),
            mut b in prop::collection::vec(0u8..30, 1..40),
        ) {
            a.sort_unstable();
            b.sort_unstable();
            let share = |list: &[u8], x| list.iter().filter(|&&v| v <= x).count() as f64 / list.len() as f64;
            let naive = (0..30).map(|x| (share(&a, x) - share(&b, x)).abs()).fold(0.0, f64::max);
            let floats = |list: &[u8]| list.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            prop_assert_eq!(ks_distance(&floats(&a), &floats(&b)), naive);
        }
    }
}
