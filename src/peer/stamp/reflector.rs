//! The far side of STAMP and TWAMP-Light: answers each request with when it came and when the answer left.
//!
//! A sender has a thread and, unless the reflector is to be stateless, a counter for each of its sessions. An answer is
//! never longer than its request, except where a TWAMP sender sends less than the answer has to hold.

use std::sync::Arc;
use std::time::Duration;

use super::packet::{Key, LIGHT, Reply, Request, SHORTEST_REQUEST, base};
use super::time::{ErrorEstimate, Wall};
use super::tlv::{self, Counts};
use super::{Dialect, key_of};
use crate::clock::{Clock, Time};
use crate::link::party::{Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::peer::{ServerFacts, Service, is_server};

/// Most sessions of one sender that are counted apart; a further one takes the place of the eldest.
const SESSIONS: usize = 16;

/// Longest packet that is answered: what a link takes at most.
const LONGEST: usize = 65_536;

pub fn service(facts: &Arc<ServerFacts>, dialect: Dialect) -> Arc<dyn Service> {
    Arc::new(ReflectorService {
        dialect,
        stateless: facts.stateless,
        // TWAMP's own signatures need its control connection.
        key: facts.token.as_deref().filter(|_| dialect == Dialect::Stamp).map(key_of),
        idle: Duration::from_secs(facts.limits.idle_s),
        allowance: facts.limits.bit_rate.map(|rate| Allowance::of(rate / 8.0)),
    })
}

struct ReflectorService {
    dialect: Dialect,
    stateless: bool,
    /// Only what is signed with it is answered.
    key: Option<Key>,
    idle: Duration,
    allowance: Option<Allowance>,
}

impl Service for ReflectorService {
    fn fits(&self, caps: &Caps) -> Result<(), String> {
        match caps.framing {
            Framing::Message => Ok(()),
            Framing::Stream => Err("test packets need messages, not a stream: udp is usual".to_owned()),
        }
    }

    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(Mirror {
            dialect: self.dialect,
            stateless: self.stateless,
            key: self.key.clone(),
            wall: Wall::now(&Clock::System),
            idle: self.idle,
            allowance: self.allowance,
            batch: Batch::telling_ttl(caps.max_message.unwrap_or(LONGEST).min(LONGEST)),
            asked: None,
            reply: Vec::with_capacity(LONGEST),
            sessions: Vec::with_capacity(SESSIONS),
            last: None,
            over: false,
        })
    }

    fn door(&self, first: &[u8], from: &str, _reply: &mut Vec<u8>) -> Admission {
        let known = !is_server(from) && read(first, self.dialect, self.key.as_ref()).is_some();
        if known { Admission::Open } else { Admission::Drop }
    }
}

/// A request that is answered: whole, and signed if a key is wanted.
fn read(bytes: &[u8], dialect: Dialect, key: Option<&Key>) -> Option<Request> {
    let least = match dialect {
        Dialect::Stamp => base(key),
        Dialect::Light => SHORTEST_REQUEST,
    };
    let request = Request::read(bytes, key).filter(|_| bytes.len() >= least)?;
    // Where STAMP has the number of a session, TWAMP has padding.
    Some(Request { session: if dialect == Dialect::Stamp { request.session } else { 0 }, ..request })
}

/// What a sender may still be answered: a second's worth at most, and a packet at least.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    bytes_per_second: f64,
    left: f64,
    at: Time,
}

impl Allowance {
    fn of(bytes_per_second: f64) -> Allowance {
        Allowance { bytes_per_second, left: bytes_per_second, at: Time(0) }
    }

    /// Whether a packet of so many bytes is within it.
    fn takes(&mut self, bytes: usize, now: Time) -> bool {
        let (full, more) = (self.bytes_per_second, now.since(self.at).as_secs_f64() * self.bytes_per_second);
        (self.left, self.at) = ((self.left + more).min(full), now);
        let takes = self.left >= bytes as f64 || self.left >= full;
        self.left -= if takes { bytes as f64 } else { 0.0 };
        takes
    }
}

/// A session of a sender.
struct Session {
    id: u16,
    counts: Counts,
}

/// A request that waits for its answer.
struct Asked {
    request: Request,
    received: Time,
    /// The clock was read again since.
    late: bool,
}

struct Mirror {
    dialect: Dialect,
    stateless: bool,
    key: Option<Key>,
    wall: Wall,
    idle: Duration,
    allowance: Option<Allowance>,
    batch: Batch,
    asked: Option<Asked>,
    reply: Vec<u8>,
    sessions: Vec<Session>,
    last: Option<Time>,
    over: bool,
}

impl Mirror {
    /// The session of that number, a new one if need be.
    fn session(&mut self, id: u16) -> &mut Session {
        let at = self.sessions.iter().position(|session| session.id == id).unwrap_or_else(|| {
            if self.sessions.len() == SESSIONS {
                self.sessions.remove(0);
            }
            self.sessions.push(Session { id, counts: Counts::default() });
            self.sessions.len() - 1
        });
        &mut self.sessions[at]
    }

    /// Writes the answer that leaves now.
    fn write(&mut self, request: Request, received: Time, now: Time) {
        let (dialect, stateless) = (self.dialect, self.stateless);
        let sent = self.wall.ntp(now).0;
        let counts = self.session(request.session).counts;
        let reply = Reply {
            sequence: if stateless { request.sequence } else { counts.sent },
            sent,
            error: ErrorEstimate::UNKNOWN,
            session: request.session,
            received: self.wall.ntp(received).0,
            request,
            ttl: self.batch.ttl().unwrap_or(0),
        };
        let asked = self.batch.messages().next().unwrap_or_default();
        let head = match dialect {
            Dialect::Stamp => base(self.key.as_ref()),
            Dialect::Light => LIGHT,
        };
        self.reply.clear();
        self.reply.resize(head, 0);
        reply.write(&mut self.reply, self.key.as_ref());
        // Of padding the end comes back, so that request and answer have the same length.
        self.reply.extend_from_slice(asked.get(head..).unwrap_or_default());
        if dialect == Dialect::Stamp {
            tlv::answer(&mut self.reply[head..], &counts, self.key.as_ref());
        }
    }
}

impl Party for Mirror {
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(Asked { request, received, ref mut late }) = self.asked {
            if !std::mem::replace(late, true) {
                // The time of leaving is not the one of coming: it is read once more.
                return Step::Sleep(now);
            }
            self.write(request, received, now);
            return Step::Send { bytes: &self.reply, message: self.reply.len() };
        }
        if self.over {
            return Step::Done;
        }
        let last = *self.last.get_or_insert(now);
        Step::Receive { into: &mut self.batch, until: last + self.idle }
    }

    fn sent(&mut self, _bytes: usize, at: Time) {
        let sent = self.wall.ntp(at).0;
        let Some(Asked { request, .. }) = self.asked.take() else { return };
        let counts = &mut self.session(request.session).counts;
        counts.last = Some((counts.sent, sent));
        counts.sent = counts.sent.wrapping_add(1);
    }

    fn received(&mut self, now: Time) {
        self.last = Some(now);
        let message = self.batch.messages().next().unwrap_or_default();
        let Some(request) = read(message, self.dialect, self.key.as_ref()) else { return };
        // The answer is about as long as what asks for it.
        if self.allowance.as_mut().is_some_and(|allowance| !allowance.takes(message.len(), now)) {
            return;
        }
        let counts = &mut self.session(request.session).counts;
        counts.received = counts.received.wrapping_add(1);
        self.asked = Some(Asked { request, received: now, late: false });
    }

    fn timed_out(&mut self, _now: Time) {
        self.over = true;
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}
