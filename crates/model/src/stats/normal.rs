//! Tail areas of the normal distribution, for p-values and interval widths.
//!
//! Not for densities or other distributions. Sources: the series and the continued fraction of
//! Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.2.11 and 26.2.14.

use std::f64::consts::TAU;

/// Boundary between the series and the continued fraction: both are accurate to 12 digits there.
const SERIES_MAX_Z: f64 = 3.0;
/// Number of terms for 12 digits on either side of the boundary.
const SERIES_TERMS: u32 = 60;

/// P(Z > z), for z ≥ 0.
fn upper_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / TAU.sqrt();
    if z < SERIES_MAX_Z {
        let (mut term, mut sum) = (z, z);
        for k in 1..SERIES_TERMS {
            term *= z * z / f64::from(2 * k + 1);
            sum += term;
        }
        0.5 - density * sum
    } else {
        density / (1..SERIES_TERMS).rev().fold(z, |tail, k| z + f64::from(k) / tail)
    }
}

/// The two-sided p-value of a standard score: P(|Z| > |z|), 0 to 1.
pub(super) fn two_sided_p(z: f64) -> f64 {
    (2.0 * upper_tail(z.abs())).min(1.0)
}

/// The half width, in standard deviations, of the central interval that holds `confidence`
/// (0 < confidence < 1): 1.96 for 0.95.
pub(super) fn half_width(confidence: f64) -> f64 {
    // P(Z > 9) is below 2^-53, the finest step of `confidence`.
    let (mut low, mut high) = (0.0, 9.0);
    // 60 halvings of 9 reach the resolution of f64.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if upper_tail(middle) > (1.0 - confidence) / 2.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_agree_with_scipy() {
        // SciPy 1.17.1: 2*scipy.stats.norm.sf([0.5, 1.0, 1.96, 2.999999, 3.0, 5.0, 10.0])
        for (z, p) in [
            (0.5, 0.6170750774519738),
            (1.0, 0.31731050786291415),
            (1.96, 0.04999579029644087),
            (2.999999, 0.0026998049269703105),
            (3.0, 0.0026997960632601866),
            (5.0, 5.733031437583866e-07),
            (10.0, 1.523970604832094e-23),
        ] {
            let actual = two_sided_p(z);
            assert!((actual / p - 1.0).abs() < 1e-10, "{z}: {actual} is not {p}");
            assert_eq!(two_sided_p(-z), actual);
        }
        assert_eq!(two_sided_p(0.0), 1.0);
        assert_eq!(two_sided_p(60.0), 0.0);
    }

    #[test]
    fn half_widths_agree_with_scipy() {
        // SciPy 1.17.1: scipy.stats.norm.ppf(1 - (1 - c)/2) for c in [0.5, 0.9, 0.95, 0.99, 0.999]
        for (confidence, z) in [
            (0.5, 0.6744897501960817),
            (0.9, 1.6448536269514722),
            (0.95, 1.959963984540054),
            (0.99, 2.5758293035489004),
            (0.999, 3.2905267314919255),
        ] {
            assert!((half_width(confidence) - z).abs() < 1e-10, "{confidence}");
        }
    }
}
