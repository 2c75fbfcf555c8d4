//! Rates: throughput, and workloads of foreign documents.

use super::{FigureRow, MainFigure, Presentation, format_range};
use crate::plan::Direction;
use crate::report::column::{TableColumn, expendable_column, extra_column, figure_column, optional_column};
use crate::report::wording::{
    ABSENT, brief_rate, brief_time, format_half_interval, format_loss, format_percent, format_percentile,
    line_limit_bps, loss_text, median_ns,
};
use crate::run::{ByteErrors, CaseResult};
use crate::units::{format_bit_rate, format_bytes, format_count, format_four_digits, format_nanoseconds};
use crate::warnings::sends_messages;

pub const PRESENTATION: Presentation = Presentation {
    workload: "throughput",
    main_figure: MainFigure::Rate,
    has_direction: true,
    columns: &COLUMNS,
    rows,
    counted: None,
    subject,
    answer,
    range,
    figure_table,
};

const COLUMNS: [TableColumn; 10] = [
    figure_column("rate"),
    optional_column("limit"),
    optional_column("of line"),
    expendable_column("±"),
    figure_column("loss"),
    extra_column("a message"),
    extra_column("messages/s"),
    extra_column("CPU"),
    extra_column("CPU s/GB"),
    expendable_column("loaded p50"),
];

fn rows(case: &CaseResult) -> Vec<FigureRow> {
    let figures = &case.figures;
    let delivery = &figures.delivery;
    let loaded = case.under_load.as_ref().and_then(|figures| figures.times.latency_ns.as_ref());
    let per_gigabyte = case.cpu.as_ref().and_then(|cpu| cpu.seconds_per_gigabyte);
    let main = vec![
        format_rate(delivery.throughput_bps),
        format_rate(line_limit_bps(case)),
        delivery.line_rate_percent.map_or(ABSENT.to_owned(), format_percent),
        format_half_interval(figures, "throughput_bps", delivery.throughput_bps),
        format_loss(figures),
        format_message_rate(case, |rate| format_nanoseconds(1e9 / rate)),
        format_message_rate(case, |rate| format_count(rate.round() as u64)),
        format_cpu_shares(case),
        per_gigabyte.map_or(ABSENT.to_owned(), format_four_digits),
        format_percentile(loaded, "p50"),
    ];
    let mut rows = vec![FigureRow { label: None, cells: main }];
    if let Some(reverse) = delivery.throughput_reverse_bps {
        let mut cells = vec![String::new(); COLUMNS.len()];
        cells[0] = format_bit_rate(reverse);
        cells[3] = format_half_interval(figures, "throughput_reverse_bps", Some(reverse));
        rows.push(FigureRow { label: Some("download"), cells });
    }
    rows
}

pub fn format_rate(bits_per_second: Option<f64>) -> String {
    bits_per_second.map_or(ABSENT.to_owned(), format_bit_rate)
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

fn subject(case: &CaseResult) -> &'static str {
    match case.direction {
        Direction::Send => "upload to",
        Direction::Receive => "download from",
        Direction::Both => "to",
        Direction::Loop => "loop through",
    }
}

fn answer(case: &CaseResult) -> String {
    let delivery = &case.figures.delivery;
    let mut text = match (delivery.throughput_bps, delivery.throughput_reverse_bps) {
        (Some(upload), Some(download)) => {
            format!("upload {}, download {}", brief_rate(upload), brief_rate(download))
        }
        (None, Some(download)) => format!("download {}, upload unknown", brief_rate(download)),
        (Some(rate), None) => brief_rate(rate),
        (None, None) => "rate unknown".to_owned(),
    };
    if let Some(percent) = delivery.line_rate_percent {
        text += &format!(", {} of the line rate", format_percent(percent));
    }
    if can_lose(case) {
        text += &format!("; {}", loss_text(case));
    }
    let loaded = case.under_load.as_ref().and_then(|figures| median_ns(figures.times.latency_ns.as_ref()));
    if let Some(loaded) = loaded {
        text += &format!("; RTT under load {} (p50)", brief_time(loaded as f64));
    }
    text
}

/// True unless the link is a reliable stream without errors, which loses nothing.
fn can_lose(case: &CaseResult) -> bool {
    let figures = &case.figures;
    sends_messages(case) || figures.counts.lost > 0 || figures.byte_errors != ByteErrors::default()
}

pub fn range(cases: &[&CaseResult]) -> Option<String> {
    let rates = cases.iter().flat_map(|case| {
        let delivery = &case.figures.delivery;
        [delivery.throughput_bps, delivery.throughput_reverse_bps].into_iter().flatten()
    });
    format_range(rates, brief_rate)
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let delivery = &case.figures.delivery;
    let main = match case.direction {
        Direction::Send | Direction::Both => "upload",
        Direction::Receive => "download",
        Direction::Loop => "loop",
    };
    let loaded = case.under_load.as_ref().and_then(|figures| figures.times.latency_ns.as_ref());
    let bytes = |bytes: Option<u64>| bytes.map_or(ABSENT.to_owned(), format_bytes);
    let header = ["", "rate", "transferred", "loss", "loaded RTT p50", "loaded RTT p99", "of line", "limit"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    table.push(vec![
        main.to_owned(),
        format_rate(delivery.throughput_bps),
        bytes(delivery.delivered_bytes),
        if can_lose(case) { format_loss(&case.figures) } else { ABSENT.to_owned() },
        format_percentile(loaded, "p50"),
        format_percentile(loaded, "p99"),
        delivery.line_rate_percent.map_or(ABSENT.to_owned(), format_percent),
        format_rate(line_limit_bps(case)),
    ]);
    if let Some(reverse) = delivery.throughput_reverse_bps {
        let mut row =
            vec!["download".to_owned(), format_bit_rate(reverse), bytes(delivery.delivered_reverse_bytes)];
        row.resize(table[0].len(), ABSENT.to_owned());
        table.push(row);
    }
    table
}
