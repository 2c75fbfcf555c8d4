//! Client and server control connections with given bytes and a virtual clock.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::client::{ClientControl, ClientPlan};
use super::server;
use super::wire::{self, ControlState, Cookie, ErrorCode, Parameters, TestResults};
use crate::clock::Time;
use crate::link::party::{Party, PartyCost, Step, StopReason};
use crate::link::{Admission, Caps, Framing};
use crate::plan::{Pacing, StopCondition};
use crate::protocol::{ServerConfig, ServerLimits, Service};
use crate::workload::Load;

/// The output of a party at `now`, until it waits or ends.
#[derive(Debug, PartialEq)]
enum NextStep {
    Receives(Time),
    Sleeps,
    Done,
    Fails(String),
}

fn drain_output(party: &mut dyn Party, now: Time) -> (Vec<u8>, NextStep) {
    let mut words = Vec::new();
    for _ in 0..1000 {
        let then = match party.next_step(now) {
            Step::Send { bytes, .. } => {
                let length = bytes.len();
                words.extend_from_slice(bytes);
                party.on_sent(length, now);
                continue;
            }
            Step::Tune(_) | Step::FinishSending => continue,
            Step::Receive { until, .. } => NextStep::Receives(until),
            Step::Sleep(_) => NextStep::Sleeps,
            Step::Done => NextStep::Done,
            Step::Fail(fault) => NextStep::Fails(fault.to_string()),
            Step::Reopen | Step::ReadStamps(_) => panic!("its links are opened once and have no stamps"),
        };
        return (words, then);
    }
    panic!("it never rests");
}

/// Delivers these bytes, in as many chunks as the party's buffer requires.
fn deliver(party: &mut dyn Party, mut bytes: &[u8], now: Time) {
    while !bytes.is_empty() {
        match party.next_step(now) {
            Step::Receive { into, .. } => {
                let (chunk, behind) = bytes.split_at(bytes.len().min(into.bytes.len()));
                into.clear();
                into.bytes[..chunk.len()].copy_from_slice(chunk);
                into.push_span(0, chunk.len());
                bytes = behind;
                party.on_received(now);
            }
            Step::Send { bytes, .. } => {
                let length = bytes.len();
                party.on_sent(length, now);
            }
            Step::Tune(_) => {}
            _ => return,
        }
    }
}

fn parameters() -> Parameters {
    let asked = json!({"tcp": true, "time": 1, "parallel": 1, "len": 1000});
    Parameters::from_json(asked.as_object().unwrap()).unwrap()
}

fn client() -> ClientControl {
    let (timeout, time) = (Duration::from_secs(5), Some(Duration::from_secs(1)));
    let plan = ClientPlan {
        parameters: parameters(),
        framing: Framing::Stream,
        reply_timeout: timeout,
        max_time: time,
        max_bytes: None,
    };
    ClientControl::new(&Cookie::random(), plan, Arc::default())
}

/// A client that waits for the server's results.
fn client_awaiting_results() -> ClientControl {
    let mut client = client();
    let (words, _) = drain_output(&mut client, Time(0));
    assert_eq!(words.len(), wire::COOKIE_BYTES);
    deliver(&mut client, &[ControlState::ParameterExchange as u8], Time(0));
    let (words, _) = drain_output(&mut client, Time(0));
    assert_eq!(words, wire::encode_framed(&parameters().to_json()));
    deliver(&mut client, &[ControlState::CreateStreams as u8], Time(0));
    assert_eq!(drain_output(&mut client, Time(0)), (vec![], NextStep::Done));
    assert!(!client.start(), "not before the server says so");
    assert!(client.streams_opened(Box::new(|| Some(true))));
    // Both states arrive at once.
    deliver(&mut client, &[ControlState::TestStart as u8, ControlState::TestRunning as u8], Time(0));
    assert_eq!(drain_output(&mut client, Time(0)), (vec![], NextStep::Done));
    assert!(client.start());
    // No sender runs, and everything has been acknowledged: the server gets time to read it.
    let (words, then) = drain_output(&mut client, Time(0));
    assert!(words.is_empty() && matches!(then, NextStep::Receives(until) if until > Time(0)));
    let (words, _) = drain_output(&mut client, Time(100_000_000));
    assert_eq!(words, [ControlState::TestEnd as u8]);
    deliver(&mut client, &[ControlState::ExchangeResults as u8], Time(100_000_000));
    let (words, _) = drain_output(&mut client, Time(100_000_000));
    let (object, used) = wire::decode_framed(&words, wire::MAX_RESULTS_BYTES).unwrap().unwrap();
    assert!(used == words.len() && TestResults::from_json(&object, 1).is_ok());
    client
}

fn results(bytes: i64) -> Vec<u8> {
    let stream = json!({"id": 1, "bytes": bytes, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0});
    wire::encode_framed(&json!({"cpu_util_total": 1.5, "sender_has_retransmits": -1, "streams": [stream]}))
}

#[test]
fn a_client_runs_from_cookie_to_done() {
    let mut client = client_awaiting_results();
    deliver(
        &mut client,
        &[results(7000), vec![ControlState::DisplayResults as u8]].concat(),
        Time(200_000_000),
    );
    assert_eq!(
        drain_output(&mut client, Time(200_000_000)),
        (vec![ControlState::Done as u8], NextStep::Done)
    );
    assert_eq!(client.results.map(|results| results.streams[0].bytes), Some(7000));
}

#[test]
fn invalid_server_results_are_reported() {
    let fails = |words: &[u8]| {
        let mut client = client_awaiting_results();
        deliver(&mut client, words, Time(200_000_000));
        match drain_output(&mut client, Time(200_000_000)) {
            (_, NextStep::Fails(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    insta::assert_snapshot!([
        fails(&results(-1)),
        fails(&[0xFF; 4]),
        fails(&wire::encode_framed(&json!({"cpu_util_total": 1, "streams": []}))),
        fails(&wire::encode_framed(&json!([1, 2]))),
    ].join("\n"), @r"
    the server's results cannot be read: 'bytes' is negative
    the server's results cannot be read: it announces 4294967295 bytes at once
    the server's results cannot be read: the results are not about the streams of this test
    the server's results cannot be read: it sent no JSON object
    ");
}

#[test]
fn a_server_that_stops_replying_is_given_up() {
    let mut client = client();
    let (_, then) = drain_output(&mut client, Time(0));
    assert_eq!(then, NextStep::Receives(Time(5_000_000_000)));
    client.on_timeout(Time(5_000_000_000));
    assert!(matches!(drain_output(&mut client, Time(5_000_000_000)), (_, NextStep::Fails(_))));
    let mut client = client_awaiting_results();
    // Its streams may take their time to end.
    let (_, then) = drain_output(&mut client, Time(200_000_000));
    assert!(matches!(then, NextStep::Receives(until) if until <= Time(16_000_000_000)), "{then:?}");
}

/// A client that has sent its parameters.
fn client_with_parameters_sent() -> ClientControl {
    let mut client = client();
    drain_output(&mut client, Time(0));
    deliver(&mut client, &[ControlState::ParameterExchange as u8], Time(0));
    drain_output(&mut client, Time(0));
    client
}

#[test]
fn a_short_or_empty_refusal_is_explained() {
    for (words, reason) in [
        (&b"\xFE\x00\x00\x00\x8E"[..], "user name and a password"),
        (b"\xFE\x00\x00\x00\x25", "--server-max-duration"),
        (b"\xFE\x00\x00", "without a reason"),
        (b"\xFF", "busy"),
        (b"", "user name and a password"),
    ] {
        let mut client = client_with_parameters_sent();
        deliver(&mut client, words, Time(0));
        if words != b"\xFF" {
            assert!(
                matches!(drain_output(&mut client, Time(0)).1, NextStep::Receives(_)),
                "{words:?}: more may come"
            );
            client.on_closed(Time(0)).unwrap();
        }
        let (_, then) = drain_output(&mut client, Time(0));
        assert!(matches!(&then, NextStep::Fails(why) if why.contains(reason)), "{words:?}: {then:?}");
    }
}

#[test]
fn counters_of_64_bits_are_requested_only_when_needed() {
    let wide = |stop: StopCondition, pacing: Pacing| {
        super::needs_wide_counters(&Load { stop, pacing, ..Load::endless(1000) })
    };
    let (short, long) = (
        StopCondition::after_time(Duration::from_secs(10)),
        StopCondition::after_time(Duration::from_secs(3600)),
    );
    assert_eq!((wide(short, Pacing::Closed), wide(long, Pacing::Closed)), (false, true));
    let slow = Pacing::Fixed { per_second: 1e5 };
    assert_eq!(
        (wide(long, slow), wide(StopCondition::after_time(Duration::from_secs(86_400)), slow)),
        (false, true)
    );
    let count = |count: u64| StopCondition { count: Some(count), ..StopCondition::default() };
    assert_eq!((wide(count(1 << 32), Pacing::Closed), wide(count(1000), Pacing::Closed)), (true, false));
}

fn service(limits: ServerLimits, token: Option<String>) -> Arc<dyn Service> {
    server::new_service(&Arc::new(ServerConfig { limits, token, secret: [3; 32], ..ServerConfig::default() }))
}

#[test]
fn a_repeated_hello_gets_its_reply_again() {
    let service = service(ServerLimits::default(), None);
    let wants = Parameters { udp: true, ..parameters() };
    let (mut control, _) = open_control(&service, "192.0.2.1:1", &wants.to_json());
    drain_output(control.as_mut(), Time(0));
    let caps = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(65_507),
        can_signal_close: false,
        ..Caps::STREAM
    };
    let mut stream = service.new_party(&caps, "192.0.2.1:2");
    for _ in 0..3 {
        deliver(stream.as_mut(), &wire::UDP_HELLO, Time(0));
        assert_eq!(drain_output(stream.as_mut(), Time(0)).0, wire::UDP_REPLY);
        drain_output(control.as_mut(), Time(0));
    }
    // Numbered from 1, and too short for the test.
    let mut datagram = vec![0; 1000];
    datagram[11] = 1;
    deliver(stream.as_mut(), &datagram, Time(0));
    deliver(stream.as_mut(), &[7; 5], Time(0));
    deliver(control.as_mut(), &[ControlState::TestEnd as u8], Time(0));
    assert_eq!(drain_output(control.as_mut(), Time(0)).0, [ControlState::ExchangeResults as u8]);
}

/// A control connection that has sent its cookie and parameters.
fn open_control(
    service: &Arc<dyn Service>,
    from: &str,
    wants: &serde_json::Value,
) -> (Box<dyn Party>, Cookie) {
    let (mut party, cookie) = (service.new_party(&Caps::STREAM, from), Cookie::random());
    deliver(party.as_mut(), cookie.bytes(), Time(0));
    let (words, _) = drain_output(party.as_mut(), Time(0));
    assert_eq!(words, [ControlState::ParameterExchange as u8]);
    deliver(party.as_mut(), &wire::encode_framed(wants), Time(0));
    (party, cookie)
}

const HANDSHAKE_TIMEOUT: Time = Time(10_000_000_000);

#[test]
fn incomplete_handshakes_end_after_a_timeout() {
    let service = service(ServerLimits { sessions: 1, ..ServerLimits::default() }, None);
    let mut silent = service.new_party(&Caps::STREAM, "192.0.2.1:1");
    assert_eq!(drain_output(silent.as_mut(), Time(0)), (vec![], NextStep::Receives(HANDSHAKE_TIMEOUT)));
    silent.on_timeout(HANDSHAKE_TIMEOUT);
    assert_eq!(drain_output(silent.as_mut(), HANDSHAKE_TIMEOUT).1, NextStep::Done);

    let mut stuck = service.new_party(&Caps::STREAM, "192.0.2.1:2");
    deliver(stuck.as_mut(), Cookie::random().bytes(), Time(0));
    assert_eq!(drain_output(stuck.as_mut(), Time(0)), (vec![9], NextStep::Receives(HANDSHAKE_TIMEOUT)));
    // Meanwhile its slot is in use.
    let mut second = service.new_party(&Caps::STREAM, "192.0.2.1:3");
    deliver(second.as_mut(), Cookie::random().bytes(), Time(0));
    assert_eq!(
        drain_output(second.as_mut(), Time(0)),
        (vec![ControlState::AccessDenied as u8], NextStep::Done)
    );
    stuck.on_timeout(HANDSHAKE_TIMEOUT);
    let refused = (wire::encode_error(ErrorCode::Silent).to_vec(), NextStep::Done);
    assert_eq!(drain_output(stuck.as_mut(), HANDSHAKE_TIMEOUT), refused);
    drop(stuck);
    open_control(&service, "192.0.2.1:4", &parameters().to_json());
}

#[test]
fn streams_that_never_come_end_a_test() {
    let service = service(ServerLimits::default(), None);
    let (mut control, _) = open_control(&service, "192.0.2.1:1", &parameters().to_json());
    assert_eq!(drain_output(control.as_mut(), Time(0)).0, [ControlState::CreateStreams as u8]);
    let refused = (wire::encode_error(ErrorCode::StreamAccept).to_vec(), NextStep::Done);
    assert_eq!(drain_output(control.as_mut(), HANDSHAKE_TIMEOUT), refused);
}

#[test]
fn a_server_with_a_token_refuses_all_clients() {
    let service = service(ServerLimits::default(), Some("secret".to_owned()));
    let (mut control, _) = open_control(&service, "192.0.2.1:1", &parameters().to_json());
    assert_eq!(
        drain_output(control.as_mut(), Time(0)),
        (wire::encode_error(ErrorCode::Authorisation).to_vec(), NextStep::Done)
    );
}

#[test]
fn a_client_that_a_limit_ends_hears_the_number_of_that_limit() {
    let duration = parameters().duration_code(ErrorCode::DurationExpired);
    for (reason, code) in [
        (StopReason::TooLong, duration),
        (StopReason::Idle, ErrorCode::Silent),
        (StopReason::Evicted, ErrorCode::StreamRead),
    ] {
        let service = service(ServerLimits::default(), None);
        let (mut control, cookie) = open_control(&service, "192.0.2.1:1", &parameters().to_json());
        assert_eq!(drain_output(control.as_mut(), Time(0)).0, [ControlState::CreateStreams as u8]);
        let mut stream = service.new_party(&Caps::STREAM, "192.0.2.1:2");
        deliver(stream.as_mut(), cookie.bytes(), Time(0));
        drain_output(control.as_mut(), Time(0));
        drain_output(stream.as_mut(), Time(0));
        assert_eq!(
            drain_output(control.as_mut(), Time(0)).0,
            [ControlState::TestStart as u8, ControlState::TestRunning as u8]
        );
        assert_eq!(control.refusal(), None);
        // As the guard of the connection does it.
        stream.on_stopped(reason);
        stream.on_ended(PartyCost::default());
        assert_eq!(
            drain_output(control.as_mut(), Time(0)),
            (wire::encode_error(code).to_vec(), NextStep::Done)
        );
        assert_eq!(control.refusal(), Some(code.reason()));
    }
}

#[test]
fn streams_are_numbered_in_accept_order() {
    let service = service(ServerLimits::default(), None);
    let wants = Parameters { bidirectional: true, ..parameters() };
    let (mut control, cookie) = open_control(&service, "192.0.2.1:1", &wants.to_json());
    drain_output(control.as_mut(), Time(0));
    let [mut first, mut second] =
        [2, 3].map(|port| service.new_party(&Caps::STREAM, &format!("192.0.2.1:{port}")));
    deliver(second.as_mut(), cookie.bytes(), Time(0));
    deliver(first.as_mut(), cookie.bytes(), Time(0));
    // All have arrived; each sets up its link; then the client gets the start.
    let mut words = Vec::new();
    for _ in 0..3 {
        words.extend(drain_output(control.as_mut(), Time(0)).0);
        for stream in [&mut first, &mut second] {
            if words.is_empty() {
                drain_output(stream.as_mut(), Time(0));
            }
        }
    }
    assert_eq!(words, [ControlState::TestStart as u8, ControlState::TestRunning as u8]);
    assert!(
        matches!(drain_output(first.as_mut(), Time(0)), (none, NextStep::Receives(_)) if none.is_empty())
    );
    assert!(matches!(second.next_step(Time(0)), Step::Send { .. }), "the second sends");
}

#[test]
fn tests_of_one_host_open_their_datagram_streams_one_after_the_other() {
    let service = service(ServerLimits::default(), None);
    let wants = Parameters { udp: true, ..parameters() }.to_json();
    let admits = |from: &str, first: &[u8]| service.admit_sender(first, from, &mut Vec::new());
    assert_eq!(admits("192.0.2.1:9", &wire::UDP_HELLO), Admission::Drop);
    let (mut one, _) = open_control(&service, "192.0.2.1:1", &wants);
    let (mut two, _) = open_control(&service, "192.0.2.1:2", &wants);
    let (mut other, _) = open_control(&service, "192.0.2.2:3", &wants);
    let ready = vec![ControlState::CreateStreams as u8];
    assert_eq!(drain_output(one.as_mut(), Time(0)).0, ready);
    assert!(drain_output(two.as_mut(), Time(0)).0.is_empty());
    assert_eq!(drain_output(other.as_mut(), Time(0)).0, ready);
    assert_eq!(admits("192.0.2.1:9", &wire::UDP_HELLO), Admission::Open);
    assert_eq!(admits("192.0.2.1:9", &[0; 1000]), Admission::Drop);
    assert_eq!(admits("192.0.2.3:9", &wire::UDP_HELLO), Admission::Drop);
    // A mapped address is the same host.
    assert_eq!(admits("[::ffff:192.0.2.1]:9", &wire::UDP_HELLO), Admission::Open);
    // The first disconnects: the next one is served.
    drop(one);
    assert_eq!(drain_output(two.as_mut(), Time(0)).0, ready);
}
