//! Student's t distribution with integer degrees of freedom, for the intervals of a few values.
//!
//! Not for densities or p-values. Source: the finite sums of Abramowitz and Stegun, "Handbook of Mathematical
//! Functions", 26.7.3 and 26.7.4.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// P(|T| < t) with t = √`freedom` · tan `angle`.
fn central_probability(angle: f64, freedom: u32) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    // Odd degrees: 2/3, 4/5, … with odd powers; even ones: 1/2, 3/4, … with even powers.
    let is_odd = freedom % 2 == 1;
    let (mut term, mut over) = if is_odd { (cosine, 2.0) } else { (1.0, 1.0) };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    for _ in 1..freedom / 2 {
        term *= over / (over + 1.0) * cosine * cosine;
        over += 2.0;
        sum += term;
    }
    if is_odd { FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

/// The half width, in standard errors, of the central interval with this `confidence` (0 < confidence < 1)
/// and `freedom` degrees of freedom (1 and above): 2.36 for 0.95 and 7.
pub(super) fn half_width(freedom: u32, confidence: f64) -> f64 {
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    // 60 halvings of π/2 reach the resolution of f64.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if central_probability(middle, freedom) < confidence {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::from(freedom).sqrt() * low.tan()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_widths_agree_with_scipy() {
        // SciPy 1.17.1: scipy.stats.t.ppf(1 - (1 - c)/2, k)
        for (freedom, confidence, t) in [
            (1, 0.95, 12.706204736174694),
            (2, 0.95, 4.302652729749462),
            (3, 0.95, 3.1824463052837078),
            (7, 0.95, 2.364624251592784),
            (8, 0.95, 2.306004135204166),
            (30, 0.95, 2.0422724563012378),
            (101, 0.95, 1.983731002955606),
            (1, 0.99, 63.656741162871526),
            (4, 0.99, 4.604094871349992),
            (9, 0.99, 3.249835541592126),
            (5, 0.5, 0.7266868438004226),
        ] {
            let actual = half_width(freedom, confidence);
            assert!((actual / t - 1.0).abs() < 1e-12, "{freedom} {confidence}: {actual} is not {t}");
        }
    }
}
