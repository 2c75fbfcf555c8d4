//! The overview of a run over many links: one row per kind of link.

use std::io;

use anstyle::Style;

use super::{BOLD, INDENT, MIN_COLUMNS, TextReport};
use crate::endpoint::Endpoint;
use crate::plan::WaitMode;
use crate::report::ReportOptions;
use crate::report::presentation::is_latency;
use crate::report::wording::{
    ABSENT, brief_rate, brief_time, format_elapsed, plural, printable, to_ascii, wait_mode,
};
use crate::run::{CaseResult, Run};

/// The best results of a kind of link.
struct LinkKind {
    name: String,
    p50: Option<u64>,
    p99: Option<u64>,
    busy_poll_p50: Option<u64>,
    rate_bps: Option<f64>,
}

/// Writes one row per kind of link, below the figures of the first one.
///
/// # Errors
/// If the sink fails.
pub fn write_overview(run: &Run, options: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let mut report =
        TextReport { options: *options, width: options.width.max(MIN_COLUMNS), out: String::new() };
    let kinds = link_kinds(run);
    report.push_paragraph(&overview_answer(run, &kinds), BOLD, "", INDENT);
    let time = |time: Option<u64>| time.map_or(ABSENT.to_owned(), |time| brief_time(time as f64));
    let header = ["link", "RTT p50", "RTT p99", "busy-poll p50", "rate"].map(str::to_owned);
    let row = |kind: &LinkKind| {
        let rate = kind.rate_bps.map_or(ABSENT.to_owned(), brief_rate);
        [kind.name.clone(), time(kind.p50), time(kind.p99), time(kind.busy_poll_p50), rate]
    };
    let rows: Vec<[String; 5]> = [header].into_iter().chain(kinds.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for (index, row) in rows.iter().enumerate() {
        let mut line = format!("{INDENT}{:1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            line += &format!("  {cell:>width$}");
        }
        report.push_line(&line, if index == 0 { BOLD } else { Style::new() });
    }
    let text = if options.unicode { report.out } else { to_ascii(&report.out) };
    out.write_all(text.as_bytes())
}

/// The number of links, and the figures of the first one.
fn overview_answer(run: &Run, kinds: &[LinkKind]) -> String {
    let measured = format!("{} measured in {}", plural(kinds.len(), "link"), format_elapsed(run));
    let Some(first) = kinds.first() else { return format!("{measured}.") };
    let time =
        first.p50.or(first.busy_poll_p50).map(|time| format!("{} round trip", brief_time(time as f64)));
    let figures: Vec<String> = time.into_iter().chain(first.rate_bps.map(brief_rate)).collect();
    format!("{measured}; {}: {}.", first.name, figures.join(", "))
}

/// In the order of their first case. Links without results are omitted.
fn link_kinds(run: &Run) -> Vec<LinkKind> {
    let mut kinds: Vec<LinkKind> = Vec::new();
    for case in run.cases.iter().filter(|case| case.figures.has_measurements()) {
        let name = kind_name(case);
        let index = kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
            kinds.push(LinkKind { name, p50: None, p99: None, busy_poll_p50: None, rate_bps: None });
            kinds.len() - 1
        });
        add_case(&mut kinds[index], case);
    }
    kinds
}

/// The first latency, and the highest rate.
fn add_case(kind: &mut LinkKind, case: &CaseResult) {
    let times = case.figures.times.latency_ns.as_ref();
    let percentile = |name| times.and_then(|times| times.percentile(name));
    match (is_latency(case), wait_mode(case)) {
        (true, WaitMode::Block) if kind.p50.is_none() => {
            (kind.p50, kind.p99) = (percentile("p50"), percentile("p99"))
        }
        (true, WaitMode::Block) => {}
        (true, _) => kind.busy_poll_p50 = kind.busy_poll_p50.or(percentile("p50")),
        (false, _) => {
            let rate = case.figures.delivery.throughput_bps;
            kind.rate_bps = kind.rate_bps.into_iter().chain(rate).reduce(f64::max);
        }
    }
}

/// `tcp`, `unix dgram`, `serial 9600 bit/s`.
fn kind_name(case: &CaseResult) -> String {
    let Ok(endpoint) = case.endpoint.parse::<Endpoint>() else { return printable(&case.endpoint) };
    let mut name = endpoint.scheme().to_owned();
    if let Some(kind) = endpoint.option("type") {
        name += &format!(" {}", printable(kind));
    }
    if let Some(rate) = endpoint.option("baud") {
        name += &format!(" {} bit/s", printable(rate));
    }
    if case.protocol != "linkgauge" && case.figures.requests.is_some() {
        name += &format!(" {}", printable(&case.protocol));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn one_row_per_kind_of_link() {
        let mut run = sample_runs::full();
        run.cases.extend(sample_runs::serial_line().cases);
        run.cases.extend(sample_runs::download().cases);
        run.cases[1].endpoint = "unix:///run/a?type=dgram".to_owned();
        run.cases[1].placement.wait = Some(WaitMode::BusyPoll);
        let mut out = Vec::new();
        write_overview(&run, &ReportOptions::default(), &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        5 links measured in 42.1 s; tcp: 13.8 µs round trip, 41.3 Gbit/s.
          link               RTT p50  RTT p99  busy-poll p50         rate
          tcp                13.8 µs  23.4 µs              –  41.3 Gbit/s
          unix dgram               –        –        2.22 ms            –
          udp                 893 µs        –              –            –
          serial 9600 bit/s        –        –              –  29.0 kbit/s
          tcp pakbus               –        –              –  4.93 kbit/s
        ");
    }
}
