//! Both control connections by hand: bytes in, bytes out, on a clock that goes as the test says.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::far;
use super::near::{Control, Plan};
use super::wire::{self, Code, Cookie, Parameters, Results, State};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step};
use crate::link::{Admission, Caps, Framing};
use crate::peer::{Limits, ServerFacts, Service};
use crate::plan::{Case, Pacing, Stop};

/// What a party says at `now`, until it waits or ends.
#[derive(Debug, PartialEq)]
enum Then {
    Listens(Time),
    Sleeps,
    Done,
    Fails(String),
}

fn said(party: &mut dyn Party, now: Time) -> (Vec<u8>, Then) {
    let mut words = Vec::new();
    for _ in 0..1000 {
        let then = match party.next(now) {
            Step::Send { bytes, .. } => {
                let length = bytes.len();
                words.extend_from_slice(bytes);
                party.sent(length, now);
                continue;
            }
            Step::Tune(_) | Step::Finish => continue,
            Step::Receive { until, .. } => Then::Listens(until),
            Step::Sleep(_) => Then::Sleeps,
            Step::Done => Then::Done,
            Step::Fail(fault) => Then::Fails(fault.to_string()),
            Step::Reopen => panic!("its links are opened once"),
        };
        return (words, then);
    }
    panic!("it never rests");
}

/// It hears these bytes, in as many pieces as it makes room for.
fn hear(party: &mut dyn Party, mut bytes: &[u8], now: Time) {
    while !bytes.is_empty() {
        match party.next(now) {
            Step::Receive { into, .. } => {
                let (piece, behind) = bytes.split_at(bytes.len().min(into.bytes.len()));
                into.clear();
                into.bytes[..piece.len()].copy_from_slice(piece);
                into.push(0, piece.len());
                bytes = behind;
                party.received(now);
            }
            Step::Send { bytes, .. } => {
                let length = bytes.len();
                party.sent(length, now);
            }
            Step::Tune(_) => {}
            _ => return,
        }
    }
}

fn parameters() -> Parameters {
    let asked = json!({"tcp": true, "time": 1, "parallel": 1, "len": 1000});
    Parameters::read(asked.as_object().unwrap()).unwrap()
}

fn client() -> Control {
    let (timeout, time) = (Duration::from_secs(5), Some(Duration::from_secs(1)));
    let plan = Plan { parameters: parameters(), framing: Framing::Stream, timeout, time, volume: None };
    Control::new(&Cookie::random(), plan, Arc::default())
}

/// A client up to the point at which it waits for the server's results.
fn client_that_ended() -> Control {
    let mut client = client();
    let (words, _) = said(&mut client, Time(0));
    assert_eq!(words.len(), wire::COOKIE);
    hear(&mut client, &[State::ParameterExchange as u8], Time(0));
    let (words, _) = said(&mut client, Time(0));
    assert_eq!(words, wire::framed(&parameters().write()));
    hear(&mut client, &[State::CreateStreams as u8], Time(0));
    assert_eq!(said(&mut client, Time(0)), (vec![], Then::Done));
    assert!(!client.run(), "not before the server says so");
    assert!(client.opened(Box::new(|| Some(true))));
    // Both come at once.
    hear(&mut client, &[State::TestStart as u8, State::TestRunning as u8], Time(0));
    assert_eq!(said(&mut client, Time(0)), (vec![], Then::Done));
    assert!(client.run());
    // No sender runs, and everything has been acknowledged: the server gets time to read it.
    let (words, then) = said(&mut client, Time(0));
    assert!(words.is_empty() && matches!(then, Then::Listens(until) if until > Time(0)));
    let (words, _) = said(&mut client, Time(100_000_000));
    assert_eq!(words, [State::TestEnd as u8]);
    hear(&mut client, &[State::ExchangeResults as u8], Time(100_000_000));
    let (words, _) = said(&mut client, Time(100_000_000));
    let (object, used) = wire::read_framed(&words, wire::LONGEST_RESULTS).unwrap().unwrap();
    assert!(used == words.len() && Results::read(&object, 1).is_ok());
    client
}

fn results(bytes: i64) -> Vec<u8> {
    let stream = json!({"id": 1, "bytes": bytes, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0});
    wire::framed(&json!({"cpu_util_total": 1.5, "sender_has_retransmits": -1, "streams": [stream]}))
}

#[test]
fn a_client_goes_from_the_cookie_to_the_last_word() {
    let mut client = client_that_ended();
    hear(&mut client, &[results(7000), vec![State::DisplayResults as u8]].concat(), Time(200_000_000));
    assert_eq!(said(&mut client, Time(200_000_000)), (vec![State::Done as u8], Then::Done));
    assert_eq!(client.results.map(|results| results.streams[0].bytes), Some(7000));
}

#[test]
fn a_server_that_lies_about_its_results_is_found_out() {
    let fails = |words: &[u8]| {
        let mut client = client_that_ended();
        hear(&mut client, words, Time(200_000_000));
        match said(&mut client, Time(200_000_000)) {
            (_, Then::Fails(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    insta::assert_snapshot!([
        fails(&results(-1)),
        fails(&[0xFF; 4]),
        fails(&wire::framed(&json!({"cpu_util_total": 1, "streams": []}))),
        fails(&wire::framed(&json!([1, 2]))),
    ].join("\n"), @r"
    the server's results cannot be understood: 'bytes' is negative
    the server's results cannot be understood: it announces 4294967295 bytes at once
    the server's results cannot be understood: the results are not about the streams of this test
    the server's results cannot be understood: what it sends is no JSON object
    ");
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let mut client = client();
    let (_, then) = said(&mut client, Time(0));
    assert_eq!(then, Then::Listens(Time(5_000_000_000)));
    client.timed_out(Time(5_000_000_000));
    assert!(matches!(said(&mut client, Time(5_000_000_000)), (_, Then::Fails(_))));
    let mut client = client_that_ended();
    // Its streams may take their time to end.
    let (_, then) = said(&mut client, Time(200_000_000));
    assert!(matches!(then, Then::Listens(until) if until <= Time(16_000_000_000)), "{then:?}");
}

/// A client up to the point at which it has said what it wants.
fn client_that_asked() -> Control {
    let mut client = client();
    said(&mut client, Time(0));
    hear(&mut client, &[State::ParameterExchange as u8], Time(0));
    said(&mut client, Time(0));
    client
}

#[test]
fn a_server_that_refuses_in_a_few_bytes_or_in_none_is_understood() {
    for (words, reason) in [
        (&b"\xFE\x00\x00\x00\x8E"[..], "user name and a password"),
        (b"\xFE\x00\x00\x00\x25", "--server-max-duration"),
        (b"\xFE\x00\x00", "before it said why"),
        (b"\xFF", "busy"),
        (b"", "user name and a password"),
    ] {
        let mut client = client_that_asked();
        hear(&mut client, words, Time(0));
        if words != b"\xFF" {
            assert!(matches!(said(&mut client, Time(0)).1, Then::Listens(_)), "{words:?}: more may come");
            client.closed(Time(0)).unwrap();
        }
        let (_, then) = said(&mut client, Time(0));
        assert!(matches!(&then, Then::Fails(why) if why.contains(reason)), "{words:?}: {then:?}");
    }
}

#[test]
fn numbers_of_64_bits_are_asked_for_only_where_fewer_may_not_do() {
    let wide = |stop: Stop, pacing: Pacing| {
        let case = Case { stop, pacing, ..crate::peer::far_case(1000) };
        super::parameters(&case, Framing::Message).counters_64bit
    };
    let (short, long) = (Stop::after(Duration::from_secs(10)), Stop::after(Duration::from_secs(3600)));
    assert_eq!((wide(short, Pacing::Closed), wide(long, Pacing::Closed)), (false, true));
    let slow = Pacing::Fixed { per_second: 1e5 };
    assert_eq!((wide(long, slow), wide(Stop::after(Duration::from_secs(86_400)), slow)), (false, true));
    let count = |count: u64| Stop { count: Some(count), ..Stop::default() };
    assert_eq!((wide(count(1 << 32), Pacing::Closed), wide(count(1000), Pacing::Closed)), (true, false));
}

fn service(limits: Limits, token: Option<String>) -> Arc<dyn Service> {
    far::service(&Arc::new(ServerFacts { limits, token, secret: [3; 32], ..ServerFacts::default() }))
}

#[test]
fn a_hello_whose_answer_was_lost_is_answered_again() {
    let service = service(Limits::default(), None);
    let wants = Parameters { udp: true, ..parameters() };
    let (mut control, _) = asking(&service, "192.0.2.1:1", &wants.write());
    said(control.as_mut(), Time(0));
    let caps = Caps { framing: Framing::Message, max_message: Some(65_507), closes: false, ..Caps::STREAM };
    let mut stream = service.party(&caps, "192.0.2.1:2");
    for _ in 0..3 {
        hear(stream.as_mut(), &wire::UDP_HELLO, Time(0));
        assert_eq!(said(stream.as_mut(), Time(0)).0, wire::UDP_ANSWER);
        said(control.as_mut(), Time(0));
    }
    // Numbered from 1, and too short to be one of the test.
    let mut datagram = vec![0; 1000];
    datagram[11] = 1;
    hear(stream.as_mut(), &datagram, Time(0));
    hear(stream.as_mut(), &[7; 5], Time(0));
    hear(control.as_mut(), &[State::TestEnd as u8], Time(0));
    assert_eq!(said(control.as_mut(), Time(0)).0, [State::ExchangeResults as u8]);
}

/// A control connection that has said its cookie and what it wants.
fn asking(service: &Arc<dyn Service>, from: &str, wants: &serde_json::Value) -> (Box<dyn Party>, Cookie) {
    let (mut party, cookie) = (service.party(&Caps::STREAM, from), Cookie::random());
    hear(party.as_mut(), cookie.bytes(), Time(0));
    let (words, _) = said(party.as_mut(), Time(0));
    assert_eq!(words, [State::ParameterExchange as u8]);
    hear(party.as_mut(), &wire::framed(wants), Time(0));
    (party, cookie)
}

const INTRODUCTION: Time = Time(10_000_000_000);

#[test]
fn clients_that_stop_in_the_middle_are_not_kept() {
    let service = service(Limits { sessions: 1, ..Limits::default() }, None);
    let mut silent = service.party(&Caps::STREAM, "192.0.2.1:1");
    assert_eq!(said(silent.as_mut(), Time(0)), (vec![], Then::Listens(INTRODUCTION)));
    silent.timed_out(INTRODUCTION);
    assert_eq!(said(silent.as_mut(), INTRODUCTION).1, Then::Done);

    let mut stuck = service.party(&Caps::STREAM, "192.0.2.1:2");
    hear(stuck.as_mut(), Cookie::random().bytes(), Time(0));
    assert_eq!(said(stuck.as_mut(), Time(0)), (vec![9], Then::Listens(INTRODUCTION)));
    // Meanwhile its place is taken.
    let mut second = service.party(&Caps::STREAM, "192.0.2.1:3");
    hear(second.as_mut(), Cookie::random().bytes(), Time(0));
    assert_eq!(said(second.as_mut(), Time(0)), (vec![State::AccessDenied as u8], Then::Done));
    stuck.timed_out(INTRODUCTION);
    let refused = (wire::error(Code::Silent).to_vec(), Then::Done);
    assert_eq!(said(stuck.as_mut(), INTRODUCTION), refused);
    drop(stuck);
    asking(&service, "192.0.2.1:4", &parameters().write());
}

#[test]
fn streams_that_never_come_end_a_test() {
    let service = service(Limits::default(), None);
    let (mut control, _) = asking(&service, "192.0.2.1:1", &parameters().write());
    assert_eq!(said(control.as_mut(), Time(0)).0, [State::CreateStreams as u8]);
    let refused = (wire::error(Code::StreamAccept).to_vec(), Then::Done);
    assert_eq!(said(control.as_mut(), INTRODUCTION), refused);
}

#[test]
fn a_token_that_nobody_can_say_keeps_everybody_out() {
    let service = service(Limits::default(), Some("secret".to_owned()));
    let (mut control, _) = asking(&service, "192.0.2.1:1", &parameters().write());
    assert_eq!(said(control.as_mut(), Time(0)), (wire::error(Code::Authorisation).to_vec(), Then::Done));
}

#[test]
fn a_client_beyond_the_rate_hears_the_number_of_the_rate() {
    let service = service(Limits { bit_rate: Some(8000.0), ..Limits::default() }, None);
    let (mut control, cookie) = asking(&service, "192.0.2.1:1", &parameters().write());
    assert_eq!(said(control.as_mut(), Time(0)).0, [State::CreateStreams as u8]);
    let mut stream = service.party(&Caps::STREAM, "192.0.2.1:2");
    hear(stream.as_mut(), cookie.bytes(), Time(0));
    said(control.as_mut(), Time(0));
    said(stream.as_mut(), Time(0));
    assert_eq!(said(control.as_mut(), Time(0)).0, [State::TestStart as u8, State::TestRunning as u8]);
    hear(stream.as_mut(), &vec![0; 3 << 20], Time(0));
    assert!(matches!(said(stream.as_mut(), Time(0)).1, Then::Fails(_)));
    stream.ended(Cost::default());
    assert_eq!(said(control.as_mut(), Time(0)), (wire::error(Code::Rate).to_vec(), Then::Done));
}

#[test]
fn streams_are_numbered_as_they_arrive_not_as_they_speak() {
    let service = service(Limits::default(), None);
    let wants = Parameters { bidirectional: true, ..parameters() };
    let (mut control, cookie) = asking(&service, "192.0.2.1:1", &wants.write());
    said(control.as_mut(), Time(0));
    let [mut first, mut second] =
        [2, 3].map(|port| service.party(&Caps::STREAM, &format!("192.0.2.1:{port}")));
    hear(second.as_mut(), cookie.bytes(), Time(0));
    hear(first.as_mut(), cookie.bytes(), Time(0));
    // All have arrived; each sets up its link; then the client is told.
    let mut words = Vec::new();
    for _ in 0..3 {
        words.extend(said(control.as_mut(), Time(0)).0);
        for stream in [&mut first, &mut second] {
            if words.is_empty() {
                said(stream.as_mut(), Time(0));
            }
        }
    }
    assert_eq!(words, [State::TestStart as u8, State::TestRunning as u8]);
    assert!(matches!(said(first.as_mut(), Time(0)), (none, Then::Listens(_)) if none.is_empty()));
    assert!(matches!(second.next(Time(0)), Step::Send { .. }), "the second sends");
}

#[test]
fn tests_of_one_host_open_their_datagram_streams_one_after_the_other() {
    let service = service(Limits::default(), None);
    let wants = Parameters { udp: true, ..parameters() }.write();
    let door = |from: &str, first: &[u8]| service.door(first, from, &mut Vec::new());
    assert_eq!(door("192.0.2.1:9", &wire::UDP_HELLO), Admission::Drop);
    let (mut one, _) = asking(&service, "192.0.2.1:1", &wants);
    let (mut two, _) = asking(&service, "192.0.2.1:2", &wants);
    let (mut other, _) = asking(&service, "192.0.2.2:3", &wants);
    let ready = vec![State::CreateStreams as u8];
    assert_eq!(said(one.as_mut(), Time(0)).0, ready);
    assert!(said(two.as_mut(), Time(0)).0.is_empty());
    assert_eq!(said(other.as_mut(), Time(0)).0, ready);
    assert_eq!(door("192.0.2.1:9", &wire::UDP_HELLO), Admission::Open);
    assert_eq!(door("192.0.2.1:9", &[0; 1000]), Admission::Drop);
    assert_eq!(door("192.0.2.3:9", &wire::UDP_HELLO), Admission::Drop);
    // A mapped address is the same host.
    assert_eq!(door("[::ffff:192.0.2.1]:9", &wire::UDP_HELLO), Admission::Open);
    // The first vanishes: the next has its turn.
    drop(one);
    assert_eq!(said(two.as_mut(), Time(0)).0, ready);
}
