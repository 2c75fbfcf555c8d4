//! The far end of a flow: a workload's party on a leash, so that no client gets more than the server grants.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::session::{CUT, GOES_ON, Place};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::peer::leash::Leash;
use crate::peer::linkgauge::wire::{FarPlan, FlowKind, SHORT};
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

/// All flows of a session together look around at most once in this time: a thousand that wait leave the CPU alone.
const LOOK_OF_ALL: Duration = Duration::from_micros(100);

/// The far end of a flow: a workload's party that begins and ends with the session; or an echo for a stranger.
pub struct FarData {
    role: Role,
    leash: Leash,
    task: Option<Task>,
    /// Instant at which the inner party gives up, when it is asked in smaller steps.
    gives_up: Time,
    begun: bool,
    /// Bytes that all flows of the session had moved when this one last began to wait.
    moved_by_all: u64,
    fault: Option<String>,
}

/// What ties a flow to its session.
pub struct Task {
    pub place: Place,
    /// On links that lose messages the attach may come again, until something else does.
    pub fresh: bool,
    pub request: Vec<u8>,
    pub reply: Vec<u8>,
    pub repeated: bool,
    /// For a flow that itself receives nothing.
    pub batch: Batch,
    /// How many flows the session has: the more, the less often each looks around.
    pub flows: u32,
    /// Of a flow that sends on a link without connections.
    pub lifeline: Option<Lifeline>,
    /// The link has no connection, so that what comes says that the client is there.
    pub hears: bool,
}

impl Task {
    /// How long to wait for a word, of which nothing but a flag of the session tells.
    fn patience(&self, least: Duration) -> Duration {
        least.max(LOOK_OF_ALL * self.flows)
    }
}

/// Whether a receiver on a link without connections is still there: what is sent to it does not say so.
pub struct Lifeline {
    sign: [u8; SHORT],
    heard: Option<Time>,
    looks: Time,
}

/// A sender stops when it has heard nothing for so long; receivers say that they are there some ten times within that.
const SILENCE: Duration = Duration::from_secs(2);

/// A sender that is busy looks for signs of life this often.
const LOOK_FOR_SIGNS: Duration = Duration::from_millis(50);

/// What a lifeline says of a receiver.
enum Life {
    Fine,
    /// Nothing may be sent before it was heard; or it is time to look, without waiting.
    Listen(Time),
    Gone,
}

impl Lifeline {
    pub fn new(sign: [u8; SHORT]) -> Lifeline {
        Lifeline { sign, heard: None, looks: Time(0) }
    }

    /// `also` is when the client was heard elsewhere.
    fn at(&mut self, now: Time, also: Time) -> Life {
        let Some(heard) = self.heard else { return Life::Listen(now + LOOK_FOR_SIGNS) };
        if now >= self.looks {
            self.looks = now + LOOK_FOR_SIGNS;
            return Life::Listen(now);
        }
        if now.since(heard.max(also)) > SILENCE { Life::Gone } else { Life::Fine }
    }

    fn received(&mut self, batch: &Batch, now: Time) {
        if batch.messages().any(|message| message == self.sign) {
            self.heard = Some(now);
        }
        // More may lie there.
        self.looks = now;
    }
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
        pacing: per_second.map_or(plan.pacing, |per_second| Pacing::Fixed { per_second }),
        stop: plan.stop,
        warm_up: Some(plan.warm_up),
        timeout: Duration::from_nanos(plan.timeout_ns),
        wait: plan.wait,
        ..far_case(plan.message_bytes)
    }
}

/// Whether the ends of such a link learn nothing of each other but by messages.
pub fn has_no_connection(caps: &Caps) -> bool {
    caps.framing == Framing::Message && !caps.closes
}

impl FarData {
    pub fn new(role: Role, leash: Leash, task: Option<Task>) -> FarData {
        FarData { role, leash, task, gives_up: Time::NEVER, begun: false, moved_by_all: 0, fault: None }
    }

    /// Whether this receiver goes on waiting although nothing came for its time-out: other flows of the session moved
    /// meanwhile, so the client is there. Of a thousand threads some get no CPU for seconds.
    fn waits_on(&mut self, now: Time) -> bool {
        let (Role::Receive(sink), Some(task)) = (&mut self.role, &self.task) else { return false };
        let moved = task.place.session.moved();
        if sink.may_end_in_silence() || std::mem::replace(&mut self.moved_by_all, moved) == moved {
            return false;
        }
        sink.wait_from(now);
        true
    }

    fn started(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.place.session.started.load(Relaxed))
    }

    fn ends(&self, started: bool) -> bool {
        let ending = self.task.as_ref().map_or(GOES_ON, |task| task.place.session.ending());
        let is_receiver = matches!(self.role, Role::Receive(_));
        ending != GOES_ON && (ending == CUT || !is_receiver || !started)
    }
}

impl Party for FarData {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        let started = self.started();
        if self.ends(started) {
            return Step::Done;
        }
        if let Some(reason) = self.leash.ends(now, self.role.bytes()) {
            self.fault = Some(reason.to_owned());
            return Step::Fail(Fault::Other(reason.to_owned()));
        }
        let notice = self.task.as_ref().map_or(NOTICE, |task| task.patience(NOTICE));
        if let Some(task) = &mut self.task {
            if task.repeated {
                return Step::Send { bytes: &task.reply, message: task.reply.len() };
            }
            if !started && matches!(self.role, Role::Send(_)) {
                let until = now + task.patience(LOOK);
                return match task.fresh {
                    true => Step::Receive { into: &mut task.batch, until },
                    false => Step::Sleep(until),
                };
            }
            let also = Time(task.place.session.heard_ns.load(Relaxed));
            match task.lifeline.as_mut().map_or(Life::Fine, |lifeline| lifeline.at(now, also)) {
                Life::Fine => {}
                Life::Listen(until) => return Step::Receive { into: &mut task.batch, until },
                Life::Gone => {
                    let reason = "the client gave no sign of life";
                    self.fault = Some(reason.to_owned());
                    return Step::Fail(Fault::Other(reason.to_owned()));
                }
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
                Step::Receive { into, until: until.min(now + notice) }
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
        if let Some(task) = &self.task {
            task.place.moved(self.role.bytes());
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        if let Some(task) = &mut self.task {
            let batch = self.role.batch().unwrap_or(&task.batch);
            if task.fresh {
                task.repeated = batch.messages().any(|message| message == task.request.as_slice());
                if task.repeated {
                    return;
                }
                task.fresh = false;
            }
            if let Some(lifeline) = &mut task.lifeline {
                lifeline.received(batch, now);
                return;
            }
            if task.hears {
                task.place.session.heard_ns.store(now.0, Relaxed);
            }
        }
        self.role.party().received(now);
        if let Some(task) = &self.task {
            task.place.moved(self.role.bytes());
        }
    }

    fn timed_out(&mut self, now: Time) {
        if now >= self.gives_up && self.begun && !self.waits_on(now) {
            self.role.party().timed_out(now);
        }
    }

    fn waits(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.role.party().waits(now, unacknowledged);
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
                warm_up_messages: Some(counts.warm_up),
                unfinished: matches!(&self.role, Role::Receive(sink) if !sink.has_seen_end()),
                ..flow
            };
        }
        if let Some(task) = &self.task {
            task.place.end(flow, cost.cpu_seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::peer::ServerFacts;
    use crate::peer::linkgauge::far::session::Registry;
    use crate::plan::{Stop, Wait};

    /// A receiver among two flows of a client, and the place of the other one.
    fn one_of_two(timeout: Duration) -> (FarData, Place) {
        let plan = FarPlan {
            flows: vec![FlowKind::Receive; 2],
            message_bytes: 100,
            pacing: Pacing::Closed,
            stop: Stop::default(),
            warm_up: Stop::default(),
            timeout_ns: timeout.as_nanos() as u64,
            wait: Wait::Block,
            cpu: None,
        };
        let session = Registry::new(&Arc::new(ServerFacts::default())).open(None).unwrap();
        session.set_plan(plan).unwrap();
        let [(kind, plan, place), (_, _, other)] = [0, 1].map(|flow| session.take(flow).unwrap());
        session.started.store(true, Relaxed);
        let limits = Limits::default();
        let task = Task {
            place,
            fresh: false,
            request: Vec::new(),
            reply: Vec::new(),
            repeated: false,
            batch: Batch::new(2 * SHORT, 1),
            flows: 2,
            lifeline: None,
            hears: false,
        };
        let role = Role::new(kind, &plan, None, &Caps::STREAM, &limits);
        (FarData::new(role, Leash::new(&limits, 2, Duration::ZERO), Some(task)), other)
    }

    #[test]
    fn a_receiver_waits_as_long_as_other_flows_of_its_client_move() {
        let (mut receiver, other) = one_of_two(Duration::from_secs(5));
        let fails = (0u64..).find(|&seconds| {
            let now = Time(seconds * 1_000_000_000);
            // The other flow gets something every second, for twenty.
            other.moved(100 * seconds.min(20));
            loop {
                match receiver.next(now) {
                    Step::Tune(_) => {}
                    Step::Receive { .. } => break receiver.timed_out(now),
                    Step::Fail(fault) => return matches!(fault, Fault::TimedOut),
                    _ => panic!("it receives"),
                }
            }
            false
        });
        // It waits from 20 to 25, and then once without a word from anyone.
        assert_eq!(fails, Some(26));
    }

    #[test]
    fn nothing_is_sent_to_a_receiver_before_it_was_heard_nor_after_it_fell_silent() {
        let mut lifeline = Lifeline::new([7; SHORT]);
        let at = |milliseconds: u64| Time(milliseconds * 1_000_000);
        let mut sign = Batch::new(2 * SHORT, 1);
        sign.bytes[..SHORT].fill(7);
        sign.push(0, SHORT);
        let mut strange = Batch::new(2 * SHORT, 1);
        strange.push(0, SHORT);
        lifeline.received(&strange, at(0));
        for now in [0, 1000, 100_000] {
            assert!(matches!(lifeline.at(at(now), Time(0)), Life::Listen(until) if until > at(now)));
        }
        lifeline.received(&sign, at(100_000));
        // It looks without waiting, and sends in between.
        assert!(matches!(lifeline.at(at(100_000), Time(0)), Life::Listen(until) if until == at(100_000)));
        assert!(matches!(lifeline.at(at(100_001), Time(0)), Life::Fine));
        let mut ends = |from: u64, also: Time| {
            (from..from + 10_000).find(|now| matches!(lifeline.at(at(*now), also), Life::Gone))
        };
        assert_eq!(ends(100_002, at(101_000)), Some(103_001), "it was heard elsewhere");
        assert_eq!(ends(101_000, Time(0)), Some(102_001));
    }
}
