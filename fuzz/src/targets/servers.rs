//! Our servers after their handshakes: the requests of a client with a session to plan, attach and send; the signals of
//! linx_bmark; and sessions that want more memory than a server has.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use linkgauge::clock::Time;
use linkgauge::link::party::{Party, Step};
use linkgauge::link::{Caps, Framing};
use linkgauge::plan::{Pacing, SocketSettings, StopCondition, WaitMode};
use linkgauge::protocol::iperf3::wire::Cookie;
use linkgauge::protocol::irtt::packet::{OPEN, packet_of, read_packet};
use linkgauge::protocol::irtt::params::Params;
use linkgauge::protocol::linkgauge::Hello;
use linkgauge::protocol::linkgauge::wire::{
    self, Attach, FlowKind, HANDSHAKE_BYTES, ServerPlan, SessionReply, SessionRequest,
};
use linkgauge::protocol::{ServerLimits, Service};

use super::draw::Draw;
use super::server;

/// A connection to a server, driven by hand.
struct Connection {
    party: Box<dyn Party>,
    input: VecDeque<Vec<u8>>,
    output: Vec<u8>,
    over: bool,
}

/// Limits the steps of a party that always has something to send.
const STEPS: usize = 300;
const MOST_HEARD: usize = 1 << 20;

impl Connection {
    fn new(service: &Arc<dyn Service>, caps: &Caps) -> Connection {
        let party = service.new_party(caps, "192.0.2.1:7");
        Connection { party, input: VecDeque::new(), output: Vec::new(), over: false }
    }

    fn say(&mut self, bytes: &[u8], now: Time) -> Vec<u8> {
        self.input.push_back(bytes.to_vec());
        self.go_on(now);
        std::mem::take(&mut self.output)
    }

    /// Steps the party until it has to wait.
    fn go_on(&mut self, now: Time) {
        for _ in 0..STEPS {
            if self.over {
                return;
            }
            match self.party.next_step(now) {
                Step::Send { bytes, .. } => {
                    assert!(!bytes.is_empty(), "nothing is no message");
                    let length = bytes.len();
                    if self.output.len() + length < MOST_HEARD {
                        self.output.extend_from_slice(bytes);
                    }
                    self.party.on_sent(length, now);
                }
                Step::Receive { into, until } => match self.input.pop_front() {
                    Some(mut chunk) => {
                        into.borrow_memory();
                        if chunk.len() > into.bytes.len() {
                            self.input.push_front(chunk.split_off(into.bytes.len()));
                        }
                        into.clear();
                        into.bytes[..chunk.len()].copy_from_slice(&chunk);
                        into.push_span(0, chunk.len());
                        self.party.on_received(now);
                    }
                    None if until <= now => self.party.on_timeout(now),
                    None => return,
                },
                Step::Sleep(until) if until > now => return,
                Step::Sleep(_) | Step::Tune(_) | Step::FinishSending | Step::ReadStamps(_) => {}
                Step::Done | Step::Fail(_) | Step::Reopen => self.over = true,
            }
        }
    }

    fn close(&mut self, now: Time) {
        self.go_on(now);
        if !self.over && self.party.on_closed(now).is_err() {
            self.over = true;
        }
        self.go_on(now);
    }
}

/// A client with an open session plans, attaches, starts, sends and finishes in any order, with any figures. The
/// server grants or refuses. After the client has left and the time is over, nothing of the session continues.
pub fn session_server(data: &[u8]) {
    let mut draw = Draw(data);
    let caps = match draw.byte() % 2 {
        0 => Caps::STREAM,
        _ => Caps {
            framing: Framing::Message,
            max_message_bytes: Some(2000),
            is_reliable: false,
            can_signal_close: false,
            ..Caps::STREAM
        },
    };
    let bit_rate = (draw.byte() < 64).then_some(1e6);
    let limits = ServerLimits {
        duration_s: 10,
        idle_s: 5,
        flows: 8,
        sessions: 4,
        bit_rate,
        ..ServerLimits::default()
    };
    let service = server("linkgauge", limits);
    let mut now = Time(1);
    let mut control = Connection::new(&service, &caps);
    let Some((session, key)) = open(&mut control, now) else { panic!("it opens no session") };
    let (mut number, mut flows) = (1, Vec::new());
    while !draw.is_empty() {
        now = now + Duration::from_micros(1);
        let request = match draw.byte() % 10 {
            0..=2 => Some(SessionRequest::Plan(plan(&mut draw))),
            3 => Some(SessionRequest::Start),
            4 => Some(SessionRequest::Finish),
            5 => {
                let attach = Attach { session_id: session, flow_index: u32::from(draw.byte() % 10) };
                let mut flow = Connection::new(&service, &caps);
                let reply = flow.say(&attach.request(&key), now);
                assert!(reply.is_empty() || attach.is_valid_reply(&reply[..HANDSHAKE_BYTES], &key));
                flows.push(flow);
                None
            }
            6 | 7 => {
                let (count, bytes) = (flows.len().max(1), draw.short());
                if let Some(flow) = flows.get_mut(usize::from(draw.byte()) % count) {
                    flow.say(bytes, now);
                }
                None
            }
            8 => {
                now = now + Duration::from_nanos(1 << (draw.byte() % 34));
                None
            }
            _ => {
                control.say(draw.short(), now);
                None
            }
        };
        if let Some(request) = request {
            number += 1;
            control.say(&wire::encode_frame(number, &request), now);
        }
        flows.iter_mut().for_each(|flow| flow.go_on(now));
    }
    control.close(now);
    drop(control);
    // Silence on every flow, far beyond what any limit allows.
    for _ in 0..200 {
        now = now + Duration::from_millis(500);
        flows.iter_mut().for_each(|flow| flow.go_on(now));
    }
    assert!(flows.iter().all(|flow| flow.over), "a flow outlives its session and its limits");
}

/// The handshake as our client does it: number and key of the session.
fn open(control: &mut Connection, now: Time) -> Option<(u64, Vec<u8>)> {
    let hello = Hello::new();
    let ready = control.say(hello.bytes(), now);
    let challenge = hello.challenge_in(&ready)?.to_vec();
    let request = SessionRequest::Open {
        version: wire::VERSION,
        tool: "fuzz".to_owned(),
        nonce: wire::encode_hex(hello.nonce()),
        challenge: wire::encode_hex(&challenge),
        proof: None,
    };
    let reply = control.say(&wire::encode_frame(1, &request), now);
    match wire::decode_frame::<SessionReply>(&reply, wire::MAX_JSON_BYTES) {
        Ok(Some((_, SessionReply::Opened { session, key, .. }, _))) => {
            Some((u64::from_str_radix(&session, 16).ok()?, wire::decode_hex(&key?)?))
        }
        _ => None,
    }
}

fn plan(draw: &mut Draw) -> ServerPlan {
    let pacing = match draw.byte() % 3 {
        0 => Pacing::Closed,
        1 => Pacing::Fixed { per_second: draw.float() },
        _ => Pacing::Poisson { per_second: draw.float(), seed: draw.word() },
    };
    let stop = |draw: &mut Draw| {
        let what = draw.byte();
        StopCondition {
            count: (what & 1 != 0).then(|| draw.number()),
            time_ns: (what & 2 != 0).then(|| draw.number()),
            volume_bytes: (what & 4 != 0).then(|| draw.number()),
            min_time_ns: (what & 8 != 0).then(|| draw.number()),
        }
    };
    let flows = (0..draw.byte() % 10).map(|_| draw.one_of(&FlowKind::ALL)).collect();
    ServerPlan {
        flows,
        message_bytes: draw.one_of(&[64, 0, 1, 1000, 1999, 100_000, u32::MAX]),
        pacing,
        stop: stop(draw),
        warm_up: stop(draw),
        timeout_ns: draw.number(),
        wait: draw.one_of(&[WaitMode::Block, WaitMode::BusyPoll]),
        // Pinning would move the fuzzer itself.
        cpu: None,
        socket: SocketSettings::default(),
        evidence: false,
        lead_in_ns: draw.number(),
        series_interval_ns: 0,
        time_of_day: false,
        alive_interval_ns: 0,
    }
}

/// Signals of a linx_bmark client to our server, each after a byte with its length. Their number is small enough that
/// the server forgets none, and no burst is longer than requested.
pub fn linx_bmark(data: &[u8]) {
    let caps = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(2000),
        can_signal_close: false,
        ..Caps::STREAM
    };
    let limits = ServerLimits { idle_s: 5, duration_s: 10, ..ServerLimits::default() };
    let service = server("linx-bmark", limits);
    let mut end = Connection::new(&service, &caps);
    let (mut draw, mut now) = (Draw(data), Time(1));
    while !draw.is_empty() {
        now = now + Duration::from_micros(1);
        let signal = draw.short();
        end.say(signal, now);
        service.admit_sender(signal, "192.0.2.1:7", &mut Vec::new());
    }
    for _ in 0..20 {
        now = now + Duration::from_secs(1);
        end.output.clear();
        end.go_on(now);
    }
}

/// Tests of irtt: parameters that a client requests, and echoes with the token that the server makes of them. Echoes get no
/// longer replies.
pub(super) fn irtt(data: &[u8]) {
    if let Some(params) = Params::read(data) {
        assert_eq!(Params::read(&params.to_bytes()), Some(params));
    }
    // Version, duration and interval; the fuzzer may replace them.
    const PARAMS: [u8; 13] = [1, 2, 2, 0x80, 0x8c, 0x8d, 0x9e, 2, 3, 0x80, 0x84, 0xaf, 0x5f];
    let mut draw = Draw(data);
    let (service, caps) = (server("irtt", ServerLimits::default()), any_caps(&mut draw));
    let (mut end, mut now) = (Connection::new(&service, &caps), Time(1));
    let open = packet_of(OPEN, &[&PARAMS, draw.short()], None);
    let grant = end.say(&open, now);
    assert!(grant.len() <= open.len() + service.max_reply_growth_bytes());
    let token = read_packet(&grant, None).map_or(&[][..], |(_, body)| &body[..8]);
    while !draw.is_empty() {
        now = now + Duration::from_millis(u64::from(draw.byte()));
        let echo = packet_of(draw.byte() & 4, &[token, draw.short()], None);
        let reply = end.say(&echo, now);
        assert!(reply.len() <= echo.len(), "{} bytes for {}", reply.len(), echo.len());
    }
}

/// Tests of udpst: activations with any parameters, then loads and statuses with any numbers. A sender that has not proved its
/// address gets no more than it has sent, and no load.
pub(super) fn udpst(data: &[u8]) {
    let mut draw = Draw(data);
    let (service, caps) = (server("udpst", ServerLimits::default()), any_caps(&mut draw));
    let (mut end, mut now) = (Connection::new(&service, &caps), Time(1));
    let message = |id: [u8; 2], length: usize, draw: &mut Draw| {
        let mut message = [&id, draw.short()].concat();
        message.resize(length, 0);
        message
    };
    let (mut sent, mut received) = (0, 0);
    let mut activation = message([0xac, 0xe2], 104, &mut draw);
    activation[2..6].copy_from_slice(&[0, 20, 1 + draw.byte() % 2, 0]);
    for request in [message([0xac, 0xe1], 56, &mut draw), activation] {
        service.admit_sender(&request, "192.0.2.1:4000", &mut Vec::new());
        sent += request.len();
        received += end.say(&request, now).len();
    }
    while !draw.is_empty() {
        now = now + Duration::from_millis(u64::from(draw.byte()));
        let load = draw.byte() % 2 == 0;
        let next = match load {
            true => message([0xbe, 0xef], 32 + usize::from(draw.byte()), &mut draw),
            false => message([0xfe, 0xed], 204, &mut draw),
        };
        sent += next.len();
        received += end.say(&next, now).len();
        assert!(received <= sent, "{received} bytes for {sent}");
    }
}

/// Whole sessions whose numbers decide how much memory our server takes: many flows, long messages, any kind of link. It
/// grants no more than its budget, and refuses the rest. The test run limits the memory of the process.
pub fn memory(data: &[u8]) {
    let mut draw = Draw(data);
    let limits = ServerLimits { memory_bytes: 32 << 20, ..ServerLimits::default() };
    match draw.byte() % 4 {
        0 => greedy_test(&mut draw, limits),
        1 => {
            let name = draw.one_of(&[
                "netio",
                "sockperf",
                "tipc-bench",
                "linx-bmark",
                "discard",
                "echo",
                "chargen",
                "irtt",
                "iperf2",
                "twamp",
                "udpst",
            ]);
            let (service, caps) = (server(name, limits), any_caps(&mut draw));
            let mut ends: Vec<_> = (0..8).map(|_| Connection::new(&service, &caps)).collect();
            while !draw.is_empty() {
                let words = draw.short();
                ends.iter_mut().for_each(|end| drop(end.say(words, Time(1))));
            }
        }
        _ => greedy_sessions(&mut draw, limits),
    }
}

/// A link of any kind, also one whose messages have no limit.
fn any_caps(draw: &mut Draw) -> Caps {
    let messages = |most| Caps {
        framing: Framing::Message,
        max_message_bytes: most,
        is_reliable: false,
        can_signal_close: false,
        ..Caps::STREAM
    };
    draw.one_of(&[Caps::STREAM, messages(Some(65_507)), messages(None), messages(Some(2000))])
}

/// Sessions of linkgauge with one plan each, whose flows all attach, some over another kind of link.
fn greedy_sessions(draw: &mut Draw, limits: ServerLimits) {
    const ATTACHED: u32 = 400;
    let (service, now) = (server("linkgauge", limits), Time(1));
    let mut open_ends = Vec::new();
    while !draw.is_empty() && open_ends.len() < 2000 {
        let caps = any_caps(draw);
        let flow_caps = if draw.byte() < 200 { caps.clone() } else { any_caps(draw) };
        let mut control = Connection::new(&service, &caps);
        let Some((session, key)) = open(&mut control, now) else { panic!("it opens no session") };
        let kinds = [draw.one_of(&FlowKind::ALL), draw.one_of(&FlowKind::ALL)];
        let count = draw.one_of(&[1, 4, 33, 300, 2000, 16_384, 16_385]);
        let plan = ServerPlan {
            flows: (0..count).map(|flow| kinds[usize::from(flow > 0)]).collect(),
            message_bytes: draw.one_of(&[1 << 30, 1, 1000, 65_507, 1 << 20, 32 << 20, 1_000_003, u32::MAX]),
            series_interval_ns: draw.number(),
            evidence: draw.byte().is_multiple_of(2),
            ..plan(draw)
        };
        control.say(&wire::encode_frame(2, &SessionRequest::Plan(plan)), now);
        control.say(&wire::encode_frame(3, &SessionRequest::Start), now);
        for flow_index in 0..count.min(ATTACHED) {
            let mut flow = Connection::new(&service, &flow_caps);
            flow.say(&Attach { session_id: session, flow_index }.request(&key), now);
            open_ends.push(flow);
        }
        open_ends.push(control);
    }
}

/// A test of iperf3 with all streams that its parameters name.
fn greedy_test(draw: &mut Draw, limits: ServerLimits) {
    let service = server("iperf3", limits);
    let (mut ends, now) = (Vec::new(), Time(1));
    while !draw.is_empty() && ends.len() < 500 {
        let cookie = Cookie::random();
        let mut control = Connection::new(&service, &Caps::STREAM);
        control.say(cookie.bytes(), now);
        let streams = draw.one_of(&[1u64, 128, 129, u64::MAX]);
        let length = draw.one_of(&[1u64, 65_507, 1 << 20, 1 << 30, u64::MAX]);
        let (way, kind) = (draw.one_of(&["reverse", "bidirectional", "x"]), draw.one_of(&["tcp", "udp"]));
        let numbers = [draw.number(), draw.number(), draw.number()];
        let parameters = serde_json::json!({
            kind: true, way: true, "parallel": streams, "len": length, "time": numbers[0] % 100, "num": numbers[1],
            "bandwidth": numbers[2], "omit": 0, "pacing_timer": 1000, "client_version": "3.12",
        });
        let text = parameters.to_string();
        control.say(&[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat(), now);
        for _ in 0..streams.min(256) {
            let mut stream = Connection::new(&service, &Caps::STREAM);
            stream.say(cookie.bytes(), now);
            ends.push(stream);
        }
        control.go_on(now);
        ends.iter_mut().for_each(|end| end.go_on(now));
        ends.push(control);
    }
}
