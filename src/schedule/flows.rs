//! Runs the flows of a case side by side: in threads on the system clock, in one thread on the virtual one. Whatever
//! becomes of one flow, the others end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::host::{cpu, load};
use crate::link::line::Port;
use crate::link::party::{Acted, Cost, SLICE, act, drive_and_cost};
use crate::link::{Dialer, Fault, Link, LinkError};
use crate::peer::Flow;
use crate::plan::Case;
use crate::workload::{Flowed, Role};

/// Runs flows at the same time, started together; calls `tick` every interval meanwhile.
pub(super) fn side_by_side(
    flows: Vec<Flow>,
    dialer: &Dialer,
    cancel: &AtomicBool,
    case: &Case,
    tick: &dyn Fn(Duration),
) -> (Vec<Flowed>, Vec<Box<dyn Link>>) {
    let ended: Vec<(Flow, Ended)> = match &dialer.clock {
        Clock::Virtual(_) => in_virtual_time(flows, dialer, cancel),
        Clock::System => in_threads(flows, &dialer.clock, cancel, case.interval, tick),
    };
    let mut links = Vec::new();
    let mut flowed = Vec::new();
    for (mut flow, Ended { cost, cpu_wait_seconds, result }) in ended {
        let socket_drops = flow.link.socket_drops();
        let line_errors = flow.link.port().and_then(Port::errors);
        let fault = result.err().map(|fault| match fault {
            Fault::TimedOut if flow.link.caps().is_device_line() => Fault::SilentLine,
            fault => fault,
        });
        let fault = fault.map(|fault| LinkError::new(&case.endpoints[flow.port], fault).to_string());
        links.push(flow.link);
        flowed.push(Flowed {
            role: flow.role,
            port: flow.port,
            recorder: flow.party.into_recorder(),
            cpu_seconds: cost.cpu_seconds,
            cpu_wait_seconds,
            waiting_seconds: cost.waiting_seconds,
            socket_drops,
            line_errors,
            fault,
        });
    }
    (flowed, links)
}

/// How a flow ended, what running it cost, and how long its thread waited for a CPU.
struct Ended {
    cost: Cost,
    cpu_wait_seconds: f64,
    result: Result<(), Fault>,
}

/// What the threads of a case know of each other.
struct Together<'a> {
    /// Opened once all threads are there. No barrier: a thread that could not be started must not be waited for.
    gate: RwLock<()>,
    /// Flows that are no probe and have not ended.
    loads: AtomicUsize,
    /// The loads have ended, so the probe does too.
    alone: AtomicBool,
    /// All end: a signal came, or a thread panicked.
    over: AtomicBool,
    clock: &'a Clock,
}

impl Together<'_> {
    /// Runs one flow in this thread.
    fn run(&self, flow: &mut Flow) -> Ended {
        // Timers of this thread end when they should, not up to 50 µs later.
        let _ = cpu::set_timer_slack_ns(1);
        drop(self.gate.read());
        let _place = Place { together: self, is_load: flow.role != Role::Probe };
        let waited = load::thread_wait_seconds();
        let stop = if flow.role == Role::Probe { &self.alone } else { &self.over };
        let (cost, result) = drive_and_cost(flow.party.as_mut(), flow.link.as_mut(), self.clock, stop, SLICE);
        Ended { cost, cpu_wait_seconds: load::thread_wait_seconds() - waited, result }
    }

    /// Ends all flows within a slice.
    fn end(&self) {
        self.over.store(true, Relaxed);
        self.alone.store(true, Relaxed);
    }
}

/// A running flow. However it ends, those that wait for its end learn of it.
struct Place<'a> {
    together: &'a Together<'a>,
    is_load: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_load && self.together.loads.fetch_sub(1, Relaxed) == 1 {
            self.together.alone.store(true, Relaxed);
        }
        if std::thread::panicking() {
            self.together.end();
        }
    }
}

fn in_threads(
    flows: Vec<Flow>,
    clock: &Clock,
    cancel: &AtomicBool,
    interval: Duration,
    tick: &dyn Fn(Duration),
) -> Vec<(Flow, Ended)> {
    let together = Together {
        gate: RwLock::new(()),
        loads: AtomicUsize::new(flows.iter().filter(|flow| flow.role != Role::Probe).count()),
        alone: AtomicBool::new(false),
        over: AtomicBool::new(cancel.load(Relaxed)),
        clock,
    };
    let flows: Vec<Mutex<Flow>> = flows.into_iter().map(Mutex::new).collect();
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let closed = together.gate.write();
        let spawned: Vec<_> = flows
            .iter()
            .map(|flow| {
                // Each thread is the only one that uses its flow until it ends.
                let run = || together.run(&mut flow.lock().unwrap_or_else(PoisonError::into_inner));
                Builder::new().spawn_scoped(scope, run)
            })
            .collect();
        if spawned.iter().any(Result::is_err) {
            // The loads will not all end, so nothing else would stop the probe.
            together.alone.store(true, Relaxed);
        }
        drop(closed);
        let began = clock.now();
        let mut next = began + interval;
        while spawned.iter().flatten().any(|thread| !thread.is_finished()) {
            // Short at first, so that a case of milliseconds does not wait for a tick.
            let patience =
                Duration::from_millis(50).min(clock.now().since(began) / 4).max(Duration::from_micros(200));
            clock.sleep_until((clock.now() + patience).min(next));
            if cancel.load(Relaxed) {
                together.end();
            }
            if clock.now() >= next {
                tick(next.since(began));
                next = next + interval;
            }
        }
        let failed = |fault| Ended { cost: Cost::default(), cpu_wait_seconds: 0.0, result: Err(fault) };
        let joined = spawned.into_iter().map(|thread| match thread.map(ScopedJoinHandle::join) {
            Ok(Ok(ended)) => ended,
            Ok(Err(_)) => failed(Fault::Other(PANICKED.to_owned())),
            Err(source) => failed(Fault::System { operation: "start a thread", source }),
        });
        joined.collect()
    });
    let flows = flows.into_iter().map(|flow| flow.into_inner().unwrap_or_else(PoisonError::into_inner));
    flows.zip(ended).collect()
}

/// Why a flow ended whose thread panicked; the panic itself has been printed.
const PANICKED: &str = "a defect of linkgauge ended this flow: please report the panic message";

/// On the virtual clock one thread does it all, in the order of the flows whenever several could move.
fn in_virtual_time(mut flows: Vec<Flow>, dialer: &Dialer, cancel: &AtomicBool) -> Vec<(Flow, Ended)> {
    let mut results: Vec<Option<Result<(), Fault>>> = flows.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        let (mut moved, mut until) = (false, Time::NEVER);
        let loads_over =
            flows.iter().zip(&results).all(|(flow, result)| flow.role == Role::Probe || result.is_some());
        for (flow, result) in flows.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            let mut now = dialer.now();
            if cancel.load(Relaxed) || (loads_over && flow.role == Role::Probe) {
                *result = Some(Ok(()));
            } else {
                match act(flow.party.as_mut(), flow.link.as_mut(), &dialer.clock, &mut now, Duration::ZERO) {
                    Ok(Acted::Moved) => moved = true,
                    Ok(Acted::Waiting(at) | Acted::Sleeping(at)) => until = until.min(at),
                    Ok(Acted::Done) => *result = Some(Ok(())),
                    Err(fault) => *result = Some(Err(fault)),
                }
            }
            if result.is_some() {
                flow.party.ended(Cost::default());
                moved = true;
            }
        }
        if !moved {
            dialer.memory.step(until);
        }
    }
    let ended = results.into_iter().map(|result| Ended {
        cost: Cost::default(),
        cpu_wait_seconds: 0.0,
        result: result.unwrap_or(Ok(())),
    });
    flows.into_iter().zip(ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::party::{Party, Step};
    use crate::sample::Recorder;
    use crate::workload::Measured;

    /// Panics at its first step, or goes on until it is stopped.
    struct Puppet {
        panics: bool,
        recorder: Recorder,
    }

    impl Party for Puppet {
        fn next(&mut self, now: Time) -> Step<'_> {
            assert!(!self.panics, "as the test wants it");
            Step::Sleep(now + Duration::from_millis(1))
        }

        fn sent(&mut self, _bytes: usize, _at: Time) {}

        fn received(&mut self, _now: Time) {}

        fn timed_out(&mut self, _now: Time) {}
    }

    impl Measured for Puppet {
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
        let endpoint = "mem://far".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let caps = crate::link::caps(&endpoint).unwrap();
        let host = move |_: &str| -> Box<dyn Party> {
            Box::new(crate::peer::echo_far_end(&caps, Duration::from_secs(60)))
        };
        assert!(listener.host(Box::new(host)).is_ok());
        let flow = |role, panics| Flow {
            role,
            port: 0,
            link: dialer.open(&endpoint).unwrap(),
            party: Box::new(Puppet { panics, recorder: Recorder::counting() }),
        };
        // Neither a load nor a probe waits for one that is gone.
        for panicking in [Role::Outward, Role::Probe] {
            let roles = [Role::Outward, Role::Inward, Role::Probe];
            let flows = roles.map(|role| flow(role, role == panicking)).into();
            let cancel = AtomicBool::new(false);
            let ended = in_threads(flows, &dialer.clock, &cancel, Duration::from_secs(1), &|_| {});
            for (flow, ended) in &ended {
                assert_eq!(ended.result.is_err(), flow.role == panicking, "{:?}", flow.role);
            }
            assert!(!cancel.load(Relaxed), "it is no signal");
        }
    }
}
