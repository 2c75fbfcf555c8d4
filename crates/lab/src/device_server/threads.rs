//! The threads of all ports: each runs the lines of some ports, and the sessions of their clients.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::from_line::FromLine;
use super::session::Session;
use super::{DeviceServerState, spawn_thread};
use linkgauge_engine::link::party::{CANCEL_CHECK_INTERVAL, Party, Tuning, drive};
use linkgauge_engine::link::shared_thread::{Departure, Member, SharedThread, ThreadChoice, Waker};
use linkgauge_engine::link::{Fault, Link};
use linkgauge_model::traffic::WaitMode;

/// A party of a port, and its link.
pub(crate) enum PortMember {
    Line(FromLine, Box<dyn Link>),
    Session(Session, Box<dyn Link>),
}

impl Member for PortMember {
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
        match self {
            PortMember::Line(party, link) => (party, link.as_mut()),
            PortMember::Session(party, link) => (party, link.as_mut()),
        }
    }

    fn place(&mut self, _tuning: &Tuning) -> Result<ThreadChoice, Fault> {
        Ok(ThreadChoice::Stay(WaitMode::Block))
    }
}

impl PortMember {
    pub fn end(self, result: Result<(), Fault>) {
        match self {
            PortMember::Line(party, _) => party.end(result),
            PortMember::Session(party, _) => party.end(result),
        }
    }

    fn run_alone(mut self, state: &DeviceServerState) {
        let (party, link) = self.ends();
        let result = drive(party, link, &state.clock, &state.stop, CANCEL_CHECK_INTERVAL);
        self.end(result);
    }
}

/// One shared thread, as others see it.
pub(crate) struct PortThread {
    state: Arc<DeviceServerState>,
    arrived: Mutex<Vec<PortMember>>,
    waker: Waker,
}

/// A stop wakes the thread.
const MAX_WAIT: Duration = Duration::from_secs(1);

impl PortThread {
    pub(crate) fn start(state: &Arc<DeviceServerState>) -> Result<(Arc<PortThread>, JoinHandle<()>), Fault> {
        let thread = SharedThread::new(&state.clock, 0)?;
        let shared = PortThread { state: state.clone(), arrived: Mutex::default(), waker: thread.waker() };
        let shared = Arc::new(shared);
        let inside = shared.clone();
        let handle = spawn_thread("ports", move || inside.run(thread))?;
        Ok((shared, handle))
    }

    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Runs a party. On a link that shows nothing when it is ready, it has a thread of its own.
    pub fn add(&self, mut member: PortMember) -> Result<Option<JoinHandle<()>>, Fault> {
        if !member.ends().1.caps().descriptor.can_share_thread() {
            let state = self.state.clone();
            return spawn_thread("port", move || member.run_alone(&state)).map(Some);
        }
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(member);
        self.waker.wake();
        Ok(None)
    }

    fn run(&self, mut thread: SharedThread<PortMember>) {
        let mut departed = Vec::new();
        let arrived = || std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner));
        while !self.state.stop.load(Relaxed) {
            arrived().into_iter().for_each(|member| thread.add(member));
            // The panic has been printed already. It ends one party.
            if catch_unwind(AssertUnwindSafe(|| thread.turn(MAX_WAIT, &mut departed))).is_err() {
                thread.remove_panicked();
            }
            end_all(&mut departed);
        }
        thread.end_all(&mut departed);
        end_all(&mut departed);
        arrived().into_iter().for_each(|member| member.end(Ok(())));
    }
}

pub fn end_all(departed: &mut Vec<Departure<PortMember>>) {
    for departure in departed.drain(..) {
        if let Departure::Ended { member, result, .. } = departure {
            member.end(result);
        }
    }
}
