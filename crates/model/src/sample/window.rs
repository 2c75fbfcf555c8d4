//! The probes of a stretch of time: counts and a histogram, small enough to keep for years, and mergeable.
//!
//! Merged windows are exact: every percentile is that of all replies, to the precision of the histogram. Averages of
//! percentiles never occur.

use super::bins::{self, Bin};
use super::decode_histogram;

/// First byte of encoded times. An HdrHistogram V2, as earlier versions wrote it, begins with another.
const FORMAT: u8 = 1;

/// Measurements of a stretch of time. A window of 60 replies takes some hundred bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Counts of the probes.
    pub counts: WindowCounts,
    /// Round-trip times of the probes that have a reply: the bins that are not empty, in order.
    bins: Vec<Bin>,
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
    pub(crate) fn add(&mut self, other: &WindowCounts) {
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

impl Window {
    /// A window without times.
    pub fn new(counts: WindowCounts) -> Window {
        Window { counts, bins: Vec::new() }
    }

    /// Records the time of a reply.
    pub fn record(&mut self, nanoseconds: u64) {
        self.add(Bin { index: Bin::index_of(nanoseconds), count: 1 });
    }

    /// A window of 10 s with these replies in ns, and this number of lost probes.
    pub fn of_probes(times: &[u64], lost: u64) -> Window {
        let due = times.len() as u64 + lost;
        let mut window =
            Window::new(WindowCounts { measured_ms: 10_000, due, lost, ..WindowCounts::default() });
        times.iter().for_each(|time| window.record(*time));
        window
    }

    fn add(&mut self, bin: Bin) {
        match self.bins.binary_search_by_key(&bin.index, |own| own.index) {
            Ok(at) => self.bins[at].count = self.bins[at].count.saturating_add(bin.count),
            Err(at) => self.bins.insert(at, bin),
        }
    }

    /// Adds another window.
    pub fn merge(&mut self, other: &Window) {
        self.counts.add(&other.counts);
        other.bins.iter().for_each(|bin| self.add(*bin));
    }

    /// Probes with a reply.
    pub fn replies(&self) -> u64 {
        self.bins.iter().map(|bin| u64::from(bin.count)).sum()
    }

    /// The `share` quantile (0 to 1) in ns over the replies, to 1 %. `None` without replies.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let replies = self.replies();
        // 0.99 of 100 replies is 99, whatever the rounding of the product.
        let rank = (share.clamp(0.0, 1.0) * replies as f64 * (1.0 - f64::EPSILON)).ceil() as u64;
        self.time_of_rank(rank.clamp(1, replies.max(1)))
    }

    /// The `share` quantile (0 to 1) in ns over all probes that were due: a lost one is slower than every reply. `None` without
    /// probes; infinite if the quantile is a lost probe.
    pub fn quantile_with_losses_ns(&self, share: f64) -> Option<f64> {
        let replies = self.replies();
        let all = replies + self.counts.lost;
        let rank = (share * all as f64 * (1.0 - f64::EPSILON)).ceil().max(1.0) as u64;
        match (all, rank <= replies) {
            (0, _) => None,
            (_, true) => self.time_of_rank(rank).map(|time| time as f64),
            (_, false) => Some(f64::INFINITY),
        }
    }

    /// The time of the reply with this rank, from 1.
    fn time_of_rank(&self, rank: u64) -> Option<u64> {
        let mut within = 0;
        let bin = self.bins.iter().find(|bin| {
            within += u64::from(bin.count);
            within >= rank
        });
        bin.map(|bin| bin.highest())
    }

    /// The bins that hold replies: their highest time in ns and their number, in order of time.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.bins.iter().map(|bin| (bin.highest(), u64::from(bin.count)))
    }

    /// Replies that took at most this time, to the precision of the bins.
    pub fn replies_within(&self, nanoseconds: u64) -> u64 {
        self.bins().take_while(|(time, _)| *time <= nanoseconds).map(|(_, count)| count).sum()
    }

    /// The sum of all times in ns, to the precision of the bins.
    pub fn sum_ns(&self) -> f64 {
        self.bins.iter().map(|bin| bin.middle() as f64 * f64::from(bin.count)).sum()
    }

    /// The times in few bytes; none without replies.
    pub fn encoded_times(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.bins.is_empty() {
            bytes.push(FORMAT);
            bins::encode(&self.bins, &mut bytes);
        }
        bytes
    }

    /// A window from its counts and its encoded times. `None` if they cannot be read.
    pub fn decode(counts: WindowCounts, times: &[u8]) -> Option<Window> {
        let mut window = Window::new(counts);
        match times {
            [] => {}
            [FORMAT, code @ ..] => window.bins = bins::decode(code)?,
            _ => {
                for bin in decode_histogram(times)?.iter_recorded() {
                    let count = u32::try_from(bin.count_at_value()).ok()?;
                    window.add(Bin { index: Bin::index_of(bin.value_iterated_to()), count });
                }
            }
        }
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    use proptest::prelude::*;

    use super::super::bins::MAX_TIME_NS;
    use super::*;

    #[test]
    fn a_lost_probe_is_slower_than_every_reply() {
        let window = Window::of_probes(&[100, 200, 300], 1);
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
        let bytes = Window::of_probes(&times, 0).encoded_times();
        assert!(bytes.len() < 60, "{}", bytes.len());
    }

    #[test]
    fn damaged_times_are_refused() {
        let good = Window::of_probes(&[100, 5_000, 5_000, 1_000_000_000], 0);
        assert_eq!(Window::decode(good.counts, &good.encoded_times()), Some(good.clone()));
        for damaged in [&[FORMAT][..], &[FORMAT, 0], &[7, 7, 7]] {
            assert_eq!(Window::decode(good.counts, damaged), None, "{damaged:?}");
        }
        assert_eq!(Window::decode(WindowCounts::default(), &[]), Some(Window::default()));
    }

    fn histogram(times: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, MAX_TIME_NS, 2).unwrap();
        times.iter().for_each(|time| histogram.record(*time).unwrap());
        histogram
    }

    proptest! {
        /// HdrHistogram is the judge of the bins, and what it wrote in earlier versions can be read.
        #[test]
        fn bins_are_those_of_an_hdr_histogram(
            times in prop::collection::vec(prop_oneof![0u64..2_000, 1u64..MAX_TIME_NS], 1..200),
            share in 0.001f64..1.0,
        ) {
            let (own, judge) = (Window::of_probes(&times, 0), histogram(&times));
            let bins: Vec<(u64, u64)> =
                judge.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())).collect();
            prop_assert_eq!(own.bins().collect::<Vec<_>>(), bins);
            prop_assert_eq!(own.quantile_ns(share), Some(judge.value_at_quantile(share)));
            prop_assert!((own.sum_ns() / (judge.mean() * judge.len() as f64).max(1e-9) - 1.0).abs() < 1e-9 || own.sum_ns() == 0.0);
            let mut old = Vec::new();
            V2Serializer::new().serialize(&judge, &mut old).unwrap();
            prop_assert_eq!(Window::decode(own.counts, &old), Some(own));
        }

        #[test]
        fn merged_windows_equal_one_window(
            first in prop::collection::vec(1u64..10_000_000_000, 0..200),
            second in prop::collection::vec(1u64..10_000_000_000, 0..200),
        ) {
            let mut merged = Window::of_probes(&first, 1);
            merged.merge(&Window::of_probes(&second, 2));
            let mut together = Window::of_probes(&[first, second].concat(), 3);
            together.counts.measured_ms = 20_000;
            prop_assert_eq!(&merged, &together);
            prop_assert_eq!(Window::decode(merged.counts, &merged.encoded_times()), Some(together));
        }
    }
}
