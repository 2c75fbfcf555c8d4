//! The two transmitters of a sender, without I/O: which datagrams a row makes due.

use std::time::Duration;

use super::rates::MAX_BURST;
use super::wire::{LOAD_HEADER_BYTES, RANDOM_SIZE, Row};
use linkgauge_model::clock::Time;

/// Maximum delay for which a transmitter sends more datagrams to catch up.
const MAX_LAG: Duration = Duration::from_millis(5);

/// Shortest time between two bursts, and the longest one.
const INTERVALS: std::ops::RangeInclusive<u32> = 100..=1_000_000;

/// Additional bytes of the headers of IPv6, by which datagrams are shorter.
const IPV6_BYTES: u32 = 20;

/// Minimum bytes of a datagram over IPv4 whose size is random.
const MIN_RANDOM_BYTES: u32 = 52;

/// Sizes that a sender may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeLimits {
    pub(super) max_payload: u32,
    pub(super) is_ipv6: bool,
}

impl SizeLimits {
    fn reduction(self) -> u32 {
        if self.is_ipv6 { IPV6_BYTES } else { 0 }
    }

    /// Bytes of a datagram of which a row says this. It may come from a remote.
    fn payload(self, stated: u32) -> u32 {
        let size = stated & !RANDOM_SIZE;
        let least = MIN_RANDOM_BYTES - self.reduction();
        let most = size.saturating_sub(if size >= MIN_RANDOM_BYTES { self.reduction() } else { 0 });
        let most = most.clamp(LOAD_HEADER_BYTES as u32, self.max_payload);
        match stated & RANDOM_SIZE {
            0 => most,
            _ => fastrand::u32(least.min(most)..=most),
        }
    }
}

/// Datagrams of one size that are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DueDatagrams {
    pub(super) size: u32,
    pub(super) count: u32,
}

/// The transmitters with their row.
#[derive(Debug)]
pub(super) struct Transmitters {
    row: Row,
    limits: SizeLimits,
    /// Next burst of each.
    next: [Time; 2],
    /// Datagrams that are due: those of each transmitter, and the add-ons.
    due: [DueDatagrams; 3],
    /// Time that the sender was too late to catch up.
    lost_time: Duration,
}

impl Transmitters {
    pub(super) fn new(limits: SizeLimits) -> Transmitters {
        Transmitters {
            row: Row::default(),
            limits,
            next: [Time::NEVER; 2],
            due: [DueDatagrams::default(); 3],
            lost_time: Duration::ZERO,
        }
    }

    /// Time for which nothing was sent since the last call because the sender was late.
    pub(super) fn take_lost_time(&mut self) -> Duration {
        std::mem::take(&mut self.lost_time)
    }

    /// Sends by this row from now on. Its numbers may come from a remote.
    pub(super) fn set_row(&mut self, row: Row, now: Time) {
        for index in 0..2 {
            let interval = interval_of(&row, index);
            self.next[index] = match interval {
                None => Time::NEVER,
                Some(interval) => self.next[index].min(now + interval),
            };
        }
        self.row = row;
    }

    /// Datagrams of one size that are due; as an error, the time of the next ones.
    pub(super) fn due(&mut self, now: Time) -> Result<DueDatagrams, Time> {
        let waiting = |due: &[DueDatagrams; 3]| due.iter().find(|due| due.count > 0).copied();
        if let Some(due) = waiting(&self.due) {
            return Ok(due);
        }
        for index in 0..2 {
            self.begin_bursts(index, now);
        }
        waiting(&self.due).ok_or(self.next[0].min(self.next[1]))
    }

    /// Makes the datagrams of the bursts due whose time has come.
    fn begin_bursts(&mut self, index: usize, now: Time) {
        let Some(interval) = interval_of(&self.row, index).filter(|_| self.next[index] <= now) else {
            return;
        };
        let late = now.since(self.next[index]);
        let bursts = match late > MAX_LAG {
            true => {
                self.lost_time += late;
                self.next[index] = now;
                1
            }
            false => 1 + (late.as_nanos() / interval.as_nanos()) as u32,
        };
        self.next[index] = self.next[index] + interval * bursts;
        let count = self.row.bursts[index].min(MAX_BURST) * bursts;
        self.due[index] = DueDatagrams { size: self.limits.payload(self.row.payloads[index]), count };
        if index == 1 && self.row.addon > 0 {
            self.due[2] = DueDatagrams { size: self.limits.payload(self.row.addon), count: bursts };
        }
    }

    /// Notes that this number of the due datagrams has been sent.
    pub(super) fn note_sent(&mut self, count: u32) {
        if let Some(due) = self.due.iter_mut().find(|due| due.count > 0) {
            due.count = due.count.saturating_sub(count);
        }
    }
}

fn interval_of(row: &Row, index: usize) -> Option<Duration> {
    let micros = row.intervals[index];
    (micros > 0).then(|| Duration::from_micros(micros.clamp(*INTERVALS.start(), *INTERVALS.end()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SizeLimits = SizeLimits { max_payload: 1222, is_ipv6: false };

    /// Bytes that are sent within a second.
    fn bytes_of(row: Row, limits: SizeLimits) -> u64 {
        let mut transmitters = Transmitters::new(limits);
        let (mut now, mut bytes) = (Time(0), 0);
        transmitters.set_row(row, now);
        while now < Time(1_000_000_000) {
            match transmitters.due(now) {
                Ok(due) => {
                    transmitters.note_sent(due.count);
                    bytes += u64::from(due.size) * u64::from(due.count);
                }
                Err(next) => now = next,
            }
        }
        bytes
    }

    #[test]
    fn a_row_is_sent_as_it_says() {
        let row = Row { intervals: [100, 1000], payloads: [1222, 1222], bursts: [2, 3], addon: 97 };
        assert_eq!(bytes_of(row, LIMITS), 9_999 * 2 * 1222 + 999 * (3 * 1222 + 97));
        let v6 = SizeLimits { is_ipv6: true, ..LIMITS };
        assert_eq!(bytes_of(row, v6), 9_999 * 2 * 1202 + 999 * (3 * 1202 + 77));
    }

    #[test]
    fn numbers_of_a_remote_are_limited() {
        let most = u32::MAX;
        let row = Row { intervals: [1, most], payloads: [most, most], bursts: [most, most], addon: most };
        assert!(bytes_of(row, LIMITS) <= 10_000 * u64::from(MAX_BURST) * 1222);
        let row = Row { intervals: [1, 0], payloads: [0, 0], bursts: [1, 0], addon: 0 };
        assert_eq!(bytes_of(row, LIMITS), 9_999 * 32);
    }
}
