//! Runs the flows of a case in parallel: in threads on the system clock, in one thread on the virtual clock. A failed
//! flow never blocks the end of the others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::host::cpu;
use crate::host::evidence::ThreadCounters;
use crate::link::party::{CANCEL_CHECK_INTERVAL, PartyCost, StepOutcome, drive_with_cost, perform_step};
use crate::link::serial_line::{PortControl, UartErrors};
use crate::link::{Dialer, Fault, Link, LinkError};
use crate::protocol::{Flow, ReadyCase};
use crate::run::{EndEvidence, Failure};
use crate::workload::{FlowResult, FlowRole};

use super::evidence::EvidenceRecorder;

/// What the flows of a repetition left behind.
pub(super) struct RanFlows {
    pub(super) flows: Vec<FlowResult>,
    pub(super) links: Vec<Box<dyn Link>>,
    /// Absent on the virtual clock, on which the system counts nothing that belongs to the run.
    pub(super) evidence: Option<EndEvidence>,
}

/// Starts the flows together and runs them in parallel. Calls `tick` every interval.
pub(super) fn run_flows(
    mut flows: Vec<Flow>,
    dialer: &Dialer,
    case: &ReadyCase,
    tick: &dyn Fn(Duration),
) -> RanFlows {
    // A link that stayed open has the errors of earlier repetitions.
    let errors_before: Vec<UartErrors> =
        flows.iter_mut().map(|flow| line_errors(flow).unwrap_or_default()).collect();
    let (ended, evidence) = match &dialer.clock {
        Clock::Virtual(_) => (run_in_virtual_time(flows, dialer), None),
        Clock::System => run_in_threads(flows, dialer, case.progress_interval, tick),
    };
    let mut links = Vec::new();
    let mut flowed = Vec::new();
    for ((mut flow, FlowEnd { cost, thread, result }), before) in ended.into_iter().zip(errors_before) {
        let acknowledged_bytes = acknowledged_bytes(&flow);
        let retransmits = flow.link.status().retransmits;
        let is_stalled = matches!(result, Err(Fault::TimedOut));
        let line_errors = line_errors(&mut flow).map(|errors| errors.since(&before));
        let fault = result.err().map(|fault| match fault {
            Fault::TimedOut if flow.link.caps().is_serial_device() => Fault::SilentLine,
            fault => fault,
        });
        let endpoint = &case.endpoints[flow.endpoint_index];
        let fault = fault.map(|fault| Failure::from(LinkError::new(endpoint, fault)));
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
            acknowledged_bytes,
            retransmits,
            is_stalled,
            line_errors,
            fault,
        });
    }
    RanFlows { flows: flowed, links, evidence }
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

/// How a flow ended, its CPU time, and what the scheduler counted for its thread.
struct FlowEnd {
    cost: PartyCost,
    thread: ThreadCounters,
    result: Result<(), Fault>,
}

impl FlowEnd {
    fn failed(fault: Fault) -> FlowEnd {
        FlowEnd { cost: PartyCost::default(), thread: ThreadCounters::default(), result: Err(fault) }
    }
}

/// State that the threads of a case share.
struct FlowGroup<'a> {
    /// Opened once all threads are ready. A barrier would wait forever for a thread that could not be started.
    start_gate: RwLock<()>,
    /// Flows other than probes that have not ended.
    running_loads: AtomicUsize,
    /// The loads have ended, so the probe ends too.
    should_stop_probe: AtomicBool,
    /// All flows end: a signal arrived, or a thread panicked.
    should_stop: AtomicBool,
    clock: &'a Clock,
}

impl<'a> FlowGroup<'a> {
    fn new(flows: &[Flow], dialer: &'a Dialer) -> FlowGroup<'a> {
        let loads = flows.iter().filter(|flow| flow.role != FlowRole::Probe).count();
        FlowGroup {
            start_gate: RwLock::new(()),
            running_loads: AtomicUsize::new(loads),
            should_stop_probe: AtomicBool::new(false),
            should_stop: AtomicBool::new(dialer.cancel.load(Relaxed)),
            clock: &dialer.clock,
        }
    }

    /// Runs one flow in this thread.
    fn run_flow(&self, flow: &mut Flow) -> FlowEnd {
        // The default timer slack delays this thread's timers by up to 50 µs.
        let _ = cpu::set_timer_slack_ns(1);
        drop(self.start_gate.read());
        let _place = RunningFlowGuard { group: self, is_load: flow.role != FlowRole::Probe };
        let before = ThreadCounters::now();
        let stop = if flow.role == FlowRole::Probe { &self.should_stop_probe } else { &self.should_stop };
        let (cost, result) =
            drive_with_cost(flow.party.as_mut(), flow.link.as_mut(), self.clock, stop, CANCEL_CHECK_INTERVAL);
        FlowEnd { cost, thread: ThreadCounters::now().since(&before), result }
    }

    /// Ends all flows within one time slice.
    fn stop_all(&self) {
        self.should_stop.store(true, Relaxed);
        self.should_stop_probe.store(true, Relaxed);
    }
}

/// Notifies the waiting threads when a flow ends, even by a panic.
struct RunningFlowGuard<'a> {
    group: &'a FlowGroup<'a>,
    is_load: bool,
}

impl Drop for RunningFlowGuard<'_> {
    fn drop(&mut self) {
        if self.is_load && self.group.running_loads.fetch_sub(1, Relaxed) == 1 {
            self.group.should_stop_probe.store(true, Relaxed);
        }
        if std::thread::panicking() {
            self.group.stop_all();
        }
    }
}

fn run_in_threads(
    flows: Vec<Flow>,
    dialer: &Dialer,
    interval: Duration,
    tick: &dyn Fn(Duration),
) -> (Vec<(Flow, FlowEnd)>, Option<EndEvidence>) {
    let Dialer { clock, cancel, .. } = dialer;
    let mut evidence = EvidenceRecorder::start(flows.iter());
    let group = FlowGroup::new(&flows, dialer);
    let flows: Vec<Mutex<Flow>> = flows.into_iter().map(Mutex::new).collect();
    let mut began = clock.now();
    let ended: Vec<FlowEnd> = std::thread::scope(|scope| {
        let closed = group.start_gate.write();
        let spawned: Vec<_> = flows
            .iter()
            .map(|flow| {
                // Only one thread uses a flow until it ends.
                let run = || group.run_flow(&mut flow.lock().unwrap_or_else(PoisonError::into_inner));
                Builder::new().spawn_scoped(scope, run)
            })
            .collect();
        if spawned.iter().any(Result::is_err) {
            // Some loads will never end, so the probe must be stopped here.
            group.should_stop_probe.store(true, Relaxed);
        }
        drop(closed);
        began = clock.now();
        let mut next = began + interval;
        while spawned.iter().flatten().any(|thread| !thread.is_finished()) {
            // Short at first, so that a case of milliseconds does not wait for a tick.
            let wait =
                Duration::from_millis(50).min(clock.now().since(began) / 4).max(Duration::from_micros(200));
            clock.sleep_until((clock.now() + wait).min(next).min(began + evidence.next_reading()));
            if cancel.load(Relaxed) {
                group.stop_all();
            }
            if clock.now() >= next {
                tick(next.since(began));
                next = next + interval;
            }
            evidence.read_when_due(clock.now().since(began));
        }
        let joined = spawned.into_iter().map(|thread| match thread.map(ScopedJoinHandle::join) {
            Ok(Ok(ended)) => ended,
            Ok(Err(_)) => FlowEnd::failed(Fault::Internal(PANIC_REASON.to_owned())),
            Err(source) => FlowEnd::failed(Fault::System { operation: "start a thread", source }),
        });
        joined.collect()
    });
    let evidence = evidence.finish(clock.now().since(began), ended.iter().map(|end| end.thread));
    let flows = flows.into_iter().map(|flow| flow.into_inner().unwrap_or_else(PoisonError::into_inner));
    (flows.zip(ended).collect(), Some(evidence))
}

/// Fault of a flow whose thread panicked. The panic message has been printed already.
const PANIC_REASON: &str = "a defect of linkgauge ended this flow: report the panic message";

/// Runs all flows in one thread on the virtual clock. Of several ready flows, the first in order runs.
fn run_in_virtual_time(mut flows: Vec<Flow>, dialer: &Dialer) -> Vec<(Flow, FlowEnd)> {
    let mut results: Vec<Option<Result<(), Fault>>> = flows.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        let (mut moved, mut until) = (false, Time::NEVER);
        let loads_over =
            flows.iter().zip(&results).all(|(flow, result)| flow.role == FlowRole::Probe || result.is_some());
        for (flow, result) in flows.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            let mut now = dialer.now();
            if dialer.cancel.load(Relaxed) || (loads_over && flow.role == FlowRole::Probe) {
                *result = Some(Ok(()));
            } else {
                match perform_step(
                    flow.party.as_mut(),
                    flow.link.as_mut(),
                    &dialer.clock,
                    &mut now,
                    Duration::ZERO,
                ) {
                    Ok(StepOutcome::Progress) => moved = true,
                    Ok(StepOutcome::Waiting(at) | StepOutcome::Sleeping(at)) => until = until.min(at),
                    Ok(StepOutcome::Done) => *result = Some(Ok(())),
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
    use crate::sample::Recorder;
    use crate::workload::RecordingParty;

    /// Panics at its first step, or runs until it is stopped.
    struct PanickingParty {
        panics: bool,
        recorder: Recorder,
    }

    impl Party for PanickingParty {
        fn next_step(&mut self, now: Time) -> Step<'_> {
            assert!(!self.panics, "as the test wants it");
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

    #[test]
    fn a_flow_that_panics_ends_all_others() {
        let dialer = Dialer::new(Clock::System);
        let endpoint = "mem://server".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let caps = crate::link::endpoint_caps(&endpoint).unwrap();
        let host = move |_: &str| -> Box<dyn Party> {
            Box::new(crate::protocol::echo_reflector(&caps, Duration::from_secs(60)))
        };
        assert!(listener.set_party_factory(Box::new(host)).is_ok());
        let flow = |role, panics| Flow {
            role,
            endpoint_index: 0,
            link: dialer.open(&endpoint).unwrap(),
            party: Box::new(PanickingParty { panics, recorder: Recorder::for_counting() }),
        };
        // Neither a load nor a probe waits for a flow that has panicked.
        for panicking in [FlowRole::Upload, FlowRole::Probe] {
            let roles = [FlowRole::Upload, FlowRole::Download, FlowRole::Probe];
            let flows = roles.map(|role| flow(role, role == panicking)).into();
            let (ended, _) = run_in_threads(flows, &dialer, Duration::from_secs(1), &|_| {});
            for (flow, ended) in &ended {
                assert_eq!(ended.result.is_err(), flow.role == panicking, "{:?}", flow.role);
            }
            assert!(!dialer.cancel.load(Relaxed), "it is no signal");
        }
    }
}
