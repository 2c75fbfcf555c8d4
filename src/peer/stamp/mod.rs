//! `stamp` and `twamp-light`: the far end tells when a request came and when its answer left (RFC 8762, RFC 5357), so
//! that its own time can be told from that of the way, and the way there from the way back.
//!
//! Neither has a control connection; the token, where one is wanted, is the key of STAMP's authenticated mode. Packets
//! are `packet`, their extensions `tlv`, times of day `time`, the far side is `reflector`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{Map, Value};

use super::ask::text;
use super::{Flow, Near, Peer, PeerError, Session, flows};
use crate::clock::Time;
use crate::link::{Caps, Framing};
use crate::plan::{Case, Direction};
use crate::sample::Stages;
use crate::workload::Role;
use crate::workload::latency::{Answer, Exchange, Pinger};

pub mod packet;
mod reflector;
pub mod time;
pub mod tlv;

use packet::{Key, LIGHT, OPEN, Reply, Request, SHORTEST_REQUEST, SIGNED, base};
use time::{ErrorEstimate, Wall};

pub const PEER: Peer = Peer {
    name: "stamp",
    summary: "tells when a request came and its answer left (STAMP, RFC 8762)",
    default_ports: &[("udp", 862)],
    workloads: &[("latency", &[Direction::Loop])],
    options: &[(
        AUTHENTICATED,
        "true: packets are signed with the token, and only signed ones believed (false)",
    )],
    sizes: &[],
    fit: |case, caps| fit(case, caps, Dialect::Stamp),
    connect: |case, near| connect(case, near, Dialect::Stamp),
    serve: Some(|facts| reflector::service(facts, Dialect::Stamp)),
};

pub const TWAMP_LIGHT: Peer = Peer {
    name: "twamp-light",
    summary: "the same as TWAMP without its control connection has it (RFC 5357)",
    options: &[],
    fit: |case, caps| fit(case, caps, Dialect::Light),
    connect: |case, near| connect(case, near, Dialect::Light),
    serve: Some(|facts| reflector::service(facts, Dialect::Light)),
    ..PEER
};

const AUTHENTICATED: &str = "authenticated";

/// Whose packets they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Stamp,
    Light,
}

/// The key that a token stands for: its bytes, or those that it spells after `hex:`.
fn key_of(token: &str) -> Key {
    let spelt = token.starts_with("hex:").then(|| text::bytes(token).ok()).flatten();
    Key::new(spelt.as_deref().unwrap_or(token.as_bytes()))
}

fn is_authenticated(case: &Case) -> Result<bool, String> {
    match case.peer_options.get(AUTHENTICATED).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("peer stamp: authenticated '{other}' is neither true nor false")),
    }
}

/// Checks the size, which is that of a packet, or sets the usual one.
fn fit(case: &mut Case, caps: &Caps, dialect: Dialect) -> Result<(), String> {
    let (peer, url) = (&case.peer, &case.endpoints[0]);
    if caps.framing == Framing::Stream {
        return Err(format!("{url}: peer {peer} needs messages, not a stream: udp is usual"));
    }
    let signed = is_authenticated(case)?;
    let (usual, least, more) = match (dialect, signed) {
        (Dialect::Stamp, false) => (OPEN, OPEN, tlv::least(signed)),
        (Dialect::Stamp, true) => (SIGNED, SIGNED, tlv::least(signed)),
        // The answer is as long as the request only if that is long enough.
        (Dialect::Light, _) => (LIGHT, SHORTEST_REQUEST, 0),
    };
    let bytes = match case.message_bytes as usize {
        0 => usual,
        bytes => bytes,
    };
    if bytes < least || (least < bytes && bytes < least + more) {
        let from = if more > 0 {
            format!("{least}, or {} and more", least + more)
        } else {
            format!("{least} and more")
        };
        return Err(format!(
            "{url}: a packet of {peer} has {from} bytes, not {bytes}: choose another --size"
        ));
    }
    case.message_bytes = bytes as u32;
    Ok(())
}

fn connect(case: &Case, near: &Near, dialect: Dialect) -> Result<Box<dyn Session>, PeerError> {
    let key = match (is_authenticated(case).map_err(PeerError::Unfit)?, near.token) {
        (false, _) => None,
        (true, Some(token)) => Some(key_of(token)),
        (true, None) => {
            return Err(PeerError::Unfit(
                "peer stamp: signing needs the key that the reflector has: give it with --token-file"
                    .to_owned(),
            ));
        }
    };
    let heard = Arc::<Heard>::default();
    let wall = Wall::now(&near.dialer.clock);
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        let sender = Sender::new(dialect, key.clone(), wall, case.message_bytes as usize, heard.clone());
        let party = Pinger::new(Box::new(sender), case, &caps, (near.recorder)(Role::Exchange, port));
        flows.push(Flow { role: Role::Exchange, port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Box::new(StampSession { flows, heard, authenticated: key.is_some() }))
}

/// What the last answer said besides times: its error estimate and TTL, and that there was one.
#[derive(Default)]
struct Heard(AtomicU64);

impl Heard {
    const ANY: u64 = 1 << 32;

    fn note(&self, reply: &Reply) {
        self.0.store(Self::ANY | u64::from(reply.error.0) << 8 | u64::from(reply.ttl), Relaxed);
    }

    fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let heard = self.0.load(Relaxed);
        if heard & Self::ANY == 0 {
            return facts;
        }
        let (error, ttl) = (ErrorEstimate((heard >> 8) as u16), heard as u8);
        let mut note = |name: &str, value: Value| facts.insert(name.to_owned(), value);
        note("far_time_stamps", if error.is_ptp() { "ptp" } else { "ntp" }.into());
        note("far_clock_synchronised", error.is_synchronised().into());
        // What one that is not claims of its error means nothing.
        if error.is_synchronised() {
            note("far_clock_error_seconds", error.seconds().into());
        }
        if ttl > 0 {
            note("ttl_at_far_end", ttl.into());
        }
        facts
    }
}

struct StampSession {
    flows: Vec<Flow>,
    heard: Arc<Heard>,
    authenticated: bool,
}

impl Session for StampSession {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    fn got(&self) -> Map<String, Value> {
        let mut got = self.heard.facts();
        got.insert(AUTHENTICATED.to_owned(), self.authenticated.into());
        got
    }
}

/// What a sender says, and how it reads the answers.
pub struct Sender {
    key: Option<Key>,
    wall: Wall,
    /// Tells our answers from others'; 0 where the dialect has no such number.
    session: u16,
    packet: Vec<u8>,
    now: Time,
    stages: Option<Stages>,
    heard: Arc<Heard>,
}

impl Sender {
    fn new(dialect: Dialect, key: Option<Key>, wall: Wall, length: usize, heard: Arc<Heard>) -> Sender {
        let mut packet = vec![0; length];
        if dialect == Dialect::Stamp {
            tlv::pad(&mut packet[base(key.as_ref())..], key.as_ref());
        }
        let session = if dialect == Dialect::Stamp { fastrand::u16(1..) } else { 0 };
        Sender { key, wall, session, packet, now: Time(0), stages: None, heard }
    }
}

impl Exchange for Sender {
    fn tell_time(&mut self, now: Time) {
        self.now = now;
    }

    fn request(&mut self, sequence: u64) -> &[u8] {
        let request = Request {
            sequence: sequence as u32,
            sent: self.wall.ntp(self.now).0,
            error: ErrorEstimate::UNKNOWN,
            session: self.session,
        };
        request.write(&mut self.packet, self.key.as_ref());
        &self.packet
    }

    fn answer(&mut self, data: &[u8], waiting: Range<u64>) -> Answer {
        let used = data.len();
        self.stages = None;
        let Some(reply) = Reply::read(data, self.key.as_ref()) else { return Answer::Broken { used } };
        // A reflector that does not know of sessions says 0.
        let ours = reply.session == self.session || reply.session == 0;
        let Some((received, sent)) = reply.times().filter(|_| ours) else { return Answer::Broken { used } };
        let near = reply.request.sequence.wrapping_sub(waiting.start as u32) as i32;
        let Some(sequence) = waiting.start.checked_add_signed(near.into()) else {
            return Answer::Broken { used };
        };
        self.heard.note(&reply);
        self.stages = Some(Stages {
            received: self.wall.on_clock(received),
            sent: self.wall.on_clock(sent),
            number: reply.sequence,
        });
        Answer::Whole { sequence, used, corrupt_bytes: 0 }
    }

    fn is_staged(&self) -> bool {
        true
    }

    fn stages(&self) -> Option<Stages> {
        self.stages
    }
}

#[cfg(test)]
mod tests;
