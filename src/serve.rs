//! The server's accept loop: the same for every protocol and every transport. Threads, limits, an orderly end.
//!
//! What is said on a connection is the protocol's business (`peer::Service`). Here each connection gets a thread and a
//! guard that holds it within the limits (`guard.rs`). Clients that have said nothing yet wait together (`hall.rs`), and a
//! datagram of an unknown sender is judged before any memory is spent on it (`gate.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::link::party::{Party, SLICE, Standing, drive};
use crate::link::{Caps, Dialer, Fault, Link, LinkError, Listener};
use crate::peer::{Limits, Service};

mod gate;
mod guard;
mod hall;
mod rates;
mod refusals;
mod source;

use gate::Gate;
use guard::{Guard, Rules};
use hall::{Begin, Hall, Silent, Ticket};
use rates::Rates;
pub use refusals::{Refusal, Refusals};
use source::{Share, Shares, Source};

/// A server's threads look at the stop flag this often; more often would wake a thousand idle sessions for nothing.
const LOOK: Duration = Duration::from_secs(1);

/// Connections stay open so long when the server stops, so that clients hear why before they see the end of one.
const FAREWELL: Duration = Duration::from_millis(200);

/// A party needs little: its buffers are on the heap.
const STACK: usize = 256 * 1024;

/// Links without connections for senders that have not proved their address: of one source, and in all.
const MOST_UNPROVED: [usize; 2] = [64, 256];

const TOO_MANY_SILENT: &str =
    "too many connections of one sender, or in all, have not said anything: the oldest was ended";

/// What a server has seen since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that have a thread.
    pub open: AtomicUsize,
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    /// Connections that ended by an error.
    pub failed: AtomicU64,
}

/// A running server.
pub struct Server {
    endpoints: Vec<Endpoint>,
    /// Those whose connections run in the client's thread.
    inside: Vec<Endpoint>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the listeners of a server have in common.
struct Shared {
    limits: Limits,
    /// Connections with a thread at once.
    most: usize,
    clock: Clock,
    stop: AtomicBool,
    says_farewell: bool,
    counters: Arc<Counters>,
    refusals: Arc<Refusals>,
    rates: Option<Arc<Rates>>,
    gate: Gate,
    hall: Arc<Hall>,
    shares: Arc<Shares>,
}

/// What one listener's thread works with.
struct Post {
    service: Arc<dyn Service>,
    rules: Rules,
    shared: Arc<Shared>,
}

impl Server {
    /// Listens on every endpoint, with one set of limits for all of them together.
    pub fn start(
        endpoints: &[Endpoint],
        service: &Arc<dyn Service>,
        limits: &Limits,
        dialer: &Dialer,
    ) -> Result<Server, LinkError> {
        let mut all = endpoints.to_vec();
        for endpoint in endpoints {
            let beside = service.beside(endpoint);
            all.extend(beside.map_err(|error| LinkError::new(endpoint, error.into()))?);
        }
        let shared = Shared::new(service.as_ref(), limits, dialer);
        let shared = Arc::new(shared.map_err(|fault| LinkError::new(&all[0], fault))?);
        let mut server = Server { endpoints: Vec::new(), inside: Vec::new(), shared, threads: Vec::new() };
        for endpoint in &all {
            let service = service.at(endpoint, endpoints).unwrap_or_else(|| service.clone());
            server.listen(endpoint, service, dialer)?;
        }
        if server.endpoints.len() > server.inside.len() {
            let shared = server.shared.clone();
            server.spawn(&all[0], "serve hall", move || shared.attend())?;
        }
        Ok(server)
    }

    fn listen(
        &mut self,
        endpoint: &Endpoint,
        service: Arc<dyn Service>,
        dialer: &Dialer,
    ) -> Result<(), LinkError> {
        let caps = crate::link::caps(endpoint).and_then(|caps| match service.fits(&caps) {
            Ok(()) => Ok(caps),
            Err(what) => Err(Fault::Other(what)),
        });
        let caps = caps.map_err(|fault| LinkError::new(endpoint, fault))?;
        let mut listener = dialer.listen(endpoint)?;
        service.begins_with().into_iter().for_each(|bytes| listener.begin_with(bytes));
        self.endpoints.push(listener.endpoint());
        let rules = Rules::new(&self.shared.limits, service.grace());
        let post = Arc::new(Post { service, rules, shared: self.shared.clone() });
        let hosted = post.clone();
        // In memory the link runs the server's ends by itself; elsewhere a thread waits for them.
        let hosting = move |from: &str| Box::new(hosted.guard(&caps, from, &Source::of(from))) as Box<_>;
        if listener.host(Box::new(hosting)).is_ok() {
            self.inside.extend(self.endpoints.last().cloned());
            return Ok(());
        }
        let name = format!("serve {}", endpoint.scheme());
        self.spawn(endpoint, &name, move || post.accept(listener.as_mut()))
    }

    fn spawn(
        &mut self,
        endpoint: &Endpoint,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), LinkError> {
        let thread = Builder::new().name(name.to_owned()).spawn(run);
        let fault = |source| Fault::System { operation: "start a thread", source };
        self.threads.push(thread.map_err(|error| LinkError::new(endpoint, fault(error)))?);
        Ok(())
    }

    /// Where it really listens.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Whether both ends of a link to this endpoint run in one thread, that of the client.
    pub fn is_inside(&self, endpoint: &Endpoint) -> bool {
        self.inside.contains(endpoint)
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// What was refused, dropped or ended, and why.
    pub fn refusals(&self) -> &Refusals {
        &self.shared.refusals
    }
}

impl Drop for Server {
    /// Takes no more connections and ends those that are open; returns when the listeners are closed.
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        self.shared.hall.close();
        let began = Instant::now();
        while self.shared.says_farewell
            && self.shared.counters.open.load(Relaxed) > 0
            && began.elapsed() < 3 * FAREWELL
        {
            std::thread::sleep(FAREWELL / 20);
        }
    }
}

impl Shared {
    fn new(service: &dyn Service, limits: &Limits, dialer: &Dialer) -> Result<Shared, Fault> {
        let rates = limits.bit_rate.map(|rate| Arc::new(Rates::new(rate)));
        let refusals: Arc<Refusals> = Arc::default();
        Ok(Shared {
            limits: *limits,
            says_farewell: service.says_farewell(),
            most: if service.counts_sessions() { several(limits) } else { limits.sessions as usize },
            clock: dialer.clock.clone(),
            stop: AtomicBool::new(false),
            counters: Arc::default(),
            gate: Gate::new(rates.clone(), refusals.clone()),
            refusals,
            rates,
            shares: Arc::default(),
            // A client may open all connections of a session before it speaks on the first.
            hall: Arc::new(Hall::new(limits.flows as usize + 16, Duration::from_secs(limits.idle_s))?),
        })
    }

    fn attend(&self) {
        while !self.stop.load(Relaxed) {
            self.hall.attend(SLICE, || self.clock.now());
        }
    }

    /// How long not to accept. Where descriptors or memory have run out, a connection that is not used is given back, and
    /// others will be. A client that went away while it was accepted must not hold up the next.
    fn pause_after(&self, fault: &Fault) -> Duration {
        const RUN_OUT: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        let has_run_out = |errno: &Errno| match fault {
            Fault::System { source, .. } => source.raw_os_error() == Some(errno.raw_os_error()),
            _ => false,
        };
        if RUN_OUT.iter().any(has_run_out) {
            self.hall.end_one();
            return SLICE;
        }
        Duration::from_millis(1)
    }

    /// A place among the open connections, if one is free. Those that a connection vouches for take none of their own.
    fn place(&self, caps: &Caps, standing: Standing, from: &str) -> Option<Place> {
        let source = &Source::of(from);
        let most_of_source = match standing {
            _ if caps.closes => usize::MAX,
            Standing::Stranger | Standing::Guest => MOST_UNPROVED[0],
            Standing::Proved | Standing::Vouched => self.limits.flows as usize + 16,
        };
        let share = self.shares.take(source, most_of_source);
        let open = self.counters.open.fetch_add(1, Relaxed);
        let place = Place { _share: share, counters: self.counters.clone() };
        let most = match standing {
            _ if caps.closes => self.most,
            Standing::Stranger | Standing::Guest => self.most.min(MOST_UNPROVED[1]),
            Standing::Proved => self.most,
            Standing::Vouched => self.most.max(several(&self.limits)),
        };
        if place._share.is_some() && open < most {
            return Some(place);
        }
        self.refuse(
            &format!("all places for connections are taken, {most} in all: see --max-sessions"),
            from,
        );
        // One that has not introduced itself goes for the next that comes.
        self.hall.end_one();
        None
    }

    fn refuse(&self, reason: &str, from: &str) {
        self.counters.refused.fetch_add(1, Relaxed);
        self.refusals.record(reason, from);
    }

    /// Notes why a connection ended that did not end as its client wanted.
    fn note_end(&self, ended: Result<(), Fault>, refusal: Option<&str>, from: &str) {
        if ended.is_err() {
            self.counters.failed.fetch_add(1, Relaxed);
        }
        match (ended, refusal) {
            (_, Some(reason)) => self.refusals.record(reason, from),
            (Err(Fault::Other(reason)), None) => self.refusals.record(&reason, from),
            // Clients come and go.
            _ => {}
        }
    }
}

/// Connections at once where sessions have several: one that says what to do and usually one or two for data, but room for
/// a session that uses all it may.
fn several(limits: &Limits) -> usize {
    (limits.sessions as usize).saturating_mul(4).max(limits.flows as usize + 16)
}

impl Post {
    fn accept(self: Arc<Post>, listener: &mut dyn Listener) {
        let shared = &self.shared;
        let mut door = |first: &[u8], from: &str, reply: &mut Vec<u8>| {
            shared.gate.admit(self.service.as_ref(), first, from, reply, shared.clock.now())
        };
        while !shared.stop.load(Relaxed) {
            match listener.accept(SLICE, &mut door) {
                Ok((link, from)) => self.clone().receive(link, from),
                Err(Fault::TimedOut) => {}
                Err(fault) => {
                    shared.refuse(&format!("a connection could not be accepted: {fault}"), "unknown");
                    shared.clock.sleep_until(shared.clock.now() + shared.pause_after(&fault));
                }
            }
        }
    }

    /// Takes a new connection: it waits until its client says something, where that is what comes first.
    fn receive(self: Arc<Post>, link: Box<dyn Link>, from: String) {
        self.shared.counters.accepted.fetch_add(1, Relaxed);
        let (caps, source) = (link.caps(), Source::of(&from));
        if !caps.closes || link.descriptor().is_none() || self.service.speaks_first(caps) {
            self.begin(link, from, None);
            return;
        }
        let (hall, now) = (&self.shared.hall, self.shared.clock.now());
        let silent = Silent { link, from: from.clone(), begin: self.clone() };
        match hall.wait(source, silent, now) {
            Ok(gone) => (0..gone).for_each(|_| self.shared.refuse(TOO_MANY_SILENT, &from)),
            Err(fault) => self.shared.refuse(&format!("a connection could not be watched: {fault}"), &from),
        }
    }

    /// The party that serves a client, held within the limits.
    fn guard(&self, caps: &Caps, from: &str, source: &Source) -> Guard {
        let meter = self.shared.rates.as_ref().map(|rates| rates.meter(source));
        Guard::new(self.service.party(caps, from), caps, self.rules).metered(meter)
    }
}

impl Begin for Post {
    fn begin(&self, link: Box<dyn Link>, from: String, ticket: Option<Ticket>) {
        let (shared, source) = (self.shared.clone(), Source::of(&from));
        let party = self.guard(link.caps(), &from, &source);
        let Some(place) = shared.place(link.caps(), party.standing(), &from) else { return };
        let mut party = party.holding(ticket);
        let run = move || {
            let mut link = link;
            let ended = drive(&mut party, link.as_mut(), &shared.clock, &shared.stop, LOOK);
            shared.note_end(ended, party.refusal(), &from);
            if shared.says_farewell && shared.stop.load(Relaxed) {
                let words = party.farewell();
                if !words.is_empty() {
                    // A client that is gone needs no word.
                    let _ = link.send(words, SLICE);
                }
                shared.clock.sleep_until(shared.clock.now() + FAREWELL);
            }
            // The party goes before the place, so that what it holds is free when a place is.
            drop((party, link));
            drop(place);
        };
        if let Err(error) = Builder::new().name("client".to_owned()).stack_size(STACK).spawn(run) {
            self.shared.refuse(&format!("no thread could be started: {error}"), "unknown");
        }
    }
}

/// Counts among the open connections until it is dropped, however that comes about.
struct Place {
    _share: Option<Share>,
    counters: Arc<Counters>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Relaxed);
    }
}

/// Lets this process have as many open files as the system grants: every connection is one.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused the old limit stays, and is enough for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
