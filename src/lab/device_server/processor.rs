//! The slow processor of a box, shared by all its ports: when a transfer that is ready can happen.
//!
//! Reads no clock and does not wait. A box without limits has no such processor.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Time;

/// The cost of a transfer in a slow box, independent of its size.
#[derive(Debug)]
pub struct SharedProcessor {
    /// Bytes move only at multiples of this since `origin`. Zero: at any time.
    poll_interval: Duration,
    /// Processor time of each transfer. Zero: none.
    transfer_time: Duration,
    origin: Time,
    free_at: Mutex<Time>,
}

impl SharedProcessor {
    pub fn new(poll: Duration, budget: Duration, origin: Time) -> SharedProcessor {
        SharedProcessor { poll_interval: poll, transfer_time: budget, origin, free_at: Mutex::new(origin) }
    }

    /// Reserves a place in the queue and returns the time of a transfer that is ready `now`. `None`: immediately.
    pub fn schedule_transfer(&self, now: Time) -> Option<Time> {
        if self.poll_interval.is_zero() && self.transfer_time.is_zero() {
            return None;
        }
        let polled = self.next_poll(now);
        if self.transfer_time.is_zero() {
            return Some(polled);
        }
        let mut free = self.free_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *free = polled.max(*free) + self.transfer_time;
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

    #[test]
    fn processor_without_limits_never_waits() {
        let processor = SharedProcessor::new(Duration::ZERO, Duration::ZERO, ORIGIN);
        assert_eq!(processor.schedule_transfer(ORIGIN + milliseconds(7)), None);
    }

    #[test]
    fn transfers_happen_at_poll_instants() {
        let processor = SharedProcessor::new(milliseconds(10), Duration::ZERO, ORIGIN);
        for (ready, moves) in [(0, 0), (1, 10), (10, 10), (19, 20), (12, 20)] {
            assert_eq!(
                processor.schedule_transfer(ORIGIN + milliseconds(ready)),
                Some(ORIGIN + milliseconds(moves)),
                "{ready}"
            );
        }
        assert_eq!(processor.schedule_transfer(Time(ORIGIN.0 + 1)), Some(ORIGIN + milliseconds(10)));
    }

    #[test]
    fn transfers_queue_for_the_processor() {
        let processor = SharedProcessor::new(Duration::ZERO, milliseconds(3), ORIGIN);
        for (ready, moves) in [(0, 3), (0, 6), (5, 9), (20, 23)] {
            assert_eq!(
                processor.schedule_transfer(ORIGIN + milliseconds(ready)),
                Some(ORIGIN + milliseconds(moves)),
                "{ready}"
            );
        }
    }

    #[test]
    fn ports_are_served_one_after_the_other_after_a_poll() {
        let processor = SharedProcessor::new(milliseconds(10), milliseconds(3), ORIGIN);
        for (ready, moves) in [(1, 13), (2, 16), (10, 19), (11, 23)] {
            assert_eq!(
                processor.schedule_transfer(ORIGIN + milliseconds(ready)),
                Some(ORIGIN + milliseconds(moves)),
                "{ready}"
            );
        }
    }
}
