//! A run as a table for spreadsheets and data frames: one row per case, followed by one per repetition and one per
//! port.
//!
//! A repeated study has its own table (`study`) instead: one row per published figure.
//!
//! The table is not complete: histograms, time series, settings and the environment are in the JSON document.
//!
//! Columns never change their meaning; new ones are added at the end. An empty cell was not measured. `inf` is a
//! percentile that was not reached because too many requests were lost (a lost request ranks slowest). A text that a
//! spreadsheet would treat as a formula starts with an apostrophe.

use std::io;

use super::wording::{line_limit_bps, line_time_ns};
use super::{ReportOptions, study};
use crate::run::{CaseResult, Distribution, Figures, MissedFrames, Run};
use crate::spreadsheet::escape_formula;

/// Column names and their meanings. Each name carries its unit.
pub static COLUMNS: &[(&str, &str)] = &[
    ("run", "id of the run"),
    ("started", "start of the run, UTC"),
    ("case", "number of the case in the run, from 1"),
    ("part", "case, repeat or port"),
    ("part_number", "number of the repetition or port, from 1"),
    ("endpoint", "where the link leads"),
    ("protocol", "protocol that the remote spoke"),
    ("workload", "what was measured"),
    ("direction", "direction of the payload, seen from the client"),
    ("message_bytes", "payload of one message"),
    ("ports", "ports measured side by side"),
    ("parallel", "connections to each port"),
    ("method", "identity of the method; compare only the same"),
    ("complete", "everything planned was measured"),
    ("elapsed_ns", "time the case or part took"),
    ("sent", "messages sent"),
    ("received", "messages received"),
    ("lost", "messages lost"),
    ("late", "replies after their timeout; they count as lost"),
    ("duplicate", "messages that arrived more than once"),
    ("reordered", "messages that arrived after a later one"),
    ("corrupt_bytes", "bytes that arrived changed"),
    ("corrupt_messages", "messages that arrived changed"),
    ("missed_sends", "sends that could not be made in time"),
    ("latency_min_ns", "fastest round trip"),
    ("latency_mean_ns", "mean of the round trips with a reply"),
    ("latency_sd_ns", "standard deviation"),
    ("latency_p50_ns", "median round trip"),
    ("latency_p50_low_ns", "its 95 % interval, lower end"),
    ("latency_p50_high_ns", "its 95 % interval, upper end"),
    ("latency_p90_ns", "90 % were no slower"),
    ("latency_p99_ns", "99 % were no slower"),
    ("latency_p99.9_ns", "99.9 % were no slower"),
    ("latency_max_ns", "slowest round trip with a reply"),
    ("response_p50_ns", "median response time, from the intended send time"),
    ("response_p99_ns", "99th percentile of the response time"),
    ("jitter_ns", "mean difference of consecutive latencies"),
    ("throughput_bps", "delivered payload, bits per second"),
    ("throughput_low_bps", "its 95 % interval, lower end"),
    ("throughput_high_bps", "its 95 % interval, upper end"),
    ("throughput_reverse_bps", "the same for the other direction"),
    ("messages_per_second", "messages delivered, or round trips, per second"),
    ("delivered_bytes", "payload delivered"),
    ("delivered_reverse_bytes", "payload delivered in the other direction"),
    ("line_rate_percent", "throughput as a share of what the line can carry"),
    ("line_max_payload_bps", "payload that the line can carry"),
    ("line_transmission_ns", "time of the message on the line, one way"),
    ("fairness", "rate of the slowest port ÷ rate of the fastest"),
    ("port_latency_ratio", "median of the slowest port ÷ median of the fastest"),
    ("lost_bytes", "bytes of a loop that did not return"),
    ("inserted_bytes", "bytes that arrived and had not been sent, or arrived twice"),
    ("framing_errors", "counted by the serial port"),
    ("parity_errors", "counted by the serial port"),
    ("breaks", "counted by the serial port"),
    ("overruns", "characters that the serial port lost, by its own count"),
    ("receiver_socket_drops", "lost messages that the receiver's socket dropped"),
    ("network_lost", "messages lost in the network"),
    ("loaded_latency_p50_ns", "median round trip of the probe beside the load"),
    ("loaded_latency_p99_ns", "99th percentile of the probe beside the load"),
    ("cpu_client_seconds", "CPU time of the client"),
    ("cpu_server_seconds", "CPU time of the server"),
    ("cpu_seconds_per_gigabyte", "CPU time of client and server for 10⁹ delivered bytes"),
    ("warnings", "codes of the warnings of the case"),
    ("round_trips", "requests of a download with a reply"),
    ("retransmissions", "requests that were sent again"),
    ("please_waits", "times that the server asked for more time"),
    ("refusals", "requests that the server refused for lack of room"),
    ("reconnects", "times that a lost link was reopened"),
    ("window", "requests in flight at the end"),
    ("records", "received records, each counted once"),
    ("record_gaps", "records whose numbers are missing"),
    ("record_repeats", "records that arrived again"),
    ("records_out_of_order", "records that arrived after later ones"),
    ("turnaround_p50_ns", "median time that the server took of a round trip, by its clock"),
    ("path_p50_ns", "median round trip without the turnaround"),
    ("forward_variation_p99_ns", "99 % of the forward delays were at most this much above the shortest"),
    ("reverse_variation_p99_ns", "99 % of the reverse delays were at most this much above the shortest"),
    ("forward_p50_ns", "median forward delay, exact to one_way_error_bound_ns"),
    ("reverse_p50_ns", "median reverse delay, exact to one_way_error_bound_ns"),
    ("one_way_error_bound_ns", "half of the shortest path"),
    ("thresholds", "number of thresholds of the case"),
    ("thresholds_failed", "number of failed thresholds"),
    (
        "missed_frames",
        "requests with a reply later than a limit (ms) after they were due, or lost, as limit:count",
    ),
    ("early", "replies that arrived before their request was sent"),
];

/// Writes the table.
pub fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    if let Some(study) = &run.paper {
        return study::write_csv(run, study, out);
    }
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS.iter().map(|(name, _)| name))?;
    for (index, case) in run.cases.iter().enumerate() {
        let row = CsvRow { run, number: index + 1, case };
        let cells = row.cells("case", 0, &case.endpoint, case.elapsed_ns, &case.figures);
        write_row(&mut table, &cells)?;
        for (kind, parts) in [("repeat", &case.repeats), ("port", &case.per_port)] {
            for (part, number) in parts.iter().zip(1..) {
                let cells = row.cells(kind, number, &part.endpoint, part.elapsed_ns, &part.figures);
                write_row(&mut table, &cells)?;
            }
        }
    }
    table.flush()
}

/// Writes a row. Texts come from outside, and spreadsheets open the file.
pub(super) fn write_row(table: &mut csv::Writer<impl io::Write>, cells: &[String]) -> io::Result<()> {
    Ok(table.write_record(cells.iter().map(|cell| escape_formula(cell).into_owned()))?)
}

struct CsvRow<'a> {
    run: &'a Run,
    number: usize,
    case: &'a CaseResult,
}

impl CsvRow<'_> {
    /// In the order of [`COLUMNS`]. Columns of the whole case are empty in its parts.
    fn cells(
        &self,
        part: &str,
        number: usize,
        endpoint: &str,
        elapsed_ns: u64,
        figures: &Figures,
    ) -> Vec<String> {
        let case = self.case;
        let whole = part == "case";
        let latency = figures.times.latency_ns.as_ref();
        let response = figures.times.response_ns.as_ref();
        let loaded =
            case.under_load.as_ref().filter(|_| whole).and_then(|figures| figures.times.latency_ns.as_ref());
        let ways = figures.one_way.as_ref();
        let records = figures.records.as_ref();
        let cpu = case.cpu.as_ref().filter(|_| whole);
        let interval = |name: &str| figures.intervals.get(name);
        let codes: Vec<&str> = case.warnings.iter().map(|warning| warning.code.as_str()).collect();
        let not_kept = case.thresholds.iter().filter(|judged| !judged.passed);
        let not_kept: Vec<&str> = not_kept.map(|judged| judged.threshold.as_str()).collect();
        vec![
            self.run.id.clone(),
            self.run.started.to_string(),
            self.number.to_string(),
            part.to_owned(),
            if whole { String::new() } else { number.to_string() },
            endpoint.to_owned(),
            case.protocol.clone(),
            case.workload.clone(),
            case.direction.name().to_owned(),
            case.message_bytes.to_string(),
            case.ports.to_string(),
            case.parallel.to_string(),
            case.method.clone(),
            if whole { case.complete.to_string() } else { String::new() },
            elapsed_ns.to_string(),
            figures.counts.sent.to_string(),
            figures.counts.received.to_string(),
            figures.counts.lost.to_string(),
            figures.counts.late.to_string(),
            figures.counts.duplicate.to_string(),
            figures.counts.reordered.to_string(),
            figures.byte_errors.corrupt_bytes.to_string(),
            figures.counts.corrupt_messages.to_string(),
            figures.counts.missed_sends.to_string(),
            format_count(latency.map(|latency| latency.min)),
            format_number(latency.map(|latency| latency.mean)),
            format_number(latency.map(|latency| latency.standard_deviation)),
            format_percentile(latency, "p50"),
            format_number(interval("latency_ns.p50").map(|interval| interval.low)),
            format_number(interval("latency_ns.p50").map(|interval| interval.high)),
            format_percentile(latency, "p90"),
            format_percentile(latency, "p99"),
            format_percentile(latency, "p99.9"),
            format_count(latency.map(|latency| latency.max)),
            format_percentile(response, "p50"),
            format_percentile(response, "p99"),
            format_number(figures.times.jitter_ns),
            format_number(figures.delivery.throughput_bps),
            format_number(interval("throughput_bps").map(|interval| interval.low)),
            format_number(interval("throughput_bps").map(|interval| interval.high)),
            format_number(figures.delivery.throughput_reverse_bps),
            format_number(figures.delivery.messages_per_second),
            format_count(figures.delivery.delivered_bytes),
            format_count(figures.delivery.delivered_reverse_bytes),
            format_number(figures.delivery.line_rate_percent),
            format_number(line_limit_bps(case).filter(|_| whole)),
            format_number(line_time_ns(case).filter(|_| whole)),
            format_number(case.fairness.filter(|_| whole)),
            format_number(case.port_latency_ratio.filter(|_| whole)),
            figures.byte_errors.lost_bytes.to_string(),
            figures.byte_errors.inserted_bytes.to_string(),
            format_count(figures.line_errors.map(|errors| errors.framing)),
            format_count(figures.line_errors.map(|errors| errors.parity)),
            format_count(figures.line_errors.map(|errors| errors.breaks)),
            format_count(figures.line_errors.map(|errors| errors.overruns)),
            format_count(figures.counts.receiver_socket_drops),
            format_count(figures.counts.network_lost),
            format_percentile(loaded, "p50"),
            format_percentile(loaded, "p99"),
            format_number(cpu.map(|cpu| cpu.client_seconds)),
            format_number(cpu.and_then(|cpu| cpu.server_seconds)),
            format_number(cpu.and_then(|cpu| cpu.seconds_per_gigabyte)),
            if whole { codes.join(" ") } else { String::new() },
            format_count(figures.requests.map(|requests| requests.round_trips)),
            format_count(figures.requests.map(|requests| requests.retransmissions)),
            format_count(figures.requests.map(|requests| requests.please_waits)),
            format_count(figures.requests.map(|requests| requests.refusals)),
            format_count(figures.requests.map(|requests| requests.reconnects)),
            format_count(figures.requests.map(|requests| requests.window)),
            format_count(records.map(|records| records.received)),
            format_count(records.map(|records| records.missing)),
            format_count(records.map(|records| records.repeated)),
            format_count(records.map(|records| records.out_of_order)),
            format_percentile(ways.map(|ways| &ways.turnaround_ns), "p50"),
            format_percentile(ways.map(|ways| &ways.path_ns), "p50"),
            format_percentile(ways.map(|ways| &ways.forward_variation_ns), "p99"),
            format_percentile(ways.map(|ways| &ways.reverse_variation_ns), "p99"),
            format_number(ways.map(|ways| ways.forward_p50_ns)),
            format_number(ways.map(|ways| ways.reverse_p50_ns)),
            format_number(ways.map(|ways| ways.one_way_error_bound_ns)),
            format_count((whole && !case.thresholds.is_empty()).then_some(case.thresholds.len() as u64)),
            if whole { not_kept.join("; ") } else { String::new() },
            format_missed_frames(figures),
            figures.counts.early.to_string(),
        ]
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
        sent: 10000 | 10000
        received: 10000 | 10000
        lost: 0 | 0
        late: 0 | 0
        duplicate: 0 | 0
        reordered: 0 | 0
        corrupt_bytes: 0 | 0
        corrupt_messages: 0 | 0
        missed_sends: 0 | 0
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
        jitter_ns: 410.5 | 410.5
        throughput_bps:  | 
        throughput_low_bps:  | 
        throughput_high_bps:  | 
        throughput_reverse_bps:  | 
        messages_per_second: 75471.7 | 75471.7
        delivered_bytes:  | 
        delivered_reverse_bytes:  | 
        line_rate_percent:  | 
        line_max_payload_bps:  | 
        line_transmission_ns:  | 
        fairness:  | 
        port_latency_ratio:  | 
        lost_bytes: 0 | 0
        inserted_bytes: 0 | 0
        framing_errors:  | 
        parity_errors:  | 
        breaks:  | 
        overruns:  | 
        receiver_socket_drops:  | 
        network_lost:  | 
        loaded_latency_p50_ns:  | 
        loaded_latency_p99_ns:  | 
        cpu_client_seconds:  | 
        cpu_server_seconds:  | 
        cpu_seconds_per_gigabyte:  | 
        warnings: near-floor | 
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
        turnaround_p50_ns:  | 
        path_p50_ns:  | 
        forward_variation_p99_ns:  | 
        reverse_variation_p99_ns:  | 
        forward_p50_ns:  | 
        reverse_p50_ns:  | 
        one_way_error_bound_ns:  | 
        thresholds:  | 
        thresholds_failed:  | 
        missed_frames: 16.7:2 50:0 100:0 | 
        early: 0 | 0
        ");
    }

    #[test]
    fn absent_is_empty_and_not_reached_is_infinite() {
        insta::assert_snapshot!(write_csv(&sample_runs::minimal()), @r"
        run,started,case,part,part_number,endpoint,protocol,workload,direction,message_bytes,ports,parallel,method,complete,elapsed_ns,sent,received,lost,late,duplicate,reordered,corrupt_bytes,corrupt_messages,missed_sends,latency_min_ns,latency_mean_ns,latency_sd_ns,latency_p50_ns,latency_p50_low_ns,latency_p50_high_ns,latency_p90_ns,latency_p99_ns,latency_p99.9_ns,latency_max_ns,response_p50_ns,response_p99_ns,jitter_ns,throughput_bps,throughput_low_bps,throughput_high_bps,throughput_reverse_bps,messages_per_second,delivered_bytes,delivered_reverse_bytes,line_rate_percent,line_max_payload_bps,line_transmission_ns,fairness,port_latency_ratio,lost_bytes,inserted_bytes,framing_errors,parity_errors,breaks,overruns,receiver_socket_drops,network_lost,loaded_latency_p50_ns,loaded_latency_p99_ns,cpu_client_seconds,cpu_server_seconds,cpu_seconds_per_gigabyte,warnings,round_trips,retransmissions,please_waits,refusals,reconnects,window,records,record_gaps,record_repeats,records_out_of_order,turnaround_p50_ns,path_p50_ns,forward_variation_p99_ns,reverse_variation_p99_ns,forward_p50_ns,reverse_p50_ns,one_way_error_bound_ns,thresholds,thresholds_failed,missed_frames,early
        20261120T100000Z-7f3a,2026-11-20T10:00:00Z,1,case,,mem://a,linkgauge,latency,loop,1,1,1,latency/closed/block/1,true,10000000000,3,1,2,0,0,0,0,0,0,,,,,,,,,,,,,,,,,,,,,,,,,,0,0,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,0
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
    fn every_number_of_the_figures_has_a_column() {
        let schema: serde_json::Value = serde_json::from_str(crate::report::RUN_SCHEMA).unwrap();
        let figures = schema["$defs"]["figures"]["properties"].as_object().unwrap();
        let is_number = |field: &serde_json::Value| field["type"] == "integer" || field["type"] == "number";
        let numbers: BTreeSet<&str> =
            figures.iter().filter(|(_, field)| is_number(field)).map(|(name, _)| name.as_str()).collect();
        assert!(numbers.len() > 30, "{numbers:?}");
        let columns: BTreeSet<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(numbers.difference(&columns).collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    #[test]
    fn column_names_are_unique_and_rows_complete() {
        let names: BTreeSet<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        // The reader rejects rows whose length differs from the header's.
        for run in sample_runs::all_samples() {
            assert_eq!(
                csv::Reader::from_reader(write_csv(&run).as_bytes()).records().filter(Result::is_err).count(),
                0
            );
        }
    }
}
