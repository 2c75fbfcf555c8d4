//! Rules of rates, bytes and times: rate × time = bytes, shares from 0 to 100 %.

use super::{CheckedFigures, Contradiction, FigurePlace, LeftOut};
use crate::run::Figures;
use crate::units::{format_bit_rate, format_number};

/// Share by which two clocks may differ, and by which a rate may be rounded.
const MAX_CLOCK_ERROR: f64 = 0.02;

/// Time by which two programs may begin and end apart, in s.
const MAX_TIME_ERROR: f64 = 0.1;

/// Bytes of the first receipt, which took no time: at most one receive for each connection.
const MAX_FIRST_BYTES: f64 = (4 << 20) as f64;

/// An imported rate covers at least this share of the time.
const MIN_TIME_SHARE: f64 = 0.5;

pub(super) fn check(place: &FigurePlace, expected: &CheckedFigures) -> Vec<Contradiction> {
    let Figures { delivery, flows, tcp, .. } = place.figures;
    let mut found = Vec::new();
    let mut add = |suspect, text: String| found.push(Contradiction { suspect, text });
    let ways = [
        (LeftOut::Rate, delivery.throughput_bps, delivery.delivered_bytes),
        (LeftOut::ReverseRate, delivery.throughput_reverse_bps, delivery.delivered_reverse_bytes),
    ];
    for (suspect, rate, bytes) in ways {
        let Some(rate) = rate else { continue };
        if !is_count(rate) {
            add(suspect, format!("a rate of {} bit/s", format_number(rate)));
        } else if let Some((bytes, elapsed_ns)) = bytes.zip(place.elapsed_ns)
            && let Some(text) = wrong_time(rate, bytes, elapsed_ns as f64 / 1e9, expected)
        {
            add(suspect, text);
        }
    }
    if let Some(rate) = delivery.messages_per_second.filter(|rate| !is_count(*rate)) {
        add(LeftOut::MessageRate, format!("{} messages per second", format_number(rate)));
    }
    if let Some(percent) = delivery.line_rate_percent.filter(|percent| !is_count(*percent)) {
        add(LeftOut::LineRate, format!("{} % of the line rate", format_number(percent)));
    }
    if let Some(flows) = flows {
        let means =
            [flows.mean_min_ns, flows.mean_p50_ns, flows.mean_p90_ns, flows.mean_p99_ns, flows.mean_max_ns];
        let means: Vec<f64> = means.into_iter().flatten().collect();
        let is_share = |share: f64| (0.0..=1.0 + 1e-9).contains(&share);
        if !is_share(flows.fairness) || !is_share(flows.min_max_ratio) || !means.is_sorted() {
            add(LeftOut::Flows, "the figures of the connections are not ordered, or no shares".to_owned());
        }
    }
    let percent = tcp.and_then(|tcp| tcp.tcp_efficiency_percent);
    if let Some(percent) = percent.filter(|percent| !(0.0..=100.0).contains(percent)) {
        add(LeftOut::Efficiency, format!("TCP efficiency of {} %", format_number(percent)));
    }
    found
}

fn is_count(value: f64) -> bool {
    value >= 0.0 && value.is_finite()
}

/// Whether the bytes at this rate take another time than there was.
fn wrong_time(rate: f64, bytes: u64, seconds: f64, expected: &CheckedFigures) -> Option<String> {
    let connections = f64::from(expected.case.parallel.max(1)) * f64::from(expected.case.ports.max(1));
    let first = if expected.is_imported { 0.0 } else { (MAX_FIRST_BYTES * connections).min(bytes as f64) };
    let possible = seconds * (1.0 + MAX_CLOCK_ERROR) + MAX_TIME_ERROR;
    let needed = 8.0 * (bytes as f64 - first) / rate;
    let is_too_long = rate > 0.0 && needed > possible || rate == 0.0 && bytes as f64 > first;
    let is_too_short =
        expected.is_imported && bytes > 0 && needed < MIN_TIME_SHARE * seconds - MAX_TIME_ERROR;
    (is_too_long || is_too_short)
        .then(|| format!("{bytes} bytes at {} are not those of {seconds:.3} s", format_bit_rate(rate)))
}
