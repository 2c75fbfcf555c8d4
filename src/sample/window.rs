//! The probes of a stretch of time: counts and a histogram, small enough to keep for years, and mergeable.
//!
//! Merged windows are exact: every percentile is that of all replies, to the precision of the histogram. Averages of
//! percentiles never occur.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

use super::decode_histogram;

/// Longer times count as one hour.
const MAX_TIME_NS: u64 = 3_600_000_000_000;

/// Two digits: a percentile is accurate to 1 %, and a window of 60 replies takes about 100 bytes.
const SIGNIFICANT_DIGITS: u8 = 2;

/// What was measured in a stretch of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Counts of the probes.
    pub counts: WindowCounts,
    /// Round-trip times in ns of the probes that have a reply.
    times: Histogram<u64>,
}

/// Counts of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Time in ms during which probes were due. The rest of the window is a gap: nothing is known about it.
    pub measured_ms: u64,
    /// Probes that were due.
    pub due: u64,
    /// Probes without a reply in time, those included that could not be sent because the link was down.
    pub lost: u64,
    /// Replies with unexpected content.
    pub corrupt: u64,
    /// Time in ms during which the link could not be opened.
    pub down_ms: u64,
}

impl WindowCounts {
    fn add(&mut self, other: &WindowCounts) {
        self.measured_ms += other.measured_ms;
        self.due += other.due;
        self.lost += other.lost;
        self.corrupt += other.corrupt;
        self.down_ms += other.down_ms;
    }

    /// Share of the probes that were lost, 0 to 1. `None` if none was due.
    pub fn loss_share(&self) -> Option<f64> {
        (self.due > 0).then(|| self.lost as f64 / self.due as f64)
    }
}

impl Default for Window {
    fn default() -> Window {
        Window::new(WindowCounts::default())
    }
}

impl Window {
    /// A window without times.
    pub fn new(counts: WindowCounts) -> Window {
        let times = Histogram::new_with_bounds(1, MAX_TIME_NS, SIGNIFICANT_DIGITS);
        Window { counts, times: times.expect("the bounds are constant and valid") }
    }

    /// Records the time of a reply.
    pub fn record(&mut self, nanoseconds: u64) {
        self.times.saturating_record(nanoseconds);
    }

    /// Adds another window.
    pub fn merge(&mut self, other: &Window) {
        self.counts.add(&other.counts);
        // Both have the same bounds.
        let _ = self.times.add(&other.times);
    }

    /// Probes with a reply.
    pub fn replies(&self) -> u64 {
        self.times.len()
    }

    /// The `share` quantile (0 to 1) in ns over the replies, to 1 %. `None` without replies.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (!self.times.is_empty()).then(|| self.times.value_at_quantile(share))
    }

    /// The same over all probes that were due: a lost one is slower than every reply. `None` without probes; infinite if the
    /// quantile is a lost probe.
    pub fn quantile_with_losses_ns(&self, share: f64) -> Option<f64> {
        let all = self.replies() + self.counts.lost;
        let rank = (share * all as f64).ceil().max(1.0) as u64;
        match (all, rank <= self.replies()) {
            (0, _) => None,
            (_, true) => Some(self.times.value_at_quantile(rank as f64 / self.replies() as f64) as f64),
            (_, false) => Some(f64::INFINITY),
        }
    }

    /// The bins that hold replies: their highest time in ns and their number, in order of time.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.times.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value()))
    }

    /// Replies that took at most this time, to the precision of the histogram.
    pub fn replies_within(&self, nanoseconds: u64) -> u64 {
        self.bins().take_while(|(time, _)| *time <= nanoseconds).map(|(_, count)| count).sum()
    }

    /// The sum of all times in ns, to the precision of the histogram.
    pub fn sum_ns(&self) -> f64 {
        self.times.mean() * self.times.len() as f64
    }

    /// The times in the format HdrHistogram V2; empty without replies.
    pub fn encoded_times(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.times.is_empty() {
            V2Serializer::new().serialize(&self.times, &mut bytes).expect("a vector takes every byte");
        }
        bytes
    }

    /// A window from its counts and its encoded times. `None` if they cannot be read.
    pub fn decode(counts: WindowCounts, times: &[u8]) -> Option<Window> {
        let mut window = Window::new(counts);
        if !times.is_empty() {
            window.times.add(decode_histogram(times)?).ok()?;
        }
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(times: &[u64], lost: u64) -> Window {
        let due = times.len() as u64 + lost;
        let mut window =
            Window::new(WindowCounts { measured_ms: 1000, due, lost, ..WindowCounts::default() });
        times.iter().for_each(|time| window.record(*time));
        window
    }

    #[test]
    fn a_lost_probe_is_slower_than_every_reply() {
        let window = window(&[100, 200, 300], 1);
        assert_eq!(window.quantile_ns(0.5), Some(200));
        assert_eq!(window.quantile_with_losses_ns(0.5), Some(200.0));
        assert_eq!(window.quantile_with_losses_ns(0.75).map(|time| time.round()), Some(301.0), "within 1 %");
        assert_eq!(window.quantile_with_losses_ns(0.9), Some(f64::INFINITY));
        assert_eq!(window.counts.loss_share(), Some(0.25));
        assert_eq!(Window::default().quantile_with_losses_ns(0.5), None);
        assert_eq!(Window::default().quantile_ns(0.5), None);
    }

    #[test]
    fn a_minute_at_a_probe_a_second_is_small() {
        let times: Vec<u64> = (0..60).map(|n| 10_000_000 + n * n * 3_000).collect();
        let bytes = window(&times, 0).encoded_times();
        assert!(bytes.len() < 150, "{}", bytes.len());
    }

    proptest! {
        #[test]
        fn merged_windows_equal_one_window(
            first in prop::collection::vec(1u64..10_000_000_000, 0..200),
            second in prop::collection::vec(1u64..10_000_000_000, 0..200),
        ) {
            let mut merged = window(&first, 1);
            merged.merge(&window(&second, 2));
            let mut together = window(&[first, second].concat(), 3);
            together.counts.measured_ms = 2000;
            prop_assert_eq!(&merged, &together);
            prop_assert_eq!(Window::decode(merged.counts, &merged.encoded_times()), Some(together));
        }
    }
}
