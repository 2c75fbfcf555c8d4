//! Downloads by request and reply: the rate, and the round trip of each chunk.

use serde_json::Value;

use super::latency::{median_and_tail, time_cells};
use super::throughput::{format_rate, range};
use super::{FigureRow, MainFigure, Presentation};
use crate::report::column::{TableColumn, case_column, figure_column, optional_column};
use crate::report::wording::{ABSENT, brief_rate, format_percent};
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::{format_bytes, format_count};

pub(crate) const PRESENTATION: Presentation = Presentation {
    workload: "download",
    main_figure: MainFigure::Rate,
    has_direction: false,
    columns: &COLUMNS,
    rows,
    counted: Some("chunks"),
    subject: |_| "download from",
    answer,
    range,
    figure_table,
};

const COLUMNS: [TableColumn; 10] = [
    case_column("window", "window ", "", "1"),
    figure_column("rate"),
    optional_column("of line"),
    figure_column("p50"),
    optional_column("p99"),
    figure_column("max"),
    figure_column("chunks"),
    optional_column("resent"),
    optional_column("records"),
    optional_column("missing"),
];

fn rows(case: &CaseResult) -> Vec<FigureRow> {
    vec![FigureRow { label: None, cells: cells(case).to_vec() }]
}

fn cells(case: &CaseResult) -> [String; 10] {
    let figures = &case.figures;
    let [_, _, p50, _, _, p99, max, _] = time_cells(figures.times.latency_ns.as_ref(), String::new());
    let count = |count: Option<u64>| count.map_or(ABSENT.to_owned(), format_count);
    let window = case.requested.get("protocol_options").and_then(|options| options.get("window"));
    let (requests, records) = (figures.requests.as_ref(), figures.records.as_ref());
    [
        window.and_then(Value::as_str).unwrap_or("1").to_owned(),
        format_rate(figures.delivery.throughput_bps),
        figures.delivery.line_rate_percent.map_or(ABSENT.to_owned(), format_percent),
        p50,
        p99,
        max,
        count(requests.map(|requests| requests.round_trips)),
        count(requests.map(|requests| requests.retransmissions).filter(|&again| again > 0)),
        count(records.map(|records| records.received)),
        count(records.map(|records| records.missing).filter(|&missing| missing > 0)),
    ]
}

fn answer(case: &CaseResult) -> String {
    let rate = case.figures.delivery.throughput_bps.map_or("rate unknown".to_owned(), brief_rate);
    let chunks = case.figures.times.latency_ns.as_ref();
    let chunks = chunks.map_or(String::new(), |times| format!("; chunk {}", median_and_tail(times)));
    format!("{rate}{chunks}")
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let [_, rate, of_line, p50, p99, max, round_trips, repeated, records, missing] = cells(case);
    let transferred = case.figures.delivery.delivered_bytes.map_or(ABSENT.to_owned(), format_bytes);
    let columns = [
        ("", "download".to_owned()),
        ("rate", rate),
        ("transferred", transferred),
        ("of line", of_line),
        ("chunk p50", p50),
        ("p99", p99),
        ("max", max),
        ("chunks", round_trips),
        ("resent", repeated),
        ("records", records),
        ("missing", missing),
    ];
    let (header, cells): (Vec<&str>, Vec<String>) = columns.into_iter().unzip();
    vec![header.into_iter().map(str::to_owned).collect(), cells]
}
