//! The threads of a server's connections. A new connection shares a thread with others (`link::shared_thread`). When its
//! party begins a measurement with few flows, it gets a thread of its own, as long as there are not too many.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use super::limited_party::LimitedParty;
use super::{ConnectionGuard, FAREWELL_TIME, ServerContext};
use crate::host::cpu;
use crate::link::party::{CANCEL_CHECK_INTERVAL, Party, PartyCost, StepMode, Tuning, drive, tune};
use crate::link::shared_thread::{Departure, Member, SharedThread, ThreadChoice, Waker};
use crate::link::{Fault, Link};
use crate::protocol::MemoryCharge;
use linkgauge_model::clock::Clock;
use linkgauge_model::traffic::WaitMode;

/// Interval between checks of the stop flag in a thread of one connection.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Stack size of a client's thread: small, because a party's buffers are on the heap.
const CLIENT_STACK_BYTES: usize = 256 * 1024;

/// Maximum number of connections with a separate thread.
const MAX_OWN_THREADS: usize = 256;

/// A connection of a client. The fields are dropped in this order, so its resources are free when its place is.
pub(crate) struct Connection {
    pub(crate) party: LimitedParty,
    pub(crate) link: Box<dyn Link>,
    pub(crate) from: String,
    pub(crate) shared: Arc<ServerContext>,
    pub(crate) _memory: MemoryCharge,
    pub(crate) _place: ConnectionGuard,
}

/// The shared threads of a server.
pub(crate) struct SharedThreads {
    inboxes: Vec<NewConnections>,
    next: AtomicUsize,
    own_threads: Arc<AtomicUsize>,
    /// Measurements with more flows than this share threads.
    max_own_flows: u32,
}

/// New connections of one shared thread.
struct NewConnections {
    connections: Mutex<Vec<Connection>>,
    /// The shared thread, until its system thread takes it.
    thread: Mutex<Option<SharedThread<Connection>>>,
    waker: Waker,
}

impl SharedThreads {
    /// Makes this number of threads; `None`: one for each CPU.
    pub fn new(clock: &Clock, threads: Option<NonZeroU32>) -> Result<SharedThreads, Fault> {
        let cpus = cpu::current_affinity().len().max(1);
        let count = threads.map_or(cpus, |count| count.get() as usize);
        let inbox = |_| {
            let thread = SharedThread::new(clock, 0)?;
            let (connections, waker) = (Mutex::default(), thread.waker());
            Ok(NewConnections { connections, waker, thread: Mutex::new(Some(thread)) })
        };
        Ok(SharedThreads {
            inboxes: (0..count).map(inbox).collect::<Result<_, Fault>>()?,
            next: AtomicUsize::new(0),
            own_threads: Arc::default(),
            // Two directions and a probe on a single CPU.
            max_own_flows: cpus.max(2) as u32 + 1,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.inboxes.len()
    }

    pub(crate) fn wake_all(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.waker.wake());
    }

    /// Makes all connections look at their state soon.
    pub(crate) fn sweep_all(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.waker.sweep());
    }

    pub fn add(&self, connection: Connection) {
        let inbox = &self.inboxes[self.next.fetch_add(1, Relaxed) % self.inboxes.len()];
        let mut connections = inbox.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = connections.is_empty();
        connections.push(connection);
        drop(connections);
        // The thread takes all of them at once.
        if is_first {
            inbox.waker.wake();
        }
    }

    /// Reserves a thread for a connection of a measurement with this number of flows.
    fn reserve_own(&self, flows: u32) -> bool {
        flows <= self.max_own_flows
            && self
                .own_threads
                .fetch_update(Relaxed, Relaxed, |count| (count < MAX_OWN_THREADS).then_some(count + 1))
                .is_ok()
    }
}

/// A reserved thread; free again when it is dropped.
struct OwnThread(Arc<AtomicUsize>);

impl Drop for OwnThread {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Runs the connections of one shared thread until the server stops.
pub(crate) fn run_shared(shared: &ServerContext, number: usize) {
    let inbox = &shared.threads.inboxes[number];
    let thread = inbox.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut thread) = thread else { return };
    let mut departed = Vec::new();
    while !shared.should_stop.load(Relaxed) {
        let arrived = std::mem::take(&mut *inbox.connections.lock().unwrap_or_else(PoisonError::into_inner));
        arrived.into_iter().for_each(|connection| thread.add(connection));
        // The panic has been printed already. It ends one connection, as in a thread of its own.
        if catch_unwind(AssertUnwindSafe(|| thread.turn(POLL_INTERVAL, &mut departed))).is_err() {
            thread.remove_panicked();
        }
        departed.drain(..).for_each(Connection::depart);
    }
    thread.end_all(&mut departed);
    let mut says_farewell = false;
    for departure in &mut departed {
        if let Departure::Ended { member, .. } = departure {
            says_farewell |= member.send_farewell();
        }
    }
    if says_farewell {
        shared.clock.sleep_until(shared.clock.now() + FAREWELL_TIME);
    }
    departed.into_iter().for_each(Connection::depart);
}

impl Connection {
    /// Begins to serve the client.
    pub(crate) fn start(self) {
        let shared = self.shared.clone();
        match self.link.caps().descriptor.can_share_thread() {
            true => shared.threads.add(self),
            false => self.spawn(None, None),
        }
    }

    fn depart(departure: Departure<Connection>) {
        match departure {
            Departure::Ended { member, result, .. } => {
                member.shared.record_end(result, member.party.refusal(), &member.from);
            }
            Departure::Moved { member, tuning } => {
                let own = OwnThread(member.shared.threads.own_threads.clone());
                member.spawn(Some(tuning), Some(own));
            }
        }
    }

    /// Continues in a separate thread.
    fn spawn(self, tuning: Option<Tuning>, own: Option<OwnThread>) {
        let shared = self.shared.clone();
        let run = move || {
            self.run(tuning);
            drop(own);
        };
        if let Err(error) = Builder::new().name("client".to_owned()).stack_size(CLIENT_STACK_BYTES).spawn(run)
        {
            shared.record_refusal(&format!("no thread could be started: {error}"), "unknown");
        }
    }

    fn run(mut self, tuning: Option<Tuning>) {
        let shared = self.shared.clone();
        let link = self.link.as_mut();
        let tuned = tuning.map_or(Ok(()), |tuning| tune(link, &tuning, StepMode::Blocking(POLL_INTERVAL)));
        let ended = match tuned {
            Ok(()) => drive(&mut self.party, link, &shared.clock, &shared.should_stop, POLL_INTERVAL),
            Err(fault) => {
                self.party.on_ended(PartyCost::default());
                Err(fault)
            }
        };
        shared.record_end(ended, self.party.refusal(), &self.from);
        if shared.sends_farewell && shared.should_stop.load(Relaxed) {
            self.send_farewell();
            shared.clock.sleep_until(shared.clock.now() + FAREWELL_TIME);
        }
    }

    /// Informs the client that the server stops, if the protocol can. Returns whether it does.
    fn send_farewell(&mut self) -> bool {
        let words = if self.shared.sends_farewell { self.party.closing_message() } else { &[] };
        if !words.is_empty() {
            // The client may have disconnected already.
            let _ = self.link.send(words, CANCEL_CHECK_INTERVAL);
        }
        self.shared.sends_farewell
    }
}

impl Member for Connection {
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
        (&mut self.party, self.link.as_mut())
    }

    fn place(&mut self, tuning: &Tuning) -> Result<ThreadChoice, Fault> {
        // A shared thread serves other clients too, so it neither busy-polls nor moves to another CPU.
        match self.shared.threads.reserve_own(tuning.flows) {
            true => Ok(ThreadChoice::Leave),
            false => Ok(ThreadChoice::Stay(WaitMode::Block)),
        }
    }
}
