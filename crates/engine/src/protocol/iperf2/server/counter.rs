//! The counts of received datagrams, as the original makes them.

use super::super::wire::{DatagramHead, Delays, Report};
use crate::protocol::jitter::JitterMeter;
use linkgauge_model::clock::Time;

/// Counts the datagrams of one sender. Its last one counts like the others.
#[derive(Debug, Default)]
pub(super) struct DatagramCounter {
    bytes: u64,
    lost: u64,
    reordered: u64,
    /// The next number in order; `None` before the first datagram.
    next_number: Option<u64>,
    first_at: Time,
    last_at: Time,
    jitter: JitterMeter,
    delays: Delays,
}

impl DatagramCounter {
    /// Adds a datagram of this number of bytes, which arrived at `now`, in microseconds of the wall clock `now_us`.
    pub(super) fn add(&mut self, head: DatagramHead, bytes: usize, now: Time, now_us: u64) {
        // Some count from 0, and the first datagram may be missing.
        let next = self.next_number.unwrap_or(head.number.min(1));
        if self.next_number.is_none() {
            self.first_at = now;
        }
        self.last_at = now;
        self.bytes += bytes as u64;
        if head.number >= next {
            self.lost += head.number - next;
        } else {
            self.reordered += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        self.next_number = Some(next.max(head.number.saturating_add(1)));
        self.jitter.observe(head.sent_us as i64, now);
        if let Some(delay_us) = now_us.checked_sub(head.sent_us) {
            self.delays.add(delay_us);
        }
    }

    /// The report. The delays have a meaning only for a client that knows that the clocks agree.
    pub(super) fn report(&self, has_delays: bool) -> Report {
        Report {
            bytes: self.bytes,
            elapsed: self.last_at.since(self.first_at),
            lost: self.lost,
            reordered: self.reordered,
            highest: self.next_number.unwrap_or(0).saturating_sub(1),
            jitter: std::time::Duration::from_secs_f64(self.jitter.seconds().unwrap_or(0.0)),
            delays: has_delays.then_some(self.delays),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(numbers: &[u64]) -> Report {
        let mut counter = DatagramCounter::default();
        for (at, number) in numbers.iter().enumerate() {
            let (now, sent_us) = (Time(1_000_000 * (at as u64 + 1)), 1000 * (at as u64 + 1));
            counter.add(DatagramHead { number: *number, is_last: false, sent_us }, 100, now, sent_us + 7);
        }
        counter.report(true)
    }

    #[test]
    fn numbers_begin_with_0_or_1_and_gaps_are_losses_until_they_are_filled() {
        for (numbers, lost, reordered, highest) in [
            (&[1, 2, 3, 4][..], 0, 0, 4),
            (&[0, 1, 2, 3], 0, 0, 3),
            (&[3, 4], 2, 0, 4),
            (&[1, 4, 5], 2, 0, 5),
            (&[1, 3, 2, 4], 0, 1, 4),
            (&[1, 1], 0, 1, 1),
            (&[1, u64::MAX >> 1], (u64::MAX >> 1) - 2, 0, u64::MAX >> 1),
        ] {
            let report = counted(numbers);
            assert_eq!(
                (report.lost, report.reordered, report.highest),
                (lost, reordered, highest),
                "{numbers:?}"
            );
            assert_eq!(report.bytes, 100 * numbers.len() as u64);
        }
        let report = counted(&[1, 2, 3]);
        assert_eq!((report.elapsed.as_millis(), report.jitter.as_nanos()), (2, 0));
        assert_eq!(report.delays, Some(Delays { min_us: 7, max_us: 7, sum_us: 21, count: 3 }));
    }
}
