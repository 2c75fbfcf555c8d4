//! `linx-bmark`: the benchmark that comes with LINX (linx_bmark, 2.5 to 2.6.9), both sides of it.
//!
//! A client tells the server that it is there; an end of its own answers it and serves it from then on: it sends echoes
//! back, or bursts of as many signals as it is asked for. A message is a whole signal, its number in front.

mod burst;
mod far;
mod signal;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Flow, Near, Peer, PeerError, Session, flows};
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::link::linx::ethernet_cm::frames;
use crate::link::linx::with_signals;
use crate::link::{Caps, Fault, Framing, Link, LinkError};
use crate::plan::{Case, Direction};
use crate::workload::latency::{Answer, Exchange, Pinger};
use crate::workload::pattern::{Alphabet, HEADER, Message};
use crate::workload::{FarFlow, FarReport, Flowed, Role};
use burst::Burst;
use signal::{CONN_EST, ECHO, NUMBER, TERMINATE_REQ, number};

pub const PEER: Peer = Peer {
    name: "linx-bmark",
    summary: "the benchmark of LINX (linx_bmark): echoes and bursts of signals",
    default_ports: &[],
    workloads: &[("latency", &[Direction::Loop]), ("throughput", &[Direction::Receive, Direction::Loop])],
    options: &[
        ("style", "new (default), as LINX 2.6.8 and later ask for a burst, or old, as those before"),
        ("burst", "signals of one burst, 1 to 1M (40); over Ethernet no more than a real node queues"),
    ],
    sizes: &[],
    fit,
    connect,
    serve: Some(|_| Arc::new(far::Bench)),
};

/// What the original sends unless told otherwise.
const USUAL_SIZE: u32 = 2048;
const USUAL_BURST: u32 = 40;

/// Over Ethernet a real node queues at most 2048 frames of a connection, and drops the connection beyond. Some room is
/// left for what else it says.
const MOST_FRAMES: u32 = 1920;

/// How the client speaks, by the release it is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Old,
    New,
}

fn style(case: &Case) -> Result<Style, String> {
    match case.peer_options.get("style").map(String::as_str) {
        None | Some("new") => Ok(Style::New),
        Some("old") => Ok(Style::Old),
        Some(other) => Err(format!("peer linx-bmark: style '{other}' is neither new nor old")),
    }
}

fn burst(case: &Case) -> Result<u32, String> {
    let Some(text) = case.peer_options.get("burst") else { return Ok(USUAL_BURST) };
    let count = crate::units::count(text).ok().filter(|count| (1..=1_000_000).contains(count));
    let count = count.and_then(|count| u32::try_from(count).ok());
    count.ok_or_else(|| format!("peer linx-bmark: burst '{text}' is not a count from 1 to 1M"))
}

fn fit(case: &mut Case, caps: &Caps) -> Result<(), String> {
    style(case)?;
    burst(case)?;
    needs_messages(caps)?;
    if case.message_bytes == 0 {
        case.message_bytes = USUAL_SIZE;
    }
    if (case.message_bytes as usize) < NUMBER {
        let bytes = case.message_bytes;
        return Err(format!(
            "peer linx-bmark: a signal has at least {NUMBER} bytes, its number, not {bytes}"
        ));
    }
    for endpoint in &mut case.endpoints {
        *endpoint = with_signals(endpoint).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A stream has no signals.
fn needs_messages(caps: &Caps) -> Result<(), String> {
    match caps.framing {
        Framing::Message => Ok(()),
        Framing::Stream => {
            Err("peer linx-bmark: signals need a link with messages, like linx://host/server".to_owned())
        }
    }
}

/// How many signals a burst may have so that all that are on their way at once fit into the queue of a real node.
/// `mtu`: bytes of a frame, where there are frames.
fn bounded(count: u32, case: &Case, mtu: Option<u64>) -> u32 {
    let Some(mtu) = mtu else { return count };
    let frames = frames(case.message_bytes as usize, mtu as usize).saturating_mul(case.parallel);
    count.min((MOST_FRAMES / frames.max(1)).max(1))
}

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let (style, count) = style(case).and_then(|style| Ok((style, burst(case)?))).map_err(PeerError::Unfit)?;
    let clock = &near.dialer.clock;
    let mut effective = None;
    let flows = flows(case, near, |port, mut link, flows| {
        meet(link.as_mut(), style, &case.endpoints[port], clock, near.dialer.timeout)?;
        let caps = link.caps().clone();
        if case.workload == "latency" {
            let exchange = Box::new(Echo::new(case.message_bytes as usize, &caps));
            let party = Pinger::new(exchange, case, &caps, (near.recorder)(Role::Exchange, port));
            flows.push(Flow { role: Role::Exchange, port, link, party: Box::new(party) });
        } else {
            let recorder = (near.recorder)(Role::Inward, port);
            let party = match case.direction {
                Some(Direction::Loop) => {
                    Burst::echoes(case, Echo::new(case.message_bytes as usize, &caps).signal, recorder)
                }
                _ => {
                    let mtu = link.facts().get("frame_bytes").and_then(Value::as_u64);
                    let count = bounded(count, case, mtu);
                    effective = Some(count);
                    Burst::new(case, style, count, recorder)
                }
            };
            flows.push(Flow { role: Role::Inward, port, link, party: Box::new(party) });
        }
        Ok(())
    })?;
    Ok(Box::new(Client { flows, burst: effective, clock: clock.clone(), timeout: near.dialer.timeout }))
}

/// Tells the server that we are here, and waits for the end that will serve us.
fn meet(
    link: &mut dyn Link,
    style: Style,
    endpoint: &Endpoint,
    clock: &Clock,
    timeout: Duration,
) -> Result<(), PeerError> {
    let until = clock.now() + timeout;
    let fault = |fault| PeerError::Link(LinkError::new(endpoint, fault));
    link.send(&signal::conn_est(style), timeout).map_err(fault)?;
    let mut answer = vec![0; link.caps().max_message.unwrap_or(1)];
    loop {
        match link.receive(&mut answer, until.since(clock.now())) {
            Ok(length) if number(&answer[..length]) == Some(CONN_EST) => return Ok(()),
            Ok(_) => {}
            Err(Fault::TimedOut | Fault::Closed) => {
                let what = "no linx_bmark server answered there: start 'linx_bmark -S', or 'linkgauge serve --peer \
                            linx-bmark'";
                return Err(PeerError::protocol(endpoint, what));
            }
            Err(other) => return Err(fault(other)),
        }
    }
}

struct Client {
    flows: Vec<Flow>,
    /// Signals of one burst.
    burst: Option<u32>,
    clock: Clock,
    timeout: Duration,
}

impl Session for Client {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// The ends that served us are told to go, and seen going.
    fn finish(
        &mut self,
        flows: &[Flowed],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let until = self.clock.now() + self.timeout;
        for link in &mut links {
            // One that is gone has nothing to be told.
            let _ = link.send(&TERMINATE_REQ.to_be_bytes(), self.timeout);
        }
        let mut rest = [0; NUMBER];
        for link in &mut links {
            while link.receive(&mut rest, until.since(self.clock.now())).is_ok() {}
        }
        let asked = |flow: &&Flowed| flow.role == Role::Inward;
        let far = flows.iter().filter(asked).map(|flow| FarFlow {
            port: flow.port,
            messages: flow.recorder.counts.sent,
            inward: true,
            ..FarFlow::default()
        });
        Ok(Some(FarReport { flows: far.collect(), ..FarReport::default() }))
    }

    fn got(&self) -> Map<String, Value> {
        self.burst.map(|count| ("burst_signals".to_owned(), count.into())).into_iter().collect()
    }
}

/// An echo behind its signal number.
struct Echo {
    signal: Vec<u8>,
    message: Message,
}

impl Echo {
    fn new(bytes: usize, caps: &Caps) -> Echo {
        let message = Message::new(bytes - NUMBER, Alphabet::of(caps));
        let mut signal = ECHO.to_be_bytes().to_vec();
        signal.extend_from_slice(message.bytes());
        Echo { signal, message }
    }
}

impl Exchange for Echo {
    #[inline]
    fn request(&mut self, sequence: u64) -> &[u8] {
        let head = self.message.len().min(HEADER);
        self.signal[NUMBER..NUMBER + head].copy_from_slice(&sequence.to_le_bytes()[..head]);
        &self.signal
    }

    #[inline]
    fn answer(&mut self, data: &[u8], waiting: Range<u64>) -> Answer {
        let used = data.len();
        if number(data) != Some(ECHO) || used < self.signal.len().min(NUMBER + 1) {
            return Answer::Stray { used };
        }
        let (head, body) = data[NUMBER..].split_at((used - NUMBER).min(HEADER).min(self.message.len()));
        // Without a number it answers the one that is on its way.
        let sequence = match self.is_numbered() {
            true => self.message.number(head, waiting.start),
            false => Some(waiting.start),
        };
        let Some(sequence) = sequence else { return Answer::Stray { used } };
        let corrupt_bytes = crate::workload::pattern::differing(body, self.message.body());
        Answer::Whole { sequence, used, corrupt_bytes }
    }

    fn is_numbered(&self) -> bool {
        !self.message.is_empty()
    }
}

#[cfg(test)]
mod tests;
