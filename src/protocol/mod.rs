//! Peers: what the far end may speak, both sides of it. One file (or folder) and one line in [`PROTOCOLS`] each.
//!
//! The near side is a [`ClientSession`]: it opens the links a case needs and says which party runs on each. The far side is
//! a [`Service`]: it makes the party of each connection that somebody opens. Neither runs a loop of its own, and
//! neither touches the stop, the pacing or the recorder.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::endpoint::{Endpoint, EndpointError};
use crate::link::party::Party;
use crate::link::{Admission, Caps, Dialer, Link, LinkError};
use crate::plan::{Case, CpuPinning, Direction, Pacing, RequestedRate, StopCondition, WaitMode};
use crate::sample::Recorder;
use crate::workload::download::ContentSender;
use crate::workload::{FlowResult, FlowRole, RecordingParty, ServerReport};

pub mod ask;
pub mod auto;
pub mod chargen;
mod discard;
mod echo;
pub mod iperf3;
pub mod linkgauge;
mod linx_bmark;
pub mod netio;
pub mod pakbus;
pub mod shorthand;
pub mod sockperf;
pub mod stamp;
pub mod tipc_bench;

/// Every peer, in the order in which help shows them. `auto` is not one: it finds out which of these is there.
pub static PROTOCOLS: &[Protocol] = &[
    linkgauge::PROTOCOL,
    echo::PROTOCOL,
    discard::PROTOCOL,
    chargen::PROTOCOL,
    stamp::PROTOCOL,
    stamp::TWAMP_LIGHT,
    sockperf::PROTOCOL,
    ask::PROTOCOL,
    iperf3::PROTOCOL,
    netio::PROTOCOL,
    pakbus::client::PROTOCOL,
    tipc_bench::PROTOCOL,
    linx_bmark::PROTOCOL,
];

/// What the list knows of a peer.
pub struct Protocol {
    pub name: &'static str,
    pub summary: &'static str,
    /// Port by scheme, where the endpoint names none.
    pub default_ports: &'static [(&'static str, u16)],
    /// Workloads it can serve, each with the directions it knows, the usual one first.
    pub workloads: &'static [(&'static str, &'static [Direction])],
    /// Options that a plan may give it: name and meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Sizes of its messages, one case each, where a plan names none; empty leaves that to the workload.
    pub sizes: &'static [u32],
    pub prepare_case: PrepareCase,
    pub connect: ConnectFn,
    /// The far side, if `serve` can play it.
    pub serve: Option<ServeFn>,
}

/// Reads the options and completes a case before anything is opened, for links that can do so much. May meet a case
/// twice.
pub type PrepareCase = fn(&mut Case, &Caps) -> Result<(), String>;

/// For peers that take every case their workloads and directions allow.
pub const ACCEPT_CASE: PrepareCase = |_, _| Ok(());

/// Makes a far end ready for a case.
pub type ConnectFn = fn(&Case, &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError>;

/// Makes the far side of a peer for a server.
pub type ServeFn = fn(&Arc<ServerConfig>) -> Arc<dyn Service>;

/// The peer of that name.
pub fn find_protocol(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().find(|peer| peer.name == name)
}

/// Why a peer could not be used for a case.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The far end said something else than the peer's protocol has here.
    #[error("{endpoint}: {what}")]
    UnexpectedReply { endpoint: String, what: String },
    #[error("{0}")]
    InvalidCase(String),
}

impl ProtocolError {
    pub fn unexpected_reply(endpoint: &Endpoint, what: impl Into<String>) -> ProtocolError {
        ProtocolError::UnexpectedReply { endpoint: endpoint.to_string(), what: what.into() }
    }
}

/// What a near side works with.
pub struct ConnectContext<'a> {
    pub dialer: &'a Dialer,
    /// Shared secret with a server that wants one.
    pub token: Option<&'a str>,
    /// What cases before this one left open.
    pub connection_cache: &'a Arc<ConnectionCache>,
    /// Where the content of a download goes, where it is kept.
    pub content: Option<&'a ContentSender>,
    /// Makes the recorder of a flow: its role, and which port of the case it belongs to.
    pub new_recorder: &'a dyn Fn(FlowRole, usize) -> Recorder,
}

/// What a peer leaves open for the next case of the same run, by a name of its own; closed at the end of the run.
#[derive(Default)]
pub struct ConnectionCache(Mutex<Vec<(String, Box<dyn Any + Send>)>>);

impl ConnectionCache {
    pub fn store(&self, name: String, thing: impl Any + Send) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, Box::new(thing)));
    }

    /// One of what was left under that name.
    pub fn take<T: Any>(&self, name: &str) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(kept, thing)| kept == name && thing.is::<T>())?;
        all.remove(at).1.downcast().ok().map(|thing| *thing)
    }
}

/// One link with the party that runs on it.
pub struct Flow {
    pub role: FlowRole,
    /// Which port of the case it belongs to.
    pub endpoint_index: usize,
    pub link: Box<dyn Link>,
    pub party: Box<dyn RecordingParty>,
}

/// A far end that is ready for one case.
pub trait ClientSession: Send {
    /// The flows to run side by side; asked for once.
    fn take_flows(&mut self) -> Vec<Flow>;

    /// All flows have ended; whether the server still receives what they sent. Asked again after a moment, as long as it
    /// says so and the user has not had enough. `links` are those of the flows.
    fn is_draining(&mut self, links: &mut [Box<dyn Link>]) -> bool {
        let _ = links;
        false
    }

    /// All flows have ended; what the far end counted, if it counts. `links` are those of the flows, still open.
    fn finish(
        &mut self,
        flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let _ = (flows, links);
        Ok(None)
    }

    /// What was agreed with the far end.
    fn effective_settings(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Facts of the far machine, if it told any.
    fn server_environment(&self) -> Map<String, Value> {
        Map::new()
    }
}

/// A session whose far end needs no words: just flows.
pub struct FlowsOnlySession {
    flows: Vec<Flow>,
}

impl FlowsOnlySession {
    pub fn boxed(flows: Vec<Flow>) -> Box<dyn ClientSession> {
        Box::new(FlowsOnlySession { flows })
    }
}

impl ClientSession for FlowsOnlySession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }
}

/// Opens one link for every port and connection of a case and makes a flow of each.
pub fn open_flows(
    case: &Case,
    near: &ConnectContext,
    mut make: impl FnMut(usize, Box<dyn Link>, &mut Vec<Flow>) -> Result<(), ProtocolError>,
) -> Result<Vec<Flow>, ProtocolError> {
    let mut flows = Vec::new();
    for (port, endpoint) in case.endpoints.iter().enumerate() {
        for _ in 0..case.parallel {
            make(port, near.dialer.open(endpoint)?, &mut flows)?;
        }
    }
    Ok(flows)
}

/// What a server lets its clients do, and is.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub limits: ServerLimits,
    pub token: Option<String>,
    /// Nothing is remembered of senders, where a peer leaves the choice.
    pub is_stateless: bool,
    /// Facts of this machine, told to clients that ask.
    pub environment: Map<String, Value>,
    /// What a server signs with, so that it need not remember: random for each start.
    pub secret: [u8; 32],
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            limits: ServerLimits::default(),
            token: None,
            is_stateless: false,
            environment: Map::new(),
            secret: random_bytes(),
        }
    }
}

/// Random bytes of the system, which nobody can guess.
pub(crate) fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            // Every kernel since 3.17 has them.
            Err(error) => panic!("the system gives no random bytes: {error}"),
        }
    }
    bytes
}

/// What a server grants; it tells them to its clients and enforces them.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServerLimits {
    /// Sessions at once.
    pub sessions: u32,
    /// Longest run of one case, in seconds.
    pub duration_s: u64,
    /// Highest rate of payload for one source of connections, both directions together, in bits per second; none if it
    /// does not limit.
    pub bit_rate: Option<f64>,
    pub message_bytes: u32,
    /// Connections of one session.
    pub flows: u32,
    /// A connection on which nothing moves is closed after so many seconds.
    pub idle_s: u64,
}

impl ServerLimits {
    pub const DEFAULT: ServerLimits = ServerLimits {
        sessions: 2048,
        duration_s: 24 * 3600,
        bit_rate: None,
        message_bytes: 1 << 30,
        flows: 2048,
        idle_s: 60,
    };
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits::DEFAULT
    }
}

/// The far side of a peer: makes the party of each connection.
pub trait Service: Send + Sync {
    /// The far side for connections to this endpoint, where it is another one because of what else is listened on.
    fn for_endpoint(&self, endpoint: &Endpoint, all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let _ = (endpoint, all);
        None
    }

    /// Clients hear why their connections end when the server stops: all stay open until it has been said.
    fn sends_farewell(&self) -> bool {
        false
    }

    /// Refuses links that it cannot be the far side of, before a server listens.
    fn check_link(&self, caps: &Caps) -> Result<(), String> {
        let _ = caps;
        Ok(())
    }

    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party>;

    /// What a client begins with each time, where one client may begin several times; each gets a party of its own.
    fn opening_prefix(&self) -> Option<&'static [u8]> {
        None
    }

    /// Where else a server of `endpoint` has to listen, for protocols that talk beside their data.
    fn extra_endpoints(&self, endpoint: &Endpoint) -> Result<Vec<Endpoint>, EndpointError> {
        let _ = endpoint;
        Ok(Vec::new())
    }

    /// Decides on the first message of an unknown sender, on links without connections. Anybody can send in another's
    /// name there: `Open` is for senders that have proved their address or that a connection vouches for.
    fn admit_sender(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let _ = (first, from, reply);
        Admission::Drop
    }

    /// Whether it limits its sessions itself, because one may have several connections. Otherwise each connection is a
    /// session.
    fn limits_sessions_itself(&self) -> bool {
        false
    }

    /// Whether the server acts on a connection before the client has said anything.
    fn speaks_first(&self, caps: &Caps) -> bool {
        let _ = caps;
        false
    }

    /// How much longer than the longest measurement a connection may last.
    fn grace_period(&self) -> Duration {
        Duration::ZERO
    }

    /// The settings of a server that it can honour besides those that hold for all.
    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[]
    }
}

/// Settings of a server that not every protocol can honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSetting {
    /// Clients prove that they know the token.
    Token,
    /// Nothing is remembered of senders.
    Stateless,
    /// The largest message, on streams too.
    MessageBytes,
    /// Connections of one session.
    Flows,
}

/// A case for a far end that knows only the size of its messages: unpaced, without end, waiting as long as it is left.
pub fn server_case(message_bytes: u32) -> Case {
    Case {
        endpoints: Vec::new(),
        peer: String::new(),
        peer_options: Default::default(),
        workload: String::new(),
        direction: Some(Direction::Send),
        message_bytes,
        parallel: 1,
        rate: RequestedRate::Max,
        pacing: Pacing::Closed,
        stop: StopCondition::default(),
        warm_up: None,
        timeout: Duration::MAX,
        wait: WaitMode::Block,
        pin: CpuPinning::default(),
        probe_per_second: None,
        series_interval: Duration::from_secs(1),
        late_limits: Vec::new(),
        thresholds: Vec::new(),
    }
}

/// Whether a sender without a connection is likely to answer an answer: two that answer each other would never stop.
/// Clients send from the ports that the system hands out, above those of well-known services and of the protocols here.
pub fn is_server_port(from: &str) -> bool {
    let Ok(port) = from.parse::<SocketAddr>().map(|from| from.port()) else { return false };
    let is_default = |peer: &Protocol| peer.default_ports.iter().any(|(_, default)| *default == port);
    port < 1024 || port == crate::link::DEFAULT_PORT || PROTOCOLS.iter().any(is_default)
}

/// The far end of an echo, for whoever needs one without a server.
pub fn echo_reflector(caps: &Caps, idle: Duration) -> impl Party + use<> {
    echo::new_reflector(caps, crate::link::party::Tuning::default(), idle)
}
