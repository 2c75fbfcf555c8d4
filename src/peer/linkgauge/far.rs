//! The far side of our own session: one party for each connection, one registry of sessions between them.
//!
//! A connection says in its first bytes what it is: a control connection (hello), a flow of a session (attach), or
//! somebody who does not know us, whose bytes are sent back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::wire::{self, Attach, FarPlan, FlowKind, Reply, Request, SHORT};
use crate::clock::Time;
use crate::host::cpu;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::peer::{Limits, ServerFacts, Service, echo};
use crate::plan::{Case, Direction, Pacing, Pin};
use crate::sample::Recorder;
use crate::workload::throughput::{Sink, Source};
use crate::workload::{FarFlow, FarReport, Measured};

/// A far end that waits for a word of the session looks for it this often.
const LOOK: Duration = Duration::from_millis(2);

/// A flow that reflects notices the end of the case within this time.
const NOTICE: Duration = Duration::from_millis(100);

/// Bytes that look like the beginning of our words are held back this long before they are taken for somebody else's.
const UNDECIDED: Duration = Duration::from_millis(200);

/// A server is told who it is talking to before this; a client that says hello and nothing more is not kept longer.
const INTRODUCTION: Duration = Duration::from_secs(10);

pub fn service(facts: &Arc<ServerFacts>) -> Arc<dyn Service> {
    Arc::new(FarService { registry: Arc::new(Registry { facts: facts.clone(), sessions: Mutex::default() }) })
}

struct FarService {
    registry: Arc<Registry>,
}

impl Service for FarService {
    fn party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        Box::new(Reception::new(self.registry.clone(), caps.clone(), from.to_owned()))
    }

    fn door(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let facts = &self.registry.facts;
        if let Some(ready) = wire::ready(first, &facts.secret, from) {
            reply.extend_from_slice(&ready);
            return Admission::Reply;
        }
        if let Ok(Some((_, Request::Open { nonce, challenge, .. }, _))) = wire::read_frame(first) {
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

/// All sessions of a server.
struct Registry {
    facts: Arc<ServerFacts>,
    sessions: Mutex<HashMap<u64, Arc<FarSession>>>,
}

impl Registry {
    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<FarSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, id: u64) -> Option<Arc<FarSession>> {
        self.sessions().get(&id).cloned()
    }

    fn open(&self) -> Result<Arc<FarSession>, String> {
        let mut sessions = self.sessions();
        let most = self.facts.limits.sessions;
        if sessions.len() >= most as usize {
            return Err(format!("it has {most} sessions open, its limit; try again later"));
        }
        let mut key = [0; 16];
        fastrand::fill(&mut key);
        let session = Arc::new(FarSession {
            id: fastrand::u64(..),
            key,
            plan: Mutex::default(),
            started: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
        });
        sessions.insert(session.id, session.clone());
        Ok(session)
    }
}

/// What the connections of one session share.
struct FarSession {
    id: u64,
    key: [u8; 16],
    plan: Mutex<Option<Planned>>,
    started: AtomicBool,
    finishing: AtomicBool,
}

struct Planned {
    plan: FarPlan,
    flows: Vec<FlowState>,
}

enum FlowState {
    Expected,
    Running,
    Ended(FarFlow, f64),
}

impl FarSession {
    fn plan(&self) -> MutexGuard<'_, Option<Planned>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of a flow, once; what it has to do.
    fn take(&self, flow: u32) -> Option<(FlowKind, FarPlan)> {
        let mut plan = self.plan();
        let planned = plan.as_mut()?;
        let state = planned.flows.get_mut(flow as usize)?;
        if !matches!(state, FlowState::Expected) {
            return None;
        }
        *state = FlowState::Running;
        Some((planned.plan.flows[flow as usize], planned.plan.clone()))
    }

    fn has_running(&self) -> bool {
        self.plan().as_ref().is_some_and(|p| p.flows.iter().any(|flow| matches!(flow, FlowState::Running)))
    }

    /// The report, once every flow that was attached has ended.
    fn report(&self) -> Option<FarReport> {
        if self.has_running() {
            return None;
        }
        let mut report = FarReport { flows: Vec::new(), cpu_seconds: Some(0.0) };
        for state in &self.plan().as_ref()?.flows {
            let (flow, seconds) = match state {
                FlowState::Ended(flow, seconds) => (flow.clone(), *seconds),
                _ => (FarFlow::default(), 0.0),
            };
            report.flows.push(flow);
            report.cpu_seconds = report.cpu_seconds.map(|sum| sum + seconds);
        }
        Some(report)
    }
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
        hello_seen: bool,
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
        if let State::Control { session: Some(session), .. } = &self.state {
            session.finishing.store(true, Relaxed);
            self.registry.sessions().remove(&session.id);
        }
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
                self.state = State::Control { hello_seen: false, session: None, answered: None };
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
        self.state = State::Handed(Box::new(reflector));
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
        let flow = FarData::new(&self.caps, session.clone(), attach, kind, &plan, self.limits());
        self.words = attach.reply(&session.key).to_vec();
        self.said = 0;
        self.state = State::Handed(Box::new(flow));
    }

    /// Answers hellos and requests.
    fn serve(&mut self) {
        if self.heard.starts_with(wire::HELLO) {
            if self.heard.len() >= SHORT {
                let hello: Vec<u8> = self.heard.drain(..SHORT).collect();
                if let Some(ready) = wire::ready(&hello, &self.registry.facts.secret, &self.from) {
                    self.words.extend_from_slice(&ready);
                }
                if let State::Control { hello_seen, .. } = &mut self.state {
                    *hello_seen = true;
                }
            }
            return;
        }
        match wire::read_frame::<Request>(&self.heard) {
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
            (Request::Plan(plan), Some(session)) => match granted(&plan, &registry.facts.limits) {
                Ok(per_second) => {
                    let flows = plan.flows.iter().map(|_| FlowState::Expected).collect();
                    *session.plan() = Some(Planned { plan, flows });
                    (Reply::Planned { per_second }, false)
                }
                Err(reason) => (Reply::Refused { reason }, false),
            },
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
                Some(_) => "wrong token".to_owned(),
            });
        }
    }
    registry.open()
}

/// Checks a plan against the limits; the message rate granted to each flow where the server limits it.
fn granted(plan: &FarPlan, limits: &Limits) -> Result<Option<f64>, String> {
    if plan.flows.len() > limits.flows as usize {
        return Err(format!("{} connections are too many, its limit is {}", plan.flows.len(), limits.flows));
    }
    if plan.message_bytes == 0 || plan.message_bytes > limits.message_bytes {
        return Err(format!(
            "messages of {} bytes: its limit is {}",
            plan.message_bytes, limits.message_bytes
        ));
    }
    if plan.stop.time_ns.is_some_and(|ns| ns > limits.duration_s.saturating_mul(1_000_000_000)) {
        return Err(format!("that takes too long, its limit is {} s", limits.duration_s));
    }
    if let Some(cpu) = plan.cpu.filter(|cpu| !cpu::current_affinity().contains(cpu)) {
        return Err(format!("it has no CPU {cpu}: choose another for the far end in --pin"));
    }
    if let Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } = plan.pacing
        && !(per_second.is_finite() && per_second > 0.0)
    {
        return Err("a rate must be above zero".to_owned());
    }
    let sends = plan.flows.iter().filter(|kind| **kind != FlowKind::Reflect).count().max(1);
    let most = limits.bit_rate.map(|rate| rate / (8.0 * f64::from(plan.message_bytes) * sends as f64));
    let asked = match plan.pacing {
        Pacing::Closed => None,
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => Some(per_second),
    };
    Ok(most.filter(|most| asked.is_none_or(|asked| asked > *most)))
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
        self.last = Some(now);
        for message in self.batch.messages() {
            if self.caps.framing == Framing::Message {
                self.heard.clear();
            }
            self.heard.extend_from_slice(message);
        }
        self.understand();
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

    fn ended(&mut self, cost: Cost) {
        if let State::Handed(party) = &mut self.state {
            party.ended(cost);
        }
    }
}

/// The far end of a flow: a workload's party that begins and ends with the session.
struct FarData {
    session: Arc<FarSession>,
    attach: Attach,
    kind: FlowKind,
    party: Role,
    /// Instant at which the inner party gives up, when it is asked in smaller steps.
    gives_up: Time,
    /// Bytes a second that may come in, and a second's worth more.
    most_in: Option<f64>,
    first: Option<Time>,
    over: bool,
}

enum Role {
    Reflect(Box<dyn Party>),
    Count(Box<dyn Measured>),
}

impl Role {
    fn party(&mut self) -> &mut dyn Party {
        match self {
            Role::Reflect(party) => party.as_mut(),
            Role::Count(party) => party.as_mut(),
        }
    }
}

impl FarData {
    fn new(
        caps: &Caps,
        session: Arc<FarSession>,
        attach: Attach,
        kind: FlowKind,
        plan: &FarPlan,
        limits: &Limits,
    ) -> FarData {
        let tuning = Tuning { wait: plan.wait, cpu: plan.cpu, batches_of: None };
        let recorder = || Recorder::counting();
        let case = case(plan, granted(plan, limits).ok().flatten());
        let party = match kind {
            FlowKind::Reflect => {
                Role::Reflect(Box::new(echo::reflector(caps, tuning, Duration::from_secs(limits.idle_s))))
            }
            FlowKind::Receive => Role::Count(Box::new(Sink::new(&case, caps, tuning, recorder()))),
            FlowKind::Send => Role::Count(Box::new(Source::new(&case, caps, tuning, recorder()))),
        };
        let most_in = limits.bit_rate.map(|rate| rate / 8.0);
        FarData { session, attach, kind, party, gives_up: Time::NEVER, most_in, first: None, over: false }
    }

    fn within_rate(&mut self, now: Time) -> bool {
        let (Some(most), Role::Count(party)) = (self.most_in, &self.party) else { return true };
        let since = now.since(*self.first.get_or_insert(now)).as_secs_f64();
        party.recorder().counts.bytes as f64 <= most * (since + 1.0) * 1.1 + 1e6
    }
}

/// The plan as the workload's parties read it.
fn case(plan: &FarPlan, per_second: Option<f64>) -> Case {
    Case {
        endpoints: Vec::new(),
        peer: String::new(),
        peer_options: Default::default(),
        workload: String::new(),
        direction: Some(Direction::Send),
        message_bytes: plan.message_bytes,
        parallel: 1,
        pacing: per_second.map_or(plan.pacing, |per_second| Pacing::Fixed { per_second }),
        stop: plan.stop,
        warm_up: Some(plan.warm_up),
        timeout: Duration::from_nanos(plan.timeout_ns),
        wait: plan.wait,
        pin: Pin::default(),
        probe_per_second: None,
        interval: Duration::from_secs(1),
        late: Vec::new(),
    }
}

impl Party for FarData {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.over {
            return Step::Done;
        }
        if self.kind == FlowKind::Send && !self.session.started.load(Relaxed) {
            return Step::Sleep(now + LOOK);
        }
        let finishing = self.session.finishing.load(Relaxed);
        if finishing && self.kind != FlowKind::Receive {
            return Step::Done;
        }
        if !self.within_rate(now) {
            return Step::Fail(Fault::Other("more came in than this server allows".to_owned()));
        }
        match self.party.party().next(now) {
            Step::Receive { into, until } => {
                self.gives_up = until;
                Step::Receive { into, until: until.min(now + NOTICE) }
            }
            step => step,
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        self.party.party().sent(bytes, at);
    }

    #[inline]
    fn received(&mut self, now: Time) {
        self.party.party().received(now);
    }

    fn timed_out(&mut self, now: Time) {
        if now >= self.gives_up {
            self.party.party().timed_out(now);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.party.party().closed(now)
    }

    fn ended(&mut self, cost: Cost) {
        self.party.party().ended(cost);
        let mut flow = FarFlow { socket_drops: cost.socket_drops, ..FarFlow::default() };
        if let Role::Count(party) = &self.party {
            let recorder = party.recorder();
            let counts = &recorder.counts;
            flow = FarFlow {
                bytes: counts.bytes,
                messages: counts.received,
                head_bytes: recorder.head_bytes,
                elapsed_ns: recorder.elapsed_ns(),
                duplicate: counts.duplicate,
                reordered: counts.reordered,
                corrupt_messages: counts.corrupt_messages,
                ..flow
            };
        }
        if let Some(planned) = self.session.plan().as_mut()
            && let Some(state) = planned.flows.get_mut(self.attach.flow as usize)
        {
            *state = FlowState::Ended(flow, cost.cpu_seconds);
        }
    }
}
