//! The figures of a case on the page, except its distributions: a name and a text per row.

use super::parts::keep_units_together;
use crate::report::wording::{
    format_first_missed_frames, format_missed_frames, format_one_way, format_percent, interval_basis,
    line_limit_bps, line_time_ns,
};
use crate::run::{CaseResult, Defect, Distribution, Figures};
use crate::units::{format_bit_rate, format_bytes, format_count, format_nanoseconds};

/// A name, and the text unless the figure was not measured.
type Row = (&'static str, Option<String>);

/// All figures of a case except round-trip times.
pub fn count_rows(case: &CaseResult) -> Vec<(&'static str, String)> {
    let figures = &case.figures;
    let groups = [
        message_rows(figures),
        download_rows(figures),
        time_figure_rows(case),
        delivery_rows(case),
        duration_rows(case),
    ];
    let rows = groups.into_iter().flatten();
    rows.filter_map(|(name, value)| Some((name, keep_units_together(&value?)))).collect()
}

/// A count that is usually zero.
fn count(value: u64) -> Option<String> {
    Some(format_count(value)).filter(|_| value > 0)
}

fn interval(case: &CaseResult, name: &str, print: fn(f64) -> String) -> Option<String> {
    let interval = case.figures.intervals.get(name)?;
    Some(format!("{} to {} (95 %, {})", print(interval.low), print(interval.high), interval_basis(case)))
}

fn message_rows(figures: &Figures) -> Vec<Row> {
    let line_errors = figures.line_errors;
    vec![
        ("sent", Some(format_count(figures.counts.sent))),
        ("received", Some(format_count(figures.counts.received))),
        ("lost", Some(format_count(figures.counts.lost))),
        ("of these late", count(figures.counts.late)),
        ("dropped by the receiver’s socket", figures.counts.receiver_socket_drops.map(format_count)),
        ("lost in the network", figures.counts.network_lost.map(format_count)),
        ("arrived twice", count(figures.counts.duplicate)),
        ("arrived before their request", count(figures.counts.early)),
        ("out of order", count(figures.counts.reordered)),
        ("corrupt bytes", count(figures.byte_errors.corrupt_bytes)),
        ("corrupt messages", count(figures.counts.corrupt_messages)),
        ("bytes that did not return", count(figures.byte_errors.lost_bytes)),
        ("bytes never sent, or twice", count(figures.byte_errors.inserted_bytes)),
        ("defects, the first of them", format_defects(figures)),
        ("framing errors", line_errors.map(|errors| format_count(errors.framing))),
        ("parity errors", line_errors.map(|errors| format_count(errors.parity))),
        ("breaks", line_errors.map(|errors| format_count(errors.breaks))),
        ("overruns", line_errors.map(|errors| format_count(errors.overruns))),
        ("sends missed", count(figures.counts.missed_sends)),
        ("frames missed", format_missed_frames(figures)),
        ("the first of them, by number and time due", format_first_missed_frames(figures)),
    ]
}

fn download_rows(figures: &Figures) -> Vec<Row> {
    let Figures { requests, ref records, .. } = *figures;
    let records = records.as_ref();
    vec![
        ("round trips", requests.map(|requests| format_count(requests.round_trips))),
        ("requests repeated", requests.and_then(|requests| count(requests.retransmissions))),
        ("requests refused (queue full)", requests.and_then(|requests| count(requests.refusals))),
        ("“please wait” messages", requests.and_then(|requests| count(requests.please_waits))),
        ("reconnects", requests.and_then(|requests| count(requests.reconnects))),
        ("requests in flight at the end", requests.map(|requests| format_count(requests.window))),
        ("records", records.map(|records| format_count(records.received))),
        ("records missing", records.map(|records| format_count(records.missing))),
        ("records repeated", records.and_then(|records| count(records.repeated))),
        ("records out of order", records.and_then(|records| count(records.out_of_order))),
    ]
}

fn time_figure_rows(case: &CaseResult) -> Vec<Row> {
    let ways = case.figures.one_way.as_ref();
    let of = |times: &Distribution, name| times.percentile(name).map(|ns| format_nanoseconds(ns as f64));
    vec![
        ("interval of the median", interval(case, "latency_ns.p50", format_nanoseconds)),
        ("jitter (mean difference of neighbours)", case.figures.times.jitter_ns.map(format_nanoseconds)),
        ("turnaround at the server (median)", ways.and_then(|ways| of(&ways.turnaround_ns, "p50"))),
        ("round trip without it (median)", ways.and_then(|ways| of(&ways.path_ns, "p50"))),
        (
            "forward delay above its minimum (p99)",
            ways.and_then(|ways| of(&ways.forward_variation_ns, "p99")),
        ),
        (
            "reverse delay above its minimum (p99)",
            ways.and_then(|ways| of(&ways.reverse_variation_ns, "p99")),
        ),
        ("forward delay (median)", ways.map(|ways| format_one_way(ways.forward_p50_ns, ways))),
        ("reverse delay (median)", ways.map(|ways| format_one_way(ways.reverse_p50_ns, ways))),
        ("lost before the server", ways.and_then(|ways| ways.forward_lost).map(format_count)),
        ("lost after the server", ways.and_then(|ways| ways.reverse_lost).map(format_count)),
    ]
}

fn delivery_rows(case: &CaseResult) -> Vec<Row> {
    let delivery = &case.figures.delivery;
    let rate = |value: Option<f64>| value.map(format_bit_rate);
    vec![
        ("delivered payload", rate(delivery.throughput_bps)),
        ("interval of this rate", interval(case, "throughput_bps", format_bit_rate)),
        ("delivered payload, download", rate(delivery.throughput_reverse_bps)),
        ("maximum payload rate of the line", rate(line_limit_bps(case))),
        ("share of the line rate", delivery.line_rate_percent.map(format_percent)),
        ("message time on the line, one way", line_time_ns(case).map(format_nanoseconds)),
        ("fairness of the ports (slowest ÷ fastest)", case.fairness.map(|value| format!("{value:.3}"))),
        (
            "ratio of the ports’ medians (slowest ÷ fastest)",
            case.port_latency_ratio.map(|value| format!("{value:.3}")),
        ),
        (
            "messages per second",
            delivery.messages_per_second.map(|value| format_count(value.max(0.0) as u64)),
        ),
        ("delivered", delivery.delivered_bytes.map(format_bytes)),
        ("delivered, download", delivery.delivered_reverse_bytes.map(format_bytes)),
    ]
}

fn duration_rows(case: &CaseResult) -> Vec<Row> {
    let cpu = case.cpu.as_ref();
    let seconds = |value: f64| format!("{value:.3} s");
    vec![
        ("CPU time, client", cpu.map(|cpu| seconds(cpu.client_seconds))),
        ("CPU time of busy-polling, client", cpu.and_then(|cpu| cpu.client_busy_poll_seconds).map(seconds)),
        ("CPU time, server", cpu.and_then(|cpu| cpu.server_seconds).map(seconds)),
        ("CPU time per delivered GB", cpu.and_then(|cpu| cpu.seconds_per_gigabyte).map(seconds)),
        ("duration", Some(format_nanoseconds(case.elapsed_ns as f64))),
    ]
}

/// Kind, length and position of each known defect.
fn format_defects(figures: &Figures) -> Option<String> {
    let defect =
        |defect: &Defect| format!("{} {} at byte {}", defect.bytes, defect.kind.name(), defect.offset);
    let all: Vec<String> = figures.byte_errors.defects.iter().map(defect).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
