//! Detection of timers in a distribution: does a second group lie at a known distance above the first one?
//!
//! For: latencies of which some wait for a timer of known length. Not for: a distribution that the timer shifts as a
//! whole; there only an intervention shows it. The test compares the count of a narrow band with the bands beside it, so
//! long tails do not cause false alarms.
//! Source of the half-sample mode: Bickel and Frühwirth, "On a fast, robust estimator of the mode", 2006.

use super::binomial::upper_tail;
use super::centre::median_in_place;

/// The distance of a second group, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SideBand {
    /// Distance from the mode to the middle of the band.
    pub distance: f64,
    /// Half of the width of the band.
    pub half_width: f64,
}

/// The values in a band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandCount {
    /// Values in the band.
    pub inside: u64,
    /// Values in the bands beside it, which are twice as wide together.
    pub beside: u64,
    /// Probability of such a share inside, 0 to 1, if values lie evenly in all three bands. 1 below 5 values.
    pub p: f64,
}

/// Minimum number of values in a band that show a group.
const MIN_INSIDE: u64 = 5;
/// Minimum distance of the band and its neighbours from the mode, as a multiple of the median deviation.
const MIN_DISTANCE_CORES: f64 = 4.0;

/// The half-sample mode: the shortest half of the values, again and again, until three are left. `None` without values.
pub fn half_sample_mode(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut rest = sorted.as_slice();
    while rest.len() > 3 {
        let half = rest.len().div_ceil(2);
        let mut shortest = &rest[..half];
        for window in rest.windows(half) {
            if window[half - 1] - window[0] < shortest[half - 1] - shortest[0] {
                shortest = window;
            }
        }
        rest = shortest;
    }
    median_in_place(&mut rest.to_vec())
}

/// The count of each band above the mode of `values`; `None` where the first group is too wide for the band.
pub fn count_side_bands(values: &[f64], bands: &[SideBand]) -> Vec<Option<BandCount>> {
    let Some(mode) = half_sample_mode(values) else { return vec![None; bands.len()] };
    let mut deviations: Vec<f64> = values.iter().map(|value| (value - mode).abs()).collect();
    let core = median_in_place(&mut deviations).unwrap_or(0.0);
    let count = |band: &SideBand| {
        if band.distance - 3.0 * band.half_width < MIN_DISTANCE_CORES * core {
            return None;
        }
        let (mut inside, mut beside) = (0, 0);
        for value in values {
            let apart = (value - mode - band.distance).abs();
            inside += u64::from(apart <= band.half_width);
            beside += u64::from(band.half_width < apart && apart <= 3.0 * band.half_width);
        }
        let p = if inside < MIN_INSIDE { 1.0 } else { upper_tail(inside, inside + beside, 1.0 / 3.0) };
        Some(BandCount { inside, beside, p })
    };
    bands.iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::super::SplitMix64;
    use super::super::holm::holm_adjusted;
    use super::super::simulate::log_normal;
    use super::*;

    #[test]
    fn modes_agree_with_vectors() {
        assert_eq!(half_sample_mode(&[1.0, 1.1, 1.2, 5.0, 9.0]), Some(1.1));
        assert_eq!(half_sample_mode(&[1.0, 2.0, 2.1, 2.2, 3.0, 10.0, 11.0]), Some(2.05));
        assert_eq!(half_sample_mode(&[]), None);
        assert_eq!(half_sample_mode(&[7.0]), Some(7.0));
    }

    const BANDS: [SideBand; 5] = [
        SideBand { distance: 5.0, half_width: 0.5 },
        SideBand { distance: 16.0, half_width: 1.0 },
        SideBand { distance: 41.5, half_width: 2.5 },
        SideBand { distance: 100.0, half_width: 3.0 },
        SideBand { distance: 204.0, half_width: 6.0 },
    ];

    fn lowest_p(values: &[f64]) -> f64 {
        let counts = count_side_bands(values, &BANDS);
        let p: Vec<f64> = counts.iter().flatten().map(|count| count.p).collect();
        holm_adjusted(&p).into_iter().fold(1.0, f64::min)
    }

    #[test]
    fn a_second_group_at_the_distance_is_found() {
        let random = &mut SplitMix64::new(5);
        let values: Vec<f64> = log_normal(1000, 0.1, 6)
            .into_iter()
            .map(|value| value + if random.uniform() < 0.05 { 40.0 + 3.0 * random.uniform() } else { 0.0 })
            .collect();
        let counts = count_side_bands(&values, &BANDS);
        assert!(counts[2].unwrap().inside >= 30 && counts[2].unwrap().p < 1e-9, "{counts:?}");
        assert!(counts[1].unwrap().p > 0.05, "{counts:?}");
    }

    #[test]
    fn a_wide_first_group_is_not_testable() {
        let random = &mut SplitMix64::new(5);
        let values: Vec<f64> = (0..1000).map(|_| -20.0 * (1.0 - random.uniform()).ln()).collect();
        assert_eq!(count_side_bands(&values, &BANDS)[1], None);
        assert_eq!(count_side_bands(&[], &BANDS[..1]), [None]);
    }

    #[test]
    fn long_tails_seldom_show_a_group() {
        let mut alarms = 0;
        for seed in 0..200 {
            let random = &mut SplitMix64::new(seed);
            let pareto: Vec<f64> = (0..1000).map(|_| (1.0 - random.uniform()).powf(-1.0 / 1.5)).collect();
            alarms += usize::from(lowest_p(&pareto) < 0.01)
                + usize::from(lowest_p(&log_normal(1000, 1.0, seed)) < 0.01);
        }
        // 1 % of 400 is 4; 11 or more come by chance in less than 1 of 300 tests.
        assert!(alarms <= 10, "{alarms}");
    }
}
