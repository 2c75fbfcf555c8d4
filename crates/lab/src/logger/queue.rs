//! The logger's processor and its queue of requests, served one at a time in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use linkgauge_model::clock::Time;

/// Processing time of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueSlot {
    /// Whether other requests are processed first.
    pub(crate) is_queued: bool,
    pub(crate) done_at: Time,
}

#[derive(Debug)]
pub(crate) struct CommandQueue {
    /// Maximum number of requests, including the one in progress.
    capacity: usize,
    /// Processor time of each request.
    command_time: Duration,
    /// Completion times of the accepted requests, in order.
    completion_times: VecDeque<Time>,
}

impl CommandQueue {
    pub fn new(room: usize, work: Duration) -> CommandQueue {
        CommandQueue { capacity: room, command_time: work, completion_times: VecDeque::new() }
    }

    /// Accepts a request. Returns `None` if the queue is full.
    pub(crate) fn enqueue(&mut self, now: Time) -> Option<QueueSlot> {
        while self.completion_times.front().is_some_and(|&done| done <= now) {
            self.completion_times.pop_front();
        }
        if self.completion_times.len() >= self.capacity {
            return None;
        }
        let before = self.completion_times.back().copied();
        let turn =
            QueueSlot { is_queued: before.is_some(), done_at: before.unwrap_or(now) + self.command_time };
        self.completion_times.push_back(turn.done_at);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_in_order_up_to_the_capacity() {
        let mut queue = CommandQueue::new(2, Duration::from_nanos(10));
        let turn = |waits, done| Some(QueueSlot { is_queued: waits, done_at: Time(done) });
        assert_eq!(queue.enqueue(Time(100)), turn(false, 110));
        assert_eq!(queue.enqueue(Time(101)), turn(true, 120));
        assert_eq!(queue.enqueue(Time(109)), None);
        assert_eq!(queue.enqueue(Time(110)), turn(true, 130));
        assert_eq!(queue.enqueue(Time(500)), turn(false, 510));
    }

    #[test]
    fn instant_commands_never_fill_the_queue() {
        let mut queue = CommandQueue::new(1, Duration::ZERO);
        assert!(
            (0..100)
                .all(|_| queue.enqueue(Time(7)) == Some(QueueSlot { is_queued: false, done_at: Time(7) }))
        );
    }
}
