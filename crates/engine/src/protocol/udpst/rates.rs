//! The table of sending rates, and the search in it for the server.

use std::time::Duration;

use super::wire::{Activation, RANDOM_SIZE, ROW_IS_START, Row, SEARCH, StatusMessage, UNKNOWN_DELAY};
use crate::workload::capacity::{Algorithm, RateSearch, SearchSettings};

/// The highest row.
pub(super) const MAX_ROW: u32 = 1152;

/// The row of 1 Gbit/s. Rows up to it have their number of Mbit/s at the IP layer.
const GIGABIT_ROW: u32 = 1000;

/// Bytes of the headers of IPv4 and UDP.
const HEADER_BYTES: u32 = 28;

/// Microseconds between the bursts of the transmitters.
const BURST_INTERVALS: [u32; 2] = [100, 1000];

/// Microseconds between the datagrams of the slowest row.
const SLOWEST_INTERVAL: u32 = 50_000;

/// Maximum datagrams of a burst.
pub(super) const MAX_BURST: u32 = 100;

/// Row that the search may begin with: the sender may be forged, and 10 Mbit/s do little harm.
const MAX_FIRST_ROW: u32 = 10;

/// Sizes of the datagrams of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateTable {
    /// Packets of 1500 bytes instead of 1250.
    pub(super) is_traditional: bool,
    /// Larger datagrams above 1 Gbit/s.
    pub(super) is_jumbo: bool,
}

/// Bytes of packets at the IP layer.
const USUAL_PACKET: u32 = 1250;
const TRADITIONAL_PACKET: u32 = 1500;
const JUMBO_PACKET: u32 = 9000;
/// Packets grow by this number of bytes from row to row.
const JUMBO_STEP: u32 = 125;

impl RateTable {
    /// Bytes of a packet up to 1 Gbit/s.
    fn packet(self) -> u32 {
        if self.is_traditional { TRADITIONAL_PACKET } else { USUAL_PACKET }
    }

    /// Maximum bytes of a datagram up to this row.
    pub(super) fn max_payload(self, max_row: u32) -> u32 {
        let is_large = self.is_jumbo && max_row > GIGABIT_ROW;
        (if is_large { JUMBO_PACKET } else { self.packet() }) - HEADER_BYTES
    }

    /// Row with this index.
    pub(super) fn row(self, index: u32) -> Row {
        let payload = self.packet() - HEADER_BYTES;
        let [fast, slow] = BURST_INTERVALS;
        if index == 0 {
            return Row { intervals: [0, SLOWEST_INTERVAL], addon: payload | RANDOM_SIZE, ..Row::default() };
        }
        if index > GIGABIT_ROW {
            return self.row_above_a_gigabit(index.min(MAX_ROW) - GIGABIT_ROW);
        }
        // Add-ons of 125 bytes at the IP layer fill a packet.
        let parts = self.packet() / JUMBO_STEP;
        let (bursts, rest) = (index / (10 * parts), index % (10 * parts));
        let (datagrams, addon) = (rest / parts, rest % parts);
        let if_any = |count: u32, value: u32| if count > 0 { value } else { 0 };
        Row {
            intervals: [if_any(bursts, fast), if_any(rest, slow)],
            payloads: [if_any(bursts, payload), if_any(datagrams, payload)],
            bursts: [bursts, datagrams],
            addon: if_any(addon, (addon * JUMBO_STEP).saturating_sub(HEADER_BYTES)),
        }
    }

    /// The row this far above that of 1 Gbit/s: larger datagrams as far as they are allowed, then longer bursts.
    fn row_above_a_gigabit(self, above: u32) -> Row {
        let growing = (JUMBO_PACKET - TRADITIONAL_PACKET) / JUMBO_STEP;
        let (packet, burst) = match self.is_jumbo {
            true if above <= growing => (TRADITIONAL_PACKET + above * JUMBO_STEP, 10),
            true => (JUMBO_PACKET, 10 + above - growing),
            false if self.is_traditional => (TRADITIONAL_PACKET, 8 + above),
            false => (USUAL_PACKET, 10 + above),
        };
        Row {
            intervals: [BURST_INTERVALS[0], 0],
            payloads: [packet - HEADER_BYTES, 0],
            bursts: [burst.min(MAX_BURST), 0],
            addon: 0,
        }
    }
}

/// The search of a server: the row follows the reports of the receiver.
#[derive(Debug, Clone)]
pub(super) struct RowSearch {
    table: RateTable,
    search: RateSearch,
    max_row: u32,
    /// Row that is reached in doubling steps, before the search or instead of it.
    target: Option<u32>,
    is_fixed: bool,
    is_one_way: bool,
    ignores_reordered: bool,
}

impl RowSearch {
    /// Search with the parameters of an activation, which are within their ranges.
    pub(super) fn new(asked: &Activation, table: RateTable, max_row: u32) -> RowSearch {
        let ms = |ms: u16| Duration::from_millis(ms.into());
        let target = Some(u32::from(asked.index).min(max_row)).filter(|_| asked.index != SEARCH);
        let settings = SearchSettings {
            algorithm: if asked.algorithm == 1 { Algorithm::C } else { Algorithm::B },
            low_delay: ms(asked.low_delay),
            high_delay: ms(asked.high_delay),
            max_missing: asked.max_missing.into(),
            fast_step: asked.fast_step.into(),
            slow_after: asked.slow_after.into(),
            max_row,
        };
        let mut search = RateSearch::new(settings);
        search.set_row(target.unwrap_or(0).min(MAX_FIRST_ROW));
        RowSearch {
            table,
            search,
            max_row,
            target,
            is_fixed: asked.modifier & ROW_IS_START == 0,
            is_one_way: asked.is_one_way != 0,
            ignores_reordered: asked.ignores_reordered != 0,
        }
    }

    /// Current row.
    pub(super) fn row(&self) -> Row {
        self.table.row(self.search.row())
    }

    /// Ends a trial interval. A sender that is too slow for its row does not get a higher one.
    pub(super) fn end_interval(&mut self, reported: &StatusMessage, is_too_slow: bool) {
        let row = self.search.row();
        if let Some(target) = self.target {
            self.search.set_row((2 * row).max(1).min(target).min(self.max_row));
            self.target = self.target.filter(|target| self.is_fixed || self.search.row() < *target);
            return;
        }
        let tally = &reported.tally;
        let mut errors = u64::from(tally.lost);
        if !self.ignores_reordered {
            errors += u64::from(tally.reordered) + u64::from(tally.duplicate);
        }
        let delay_ms = match self.is_one_way {
            true => (tally.delay_sum.saturating_add(tally.delay_count / 2)).checked_div(tally.delay_count),
            false => Some(reported.round_trip_variation).filter(|variation| *variation != UNKNOWN_DELAY),
        };
        self.search.end_interval(errors, delay_ms.map(|ms| Duration::from_millis(ms.into())));
        if is_too_slow && self.search.row() > row {
            self.search.set_row(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: RateTable = RateTable { is_traditional: false, is_jumbo: true };

    /// Rate of a row at the IP layer in Mbit/s.
    fn rate(row: Row) -> f64 {
        let bytes = |index: usize| {
            let count = f64::from(row.bursts[index]) * f64::from(row.payloads[index] + HEADER_BYTES);
            let addon = if index == 1 && row.addon > 0 { f64::from(row.addon + HEADER_BYTES) } else { 0.0 };
            if row.intervals[index] == 0 { 0.0 } else { (count + addon) / f64::from(row.intervals[index]) }
        };
        8.0 * (bytes(0) + bytes(1))
    }

    #[test]
    fn rows_have_their_rate() {
        for is_traditional in [false, true] {
            let table = RateTable { is_traditional, is_jumbo: true };
            for index in 1..=GIGABIT_ROW {
                assert!((rate(table.row(index)) - f64::from(index)).abs() < 1e-9, "{index}");
            }
            let rising: Vec<f64> = (GIGABIT_ROW..=MAX_ROW).map(|index| rate(table.row(index))).collect();
            assert!(rising.is_sorted(), "{rising:?}");
            assert_eq!(rate(table.row(MAX_ROW)), 72_000.0);
        }
    }

    #[test]
    fn rows_are_those_of_the_original() {
        let row = |index| USUAL.row(index).numbers();
        assert_eq!(row(0), [0, 0, 0, 50_000, 0, 0, 1222 | RANDOM_SIZE]);
        assert_eq!(row(1), [0, 0, 0, 1000, 0, 0, 97]);
        assert_eq!(row(10), [0, 0, 0, 1000, 1222, 1, 0]);
        assert_eq!(row(100), [100, 1222, 1, 0, 0, 0, 0]);
        assert_eq!(row(1001), [100, 1597, 10, 0, 0, 0, 0]);
        let small = RateTable { is_jumbo: false, ..USUAL };
        assert_eq!(small.row(1001).numbers(), [100, 1222, 11, 0, 0, 0, 0]);
    }
}
