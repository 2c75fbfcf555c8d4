//! The far side of STAMP and TWAMP-Light: answers each request with when it came and when the answer left.
//!
//! A sender has a thread and, unless the reflector is to be stateless, a counter for each of its sessions. An answer is
//! never longer than its request: a TWAMP sender that pads nothing gets none.

use std::sync::Arc;
use std::time::Duration;

use super::packet::{Key, LIGHT, Reply, Request, base};
use super::time::{ErrorEstimate, Ntp, Wall};
use super::tlv::{self, Counts};
use super::{Dialect, key_of};
use crate::clock::{Clock, Time};
use crate::link::party::{Party, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::peer::{ServerFacts, Service, Setting};

/// Most sessions of one sender that are counted apart; a further one takes the place of the eldest.
const SESSIONS: usize = 16;

/// An answer to an answer of ours comes within this time.
const RECENT: Duration = Duration::from_secs(60);

/// Longest packet that is answered: what a link takes at most.
const LONGEST: usize = 65_536;

pub fn service(facts: &Arc<ServerFacts>, dialect: Dialect) -> Arc<dyn Service> {
    Arc::new(ReflectorService {
        dialect,
        stateless: facts.stateless,
        // TWAMP's own signatures need its control connection.
        key: facts.token.as_deref().filter(|_| dialect == Dialect::Stamp).map(key_of),
    })
}

struct ReflectorService {
    dialect: Dialect,
    stateless: bool,
    /// Only what is signed with it is answered.
    key: Option<Key>,
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
            batch: Batch::telling_ttl(caps.max_message.unwrap_or(LONGEST).min(LONGEST)),
            asked: None,
            reply: Vec::with_capacity(LONGEST),
            sessions: Vec::with_capacity(SESSIONS),
            over: false,
        })
    }

    fn door(&self, first: &[u8], _from: &str, _reply: &mut Vec<u8>) -> Admission {
        let known = read(first, self.dialect, self.key.as_ref()).is_some();
        if known { Admission::Open } else { Admission::Drop }
    }

    fn honours(&self) -> &'static [Setting] {
        match self.dialect {
            Dialect::Stamp => &[Setting::Token, Setting::Stateless],
            Dialect::Light => &[Setting::Stateless],
        }
    }
}

/// A request that is answered: as long as its answer, and signed if a key is wanted. Anybody could have answers sent to
/// others that are longer than what asks for them.
fn read(bytes: &[u8], dialect: Dialect, key: Option<&Key>) -> Option<Request> {
    let least = match dialect {
        Dialect::Stamp => base(key),
        Dialect::Light => LIGHT,
    };
    let request = Request::read(bytes, key).filter(|_| bytes.len() >= least)?;
    // Where STAMP has the number of a session, TWAMP has padding.
    Some(Request { session: if dialect == Dialect::Stamp { request.session } else { 0 }, ..request })
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
    batch: Batch,
    asked: Option<Asked>,
    reply: Vec<u8>,
    sessions: Vec<Session>,
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

    /// Whether another reflector has answered one of our answers: it says when that one left, a moment ago by our clock. To
    /// answer it would go on for ever.
    fn is_answer(&self, message: &[u8], now: Time) -> bool {
        let reply = Reply::read(message, self.key.as_ref());
        let age = reply.map(|reply| self.wall.ntp(now).since(Ntp(reply.request.sent)));
        age.is_some_and(|age| (0..=RECENT.as_nanos() as i64).contains(&age))
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
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn sent(&mut self, _bytes: usize, at: Time) {
        let sent = self.wall.ntp(at).0;
        let Some(Asked { request, .. }) = self.asked.take() else { return };
        let counts = &mut self.session(request.session).counts;
        counts.last = Some((counts.sent, sent));
        counts.sent = counts.sent.wrapping_add(1);
    }

    fn received(&mut self, now: Time) {
        let message = self.batch.messages().next().unwrap_or_default();
        let Some(request) = read(message, self.dialect, self.key.as_ref()) else { return };
        if self.is_answer(message, now) {
            return;
        }
        let counts = &mut self.session(request.session).counts;
        counts.received = counts.received.wrapping_add(1);
        self.asked = Some(Asked { request, received: now, late: false });
    }

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}
