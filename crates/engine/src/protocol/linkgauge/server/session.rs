//! The sessions of a server: their owners, plans and flow results.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::flow_party::{flow_memory_bytes, plan_memory_bytes};
use super::memory_limits::{CountedFlows, LongRequests, PlannedFlows};
use crate::host::cpu;
use crate::link::counters::{ConnectionLog, LinkProbe, LinkReading, connection_evidence};
use crate::link::waker::Wakers;
use crate::link::{Caps, Link};
use crate::protocol::linkgauge::evidence::HostStart;
use crate::protocol::linkgauge::proof::{self, CHALLENGE_BYTES, CHALLENGE_LIFETIME_S, KEY_BYTES, TokenProof};
use crate::protocol::linkgauge::wire::{
    self, FlowKind, FrameCodec, ServerPlan, SessionRefusal, SessionReply, SessionRequest,
};
use crate::protocol::{MemoryBudget, MemoryCharge, OpenLoad, ServerConfig};
use crate::workload::{FlowReport, MovedBytes, ServerReport};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::{ConnectionEvidence, EndEvidence, MAX_OBSERVED_CONNECTIONS};

/// All sessions of a server.
pub(crate) struct SessionRegistry {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) sessions: Mutex<HashMap<u64, Arc<ServerSession>>>,
    opened_sessions: AtomicU64,
    started_at: Time,
    used_challenges: Mutex<UsedChallenges>,
    busy_poll_slots: BusyPollSlots,
    planned_flows: PlannedFlows,
    pub(crate) memory: MemoryBudget,
    pub(crate) long_requests: LongRequests,
}

/// Flows of all sessions that may busy-poll at the same time: one for each CPU of the server but one, at least one.
/// Further flows block. Without this limit one client could use all CPUs while nothing is sent.
#[derive(Clone)]
struct BusyPollSlots(Arc<AtomicU32>);

impl BusyPollSlots {
    pub fn new(cpus: usize) -> BusyPollSlots {
        BusyPollSlots(Arc::new(AtomicU32::new(cpus.saturating_sub(1).max(1) as u32)))
    }

    /// Takes a slot for each of the first flows of a plan, as far as slots are free.
    fn take(&self, plan: &ServerPlan) -> TakenSlots {
        let wanted = plan.busy_poll_flows();
        let free = self.0.fetch_update(Relaxed, Relaxed, |free| Some(free - free.min(wanted)));
        TakenSlots { slots: self.clone(), count: free.unwrap_or_else(|free| free).min(wanted) }
    }
}

/// Slots of a plan, returned when the session ends.
struct TakenSlots {
    slots: BusyPollSlots,
    count: u32,
}

impl Drop for TakenSlots {
    fn drop(&mut self) {
        self.slots.0.fetch_add(self.count, Relaxed);
    }
}

/// Challenges that have opened a session, until they expire.
#[derive(Default)]
struct UsedChallenges {
    challenges: HashSet<[u8; CHALLENGE_BYTES]>,
    /// Used challenges in the order of use, each with its time of use in seconds.
    by_age: VecDeque<(u32, [u8; CHALLENGE_BYTES])>,
}

/// Maximum used challenges stored: two thousand sessions a second.
const MAX_USED_CHALLENGES: usize = 1 << 16;

impl UsedChallenges {
    /// Returns whether this is the first use.
    fn try_use(&mut self, challenge: [u8; CHALLENGE_BYTES], now_s: u32) -> bool {
        while let Some((used_s, oldest)) = self.by_age.front().copied()
            && (now_s.saturating_sub(used_s) > CHALLENGE_LIFETIME_S
                || self.by_age.len() >= MAX_USED_CHALLENGES)
        {
            self.by_age.pop_front();
            self.challenges.remove(&oldest);
        }
        let is_first = self.challenges.insert(challenge);
        if is_first {
            self.by_age.push_back((now_s, challenge));
        }
        is_first
    }
}

/// A request to open a session.
pub(crate) struct OpenRequest {
    pub(crate) version: u32,
    pub(crate) nonce: Vec<u8>,
    pub(crate) challenge: Vec<u8>,
    pub(crate) proof: Option<String>,
}

impl OpenRequest {
    /// Converts a request, if it opens a session.
    pub(crate) fn from_request(request: SessionRequest) -> Option<OpenRequest> {
        match request {
            SessionRequest::Open { version, nonce, challenge, proof, .. } => Some(OpenRequest {
                version,
                nonce: wire::decode_hex(&nonce).unwrap_or_default(),
                challenge: wire::decode_hex(&challenge).unwrap_or_default(),
                proof,
            }),
            _ => None,
        }
    }
}

impl SessionRegistry {
    pub fn new(facts: &Arc<ServerConfig>) -> SessionRegistry {
        SessionRegistry {
            config: facts.clone(),
            sessions: Mutex::default(),
            opened_sessions: AtomicU64::default(),
            started_at: Clock::System.now(),
            used_challenges: Mutex::default(),
            busy_poll_slots: BusyPollSlots::new(cpu::current_affinity().len()),
            planned_flows: PlannedFlows::new(&facts.limits),
            memory: MemoryBudget::new(facts.limits.memory_bytes),
            long_requests: LongRequests::default(),
        }
    }

    /// Seconds since the server's start, the clock for the expiry of challenges.
    pub(crate) fn uptime_s(&self) -> u32 {
        Clock::System.now().since(self.started_at).as_secs() as u32
    }

    pub(crate) fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<ServerSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<ServerSession>> {
        self.sessions().get(&id).cloned()
    }

    pub(crate) fn is_own_challenge(&self, from: &str, opening: &OpenRequest) -> bool {
        let secret = &self.config.secret;
        proof::is_own_challenge(secret, from, &opening.nonce, &opening.challenge, self.uptime_s())
    }

    /// Opens a session for a client at `from`, if it is allowed one.
    pub(crate) fn admit(
        &self,
        from: &str,
        opening: &OpenRequest,
    ) -> Result<Arc<ServerSession>, SessionRefusal> {
        if opening.version != wire::VERSION {
            return Err(SessionRefusal(format!(
                "it uses session version {}, the client uses {}: use the same version of linkgauge",
                wire::VERSION,
                opening.version
            )));
        }
        if !self.is_own_challenge(from, opening) {
            return Err(SessionRefusal("its challenge is unknown or too old: try again".to_owned()));
        }
        let token = self.config.token.as_ref().map(|token| TokenProof {
            token,
            nonce: &opening.nonce,
            challenge: &opening.challenge,
        });
        if let Some(token) = &token {
            match &opening.proof {
                None => {
                    return Err(SessionRefusal("it requires a token: use --token-file".to_owned()));
                }
                Some(proof) if !token.is_proved_by(proof) => {
                    return Err(SessionRefusal(
                        "the token is wrong: use that of the server (--token-file)".to_owned(),
                    ));
                }
                Some(_) => {}
            }
        }
        let challenge = opening.challenge.as_slice().try_into().unwrap_or_default();
        let mut used = self.used_challenges.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.try_use(challenge, self.uptime_s()) {
            return Err(SessionRefusal(
                "that challenge has opened a session before: send another hello".to_owned(),
            ));
        }
        drop(used);
        self.open(token.as_ref())
    }

    pub(crate) fn open(&self, token: Option<&TokenProof>) -> Result<Arc<ServerSession>, SessionRefusal> {
        let mut sessions = self.sessions();
        let most = self.config.limits.sessions;
        if sessions.len() >= most as usize {
            return Err(SessionRefusal(format!("its limit of {most} sessions is reached: try again later")));
        }
        let (id, open_key) =
            proof::session_identity(&self.config.secret, self.opened_sessions.fetch_add(1, Relaxed));
        let derived = token.map(|token| token.session_key(id));
        let session = Arc::new(ServerSession {
            id,
            key: derived.unwrap_or(open_key),
            frame_codec: derived.map_or_else(FrameCodec::default, FrameCodec::signed),
            is_key_derived: derived.is_some(),
            plan: Mutex::default(),
            busy_poll_slots: self.busy_poll_slots.clone(),
            planned_flows: self.planned_flows.clone(),
            memory: self.memory.clone(),
            has_started: AtomicBool::new(false),
            open_loads: AtomicU32::new(0),
            has_reported: AtomicBool::new(false),
            stage: AtomicU8::new(STAGE_MEASURING),
            last_heard_ns: AtomicU64::new(0),
            flow_threads: Wakers::default(),
            host_start: OnceLock::new(),
            next_reading_ns: AtomicU64::new(0),
            load: OpenLoad::new(self.config.load_log.clone()),
        });
        sessions.insert(session.id, session.clone());
        Ok(session)
    }
}

/// Stages of [`ServerSession::stage`]: the client measures; the client has finished; remaining data is cut off.
pub(crate) const STAGE_MEASURING: u8 = 0;
pub(crate) const STAGE_FINISHING: u8 = 1;
pub(crate) const STAGE_CUT: u8 = 2;

/// State that the connections of one session share.
pub(crate) struct ServerSession {
    pub(crate) id: u64,
    pub(crate) key: [u8; KEY_BYTES],
    /// Both sides derive the key, so it is not sent.
    pub(crate) is_key_derived: bool,
    /// Encodes control messages after the session is open.
    pub(crate) frame_codec: FrameCodec,
    pub(crate) plan: Mutex<Option<SessionPlan>>,
    busy_poll_slots: BusyPollSlots,
    planned_flows: PlannedFlows,
    memory: MemoryBudget,
    pub(crate) has_started: AtomicBool,
    /// Flows of the load that have not ended, or not begun.
    open_loads: AtomicU32,
    /// The report was sent or is about to be, so it needs no request.
    has_reported: AtomicBool,
    /// Shared threads with flows that wait for the start or the next stage.
    pub(crate) flow_threads: Wakers,
    stage: AtomicU8,
    /// Time of the client's last message on a link without connections.
    pub(crate) last_heard_ns: AtomicU64,
    /// Counters of the host, set when the measurement begins, if the client asked for evidence.
    host_start: OnceLock<HostStart>,
    /// Time of the next reading of the connections' counters, in nanoseconds.
    next_reading_ns: AtomicU64,
    /// Load of the session, recorded when the session has reported, or ends.
    pub(crate) load: OpenLoad,
}

/// Time between checks of the flows of a load, whose end is reported without a request.
const REPORT_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Time between readings of the connections.
const READING_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct SessionPlan {
    pub(crate) plan: Arc<ServerPlan>,
    pub(crate) flows: Vec<FlowEntry>,
    busy_poll: TakenSlots,
    /// The kind of link that the memory was charged for.
    caps: Caps,
    _counted: CountedFlows,
    _memory: MemoryCharge,
}

/// State of a planned flow, and its byte count.
#[derive(Default)]
pub(crate) struct FlowEntry {
    state: FlowState,
    moved: Arc<MovedCounters>,
    /// The counters of its link, if the client asked for evidence. Boxed: a server holds thousands of flows.
    log: Option<Box<ConnectionLog>>,
}

/// Payload bytes that a flow has moved so far, for other threads.
#[derive(Default)]
struct MovedCounters {
    /// All bytes, including the warm-up.
    all: AtomicU64,
    measured: AtomicU64,
    /// Time when the first of the measured bytes moved, in nanoseconds; 0 before.
    first_ns: AtomicU64,
}

#[derive(Default)]
enum FlowState {
    #[default]
    Expected,
    Running,
    Ended(FlowReport, FlowCost),
}

/// Cost of a flow at the server, and the counts of the server's system if the client asked for them.
#[derive(Default)]
pub(crate) struct FlowCost {
    pub(crate) cpu_seconds: f64,
    /// Boxed: a server holds thousands of flows that have not ended.
    pub(crate) evidence: Option<Box<EndEvidence>>,
}

/// The slot of a running flow; released however the flow ends.
pub(crate) struct FlowSlot {
    pub(crate) session: Arc<ServerSession>,
    pub(crate) flow_index: usize,
    /// Wait mode as planned, if the server has a CPU for it.
    pub(crate) wait: WaitMode,
    moved: Arc<MovedCounters>,
}

/// Fault of a flow without a recorded end.
const BROKEN_OFF: &str = "this flow ended early at the server";

impl FlowSlot {
    /// Bytes moved so far, and those of the measurement, the first of which moved at this time; plain stores.
    #[inline]
    pub(crate) fn set_moved_bytes(&self, all: u64, measured: u64, first: Option<Time>) {
        self.moved.first_ns.store(first.map_or(0, |first| first.0.max(1)), Relaxed);
        self.moved.all.store(all, Relaxed);
        self.moved.measured.store(measured, Relaxed);
    }

    /// Lets the counters of the flow's link be read until the flow ends.
    pub(crate) fn observe(&self, link: &dyn Link) {
        if let Some(planned) =
            self.session.plan().as_mut().filter(|_| self.flow_index < MAX_OBSERVED_CONNECTIONS)
            && let Some(place) = planned.flows.get_mut(self.flow_index)
        {
            place.log = LinkProbe::of(link).map(|probe| Box::new(ConnectionLog::start(probe)));
        }
    }

    /// Readings of the connection up to now; only the last reading if the link was not observed.
    pub(crate) fn observed(&self, last: Option<&LinkReading>) -> ConnectionEvidence {
        let log =
            self.session.plan().as_mut().and_then(|plan| plan.flows.get_mut(self.flow_index)?.log.take());
        match log {
            Some(mut log) => {
                log.read(Clock::System.now());
                log.evidence()
            }
            None => last.map_or_else(ConnectionEvidence::default, |last| {
                connection_evidence(None, last, std::slice::from_ref(last))
            }),
        }
    }

    /// Records the result of the flow; only the first call counts.
    pub(crate) fn record_end(&self, flow: FlowReport, cost: FlowCost) {
        if let Some(planned) = self.session.plan().as_mut()
            && let Some(place) = planned.flows.get_mut(self.flow_index)
            && matches!(place.state, FlowState::Running)
        {
            // The link closes once no second descriptor is open.
            place.log = None;
            place.state = FlowState::Ended(flow, cost);
            let is_load = !planned.plan.flows[self.flow_index].is_round_trip();
            self.session.open_loads.fetch_sub(u32::from(is_load), Relaxed);
        }
    }
}

impl Drop for FlowSlot {
    fn drop(&mut self) {
        let report = FlowReport { fault: Some(BROKEN_OFF.to_owned()), ..FlowReport::default() };
        self.record_end(report, FlowCost::default());
    }
}

/// A claimed flow: its kind, the plan, its slot.
pub(crate) type ClaimedFlow = (FlowKind, Arc<ServerPlan>, FlowSlot);

impl ServerSession {
    pub(crate) fn plan(&self) -> MutexGuard<'_, Option<SessionPlan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the plan, whose flows run on links like this one; fails if there is one already, or if its flows need too
    /// much memory. Returns the number of flows that may busy-poll.
    pub(crate) fn set_plan(&self, plan: ServerPlan, caps: &Caps) -> Result<u32, SessionRefusal> {
        let mut planned = self.plan();
        if planned.is_some() {
            return Err(SessionRefusal("this session has a plan already: open another".to_owned()));
        }
        let counted = self.planned_flows.add(plan.flows.len() as u32)?;
        let memory = self.memory.charge_session(plan_memory_bytes(&plan, caps));
        let memory = memory.map_err(|refusal| SessionRefusal(refusal.to_string()))?;
        let flows = plan.flows.iter().map(|_| FlowEntry::default()).collect();
        let busy_poll = self.busy_poll_slots.take(&plan);
        let count = busy_poll.count;
        let loads = plan.flows.iter().filter(|kind| !kind.is_round_trip()).count();
        self.open_loads.store(loads as u32, Relaxed);
        let (plan, caps) = (Arc::new(plan), caps.clone());
        *planned = Some(SessionPlan { plan, flows, busy_poll, caps, _counted: counted, _memory: memory });
        Ok(count)
    }

    /// Claims a flow on a link with these capabilities; `None` if it is already claimed, or takes more memory than on the link
    /// of the plan.
    pub(crate) fn claim_flow(self: &Arc<Self>, flow: u32, caps: &Caps) -> Option<ClaimedFlow> {
        let mut plan = self.plan();
        let planned = plan.as_mut()?;
        let kind = *planned.plan.flows.get(flow as usize)?;
        if flow_memory_bytes(kind, &planned.plan, caps)
            > flow_memory_bytes(kind, &planned.plan, &planned.caps)
        {
            return None;
        }
        let place = planned.flows.get_mut(flow as usize)?;
        if !matches!(place.state, FlowState::Expected) {
            return None;
        }
        place.state = FlowState::Running;
        let moved = place.moved.clone();
        let wait = if flow < planned.busy_poll.count { planned.plan.wait } else { WaitMode::Block };
        let place = FlowSlot { session: self.clone(), flow_index: flow as usize, wait, moved };
        Some((kind, planned.plan.clone(), place))
    }

    pub(crate) fn has_running_flows(&self) -> bool {
        self.is_any_running(|_| true)
    }

    fn is_any_running(&self, of_kind: impl Fn(FlowKind) -> bool) -> bool {
        self.plan().as_ref().is_some_and(|planned| {
            let mut flows = planned.plan.flows.iter().zip(&planned.flows);
            flows.any(|(kind, place)| matches!(place.state, FlowState::Running) && of_kind(*kind))
        })
    }

    /// Whether the report can be made: no flow runs, but round trips beside a load may continue.
    pub(crate) fn can_report(&self) -> bool {
        let has_load = self.has_load();
        !self.is_any_running(|kind| !has_load || !kind.is_round_trip())
    }

    fn has_load(&self) -> bool {
        self.plan().as_ref().is_some_and(|planned| planned.plan.has_load())
    }

    /// Time of the next check whether the load has ended; never without a load, or after the report.
    pub(crate) fn next_report_check(&self, now: Time) -> Time {
        let is_awaited =
            self.has_started.load(Relaxed) && !self.has_reported.load(Relaxed) && self.has_load();
        if is_awaited { now + REPORT_CHECK_INTERVAL } else { Time::NEVER }
    }

    /// Whether the report is to be sent without a request; only the first call returns true.
    pub(crate) fn take_unasked_report(&self) -> bool {
        let has_ended = self.has_load() && self.open_loads.load(Relaxed) == 0;
        self.has_started.load(Relaxed) && has_ended && !self.has_reported.swap(true, Relaxed)
    }

    /// Notes that the report is a reply, so it is not sent without a request.
    pub(crate) fn set_reported(&self) {
        self.has_reported.store(true, Relaxed);
    }

    /// Bytes that all flows have moved so far.
    pub(crate) fn moved_bytes(&self) -> u64 {
        let moved = |planned: &SessionPlan| {
            planned.flows.iter().fold(0u64, |sum, place| sum.saturating_add(place.moved.all.load(Relaxed)))
        };
        self.plan().as_ref().map_or(0, moved)
    }

    /// Bytes of the measurement that the loads have moved so far.
    pub(crate) fn measured_bytes(&self, now: Time) -> MovedBytes {
        let mut all = MovedBytes::default();
        if let Some(planned) = self.plan().as_ref() {
            for (kind, place) in planned.plan.flows.iter().zip(&planned.flows) {
                let first = Some(place.moved.first_ns.load(Relaxed)).filter(|first| *first > 0);
                let moving_ns = first.map(|first| now.0.saturating_sub(first));
                all.add(kind.moved_bytes(place.moved.measured.load(Relaxed), moving_ns));
            }
        }
        all
    }

    /// The reply while flows run.
    pub(crate) fn pending_reply(&self, now: Time) -> SessionReply {
        SessionReply::Pending { bytes: self.moved_bytes(), measured: self.measured_bytes(now) }
    }

    /// Lets the server send.
    pub(crate) fn start(&self, now: Time) {
        let plan = self.plan().as_ref().map(|planned| planned.plan.clone());
        if plan.as_ref().is_some_and(|plan| plan.evidence) {
            self.host_start.get_or_init(HostStart::now);
        }
        if plan.is_some_and(|plan| plan.has_load()) {
            self.load.begin(now);
        }
        self.has_started.store(true, Relaxed);
        self.flow_threads.sweep();
    }

    /// Time when the counters of the connections are to be read; never before the measurement or after its end.
    pub(crate) fn next_reading(&self) -> Time {
        match self.host_start.get() {
            Some(_) if self.stage() == STAGE_MEASURING => Time(self.next_reading_ns.load(Relaxed)),
            _ => Time::NEVER,
        }
    }

    /// Reads the counters of the connections if that is due.
    pub(crate) fn read_when_due(&self, now: Time) {
        if now < self.next_reading() {
            return;
        }
        self.next_reading_ns.store((now + READING_INTERVAL).0, Relaxed);
        if let Some(planned) = self.plan().as_mut() {
            for log in planned.flows.iter_mut().filter_map(|place| place.log.as_mut()) {
                log.read(now);
            }
        }
    }

    pub(crate) fn stage(&self) -> u8 {
        self.stage.load(Relaxed)
    }

    /// Advances the stage; it never goes back.
    pub(crate) fn advance_stage(&self, stage: u8) {
        if self.stage.fetch_max(stage, Relaxed) < stage {
            self.flow_threads.sweep();
        }
    }

    /// The report of the flows starting at `from`: as many as fit into `room` bytes of JSON, at least one.
    pub(crate) fn report_from(&self, from: usize, room: usize) -> ServerReport {
        let plan = self.plan();
        let flows = plan.as_ref().map_or(&[][..], |planned| &planned.flows);
        let costs = || {
            flows.iter().filter_map(|place| match &place.state {
                FlowState::Ended(_, cost) => Some(cost),
                _ => None,
            })
        };
        let mut report = ServerReport {
            cpu_seconds: Some(costs().map(|cost| cost.cpu_seconds).sum::<f64>()),
            ..ServerReport::default()
        };
        if let Some(start) = self.host_start.get().filter(|_| from == 0) {
            let observed = costs().filter_map(|cost| cost.evidence.as_deref());
            report.evidence = Some(start.evidence(observed.take(MAX_OBSERVED_CONNECTIONS)));
        }
        let began = |place: &FlowEntry| match &place.state {
            FlowState::Ended(flow, _) => flow.began_ns,
            _ => None,
        };
        // By all flows: parts of a report have one origin.
        let origin = flows.iter().filter_map(began).min().unwrap_or(0);
        let mut used = 0;
        for place in flows.iter().skip(from) {
            let flow = match &place.state {
                FlowState::Ended(flow, _) => {
                    FlowReport { began_ns: flow.began_ns.map(|began| began - origin), ..flow.clone() }
                }
                _ => FlowReport::default(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ServerLimits;
    use linkgauge_model::plan::{Pacing, SocketSettings, StopCondition, WaitMode};

    fn plan(pacing: Pacing) -> ServerPlan {
        ServerPlan {
            flows: vec![FlowKind::Send],
            message_bytes: 100,
            pacing,
            stop: StopCondition::default(),
            warm_up: StopCondition::default(),
            timeout_ns: u64::MAX,
            wait: WaitMode::Block,
            cpu: None,
            socket: SocketSettings::default(),
            evidence: false,
            lead_in_ns: 0,
            series_interval_ns: 0,
            time_of_day: false,
            alive_interval_ns: 0,
        }
    }

    #[test]
    fn a_challenge_is_used_once_and_then_forgotten() {
        let mut used = UsedChallenges::default();
        assert!(used.try_use([1; CHALLENGE_BYTES], 5));
        assert!(!used.try_use([1; CHALLENGE_BYTES], 5 + CHALLENGE_LIFETIME_S));
        assert!(used.try_use([2; CHALLENGE_BYTES], 6 + CHALLENGE_LIFETIME_S));
        assert_eq!(used.by_age.len(), 1, "the first holds no longer anyhow");
        for number in 0..2 * MAX_USED_CHALLENGES as u128 {
            assert!(used.try_use(number.to_be_bytes(), 50));
        }
        assert!(used.by_age.len() <= MAX_USED_CHALLENGES && used.challenges.len() == used.by_age.len());
    }

    #[test]
    fn one_client_cannot_busy_poll_on_all_cpus_of_the_server() {
        let registry = SessionRegistry {
            busy_poll_slots: BusyPollSlots::new(4),
            ..SessionRegistry::new(&Arc::new(ServerConfig::default()))
        };
        let busy = |flows| ServerPlan {
            flows: vec![FlowKind::Reflect; flows],
            wait: WaitMode::BusyPoll,
            ..plan(Pacing::Closed)
        };
        let [blocking, first, second] = [(); 3].map(|()| registry.open(None).unwrap());
        assert_eq!(blocking.set_plan(plan(Pacing::Closed), &Caps::STREAM), Ok(0));
        assert_eq!(first.set_plan(busy(2), &Caps::STREAM), Ok(2));
        assert_eq!(second.set_plan(busy(2), &Caps::STREAM), Ok(1), "one CPU of four stays free");
        let waits = [0, 1].map(|flow| second.claim_flow(flow, &Caps::STREAM).unwrap().2.wait);
        assert_eq!(waits, [WaitMode::BusyPoll, WaitMode::Block]);
        registry.sessions().remove(&first.id);
        drop(first);
        let next = registry.open(None).unwrap();
        assert_eq!(next.set_plan(busy(2048), &Caps::STREAM), Ok(2), "an ended session returns its slots");
        // A single CPU is enough for one flow.
        assert_eq!(BusyPollSlots::new(1).take(&busy(9)).count, 1);
    }

    #[test]
    fn plans_take_bounded_memory() {
        let limits = ServerLimits { sessions: 100, flows: 1000, ..ServerLimits::default() };
        let registry = SessionRegistry::new(&Arc::new(ServerConfig { limits, ..ServerConfig::default() }));
        let wide = ServerPlan { flows: vec![FlowKind::Send; 1000], ..plan(Pacing::Closed) };
        let [first, second] = [(); 2].map(|()| registry.open(None).unwrap());
        assert!(first.set_plan(wide.clone(), &Caps::STREAM).is_ok());
        let others: Vec<_> = (1..4).map(|_| registry.open(None).unwrap()).collect();
        assert!(others.iter().all(|session| session.set_plan(wide.clone(), &Caps::STREAM).is_ok()));
        let refused = second.set_plan(wide.clone(), &Caps::STREAM).unwrap_err();
        assert!(refused.0.contains("may have 4064 connections"), "{refused}");
        registry.sessions().remove(&first.id);
        drop(first);
        assert!(second.set_plan(wide, &Caps::STREAM).is_ok(), "an ended session returns its flows");
    }

    #[test]
    fn a_broken_flow_frees_its_slot() {
        let registry = SessionRegistry::new(&Arc::new(ServerConfig::default()));
        let session = registry.open(None).unwrap();
        session
            .set_plan(ServerPlan { flows: vec![FlowKind::Send; 3], ..plan(Pacing::Closed) }, &Caps::STREAM)
            .unwrap();
        assert!(session.set_plan(plan(Pacing::Closed), &Caps::STREAM).is_err(), "once");
        let (_, _, broken) = session.claim_flow(1, &Caps::STREAM).unwrap();
        let (_, _, honest) = session.claim_flow(2, &Caps::STREAM).unwrap();
        assert!(session.claim_flow(1, &Caps::STREAM).is_none());
        honest.set_moved_bytes(70, 60, Some(Time(1_000)));
        assert_eq!(session.moved_bytes(), 70);
        let sent = MovedBytes { sent_bytes: Some(60), ..MovedBytes::default() };
        assert_eq!(session.measured_bytes(Time(5_000)), sent, "only receivers have a receiving time");
        let late = session.claim_flow(0, &Caps::STREAM).unwrap().2;
        late.record_end(FlowReport { began_ns: Some(1_007), ..FlowReport::default() }, FlowCost::default());
        drop(late);
        let cost = FlowCost { cpu_seconds: 0.5, evidence: None };
        honest.record_end(FlowReport { bytes: 70, began_ns: Some(1_000), ..FlowReport::default() }, cost);
        drop(honest);
        assert!(session.has_running_flows());
        // As after a panic of its thread.
        drop(broken);
        assert!(!session.has_running_flows());
        let report = session.report_from(0, usize::MAX);
        assert_eq!(report.flows[1].fault.as_deref(), Some(BROKEN_OFF));
        assert_eq!((report.flows[2].bytes, &report.flows[2].fault), (70, &None));
        assert_eq!(report.cpu_seconds, Some(0.5));
        assert_eq!([0, 1, 2].map(|flow| report.flows[flow].began_ns), [Some(7), None, Some(0)]);
        // In parts with at least one flow each.
        assert_eq!(session.report_from(1, 0).flows, report.flows[1..2]);
        assert_eq!(session.report_from(3, 1000).flows, []);
    }
}
