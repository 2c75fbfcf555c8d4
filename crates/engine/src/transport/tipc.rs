//! `tipc://TYPE:INSTANCE`: sockets of the kernel's TIPC, found by a name in a cluster of machines.
//!
//! A listener publishes the name; a client waits until the name is published (`topology`). This file contains
//! the kinds with connections, `datagram` those without. The kernel and the administrator control bearers and
//! links between machines.

mod datagram;
mod topology;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

use socket2::{SockAddr, Socket, Type};

use super::datagram::DatagramLink;
use super::offload::OffloadOptions;
use super::socket::{self, AcceptResult, LISTEN_BACKLOG, SocketLink, SocketListener, parse_flag};
use crate::link::{
    Caps, Facts, Fault, Framing, Limitation, Link, LinkDescriptor, Listener, OpenContext, Transport,
};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;

use linkgauge_system::{self as system, Errno};
pub use topology::{own_node, parse_event};

/// The transport `tipc` in the list of transports.
pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "tipc",
    summary: "TIPC socket of the kernel, found by a name in the cluster",
    example: "tipc://7100:1?type=rdm",
    options: &[
        ("type", "seqpacket (default), stream, rdm or dgram"),
        (
            "importance",
            "low (default), medium, high or critical: under congestion, lower importance is refused first",
        ),
        ("nodelay", "stream: 1 (default) sends at once, 0 lets the kernel gather small writes"),
        ("bind", "rdm and dgram: also publish this name, like 16666:0, and receive messages for it"),
        ("multicast", "rdm and dgram: 1 sends to every socket that has published the name (0)"),
        ("answers", "rdm and dgram, for listeners: replies go to this name (to the sender)"),
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|options| options.caps()),
    resolve: None,
    available: || {
        raw_socket(Type::SEQPACKET).map(|_| ()).map_err(|error| {
            Limitation::from_socket_error(
                &error,
                "the kernel has no TIPC, or has not loaded it",
                "sudo modprobe tipc (where it is missing: the package linux-modules-extra of the kernel)",
            )
        })
    },
    limitation,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |directory| {
        // A name is visible to the whole cluster; the directory makes it unique (FNV-1a).
        let fresh = directory
            .bytes()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let kinds = ["seqpacket", "stream", "rdm", "dgram"];
        kinds.iter().zip(0..).map(|(kind, n)| format!("tipc://7100:{}?type={kind}", fresh ^ n)).collect()
    },
};

/// `TIPC_MAX_USER_MSG_SIZE` of linux/tipc.h.
const MAX_MESSAGE_BYTES: usize = 66_000;

/// Interval of further calls to a name whose socket does not listen yet.
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Lowest type that is not reserved for the kernel (`TIPC_RESERVED_TYPES`).
const FIRST_USER_TYPE: u32 = 64;

/// A service address: the destination of messages, whichever socket has published it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceName {
    /// The service type, at least 64: lower ones are reserved.
    pub(crate) service_type: u32,
    /// The instance of the service.
    pub(crate) instance: u32,
}

impl ServiceName {
    fn parse(text: &str) -> Option<ServiceName> {
        let (kind, instance) = text.split_once(':')?;
        let name = ServiceName { service_type: kind.parse().ok()?, instance: instance.parse().ok()? };
        (name.service_type >= FIRST_USER_TYPE).then_some(name)
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service_type, self.instance)
    }
}

/// A socket somewhere in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TipcPort {
    /// The address of the node.
    pub node: u32,
    /// The number of the socket on its node.
    pub(crate) reference: u32,
}

/// Address kinds (`TIPC_SERVICE_RANGE` and others of linux/tipc.h).
const ADDRESS_RANGE: u8 = 1;
const ADDRESS_SERVICE: u8 = 2;
const ADDRESS_SOCKET: u8 = 3;

impl TipcPort {
    fn from_address(address: &SockAddr) -> Option<TipcPort> {
        match system::tipc_words(address)? {
            (ADDRESS_SOCKET, [reference, node, _]) => Some(TipcPort { node, reference }),
            _ => None,
        }
    }

    fn address(self) -> SockAddr {
        system::tipc_address(ADDRESS_SOCKET, [self.reference, self.node, 0])
    }
}

impl fmt::Display for TipcPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {:x}, socket {:x}", self.node, self.reference)
    }
}

/// Address of one of the sockets that have published a name.
fn service_address(name: ServiceName) -> SockAddr {
    system::tipc_address(ADDRESS_SERVICE, [name.service_type, name.instance, 0])
}

/// Address of all sockets that have published a name; also used to publish it.
fn range_address(name: ServiceName) -> SockAddr {
    system::tipc_address(ADDRESS_RANGE, [name.service_type, name.instance, name.instance])
}

fn raw_socket(kind: Type) -> io::Result<Socket> {
    system::tipc_socket(kind)
}

fn open_socket(kind: Type) -> Result<Socket, Fault> {
    raw_socket(kind).map_err(Fault::system("open a TIPC socket"))
}

/// Limits the reach to this machine: the reason and the remedy.
pub(crate) fn limitation() -> Option<Limitation> {
    (own_node()? == 0).then(|| Limitation {
        reason: "this node has no bearer, so it reaches itself only".to_owned(),
        remedy: "sudo tipc bearer enable media eth device eth0, and the same on the other machines"
            .to_owned(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TipcSocketKind {
    SeqPacket,
    Stream,
    Rdm,
    Datagram,
}

/// A parsed endpoint of this transport.
#[derive(Clone, Copy)]
struct Options {
    service_name: ServiceName,
    socket_kind: TipcSocketKind,
    importance: u32,
    nodelay: bool,
    bind_name: Option<ServiceName>,
    is_multicast: bool,
    reply_name: Option<ServiceName>,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        const NAME: &str = "TYPE:INSTANCE, two numbers like 7100:1, the type from 64";
        let name = ServiceName::parse(endpoint.address())
            .ok_or_else(|| EndpointError::BadAddress { url: endpoint.to_string(), wanted: NAME })?;
        let kind = endpoint.parse_option("type", "seqpacket, stream, rdm or dgram", |text| match text {
            "seqpacket" => Some(TipcSocketKind::SeqPacket),
            "stream" => Some(TipcSocketKind::Stream),
            "rdm" => Some(TipcSocketKind::Rdm),
            "dgram" => Some(TipcSocketKind::Datagram),
            _ => None,
        })?;
        let importance = endpoint.parse_option("importance", "low, medium, high or critical", |text| {
            ["low", "medium", "high", "critical"]
                .iter()
                .zip(0..)
                .find(|(name, _)| **name == text)
                .map(|(_, n)| n)
        })?;
        let options = Options {
            service_name: name,
            socket_kind: kind.unwrap_or(TipcSocketKind::SeqPacket),
            importance: importance.unwrap_or(0),
            nodelay: parse_flag(endpoint, "nodelay")?.unwrap_or(true),
            bind_name: endpoint.parse_option("bind", NAME, ServiceName::parse)?,
            is_multicast: parse_flag(endpoint, "multicast")?.unwrap_or(false),
            reply_name: endpoint.parse_option("answers", NAME, ServiceName::parse)?,
        };
        let given = options.bind_name.is_some() || options.is_multicast || options.reply_name.is_some();
        if given && !matches!(options.socket_kind, TipcSocketKind::Rdm | TipcSocketKind::Datagram) {
            let wanted = "type=rdm or type=dgram for bind, multicast and replies: this type has connections";
            return Err(EndpointError::BadAddress { url: endpoint.to_string(), wanted });
        }
        Ok(options)
    }

    fn caps(&self) -> Caps {
        let connections = Caps { can_half_close: false, ..Caps::STREAM };
        let messages = Caps {
            framing: Framing::Message,
            max_message_bytes: Some(MAX_MESSAGE_BYTES),
            ..connections.clone()
        };
        match self.socket_kind {
            TipcSocketKind::Stream => connections,
            TipcSocketKind::SeqPacket => messages,
            // The network loses nothing of the reliable kind either, but a receiver with a full queue drops
            // messages.
            TipcSocketKind::Rdm | TipcSocketKind::Datagram => {
                // Messages of others arrive as well.
                let descriptor = LinkDescriptor::Events;
                Caps { is_reliable: false, can_signal_close: false, descriptor, ..messages }
            }
        }
    }

    fn open_socket(&self) -> Result<Socket, Fault> {
        let socket = open_socket(match self.socket_kind {
            TipcSocketKind::SeqPacket => Type::SEQPACKET,
            TipcSocketKind::Stream => Type::STREAM,
            TipcSocketKind::Rdm => system::reliable_datagrams(),
            TipcSocketKind::Datagram => Type::DGRAM,
        })?;
        self.apply_to_socket(&socket)?;
        Ok(socket)
    }

    fn apply_to_socket(&self, socket: &Socket) -> Result<(), Fault> {
        system::set_tipc_option(socket, TIPC_IMPORTANCE, self.importance)
            .map_err(Fault::system("set the importance"))?;
        if self.socket_kind != TipcSocketKind::Stream {
            return Ok(());
        }
        // Kernels before 5.5 never coalesce and lack this option.
        match system::set_tipc_option(socket, TIPC_NODELAY, u32::from(self.nodelay)) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NOPROTOOPT) => {
                Err(Fault::System { operation: "set TIPC_NODELAY", source: error })
            }
            _ => Ok(()),
        }
    }

    fn socket_link(&self, socket: Socket, clock: &Clock, wait: WaitMode) -> SocketLink {
        SocketLink::new(socket, self.caps(), clock, wait, facts)
    }

    /// A link with a connection.
    fn make_link(&self, socket: Socket, clock: &Clock, wait: WaitMode) -> Box<dyn Link> {
        let link = self.socket_link(socket, clock, wait);
        match self.socket_kind {
            TipcSocketKind::Stream => Box::new(link),
            _ => Box::new(DatagramLink::new(link, OffloadOptions::NONE, VecDeque::new())),
        }
    }
}

/// `TIPC_IMPORTANCE` and `TIPC_NODELAY` of linux/tipc.h.
const TIPC_IMPORTANCE: i32 = 127;
const TIPC_NODELAY: i32 = 138;

fn facts(socket: &Socket, facts: &mut Facts) {
    for (fact, address) in [("local", socket.local_addr()), ("remote", socket.peer_addr())] {
        let port = address.ok().as_ref().and_then(TipcPort::from_address);
        facts.extend(port.map(|port| (fact.to_owned(), port.to_string().into())));
    }
    facts.extend(
        system::tipc_option(socket, TIPC_IMPORTANCE)
            .map(|importance| ("importance".to_owned(), importance.into())),
    );
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let until = context.clock.now() + context.timeout;
    let port = topology::await_name(options.service_name, context.timeout)?;
    if !options.caps().can_signal_close {
        return datagram::open(&options, port, context);
    }
    let socket = connect_with_retry(&context.clock, until, || {
        let socket = options.open_socket()?;
        topology::set_connect_timeout(&socket, until - context.clock.now())?;
        match socket.connect(&service_address(options.service_name)) {
            // The server does not accept.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Fault::TimedOut),
            done => done.map_err(Fault::system("connect")).map(|()| socket),
        }
    })?;
    Ok(options.make_link(socket, &context.clock, context.wait))
}

/// Calls until a server listens. A name is published before its socket listens, and on a busy host that takes
/// time: until then the kernel refuses.
fn connect_with_retry<T>(
    clock: &Clock,
    until: Time,
    mut connect: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    loop {
        match connect() {
            Err(Fault::System { source, .. })
                if source.kind() == io::ErrorKind::ConnectionRefused
                    && clock.now() + CONNECT_RETRY_INTERVAL < until =>
            {
                clock.sleep_until(clock.now() + CONNECT_RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let socket = options.open_socket()?;
    if !options.caps().can_signal_close {
        return datagram::listen(endpoint, options, socket, context);
    }
    socket.bind(&range_address(options.service_name)).map_err(Fault::system("bind"))?;
    // This family limits the socket's queue instead of the backlog.
    socket::listen(&socket, LISTEN_BACKLOG).map_err(Fault::system("listen"))?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket: Socket, from: &SockAddr| -> AcceptResult {
        options.apply_to_socket(&socket)?;
        Ok((
            options.make_link(socket, &clock, wait),
            TipcPort::from_address(from).map(|port| port.to_string()),
        ))
    };
    Ok(Box::new(SocketListener { socket, endpoint: endpoint.clone(), make_link: admit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, EndpointError> {
        Options::from_endpoint(&text.parse().unwrap())
    }

    #[test]
    fn addresses_have_the_layout_of_the_kernel() {
        let bytes = |address: SockAddr| system::tipc_words(&address).unwrap();
        assert_eq!(
            bytes(range_address(ServiceName { service_type: 17777, instance: 0 })),
            (1, [17777, 0, 0])
        );
        assert_eq!(
            bytes(service_address(ServiceName { service_type: 18888, instance: 3 })),
            (2, [18888, 3, 0])
        );
        let port = TipcPort { node: 0x6e31_0000, reference: 7 };
        assert_eq!(bytes(port.address()), (3, [7, 0x6e31_0000, 0]));
        assert_eq!(TipcPort::from_address(&port.address()), Some(port));
        assert_eq!(port.address().len(), 16);
        assert!(system::tipc_words(&port.address()).is_some());
    }

    #[test]
    fn the_type_decides_what_a_link_can_do() {
        let caps = |kind: &str| parse(&format!("tipc://7100:1?type={kind}")).unwrap().caps();
        assert_eq!((caps("stream").framing, caps("stream").max_message_bytes), (Framing::Stream, None));
        assert_eq!(
            (caps("seqpacket").framing, caps("seqpacket").max_message_bytes),
            (Framing::Message, Some(66_000))
        );
        assert!(
            caps("seqpacket").is_reliable
                && caps("seqpacket").can_signal_close
                && !caps("seqpacket").can_half_close
        );
        assert!(!caps("rdm").can_signal_close && !caps("rdm").is_reliable && !caps("dgram").is_reliable);
        assert_eq!(parse("tipc://7100:4294967295").unwrap().socket_kind, TipcSocketKind::SeqPacket);
    }

    #[test]
    fn connecting_is_retried_until_the_socket_listens() {
        let refused = || Fault::system("connect")(io::ErrorKind::ConnectionRefused.into());
        let clock = Clock::new_virtual();
        let started = clock.now();
        // The server listens 300 ms later.
        let opens = started + Duration::from_millis(300);
        let listening = || if clock.now() < opens { Err(refused()) } else { Ok(()) };
        connect_with_retry(&clock, started + Duration::from_secs(1), listening).unwrap();
        assert_eq!(clock.now(), opens);
        // A server that never listens: gives up in time, with the reason.
        let fault = connect_with_retry(&clock, opens + Duration::from_secs(1), || Err::<(), _>(refused()))
            .unwrap_err();
        assert!(matches!(fault, Fault::System { operation: "connect", .. }), "{fault}");
        assert!(clock.now().since(opens) >= Duration::from_millis(980));
        // Errors other than a refusal are not retried.
        let mut calls = 0;
        let fault = connect_with_retry(&clock, Time::NEVER, || {
            calls += 1;
            Err::<(), _>(Fault::TimedOut)
        });
        assert!(matches!((fault, calls), (Err(Fault::TimedOut), 1)));
    }

    #[test]
    fn one_clear_error_for_each_mistake() {
        let error = |text: &str| parse(text).map(|_| ()).unwrap_err().to_string();
        insta::assert_snapshot!([
            "tipc://7100", "tipc://63:1", "tipc://7100:4294967296", "tipc://7100:1?type=raw",
            "tipc://7100:1?importance=9", "tipc://7100:1?multicast=1", "tipc://7100:1?type=rdm&bind=7",
        ].map(error).join("\n"), @r"
        tipc://7100: needed is TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        tipc://63:1: needed is TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        tipc://7100:4294967296: needed is TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        tipc://7100:1?type=raw: 'type=raw' is not seqpacket, stream, rdm or dgram
        tipc://7100:1?importance=9: 'importance=9' is not low, medium, high or critical
        tipc://7100:1?multicast=1: needed is type=rdm or type=dgram for bind, multicast and replies: this type has connections
        tipc://7100:1?type=rdm&bind=7: 'bind=7' is not TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        ");
    }
}
