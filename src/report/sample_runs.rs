//! Runs for the tests of the reports: one with all fields, one with almost none, one that is malicious.

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use serde_json::{Map, Value, json};

use crate::plan::{Direction, WaitMode};
use crate::run::{
    AddedLatency, BoundSource, CaseResult, ConnectionCounts, ConnectionEvidence, ConnectionReading, Counters,
    CpuChoice, CpuUse, Defect, DefectKind, Delivery, Distribution, EndEvidence, Environment, Evidence,
    Failure, FailureKind, Figures, FlowFigures, Gauge, LineErrors, LineFacts, MessageCounts, MissedFrame,
    MissedFrames, OneWayFigures, PacketMarks, PartResult, Placement, RecordCounts, RecordFault,
    RecordFaultKind, RequestCounts, RoundTripTimes, Run, SCHEMA, SeriesEntry, Shaping, SlowFlow,
    StageFigures, ThresholdResult, Warning,
};
use crate::stats::Interval;

mod mesh;
mod responsiveness;
mod study;
pub use mesh::{hostile_mesh, mesh};
pub use responsiveness::responsiveness;
pub use study::{hostile_study, study, study_with_prediction};

pub(crate) const HOSTILE_SCRIPT: &str = "<script>alert('x')</script>";

pub(crate) fn all_samples() -> Vec<Run> {
    vec![
        full(),
        serial_line(),
        message_sizes(),
        download(),
        one_way_delays(),
        further_connections(),
        responsiveness(),
        minimal(),
        empty(),
        hostile(),
        study(),
        study_with_prediction(),
        hostile_study(),
        mesh(),
        hostile_mesh(),
        imported(),
    ]
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// Latencies like those of a real link: most close together, a tail, a few outliers. In ns, exact.
fn latency_histogram(base: u64, count: u64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    for index in 0..count {
        let tail =
            if index % 100 == 0 { base * 8 / 10 } else { 0 } + if index % 2500 == 7 { base * 20 } else { 0 };
        histogram.record(base + (index * 7919) % (base / 8) + tail).unwrap();
    }
    histogram
}

fn encode_histogram(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn distribution(histogram: &Histogram<u64>) -> Distribution {
    let percentiles = [10.0, 50.0, 90.0, 99.0, 99.9];
    Distribution {
        count: histogram.len(),
        min: histogram.min(),
        mean: histogram.mean(),
        standard_deviation: histogram.stdev(),
        max: histogram.max(),
        mean_fastest_95_percent: Some(histogram.mean() * 0.98),
        percentiles: percentiles
            .map(|p| (format!("p{p}"), Some(histogram.value_at_quantile(p / 100.0))))
            .into_iter()
            .collect(),
        later_than_ms: [("50".to_owned(), 0.0), ("100".to_owned(), 0.0)].into_iter().collect(),
    }
}

fn latency_figures(base: u64, received: u64) -> Figures {
    let histogram = latency_histogram(base, received);
    let latency = distribution(&histogram);
    let median = latency.percentile("p50").unwrap() as f64;
    let lost = 10_000 - received;
    Figures {
        counts: MessageCounts { sent: 10_000, received, lost, ..MessageCounts::default() },
        times: RoundTripTimes {
            jitter_ns: Some(410.5),
            latency_ns: Some(latency),
            ..RoundTripTimes::default()
        },
        delivery: Delivery { messages_per_second: Some(75_471.7), ..Delivery::default() },
        intervals: [("latency_ns.p50".to_owned(), Interval { low: median * 0.99, high: median * 1.012 })]
            .into(),
        within_run_intervals: [("latency_ns.p50".to_owned(), Interval { low: median * 0.998, high: median })]
            .into(),
        histogram_hdr_v2: Some(encode_histogram(&histogram)),
        ..Figures::default()
    }
}

fn rate_figures(rate: f64) -> Figures {
    let bytes = (rate / 8.0 * 10.0) as u64;
    let messages = bytes / 1024;
    Figures {
        counts: MessageCounts { sent: messages, received: messages, ..MessageCounts::default() },
        delivery: Delivery {
            throughput_bps: Some(rate),
            messages_per_second: Some(rate / 8192.0),
            delivered_bytes: Some(bytes),
            ..Delivery::default()
        },
        intervals: [("throughput_bps".to_owned(), Interval { low: rate * 0.97, high: rate * 1.01 })].into(),
        ..Figures::default()
    }
}

fn case(
    endpoint: &str,
    workload: &str,
    direction: Direction,
    message_bytes: u32,
    figures: Figures,
) -> CaseResult {
    CaseResult {
        protocol: "linkgauge".to_owned(),
        message_bytes,
        method: format!("{workload}/closed/block/1"),
        elapsed_ns: 10_000_000_000,
        ..CaseResult::of_figures(endpoint.to_owned(), workload, direction, figures)
    }
}

/// Serial lines at 9600 baud, 8N1.
fn line_facts(ports: u32) -> LineFacts {
    let max_payload_bps = Some(7680.0 * f64::from(ports));
    LineFacts { bits_per_second: 9600.0, bits_per_byte: 10.0, max_payload_bps, transmission_ns: None }
}

fn part(endpoint: &str, figures: Figures) -> PartResult {
    PartResult {
        client_cpu: Some(0),
        server_cpu: Some(1),
        ..PartResult::new(endpoint, 2_000_000_000, Figures { histogram_hdr_v2: None, ..figures })
    }
}

fn run(title: Option<&str>, cases: Vec<CaseResult>) -> Run {
    Run {
        schema: SCHEMA.to_owned(),
        id: "20261120T100000Z-7f3a".to_owned(),
        title: title.map(str::to_owned),
        tool: "linkgauge 0.1.0".to_owned(),
        started: "2026-11-20T10:00:00Z".parse().unwrap(),
        elapsed_ns: 42_100_000_000,
        interrupted: false,
        cases,
        study: None,
        mesh: None,
        environment: Environment::default(),
        warnings: Vec::new(),
    }
}

/// A file, and a table with a missing record.
pub fn download() -> Run {
    let logger = "tcp://logger.example:6785";
    let requests = RequestCounts {
        round_trips: 607,
        retransmissions: 2,
        reconnects: 1,
        window: 1,
        ..Default::default()
    };
    let figures = || {
        let mut figures = latency_figures(1_200_000_000, 607);
        figures.counts.sent = 607;
        figures.delivery.delivered_bytes = Some(600_000);
        figures.delivery.throughput_bps = Some(4931.0);
        Figures { requests: Some(requests), ..figures }
    };
    let fault = RecordFault { first_record: 4711, records: 3, kind: RecordFaultKind::Missing };
    let table = Figures {
        records: Some(RecordCounts {
            received: 25_000,
            missing: 3,
            faults: vec![fault],
            ..RecordCounts::default()
        }),
        requests: Some(RequestCounts { retransmissions: 0, ..requests }),
        ..figures()
    };
    let case = |bytes, figures| {
        let case = case(logger, "download", Direction::Receive, bytes, figures);
        CaseResult { protocol: "pakbus".to_owned(), ..case }
    };
    run(Some("Over the hill"), vec![case(991, figures()), case(512, table)])
}

/// Together the cases fill every optional field.
pub(crate) fn full() -> Run {
    let mut cases = vec![scheduled_latency(), latency_of_ports(), lossy_latency()];
    for (bytes, rate) in [(64, 0.31e9), (1024, 4.2e9), (16_384, 28.6e9), (131_072, 41.3e9)] {
        cases.push(throughput(LOCAL_SERVER, bytes, rate));
    }
    let last = cases.pop().map(with_idle_probe);
    cases.extend(last);
    let mut run = run(Some("A Friday in the lab"), cases);
    run.interrupted = true;
    run.environment.client = map(json!({
        "host": "gauge-1", "system": "Linux 6.12.48", "cpus": 2, "cpu_model": "AMD EPYC 7B13",
        "clock_read_ns": 21.4, "timer_error_p99_ns": 58_000, "governor": null,
    }));
    run.environment.server = map(json!({"host": "gauge-2", "system": "Linux 6.1.0"}));
    run.warnings = vec![Warning::new(
        "busy-machine".into(),
        "the machine was 40 % busy before the first case",
        "stop what else runs, or repeat with --repeat 10",
    )];
    run
}

const LOCAL_SERVER: &str = "tcp://127.0.0.1:7100";

fn near_overhead() -> Warning {
    Warning::new(
        "near-floor".into(),
        "the median is within 20 times the measurement overhead (1.9 µs)",
        "read it as an upper bound, or pin both ends and busy-poll",
    )
}

fn scheduled_latency() -> CaseResult {
    let mut latency = case(LOCAL_SERVER, "latency", Direction::Loop, 14, latency_figures(13_000, 10_000));
    latency.figures.times.response_ns = Some(distribution(&latency_histogram(15_200, 10_000)));
    latency.figures.times.missed_frames = Some(MissedFrames {
        count_later_than_ms: [("16.7", 2), ("50", 0), ("100", 0)]
            .map(|(limit, n)| (limit.to_owned(), n))
            .into(),
        first: [(312, 3_120_000_000, Some(17_204_113)), (4711, 47_110_000_000, Some(20_418_002))]
            .map(|(sequence, due_ns, response_ns)| MissedFrame {
                repetition: Some(2),
                sequence,
                due_ns,
                response_ns,
            })
            .into(),
    });
    latency.repeats =
        [13_000, 13_080, 12_960].map(|base| part(LOCAL_SERVER, latency_figures(base, 10_000))).into();
    latency.requested = map(json!({"rate_per_second": 100, "timeout_ns": 1_000_000_000, "nodelay": true}));
    latency.effective = map(json!({"nodelay": true, "mss_bytes": 32_768, "send_buffer_bytes": 2_626_560}));
    latency.evidence = Some(evidence());
    latency.placement = Placement {
        client_cpu: Some(CpuChoice::Number(0)),
        server_cpu: Some(CpuChoice::Number(1)),
        wait: Some(WaitMode::Block),
        ..Placement::default()
    };
    latency.warnings = vec![near_overhead()];
    latency
}

fn latency_of_ports() -> CaseResult {
    let mut ports = case(
        "tcp://moxa-5610.example:7001",
        "latency",
        Direction::Loop,
        1,
        latency_figures(2_083_000, 10_000),
    );
    ports.ports = 3;
    ports.protocol = "echo".to_owned();
    ports.per_port = [2_080_000, 2_083_000, 2_110_000]
        .iter()
        .zip(7001..)
        .map(|(base, port)| part(&format!("tcp://moxa-5610.example:{port}"), latency_figures(*base, 10_000)))
        .collect();
    ports.line = Some(LineFacts { transmission_ns: Some(1_041_667), ..line_facts(3) });
    ports.port_latency_ratio = Some(1.015);
    ports.shaped = Some(Shaping { delay_ns: 500_000_000, rate_to_bps: 8e6, rate_from_bps: 80e3 });
    ports.warnings = vec![near_overhead()];
    ports
}

fn lossy_latency() -> CaseResult {
    let mut lossy =
        case("udp://gauge-2.example:7100", "latency", Direction::Loop, 14, latency_figures(840_000, 9_400));
    lossy.complete = false;
    lossy.failures =
        vec![Failure::new(FailureKind::TimedOut, "udp://gauge-2.example:7100: no reply in time")];
    let figures = &mut lossy.figures;
    (figures.counts.late, figures.counts.duplicate, figures.counts.early) = (12, 3, 1);
    (
        figures.counts.reordered,
        figures.byte_errors.corrupt_bytes,
        figures.counts.corrupt_messages,
        figures.counts.missed_sends,
    ) = (5, 2, 1, 9);
    (figures.counts.receiver_socket_drops, figures.counts.network_lost) = (Some(100), Some(500));
    let distribution_ = figures.times.latency_ns.as_mut().unwrap();
    distribution_.mean_fastest_95_percent = None;
    distribution_.percentiles.insert("p99".to_owned(), None);
    distribution_.percentiles.insert("p99.9".to_owned(), None);
    lossy.warnings = vec![Warning::new(
        "socket-drops".into(),
        "the receiving socket dropped 100 replies; the network lost none of them",
        "raise the receive buffer: ?receive_buffer=4Mi",
    )];
    lossy
}

/// A probe that also ran for 1 s on the idle link, before and after the load.
fn with_idle_probe(mut case: CaseResult) -> CaseResult {
    case.idle = Some(latency_figures(30_000, 10_000));
    case.figures.added_latency = Some(AddedLatency {
        idle_p50_ns: 33_000.0,
        added_p50_ns: Some(278_000.0),
        added_p95_ns: Some(402_000.0),
        added_p99_ns: Some(911_000.0),
        added_forward_p50_ns: None,
        added_reverse_p50_ns: None,
        recovery_ns: Some(1_250_000.0),
    });
    let quick = |start_ns: u64| SeriesEntry {
        start_ns,
        length_ns: 1_000_000_000,
        bytes: 140,
        messages: 10,
        latency_min_ns: Some(30_000),
        latency_mean_ns: Some(33_000.0),
        ce: 0,
        latency_p50_ns: None,
        latency_p99_ns: None,
        latency_max_ns: Some(61_000),
        ..case.series[0].clone()
    };
    case.idle_series = vec![quick(0)];
    case.recovery_series = vec![quick(10_000_000_000)];
    case
}

fn throughput(endpoint: &str, bytes: u32, rate: f64) -> CaseResult {
    let mut case = case(endpoint, "throughput", Direction::Both, bytes, rate_figures(rate));
    case.figures.delivery.throughput_reverse_bps = Some(rate * 0.93);
    case.figures.delivery.delivered_reverse_bytes = case.figures.delivery.delivered_bytes;
    case.figures.delivery.line_rate_percent = Some(rate / 42e9 * 100.0);
    case.figures.delivery.drain_ns = Some(1_300_000);
    case.under_load = Some(latency_figures(310_000, 10_000));
    case.cpu = Some(CpuUse {
        client_seconds: 9.1,
        client_busy_poll_seconds: Some(0.4),
        server_seconds: Some(8.2),
        seconds_per_gigabyte: Some(3.3e9 / rate),
    });
    case.series = (0..10u64)
        .map(|second| SeriesEntry {
            start_ns: second * 1_000_000_000,
            length_ns: 1_000_000_000,
            messages: 100,
            bytes: (rate / 8.0 * (1.0 + 0.05 * ((second * 7 % 5) as f64 - 2.0))) as u64,
            lost: 0,
            latency_min_ns: Some(290_000),
            latency_mean_ns: Some(310_000.0),
            ce: 0,
            latency_p50_ns: None,
            latency_p99_ns: None,
            latency_max_ns: Some(910_000),
            ..SeriesEntry::default()
        })
        .collect();
    case.under_load_series =
        case.series.iter().map(|entry| SeriesEntry { bytes: 140, messages: 10, ..entry.clone() }).collect();
    case
}

/// Messages of several sizes, one way, over a gigabit interface: 20 µs each, and 10 ns per byte.
pub(crate) fn message_sizes() -> Run {
    let sizes = [64, 256, 1024, 4096, 16_384];
    let of_size = |bytes: u32| {
        let per_second = 1e9 / (20_000.0 + 10.0 * f64::from(bytes));
        let mut figures = rate_figures(8.0 * f64::from(bytes) * per_second);
        figures.delivery.messages_per_second = Some(per_second);
        let mut case = case("udp://gauge-2.example:7100", "throughput", Direction::Send, bytes, figures);
        case.cpu = Some(CpuUse {
            client_seconds: 9.8,
            client_busy_poll_seconds: None,
            server_seconds: Some(6.3),
            seconds_per_gigabyte: Some(2.1),
        });
        let card = json!({ "interface": "eth0", "kind": "ethernet", "driver": "e1000e", "speed_mbit": 1000, "mtu_bytes": 1500 });
        case.effective = map(json!({ "framing": "message", "interface": card }));
        case
    };
    run(None, sizes.map(of_size).to_vec())
}

/// One that passed and one that failed.
fn threshold_results() -> Vec<ThresholdResult> {
    let judged = |threshold: &str, measured: &str, passed| ThresholdResult {
        threshold: threshold.to_owned(),
        measured: measured.to_owned(),
        passed,
    };
    vec![judged("line_rate > 90 %", "94.434 %", true), judged("loss = 0 %", "0.5 %", false)]
}

/// Loops through plugs on serial lines: one without faults, and several simultaneous ones with faults.
pub(crate) fn serial_line() -> Run {
    let (serial, loop_) = ("serial:///dev/ttyUSB0?baud=9600", Direction::Loop);
    let mut good = case(serial, "throughput", loop_, 8, rate_figures(7671.3));
    good.figures.delivery.line_rate_percent = Some(99.886);
    good.line = Some(line_facts(1));
    let mut bad = case(serial, "throughput", loop_, 8, rate_figures(29_010.0));
    (bad.ports, bad.line, bad.fairness) = (4, Some(line_facts(4)), Some(0.9451));
    bad.thresholds = threshold_results();
    let figures = &mut bad.figures;
    figures.delivery.line_rate_percent = Some(94.434);
    (
        figures.counts.lost,
        figures.byte_errors.lost_bytes,
        figures.byte_errors.inserted_bytes,
        figures.byte_errors.corrupt_bytes,
    ) = (4, 31, 2, 1);
    figures.line_errors = Some(LineErrors { framing: 1, parity: 0, breaks: 0, overruns: 31 });
    figures.byte_errors.defects =
        [(471, 1, DefectKind::Changed), (2048, 31, DefectKind::Lost), (9001, 2, DefectKind::Inserted)]
            .map(|(offset, bytes, kind)| Defect { offset, bytes, kind })
            .into();
    let port = |number: usize, rate: f64| {
        let mut part = part(&format!("serial:///dev/ttyUSB{number}?baud=9600"), rate_figures(rate));
        part.figures.delivery.line_rate_percent = Some(rate / 76.8);
        part
    };
    bad.per_port = vec![port(0, 7250.1), port(1, 7671.3), port(2, 7669.0), port(3, 7670.2)];
    bad.per_port[0].figures = bad.figures.clone();
    bad.per_port[0].figures.delivery.line_rate_percent = Some(94.4);
    bad.per_port[0].figures.delivery.throughput_bps = Some(7250.1);
    run(Some("Loops through plugs"), vec![good, bad])
}

/// The stages of a round trip of which both ends have stamps.
fn stages() -> StageFigures {
    let stage = |ns| distribution(&latency_histogram(ns, 9_990));
    StageFigures {
        stamped: 9_990,
        unstamped: 3,
        local_send_ns: Some(stage(3_100)),
        local_queue_ns: Some(stage(600)),
        beyond_ns: Some(stage(29_900)),
        network_ns: Some(stage(17_500)),
        remote_receive_ns: Some(stage(8_200)),
        remote_program_ns: Some(stage(300)),
        remote_send_ns: Some(stage(3_300)),
        remote_queue_ns: Some(stage(600)),
        local_receive_ns: Some(stage(6_400)),
        sum_error_ns: Some(stage(40)),
        cost_ns: Some(3_400.0),
    }
}

/// A remote that reports its timestamps and the marks that arrived.
pub(crate) fn one_way_delays() -> Run {
    let mut figures = latency_figures(40_000, 9_993);
    figures.one_way = Some(OneWayFigures {
        turnaround_ns: distribution(&latency_histogram(1_200, 9_993)),
        path_ns: distribution(&latency_histogram(38_800, 9_993)),
        forward_variation_ns: distribution(&latency_histogram(2_400, 9_993)),
        reverse_variation_ns: distribution(&latency_histogram(800, 9_993)),
        forward_p50_ns: 20_512.5,
        reverse_p50_ns: 18_912.5,
        one_way_error_bound_ns: 19_400.0,
        bound_source: BoundSource::CommonTime,
        clock_disagreement_ns: Some(31_000.0),
        clock_offset_ns: -7_300_000.0,
        clock_drift_ppm: 3.2,
        clock_steps: 1,
        forward_lost: Some(5),
        reverse_lost: Some(2),
    });
    figures.stages = Some(stages());
    figures.flows = Some(FlowFigures {
        count: 100,
        fairness: 0.998,
        min_max_ratio: 0.81,
        mean_min_ns: Some(40_100.0),
        mean_p50_ns: Some(41_300.0),
        mean_p90_ns: Some(44_800.0),
        mean_p99_ns: Some(61_000.0),
        mean_max_ns: Some(80_300.0),
        slowest_flows: [17, 3]
            .map(|flow| SlowFlow { flow, transferred: 96, mean_ns: Some(80_300.0), max_ns: Some(912_000) })
            .into(),
    });
    figures.marks = PacketMarks {
        forward_ce: Some(12),
        reverse_ce: Some(0),
        forward_ecn_changed: Some(0),
        reverse_ecn_changed: Some(0),
        forward_dscp_changed: Some(0),
        reverse_dscp_changed: Some(0),
    };
    let mut case = case("udp://router.example:862", "latency", Direction::Loop, 44, figures);
    case.series = vec![SeriesEntry {
        start_ns: 0,
        length_ns: 100_000_000,
        messages: 100,
        bytes: 4_400,
        lost: 0,
        ce: 12,
        latency_min_ns: Some(31_000),
        latency_mean_ns: Some(41_000.0),
        latency_p50_ns: Some(40_000),
        latency_p99_ns: Some(82_000),
        latency_max_ns: Some(95_000),
        forward_queue_ns: Some(9_000),
        reverse_queue_ns: Some(1_000),
    }];
    run(None, vec![CaseResult { parallel: 100, ..case }])
}

/// Flows that open further connections.
pub(crate) fn further_connections() -> Run {
    let mut figures = latency_figures(31_000, 10_000);
    figures.times.connect_ns = Some(distribution(&latency_histogram(48_000, 999)));
    figures.connections = Some(ConnectionCounts { connections: 999, failed_connections: 1 });
    run(None, vec![case(LOCAL_SERVER, "latency", Direction::Loop, 8, figures)])
}

/// Evidence with every field.
fn evidence() -> Evidence {
    let counters = |name: &str| Counters::from([(name.to_owned(), 40)]);
    let gauge = Gauge { min: 20_100_000, median: 20_500_000, max: 26_500_000, readings: 100 };
    let reading = ConnectionReading {
        at_ns: 100_000_000,
        rtt_ns: 20_500_000,
        congestion_window_segments: 10,
        retransmitted_segments: 1,
        delivery_rate_bps: Some(47_800_000),
    };
    let client = EndEvidence {
        observed_ns: 10_000_000_000,
        connections: ConnectionEvidence {
            count: 1,
            counters: counters("tcp_retransmitted_segments"),
            gauges: [("tcp_rtt_ns".to_owned(), gauge)].into(),
            series: vec![reading],
        },
        threads: counters("thread_run_queue_wait_ns"),
        host: counters("TcpExt.DelayedACKs"),
    };
    Evidence { server: Some(client.clone()), client }
}

/// One case with the required fields only.
pub(crate) fn minimal() -> Run {
    let counts = MessageCounts { sent: 3, received: 1, lost: 2, ..MessageCounts::default() };
    let figures = Figures { counts, ..Figures::default() };
    run(None, vec![case("mem://a", "latency", Direction::Loop, 1, figures)])
}

/// A file that does not count the losses.
pub(crate) fn imported() -> Run {
    let mut figures = latency_figures(40_000, 1000);
    figures.counts.forget_losses();
    let mut case = case("study.log", "latency", Direction::Loop, 0, figures);
    (case.protocol, case.method) = ("unknown".to_owned(), "latency/imported/samples".to_owned());
    case.requested = map(json!({"imported_from": "study.log"}));
    run(None, vec![case])
}

/// Stopped before anything was measured.
pub(crate) fn empty() -> Run {
    Run { interrupted: true, ..run(None, vec![]) }
}

/// From an untrusted file.
pub(crate) fn hostile() -> Run {
    let mut run = full();
    let script = || format!("{HOSTILE_SCRIPT}\u{1b}[2J\"'&");
    run.title = Some(script());
    run.tool = script();
    run.id = script();
    run.environment.client = map(json!({"host": script(), script(): [script()]}));
    run.warnings = vec![Warning { code: script().into(), text: script(), remedy: script() }];
    for case in &mut run.cases {
        (case.endpoint, case.protocol, case.method) = (script(), script(), script());
        case.requested = map(json!({script(): {script(): script()}}));
        case.effective = case.requested.clone();
        case.placement.stand_in = Some(script());
        case.placement.host_load.busiest = Some(script());
        case.warnings = run.warnings.clone();
        case.thresholds = vec![ThresholdResult { threshold: script(), measured: script(), passed: false }];
        case.figures.histogram_hdr_v2 = Some(script());
        case.figures.intervals.insert(script(), Interval { low: f64::MIN, high: f64::MAX });
        for part in case.per_port.iter_mut().chain(&mut case.repeats) {
            part.endpoint = script();
        }
        for entry in &mut case.series {
            (entry.start_ns, entry.length_ns, entry.bytes) = (u64::MAX, 1, u64::MAX);
        }
    }
    run.cases[0].workload = script();
    run.cases[3].figures.delivery.throughput_bps = Some(f64::MAX);
    let latency = run.cases[1].figures.times.latency_ns.as_mut().unwrap();
    (latency.min, latency.max) = (0, u64::MAX);
    latency.percentiles.insert("p99.99999999999999999999".to_owned(), Some(u64::MAX));
    run
}
