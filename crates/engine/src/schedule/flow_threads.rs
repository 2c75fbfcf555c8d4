//! Threads that many runs share: a monitor of a thousand links has a thousand runs at once, each with a flow of few messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::flow_runner::FlowEnd;
use crate::host::cpu;
use crate::host::evidence::ThreadCounters;
use crate::link::party::{CANCEL_CHECK_INTERVAL, Party, Tuning};
use crate::link::shared_thread::{Departure, Member, SharedThread, ThreadChoice, Waker};
use crate::link::{Dialer, Fault, Link};
use crate::protocol::{Flow, ReadyCase};
use crate::workload::FlowRole;
use linkgauge_model::plan::WaitMode;

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

/// Receives the flows of a run, in their order.
type OnEnded = Box<dyn FnOnce(Vec<(Flow, FlowEnd)>) + Send>;

/// The flows of one run.
struct GuestGroup {
    ended: Vec<Option<(Flow, FlowEnd)>>,
    running: usize,
    on_ended: Option<OnEnded>,
}

impl GuestGroup {
    /// Takes a flow back. Returns what is to be done with all of them after the last one.
    pub fn end(&mut self, index: usize, ended: (Flow, FlowEnd)) -> Option<impl FnOnce() + use<>> {
        self.ended[index] = Some(ended);
        self.running -= 1;
        let on_ended = self.on_ended.take_if(|_| self.running == 0)?;
        let ended = std::mem::take(&mut self.ended);
        Some(move || on_ended(ended.into_iter().flatten().collect()))
    }
}

/// A flow of a run that nothing waits for.
struct Guest {
    /// The flow, until it goes back to its run.
    flow: Option<Flow>,
    index: usize,
    /// The end of the flow; absent if the party panicked.
    end: Option<FlowEnd>,
    group: Arc<Mutex<GuestGroup>>,
}

/// Whether these flows can run in threads that other runs use as well. A thread
/// of several runs neither busy-polls nor moves to another CPU.
pub(super) fn can_be_guests(case: &ReadyCase, flows: &[Flow]) -> bool {
    let is_guest =
        |flow: &Flow| flow.role == FlowRole::RoundTrip && flow.link.caps().descriptor.can_share_thread();
    case.load.wait == WaitMode::Block
        && case.load.cpu.is_none()
        && !flows.is_empty()
        && flows.iter().all(is_guest)
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

    /// Runs these flows, at least one, and does not wait for them. `on_ended` is called in the thread of the last one to end, with all
    /// of them in the same order.
    pub(super) fn run(&self, flows: Vec<Flow>, on_ended: impl FnOnce(Vec<(Flow, FlowEnd)>) + Send + 'static) {
        let group = GuestGroup {
            ended: flows.iter().map(|_| None).collect(),
            running: flows.len(),
            on_ended: Some(Box::new(on_ended)),
        };
        let group = Arc::new(Mutex::new(group));
        for (index, flow) in flows.into_iter().enumerate() {
            let inbox = &self.inboxes[self.next.fetch_add(1, Relaxed) % self.inboxes.len()];
            let guest = Guest { flow: Some(flow), index, end: None, group: group.clone() };
            inbox.guests.lock().unwrap_or_else(PoisonError::into_inner).push(guest);
            inbox.waker.wake();
        }
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
        let Some(flow) = self.flow.take() else { return };
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let last = group.end(self.index, (flow, end));
        drop(group);
        if let Some(pass_on) = last {
            pass_on();
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
    use crate::protocol::Registry;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::link::party::Step;
    use crate::workload::RecordingParty;
    use linkgauge_model::clock::{Clock, Time};
    use linkgauge_model::sample::Recorder;

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
        let dialer = Registry::standard().dialer(Clock::System);
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
        let run = |flows| {
            let (ended, ends) = channel();
            let is_failed = |(_, end): &(Flow, FlowEnd)| end.result.is_err();
            threads.run(flows, move |flows| {
                ended.send(flows.iter().map(is_failed).collect::<Vec<_>>()).unwrap();
            });
            ends
        };
        let endless = run(vec![flow(Time::NEVER, false), flow(Time::NEVER, false)]);
        let runs = [false, true, false].map(|panics| run(vec![flow(soon(), panics), flow(soon(), false)]));
        let failed = runs.map(|ends| ends.recv().unwrap());
        assert_eq!(failed, [[false, false], [true, false], [false, false]], "in the order of the flows");
        assert!(endless.try_recv().is_err());
        dialer.cancel.store(true, Relaxed);
        assert_eq!(endless.recv().unwrap(), [false, false], "it is no fault");
    }
}
