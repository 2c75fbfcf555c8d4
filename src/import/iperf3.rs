//! The JSON of iperf3 (`iperf3 --json`), version 3: rates, volumes, losses and CPU time. It holds no samples, so there is
//! no latency; its jitter is another quantity than ours (smoothed, one way) and is left out.

use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{About, Foreign, FormatIn, Found, ImportError, case, form};
use crate::plan::Direction;
use crate::run::{CaseResult, CpuUse, Figures, SeriesEntry};

pub const FORMAT: FormatIn = FormatIn { name: "iperf3", summary: "results of iperf3 --json", read };

/// Days with some streams; it is held in memory as a whole.
const MOST_BYTES: u64 = 128 << 20;
/// A hundred years; longer took nothing.
const MOST_SECONDS: f64 = 3.2e9;

#[derive(Deserialize)]
struct Document {
    start: Option<Start>,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: Option<End>,
    error: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Start {
    version: String,
    timestamp: Stamp,
    connecting_to: Option<Host>,
    accepted_connection: Option<Host>,
    test_start: Test,
    tcp_mss_default: Option<u64>,
    sndbuf_actual: Option<u64>,
    rcvbuf_actual: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stamp {
    timesecs: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Host {
    host: String,
    port: u16,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Test {
    protocol: String,
    num_streams: u32,
    blksize: u32,
    reverse: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Interval {
    sum: Sum,
}

#[derive(Deserialize)]
struct End {
    sum: Option<Sum>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sum_received_bidir_reverse: Option<Sum>,
    cpu_utilization_percent: Option<Cpu>,
    sender_tcp_congestion: Option<String>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct Sum {
    start: f64,
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
    lost_packets: i64,
    packets: Option<u64>,
    omitted: bool,
}

#[derive(Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

fn read(file: &mut dyn BufRead, about: &About) -> Result<Found, ImportError> {
    let no_result = |error: serde_json::Error| form(format!("no result of iperf3 --json: {error}"));
    // By way of a value: some versions write a name twice.
    let value: Value = serde_json::from_reader(file.take(MOST_BYTES)).map_err(no_result)?;
    let document: Document = serde_json::from_value(value).map_err(no_result)?;
    if let Some(error) = document.error {
        return Err(form(format!("iperf3 ended with an error: {error}")));
    }
    let start = document.start.ok_or_else(|| form("no result of iperf3 --json: there is no 'start'"))?;
    let end = document.end.ok_or_else(|| form("no result of iperf3 --json: there is no 'end'"))?;
    let figures = figures(&end)?;
    let whole = end.sum_received.as_ref().or(end.sum.as_ref()).map_or(0.0, |sum| sum.seconds);
    let direction = match (&end.sum_received_bidir_reverse, start.test_start.reverse) {
        (Some(_), _) => Direction::Both,
        (None, 0) => Direction::Send,
        (None, _) => Direction::Receive,
    };
    let mut case = case(about, &FORMAT, "throughput", direction, figures);
    case.peer = "iperf3".to_owned();
    if let (None, Some(host)) =
        (&about.endpoint, start.connecting_to.as_ref().or(start.accepted_connection.as_ref()))
    {
        let bracketed = if host.host.contains(':') { format!("[{}]", host.host) } else { host.host.clone() };
        case.endpoint = format!("{}://{bracketed}:{}", start.test_start.protocol.to_lowercase(), host.port);
    }
    case.message_bytes = start.test_start.blksize;
    case.parallel = start.test_start.num_streams.max(1);
    case.elapsed_ns = nanoseconds(whole);
    case.series =
        document.intervals.iter().filter(|interval| !interval.sum.omitted).map(|i| entry(&i.sum)).collect();
    case.cpu = end.cpu_utilization_percent.as_ref().and_then(|cpu| cpu_use(cpu, whole, &case));
    for (name, value) in [
        ("mss_bytes", start.tcp_mss_default),
        ("send_buffer_bytes", start.sndbuf_actual),
        ("receive_buffer_bytes", start.rcvbuf_actual),
    ] {
        case.got.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    case.got.extend(end.sender_tcp_congestion.map(|name| ("congestion".to_owned(), name.into())));
    let version = if start.version.is_empty() { "iperf3".to_owned() } else { start.version };
    Ok(Found::Foreign(Foreign {
        measured_by: version,
        started: start.timestamp.timesecs.and_then(|seconds| Timestamp::from_second(seconds).ok()),
        elapsed_ns: case.elapsed_ns,
        cases: vec![case],
        warnings: Vec::new(),
    }))
}

fn figures(end: &End) -> Result<Figures, ImportError> {
    let received = end.sum_received.as_ref().or(end.sum.as_ref());
    let received = received.ok_or_else(|| form("iperf3 did not get as far as telling what was received"))?;
    let rate = |sum: &Sum| Some(sum.bits_per_second).filter(|rate| rate.is_finite() && *rate > 0.0);
    let back = end.sum_received_bidir_reverse.as_ref();
    let mut figures = Figures {
        throughput_bps: rate(received),
        delivered_bytes: Some(received.bytes),
        throughput_back_bps: back.and_then(rate),
        delivered_back_bytes: back.map(|back| back.bytes),
        ..Figures::default()
    };
    // Only datagrams are counted. What the receiver saw no gap behind is lost as well.
    if let Some(packets) = received.packets {
        let lost = received.lost_packets.max(0) as u64;
        figures.received = packets.saturating_sub(lost);
        let sent = end.sum_sent.as_ref().and_then(|sent| sent.packets).unwrap_or(packets);
        figures.sent = sent.max(figures.received);
        figures.lost = figures.sent - figures.received;
    }
    Ok(figures)
}

fn entry(sum: &Sum) -> SeriesEntry {
    SeriesEntry {
        start_ns: nanoseconds(sum.start),
        length_ns: nanoseconds(sum.seconds),
        messages: sum.packets.unwrap_or(0),
        bytes: sum.bytes,
        lost: sum.lost_packets.max(0) as u64,
        latency_mean_ns: None,
        latency_max_ns: None,
    }
}

/// iperf3 tells the share of one CPU.
fn cpu_use(cpu: &Cpu, seconds: f64, case: &CaseResult) -> Option<CpuUse> {
    let used = |percent: f64| Some(percent / 100.0 * seconds).filter(|used| used.is_finite() && *used >= 0.0);
    let (near_seconds, far_seconds) = (used(cpu.host_total)?, used(cpu.remote_total)?);
    let delivered = case.figures.delivered_bytes.unwrap_or(0) as f64
        + case.figures.delivered_back_bytes.unwrap_or(0) as f64;
    let per_gigabyte = (near_seconds + far_seconds) * 1e9 / delivered;
    Some(CpuUse {
        near_seconds,
        far_seconds: Some(far_seconds),
        seconds_per_gigabyte: per_gigabyte.is_finite().then_some(per_gigabyte),
    })
}

fn nanoseconds(seconds: f64) -> u64 {
    if (0.0..MOST_SECONDS).contains(&seconds) { (seconds * 1e9) as u64 } else { 0 }
}
