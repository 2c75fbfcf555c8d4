//! Notes below the full report: remarks on single cases, and explanations of the figures and columns that are shown.

use super::FIT_COLUMN;
use crate::report::presentation::is_latency;
use crate::report::wording::{
    FIT_NOTE, format_late, format_missed_frames, interval_basis, is_download, marks_sentence, median_ns,
    one_way_sentence, printable, repetition_notes, shorten, stages_sentence, wait_mode,
};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::{CaseResult, PartResult, Run};
use linkgauge_model::units::{format_bit_rate, format_nanoseconds};

/// Remarks on each case; on a study its tables hold them.
pub(crate) fn case_remarks(run: &Run) -> Vec<String> {
    let cases = if run.study.is_none() { run.cases.as_slice() } else { &[] };
    let mut notes = Vec::new();
    for (case, number) in cases.iter().zip(1..) {
        let name = if run.cases.len() > 1 { format!("Case {number}: ") } else { String::new() };
        let missed = format_missed_frames(&case.figures).filter(|_| is_latency(case));
        let missed = missed.map(|missed| format!("missed frames: {missed}."));
        let late = format_late(&case.figures).filter(|_| is_latency(case));
        let late = late.map(|late| format!("late: {late}."));
        let parts =
            stages_sentence(case).into_iter().chain(one_way_sentence(case)).chain(marks_sentence(case));
        let remarks = port_spread_text(case).into_iter().chain(parts).chain(missed.or(late));
        notes.extend(remarks.map(|note| format!("{name}{note}")));
    }
    if let [case] = cases {
        notes.extend(repetition_notes(case));
    }
    notes
}

/// Explains the figures and the visible columns.
pub(crate) fn figure_notes(run: &Run, shown: &[&str]) -> Vec<String> {
    let any = |wanted: fn(&CaseResult) -> bool| run.cases.iter().any(wanted);
    let shows = |column: &str| shown.contains(&column);
    let notes = [
        (any(has_round_trips), "Latency is the round-trip time, never half of it."),
        (any(is_download), "Times of a download are those of a chunk, from its request to its reply."),
        (shows("line"), "line: time of the message on the line, one way. No round trip is shorter."),
        (any(|case| wait_mode(case) == WaitMode::BusyPoll), "busy-poll: client and server wait by polling."),
        (
            any(|case| is_latency(case) && case.is_paced_by_default()),
            "The default here is 10 requests per second. Try --rate 100, or --rate max.",
        ),
        (
            any(|case| is_latency(case) && case.figures.times.response_ns.is_some()),
            "response: from when the request was due, not from when it was sent.",
        ),
        (
            any(|case| case.figures.delivery.throughput_bps.is_some()),
            "Rates are delivered payload by the receiver's clock, without headers.",
        ),
        (shows("line max"), "line max: the maximum payload rate of the line."),
        (shows("a message"), "a message: time per message, by the receiver's clock."),
        (shows("CPU"), "CPU: CPU use of client + server."),
        (shows(FIT_COLUMN), FIT_NOTE),
        (shows("CPU s/GB"), "CPU s/GB: CPU seconds of client and server per delivered gigabyte (1000 MB)."),
    ];
    let mut notes: Vec<String> =
        notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note.to_owned()).collect();
    let mut bases: Vec<String> =
        run.cases.iter().filter(|case| !case.figures.intervals.is_empty()).map(interval_basis).collect();
    bases.sort();
    bases.dedup();
    if !bases.is_empty() && shows("±") {
        notes.push(format!("±: half of the 95 % interval (its longer side), {}.", bases.join(" or ")));
    }
    if any(has_unreached_percentile) {
        notes.push("lost: too many requests were lost to reach the percentile.".to_owned());
    }
    notes
}

fn has_round_trips(case: &CaseResult) -> bool {
    !is_download(case) && case.figures.times.latency_ns.is_some() || case.under_load.is_some()
}

fn has_unreached_percentile(case: &CaseResult) -> bool {
    let latency = case.figures.times.latency_ns.iter().chain(&case.figures.times.response_ns);
    latency.flat_map(|distribution| distribution.percentiles.values()).any(Option::is_none)
}

/// The difference between the ports of a case.
fn port_spread_text(case: &CaseResult) -> Option<String> {
    let value = |part: &PartResult| match is_latency(case) {
        true => median_ns(part.figures.times.latency_ns.as_ref()).map(|value| value as f64),
        false => part.figures.delivery.throughput_bps,
    };
    let mut ports: Vec<(f64, &str)> =
        case.per_port.iter().filter_map(|part| Some((value(part)?, part.endpoint.as_str()))).collect();
    ports.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [(low, low_port), .., (high, high_port)] = ports[..] else { return None };
    let (what, print, slow): (_, fn(f64) -> String, _) = match is_latency(case) {
        true => ("p50", format_nanoseconds, high_port),
        false => ("rate", format_bit_rate, low_port),
    };
    let without_result = case.per_port.len() - ports.len();
    let without_result =
        if without_result > 0 { format!("; {without_result} without a result") } else { String::new() };
    let even = match (case.port_latency_ratio, case.fairness) {
        (Some(spread), _) => format!(", ratio {spread:.3}"),
        (None, Some(fairness)) => format!(", fairness {fairness:.3}"),
        (None, None) => String::new(),
    };
    Some(format!(
        "over {} ports, {what} from {} to {}{even} (slowest: {}){without_result}.",
        case.per_port.len(),
        print(low),
        print(high),
        shorten(&printable(slow), 40),
    ))
}
