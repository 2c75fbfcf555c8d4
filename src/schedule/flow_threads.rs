//! Threads that many runs share: a monitor of a thousand links has a thousand runs at once, each with a flow of few messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::flow_runner::{FlowEnd, LoadTimes, RanFlows, errors_of_lines, results_of};
use crate::host::cpu;
use crate::host::evidence::ThreadCounters;
use crate::link::party::{CANCEL_CHECK_INTERVAL, Party, Tuning};
use crate::link::shared_thread::{Departure, Member, SharedThread, ThreadChoice, Waker};
use crate::link::{Dialer, Fault, Link};
use crate::plan::WaitMode;
use crate::protocol::{Flow, ReadyCase};
use crate::workload::FlowRole;

/// Threads that run the flows of several runs. They end when this is dropped.
#[derive(Debug)]
pub struct FlowThreads {
    inboxes: Vec<Arc<NewFlows>>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicUsize,
    should_end: Arc<AtomicBool>,
}

/// The new flows of one thread.
#[derive(Debug)]
struct NewFlows {
    guests: Mutex<Vec<Guest>>,
    waker: Waker,
}

/// A flow of another thread, which waits for its end.
struct Guest {
    /// Until it goes back.
    flow: Option<Flow>,
    index: usize,
    /// Absent if the party panicked.
    end: Option<FlowEnd>,
    ended: Sender<(usize, Flow, FlowEnd)>,
}

/// Whether these flows can run in threads that other runs use as well. A thread
/// of several runs neither busy-polls nor moves to another CPU.
pub(super) fn can_be_guests(case: &ReadyCase, flows: &[Flow]) -> bool {
    let is_guest =
        |flow: &Flow| flow.role == FlowRole::RoundTrip && flow.link.caps().descriptor.can_share_thread();
    case.load.wait == WaitMode::Block && case.load.cpu.is_none() && flows.iter().all(is_guest)
}

/// Runs the flows of a case in these threads. Nothing is read from the host meanwhile: that would be done for each of the runs.
pub(super) fn run_as_guests(
    mut flows: Vec<Flow>,
    threads: &FlowThreads,
    dialer: &Dialer,
    case: &ReadyCase,
    times: &LoadTimes,
) -> RanFlows {
    let errors_before = errors_of_lines(&mut flows);
    let begin = dialer.now();
    times.window.set_begin(begin);
    let ended = threads.run(flows);
    let end = dialer.now();
    times.window.set_end(end);
    RanFlows { elapsed: end.since(begin), ..results_of(ended, &errors_before, case) }
}

impl FlowThreads {
    /// Starts a thread for each CPU. The flows end where they are when the cancel flag of the dialer is set.
    ///
    /// # Errors
    ///
    /// The system gives no thread or no event descriptor.
    pub fn start(dialer: &Dialer) -> Result<FlowThreads, Fault> {
        let mut started = FlowThreads {
            inboxes: Vec::new(),
            threads: Vec::new(),
            next: AtomicUsize::new(0),
            should_end: Arc::default(),
        };
        for _ in 0..cpu::current_affinity().len().max(1) {
            let thread = SharedThread::new(&dialer.clock, 0)?;
            let inbox = Arc::new(NewFlows { guests: Mutex::default(), waker: thread.waker() });
            let (cancel, should_end, own) =
                (dialer.cancel.clone(), started.should_end.clone(), inbox.clone());
            let run = move || run_guests(thread, &own, &cancel, &should_end);
            let spawned = Builder::new().name("flows".to_owned()).spawn(run);
            started.threads.push(spawned.map_err(Fault::system("start a thread"))?);
            started.inboxes.push(inbox);
        }
        Ok(started)
    }

    /// Runs these flows to their end, and returns them in the same order.
    pub(super) fn run(&self, flows: Vec<Flow>) -> Vec<(Flow, FlowEnd)> {
        let (ended, ends) = channel();
        for (index, flow) in flows.into_iter().enumerate() {
            let inbox = &self.inboxes[self.next.fetch_add(1, Relaxed) % self.inboxes.len()];
            let guest = Guest { flow: Some(flow), index, end: None, ended: ended.clone() };
            inbox.guests.lock().unwrap_or_else(PoisonError::into_inner).push(guest);
            inbox.waker.wake();
        }
        drop(ended);
        let mut all: Vec<_> = ends.iter().collect();
        all.sort_unstable_by_key(|(index, ..)| *index);
        all.into_iter().map(|(_, flow, end)| (flow, end)).collect()
    }
}

impl Drop for FlowThreads {
    fn drop(&mut self) {
        self.should_end.store(true, Relaxed);
        self.inboxes.iter().for_each(|inbox| inbox.waker.wake());
        // The panic of a party does not end its thread.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Runs the flows of one thread.
fn run_guests(
    mut thread: SharedThread<Guest>,
    inbox: &NewFlows,
    cancel: &AtomicBool,
    should_end: &AtomicBool,
) {
    // The default timer slack delays this thread's timers by up to 50 µs.
    let _ = cpu::set_timer_slack_ns(1);
    let mut departed = Vec::new();
    while !should_end.load(Relaxed) {
        let arrived = std::mem::take(&mut *inbox.guests.lock().unwrap_or_else(PoisonError::into_inner));
        arrived.into_iter().for_each(|guest| thread.add(guest));
        if cancel.load(Relaxed) {
            thread.end_all(&mut departed);
        }
        // The panic has been printed already. It ends one flow, as in a thread of its own.
        if catch_unwind(AssertUnwindSafe(|| thread.turn(CANCEL_CHECK_INTERVAL, &mut departed))).is_err() {
            thread.remove_panicked();
        }
        departed.drain(..).for_each(Guest::depart);
    }
}

impl Guest {
    fn depart(departure: Departure<Guest>) {
        if let Departure::Ended { mut member, cost, result } = departure {
            let thread = ThreadCounters::default();
            member.end = Some(FlowEnd { cost: *cost, thread, result });
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(FlowEnd::panicked);
        if let Some(flow) = self.flow.take() {
            // Without a receiver nothing waits for it.
            let _ = self.ended.send((self.index, flow, end));
        }
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Guest").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Member for Guest {
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
        let Flow { party, link, .. } =
            self.flow.as_mut().expect("the flow goes back when the guest is dropped");
        (party.as_mut(), link.as_mut())
    }

    fn place(&mut self, tuning: &Tuning) -> Result<ThreadChoice, Fault> {
        Ok(ThreadChoice::Stay(tuning.wait))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, Time};
    use crate::link::party::Step;
    use crate::sample::Recorder;
    use crate::workload::RecordingParty;

    /// Sleeps until a time, or panics then.
    struct Sleeper {
        until: Time,
        panics: bool,
        recorder: Recorder,
    }

    impl Party for Sleeper {
        fn next_step(&mut self, now: Time) -> Step<'_> {
            if now < self.until {
                return Step::Sleep(self.until);
            }
            assert!(!self.panics, "as the test wants it");
            Step::Done
        }

        fn on_sent(&mut self, _bytes: usize, _at: Time) {}

        fn on_received(&mut self, _now: Time) {}

        fn on_timeout(&mut self, _now: Time) {}
    }

    impl RecordingParty for Sleeper {
        fn recorder(&self) -> &Recorder {
            &self.recorder
        }

        fn into_recorder(self: Box<Self>) -> Recorder {
            self.recorder
        }
    }

    #[test]
    fn flows_of_several_runs_end_on_their_own() {
        let dialer = Dialer::new(Clock::System);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let flow = |until: Time, panics| Flow {
            role: FlowRole::RoundTrip,
            endpoint_index: 0,
            link: dialer.open(&endpoint).unwrap(),
            party: Box::new(Sleeper { until, panics, recorder: Recorder::for_counting() }),
        };
        let threads = FlowThreads::start(&dialer).unwrap();
        let soon = || dialer.now() + Duration::from_millis(20);
        std::thread::scope(|scope| {
            let endless =
                scope.spawn(|| threads.run(vec![flow(Time::NEVER, false), flow(Time::NEVER, false)]));
            let runs = [false, true, false].map(|panics| {
                let flows = vec![flow(soon(), panics), flow(soon(), false)];
                let threads = &threads;
                scope.spawn(move || threads.run(flows))
            });
            let failed = runs.map(|run| {
                run.join().unwrap().into_iter().map(|(_, end)| end.result.is_err()).collect::<Vec<_>>()
            });
            assert_eq!(failed, [[false, false], [true, false], [false, false]], "in the order of the flows");
            assert!(!endless.is_finished());
            dialer.cancel.store(true, Relaxed);
            assert!(endless.join().unwrap().iter().all(|(_, end)| end.result.is_ok()), "it is no fault");
        });
    }
}
