//! Round-trip times of the intervals of a time series, in logarithmic bins: their percentiles, also after intervals were
//! merged.

use std::ops::Range;

/// Bits after the highest one that select a bin: a bin is at most a sixteenth of its lower end wide.
const FRACTION_BITS: u32 = 4;
/// Power of two of a nanosecond below which times share the first bin.
const MIN_POWER: u32 = 8;
/// Power of two of a nanosecond from which times share the last bin: more than a minute.
const MAX_POWER: u32 = 36;
/// Bins of an interval.
const BINS: usize = ((MAX_POWER - MIN_POWER) << FRACTION_BITS) as usize;

/// The bins of consecutive intervals.
#[derive(Debug, Clone)]
pub(super) struct IntervalTimes(Vec<u32>);

fn bin_of(nanoseconds: u64) -> usize {
    let value = nanoseconds.clamp(1 << MIN_POWER, (1 << MAX_POWER) - 1);
    let power = value.ilog2();
    let fraction = (value >> (power - FRACTION_BITS)) as usize & ((1 << FRACTION_BITS) - 1);
    ((power - MIN_POWER) << FRACTION_BITS) as usize + fraction
}

/// The middle of a bin, in nanoseconds.
fn bin_middle(bin: usize) -> u64 {
    let power = (bin >> FRACTION_BITS) as u32 + MIN_POWER;
    let width = 1_u64 << (power - FRACTION_BITS);
    (1 << power) + (bin as u64 & ((1 << FRACTION_BITS) - 1)) * width + width / 2
}

fn bins(interval: usize) -> Range<usize> {
    interval * BINS..(interval + 1) * BINS
}

impl IntervalTimes {
    /// Room for this number of intervals; allocates all its memory.
    pub(super) fn with_capacity(intervals: usize) -> IntervalTimes {
        IntervalTimes(Vec::with_capacity(intervals * BINS))
    }

    /// Sets the number of intervals. New ones are empty.
    pub(super) fn resize(&mut self, intervals: usize) {
        self.0.resize(intervals * BINS, 0);
    }

    #[inline]
    pub(super) fn record(&mut self, interval: usize, nanoseconds: u64) {
        let count = &mut self.0[interval * BINS + bin_of(nanoseconds)];
        *count = count.saturating_add(1);
    }

    /// Adds the times of the second interval to those of the first, which may be the same vector's earlier one.
    fn add_within(&mut self, to: usize, from: usize) {
        for bin in 0..BINS {
            let more = self.0[from * BINS + bin];
            let sum = &mut self.0[to * BINS + bin];
            *sum = sum.saturating_add(more);
        }
    }

    /// Joins each two neighbours.
    pub(super) fn halve_resolution(&mut self) {
        let intervals = self.0.len() / BINS;
        for index in 0..intervals.div_ceil(2) {
            self.0.copy_within(bins(2 * index), bins(index).start);
            if 2 * index + 1 < intervals {
                self.add_within(index, 2 * index + 1);
            }
        }
        self.resize(intervals.div_ceil(2));
    }

    /// Puts this number of empty intervals before the others.
    pub(super) fn prepend(&mut self, intervals: usize) {
        self.0.splice(..0, std::iter::repeat_n(0, intervals * BINS));
    }

    /// Adds the times of a parallel flow, whose first interval is the one with the number `first` here.
    pub(super) fn merge(&mut self, first: usize, other: &IntervalTimes) {
        for (own, more) in self.0[first * BINS..].iter_mut().zip(&other.0) {
            *own = own.saturating_add(*more);
        }
    }

    /// A percentile (0 to 100) of the replies of an interval, by nearest rank: the middle of a bin, so within 3 % between 256 ns
    /// and 68 s.
    pub(super) fn percentile(&self, interval: usize, percent: f64) -> Option<u64> {
        let counts = &self.0[bins(interval)];
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let rank = ((total as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut below = 0;
        let bin = counts.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        });
        bin.map(bin_middle)
    }

    /// Joins two neighbours into the last interval but one, and removes the last.
    pub(super) fn join_last(&mut self) {
        let intervals = self.0.len() / BINS;
        self.add_within(intervals - 2, intervals - 1);
        self.resize(intervals - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_near_the_middle_of_its_bin() {
        for time in (0..1000).map(|n| (256.0 * 1.019_f64.powi(n)) as u64).take_while(|time| *time < 1 << 36) {
            let middle = bin_middle(bin_of(time)) as f64;
            assert!((middle / time as f64 - 1.0).abs() < 0.033, "{time}: {middle}");
        }
        assert_eq!([0, 255, 1 << 36, u64::MAX].map(bin_of), [0, 0, BINS - 1, BINS - 1]);
    }

    #[test]
    fn percentiles_survive_merging() {
        let of = |times: &[&[u64]]| {
            let mut all = IntervalTimes::with_capacity(times.len());
            all.resize(times.len());
            for (interval, times) in times.iter().enumerate() {
                times.iter().for_each(|time| all.record(interval, *time));
            }
            all
        };
        let near = |all: &IntervalTimes, interval, percent: f64, value: f64| {
            let found = all.percentile(interval, percent).unwrap() as f64;
            assert!((found / value - 1.0).abs() < 0.033, "{percent}: {found}, not {value}");
        };
        let mut all = of(&[&[1_000, 1_000, 9_000], &[2_000, 2_000, 2_000], &[50_000]]);
        near(&all, 0, 50.0, 1_000.0);
        near(&all, 0, 99.0, 9_000.0);
        all.merge(1, &of(&[&[90_000]]));
        near(&all, 1, 99.0, 90_000.0);
        all.prepend(1);
        assert_eq!(all.percentile(0, 50.0), None);
        near(&all, 3, 50.0, 50_000.0);
        all.halve_resolution();
        near(&all, 0, 50.0, 1_000.0);
        near(&all, 1, 50.0, 2_000.0);
        near(&all, 1, 100.0, 90_000.0);
        all.join_last();
        assert_eq!(all.0.len(), BINS);
        near(&all, 0, 50.0, 2_000.0);
    }
}
