//! Protocols: the client and the server side of each. Each protocol is one file (or folder) and one line in the
//! [`Registry`].
//!
//! The client side is a [`ClientSession`]: it opens the links of a case and provides the party that runs on each link.
//! The server side is a [`Service`]: it makes the party of each accepted connection. Neither runs a loop of its own,
//! and neither controls the stop, the pacing or the recorder.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::link::party::Party;
use crate::link::redial::RedialedLink;
use crate::link::time_of_day::TimeOfDay;
use crate::link::{Admission, Caps, Dialer, Framing, Link, LinkError, OriginalServer, ServerHint};
use crate::workload::download::{ContentSender, PartialContent};
use crate::workload::{FlowResult, FlowRole, Load, MovedBytes, RecordingParty, ServerReport, TrafficKind};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{Failure, FailureKind};
use linkgauge_model::sample::Recorder;

pub mod ask;
pub(crate) mod auto;
mod case;
pub mod chargen;
pub mod device;
pub(crate) mod discard;
pub(crate) mod echo;
pub mod iperf2;
pub mod iperf3;
pub mod irtt;
pub mod jitter;
pub mod linkgauge;
pub(crate) mod linx_bmark;
mod load_log;
mod memory_budget;
pub(crate) mod modbus;
pub mod netio;
pub(crate) mod none;
pub mod pakbus;
mod ping_pong;
mod registry;
pub(crate) mod shorthand;
mod signing;
pub mod sockperf;
pub mod stamp;
pub mod tipc_bench;
pub(crate) mod twamp;
pub mod udpst;
mod unknown_server;

pub use auto::lacks_server;
pub use case::{
    CaseDraft, CaseError, IdleTimes, MAX_RECOVERY_FACTOR, ProtocolOptions, RECONNECT_OPTION, ReadyCase,
};
pub(crate) use linkgauge_system::random_bytes;
pub(crate) use load_log::OpenLoad;
pub use load_log::{LoadLog, MAX_LOGGED_LOADS};
pub use memory_budget::MemoryBudget;
pub(crate) use memory_budget::{MemoryCharge, MemoryRefusal};
pub use registry::Registry;
pub use unknown_server::without_protocols;

/// Entry of the list of protocols.
pub struct Protocol {
    /// Name in plans, on the command line and in run documents.
    pub name: &'static str,
    /// One line for the help.
    pub summary: &'static str,
    /// Default port by scheme.
    pub default_ports: &'static [(&'static str, u16)],
    /// Kinds of traffic that it carries, each with its directions; the default direction comes first.
    pub traffic: &'static [(TrafficKind, &'static [Direction])],
    /// Options that a plan may set: name and meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Default message sizes in bytes, one case each; empty means the default of the workload.
    pub sizes: &'static [u32],
    /// Whether a measurement is one test of the server, with its own start and end: it is not split into repetitions.
    pub(crate) is_measured_whole: bool,
    /// URLs with the name of the protocol as their scheme, if it has any.
    pub(crate) shorthand: Option<Shorthand>,
    /// Command that starts the server of the program that the protocol belongs to, where that is well known.
    pub(crate) original_server: Option<OriginalServer>,
    /// Completes a case before it runs.
    pub(crate) prepare_case: PrepareCase,
    /// Opens the links of a case and makes its flows.
    pub connect: ConnectFn,
    /// Server side, if `serve` supports it.
    pub serve: Option<ServeFn>,
}

impl Protocol {
    /// Server that a client of this protocol needs at an endpoint whose links have this framing.
    pub(crate) fn server_hint(&self, endpoint: &Endpoint, framing: Framing) -> ServerHint {
        if [auto::NAME, linkgauge::PROTOCOL.name, none::PROTOCOL.name].contains(&self.name) {
            return ServerHint::default();
        }
        ServerHint {
            protocol: Some(self.name),
            default_port: self.default_port(endpoint.scheme()),
            is_foreign: self.serve.is_none(),
            original: self.original_server.map(|command| (command, framing)),
        }
    }

    /// Default port of a scheme.
    pub fn default_port(&self, scheme: &str) -> Option<u16> {
        self.default_ports.iter().find(|(name, _)| *name == scheme).map(|(_, port)| *port)
    }
}

impl std::fmt::Debug for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Protocol({})", self.name)
    }
}

/// URL `NAME://host:port` with the name of the protocol, or `NAME://host:port/VALUE`, in place of a URL of the first transport
/// with a default port of the protocol.
#[derive(Clone, Copy)]
pub(crate) struct Shorthand {
    /// Option of the protocol that the part after the slash sets. `None`: there is no such part.
    pub(crate) option: Option<&'static str>,
}

/// Reads the options and completes a case before any link is opened; called once for each endpoint.
pub(crate) type PrepareCase = fn(&mut CaseDraft, &Caps) -> Result<(), CaseError>;

/// Prepares a server for a case.
pub type ConnectFn = fn(&ReadyCase, &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError>;

/// Creates the server side of a protocol.
pub type ServeFn = fn(&Arc<ServerConfig>) -> Arc<dyn Service>;

/// Error of a protocol that cannot be used for a case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A link could not be opened, or it failed.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The server sent something that the protocol does not allow here.
    #[error("{endpoint}: {what}")]
    UnexpectedReply {
        /// Server that sent it.
        endpoint: String,
        /// Content of the reply, or the expectation that it violates.
        what: String,
    },
    /// The protocol does not support the case.
    #[error("{0}")]
    InvalidCase(#[from] CaseError),
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Failure {
        match error {
            ProtocolError::Link(error) => error.into(),
            ProtocolError::UnexpectedReply { .. } => {
                Failure::new(FailureKind::UnexpectedReply, error.to_string())
            }
            ProtocolError::InvalidCase(error) => Failure::new(FailureKind::InvalidCase, error.to_string()),
        }
    }
}

impl ProtocolError {
    /// Names the server of a protocol in the hint of a link error.
    pub(crate) fn with_server(self, server: ServerHint) -> ProtocolError {
        match self {
            ProtocolError::Link(error) => error.with_server(server).into(),
            other => other,
        }
    }

    /// Error [`ProtocolError::UnexpectedReply`] of the server at this endpoint.
    pub(crate) fn unexpected_reply(endpoint: &Endpoint, what: impl Into<String>) -> ProtocolError {
        ProtocolError::UnexpectedReply { endpoint: endpoint.to_string(), what: what.into() }
    }
}

/// Inputs of a client.
pub struct ConnectContext<'a> {
    /// Dialer that opens the links.
    pub dialer: &'a Dialer,
    /// Shared secret, for servers that require one.
    pub token: Option<&'a str>,
    /// Connections that earlier cases left open.
    pub connection_cache: &'a Arc<ConnectionCache>,
    /// Receiver of the content of a download, if it is saved.
    pub content: Option<&'a ContentSender>,
    /// Part of an earlier download that the receiver of the content has.
    pub partial_content: Option<&'a PartialContent>,
    /// Makes the recorder of a flow from its role and the index of its endpoint.
    pub(crate) new_recorder: &'a dyn Fn(FlowRole, usize) -> Recorder,
}

/// Connections that a protocol leaves open for the next case of the run, by name. They close at the end of the run.
#[derive(Default)]
pub struct ConnectionCache(Mutex<Vec<(String, Box<dyn Any + Send>)>>);

impl ConnectionCache {
    /// Adds an entry. Entries of the same name are allowed.
    pub fn store(&self, name: String, thing: impl Any + Send) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, Box::new(thing)));
    }

    /// Removes one entry of that name.
    pub fn take<T: Any>(&self, name: &str) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(cached, thing)| cached == name && thing.is::<T>())?;
        all.remove(at).1.downcast().ok().map(|thing| *thing)
    }
}

/// A link and the party that runs on it.
pub struct Flow {
    /// Purpose of the flow.
    pub(crate) role: FlowRole,
    /// Index of its endpoint in the case.
    pub(crate) endpoint_index: usize,
    /// Open link.
    pub link: Box<dyn Link>,
    /// Client's party on the link.
    pub party: Box<dyn RecordingParty>,
}

/// Server that is ready for one case, as the client sees it.
pub trait ClientSession: Send {
    /// Returns the flows to run in parallel; called once.
    fn take_flows(&mut self) -> Vec<Flow>;

    /// Time that passes at the server before it sends and expects payload, so that probes see the idle link. At most the
    /// idle time of the case; zero where the protocol has no such wait.
    fn lead_in(&self) -> Duration {
        Duration::ZERO
    }

    /// Last report of the payload that the server has moved, and its arrival time, from servers that report. Called a few times a
    /// second while the flows run and while the server receives; never waits.
    fn moved_bytes(&mut self) -> Option<(Time, MovedBytes)> {
        None
    }

    /// Returns whether the server still receives after all flows have ended. Called repeatedly until it returns `false`
    /// or the user interrupts. `links` are the links of the flows.
    fn is_draining(&mut self, flows: &[FlowResult], links: &mut [Box<dyn Link>]) -> bool {
        let _ = (flows, links);
        false
    }

    /// Returns the server's counts, if it reports any, after all flows have ended. `links` are the links of the flows,
    /// still open.
    ///
    /// # Errors
    ///
    /// The control connection failed, or the server sent an invalid report.
    fn finish(
        &mut self,
        flows: &[FlowResult],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let _ = (flows, links);
        Ok(None)
    }

    /// Settings that client and server agreed on.
    fn effective_settings(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Identity of the measurement method, where the protocol and not the workload decides how it is measured.
    fn method(&self) -> Option<String> {
        None
    }

    /// Facts about the server's host, if it reports them.
    fn server_environment(&self) -> Map<String, Value> {
        Map::new()
    }
}

/// Session that only has flows: the server needs no control messages.
pub(crate) struct FlowsOnlySession {
    flows: Vec<Flow>,
}

impl FlowsOnlySession {
    /// Session of these flows.
    pub(crate) fn boxed(flows: Vec<Flow>) -> Box<dyn ClientSession> {
        Box::new(FlowsOnlySession { flows })
    }
}

impl ClientSession for FlowsOnlySession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }
}

/// Opens one link for each endpoint and connection of a case, and makes a flow of each from its load, the index of its
/// endpoint and its link.
///
/// # Errors
///
/// A link cannot be opened, or `make` fails.
pub(crate) fn open_flows(
    case: &ReadyCase,
    context: &ConnectContext,
    mut make: impl FnMut(&Load, usize, Box<dyn Link>, &mut Vec<Flow>) -> Result<(), ProtocolError>,
) -> Result<Vec<Flow>, ProtocolError> {
    let (endpoints, parallel, reopens) =
        (case.endpoints.clone(), case.parallel as usize, case.reopens_connections());
    let links: Vec<Box<dyn Link>> =
        context.dialer.open_many(&case.endpoints[0], endpoints.len() * parallel, move |dialer, number| {
            let endpoint = &endpoints[number / parallel];
            match reopens {
                true => RedialedLink::open(endpoint, dialer).map(|link| Box::new(link) as Box<dyn Link>),
                false => dialer.open(endpoint),
            }
        })?;
    let mut flows = Vec::new();
    for (number, link) in links.into_iter().enumerate() {
        let load = case.load.of_flow((number % parallel) as u32);
        make(&load, number / parallel, link, &mut flows)?;
    }
    Ok(flows)
}

/// Settings and limits of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Limits for all clients.
    pub limits: ServerLimits,
    /// Shared secret that clients must prove, where the protocol supports that.
    pub token: Option<String>,
    /// Whether to store nothing about senders, where the protocol supports that.
    pub is_stateless: bool,
    /// Whether to send to addresses that clients only claim to have, where the protocol has such tests: addresses cannot be
    /// forged here.
    pub trusts_senders: bool,
    /// Facts about this machine, for clients that request them.
    pub environment: Map<String, Value>,
    /// Statement of this machine about its time of day. `None`: it is read for each client that requests it.
    pub time_of_day: Option<TimeOfDay>,
    /// Signing key, random for each start. Signed tokens replace stored state.
    pub secret: [u8; 32],
    /// Log in which the server records the loads that it serves, if the protocol supports that (`linkgauge`).
    pub load_log: Option<LoadLog>,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            limits: ServerLimits::default(),
            token: None,
            is_stateless: false,
            trusts_senders: false,
            environment: Map::new(),
            time_of_day: None,
            secret: random_bytes(),
            load_log: None,
        }
    }
}

/// Limits that a server reports to its clients and enforces.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServerLimits {
    /// Maximum number of sessions at once.
    pub sessions: u32,
    /// Longest run of one case, in seconds.
    pub duration_s: u64,
    /// Highest payload rate of one client, both directions together, in bits per second; `None` means unlimited.
    pub bit_rate: Option<f64>,
    /// Maximum payload bytes of one message.
    pub message_bytes: u32,
    /// Maximum number of connections of one session.
    pub flows: u32,
    /// Time without traffic after which a connection is closed, in seconds.
    pub idle_s: u64,
    /// Maximum memory in bytes that all clients may make it use together, a quarter of them in one session. Clients do not
    /// learn it.
    #[serde(skip)]
    pub memory_bytes: u64,
    /// Number of threads that connections share; `None`: one for each CPU. Clients do not learn it.
    #[serde(skip)]
    pub threads: Option<NonZeroU32>,
}

impl ServerLimits {
    /// Default limits of a server.
    pub const DEFAULT: ServerLimits = ServerLimits {
        sessions: 16_384,
        duration_s: 24 * 3600,
        bit_rate: None,
        message_bytes: 1 << 30,
        flows: 16_384,
        idle_s: 60,
        memory_bytes: 1 << 30,
        threads: None,
    };
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits::DEFAULT
    }
}

/// Maximum connections for protocols with several per session: a control connection and usually one or two for data,
/// with room for a session that uses all it may.
pub(crate) fn max_session_connections(limits: &ServerLimits) -> u32 {
    limits.sessions.saturating_mul(4).max(limits.flows.saturating_add(16))
}

/// Server side of a protocol: makes the party of each connection.
pub trait Service: Send + Sync {
    /// Returns a different service for connections to this endpoint, if the other endpoints require one.
    fn for_endpoint(&self, endpoint: &Endpoint, all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let _ = (endpoint, all);
        None
    }

    /// Whether connections stay open at a server stop until the reason has been sent to the clients.
    fn sends_farewell(&self) -> bool {
        false
    }

    /// Rejects unsupported links before the server listens.
    ///
    /// # Errors
    ///
    /// The reason why the service cannot use the link.
    fn check_link(&self, caps: &Caps) -> Result<(), CaseError> {
        let _ = caps;
        Ok(())
    }

    /// Budget that its parties charge, if they charge memory themselves.
    fn memory_budget(&self) -> Option<MemoryBudget> {
        None
    }

    /// Maximum memory of the party of a new connection, in bytes, besides the memory that it charges itself. The bytes are
    /// charged before it is made.
    fn connection_bytes(&self, caps: &Caps) -> usize {
        // What it receives, and the reply to it.
        2 * caps.max_message_bytes.unwrap_or(crate::link::MAX_COALESCED_BYTES)
    }

    /// Makes the party of a new connection. `caps` are the capabilities of its link, `from` is the address of the client.
    fn new_party(&self, caps: &Caps, from: &str) -> Box<dyn Party>;

    /// Returns the first bytes of a client's request, if one client may send several; each gets its own party.
    fn opening_prefix(&self) -> Option<&'static [u8]> {
        None
    }

    /// Describes what clients cannot do if the server listens on these endpoints alone, and the missing endpoint.
    fn missing_listener(&self, endpoints: &[Endpoint]) -> Option<String> {
        let _ = endpoints;
        None
    }

    /// Returns further endpoints to listen on, for protocols with separate control connections. `caps` belong to the endpoint.
    ///
    /// # Errors
    ///
    /// No further endpoint can be derived from this one.
    fn extra_endpoints(&self, endpoint: &Endpoint, caps: &Caps) -> Result<Vec<Endpoint>, EndpointError> {
        let _ = (endpoint, caps);
        Ok(Vec::new())
    }

    /// Decides on the first message of an unknown sender on a connectionless link. Senders can be forged there, so
    /// `Open` requires a proved address or an existing connection.
    fn admit_sender(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let _ = (first, from, reply);
        Admission::Drop
    }

    /// Bytes by which a reply to a first message may be longer than the message, where the protocol has no other handshake.
    fn max_reply_growth_bytes(&self) -> usize {
        0
    }

    /// Whether a sender at this port, which servers use, gets a reply. A server there must not be able to reply to `reply`, or
    /// the replies would never stop.
    fn replies_to_server_port(&self, port: u16, first: &[u8], reply: &[u8]) -> bool {
        let _ = (port, first, reply);
        false
    }

    /// Whether the protocol limits its sessions itself, because a session may have several connections. Otherwise each
    /// connection counts as a session.
    fn limits_sessions_itself(&self) -> bool {
        false
    }

    /// Whether the server acts on a connection before the client sends anything.
    fn speaks_first(&self, caps: &Caps) -> bool {
        let _ = caps;
        false
    }

    /// Time for which a connection may last longer than the longest measurement.
    fn grace_period(&self) -> Duration {
        Duration::ZERO
    }

    /// Server settings that it supports, besides those that every protocol supports.
    fn supported_settings(&self) -> &'static [ServerSetting] {
        &[]
    }
}

/// Server settings that only some protocols support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSetting {
    /// Clients prove that they know the token.
    Token,
    /// The server stores nothing about senders.
    Stateless,
    /// The addresses of senders are not forged.
    TrustSenders,
    /// Maximum size of a message, on streams too.
    MessageBytes,
    /// Maximum number of connections of one session.
    Flows,
}

/// Server side of an echo, for use without a running server.
pub fn echo_reflector(caps: &Caps, idle: Duration) -> impl Party + use<> {
    echo::new_reflector(caps, crate::link::party::Tuning::default(), idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Fault;

    #[test]
    fn a_refusal_names_the_commands_that_start_the_server() {
        let of = |protocol: &str, endpoint: &str| {
            let endpoint: Endpoint = endpoint.parse().unwrap();
            let refused =
                Fault::System { operation: "connect", source: std::io::ErrorKind::ConnectionRefused.into() };
            let registry = Registry::standard();
            let framing = registry.transports.caps(&endpoint).unwrap().framing;
            let hint = registry.protocol(protocol).unwrap().server_hint(&endpoint, framing);
            LinkError::new(&endpoint, refused).with_server(hint).to_string()
        };
        insta::assert_snapshot!([
            of("iperf3", "tcp://192.0.2.1"),
            of("iperf3", "udp://192.0.2.1:9"),
            of("sockperf", "tcp://192.0.2.1:11111"),
            of("sockperf", "udp://192.0.2.1"),
            of("netio", "tcp://192.0.2.1"),
            of("linx-bmark", "linx://192.0.2.1/server"),
            of("stamp", "udp://192.0.2.1"),
            of("pakbus", "tcp://192.0.2.1"),
        ].join("\n"), @r"
        tcp://192.0.2.1: connection refused: no server listens on port 5201. Start one there, like 'linkgauge serve --protocol iperf3 tcp://0.0.0.0' or 'iperf3 -s', or name another port
        udp://192.0.2.1:9: connection refused: no server listens on this port. Start one there, like 'linkgauge serve --protocol iperf3 udp://0.0.0.0:9' or 'iperf3 -s -p 9', or name another port
        tcp://192.0.2.1:11111: connection refused: no server listens on this port. Start one there, like 'linkgauge serve --protocol sockperf tcp://0.0.0.0:11111' or 'sockperf sr --tcp', or name another port
        udp://192.0.2.1: connection refused: no server listens on port 11111. Start one there, like 'linkgauge serve --protocol sockperf udp://0.0.0.0' or 'sockperf sr', or name another port
        tcp://192.0.2.1: connection refused: no server listens on port 18767. Start one there, like 'linkgauge serve --protocol netio tcp://0.0.0.0' or 'netio -s', or name another port
        linx://192.0.2.1/server: connection refused: no server listens there. Start one, like 'linkgauge serve --protocol linx-bmark linx://192.0.2.1/server' or 'linx_bmark -S'
        udp://192.0.2.1: connection refused: no server listens on port 862. Start one there, like 'linkgauge serve --protocol stamp udp://0.0.0.0', or name another port
        tcp://192.0.2.1: connection refused: no server listens on port 6785. Start one there, or name another port
        ");
    }
}
