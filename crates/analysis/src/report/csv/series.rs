//! Time series as a table: a row for each interval.

use std::io;

use super::super::ReportOptions;
use super::{format_count, format_number, write_header, write_row};
use linkgauge_model::run::{Run, SeriesEntry};

/// The columns and their meanings.
pub(super) const COLUMNS: [(&str, &str); 18] = [
    ("run", "name of the run"),
    ("started", "start of the run, in UTC"),
    ("case", "number of the case in the run, from 1"),
    ("endpoint", "the endpoint, as typed"),
    ("series", "load (or round trips), probe beside it, idle before it, recovery after it"),
    ("start_ns", "start of the interval, from the start of the measurement"),
    ("length_ns", "length of the interval"),
    ("messages", "messages that got a reply or were delivered"),
    ("bytes", "their payload"),
    ("lost", "messages found lost in the interval"),
    ("ce", "received messages with a congestion mark"),
    ("latency_min_ns", "fastest round trip"),
    ("latency_mean_ns", "mean round trip"),
    ("latency_p50_ns", "median round trip"),
    ("latency_p99_ns", "99th percentile of the round trips"),
    ("latency_max_ns", "slowest round trip"),
    ("forward_queue_ns", "mean delay of the requests above the shortest"),
    ("reverse_queue_ns", "mean delay of the replies above the shortest"),
];

/// Writes a row for each interval of each time series: `load` (or the round trips), `probe` beside it, `idle` before it and
/// `recovery` after it.
pub(crate) fn write_series(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    write_header(&mut table, COLUMNS.iter().map(|(name, _)| *name))?;
    for (case, number) in run.cases.iter().zip(1u64..) {
        let series = [
            ("load", &case.series),
            ("probe", &case.under_load_series),
            ("idle", &case.idle_series),
            ("recovery", &case.recovery_series),
        ];
        for (name, entries) in series {
            for entry in entries {
                let mut cells = vec![run.id.clone(), run.started.to_string(), number.to_string()];
                cells.extend([case.endpoint.clone(), name.to_owned()]);
                cells.extend(interval_cells(entry));
                write_row(&mut table, &cells)?;
            }
        }
    }
    table.flush()
}

/// Cells of an interval in the order of the columns, from `start_ns` on. An imported file may count no messages.
fn interval_cells(entry: &SeriesEntry) -> [String; 13] {
    let counts = [entry.start_ns, entry.length_ns, entry.bytes, entry.ce].map(Some);
    let [start, length, bytes, ce] = counts.map(format_count);
    let [messages, lost] = [entry.messages, entry.lost].map(format_count);
    let times = [
        entry.latency_p50_ns,
        entry.latency_p99_ns,
        entry.latency_max_ns,
        entry.forward_queue_ns,
        entry.reverse_queue_ns,
    ];
    let [p50, p99, max, forward, reverse] = times.map(format_count);
    let (min, mean) = (format_count(entry.latency_min_ns), format_number(entry.latency_mean_ns));
    [start, length, messages, bytes, lost, ce, min, mean, p50, p99, max, forward, reverse]
}
