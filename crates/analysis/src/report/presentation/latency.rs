//! Round-trip times: latency.

use super::{FigureRow, MainFigure, Presentation, format_range};
use crate::report::column::{TableColumn, detail_column, expendable_column, figure_column, optional_column};
use crate::report::wording::{
    ABSENT, LOSS_UNKNOWN, brief_time, ce_text, format_deviation, format_half_interval, format_loss_count,
    format_mean, format_percentile, format_time_of, line_time_ns, loss_text, median_ns,
};
use linkgauge_model::run::{CaseResult, ConnectionCounts, Distribution, Figures};
use linkgauge_model::units::{format_count, format_nanoseconds, format_plural};

pub(crate) const PRESENTATION: Presentation = Presentation {
    workload: "latency",
    main_figure: MainFigure::RoundTrip,
    has_direction: false,
    columns: &COLUMNS,
    rows,
    counted: Some("requests"),
    subject: |_| "round trip to",
    answer,
    range,
    figure_table,
};

const COLUMNS: [TableColumn; 10] = [
    optional_column("line"),
    detail_column("min"),
    detail_column("mean"),
    figure_column("p50"),
    expendable_column("±"),
    optional_column("p90"),
    optional_column("p99"),
    figure_column("max"),
    detail_column("sd"),
    figure_column("lost"),
];

fn rows(case: &CaseResult) -> Vec<FigureRow> {
    let figures = &case.figures;
    let times = figures.times.latency_ns.as_ref();
    let median = median_ns(times).map(|value| value as f64);
    let interval = format_half_interval(figures, "latency_ns.p50", median);
    let mut main = vec![line_time_ns(case).map_or(ABSENT.to_owned(), format_nanoseconds)];
    main.extend(time_cells(times, interval));
    let lost = figures.counts.known_lost().filter(|_| figures.has_measurements());
    main.push(lost.map_or(ABSENT.to_owned(), format_count));
    let mut rows = vec![FigureRow { label: None, cells: main }];
    let further = [("response", &figures.times.response_ns), ("connect", &figures.times.connect_ns)];
    for (label, times) in further {
        let Some(times) = times else { continue };
        let mut cells = vec![String::new()];
        cells.extend(time_cells(Some(times), String::new()));
        let failed = figures.connections.filter(|_| label == "connect");
        cells.push(failed.map_or(String::new(), |counts| format_count(counts.failed_connections)));
        rows.push(FigureRow { label: Some(label), cells });
    }
    rows
}

/// Cells from `min` to `sd`, in column order.
pub(crate) fn time_cells(distribution: Option<&Distribution>, plus_minus: String) -> [String; 8] {
    let of = |format: fn(&Distribution) -> String| distribution.map_or(ABSENT.to_owned(), format);
    let p = |name| format_percentile(distribution, name);
    let min = of(|times| format_time_of(times, times.min, format_nanoseconds));
    let max = of(|times| format_time_of(times, times.max, format_nanoseconds));
    let (mean, deviation) =
        (of(|times| format_mean(times, times.mean, format_nanoseconds)), of(format_deviation));
    [min, mean, p("p50"), plus_minus, p("p90"), p("p99"), max, deviation]
}

fn answer(case: &CaseResult) -> String {
    let Some(times) = &case.figures.times.latency_ns else {
        let replies = if case.figures.counts.received > 0 { "no times" } else { "no reply" };
        return format!("{replies}; {}", loss_text(case));
    };
    let mut text = median_and_tail(times);
    let above = line_time_ns(case).zip(median_ns(Some(times))).map(|(line, median)| median as f64 - line);
    if let Some(above) = above.filter(|above| *above > 0.0) {
        text += &format!(", {} above the line's minimum", brief_time(above));
    }
    text += &format!("; {}", loss_text(case));
    if let Some(counts) = &case.figures.connections {
        text += &format!("; {}", connections_text(case, counts));
    }
    if let Some(marked) = ce_text(case) {
        text += &format!("; {marked}");
    }
    text
}

/// Text such as `1,200 further connections, 240/s, 31.2 µs median to open`.
fn connections_text(case: &CaseResult, counts: &ConnectionCounts) -> String {
    let mut text = format_plural(counts.connections, "further connection");
    if let Some(replies) = case.figures.delivery.messages_per_second.filter(|_| counts.connections > 0) {
        let rate = replies * counts.connections as f64 / case.figures.counts.received.max(1) as f64;
        text += &format!(", {}", format_per_second(rate));
    }
    if let Some(median) = median_ns(case.figures.times.connect_ns.as_ref()) {
        text += &format!(", {} median to open", brief_time(median as f64));
    }
    if counts.failed_connections > 0 {
        text += &format!(", {} not opened in time", format_count(counts.failed_connections));
    }
    text
}

/// A number of events per second: `240/s`, `3.20/s`.
pub(crate) fn format_per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.2}/s") } else { format!("{}/s", format_count(rate.round() as u64)) }
}

/// Text such as `13.6 µs median, 59.5 µs p99`. With few samples the maximum stands for the percentile.
pub(crate) fn median_and_tail(times: &Distribution) -> String {
    let median = match times.percentiles.get("p50") {
        Some(Some(median)) => format!("{} median", format_time_of(times, *median, brief_time)),
        Some(None) => "median not reached".to_owned(),
        None => format!("{} mean", format_mean(times, times.mean, brief_time)),
    };
    let tail = match times.percentiles.get("p99") {
        Some(Some(p99)) => format!("{} p99", format_time_of(times, *p99, brief_time)),
        Some(None) => "p99 not reached".to_owned(),
        None => format!("{} max", format_time_of(times, times.max, brief_time)),
    };
    format!("{median}, {tail}")
}

fn range(cases: &[&CaseResult]) -> Option<String> {
    let is_measured = |case: &&&CaseResult| case.figures.has_measurements();
    if !cases.iter().any(|case| is_measured(&case)) {
        return None;
    }
    let medians = cases.iter().filter_map(|case| median_ns(case.figures.times.latency_ns.as_ref()));
    let range = format_range(medians.map(|median| median as f64), brief_time);
    let lowest = cases.iter().filter_map(|case| case.figures.times.latency_ns.as_ref());
    let lowest = lowest.min_by_key(|times| times.percentile("p50").unwrap_or(u64::MAX));
    let is_limit =
        lowest.is_some_and(|times| times.below_ns.is_some() && times.below_ns >= times.percentile("p50"));
    let range = range.map(|range| if is_limit { format!("≤ {range}") } else { range });
    let range = match (range, cases.iter().any(|case| is_median_lost(case))) {
        (Some(range), false) => range,
        (Some(range), true) => format!("{range} to lost"),
        (None, true) => "lost".to_owned(),
        (None, false) => "unknown".to_owned(),
    };
    let count =
        |get: fn(&Figures) -> u64| cases.iter().map(|case| get(&case.figures)).fold(0, u64::saturating_add);
    let (sent, lost) = (count(|figures| figures.counts.sent), count(|figures| figures.counts.lost));
    let is_known = cases.iter().all(|case| !case.figures.counts.losses_unknown);
    let loss = if is_known { format_loss_count(lost, sent) } else { LOSS_UNKNOWN.to_owned() };
    let without_result = cases.iter().filter(|case| !is_measured(case)).count();
    let unmeasured = match without_result {
        0 => String::new(),
        count => format!(", {} without a result", format_plural(count as u64, "case")),
    };
    Some(format!("p50 {range}, {loss}{unmeasured}"))
}

/// Whether the median falls among the lost requests.
fn is_median_lost(case: &CaseResult) -> bool {
    let counts = &case.figures.counts;
    match &case.figures.times.latency_ns {
        Some(times) => times.percentiles.get("p50") == Some(&None),
        None => counts.sent > 0 && counts.received == 0 && !counts.losses_unknown,
    }
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let line = line_time_ns(case).map(format_nanoseconds).into_iter();
    let names = ["min", "p50", "mean", "p90", "p99", "max", "sd"];
    let cells = |times: &Distribution| {
        let [min, mean, p50, _, p90, p99, max, deviation] = time_cells(Some(times), String::new());
        [min, p50, mean, p90, p99, max, deviation]
    };
    let times = &case.figures.times;
    let rows = [("RTT", &times.latency_ns), ("response", &times.response_ns), ("connect", &times.connect_ns)];
    let mut table =
        vec![[""].into_iter().chain(names).chain(line.clone().map(|_| "line")).map(str::to_owned).collect()];
    for (label, times) in rows {
        let Some(times) = times else { continue };
        let label = [label.to_owned()].into_iter();
        table.push(label.chain(cells(times)).chain(line.clone()).collect());
    }
    let stages = case.figures.stages.as_ref().map(|stages| stages.parts()).unwrap_or_default();
    for (name, times) in stages {
        let Some(times) = times else { continue };
        let label = [name.to_owned()].into_iter();
        table.push(label.chain(cells(times)).chain(line.clone().map(|_| String::new())).collect());
    }
    table
}
