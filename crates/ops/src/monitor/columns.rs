//! The history of a link as columns of equal length: percentiles, losses, and how the replies are distributed.
//!
//! A column is made of merged windows, so its percentiles are those of all its probes.

use std::collections::VecDeque;

use serde::Serialize;

use linkgauge_model::sample::Window;
use linkgauge_store::{SeriesNumber, Store, StoreError, TIERS, Tier};

/// A p99 of fewer probes would be the slowest one.
const MIN_PROBES_FOR_P99: u64 = 100;

/// Cells of a heat map per decade of time.
const CELLS_PER_DECADE: f64 = 24.0;

/// A time that the page can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    /// The name on the page and in requests.
    pub name: &'static str,
    /// The length in seconds.
    pub seconds: i64,
    /// The length of a column in seconds.
    pub column: i64,
    /// Tier of its windows in the store. `None`: it is in memory only.
    tier: Option<Tier>,
}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The spans, shortest first. None has more than some hundreds of columns.
pub const SPANS: [HistorySpan; 6] = [
    HistorySpan { name: "10min", seconds: 10 * MINUTE, column: 10, tier: None },
    HistorySpan { name: "1h", seconds: HOUR, column: MINUTE, tier: Some(TIERS[0]) },
    HistorySpan { name: "1d", seconds: DAY, column: 4 * MINUTE, tier: Some(TIERS[0]) },
    HistorySpan { name: "2w", seconds: 14 * DAY, column: HOUR, tier: Some(TIERS[1]) },
    HistorySpan { name: "90d", seconds: 90 * DAY, column: 6 * HOUR, tier: Some(TIERS[2]) },
    HistorySpan { name: "1y", seconds: 366 * DAY, column: DAY, tier: Some(TIERS[2]) },
];

impl HistorySpan {
    /// The span of a name.
    pub(crate) fn named(name: &str) -> Option<&'static HistorySpan> {
        SPANS.iter().find(|span| span.name == name)
    }

    /// The start of the column that contains a second.
    fn start(self, second: i64) -> i64 {
        second - second.rem_euclid(self.column)
    }

    /// The start of the first column of the span that ends at a second.
    pub fn first(self, until: i64) -> i64 {
        self.start(until - self.seconds) + self.column
    }
}

/// A stretch of time in which a link was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// Begin, in seconds since 1970.
    pub start: i64,
    /// Length in seconds.
    pub seconds: i64,
    /// Time in ms during which probes were due. The rest is a gap.
    pub measured_ms: u64,
    /// Probes that were due.
    pub due: u64,
    /// Probes without a reply.
    pub lost: u64,
    /// Median in ns over all probes; infinite (`null`) if it is a lost one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile in ns over all probes; infinite (`null`) if it is a lost one. Absent with fewer than 100 probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// The slowest reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// Cells with replies: number of the cell, and number of replies. Cell `n` begins at 10^(n/24) ns.
    pub cells: Vec<(u16, u32)>,
}

impl Column {
    /// The time in ns at which a cell begins.
    pub fn cell_begin_ns(cell: u16) -> f64 {
        10f64.powf(f64::from(cell) / CELLS_PER_DECADE)
    }

    /// The column of a window.
    pub fn new(start: i64, seconds: i64, window: &Window) -> Column {
        let mut cells: Vec<(u16, u32)> = Vec::new();
        for (time, count) in window.bins() {
            let cell = ((time.max(1) as f64).log10() * CELLS_PER_DECADE) as u16;
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            match cells.last_mut() {
                Some((last, sum)) if *last == cell => *sum = sum.saturating_add(count),
                _ => cells.push((cell, count)),
            }
        }
        cells.shrink_to_fit();
        Column {
            start,
            seconds,
            measured_ms: window.counts.measured_ms,
            due: window.counts.due,
            lost: window.counts.lost,
            p50_ns: window.quantile_with_losses_ns(0.5),
            p99_ns: p99_ns(window),
            max_ns: window.quantile_ns(1.0),
            cells,
        }
    }
}

/// The 99th percentile in ns over all probes, where they are enough for one; infinite if it is a lost probe.
pub(crate) fn p99_ns(window: &Window) -> Option<f64> {
    let is_enough = window.replies() + window.counts.lost >= MIN_PROBES_FOR_P99;
    window.quantile_with_losses_ns(0.99).filter(|_| is_enough)
}

/// The latest columns of a link, from its slices.
#[derive(Debug, Clone)]
pub(crate) struct LatestColumns {
    span: &'static HistorySpan,
    columns: VecDeque<Column>,
}

impl LatestColumns {
    /// Makes a list without columns.
    pub fn new(span: &'static HistorySpan) -> LatestColumns {
        LatestColumns { span, columns: VecDeque::new() }
    }

    /// The columns, oldest first.
    pub(crate) fn columns(&self) -> &VecDeque<Column> {
        &self.columns
    }

    /// Makes the last column again, and those after it, from slices in order of time.
    pub(crate) fn update(&mut self, slices: &VecDeque<(i64, Window)>) {
        let Some((latest, _)) = slices.back() else { return };
        // The clock was set back: what was drawn is not before the slices any more.
        if self.columns.back().is_some_and(|last| *latest < last.start) {
            self.columns.clear();
        }
        let from = self.columns.pop_back().map_or(i64::MIN, |last| last.start);
        let mut later = latest;
        let in_order = slices.iter().rev().take_while(|(second, _)| {
            let is_next = *second >= from && second <= later;
            later = second;
            is_next
        });
        let mut fresh: Vec<(i64, Window)> = Vec::new();
        for (second, window) in in_order {
            let start = self.span.start(*second);
            match fresh.last_mut() {
                Some((same, merged)) if *same == start => merged.merge(window),
                _ => fresh.push((start, window.clone())),
            }
        }
        let span = self.span;
        self.columns
            .extend(fresh.iter().rev().map(|(start, window)| Column::new(*start, span.column, window)));
        let first = span.first(*latest);
        while self.columns.front().is_some_and(|column| column.start < first) {
            self.columns.pop_front();
        }
    }
}

/// The columns of a span between two seconds, from the store. Columns without probes are left out.
///
/// # Errors
///
/// The store cannot be read.
pub(crate) fn stored_columns(
    store: &Store,
    series: SeriesNumber,
    span: &HistorySpan,
    (from, until): (i64, i64),
) -> Result<Vec<Column>, StoreError> {
    let Some(tier) = span.tier else { return Ok(Vec::new()) };
    let mut columns = Vec::new();
    let mut start = from;
    while start < until {
        let end = (start + span.column).min(until);
        let mut merged = Window::default();
        // One column at a time: a year of windows would take much memory.
        store.windows(series, tier, start, end)?.iter().for_each(|stored| merged.merge(&stored.window));
        if merged.counts.due > 0 {
            columns.push(Column::new(start, span.column, &merged));
        }
        start += span.column;
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_counts_every_reply_once_and_withholds_what_it_cannot_know() {
        let few = Column::new(60, 10, &Window::of_probes(&[1_000, 1_000_000, 1_010_000, 10_000_000], 1));
        assert_eq!(few.cells.iter().map(|(_, count)| count).sum::<u32>(), 4);
        assert_eq!(few.cells[0], (72, 1), "1 µs is the cell 3 · 24");
        assert_eq!((few.p99_ns, few.due, few.lost), (None, 5, 1));
        assert!((few.p50_ns.unwrap() / 1_010_000.0 - 1.0).abs() < 0.02, "{few:?}");
        let many = Column::new(60, 10, &Window::of_probes(&[2_000_000; 98], 2));
        assert_eq!(many.p99_ns, Some(f64::INFINITY));
        let json = serde_json::to_value(&many).unwrap();
        assert!(json["p99_ns"].is_null() && json.as_object().unwrap().contains_key("p99_ns"), "{json}");
        let gap = serde_json::to_value(Column::new(0, 10, &Window::default())).unwrap();
        assert!(!gap.as_object().unwrap().contains_key("p50_ns"), "{gap}");
    }

    #[test]
    fn the_latest_columns_are_those_of_all_slices() {
        let mut slices = VecDeque::new();
        let mut latest = LatestColumns::new(HistorySpan::named("1h").unwrap());
        for second in (5..7_200).step_by(10) {
            slices.push_back((
                second,
                Window::of_probes(&[1_000_000 + second as u64, 2_000_000], u64::from(second % 60 == 5)),
            ));
            latest.update(&slices);
            if slices.len() == 360 {
                slices.pop_front();
            }
        }
        let columns = latest.columns();
        assert_eq!(columns.len(), 60);
        assert_eq!((columns[0].start, columns[59].start), (3_600, 7_140));
        assert!(
            columns.iter().all(|column| (column.due, column.lost, column.measured_ms) == (13, 1, 60_000))
        );
        // An hour back: what follows is drawn, and what was drawn is not before it.
        slices.push_back((3_605, Window::of_probes(&[3_000_000], 0)));
        latest.update(&slices);
        assert_eq!(latest.columns().iter().map(|column| column.start).collect::<Vec<_>>(), [3_600]);
    }

    #[test]
    fn stored_columns_are_merged_windows() {
        let place = tempfile::tempdir().unwrap();
        let mut store = Store::open(&place.path().join("runs.sqlite")).unwrap();
        let series = store.series("link", "tcp://gw").unwrap();
        for second in [0, 120, 240, 500] {
            store.add_windows([(series, second, &Window::of_probes(&[1_000_000; 60], 0))]).unwrap();
        }
        let day = HistorySpan::named("1d").unwrap();
        let columns = stored_columns(&store, series, day, (0, 960)).unwrap();
        let due: Vec<(i64, u64)> = columns.iter().map(|column| (column.start, column.due)).collect();
        assert_eq!(due, [(0, 120), (240, 60), (480, 60)]);
        assert!(columns[0].p99_ns.is_some() && columns[1].p99_ns.is_none());
    }
}
