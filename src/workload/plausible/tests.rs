//! Reports of servers that are right, wrong, or lie.

use super::*;
use crate::clock::Time;
use crate::plan::CaseSpec;
use crate::sample::Recorder;

const MB: u64 = 1_000_000;

fn case(toml: &str) -> Case {
    let spec: CaseSpec =
        toml::from_str(&format!("url = \"tcp://192.0.2.1\"\nworkload = \"throughput\"\n{toml}")).unwrap();
    spec.expand().unwrap().remove(0)
}

/// One flow that moved so many bytes in messages of 1000 bytes, in two seconds.
fn flow(role: Role, bytes: u64) -> Flowed {
    let mut recorder = Recorder::counting();
    recorder.begin(Time(0));
    recorder.delivered(Time(2_000_000_000), bytes / 1000, bytes);
    recorder.counts.sent = bytes / 1000;
    Flowed {
        role,
        port: 0,
        recorder,
        cpu_seconds: 0.0,
        cpu_wait_seconds: 0.0,
        waiting_seconds: 0.0,
        socket_drops: None,
        line_errors: None,
        fault: None,
    }
}

fn received(bytes: u64) -> FarFlow {
    FarFlow { bytes, messages: bytes / 1000, elapsed_ns: 2_000_000_000, ..FarFlow::default() }
}

struct Trial {
    case: Case,
    caps: Caps,
    flows: Vec<Flowed>,
    cut_short: bool,
}

impl Trial {
    fn of(flow: Flowed) -> Trial {
        Trial { case: case("size = 1000"), caps: Caps::STREAM, flows: vec![flow], cut_short: false }
    }

    fn check(&self, report: FarReport) -> Checked {
        let known = Known {
            case: &self.case,
            caps: std::slice::from_ref(&self.caps),
            flows: &self.flows,
            wall: Duration::from_secs(3),
            cut_short: self.cut_short,
        };
        checked(report, &known)
    }

    fn doubt(&self, flow: FarFlow) -> String {
        self.check(report(flow)).doubts.join("; ")
    }
}

fn report(flow: FarFlow) -> FarReport {
    FarReport { flows: vec![flow], ..FarReport::default() }
}

#[test]
fn what_can_be_true_is_left_as_it_is() {
    let trial = Trial::of(flow(Role::Outward, 500 * MB));
    for flow in [
        received(500 * MB),
        // The last bytes are still to be read.
        received(490 * MB),
        FarFlow { elapsed_ns: 3_000_000_000, ..received(500 * MB) },
        FarFlow { elapsed_ns: 600_000_000, head_bytes: 100_000, ..received(500 * MB) },
        FarFlow { fault: Some("it broke off".to_owned()), ..FarFlow::default() },
    ] {
        let told = FarReport { cpu_seconds: Some(2.9), ..report(flow) };
        let checked = trial.check(told.clone());
        assert_eq!((checked.report, checked.doubts, checked.is_rate_unknown), (told, Vec::new(), false));
    }
    // Buffers hold all of it, so it arrives as fast as memory can be read.
    let small = Trial::of(flow(Role::Outward, MB));
    assert_eq!(small.doubt(FarFlow { elapsed_ns: 50_000, ..received(MB) }), "");
}

#[test]
fn what_cannot_be_true_of_a_receiver_leaves_no_rate() {
    let trial = Trial::of(flow(Role::Outward, 500 * MB));
    let doubt = |flow: FarFlow| {
        let checked = trial.check(report(flow));
        assert!(checked.is_rate_unknown && checked.report.flows.is_empty());
        assert_eq!(checked.doubts.len(), 1);
        checked.doubts[0].clone()
    };
    let most = u64::MAX;
    insta::assert_snapshot!([
        doubt(received(10_000_000_000_000)),
        doubt(FarFlow { messages: 1, ..received(500 * MB) }),
        doubt(FarFlow { elapsed_ns: 1, ..received(500 * MB) }),
        doubt(FarFlow { elapsed_ns: 400_000_000, ..received(500 * MB) }),
        doubt(FarFlow { elapsed_ns: most, ..received(500 * MB) }),
        doubt(FarFlow { duplicate: most, ..received(500 * MB) }),
        doubt(FarFlow { reordered: most, ..received(500 * MB) }),
        doubt(FarFlow { corrupt_messages: most, ..received(500 * MB) }),
        doubt(FarFlow { head_bytes: 499 * MB, ..received(500 * MB) }),
        doubt(received(0)),
        doubt(received(100 * MB)),
    ].join("\n"), @r"
    tcp://192.0.2.1: it reports 10000000000000 bytes received, 500000000 were sent
    tcp://192.0.2.1: it reports 1 messages of 1000 bytes, and 500000000 bytes
    tcp://192.0.2.1: it reports 500000000 bytes received in 1 ns, they were sent in 2000000000 ns
    tcp://192.0.2.1: it reports 500000000 bytes received in 400000000 ns, they were sent in 2000000000 ns
    tcp://192.0.2.1: it reports that it received for 18446744073709551615 ns, all took 3s
    tcp://192.0.2.1: it reports 18446744073709551615 messages that came twice, 500000 were sent
    tcp://192.0.2.1: it reports 18446744073709551615 messages that came out of order, 500000 were sent
    tcp://192.0.2.1: it reports 18446744073709551615 messages that came corrupt, 500000 were sent
    tcp://192.0.2.1: it reports that 499000000 of 500000000 bytes came at once
    tcp://192.0.2.1: it reports 0 bytes received, 500000000 were sent on a stream that loses nothing
    tcp://192.0.2.1: it reports 100000000 bytes received, 500000000 were sent on a stream that loses nothing
    ");
}

#[test]
fn a_server_that_saw_the_end_of_a_stream_has_all_of_it() {
    let trial = Trial::of(flow(Role::Outward, 500 * MB));
    let seen = |trial: &Trial, flow| trial.check(FarReport { saw_end: true, ..report(flow) }).doubts.len();
    assert_eq!(seen(&trial, received(500 * MB)), 0);
    assert_eq!(seen(&trial, received(500 * MB - 1000)), 1);
    let cut = Trial { cut_short: true, ..Trial::of(flow(Role::Outward, 500 * MB)) };
    assert_eq!(seen(&cut, received(0)), 0);
    let datagrams = Caps { framing: Framing::Message, reliable: false, ..Caps::STREAM };
    let lossy = Trial { caps: datagrams, ..Trial::of(flow(Role::Outward, 500 * MB)) };
    assert_eq!(seen(&lossy, received(0)), 0);
    assert_eq!(seen(&lossy, received(501 * MB)), 1);
    let warm = case("size = 1000\nwarm_up_time = \"1s\"");
    let warm = Trial { case: warm, ..Trial::of(flow(Role::Outward, 500 * MB)) };
    assert_eq!(seen(&warm, received(520 * MB)) + seen(&warm, received(480 * MB)), 0);
    assert_eq!(seen(&warm, received(1000 * MB)), 1);
}

#[test]
fn what_a_server_sent_is_at_least_what_came() {
    let trial = Trial::of(flow(Role::Inward, 500 * MB));
    let sent = |messages| report(FarFlow { messages, inward: true, ..FarFlow::default() });
    for messages in [499_999, 500_000, 700_000] {
        assert!(trial.check(sent(messages)).doubts.is_empty(), "{messages}");
    }
    for messages in [0, 1, u64::MAX, 1 << 40] {
        let checked = trial.check(sent(messages));
        assert!(!checked.is_rate_unknown, "the client counts what it receives");
        assert_eq!((checked.doubts.len(), checked.report.flows[0].messages), (1, 500_000));
    }
}

#[test]
fn cpu_time_is_bounded_by_the_time_and_the_threads() {
    let trial = Trial::of(flow(Role::Outward, MB));
    for seconds in [f64::MAX, f64::NAN, -1.0, 100.0] {
        let checked = trial.check(FarReport { cpu_seconds: Some(seconds), ..report(received(MB)) });
        assert_eq!((checked.report.cpu_seconds, checked.doubts.len()), (None, 1));
        assert!(!checked.is_rate_unknown);
    }
}
