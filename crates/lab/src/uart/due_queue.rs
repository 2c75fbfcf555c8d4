//! The next delivery of each of many ends, the earliest first: the work of a delivery does not grow with their number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::wire::NextDelivery;
use linkgauge_model::clock::Time;

/// Delivery of an end of which nothing is due.
pub(crate) const NOTHING_DUE: NextDelivery = NextDelivery { at: Time::NEVER, ends_run: false };

/// The due times of all ends.
pub(crate) struct DueQueue {
    due: Vec<NextDelivery>,
    /// The time of the valid entry of each end; its other entries are void.
    queued_at: Vec<Time>,
    entries: BinaryHeap<Reverse<(Time, usize)>>,
}

impl DueQueue {
    /// Creates the queue for this number of ends, of which nothing is due.
    pub fn new(ends: usize) -> DueQueue {
        DueQueue {
            due: vec![NOTHING_DUE; ends],
            queued_at: vec![Time::NEVER; ends],
            entries: BinaryHeap::with_capacity(2 * ends),
        }
    }

    /// The next delivery of an end.
    pub(crate) fn next_of(&self, end: usize) -> NextDelivery {
        self.due[end]
    }

    /// Sets the next delivery of an end.
    pub(crate) fn set(&mut self, end: usize, due: NextDelivery) {
        self.due[end] = due;
        if self.queued_at[end] != due.at {
            self.queued_at[end] = due.at;
            if due.at != Time::NEVER {
                self.entries.push(Reverse((due.at, end)));
            }
        }
    }

    /// The earliest delivery of all ends.
    pub(crate) fn earliest(&mut self) -> NextDelivery {
        while let Some(&Reverse((at, end))) = self.entries.peek() {
            if self.queued_at[end] == at {
                return self.due[end];
            }
            self.entries.pop();
        }
        NOTHING_DUE
    }

    /// Removes the earliest delivery, if it is due by now. Returns its end, which then has to be set again.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<usize> {
        if self.earliest().at > now {
            return None;
        }
        let Reverse((_, end)) = self.entries.pop()?;
        self.queued_at[end] = Time::NEVER;
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at: u64) -> NextDelivery {
        NextDelivery { at: Time(at), ends_run: false }
    }

    #[test]
    fn deliveries_leave_in_the_order_of_their_times() {
        let mut queue = DueQueue::new(4);
        assert_eq!(queue.earliest().at, Time::NEVER);
        assert_eq!(queue.pop_due(Time(u64::MAX - 1)), None);
        for (end, at) in [(0, 30), (1, 10), (2, 20)] {
            queue.set(end, due(at));
        }
        assert_eq!((queue.earliest().at, queue.pop_due(Time(9))), (Time(10), None));
        assert_eq!([(); 3].map(|()| queue.pop_due(Time(20))), [Some(1), Some(2), None]);
        assert_eq!(queue.next_of(0).at, Time(30));
    }

    #[test]
    fn only_the_last_time_of_an_end_counts() {
        let mut queue = DueQueue::new(2);
        queue.set(0, due(10));
        queue.set(0, due(50));
        queue.set(1, due(20));
        queue.set(1, NOTHING_DUE);
        assert_eq!((queue.pop_due(Time(49)), queue.pop_due(Time(50))), (None, Some(0)));
        // The same time again is a delivery of its own.
        queue.set(0, due(50));
        assert_eq!((queue.pop_due(Time(50)), queue.pop_due(Time(50))), (Some(0), None));
    }
}
