//! Rates: throughput, and workloads of foreign documents.

use serde_json::Value;

use super::{FigureRow, MainFigure, Presentation, format_range};
use crate::report::column::{TableColumn, expendable_column, extra_column, figure_column, optional_column};
use crate::report::wording::{
    ABSENT, brief_rate, brief_time, ce_text, direction_name, format_half_interval, format_loss,
    format_percent, format_percentile, line_limit_bps, loss_text, median_ns,
};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{ByteErrors, CaseResult, MAX_OBSERVED_CONNECTIONS, RETRANSMITS_FACT};
use linkgauge_model::units::{
    format_bit_rate, format_bytes, format_count, format_four_digits, format_nanoseconds,
};
use linkgauge_model::warnings::sends_messages;

pub(crate) const PRESENTATION: Presentation = Presentation {
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
    optional_column("line max"),
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
        confirmed_loss_of(case, Way::Main),
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
        if delivery.lost_reverse.is_some() {
            cells[4] = confirmed_loss_of(case, Way::Reverse);
        }
        rows.push(FigureRow { label: Some("download"), cells });
    }
    rows
}

/// The loss, if both ends have counted.
fn confirmed_loss(case: &CaseResult) -> String {
    if case.is_loss_unconfirmed() { ABSENT.to_owned() } else { format_loss(&case.figures) }
}

/// A direction of a case that may have two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Main,
    Reverse,
}

/// The loss of one direction.
fn confirmed_loss_of(case: &CaseResult, way: Way) -> String {
    let mut figures = case.figures.clone();
    let reverse = figures.delivery.sent_reverse.zip(figures.delivery.lost_reverse);
    let counts = &mut figures.counts;
    match (way, reverse) {
        (Way::Main, None) => return confirmed_loss(case),
        (Way::Reverse, None) => return ABSENT.to_owned(),
        (Way::Main, Some((sent, lost))) => {
            counts.sent = counts.sent.saturating_sub(sent);
            counts.lost = counts.lost.saturating_sub(lost);
        }
        (Way::Reverse, Some((sent, lost))) => (counts.sent, counts.lost) = (sent, lost),
    }
    if case.is_loss_unconfirmed() { ABSENT.to_owned() } else { format_loss(&figures) }
}

pub(crate) fn format_rate(bits_per_second: Option<f64>) -> String {
    bits_per_second.map_or(ABSENT.to_owned(), format_bit_rate)
}

/// Formats the message rate; streams have none.
fn format_message_rate(case: &CaseResult, print: fn(f64) -> String) -> String {
    let rate = case.figures.delivery.messages_per_second.filter(|&rate| rate > 0.0 && sends_messages(case));
    rate.map_or(ABSENT.to_owned(), print)
}

/// CPU shares of client and server: `98+63 %`.
fn format_cpu_shares(case: &CaseResult) -> String {
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    let Some((client, server)) = case.cpu_shares().filter(|_| sends_messages(case)) else {
        return ABSENT.to_owned();
    };
    let server = server.map_or(String::new(), |share| format!("+{}", percent(share)));
    format!("{}{server} %", percent(client))
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
    if let Some(marked) = ce_text(case) {
        text += &format!("; {marked}");
    }
    if let Some(loaded) = loaded_rtt_ns(case) {
        text += &match (idle_rtt_ns(case), lowest_rtt_ns(case)) {
            (Some(idle), _) if loaded > idle => {
                let change = time_change(idle, loaded);
                let ways = added_one_way(case);
                format!("; adds {} of latency (RTT {change}, p50{ways})", brief_time(loaded - idle))
            }
            (Some(idle), _) => format!("; RTT {} under load (p50)", time_change(idle, loaded)),
            (None, Some(lowest)) => format!("; RTT {} under load (lowest, p50)", time_change(lowest, loaded)),
            (None, None) => format!("; RTT under load {} (p50)", brief_time(loaded)),
        };
    } else if case.figures.added_latency.is_some_and(|added| added.is_added_p50_lost) {
        text += "; half of the probes under load were lost";
    }
    text + &drain_text(case)
}

/// A shorter drain needs no words.
const MIN_STATED_DRAIN_NS: u64 = 1_000_000_000;

/// Text such as `; the queue drained for 7.20 s after the last byte was sent`, where it took long.
fn drain_text(case: &CaseResult) -> String {
    let counts = &case.figures.counts;
    let has_rest = !case.failures.is_empty()
        || counts.sent > counts.received.saturating_add(counts.lost + u64::from(case.parallel));
    let end = if has_rest { " and was not empty then" } else { "" };
    let drain = case.figures.delivery.drain_ns.filter(|drain_ns| *drain_ns >= MIN_STATED_DRAIN_NS);
    drain.map_or(String::new(), |drain_ns| {
        format!("; the queue drained for {} after the last byte was sent{end}", brief_time(drain_ns as f64))
    })
}

/// Text such as `; forward 201 ms, reverse 0 s`, where the probe measures both.
fn added_one_way(case: &CaseResult) -> String {
    let added = case.figures.added_latency;
    let ways = added.and_then(|added| added.added_forward_p50_ns.zip(added.added_reverse_p50_ns));
    ways.map_or(String::new(), |(forward, reverse)| {
        format!("; forward {}, reverse {}", brief_time(forward), brief_time(reverse))
    })
}

/// Median round trip of the probe on the idle link.
pub(crate) fn idle_rtt_ns(case: &CaseResult) -> Option<f64> {
    case.figures.added_latency.map(|added| added.idle_p50_ns)
}

/// Median round trip of the probe under load; of several repetitions, their median.
pub(crate) fn loaded_rtt_ns(case: &CaseResult) -> Option<f64> {
    let loaded = case.under_load.as_ref()?;
    let added = case.figures.added_latency.and_then(|added| Some(added.idle_p50_ns + added.added_p50_ns?));
    added.or_else(|| median_ns(loaded.times.latency_ns.as_ref()).map(|median| median as f64))
}

/// The lowest round trip of the probe: that of the link while its queues were empty.
pub(crate) fn lowest_rtt_ns(case: &CaseResult) -> Option<f64> {
    let lowest = case.under_load.as_ref()?.times.latency_ns.as_ref()?.min;
    (lowest > 0).then_some(lowest as f64)
}

/// Change of a time such as `12.1 → 160 ms`: a unit that both values share stands once.
fn time_change(before: f64, after: f64) -> String {
    let (before, after) = (brief_time(before), brief_time(after));
    let unit = |text: &str| text.rsplit(' ').next().map(str::to_owned);
    match before.rsplit_once(' ') {
        Some((number, _)) if unit(&before) == unit(&after) => format!("{number} → {after}"),
        _ => format!("{before} → {after}"),
    }
}

/// Segments that the local system sent again during an upload.
fn upload_retransmits(case: &CaseResult) -> Option<u64> {
    let is_upload = matches!(case.direction, Direction::Send | Direction::Both);
    case.effective.get(RETRANSMITS_FACT).and_then(Value::as_u64).filter(|_| is_upload)
}

/// Segments that the server's system sent again during a download, if it reported all connections.
fn download_retransmits(case: &CaseResult) -> Option<u64> {
    let server = case.evidence.as_ref()?.server.as_ref()?;
    let is_download = matches!(case.direction, Direction::Receive | Direction::Both);
    let is_complete = case.parallel as usize <= MAX_OBSERVED_CONNECTIONS;
    server
        .connections
        .counters
        .get("tcp_retransmitted_segments")
        .copied()
        .filter(|_| is_download && is_complete)
}

/// Whether the link can lose messages: a reliable stream without errors loses nothing.
fn can_lose(case: &CaseResult) -> bool {
    let figures = &case.figures;
    sends_messages(case) || figures.counts.lost > 0 || figures.byte_errors != ByteErrors::default()
}

pub(crate) fn range(cases: &[&CaseResult]) -> Option<String> {
    let rates = cases.iter().flat_map(|case| {
        let delivery = &case.figures.delivery;
        [delivery.throughput_bps, delivery.throughput_reverse_bps].into_iter().flatten()
    });
    format_range(rates, brief_rate)
}

/// Titles of the column of the round trips, by what there is to compare.
pub(crate) const IDLE_AND_LOADED: &str = "RTT idle → loaded (p50)";
pub(crate) const LOWEST_AND_LOADED: &str = "RTT lowest → loaded";
pub(crate) const LOADED: &str = "loaded RTT p50";

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let delivery = &case.figures.delivery;
    let main = match case.direction {
        Direction::Send | Direction::Both => "upload",
        Direction::Receive => "download",
        Direction::Loop => "loop",
    };
    let loaded = case.under_load.as_ref().and_then(|figures| figures.times.latency_ns.as_ref());
    let bytes = |bytes: Option<u64>| bytes.map_or(ABSENT.to_owned(), format_bytes);
    let base = idle_rtt_ns(case).or(lowest_rtt_ns(case)).zip(loaded_rtt_ns(case));
    let round_trip = match base {
        Some((base, loaded)) => time_change(base, loaded),
        None => format_percentile(loaded, "p50"),
    };
    let round_trip_title = match (idle_rtt_ns(case), base) {
        (Some(_), Some(_)) => IDLE_AND_LOADED,
        (None, Some(_)) => LOWEST_AND_LOADED,
        (_, None) => LOADED,
    };
    let recovery = case.figures.added_latency.and_then(|added| added.recovery_ns);
    let retransmits = |segments: Option<u64>| segments.map_or(ABSENT.to_owned(), format_count);
    let sent_again = upload_retransmits(case).or_else(|| {
        // With both directions at once, the download has a separate row.
        download_retransmits(case).filter(|_| case.direction == Direction::Receive)
    });
    let header = [
        "",
        "rate",
        "transferred",
        "loss",
        "retransmits",
        round_trip_title,
        "loaded p99",
        "recovery",
        "of line",
        "line max",
    ];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    table.push(vec![
        main.to_owned(),
        format_rate(delivery.throughput_bps),
        bytes(delivery.delivered_bytes),
        if can_lose(case) { confirmed_loss_of(case, Way::Main) } else { ABSENT.to_owned() },
        retransmits(sent_again),
        round_trip,
        format_percentile(loaded, "p99"),
        recovery.map_or(ABSENT.to_owned(), brief_time),
        delivery.line_rate_percent.map_or(ABSENT.to_owned(), format_percent),
        format_rate(line_limit_bps(case)),
    ]);
    if let Some(reverse) = delivery.throughput_reverse_bps {
        let mut row =
            vec!["download".to_owned(), format_bit_rate(reverse), bytes(delivery.delivered_reverse_bytes)];
        row.extend([confirmed_loss_of(case, Way::Reverse), retransmits(download_retransmits(case))]);
        row.resize(table[0].len(), ABSENT.to_owned());
        table.push(row);
    }
    table
}

/// The answer of cases that differ only in their direction: `upload 93.8 Mbit/s, download 471 Mbit/s; upload adds 148 ms of
/// latency`.
pub(crate) fn directions_answer(cases: &[CaseResult]) -> String {
    let rate = |case: &CaseResult| {
        let name = direction_name(case.direction);
        let delivery = &case.figures.delivery;
        match (delivery.throughput_bps, delivery.throughput_reverse_bps) {
            (Some(up), Some(down)) => format!("{name} {} + {}", brief_rate(up), brief_rate(down)),
            (rate, other) => {
                format!("{name} {}", rate.or(other).map_or("rate unknown".to_owned(), brief_rate))
            }
        }
    };
    let mut text = cases.iter().map(rate).collect::<Vec<_>>().join(", ");
    // A direction that fills the queue at once has no probe of the empty one.
    let lowest = cases.iter().filter_map(lowest_rtt_ns).reduce(f64::min);
    let added =
        |case: &CaseResult| Some((loaded_rtt_ns(case)? - idle_rtt_ns(case).or(lowest)?, case.direction));
    let most = cases.iter().filter_map(added).max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((added, direction)) = most.filter(|(added, _)| *added > 0.0) {
        text += &format!("; {} adds {} of latency", direction_name(direction), brief_time(added));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_its_own_loss() {
        let mut case = crate::report::sample_runs::full().cases.remove(0);
        (case.workload, case.direction) = ("throughput".to_owned(), Direction::Both);
        case.warnings.clear();
        let figures = &mut case.figures;
        (figures.counts.sent, figures.counts.lost, figures.counts.received) = (1000, 40, 960);
        (figures.delivery.throughput_bps, figures.delivery.delivered_bytes) = (Some(1e6), Some(100_000));
        figures.delivery.throughput_reverse_bps = Some(2e6);
        let losses = |case: &CaseResult| [1, 2].map(|row| figure_table(case)[row][3].clone());
        assert_eq!(losses(&case), ["4.00 %", ABSENT], "only the sum is known");
        case.figures.delivery.sent_reverse = Some(400);
        case.figures.delivery.lost_reverse = Some(10);
        assert_eq!(losses(&case), ["5.00 %", "2.50 %"]);
        assert_eq!(rows(&case)[1].cells[4], "2.50 %");
    }
}
