//! The smallest difference that a number of repetitions can show, and the number that a given difference needs.
//!
//! For: planning a comparison of two lists by [`mann_whitney_p`](super::mann_whitney_p). Not for: verdicts.
//! Sources: Cohen, "Statistical Power Analysis for the Behavioral Sciences", §2; the efficiency 3/π of ranks against
//! means for normal values, Hodges and Lehmann 1956.

use std::f64::consts::PI;

use super::student::half_width;

/// Significance level at which a comparison shows a difference.
const SIGNIFICANCE_LEVEL: f64 = 0.05;
/// Share of cases in which the comparison shows the difference.
const POWER: f64 = 0.8;
/// The exact test needs 4 and 4 values for a significant result.
const MIN_REPETITIONS: u32 = 4;
/// Maximum number of repetitions that is given as advice.
const MAX_REPETITIONS: u32 = 10_000;

/// The smallest shift that a comparison of 2 × `repetitions` shows in 80 % of cases, in the unit of `deviation`, the
/// standard deviation of the repetitions of one side. `None` below 4 repetitions.
pub fn smallest_detectable_shift(deviation: f64, repetitions: u32) -> Option<f64> {
    if repetitions < MIN_REPETITIONS {
        return None;
    }
    let freedom = 2 * repetitions - 2;
    // The p-values of so few values are coarse: these are the largest below 5 %.
    let level = match repetitions {
        4 => 2.0 / 70.0,
        5 => 8.0 / 252.0,
        _ => SIGNIFICANCE_LEVEL,
    };
    let quantiles = half_width(freedom, 1.0 - level) + half_width(freedom, 2.0 * POWER - 1.0);
    Some(quantiles * deviation * (2.0 / f64::from(repetitions) * PI / 3.0).sqrt())
}

/// The fewest repetitions of each side that show `shift` in 80 % of cases. `None` above 10 000.
pub fn repetitions_to_detect(deviation: f64, shift: f64) -> Option<u32> {
    let shows = |repetitions: u32| {
        smallest_detectable_shift(deviation, repetitions).is_some_and(|smallest| smallest <= shift)
    };
    let (mut low, mut high) = (MIN_REPETITIONS, MAX_REPETITIONS);
    if !shows(high) {
        return None;
    }
    while low < high {
        let middle = low.midpoint(high);
        if shows(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::super::mann_whitney_p;
    use super::super::simulate::autoregressive;
    use super::super::simulate::simulations;
    use super::*;

    #[test]
    fn the_smallest_difference_is_shown_in_four_of_five_comparisons() {
        for n in [6, 10, 20] {
            let shift = smallest_detectable_shift(1.0, n).unwrap();
            let comparisons = simulations(500);
            let shown = (0..comparisons).filter(|&seed| {
                let side = |seed| autoregressive(n as usize, 0.0, seed);
                let b: Vec<f64> = side(2 * seed + 1).iter().map(|value| value + shift).collect();
                mann_whitney_p(&side(2 * seed), &b) < SIGNIFICANCE_LEVEL
            });
            let share = shown.count() as f64 / comparisons as f64;
            assert!((0.75..=0.88).contains(&share), "{share} of {comparisons} with {n}");
        }
    }

    #[test]
    fn repetitions_and_differences_agree() {
        assert_eq!(smallest_detectable_shift(1.0, 3), None);
        assert_eq!(repetitions_to_detect(1.0, 1e-6), None);
        assert_eq!(repetitions_to_detect(1.0, 100.0), Some(4));
        for shift in [0.3, 1.0, 2.0] {
            let n = repetitions_to_detect(1.0, shift).unwrap();
            assert!(smallest_detectable_shift(1.0, n).unwrap() <= shift);
            assert!(smallest_detectable_shift(1.0, n - 1).is_none_or(|smallest| smallest > shift));
        }
    }
}
