//! The sessions of a server: who has one, what was planned in it, what became of its flows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::host::cpu;
use crate::link::Caps;
use crate::peer::linkgauge::proof::{self, CHALLENGE, HOLDS_S, KEY, Token};
use crate::peer::linkgauge::wire::{self, FarPlan, FlowKind, Frames, Request};
use crate::peer::{Limits, ServerFacts};
use crate::workload::{FarFlow, FarReport};

/// All sessions of a server.
pub struct Registry {
    pub facts: Arc<ServerFacts>,
    pub sessions: Mutex<HashMap<u64, Arc<FarSession>>>,
    opened: AtomicU64,
    started: Time,
    used: Mutex<Used>,
}

/// Challenges that have opened a session, until they hold no longer.
#[derive(Default)]
struct Used {
    all: HashSet<[u8; CHALLENGE]>,
    /// In the order in which they were used, each with the second of that.
    order: VecDeque<(u32, [u8; CHALLENGE])>,
}

/// Used challenges remembered at most: two thousand sessions a second.
const MOST_USED: usize = 1 << 16;

impl Used {
    /// Whether this is its first use.
    fn is_first(&mut self, challenge: [u8; CHALLENGE], now_s: u32) -> bool {
        while let Some((used_s, oldest)) = self.order.front().copied()
            && (now_s.saturating_sub(used_s) > HOLDS_S || self.order.len() >= MOST_USED)
        {
            self.order.pop_front();
            self.all.remove(&oldest);
        }
        let is_first = self.all.insert(challenge);
        if is_first {
            self.order.push_back((now_s, challenge));
        }
        is_first
    }
}

/// What a client says to open a session.
pub struct Opening {
    pub version: u32,
    pub nonce: Vec<u8>,
    pub challenge: Vec<u8>,
    pub proof: Option<String>,
}

impl Opening {
    /// The opening in a request, if it is one.
    pub fn of(request: Request) -> Option<Opening> {
        match request {
            Request::Open { version, nonce, challenge, proof, .. } => Some(Opening {
                version,
                nonce: wire::unhex(&nonce).unwrap_or_default(),
                challenge: wire::unhex(&challenge).unwrap_or_default(),
                proof,
            }),
            _ => None,
        }
    }
}

impl Registry {
    pub fn new(facts: &Arc<ServerFacts>) -> Registry {
        Registry {
            facts: facts.clone(),
            sessions: Mutex::default(),
            opened: AtomicU64::default(),
            started: Clock::System.now(),
            used: Mutex::default(),
        }
    }

    /// Seconds since the server started, by which challenges expire.
    pub fn now_s(&self) -> u32 {
        Clock::System.now().since(self.started).as_secs() as u32
    }

    pub fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<FarSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn session(&self, id: u64) -> Option<Arc<FarSession>> {
        self.sessions().get(&id).cloned()
    }

    pub fn is_own_challenge(&self, from: &str, opening: &Opening) -> bool {
        let secret = &self.facts.secret;
        proof::is_own_challenge(secret, from, &opening.nonce, &opening.challenge, self.now_s())
    }

    /// Opens a session for a client at `from` that may have one.
    pub fn admit(&self, from: &str, opening: &Opening) -> Result<Arc<FarSession>, String> {
        if opening.version != wire::VERSION {
            return Err(format!(
                "it speaks session version {}, you speak {}: use the same linkgauge",
                wire::VERSION,
                opening.version
            ));
        }
        if !self.is_own_challenge(from, opening) {
            return Err("it did not give you that challenge, or too long ago: try again".to_owned());
        }
        let token = self.facts.token.as_ref().map(|token| Token {
            token,
            nonce: &opening.nonce,
            challenge: &opening.challenge,
        });
        if let Some(token) = &token {
            match &opening.proof {
                None => return Err("it wants a token: give it with --token-file".to_owned()),
                Some(proof) if !token.is_proved_by(proof) => {
                    return Err("wrong token: give the server's own with --token-file".to_owned());
                }
                Some(_) => {}
            }
        }
        let challenge = opening.challenge.as_slice().try_into().unwrap_or_default();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.is_first(challenge, self.now_s()) {
            return Err("that challenge has opened a session before: say hello again".to_owned());
        }
        drop(used);
        self.open(token.as_ref())
    }

    pub fn open(&self, token: Option<&Token>) -> Result<Arc<FarSession>, String> {
        let mut sessions = self.sessions();
        let most = self.facts.limits.sessions;
        if sessions.len() >= most as usize {
            return Err(format!("it has {most} sessions open, its limit; try again later"));
        }
        let (id, open_key) = proof::session(&self.facts.secret, self.opened.fetch_add(1, Relaxed));
        let derived = token.map(|token| token.key(id));
        let session = Arc::new(FarSession {
            id,
            key: derived.unwrap_or(open_key),
            frames: derived.map_or_else(Frames::default, Frames::signed),
            is_key_derived: derived.is_some(),
            plan: Mutex::default(),
            started: AtomicBool::new(false),
            ending: AtomicU8::new(GOES_ON),
            heard_ns: AtomicU64::new(0),
        });
        sessions.insert(session.id, session.clone());
        Ok(session)
    }
}

/// States of [`FarSession::ending`]: the client still measures; it has what it wanted; it waits for nothing more.
pub const GOES_ON: u8 = 0;
pub const FINISHING: u8 = 1;
pub const CUT: u8 = 2;

/// What the connections of one session share.
pub struct FarSession {
    pub id: u64,
    pub key: [u8; KEY],
    /// Both ends derive the key; it is not sent.
    pub is_key_derived: bool,
    /// What is said on the control connection once the session is open.
    pub frames: Frames,
    pub plan: Mutex<Option<Planned>>,
    pub started: AtomicBool,
    ending: AtomicU8,
    /// When the client was heard last on a link without connections.
    pub heard_ns: AtomicU64,
}

pub struct Planned {
    pub plan: Arc<FarPlan>,
    pub flows: Vec<FlowPlace>,
}

/// Where a flow of the plan stands, and the bytes that it has moved.
#[derive(Default)]
pub struct FlowPlace {
    state: FlowState,
    moved: Arc<AtomicU64>,
}

#[derive(Default)]
enum FlowState {
    #[default]
    Expected,
    Running,
    Ended(FarFlow, f64),
}

/// The place of a running flow. However the flow ends, its place is free then.
pub struct Place {
    pub session: Arc<FarSession>,
    pub flow: usize,
    moved: Arc<AtomicU64>,
}

/// What a report says of a flow whose end was never booked.
const BROKE_OFF: &str = "this flow broke off at the server";

impl Place {
    /// Bytes moved so far; a plain store.
    #[inline]
    pub fn moved(&self, bytes: u64) {
        self.moved.store(bytes, Relaxed);
    }

    /// Books what became of the flow; the first word counts.
    pub fn end(&self, flow: FarFlow, cpu_seconds: f64) {
        if let Some(planned) = self.session.plan().as_mut()
            && let Some(place) = planned.flows.get_mut(self.flow)
            && matches!(place.state, FlowState::Running)
        {
            place.state = FlowState::Ended(flow, cpu_seconds);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end(FarFlow { fault: Some(BROKE_OFF.to_owned()), ..FarFlow::default() }, 0.0);
    }
}

/// What a flow is taken for: its kind, the plan, its place.
pub type Taken = (FlowKind, Arc<FarPlan>, Place);

impl FarSession {
    pub fn plan(&self) -> MutexGuard<'_, Option<Planned>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is planned, once.
    pub fn set_plan(&self, plan: FarPlan) -> Result<(), String> {
        let mut planned = self.plan();
        if planned.is_some() {
            return Err("this session has its plan: open another".to_owned());
        }
        let flows = plan.flows.iter().map(|_| FlowPlace::default()).collect();
        *planned = Some(Planned { plan: Arc::new(plan), flows });
        Ok(())
    }

    /// Takes the place of a flow, once.
    pub fn take(self: &Arc<Self>, flow: u32) -> Option<Taken> {
        let mut plan = self.plan();
        let planned = plan.as_mut()?;
        let place = planned.flows.get_mut(flow as usize)?;
        if !matches!(place.state, FlowState::Expected) {
            return None;
        }
        place.state = FlowState::Running;
        let moved = place.moved.clone();
        let place = Place { session: self.clone(), flow: flow as usize, moved };
        Some((planned.plan.flows[flow as usize], planned.plan.clone(), place))
    }

    pub fn has_running(&self) -> bool {
        let is_running = |place: &FlowPlace| matches!(place.state, FlowState::Running);
        self.plan().as_ref().is_some_and(|planned| planned.flows.iter().any(is_running))
    }

    /// Bytes that all flows have moved so far.
    pub fn moved(&self) -> u64 {
        let moved = |planned: &Planned| {
            planned.flows.iter().fold(0u64, |sum, place| sum.saturating_add(place.moved.load(Relaxed)))
        };
        self.plan().as_ref().map_or(0, moved)
    }

    pub fn ending(&self) -> u8 {
        self.ending.load(Relaxed)
    }

    /// The end comes nearer, never farther.
    pub fn end(&self, stage: u8) {
        self.ending.fetch_max(stage, Relaxed);
    }

    /// The report of the flows from `from` on, as many as fit into `room` bytes of JSON, at least one.
    pub fn report(&self, from: usize, room: usize) -> FarReport {
        let plan = self.plan();
        let flows = plan.as_ref().map_or(&[][..], |planned| &planned.flows);
        let seconds = |place: &FlowPlace| match place.state {
            FlowState::Ended(_, seconds) => seconds,
            _ => 0.0,
        };
        let mut report =
            FarReport { cpu_seconds: Some(flows.iter().map(seconds).sum::<f64>()), ..FarReport::default() };
        let mut used = 0;
        for place in flows.iter().skip(from) {
            let flow = match &place.state {
                FlowState::Ended(flow, _) => flow.clone(),
                _ => FarFlow::default(),
            };
            used += serde_json::to_vec(&flow).map_or(0, |json| json.len() + 1);
            if used > room && !report.flows.is_empty() {
                break;
            }
            report.flows.push(flow);
        }
        report
    }
}

/// Rates of messages that make sense: one in eleven days, to more than any link carries.
pub const RATES: RangeInclusive<f64> = 1e-6..=1e12;

/// Checks a plan against the limits; the message rate granted to each flow where the server limits it.
pub fn granted(plan: &FarPlan, limits: &Limits, caps: &Caps) -> Result<Option<f64>, String> {
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
    let requested = plan.pacing.per_second();
    if let Some(rate) = requested.filter(|rate| !RATES.contains(rate)) {
        let (least, most) = (RATES.start(), RATES.end());
        return Err(format!("a rate of {rate:e} messages/s: give one from {least:e} to {most:e}"));
    }
    let bits = 8.0 * f64::from(plan.message_bytes) * f64::from(sharing(plan));
    let most = limits.bit_rate.map(|rate| rate / bits);
    if most.is_some_and(|most| most < *RATES.start()) {
        return Err(format!("messages of {} bytes are too large for its rate", plan.message_bytes));
    }
    Ok(most.filter(|most| requested.is_none_or(|requested| requested > *most)))
}

/// How many flows share the rate: the loads, or all where there is no load. A probe beside a load is too small to count.
pub fn sharing(plan: &FarPlan) -> u32 {
    let loads = plan.flows.iter().filter(|kind| **kind != FlowKind::Reflect).count();
    (if loads > 0 { loads } else { plan.flows.len() }).max(1) as u32
}

/// Warm-up and measurement, where the plan says how long they are.
pub fn planned_time(plan: &FarPlan) -> Option<Duration> {
    let time = plan.stop.time_ns?.saturating_add(plan.warm_up.time_ns.unwrap_or(0));
    Some(Duration::from_nanos(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Pacing, Stop, Wait};

    fn plan(pacing: Pacing) -> FarPlan {
        FarPlan {
            flows: vec![FlowKind::Send],
            message_bytes: 100,
            pacing,
            stop: Stop::default(),
            warm_up: Stop::default(),
            timeout_ns: u64::MAX,
            wait: Wait::Block,
            cpu: None,
        }
    }

    #[test]
    fn a_rate_that_is_none_is_refused_before_anything_runs() {
        let limits = Limits::default();
        for per_second in [0.0, -1.0, 1e-300, 5e-324, -1e308, 1e308, f64::INFINITY, f64::NAN] {
            for pacing in [Pacing::Fixed { per_second }, Pacing::Poisson { per_second, seed: 1 }] {
                let refused = granted(&plan(pacing), &limits, &Caps::STREAM).unwrap_err();
                assert!(refused.starts_with("a rate of "), "{refused}");
            }
        }
        for per_second in [1e-6, 0.5, 1e12] {
            let pacing = Pacing::Poisson { per_second, seed: 1 };
            assert_eq!(granted(&plan(pacing), &limits, &Caps::STREAM), Ok(None));
        }
        // A limit so low that no message fits is said, not granted.
        let tiny = Limits { bit_rate: Some(1e-4), ..limits };
        assert!(granted(&plan(Pacing::Closed), &tiny, &Caps::STREAM).is_err());
    }

    #[test]
    fn a_challenge_is_used_once_and_then_forgotten() {
        let mut used = Used::default();
        assert!(used.is_first([1; CHALLENGE], 5));
        assert!(!used.is_first([1; CHALLENGE], 5 + HOLDS_S));
        assert!(used.is_first([2; CHALLENGE], 6 + HOLDS_S));
        assert_eq!(used.order.len(), 1, "the first holds no longer anyhow");
        for number in 0..2 * MOST_USED as u128 {
            assert!(used.is_first(number.to_be_bytes(), 50));
        }
        assert!(used.order.len() <= MOST_USED && used.all.len() == used.order.len());
    }

    #[test]
    fn a_flow_that_breaks_off_gives_its_place_back() {
        let registry = Registry::new(&Arc::new(ServerFacts::default()));
        let session = registry.open(None).unwrap();
        session.set_plan(FarPlan { flows: vec![FlowKind::Send; 3], ..plan(Pacing::Closed) }).unwrap();
        assert!(session.set_plan(plan(Pacing::Closed)).is_err(), "once");
        let (_, _, broken) = session.take(1).unwrap();
        let (_, _, honest) = session.take(2).unwrap();
        assert!(session.take(1).is_none());
        honest.moved(70);
        assert_eq!(session.moved(), 70);
        honest.end(FarFlow { bytes: 70, ..FarFlow::default() }, 0.5);
        drop(honest);
        assert!(session.has_running());
        // As it goes when its thread panics.
        drop(broken);
        assert!(!session.has_running());
        let report = session.report(0, usize::MAX);
        assert_eq!(report.flows[1].fault.as_deref(), Some(BROKE_OFF));
        assert_eq!((report.flows[2].bytes, &report.flows[2].fault), (70, &None));
        assert_eq!(report.cpu_seconds, Some(0.5));
        // In parts, each with one flow at least.
        assert_eq!(session.report(1, 0).flows, report.flows[1..2]);
        assert_eq!(session.report(3, 1000).flows, []);
    }
}
