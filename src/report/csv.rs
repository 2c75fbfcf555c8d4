//! A run as a table for spreadsheets and data frames: one row per case, followed by one per repetition and one per
//! port.
//!
//! The table is not complete: histograms, time series, settings and the environment are in the JSON document.
//!
//! Columns keep their names and meanings. Read them by name: their order may change. An empty cell was not measured. `inf` is
//! a percentile that was not reached because too many requests were lost (a lost request ranks slowest). A text that a
//! spreadsheet would treat as a formula starts with an apostrophe.

use std::io;

use super::ReportOptions;
use super::wording::{line_limit_bps, line_time_ns, printable};
use crate::run::{
    CaseResult, CpuUse, Distribution, Figures, MissedFrames, NUMBERS, OneWayFigures, ReadNumber, Run,
};
use crate::spreadsheet::escape_formula;
use crate::stats::Interval;

/// A column besides those of [`NUMBERS`].
struct CsvColumn {
    /// Carries the unit.
    name: &'static str,
    cell: fn(&CsvRow) -> String,
}

const fn column(name: &'static str, cell: fn(&CsvRow) -> String) -> CsvColumn {
    CsvColumn { name, cell }
}

/// Identity of the row. Columns of the whole case are empty in its parts.
static ROW_COLUMNS: &[CsvColumn] = &[
    column("run", |row| row.run.id.clone()),
    column("started", |row| row.run.started.to_string()),
    column("case", |row| row.case_number.to_string()),
    column("part", |row| row.part.to_owned()),
    column("part_number", |row| format_count(row.part_number)),
    column("endpoint", |row| row.endpoint.to_owned()),
    column("protocol", |row| row.case.protocol.clone()),
    column("workload", |row| row.case.workload.clone()),
    column("direction", |row| row.case.direction.name().to_owned()),
    column("message_bytes", |row| row.case.message_bytes.to_string()),
    column("ports", |row| row.case.ports.to_string()),
    column("parallel", |row| row.case.parallel.to_string()),
    column("method", |row| row.case.method.clone()),
    column("complete", |row| row.whole().map(|case| case.complete.to_string()).unwrap_or_default()),
    column("elapsed_ns", |row| row.elapsed_ns.to_string()),
];

/// Distributions, intervals, and figures of the whole case.
static FIGURE_COLUMNS: &[CsvColumn] = &[
    column("latency_min_ns", |row| format_count(row.latency().map(|latency| latency.min))),
    column("latency_mean_ns", |row| format_number(row.latency().map(|latency| latency.mean))),
    column("latency_sd_ns", |row| format_number(row.latency().map(|latency| latency.standard_deviation))),
    column("latency_p50_ns", |row| format_percentile(row.latency(), "p50")),
    column("latency_p50_low_ns", |row| format_number(row.interval("latency_ns.p50").map(|of| of.low))),
    column("latency_p50_high_ns", |row| format_number(row.interval("latency_ns.p50").map(|of| of.high))),
    column("latency_p90_ns", |row| format_percentile(row.latency(), "p90")),
    column("latency_p99_ns", |row| format_percentile(row.latency(), "p99")),
    column("latency_p99.9_ns", |row| format_percentile(row.latency(), "p99.9")),
    column("latency_max_ns", |row| format_count(row.latency().map(|latency| latency.max))),
    column("response_p50_ns", |row| format_percentile(row.figures.times.response_ns.as_ref(), "p50")),
    column("response_p99_ns", |row| format_percentile(row.figures.times.response_ns.as_ref(), "p99")),
    column("connect_p50_ns", |row| format_percentile(row.figures.times.connect_ns.as_ref(), "p50")),
    column("connect_p99_ns", |row| format_percentile(row.figures.times.connect_ns.as_ref(), "p99")),
    column("missed_frames", |row| format_missed_frames(row.figures)),
    column("throughput_low_bps", |row| format_number(row.interval("throughput_bps").map(|of| of.low))),
    column("throughput_high_bps", |row| format_number(row.interval("throughput_bps").map(|of| of.high))),
    column("line_max_payload_bps", |row| format_number(row.whole().and_then(line_limit_bps))),
    column("line_transmission_ns", |row| format_number(row.whole().and_then(line_time_ns))),
    column("fairness", |row| format_number(row.whole().and_then(|case| case.fairness))),
    column("port_latency_ratio", |row| format_number(row.whole().and_then(|case| case.port_latency_ratio))),
    column("loaded_latency_p50_ns", |row| format_percentile(row.loaded_latency(), "p50")),
    column("loaded_latency_p99_ns", |row| format_percentile(row.loaded_latency(), "p99")),
    column("cpu_client_seconds", |row| format_number(row.cpu().map(|cpu| cpu.client_seconds))),
    column("cpu_server_seconds", |row| format_number(row.cpu().and_then(|cpu| cpu.server_seconds))),
    column("cpu_seconds_per_gigabyte", |row| {
        format_number(row.cpu().and_then(|cpu| cpu.seconds_per_gigabyte))
    }),
    column("turnaround_p50_ns", |row| {
        format_percentile(row.one_way().map(|ways| &ways.turnaround_ns), "p50")
    }),
    column("path_p50_ns", |row| format_percentile(row.one_way().map(|ways| &ways.path_ns), "p50")),
    column("forward_variation_p99_ns", |row| {
        format_percentile(row.one_way().map(|ways| &ways.forward_variation_ns), "p99")
    }),
    column("reverse_variation_p99_ns", |row| {
        format_percentile(row.one_way().map(|ways| &ways.reverse_variation_ns), "p99")
    }),
    column("warnings", |row| row.warning_codes()),
    column("thresholds", |row| {
        format_count(row.whole().map(|case| case.thresholds.len() as u64).filter(|count| *count > 0))
    }),
    column("thresholds_failed", |row| row.failed_thresholds()),
];

/// The names of all columns, in order.
fn column_names() -> impl Iterator<Item = &'static str> {
    let [row, figures] =
        [ROW_COLUMNS, FIGURE_COLUMNS].map(|columns| columns.iter().map(|column| column.name));
    row.chain(NUMBERS.iter().map(|number| number.field)).chain(figures)
}

/// Writes the table.
pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(column_names())?;
    for (case, case_number) in run.cases.iter().zip(1..) {
        let row = CsvRow {
            run,
            case,
            case_number,
            part: "case",
            part_number: None,
            endpoint: &case.endpoint,
            elapsed_ns: case.elapsed_ns,
            figures: &case.figures,
        };
        write_row(&mut table, &row.cells())?;
        for (kind, parts) in [("repeat", &case.repeats), ("port", &case.per_port)] {
            for (part, number) in parts.iter().zip(1..) {
                let row = CsvRow {
                    part: kind,
                    part_number: Some(number),
                    endpoint: &part.endpoint,
                    elapsed_ns: part.elapsed_ns,
                    figures: &part.figures,
                    ..row
                };
                write_row(&mut table, &row.cells())?;
            }
        }
    }
    table.flush()
}

/// Writes a row. Texts come from outside, terminals show them, and spreadsheets open the file.
pub(super) fn write_row(table: &mut csv::Writer<impl io::Write>, cells: &[String]) -> io::Result<()> {
    Ok(table.write_record(cells.iter().map(|cell| escape_formula(&printable(cell)).into_owned()))?)
}

/// A case, or one of its repetitions or ports.
struct CsvRow<'a> {
    run: &'a Run,
    case: &'a CaseResult,
    /// From 1.
    case_number: usize,
    /// `case`, `repeat` or `port`.
    part: &'static str,
    /// From 1; `None` for the whole case.
    part_number: Option<u64>,
    endpoint: &'a str,
    elapsed_ns: u64,
    figures: &'a Figures,
}

impl<'a> CsvRow<'a> {
    /// In the order of [`column_names`].
    fn cells(&self) -> Vec<String> {
        let [row, figures] =
            [ROW_COLUMNS, FIGURE_COLUMNS].map(|columns| columns.iter().map(|column| (column.cell)(self)));
        let numbers = NUMBERS.iter().map(|number| match number.read {
            ReadNumber::Count(read) => format_count(read(self.figures)),
            ReadNumber::Value(read) => format_number(read(self.figures)),
        });
        row.chain(numbers).chain(figures).collect()
    }

    /// The case, if the row is not a part of it.
    fn whole(&self) -> Option<&'a CaseResult> {
        self.part_number.is_none().then_some(self.case)
    }

    fn latency(&self) -> Option<&'a Distribution> {
        self.figures.times.latency_ns.as_ref()
    }

    fn loaded_latency(&self) -> Option<&'a Distribution> {
        self.whole()?.under_load.as_ref()?.times.latency_ns.as_ref()
    }

    fn one_way(&self) -> Option<&'a OneWayFigures> {
        self.figures.one_way.as_ref()
    }

    fn cpu(&self) -> Option<&'a CpuUse> {
        self.whole()?.cpu.as_ref()
    }

    fn interval(&self, figure: &str) -> Option<&'a Interval> {
        self.figures.intervals.get(figure)
    }

    fn warning_codes(&self) -> String {
        let warnings = self.whole().into_iter().flat_map(|case| &case.warnings);
        warnings.map(|warning| warning.code.name()).collect::<Vec<_>>().join(" ")
    }

    fn failed_thresholds(&self) -> String {
        let results = self.whole().into_iter().flat_map(|case| &case.thresholds);
        let failed = results.filter(|result| !result.passed);
        failed.map(|result| result.threshold.as_str()).collect::<Vec<_>>().join("; ")
    }
}

fn format_missed_frames(figures: &Figures) -> String {
    let counts = figures.times.missed_frames.iter().flat_map(MissedFrames::by_limit);
    counts.map(|(limit, count)| format!("{limit}:{count}")).collect::<Vec<_>>().join(" ")
}

fn format_count(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Three decimals: a thousandth of a nanosecond has no meaning.
fn format_number(value: Option<f64>) -> String {
    let text = value.map(|value| format!("{value:.3}")).unwrap_or_default();
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn format_percentile(distribution: Option<&Distribution>, name: &str) -> String {
    match distribution.and_then(|distribution| distribution.percentiles.get(name)) {
        Some(Some(nanoseconds)) => nanoseconds.to_string(),
        Some(None) => "inf".to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::report::sample_runs;

    fn write_csv(run: &Run) -> String {
        let mut out = Vec::new();
        write(run, &ReportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Transposes rows, so that each cell is next to its name.
    fn columns(run: &Run, rows: std::ops::Range<usize>) -> String {
        let text = write_csv(run);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let line = |(index, name): (usize, &str)| {
            let cells: Vec<&str> = records[rows.clone()].iter().map(|record| &record[index]).collect();
            format!("{name}: {}\n", cells.join(" | "))
        };
        header.iter().enumerate().map(line).collect()
    }

    #[test]
    fn one_row_per_case_and_part() {
        insta::assert_snapshot!(columns(&sample_runs::full(), 0..2), @r"
        run: 20261120T100000Z-7f3a | 20261120T100000Z-7f3a
        started: 2026-11-20T10:00:00Z | 2026-11-20T10:00:00Z
        case: 1 | 1
        part: case | repeat
        part_number:  | 1
        endpoint: tcp://127.0.0.1:7100 | tcp://127.0.0.1:7100
        protocol: linkgauge | linkgauge
        workload: latency | latency
        direction: loop | loop
        message_bytes: 14 | 14
        ports: 1 | 1
        parallel: 1 | 1
        method: latency/closed/block/1 | latency/closed/block/1
        complete: true | 
        elapsed_ns: 10000000000 | 2000000000
        jitter_ns: 410.5 | 410.5
        throughput_bps:  | 
        throughput_reverse_bps:  | 
        line_rate_percent:  | 
        messages_per_second: 75471.7 | 75471.7
        sent: 10000 | 10000
        received: 10000 | 10000
        lost: 0 | 0
        receiver_socket_drops:  | 
        network_lost:  | 
        late: 0 | 0
        duplicate: 0 | 0
        early: 0 | 0
        reordered: 0 | 0
        corrupt_messages: 0 | 0
        missed_sends: 0 | 0
        corrupt_bytes: 0 | 0
        lost_bytes: 0 | 0
        inserted_bytes: 0 | 0
        delivered_bytes:  | 
        delivered_reverse_bytes:  | 
        framing_errors:  | 
        parity_errors:  | 
        breaks:  | 
        overruns:  | 
        round_trips:  | 
        retransmissions:  | 
        please_waits:  | 
        refusals:  | 
        reconnects:  | 
        window:  | 
        records:  | 
        record_gaps:  | 
        record_repeats:  | 
        records_out_of_order:  | 
        forward_p50_ns:  | 
        reverse_p50_ns:  | 
        one_way_error_bound_ns:  | 
        forward_lost:  | 
        reverse_lost:  | 
        idle_p50_ns:  | 
        added_p50_ns:  | 
        added_p95_ns:  | 
        added_p99_ns:  | 
        recovery_ns:  | 
        flows:  | 
        flow_fairness:  | 
        flow_min_max_ratio:  | 
        flow_mean_min_ns:  | 
        flow_mean_p50_ns:  | 
        flow_mean_p90_ns:  | 
        flow_mean_p99_ns:  | 
        flow_mean_max_ns:  | 
        rpm:  | 
        foreign_rpm:  | 
        own_rpm:  | 
        goodput_bps:  | 
        load_connections:  | 
        saturation_ns:  | 
        added_forward_p50_ns:  | 
        added_reverse_p50_ns:  | 
        base_rtt_ns:  | 
        path_mtu_bytes:  | 
        bottleneck_bps:  | 
        bdp_bytes:  | 
        transfer_time_ratio:  | 
        tcp_efficiency_percent:  | 
        buffer_delay_percent:  | 
        capacity_bps:  | 
        forward_ce:  | 
        reverse_ce:  | 
        forward_ecn_changed:  | 
        reverse_ecn_changed:  | 
        forward_dscp_changed:  | 
        reverse_dscp_changed:  | 
        connections:  | 
        failed_connections:  | 
        latency_min_ns: 13000 | 13000
        latency_mean_ns: 14020.905 | 14020.905
        latency_sd_ns: 5311.456 | 5311.456
        latency_p50_ns: 13823 | 13823
        latency_p50_low_ns: 13684.77 | 13684.77
        latency_p50_high_ns: 13988.876 | 13988.876
        latency_p90_ns: 14479 | 14479
        latency_p99_ns: 23439 | 23439
        latency_p99.9_ns: 24927 | 24927
        latency_max_ns: 273663 | 273663
        response_p50_ns: 16167 | 
        response_p99_ns: 27375 | 
        connect_p50_ns:  | 
        connect_p99_ns:  | 
        missed_frames: 16.7:2 50:0 100:0 | 
        throughput_low_bps:  | 
        throughput_high_bps:  | 
        line_max_payload_bps:  | 
        line_transmission_ns:  | 
        fairness:  | 
        port_latency_ratio:  | 
        loaded_latency_p50_ns:  | 
        loaded_latency_p99_ns:  | 
        cpu_client_seconds:  | 
        cpu_server_seconds:  | 
        cpu_seconds_per_gigabyte:  | 
        turnaround_p50_ns:  | 
        path_p50_ns:  | 
        forward_variation_p99_ns:  | 
        reverse_variation_p99_ns:  | 
        warnings: near-floor | 
        thresholds:  | 
        thresholds_failed:  | 
        ");
    }

    #[test]
    fn absent_is_empty_and_not_reached_is_infinite() {
        insta::assert_snapshot!(write_csv(&sample_runs::minimal()), @r"
        run,started,case,part,part_number,endpoint,protocol,workload,direction,message_bytes,ports,parallel,method,complete,elapsed_ns,jitter_ns,throughput_bps,throughput_reverse_bps,line_rate_percent,messages_per_second,sent,received,lost,receiver_socket_drops,network_lost,late,duplicate,early,reordered,corrupt_messages,missed_sends,corrupt_bytes,lost_bytes,inserted_bytes,delivered_bytes,delivered_reverse_bytes,framing_errors,parity_errors,breaks,overruns,round_trips,retransmissions,please_waits,refusals,reconnects,window,records,record_gaps,record_repeats,records_out_of_order,forward_p50_ns,reverse_p50_ns,one_way_error_bound_ns,forward_lost,reverse_lost,idle_p50_ns,added_p50_ns,added_p95_ns,added_p99_ns,recovery_ns,flows,flow_fairness,flow_min_max_ratio,flow_mean_min_ns,flow_mean_p50_ns,flow_mean_p90_ns,flow_mean_p99_ns,flow_mean_max_ns,rpm,foreign_rpm,own_rpm,goodput_bps,load_connections,saturation_ns,added_forward_p50_ns,added_reverse_p50_ns,base_rtt_ns,path_mtu_bytes,bottleneck_bps,bdp_bytes,transfer_time_ratio,tcp_efficiency_percent,buffer_delay_percent,capacity_bps,forward_ce,reverse_ce,forward_ecn_changed,reverse_ecn_changed,forward_dscp_changed,reverse_dscp_changed,connections,failed_connections,latency_min_ns,latency_mean_ns,latency_sd_ns,latency_p50_ns,latency_p50_low_ns,latency_p50_high_ns,latency_p90_ns,latency_p99_ns,latency_p99.9_ns,latency_max_ns,response_p50_ns,response_p99_ns,connect_p50_ns,connect_p99_ns,missed_frames,throughput_low_bps,throughput_high_bps,line_max_payload_bps,line_transmission_ns,fairness,port_latency_ratio,loaded_latency_p50_ns,loaded_latency_p99_ns,cpu_client_seconds,cpu_server_seconds,cpu_seconds_per_gigabyte,turnaround_p50_ns,path_p50_ns,forward_variation_p99_ns,reverse_variation_p99_ns,warnings,thresholds,thresholds_failed
        20261120T100000Z-7f3a,2026-11-20T10:00:00Z,1,case,,mem://a,linkgauge,latency,loop,1,1,1,latency/closed/block/1,true,10000000000,,,,,,3,1,2,,,0,0,0,0,0,0,0,0,0,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,
        ");
        let lossy = columns(&sample_runs::full(), 8..9);
        assert!(lossy.contains("latency_p99_ns: inf\n") && lossy.contains("latency_p90_ns: 9"), "{lossy}");
    }

    #[test]
    fn foreign_texts_are_no_formulas() {
        let mut run = sample_runs::minimal();
        run.id = "=1+1".to_owned();
        run.cases[0].endpoint = "@SUM(A1)".to_owned();
        run.cases[0].method = "-cmd|'/C calc'!A0".to_owned();
        let text = write_csv(&run);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
        assert_eq!(cells[..6], ["'=1+1", "2026-11-20T10:00:00Z", "1", "case", "", "'@SUM(A1)"]);
        assert!(text.contains(",'-cmd|'/C calc'!A0,"), "{text}");
    }

    #[test]
    fn column_names_are_unique_and_rows_complete() {
        let names: BTreeSet<&str> = column_names().collect();
        assert_eq!(names.len(), column_names().count());
        // The reader rejects rows whose length differs from the header's.
        for run in sample_runs::all_samples() {
            assert_eq!(
                csv::Reader::from_reader(write_csv(&run).as_bytes()).records().filter(Result::is_err).count(),
                0
            );
        }
    }
}
