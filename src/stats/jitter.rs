//! Jitter: how much one delay differs from the one before it.
//!
//! For: two common figures of the same name, kept apart. Not for: the spread over a whole run
//! (a standard deviation or a percentile says that). Both work on round-trip times as well as on
//! one-way delays, because a constant clock offset falls out of a difference.
//!
//! * [`Jitter::mean`]: the mean of |x_i − x_(i−1)|, where the difference is the inter-packet delay
//!   variation (IPDV) of RFC 3393 between consecutive packets. Every difference weighs the same.
//! * [`Jitter::smoothed`]: the interarrival jitter of RFC 3550 §6.4.1, J += (|D| − J) / 16, which
//!   starts at 0 and remembers some 16 differences: the state at the end, not of the whole run.

use super::sum::Sum;

/// The weight of the newest difference in the smoothed estimator is 1 / this (RFC 3550 §6.4.1).
const SMOOTHING: f64 = 16.0;

/// Both jitter figures of a stream of delays, in fixed memory and in the unit of the delays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    previous: Option<f64>,
    differences: u64,
    sum: Sum,
    smoothed: f64,
}

impl Jitter {
    /// The jitter of no delays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next delay, which must be finite.
    pub fn add(&mut self, delay: f64) {
        if let Some(previous) = self.previous.replace(delay) {
            let difference = (delay - previous).abs();
            self.differences += 1;
            self.sum.add(difference);
            self.smoothed += (difference - self.smoothed) / SMOOTHING;
        }
    }

    /// An exchange was lost here: the delays before and after it are not consecutive, and their
    /// difference is not taken (RFC 3393 leaves it undefined; RFC 3550 would take it).
    pub fn gap(&mut self) {
        self.previous = None;
    }

    /// Joins the differences of another stream; the smoothed estimator stays that of this one.
    pub fn merge(&mut self, other: &Self) {
        self.differences += other.differences;
        self.sum.add(other.sum.value());
    }

    /// How many differences were taken.
    pub fn differences(&self) -> u64 {
        self.differences
    }

    /// The mean absolute difference of consecutive delays (RFC 3393); `None` before the first.
    pub fn mean(&self) -> Option<f64> {
        (self.differences > 0).then(|| self.sum.value() / self.differences as f64)
    }

    /// The smoothed interarrival jitter (RFC 3550); `None` before the first difference.
    pub fn smoothed(&self) -> Option<f64> {
        (self.differences > 0).then_some(self.smoothed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let mut jitter = Jitter::new();
        assert_eq!((jitter.mean(), jitter.smoothed()), (None, None));
        jitter.add(100.0);
        assert_eq!((jitter.mean(), jitter.smoothed()), (None, None));
        jitter.add(116.0);
        assert_eq!((jitter.mean(), jitter.smoothed()), (Some(16.0), Some(1.0)));
        jitter.add(83.0); // |D| = 33: J = 1 + 32/16
        assert_eq!((jitter.mean(), jitter.smoothed()), (Some(24.5), Some(3.0)));
    }

    #[test]
    fn a_lost_exchange_breaks_the_chain() {
        let mut jitter = Jitter::new();
        jitter.gap();
        jitter.add(1.0);
        jitter.add(2.0);
        jitter.gap();
        jitter.gap();
        jitter.add(1000.0);
        assert_eq!((jitter.differences(), jitter.mean()), (1, Some(1.0)));
        jitter.add(1004.0);
        assert_eq!((jitter.differences(), jitter.mean()), (2, Some(2.5)));
    }

    #[test]
    fn smoothed_settles_on_a_steady_difference() {
        let mut jitter = Jitter::new();
        (0..1000).for_each(|i| jitter.add(if i % 2 == 0 { 10.0 } else { 15.0 }));
        assert_eq!(jitter.mean(), Some(5.0));
        assert!((jitter.smoothed().unwrap() - 5.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn agrees_with_the_differences_of_the_list(
            delays in prop::collection::vec(prop::option::weighted(0.9, 0.0f64..1e9), 0..100),
        ) {
            let mut jitter = Jitter::new();
            for delay in &delays {
                match delay {
                    Some(delay) => jitter.add(*delay),
                    None => jitter.gap(),
                }
            }
            let differences: Vec<f64> =
                delays.windows(2).filter_map(|pair| Some((pair[1]? - pair[0]?).abs())).collect();
            prop_assert_eq!(jitter.differences(), differences.len() as u64);
            let mean = differences.iter().sum::<f64>() / differences.len() as f64;
            match jitter.mean() {
                Some(got) => prop_assert!((got - mean).abs() < 1e-5),
                None => prop_assert!(differences.is_empty()),
            }
            let greatest = differences.iter().copied().fold(0.0, f64::max);
            prop_assert!((0.0..=greatest).contains(&jitter.smoothed().unwrap_or(0.0)));
        }
    }
}
