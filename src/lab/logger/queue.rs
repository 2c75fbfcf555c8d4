//! The logger's processor and the requests that wait for it: one at a time, in the order in which they came.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Time;

/// When a request has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Others were there first.
    pub waits: bool,
    pub done: Time,
}

#[derive(Debug)]
pub struct Queue {
    /// Requests that may be there at once, the one in work included.
    room: usize,
    /// What each keeps the processor busy.
    work: Duration,
    /// When those that were taken are done, in order.
    done: VecDeque<Time>,
}

impl Queue {
    pub fn new(room: usize, work: Duration) -> Queue {
        Queue { room, work, done: VecDeque::new() }
    }

    /// Takes a request; `None` if there is no room for it.
    pub fn take(&mut self, now: Time) -> Option<Turn> {
        while self.done.front().is_some_and(|&done| done <= now) {
            self.done.pop_front();
        }
        if self.done.len() >= self.room {
            return None;
        }
        let before = self.done.back().copied();
        let turn = Turn { waits: before.is_some(), done: before.unwrap_or(now) + self.work };
        self.done.push_back(turn.done);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other_and_no_more_than_there_is_room_for() {
        let mut queue = Queue::new(2, Duration::from_nanos(10));
        let turn = |waits, done| Some(Turn { waits, done: Time(done) });
        assert_eq!(queue.take(Time(100)), turn(false, 110));
        assert_eq!(queue.take(Time(101)), turn(true, 120));
        assert_eq!(queue.take(Time(109)), None);
        assert_eq!(queue.take(Time(110)), turn(true, 130));
        assert_eq!(queue.take(Time(500)), turn(false, 510));
    }

    #[test]
    fn work_that_takes_no_time_fills_no_queue() {
        let mut queue = Queue::new(1, Duration::ZERO);
        assert!((0..100).all(|_| queue.take(Time(7)) == Some(Turn { waits: false, done: Time(7) })));
    }
}
