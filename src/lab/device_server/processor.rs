//! The one slow processor of a box, which all its ports share: when a transfer that is ready may happen.
//!
//! Reads no clock and waits for nothing. A box without limits has none of this.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Time;

/// What a transfer of bytes costs in a slow box, whatever their number.
#[derive(Debug)]
pub struct Processor {
    /// Bytes move only at multiples of this since `origin`. Zero: at any time.
    poll: Duration,
    /// Each transfer occupies the processor for so long. Zero: for no time.
    budget: Duration,
    origin: Time,
    free: Mutex<Time>,
}

impl Processor {
    pub fn new(poll: Duration, budget: Duration, origin: Time) -> Processor {
        Processor { poll, budget, origin, free: Mutex::new(origin) }
    }

    /// When a transfer that is ready `now` happens; it has its place in the queue then. `None`: at once.
    pub fn turn(&self, now: Time) -> Option<Time> {
        if self.poll.is_zero() && self.budget.is_zero() {
            return None;
        }
        let polled = self.polled(now);
        if self.budget.is_zero() {
            return Some(polled);
        }
        let mut free = self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *free = polled.max(*free) + self.budget;
        Some(*free)
    }

    /// The first point of the grid that is not before `now`.
    fn polled(&self, now: Time) -> Time {
        let grid = u64::try_from(self.poll.as_nanos()).unwrap_or(u64::MAX);
        let passed = now.0.saturating_sub(self.origin.0);
        match passed.checked_rem(grid) {
            // Without a grid every instant is on it.
            None | Some(0) => now,
            Some(past) => now + Duration::from_nanos(grid - past),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    const ORIGIN: Time = Time(500);

    #[test]
    fn a_box_without_limits_never_waits() {
        let processor = Processor::new(Duration::ZERO, Duration::ZERO, ORIGIN);
        assert_eq!(processor.turn(ORIGIN + ms(7)), None);
    }

    #[test]
    fn bytes_move_on_the_grid() {
        let processor = Processor::new(ms(10), Duration::ZERO, ORIGIN);
        for (ready, moves) in [(0, 0), (1, 10), (10, 10), (19, 20), (12, 20)] {
            assert_eq!(processor.turn(ORIGIN + ms(ready)), Some(ORIGIN + ms(moves)), "{ready}");
        }
        assert_eq!(processor.turn(Time(ORIGIN.0 + 1)), Some(ORIGIN + ms(10)));
    }

    #[test]
    fn transfers_queue_for_the_processor() {
        let processor = Processor::new(Duration::ZERO, ms(3), ORIGIN);
        for (ready, moves) in [(0, 3), (0, 6), (5, 9), (20, 23)] {
            assert_eq!(processor.turn(ORIGIN + ms(ready)), Some(ORIGIN + ms(moves)), "{ready}");
        }
    }

    #[test]
    fn after_the_poll_the_processor_takes_one_port_after_the_other() {
        let processor = Processor::new(ms(10), ms(3), ORIGIN);
        for (ready, moves) in [(1, 13), (2, 16), (10, 19), (11, 23)] {
            assert_eq!(processor.turn(ORIGIN + ms(ready)), Some(ORIGIN + ms(moves)), "{ready}");
        }
    }
}
