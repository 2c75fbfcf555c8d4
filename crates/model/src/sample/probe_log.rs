//! The newest round trips of some probes, for a thread that judges them while the probes run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Sample;
use crate::clock::Time;

/// Round trips that are stored: those of 16 connections with 20 probes per second each, for 12 s.
const ENTRIES: usize = 4096;

/// A round trip; both fields are 0 before the first one.
#[derive(Debug, Default)]
struct Entry {
    received_ns: AtomicU64,
    service_ns: AtomicU64,
}

/// The newest round trips, in fixed memory. Several threads may write at the same time.
#[derive(Debug)]
pub struct ProbeLog {
    entries: Box<[Entry]>,
    count: AtomicU64,
}

impl Default for ProbeLog {
    fn default() -> ProbeLog {
        ProbeLog { entries: (0..ENTRIES).map(|_| Entry::default()).collect(), count: AtomicU64::new(0) }
    }
}

impl ProbeLog {
    /// Stores a round trip in place of the oldest one.
    #[inline]
    pub fn push(&self, sample: Sample) {
        let entry = &self.entries[self.count.fetch_add(1, Relaxed) as usize % ENTRIES];
        entry.service_ns.store(sample.service_ns(), Relaxed);
        entry.received_ns.store(sample.received.0, Relaxed);
    }

    /// Replaces the content of `times_ns` by the service times, in ns, of the replies from `from` until before `to`. Does not
    /// allocate if `times_ns` has room for all.
    pub fn read_into(&self, times_ns: &mut Vec<u64>, from: Time, to: Time) {
        times_ns.clear();
        let stored = (self.count.load(Relaxed) as usize).min(ENTRIES);
        for entry in &self.entries[..stored] {
            let (received_ns, service_ns) = (entry.received_ns.load(Relaxed), entry.service_ns.load(Relaxed));
            if (from.0..to.0).contains(&received_ns) && service_ns > 0 {
                times_ns.push(service_ns);
            }
        }
    }

    /// A vector with room for every round trip of a log.
    pub fn new_buffer() -> Vec<u64> {
        Vec::with_capacity(ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_round_trips_are_read_by_the_time_of_their_replies() {
        let log = ProbeLog::default();
        let push = |received: u64, service: u64| {
            let sent = Time(received - service);
            log.push(Sample { sequence: 0, intended: sent, sent, received: Time(received) });
        };
        let read = |from: u64, to: u64| {
            let mut times = ProbeLog::new_buffer();
            log.read_into(&mut times, Time(from), Time(to));
            times.sort_unstable();
            times
        };
        assert_eq!(read(0, u64::MAX), [0u64; 0]);
        [(100, 7), (200, 8), (300, 9)].into_iter().for_each(|(received, service)| push(received, service));
        assert_eq!(read(100, 300), [7, 8]);
        (0..ENTRIES as u64).for_each(|number| push(1_000 + number, 1));
        assert_eq!(read(0, 1_000), [0u64; 0], "the oldest make room");
        assert_eq!(read(0, u64::MAX).len(), ENTRIES);
    }
}
