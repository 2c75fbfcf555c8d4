//! A collection of times: exact while small, a histogram beyond, in fixed memory. Many flows can share one
//! (`shared`).
//!
//! Time series are in `time_series`, figures in `figures`.

use std::sync::Arc;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

use super::histogram::{MAX_TIME_NS, SIGNIFICANT_DIGITS, encode_sorted_times};
use crate::stats::{Jitter, Moments};

mod shared;

pub use shared::{SharedRecording, SharedTimes};

/// Number of samples stored exactly (0.8 MB). Percentiles are exact up to this number.
const MAX_EXACT_SAMPLES: usize = 100_000;

/// A collection of times in nanoseconds.
#[derive(Debug, Clone)]
pub struct TimeSamples {
    /// Histogram of the times. Absent while the times are shared, in a collection without times, and while all times of a
    /// collection for few are exact.
    histogram: Option<Histogram<u64>>,
    /// The first times, in order; also the input for drift and autocorrelation.
    first_times: Vec<u64>,
    /// Times are stored; otherwise only moments and jitter are.
    has_times: bool,
    /// Collection into which this flow and others record their times.
    shared: Option<Arc<SharedTimes>>,
    moments: Moments,
    jitter: Jitter,
}

impl Default for TimeSamples {
    fn default() -> TimeSamples {
        TimeSamples::new()
    }
}

impl TimeSamples {
    /// An empty collection; allocates all its memory.
    pub fn new() -> TimeSamples {
        TimeSamples { histogram: Some(new_histogram()), ..TimeSamples::with_room(MAX_EXACT_SAMPLES) }
    }

    /// An empty collection for about this number of times, without a histogram: it gets one only with more times than can be
    /// exact, and more memory only with more than expected.
    pub fn with_room(times: usize) -> TimeSamples {
        TimeSamples {
            first_times: Vec::with_capacity(times.min(MAX_EXACT_SAMPLES)),
            has_times: true,
            ..TimeSamples::without_times()
        }
    }

    /// A collection that stays without times; it takes no memory.
    pub(crate) fn without_times() -> TimeSamples {
        TimeSamples {
            histogram: None,
            first_times: Vec::new(),
            has_times: false,
            shared: None,
            moments: Moments::default(),
            jitter: Jitter::default(),
        }
    }

    /// An empty collection of one of several flows that share their times; moments and jitter are its own.
    pub fn sharing(times: &Arc<SharedTimes>) -> TimeSamples {
        TimeSamples { shared: Some(times.clone()), ..TimeSamples::without_times() }
    }

    /// Ends sharing. The last of the flows to end it gets the times of all of them.
    pub fn end_sharing(&mut self) {
        if let Some(times) = self.shared.take().and_then(Arc::into_inner) {
            let (histogram, first_times) = times.into_times();
            (self.histogram, self.first_times, self.has_times) = (Some(histogram), first_times, true);
        }
    }

    /// The number of times for which there is memory.
    pub fn room(&self) -> usize {
        self.first_times.capacity()
    }

    /// Records one time. Does not allocate while the number of times is the expected one.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        if let Some(times) = &self.shared {
            times.record(nanoseconds);
        } else if self.has_times {
            if let Some(histogram) = &mut self.histogram {
                histogram.saturating_record(nanoseconds);
            }
            if self.first_times.len() < MAX_EXACT_SAMPLES {
                self.first_times.push(nanoseconds);
            } else if self.histogram.is_none() {
                self.make_histogram().saturating_record(nanoseconds);
            }
        }
        self.moments.add(nanoseconds as f64);
        self.jitter.add(nanoseconds as f64);
    }

    /// Records `count` times of one length from a histogram. Their order is unknown, so there is no jitter.
    pub fn record_many(&mut self, nanoseconds: u64, count: u64) {
        self.make_histogram().saturating_record_n(nanoseconds, count);
        let free = (MAX_EXACT_SAMPLES - self.first_times.len()) as u64;
        self.first_times.extend(std::iter::repeat_n(nanoseconds, count.min(free) as usize));
        self.moments.merge(&Moments::of_equal(nanoseconds as f64, count));
    }

    /// Replaces all times of 0, which are known only to be below this limit, by the limit. Returns their number.
    pub fn raise_zeros(&mut self, limit: u64) -> u64 {
        let below = self.count() - self.count_above(0);
        if below == 0 {
            return 0;
        }
        let least = (self.count() > below).then(|| self.ranks().value_at_rank(below + 1) as f64);
        self.first_times.iter_mut().filter(|time| **time == 0).for_each(|time| *time = limit);
        if let Some(of_all) = self.histogram.take() {
            let mut raised = new_histogram();
            for step in of_all.iter_recorded() {
                let time = if step.value_iterated_to() == 0 { limit } else { step.value_iterated_to() };
                raised.saturating_record_n(time, step.count_at_value());
            }
            self.histogram = Some(raised);
        }
        self.moments = self.moments.with_raised_zeros(limit as f64, below, least);
        // The differences between such times and others are not known.
        self.jitter = Jitter::default();
        below
    }

    /// A request was lost: the next time has no predecessor.
    pub(crate) fn record_gap(&mut self) {
        self.jitter.gap();
    }

    /// Records the difference of two consecutive times for the jitter.
    #[inline]
    pub(crate) fn record_difference(&mut self, one_ns: u64, other_ns: u64) {
        self.jitter.add_difference(one_ns.abs_diff(other_ns) as f64);
    }

    /// Adds the times of another collection.
    pub fn merge(&mut self, other: &TimeSamples) {
        let is_few = self.first_times.len() + other.first_times.len() <= MAX_EXACT_SAMPLES;
        match (&mut self.histogram, &other.histogram) {
            (None, None) if is_few => {}
            (_, Some(other)) => self.make_histogram().add(other).expect("both have the same bounds"),
            (_, None) => record_all(self.make_histogram(), &other.first_times),
        }
        self.has_times |= other.has_times;
        let free = MAX_EXACT_SAMPLES - self.first_times.len();
        // If some samples are missing from the exact ones, those of another collection must not follow them.
        if self.is_exact() {
            self.first_times.extend(other.first_times.iter().take(free));
        }
        self.moments.merge(&other.moments);
        self.jitter.merge(&other.jitter);
    }

    /// Number of times.
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
        self.first_times.len() as u64 == self.count()
    }

    /// Moments of all times, in nanoseconds.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Mean absolute difference of consecutive times.
    pub fn jitter(&self) -> Option<f64> {
        self.jitter.mean()
    }

    /// The first times, in order of arrival.
    pub fn first_times(&self) -> &[u64] {
        &self.first_times
    }

    /// Histogram of all times, in nanoseconds, with three significant digits, encoded as HdrHistogram V2. `None`: there are no times.
    pub fn encoded_histogram(&self) -> Option<Vec<u8>> {
        if self.count() == 0 {
            return None;
        }
        let Some(histogram) = &self.histogram else {
            return Some(encode_sorted_times(&self.ranks().sorted?));
        };
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(histogram, &mut bytes).ok()?;
        Some(bytes)
    }

    /// The histogram, made of the exact times if there was none.
    #[cold]
    fn make_histogram(&mut self) -> &mut Histogram<u64> {
        self.has_times = true;
        self.histogram.get_or_insert_with(|| histogram_of(&self.first_times))
    }

    /// Number of times above `limit`.
    pub(crate) fn count_above(&self, limit: u64) -> u64 {
        if self.is_exact() {
            return self.first_times.iter().filter(|&&value| value > limit).count() as u64;
        }
        self.histogram.as_ref().map_or(0, |histogram| histogram.len() - histogram.count_between(0, limit))
    }

    /// Reads values by rank.
    pub fn ranks(&self) -> RankedTimes<'_> {
        let sorted = self.is_exact().then(|| {
            let mut sorted = self.first_times.clone();
            sorted.sort_unstable();
            sorted
        });
        RankedTimes { samples: self, sorted }
    }
}

/// An empty histogram.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_TIME_NS, SIGNIFICANT_DIGITS)
        .expect("constant bounds within the histogram's own limits")
}

fn histogram_of(times: &[u64]) -> Histogram<u64> {
    let mut histogram = new_histogram();
    record_all(&mut histogram, times);
    histogram
}

fn record_all(histogram: &mut Histogram<u64>, times: &[u64]) {
    times.iter().for_each(|time| histogram.saturating_record(*time));
}

/// The sorted times, read by rank.
pub struct RankedTimes<'a> {
    samples: &'a TimeSamples,
    sorted: Option<Vec<u64>>,
}

impl RankedTimes<'_> {
    /// The value of a rank between 1 and the count.
    pub fn value_at_rank(&self, rank: u64) -> u64 {
        if let Some(sorted) = &self.sorted {
            return sorted[(rank - 1) as usize];
        }
        let Some(histogram) = &self.samples.histogram else { return self.samples.max() };
        let mut seen = 0;
        for step in histogram.iter_recorded() {
            seen += step.count_since_last_iteration();
            if seen >= rank {
                let middle = histogram.median_equivalent(step.value_iterated_to());
                return middle.clamp(self.samples.min(), self.samples.max());
            }
        }
        self.samples.max()
    }

    /// The mean of the fastest `count` times.
    pub(crate) fn mean_of_fastest(&self, count: u64) -> f64 {
        if let Some(sorted) = &self.sorted {
            return sorted[..count as usize].iter().map(|&value| value as f64).sum::<f64>() / count as f64;
        }
        let Some(histogram) = &self.samples.histogram else { return 0.0 };
        let (mut left, mut sum) = (count, 0.0);
        for step in histogram.iter_recorded() {
            let taken = step.count_since_last_iteration().min(left);
            sum += histogram.median_equivalent(step.value_iterated_to()) as f64 * taken as f64;
            left -= taken;
        }
        // The middle of a bucket may be longer than the times in it.
        let (least, most) = (self.samples.min() as f64, self.samples.moments().mean().unwrap_or(0.0));
        (sum / count as f64).clamp(least, most.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_agrees_with_exact_values_to_a_thousandth() {
        let (mut few, mut many) = (TimeSamples::new(), TimeSamples::new());
        // A skewed distribution over three decades, in scrambled order.
        let value = |i: u64| 10_000 + (i * 7919 % 1009) * (i * 7919 % 1009);
        for i in 0..1009 {
            few.record(value(i));
        }
        for i in 0..1009 * 200 {
            many.record(value(i));
        }
        assert!(few.is_exact() && !many.is_exact());
        for rank in [1, 100, 505, 900, 1009] {
            let (exact, read) =
                (few.ranks().value_at_rank(rank) as f64, many.ranks().value_at_rank(rank * 200) as f64);
            assert!((exact / read - 1.0).abs() < 1e-3, "{rank}: {exact} {read}");
        }
        let (exact, read) = (few.ranks().mean_of_fastest(900), many.ranks().mean_of_fastest(900 * 200));
        assert!((exact / read - 1.0).abs() < 1e-3);
        let (exact, read) = (few.count_above(500_000) * 200, many.count_above(500_000));
        assert!(exact.abs_diff(read) <= 400, "{exact} {read}");
    }

    #[test]
    fn the_mean_of_the_fastest_is_a_possible_one() {
        for time in [1_000_001, 2_047_000, 77_777_777] {
            let mut times = TimeSamples::new();
            (0..200_000).for_each(|_| times.record(time));
            assert_eq!(times.ranks().mean_of_fastest(190_000), time as f64);
            assert_eq!(times.ranks().value_at_rank(190_000), time);
        }
    }

    #[test]
    fn a_collection_for_few_times_equals_the_other_one() {
        let value = |n: usize| (n as u64 * 7919 % 1009) * 1_000;
        for count in [0, 1, 500, MAX_EXACT_SAMPLES + 500] {
            let (mut few, mut many) = (TimeSamples::with_room(100), TimeSamples::new());
            (0..count).for_each(|n| few.record(value(n)));
            (0..count).for_each(|n| many.record(value(n)));
            assert_eq!(few.histogram.is_some(), count > MAX_EXACT_SAMPLES, "memory only for many");
            for kinds in [[&few, &few], [&few, &many], [&many, &few], [&many, &many]] {
                let mut merged = TimeSamples::with_room(0);
                kinds.iter().for_each(|times| merged.merge(times));
                assert_eq!(merged.count(), 2 * count as u64);
                if count > 0 {
                    let mut own = many.clone();
                    own.merge(&many);
                    assert_eq!(merged.encoded_histogram().unwrap(), own.encoded_histogram().unwrap());
                    assert_eq!(
                        merged.ranks().value_at_rank(count as u64),
                        own.ranks().value_at_rank(count as u64)
                    );
                }
            }
        }
        let mut without = TimeSamples::without_times();
        without.record(1);
        assert!(without.encoded_histogram().is_none() && without.first_times().is_empty());
    }

    #[test]
    fn times_of_zero_count_as_their_limit() {
        for copies in [10, 40_000] {
            let (mut raised, mut expected) = (TimeSamples::new(), TimeSamples::new());
            for _ in 0..copies {
                for time in [0, 2_000_000, 0, 7_000_000, 1_000_000] {
                    raised.record(time);
                    expected.record(time.max(1_000_000));
                }
            }
            assert_eq!(raised.raise_zeros(1_000_000), 2 * copies);
            assert_eq!((raised.count(), raised.min(), raised.max()), (5 * copies, 1_000_000, 7_000_000));
            assert_eq!(raised.encoded_histogram(), expected.encoded_histogram());
            assert_eq!(raised.first_times(), expected.first_times());
            let moments = |times: &TimeSamples| {
                (times.moments().mean().unwrap(), times.moments().standard_deviation().unwrap())
            };
            let ((mean, deviation), (of_mean, of_deviation)) = (moments(&raised), moments(&expected));
            assert!((mean / of_mean - 1.0).abs() < 1e-9 && (deviation / of_deviation - 1.0).abs() < 1e-9);
            assert_eq!(raised.jitter(), None, "the differences are not known");
        }
        let mut without = TimeSamples::new();
        without.record(5);
        assert_eq!((without.raise_zeros(9), without.min()), (0, 5));
    }

    #[test]
    fn a_time_beyond_the_histogram_is_exact_as_maximum() {
        let mut times = TimeSamples::new();
        times.record(2 * MAX_TIME_NS);
        assert_eq!(times.ranks().value_at_rank(1), 2 * MAX_TIME_NS);
    }
}
