//! State that the parties of a case share, and state that the two halves of a connection share: atomics only.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::algorithm::Arrived;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::{LoadWindow, ProbeLog};

/// Interval at which a connection checks whether to begin or to end.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Probes of a connection that can be without a reply at the same time: 50 s at 20 probes per second.
const MAX_UNANSWERED: usize = 1024;

/// The state of the load of a case.
#[derive(Debug)]
pub(crate) struct LoadState {
    /// Connections that have begun, the first ones in order.
    pub(crate) running_connections: AtomicU32,
    /// Whether the measurement is over.
    pub(crate) is_over: AtomicBool,
    /// Payload that the receivers of the load have got, as far as the client knows.
    moved_bytes: AtomicU64,
    /// Time at which the payload last grew, or the first connection began.
    last_moved_ns: AtomicU64,
    /// Longest time in which the payload did not grow.
    longest_stall_ns: AtomicU64,
    /// Log of the round trips beside the load.
    pub(crate) foreign_probes: Arc<ProbeLog>,
    /// Log of the round trips on the connections of the load.
    pub(crate) own_probes: Arc<ProbeLog>,
    /// Beginning and end of the load.
    pub(crate) window: Arc<LoadWindow>,
}

impl Default for LoadState {
    fn default() -> LoadState {
        LoadState {
            running_connections: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            moved_bytes: AtomicU64::new(0),
            last_moved_ns: AtomicU64::new(0),
            longest_stall_ns: AtomicU64::new(0),
            foreign_probes: Arc::default(),
            own_probes: Arc::default(),
            window: Arc::new(LoadWindow::new(0)),
        }
    }
}

impl LoadState {
    /// Whether the connection with this index, from 0, has begun.
    pub(crate) fn is_running(&self, index: u32) -> bool {
        index < self.running_connections.load(Relaxed)
    }

    /// Whether the measurement is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Adds payload that has arrived.
    pub(crate) fn add_moved_bytes(&self, more: u64, now: Time) {
        self.moved_bytes.fetch_add(more, Relaxed);
        let last_ns = self.last_moved_ns.fetch_max(now.0, Relaxed);
        if last_ns > 0 {
            self.longest_stall_ns.fetch_max(now.0.saturating_sub(last_ns), Relaxed);
        }
    }

    /// The longest time in which no connection of the load has moved anything, until now or its end.
    pub(crate) fn longest_stall_ns(&self, now: Time) -> u64 {
        let last_ns = self.last_moved_ns.load(Relaxed);
        let since_last_ns = if last_ns > 0 { now.0.saturating_sub(last_ns) } else { 0 };
        self.longest_stall_ns.load(Relaxed).max(since_last_ns)
    }

    /// Load that has arrived so far.
    pub(crate) fn arrived(&self) -> Arrived {
        Arrived { bytes: self.moved_bytes.load(Relaxed), at: Time(self.last_moved_ns.load(Relaxed)) }
    }

    /// Begins the load at this time.
    pub fn begin(&self, now: Time) {
        self.last_moved_ns.fetch_max(now.0, Relaxed);
    }

    /// Whether no connection of the load has moved anything for this long. A single one may starve beside others.
    pub(crate) fn is_stalled(&self, now: Time, timeout: Duration) -> bool {
        let last_ns = self.last_moved_ns.load(Relaxed);
        last_ns > 0 && now > Time(last_ns) + timeout
    }

    /// Ends the measurement, or notes that a connection has ended.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

/// The probes of one connection of the load: one half of the connection sends them, the other one receives the replies.
#[derive(Debug)]
pub(crate) struct LoadProbes {
    entries: Box<[ProbeTimes]>,
    /// Number of the newest probe, from 1.
    newest_sent: AtomicU64,
    /// Number of the newest probe with a reply.
    newest_replied: AtomicU64,
}

#[derive(Debug, Default)]
struct ProbeTimes {
    sent_ns: AtomicU64,
    replied_ns: AtomicU64,
}

/// A probe with its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepliedProbe {
    /// Time at which the probe was offered to the link.
    pub(crate) sent: Time,
    /// Arrival time of the reply.
    pub(crate) received: Time,
}

impl Default for LoadProbes {
    fn default() -> LoadProbes {
        LoadProbes {
            entries: (0..MAX_UNANSWERED).map(|_| ProbeTimes::default()).collect(),
            newest_sent: AtomicU64::new(0),
            newest_replied: AtomicU64::new(0),
        }
    }
}

impl LoadProbes {
    fn entry(&self, number: u64) -> &ProbeTimes {
        &self.entries[number as usize % MAX_UNANSWERED]
    }

    /// The number of the next probe; `None` while too many are without a reply.
    pub(crate) fn next_number(&self) -> Option<u64> {
        let next = self.newest_sent.load(Relaxed) + 1;
        (next - self.newest_replied.load(Acquire) < MAX_UNANSWERED as u64).then_some(next)
    }

    /// Records that the probe is offered to the link at this instant.
    pub(crate) fn record_sent(&self, number: u64, at: Time) {
        self.entry(number).sent_ns.store(at.0, Relaxed);
        self.newest_sent.store(number, Release);
    }

    /// Records the reply to this probe, and to all before it. Other numbers are ignored.
    pub(crate) fn record_reply(&self, number: u64, at: Time) {
        let replied = self.newest_replied.load(Relaxed);
        if number > replied && number <= self.newest_sent.load(Acquire) {
            (replied + 1..=number).for_each(|number| self.entry(number).replied_ns.store(at.0, Relaxed));
            self.newest_replied.store(number, Release);
        }
    }

    /// The probe, if its reply has arrived.
    pub(crate) fn replied_probe(&self, number: u64) -> Option<RepliedProbe> {
        let entry = self.entry(number);
        (number <= self.newest_replied.load(Acquire)).then(|| RepliedProbe {
            sent: Time(entry.sent_ns.load(Relaxed)),
            received: Time(entry.replied_ns.load(Relaxed)),
        })
    }

    /// Whether every probe has its reply.
    pub(crate) fn have_all_replies(&self) -> bool {
        self.newest_replied.load(Acquire) == self.newest_sent.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_counts_for_all_earlier_probes() {
        let load_probes = LoadProbes::default();
        for number in 1..=3 {
            assert_eq!(load_probes.next_number(), Some(number));
            load_probes.record_sent(number, Time(10 * number));
        }
        load_probes.record_reply(4, Time(50));
        assert_eq!(load_probes.replied_probe(1), None, "a number that was not sent");
        load_probes.record_reply(2, Time(100));
        load_probes.record_reply(1, Time(200));
        let replied = |sent: u64| RepliedProbe { sent: Time(sent), received: Time(100) };
        assert_eq!(load_probes.replied_probe(1), Some(replied(10)));
        assert_eq!(load_probes.replied_probe(2), Some(replied(20)));
        assert!(load_probes.replied_probe(3).is_none() && !load_probes.have_all_replies());
        load_probes.record_reply(3, Time(300));
        assert!(load_probes.have_all_replies());
    }

    #[test]
    fn one_connection_that_moves_is_enough() {
        let state = LoadState::default();
        let timeout = Duration::from_nanos(10);
        assert!(!state.is_stalled(Time(1000), timeout), "it has not begun");
        state.begin(Time(1000));
        state.add_moved_bytes(5, Time(1008));
        assert!(!state.is_stalled(Time(1018), timeout) && state.is_stalled(Time(1019), timeout));
    }

    #[test]
    fn the_longest_stall_includes_the_one_at_the_end() {
        let state = LoadState::default();
        assert_eq!(state.longest_stall_ns(Time(1000)), 0, "it has not begun");
        state.begin(Time(1000));
        [1010, 1050, 1060].iter().for_each(|&at| state.add_moved_bytes(5, Time(at)));
        assert_eq!((state.longest_stall_ns(Time(1070)), state.longest_stall_ns(Time(1160))), (40, 100));
    }

    #[test]
    fn probes_without_a_reply_are_limited() {
        let load_probes = LoadProbes::default();
        let sent = std::iter::from_fn(|| {
            let number = load_probes.next_number()?;
            load_probes.record_sent(number, Time(number));
            Some(number)
        });
        assert_eq!(sent.count(), MAX_UNANSWERED - 1);
        load_probes.record_reply(1, Time(5));
        assert_eq!(load_probes.next_number(), Some(MAX_UNANSWERED as u64));
    }
}
