//! An iperf3 server for several clients at once: the running tests, and the identification of new connections.
//!
//! A connection begins with a cookie: an unknown cookie opens a test, a known one joins its test as a stream. Streams
//! of datagrams have no cookie. They belong to the test of the same host that waits for streams, so tests of one host
//! open their streams one after the other.

mod control;
mod stream;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::data::TestState;
use super::wire::{self, COOKIE_BYTES, Cookie, Parameters};
use crate::link::party::{ClientTrust, Party, PartyCost, Step, StopReason};
use crate::link::{Admission, Batch, Caps, Fault, Framing};
use crate::protocol::{MemoryBudget, ServerConfig, ServerSetting, Service};
use control::ServerControl;
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use stream::ServerStream;

/// Maximum time for a client to set up its test.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Extra time after the planned end, for the last bytes and the results.
const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Bytes of a control connection: its input and output, and the results of the client.
const CONTROL_BYTES: usize = 16 * 1024;

/// Maximum time for a stream of datagrams while another test of the host waits: its client may have vanished.
const CONTENDED_STREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between checks while a connection waits for others of its test.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn new_service(facts: &Arc<ServerConfig>) -> Arc<dyn Service> {
    let congestion = crate::host::sysctl("net.ipv4.tcp_congestion_control");
    let congestion = congestion.and_then(|name| name.as_str().map(str::to_owned));
    let registry = TestRegistry {
        config: facts.clone(),
        tests: Mutex::default(),
        memory: MemoryBudget::new(facts.limits.memory_bytes),
        accepted_connections: AtomicU64::default(),
    };
    Arc::new(Iperf3Service { registry: Arc::new(registry), congestion_control: congestion })
}

/// All tests of a server.
struct TestRegistry {
    config: Arc<ServerConfig>,
    tests: Mutex<HashMap<Cookie, Arc<ServerTest>>>,
    memory: MemoryBudget,
    /// Number of connections so far; streams are numbered in the order of accept.
    accepted_connections: AtomicU64,
}

impl TestRegistry {
    fn tests(&self) -> MutexGuard<'_, HashMap<Cookie, Arc<ServerTest>>> {
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a test; `None` if there are too many.
    fn open_test(&self, cookie: Cookie, from: &str) -> Option<Arc<ServerTest>> {
        let mut tests = self.tests();
        if tests.len() >= self.config.limits.sessions as usize {
            return None;
        }
        let test = Arc::new(ServerTest {
            cookie,
            host: sender_host(from),
            parameters: OnceLock::new(),
            awaits_turn: AtomicBool::new(false),
            awaits_streams: AtomicBool::new(false),
            arrivals: Mutex::default(),
            stream_order: OnceLock::new(),
            ready_streams: AtomicUsize::new(0),
            is_running: AtomicBool::new(false),
            state: Arc::default(),
        });
        tests.insert(cookie, test.clone());
        Some(test)
    }

    fn close_test(&self, test: &ServerTest) {
        self.tests().remove(&test.cookie);
        test.state.abort();
    }

    /// Streams of one test for which there is memory.
    fn max_streams(&self) -> usize {
        (self.memory.max_session_bytes() / stream::MEMORY_BYTES as u64) as usize
    }

    /// The state of a connection that has joined a test; closed if no memory is left for it.
    fn open_stream(&self, test: Arc<ServerTest>, arrival: u64, caps: &Caps) -> Iperf3ConnectionState {
        match self.memory.charge(stream::MEMORY_BYTES as u64) {
            Ok(memory) => {
                Iperf3ConnectionState::Stream(ServerStream::new(&self.config, test, arrival, caps, memory))
            }
            Err(_) => {
                test.leave(arrival);
                Iperf3ConnectionState::Closed
            }
        }
    }

    /// Whether the streams of this test may open now: a host opens datagram streams for one test at a time.
    fn try_await_streams(&self, test: &ServerTest) -> bool {
        let tests = self.tests();
        let mut others =
            tests.values().filter(|other| other.host == test.host && other.cookie != test.cookie);
        let may = !test.is_udp() || !others.any(|other| other.is_udp() && other.awaits_streams.load(Relaxed));
        if may {
            // Under the lock, so that two tests cannot begin at once.
            test.awaits_streams.store(true, Relaxed);
        }
        test.awaits_turn.store(!may, Relaxed);
        may
    }

    /// Time for which this test may wait for its next stream.
    fn stream_timeout(&self, test: &ServerTest) -> Duration {
        let waits = |other: &Arc<ServerTest>| other.host == test.host && other.awaits_turn.load(Relaxed);
        match test.is_udp() && test.awaits_streams.load(Relaxed) && self.tests().values().any(waits) {
            true => CONTENDED_STREAM_TIMEOUT,
            false => HANDSHAKE_TIMEOUT,
        }
    }

    /// The test that waits for a datagram stream of that host.
    fn find_awaiting(&self, host: &str) -> Option<Arc<ServerTest>> {
        self.tests().values().find(|test| test.host == host && test.is_udp() && test.has_room()).cloned()
    }
}

/// The host of a sender, without its port. A dual-stack listener sees IPv4 addresses as mapped ones.
fn sender_host(from: &str) -> String {
    from.parse().map_or(from.to_owned(), |from: SocketAddr| from.ip().to_canonical().to_string())
}

/// State that the connections of one test share.
struct ServerTest {
    cookie: Cookie,
    host: String,
    parameters: OnceLock<Parameters>,
    /// Waits until another test of its host has its streams.
    awaits_turn: AtomicBool,
    /// Waits for its streams.
    awaits_streams: AtomicBool,
    arrivals: Mutex<Vec<u64>>,
    /// Arrivals in their order, once all are there.
    stream_order: OnceLock<Vec<u64>>,
    /// Number of streams that are set up; senders may start when all are.
    ready_streams: AtomicUsize,
    is_running: AtomicBool,
    state: Arc<TestState>,
}

impl ServerTest {
    fn is_udp(&self) -> bool {
        self.parameters.get().is_some_and(|parameters| parameters.udp)
    }

    fn stream_count(&self) -> usize {
        self.parameters.get().map_or(0, Parameters::stream_count)
    }

    fn lock_arrivals(&self) -> MutexGuard<'_, Vec<u64>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self) -> bool {
        self.awaits_streams.load(Relaxed) && self.lock_arrivals().len() < self.stream_count()
    }

    /// Joins an arrived stream to the test, if there is room.
    fn try_join(&self, arrival: u64) -> bool {
        let mut arrived = self.lock_arrivals();
        let room = self.awaits_streams.load(Relaxed) && arrived.len() < self.stream_count();
        if room {
            arrived.push(arrival);
        }
        room
    }

    /// The stream ended before the test began: its place is free again.
    fn leave(&self, arrival: u64) {
        self.lock_arrivals().retain(|other| *other != arrival);
    }

    /// Numbers the streams, once all are there. Returns whether all of them are set up.
    fn try_start(&self) -> bool {
        let mut order = self.lock_arrivals().clone();
        if self.stream_order.get().is_none() && order.len() == self.stream_count() {
            order.sort_unstable();
            self.awaits_streams.store(false, Relaxed);
            // Set once.
            let _ = self.stream_order.set(order);
        }
        let ready =
            self.stream_order.get().is_some_and(|order| self.ready_streams.load(Relaxed) == order.len());
        if ready {
            self.is_running.store(true, Relaxed);
        }
        ready
    }

    /// The number of a stream, once all are there.
    fn stream_index(&self, arrival: u64) -> Option<usize> {
        self.stream_order.get()?.iter().position(|other| *other == arrival)
    }
}

struct Iperf3Service {
    registry: Arc<TestRegistry>,
    /// Congestion control of the connections: the host's default, or the one in the endpoint.
    congestion_control: Option<String>,
}

impl Service for Iperf3Service {
    fn memory_budget(&self) -> Option<MemoryBudget> {
        Some(self.registry.memory.clone())
    }

    /// Bytes of a control connection; a stream charges its own when it has joined its test.
    fn connection_bytes(&self, _caps: &Caps) -> usize {
        CONTROL_BYTES
    }

    /// The control connection of a test and its streams may have different transports.
    fn missing_listener(&self, endpoints: &[Endpoint]) -> Option<String> {
        let first = endpoints.first()?;
        let mut schemes = super::PROTOCOL.default_ports.iter().map(|(scheme, _)| *scheme).enumerate();
        let is_missing = |scheme: &str| endpoints.iter().all(|endpoint| endpoint.scheme() != scheme);
        let (index, scheme) = schemes.find(|(_, scheme)| is_missing(scheme))?;
        let missing = first.as_str().replacen(first.scheme(), scheme, 1);
        Some(match index {
            0 => format!("Each test fails: its control connection needs {missing} as well."),
            _ => format!("Tests over {} fail: they need {missing} as well.", scheme.to_uppercase()),
        })
    }

    fn for_endpoint(&self, endpoint: &Endpoint, _all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let name = endpoint.option("congestion")?;
        Some(Arc::new(Iperf3Service {
            registry: self.registry.clone(),
            congestion_control: Some(name.to_owned()),
        }))
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party> {
        let arrival = self.registry.accepted_connections.fetch_add(1, Relaxed);
        let kind = match caps.framing {
            Framing::Stream => Iperf3ConnectionState::AwaitingCookie(Batch::new(COOKIE_BYTES, 1)),
            Framing::Message => {
                match self.registry.find_awaiting(&sender_host(from)).filter(|test| test.try_join(arrival)) {
                    Some(test) => self.registry.open_stream(test, arrival, caps),
                    None => Iperf3ConnectionState::Closed,
                }
            }
        };
        Box::new(Iperf3Connection {
            registry: self.registry.clone(),
            congestion_control: self.congestion_control.clone(),
            caps: caps.clone(),
            client: from.to_owned(),
            arrival,
            cookie_bytes: Vec::new(),
            started_at: None,
            state: kind,
        })
    }

    fn sends_farewell(&self) -> bool {
        true
    }

    fn limits_sessions_itself(&self) -> bool {
        true
    }

    fn grace_period(&self) -> Duration {
        GRACE_PERIOD
    }

    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[ServerSetting::MessageBytes, ServerSetting::Flows]
    }

    fn admit_sender(&self, first: &[u8], from: &str, _reply: &mut Vec<u8>) -> Admission {
        // Other implementations send other values; all have four bytes.
        let known =
            first.len() == wire::UDP_HELLO.len() && self.registry.find_awaiting(&sender_host(from)).is_some();
        if known { Admission::Open } else { Admission::Drop }
    }

    /// A client chooses its port (`--cport`). The test that its control connection has set up vouches for it.
    fn replies_to_server_port(&self, _port: u16, _first: &[u8], _reply: &[u8]) -> bool {
        true
    }
}

/// A connection of any kind.
struct Iperf3Connection {
    registry: Arc<TestRegistry>,
    congestion_control: Option<String>,
    caps: Caps,
    client: String,
    arrival: u64,
    cookie_bytes: Vec<u8>,
    started_at: Option<Time>,
    state: Iperf3ConnectionState,
}

enum Iperf3ConnectionState {
    /// The cookie is awaited, with room for its rest only: the bytes after it belong to the stream.
    AwaitingCookie(Batch),
    Control(Box<ServerControl>),
    Stream(ServerStream),
    Closed,
}

impl Iperf3Connection {
    fn as_party(&mut self) -> Option<&mut dyn Party> {
        match &mut self.state {
            Iperf3ConnectionState::Control(control) => Some(control.as_mut()),
            Iperf3ConnectionState::Stream(stream) => Some(stream),
            Iperf3ConnectionState::AwaitingCookie(_) | Iperf3ConnectionState::Closed => None,
        }
    }

    fn identify(&mut self) -> Iperf3ConnectionState {
        if self.cookie_bytes.len() < COOKIE_BYTES {
            return if Cookie::is_valid_prefix(&self.cookie_bytes) {
                Iperf3ConnectionState::AwaitingCookie(Batch::new(COOKIE_BYTES - self.cookie_bytes.len(), 1))
            } else {
                Iperf3ConnectionState::Closed
            };
        }
        let Some(cookie) = Cookie::parse(&self.cookie_bytes) else { return Iperf3ConnectionState::Closed };
        let known = self.registry.tests().get(&cookie).cloned();
        match known {
            None => {
                let control = ServerControl::new(&self.registry, cookie, &self.client);
                Iperf3ConnectionState::Control(Box::new(
                    control.with_congestion_control(self.congestion_control.clone()),
                ))
            }
            Some(test) if !test.is_udp() && test.try_join(self.arrival) => {
                self.registry.open_stream(test, self.arrival, &self.caps)
            }
            Some(_) => Iperf3ConnectionState::Closed,
        }
    }
}

impl Party for Iperf3Connection {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        match &mut self.state {
            Iperf3ConnectionState::Control(control) => control.next_step(now),
            Iperf3ConnectionState::Stream(stream) => stream.next_step(now),
            Iperf3ConnectionState::AwaitingCookie(batch) => {
                Step::Receive { into: batch, until: *self.started_at.get_or_insert(now) + HANDSHAKE_TIMEOUT }
            }
            Iperf3ConnectionState::Closed => Step::Done,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if let Some(party) = self.as_party() {
            party.on_sent(bytes, at);
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        if let Iperf3ConnectionState::AwaitingCookie(batch) = &self.state {
            batch.messages().for_each(|bytes| self.cookie_bytes.extend_from_slice(bytes));
            self.state = self.identify();
        } else if let Some(party) = self.as_party() {
            party.on_received(now);
        }
    }

    fn client_trust(&self) -> ClientTrust {
        match &self.state {
            Iperf3ConnectionState::AwaitingCookie(_) => ClientTrust::Unidentified,
            Iperf3ConnectionState::Control(control) => control.client_trust(),
            // The control connection of the test vouches for datagrams, and ends them.
            Iperf3ConnectionState::Stream(_) if !self.caps.can_signal_close => ClientTrust::Exempt,
            Iperf3ConnectionState::Stream(_) | Iperf3ConnectionState::Closed => ClientTrust::Unverified,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        match self.as_party() {
            Some(party) => party.on_timeout(now),
            None => self.state = Iperf3ConnectionState::Closed,
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        match self.as_party() {
            Some(party) => party.on_closed(now),
            None => {
                self.state = Iperf3ConnectionState::Closed;
                Ok(())
            }
        }
    }

    fn on_stopped(&mut self, reason: StopReason) {
        if let Some(party) = self.as_party() {
            party.on_stopped(reason);
        }
    }

    fn refusal(&self) -> Option<&str> {
        match &self.state {
            Iperf3ConnectionState::Control(control) => control.refusal(),
            _ => None,
        }
    }

    fn closing_message(&mut self) -> &'static [u8] {
        self.as_party().map_or(&[], Party::closing_message)
    }

    fn on_ended(&mut self, cost: PartyCost) {
        if let Some(party) = self.as_party() {
            party.on_ended(cost);
        }
    }
}
