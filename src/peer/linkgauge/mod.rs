//! `linkgauge`: our own session. Both ends agree on a plan, both ends count, the far end reports.
//!
//! A control connection carries requests and replies (`wire`); every flow has a connection of its own, attached to the
//! session by its first message. This file is the near side, `far` the far side.

mod far;
pub mod wire;

use std::time::Duration;

use serde_json::{Map, Value};

use super::{FITS, Flow, Near, Peer, PeerError, Session};
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::link::party::Tuning;
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError};
use crate::plan::{Case, Direction, Pacing, Stop};
use crate::workload::latency::{Echo, Pinger};
use crate::workload::throughput::{Sink, Source};
use crate::workload::{FarReport, Flowed, Role};

pub use wire::Hello;
use wire::{Attach, FarPlan, FlowKind, Reply, Request, SHORT, WireError};

pub const PEER: Peer = Peer {
    name: "linkgauge",
    summary: "our own session: both ends agree on a plan, count and report",
    default_ports: &[],
    workloads: &[
        ("latency", &[Direction::Loop]),
        ("throughput", &[Direction::Send, Direction::Receive, Direction::Both]),
    ],
    options: &[],
    fit: FITS,
    connect,
    serve: Some(far::service),
};

/// On links that lose messages a request is repeated this often within the time-out.
const REPEATS: u32 = 5;

/// How often the report is asked for while far ends are still receiving.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Bytes of a probe: enough for a number, small beside any load.
const PROBE_BYTES: u32 = 14;

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let mut session = NearSession {
        ports: Vec::new(),
        flows: Vec::new(),
        clock: near.dialer.clock.clone(),
        timeout: case.timeout,
    };
    for port in 0..case.endpoints.len() {
        session.ports.push(Port::open(case, near, port, &mut session.flows)?);
    }
    for port in &mut session.ports {
        port.control.ask(&Request::Start)?;
    }
    Ok(Box::new(session))
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
    timeout: Duration,
}

/// The session with the server of one endpoint.
struct Port {
    control: Control,
    kinds: Vec<FlowKind>,
    got: Map<String, Value>,
    environment: Map<String, Value>,
}

impl Port {
    fn open(case: &Case, near: &Near, port: usize, flows: &mut Vec<Flow>) -> Result<Port, PeerError> {
        let endpoint = &case.endpoints[port];
        let mut control = Control::open(endpoint, near.dialer)?;
        let opened = control.open_session(near.token)?;
        let kinds = kinds(case, control.link.caps());
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
                // The server limits the rate; what we send obeys as well.
                got.insert("server_limit_messages_per_second".to_owned(), per_second.into());
                case.pacing = Pacing::Fixed { per_second };
            }
            reply => return Err(control.unexpected(&reply)),
        }
        for (number, (_, role)) in kinds.iter().enumerate() {
            let attach = Attach { session: opened.session, flow: number as u32 };
            let link = attached(endpoint, near.dialer, attach, &opened.key)?;
            flows.push(flow(&case, near, *role, port, link));
        }
        Ok(Port { control, kinds: plan.flows, got, environment: opened.environment })
    }
}

/// The near end of a flow.
fn flow(case: &Case, near: &Near, role: Role, port: usize, link: Box<dyn Link>) -> Flow {
    let caps = link.caps().clone();
    let recorder = (near.recorder)(role, port);
    let tuning = Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None };
    let party: Box<dyn crate::workload::Measured> = match role {
        Role::Exchange => {
            Box::new(Pinger::new(Box::new(Echo::new(case.message_bytes, &caps)), case, &caps, recorder))
        }
        Role::Outward => Box::new(Source::new(case, &caps, tuning, recorder)),
        Role::Inward => Box::new(Sink::new(case, &caps, tuning, recorder)),
        Role::Probe => {
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
            Box::new(Pinger::new(Box::new(Echo::new(PROBE_BYTES, &caps)), &probe, &caps, recorder))
        }
    };
    Flow { role, port, link, party }
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
    let granted = talk
        .say_until_answered(&request, |bytes| {
            (bytes.len() >= SHORT).then(|| (bytes[..SHORT].to_vec(), SHORT))
        })
        .map_err(|fault| LinkError::new(endpoint, fault))?;
    if attach.is_granted_by(&granted, key) {
        return Ok(link);
    }
    Err(PeerError::protocol(
        endpoint,
        "the server did not take a connection of its own session: is it overloaded?",
    ))
}

impl Session for NearSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn finish(
        &mut self,
        _flows: &[Flowed],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        // Far ends that receive see the end of what we sent; a fault here shows itself in the report.
        links.iter_mut().for_each(|link| drop(link.finish()));
        let mut all = FarReport::default();
        for (number, port) in self.ports.iter_mut().enumerate() {
            let until = self.clock.now() + self.timeout + Duration::from_secs(2);
            let report = loop {
                match port.control.ask(&Request::Finish)? {
                    Reply::Report(report) => break report,
                    Reply::Pending if self.clock.now() < until => {
                        self.clock.sleep_until(self.clock.now() + ASK_AGAIN);
                    }
                    Reply::Pending => return Err(port.control.fault(Fault::TimedOut)),
                    reply => return Err(port.control.unexpected(&reply)),
                }
            };
            if report.flows.len() != port.kinds.len() {
                return Err(PeerError::protocol(
                    &port.control.endpoint,
                    "the report is not about the flows of this case",
                ));
            }
            // Reflectors count nothing that we do not.
            let counted =
                report.flows.into_iter().zip(&port.kinds).filter(|(_, kind)| **kind != FlowKind::Reflect);
            all.flows.extend(counted.map(|(flow, kind)| crate::workload::FarFlow {
                port: number,
                inward: *kind == FlowKind::Send,
                ..flow
            }));
            all.cpu_seconds = match (all.cpu_seconds, report.cpu_seconds) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            // The server would notice by itself; told, it frees the place at once.
            let _ = port.control.tell(&Request::Bye);
        }
        drop(links);
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
        })
    }

    fn fault(&self, fault: Fault) -> PeerError {
        LinkError::new(&self.endpoint, fault).into()
    }

    fn unexpected(&self, reply: &Reply) -> PeerError {
        let what = match reply {
            Reply::Refused { reason } => format!("the server refused: {reason}"),
            _ => "the server answered something else than was asked: is it another version?".to_owned(),
        };
        PeerError::protocol(&self.endpoint, what)
    }

    fn open_session(&mut self, token: Option<&str>) -> Result<Opened, PeerError> {
        let hello = Hello::new();
        let mut talk = Talk::new(self.link.as_mut(), &self.clock, self.timeout);
        let answer = talk
            .say_until_answered(hello.bytes(), |bytes| {
                (bytes.len() >= SHORT).then(|| (bytes[..SHORT].to_vec(), SHORT))
            })
            .map_err(|fault| LinkError::new(&self.endpoint, fault))?;
        let Some(challenge) = hello.challenge_in(&answer) else {
            let what = "no linkgauge answers there: start 'linkgauge serve', or name another --peer";
            return Err(PeerError::protocol(&self.endpoint, what));
        };
        let open = Request::Open {
            version: wire::VERSION,
            tool: crate::run::TOOL.to_owned(),
            nonce: wire::hex(hello.nonce()),
            challenge: wire::hex(challenge),
            proof: token.map(|token| wire::token_proof(token, hello.nonce(), challenge)),
        };
        match self.ask(&open)? {
            Reply::Opened { version, .. } if version != wire::VERSION => {
                let what = format!("the server speaks session version {version}, we speak {}", wire::VERSION);
                Err(PeerError::protocol(&self.endpoint, what))
            }
            Reply::Opened { tool, session, key, environment, .. } => {
                let session = u64::from_str_radix(&session, 16).ok();
                match session.zip(wire::unhex(&key)) {
                    Some((session, key)) => Ok(Opened { tool, session, key, environment }),
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
        let frame = wire::frame(number, request);
        let mut unreadable = None;
        let mut talk = Talk::new(self.link.as_mut(), &self.clock, self.timeout);
        let reply = talk.say_until_answered(&frame, |bytes| match wire::read_frame::<Reply>(bytes) {
            // An older reply came twice: not the one waited for.
            Ok(Some((other, _, used))) if other != number => Some((None, used)),
            Ok(Some((_, reply, used))) => Some((Some(reply), used)),
            Ok(None) => None,
            Err(error) => {
                unreadable = Some(error);
                Some((None, bytes.len()))
            }
        });
        if let Some(error) = unreadable {
            return Err(self.garbled(&error));
        }
        match reply {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(PeerError::protocol(&self.endpoint, "the server answered an older request")),
            Err(fault) => Err(self.fault(fault)),
        }
    }

    fn garbled(&self, error: &WireError) -> PeerError {
        PeerError::protocol(&self.endpoint, format!("the server cannot be understood: {error}"))
    }

    /// A request without a reply.
    fn tell(&mut self, request: &Request) -> Result<(), Fault> {
        self.number += 1;
        let frame = wire::frame(self.number, request);
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

    /// Says `words` until `understand` makes something of what came back; it is shown all bytes so far (one message on
    /// a message link) and tells how many of them it used.
    fn say_until_answered<T>(
        &mut self,
        words: &[u8],
        mut understand: impl FnMut(&[u8]) -> Option<(T, usize)>,
    ) -> Result<T, Fault> {
        let caps = self.link.caps().clone();
        let tries = if caps.reliable { 1 } else { REPEATS };
        let until = self.clock.now() + self.timeout;
        let mut heard = Vec::new();
        let mut chunk = vec![0; caps.max_message.unwrap_or(4096)];
        for _ in 0..tries {
            let mut sent = 0;
            while sent < words.len() {
                sent += self.link.send(&words[sent..], until.since(self.clock.now()))?;
            }
            let again = (self.clock.now() + self.timeout / tries).min(until);
            loop {
                let left = again.since(self.clock.now());
                match self.link.receive(&mut chunk, left) {
                    Ok(length) if caps.framing == Framing::Message => heard = chunk[..length].to_vec(),
                    Ok(length) => heard.extend_from_slice(&chunk[..length]),
                    Err(Fault::TimedOut) => break,
                    Err(fault) => return Err(fault),
                }
                if let Some((understood, _)) = understand(&heard) {
                    return Ok(understood);
                }
                if heard.len() > wire::LONGEST + wire::FRAME_HEAD {
                    return Err(Fault::Other("the far end talks without end".to_owned()));
                }
            }
        }
        Err(Fault::TimedOut)
    }
}
