//! Decides when the next block can go to the line of a port in a slow box. Is given the time; does not wait.

use std::time::Duration;

use super::processor::TransferCosts;
use linkgauge_model::clock::Time;

/// The line of a port, as its feeder sees it: a block on the line, and one that waits behind it.
#[derive(Debug)]
pub(crate) struct LineFeed {
    /// Nanoseconds of a character.
    character_ns: f64,
    /// Rest of the line after each full block.
    pause: Option<Duration>,
    block_characters: usize,
    /// The line has sent everything then.
    free_at: Time,
    ready_at: Time,
}

impl LineFeed {
    /// An idle line of this rate, in bits per second, with this number of bits per character.
    pub fn new(costs: &TransferCosts, line_bps: f64, bits_per_character: f64) -> LineFeed {
        let pauses = !costs.drain_pause.is_zero() && line_bps >= costs.drain_from_bps;
        LineFeed {
            character_ns: bits_per_character * 1e9 / line_bps,
            pause: pauses.then_some(costs.drain_pause),
            block_characters: costs.block_bytes,
            free_at: Time(0),
            ready_at: Time(0),
        }
    }

    /// Time of these characters on the line.
    pub(crate) fn line_time(&self, characters: usize) -> Duration {
        Duration::from_nanos((characters as f64 * self.character_ns).round() as u64)
    }

    /// The time from which on the next block can move.
    pub(crate) fn ready_at(&self) -> Time {
        self.ready_at
    }

    /// A block moves to the port now; the next one takes the processor `next_cost`. Returns the time at which the block
    /// begins on the line.
    pub(crate) fn place(&mut self, characters: usize, next_cost: Duration, now: Time) -> Time {
        let start = self.free_at.max(now);
        self.free_at = start + self.line_time(characters);
        self.ready_at = match self.pause.filter(|_| characters >= self.block_characters) {
            // The next block arrives no earlier than the pause after the last character.
            Some(pause) => {
                Time((self.free_at + pause).0.saturating_sub(next_cost.as_nanos() as u64)).max(now)
            }
            None => start,
        };
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_block_waits_while_another_is_on_the_line() {
        let mut feed = LineFeed::new(&TransferCosts::default(), 10_000.0, 10.0);
        assert_eq!((feed.place(100, Duration::ZERO, Time(MS)), feed.ready_at()), (Time(MS), Time(MS)));
        assert_eq!(
            (feed.place(100, Duration::ZERO, Time(2 * MS)), feed.ready_at()),
            (Time(101 * MS), Time(101 * MS))
        );
        // After an idle time the line begins at once.
        assert_eq!(feed.place(1, Duration::ZERO, Time(500 * MS)), Time(500 * MS));
    }

    #[test]
    fn the_line_rests_after_a_block_from_a_rate_on() {
        let pause = Duration::from_millis(50);
        let costs = TransferCosts {
            block_bytes: 100,
            drain_pause: pause,
            drain_from_bps: 9600.0,
            ..TransferCosts::default()
        };
        let mut feed = LineFeed::new(&costs, 10_000.0, 10.0);
        feed.place(100, Duration::from_millis(3), Time(0));
        assert_eq!(feed.ready_at(), Time((100 + 50 - 3) * MS));
        // Not after a part of a block.
        feed.place(1, Duration::from_millis(3), Time(200 * MS));
        assert_eq!(feed.ready_at(), Time(200 * MS));
        let mut slow = LineFeed::new(&costs, 4800.0, 10.0);
        slow.place(100, Duration::from_millis(3), Time(0));
        assert_eq!(slow.ready_at(), Time(0));
    }
}
