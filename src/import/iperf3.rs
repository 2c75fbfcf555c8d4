//! The JSON of iperf3 3, of a client or a server: `--json` (one document per test; a server concatenates them) and
//! `--json-stream` (one event per line). It has rates, volumes, losses and CPU time. It has no samples, so there is no
//! latency. Its jitter (smoothed, one way) is not comparable with ours and is omitted.

mod directions;

use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Deserializer, Value};

use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error};
use crate::plan::Direction;
use crate::run::{CaseResult, CpuUse, Delivery, Figures, MessageCounts, SeriesEntry, Warning, WarningCode};
use directions::{DirectionSums, DirectionTotals, PacketSum};

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "iperf3", summary: "results of iperf3 --json and --json-stream", read };

/// Several days with some streams. The file is held in memory.
const MAX_FILE_BYTES: u64 = 128 << 20;
/// A hundred years; no real test takes longer.
const MAX_DURATION_SECONDS: f64 = 3.2e9;

/// A test: a document, or the events that make one up.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TestDocument {
    start: Option<TestStart>,
    intervals: Vec<IntervalSums>,
    end: Option<TestEnd>,
    error: Option<String>,
}

/// A line of `--json-stream`.
#[derive(Deserialize)]
struct StreamEvent {
    event: String,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TestStart {
    version: String,
    cookie: String,
    timestamp: StartTimestamp,
    connected: Vec<LocalAddress>,
    /// The server's address, in a client's file.
    connecting_to: Option<HostPort>,
    /// The client's address, in a server's file.
    accepted_connection: Option<HostPort>,
    test_start: TestParameters,
    tcp_mss_default: Option<u64>,
    sndbuf_actual: Option<u64>,
    rcvbuf_actual: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StartTimestamp {
    timesecs: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HostPort {
    host: String,
    port: u16,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LocalAddress {
    local_host: String,
    local_port: u16,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TestParameters {
    protocol: String,
    num_streams: u32,
    blksize: u32,
    omit: f64,
    reverse: i64,
    bidir: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IntervalSums {
    sum: PacketSum,
    sum_bidir_reverse: Option<PacketSum>,
}

#[derive(Deserialize)]
struct TestEnd {
    sum: Option<PacketSum>,
    sum_sent: Option<PacketSum>,
    sum_received: Option<PacketSum>,
    sum_sent_bidir_reverse: Option<PacketSum>,
    sum_received_bidir_reverse: Option<PacketSum>,
    cpu_utilization_percent: Option<CpuUtilization>,
    sender_tcp_congestion: Option<String>,
}

#[derive(Deserialize)]
struct CpuUtilization {
    host_total: f64,
    remote_total: f64,
}

fn invalid_result(error: serde_json::Error) -> ImportError {
    if error.is_io() {
        return std::io::Error::from(error).into();
    }
    format_error(format!("not a result of iperf3 --json: {error}"))
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let tests = read_tests(file)?;
    let started = tests.first().and_then(|test| test.start.as_ref()?.timestamp.timesecs);
    let mut imported = ForeignResult {
        measured_by: "iperf3".to_owned(),
        started: started.and_then(|seconds| Timestamp::from_second(seconds).ok()),
        elapsed_ns: 0,
        cases: Vec::new(),
        warnings: Vec::new(),
    };
    let (count, mut failures) = (tests.len(), Vec::new());
    for test in tests {
        if let Some(start) = test.start.as_ref().filter(|start| !start.version.is_empty()) {
            imported.measured_by.clone_from(&start.version);
        }
        match test.into_case(about) {
            Ok(case) => {
                imported.elapsed_ns = imported.elapsed_ns.saturating_add(case.elapsed_ns);
                imported.cases.push(case);
            }
            Err(error) => failures.push(error),
        }
    }
    let failed = failures.len();
    if let Some(error) = failures.into_iter().next() {
        if imported.cases.is_empty() {
            return Err(error);
        }
        let text = format!("{failed} of {count} tests in the file have no result: {error}");
        imported.warnings.push(Warning::new(
            WarningCode::Incomplete,
            text,
            "run these tests again if they matter",
        ));
    }
    Ok(ImportedFile::Foreign(imported))
}

/// The tests of a file, in order.
fn read_tests(file: &mut dyn BufRead) -> Result<Vec<TestDocument>, ImportError> {
    let mut tests: Vec<TestDocument> = Vec::new();
    // Parsed as values first, because some versions repeat a name.
    for value in Deserializer::from_reader(file.take(MAX_FILE_BYTES)).into_iter::<Value>() {
        let value = value.map_err(invalid_result)?;
        if !value.is_object() {
            return Err(format_error("not a result of iperf3 --json: it contains more than JSON objects"));
        }
        if value.get("event").is_none() {
            let document: TestDocument = serde_json::from_value(value).map_err(invalid_result)?;
            // After its events, --json-stream-full-output repeats them as one document.
            if !(document.start.is_some() && tests.last().is_some_and(|test| test.is_same_test(&document))) {
                tests.push(document);
            }
            continue;
        }
        let StreamEvent { event, data } = serde_json::from_value(value).map_err(invalid_result)?;
        if event == "start" || tests.is_empty() {
            tests.push(TestDocument::default());
        }
        let Some(test) = tests.last_mut() else { continue };
        match event.as_str() {
            "start" => test.start = serde_json::from_value(data).map_err(invalid_result)?,
            "interval" => test.intervals.push(serde_json::from_value(data).map_err(invalid_result)?),
            "end" => test.end = serde_json::from_value(data).map_err(invalid_result)?,
            "error" => test.error = Some(data.as_str().map_or(data.to_string(), str::to_owned)),
            // Output of the server.
            _ => {}
        }
    }
    match tests.is_empty() {
        true => Err(format_error("not a result of iperf3 --json: the file is empty")),
        false => Ok(tests),
    }
}

impl TestDocument {
    /// True if both belong to the same test.
    fn is_same_test(&self, other: &TestDocument) -> bool {
        let cookie = |test: &TestDocument| {
            Some(test.start.as_ref()?.cookie.clone()).filter(|cookie| !cookie.is_empty())
        };
        cookie(self).is_some() && cookie(self) == cookie(other)
    }

    fn into_case(self, about: &ImportOptions) -> Result<CaseResult, ImportError> {
        if let Some(error) = self.error {
            return Err(format_error(format!("iperf3 ended with an error: {error}")));
        }
        let start =
            self.start.ok_or_else(|| format_error("not a result of iperf3 --json: 'start' is missing"))?;
        let end = self.end.ok_or_else(|| format_error("not a result of iperf3 --json: 'end' is missing"))?;
        let direction = start.direction(&end);
        let (ahead, back) = results_by_direction(&start, &end, direction)?;
        let mut case = base_case(about, &FORMAT, "throughput", direction, figures(&ahead, back.as_ref()));
        case.protocol = "iperf3".to_owned();
        if let (None, Some(endpoint)) = (&about.endpoint, start.endpoint()) {
            case.endpoint = endpoint;
        }
        case.message_bytes = start.test_start.blksize;
        case.parallel = start.test_start.num_streams.max(1);
        case.elapsed_ns = to_nanoseconds(ahead.seconds);
        // For direction both: received by the side that wrote the file.
        let shown = |interval: IntervalSums| match interval.sum_bidir_reverse {
            Some(back) if !start.is_server() => back,
            _ => interval.sum,
        };
        let intervals = self.intervals.into_iter().map(shown).filter(|sum| !sum.omitted);
        case.series = intervals.map(|sum| series_entry(&sum)).collect();
        record_facts(&start, end, &mut case);
        for way in [Some(&ahead), back.as_ref()].into_iter().flatten() {
            case.warnings.extend(missing_counts_warning(way, start.is_server()));
        }
        case.warnings.dedup();
        Ok(case)
    }
}

impl TestStart {
    /// True for a server's file.
    fn is_server(&self) -> bool {
        self.connecting_to.is_none() && self.accepted_connection.is_some()
    }

    fn direction(&self, end: &TestEnd) -> Direction {
        match (&end.sum_received_bidir_reverse, self.test_start.reverse) {
            (Some(_), _) => Direction::Both,
            (None, _) if self.test_start.bidir != 0 => Direction::Both,
            (None, 0) => Direction::Send,
            (None, _) => Direction::Receive,
        }
    }

    /// The client's target. In a server's file it is the local address of the connections.
    fn endpoint(&self) -> Option<String> {
        let (host, port) = match &self.connecting_to {
            Some(server) => (&server.host, server.port),
            None => self.connected.first().map(|own| (&own.local_host, own.local_port))?,
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Some(format!("{}://{host}:{port}", self.test_start.protocol.to_lowercase()))
    }
}

/// Totals of the named direction, and for `both` of the reverse direction.
fn results_by_direction(
    start: &TestStart,
    end: &TestEnd,
    direction: Direction,
) -> Result<(DirectionTotals, Option<DirectionTotals>), ImportError> {
    let none = || format_error("iperf3 ended before it reported the received data");
    let is_server = start.is_server();
    let sums = |sent, received, all, server_receives: bool| DirectionSums {
        sent,
        received,
        combined: all,
        knows_received: !is_server || server_receives,
        knows_sent: !is_server || !server_receives,
        omits_start: start.test_start.omit > 0.0,
        datagram_bytes: start.test_start.blksize.into(),
    };
    let server_receives = direction != Direction::Receive;
    let (sent, received, all) = (end.sum_sent.as_ref(), end.sum_received.as_ref(), end.sum.as_ref());
    let ahead = sums(sent, received, all, server_receives).result().ok_or_else(none)?;
    if direction != Direction::Both {
        return Ok((ahead, None));
    }
    let (sent, received) = (end.sum_sent_bidir_reverse.as_ref(), end.sum_received_bidir_reverse.as_ref());
    Ok((ahead, Some(sums(sent, received, None, false).result().ok_or_else(none)?)))
}

fn figures(ahead: &DirectionTotals, back: Option<&DirectionTotals>) -> Figures {
    let counted = [Some(ahead), back].into_iter().flatten().filter_map(|way| way.datagrams);
    let (sent, received) = counted.fold((0_u64, 0_u64), |(sent, received), way| {
        (sent.saturating_add(way.0), received.saturating_add(way.1))
    });
    let delivery = Delivery {
        throughput_bps: ahead.throughput_bps,
        delivered_bytes: ahead.delivered_bytes,
        throughput_reverse_bps: back.and_then(|back| back.throughput_bps),
        delivered_reverse_bytes: back.and_then(|back| back.delivered_bytes),
        ..Delivery::default()
    };
    let counts = MessageCounts { sent, received, lost: sent - received, ..MessageCounts::default() };
    Figures { counts, delivery, ..Figures::default() }
}

/// A warning about counts that the file lacks.
fn missing_counts_warning(way: &DirectionTotals, is_server: bool) -> Option<Warning> {
    if way.mixes_periods {
        let text = "datagrams were counted from the start and bytes without --omit, so no loss is known";
        return Some(Warning::new(
            WarningCode::LossesUnknown,
            text,
            "measure without --omit, or with iperf3 3.16 and later",
        ));
    }
    (is_server && way.delivered_bytes.is_none()).then(|| {
        let text =
            "the server's file lacks the data that the client received, so nothing counts as delivered";
        Warning::new(WarningCode::Unconfirmed, text, "import the client's file")
    })
}

/// Facts without a figure, and CPU time.
fn record_facts(start: &TestStart, end: TestEnd, case: &mut CaseResult) {
    for (name, value) in [
        ("mss_bytes", start.tcp_mss_default),
        ("send_buffer_bytes", start.sndbuf_actual),
        ("receive_buffer_bytes", start.rcvbuf_actual),
    ] {
        case.effective.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    case.effective.extend(end.sender_tcp_congestion.map(|name| ("congestion".to_owned(), name.into())));
    let Some(cpu) = end.cpu_utilization_percent else { return };
    // A server's file has no valid client values: they are absent or belong to the previous client.
    if start.is_server() {
        case.effective.insert("server_cpu_percent".to_owned(), cpu.host_total.into());
    } else if start.test_start.omit <= 0.0 {
        // With --omit the percentages cover a longer time than the bytes.
        case.cpu = cpu_use(&cpu, case.elapsed_ns as f64 / 1e9, case);
    }
}

fn series_entry(sum: &PacketSum) -> SeriesEntry {
    SeriesEntry {
        start_ns: to_nanoseconds(sum.start),
        length_ns: to_nanoseconds(sum.seconds),
        messages: sum.packets().unwrap_or(0),
        bytes: sum.bytes,
        lost: sum.lost_packets(),
        ..SeriesEntry::default()
    }
}

/// iperf3 reports the share of one CPU.
fn cpu_use(cpu: &CpuUtilization, seconds: f64, case: &CaseResult) -> Option<CpuUse> {
    let used = |percent: f64| Some(percent / 100.0 * seconds).filter(|used| used.is_finite() && *used >= 0.0);
    let (client_seconds, server_seconds) = (used(cpu.host_total)?, used(cpu.remote_total)?);
    let delivered = case.figures.delivery.delivered_bytes.unwrap_or(0) as f64
        + case.figures.delivery.delivered_reverse_bytes.unwrap_or(0) as f64;
    let per_gigabyte = (client_seconds + server_seconds) * 1e9 / delivered;
    Some(CpuUse {
        client_seconds,
        client_busy_poll_seconds: None,
        server_seconds: Some(server_seconds),
        seconds_per_gigabyte: per_gigabyte.is_finite().then_some(per_gigabyte),
    })
}

fn to_nanoseconds(seconds: f64) -> u64 {
    if (0.0..MAX_DURATION_SECONDS).contains(&seconds) { (seconds * 1e9) as u64 } else { 0 }
}
