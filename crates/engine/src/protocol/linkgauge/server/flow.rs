//! The server side of a flow: a workload's party that begins and ends with its session.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::flow_party::FlowParty;
use super::message_link::{MessageAction, MessageLinkState};
use super::session::{FlowCost, FlowSlot, STAGE_CUT, STAGE_MEASURING};
use crate::host::evidence::ThreadCounters;
use crate::link::party::{CostDetail, Party, PartyCost, Step, StopReason};
use crate::link::shared_thread::Waker;
use crate::link::{Caps, Fault, Framing, Link};
use crate::protocol::linkgauge::evidence;
use crate::protocol::linkgauge::wire::ServerPlan;
use crate::protocol::{MAX_RECOVERY_FACTOR, MemoryCharge, ServerLimits};
use crate::workload::throughput::{overtime, planned_time};
use crate::workload::{FlowReport, ReceivedSeries};
use linkgauge_model::clock::Time;

/// Interval between checks of the session's state while a flow waits for it.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time within which a reflecting flow notices the end of the case.
const END_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Check interval where a sweep of the thread lets the flow check at once: otherwise thousands of idle flows keep a CPU busy.
const SWEPT_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of a session's flows that poll; more flows are swept, if they share threads.
const MAX_POLLING_FLOWS: u32 = 32;

/// Minimum interval between checks over all flows of a session, so that a thousand waiting flows use little CPU.
const MIN_SESSION_POLL_INTERVAL: Duration = Duration::from_micros(100);

/// The server side of a flow: a workload's party that begins and ends with the session; or an echo.
pub(crate) struct ServerFlow {
    party: FlowParty,
    attachment: Option<Attachment>,
    /// Time when the inner party times out; its receive is split into shorter ones.
    deadline: Time,
    has_begun: bool,
    /// The server's limit on this flow, and when the flow began to count against it.
    max_duration: Duration,
    began_at: Option<Time>,
    /// Total bytes of all flows of the session when this one last began to wait.
    moved_by_all: u64,
    fault: Option<String>,
    /// Start time of the flow, once the session has started.
    starts_at: Option<Time>,
    /// The flow has its final thread.
    is_tuned: bool,
    /// The counters of the thread are still to be read, when the flow begins.
    reads_thread: bool,
    /// The counters of the flow's thread when it began, if the client asked for evidence.
    thread_before: Option<ThreadCounters>,
    /// Charge of an echo; a session has charged its flows.
    _memory: Option<MemoryCharge>,
}

/// Connects a flow to its session.
pub(crate) struct Attachment {
    pub(crate) slot: FlowSlot,
    /// State on links with message boundaries only. Boxed, because a server holds thousands of flows without it.
    pub(crate) messages: Option<Box<MessageLinkState>>,
    /// Whether others need the count of its bytes: the count is of no use for round trips, and costs time in each of them.
    pub(crate) counts_bytes: bool,
    /// Number of flows of the session: the more, the less often each checks.
    pub(crate) session_flows: u32,
    /// The flow shares a thread, which the session sweeps when its state changes. It may leave the thread when it is tuned.
    pub(crate) is_swept: bool,
    /// The link has no connections, so received data shows that the client is running.
    pub(crate) is_connectionless: bool,
    /// The client asked for evidence, and this is one of the flows that show it.
    pub(crate) wants_evidence: bool,
    /// Time from the start of the session in which the flow waits.
    pub(crate) lead_in: Duration,
    /// The client asked for what this flow received over time.
    pub(crate) wants_series: bool,
}

impl Attachment {
    /// Time when a sender that has not begun checks again whether it may; `starts_at` is known once the session has started.
    fn next_start_check(&self, starts_at: Option<Time>, now: Time) -> Time {
        match starts_at {
            Some(starts_at) => starts_at.min(now + self.poll_interval(END_POLL_INTERVAL)),
            None => now + self.poll_interval(POLL_INTERVAL),
        }
    }

    /// Interval between checks of the session's state.
    fn poll_interval(&self, least: Duration) -> Duration {
        if self.is_swept {
            return SWEPT_POLL_INTERVAL;
        }
        least.max(MIN_SESSION_POLL_INTERVAL * self.session_flows)
    }
}

/// Whether client and server learn about each other only by messages.
pub(crate) fn is_connectionless(caps: &Caps) -> bool {
    caps.framing == Framing::Message && !caps.can_signal_close
}

/// The longest time that a server allows a flow of this plan. Only a planned time may be exceeded, for the last bytes.
pub(crate) fn max_duration(plan: &ServerPlan, limits: &ServerLimits) -> Duration {
    let planned = planned_time(plan.stop, plan.warm_up);
    let extra = planned.map_or(Duration::ZERO, |planned| overtime(planned, plan.flows.len() as u32));
    // The client's probes continue for a while.
    let around = plan.lead_in() * (1 + MAX_RECOVERY_FACTOR);
    Duration::from_secs(limits.duration_s).saturating_add(extra).saturating_add(around)
}

impl ServerFlow {
    pub fn new(role: FlowParty, task: Option<Attachment>, max_duration: Duration) -> ServerFlow {
        let reads_thread = task.as_ref().is_some_and(|task| task.wants_evidence);
        ServerFlow {
            max_duration,
            began_at: None,
            party: role,
            attachment: task,
            deadline: Time::NEVER,
            has_begun: false,
            moved_by_all: 0,
            starts_at: None,
            fault: None,
            is_tuned: false,
            reads_thread,
            thread_before: None,
            _memory: None,
        }
    }

    /// Holds this charge until it ends.
    pub(crate) fn with_memory(self, memory: MemoryCharge) -> ServerFlow {
        ServerFlow { _memory: Some(memory), ..self }
    }

    /// Whether this receiver continues after its timeout: other flows of the session have moved data, so the client is
    /// running. With a thousand threads, some get no CPU for seconds.
    fn waits_on(&mut self, now: Time) -> bool {
        let (FlowParty::Receive(sink), Some(task)) = (&mut self.party, &self.attachment) else {
            return false;
        };
        let moved = task.slot.session.moved_bytes();
        if sink.may_end_in_silence() || std::mem::replace(&mut self.moved_by_all, moved) == moved {
            return false;
        }
        sink.start_waiting(now);
        true
    }

    /// Time when a flow that waits for input checks its session and its limit.
    fn next_look(&self, began_at: Time, now: Time) -> Time {
        let interval =
            self.attachment.as_ref().map_or(END_POLL_INTERVAL, |task| task.poll_interval(END_POLL_INTERVAL));
        (now + interval).min(began_at + self.max_duration + POLL_INTERVAL)
    }

    /// Lets the session count the bytes of this flow.
    #[inline]
    fn show_moved_bytes(&self) {
        if let Some(task) = self.attachment.as_ref().filter(|task| task.counts_bytes) {
            let (measured, first) = self
                .party
                .recorder()
                .map_or((0, None), |recorder| (recorder.counts.delivered_bytes, recorder.first_instant));
            task.slot.set_moved_bytes(self.party.moved_bytes(), measured, first);
        }
    }

    fn exceed_limit(&mut self) -> Step<'static> {
        let reason = StopReason::TooLong.message();
        self.fault = Some(reason.to_owned());
        Step::Fail(Fault::LimitReached(reason.to_owned()))
    }

    fn has_started(&mut self, now: Time) -> bool {
        let Some(task) = &self.attachment else { return true };
        // Round trips measure the idle link in that time.
        let lead_in = match self.party {
            FlowParty::Reflect(_) | FlowParty::ReflectStamped(_) => Duration::ZERO,
            _ => task.lead_in,
        };
        let has_started = task.slot.session.has_started.load(Relaxed);
        has_started && now >= *self.starts_at.get_or_insert(now + lead_in)
    }

    /// Whether the session ends this flow. A receiver that has started ends by itself, unless it is cut off.
    fn must_end(&mut self, now: Time) -> bool {
        let started = self.has_started(now);
        let ending = self.attachment.as_ref().map_or(STAGE_MEASURING, |task| task.slot.session.stage());
        ending != STAGE_MEASURING && (ending == STAGE_CUT || !self.party.is_receiver() || !started)
    }
}

impl Party for ServerFlow {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        let started = self.has_started(now);
        if self.must_end(now) {
            return Step::Done;
        }
        let began_at = *self.began_at.get_or_insert(now);
        if now.since(began_at) > self.max_duration {
            return self.exceed_limit();
        }
        let look_at = self.next_look(began_at, now);
        if let Some(task) = &mut self.attachment {
            let must_wait = !started && matches!(self.party, FlowParty::Send(_));
            let start_check = must_wait.then(|| task.next_start_check(self.starts_at, now));
            let also = || Time(task.slot.session.last_heard_ns.load(Relaxed));
            match (task.messages.as_deref_mut(), start_check) {
                (Some(messages), start_check) => match messages.next_action(start_check, now, also) {
                    MessageAction::Go => {}
                    MessageAction::RepeatReply => {
                        return Step::Send { bytes: &messages.reply, message: messages.reply.len() };
                    }
                    MessageAction::Listen(until) => {
                        return Step::Receive { into: &mut messages.batch, until };
                    }
                    MessageAction::Sleep(until) => return Step::Sleep(until),
                    MessageAction::Fail(reason) => {
                        self.fault = Some(reason.to_owned());
                        return Step::Fail(Fault::NoReply(reason.to_owned()));
                    }
                },
                (None, Some(start_check)) => return Step::Sleep(start_check),
                (None, None) => {}
            }
        }
        if started && !self.has_begun {
            self.has_begun = true;
            if let FlowParty::Receive(sink) = &mut self.party {
                sink.start_waiting(now);
            }
        }
        if self.reads_thread && started && self.is_tuned {
            self.reads_thread = false;
            self.thread_before = Some(ThreadCounters::now());
        }
        match self.party.as_party().next_step(now) {
            Step::Tune(tuning) => {
                self.is_tuned = true;
                Step::Tune(tuning)
            }
            Step::Receive { into, until } => {
                self.deadline = until;
                Step::Receive { into, until: until.min(look_at) }
            }
            Step::Fail(fault) => {
                self.fault = Some(fault.to_string());
                Step::Fail(fault)
            }
            step => step,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        let messages = self.attachment.as_mut().and_then(|task| task.messages.as_deref_mut());
        if messages.is_some_and(|messages| std::mem::take(&mut messages.must_repeat_reply)) {
            return;
        }
        self.party.as_party().on_sent(bytes, at);
        self.show_moved_bytes();
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        if let Some(task) = &mut self.attachment
            && let Some(messages) = &mut task.messages
        {
            if messages.is_for_session(self.party.batch(), now) {
                return;
            }
            if task.is_connectionless {
                task.slot.session.last_heard_ns.store(now.0, Relaxed);
            }
        }
        self.party.as_party().on_received(now);
        self.show_moved_bytes();
    }

    fn on_timeout(&mut self, now: Time) {
        if now >= self.deadline && self.has_begun && !self.waits_on(now) {
            self.party.as_party().on_timeout(now);
        }
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.party.as_party().on_send_blocked(now, unacknowledged);
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.party.as_party().on_closed(now)
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        self.party.as_party().on_tuned(link);
        if let Some(task) = &mut self.attachment {
            task.is_swept = false;
            if task.wants_evidence {
                task.slot.observe(link);
            }
        }
    }

    fn on_shared(&mut self, waker: &Waker) {
        // A sweep concerns the flows of other sessions as well, so a few flows look by themselves.
        if let Some(task) = self.attachment.as_mut().filter(|task| task.session_flows > MAX_POLLING_FLOWS) {
            task.slot.session.flow_threads.add(waker);
            task.is_swept = true;
        }
    }

    fn on_stopped(&mut self, reason: StopReason) {
        self.fault = Some(reason.message().to_owned());
    }

    /// Links with connections neither lose messages in this host nor count marks.
    fn cost_detail(&self) -> CostDetail {
        match &self.attachment {
            Some(task) if task.wants_evidence => CostDetail::Counters,
            Some(task) if task.is_connectionless => CostDetail::Status,
            _ => CostDetail::Thread,
        }
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.party.as_party().on_ended(cost);
        let mut flow = FlowReport {
            socket_drops: cost.socket_drops,
            marks: cost.marks.map(Box::new),
            cpu: cost.cpu,
            fault: self.fault.take(),
            ..FlowReport::default()
        };
        if let Some(recorder) = self.party.recorder() {
            let counts = &recorder.counts;
            flow = FlowReport {
                bytes: counts.delivered_bytes,
                messages: counts.received,
                head_bytes: recorder.untimed_bytes,
                elapsed_ns: recorder.elapsed_ns(),
                began_ns: recorder.first_instant.map(|first| first.0),
                duplicate: counts.duplicate,
                reordered: counts.reordered,
                corrupt_messages: counts.corrupt_messages,
                warm_up_messages: Some(counts.warm_up),
                series: self
                    .attachment
                    .as_ref()
                    .filter(|task| task.wants_series)
                    .map(|_| Box::new(ReceivedSeries::of(&recorder.time_series))),
                unfinished: self.party.is_unfinished(),
                ..flow
            };
        }
        if let Some(task) = &self.attachment {
            let evidence = self.thread_before.map(|before| {
                // The counters of a shared thread are not those of this flow.
                let thread = match cost.has_shared_thread {
                    true => ThreadCounters::default(),
                    false => ThreadCounters::now().since(&before),
                };
                let mut connection = task.slot.observed(cost.reading.as_ref());
                if !matches!(self.party, FlowParty::Send(_)) {
                    // The window of a connection that only acknowledges shows nothing.
                    connection.series.clear();
                }
                Box::new(evidence::of_flow(connection, thread))
            });
            task.slot.record_end(flow, FlowCost { cpu_seconds: cost.cpu_seconds, evidence });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::link::party::Tuning;
    use crate::link::shared_thread::{Member, SharedThread, ThreadChoice};
    use crate::protocol::ServerConfig;
    use crate::protocol::linkgauge::server::flow_party::FlowGrant;
    use crate::protocol::linkgauge::server::session::SessionRegistry;
    use crate::protocol::linkgauge::wire::FlowKind;
    use linkgauge_model::clock::Clock;
    use linkgauge_model::plan::{Pacing, SocketSettings, StopCondition, WaitMode};

    /// A receiver as one of two flows of a client, and the slot of the other flow.
    fn one_of_two(timeout: Duration) -> (ServerFlow, FlowSlot) {
        let plan = ServerPlan {
            flows: vec![FlowKind::Receive; 2],
            message_bytes: 100,
            pacing: Pacing::Closed,
            stop: StopCondition::default(),
            warm_up: StopCondition::default(),
            timeout_ns: timeout.as_nanos() as u64,
            wait: WaitMode::Block,
            cpu: None,
            socket: SocketSettings::default(),
            evidence: false,
            lead_in_ns: 0,
            series_interval_ns: 0,
            time_of_day: false,
            alive_interval_ns: 0,
        };
        let session = SessionRegistry::new(&Arc::new(ServerConfig::default())).open(None).unwrap();
        session.set_plan(plan, &Caps::STREAM).unwrap();
        let [(kind, plan, place), (_, _, other)] =
            [0, 1].map(|flow| session.claim_flow(flow, &Caps::STREAM).unwrap());
        session.has_started.store(true, Relaxed);
        let limits = ServerLimits::default();
        let task = Attachment {
            slot: place,
            messages: None,
            counts_bytes: true,
            session_flows: 2,
            is_swept: false,
            is_connectionless: false,
            wants_evidence: false,
            lead_in: Duration::ZERO,
            wants_series: false,
        };
        let grant = FlowGrant { per_second: None, wait: task.slot.wait };
        let role = FlowParty::new(kind, &plan, grant, &Caps::STREAM, &limits);
        (ServerFlow::new(role, Some(task), Duration::MAX), other)
    }

    #[test]
    fn only_a_planned_time_may_be_exceeded_however_many_flows_a_server_allows() {
        let limits = ServerLimits { duration_s: 3, flows: 2048, ..ServerLimits::default() };
        let longest = |stop: StopCondition, flows: usize| {
            let plan = ServerPlan {
                flows: vec![FlowKind::Receive; flows],
                message_bytes: 1000,
                pacing: Pacing::Closed,
                stop,
                warm_up: StopCondition::default(),
                timeout_ns: 1,
                wait: WaitMode::Block,
                cpu: None,
                socket: SocketSettings::default(),
                evidence: false,
                lead_in_ns: 0,
                series_interval_ns: 0,
                time_of_day: false,
                alive_interval_ns: 0,
            };
            max_duration(&plan, &limits)
        };
        let seconds = Duration::from_secs;
        assert_eq!(longest(StopCondition::default(), 1), seconds(3));
        assert_eq!(longest(StopCondition::default(), 2048), seconds(3));
        assert_eq!(longest(StopCondition::after_time(seconds(3)), 1), seconds(6));
    }

    #[test]
    fn a_flow_without_end_is_ended_at_its_limit() {
        let (flow, _other) = one_of_two(Duration::from_secs(1000));
        let mut flow = ServerFlow { max_duration: Duration::from_secs(3), ..flow };
        let ends = (0u64..).find(|&second| {
            let now = Time(second * 1_000_000_000);
            matches!(flow.next_step(now), Step::Fail(Fault::LimitReached(why)) if why == StopReason::TooLong.message())
        });
        assert_eq!(ends, Some(4));
    }

    /// Thousands of idle flows would keep a CPU busy with looks at their session.
    #[test]
    fn a_flow_in_a_shared_thread_waits_for_the_sweep_of_its_session() {
        let thread = SharedThread::<NoMember>::new(&Clock::System, 0).unwrap();
        let (mut flow, other) = one_of_two(Duration::from_secs(1000));
        let until = |flow: &mut ServerFlow| match flow.next_step(Time(0)) {
            Step::Receive { until, .. } => until,
            _ => panic!("it receives"),
        };
        assert!(matches!(flow.next_step(Time(0)), Step::Tune(_)));
        flow.on_shared(&thread.waker());
        assert_eq!(until(&mut flow), Time(0) + END_POLL_INTERVAL, "few flows");
        flow.attachment.as_mut().unwrap().session_flows = 100;
        flow.on_shared(&thread.waker());
        assert_eq!(until(&mut flow), Time(0) + SWEPT_POLL_INTERVAL);
        assert!(!thread.waker().has_sweep());
        other.session.advance_stage(STAGE_CUT);
        assert!(thread.waker().has_sweep());
        assert!(matches!(flow.next_step(Time(0)), Step::Done));
    }

    struct NoMember;

    impl Member for NoMember {
        fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
            unreachable!("there is none")
        }

        fn place(&mut self, _tuning: &Tuning) -> Result<ThreadChoice, Fault> {
            Ok(ThreadChoice::Leave)
        }
    }

    #[test]
    fn a_receiver_waits_as_long_as_other_flows_of_its_client_move() {
        let (mut receiver, other) = one_of_two(Duration::from_secs(5));
        let fails = (0u64..).find(|&seconds| {
            let now = Time(seconds * 1_000_000_000);
            // The other flow receives data every second for 20 s.
            other.set_moved_bytes(100 * seconds.min(20), 0, None);
            loop {
                match receiver.next_step(now) {
                    Step::Tune(_) => {}
                    Step::Receive { .. } => break receiver.on_timeout(now),
                    Step::Fail(fault) => return matches!(fault, Fault::TimedOut),
                    _ => panic!("it receives"),
                }
            }
            false
        });
        // The receiver waits from 20 to 25, and then one timeout without data on any flow.
        assert_eq!(fails, Some(26));
    }
}
