//! The time series of a run: counters for each interval. When a run exceeds the capacity, neighbours are
//! merged and the intervals grow, so a day needs no more memory than a minute.

use super::interval_times::IntervalTimes;
use crate::clock::Time;
use crate::run::SeriesEntry;

/// Maximum number of entries. With one-second intervals the first ten minutes have full resolution.
const MAX_ENTRIES: usize = 600;

/// Maximum number of entries of a flow of which only the totals are wanted.
const MAX_ENTRIES_OF_TOTALS: usize = 16;

/// Counts and latency of one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalTotals {
    messages: u64,
    bytes: u64,
    lost: u64,
    ce: u64,
    latency_sum_ns: u64,
    /// Fastest round trip; `u64::MAX` without a round trip.
    latency_min_ns: u64,
    latency_max_ns: u64,
}

impl Default for IntervalTotals {
    fn default() -> IntervalTotals {
        IntervalTotals {
            messages: 0,
            bytes: 0,
            lost: 0,
            ce: 0,
            latency_sum_ns: 0,
            latency_min_ns: u64::MAX,
            latency_max_ns: 0,
        }
    }
}

impl IntervalTotals {
    fn merge(&mut self, other: &IntervalTotals) {
        // Counts may come from another host.
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.lost += other.lost;
        self.ce = self.ce.saturating_add(other.ce);
        self.latency_sum_ns += other.latency_sum_ns;
        self.latency_min_ns = self.latency_min_ns.min(other.latency_min_ns);
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

/// Intervals of equal length, from the start of the measurement.
#[derive(Debug, Clone)]
pub struct TimeSeries {
    entries: Vec<IntervalTotals>,
    /// Times of the intervals, only where percentiles of them are wanted; as many intervals as `entries`.
    times: Option<IntervalTimes>,
    /// Maximum number of entries; more are merged.
    max_entries: usize,
    interval_ns: u64,
    start: Time,
    /// End of the current entry, so that most calls only compare.
    entry_end: Time,
}

impl TimeSeries {
    /// An empty series with intervals of this length, in nanoseconds; allocates all its memory.
    pub fn new(interval_ns: u64) -> TimeSeries {
        TimeSeries::with_room(interval_ns, MAX_ENTRIES)
    }

    /// An empty series for about this number of intervals; it gets more memory only with more of them.
    pub fn with_room(interval_ns: u64, intervals: usize) -> TimeSeries {
        TimeSeries {
            entries: Vec::with_capacity(intervals.min(MAX_ENTRIES)),
            times: None,
            max_entries: MAX_ENTRIES,
            interval_ns,
            start: Time(0),
            entry_end: Time(0),
        }
    }

    /// An empty series of at most this number of intervals, which is at least 2.
    pub(crate) fn with_max_entries(interval_ns: u64, max_entries: usize) -> TimeSeries {
        TimeSeries { max_entries, ..TimeSeries::with_room(interval_ns, max_entries) }
    }

    /// An empty series for a flow of which only the totals are wanted.
    pub(crate) fn for_totals() -> TimeSeries {
        TimeSeries::with_max_entries(1_000_000_000, MAX_ENTRIES_OF_TOTALS)
    }

    /// Bytes of a series of this number of intervals.
    pub const fn bytes_of(max_entries: usize) -> usize {
        max_entries * size_of::<IntervalTotals>()
    }

    /// Keeps the round-trip times of each interval for its percentiles; allocates all its memory.
    pub(crate) fn with_percentiles(self) -> TimeSeries {
        TimeSeries { times: Some(IntervalTimes::with_capacity(self.entries.capacity())), ..self }
    }

    /// An empty series of the same kind, with room for as many intervals.
    pub fn empty_like(&self) -> TimeSeries {
        let empty = TimeSeries::with_room(self.interval_ns, self.entries.capacity());
        let empty = TimeSeries { max_entries: self.max_entries, ..empty };
        if self.times.is_some() { empty.with_percentiles() } else { empty }
    }

    /// A series of this interval, start and deliveries (messages, bytes, messages with CE) that another host reported.
    /// `None` if its values are impossible.
    pub fn from_deliveries(interval_ns: u64, start: Time, deliveries: &[[u64; 3]]) -> Option<TimeSeries> {
        /// Maximum length of a series: thirteen days.
        const MAX_NS: u64 = 1 << 50;
        let length_ns = interval_ns.checked_mul(deliveries.len() as u64)?;
        let end_ns = start.0.checked_add(length_ns)?;
        if interval_ns == 0 || deliveries.len() > MAX_ENTRIES || end_ns > MAX_NS {
            return None;
        }
        let total = |&[messages, bytes, ce]: &[u64; 3]| IntervalTotals {
            messages,
            bytes,
            ce,
            ..IntervalTotals::default()
        };
        let mut series = TimeSeries { start, entry_end: Time(end_ns), ..TimeSeries::new(interval_ns) };
        series.entries.extend(deliveries.iter().map(total));
        Some(series)
    }

    /// Returns the counts in at most `most` intervals, which is at least 1.
    pub fn reduced(&self, most: usize) -> TimeSeries {
        let mut reduced = self.clone();
        while reduced.entries.len() > most {
            reduced.halve_resolution();
        }
        reduced
    }

    /// Messages, bytes and messages with CE of each interval.
    pub fn deliveries(&self) -> impl Iterator<Item = [u64; 3]> {
        self.entries.iter().map(|entry| [entry.messages, entry.bytes, entry.ce])
    }

    /// Current length of an interval in nanoseconds: the initial length times a power of two.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Start of the series.
    pub fn start(&self) -> Time {
        self.start
    }

    /// Discards all entries and starts the series at this instant.
    pub fn begin(&mut self, at: Time) {
        self.start = at;
        self.entry_end = at;
        self.resize(0);
    }

    /// The totals of the interval in which the series is now.
    pub fn last_entry(&self) -> Option<&IntervalTotals> {
        self.entries.last()
    }

    fn resize(&mut self, length: usize) {
        self.entries.resize(length, IntervalTotals::default());
        if let Some(times) = &mut self.times {
            times.resize(length);
        }
    }

    #[inline]
    fn entry_at(&mut self, now: Time) -> &mut IntervalTotals {
        if now >= self.entry_end || self.entries.is_empty() {
            self.grow_to(now);
        }
        // A time before the current entry (clocks of several flows) also counts towards it.
        self.entries.last_mut().expect("grow leaves at least one")
    }

    #[cold]
    fn grow_to(&mut self, now: Time) {
        loop {
            let index = (now.since(self.start).as_nanos() / u128::from(self.interval_ns)) as usize;
            if index < self.max_entries {
                let length = self.entries.len().max(index + 1);
                self.resize(length);
                self.entry_end = Time(self.start.0 + length as u64 * self.interval_ns);
                return;
            }
            self.halve_resolution();
        }
    }

    fn halve_resolution(&mut self) {
        for index in 0..self.entries.len().div_ceil(2) {
            let mut joined = self.entries[2 * index];
            if let Some(second) = self.entries.get(2 * index + 1) {
                joined.merge(second);
            }
            self.entries[index] = joined;
        }
        self.entries.truncate(self.entries.len().div_ceil(2));
        if let Some(times) = &mut self.times {
            times.halve_resolution();
        }
        self.interval_ns *= 2;
    }

    /// Counts a reply of `bytes` payload bytes and its latency in the interval of `now`.
    #[inline]
    pub fn record_reply(&mut self, now: Time, bytes: u64, latency_ns: u64) {
        let entry = self.entry_at(now);
        entry.messages += 1;
        entry.bytes += bytes;
        entry.latency_sum_ns += latency_ns;
        entry.latency_min_ns = entry.latency_min_ns.min(latency_ns);
        entry.latency_max_ns = entry.latency_max_ns.max(latency_ns);
        let last = self.entries.len() - 1;
        if let Some(times) = &mut self.times {
            times.record(last, latency_ns);
        }
    }

    /// Counts messages and their payload bytes in the interval of `now`.
    #[inline]
    pub fn record_delivery(&mut self, now: Time, messages: u64, bytes: u64) {
        let entry = self.entry_at(now);
        entry.messages += messages;
        entry.bytes += bytes;
    }

    /// Counts a lost message in the interval of `now`.
    pub fn record_loss(&mut self, now: Time) {
        self.entry_at(now).lost += 1;
    }

    /// Counts messages with a congestion mark in the interval of `now`.
    pub fn record_ce(&mut self, now: Time, messages: u64) {
        self.entry_at(now).ce += messages;
    }

    /// Merges the series of a parallel flow, entry by entry. A flow that started later fills later entries.
    pub fn merge(&mut self, other: &TimeSeries) {
        let mut other = other.clone();
        if self.entries.is_empty() {
            std::mem::swap(self, &mut other);
        }
        if other.entries.is_empty() {
            other.start = self.start;
        }
        while self.interval_ns < other.interval_ns {
            self.halve_resolution();
        }
        while other.interval_ns < self.interval_ns {
            other.halve_resolution();
        }
        let start = self.start.min(other.start);
        while self.entries.len().saturating_add(self.later(start)) > MAX_ENTRIES
            || other.entries.len().saturating_add(other.later(start)) > MAX_ENTRIES
        {
            self.halve_resolution();
            other.halve_resolution();
        }
        let skipped = self.later(start);
        self.entries.splice(..0, vec![IntervalTotals::default(); skipped]);
        self.times.iter_mut().for_each(|times| times.prepend(skipped));
        let (first, length) = (other.later(start), self.entries.len());
        self.resize(length.max(first + other.entries.len()));
        for (own, merged) in self.entries[first..].iter_mut().zip(&other.entries) {
            own.merge(merged);
        }
        match (&mut self.times, &other.times) {
            (Some(times), Some(other)) => times.merge(first, other),
            // The percentiles of some of the flows are not those of all.
            (times, None) if !other.entries.is_empty() => *times = None,
            _ => {}
        }
        self.start = start;
        self.entry_end = Time(start.0 + self.entries.len() as u64 * self.interval_ns);
    }

    /// Number of whole intervals from `start` to its own.
    fn later(&self, start: Time) -> usize {
        (self.start.since(start).as_nanos() / u128::from(self.interval_ns)) as usize
    }

    /// The entries of a parallel flow of this length, on the time axis of `main`. Those before its start are omitted.
    pub fn entries_beside(&self, main: &TimeSeries, elapsed_ns: u64) -> Vec<SeriesEntry> {
        let (later, earlier) =
            (self.start.0.saturating_sub(main.start.0), main.start.0.saturating_sub(self.start.0));
        let shifted = self.entries(elapsed_ns).into_iter().filter_map(|entry| {
            let start_ns = (entry.start_ns + later).checked_sub(earlier)?;
            Some(SeriesEntry { start_ns, ..entry })
        });
        shifted.collect()
    }

    /// The entries for the run document of a measurement of this length. The last entry ends with the
    /// measurement. It is merged into the one before if it is shorter than half an interval, too short for a
    /// rate.
    pub fn entries(&self, elapsed_ns: u64) -> Vec<SeriesEntry> {
        let (mut entries, mut times, interval_ns) =
            (self.entries.clone(), self.times.clone(), self.interval_ns);
        let begun = entries.len().saturating_sub(1) as u64 * interval_ns;
        let mut last_ns = elapsed_ns.saturating_sub(begun).min(interval_ns);
        if last_ns == 0 {
            // Only losses were recorded after the end.
            last_ns = interval_ns;
        }
        if last_ns < interval_ns / 2
            && entries.len() > 1
            && let Some(short) = entries.pop()
            && let Some(last) = entries.last_mut()
        {
            last.merge(&short);
            last_ns += interval_ns;
            times.iter_mut().for_each(IntervalTimes::join_last);
        }
        let timed = entries.iter().any(|entry| entry.latency_max_ns > 0);
        let last = entries.len().saturating_sub(1);
        // A bin may be wider than the range of its times.
        let percentile = |index: usize, entry: &IntervalTotals, percent| {
            let found = times.as_ref().filter(|_| entry.messages > 0)?.percentile(index, percent)?;
            Some(found.clamp(entry.latency_min_ns, entry.latency_max_ns))
        };
        let entries = entries.iter().enumerate().map(|(index, entry)| SeriesEntry {
            start_ns: index as u64 * interval_ns,
            length_ns: if index == last { last_ns } else { interval_ns },
            messages: Some(entry.messages),
            bytes: entry.bytes,
            lost: Some(entry.lost),
            ce: entry.ce,
            latency_min_ns: (timed && entry.messages > 0).then_some(entry.latency_min_ns),
            latency_mean_ns: (timed && entry.messages > 0)
                .then(|| entry.latency_sum_ns as f64 / entry.messages as f64),
            latency_p50_ns: percentile(index, entry, 50.0),
            latency_p99_ns: percentile(index, entry, 99.0),
            latency_max_ns: (timed && entry.messages > 0).then_some(entry.latency_max_ns),
            forward_queue_ns: None,
            reverse_queue_ns: None,
        });
        entries.collect()
    }
}

/// Appends the series of a further repetition, which began `offset_ns` after the start of the first. When there are too many
/// entries, neighbours are joined.
pub fn append_entries(all: &mut Vec<SeriesEntry>, part: Vec<SeriesEntry>, offset_ns: u64) {
    let moved =
        |entry: SeriesEntry| SeriesEntry { start_ns: entry.start_ns.saturating_add(offset_ns), ..entry };
    all.extend(part.into_iter().map(moved));
    while all.len() > MAX_ENTRIES {
        *all = all.chunks(2).map(join_entries).collect();
    }
}

/// Joins neighbours to one entry.
fn join_entries(entries: &[SeriesEntry]) -> SeriesEntry {
    let sum = |get: fn(&SeriesEntry) -> u64| entries.iter().map(get).fold(0, u64::saturating_add);
    let count = |get: fn(&SeriesEntry) -> Option<u64>| {
        entries.iter().map(get).try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
    };
    let timed = || entries.iter().filter_map(|entry| Some((entry.latency_mean_ns?, entry.messages? as f64)));
    let timed_messages: f64 = timed().map(|(_, messages)| messages).sum();
    // Entries without a reply have none.
    let mean = |get: fn(&SeriesEntry) -> Option<u64>| {
        let found: Vec<u64> = entries.iter().filter_map(get).collect();
        found.iter().copied().reduce(u64::saturating_add).map(|sum| sum / found.len() as u64)
    };
    SeriesEntry {
        start_ns: entries[0].start_ns,
        length_ns: sum(|entry| entry.length_ns),
        messages: count(|entry| entry.messages),
        bytes: sum(|entry| entry.bytes),
        lost: count(|entry| entry.lost),
        ce: sum(|entry| entry.ce),
        latency_min_ns: entries.iter().filter_map(|entry| entry.latency_min_ns).min(),
        latency_mean_ns: (timed_messages > 0.0)
            .then(|| timed().map(|(mean, messages)| mean * messages).sum::<f64>() / timed_messages),
        // The percentiles of a union cannot be computed from those of its parts.
        latency_p50_ns: None,
        latency_p99_ns: None,
        latency_max_ns: entries.iter().filter_map(|entry| entry.latency_max_ns).max(),
        forward_queue_ns: mean(|entry| entry.forward_queue_ns),
        reverse_queue_ns: mean(|entry| entry.reverse_queue_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_loses_no_count() {
        let mut series = TimeSeries::new(1_000);
        series.begin(Time(500));
        for i in 0..5_000u64 {
            series.record_reply(Time(500 + i * 1_000), 2, 7);
        }
        let entries = series.entries(5_000_000);
        assert!(entries.len() <= MAX_ENTRIES && entries.len() > MAX_ENTRIES / 2);
        assert_eq!(entries.iter().filter_map(|entry| entry.messages).sum::<u64>(), 5_000);
        assert_eq!(entries[0].length_ns, 16_000);
        assert_eq!(entries[0].messages, Some(16));
        assert_eq!(entries[0].latency_mean_ns, Some(7.0));
        assert_eq!((entries[0].latency_min_ns, entries[0].latency_max_ns), (Some(7), Some(7)));
    }

    #[test]
    fn flows_are_joined_by_the_time_when_they_ran() {
        let flow = |start: u64| {
            let mut series = TimeSeries::new(1_000);
            series.begin(Time(start));
            series.record_delivery(Time(start), 1, start);
            series.record_delivery(Time(start + 1_000), 1, start);
            series
        };
        let joined = |starts: &[u64]| {
            let mut all = TimeSeries::new(1_000);
            starts.iter().for_each(|start| all.merge(&flow(*start)));
            all.entries(u64::MAX).iter().map(|entry| entry.bytes).collect::<Vec<_>>()
        };
        assert_eq!(joined(&[5_000, 5_999]), [10_999, 10_999]);
        assert_eq!(joined(&[5_000, 7_500]), [5_000, 5_000, 7_500, 7_500]);
        assert_eq!(joined(&[7_000, 5_000, 6_000]), [5_000, 11_000, 13_000, 7_000]);
        let apart = joined(&[1, 2_000_001]);
        assert!(apart.len() <= MAX_ENTRIES && apart.iter().sum::<u64>() == 4_000_004, "{}", apart.len());
    }

    #[test]
    fn a_parallel_flow_is_on_the_axis_of_the_main_one() {
        let series = |start: u64| {
            let mut series = TimeSeries::new(1_000);
            series.begin(Time(start));
            (0..3).for_each(|n| series.record_reply(Time(start + n * 1_000), 1, n));
            series
        };
        let starts = |own: u64, main: u64| {
            let entries = series(own).entries_beside(&series(main), 3_000);
            entries.iter().map(|entry| (entry.start_ns, entry.latency_max_ns)).collect::<Vec<_>>()
        };
        assert_eq!(starts(7_000, 5_000), [(2_000, Some(0)), (3_000, Some(1)), (4_000, Some(2))]);
        assert_eq!(starts(5_000, 6_500), [(500, Some(2))]);
    }

    #[test]
    fn intervals_have_percentiles_where_they_are_wanted() {
        let series = |start: u64, times: &[u64]| {
            let mut series = TimeSeries::new(1_000).with_percentiles();
            series.begin(Time(start));
            times.iter().for_each(|time| series.record_reply(Time(start), 1, *time));
            series
        };
        let of = |series: &TimeSeries| {
            let entries = series.entries(10_000);
            entries.iter().map(|entry| (entry.latency_p50_ns, entry.latency_p99_ns)).collect::<Vec<_>>()
        };
        let mut first = series(5_000, &[700, 700, 700, 70_000]);
        // Clamped to the range, so values without a spread are exact.
        let (p50, p99) = of(&first)[0];
        assert_eq!(p99, Some(70_000));
        assert!((680..=720).contains(&p50.unwrap()), "{p50:?}");
        assert_eq!(of(&series(0, &[700; 3])), [(Some(700), Some(700))]);
        first.merge(&series(3_000, &[900; 9]));
        assert_eq!(of(&first).iter().map(|(p50, _)| p50.is_some()).collect::<Vec<_>>(), [true, false, true]);
        let mut empty = first.empty_like();
        empty.merge(&first);
        assert_eq!(of(&empty), of(&first));
        let mut plain = TimeSeries::new(1_000);
        plain.begin(Time(5_000));
        plain.record_reply(Time(5_000), 1, 700);
        assert_eq!(of(&plain), [(None, None)]);
        first.merge(&plain);
        assert!(of(&first).iter().all(|percentiles| *percentiles == (None, None)), "one flow has none");
    }

    #[test]
    fn repetitions_follow_each_other() {
        let part = |value: u64| {
            let mut series = TimeSeries::new(1_000);
            series.begin(Time(0));
            (0..400).for_each(|n| series.record_reply(Time(n * 1_000), 2, value));
            series.entries(400_000)
        };
        let mut all = Vec::new();
        append_entries(&mut all, part(10), 0);
        assert_eq!(all, part(10));
        append_entries(&mut all, part(30), 500_000);
        assert_eq!((all.len(), all[199].start_ns, all[200].start_ns), (400, 398_000, 500_000));
        assert_eq!((all[0].length_ns, all[0].messages, all[0].bytes), (2_000, Some(2), 4));
        assert_eq!(all[200].latency_mean_ns.zip(all[200].latency_min_ns), Some((30.0, 30)));
        let both = join_entries(&[all[0].clone(), all[200].clone()]);
        let times = (both.latency_min_ns, both.latency_mean_ns, both.latency_max_ns);
        assert_eq!(times, (Some(10), Some(20.0), Some(30)));
    }

    #[test]
    fn an_idle_period_leaves_empty_entries() {
        let mut series = TimeSeries::new(1_000);
        series.begin(Time(0));
        series.record_delivery(Time(100), 1, 10);
        series.record_delivery(Time(3_100), 1, 10);
        let of = |elapsed_ns| -> Vec<(u64, u64)> {
            series
                .entries(elapsed_ns)
                .iter()
                .map(|entry| (entry.messages.unwrap(), entry.length_ns))
                .collect()
        };
        assert_eq!(of(4_000), [(1, 1_000), (0, 1_000), (0, 1_000), (1, 1_000)]);
        assert_eq!(of(9_000), of(4_000), "data after the last entry is in none");
        assert_eq!(of(3_700), [(1, 1_000), (0, 1_000), (0, 1_000), (1, 700)]);
        assert_eq!(of(3_100), [(1, 1_000), (0, 1_000), (1, 1_100)], "too short for a rate");
        assert_eq!(of(0), of(4_000));
    }

    #[test]
    fn a_short_run_is_one_entry_as_long_as_it_was() {
        let mut series = TimeSeries::new(1_000);
        assert!(series.entries(100).is_empty());
        series.begin(Time(0));
        series.record_delivery(Time(100), 1, 10);
        assert_eq!(series.entries(100)[0].length_ns, 100);
    }

    #[test]
    fn flows_of_different_resolution_merge() {
        let (mut a, mut b) = (TimeSeries::new(1_000), TimeSeries::new(1_000));
        a.begin(Time(0));
        b.begin(Time(0));
        a.record_delivery(Time(0), 1, 1);
        b.record_delivery(Time(700_000), 1, 1);
        a.merge(&b);
        assert_eq!(a.entries(700_001).iter().filter_map(|entry| entry.messages).sum::<u64>(), 2);
    }
}
