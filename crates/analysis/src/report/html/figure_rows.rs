//! The figures of a case on the page, except its distributions: a name and a text per row. Single numbers come from
//! [`NUMBERS`]; this file adds what is computed from several.
//!
//! [`NUMBERS`]: linkgauge_model::run::NUMBERS

use super::parts::keep_units_together;
use crate::report::wording::{
    common_time_source, format_first_missed_frames, format_missed_frames, interval_basis, line_limit_bps,
    line_time_ns,
};
use linkgauge_model::metric::measured_numbers;
use linkgauge_model::run::{CaseResult, Defect, Distribution, Figures};
use linkgauge_model::units::{format_bit_rate, format_nanoseconds};

/// A name, and the text unless the figure was not measured.
type TextRow = (&'static str, Option<String>);

/// All figures of a case except round-trip times.
pub(crate) fn count_rows(case: &CaseResult) -> Vec<(&'static str, String)> {
    let numbers = measured_numbers(&case.figures)
        .map(|(number, text)| (number.meaning.split(';').next().unwrap_or_default(), Some(text)));
    let groups = [time_rows(case), line_rows(case), duration_rows(case)];
    let rows = numbers.chain(groups.into_iter().flatten());
    rows.filter_map(|(name, value)| Some((name, keep_units_together(&value?)))).collect()
}

fn interval(case: &CaseResult, name: &str, print: fn(f64) -> String) -> Option<String> {
    let interval = case.figures.intervals.get(name)?;
    Some(format!("{} to {} (95 %, {})", print(interval.low), print(interval.high), interval_basis(case)))
}

fn time_rows(case: &CaseResult) -> Vec<TextRow> {
    let figures = &case.figures;
    let ways = figures.one_way.as_ref();
    let of = |times: &Distribution, name| times.percentile(name).map(|ns| format_nanoseconds(ns as f64));
    vec![
        ("interval of the median", interval(case, "latency_ns.p50", format_nanoseconds)),
        ("interval of the payload rate", interval(case, "throughput_bps", format_bit_rate)),
        ("frames missed", format_missed_frames(figures)),
        ("the first of them, by number and time due", format_first_missed_frames(figures)),
        ("defects, the first of them", format_defects(figures)),
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
        (
            "source of the error of one-way delays",
            ways.map(|ways| common_time_source(case, ways).unwrap_or_else(|| "the round trips".to_owned())),
        ),
    ]
}

fn line_rows(case: &CaseResult) -> Vec<TextRow> {
    vec![
        ("maximum payload rate of the line", line_limit_bps(case).map(format_bit_rate)),
        ("message time on the line, one way", line_time_ns(case).map(format_nanoseconds)),
        ("fairness of the ports (slowest ÷ fastest)", case.fairness.map(|value| format!("{value:.3}"))),
        (
            "ratio of the ports’ medians (slowest ÷ fastest)",
            case.port_latency_ratio.map(|value| format!("{value:.3}")),
        ),
    ]
}

fn duration_rows(case: &CaseResult) -> Vec<TextRow> {
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
