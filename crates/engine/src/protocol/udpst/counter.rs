//! Counts of a receiver, without I/O: losses by gaps in the numbers, delays above the shortest one, round trips.

use super::wire::{SplitTime, StatusMessage, Tally, UNKNOWN_DELAY, UdpstLoad};

/// Numbers before the newest one of which is known whether they have arrived.
const WINDOW: u32 = 32;

/// Counts of a whole test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TestTotals {
    pub(super) lost: u64,
    pub(super) reordered: u64,
    pub(super) duplicate: u64,
}

/// Position of a number.
enum NumberPosition {
    /// The newest one, after this number of missing ones.
    New(u32),
    Late,
    Again,
}

/// Counter of received loads.
#[derive(Debug)]
pub(super) struct LoadCounter {
    newest: u32,
    /// Numbers that have arrived: bit 0 is the newest.
    window: u64,
    totals: TestTotals,
    trial: Tally,
    sub: Tally,
    /// Shortest difference of the clocks, in ms.
    clock_delta_min: Option<i32>,
    /// Time of the last status of which a round trip is known.
    status_time: SplitTime,
    round_trip_min: u32,
    /// Variation of the last round trip, in this trial interval.
    variation: u32,
    /// Shortest and longest variation of the sub-interval.
    sub_variations: [u32; 2],
    has_new_minimum: bool,
}

/// Variations of a sub-interval without round trips.
const NO_VARIATIONS: [u32; 2] = [UNKNOWN_DELAY, 0];

impl Default for LoadCounter {
    fn default() -> LoadCounter {
        LoadCounter {
            newest: 0,
            window: 0,
            totals: TestTotals::default(),
            trial: Tally::default(),
            sub: Tally::default(),
            clock_delta_min: None,
            status_time: SplitTime::default(),
            round_trip_min: UNKNOWN_DELAY,
            variation: UNKNOWN_DELAY,
            sub_variations: NO_VARIATIONS,
            has_new_minimum: false,
        }
    }
}

impl LoadCounter {
    /// Counts of the whole test.
    pub(super) fn totals(&self) -> TestTotals {
        self.totals
    }

    /// Counts a datagram that arrives at this time of day.
    pub(super) fn add(&mut self, header: &UdpstLoad, bytes: usize, now: SplitTime) {
        for tally in [&mut self.trial, &mut self.sub] {
            tally.datagrams = tally.datagrams.saturating_add(1);
            tally.bytes += bytes as u64;
        }
        match self.arrival(header.number) {
            NumberPosition::New(missing) => {
                self.totals.lost += u64::from(missing);
                for tally in [&mut self.trial, &mut self.sub] {
                    tally.lost = tally.lost.saturating_add(missing);
                }
                self.add_delay(header, now);
                self.add_round_trip(header, now);
            }
            NumberPosition::Late => {
                self.totals.lost = self.totals.lost.saturating_sub(1);
                self.totals.reordered += 1;
                for tally in [&mut self.trial, &mut self.sub] {
                    tally.lost = tally.lost.saturating_sub(1);
                    tally.reordered = tally.reordered.saturating_add(1);
                }
            }
            NumberPosition::Again => {
                self.totals.duplicate += 1;
                for tally in [&mut self.trial, &mut self.sub] {
                    tally.duplicate = tally.duplicate.saturating_add(1);
                }
            }
        }
    }

    fn arrival(&mut self, number: u32) -> NumberPosition {
        if number > self.newest {
            let missing = number - self.newest - 1;
            self.window = self.window.checked_shl(number - self.newest).unwrap_or(0) | 1;
            self.newest = number;
            return NumberPosition::New(missing);
        }
        let age = self.newest - number;
        let bit = 1_u64.checked_shl(age).filter(|_| age < WINDOW).unwrap_or(0);
        let is_known = self.window & bit != 0;
        self.window |= bit;
        if is_known { NumberPosition::Again } else { NumberPosition::Late }
    }

    /// Adds the delay of a datagram; the first one only shows the difference of the clocks.
    fn add_delay(&mut self, header: &UdpstLoad, now: SplitTime) {
        let delta = now.ms_since(header.time);
        let Some(least) = self.clock_delta_min.replace(delta) else {
            self.has_new_minimum = true;
            return;
        };
        self.has_new_minimum |= delta < least;
        let least = delta.min(least);
        self.clock_delta_min = Some(least);
        let variation = delta.saturating_sub(least).max(0) as u32;
        for tally in [&mut self.trial, &mut self.sub] {
            tally.delay_min = tally.delay_min.min(variation);
            tally.delay_max = tally.delay_max.max(variation);
            tally.delay_sum = tally.delay_sum.saturating_add(variation);
            tally.delay_count = tally.delay_count.saturating_add(1);
        }
    }

    /// Adds the round trip from a status to the first datagram after it.
    fn add_round_trip(&mut self, header: &UdpstLoad, now: SplitTime) {
        if header.status_time == self.status_time {
            return;
        }
        self.status_time = header.status_time;
        let round_trip = now.ms_since(header.status_time).max(0) as u32;
        let waited = u32::from(header.status_age);
        // Rounded times may differ by one; more is no time of this round trip.
        let round_trip = match waited {
            _ if waited <= round_trip => round_trip - waited,
            _ if waited == round_trip + 1 => 0,
            _ => round_trip,
        };
        self.has_new_minimum |= round_trip < self.round_trip_min;
        self.round_trip_min = self.round_trip_min.min(round_trip);
        self.variation = round_trip - self.round_trip_min;
        let [least, most] = self.sub_variations;
        self.sub_variations = [least.min(self.variation), most.max(self.variation)];
    }

    /// Ends a sub-interval: its counts, and the variations of its round trips.
    pub(super) fn end_sub_interval(&mut self) -> (Tally, [u32; 2]) {
        (std::mem::take(&mut self.sub), std::mem::replace(&mut self.sub_variations, NO_VARIATIONS))
    }

    /// Ends a trial interval, and writes its counts into a status.
    pub(super) fn end_trial_interval(&mut self, status: &mut StatusMessage) {
        status.tally = std::mem::take(&mut self.trial);
        status.clock_delta_min = self.clock_delta_min.unwrap_or(0);
        status.round_trip_min = self.round_trip_min;
        status.round_trip_variation = std::mem::replace(&mut self.variation, UNKNOWN_DELAY);
        status.has_new_minimum = std::mem::take(&mut self.has_new_minimum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u32) -> SplitTime {
        SplitTime { seconds: 1000 + ms / 1000, nanoseconds: ms % 1000 * 1_000_000 }
    }

    fn load(number: u32, sent_ms: u32) -> UdpstLoad {
        UdpstLoad { number, time: at(sent_ms), ..UdpstLoad::default() }
    }

    fn ended(counter: &mut LoadCounter) -> StatusMessage {
        let mut status = StatusMessage::default();
        counter.end_trial_interval(&mut status);
        status
    }

    #[test]
    fn losses_copies_and_late_datagrams_are_separated() {
        let mut counter = LoadCounter::default();
        for number in [1, 2, 5, 4, 5, 9, 100] {
            counter.add(&load(number, 0), 100, at(1));
        }
        let status = ended(&mut counter);
        let Tally { datagrams, bytes, lost, reordered, duplicate, .. } = status.tally;
        assert_eq!((datagrams, bytes, reordered, duplicate), (7, 700, 1, 1));
        assert_eq!(lost, 2 - 1 + 3 + 90);
        assert_eq!(counter.totals(), TestTotals { lost: 94, reordered: 1, duplicate: 1 });
        // Older than the window: a copy counts as late.
        counter.add(&load(1, 0), 100, at(1));
        assert_eq!(ended(&mut counter).tally.reordered, 1);
        counter.add(&load(u32::MAX, 0), 100, at(1));
        assert_eq!(ended(&mut counter).tally.lost, u32::MAX - 101);
    }

    #[test]
    fn delays_are_those_above_the_shortest() {
        let mut counter = LoadCounter::default();
        for (number, sent, received) in [(1, 0, 10), (2, 10, 30), (3, 20, 25), (4, 30, 42)] {
            counter.add(&load(number, sent), 100, at(received));
        }
        let status = ended(&mut counter);
        let Tally { delay_min, delay_max, delay_sum, delay_count, .. } = status.tally;
        assert_eq!((delay_min, delay_max, delay_sum, delay_count), (0, 10, 10 + 7, 3));
        assert_eq!((status.clock_delta_min, status.has_new_minimum), (5, true));
        assert_eq!(ended(&mut counter).tally.delay_min, UNKNOWN_DELAY);
    }

    #[test]
    fn a_round_trip_is_that_of_the_first_load_after_a_status() {
        let mut counter = LoadCounter::default();
        let mut number = 0;
        let mut variation = |status_ms, age, received| {
            number += 1;
            let header = UdpstLoad { status_time: at(status_ms), status_age: age, ..load(number, 0) };
            counter.add(&header, 100, at(received));
            let status = ended(&mut counter);
            (status.round_trip_min, status.round_trip_variation)
        };
        assert_eq!(variation(100, 5, 125), (20, 0));
        assert_eq!(variation(100, 9, 150), (20, UNKNOWN_DELAY));
        assert_eq!(variation(150, 0, 200), (20, 30));
        // Rounding, and an age that cannot be.
        assert_eq!(variation(250, 11, 260), (0, 0));
        assert_eq!(variation(300, 500, 310), (0, 10));
    }
}
