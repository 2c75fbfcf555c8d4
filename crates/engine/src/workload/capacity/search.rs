//! The search of RFC 9097, algorithms B and C, without I/O: the sending rate follows what the receiver reports every trial
//! interval.
//!
//! The rate is a row of a table in which row n, up to 1000, has n Mbit/s at the IP layer. Up to 1 Gbit/s the search begins with
//! fast steps; after some bad intervals in a row it continues in single steps. A fast step of B has a fixed size. One of C
//! doubles the row, every second interval; C also returns to fast steps after some single ones.

use std::time::Duration;

/// Time between reports of the receiver.
pub(crate) const TRIAL_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of the headers of IPv4 and UDP, which the rates include.
pub(crate) const HEADER_BYTES: u64 = 28;

/// The row up to which the search takes fast steps.
const HIGH_SPEED_ROW: u32 = 1000;

/// Fast steps by which the search falls back once it is slow.
const FALL_BACK_STEPS: u32 = 3;

/// Single steps after which algorithm C takes fast ones again; as many more are needed the next time.
const RETRY_AFTER: u32 = 5;

/// The highest row: 10 Gbit/s.
const MAX_ROW: u32 = 10_000;

/// Way in which the fast steps grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    B,
    C,
}

/// Parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SearchSettings {
    pub(crate) algorithm: Algorithm,
    /// Delay variation below which an interval is good, and above which it is bad.
    pub(crate) low_delay: Duration,
    pub(crate) high_delay: Duration,
    /// Maximum number of missing datagrams of an interval that is not bad.
    pub(crate) max_missing: u64,
    /// Rows of a fast step of algorithm B.
    pub(crate) fast_step: u32,
    /// Number of bad intervals in a row after which the search is slow.
    pub(crate) slow_after: u32,
    pub(crate) max_row: u32,
}

impl Default for SearchSettings {
    fn default() -> SearchSettings {
        SearchSettings {
            algorithm: Algorithm::B,
            low_delay: Duration::from_millis(30),
            high_delay: Duration::from_millis(90),
            max_missing: 10,
            fast_step: 10,
            slow_after: 3,
            max_row: MAX_ROW,
        }
    }
}

/// Sending rate of the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RateSearch {
    settings: SearchSettings,
    row: u32,
    bad_intervals: u32,
    /// Algorithm C: the next good interval doubles the row.
    is_doubling_due: bool,
    /// Algorithm C: single steps since the search is slow, and the number that ends that, less the first one.
    slow_steps: u32,
    more_slow_steps: u32,
}

impl RateSearch {
    /// A search from the slowest row.
    pub(crate) fn new(settings: SearchSettings) -> RateSearch {
        RateSearch { settings, ..RateSearch::default() }
    }

    /// Ends a trial interval in which this many datagrams were missing, with this delay above the shortest one. `None`: unknown.
    pub fn end_interval(&mut self, missing: u64, delay: Option<Duration>) {
        let SearchSettings { low_delay, high_delay, max_missing, slow_after, .. } = self.settings;
        let is_fast = |search: &RateSearch| search.row < HIGH_SPEED_ROW && search.bad_intervals < slow_after;
        if missing <= max_missing && delay.is_some_and(|delay| delay < low_delay) {
            if is_fast(self) {
                self.step_fast();
                self.bad_intervals = 0;
            } else if self.row < self.settings.max_row {
                self.row += 1;
                if self.count_slow_step() {
                    self.more_slow_steps += RETRY_AFTER;
                }
            }
        } else if missing > max_missing || delay.is_some_and(|delay| delay > high_delay) {
            self.bad_intervals = self.bad_intervals.saturating_add(1);
            if self.row < HIGH_SPEED_ROW && self.bad_intervals == slow_after {
                self.row = self.row.saturating_sub(FALL_BACK_STEPS * self.settings.fast_step);
            } else if self.row > 0 {
                self.row -= 1;
                self.count_slow_step();
            }
        }
        self.row = self.row.min(self.settings.max_row);
    }

    fn step_fast(&mut self) {
        let next = match self.settings.algorithm {
            Algorithm::B => self.row + self.settings.fast_step,
            Algorithm::C if 2 * self.row > HIGH_SPEED_ROW => HIGH_SPEED_ROW,
            Algorithm::C => {
                self.is_doubling_due = !self.is_doubling_due;
                let row = self.row.max(1);
                // The first interval of two only leaves the slowest row.
                if self.is_doubling_due { row } else { 2 * row }
            }
        };
        self.row = next.min(HIGH_SPEED_ROW);
    }

    /// Counts a single step of algorithm C. Returns whether fast steps follow again.
    fn count_slow_step(&mut self) -> bool {
        if self.settings.algorithm == Algorithm::B {
            return false;
        }
        self.slow_steps += 1;
        let is_over = self.slow_steps >= RETRY_AFTER + self.more_slow_steps;
        if is_over {
            (self.bad_intervals, self.slow_steps) = (0, 0);
        }
        is_over
    }

    /// Current row of the table.
    pub(crate) fn row(&self) -> u32 {
        self.row
    }

    /// Continues from this row.
    pub(crate) fn set_row(&mut self, row: u32) {
        self.row = row.min(self.settings.max_row);
    }

    /// Number of datagrams per second with this payload; one per trial interval in row 0.
    pub(crate) fn datagrams_per_second(&self, payload_bytes: u32) -> f64 {
        let bits = (u64::from(payload_bytes) + HEADER_BYTES) as f64 * 8.0;
        (f64::from(self.row) * 1e6 / bits).max(1.0 / TRIAL_INTERVAL.as_secs_f64())
    }
}

/// Rate in bits per second at the IP layer.
pub(crate) fn ip_rate_bps(datagrams: u64, payload_bytes: u64, time: Duration) -> f64 {
    (payload_bytes + datagrams * HEADER_BYTES) as f64 * 8.0 / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rows(intervals: &[(u64, u32)]) -> Vec<u32> {
        let mut search = RateSearch::default();
        let mut after = |&(missing, delay_ms): &(u64, u32)| {
            search.end_interval(missing, Some(MS * delay_ms));
            search.row()
        };
        intervals.iter().map(&mut after).collect()
    }

    #[test]
    fn the_search_rises_fast_then_falls_back_then_takes_single_steps() {
        let good = (0, 5);
        assert_eq!(rows(&[good, good, (10, 29), good]), [10, 20, 30, 40]);
        // Between the limits the rate stays.
        assert_eq!(rows(&[good, (0, 30), (0, 90)]), [10, 10, 10]);
        let course = [good, good, good, good, (11, 0), (0, 91), (500, 500), good, (0, 91), good];
        assert_eq!(rows(&course), [10, 20, 30, 40, 39, 38, 8, 9, 8, 9]);
        // A good interval before the third bad one starts the count again.
        assert_eq!(rows(&[good, (11, 0), (11, 0), good, (11, 0), (11, 0), good]), [10, 9, 8, 18, 17, 16, 26]);
    }

    #[test]
    fn the_fast_steps_end_at_one_gigabit_per_second() {
        let mut search = RateSearch::default();
        (0..100).for_each(|_| search.end_interval(0, Some(Duration::ZERO)));
        assert_eq!(search.row(), 1000);
        search.end_interval(0, Some(Duration::ZERO));
        assert_eq!(search.row(), 1001);
        search.end_interval(11, Some(Duration::ZERO));
        assert_eq!(search.row(), 1000);
        (0..20_000).for_each(|_| search.end_interval(0, Some(Duration::ZERO)));
        assert_eq!(search.row(), MAX_ROW);
        (0..20_000).for_each(|_| search.end_interval(11, Some(Duration::ZERO)));
        assert_eq!(search.row(), 0);
    }

    #[test]
    fn an_unknown_delay_changes_nothing_and_losses_do() {
        let mut search = RateSearch::default();
        search.set_row(50);
        search.end_interval(0, None);
        assert_eq!(search.row(), 50);
        search.end_interval(11, None);
        assert_eq!(search.row(), 49);
    }

    #[test]
    fn algorithm_c_doubles_every_second_interval_and_becomes_fast_again() {
        let mut search = RateSearch::new(SearchSettings { algorithm: Algorithm::C, ..Default::default() });
        let mut after = |missing| {
            search.end_interval(missing, Some(Duration::ZERO));
            search.row()
        };
        let rising: Vec<u32> = (0..8).map(|_| after(0)).collect();
        assert_eq!(rising, [1, 2, 2, 4, 4, 8, 8, 16]);
        // Two bad intervals are two single steps; the third one falls back.
        assert_eq!([after(11), after(11), after(11)], [15, 14, 0]);
        // Three more single steps: five in all end the slow phase.
        assert_eq!([after(0), after(0), after(0), after(0), after(0)], [1, 2, 3, 3, 6]);
        // The next slow phase takes ten.
        let bad: Vec<u32> = (0..3).map(|_| after(11)).collect();
        assert_eq!(bad, [5, 4, 0]);
        let slow: Vec<u32> = (0..8).map(|_| after(0)).collect();
        assert_eq!(slow, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!([after(0), after(0)], [8, 16]);
    }

    #[test]
    fn rates_are_those_of_ip() {
        let mut search = RateSearch::default();
        assert_eq!(search.datagrams_per_second(1222), 20.0);
        search.end_interval(0, Some(Duration::ZERO));
        assert_eq!(search.datagrams_per_second(1222), 1000.0, "10 Mbit/s in 1250 bytes");
        // As captured from OB-UDPST 9.0.0.
        let captured = ip_rate_bps(898, 1_097_356, Duration::from_micros(1_002_981));
        assert_eq!((captured / 1e3).round(), 8_953.0);
    }
}
