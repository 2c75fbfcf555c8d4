//! Downloads from the emulated logger on the virtual clock, exact to the nanosecond: content, rates, windows, records.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::logger::{FullQueuePolicy, Logger, LoggerConfig, LoggerOptions, generate_content};
use linkgauge_engine::Registry;
use linkgauge_engine::protocol::pakbus::value::LoggerTime;
use linkgauge_engine::schedule::{self, RunContext};
use linkgauge_engine::workload::download::MAX_QUEUED_CHUNKS;
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{CaseSpec, OneOrMany, Plan};
use linkgauge_model::run::{CaseResult, RecordFault, RecordFaultKind, RequestCounts, WarningCode};
use linkgauge_model::units::{Bytes, Count};

const FILE: &str = "CPU:data.dat";

/// The downloaded content and the figures.
struct DownloadResult {
    content: Vec<u8>,
    case: CaseResult,
}

/// A logger with a file of that size and a table.
fn file_device(size: usize) -> LoggerConfig {
    LoggerConfig {
        files: vec![(FILE.to_owned(), generate_content(7, size))],
        tables: vec!["Bench:10s:Seq=Int4,Volts=IEEE4,Temp=FP2:500".parse().unwrap()],
        ..LoggerConfig::default()
    }
}

fn spec(url: &str, workload: &str, options: &[(&str, &str)]) -> CaseSpec {
    CaseSpec {
        url: Some(OneOrMany::One(url.parse().unwrap())),
        protocol: Some("pakbus".to_owned()),
        workload: Some(workload.to_owned()),
        protocol_options: options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..CaseSpec::default()
    }
}

/// Runs a case against a logger at `mem://logger` with any options.
fn run(device: LoggerConfig, spec: &CaseSpec) -> (DownloadResult, Logger) {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let listen: Vec<Endpoint> = vec!["mem://logger".parse().unwrap()];
    let options = LoggerOptions { listen, serial_lines: Vec::new(), config: device };
    let clock = LoggerTime { seconds: 1_000_000, nanoseconds: 0 };
    let logger = Logger::start_with(&options, clock, dialer.clone()).unwrap();
    let plan = schedule::check(Plan::new(spec.expand().unwrap()).unwrap(), Registry::standard()).unwrap();
    let (sender, receiver): (_, Receiver<Vec<u8>>) = sync_channel(MAX_QUEUED_CHUNKS * 16);
    let mut bench = RunContext::new(dialer, &());
    bench.content = (spec.workload.as_deref() == Some("download")).then_some(sender);
    let mut run = schedule::run(&plan, &mut bench);
    drop(bench);
    (DownloadResult { content: receiver.iter().flatten().collect(), case: run.cases.remove(0) }, logger)
}

fn download(device: LoggerConfig, url: &str, options: &[(&str, &str)]) -> DownloadResult {
    run(device, &spec(url, "download", options)).0
}

/// The reason why a case is incomplete.
fn incomplete_reason(case: &CaseResult) -> &str {
    assert!(!case.complete);
    &case.warnings.iter().find(|warning| warning.code == WarningCode::Incomplete).unwrap().text
}

#[test]
fn a_file_arrives_as_it_is() {
    for size in [0, 1, 990, 991, 992, 5 * 991, 100_000] {
        let got = download(file_device(size), "mem://logger", &[("file", FILE)]);
        assert!(got.case.complete, "{:?}", got.case.warnings);
        assert!(got.content == generate_content(7, size), "{size}");
        let figures = &got.case.figures;
        assert_eq!(figures.delivery.delivered_bytes, Some(size as u64));
        // A file whose last chunk is full ends with an empty chunk.
        let round_trips = size as u64 / 991 + 1;
        let requests = figures.requests.unwrap();
        assert_eq!((requests.round_trips, requests.retransmissions), (round_trips, 0));
        assert_eq!(
            (figures.counts.sent, figures.counts.received, figures.counts.lost),
            (round_trips, round_trips, 0)
        );
    }
}

#[test]
fn the_rate_is_one_chunk_per_round_trip() {
    // The one-way delays of the study; 10 kB/s, 20 ms of work for a chunk.
    for delay_ms in [0, 50, 100, 250, 500] {
        let url = format!("mem://logger?delay={delay_ms}ms&rate=80kbit/s");
        let slow = LoggerConfig { command_time: Duration::from_millis(20), ..file_device(60_000) };
        let got = download(slow, &url, &[("file", FILE)]);
        assert!(got.content == generate_content(7, 60_000));
        let line = 8.0 * (991.0 * (1.0 + 2.0 / 256.0) + 19.0 + 24.0 + 12.0) / 80_000.0;
        let predicted = 8.0 * 991.0 / (2.0 * f64::from(delay_ms) / 1e3 + 0.02 + line);
        let rate = got.case.figures.delivery.throughput_bps.unwrap();
        assert!((rate / predicted - 1.0).abs() < 0.03, "{delay_ms} ms: {rate} instead of {predicted}");
    }
}

#[test]
fn only_so_much_of_a_file_is_downloaded() {
    let spec = CaseSpec { volume: Some(Bytes(2500)), ..spec("mem://logger", "download", &[("file", FILE)]) };
    let (got, _) = run(file_device(100_000), &spec);
    assert!(got.case.complete, "{:?}", got.case.warnings);
    assert!(got.content == generate_content(7, 100_000)[..2500]);
    assert_eq!(got.case.figures.requests.unwrap().round_trips, 3);
    let spec = CaseSpec { count: Some(Count(5)), size: Some(OneOrMany::One(Bytes(100))), ..spec };
    let (got, _) = run(file_device(100_000), &spec);
    assert!(got.case.complete && got.content == generate_content(7, 100_000)[..500]);
}

#[test]
fn short_chunks_do_not_end_a_file() {
    for window in ["1", "7"] {
        let small = LoggerConfig { max_packet_bytes: 300, ..file_device(10_000) };
        let got = download(small, "mem://logger?delay=1ms", &[("file", FILE), ("window", window)]);
        assert!(got.case.complete && got.content == generate_content(7, 10_000), "{window}");
    }
}

#[test]
fn a_window_fills_the_link() {
    // 10 kB/s and a round trip of 1 s: twelve chunks per round trip.
    let url = "mem://logger?delay=500ms&rate=80kbit/s";
    for (window, least, most) in [("1", 0.05, 0.1), ("4", 0.3, 0.4), ("12", 0.9, 1.0), ("64", 0.95, 1.0)] {
        let deep = LoggerConfig { queue_commands: 80, ..file_device(600_000) };
        let got = download(deep, url, &[("file", FILE), ("window", window)]);
        assert!(got.case.complete && got.content == generate_content(7, 600_000), "{:?}", got.case.warnings);
        let share = got.case.figures.delivery.throughput_bps.unwrap() / 80_000.0;
        assert!((least..most).contains(&share), "window {window}: {share}");
        let requests = got.case.figures.requests.unwrap();
        assert_eq!((requests.retransmissions, requests.refusals), (0, 0));
        assert_eq!(requests.window, window.parse::<u64>().unwrap());
    }
}

#[test]
fn a_window_shrinks_to_what_the_logger_accepts() {
    for (queue, full) in [
        (1, FullQueuePolicy::Refuse),
        (3, FullQueuePolicy::Refuse),
        (3, FullQueuePolicy::Drop),
        (8, FullQueuePolicy::Refuse),
    ] {
        let work = Duration::from_millis(20);
        let shallow = LoggerConfig {
            queue_commands: queue,
            full_queue_policy: full,
            command_time: work,
            ..file_device(100_000)
        };
        let got = download(shallow, "mem://logger?delay=200ms", &[("file", FILE), ("window", "16")]);
        assert!(got.case.complete && got.content == generate_content(7, 100_000), "{:?}", got.case.warnings);
        // Most commands are on the link, so the window may exceed the queue a little.
        let RequestCounts { window, retransmissions, .. } = got.case.figures.requests.unwrap();
        assert!((queue as u64 / 2..=2 * queue as u64).contains(&window), "{queue} {full:?}: {window}");
        assert!(retransmissions > 0);
        assert!(got.case.warnings.iter().any(|warning| warning.code == WarningCode::WindowReduced));
    }
}

#[test]
fn a_table_becomes_lines() {
    for window in ["1", "5"] {
        let got =
            download(file_device(0), "mem://logger?delay=10ms", &[("table", "bench"), ("window", window)]);
        assert!(got.case.complete, "{:?}", got.case.warnings);
        let text = String::from_utf8(got.content).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "time,record,Seq,Volts,Temp");
        // All records, including those stored during the download.
        assert!((501..503).contains(&lines.len()), "{}", lines.len());
        let records = lines.len() as u64 - 1;
        for (line, number) in lines[1..].iter().zip(1..) {
            assert_eq!(line.split(',').nth(1), Some(number.to_string().as_str()), "{line}");
        }
        let counts = got.case.figures.records.unwrap();
        assert_eq!((counts.received, counts.missing, counts.repeated), (records, 0, 0));
    }
}

#[test]
fn toa5_contains_the_station_name() {
    let got = download(file_device(0), "mem://logger", &[("table", "Bench"), ("format", "toa5")]);
    let text = String::from_utf8(got.content).unwrap();
    let head = "\"TOA5\",\"linkgauge emulation\",\"CR1000\",\"12345\",\"CR1000.Std.24\",\"CPU:bench.CR1\",\"48879\",\"Bench\"\r\n\
                \"TIMESTAMP\",\"RECORD\",\"Seq\",\"Volts\",\"Temp\"\r\n";
    assert!(text.starts_with(head), "{}", &text[..300]);
}

#[test]
fn records_longer_than_a_reply_come_whole() {
    for window in ["1", "3"] {
        let long = LoggerConfig {
            tables: vec!["Long:1s:Name=ASCII(2000),Seq=UInt4:5".parse().unwrap()],
            ..file_device(0)
        };
        let got = download(long, "mem://logger", &[("table", "Long"), ("window", window)]);
        assert!(got.case.complete, "{:?}", got.case.warnings);
        let text = String::from_utf8(got.content).unwrap();
        assert_eq!(text.lines().count(), 6, "{text}");
        assert_eq!(
            text.lines().last().unwrap().split(',').skip(1).collect::<Vec<_>>(),
            ["5", "record 5", "5"]
        );
    }
}

#[test]
fn exactly_the_records_that_were_skipped_are_missed() {
    let skips =
        LoggerConfig { skip_records: true, command_time: Duration::from_millis(50), ..file_device(0) };
    let options = [("table", "Bench"), ("window", "4")];
    let (got, logger) = run(skips, &spec("mem://logger?delay=1ms", "download", &options));
    assert!(got.case.complete, "{:?}", got.case.warnings);
    let records = got.case.figures.records.unwrap();
    let skipped = logger.counters().skipped;
    assert!(skipped > 3, "{skipped}");
    assert_eq!(records.missing, skipped);
    let text = String::from_utf8(got.content).unwrap();
    let numbers = text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse::<u64>().unwrap());
    let numbers: Vec<u64> = numbers.collect();
    let missing = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).map(|pair| RecordFault {
        first_record: pair[0] + 1,
        records: pair[1] - pair[0] - 1,
        kind: RecordFaultKind::Missing,
    });
    assert_eq!(records.faults, missing.take(16).collect::<Vec<_>>());
    assert!(got.case.warnings.iter().any(|warning| warning.code == WarningCode::RecordNumbers));
}

#[test]
fn a_slow_logger_gets_more_time() {
    let slow = LoggerConfig { command_time: Duration::from_secs(40), ..file_device(1500) };
    let got = download(slow, "mem://logger", &[("file", FILE)]);
    assert!(got.case.complete && got.content == generate_content(7, 1500), "{:?}", got.case.warnings);
    let requests = got.case.figures.requests.unwrap();
    assert_eq!((requests.please_waits, requests.retransmissions), (4, 0));
}

#[test]
fn the_clock_is_a_round_trip() {
    let spec = CaseSpec { count: Some(Count(100)), ..spec("mem://logger?delay=7ms", "latency", &[]) };
    let (got, logger) = run(LoggerConfig { command_time: Duration::from_millis(3), ..file_device(0) }, &spec);
    let figures = &got.case.figures;
    assert_eq!(
        (figures.counts.sent, figures.counts.received, figures.counts.corrupt_messages),
        (100, 100, 0)
    );
    let latency = figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max), (17_000_000, 17_000_000));
    assert_eq!(got.case.message_bytes, 24);
    // Includes the warm-up.
    assert!(logger.counters().replies >= 100);
}

#[test]
fn a_denied_clock_read_is_reported() {
    let (got, _) =
        run(LoggerConfig { security_code: 77, ..file_device(0) }, &spec("mem://logger", "latency", &[]));
    assert!(
        incomplete_reason(&got.case)
            .ends_with("permission denied: the logger requires another security code (--security)")
    );
    let spec = CaseSpec { count: Some(Count(9)), ..spec("mem://logger", "latency", &[("security", "77")]) };
    assert!(run(LoggerConfig { security_code: 77, ..file_device(0) }, &spec).0.case.complete);
}

#[test]
fn refusals_are_reported_in_one_line() {
    let file = &[("file", FILE)][..];
    let locked = || LoggerConfig { security_code: 77, ..file_device(5000) };
    let error_of = |device: LoggerConfig, options: &[(&str, &str)]| {
        let got = download(device, "mem://logger", options);
        assert!(got.content.is_empty());
        incomplete_reason(&got.case).to_owned()
    };
    insta::assert_snapshot!([
        error_of(file_device(9), &[("file", FILE), ("node", "7")]),
        error_of(locked(), file),
        error_of(locked(), &[("table", "Bench"), ("security", "76")]),
        error_of(file_device(9), &[("file", "CPU:nothing.dat")]),
        error_of(file_device(9), &[("table", "Wind")]),
    ].join("\n"), @r"
    not measured as planned: mem://logger: no reply from PakBus address 7 in 4 tries; nothing arrived: check that it is on, its address (--node), that encryption and the PakBus/TCP password are off, and --timeout
    not measured as planned: mem://logger: permission denied: the logger requires another security code (--security)
    not measured as planned: mem://logger: permission denied: the logger requires another security code (--security)
    not measured as planned: mem://logger: CPU:nothing.dat: the logger reports: invalid file name
    not measured as planned: mem://logger: unknown table 'Wind' (the logger has: Status, Bench)
    ");
    let got = download(locked(), "mem://logger", &[("file", FILE), ("security", "77")]);
    assert!(got.case.complete);
}

#[test]
fn an_invalid_case_is_refused() {
    let error_of = |spec: CaseSpec| {
        let plan = Plan::new(spec.expand().unwrap()).unwrap();
        schedule::check(plan, Registry::standard()).unwrap_err().to_string()
    };
    let options = |options: &[(&str, &str)]| error_of(spec("tcp://box", "download", options));
    let file = spec("tcp://box", "download", &[("file", FILE)]);
    insta::assert_snapshot!([
        options(&[]),
        options(&[("file", FILE), ("table", "Bench")]),
        options(&[("file", "")]),
        options(&[("file", FILE), ("node", "4095")]),
        options(&[("file", FILE), ("window", "0")]),
        options(&[("table", "Bench"), ("format", "xls")]),
        error_of(CaseSpec { size: Some(OneOrMany::One(Bytes(992))), ..file.clone() }),
        error_of(CaseSpec { parallel: Some(OneOrMany::One(2)), ..file.clone() }),
        error_of(CaseSpec { size: Some(OneOrMany::One(Bytes(9))), ..spec("tcp://box", "latency", &[]) }),
        error_of(spec("udp://box", "download", &[("file", FILE)])),
    ].join("\n"), @r"
    protocol pakbus: nothing to download: use --file CPU:data.dat or --table NAME
    protocol pakbus: a file and a table: use one of them
    protocol pakbus: file '' is not a name of a logger: use at most 64 letters of Latin-1
    protocol pakbus: node '4095' is not a number from 1 to 4094
    protocol pakbus: window '0' is not a number from 1 to 255
    protocol pakbus: format 'xls' is neither csv nor toa5
    protocol pakbus: a chunk of 992 bytes is too large: use a --size of at most 991
    protocol pakbus: a logger has one connection for a client: leave out --parallel
    protocol pakbus: the size is that of a clock request (24 bytes), not 9: leave it out
    udp://box: a logger needs a stream, like TCP, and on lines
    ");
}
