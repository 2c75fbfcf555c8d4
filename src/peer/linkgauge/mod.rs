//! `linkgauge`: our own session. Both ends agree on a plan, both ends count, the far end reports.
//!
//! A control connection carries requests and replies (`wire`); every flow has a connection of its own, attached to the
//! session by its first message. This file is the near side, `far` the far side.

mod drain;
mod far;
pub mod proof;
pub mod wire;

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Flow, Near, Peer, PeerError, Session};
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::link::party::Tuning;
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError};
use crate::plan::{Case, Direction, Pacing, Stop};
use crate::sample::Recorder;
use crate::workload::latency::{Echo, Pinger};
use crate::workload::throughput::{Sink, Source};
use crate::workload::{FarFlow, FarReport, Flowed, Role};

use drain::Drain;
use far::{RATES, has_no_connection};
use proof::Token;
pub use wire::Hello;
use wire::{Attach, FarPlan, FlowKind, Frames, Reply, Request, SHORT, WireError};

pub const PEER: Peer = Peer {
    name: "linkgauge",
    summary: "our own session: both ends agree on a plan, count and report",
    default_ports: &[],
    workloads: &[
        ("latency", &[Direction::Loop]),
        ("throughput", &[Direction::Send, Direction::Receive, Direction::Both]),
    ],
    options: &[],
    sizes: &[],
    fit,
    connect,
    serve: Some(far::service),
};

/// On links that lose messages a request is repeated this often within the time-out.
const REPEATS: u32 = 5;

/// Bytes of a probe: enough for a number, small beside any load.
const PROBE_BYTES: u32 = 14;

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let mut session = NearSession {
        ports: Vec::new(),
        flows: Vec::new(),
        clock: near.dialer.clock.clone(),
        drain: Drain::new(case),
    };
    for port in 0..case.endpoints.len() {
        session.ports.push(Port::open(case, near, port, &mut session.flows)?);
    }
    for port in &mut session.ports {
        port.control.ask(&Request::Start)?;
    }
    Ok(Box::new(session))
}

/// A message that holds whatever a server tells of its machine.
const LEAST_MESSAGE: usize = 16 * 1024;

/// What is said of the payload goes beside it.
fn fit(_case: &mut Case, caps: &Caps) -> Result<(), String> {
    match (caps.many, caps.max_message) {
        (true, Some(most)) if most < LEAST_MESSAGE => Err(format!(
            "linkgauge: a session needs messages of {} and more, here they end at {most} bytes: see the link's options, or \
             use --peer echo",
            crate::units::print_bytes(LEAST_MESSAGE as u64)
        )),
        (true, _) => Ok(()),
        (false, _) => Err("linkgauge: this link carries one connection at a time, and a session needs two: use --peer echo, \
                      which 'linkgauge serve' answers too"
            .to_owned()),
    }
}

/// The flows of one endpoint: what the far end does on each, and what we do.
fn kinds(case: &Case, caps: &Caps) -> Vec<(FlowKind, Role)> {
    let one: &[(FlowKind, Role)] = match (case.workload.as_str(), case.direction) {
        ("latency", _) => &[(FlowKind::Reflect, Role::Exchange)],
        (_, Some(Direction::Receive)) => &[(FlowKind::Send, Role::Inward)],
        (_, Some(Direction::Both)) => &[(FlowKind::Receive, Role::Outward), (FlowKind::Send, Role::Inward)],
        _ => &[(FlowKind::Receive, Role::Outward)],
    };
    let mut kinds = one.repeat(case.parallel as usize);
    if case.workload != "latency" && case.probe_per_second.is_some() && caps.many {
        kinds.push((FlowKind::Reflect, Role::Probe));
    }
    kinds
}

struct NearSession {
    ports: Vec<Port>,
    flows: Vec<Flow>,
    clock: Clock,
    drain: Drain,
}

/// The session with the server of one endpoint.
struct Port {
    control: Control,
    kinds: Vec<FlowKind>,
    got: Map<String, Value>,
    environment: Map<String, Value>,
    /// The first part of the report, or why there is none.
    report: Option<Result<FarReport, PeerError>>,
}

impl Port {
    fn open(case: &Case, near: &Near, port: usize, flows: &mut Vec<Flow>) -> Result<Port, PeerError> {
        let endpoint = &case.endpoints[port];
        let mut control = Control::open(endpoint, near.dialer)?;
        let opened = control.open_session(near.token)?;
        let kinds = kinds(case, control.link.caps());
        if let Some((kind, _)) =
            kinds.iter().find(|(kind, _)| !opened.capabilities.iter().any(|name| name == kind.name()))
        {
            let what = format!("the server cannot {}: use the same linkgauge at both ends", kind.name());
            return Err(PeerError::protocol(endpoint, what));
        }
        let mut case = case.clone();
        let plan = FarPlan {
            flows: kinds.iter().map(|(kind, _)| *kind).collect(),
            message_bytes: case.message_bytes,
            pacing: case.pacing,
            stop: case.stop,
            warm_up: case.warm_up.unwrap_or_default(),
            timeout_ns: case.timeout.as_nanos() as u64,
            wait: case.wait,
            cpu: case.pin.far,
        };
        let mut got = Map::new();
        got.insert("far_tool".to_owned(), opened.tool.into());
        match control.ask(&Request::Plan(plan.clone()))? {
            Reply::Planned { per_second: None } => {}
            Reply::Planned { per_second: Some(per_second) } => {
                check_granted(endpoint, per_second, case.pacing)?;
                // The server limits the rate; what we send obeys as well.
                got.insert("server_limit_messages_per_second".to_owned(), per_second.into());
                case.pacing = Pacing::Fixed { per_second };
            }
            reply => return Err(control.unexpected(&reply)),
        }
        for (number, (_, role)) in kinds.iter().enumerate() {
            let attach = Attach { session: opened.session, flow: number as u32 };
            let link = attached(endpoint, near.dialer, attach, &opened.key)?;
            let sign = has_no_connection(link.caps()).then(|| attach.alive(&opened.key).to_vec());
            let party = party(&case, link.caps(), *role, sign, (near.recorder)(*role, port));
            flows.push(Flow { role: *role, port, link, party });
        }
        Ok(Port { control, kinds: plan.flows, got, environment: opened.environment, report: None })
    }
}

/// Refuses a rate that is none, or higher than what was requested: a server limits, it does not command.
fn check_granted(endpoint: &Endpoint, per_second: f64, requested: Pacing) -> Result<(), PeerError> {
    let requested = requested.per_second();
    if RATES.contains(&per_second) && requested.is_none_or(|requested| per_second <= requested) {
        return Ok(());
    }
    let requested = requested.map_or_else(|| "no rate was".to_owned(), |rate| format!("{rate:?} were"));
    Err(PeerError::protocol(
        endpoint,
        format!(
            "the server grants {per_second:?} messages/s where {requested} requested: use the same linkgauge at both ends"
        ),
    ))
}

/// The near end of a flow; `sign` is what says on a link without connections that somebody receives.
fn party(
    case: &Case,
    caps: &Caps,
    role: Role,
    sign: Option<Vec<u8>>,
    recorder: Recorder,
) -> Box<dyn crate::workload::Measured> {
    let tuning = Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None };
    match role {
        Role::Exchange => Box::new(Pinger::new(Box::new(Echo::new(case, caps)), case, caps, recorder)),
        Role::Outward => Box::new(Source::new(case, caps, tuning, recorder)),
        Role::Inward => {
            let sink = Sink::new(case, caps, tuning, recorder);
            Box::new(match sign {
                Some(sign) => sink.with_sign(sign),
                None => sink,
            })
        }
        // Our words have a connection that is no flow.
        Role::Probe | Role::Control => {
            let probe = Case {
                message_bytes: PROBE_BYTES,
                pacing: Pacing::Fixed { per_second: case.probe_per_second.unwrap_or(1.0) },
                // It goes on until the load has ended.
                stop: Stop::default(),
                warm_up: None,
                // A probe sleeps; it must not take a CPU from the load.
                wait: crate::plan::Wait::Block,
                ..case.clone()
            };
            Box::new(Pinger::new(Box::new(Echo::new(&probe, caps)), &probe, caps, recorder))
        }
    }
}

/// Opens a connection and attaches it to a flow of the session.
fn attached(
    endpoint: &Endpoint,
    dialer: &Dialer,
    attach: Attach,
    key: &[u8],
) -> Result<Box<dyn Link>, PeerError> {
    let mut link = dialer.open(endpoint)?;
    let mut talk = Talk::new(link.as_mut(), &dialer.clock, dialer.timeout);
    let request = attach.request(key);
    let granted = talk.say_until_answered(&request, |bytes| match bytes.get(..SHORT) {
        None => Heard::Part,
        Some(answer) if attach.is_granted_by(answer, key) => Heard::Understood(true),
        Some(_) => Heard::Strange(false),
    });
    match granted {
        Ok(true) => Ok(link),
        Ok(false) | Err(Fault::Closed) => Err(PeerError::protocol(
            endpoint,
            "the server did not take a connection of its own session: is it overloaded?",
        )),
        Err(fault) => Err(LinkError::new(endpoint, fault).into()),
    }
}

/// Words of a server, fit to be shown: one line of modest length, without control characters.
fn one_line(text: &str) -> String {
    const MOST: usize = 200;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST).collect()
}

/// How often it is looked whether all has arrived, and how long that still counts when the user has had enough.
const LOOK: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(500);

/// A server notices within this time that it is to wait for nothing more.
const CUTS: Duration = Duration::from_secs(3);

/// Why a flow has no end.
const UNFINISHED: &str = "not all that was sent arrived in time: check the link, and --timeout";

impl Port {
    /// Asks for the report; the bytes that have come where the server still receives.
    fn ask_for_report(&mut self, request: &Request) -> Option<u64> {
        match self.control.ask(request) {
            Ok(Reply::Pending { bytes }) => return Some(bytes),
            Ok(Reply::Report(report)) => self.report = Some(Ok(report)),
            Ok(reply) => self.report = Some(Err(self.control.unexpected(&reply))),
            Err(error) => self.report = Some(Err(error)),
        }
        None
    }

    /// What the far end counted of all flows, once they have ended.
    fn whole_report(&mut self) -> Result<FarReport, PeerError> {
        let what = "the report is not about the flows of this case";
        let strange = PeerError::protocol(&self.control.endpoint, what);
        let mut report = self.report.take().unwrap_or_else(|| Err(self.control.fault(Fault::TimedOut)))?;
        while report.flows.len() < self.kinds.len() {
            match self.control.ask(&Request::Rest { from: report.flows.len() as u32 })? {
                Reply::Report(rest) if !rest.flows.is_empty() => report.flows.extend(rest.flows),
                _ => return Err(strange),
            }
        }
        if report.flows.len() > self.kinds.len() { Err(strange) } else { Ok(report) }
    }

    /// Has the server end what still receives, where the report is still to come.
    fn cut(&mut self, clock: &Clock) {
        let until = clock.now() + CUTS;
        while self.report.is_none() && self.ask_for_report(&Request::Cut).is_some() && clock.now() < until {
            clock.sleep_until(clock.now() + LOOK);
        }
    }
}

impl Session for NearSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn is_draining(&mut self, links: &mut [Box<dyn Link>]) -> bool {
        let now = self.clock.now();
        if self.drain.begins(now) {
            // Far ends that receive see the end of what we sent; a fault here shows itself in the report.
            links.iter_mut().for_each(|link| drop(link.finish()));
        }
        // Our words would only queue behind what this host still holds.
        if self.drain.local(now, links) {
            return true;
        }
        let mut bytes = None;
        for port in self.ports.iter_mut().filter(|port| port.report.is_none()) {
            if let Some(more) = port.ask_for_report(&Request::Finish) {
                bytes = Some(bytes.unwrap_or(0u64).saturating_add(more));
            }
        }
        bytes.is_some_and(|bytes| self.drain.remote(self.clock.now(), bytes))
    }

    fn finish(
        &mut self,
        _flows: &[Flowed],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        // The user may have had enough: then what is nearly there still counts.
        let soon = self.clock.now() + SOON;
        while !self.drain.is_over() && self.is_draining(&mut links) && self.clock.now() < soon {
            self.clock.sleep_until(self.clock.now() + LOOK);
        }
        let mut all = FarReport::default();
        let several = self.ports.len() > 1;
        for (number, port) in self.ports.iter_mut().enumerate() {
            let cut = port.report.is_none();
            port.cut(&self.clock);
            let report = match port.whole_report() {
                Ok(report) => report,
                // What the other ports tell is kept.
                Err(error) if several => {
                    let fault = Some(error.to_string());
                    all.flows.push(FarFlow { port: number, fault, ..FarFlow::default() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Reflectors count nothing that we do not.
            let counts =
                |(flow, kind): &(FarFlow, &FlowKind)| **kind != FlowKind::Reflect || flow.fault.is_some();
            let counted = report.flows.into_iter().zip(&port.kinds).filter(counts);
            let first = all.flows.len();
            all.flows.extend(counted.map(|(flow, kind)| FarFlow {
                port: number,
                inward: *kind == FlowKind::Send,
                fault: flow.fault.as_deref().map(|fault| port.control.told(fault)),
                ..flow
            }));
            if let Some(flow) = all.flows.get_mut(first).filter(|_| cut && self.drain.is_over()) {
                flow.fault.get_or_insert_with(|| format!("{}: {UNFINISHED}", port.control.endpoint));
            }
            let seconds = report.cpu_seconds.filter(|seconds| (0.0..1e12).contains(seconds));
            if let Some(seconds) = seconds {
                *all.cpu_seconds.get_or_insert(0.0) += seconds;
            }
            // The server would notice by itself; told, it frees the place at once.
            let _ = port.control.tell(&Request::Bye);
        }
        drop(links);
        all.saw_end = !all.flows.iter().any(|flow| flow.unfinished);
        Ok(Some(all))
    }

    fn got(&self) -> Map<String, Value> {
        self.ports.iter().flat_map(|port| port.got.clone()).collect()
    }

    fn far_environment(&self) -> Map<String, Value> {
        self.ports.first().map(|port| port.environment.clone()).unwrap_or_default()
    }
}

/// What a server said when the session was opened.
struct Opened {
    tool: String,
    capabilities: Vec<String>,
    session: u64,
    key: Vec<u8>,
    environment: Map<String, Value>,
}

/// The control connection.
struct Control {
    link: Box<dyn Link>,
    endpoint: Endpoint,
    clock: Clock,
    timeout: Duration,
    number: u32,
    frames: Frames,
}

impl Control {
    fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<Control, PeerError> {
        let dialer = Dialer { wait: crate::plan::Wait::Block, ..dialer.clone() };
        Ok(Control {
            link: dialer.open(endpoint)?,
            endpoint: endpoint.clone(),
            clock: dialer.clock.clone(),
            timeout: dialer.timeout,
            number: 0,
            frames: Frames::default(),
        })
    }

    fn fault(&self, fault: Fault) -> PeerError {
        LinkError::new(&self.endpoint, fault).into()
    }

    fn unexpected(&self, reply: &Reply) -> PeerError {
        let what = match reply {
            Reply::Refused { reason } => format!("the server refused: {}", one_line(reason)),
            _ => "the server answered something else than was asked: is it another version?".to_owned(),
        };
        PeerError::protocol(&self.endpoint, what)
    }

    /// What the server says went wrong with a flow.
    fn told(&self, fault: &str) -> String {
        format!("{}: the server ended it: {}", self.endpoint, one_line(fault))
    }

    fn open_session(&mut self, token: Option<&str>) -> Result<Opened, PeerError> {
        let hello = Hello::new();
        let mut talk = Talk::new(self.link.as_mut(), &self.clock, self.timeout);
        let answer = talk.say_until_answered(hello.bytes(), |bytes| match hello.challenge_in(bytes) {
            Some(challenge) => Heard::Understood(Some(challenge.to_vec())),
            None if bytes.len() < SHORT => Heard::Part,
            None => Heard::Strange(None),
        });
        let answer = match answer {
            Err(Fault::Closed) => Ok(None),
            answer => answer.map_err(|fault| LinkError::new(&self.endpoint, fault)),
        };
        let Some(challenge) = answer? else {
            let what = "no linkgauge with room for us answers there: start 'linkgauge serve', or name another --peer";
            return Err(PeerError::protocol(&self.endpoint, what));
        };
        let token = token.map(|token| Token { token, nonce: hello.nonce(), challenge: &challenge });
        let open = Request::Open {
            version: wire::VERSION,
            tool: crate::run::TOOL.to_owned(),
            nonce: wire::hex(hello.nonce()),
            challenge: wire::hex(&challenge),
            proof: token.as_ref().map(Token::proof),
        };
        match self.ask(&open)? {
            Reply::Opened { version, .. } if version != wire::VERSION => {
                let what = format!(
                    "the server speaks session version {version}, we speak {}: use the same linkgauge at both ends",
                    wire::VERSION
                );
                Err(PeerError::protocol(&self.endpoint, what))
            }
            Reply::Opened { tool, capabilities, session, key, environment, .. } => {
                let session = u64::from_str_radix(&session, 16).ok();
                let key = match (&key, token, session) {
                    (Some(key), ..) => wire::unhex(key),
                    // A server that knows the token derives the same; all that is said from here on is signed with it.
                    (None, Some(token), Some(session)) => {
                        let key = token.key(session);
                        self.frames = Frames::signed(key);
                        Some(key.to_vec())
                    }
                    _ => None,
                };
                match session.zip(key) {
                    Some((session, key)) => {
                        Ok(Opened { tool: one_line(&tool), capabilities, session, key, environment })
                    }
                    None => {
                        Err(PeerError::protocol(&self.endpoint, "the server gave a session without a key"))
                    }
                }
            }
            reply => Err(self.unexpected(&reply)),
        }
    }

    /// A request and its reply.
    fn ask(&mut self, request: &Request) -> Result<Reply, PeerError> {
        self.number += 1;
        let number = self.number;
        let frame = self.frames.write(number, request);
        let mut talk = Talk::new(self.link.as_mut(), &self.clock, self.timeout);
        let frames = &self.frames;
        let reply =
            talk.say_until_answered(&frame, |bytes| match frames.read::<Reply>(bytes, wire::LONGEST) {
                // What a server could not read had no number for it.
                Ok(Some((other, reply, _))) if other == number || matches!(reply, Reply::Refused { .. }) => {
                    Heard::Understood(Ok(reply))
                }
                // An older reply that came twice, on a link where that happens.
                Ok(Some(_)) => Heard::Strange(Err(WireError::NotAsked)),
                Ok(None) => Heard::Part,
                Err(error) => Heard::Strange(Err(error)),
            });
        match reply {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let what = format!("the server cannot be understood: {error}");
                Err(PeerError::protocol(&self.endpoint, what))
            }
            Err(fault) => Err(self.fault(fault)),
        }
    }

    /// A request without a reply.
    fn tell(&mut self, request: &Request) -> Result<(), Fault> {
        self.number += 1;
        let frame = self.frames.write(self.number, request);
        let mut sent = 0;
        while sent < frame.len() {
            sent += self.link.send(&frame[sent..], self.timeout)?;
        }
        Ok(())
    }
}

/// Words on a link before and after the measurement: waits, repeats where words get lost, never longer than it may.
struct Talk<'a> {
    link: &'a mut dyn Link,
    clock: &'a Clock,
    timeout: Duration,
}

impl<'a> Talk<'a> {
    fn new(link: &'a mut dyn Link, clock: &'a Clock, timeout: Duration) -> Talk<'a> {
        Talk { link, clock, timeout }
    }

    /// Says `words` until `understand` makes something of what came back: all bytes so far on a stream, one message on
    /// a message link. There a strange message is passed over, it may be a late copy; on a stream it is the answer.
    fn say_until_answered<T>(
        &mut self,
        words: &[u8],
        mut understand: impl FnMut(&[u8]) -> Heard<T>,
    ) -> Result<T, Fault> {
        let caps = self.link.caps().clone();
        let tries = if caps.reliable { 1 } else { REPEATS };
        let until = self.clock.now() + self.timeout;
        let mut heard = Vec::new();
        let mut chunk = vec![0; caps.max_message.unwrap_or(4096)];
        let mut strange = None;
        for _ in 0..tries {
            let mut sent = 0;
            while sent < words.len() {
                sent += self.link.send(&words[sent..], until.since(self.clock.now()))?;
            }
            let again = (self.clock.now() + self.timeout / tries).min(until);
            loop {
                let left = again.since(self.clock.now());
                if left.is_zero() {
                    break;
                }
                match self.link.receive(&mut chunk, left) {
                    Ok(length) if caps.framing == Framing::Message => heard = chunk[..length].to_vec(),
                    Ok(length) => heard.extend_from_slice(&chunk[..length]),
                    Err(Fault::TimedOut) => break,
                    Err(fault) => return Err(fault),
                }
                match understand(&heard) {
                    Heard::Understood(answer) => return Ok(answer),
                    Heard::Strange(answer) if caps.framing == Framing::Stream => return Ok(answer),
                    Heard::Strange(answer) => strange = Some(answer),
                    Heard::Part if heard.len() > wire::LONGEST + wire::FRAME_HEAD => {
                        return Err(Fault::Other("the far end talks without end".to_owned()));
                    }
                    Heard::Part => {}
                }
            }
        }
        strange.ok_or(Fault::TimedOut)
    }
}

/// What was made of bytes that came back.
enum Heard<T> {
    /// More is needed.
    Part,
    Understood(T),
    /// Not what was asked for.
    Strange(T),
}
