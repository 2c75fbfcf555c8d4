//! The far end of a flow: a workload's party on a leash, so that no client gets more than the server grants.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::session::{FarSession, FlowState};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault};
use crate::peer::leash::Leash;
use crate::peer::linkgauge::wire::{FarPlan, FlowKind};
use crate::peer::{Limits, echo, far_case};
use crate::plan::{Case, Pacing};
use crate::sample::Recorder;
use crate::workload::latency::Reflector;
use crate::workload::throughput::{Sink, Source};
use crate::workload::{FarFlow, Measured};

/// A far end that waits for a word of the session looks for it this often.
const LOOK: Duration = Duration::from_millis(2);

/// A flow that reflects notices the end of the case within this time.
const NOTICE: Duration = Duration::from_millis(100);

/// The far end of a flow: a workload's party that begins and ends with the session; or an echo for a stranger.
pub struct FarData {
    pub role: Role,
    pub leash: Leash,
    pub task: Option<Task>,
    /// Instant at which the inner party gives up, when it is asked in smaller steps.
    pub gives_up: Time,
    pub begun: bool,
    pub fault: Option<String>,
}

/// What ties a flow to its session.
pub struct Task {
    pub session: Arc<FarSession>,
    pub flow: usize,
    /// On links that lose messages the attach may come again, until something else does.
    pub fresh: bool,
    pub request: Vec<u8>,
    pub reply: Vec<u8>,
    pub repeated: bool,
    /// For a flow that itself receives nothing.
    pub batch: Batch,
}

pub enum Role {
    Reflect(Reflector),
    Receive(Box<Sink>),
    Send(Box<Source>),
}

impl Role {
    pub fn new(
        kind: FlowKind,
        plan: &FarPlan,
        per_second: Option<f64>,
        caps: &Caps,
        limits: &Limits,
    ) -> Role {
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
    pub fn party(&mut self) -> &mut dyn Party {
        match self {
            Role::Reflect(party) => party,
            Role::Receive(party) => party.as_mut(),
            Role::Send(party) => party.as_mut(),
        }
    }

    /// Bytes moved so far.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Role::Reflect(party) => party.returned(),
            Role::Receive(party) => party.position(),
            Role::Send(party) => party.position(),
        }
    }

    /// What came last; nothing on a flow that only sends.
    pub fn batch(&self) -> Option<&Batch> {
        match self {
            Role::Reflect(party) => Some(party.batch()),
            Role::Receive(party) => Some(party.batch()),
            Role::Send(_) => None,
        }
    }

    pub fn recorder(&self) -> Option<&Recorder> {
        match self {
            Role::Reflect(_) => None,
            Role::Receive(party) => Some(party.recorder()),
            Role::Send(party) => Some(party.recorder()),
        }
    }
}

/// The plan as the workload's parties read it.
pub fn case(plan: &FarPlan, per_second: Option<f64>) -> Case {
    Case {
        pacing: per_second.map_or(plan.pacing, |per_second| Pacing::Fixed { per_second }),
        stop: plan.stop,
        warm_up: Some(plan.warm_up),
        timeout: Duration::from_nanos(plan.timeout_ns),
        wait: plan.wait,
        ..far_case(plan.message_bytes)
    }
}

impl FarData {
    pub fn new(role: Role, leash: Leash, task: Option<Task>) -> FarData {
        FarData { role, leash, task, gives_up: Time::NEVER, begun: false, fault: None }
    }

    pub fn started(&self) -> bool {
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

    fn stopped(&mut self, reason: &'static str) {
        self.fault = Some(reason.to_owned());
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
