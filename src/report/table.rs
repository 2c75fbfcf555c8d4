//! The table of a workload: its columns and cells. Text and HTML show the same one.
//!
//! Widths, borders and colours are set elsewhere.

use std::collections::BTreeMap;

use serde_json::Value;

use super::wording::{
    ABSENT, format_half_interval, format_loss, format_percent, format_percentile, line_limit_bps,
    line_time_ns, median_ns, wait_mode,
};
use crate::run::{CaseResult, Distribution, Run};
use crate::units::{format_bit_rate, format_bytes, format_count, format_nanoseconds};
use crate::warnings::sends_messages;

/// All cases of one workload. Cases on serial lines have a separate table with figures relative to the line.
#[derive(Clone)]
pub struct ReportTable {
    pub workload: String,
    pub on_serial_lines: bool,
    pub columns: Vec<TableColumn>,
    pub rows: Vec<TableRow>,
}

#[derive(Clone, Copy)]
pub struct TableColumn {
    pub title: &'static str,
    pub kind: ColumnKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// A property of the case. If all cases agree, it may move to the heading: `unit` names it there.
    Case { before: &'static str, after: &'static str, usual: &'static str },
    /// A result.
    Figure,
    /// A result of few cases. The column is omitted if empty.
    Optional,
    /// The same, and it may be removed to make room.
    Expendable,
    /// The same, and it is removed first: it is then printed below the table.
    Detail,
}

#[derive(Clone)]
pub struct TableRow {
    /// Index in the run, from 1.
    pub case: usize,
    pub endpoint: String,
    /// Further properties of the case, after its endpoint: `, peer echo`.
    pub details: String,
    /// Kind of figures, unless they are the case's main figures.
    pub secondary: Option<&'static str>,
    /// One per column.
    pub cells: Vec<String>,
}

const fn case_column(
    title: &'static str,
    before: &'static str,
    after: &'static str,
    usual: &'static str,
) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Case { before, after, usual } }
}

const fn figure_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Figure }
}

const fn optional_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Optional }
}

const fn expendable_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Expendable }
}

const fn detail_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Detail }
}

const CASE_COLUMNS: [TableColumn; 7] = [
    case_column("peer", "peer ", "", ""),
    case_column("way", "direction ", "", "loop"),
    case_column("size", "", " messages", ""),
    case_column("ports", "", " ports at once", "1"),
    case_column("links", "", " connections each", "1"),
    case_column("wait", "", "", "block"),
    case_column("CPUs", "CPUs ", "", "any"),
];
const LATENCY_COLUMNS: [TableColumn; 10] = [
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
const THROUGHPUT_COLUMNS: [TableColumn; 10] = [
    figure_column("rate"),
    optional_column("limit"),
    optional_column("of line"),
    expendable_column("±"),
    figure_column("loss"),
    expendable_column("a message"),
    expendable_column("messages/s"),
    expendable_column("CPU"),
    expendable_column("CPU s/GB"),
    expendable_column("loaded p50"),
];

const DOWNLOAD_COLUMNS: [TableColumn; 10] = [
    case_column("window", "window ", "", "1"),
    figure_column("rate"),
    optional_column("of line"),
    figure_column("p50"),
    optional_column("p99"),
    figure_column("max"),
    figure_column("round trips"),
    optional_column("again"),
    optional_column("records"),
    optional_column("missing"),
];

pub fn is_latency(case: &CaseResult) -> bool {
    case.workload == "latency"
}

/// True for downloads by request and reply, whose round trips are shown beside the rate.
pub fn is_download(case: &CaseResult) -> bool {
    case.figures.requests.is_some()
}

/// One or two tables per workload, in the order of first appearance. Cases that an interrupted run did not reach are
/// omitted.
pub fn build_tables(run: &Run) -> Vec<ReportTable> {
    let mut tables: Vec<ReportTable> = Vec::new();
    for (index, case) in
        run.cases.iter().enumerate().filter(|(_, case)| !run.interrupted || case.figures.has_measurements())
    {
        let figures = match case.workload.as_str() {
            "latency" => LATENCY_COLUMNS.as_slice(),
            "download" => DOWNLOAD_COLUMNS.as_slice(),
            _ => THROUGHPUT_COLUMNS.as_slice(),
        };
        let on_lines = !case.line.is_empty();
        let fits = |table: &ReportTable| table.workload == case.workload && table.on_serial_lines == on_lines;
        let position = tables.iter().position(fits).unwrap_or_else(|| {
            let columns = [CASE_COLUMNS.as_slice(), figures].concat();
            tables.push(ReportTable {
                workload: case.workload.clone(),
                on_serial_lines: on_lines,
                columns,
                rows: Vec::new(),
            });
            tables.len() - 1
        });
        tables[position].add_case(index + 1, case);
    }
    tables
}

/// Empty if unknown: files of other programs do not always report it.
fn format_size(case: &CaseResult) -> String {
    if case.message_bytes == 0 { String::new() } else { format_bytes(case.message_bytes.into()) }
}

impl ReportTable {
    /// The quantity that its cases measure.
    pub fn title(&self) -> String {
        let mut letters = self.workload.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
        let over = if self.on_serial_lines { " over lines" } else { "" };
        format!("{first}{}{over}", letters.as_str())
    }

    fn add_case(&mut self, number: usize, case: &CaseResult) {
        let what = [
            case.peer.clone(),
            if case.workload == "download" { String::new() } else { case.direction.name().to_owned() },
            format_size(case),
            case.ports.to_string(),
            case.parallel.to_string(),
            wait_mode(case).to_owned(),
            format_cpus(case),
        ];
        let figures = &case.figures;
        if is_latency(case) {
            let median = median_ns(figures.times.latency_ns.as_ref()).map(|value| value as f64);
            let latency = latency_cells(
                figures.times.latency_ns.as_ref(),
                format_half_interval(figures, "latency_ns.p50", median),
            );
            let main = [format_line_time(case)]
                .into_iter()
                .chain(latency)
                .chain([format_count(figures.counts.lost)]);
            self.push_row(number, case, None, what.into_iter().chain(main));
            if let Some(response) = &figures.times.response_ns {
                let blank = CASE_COLUMNS.map(|_| String::new());
                let response = latency_cells(Some(response), String::new());
                self.push_row(
                    number,
                    case,
                    Some("response"),
                    blank.into_iter().chain([String::new()]).chain(response).chain([String::new()]),
                );
            }
            return;
        }
        if case.workload == "download" {
            let [_, _, p50, _, _, p99, max, _] =
                latency_cells(figures.times.latency_ns.as_ref(), String::new());
            let counted = |count: Option<u64>| count.map_or(ABSENT.to_owned(), format_count);
            let requests = figures.requests.as_ref();
            let records = figures.records.as_ref();
            let window = case.asked.get("peer_options").and_then(|options| options.get("window"));
            let main = [
                window.and_then(Value::as_str).unwrap_or("1").to_owned(),
                format_rate(figures.delivery.throughput_bps),
                figures.delivery.line_rate_percent.map_or(ABSENT.to_owned(), format_percent),
                p50,
                p99,
                max,
                counted(requests.map(|requests| requests.round_trips)),
                counted(requests.map(|requests| requests.retransmissions).filter(|&again| again > 0)),
                counted(records.map(|records| records.received)),
                counted(records.map(|records| records.missing).filter(|&missing| missing > 0)),
            ];
            return self.push_row(number, case, None, what.into_iter().chain(main));
        }
        let loaded = case.under_load.as_ref().and_then(|figures| figures.times.latency_ns.as_ref());
        let per_gigabyte = case.cpu.as_ref().and_then(|cpu| cpu.seconds_per_gigabyte);
        let main = [
            format_rate(figures.delivery.throughput_bps),
            format_rate(line_limit_bps(case)),
            figures.delivery.line_rate_percent.map_or(ABSENT.to_owned(), format_percent),
            format_half_interval(figures, "throughput_bps", figures.delivery.throughput_bps),
            format_loss(figures),
            format_message_rate(case, |rate| format_nanoseconds(1e9 / rate)),
            format_message_rate(case, |rate| format_count(rate.round() as u64)),
            format_cpu_shares(case),
            per_gigabyte.map_or(ABSENT.to_owned(), |seconds| format!("{seconds:.3}")),
            format_percentile(loaded, "p50"),
        ];
        self.push_row(number, case, None, what.into_iter().chain(main));
        if let Some(back) = figures.delivery.throughput_back_bps {
            let mut cells = vec![String::new(); self.columns.len()];
            cells[CASE_COLUMNS.len()] = format_bit_rate(back);
            cells[CASE_COLUMNS.len() + 3] = format_half_interval(figures, "throughput_back_bps", Some(back));
            self.push_row(number, case, Some("other way"), cells);
        }
    }

    fn push_row(
        &mut self,
        case: usize,
        result: &CaseResult,
        also: Option<&'static str>,
        cells: impl IntoIterator<Item = String>,
    ) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(TableRow {
            case,
            endpoint: result.endpoint.clone(),
            details: String::new(),
            secondary: also,
            cells,
        });
    }

    /// Moves values that all cases share to the heading. Removes those columns and empty ones.
    pub fn take_common_values(&mut self) -> Vec<String> {
        let mut common = Vec::new();
        let mut keep = vec![true; self.columns.len()];
        for (index, column) in self.columns.iter().enumerate() {
            let cells = self.rows.iter().filter(|row| row.secondary.is_none()).map(|row| &row.cells[index]);
            match column.kind {
                ColumnKind::Figure => {}
                ColumnKind::Optional | ColumnKind::Expendable | ColumnKind::Detail => {
                    keep[index] = !self.is_column_empty(index)
                }
                ColumnKind::Case { before, after, usual } => {
                    // A case without a value does not disagree.
                    let mut cells = cells.filter(|cell| !cell.is_empty());
                    let first = cells.next().map_or(usual, String::as_str);
                    if cells.all(|cell| cell == first) {
                        keep[index] = false;
                        if first != usual {
                            common.push(format!("{before}{first}{after}"));
                        }
                    }
                }
            }
        }
        self.retain_columns(&keep);
        common
    }

    /// Moves distinguishing properties next to the endpoint, except the size, because a sweep reads best as a column.
    /// Returns the values that nearly all cases share, for the heading. Only the other cases show their own.
    pub fn move_columns_to_names(&mut self) -> Vec<String> {
        let keep: Vec<bool> = self
            .columns
            .iter()
            .map(|c| c.title == "size" || !matches!(c.kind, ColumnKind::Case { .. }))
            .collect();
        for index in 1..self.rows.len() {
            // A secondary row has no such cells.
            if self.rows[index].secondary.is_some() {
                for column in (0..keep.len()).filter(|column| !keep[*column]) {
                    self.rows[index].cells[column] = self.rows[index - 1].cells[column].clone();
                }
            }
        }
        let mut common = Vec::new();
        for (index, column) in self.columns.iter().enumerate().filter(|(index, _)| !keep[*index]) {
            let ColumnKind::Case { before, after, usual } = column.kind else { continue };
            let most = common_value(self.rows.iter().map(|row| row.cells[index].as_str()));
            let silent = most.map_or(usual.to_owned(), |most| {
                if most != usual {
                    common.push(format!("{before}{most}{after}"));
                }
                most.to_owned()
            });
            for row in &mut self.rows {
                if ![&silent, ""].contains(&row.cells[index].as_str()) {
                    row.details += &format!(", {before}{}{after}", row.cells[index]);
                }
            }
        }
        self.retain_columns(&keep);
        common
    }

    /// Removes all detail columns. Returns false if there are none.
    pub fn drop_detail_columns(&mut self) -> bool {
        let keep: Vec<bool> = self.columns.iter().map(|column| column.kind != ColumnKind::Detail).collect();
        self.retain_columns(&keep);
        keep.contains(&false)
    }

    /// Removes the detail columns, or else the last expendable column. Returns false if there is none.
    pub fn drop_expendable_column(&mut self) -> bool {
        if self.drop_detail_columns() {
            return true;
        }
        let Some(last) = self.columns.iter().rposition(|column| column.kind == ColumnKind::Expendable) else {
            return false;
        };
        let keep: Vec<bool> = (0..self.columns.len()).map(|column| column != last).collect();
        self.retain_columns(&keep);
        true
    }

    fn is_column_empty(&self, index: usize) -> bool {
        self.rows.iter().all(|row| row.cells[index].is_empty() || row.cells[index] == ABSENT)
    }

    fn retain_columns(&mut self, keep: &[bool]) {
        let mut keep_column = keep.iter();
        self.columns.retain(|_| *keep_column.next().expect("one a column"));
        for row in &mut self.rows {
            let mut keep_column = keep.iter();
            row.cells.retain(|_| *keep_column.next().expect("one a column"));
        }
    }
}

/// The value of at least three in four cells.
fn common_value<'a>(cells: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    cells.for_each(|cell| *counts.entry(cell).or_default() += 1);
    let all: usize = counts.values().sum();
    counts.into_iter().find(|(_, count)| 4 * count >= 3 * all).map(|(cell, _)| cell)
}

/// The CPUs of client and server, in the form of `--pin`. Empty if one thread does both.
fn format_cpus(case: &CaseResult) -> String {
    if case.got.get("threads").and_then(Value::as_u64) == Some(1) {
        return String::new();
    }
    let cpu = |name: &str| case.placement.get(name).and_then(Value::as_u64).map(|cpu| cpu.to_string());
    match (cpu("near_cpu"), cpu("far_cpu")) {
        (None, None) => "any".to_owned(),
        (client, server) => [client, server].map(|cpu| cpu.unwrap_or_else(|| "any".to_owned())).join(","),
    }
}

/// Time of the message on the line.
fn format_line_time(case: &CaseResult) -> String {
    line_time_ns(case).map_or(ABSENT.to_owned(), format_nanoseconds)
}

/// From `min` to `sd`, in column order.
fn latency_cells(distribution: Option<&Distribution>, plus_minus: String) -> [String; 8] {
    let of = |get: fn(&Distribution) -> f64| {
        distribution.map_or(ABSENT.to_owned(), |times| format_nanoseconds(get(times)))
    };
    let p = |name| format_percentile(distribution, name);
    let (min, mean) = (of(|times| times.min as f64), of(|times| times.mean));
    let (max, deviation) = (of(|times| times.max as f64), of(|times| times.standard_deviation));
    [min, mean, p("p50"), plus_minus, p("p90"), p("p99"), max, deviation]
}

/// For message rates; streams have none.
fn format_message_rate(case: &CaseResult, print: fn(f64) -> String) -> String {
    let rate = case.figures.delivery.messages_per_second.filter(|&rate| rate > 0.0 && sends_messages(case));
    rate.map_or(ABSENT.to_owned(), print)
}

/// Of client and server: `98+63 %`.
fn format_cpu_shares(case: &CaseResult) -> String {
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    let Some((client, server)) = case.cpu_shares().filter(|_| sends_messages(case)) else {
        return ABSENT.to_owned();
    };
    let server = server.map_or(ABSENT.to_owned(), percent);
    format!("{}+{server} %", percent(client))
}

fn format_rate(bits_per_second: Option<f64>) -> String {
    bits_per_second.map_or(ABSENT.to_owned(), format_bit_rate)
}
