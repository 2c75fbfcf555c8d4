//! The slow processor of a box, shared by all its ports: when a transfer that is ready can happen, and what it costs.
//!
//! Reads no clock and does not wait.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use linkgauge_model::clock::Time;

/// Costs of transfers in a slow box. The default is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TransferCosts {
    /// Bytes move only at multiples of this interval. Zero: at any time.
    pub poll_interval: Duration,
    /// Each transfer occupies the box's single processor for this time.
    pub transfer_time: Duration,
    /// Additional processor time per byte, in nanoseconds.
    pub byte_ns: f64,
    /// Additional processor time per open session; each installed port adds this time to the poll interval.
    pub port_time: Duration,
    /// The share of the processor that an active line takes: a transfer from the line takes this share of the time of its
    /// characters longer. 0 to 1.
    pub line_load: f64,
    /// Largest transfer in bytes. From the line it is ready when it is full or the line is idle; to the line when the port
    /// has room for a second one. Zero: everything that waits, at once.
    pub block_bytes: usize,
    /// The line rests for this time after each full block to it.
    pub drain_pause: Duration,
    /// Lowest rate at which the line rests, in bits per second.
    pub drain_from_bps: f64,
}

/// A transfer that waits for the processor.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The bytes.
    pub bytes: usize,
    /// The time of a character on the line that it comes from; `None`: it goes to the line.
    pub from_line: Option<Duration>,
}

/// The processor of a box.
#[derive(Debug)]
pub struct SharedProcessor {
    costs: TransferCosts,
    /// Poll interval, with the time of the installed ports.
    poll_interval: Duration,
    sessions: AtomicUsize,
    origin: Time,
    free_at: Mutex<Time>,
}

impl SharedProcessor {
    /// The processor of a box with this number of ports.
    pub fn new(costs: TransferCosts, ports: usize, origin: Time) -> SharedProcessor {
        let poll_interval = costs.poll_interval + costs.port_time * u32::try_from(ports).unwrap_or(u32::MAX);
        SharedProcessor {
            costs,
            poll_interval,
            sessions: AtomicUsize::new(0),
            origin,
            free_at: Mutex::new(origin),
        }
    }

    /// Costs of transfers.
    pub fn costs(&self) -> &TransferCosts {
        &self.costs
    }

    /// A session begins.
    pub(crate) fn open_session(&self) {
        self.sessions.fetch_add(1, Relaxed);
    }

    /// A session has ended.
    pub(crate) fn close_session(&self) {
        self.sessions.fetch_sub(1, Relaxed);
    }

    /// Processor time of a transfer.
    pub fn cost(&self, transfer: Transfer) -> Duration {
        let TransferCosts { transfer_time, byte_ns, port_time, line_load, .. } = self.costs;
        let sessions = u32::try_from(self.sessions.load(Relaxed)).unwrap_or(u32::MAX);
        let line_ns = transfer.from_line.map_or(0.0, |character| line_load * character.as_nanos() as f64);
        let bytes_ns = transfer.bytes as f64 * (byte_ns + line_ns);
        transfer_time + port_time * sessions + Duration::from_nanos(bytes_ns.round() as u64)
    }

    /// Reserves a place in the queue and returns the time of a transfer that is ready `now`. `None`: immediately.
    pub(crate) fn schedule_transfer(&self, transfer: Transfer, now: Time) -> Option<Time> {
        let cost = self.cost(transfer);
        if self.poll_interval.is_zero() && cost.is_zero() {
            return None;
        }
        let polled = self.next_poll(now);
        if cost.is_zero() {
            return Some(polled);
        }
        let mut free = self.free_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *free = polled.max(*free) + cost;
        Some(*free)
    }

    /// The first multiple of the poll interval at or after `now`.
    fn next_poll(&self, now: Time) -> Time {
        let grid = u64::try_from(self.poll_interval.as_nanos()).unwrap_or(u64::MAX);
        let passed = now.0.saturating_sub(self.origin.0);
        match passed.checked_rem(grid) {
            // Without a poll interval every instant is possible.
            None | Some(0) => now,
            Some(past) => now + Duration::from_nanos(grid - past),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    const ORIGIN: Time = Time(500);
    const BYTE: Transfer = Transfer { bytes: 1, from_line: None };

    fn processor(poll_ms: u64, transfer_ms: u64) -> SharedProcessor {
        let (poll_interval, transfer_time) = (milliseconds(poll_ms), milliseconds(transfer_ms));
        let costs = TransferCosts { poll_interval, transfer_time, ..TransferCosts::default() };
        SharedProcessor::new(costs, 1, ORIGIN)
    }

    #[test]
    fn processor_without_limits_never_waits() {
        let processor = self::processor(0, 0);
        assert_eq!(processor.schedule_transfer(BYTE, ORIGIN + milliseconds(7)), None);
    }

    #[test]
    fn transfers_happen_at_poll_instants() {
        let processor = self::processor(10, 0);
        for (ready, moves) in [(0, 0), (1, 10), (10, 10), (19, 20), (12, 20)] {
            assert_eq!(
                processor.schedule_transfer(BYTE, ORIGIN + milliseconds(ready)),
                Some(ORIGIN + milliseconds(moves)),
                "{ready}"
            );
        }
        assert_eq!(processor.schedule_transfer(BYTE, Time(ORIGIN.0 + 1)), Some(ORIGIN + milliseconds(10)));
    }

    #[test]
    fn transfers_queue_for_the_processor() {
        let processor = self::processor(0, 3);
        for (ready, moves) in [(0, 3), (0, 6), (5, 9), (20, 23)] {
            assert_eq!(
                processor.schedule_transfer(BYTE, ORIGIN + milliseconds(ready)),
                Some(ORIGIN + milliseconds(moves)),
                "{ready}"
            );
        }
    }

    #[test]
    fn ports_are_served_one_after_the_other_after_a_poll() {
        let processor = self::processor(10, 3);
        for (ready, moves) in [(1, 13), (2, 16), (10, 19), (11, 23)] {
            assert_eq!(
                processor.schedule_transfer(BYTE, ORIGIN + milliseconds(ready)),
                Some(ORIGIN + milliseconds(moves)),
                "{ready}"
            );
        }
    }

    #[test]
    fn bytes_sessions_and_an_active_line_take_processor_time() {
        let costs = TransferCosts {
            poll_interval: milliseconds(5),
            transfer_time: milliseconds(2),
            byte_ns: 1000.0,
            port_time: Duration::from_micros(100),
            line_load: 0.1,
            ..TransferCosts::default()
        };
        let processor = SharedProcessor::new(costs, 10, ORIGIN);
        (0..3).for_each(|_| processor.open_session());
        processor.close_session();
        let to_line = Transfer { bytes: 500, from_line: None };
        assert_eq!(processor.cost(to_line), Duration::from_micros(2000 + 200 + 500));
        let from_line = Transfer { bytes: 500, from_line: Some(milliseconds(1)) };
        assert_eq!(processor.cost(from_line), Duration::from_micros(2000 + 200 + 500 + 50_000));
        // Ten installed ports make the poll interval 6 ms.
        assert_eq!(
            processor.schedule_transfer(to_line, ORIGIN + milliseconds(1)),
            Some(ORIGIN + milliseconds(6) + Duration::from_micros(2700))
        );
    }
}
