//! The server's accept loop, the same for every protocol and transport: threads, limits, shutdown.
//!
//! The protocol handles the messages of a connection (`protocol::Service`). This module gives each connection a thread,
//! of its own or shared (`threads.rs`), and enforces the limits of the server (`limited_party.rs`). Connections without
//! input share one more (`pending.rs`). The first datagram of an unknown sender is checked before it can use memory (`admission.rs`).

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::link::party::{CANCEL_CHECK_INTERVAL, ClientTrust, Party};
use crate::link::{Caps, DEFAULT_PORT, Dialer, Fault, Link, LinkError, Listener};
use crate::protocol::{MemoryBudget, ServerLimits, Service, max_session_connections};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;

mod admission;
mod builder;
pub mod client_id;
mod limited_party;
mod pending;
mod rate_limiter;
mod refusals;
mod threads;

use admission::AdmissionControl;
pub use builder::{ServeError, ServerBuilder};
use client_id::{ClientId, ClientQuotas, QuotaSlot};
use limited_party::{LimitedParty, PartyLimits};
use linkgauge_system::Errno;
use pending::{ConnectionHandler, MAX_PENDING, PendingConnections, PendingSlot, SilentConnection, has_input};
pub use rate_limiter::RateLimiter;
pub use refusals::{Refusal, Refusals};
use threads::{Connection, SharedThreads};

/// Time that connections stay open at a server stop, so that clients receive the reason first.
const FAREWELL_TIME: Duration = Duration::from_millis(200);

/// Connectionless links of senders with unverified addresses: of one source, and in all. For one more, the oldest of the
/// source with the most is closed, but none that is established.
const MAX_UNVERIFIED_LINKS: [usize; 2] = [64, 256];

/// Links of senders that have sent for a while, and are not closed for others: of one network, and in all.
const MAX_ESTABLISHED_LINKS: [usize; 2] = [32, 128];

/// Multiple of these numbers, with the links that are being closed.
const CLOSING_FACTOR: usize = 2;

const TOO_MANY_PENDING: &str =
    "too many connections of one sender, or in all, have sent nothing: the oldest was closed";

/// Counters of a server since its start.
#[derive(Debug, Default)]
pub struct ServerCounters {
    /// Connections that have sent something.
    pub open: AtomicUsize,
    /// Accepted connections.
    pub accepted: AtomicU64,
    /// Refused connections.
    pub refused: AtomicU64,
    /// Connections that ended with an error.
    pub failed: AtomicU64,
}

/// A running server.
pub struct Server {
    endpoints: Vec<Endpoint>,
    /// Endpoints whose connections run in the client's thread.
    inline_endpoints: Vec<Endpoint>,
    shared: Arc<ServerContext>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the listeners of a server share.
struct ServerContext {
    limits: ServerLimits,
    /// Maximum connections that have sent something.
    max_connections: usize,
    clock: Clock,
    should_stop: AtomicBool,
    sends_farewell: bool,
    counters: Arc<ServerCounters>,
    refusals: Arc<Refusals>,
    rate_limiter: Option<Arc<RateLimiter>>,
    admission: AdmissionControl,
    pending: Arc<PendingConnections>,
    /// Links of senders with unverified addresses.
    unverified: Arc<PendingConnections>,
    quotas: Arc<ClientQuotas>,
    memory: MemoryBudget,
    threads: SharedThreads,
}

/// State of one listener's thread.
struct AcceptLoop {
    service: Arc<dyn Service>,
    limits: PartyLimits,
    shared: Arc<ServerContext>,
}

const SERVED_TWICE: &str =
    "this address and port are given twice, or are part of another URL: leave one of them out";

/// Whether the two endpoints have one scheme and one port, which is not the system's choice.
fn has_same_port(one: &Endpoint, other: &Endpoint) -> bool {
    let port = |endpoint: &Endpoint| endpoint.host_port().ok().map(|(_, port)| port.unwrap_or(DEFAULT_PORT));
    one.scheme() == other.scheme() && port(one).is_some_and(|number| number != 0) && port(one) == port(other)
}

/// Whether `other` serves the port of `endpoint` on IPv4.
fn is_same_port_on_v4(other: &Endpoint, endpoint: &Endpoint) -> bool {
    let host = other.host_port().map_or("", |(host, _)| host);
    has_same_port(other, endpoint) && host.parse::<Ipv4Addr>().is_ok()
}

impl Server {
    /// Listens on every endpoint, with one set of limits for all of them together.
    ///
    /// # Errors
    ///
    /// An endpoint that cannot be listened on, or whose links the service does not support.
    pub fn start(
        endpoints: &[Endpoint],
        service: &Arc<dyn Service>,
        limits: &ServerLimits,
        dialer: &Dialer,
    ) -> Result<Server, LinkError> {
        let rates = limits.bit_rate.map(|rate| Arc::new(RateLimiter::new(rate)));
        Server::start_with_rates(endpoints, service, (limits, rates), dialer)
    }

    /// Starts a server with a rate that it may share with other servers.
    fn start_with_rates(
        endpoints: &[Endpoint],
        service: &Arc<dyn Service>,
        (limits, rates): (&ServerLimits, Option<Arc<RateLimiter>>),
        dialer: &Dialer,
    ) -> Result<Server, LinkError> {
        let mut all = endpoints.to_vec();
        for endpoint in endpoints {
            let beside = dialer
                .transports
                .caps(endpoint)
                .and_then(|caps| Ok(service.extra_endpoints(endpoint, &caps)?));
            let beside = beside.map_err(|fault| LinkError::new(endpoint, fault))?;
            let is_named = |beside: &Endpoint| endpoints.iter().any(|named| has_same_port(named, beside));
            all.extend(beside.into_iter().filter(|beside| !is_named(beside)));
        }
        let shared = ServerContext::new(service.as_ref(), (limits, rates), dialer);
        let shared = Arc::new(shared.map_err(|fault| LinkError::new(&all[0], fault))?);
        let mut server =
            Server { endpoints: Vec::new(), inline_endpoints: Vec::new(), shared, threads: Vec::new() };
        for (number, endpoint) in all.iter().enumerate() {
            let service = service.for_endpoint(endpoint, endpoints).unwrap_or_else(|| service.clone());
            let is_beside_v4 = all.iter().any(|other| is_same_port_on_v4(other, endpoint));
            let dialer = Dialer { is_v6_only: is_beside_v4, ..dialer.clone() };
            let is_own = all[..number].iter().any(|earlier| has_same_port(earlier, endpoint));
            server.listen(endpoint, service, &dialer).map_err(|error| match &error.fault {
                Fault::System { source, .. } if is_own && source.kind() == ErrorKind::AddrInUse => {
                    LinkError::new(endpoint, Fault::Invalid(SERVED_TWICE.to_owned()))
                }
                _ => error,
            })?;
        }
        if server.endpoints.len() > server.inline_endpoints.len() {
            let shared = server.shared.clone();
            server.spawn(&all[0], "serve hall", move || shared.dispatch_pending())?;
            for number in 0..server.shared.threads.count() {
                let shared = server.shared.clone();
                server.spawn(&all[0], "serve clients", move || threads::run_shared(&shared, number))?;
            }
        }
        Ok(server)
    }

    fn listen(
        &mut self,
        endpoint: &Endpoint,
        service: Arc<dyn Service>,
        dialer: &Dialer,
    ) -> Result<(), LinkError> {
        let caps = dialer.transports.caps(endpoint).and_then(|caps| {
            service.check_link(&caps).map_err(|error| Fault::Unsupported(error.to_string()))?;
            Ok(caps)
        });
        let caps = caps.map_err(|fault| LinkError::new(endpoint, fault))?;
        let mut listener = dialer.listen(endpoint)?;
        service.opening_prefix().into_iter().for_each(|bytes| listener.set_opening_prefix(bytes));
        self.endpoints.push(listener.endpoint());
        let rules = PartyLimits::new(&self.shared.limits, service.grace_period());
        let post = Arc::new(AcceptLoop { service, limits: rules, shared: self.shared.clone() });
        let hosted = post.clone();
        // An in-memory link runs the server side itself; other links have a thread.
        let hosting = move |from: &str| {
            Box::new(hosted.new_limited_party(&caps, from, &ClientId::from_sender(from))) as Box<_>
        };
        if listener.set_party_factory(Box::new(hosting)).is_ok() {
            self.inline_endpoints.extend(self.endpoints.last().cloned());
            return Ok(());
        }
        let name = format!("serve {}", endpoint.scheme());
        self.spawn(endpoint, &name, move || post.run(listener.as_mut()))
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

    /// The effective endpoints.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Whether client and server of a link to this endpoint run in one thread, that of the client.
    pub fn is_inline(&self, endpoint: &Endpoint) -> bool {
        self.inline_endpoints.contains(endpoint)
    }

    /// Open files of a server without connections, about.
    pub fn min_files(&self) -> u64 {
        50 + self.endpoints.len() as u64
    }

    /// Open files with as many sessions as are allowed, or with one of as many connections as it may have.
    pub fn max_files(&self) -> u64 {
        let limits = &self.shared.limits;
        self.min_files() + u64::from(limits.sessions.max(limits.flows))
    }

    /// The counters since the start.
    pub fn counters(&self) -> &ServerCounters {
        &self.shared.counters
    }

    /// Refused, dropped and ended connections, by reason.
    pub fn refusals(&self) -> &Refusals {
        &self.shared.refusals
    }
}

impl Drop for Server {
    /// Stops accepting and ends open connections; returns when the listeners are closed.
    fn drop(&mut self) {
        self.shared.should_stop.store(true, Relaxed);
        self.shared.threads.wake_all();
        for thread in self.threads.drain(..) {
            // A panic has been printed already.
            let _ = thread.join();
        }
        self.shared.pending.close_all();
        let began = Instant::now();
        while self.shared.sends_farewell
            && self.shared.counters.open.load(Relaxed) > 0
            && began.elapsed() < 3 * FAREWELL_TIME
        {
            std::thread::sleep(FAREWELL_TIME / 20);
        }
    }
}

impl ServerContext {
    pub fn new(
        service: &dyn Service,
        (limits, rates): (&ServerLimits, Option<Arc<RateLimiter>>),
        dialer: &Dialer,
    ) -> Result<ServerContext, Fault> {
        let refusals: Arc<Refusals> = Arc::default();
        let idle_time = Duration::from_secs(limits.idle_s);
        let max_connections = match service.limits_sessions_itself() {
            true => max_session_connections(limits) as usize,
            false => limits.sessions as usize,
        };
        let [of_source, in_all] = MAX_UNVERIFIED_LINKS;
        Ok(ServerContext {
            limits: *limits,
            sends_farewell: service.sends_farewell(),
            max_connections,
            clock: dialer.clock.clone(),
            should_stop: AtomicBool::new(false),
            counters: Arc::default(),
            admission: AdmissionControl::new(dialer.server_ports.clone(), rates.clone(), refusals.clone()),
            refusals,
            rate_limiter: rates,
            quotas: Arc::default(),
            memory: service.memory_budget().unwrap_or_else(|| MemoryBudget::new(limits.memory_bytes)),
            threads: SharedThreads::new(&dialer.clock, limits.threads)?,
            // A client may open all connections of a session before it sends on the first.
            pending: Arc::new(PendingConnections::new([limits.flows as usize + 16, MAX_PENDING], idle_time)?),
            unverified: Arc::new(
                PendingConnections::new([of_source, in_all.min(max_connections)], idle_time)?
                    .with_established(MAX_ESTABLISHED_LINKS),
            ),
        })
    }

    fn dispatch_pending(&self) {
        while !self.should_stop.load(Relaxed) {
            self.pending.dispatch_ready(CANCEL_CHECK_INTERVAL, || self.clock.now());
        }
    }

    /// Pause before the next accept. If descriptors or memory have run out, an idle connection is evicted, and others
    /// will end. A client that disconnected during the accept must not delay the next one.
    fn pause_after(&self, fault: &Fault) -> Duration {
        const RUN_OUT: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        let has_run_out = |errno: &Errno| match fault {
            Fault::System { source, .. } => source.raw_os_error() == Some(errno.raw_os_error()),
            _ => false,
        };
        if RUN_OUT.iter().any(has_run_out) {
            self.pending.evict_oldest();
            return CANCEL_CHECK_INTERVAL;
        }
        Duration::from_millis(1)
    }

    /// Reserves a place among the open connections, if one is free. Links that an existing connection vouches for need
    /// no place.
    fn reserve_connection(&self, caps: &Caps, standing: ClientTrust, from: &str) -> Option<ConnectionGuard> {
        let source = &ClientId::from_sender(from);
        let most_of_source = match standing {
            _ if caps.can_signal_close => usize::MAX,
            ClientTrust::Unidentified | ClientTrust::Unverified => CLOSING_FACTOR * MAX_UNVERIFIED_LINKS[0],
            ClientTrust::AddressVerified | ClientTrust::Exempt => self.limits.flows as usize + 16,
        };
        let share = self.quotas.try_take(source, most_of_source);
        let open = self.counters.open.fetch_add(1, Relaxed);
        let place = ConnectionGuard { _quota_slot: share, counters: self.counters.clone() };
        let most = match standing {
            _ if caps.can_signal_close => self.max_connections,
            ClientTrust::Unidentified | ClientTrust::Unverified => {
                CLOSING_FACTOR * self.max_connections.min(MAX_UNVERIFIED_LINKS[1])
            }
            ClientTrust::AddressVerified => self.max_connections,
            ClientTrust::Exempt => self.max_connections.max(max_session_connections(&self.limits) as usize),
        };
        if place._quota_slot.is_some() && open < most {
            return Some(place);
        }
        self.record_refusal(&format!("all {most} connections are in use: see --max-sessions"), from);
        // A pending connection is evicted for the next one.
        self.pending.evict_oldest();
        None
    }

    fn record_refusal(&self, reason: &str, from: &str) {
        self.counters.refused.fetch_add(1, Relaxed);
        self.refusals.record(reason, from);
    }

    /// Records why a connection ended, unless the client ended it regularly.
    fn record_end(&self, ended: Result<(), Fault>, refusal: Option<&str>, from: &str) {
        if ended.is_err() {
            self.counters.failed.fetch_add(1, Relaxed);
        }
        let complaint = ended.as_ref().err().and_then(Fault::client_complaint);
        if let Some(reason) = refusal.or(complaint) {
            self.refusals.record(reason, from);
        }
    }
}

impl AcceptLoop {
    fn run(self: Arc<AcceptLoop>, listener: &mut dyn Listener) {
        let shared = &self.shared;
        let mut filter = |first: &[u8], from: &str, reply: &mut Vec<u8>| {
            shared.admission.admit(self.service.as_ref(), first, from, reply, shared.clock.now())
        };
        while !shared.should_stop.load(Relaxed) {
            match listener.accept(CANCEL_CHECK_INTERVAL, &mut filter) {
                Ok((link, from)) => self.clone().accept_link(link, from),
                Err(Fault::TimedOut) => {}
                Err(fault) => {
                    shared.record_refusal(&format!("a connection could not be accepted: {fault}"), "unknown");
                    shared.clock.sleep_until(shared.clock.now() + shared.pause_after(&fault));
                }
            }
        }
    }

    /// Handles a new connection: it is pending until its first input, unless the server sends first.
    fn accept_link(self: Arc<AcceptLoop>, link: Box<dyn Link>, from: String) {
        self.shared.counters.accepted.fetch_add(1, Relaxed);
        let (caps, source) = (link.caps(), ClientId::from_sender(&from));
        let shows_input = caps.descriptor.can_share_thread();
        if !caps.can_signal_close || !shows_input || self.service.speaks_first(caps) {
            self.start_connection(link, from, None);
            return;
        }
        let (hall, now) = (&self.shared.pending, self.shared.clock.now());
        if link.descriptor().is_some_and(has_input) {
            let ticket = hall.reserve_slot(&source, now);
            self.start_connection(link, from, Some(ticket));
            return;
        }
        let silent = SilentConnection { link, client_name: from.clone(), handler: self.clone() };
        match hall.add(source, silent, now) {
            Ok(gone) => (0..gone).for_each(|_| self.shared.record_refusal(TOO_MANY_PENDING, &from)),
            Err(fault) => {
                self.shared.record_refusal(&format!("a connection could not be watched: {fault}"), &from)
            }
        }
    }

    /// The party of a client, with the limits of the server.
    fn new_limited_party(&self, caps: &Caps, from: &str, source: &ClientId) -> LimitedParty {
        let meter = self.shared.rate_limiter.as_ref().map(|rates| rates.meter(source));
        LimitedParty::new(self.service.new_party(caps, from), caps, self.limits).with_rate_meter(meter)
    }
}

impl ConnectionHandler for AcceptLoop {
    fn start_connection(&self, link: Box<dyn Link>, from: String, ticket: Option<PendingSlot>) {
        let (shared, source) = (self.shared.clone(), ClientId::from_sender(&from));
        let memory = match shared.memory.charge(self.service.connection_bytes(link.caps()) as u64) {
            Ok(memory) => memory,
            Err(refusal) => {
                shared.record_refusal(&refusal.to_string(), &from);
                shared.pending.evict_oldest();
                return;
            }
        };
        let party = self.new_limited_party(link.caps(), &from, &source);
        let Some(place) = shared.reserve_connection(link.caps(), party.client_trust(), &from) else { return };
        let is_unverified = !link.caps().can_signal_close && party.client_trust() <= ClientTrust::Unverified;
        let ticket = match is_unverified {
            true => Some(shared.unverified.reserve_slot(&source, shared.clock.now())),
            false => ticket,
        };
        if ticket.as_ref().is_some_and(|slot| slot.has_evicted) {
            shared.threads.sweep_all();
        }
        let party = party.with_pending_slot(ticket);
        Connection::start(Connection { party, link, from, shared, _memory: memory, _place: place });
    }
}

/// Counts as an open connection until it is dropped.
struct ConnectionGuard {
    _quota_slot: Option<QuotaSlot>,
    counters: Arc<ServerCounters>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Relaxed);
    }
}
