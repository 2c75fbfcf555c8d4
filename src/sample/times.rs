//! Times of one kind: exact while there are few, a histogram beyond, the same memory for any number.
//!
//! Not for time series (`series`) and not for figures (`figures`).

use hdrhistogram::Histogram;

use crate::stats::{Jitter, Moments};

/// Up to so many samples are kept as they are (0.8 MB); percentiles are exact as long as all are.
const EXACT: usize = 100_000;

/// The longest time the histogram tells apart: one hour. Longer ones count as one hour there; `max` stays exact.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Three digits: a percentile from the histogram is right to 0.1 %.
const DIGITS: u8 = 3;

/// A collection of times in nanoseconds.
#[derive(Debug, Clone)]
pub struct Times {
    histogram: Histogram<u64>,
    /// The first times, in order; also what drift and autocorrelation are judged by.
    head: Vec<u64>,
    moments: Moments,
    jitter: Jitter,
}

impl Default for Times {
    fn default() -> Times {
        Times::new()
    }
}

impl Times {
    pub fn new() -> Times {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Times {
            histogram: histogram.expect("constant bounds within the histogram's own limits"),
            head: Vec::with_capacity(EXACT),
            moments: Moments::default(),
            jitter: Jitter::default(),
        }
    }

    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
        if self.head.len() < EXACT {
            self.head.push(nanoseconds);
        }
        self.moments.add(nanoseconds as f64);
        self.jitter.add(nanoseconds as f64);
    }

    /// So many times of one length, as a histogram tells them. Their order is not known, so there is no jitter.
    pub fn record_many(&mut self, nanoseconds: u64, count: u64) {
        self.histogram.saturating_record_n(nanoseconds, count);
        let room = (EXACT - self.head.len()) as u64;
        self.head.extend(std::iter::repeat_n(nanoseconds, count.min(room) as usize));
        self.moments.merge(&Moments::of_equal(nanoseconds as f64, count));
    }

    /// An exchange was lost: the next time has no neighbour before it.
    pub fn gap(&mut self) {
        self.jitter.gap();
    }

    pub fn merge(&mut self, other: &Times) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        let room = EXACT - self.head.len();
        // A head that lacks some of its own samples may not grow others' behind them.
        if self.is_exact() {
            self.head.extend(other.head.iter().take(room));
        }
        self.moments.merge(&other.moments);
        self.jitter.merge(&other.jitter);
    }

    pub fn count(&self) -> u64 {
        self.moments.count()
    }

    /// The shortest time; 0 without any.
    pub fn min(&self) -> u64 {
        self.moments.min().unwrap_or(0.0) as u64
    }

    /// The longest time; 0 without any.
    pub fn max(&self) -> u64 {
        self.moments.max().unwrap_or(0.0) as u64
    }

    fn is_exact(&self) -> bool {
        self.head.len() as u64 == self.count()
    }

    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Mean absolute difference of consecutive times.
    pub fn jitter(&self) -> Option<f64> {
        self.jitter.mean()
    }

    /// The first times, in the order in which they came.
    pub fn head(&self) -> &[u64] {
        &self.head
    }

    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// How many lie above `limit`.
    pub fn above(&self, limit: u64) -> u64 {
        if self.is_exact() {
            return self.head.iter().filter(|&&value| value > limit).count() as u64;
        }
        self.histogram.len() - self.histogram.count_between(0, limit)
    }

    /// Reads values by rank.
    pub fn ranks(&self) -> Ranks<'_> {
        let sorted = self.is_exact().then(|| {
            let mut sorted = self.head.clone();
            sorted.sort_unstable();
            sorted
        });
        Ranks { times: self, sorted }
    }
}

/// The times in order, for reading them by rank.
pub struct Ranks<'a> {
    times: &'a Times,
    sorted: Option<Vec<u64>>,
}

impl Ranks<'_> {
    /// The value of a rank from 1 to the count.
    pub fn value(&self, rank: u64) -> u64 {
        if let Some(sorted) = &self.sorted {
            return sorted[(rank - 1) as usize];
        }
        let mut seen = 0;
        for step in self.times.histogram.iter_recorded() {
            seen += step.count_since_last_iteration();
            if seen >= rank {
                let middle = self.times.histogram.median_equivalent(step.value_iterated_to());
                return middle.clamp(self.times.min(), self.times.max());
            }
        }
        self.times.max()
    }

    /// The mean of the fastest `count` times.
    pub fn mean_of_fastest(&self, count: u64) -> f64 {
        if let Some(sorted) = &self.sorted {
            return sorted[..count as usize].iter().map(|&value| value as f64).sum::<f64>() / count as f64;
        }
        let (mut left, mut sum) = (count, 0.0);
        for step in self.times.histogram.iter_recorded() {
            let taken = step.count_since_last_iteration().min(left);
            sum += self.times.histogram.median_equivalent(step.value_iterated_to()) as f64 * taken as f64;
            left -= taken;
        }
        sum / count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_agrees_with_exact_values_to_a_thousandth() {
        let (mut few, mut many) = (Times::new(), Times::new());
        // A skewed spread over three decades, in scrambled order.
        let value = |i: u64| 10_000 + (i * 7919 % 1009) * (i * 7919 % 1009);
        for i in 0..1009 {
            few.record(value(i));
        }
        for i in 0..1009 * 200 {
            many.record(value(i));
        }
        assert!(few.is_exact() && !many.is_exact());
        for rank in [1, 100, 505, 900, 1009] {
            let (exact, read) = (few.ranks().value(rank) as f64, many.ranks().value(rank * 200) as f64);
            assert!((exact / read - 1.0).abs() < 1e-3, "{rank}: {exact} {read}");
        }
        let (exact, read) = (few.ranks().mean_of_fastest(900), many.ranks().mean_of_fastest(900 * 200));
        assert!((exact / read - 1.0).abs() < 1e-3);
        let (exact, read) = (few.above(500_000) * 200, many.above(500_000));
        assert!(exact.abs_diff(read) <= 400, "{exact} {read}");
    }

    #[test]
    fn a_time_beyond_the_histogram_is_kept_as_maximum() {
        let mut times = Times::new();
        times.record(2 * LONGEST_NS);
        assert_eq!(times.ranks().value(1), 2 * LONGEST_NS);
    }
}
