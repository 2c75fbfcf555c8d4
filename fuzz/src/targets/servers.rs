//! Our servers after their handshakes: the requests of a client with a session to plan, attach and send; and the
//! signals of linx_bmark.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use linkgauge::clock::Time;
use linkgauge::link::party::{Party, Step};
use linkgauge::link::{Caps, Framing};
use linkgauge::plan::{Pacing, SocketSettings, StopCondition, WaitMode};
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
