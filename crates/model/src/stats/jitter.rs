//! Jitter: the difference between consecutive delays.
//!
//! The mean of |x_i − x_(i−1)|, where the difference is the inter-packet delay variation (IPDV) of RFC 3393
//! between consecutive packets. It works for round-trip times as well as for one-way delays, because a
//! constant clock offset cancels in a difference. It is not the smoothed estimator of RFC 3550, which covers
//! only about the last sixteen packets, and not the spread over a whole run (a standard deviation or a
//! percentile measures that).

use super::sum::CompensatedSum;

/// The mean difference of a stream of delays, in fixed memory and in the unit of the delays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    previous: Option<f64>,
    differences: u64,
    sum: CompensatedSum,
}

impl Jitter {
    /// Adds the next delay, which must be finite.
    pub fn add(&mut self, delay: f64) {
        if let Some(previous) = self.previous.replace(delay) {
            self.add_difference((delay - previous).abs());
        }
    }

    /// Adds the absolute difference of two consecutive delays.
    pub(crate) fn add_difference(&mut self, difference: f64) {
        self.differences += 1;
        self.sum.add(difference);
    }

    /// A request was lost here: the delays before and after it are not consecutive, and their difference is
    /// undefined (RFC 3393).
    pub fn gap(&mut self) {
        self.previous = None;
    }

    /// Merges the differences of another stream.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.differences += other.differences;
        self.sum.add(other.sum.value());
    }

    /// The mean absolute difference of consecutive delays; `None` before the first difference.
    pub fn mean(&self) -> Option<f64> {
        (self.differences > 0).then(|| self.sum.value() / self.differences as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let mut jitter = Jitter::default();
        assert_eq!(jitter.mean(), None);
        jitter.add(100.0);
        assert_eq!(jitter.mean(), None);
        jitter.add(116.0);
        jitter.add(83.0);
        assert_eq!(jitter.mean(), Some(24.5));
    }

    #[test]
    fn a_lost_request_breaks_the_chain() {
        let mut jitter = Jitter::default();
        jitter.gap();
        jitter.add(1.0);
        jitter.add(2.0);
        jitter.gap();
        jitter.gap();
        jitter.add(1000.0);
        assert_eq!(jitter.mean(), Some(1.0));
        jitter.add(1004.0);
        assert_eq!(jitter.mean(), Some(2.5));
    }

    proptest! {
        #[test]
        fn agrees_with_the_differences_of_the_list(
            delays in prop::collection::vec(prop::option::weighted(0.9, 0.0f64..1e9), 0..100),
            cut in 0usize..100,
        ) {
            // Two merged streams count as one with a gap between them.
            let (first, second) = delays.split_at(cut.min(delays.len()));
            let mut jitters = [Jitter::default(); 2];
            for (jitter, part) in jitters.iter_mut().zip([first, second]) {
                for delay in part {
                    match delay {
                        Some(delay) => jitter.add(*delay),
                        None => jitter.gap(),
                    }
                }
            }
            let [mut jitter, other] = jitters;
            jitter.merge(&other);
            let differences: Vec<f64> = [first, second]
                .iter()
                .flat_map(|part| part.windows(2).filter_map(|pair| Some((pair[1]? - pair[0]?).abs())))
                .collect();
            let mean = differences.iter().sum::<f64>() / differences.len() as f64;
            match jitter.mean() {
                Some(actual) => prop_assert!((actual - mean).abs() < 1e-5),
                None => prop_assert!(differences.is_empty()),
            }
        }
    }
}
