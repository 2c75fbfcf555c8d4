//! Length of the intervals of a log. The format says: the second column is the length in seconds. Some writers put the end of the
//! interval there, or milliseconds; all starts and ends together show it.

use jiff::Timestamp;

/// A later start in seconds would be in the year 5138: it is in ms. The same for µs and ns.
const UNITS_BY_START: [(f64, f64); 3] = [(1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)];

/// A start from here on is a date, not a time since the begin of the log: it is in 1973.
const MIN_DATE_SECONDS: f64 = 1e8;

/// The date of a start that is one.
pub(super) fn date_of_start(start: f64) -> Option<Timestamp> {
    let seconds = start * unit_of_start(start);
    let is_date = (MIN_DATE_SECONDS..MAX_DATE_SECONDS).contains(&seconds);
    is_date.then(|| Timestamp::from_millisecond((seconds * 1e3) as i64).ok()).flatten()
}

/// The unit of the starts, in seconds.
fn unit_of_start(start: f64) -> f64 {
    UNITS_BY_START.iter().find(|(limit, _)| start > *limit).map_or(1.0, |(_, unit)| *unit)
}

/// Units that the lengths may have, the documented one first.
const LENGTH_UNITS: [f64; 4] = [1.0, 1e-3, 1e-6, 1e-9];

/// A start from here on is no date: it is in 2100.
const MAX_DATE_SECONDS: f64 = 4.1e9;

/// Share of the time that consecutive intervals cover: they leave small spaces and overlap a little.
const LENGTH_SHARES: std::ops::RangeInclusive<f64> = 0.5..=1.2;

/// A hundred years; no real log is longer.
const MAX_SECONDS: f64 = 3.2e9;

/// Starts and second columns of consecutive intervals, in the numbers of the file.
#[derive(Debug, Default)]
pub(super) struct LogDuration {
    count: u64,
    first_start: f64,
    last_start: f64,
    last_second: f64,
    /// Sum of the second column, and of its distances to the start.
    sum: f64,
    distances: f64,
    /// Whether some second number is not after its start, so that it is not an end.
    has_short: bool,
}

impl LogDuration {
    pub fn add(&mut self, start: f64, second: f64) {
        if self.count == 0 {
            self.first_start = start;
        }
        self.count += 1;
        (self.last_start, self.last_second) = (start, second);
        self.sum += second;
        self.distances += second - start;
        self.has_short |= second <= start;
    }

    /// The duration of all intervals; `None` if the two columns contradict each other.
    pub(super) fn total_ns(&self) -> Option<u64> {
        let unit = unit_of_start(self.first_start);
        let seconds =
            if self.has_ends(unit) { self.distances * unit } else { self.sum * self.length_unit(unit)? };
        (0.0..MAX_SECONDS).contains(&seconds).then_some((seconds * 1e9).round() as u64)
    }

    /// Whether the second column holds the ends.
    fn has_ends(&self, unit: f64) -> bool {
        let span = self.last_start - self.first_start;
        let before_last = self.distances - (self.last_second - self.last_start);
        !self.has_short
            && if self.count == 1 {
                self.first_start * unit >= MIN_DATE_SECONDS
            } else {
                before_last <= LENGTH_SHARES.end() * span
            }
    }

    /// The unit of the lengths, in seconds: that in which they fill the time between the starts. With large spaces it is the
    /// documented one.
    fn length_unit(&self, unit: f64) -> Option<f64> {
        let span = (self.last_start - self.first_start) * unit;
        let lengths = self.sum - self.last_second;
        if self.count == 1 {
            return (self.sum < MIN_DATE_SECONDS).then_some(1.0);
        }
        let fills = |of: &&f64| LENGTH_SHARES.contains(&(lengths * **of / span));
        let is_within = lengths <= LENGTH_SHARES.end() * span;
        LENGTH_UNITS.iter().find(fills).copied().or(is_within.then_some(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(rows: &[(f64, f64)]) -> Option<f64> {
        let mut times = LogDuration::default();
        rows.iter().for_each(|(start, second)| times.add(*start, *second));
        times.total_ns().map(|ns| ns as f64 / 1e9)
    }

    #[test]
    fn the_second_column_is_a_length_or_an_end_in_any_unit() {
        const DATE: f64 = 1_502_012_685.0;
        for (rows, seconds) in [
            // Lengths as the format says, from the begin of the log or with dates.
            (&[(0.127, 1.007)][..], 1.007),
            (&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)], 3.0),
            (&[(DATE, 1.0), (DATE + 1.0, 1.0)], 2.0),
            // Lengths of intervals that do not follow each other at once.
            (&[(0.0, 1.0), (10.0, 1.0), (20.0, 1.0)], 3.0),
            // Ends, in seconds, ms and ns.
            (&[(DATE, DATE + 1.0)], 1.0),
            (&[(DATE, DATE + 1.0), (DATE + 1.0, DATE + 2.0)], 2.0),
            (&[(0.0, 5.0), (5.0, 10.0), (10.0, 15.0)], 15.0),
            (&[(1e3 * DATE, 1e3 * DATE + 1001.0), (1e3 * DATE + 1001.0, 1e3 * DATE + 2000.0)], 2.0),
            (&[(1e9 * DATE, 1e9 * DATE + 4e9)], 4.0),
            // Lengths in ms, beside starts in s and in ms.
            (&[(0.0, 1000.0), (1.0, 1000.0), (2.0, 1000.0)], 3.0),
            (&[(1e3 * DATE, 1000.0), (1e3 * DATE + 1000.0, 1000.0)], 2.0),
            (&[(1e3 * DATE, 1.0), (1e3 * DATE + 1000.0, 1.0)], 2.0),
        ] {
            assert_eq!(total(rows), Some(seconds), "{rows:?}");
        }
    }

    #[test]
    fn contradicting_columns_have_no_duration() {
        assert_eq!(total(&[(0.0, 77.0), (1.0, 81.0), (2.0, 79.0)]), None);
        assert_eq!(total(&[(5.0, 1e12)]), None);
        assert_eq!(total(&[(1.0, 300.0), (1.0, 300.0)]), None);
    }
}
