//! CoDel (RFC 8289): a queue that drops messages while they all wait too long for the line.
//!
//! The line sends one message after the other, so the time at which a message leaves the queue is known when it enters. The
//! decision is made then, as if it left. For: messages. A stream loses nothing; its sender waits when the queue holds what the
//! line sends in [`TARGET`].

use std::time::Duration;

use linkgauge_model::clock::Time;

/// Longest acceptable wait of all messages.
pub(super) const TARGET: Duration = Duration::from_millis(5);
/// Time for which waits may be too long: a burst.
const INTERVAL: Duration = Duration::from_millis(100);

/// The state of a queue.
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// Time until which messages may still wait too long.
    first_above_until: Option<Time>,
    is_dropping: bool,
    drop_next: Option<Time>,
    /// Messages dropped since dropping began, and when it began the last time.
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the message that leaves the queue at this time, after it has `waited`, is dropped. `is_last`: the queue holds no
    /// more than a packet, which is never dropped.
    pub(super) fn drops(&mut self, leaves: Time, waited: Duration, is_last: bool) -> bool {
        let is_too_long = self.waits_too_long(leaves, waited, is_last);
        if self.is_dropping {
            self.is_dropping = is_too_long;
            if is_too_long && self.drop_next.is_some_and(|next| leaves >= next) {
                self.count += 1;
                self.drop_next = self.drop_next.map(|next| after_drop(next, self.count));
                return true;
            }
            return false;
        }
        if !is_too_long {
            return false;
        }
        self.is_dropping = true;
        // The rate of drops that controlled the queue the last time is a good start.
        let last = self.count.saturating_sub(self.last_count);
        let is_recent = self.drop_next.is_some_and(|next| leaves.since(next) < 16 * INTERVAL);
        self.count = if last > 1 && is_recent { last } else { 1 };
        self.last_count = self.count;
        self.drop_next = Some(after_drop(leaves, self.count));
        true
    }

    fn waits_too_long(&mut self, leaves: Time, waited: Duration, is_last: bool) -> bool {
        if waited < TARGET || is_last {
            self.first_above_until = None;
            return false;
        }
        leaves >= *self.first_above_until.get_or_insert(leaves + INTERVAL)
    }
}

/// The time of the next drop: the more drops, the sooner.
fn after_drop(at: Time, count: u32) -> Time {
    at + INTERVAL.div_f64(f64::from(count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The times in ms at which messages are dropped that leave each ms and have waited for this number of ms.
    fn drops(codel: &mut Codel, times_ms: std::ops::Range<u64>, waited_ms: u64) -> Vec<u64> {
        let waited = Duration::from_millis(waited_ms);
        times_ms.filter(|ms| codel.drops(Time(ms * MS), waited, false)).collect()
    }

    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut codel = Codel::default();
        assert_eq!(drops(&mut codel, 1000..1100, 50), [0u64; 0], "one interval");
        assert_eq!(drops(&mut codel, 1100..1101, 4), [0u64; 0]);
        // 100 ms after the first one, then after 100, 100/√2, 100/√3 … ms.
        assert_eq!(drops(&mut codel, 2000..2400, 50), [2100, 2200, 2271, 2329, 2379]);
        assert_eq!(drops(&mut codel, 2400..2401, 4), [0u64; 0]);
        // Soon afterwards it goes on where it was.
        assert_eq!(drops(&mut codel, 2500..2700, 50), [2600, 2650, 2695]);
    }

    #[test]
    fn the_last_message_is_never_dropped() {
        let mut codel = Codel::default();
        let dropped = (0..1000).any(|ms| codel.drops(Time(ms * MS), Duration::from_secs(1), true));
        assert!(!dropped);
    }
}
