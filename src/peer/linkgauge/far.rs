//! The far side of our own session: one party for each connection, one registry of sessions between them.
//!
//! A connection says in its first bytes what it is: a control connection (hello), a flow of a session (attach), or
//! somebody who does not know us, whose bytes are sent back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

mod data;
mod session;

use data::{FarData, Role, Task};
use session::{FarSession, FlowState, Planned, Registry, granted, planned_time, sharing};

use super::wire::{self, Attach, FlowKind, Reply, Request, SHORT};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Standing, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::peer::leash::{GRACE, Leash};
use crate::peer::{Limits, ServerFacts, Service, Setting, echo};

/// Bytes that look like the beginning of our words are held back this long before they are taken for somebody else's.
const UNDECIDED: Duration = Duration::from_millis(200);

/// A server is told who it is talking to before this; a client that says hello and nothing more is not kept longer.
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
        if let Some(ready) = wire::ready(first, &facts.secret, from) {
            reply.extend_from_slice(&ready);
            return Admission::Reply;
        }
        let frame = wire::read_frame(first, wire::LONGEST_OPENING);
        if let Ok(Some((_, Request::Open { nonce, challenge, .. }, _))) = frame {
            let known = is_own_challenge(facts, from, &nonce, &challenge);
            return if known { Admission::Open } else { Admission::Drop };
        }
        if let Some(attach) = Attach::read(first) {
            let session = self.registry.session(attach.session);
            let known = session.is_some_and(|session| attach.is_requested_by(first, &session.key));
            return if known { Admission::Open } else { Admission::Drop };
        }
        if facts.token.is_some() {
            return Admission::Drop;
        }
        reply.extend_from_slice(first);
        Admission::Reply
    }
}

fn is_own_challenge(facts: &ServerFacts, from: &str, nonce: &str, challenge: &str) -> bool {
    let (Some(nonce), Some(challenge)) = (wire::unhex(nonce), wire::unhex(challenge)) else { return false };
    challenge == wire::challenge(&facts.secret, from, &nonce)
}

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
}

enum State {
    /// Nothing is known yet.
    Undecided,
    /// A client of ours; `None` until it has opened a session.
    Control {
        session: Option<Arc<FarSession>>,
        answered: Option<(u32, Vec<u8>)>,
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

    /// Makes what it can of what was heard.
    fn understand(&mut self) {
        loop {
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
                self.state = State::Control { session: None, answered: None };
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
        let Some((kind, plan)) = session.take(attach.flow) else { return };
        let task = Task {
            reply: attach.reply(&session.key).to_vec(),
            repeated: false,
            fresh: self.caps.framing == Framing::Message,
            batch: Batch::new(2 * SHORT, 1),
            request,
            flow: attach.flow as usize,
            session,
        };
        self.words = task.reply.clone();
        self.said = 0;
        let limits = self.limits();
        self.state = match granted(&plan, limits, &self.caps) {
            Ok(per_second) => {
                let grace = planned_time(&plan).map_or(Duration::ZERO, |_| GRACE);
                let leash = Leash::new(limits, sharing(&plan), grace);
                let role = Role::new(kind, &plan, per_second, &self.caps, limits);
                State::Handed(Box::new(FarData::new(role, leash, Some(task))))
            }
            // Not on this kind of connection.
            Err(_) => State::Over,
        };
    }

    /// Answers hellos and requests.
    fn serve(&mut self) {
        if self.heard.starts_with(wire::HELLO) {
            if self.heard.len() >= SHORT {
                let hello: Vec<u8> = self.heard.drain(..SHORT).collect();
                if let Some(ready) = wire::ready(&hello, &self.registry.facts.secret, &self.from) {
                    self.words.extend_from_slice(&ready);
                }
            }
            return;
        }
        let longest = match self.state {
            State::Control { session: Some(_), .. } => wire::LONGEST,
            _ => wire::LONGEST_OPENING,
        };
        match wire::read_frame::<Request>(&self.heard, longest) {
            Ok(None) => {}
            Ok(Some((number, request, used))) => {
                self.heard.drain(..used);
                self.answer(number, request);
            }
            Err(error) => {
                let reason = format!("your message cannot be understood: {error}");
                self.words = wire::frame(0, &Reply::Refused { reason });
                self.heard.clear();
                self.close_after_words();
            }
        }
    }

    fn close_after_words(&mut self) {
        self.end_session();
        self.state = State::Over;
    }

    fn end_session(&mut self) {
        if let State::Control { session: Some(session), .. } = &self.state {
            session.finishing.store(true, Relaxed);
            self.registry.sessions().remove(&session.id);
        }
    }

    fn answer(&mut self, number: u32, request: Request) {
        let State::Control { session, answered, .. } = &mut self.state else { return };
        // Repeated because our reply was lost: the same reply, and nothing is done twice.
        if let Some((_, words)) = answered.as_ref().filter(|(last, _)| *last == number) {
            self.words.extend_from_slice(words);
            return;
        }
        let registry = self.registry.clone();
        let (reply, over) = match (request, session.as_ref()) {
            (Request::Bye, _) => {
                self.close_after_words();
                return;
            }
            (Request::Open { version, nonce, challenge, proof, .. }, None) => {
                match admit(&registry, &self.from, version, &nonce, &challenge, proof.as_deref()) {
                    Ok(opened) => {
                        let reply = Reply::Opened {
                            version: wire::VERSION,
                            tool: crate::run::TOOL.to_owned(),
                            capabilities: FlowKind::ALL.map(|kind| kind.name().to_owned()).to_vec(),
                            limits: registry.facts.limits,
                            session: format!("{:016x}", opened.id),
                            key: wire::hex(&opened.key),
                            environment: registry.facts.environment.clone(),
                        };
                        *session = Some(opened);
                        (reply, false)
                    }
                    Err(reason) => (Reply::Refused { reason }, true),
                }
            }
            (Request::Plan(plan), Some(session)) => {
                match granted(&plan, &registry.facts.limits, &self.caps) {
                    Ok(per_second) => {
                        let flows = plan.flows.iter().map(|_| FlowState::Expected).collect();
                        *session.plan() = Some(Planned { plan, flows });
                        (Reply::Planned { per_second }, false)
                    }
                    Err(reason) => (Reply::Refused { reason }, false),
                }
            }
            (Request::Start, Some(session)) => {
                session.started.store(true, Relaxed);
                (Reply::Started, false)
            }
            (Request::Finish, Some(session)) => {
                session.finishing.store(true, Relaxed);
                (session.report().map_or(Reply::Pending, Reply::Report), false)
            }
            (_, None) => (Reply::Refused { reason: "say hello and open a session first".to_owned() }, true),
            (Request::Open { .. }, Some(_)) => {
                (Reply::Refused { reason: "this session is open already".to_owned() }, true)
            }
        };
        let words = wire::frame(number, &reply);
        self.words.extend_from_slice(&words);
        *answered = Some((number, words));
        if over {
            self.close_after_words();
        }
    }
}

/// Opens a session for who may have one.
fn admit(
    registry: &Registry,
    from: &str,
    version: u32,
    nonce: &str,
    challenge: &str,
    proof: Option<&str>,
) -> Result<Arc<FarSession>, String> {
    if version != wire::VERSION {
        return Err(format!(
            "it speaks session version {}, you speak {version}: use the same linkgauge",
            wire::VERSION
        ));
    }
    if !is_own_challenge(&registry.facts, from, nonce, challenge) {
        return Err("it did not give you that challenge".to_owned());
    }
    if let Some(token) = &registry.facts.token {
        let (nonce, challenge) =
            (wire::unhex(nonce).unwrap_or_default(), wire::unhex(challenge).unwrap_or_default());
        if !wire::knows_token(proof, token, &nonce, &challenge) {
            return Err(match proof {
                None => "it wants a token: give it with --token-file".to_owned(),
                Some(_) => "wrong token: give the server's own with --token-file".to_owned(),
            });
        }
    }
    registry.open()
}

impl Party for Reception {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.said < self.words.len() {
            return Step::Send { bytes: &self.words[self.said..], message: self.words.len() };
        }
        let until = *self.last.get_or_insert(now) + self.idle();
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
        let heard = self.heard.len();
        self.understand();
        // Only whole words and the first byte of one count: bytes that trickle in keep nobody here.
        if before == 0 || self.heard.len() < heard {
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
