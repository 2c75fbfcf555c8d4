//! The far side: an iperf3 server that takes several clients at once. The tests that run, and what a new connection is.
//!
//! A connection begins with a cookie: one that nobody knows opens a test, another joins its test as a stream. Streams of
//! datagrams have no cookie: they belong to the test of that host which waits for streams, one test of a host after the
//! other.

mod control;
mod joined;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::data::Test;
use super::wire::{self, COOKIE, Cookie, Parameters};
use crate::clock::Time;
use crate::endpoint::Endpoint;
use crate::link::party::{Cost, Party, Standing, Step};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::peer::leash::GRACE;
use crate::peer::{ServerFacts, Service, Setting};
use control::Control;
use joined::Joined;

/// A client that connects and says nothing, or stops in the middle of setting up, is not kept longer.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// How often a connection that waits for another of its test looks for it.
const LOOK: Duration = Duration::from_millis(2);

pub fn service(facts: &Arc<ServerFacts>) -> Arc<dyn Service> {
    let congestion = crate::host::sysctl("net.ipv4.tcp_congestion_control");
    let congestion = congestion.and_then(|name| name.as_str().map(str::to_owned));
    let registry = Registry { facts: facts.clone(), tests: Mutex::default(), arrivals: AtomicU64::default() };
    Arc::new(FarService { registry: Arc::new(registry), congestion })
}

/// All tests of a server.
struct Registry {
    facts: Arc<ServerFacts>,
    tests: Mutex<HashMap<Cookie, Arc<FarTest>>>,
    /// Connections so far: streams are numbered in the order in which they were accepted.
    arrivals: AtomicU64,
}

impl Registry {
    fn tests(&self) -> MutexGuard<'_, HashMap<Cookie, Arc<FarTest>>> {
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new test; none if there are too many.
    fn open(&self, cookie: Cookie, from: &str) -> Option<Arc<FarTest>> {
        let mut tests = self.tests();
        if tests.len() >= self.facts.limits.sessions as usize {
            return None;
        }
        let test = Arc::new(FarTest {
            cookie,
            host: host(from),
            parameters: OnceLock::new(),
            waits: AtomicBool::new(false),
            arrived: Mutex::default(),
            order: OnceLock::new(),
            ready: AtomicUsize::new(0),
            runs: AtomicBool::new(false),
            test: Arc::default(),
        });
        tests.insert(cookie, test.clone());
        Some(test)
    }

    fn close(&self, test: &FarTest) {
        self.tests().remove(&test.cookie);
        test.test.break_off();
    }

    /// Whether the streams of this test may come now: hosts open datagram streams for one test at a time.
    fn may_wait(&self, test: &FarTest) -> bool {
        let tests = self.tests();
        let mut others =
            tests.values().filter(|other| other.host == test.host && other.cookie != test.cookie);
        let may = !test.is_udp() || !others.any(|other| other.is_udp() && other.waits.load(Relaxed));
        if may {
            // Under the lock, so that no two begin at once.
            test.waits.store(true, Relaxed);
        }
        may
    }

    /// The test that waits for a datagram stream of that host.
    fn waiting(&self, host: &str) -> Option<Arc<FarTest>> {
        self.tests().values().find(|test| test.host == host && test.is_udp() && test.has_room()).cloned()
    }
}

/// The host of a sender, without its port. A listener for both kinds of addresses sees those of IPv4 as mapped ones.
fn host(from: &str) -> String {
    from.parse().map_or(from.to_owned(), |from: SocketAddr| from.ip().to_canonical().to_string())
}

/// What the connections of one test share.
struct FarTest {
    cookie: Cookie,
    host: String,
    parameters: OnceLock<Parameters>,
    /// For its streams, from the time it asked for them until they are there.
    waits: AtomicBool,
    arrived: Mutex<Vec<u64>>,
    /// Arrivals in their order, once all are there.
    order: OnceLock<Vec<u64>>,
    /// So many streams know their number and listen, if they are to; then senders may send.
    ready: AtomicUsize,
    runs: AtomicBool,
    test: Arc<Test>,
}

impl FarTest {
    fn is_udp(&self) -> bool {
        self.parameters.get().is_some_and(|parameters| parameters.udp)
    }

    fn streams(&self) -> usize {
        self.parameters.get().map_or(0, Parameters::streams)
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<u64>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self) -> bool {
        self.waits.load(Relaxed) && self.arrived().len() < self.streams()
    }

    /// A stream that arrived as this one joins, if there is room.
    fn join(&self, arrival: u64) -> bool {
        let mut arrived = self.arrived();
        let room = self.waits.load(Relaxed) && arrived.len() < self.streams();
        if room {
            arrived.push(arrival);
        }
        room
    }

    /// It went away before the test began: its place is free for another.
    fn leave(&self, arrival: u64) {
        self.arrived().retain(|other| *other != arrival);
    }

    /// Numbers the streams, once all are there; whether all of them are ready to go.
    fn start(&self) -> bool {
        let mut order = self.arrived().clone();
        if self.order.get().is_none() && order.len() == self.streams() {
            order.sort_unstable();
            self.waits.store(false, Relaxed);
            // Said once.
            let _ = self.order.set(order);
        }
        let ready = self.order.get().is_some_and(|order| self.ready.load(Relaxed) == order.len());
        if ready {
            self.runs.store(true, Relaxed);
        }
        ready
    }

    /// The number of a stream, once all are there.
    fn number(&self, arrival: u64) -> Option<usize> {
        self.order.get()?.iter().position(|other| *other == arrival)
    }
}

struct FarService {
    registry: Arc<Registry>,
    /// Congestion control of the connections: this host's, or what the endpoint asks for.
    congestion: Option<String>,
}

impl Service for FarService {
    fn at(&self, endpoint: &Endpoint, _all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let name = endpoint.option("congestion")?;
        Some(Arc::new(FarService { registry: self.registry.clone(), congestion: Some(name.to_owned()) }))
    }

    fn party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        let arrival = self.registry.arrivals.fetch_add(1, Relaxed);
        let kind = match caps.framing {
            Framing::Stream => Kind::Unknown(Batch::new(COOKIE, 1)),
            Framing::Message => match self.registry.waiting(&host(from)).filter(|test| test.join(arrival)) {
                Some(test) => Kind::Stream(Joined::new(&self.registry.facts, test, arrival, caps)),
                None => Kind::Over,
            },
        };
        Box::new(Reception {
            registry: self.registry.clone(),
            congestion: self.congestion.clone(),
            caps: caps.clone(),
            from: from.to_owned(),
            arrival,
            heard: Vec::new(),
            since: None,
            kind,
        })
    }

    fn says_farewell(&self) -> bool {
        true
    }

    fn counts_sessions(&self) -> bool {
        true
    }

    fn grace(&self) -> Duration {
        GRACE
    }

    fn honours(&self) -> &'static [Setting] {
        &[Setting::MessageBytes, Setting::Flows]
    }

    fn door(&self, first: &[u8], from: &str, _reply: &mut Vec<u8>) -> Admission {
        // Other implementations say other words; all have four bytes.
        let known = first.len() == wire::UDP_HELLO.len() && self.registry.waiting(&host(from)).is_some();
        if known { Admission::Open } else { Admission::Drop }
    }
}

/// Whatever a connection turns out to be.
struct Reception {
    registry: Arc<Registry>,
    congestion: Option<String>,
    caps: Caps,
    from: String,
    arrival: u64,
    heard: Vec<u8>,
    since: Option<Time>,
    kind: Kind,
}

enum Kind {
    /// With room for the rest of a cookie, and no more: what follows is not ours to read.
    Unknown(Batch),
    Control(Box<Control>),
    Stream(Joined),
    Over,
}

impl Reception {
    fn party(&mut self) -> Option<&mut dyn Party> {
        match &mut self.kind {
            Kind::Control(control) => Some(control.as_mut()),
            Kind::Stream(stream) => Some(stream),
            Kind::Unknown(_) | Kind::Over => None,
        }
    }

    fn decide(&mut self) -> Kind {
        if self.heard.len() < COOKIE {
            return if Cookie::may_begin(&self.heard) {
                Kind::Unknown(Batch::new(COOKIE - self.heard.len(), 1))
            } else {
                Kind::Over
            };
        }
        let Some(cookie) = Cookie::read(&self.heard) else { return Kind::Over };
        let known = self.registry.tests().get(&cookie).cloned();
        match known {
            None => {
                let control = Control::new(&self.registry, cookie, &self.from);
                Kind::Control(Box::new(control.with_congestion(self.congestion.clone())))
            }
            Some(test) if !test.is_udp() && test.join(self.arrival) => {
                Kind::Stream(Joined::new(&self.registry.facts, test, self.arrival, &self.caps))
            }
            Some(_) => Kind::Over,
        }
    }
}

impl Party for Reception {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        match &mut self.kind {
            Kind::Control(control) => control.next(now),
            Kind::Stream(stream) => stream.next(now),
            Kind::Unknown(batch) => {
                Step::Receive { into: batch, until: *self.since.get_or_insert(now) + INTRODUCTION }
            }
            Kind::Over => Step::Done,
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if let Some(party) = self.party() {
            party.sent(bytes, at);
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        if let Kind::Unknown(batch) = &self.kind {
            batch.messages().for_each(|bytes| self.heard.extend_from_slice(bytes));
            self.kind = self.decide();
        } else if let Some(party) = self.party() {
            party.received(now);
        }
    }

    fn standing(&self) -> Standing {
        match &self.kind {
            Kind::Unknown(_) => Standing::Stranger,
            Kind::Control(control) => control.standing(),
            // The control connection of the test vouches for datagrams, and ends them.
            Kind::Stream(_) if !self.caps.closes => Standing::Vouched,
            Kind::Stream(_) | Kind::Over => Standing::Guest,
        }
    }

    fn timed_out(&mut self, now: Time) {
        match self.party() {
            Some(party) => party.timed_out(now),
            None => self.kind = Kind::Over,
        }
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        match self.party() {
            Some(party) => party.closed(now),
            None => {
                self.kind = Kind::Over;
                Ok(())
            }
        }
    }

    fn stopped(&mut self, reason: &'static str) {
        if let Some(party) = self.party() {
            party.stopped(reason);
        }
    }

    fn farewell(&mut self) -> &'static [u8] {
        self.party().map_or(&[], Party::farewell)
    }

    fn ended(&mut self, cost: Cost) {
        if let Some(party) = self.party() {
            party.ended(cost);
        }
    }
}
