//! Peers: what the far end may speak, both sides of it. One file (or folder) and one line in [`PEERS`] each.
//!
//! The near side is a [`Session`]: it opens the links a case needs and says which party runs on each. The far side is
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
use crate::plan::{Case, Direction, Pacing, Pin, Rate, Stop, Wait};
use crate::sample::Recorder;
use crate::workload::download::Content;
use crate::workload::{FarReport, Flowed, Measured, Role};

pub mod ask;
pub mod auto;
pub mod chargen;
mod discard;
mod echo;
pub mod iperf3;
mod leash;
pub mod linkgauge;
mod linx_bmark;
pub mod netio;
pub mod pakbus;
pub mod shorthand;
pub mod sockperf;
pub mod stamp;
pub mod tipc_bench;

/// Every peer, in the order in which help shows them. `auto` is not one: it finds out which of these is there.
pub static PEERS: &[Peer] = &[
    linkgauge::PEER,
    echo::PEER,
    discard::PEER,
    chargen::PEER,
    stamp::PEER,
    stamp::TWAMP_LIGHT,
    sockperf::PEER,
    ask::PEER,
    iperf3::PEER,
    netio::PEER,
    pakbus::client::PEER,
    tipc_bench::PEER,
    linx_bmark::PEER,
];

/// What the list knows of a peer.
pub struct Peer {
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
    pub fit: Fit,
    pub connect: Connect,
    /// The far side, if `serve` can play it.
    pub serve: Option<Serve>,
}

/// Reads the options and completes a case before anything is opened, for links that can do so much. May meet a case
/// twice.
pub type Fit = fn(&mut Case, &Caps) -> Result<(), String>;

/// For peers that take every case their workloads and directions allow.
pub const FITS: Fit = |_, _| Ok(());

/// Makes a far end ready for a case.
pub type Connect = fn(&Case, &Near) -> Result<Box<dyn Session>, PeerError>;

/// Makes the far side of a peer for a server.
pub type Serve = fn(&Arc<ServerFacts>) -> Arc<dyn Service>;

/// The peer of that name.
pub fn peer(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name)
}

/// Why a peer could not be used for a case.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The far end said something else than the peer's protocol has here.
    #[error("{endpoint}: {what}")]
    Protocol { endpoint: String, what: String },
    #[error("{0}")]
    Unfit(String),
}

impl PeerError {
    pub fn protocol(endpoint: &Endpoint, what: impl Into<String>) -> PeerError {
        PeerError::Protocol { endpoint: endpoint.to_string(), what: what.into() }
    }
}

/// What a near side works with.
pub struct Near<'a> {
    pub dialer: &'a Dialer,
    /// Shared secret with a server that wants one.
    pub token: Option<&'a str>,
    /// What cases before this one left open.
    pub kept: &'a Arc<Kept>,
    /// Where the content of a download goes, where it is kept.
    pub content: Option<&'a Content>,
    /// Makes the recorder of a flow: its role, and which port of the case it belongs to.
    pub recorder: &'a dyn Fn(Role, usize) -> Recorder,
}

/// What a peer leaves open for the next case of the same run, by a name of its own; closed at the end of the run.
#[derive(Default)]
pub struct Kept(Mutex<Vec<(String, Box<dyn Any + Send>)>>);

impl Kept {
    pub fn keep(&self, name: String, thing: impl Any + Send) {
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
    pub role: Role,
    /// Which port of the case it belongs to.
    pub port: usize,
    pub link: Box<dyn Link>,
    pub party: Box<dyn Measured>,
}

/// A far end that is ready for one case.
pub trait Session: Send {
    /// The flows to run side by side; asked for once.
    fn flows(&mut self) -> Vec<Flow>;

    /// All flows have ended; whether the server still receives what they sent. Asked again after a moment, as long as it
    /// says so and the user has not had enough. `links` are those of the flows.
    fn is_draining(&mut self, links: &mut [Box<dyn Link>]) -> bool {
        let _ = links;
        false
    }

    /// All flows have ended; what the far end counted, if it counts. `links` are those of the flows, still open.
    fn finish(
        &mut self,
        flows: &[Flowed],
        links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let _ = (flows, links);
        Ok(None)
    }

    /// What was agreed with the far end.
    fn got(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Facts of the far machine, if it told any.
    fn far_environment(&self) -> Map<String, Value> {
        Map::new()
    }
}

/// A session whose far end needs no words: just flows.
pub struct Plain {
    flows: Vec<Flow>,
}

impl Plain {
    pub fn boxed(flows: Vec<Flow>) -> Box<dyn Session> {
        Box::new(Plain { flows })
    }
}

impl Session for Plain {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }
}

/// Opens one link for every port and connection of a case and makes a flow of each.
pub fn flows(
    case: &Case,
    near: &Near,
    mut make: impl FnMut(usize, Box<dyn Link>, &mut Vec<Flow>) -> Result<(), PeerError>,
) -> Result<Vec<Flow>, PeerError> {
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
pub struct ServerFacts {
    pub limits: Limits,
    pub token: Option<String>,
    /// Nothing is remembered of senders, where a peer leaves the choice.
    pub stateless: bool,
    /// Facts of this machine, told to clients that ask.
    pub environment: Map<String, Value>,
    /// What a server signs with, so that it need not remember: random for each start.
    pub secret: [u8; 32],
}

impl Default for ServerFacts {
    fn default() -> ServerFacts {
        ServerFacts {
            limits: Limits::default(),
            token: None,
            stateless: false,
            environment: Map::new(),
            secret: random(),
        }
    }
}

/// Random bytes of the system, which nobody can guess.
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
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
pub struct Limits {
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

impl Limits {
    pub const DEFAULT: Limits = Limits {
        sessions: 2048,
        duration_s: 24 * 3600,
        bit_rate: None,
        message_bytes: 1 << 30,
        flows: 2048,
        idle_s: 60,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

/// The far side of a peer: makes the party of each connection.
pub trait Service: Send + Sync {
    /// The far side for connections to this endpoint, where it is another one because of what else is listened on.
    fn at(&self, endpoint: &Endpoint, all: &[Endpoint]) -> Option<Arc<dyn Service>> {
        let _ = (endpoint, all);
        None
    }

    /// Clients hear why their connections end when the server stops: all stay open until it has been said.
    fn says_farewell(&self) -> bool {
        false
    }

    /// Refuses links that it cannot be the far side of, before a server listens.
    fn fits(&self, caps: &Caps) -> Result<(), String> {
        let _ = caps;
        Ok(())
    }

    fn party(&self, caps: &Caps, from: &str) -> Box<dyn Party>;

    /// What a client begins with each time, where one client may begin several times; each gets a party of its own.
    fn begins_with(&self) -> Option<&'static [u8]> {
        None
    }

    /// Where else a server of `endpoint` has to listen, for protocols that talk beside their data.
    fn beside(&self, endpoint: &Endpoint) -> Result<Vec<Endpoint>, EndpointError> {
        let _ = endpoint;
        Ok(Vec::new())
    }

    /// Decides on the first message of an unknown sender, on links without connections. Anybody can send in another's
    /// name there: `Open` is for senders that have proved their address or that a connection vouches for.
    fn door(&self, first: &[u8], from: &str, reply: &mut Vec<u8>) -> Admission {
        let _ = (first, from, reply);
        Admission::Drop
    }

    /// Whether it limits its sessions itself, because one may have several connections. Otherwise each connection is a
    /// session.
    fn counts_sessions(&self) -> bool {
        false
    }

    /// Whether the server acts on a connection before the client has said anything.
    fn speaks_first(&self, caps: &Caps) -> bool {
        let _ = caps;
        false
    }

    /// How much longer than the longest measurement a connection may last.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    /// The settings of a server that it can honour besides those that hold for all.
    fn honours(&self) -> &'static [Setting] {
        &[]
    }
}

/// Settings of a server that not every protocol can honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
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
pub fn far_case(message_bytes: u32) -> Case {
    Case {
        endpoints: Vec::new(),
        peer: String::new(),
        peer_options: Default::default(),
        workload: String::new(),
        direction: Some(Direction::Send),
        message_bytes,
        parallel: 1,
        rate: Rate::Max,
        pacing: Pacing::Closed,
        stop: Stop::default(),
        warm_up: None,
        timeout: Duration::MAX,
        wait: Wait::Block,
        pin: Pin::default(),
        probe_per_second: None,
        interval: Duration::from_secs(1),
        late: Vec::new(),
        thresholds: Vec::new(),
    }
}

/// Whether a sender without a connection is likely to answer an answer: two that answer each other would never stop.
/// Clients send from the ports that the system hands out, above those of well-known services and of the protocols here.
pub fn is_server(from: &str) -> bool {
    let Ok(port) = from.parse::<SocketAddr>().map(|from| from.port()) else { return false };
    let is_default = |peer: &Peer| peer.default_ports.iter().any(|(_, default)| *default == port);
    port < 1024 || port == crate::link::DEFAULT_PORT || PEERS.iter().any(is_default)
}

/// The far end of an echo, for whoever needs one without a server.
pub fn echo_far_end(caps: &Caps, idle: Duration) -> impl Party + use<> {
    echo::reflector(caps, crate::link::party::Tuning::default(), idle)
}
