//! Options, and runs against devices on the virtual clock: exact latencies, late replies, malformed replies.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::link::party::{Party, Step};
use crate::link::{Batch, Fault};
use crate::protocol::Registry;
use crate::schedule::{self, CheckedPlan, RunContext};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::Plan;
use linkgauge_model::run::{CaseResult, Figures};

fn check_options(options: &str) -> Result<CheckedPlan, String> {
    let text = format!("[[case]]\nworkload = \"latency\"\nprotocol = \"ask\"\n{options}");
    schedule::check(Plan::from_toml(&text).map_err(|e| e.to_string())?, Registry::standard())
        .map_err(|e| e.to_string())
}

#[test]
fn option_errors_are_reported_before_opening_a_link() {
    let error = |options: &str| check_options(&format!("url = \"tcp://a:1\"\n{options}")).unwrap_err();
    insta::assert_snapshot!([
        "",
        "protocol_options = { send = '' , reply-end = 'x' }",
        r"protocol_options = { send = 'A\q', reply-end = 'x' }",
        "protocol_options = { send = 'A' }",
        "protocol_options = { send = 'A', reply-end = 'x', reply-bytes = 1 }",
        "protocol_options = { send = 'A', reply-bytes = 0 }",
        "protocol_options = { send = 'A', reply-bytes = 1048577 }",
        "protocol_options = { send = 'A', reply-length = '4,2' }",
        "protocol_options = { send = 'A', message = true }",
        "protocol_options = { send = 'A', reply-end = 'x', reply-contains = 'hex:0' }",
        "protocol_options = { send = 'A', reply-end = 'x', shout = 'B' }",
        "protocol_options = { send = 'A', reply-end = 'x' }\nsize = 2",
        "protocol_options = { send = 'A', reply-end = 'x' }\ndirection = 'send'",
    ].map(error).join("\n"), @r"
    protocol ask: no request: use --send 'AT\r'
    protocol ask: send is empty
    protocol ask: send has '\q', which is none of \r \n \t \0 \\ \xHH
    protocol ask: the end of the reply is unknown: use reply-end, reply-bytes or reply-length
    protocol ask: the end of the reply is declared several times: use one of reply-end, reply-bytes, reply-length and message
    protocol ask: reply-bytes '0' is not a number of bytes: use 1 to 1048576
    protocol ask: reply-bytes '1048577' is not a number of bytes: use 1 to 1048576
    protocol ask: reply-length '4,2' is not offset,size,endian,add, like 4,2,big,6: offset 0 to 65535, size 1 to 8, endian big or little, add -1048576 to 1048576
    protocol ask: a stream has no messages: use reply-end, reply-bytes or reply-length
    protocol ask: reply-contains needs pairs of hexadecimal digits after 'hex:', like hex:01 03 0A
    the protocol ask has no option 'shout' (known: send, reply-end, reply-bytes, reply-length, message, reply-contains, reconnect-every)
    protocol ask: the size is the request's (1 bytes), not 2: leave it out
    tcp://a:1: the protocol ask does not support the direction send: use loop
    ");
}

#[test]
fn the_request_is_the_message() {
    let plan =
        check_options("url = \"tcp://a:1\"\nprotocol_options = { send = 'AT\\r', reply-end = 'OK\\r\\n' }")
            .unwrap();
    assert_eq!(plan.cases().map(|case| case.load.message_bytes).collect::<Vec<_>>(), [3]);
    assert!(check_options("url = \"udp://a:1\"\nsize = 1\nprotocol_options = { send = '?' }").is_ok());
    assert!(check_options("url = \"udp://a:1\"\nprotocol_options = { send = '?', message = true }").is_ok());
}

/// Replies to the nth request with the nth entry of its script: chunks, each with its delay after the request.
struct ScriptedDevice {
    script: fn(u64) -> Vec<(Duration, Vec<u8>)>,
    request: usize,
    batch: Batch,
    request_bytes: usize,
    requests: u64,
    chunks: Vec<(Time, Vec<u8>)>,
}

impl Party for ScriptedDevice {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        match self.chunks.first() {
            Some((due, bytes)) if *due <= now => Step::Send { bytes, message: bytes.len() },
            Some((due, _)) => Step::Receive { into: &mut self.batch, until: *due },
            None => Step::Receive { into: &mut self.batch, until: Time::NEVER },
        }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.chunks[0].1.drain(..bytes);
        if self.chunks[0].1.is_empty() {
            self.chunks.remove(0);
        }
    }

    fn on_received(&mut self, now: Time) {
        self.request_bytes += self.batch.total_bytes() as usize;
        while self.request_bytes >= self.request {
            self.request_bytes -= self.request;
            self.chunks
                .extend((self.script)(self.requests).into_iter().map(|(after, bytes)| (now + after, bytes)));
            self.requests += 1;
        }
        // An earlier, slower reply does not delay a later one.
        self.chunks.sort_by_key(|(due, _)| *due);
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn chunk(after_ms: u64, bytes: impl AsRef<[u8]>) -> (Duration, Vec<u8>) {
    (ms(after_ms), bytes.as_ref().to_vec())
}

/// Runs `case` (with `AT\r` as the request) against a device. Returns the result and the duration.
fn measure(script: fn(u64) -> Vec<(Duration, Vec<u8>)>, url: &str, case: &str) -> (CaseResult, Duration) {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let mut listener = dialer.listen(&url.parse().unwrap()).unwrap();
    let device = move |_: &str| -> Box<dyn Party> {
        let batch = Batch::new(4096, 1);
        Box::new(ScriptedDevice {
            script,
            request: 3,
            batch,
            request_bytes: 0,
            requests: 0,
            chunks: Vec::new(),
        })
    };
    assert!(listener.set_party_factory(Box::new(device)).is_ok());
    let plan = check_options(&format!("url = \"{url}\"\nwarm_up_count = 1\n{case}")).unwrap();
    let mut bench = RunContext::new(dialer.clone(), &());
    let mut run = schedule::run(&plan, &mut bench);
    (run.cases.remove(0), dialer.now().since(Time(0)))
}

const AT_OPTIONS: &str = r"protocol_options = { send = 'AT\r', reply-end = 'OK\r\n' }";

fn counts(figures: &Figures) -> BTreeMap<&'static str, u64> {
    let all = [
        ("sent", figures.counts.sent),
        ("received", figures.counts.received),
        ("lost", figures.counts.lost),
        ("late", figures.counts.late),
        ("duplicate", figures.counts.duplicate),
        ("corrupt_bytes", figures.byte_errors.corrupt_bytes),
        ("corrupt_messages", figures.counts.corrupt_messages),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_reply_in_two_chunks_is_timed_to_its_end() {
    let (case, took) = measure(
        |_| vec![chunk(3, b"\r\nO"), chunk(3, b"K\r\n")],
        "mem://at",
        &format!("count = 400\n{AT_OPTIONS}"),
    );
    let latency = case.figures.times.latency_ns.clone().unwrap();
    assert_eq!((latency.min, latency.max, latency.mean), (3_000_000, 3_000_000, 3e6));
    assert_eq!(counts(&case.figures), BTreeMap::from([("sent", 400), ("received", 400)]));
    assert_eq!((case.message_bytes, case.complete, took), (3, true, ms(401 * 3)));

    let (case, _) = measure(
        |_| vec![chunk(2, b"\r\nO"), chunk(3, b"K\r\n")],
        "mem://at?delay=1ms",
        &format!("count = 9\n{AT_OPTIONS}"),
    );
    assert_eq!(case.figures.times.latency_ns.unwrap().max, 5_000_000);
}

#[test]
fn a_schedule_waits_for_the_reply_and_reports_the_delay() {
    // A request is due every 2 ms and takes 3 ms: the nth waits n ms before it is sent.
    let (case, _) = measure(
        |_| vec![chunk(3, b"OK\r\n")],
        "mem://at",
        &format!("count = 100\nrate = \"500/s\"\n{AT_OPTIONS}"),
    );
    assert_eq!(case.figures.times.latency_ns.unwrap().max, 3_000_000);
    assert_eq!(case.figures.times.response_ns.unwrap().max, 103_000_000);
}

#[test]
fn a_device_that_never_replies_ends_in_time() {
    let (case, took) =
        measure(|_| Vec::new(), "mem://mute", &format!("count = 3\ntimeout = \"100ms\"\n{AT_OPTIONS}"));
    assert_eq!(counts(&case.figures), BTreeMap::from([("sent", 3), ("lost", 3)]));
    // Each request takes a timeout and a drain of the same length; the last has no drain.
    assert_eq!(took, ms(4 * 200 - 100));
    let (case, took) =
        measure(|_| Vec::new(), "mem://mute", &format!("time = \"2s\"\ntimeout = \"100ms\"\n{AT_OPTIONS}"));
    assert_eq!(case.figures.counts.received, 0);
    assert!(took <= ms(2500), "{took:?}");
}

#[test]
fn a_late_reply_is_not_taken_for_the_next() {
    // Every third reply is later than the timeout; the latencies of the others show that replies are matched
    // correctly.
    let script = |n: u64| vec![chunk(1, b"\r\n"), chunk(if n % 3 == 2 { 150 } else { 3 }, b"OK\r\n")];
    let (case, _) = measure(script, "mem://slow", &format!("count = 30\ntimeout = \"100ms\"\n{AT_OPTIONS}"));
    assert_eq!(
        counts(&case.figures),
        BTreeMap::from([("sent", 30), ("received", 20), ("lost", 10), ("late", 10)])
    );
    let latency = case.figures.times.latency_ns.unwrap();
    assert_eq!((latency.min, latency.max), (3_000_000, 3_000_000));
}

#[test]
fn unsolicited_bytes_are_read_before_the_next_request() {
    // The line end comes 1 ms after the reply, while the schedule sleeps.
    let script = |_: u64| vec![chunk(3, b"OK"), chunk(4, b"\r\n")];
    let options = "protocol_options = { send = 'AT\\r', reply-bytes = 2, reply-contains = 'OK' }";
    let (case, _) = measure(script, "mem://tail", &format!("count = 20\nrate = \"100/s\"\n{options}"));
    let latency = case.figures.times.latency_ns.clone().unwrap();
    assert_eq!((latency.min, latency.max), (3_000_000, 3_000_000));
    let expected = BTreeMap::from([("sent", 20), ("received", 20), ("corrupt_bytes", 38)]);
    assert_eq!(counts(&case.figures), expected, "neither the warm-up nor data after the last reply counts");
}

#[test]
fn other_replies_than_expected_are_corrupt() {
    let script = |n: u64| vec![chunk(3, if n.is_multiple_of(2) { "OK\r\n" } else { "ERROR\r\n" })];
    let options = r"protocol_options = { send = 'AT\r', reply-end = '\r\n', reply-contains = 'OK' }";
    let (case, _) = measure(script, "mem://error", &format!("count = 10\n{options}"));
    assert_eq!(
        counts(&case.figures),
        BTreeMap::from([("sent", 10), ("received", 10), ("corrupt_messages", 5)])
    );
}

#[test]
fn a_device_with_wrong_lengths_is_resynchronised() {
    // Every second reply claims 4 GiB and continues for a while.
    let script = |n: u64| {
        let lie = [chunk(1, b"\xff\xff\xff\xff"), chunk(2, vec![b'x'; 5000]), chunk(120, b"tail")];
        if n % 2 == 1 { lie.to_vec() } else { vec![chunk(3, b"\0\0\0\x01!")] }
    };
    let options = r"protocol_options = { send = 'AT\r', reply-length = '0,4,big,4' }";
    let (case, _) = measure(script, "mem://lies", &format!("count = 10\ntimeout = \"100ms\"\n{options}"));
    let latency = case.figures.times.latency_ns.clone().unwrap();
    assert_eq!((latency.min, latency.max), (3_000_000, 3_000_000));
    assert_eq!(
        counts(&case.figures),
        BTreeMap::from([
            ("sent", 10),
            ("received", 5),
            ("lost", 5),
            ("corrupt_bytes", 5 * 5004),
            ("corrupt_messages", 5)
        ])
    );
}

#[test]
fn a_device_that_never_becomes_silent_still_gets_requests() {
    let script = |n: u64| match n {
        0 => (0..3000).map(|at| chunk(3 + at, b"OK\r\n")).collect(),
        _ => Vec::new(),
    };
    let (case, took) =
        measure(script, "mem://babble", &format!("count = 3\ntimeout = \"100ms\"\n{AT_OPTIONS}"));
    assert_eq!(case.figures.counts.sent, 3);
    assert!(took < ms(3500), "{took:?}");
}

#[test]
fn messages_are_replies() {
    let script = |_: u64| vec![chunk(3, b"pong")];
    let options = "protocol_options = { send = 'AT\\r', reply-contains = 'pong' }";
    let (case, _) = measure(script, "mem://messages?type=message", &format!("count = 10\n{options}"));
    assert_eq!(counts(&case.figures), BTreeMap::from([("sent", 10), ("received", 10)]));
    assert_eq!(case.figures.times.latency_ns.unwrap().max, 3_000_000);
}
