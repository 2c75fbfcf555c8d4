//! The far side of our own session: one party for each connection, one registry of sessions between them.
//!
//! A connection says in its first bytes what it is: a control connection (hello), a flow of a session (attach), or
//! somebody who does not know us, whose bytes are sent back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

mod data;
mod session;

pub(super) use data::has_no_connection;
use data::{FarData, Lifeline, Role, Task};
pub(super) use session::RATES;
use session::{CUT, FINISHING, FarSession, Opening, Registry, granted, planned_time, sharing};

use super::wire::{self, Attach, FlowKind, Frames, Reply, Request, SHORT, WireError};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Standing, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::peer::leash::{GRACE, Leash};
use crate::peer::{Limits, ServerFacts, Service, Setting, echo};

/// Bytes that look like the beginning of our words are held back this long before they are taken for somebody else's.
const UNDECIDED: Duration = Duration::from_millis(200);

/// A client opens its session within this time after its first hello, or is closed.
const INTRODUCTION: Duration = Duration::from_secs(10);

pub fn service(facts: &Arc<ServerFacts>) -> Arc<dyn Service> {
    Arc::new(FarService { registry: Arc::new(Registry::new(facts)) })
}

struct FarService {
    registry: Arc<Registry>,
}

impl Service for FarService {
    fn party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        Box::new(Reception::new(self.registry.clone(), caps.clone(), from.to_owned()))
    }

    fn counts_sessions(&self) -> bool {
        true
    }

    fn grace(&self) -> Duration {
        GRACE
    }

    fn honours(&self) -> &'static [Setting] {
        &[Setting::Token, Setting::MessageBytes, Setting::Flows]
    }

    fn door(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let facts = &self.registry.facts;
        if let Some(ready) = wire::ready(first, &facts.secret, from, self.registry.now_s()) {
            reply.extend_from_slice(&ready);
            return Admission::Reply;
        }
        let frame = wire::read_frame(first, wire::LONGEST_OPENING);
        if let Ok(Some((_, request @ Request::Open { .. }, _))) = frame {
            let known =
                Opening::of(request).is_some_and(|opening| self.registry.is_own_challenge(from, &opening));
            return if known { Admission::Open } else { Admission::Drop };
        }
        if let Some(attach) = Attach::read(first) {
            let session = self.registry.session(attach.session);
            let known = session.is_some_and(|session| attach.is_requested_by(first, &session.key));
            return if known { Admission::Open } else { Admission::Drop };
        }
        // The receiver of a flow that has ended already.
        if first.starts_with(wire::ALIVE) || facts.token.is_some() {
            return Admission::Drop;
        }
        reply.extend_from_slice(first);
        Admission::Reply
    }
}

/// Bytes of flows in one part of a report: a datagram that needs few fragments, or a piece of a stream of which a thousand
/// clients that do not read may hold one each.
const PART_OF_MESSAGES: usize = 8 * 1024;
const PART_OF_STREAM: usize = 32 * 1024;

/// Bytes of a request for each flow of its plan, at most.
const REQUEST_OF_FLOW: usize = 16;

/// Whatever a connection turns out to be.
struct Reception {
    registry: Arc<Registry>,
    caps: Caps,
    from: String,
    /// Bytes that came and are not understood yet; words that are to go out.
    heard: Vec<u8>,
    words: Vec<u8>,
    said: usize,
    batch: Batch,
    state: State,
    last: Option<Time>,
    frames: Frames,
    refused: Option<String>,
}

enum State {
    /// Nothing is known yet.
    Undecided,
    /// A client of ours; `None` until it has opened a session.
    Control {
        session: Option<Arc<FarSession>>,
        /// The last request, and the reply to it where it may get lost.
        answered: (u32, Vec<u8>),
    },
    /// A flow, or an echo for a stranger.
    Handed(Box<dyn Party>),
    Over,
}

impl Drop for Reception {
    fn drop(&mut self) {
        // A session lives as long as its control connection.
        self.end_session();
    }
}

impl Reception {
    fn new(registry: Arc<Registry>, caps: Caps, from: String) -> Reception {
        let room = match caps.framing {
            // A thousand idle sessions wait here: a page each, not more.
            Framing::Stream => 4096,
            Framing::Message => caps.max_message.unwrap_or(65_536).min(65_536),
        };
        Reception {
            registry,
            caps,
            from,
            heard: Vec::new(),
            words: Vec::new(),
            said: 0,
            batch: Batch::new(room, 1),
            state: State::Undecided,
            last: None,
            frames: Frames::default(),
            refused: None,
        }
    }

    fn limits(&self) -> &Limits {
        &self.registry.facts.limits
    }

    fn idle(&self) -> Duration {
        match &self.state {
            State::Undecided if !self.heard.is_empty() => UNDECIDED,
            State::Control { session: None, .. } => INTRODUCTION,
            _ => Duration::from_secs(self.limits().idle_s),
        }
    }

    fn has_no_session(&self) -> bool {
        matches!(self.state, State::Control { session: None, .. })
    }

    /// Makes what it can of what was heard, while nothing waits to be said: a client that does not read is not read.
    fn understand(&mut self) {
        while self.words.is_empty() {
            let before = self.heard.len();
            match self.state {
                State::Undecided => self.decide(),
                State::Control { .. } => self.serve(),
                State::Handed(_) | State::Over => return,
            }
            if self.heard.is_empty() || self.heard.len() == before {
                return;
            }
        }
    }

    fn decide(&mut self) {
        let begins = |magic: &[u8]| {
            let common = self.heard.len().min(magic.len());
            self.heard[..common] == magic[..common]
        };
        if begins(wire::HELLO) || begins(wire::FRAME) {
            if self.heard.len() >= wire::MAGIC_LENGTH {
                self.state = State::Control { session: None, answered: (0, Vec::new()) };
                self.serve();
            }
        } else if begins(wire::ATTACH) {
            if self.heard.len() >= SHORT {
                self.attach();
            }
        } else {
            self.be_echo();
        }
    }

    /// Somebody who does not know us gets back what he sends, unless this server wants a token.
    fn be_echo(&mut self) {
        if self.registry.facts.token.is_some() {
            self.state = State::Over;
            return;
        }
        let idle = Duration::from_secs(self.limits().idle_s);
        let reflector = echo::reflector(&self.caps, Tuning::default(), idle).starting_with(&self.heard);
        self.heard.clear();
        let leash = Leash::new(self.limits(), 1, Duration::ZERO);
        self.state = State::Handed(Box::new(FarData::new(Role::Reflect(reflector), leash, None)));
    }

    fn attach(&mut self) {
        let request: Vec<u8> = self.heard.drain(..).take(SHORT).collect();
        self.state = State::Over;
        let Some(attach) = Attach::read(&request) else { return };
        let Some(session) = self.registry.session(attach.session) else { return };
        if !attach.is_requested_by(&request, &session.key) {
            return;
        }
        let Some((kind, plan, place)) = session.take(attach.flow) else { return };
        let limits = *self.limits();
        // Where it is refused, not on this kind of connection, the place is given back.
        let Ok(per_second) = granted(&plan, &limits, &self.caps) else { return };
        let hears = has_no_connection(&self.caps);
        let task = Task {
            reply: attach.reply(&session.key).to_vec(),
            repeated: false,
            fresh: self.caps.framing == Framing::Message,
            batch: Batch::new(2 * SHORT, 1),
            request,
            place,
            flows: plan.flows.len() as u32,
            lifeline: (hears && kind == FlowKind::Send).then(|| Lifeline::new(attach.alive(&session.key))),
            hears,
        };
        self.words = task.reply.clone();
        self.said = 0;
        let grace = planned_time(&plan).map_or(Duration::ZERO, |_| GRACE);
        let leash = Leash::new(&limits, sharing(&plan), grace);
        let role = Role::new(kind, &plan, per_second, &self.caps, &limits);
        self.state = State::Handed(Box::new(FarData::new(role, leash, Some(task))));
    }

    /// Answers hellos and requests.
    fn serve(&mut self) {
        if self.heard.starts_with(wire::HELLO) {
            if self.heard.len() >= SHORT {
                let hello: Vec<u8> = self.heard.drain(..SHORT).collect();
                let now_s = self.registry.now_s();
                if let Some(ready) = wire::ready(&hello, &self.registry.facts.secret, &self.from, now_s) {
                    self.words.extend_from_slice(&ready);
                }
            }
            return;
        }
        let longest = match self.state {
            State::Control { session: Some(_), .. } => {
                wire::LONGEST_OPENING + REQUEST_OF_FLOW * self.limits().flows as usize
            }
            _ => wire::LONGEST_OPENING,
        };
        match self.frames.read::<Request>(&self.heard, longest) {
            Ok(None) => {}
            Ok(Some((number, request, used))) => {
                self.heard.drain(..used);
                self.answer(number, request);
            }
            // The reply that opened the session was lost; or it is none of the client's.
            Err(WireError::Unsigned) if self.caps.framing == Framing::Message => {
                if let Ok(Some((number, Request::Open { .. }, _))) = wire::read_frame(&self.heard, longest) {
                    self.repeat(number);
                }
                self.heard.clear();
            }
            Err(error) => {
                let reason = format!("your message cannot be understood: {error}");
                self.refused = Some(reason.clone());
                self.words = self.frames.write(0, &Reply::Refused { reason });
                self.heard.clear();
                self.close_after_words();
            }
        }
    }

    /// Whether this request has been answered already: then the same reply goes out, and nothing is done twice.
    fn repeat(&mut self, number: u32) -> bool {
        let State::Control { answered: (last, words), .. } = &self.state else { return false };
        if number == *last {
            self.words.extend_from_slice(words);
        }
        number <= *last
    }

    fn close_after_words(&mut self) {
        self.end_session();
        self.state = State::Over;
    }

    fn end_session(&mut self) {
        if let State::Control { session: Some(session), .. } = &self.state {
            // Nobody can ask for the report any more.
            session.end(CUT);
            self.registry.sessions().remove(&session.id);
        }
    }

    fn answer(&mut self, number: u32, request: Request) {
        if self.repeat(number) {
            return;
        }
        let frames = self.frames.clone();
        let (reply, over) = match self.reply(request) {
            Some((reply, over)) => {
                if let Reply::Refused { reason } = &reply {
                    self.refused = Some(reason.clone());
                }
                (frames.write(number, &reply), over)
            }
            None => (Vec::new(), true),
        };
        self.words.extend_from_slice(&reply);
        if let State::Control { answered, .. } = &mut self.state {
            *answered = (number, if self.caps.reliable { Vec::new() } else { reply });
        }
        if over {
            self.close_after_words();
        }
    }

    /// The reply to a request, and whether the connection is over with it; no reply to a goodbye.
    fn reply(&mut self, request: Request) -> Option<(Reply, bool)> {
        let State::Control { session, .. } = &self.state else { return None };
        let Some(session) = session.clone() else { return Some(self.open(request)) };
        let reply = match request {
            Request::Bye => return None,
            Request::Open { .. } => {
                return Some((Reply::Refused { reason: "this session is open already".to_owned() }, true));
            }
            Request::Plan(plan) => {
                let granted = granted(&plan, self.limits(), &self.caps);
                match granted.and_then(|per_second| session.set_plan(plan).map(|()| per_second)) {
                    Ok(per_second) => Reply::Planned { per_second },
                    Err(reason) => Reply::Refused { reason },
                }
            }
            Request::Start => {
                session.started.store(true, Relaxed);
                Reply::Started
            }
            Request::Finish => self.finish(&session, FINISHING),
            Request::Cut => self.finish(&session, CUT),
            Request::Rest { from } => self.part(&session, from as usize),
        };
        Some((reply, false))
    }

    fn finish(&self, session: &FarSession, stage: u8) -> Reply {
        session.end(stage);
        match session.has_running() {
            true => Reply::Pending { bytes: session.moved() },
            false => self.part(session, 0),
        }
    }

    fn part(&self, session: &FarSession, from: usize) -> Reply {
        let room = if self.caps.framing == Framing::Stream { PART_OF_STREAM } else { PART_OF_MESSAGES };
        Reply::Report(session.report(from, room))
    }

    /// What a client without a session gets.
    fn open(&mut self, request: Request) -> (Reply, bool) {
        let refused = |reason: String| (Reply::Refused { reason }, true);
        let Some(opening) = Opening::of(request) else {
            return refused("say hello and open a session first".to_owned());
        };
        let opened = match self.registry.admit(&self.from, &opening) {
            Ok(opened) => opened,
            Err(reason) => return refused(reason),
        };
        let facts = &self.registry.facts;
        let reply = Reply::Opened {
            version: wire::VERSION,
            tool: crate::run::TOOL.to_owned(),
            capabilities: FlowKind::ALL.map(|kind| kind.name().to_owned()).to_vec(),
            limits: facts.limits,
            session: format!("{:016x}", opened.id),
            key: (!opened.is_key_derived).then(|| wire::hex(&opened.key)),
            environment: facts.environment.clone(),
        };
        self.frames = opened.frames.clone();
        if let State::Control { session, .. } = &mut self.state {
            *session = Some(opened);
        }
        (reply, false)
    }
}

impl Party for Reception {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.said < self.words.len() {
            return Step::Send { bytes: &self.words[self.said..], message: self.words.len() };
        }
        let until = *self.last.get_or_insert(now) + self.idle();
        // Where there is always more to be read, no receipt times out.
        if now >= until && self.has_no_session() {
            self.close_after_words();
        }
        match &mut self.state {
            State::Over => Step::Done,
            State::Handed(party) => party.next(now),
            _ => Step::Receive { into: &mut self.batch, until },
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if self.said < self.words.len() {
            self.said += bytes;
            if self.said >= self.words.len() {
                (self.words, self.said) = (Vec::new(), 0);
                // Requests that came meanwhile.
                self.understand();
            }
        } else if let State::Handed(party) = &mut self.state {
            party.sent(bytes, at);
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        if let State::Handed(party) = &mut self.state {
            party.received(now);
            return;
        }
        let before = self.heard.len();
        for message in self.batch.messages() {
            if self.caps.framing == Framing::Message {
                self.heard.clear();
            }
            self.heard.extend_from_slice(message);
        }
        let (heard, had_no_session) = (self.heard.len(), self.has_no_session());
        self.understand();
        // Only whole words and the first byte of one count, not bytes that trickle in; and hellos after the first do not.
        let is_word = before == 0 || self.heard.len() < heard;
        if is_word && !(had_no_session && self.has_no_session()) {
            self.last = Some(now);
        }
    }

    fn standing(&self) -> Standing {
        match &self.state {
            // It ends when nothing is said and no flow of its session runs; each of those has its own limits.
            State::Control { session: Some(_), .. } => Standing::Vouched,
            // The door has seen that the sender got its challenge, or the key of its session.
            _ if !self.caps.closes => Standing::Proved,
            State::Undecided | State::Control { session: None, .. } => Standing::Stranger,
            State::Handed(_) | State::Over => Standing::Guest,
        }
    }

    fn timed_out(&mut self, now: Time) {
        match &mut self.state {
            State::Handed(party) => party.timed_out(now),
            State::Undecided if !self.heard.is_empty() => self.be_echo(),
            // While flows run there is nothing to say; their own limits end them.
            State::Control { session: Some(session), .. } if session.has_running() => self.last = Some(now),
            _ => self.close_after_words(),
        }
    }

    fn waits(&mut self, now: Time, unacknowledged: Option<u64>) {
        if let State::Handed(party) = &mut self.state {
            party.waits(now, unacknowledged);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        match &mut self.state {
            State::Handed(party) => party.closed(now),
            State::Undecided if !self.heard.is_empty() => {
                self.be_echo();
                Ok(())
            }
            _ => {
                self.close_after_words();
                Ok(())
            }
        }
    }

    fn refusal(&self) -> Option<&str> {
        match &self.state {
            State::Handed(party) => party.refusal(),
            _ => self.refused.as_deref(),
        }
    }

    fn stopped(&mut self, reason: &'static str) {
        if let State::Handed(party) = &mut self.state {
            party.stopped(reason);
        }
    }

    fn ended(&mut self, cost: Cost) {
        if let State::Handed(party) = &mut self.state {
            party.ended(cost);
        }
    }
}
