//! Runs the flows of a case in parallel: in threads on the system clock, in one thread on the virtual clock. A failed
//! flow never blocks the end of the others.
//!
//! A few flows have a thread each. More flows than threads share them (`link::shared_thread`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use crate::host::cpu;
use crate::host::evidence::ThreadCounters;
use crate::link::counters::LinkProbe;
use crate::link::party::{
    CANCEL_CHECK_INTERVAL, Party, PartyCost, StepMode, StepOutcome, Tuning, drive_with_cost, perform_step,
    pin_thread,
};
use crate::link::serial_line::{PortControl, UartErrors};
use crate::link::shared_thread::{Departure, Member, SharedThread, ThreadChoice};
use crate::link::{Dialer, Fault, Link, LinkError, prefetch};
use crate::protocol::{Flow, IdleTimes, MAX_RECOVERY_FACTOR, ReadyCase};
use crate::workload::{FlowResult, FlowRole};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::run::{EndEvidence, Failure};
use linkgauge_model::sample::LoadWindow;

use super::evidence::{EvidenceRecorder, load_probes};

/// The longest wait for replies to requests that met the load, after its end. A lost request ends earlier, with its timeout.
const MAX_REPLY_WAIT: Duration = Duration::from_secs(5);

/// The longest wait once a later request has its reply as soon as on the idle link: requests that it overtook get no reply.
const OVERTAKEN_WAIT: Duration = Duration::from_millis(500);

/// Times at which the load of a repetition begins and ends, beside probes that also run on the idle link.
#[derive(Debug)]
pub(super) struct LoadTimes {
    /// The idle times of this repetition.
    pub(super) idle: IdleTimes,
    /// Window that is set to the begin and the end of the load.
    pub(super) window: Arc<LoadWindow>,
    /// Time without a reply to a probe after which the remote counts as one that replies no more.
    pub(super) silence: Duration,
}

impl LoadTimes {
    /// Whether the probes may end: the load has ended, the requests that met it have their replies, and its queues are empty
    /// or never will be.
    fn is_over(&self, now: Time, probes: u32) -> bool {
        let end = self.window.end();
        let is_complete = || {
            let has_recovered = self.window.recovered_probes() >= probes;
            let reply_wait = if has_recovered { OVERTAKEN_WAIT } else { MAX_REPLY_WAIT };
            now >= end + self.idle.after
                && (self.window.is_answered() || now >= end + reply_wait)
                && (has_recovered || now >= self.latest_end())
        };
        end != Time::NEVER && (now >= self.silent_at() || is_complete())
    }

    /// Time from which on the remote counts as one that replies no more.
    fn silent_at(&self) -> Time {
        self.window.last_reply() + self.silence
    }

    fn latest_end(&self) -> Time {
        self.window.end() + self.idle.after * MAX_RECOVERY_FACTOR
    }
}

fn probe_count<'a>(flows: impl Iterator<Item = &'a Flow>) -> u32 {
    flows.filter(|flow| flow.role == FlowRole::Probe).count() as u32
}

/// Results of the flows of a repetition.
pub(super) struct RanFlows {
    pub(super) flows: Vec<FlowResult>,
    pub(super) links: Vec<Box<dyn Link>>,
    /// Duration of the load.
    pub(super) elapsed: Duration,
    /// The number of threads, if flows shared them.
    pub(super) shared_threads: Option<usize>,
    /// Evidence; absent on the virtual clock, on which the system counts nothing that belongs to the run.
    pub(super) evidence: Option<EndEvidence>,
}

/// Starts the flows together and runs them in parallel. Calls `tick` every interval with the time since the begin of the load, and
/// the sent bytes that TCP has not delivered. If it returns true, the server is lost, and all flows end.
pub(super) fn run_flows(
    mut flows: Vec<Flow>,
    dialer: &Dialer,
    case: &ReadyCase,
    times: &LoadTimes,
    tick: &dyn Fn(Duration, u64) -> bool,
) -> RanFlows {
    let errors_before = errors_of_lines(&mut flows);
    let mut shared_threads = None;
    let (ended, evidence) = match &dialer.clock {
        Clock::Virtual(_) => (run_in_virtual_time(flows, dialer, times), None),
        Clock::System => {
            let groups = thread_groups(&flows, case.threads);
            shared_threads = (groups.len() < flows.len()).then_some(groups.len());
            let ticker = Ticker { interval: case.progress_interval, tick };
            let (ended, evidence) = run_in_threads(flows, groups, dialer, times, &ticker);
            (ended, Some(evidence))
        }
    };
    let elapsed = times.window.end().min(dialer.now()).since(times.window.begin());
    RanFlows { elapsed, shared_threads, evidence, ..results_of(ended, &errors_before, case, dialer.now()) }
}

/// Results of the flows. `errors_before`: earlier errors of their lines; `now`: their end.
pub(super) fn results_of(
    ended: Vec<(Flow, FlowEnd)>,
    errors_before: &[UartErrors],
    case: &ReadyCase,
    now: Time,
) -> RanFlows {
    let mut links = Vec::new();
    let mut flowed = Vec::new();
    for ((mut flow, FlowEnd { cost, thread, result }), before) in ended.into_iter().zip(errors_before) {
        let acknowledged_bytes = acknowledged_bytes(&flow);
        let retransmits = cost.retransmits.or_else(|| flow.link.status().retransmits);
        let is_stalled = matches!(result, Err(Fault::TimedOut));
        let line_errors = line_errors(&mut flow).map(|errors| errors.since(before));
        let last_instant = flow.party.recorder().last_instant;
        let fault = result.err().map(|fault| match (fault, last_instant) {
            (Fault::TimedOut, _) if flow.link.caps().is_serial_device() => Fault::SilentLine,
            (Fault::TimedOut, Some(last)) => Fault::stalled(now.since(last), case.load.timeout),
            (fault, _) => fault,
        });
        let endpoint = &case.endpoints[flow.endpoint_index];
        let error = fault.map(|fault| LinkError::new(endpoint, fault));
        let framing = case.caps[flow.endpoint_index].framing;
        let server = case.protocol.server_hint(endpoint, framing);
        let fault = error.map(|error| Failure::from(error.with_server(server)));
        links.push(flow.link);
        flowed.push(FlowResult {
            role: flow.role,
            endpoint_index: flow.endpoint_index,
            recorder: flow.party.into_recorder(),
            cpu: cost.cpu,
            cpu_seconds: cost.cpu_seconds,
            thread,
            busy_poll_seconds: cost.busy_poll_seconds,
            socket_drops: cost.socket_drops,
            marks: cost.marks,
            acknowledged_bytes,
            retransmits,
            is_stalled,
            line_errors,
            fault,
        });
    }
    // The first flow gets the shared times.
    flowed.iter_mut().rev().for_each(|flow: &mut FlowResult| flow.recorder.end_sharing());
    RanFlows { flows: flowed, links, elapsed: Duration::ZERO, shared_threads: None, evidence: None }
}

/// Errors that the serial ports have counted so far: a link that stayed open has those of earlier repetitions.
pub(super) fn errors_of_lines(flows: &mut [Flow]) -> Vec<UartErrors> {
    flows.iter_mut().map(|flow| line_errors(flow).unwrap_or_default()).collect()
}

/// Errors that the serial port of a flow has counted so far.
fn line_errors(flow: &mut Flow) -> Option<UartErrors> {
    flow.link.port_control().and_then(PortControl::uart_errors)
}

/// Sent payload that the remote system has acknowledged. Only a transport that retransmits still knows that after a
/// failure; elsewhere the queue of a broken link is emptied without a delivery.
fn acknowledged_bytes(flow: &Flow) -> Option<u64> {
    if flow.role != FlowRole::Upload {
        return None;
    }
    let status = flow.link.status();
    let held = status.retransmits.and(status.unacknowledged_bytes)?;
    Some(flow.party.recorder().counts.delivered_bytes.saturating_sub(held))
}

/// Divides the flows among threads: the indices of the flows of each. `threads`: for the loads; by default one thread for
/// each, up to the number of CPUs.
fn thread_groups(flows: &[Flow], threads: Option<u32>) -> Vec<Vec<usize>> {
    // Probes and control messages must not wait for the loads.
    let may_share = |flow: &Flow| {
        let is_load = !matches!(flow.role, FlowRole::Probe | FlowRole::Control);
        is_load && flow.link.caps().descriptor.can_share_thread()
    };
    let (sharing, alone): (Vec<usize>, Vec<usize>) =
        (0..flows.len()).partition(|&index| may_share(&flows[index]));
    let threads =
        threads.map_or_else(|| cpu::current_affinity().len().max(MIN_THREADS), |count| count as usize);
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); threads.clamp(1, sharing.len().max(1))];
    let count = groups.len();
    for (place, index) in sharing.into_iter().enumerate() {
        groups[place % count].push(index);
    }
    groups.retain(|group| !group.is_empty());
    groups.extend(alone.into_iter().map(|index| vec![index]));
    groups
}

/// Minimum number of threads: on a single CPU, too, both directions of a connection have a thread.
const MIN_THREADS: usize = 2;

/// End of a flow: its cost, the counters of the scheduler for its thread, and its result.
pub(super) struct FlowEnd {
    pub(super) cost: PartyCost,
    pub(super) thread: ThreadCounters,
    pub(super) result: Result<(), Fault>,
}

impl FlowEnd {
    /// The thread of the flow panicked.
    pub(super) fn panicked() -> FlowEnd {
        FlowEnd::failed(Fault::Internal(PANIC_REASON.to_owned()))
    }

    fn failed(fault: Fault) -> FlowEnd {
        FlowEnd { cost: PartyCost::default(), thread: ThreadCounters::default(), result: Err(fault) }
    }
}

/// State that the threads of a case share.
struct FlowGroup<'a> {
    /// Gate that opens once all threads are ready. A barrier would wait forever for a thread that could not be started.
    start_gate: RwLock<()>,
    /// Flows other than probes that have not ended.
    running_loads: AtomicUsize,
    /// Whether a load has failed, so the probe shows nothing after the loads.
    has_failed_load: AtomicBool,
    /// Whether the loads have ended, so the probe ends too.
    should_stop_probe: AtomicBool,
    /// Whether all flows must end: a signal arrived, a thread panicked, or the server is lost.
    should_stop: AtomicBool,
    is_server_lost: AtomicBool,
    times: &'a LoadTimes,
    /// Flows that are probes.
    probes: u32,
    cancel: &'a AtomicBool,
    clock: &'a Clock,
}

impl<'a> FlowGroup<'a> {
    pub fn new(flows: &[Flow], dialer: &'a Dialer, times: &'a LoadTimes) -> FlowGroup<'a> {
        let loads = flows.iter().filter(|flow| flow.role != FlowRole::Probe).count();
        FlowGroup {
            start_gate: RwLock::new(()),
            running_loads: AtomicUsize::new(loads),
            has_failed_load: AtomicBool::new(false),
            should_stop_probe: AtomicBool::new(false),
            should_stop: AtomicBool::new(dialer.cancel.load(Relaxed)),
            is_server_lost: AtomicBool::new(false),
            times,
            probes: probe_count(flows.iter()),
            cancel: &dialer.cancel,
            clock: &dialer.clock,
        }
    }

    /// Runs the flows of one thread; returns the end of each, by its index.
    fn run_thread(&self, flows: &[Mutex<Flow>], indices: &[usize]) -> Vec<(usize, FlowEnd)> {
        // The default timer slack delays this thread's timers by up to 50 µs.
        let _ = cpu::set_timer_slack_ns(1);
        // Only one thread uses a flow until it ends.
        let lock = |index: usize| flows[index].lock().unwrap_or_else(PoisonError::into_inner);
        match indices {
            &[index] => {
                drop(self.start_gate.read());
                vec![(index, self.run_flow(&mut lock(index)))]
            }
            _ => {
                let members = indices.iter().map(|&index| SharingFlow {
                    flow: lock(index),
                    index,
                    _guard: self.running_guard(FlowRole::RoundTrip),
                });
                self.run_sharing(members.collect())
            }
        }
    }

    fn running_guard(&self, role: FlowRole) -> RunningFlowGuard<'_> {
        RunningFlowGuard { group: self, is_load: role != FlowRole::Probe }
    }

    /// Runs several flows in this thread.
    fn run_sharing(&self, members: Vec<SharingFlow>) -> Vec<(usize, FlowEnd)> {
        let mut ended = Vec::with_capacity(members.len());
        let mut departed = Vec::with_capacity(members.len());
        let mut thread = match SharedThread::new(self.clock, members.len()) {
            Ok(thread) => thread,
            Err(fault) => {
                let reason = fault.to_string();
                let failed =
                    |member: &SharingFlow| (member.index, FlowEnd::failed(Fault::Internal(reason.clone())));
                return members.iter().map(failed).collect();
            }
        };
        drop(self.start_gate.read());
        self.wait_for_load();
        let before = ThreadCounters::now();
        members.into_iter().for_each(|member| thread.add(member));
        while !thread.is_empty() {
            if self.should_stop.load(Relaxed) {
                thread.end_all(&mut departed);
            } else {
                thread.turn(CANCEL_CHECK_INTERVAL, &mut departed);
            }
            for departure in departed.drain(..) {
                let Departure::Ended { member, cost, result } = departure else { continue };
                let result = self.or_lost(member.flow.role, result);
                self.has_failed_load.fetch_or(result.is_err(), Relaxed);
                ended
                    .push((member.index, FlowEnd { cost: *cost, thread: ThreadCounters::default(), result }));
            }
        }
        // The counters are those of the thread, so they count once.
        if let Some((_, end)) = ended.first_mut() {
            end.thread = ThreadCounters::now().since(&before);
        }
        ended
    }

    /// Runs one flow in this thread.
    fn run_flow(&self, flow: &mut Flow) -> FlowEnd {
        let _guard = self.running_guard(flow.role);
        let stop = if flow.role == FlowRole::Probe {
            &self.should_stop_probe
        } else {
            self.wait_for_load();
            &self.should_stop
        };
        let before = ThreadCounters::now();
        let (cost, result) =
            drive_with_cost(flow.party.as_mut(), flow.link.as_mut(), self.clock, stop, CANCEL_CHECK_INTERVAL);
        let result = self.or_lost(flow.role, result);
        self.has_failed_load.fetch_or(result.is_err() && flow.role != FlowRole::Probe, Relaxed);
        FlowEnd { cost, thread: ThreadCounters::now().since(&before), result }
    }

    /// The result of a flow: a load whose server is lost has failed.
    fn or_lost(&self, role: FlowRole, result: Result<(), Fault>) -> Result<(), Fault> {
        let is_lost = role != FlowRole::Probe && self.is_server_lost.load(Relaxed);
        result.and(if is_lost { Err(Fault::TimedOut) } else { Ok(()) })
    }

    /// Sleeps until the load begins, unless all flows must end.
    fn wait_for_load(&self) {
        let begin = self.times.window.begin();
        let must_end = || self.should_stop.load(Relaxed) || self.cancel.load(Relaxed);
        while self.clock.now() < begin && !must_end() {
            self.clock.sleep_until((self.clock.now() + CANCEL_CHECK_INTERVAL).min(begin));
        }
    }

    /// Reads the evidence, reports the progress, and ends the flows when they must end, until none is running.
    fn observe(
        &self,
        observed: Vec<LinkProbe>,
        ticker: &Ticker,
        is_running: &dyn Fn() -> bool,
    ) -> EvidenceRecorder {
        self.wait_for_load();
        let LoadTimes { window, .. } = self.times;
        let began = window.begin();
        let mut evidence = EvidenceRecorder::start(observed);
        let mut next = began + ticker.interval;
        while is_running() {
            let now = self.clock.now();
            // Short at first, so that a case of milliseconds does not wait for a tick.
            let wait = Duration::from_millis(50).min(now.since(began) / 4).max(Duration::from_micros(200));
            self.clock.sleep_until((now + wait).min(next).min(began + evidence.next_reading()));
            if self.cancel.load(Relaxed) {
                self.stop_all();
            }
            let now = self.clock.now();
            if now >= next {
                if (ticker.tick)(next.since(began), evidence.held_bytes()) {
                    self.is_server_lost.store(true, Relaxed);
                    self.stop_all();
                }
                next = next + ticker.interval;
            }
            match window.end() {
                Time::NEVER => evidence.read_when_due(now.since(began)),
                end => evidence.stop(end.since(began)),
            }
            if self.times.is_over(now, self.probes) {
                self.should_stop_probe.store(true, Relaxed);
            }
        }
        evidence
    }

    /// Ends all flows within one time slice.
    fn stop_all(&self) {
        self.should_stop.store(true, Relaxed);
        self.should_stop_probe.store(true, Relaxed);
    }
}

/// A flow in a shared thread.
struct SharingFlow<'a> {
    flow: MutexGuard<'a, Flow>,
    index: usize,
    _guard: RunningFlowGuard<'a>,
}

impl Member for SharingFlow<'_> {
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
        let Flow { party, link, .. } = &mut *self.flow;
        (party.as_mut(), link.as_mut())
    }

    fn place(&mut self, tuning: &Tuning) -> Result<ThreadChoice, Fault> {
        // All flows of a case have the same CPU.
        pin_thread(tuning)?;
        Ok(ThreadChoice::Stay(tuning.wait))
    }

    fn prefetch_ends(&self) {
        prefetch(&*self.flow);
    }
}

/// Calls for the display, and how often.
struct Ticker<'a> {
    interval: Duration,
    tick: &'a dyn Fn(Duration, u64) -> bool,
}

/// Notifies the waiting threads when a flow ends, even by a panic.
struct RunningFlowGuard<'a> {
    group: &'a FlowGroup<'a>,
    is_load: bool,
}

impl Drop for RunningFlowGuard<'_> {
    fn drop(&mut self) {
        if self.is_load && self.group.running_loads.fetch_sub(1, Relaxed) == 1 {
            let now = self.group.clock.now();
            self.group.times.window.set_end(now);
            let has_failed = self.group.has_failed_load.load(Relaxed);
            if has_failed || self.group.times.is_over(now, self.group.probes) {
                self.group.should_stop_probe.store(true, Relaxed);
            }
        }
        if std::thread::panicking() {
            self.group.stop_all();
        }
    }
}

fn run_in_threads(
    flows: Vec<Flow>,
    groups: Vec<Vec<usize>>,
    dialer: &Dialer,
    times: &LoadTimes,
    ticker: &Ticker,
) -> (Vec<(Flow, FlowEnd)>, EndEvidence) {
    let clock = &dialer.clock;
    let observed = load_probes(flows.iter());
    let group = FlowGroup::new(&flows, dialer, times);
    let locked: Vec<Mutex<Flow>> = flows.into_iter().map(Mutex::new).collect();
    let (group, flows) = (&group, locked.as_slice());
    let (ended, evidence) = std::thread::scope(|scope| {
        let closed = group.start_gate.write();
        let spawned: Vec<_> = groups
            .iter()
            .map(|indices| Builder::new().spawn_scoped(scope, move || group.run_thread(flows, indices)))
            .collect();
        if spawned.iter().any(Result::is_err) {
            // Some loads will never end, so the probe must be stopped here.
            group.should_stop_probe.store(true, Relaxed);
        }
        times.window.set_begin(clock.now() + times.idle.before);
        drop(closed);
        let is_running = || spawned.iter().flatten().any(|thread| !thread.is_finished());
        let evidence = group.observe(observed, ticker, &is_running);
        (join_all(spawned, &groups, flows.len()), evidence)
    });
    let elapsed = clock.now().since(times.window.begin());
    let evidence = evidence.finish(elapsed, ended.iter().map(|end| end.thread));
    let flows = locked.into_iter().map(|flow| flow.into_inner().unwrap_or_else(PoisonError::into_inner));
    (flows.zip(ended).collect(), evidence)
}

/// The thread of some flows, or why it could not be started.
type FlowThread<'scope> = io::Result<ScopedJoinHandle<'scope, Vec<(usize, FlowEnd)>>>;

/// The end of each flow, in the order of the flows.
fn join_all(threads: Vec<FlowThread>, groups: &[Vec<usize>], flows: usize) -> Vec<FlowEnd> {
    let mut ends: Vec<Option<FlowEnd>> = Vec::new();
    ends.resize_with(flows, || None);
    for (thread, indices) in threads.into_iter().zip(groups) {
        match thread.map(ScopedJoinHandle::join) {
            Ok(Ok(ended)) => ended.into_iter().for_each(|(index, end)| ends[index] = Some(end)),
            Ok(Err(_)) => {}
            Err(source) => {
                for &index in indices {
                    let source =
                        source.raw_os_error().map_or(source.kind().into(), io::Error::from_raw_os_error);
                    let fault = Fault::System { operation: "start a thread", source };
                    ends[index] = Some(FlowEnd::failed(fault));
                }
            }
        }
    }
    ends.into_iter().map(|end| end.unwrap_or_else(FlowEnd::panicked)).collect()
}

/// Fault of a flow whose thread panicked. The panic message has been printed already.
const PANIC_REASON: &str = "a defect of linkgauge ended this flow: report the panic message";

/// Whether a flow that is no probe has failed.
fn has_failed_load(flows: &[Flow], results: &[Option<Result<(), Fault>>]) -> bool {
    let has_failed = |(flow, result): (&Flow, &Option<Result<(), Fault>>)| {
        flow.role != FlowRole::Probe && matches!(result, Some(Err(_)))
    };
    flows.iter().zip(results).any(has_failed)
}

/// Runs all flows in one thread on the virtual clock. Of several ready flows, the first in order runs.
fn run_in_virtual_time(mut flows: Vec<Flow>, dialer: &Dialer, times: &LoadTimes) -> Vec<(Flow, FlowEnd)> {
    let LoadTimes { idle, window, .. } = times;
    let probes = probe_count(flows.iter());
    let begin = dialer.now() + idle.before;
    window.set_begin(begin);
    let mut results: Vec<Option<Result<(), Fault>>> = flows.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        let (mut moved, mut until) = (false, Time::NEVER);
        let loads_over =
            flows.iter().zip(&results).all(|(flow, result)| flow.role == FlowRole::Probe || result.is_some());
        if loads_over && window.end() == Time::NEVER {
            window.set_end(dialer.now());
        }
        let is_over =
            (loads_over && has_failed_load(&flows, &results)) || times.is_over(dialer.now(), probes);
        if loads_over && !is_over {
            let ends = [window.end() + idle.after, window.end() + MAX_REPLY_WAIT, times.latest_end()];
            let next = ends.into_iter().find(|end| *end > dialer.now()).unwrap_or(until);
            until = next.min(times.silent_at());
        }
        for (flow, result) in flows.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            let mut now = dialer.now();
            let is_probe = flow.role == FlowRole::Probe;
            if dialer.cancel.load(Relaxed) || (is_over && is_probe) {
                *result = Some(Ok(()));
            } else if now < begin && !is_probe {
                until = until.min(begin);
            } else {
                match perform_step(
                    flow.party.as_mut(),
                    flow.link.as_mut(),
                    &dialer.clock,
                    &mut now,
                    StepMode::Blocking(Duration::ZERO),
                ) {
                    Ok(StepOutcome::Done) => *result = Some(Ok(())),
                    Ok(outcome) => match outcome.waits_until() {
                        Some(at) => until = until.min(at),
                        None => moved = true,
                    },
                    Err(fault) => *result = Some(Err(fault)),
                }
            }
            if result.is_some() {
                flow.party.on_ended(PartyCost::default());
                moved = true;
            }
        }
        if !moved {
            dialer.memory_network.advance(until);
        }
    }
    let ended = results.into_iter().map(|result| FlowEnd {
        cost: PartyCost::default(),
        thread: ThreadCounters::default(),
        result: result.unwrap_or(Ok(())),
    });
    flows.into_iter().zip(ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::party::{Party, Step};
    use crate::protocol::Registry;
    use crate::workload::RecordingParty;
    use linkgauge_model::sample::{ProbePeriod, RecordedTimes, Recorder, Sample};

    /// Panics or fails at its first step, or runs until it is stopped.
    struct PanickingParty {
        panics: bool,
        fails: bool,
        recorder: Recorder,
    }

    impl Party for PanickingParty {
        fn next_step(&mut self, now: Time) -> Step<'_> {
            assert!(!self.panics, "as the test wants it");
            if self.fails {
                return Step::Fail(Fault::TimedOut);
            }
            Step::Sleep(now + Duration::from_millis(1))
        }

        fn on_sent(&mut self, _bytes: usize, _at: Time) {}

        fn on_received(&mut self, _now: Time) {}

        fn on_timeout(&mut self, _now: Time) {}
    }

    impl RecordingParty for PanickingParty {
        fn recorder(&self) -> &Recorder {
            &self.recorder
        }

        fn into_recorder(self: Box<Self>) -> Recorder {
            self.recorder
        }
    }

    /// Flows of parties that panic or fail, on links to an echo.
    fn flows_of(dialer: &Dialer, roles: &[(FlowRole, [bool; 2])]) -> Vec<Flow> {
        let endpoint = "mem://server".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let caps = dialer.transports.caps(&endpoint).unwrap();
        let host = move |_: &str| -> Box<dyn Party> {
            Box::new(crate::protocol::echo_reflector(&caps, Duration::from_secs(60)))
        };
        assert!(listener.set_party_factory(Box::new(host)).is_ok());
        let flow = |&(role, [panics, fails]): &(FlowRole, [bool; 2])| Flow {
            role,
            endpoint_index: 0,
            link: dialer.open(&endpoint).unwrap(),
            party: Box::new(PanickingParty { panics, fails, recorder: Recorder::for_counting() }),
        };
        roles.iter().map(flow).collect()
    }

    #[test]
    fn a_lost_probe_does_not_hold_up_the_end_once_a_later_one_has_its_reply() {
        let second = |ms: u64| Time(ms * 1_000_000);
        let window = Arc::new(LoadWindow::new(2_000_000));
        let mut probe = Recorder::new(RecordedTimes::ServiceAndResponse, 100_000_000, Arc::default(), None);
        probe.watch_idle(window.clone());
        window.set_begin(second(1_000));
        let idle = IdleTimes { before: Duration::ZERO, after: Duration::from_millis(250) };
        let times = LoadTimes { idle, window: window.clone(), silence: Duration::from_secs(60) };
        probe.begin_request_in(ProbePeriod::Loaded);
        window.set_end(second(2_000));
        assert!(!times.is_over(second(3_000), 1), "its reply may still come");
        let (sent, received) = (second(2_100), second(2_101));
        probe.record_reply_in(ProbePeriod::After, Sample { sequence: 1, intended: sent, sent, received }, 1);
        assert!(!times.is_over(second(2_499), 1));
        assert!(times.is_over(second(2_500), 1));
        assert!(probe.is_overtaken(ProbePeriod::Loaded) && !probe.is_overtaken(ProbePeriod::After));
    }

    #[test]
    fn probes_end_with_a_load_that_failed() {
        let dialer = Registry::standard().dialer(Clock::System);
        let flows = flows_of(&dialer, &[(FlowRole::Upload, [false, true]), (FlowRole::Probe, [false; 2])]);
        let groups = thread_groups(&flows, None);
        let ticker = Ticker { interval: Duration::from_secs(1), tick: &|_, _| false };
        let idle = IdleTimes { before: Duration::ZERO, after: Duration::from_secs(3600) };
        let times =
            LoadTimes { idle, window: Arc::new(LoadWindow::new(0)), silence: Duration::from_secs(60) };
        let (ended, _) = run_in_threads(flows, groups, &dialer, &times, &ticker);
        assert!(ended[0].1.result.is_err() && ended[1].1.result.is_ok());
    }

    #[test]
    fn a_flow_that_panics_ends_all_others() {
        let dialer = Registry::standard().dialer(Clock::System);
        // Neither a load nor a probe waits for a flow that has panicked.
        for panicking in [FlowRole::Upload, FlowRole::Probe] {
            let roles = [FlowRole::Upload, FlowRole::Download, FlowRole::Probe];
            let flows = flows_of(&dialer, &roles.map(|role| (role, [role == panicking, false])));
            let groups = thread_groups(&flows, None);
            let ticker = Ticker { interval: Duration::from_secs(1), tick: &|_, _| false };
            let times = LoadTimes {
                idle: IdleTimes::default(),
                window: Arc::new(LoadWindow::new(0)),
                silence: Duration::from_secs(1),
            };
            let (ended, _) = run_in_threads(flows, groups, &dialer, &times, &ticker);
            for (flow, ended) in &ended {
                assert_eq!(ended.result.is_err(), flow.role == panicking, "{:?}", flow.role);
            }
            assert!(!dialer.cancel.load(Relaxed), "it is no signal");
        }
    }
}
