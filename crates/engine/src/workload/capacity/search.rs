//! The search of RFC 9097, algorithm B, without I/O: the sending rate follows what the receiver reports every trial interval.
//!
//! The rate is a row of a table in which row n has n Mbit/s at the IP layer. Up to 1 Gbit/s the search begins with steps of 10
//! rows; after three bad intervals in a row it continues in single steps.

use std::time::Duration;

/// Time between reports of the receiver.
pub(crate) const TRIAL_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of the headers of IPv4 and UDP, which the rates include.
pub(crate) const HEADER_BYTES: u64 = 28;

/// Delay variation below which an interval is good, and above which it is bad.
const LOW_DELAY: Duration = Duration::from_millis(30);
const HIGH_DELAY: Duration = Duration::from_millis(90);

/// Maximum number of missing datagrams of an interval that is not bad.
const MAX_MISSING: u64 = 10;

/// The row up to which the search takes fast steps, and the rows of such a step.
const HIGH_SPEED_ROW: u32 = 1000;
const FAST_STEP: u32 = 10;

/// Number of bad intervals in a row after which the search is slow, and the rows that it falls back then.
const SLOW_AFTER: u32 = 3;
const FALL_BACK: u32 = 30;

/// The highest row: 10 Gbit/s.
pub(crate) const MAX_ROW: u32 = 10_000;

/// Sending rate of the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RateSearch {
    row: u32,
    bad_intervals: u32,
}

impl RateSearch {
    /// Ends a trial interval in which this many datagrams were missing, with this delay above the shortest one.
    pub fn end_interval(&mut self, missing: u64, delay: Duration) {
        if missing <= MAX_MISSING && delay < LOW_DELAY {
            if self.row < HIGH_SPEED_ROW && self.bad_intervals < SLOW_AFTER {
                self.row = (self.row + FAST_STEP).min(HIGH_SPEED_ROW);
                self.bad_intervals = 0;
            } else {
                self.row = (self.row + 1).min(MAX_ROW);
            }
        } else if missing > MAX_MISSING || delay > HIGH_DELAY {
            self.bad_intervals += 1;
            let falls_back = self.row < HIGH_SPEED_ROW && self.bad_intervals == SLOW_AFTER;
            self.row = self.row.saturating_sub(if falls_back { FALL_BACK } else { 1 });
        }
    }

    /// Current row of the table.
    pub(crate) fn row(&self) -> u32 {
        self.row
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
            search.end_interval(missing, MS * delay_ms);
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
        (0..100).for_each(|_| search.end_interval(0, Duration::ZERO));
        assert_eq!(search.row(), 1000);
        search.end_interval(0, Duration::ZERO);
        assert_eq!(search.row(), 1001);
        search.end_interval(11, Duration::ZERO);
        assert_eq!(search.row(), 1000);
        (0..20_000).for_each(|_| search.end_interval(0, Duration::ZERO));
        assert_eq!(search.row(), MAX_ROW);
        (0..20_000).for_each(|_| search.end_interval(11, Duration::ZERO));
        assert_eq!(search.row(), 0);
    }

    #[test]
    fn rates_are_those_of_ip() {
        let mut search = RateSearch::default();
        assert_eq!(search.datagrams_per_second(1222), 20.0);
        search.end_interval(0, Duration::ZERO);
        assert_eq!(search.datagrams_per_second(1222), 1000.0, "10 Mbit/s in 1250 bytes");
        // As captured from OB-UDPST 9.0.0.
        let captured = ip_rate_bps(898, 1_097_356, Duration::from_micros(1_002_981));
        assert_eq!((captured / 1e3).round(), 8_953.0);
    }
}
