//! Tests of the content of the tables, each of which has one kind of row.

use std::collections::BTreeSet;

use super::*;
use crate::report::sample_runs;

/// A function that writes a table.
type TableWriter = fn(&Run, &ReportOptions, &mut dyn io::Write) -> io::Result<()>;

const WRITERS: [TableWriter; 4] = [write, write_repetitions, write_ports, write_series];

fn text_of(writer: TableWriter, run: &Run) -> String {
    let mut out = Vec::new();
    writer(run, &ReportOptions::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Header and rows.
fn records(writer: TableWriter, run: &Run) -> (csv::StringRecord, Vec<csv::StringRecord>) {
    let text = text_of(writer, run);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    // The reader rejects rows whose length differs from the header's.
    (header, reader.records().map(Result::unwrap).collect())
}

/// The cells of the first row that are not empty, next to their names.
fn first_row(writer: TableWriter, run: &Run) -> String {
    let (header, rows) = records(writer, run);
    let cells = header.iter().zip(rows[0].iter()).filter(|(_, cell)| !cell.is_empty());
    cells.map(|(name, cell)| format!("{name}: {cell}\n")).collect()
}

#[test]
fn each_table_has_one_kind_of_row() {
    let run = sample_runs::full();
    let count = |writer| records(writer, &run).1.len();
    let parts = |of: fn(&CaseResult) -> usize| run.cases.iter().map(of).sum::<usize>();
    assert_eq!(count(write), run.cases.len());
    assert_eq!(count(write_repetitions), parts(|case| case.repeats.len()));
    assert_eq!(count(write_ports), parts(|case| case.per_port.len()));
    let intervals = parts(|case| {
        [&case.series, &case.under_load_series, &case.idle_series, &case.recovery_series]
            .map(Vec::len)
            .iter()
            .sum()
    });
    assert_eq!(count(write_series), intervals);
    assert!(count(write_repetitions) > 0 && count(write_ports) > 0 && intervals > 0);
}

#[test]
fn cells_of_the_first_rows() {
    insta::assert_snapshot!(WRITERS.map(|writer| first_row(writer, &sample_runs::full())).join("\n"), @r"
    run: 20261120T100000Z-7f3a
    started: 2026-11-20T10:00:00Z
    case: 1
    endpoint: tcp://127.0.0.1:7100
    protocol: linkgauge
    workload: latency
    direction: loop
    message_bytes: 14
    ports: 1
    parallel: 1
    method: latency/closed/block/1
    complete: true
    elapsed_ns: 10000000000
    latency_min_ns: 13000
    latency_mean_ns: 14020.905
    latency_sd_ns: 5311.456
    latency_p50_ns: 13823
    latency_p90_ns: 14479
    latency_p99_ns: 23439
    latency_p99.9_ns: 24927
    latency_max_ns: 273663
    response_p50_ns: 16167
    response_p99_ns: 27375
    jitter_ns: 410.5
    messages_per_second: 75471.7
    sent: 10000
    received: 10000
    lost: 0
    duplicate: 0
    reordered: 0
    missed_sends: 0
    corrupt_bytes: 0
    latency_p50_low_ns: 13684.77
    latency_p50_high_ns: 13988.876
    warnings: near-floor

    run: 20261120T100000Z-7f3a
    started: 2026-11-20T10:00:00Z
    case: 1
    number: 1
    endpoint: tcp://127.0.0.1:7100
    elapsed_ns: 2000000000
    client_cpu: 0
    server_cpu: 1
    latency_min_ns: 13000
    latency_mean_ns: 14020.905
    latency_sd_ns: 5311.456
    latency_p50_ns: 13823
    latency_p90_ns: 14479
    latency_p99_ns: 23439
    latency_p99.9_ns: 24927
    latency_max_ns: 273663
    jitter_ns: 410.5
    messages_per_second: 75471.7
    sent: 10000
    received: 10000
    lost: 0
    duplicate: 0
    reordered: 0
    missed_sends: 0
    corrupt_bytes: 0

    run: 20261120T100000Z-7f3a
    started: 2026-11-20T10:00:00Z
    case: 2
    number: 1
    endpoint: tcp://moxa-5610.example:7001
    elapsed_ns: 2000000000
    client_cpu: 0
    server_cpu: 1
    latency_min_ns: 2079744
    latency_mean_ns: 2243080.858
    latency_sd_ns: 850507.799
    latency_p50_ns: 2211839
    latency_p90_ns: 2318335
    latency_p99_ns: 3749887
    latency_p99.9_ns: 3987455
    latency_max_ns: 43876351
    jitter_ns: 410.5
    messages_per_second: 75471.7
    sent: 10000
    received: 10000
    lost: 0
    duplicate: 0
    reordered: 0
    missed_sends: 0
    corrupt_bytes: 0

    run: 20261120T100000Z-7f3a
    started: 2026-11-20T10:00:00Z
    case: 4
    endpoint: tcp://127.0.0.1:7100
    series: load
    start_ns: 0
    length_ns: 1000000000
    messages: 100
    bytes: 34875000
    lost: 0
    ce: 0
    latency_min_ns: 290000
    latency_mean_ns: 310000
    latency_max_ns: 910000
    ");
}

#[test]
fn foreign_texts_are_no_formulas() {
    let mut run = sample_runs::minimal();
    run.id = "=1+1".to_owned();
    run.cases[0].endpoint = "@SUM(A1)".to_owned();
    run.cases[0].method = "-cmd|'/C calc'!A0".to_owned();
    let text = text_of(write, &run);
    let cells: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(cells[..4], ["'=1+1", "2026-11-20T10:00:00Z", "1", "'@SUM(A1)"]);
    assert!(text.contains(",'-cmd|'/C calc'!A0,"), "{text}");
}

#[test]
fn columns_are_few_unique_and_described() {
    for (table, columns) in csv_tables() {
        let names: BTreeSet<&str> = columns.iter().map(|(name, _)| *name).collect();
        assert!(names.len() == columns.len() && columns.len() <= 60, "{table}: {} columns", columns.len());
        assert!(columns.iter().all(|(_, meaning)| !meaning.is_empty()), "{table}: {columns:?}");
    }
    for run in sample_runs::all_samples() {
        for writer in WRITERS {
            records(writer, &run);
        }
    }
}
