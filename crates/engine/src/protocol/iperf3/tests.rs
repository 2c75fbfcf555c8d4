//! Client and server control connections with given bytes and a virtual clock.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::client::{ClientControl, ClientPlan};
use super::data::entry::{Identification, StreamEntry};
use super::data::{StreamParams, TestState, TestStream};
use super::server;
use super::wire::{self, ControlState, Cookie, ErrorCode, Parameters, TestResults};
use crate::link::party::{Party, PartyCost, Step, StopReason};
use crate::link::{Admission, Caps, Framing};
use crate::protocol::{ServerConfig, ServerLimits, Service};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::sample::Recorder;

mod end_of_test;

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
    client_of(&Arc::default())
}

fn client_of(test: &Arc<TestState>) -> ClientControl {
    client_with(parameters(), test)
}

fn client_with(parameters: Parameters, test: &Arc<TestState>) -> ClientControl {
    let (timeout, time) = (Duration::from_secs(5), Some(Duration::from_secs(1)));
    let plan = ClientPlan {
        parameters,
        framing: Framing::Stream,
        reply_timeout: timeout,
        max_time: time,
        max_bytes: None,
    };
    ClientControl::new(&Cookie::random(), plan, test.clone())
}

/// Leads a client up to the running test.
fn start_test(client: &mut ClientControl, test: &TestState) {
    let (words, _) = drain_output(client, Time(0));
    assert_eq!(words.len(), wire::COOKIE_BYTES);
    deliver(client, &[ControlState::ParameterExchange as u8], Time(0));
    let (words, _) = drain_output(client, Time(0));
    assert!(wire::decode_framed(&words, wire::MAX_RESULTS_BYTES).unwrap().is_some(), "the parameters");
    deliver(client, &[ControlState::CreateStreams as u8], Time(0));
    assert_eq!(drain_output(client, Time(0)), (vec![], NextStep::Done));
    assert!(client.open_streams(Box::new(|| Some(true))));
    test.add_ready_stream();
    // Both states arrive at once.
    deliver(client, &[ControlState::TestStart as u8, ControlState::TestRunning as u8], Time(0));
}

/// A client that waits for the server's results.
fn client_awaiting_results() -> ClientControl {
    let test = Arc::<TestState>::default();
    let mut client = client_of(&test);
    start_test(&mut client, &test);
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

/// The capabilities of UDP.
fn datagrams() -> Caps {
    Caps {
        framing: Framing::Message,
        max_message_bytes: Some(65_507),
        can_signal_close: false,
        ..Caps::STREAM
    }
}

fn stream_params<'a>(load: &'a Load, caps: &'a Caps, test: &'a Arc<TestState>) -> StreamParams<'a> {
    StreamParams { load, caps, index: 0, test, counters_64bit: false, recorder: Recorder::for_counting() }
}

/// A datagram of the test, by its number from 1.
fn datagram(number: u8) -> Vec<u8> {
    let mut datagram = vec![0; 1000];
    datagram[11] = number;
    datagram
}

#[test]
fn the_last_stream_enters_when_its_receiver_is_ready_and_counts_all_that_arrives() {
    let replies = [*b"6789", *b"9876", 987_654_321_u32.to_le_bytes(), 987_654_321_u32.to_be_bytes()];
    // Without a reply the payload shows that the server has the hello.
    for reply in replies.iter().map(Some).chain([None]) {
        let (test, load, caps) = (Arc::<TestState>::default(), Load::endless(1000), datagrams());
        let identification = Identification {
            bytes: wire::UDP_HELLO.to_vec(),
            framing: Framing::Message,
            timeout: Duration::from_secs(5),
            no_reply: "silent".to_owned(),
            others: 1,
        };
        let entry = StreamEntry::new(Some(identification));
        let mut stream = TestStream::receiver(stream_params(&load, &caps, &test)).at_client(entry);
        assert!(matches!(stream.next_step(Time(0)), Step::Tune(_)), "it is tuned before the server may send");
        assert_eq!(drain_output(&mut stream, Time(0)), (vec![], NextStep::Sleeps), "another is not ready");
        test.add_ready_stream();
        let (words, then) = drain_output(&mut stream, Time(0));
        assert_eq!((words.as_slice(), then), (&wire::UDP_HELLO[..], NextStep::Receives(Time(1_000_000_000))));
        assert_eq!(test.ready_streams(), 1);
        if let Some(reply) = reply {
            deliver(&mut stream, reply, Time(1));
        }
        for number in 1..=3 {
            deliver(&mut stream, &datagram(number), Time(2));
        }
        assert_eq!((test.ready_streams(), test.received_bytes()), (2, 3000));
        stream.on_ended(PartyCost::default());
        let ended = &test.stream_results(1)[0];
        assert_eq!((ended.packets, ended.missing_packets), (3, 0));
    }
}

#[test]
fn datagrams_after_the_time_of_a_bidirectional_test_count_but_are_in_no_rate() {
    let test = Arc::<TestState>::default();
    let plan = ClientPlan {
        parameters: Parameters { udp: true, bidirectional: true, ..parameters() },
        framing: Framing::Message,
        reply_timeout: Duration::from_secs(5),
        max_time: Some(Duration::from_secs(1)),
        max_bytes: None,
    };
    let mut client = ClientControl::new(&Cookie::random(), plan, test.clone());
    let (load, caps) = (Load::endless(1000), datagrams());
    let mut receiver = TestStream::receiver(stream_params(&load, &caps, &test));
    drain_output(&mut client, Time(0));
    deliver(&mut client, &[ControlState::ParameterExchange as u8], Time(0));
    drain_output(&mut client, Time(0));
    deliver(&mut client, &[ControlState::CreateStreams as u8], Time(0));
    drain_output(&mut client, Time(0));
    assert!(client.open_streams(Box::new(|| None)));
    (0..2).for_each(|_| test.add_ready_stream());
    deliver(&mut client, &[ControlState::TestStart as u8, ControlState::TestRunning as u8], Time(0));
    drain_output(&mut client, Time(0));
    assert!(matches!(receiver.next_step(Time(0)), Step::Tune(_)));
    deliver(&mut receiver, &datagram(1), Time(100_000_000));
    // No sender runs, so the time is over. The end is signalled after the flight of the last datagrams.
    let (words, _) = drain_output(&mut client, Time(1_000_000_000));
    assert!(words.is_empty() && !test.is_ended());
    deliver(&mut receiver, &datagram(2), Time(1_100_000_000));
    assert_eq!(test.received_bytes(), 2000, "the link is alive");
    let (words, _) = drain_output(&mut client, Time(2_000_000_000));
    assert_eq!(words, [ControlState::TestEnd as u8]);
    // What the server had sent by then still arrives.
    deliver(&mut receiver, &datagram(4), Time(2_100_000_000));
    drain_output(&mut receiver, Time(2_100_000_000));
    receiver.on_timeout(Time(2_500_000_000));
    assert!(matches!(receiver.next_step(Time(2_500_000_000)), Step::Done));
    receiver.on_ended(PartyCost::default());
    let ended = &test.stream_results(1)[0];
    assert_eq!((ended.bytes, ended.last_instant), (3000, Some(Time(100_000_000))));
    assert_eq!((ended.messages, ended.sent_messages, ended.missing_packets), (3, 4, 1));
    assert_eq!(
        receiver.recorder().untimed_bytes,
        3000,
        "the first took no time, the others arrived after it"
    );
}

#[test]
fn a_hello_without_replies_is_repeated_and_given_up() {
    let (test, load, caps) = (Arc::<TestState>::default(), Load::endless(1000), datagrams());
    let identification = Identification {
        bytes: wire::UDP_HELLO.to_vec(),
        framing: Framing::Message,
        timeout: Duration::from_secs(5),
        no_reply: "silent".to_owned(),
        others: 0,
    };
    let entry = StreamEntry::new(Some(identification));
    let mut stream = TestStream::sender(stream_params(&load, &caps, &test)).at_client(entry);
    assert!(matches!(stream.next_step(Time(0)), Step::Tune(_)));
    for second in 0..5 {
        let (words, then) = drain_output(&mut stream, Time(second * 1_000_000_000));
        let until = Time((second + 1) * 1_000_000_000);
        assert_eq!((words.as_slice(), then), (&wire::UDP_HELLO[..], NextStep::Receives(until)));
        stream.on_timeout(until);
    }
    assert_eq!(drain_output(&mut stream, Time(5_000_000_000)).1, NextStep::Fails("silent".to_owned()));
}

#[test]
fn a_receiver_in_a_shared_thread_notices_the_silence_after_the_end() {
    let (test, load, caps) = (Arc::<TestState>::default(), Load::endless(1000), datagrams());
    let mut stream = TestStream::receiver(stream_params(&load, &caps, &test)).at_server();
    assert!(matches!(stream.next_step(Time(0)), Step::Tune(_)));
    deliver(&mut stream, &datagram(1), Time(0));
    test.signal_end();
    // Others in the thread let it continue every 10 ms.
    let ended = (0..100).map(|step| Time(step * 10_000_000)).find(|&now| match stream.next_step(now) {
        Step::Receive { until, .. } if until > now => false,
        Step::Receive { .. } => {
            stream.on_timeout(now);
            false
        }
        step => matches!(step, Step::Done),
    });
    assert!(ended.is_some_and(|ended| ended <= Time(400_000_000)), "{ended:?}");
}

#[test]
fn a_test_on_a_lost_link_ends_about_a_timeout_after_the_loss() {
    let test = Arc::<TestState>::default();
    let load = Load { timeout: Duration::from_secs(5), ..Load::endless(1000) };
    let caps = Caps::STREAM;
    let mut stream = TestStream::sender(stream_params(&load, &caps, &test));
    let mut client = client_of(&test);
    start_test(&mut client, &test);
    assert!(matches!(drain_output(&mut client, Time(0)).1, NextStep::Receives(_)));
    // The stream has stalled for its timeout.
    assert!(matches!(stream.next_step(Time(0)), Step::Tune(_)));
    assert!(matches!(stream.next_step(Time(0)), Step::Send { .. }));
    let mut now = Time(5_000_000_001);
    assert!(matches!(stream.next_step(now), Step::Fail(_)));
    stream.on_ended(PartyCost::default());
    assert_eq!(drain_output(&mut client, now).0, [ControlState::TestEnd as u8]);
    let error = loop {
        match drain_output(&mut client, now).1 {
            NextStep::Receives(until) => now = until,
            other => break other,
        }
        client.on_timeout(now);
    };
    assert!(matches!(error, NextStep::Fails(_)) && now <= Time(6_100_000_000), "{error:?} {now:?}");
}

#[test]
fn a_silent_control_connection_is_named() {
    let test = Arc::<TestState>::default();
    let mut client = client_of(&test);
    start_test(&mut client, &test);
    let mut now = Time(0);
    let error = loop {
        match drain_output(&mut client, now).1 {
            NextStep::Receives(until) => now = until,
            NextStep::Fails(error) => break error,
            other => panic!("{other:?}"),
        }
        client.on_timeout(now);
    };
    // Its system had acknowledged all payload.
    assert!(error.contains("control connection") && error.contains("NAT"), "{error}");
    assert!(now <= Time(5_500_000_000), "{now:?}");
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
    let caps = datagrams();
    let mut stream = service.new_party(&caps, "192.0.2.1:2");
    // Of a little-endian and a big-endian machine, since 3.10 and before; in their own byte order.
    for (hello, reply) in [
        (*b"9876", *b"6789"),
        (*b"6789", *b"9876"),
        (123_456_789_u32.to_le_bytes(), 987_654_321_u32.to_le_bytes()),
        (123_456_789_u32.to_be_bytes(), 987_654_321_u32.to_be_bytes()),
    ] {
        deliver(stream.as_mut(), &hello, Time(0));
        assert_eq!(drain_output(stream.as_mut(), Time(0)).0, reply);
        drain_output(control.as_mut(), Time(0));
    }
    // Numbered from 1, and too short for the test.
    deliver(stream.as_mut(), &datagram(1), Time(0));
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

#[test]
fn a_vanished_client_blocks_the_others_of_its_host_for_two_seconds() {
    let service = service(ServerLimits::default(), None);
    let wants = Parameters { udp: true, ..parameters() }.to_json();
    let (mut vanished, _) = open_control(&service, "192.0.2.1:1", &wants);
    let ready = vec![ControlState::CreateStreams as u8];
    assert_eq!(drain_output(vanished.as_mut(), Time(0)).0, ready);
    let (mut next, _) = open_control(&service, "192.0.2.1:2", &wants);
    assert!(drain_output(next.as_mut(), Time(0)).0.is_empty());
    let refused = (wire::encode_error(ErrorCode::StreamAccept).to_vec(), NextStep::Done);
    assert_eq!(drain_output(vanished.as_mut(), Time(2_000_000_000)), refused);
    drop(vanished);
    assert_eq!(drain_output(next.as_mut(), Time(2_000_000_000)).0, ready);
}

#[test]
fn the_cpu_time_of_an_omitted_start_is_relative_to_all_of_the_test() {
    let service = service(ServerLimits::default(), None);
    let wants = Parameters { omit_s: 2, ..parameters() };
    let (mut control, cookie) = open_control(&service, "192.0.2.1:1", &wants.to_json());
    drain_output(control.as_mut(), Time(0));
    let mut stream = service.new_party(&Caps::STREAM, "192.0.2.1:2");
    deliver(stream.as_mut(), cookie.bytes(), Time(0));
    drain_output(control.as_mut(), Time(0));
    drain_output(stream.as_mut(), Time(0));
    drain_output(control.as_mut(), Time(0));
    let end = Time(3_000_000_000);
    deliver(control.as_mut(), &[ControlState::TestEnd as u8], end);
    drain_output(control.as_mut(), end);
    stream.on_ended(PartyCost { cpu_seconds: 1.5, ..PartyCost::default() });
    deliver(control.as_mut(), &results(0), end);
    let (words, _) = drain_output(control.as_mut(), end);
    let (object, _) = wire::decode_framed(&words, wire::MAX_RESULTS_BYTES).unwrap().unwrap();
    assert_eq!(TestResults::from_json(&object, 1).unwrap().cpu_percent, 50.0);
}

#[test]
fn a_volume_is_sent_in_whole_blocks() {
    let whole = [(1_000_000, 131_072), (1000, 1000), (1, 1000), (0, 7), (u64::MAX, 1000)];
    let whole = whole.map(|(bytes, block)| wire::in_whole_blocks(bytes, block));
    assert_eq!(whole, [1_048_576, 1000, 1000, 0, u64::MAX]);
}
