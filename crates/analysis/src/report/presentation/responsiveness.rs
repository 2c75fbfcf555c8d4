//! Responsiveness: round trips idle, beside a load and on its connections, and round trips per minute.

use super::throughput::{format_rate, idle_rtt_ns, loaded_rtt_ns};
use super::{FigureRow, MainFigure, Presentation, format_range};
use crate::report::column::{TableColumn, expendable_column, figure_column, optional_column};
use crate::report::wording::{ABSENT, brief_rate, brief_time, format_percentile, median_ns};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Distribution};
use linkgauge_model::units::{format_count, format_nanoseconds};

pub(crate) const PRESENTATION: Presentation = Presentation {
    workload: "responsiveness",
    main_figure: MainFigure::RoundTrip,
    has_direction: true,
    columns: &COLUMNS,
    rows,
    counted: Some("probes in blocks"),
    subject,
    answer,
    range,
    figure_table,
};

const COLUMNS: [TableColumn; 7] = [
    optional_column("idle p50"),
    optional_column("beside p50"),
    figure_column("own p50"),
    optional_column("own p99"),
    figure_column("goodput"),
    figure_column("RPM"),
    expendable_column("connections"),
];

/// Median round trip on the connections of the load.
fn own_rtt_ns(case: &CaseResult) -> Option<f64> {
    median_ns(case.figures.times.latency_ns.as_ref()).map(|median| median as f64)
}

fn format_rpm(per_minute: Option<f64>) -> String {
    per_minute.map_or(ABSENT.to_owned(), |rpm| format_count(rpm.round() as u64))
}

fn rows(case: &CaseResult) -> Vec<FigureRow> {
    let result = case.figures.responsiveness;
    let time = |ns: Option<f64>| ns.map_or(ABSENT.to_owned(), format_nanoseconds);
    let cells = vec![
        time(idle_rtt_ns(case)),
        time(loaded_rtt_ns(case)),
        time(own_rtt_ns(case)),
        format_percentile(case.figures.times.latency_ns.as_ref(), "p99"),
        format_rate(result.and_then(|result| result.goodput_bps)),
        format_rpm(result.and_then(|result| result.rpm)),
        result.map_or(ABSENT.to_owned(), |result| format_count(result.load_connections)),
    ];
    vec![FigureRow { label: None, cells }]
}

fn subject(case: &CaseResult) -> &'static str {
    match case.direction {
        Direction::Send | Direction::Both => "responsiveness of uploads to",
        Direction::Receive => "responsiveness of downloads from",
        Direction::Loop => "responsiveness through",
    }
}

/// `RTT 20.2 ms idle, 221 ms beside the load, 224 ms on its connections (p50); goodput 4.9 Mbit/s; 271 RPM`.
fn answer(case: &CaseResult) -> String {
    let times = [
        (idle_rtt_ns(case), "idle"),
        (loaded_rtt_ns(case), "beside the load"),
        (own_rtt_ns(case), "on its connections"),
    ];
    let times = times.into_iter().filter_map(|(ns, place)| Some(format!("{} {place}", brief_time(ns?))));
    let times = times.collect::<Vec<String>>().join(", ");
    let mut text = match times.as_str() {
        "" => "no reply".to_owned(),
        times => format!("RTT {times} (p50)"),
    };
    let result = case.figures.responsiveness;
    if let Some(goodput) = result.and_then(|result| result.goodput_bps) {
        text += &format!("; goodput {}", brief_rate(goodput));
    }
    if let Some((rpm, result)) = result.and_then(|result| Some((result.rpm?, result))) {
        let confidence = result.rpm_confidence.min(result.goodput_confidence).name();
        text += &format!("; {} RPM ({confidence} confidence)", format_rpm(Some(rpm)));
    }
    text
}

fn range(cases: &[&CaseResult]) -> Option<String> {
    let results = cases.iter().filter_map(|case| case.figures.responsiveness?.rpm);
    Some(format!("{} RPM", format_range(results, |rpm| format_rpm(Some(rpm)))?))
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let result = case.figures.responsiveness;
    let goodput = format_rate(result.and_then(|result| result.goodput_bps));
    let connections = result.map_or(ABSENT.to_owned(), |result| format_count(result.load_connections));
    let header = ["", "p50", "p90", "p99", "max", "RPM", "goodput", "connections"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    let mut push = |label: &str, times: Option<&Distribution>, last: [String; 3]| {
        let Some(times) = times else { return };
        let mut row = vec![label.to_owned()];
        row.extend(["p50", "p90", "p99"].map(|name| format_percentile(Some(times), name)));
        row.push(format_nanoseconds(times.max as f64));
        row.extend(last);
        table.push(row);
    };
    let absent = || ABSENT.to_owned();
    let times = |figures: &linkgauge_model::run::Figures| figures.times.latency_ns.clone();
    push("idle", case.idle.as_ref().and_then(times).as_ref(), [absent(), absent(), absent()]);
    let foreign = format_rpm(result.and_then(|result| result.foreign_rpm));
    push("beside", case.under_load.as_ref().and_then(times).as_ref(), [foreign, absent(), absent()]);
    let own = format_rpm(result.and_then(|result| result.own_rpm));
    push("in load", case.figures.times.latency_ns.as_ref(), [own, goodput, connections]);
    table
}
