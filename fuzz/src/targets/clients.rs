//! Whole runs on the virtual clock against servers that the fuzzer controls: every client ends, whatever it receives,
//! and its document can be read again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::link::party::{Party, Step};
use linkgauge::link::{Batch, Fault};
use linkgauge::plan::Plan;
use linkgauge::protocol::ServerLimits;
use linkgauge::protocol::linkgauge::wire::{self, Attach, HANDSHAKE_BYTES, SessionReply, SessionRequest};
use linkgauge::run::Run;
use linkgauge::schedule::{self, RunContext};
use linkgauge::workload::{FlowReport, ServerReport};

use super::draw::Draw;

const KEY: [u8; 16] = [5; 16];

/// A server that follows one script on all its connections together, so that the fuzzer chooses the order of messages.
pub fn client(data: &[u8]) {
    let mut draw = Draw(data);
    let protocol = draw.one_of(&[
        "echo",
        "discard",
        "chargen",
        "sockperf",
        "stamp",
        "twamp-light",
        "twamp",
        "linx-bmark",
        "netio",
        "iperf3",
        "iperf2",
        "tipc-bench",
        "ask",
        "auto",
        "linkgauge",
        "irtt",
        "modbus",
        "udpst",
    ]);
    measured(protocol, &mut draw, |script| Box::new(Script::new(script)));
}

/// A server that follows the linkgauge protocol, except where the script deviates.
pub fn session_client(data: &[u8]) {
    let mut draw = Draw(data);
    measured("linkgauge", &mut draw, |script| Box::new(Liar::new(script)));
}

type Shared = Arc<Mutex<VecDeque<u8>>>;

/// Runs a case that the first bytes choose; the remaining bytes are the script of the server's connections.
fn measured(protocol: &str, draw: &mut Draw, party: impl Fn(Shared) -> Box<dyn Party> + Send + 'static) {
    let kind = draw.one_of(&["stream", "message"]);
    let mut workload = draw.one_of(&["latency", "throughput"]);
    let mut more = match draw.byte() % 4 {
        _ if workload == "latency" => draw.one_of(&["", "rate = '50/s'\n"]).to_owned(),
        0 => "direction = 'receive'\n".to_owned(),
        1 => "direction = 'both'\n".to_owned(),
        2 => "direction = 'loop'\n".to_owned(),
        _ => String::new(),
    };
    // A volume of requests that are all lost would take its time.
    let stops = ["count = 20", "time = '300ms'", "volume = '20k'"];
    more += draw.one_of(if workload == "latency" { &stops[..2] } else { &stops });
    more += draw.one_of(&["\nwarm_up_count = 0", "\nwarm_up_count = 5", "\nwarm_up_time = '50ms'"]);
    more += draw.one_of(&["", "\nprobe = false", "\nparallel = 2"]);
    let mut size = format!("size = {}", draw.one_of(&[64, 1, 16, 1000]));
    if protocol == "udpst" {
        workload = "capacity";
        size = String::new();
        more = format!("direction = '{}'\ntime = '300ms'", draw.one_of(&["send", "receive"]));
        more += draw.one_of(&["", "\nparallel = 2"]);
    }
    if protocol == "ask" {
        more += "\nprotocol_options = { send = 'x', reply-end = '\\n' }";
    }
    if protocol == "modbus" {
        let mode = draw.one_of(&["mbap", "rtu"]);
        size = format!("size = {}", if mode == "mbap" { 12 } else { 8 });
        let function = draw.one_of(&[3, 4, 8]);
        more += &format!("\nprotocol_options = {{ mode = '{mode}', function = {function} }}");
    }
    let plan = format!(
        "[[case]]\nurl = 'mem://far?type={kind}&rate=1Mbit/s&delay=1ms'\nprotocol = '{protocol}'\nworkload = '{workload}'\n\
         {size}\ntimeout = '500ms'\n{more}"
    );
    // Not every protocol has every workload.
    let Ok(Ok(plan)) = Plan::from_toml(&plan).map(|plan| schedule::check(plan, Registry::standard())) else {
        return;
    };
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let script: Shared = Arc::new(Mutex::new(draw.0.iter().copied().collect()));
    // Streams beside datagrams use the same name.
    let endpoint: Endpoint = format!("mem://far?type={kind}").parse().expect("an endpoint");
    let mut listener = dialer.listen(&endpoint).expect("it listens");
    let hosted = listener.set_party_factory(Box::new(move |_| party(script.clone())));
    assert!(hosted.is_ok(), "in memory the link runs the server");
    let began = dialer.clock.now();
    let run = schedule::run(&plan, &mut RunContext::new(dialer.clone(), &()));
    let took = dialer.clock.now() - began;
    assert!(took < Duration::from_secs(120), "it took {took:?} of its own time");
    let json = serde_json::to_string(&run).expect("a run is JSON");
    let again = Run::from_json(&json).expect("it reads back");
    for case in &again.cases {
        let figures = &case.figures;
        assert!(
            workload != "latency" || figures.counts.received + figures.counts.lost <= figures.counts.sent,
            "{json}"
        );
        assert!(figures.delivery.throughput_bps.is_none_or(|rate| rate >= 0.0), "{json}");
    }
}

/// The next action of a scripted server.
enum Act {
    /// Sends these bytes.
    Say(Vec<u8>),
    /// Receives one message first; the bytes that change it are drawn after its arrival.
    Reply,
    Wait(Duration),
    Finish,
    Close,
}

fn drawn(script: &Shared) -> Option<Act> {
    let mut script = script.lock().expect("no thread panics while it holds the lock");
    let bytes: Vec<u8> = script.iter().take(512).copied().collect();
    let mut draw = Draw(&bytes);
    if draw.is_empty() {
        return None;
    }
    let act = match draw.byte() {
        0..=99 => Act::Reply,
        100..=199 => Act::Say(draw.short().to_vec()),
        200..=229 => Act::Wait(Duration::from_micros(u64::from(draw.byte()) << (draw.byte() % 24))),
        230..=239 => Act::Finish,
        _ => Act::Close,
    };
    let left = draw.0.len();
    script.drain(..bytes.len() - left);
    Some(act)
}

/// Bytes as they came, changed in places: pairs of place and change follow in the script.
fn changed(mut bytes: Vec<u8>, script: &Shared) -> Vec<u8> {
    let mut script = script.lock().expect("no thread panics while it holds the lock");
    let changes = script.pop_front().unwrap_or(0) % 8;
    for _ in 0..changes {
        let (place, change) = (script.pop_front().unwrap_or(0), script.pop_front().unwrap_or(0));
        match bytes.get_mut(usize::from(place)) {
            Some(byte) => *byte ^= change,
            None => bytes.push(change),
        }
    }
    bytes
}

struct Script {
    script: Shared,
    say: Vec<u8>,
    batch: Batch,
    replies: bool,
    wait: Option<Time>,
    then: Option<Duration>,
    finishes: bool,
    over: bool,
}

impl Script {
    fn new(script: Shared) -> Script {
        Script {
            script,
            say: Vec::new(),
            batch: Batch::new(65_536, 1),
            replies: false,
            wait: None,
            then: None,
            finishes: false,
            over: false,
        }
    }

    fn draw(&mut self) {
        match drawn(&self.script) {
            Some(Act::Say(bytes)) => self.say = bytes,
            Some(Act::Wait(time)) => self.then = Some(time),
            Some(Act::Finish) => self.finishes = true,
            Some(Act::Close) => self.over = true,
            // When the script has ended, received data is discarded.
            Some(Act::Reply) => self.replies = true,
            None => {}
        }
    }
}

impl Party for Script {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.say.is_empty() && !self.replies && !self.over && self.wait.is_none() {
            self.draw();
            self.wait = self.then.take().map(|time| now + time);
        }
        if self.over {
            return Step::Done;
        }
        if std::mem::take(&mut self.finishes) {
            return Step::FinishSending;
        }
        if let Some(until) = self.wait.filter(|until| *until > now) {
            return Step::Sleep(until);
        }
        self.wait = None;
        if !self.say.is_empty() {
            return Step::Send { bytes: &self.say, message: self.say.len() };
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.say.drain(..bytes);
    }

    fn on_received(&mut self, _now: Time) {
        if std::mem::take(&mut self.replies) {
            let came = self.batch.messages().flatten().copied().collect();
            self.say = changed(came, &self.script);
        }
    }

    fn on_timeout(&mut self, _now: Time) {}
}

/// Shakes hands as it should; replies and reports are the script's.
struct Liar {
    inner: Script,
    received: Vec<u8>,
    flows: usize,
    /// It is a flow by now.
    attached: bool,
}

impl Liar {
    fn new(script: Shared) -> Liar {
        Liar { inner: Script::new(script), received: Vec::new(), flows: 0, attached: false }
    }

    /// Its reply to the bytes received so far.
    fn understand(&mut self) {
        loop {
            let before = self.received.len();
            if let Some(first) = self.received.get(..HANDSHAKE_BYTES) {
                if let Some(attach) = Attach::parse(first) {
                    self.inner.say.extend(attach.reply(&KEY));
                    self.attached = true;
                    self.received.clear();
                    return;
                }
                if let Some(ready) = wire::ready_reply(first, &[1; 32], "fuzz", 0) {
                    self.inner.say.extend(ready);
                    self.received.drain(..HANDSHAKE_BYTES);
                }
            }
            if let Ok(Some((number, request, used))) =
                wire::decode_frame::<SessionRequest>(&self.received, wire::MAX_JSON_BYTES)
            {
                self.received.drain(..used);
                let reply = self.reply(&request, number);
                self.inner.say.extend(reply);
            }
            if self.received.len() == before {
                return;
            }
        }
    }

    fn reply(&mut self, request: &SessionRequest, number: u32) -> Vec<u8> {
        if let SessionRequest::Plan(plan) = request {
            self.flows = plan.flows.len();
        }
        let mut script = self.inner.script.lock().expect("no thread panics while it holds the lock");
        let bytes: Vec<u8> = script.iter().take(4096).copied().collect();
        let mut draw = Draw(&bytes);
        let reply = match (draw.byte(), request) {
            (0..=9, _) => draw.short().to_vec(),
            (10..=19, _) => {
                let text = String::from_utf8_lossy(draw.short()).into_owned();
                wire::encode_frame(number, &SessionReply::Refused { reason: text })
            }
            (20..=29, SessionRequest::Finish | SessionRequest::Cut) => {
                wire::encode_frame(number, &SessionReply::Pending { bytes: 0, measured: Default::default() })
            }
            (30..=39, _) => {
                // Any JSON, in a frame that fits.
                let text = draw.short();
                let mut frame = wire::encode_frame(number, &());
                frame.truncate(wire::FRAME_HEADER_BYTES);
                frame[8..12].copy_from_slice(&(text.len() as u32).to_be_bytes());
                frame.extend(text);
                frame
            }
            (_, SessionRequest::Open { .. }) => wire::encode_frame(number, &opened()),
            (limits, SessionRequest::Plan(_)) => {
                let per_second = (limits >= 128).then(|| draw.float());
                wire::encode_frame(
                    number,
                    &SessionReply::Planned { per_second, busy_poll_flows: None, time_of_day: None },
                )
            }
            (_, SessionRequest::Start) => wire::encode_frame(number, &SessionReply::Started),
            (what, SessionRequest::Finish | SessionRequest::Cut | SessionRequest::Rest { .. }) => {
                let count = if what < 60 { usize::from(draw.byte()) } else { self.flows };
                let flows = (0..count).map(|_| flow(&mut draw)).collect();
                wire::encode_frame(
                    number,
                    &SessionReply::Report(ServerReport {
                        flows,
                        cpu_seconds: Some(draw.float()),
                        ..ServerReport::default()
                    }),
                )
            }
            (_, SessionRequest::Bye) => Vec::new(),
        };
        let left = draw.0.len();
        script.drain(..bytes.len() - left);
        reply
    }
}

fn opened() -> SessionReply {
    SessionReply::Opened {
        version: wire::VERSION,
        tool: "liar".to_owned(),
        capabilities: ["reflect", "receive", "send"].map(str::to_owned).to_vec(),
        limits: ServerLimits::default(),
        session: "2a".to_owned(),
        key: Some(wire::encode_hex(&KEY)),
        environment: serde_json::Map::new(),
    }
}

fn flow(draw: &mut Draw) -> FlowReport {
    let honest = draw.byte() < 128;
    FlowReport {
        bytes: draw.number(),
        messages: draw.number(),
        head_bytes: draw.number(),
        elapsed_ns: draw.number(),
        duplicate: if honest { 0 } else { draw.number() },
        reordered: if honest { 0 } else { draw.number() },
        corrupt_messages: if honest { 0 } else { draw.number() },
        socket_drops: if honest { None } else { Some(draw.number()) },
        fault: (draw.byte() < 16).then(|| String::from_utf8_lossy(draw.short()).into_owned()),
        ..FlowReport::default()
    }
}

impl Party for Liar {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.attached {
            return self.inner.next_step(now);
        }
        if !self.inner.say.is_empty() {
            let message = self.inner.say.len();
            return Step::Send { bytes: &self.inner.say, message };
        }
        Step::Receive { into: &mut self.inner.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.inner.on_sent(bytes, at);
    }

    fn on_received(&mut self, now: Time) {
        if self.attached {
            return self.inner.on_received(now);
        }
        self.received.extend(self.inner.batch.messages().flatten());
        self.understand();
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }
}
