//! The far side of our own session: one party for each connection, one registry of sessions between them.
//!
//! A connection says in its first bytes what it is: a control connection (hello), a flow of a session (attach), or
//! somebody who does not know us, whose bytes are sent back.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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
use crate::workload::latency::Reflector;
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
    let registry =
        Registry { facts: facts.clone(), sessions: Mutex::default(), opened: AtomicU64::default() };
    Arc::new(FarService { registry: Arc::new(registry) })
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
        // Nothing is kept of these senders, so no rate could be held against them.
        if facts.token.is_some() || facts.limits.bit_rate.is_some() || is_server(from) {
            return Admission::Drop;
        }
        reply.extend_from_slice(first);
        Admission::Reply
    }
}

/// Whether the sender is likely to answer an answer: two that echo each other would never stop. Clients send from the
/// ports that the system hands out, above those of well-known services and our own.
fn is_server(from: &str) -> bool {
    from.parse::<SocketAddr>()
        .is_ok_and(|from| from.port() < 1024 || from.port() == crate::link::DEFAULT_PORT)
}

fn is_own_challenge(facts: &ServerFacts, from: &str, nonce: &str, challenge: &str) -> bool {
    let (Some(nonce), Some(challenge)) = (wire::unhex(nonce), wire::unhex(challenge)) else { return false };
    challenge == wire::challenge(&facts.secret, from, &nonce)
}

/// All sessions of a server.
struct Registry {
    facts: Arc<ServerFacts>,
    sessions: Mutex<HashMap<u64, Arc<FarSession>>>,
    opened: AtomicU64,
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
        let (id, key) = wire::session(&self.facts.secret, self.opened.fetch_add(1, Relaxed));
        let session = Arc::new(FarSession {
            id,
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
        let leash = Leash::new(self.limits(), None, 1);
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
                let leash = Leash::new(limits, Some(&plan), sharing(&plan));
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

/// Checks a plan against the limits; the message rate granted to each flow where the server limits it.
fn granted(plan: &FarPlan, limits: &Limits, caps: &Caps) -> Result<Option<f64>, String> {
    if plan.flows.len() > limits.flows as usize {
        return Err(format!("{} connections are too many, its limit is {}", plan.flows.len(), limits.flows));
    }
    if plan.message_bytes == 0 || plan.message_bytes > limits.message_bytes {
        return Err(format!(
            "messages of {} bytes: its limit is {}",
            plan.message_bytes, limits.message_bytes
        ));
    }
    if let Some(most) = caps.max_message.filter(|most| plan.message_bytes as usize > *most) {
        return Err(format!("messages of {} bytes: the link bears {most}", plan.message_bytes));
    }
    if planned_time(plan).is_some_and(|time| time > Duration::from_secs(limits.duration_s)) {
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
    let bits = 8.0 * f64::from(plan.message_bytes) * f64::from(sharing(plan));
    let most = limits.bit_rate.map(|rate| rate / bits);
    let asked = match plan.pacing {
        Pacing::Closed => None,
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => Some(per_second),
    };
    Ok(most.filter(|most| asked.is_none_or(|asked| asked > *most)))
}

/// How many flows share the rate: the loads, or all where there is no load. A probe beside a load is too small to count.
fn sharing(plan: &FarPlan) -> u32 {
    let loads = plan.flows.iter().filter(|kind| **kind != FlowKind::Reflect).count();
    (if loads > 0 { loads } else { plan.flows.len() }).max(1) as u32
}

/// Warm-up and measurement, where the plan says how long they are.
fn planned_time(plan: &FarPlan) -> Option<Duration> {
    let time = plan.stop.time_ns?.saturating_add(plan.warm_up.time_ns.unwrap_or(0));
    Some(Duration::from_nanos(time))
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

/// What a connection may do, whatever was planned on it.
struct Leash {
    /// Bytes a second, and a second's worth more.
    most: Option<f64>,
    idle: Duration,
    longest: Duration,
    first: Option<Time>,
    /// When bytes moved last, and how many had by then.
    moved: (Time, u64),
}

/// A plan that tells its length may take so much longer, until its last bytes are through.
const GRACE: Duration = Duration::from_secs(10);

impl Leash {
    fn new(limits: &Limits, plan: Option<&FarPlan>, sharing: u32) -> Leash {
        let longest = Duration::from_secs(limits.duration_s);
        let grace = plan.and_then(planned_time).map_or(Duration::ZERO, |_| GRACE);
        Leash {
            most: limits.bit_rate.map(|rate| rate / 8.0 / f64::from(sharing)),
            idle: Duration::from_secs(limits.idle_s),
            longest: longest.saturating_add(grace),
            first: None,
            moved: (Time(0), 0),
        }
    }

    /// Why it has to end at `now`, after `bytes` in all.
    #[inline]
    fn ends(&mut self, now: Time, bytes: u64) -> Option<&'static str> {
        let first = *self.first.get_or_insert_with(|| {
            self.moved.0 = now;
            now
        });
        if bytes != self.moved.1 {
            self.moved = (now, bytes);
        }
        if let Some(most) = self.most
            && bytes as f64 > most * (now.since(first).as_secs_f64() + 1.0) * 1.1 + 1e6
        {
            return Some("more than the rate that this server allows");
        }
        if now.since(first) > self.longest {
            return Some("longer than this server allows");
        }
        (now.since(self.moved.0) > self.idle).then_some("nothing moved for longer than this server waits")
    }
}

/// The far end of a flow: a workload's party that begins and ends with the session; or an echo for a stranger.
struct FarData {
    role: Role,
    leash: Leash,
    task: Option<Task>,
    /// Instant at which the inner party gives up, when it is asked in smaller steps.
    gives_up: Time,
    begun: bool,
    fault: Option<String>,
}

/// What ties a flow to its session.
struct Task {
    session: Arc<FarSession>,
    flow: usize,
    /// On links that lose messages the attach may come again, until something else does.
    fresh: bool,
    request: Vec<u8>,
    reply: Vec<u8>,
    repeated: bool,
    /// For a flow that itself receives nothing.
    batch: Batch,
}

enum Role {
    Reflect(Reflector),
    Receive(Box<Sink>),
    Send(Box<Source>),
}

impl Role {
    fn new(kind: FlowKind, plan: &FarPlan, per_second: Option<f64>, caps: &Caps, limits: &Limits) -> Role {
        let tuning = Tuning { wait: plan.wait, cpu: plan.cpu, batches_of: None };
        let case = case(plan, per_second);
        let recorder = Recorder::counting();
        match kind {
            FlowKind::Reflect => {
                Role::Reflect(echo::reflector(caps, tuning, Duration::from_secs(limits.idle_s)))
            }
            FlowKind::Receive => Role::Receive(Box::new(Sink::new(&case, caps, tuning, recorder))),
            FlowKind::Send => Role::Send(Box::new(Source::new(&case, caps, tuning, recorder))),
        }
    }

    #[inline]
    fn party(&mut self) -> &mut dyn Party {
        match self {
            Role::Reflect(party) => party,
            Role::Receive(party) => party.as_mut(),
            Role::Send(party) => party.as_mut(),
        }
    }

    /// Bytes moved so far.
    #[inline]
    fn bytes(&self) -> u64 {
        match self {
            Role::Reflect(party) => party.returned(),
            Role::Receive(party) => party.position(),
            Role::Send(party) => party.position(),
        }
    }

    /// What came last; nothing on a flow that only sends.
    fn batch(&self) -> Option<&Batch> {
        match self {
            Role::Reflect(party) => Some(party.batch()),
            Role::Receive(party) => Some(party.batch()),
            Role::Send(_) => None,
        }
    }

    fn recorder(&self) -> Option<&Recorder> {
        match self {
            Role::Reflect(_) => None,
            Role::Receive(party) => Some(party.recorder()),
            Role::Send(party) => Some(party.recorder()),
        }
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

impl FarData {
    fn new(role: Role, leash: Leash, task: Option<Task>) -> FarData {
        FarData { role, leash, task, gives_up: Time::NEVER, begun: false, fault: None }
    }

    fn started(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.session.started.load(Relaxed))
    }
}

impl Party for FarData {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        let (started, is_receiver) = (self.started(), matches!(self.role, Role::Receive(_)));
        let finishing = self.task.as_ref().is_some_and(|task| task.session.finishing.load(Relaxed));
        if finishing && (!is_receiver || !started) {
            return Step::Done;
        }
        if let Some(reason) = self.leash.ends(now, self.role.bytes()) {
            self.fault = Some(reason.to_owned());
            return Step::Fail(Fault::Other(reason.to_owned()));
        }
        if let Some(task) = &mut self.task {
            if task.repeated {
                return Step::Send { bytes: &task.reply, message: task.reply.len() };
            }
            if !started && matches!(self.role, Role::Send(_)) {
                return match task.fresh {
                    true => Step::Receive { into: &mut task.batch, until: now + LOOK },
                    false => Step::Sleep(now + LOOK),
                };
            }
        }
        if started && !self.begun {
            self.begun = true;
            if let Role::Receive(sink) = &mut self.role {
                sink.wait_from(now);
            }
        }
        match self.role.party().next(now) {
            Step::Receive { into, until } => {
                self.gives_up = until;
                Step::Receive { into, until: until.min(now + NOTICE) }
            }
            Step::Fail(fault) => {
                self.fault = Some(fault.to_string());
                Step::Fail(fault)
            }
            step => step,
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if let Some(task) = self.task.as_mut().filter(|task| task.repeated) {
            task.repeated = false;
            return;
        }
        self.role.party().sent(bytes, at);
    }

    #[inline]
    fn received(&mut self, now: Time) {
        if let Some(task) = self.task.as_mut().filter(|task| task.fresh) {
            let batch = self.role.batch().unwrap_or(&task.batch);
            task.repeated = batch.messages().any(|message| message == task.request.as_slice());
            if task.repeated {
                return;
            }
            task.fresh = false;
        }
        self.role.party().received(now);
    }

    fn timed_out(&mut self, now: Time) {
        if now >= self.gives_up && self.begun {
            self.role.party().timed_out(now);
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.role.party().closed(now)
    }

    fn ended(&mut self, cost: Cost) {
        self.role.party().ended(cost);
        let mut flow =
            FarFlow { socket_drops: cost.socket_drops, fault: self.fault.take(), ..FarFlow::default() };
        if let Some(recorder) = self.role.recorder() {
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
        let Some(task) = &self.task else { return };
        if let Some(planned) = task.session.plan().as_mut()
            && let Some(state) = planned.flows.get_mut(task.flow)
        {
            *state = FlowState::Ended(flow, cost.cpu_seconds);
        }
    }
}
