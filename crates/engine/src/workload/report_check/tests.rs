//! Correct, wrong and dishonest reports of servers.

use super::*;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

const MB: u64 = 1_000_000;

/// Flow of this many bytes in messages of 1000 bytes over two seconds.
fn flow(role: FlowRole, bytes: u64) -> FlowResult {
    let mut recorder = Recorder::for_counting();
    recorder.begin(Time(0));
    recorder.record_delivery(Time(2_000_000_000), bytes / 1000, bytes);
    recorder.counts.sent = bytes / 1000;
    FlowResult::of_records(role, recorder)
}

fn received(bytes: u64) -> FlowReport {
    FlowReport { bytes, messages: bytes / 1000, elapsed_ns: 2_000_000_000, ..FlowReport::default() }
}

struct ReportFixture {
    load: Load,
    caps: Caps,
    flows: Vec<FlowResult>,
    was_interrupted: bool,
}

impl ReportFixture {
    fn with_flow(flow: FlowResult) -> ReportFixture {
        ReportFixture {
            load: Load::endless(1000),
            caps: Caps::STREAM,
            flows: vec![flow],
            was_interrupted: false,
        }
    }

    fn check(&self, report: ServerReport) -> CheckedReport {
        let known = LocalObservations {
            endpoints: &["tcp://192.0.2.1".parse().unwrap()],
            load: &self.load,
            caps: std::slice::from_ref(&self.caps),
            flows: &self.flows,
            elapsed: Duration::from_secs(3),
            was_interrupted: self.was_interrupted,
        };
        check_report(report, &known)
    }

    fn problem(&self, flow: FlowReport) -> String {
        self.check(report(flow)).problems.join("; ")
    }
}

fn report(flow: FlowReport) -> ServerReport {
    ServerReport { flows: vec![flow], ..ServerReport::default() }
}

#[test]
fn plausible_reports_are_unchanged() {
    let trial = ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB));
    for flow in [
        received(500 * MB),
        // The last bytes are still unread.
        received(490 * MB),
        FlowReport { elapsed_ns: 3_000_000_000, ..received(500 * MB) },
        FlowReport { elapsed_ns: 600_000_000, head_bytes: 100_000, ..received(500 * MB) },
        FlowReport { fault: Some("it broke off".to_owned()), ..FlowReport::default() },
    ] {
        let reported = ServerReport { cpu_seconds: Some(2.9), ..report(flow) };
        let checked = trial.check(reported.clone());
        assert_eq!(
            (checked.report, checked.problems, checked.is_rate_unknown),
            (reported, Vec::new(), false)
        );
    }
    // Buffers hold all of it, so it arrives at memory speed.
    let small = ReportFixture::with_flow(flow(FlowRole::Upload, MB));
    assert_eq!(small.problem(FlowReport { elapsed_ns: 50_000, ..received(MB) }), "");
}

#[test]
fn implausible_receive_reports_leave_no_rate() {
    let trial = ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB));
    let doubt = |flow: FlowReport| {
        let checked = trial.check(report(flow));
        assert!(checked.is_rate_unknown && checked.report.flows.is_empty());
        assert_eq!(checked.problems.len(), 1);
        checked.problems[0].clone()
    };
    let most = u64::MAX;
    insta::assert_snapshot!([
        doubt(received(10_000_000_000_000)),
        doubt(FlowReport { messages: 1, ..received(500 * MB) }),
        doubt(FlowReport { elapsed_ns: 1, ..received(500 * MB) }),
        doubt(FlowReport { elapsed_ns: 400_000_000, ..received(500 * MB) }),
        doubt(FlowReport { elapsed_ns: most, ..received(500 * MB) }),
        doubt(FlowReport { duplicate: most, ..received(500 * MB) }),
        doubt(FlowReport { reordered: most, ..received(500 * MB) }),
        doubt(FlowReport { corrupt_messages: most, ..received(500 * MB) }),
        doubt(FlowReport { head_bytes: 499 * MB, ..received(500 * MB) }),
        doubt(received(0)),
        doubt(received(100 * MB)),
    ].join("\n"), @r"
    tcp://192.0.2.1: it reports 10000000000000 bytes received, 500000000 were sent
    tcp://192.0.2.1: it reports 1 messages of 1000 bytes, and 500000000 bytes
    tcp://192.0.2.1: it reports 500000000 bytes received in 1 ns, they were sent in 2000000000 ns
    tcp://192.0.2.1: it reports 500000000 bytes received in 400000000 ns, they were sent in 2000000000 ns
    tcp://192.0.2.1: it reports that it received for 18446744073709551615 ns, but the case took 3s
    tcp://192.0.2.1: it reports 18446744073709551615 messages as duplicate, 500000 were sent
    tcp://192.0.2.1: it reports 18446744073709551615 messages as reordered, 500000 were sent
    tcp://192.0.2.1: it reports 18446744073709551615 messages as corrupt, 500000 were sent
    tcp://192.0.2.1: it reports that 499000000 of 500000000 bytes arrived at once
    tcp://192.0.2.1: it reports 0 bytes received, 500000000 were sent on a stream without loss
    tcp://192.0.2.1: it reports 100000000 bytes received, 500000000 were sent on a stream without loss
    ");
}

#[test]
fn a_complete_report_covers_the_whole_stream() {
    let trial = ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB));
    let seen = |trial: &ReportFixture, flow| {
        trial.check(ServerReport { is_complete: true, ..report(flow) }).problems.len()
    };
    assert_eq!(seen(&trial, received(500 * MB)), 0);
    assert_eq!(seen(&trial, received(500 * MB - 1000)), 1);
    let cut =
        ReportFixture { was_interrupted: true, ..ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB)) };
    assert_eq!(seen(&cut, received(0)), 0);
    let datagrams = Caps { framing: Framing::Message, is_reliable: false, ..Caps::STREAM };
    let lossy =
        ReportFixture { caps: datagrams, ..ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB)) };
    assert_eq!(seen(&lossy, received(0)), 0);
    assert_eq!(seen(&lossy, received(501 * MB)), 1);
    let warm_up = StopCondition::after_time(Duration::from_secs(1));
    let load = Load { warm_up, ..Load::endless(1000) };
    let warm = ReportFixture { load, ..ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB)) };
    assert_eq!(seen(&warm, received(520 * MB)) + seen(&warm, received(480 * MB)), 0);
    assert_eq!(seen(&warm, received(1000 * MB)), 1);
}

#[test]
fn a_server_sent_at_least_what_arrived() {
    let trial = ReportFixture::with_flow(flow(FlowRole::Download, 500 * MB));
    let sent = |messages| report(FlowReport { messages, inward: true, ..FlowReport::default() });
    for messages in [499_999, 500_000, 700_000] {
        assert!(trial.check(sent(messages)).problems.is_empty(), "{messages}");
    }
    for messages in [0, 1, u64::MAX, 1 << 40] {
        let checked = trial.check(sent(messages));
        assert!(!checked.is_rate_unknown, "the client counts what it receives");
        assert_eq!((checked.problems.len(), checked.report.flows[0].messages), (1, 500_000));
        // A stream loses nothing and has nothing from others, so the server sends more than it knows.
        let fault = checked.report.flows[0].fault.as_deref().unwrap_or_default();
        assert_eq!(fault.contains("went on sending after the end"), messages < 500_000, "{fault}");
    }
    let interrupted = ReportFixture { was_interrupted: true, ..trial };
    assert_eq!(interrupted.check(sent(1)).report.flows[0].fault, None);
}

#[test]
fn cpu_time_is_bounded_by_elapsed_time_and_threads() {
    let trial = ReportFixture::with_flow(flow(FlowRole::Upload, MB));
    for seconds in [f64::MAX, f64::NAN, -1.0, 100.0] {
        let checked = trial.check(ServerReport { cpu_seconds: Some(seconds), ..report(received(MB)) });
        assert_eq!((checked.report.cpu_seconds, checked.problems.len()), (None, 1));
        assert!(!checked.is_rate_unknown);
    }
}

#[test]
fn a_report_that_contradicts_itself_counts_for_nothing() {
    let trial = ReportFixture::with_flow(flow(FlowRole::Upload, 500 * MB));
    let contradictions = vec!["it reports 5 lost datagrams of 1".to_owned()];
    let checked =
        trial.check(ServerReport { contradictions: contradictions.clone(), ..report(received(500 * MB)) });
    assert_eq!((checked.problems, checked.is_rate_unknown), (contradictions, true));
    assert!(checked.report.flows.is_empty());
}
