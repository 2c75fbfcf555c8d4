//! `tipc://TYPE:INSTANCE`: sockets of the kernel's TIPC, found by a name in a cluster of machines.
//!
//! A listener publishes the name; who opens one waits until somebody has (`topology`). The kinds with connections are
//! here, those without in `datagram`. Bearers and links between machines are the kernel's affair and the administrator's.

mod datagram;
mod topology;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::datagram::DatagramLink;
use super::offload::Offload;
use super::socket::{self, Admitted, BACKLOG, SocketLink, SocketListener, flag};
use super::{Caps, Facts, Fault, Framing, Link, Listener, Opening, Transport, Unavailable, sys};
use crate::clock::{Clock, Time};
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;

pub use topology::{event, own_node};

pub const TRANSPORT: Transport = Transport {
    scheme: "tipc",
    summary: "TIPC socket of the kernel, found by a name in the cluster",
    example: "tipc://7100:1?type=rdm",
    options: &[
        ("type", "seqpacket (default), stream, rdm or dgram"),
        ("importance", "low (default), medium, high or critical: what waits longest for room goes last"),
        ("nodelay", "stream: 1 (default) sends at once, 0 lets the kernel gather small writes"),
        ("bind", "rdm and dgram: publish this name too, like 16666:0, and hear whoever sends to it"),
        ("multicast", "rdm and dgram: 1 sends to every socket that has published the name (0)"),
        ("answers", "rdm and dgram, where we listen: what is sent goes to this name (to the sender)"),
    ],
    check: |endpoint| Options::of(endpoint).map(|options| options.caps()),
    available: || {
        raw_socket(Type::SEQPACKET).map(|_| ()).map_err(|error| {
            Unavailable::by(
                &error,
                "the kernel has no TIPC, or has not loaded it",
                "sudo modprobe tipc (where it is missing: the package linux-modules-extra of the kernel)",
            )
        })
    },
    limit,
    open,
    listen: Some(listen),
    loopback: |directory| {
        // A name belongs to the whole cluster; the directory's makes it as fresh as the directory (FNV-1a).
        let fresh = directory
            .bytes()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let kinds = ["seqpacket", "stream", "rdm", "dgram"];
        kinds.iter().zip(0..).map(|(kind, n)| format!("tipc://7100:{}?type={kind}", fresh ^ n)).collect()
    },
};

/// `TIPC_MAX_USER_MSG_SIZE` of linux/tipc.h.
const MAX_MESSAGE: usize = 66_000;

/// How soon a name is called again whose socket does not listen yet.
const CALL_AGAIN: Duration = Duration::from_millis(10);

/// Types below are the kernel's own (`TIPC_RESERVED_TYPES`).
const RESERVED: u32 = 64;

/// A service address: where messages go, whoever is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    pub kind: u32,
    pub instance: u32,
}

impl Name {
    fn read(text: &str) -> Option<Name> {
        let (kind, instance) = text.split_once(':')?;
        let name = Name { kind: kind.parse().ok()?, instance: instance.parse().ok()? };
        (name.kind >= RESERVED).then_some(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.instance)
    }
}

/// A socket somewhere in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Port {
    pub node: u32,
    pub reference: u32,
}

/// The kinds of address (`TIPC_SERVICE_RANGE` and its like of linux/tipc.h).
const RANGE: u8 = 1;
const SERVICE: u8 = 2;
const SOCKET: u8 = 3;

impl Port {
    fn of(address: &SockAddr) -> Option<Port> {
        match sys::tipc_words(address)? {
            (SOCKET, [reference, node, _]) => Some(Port { node, reference }),
            _ => None,
        }
    }

    fn address(self) -> SockAddr {
        sys::tipc_address(SOCKET, [self.reference, self.node, 0])
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {:x}, socket {:x}", self.node, self.reference)
    }
}

/// One of the sockets that have published a name.
fn service(name: Name) -> SockAddr {
    sys::tipc_address(SERVICE, [name.kind, name.instance, 0])
}

/// All of them; also the way to publish it.
fn range(name: Name) -> SockAddr {
    sys::tipc_address(RANGE, [name.kind, name.instance, name.instance])
}

fn raw_socket(kind: Type) -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_TIPC), kind, None)
}

fn socket(kind: Type) -> Result<Socket, Fault> {
    raw_socket(kind).map_err(Fault::system("open a TIPC socket"))
}

/// What keeps links from reaching other machines, and the remedy.
pub fn limit() -> Option<Unavailable> {
    (own_node()? == 0).then(|| Unavailable {
        reason: "this node has no bearer, so it reaches itself only".to_owned(),
        remedy: "sudo tipc bearer enable media eth device eth0, and the same on the other machines"
            .to_owned(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sequenced,
    Stream,
    Reliable,
    Datagram,
}

/// An endpoint of this transport, read.
#[derive(Clone, Copy)]
struct Options {
    name: Name,
    kind: Kind,
    importance: u32,
    nodelay: bool,
    bind: Option<Name>,
    multicast: bool,
    answers: Option<Name>,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        const NAME: &str = "TYPE:INSTANCE, two numbers like 7100:1, the type from 64";
        let name = Name::read(endpoint.place())
            .ok_or_else(|| EndpointError::BadPlace { url: endpoint.to_string(), wanted: NAME })?;
        let kind = endpoint.parsed("type", "seqpacket, stream, rdm or dgram", |text| match text {
            "seqpacket" => Some(Kind::Sequenced),
            "stream" => Some(Kind::Stream),
            "rdm" => Some(Kind::Reliable),
            "dgram" => Some(Kind::Datagram),
            _ => None,
        })?;
        let importance = endpoint.parsed("importance", "low, medium, high or critical", |text| {
            ["low", "medium", "high", "critical"]
                .iter()
                .zip(0..)
                .find(|(name, _)| **name == text)
                .map(|(_, n)| n)
        })?;
        let options = Options {
            name,
            kind: kind.unwrap_or(Kind::Sequenced),
            importance: importance.unwrap_or(0),
            nodelay: flag(endpoint, "nodelay")?.unwrap_or(true),
            bind: endpoint.parsed("bind", NAME, Name::read)?,
            multicast: flag(endpoint, "multicast")?.unwrap_or(false),
            answers: endpoint.parsed("answers", NAME, Name::read)?,
        };
        let given = options.bind.is_some() || options.multicast || options.answers.is_some();
        if given && !matches!(options.kind, Kind::Reliable | Kind::Datagram) {
            let wanted = "type=rdm or type=dgram for bind, multicast and answers: this type has connections";
            return Err(EndpointError::BadPlace { url: endpoint.to_string(), wanted });
        }
        Ok(options)
    }

    fn caps(&self) -> Caps {
        let connections = Caps { half_closes: false, ..Caps::STREAM };
        let messages =
            Caps { framing: Framing::Message, max_message: Some(MAX_MESSAGE), ..connections.clone() };
        match self.kind {
            Kind::Stream => connections,
            Kind::Sequenced => messages,
            // Nothing is lost on the way of the reliable ones either, but a receiver whose queue is full drops them.
            Kind::Reliable | Kind::Datagram => Caps { reliable: false, closes: false, ..messages },
        }
    }

    fn socket(&self) -> Result<Socket, Fault> {
        let socket = socket(match self.kind {
            Kind::Sequenced => Type::SEQPACKET,
            Kind::Stream => Type::STREAM,
            Kind::Reliable => Type::from(libc::SOCK_RDM),
            Kind::Datagram => Type::DGRAM,
        })?;
        self.apply(&socket)?;
        Ok(socket)
    }

    fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        sys::set_tipc(socket, IMPORTANCE, self.importance).map_err(Fault::system("set the importance"))?;
        if self.kind != Kind::Stream {
            return Ok(());
        }
        // Kernels before 5.5 gather nothing and know no such option.
        match sys::set_tipc(socket, NODELAY, u32::from(self.nodelay)) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NOPROTOOPT) => {
                Err(Fault::System { operation: "set TIPC_NODELAY", source: error })
            }
            _ => Ok(()),
        }
    }

    fn socket_link(&self, socket: Socket, clock: &Clock, wait: Wait) -> SocketLink {
        SocketLink::new(socket, self.caps(), clock, wait, facts)
    }

    /// A link with a connection.
    fn link(&self, socket: Socket, clock: &Clock, wait: Wait) -> Box<dyn Link> {
        let link = self.socket_link(socket, clock, wait);
        match self.kind {
            Kind::Stream => Box::new(link),
            _ => Box::new(DatagramLink::new(link, Offload::NONE, VecDeque::new())),
        }
    }
}

/// `TIPC_IMPORTANCE` and `TIPC_NODELAY` of linux/tipc.h.
const IMPORTANCE: libc::c_int = 127;
const NODELAY: libc::c_int = 138;

fn facts(socket: &Socket, facts: &mut Facts) {
    for (fact, address) in [("local", socket.local_addr()), ("remote", socket.peer_addr())] {
        let port = address.ok().as_ref().and_then(Port::of);
        facts.extend(port.map(|port| (fact.to_owned(), port.to_string().into())));
    }
    facts.extend(
        sys::tipc_number(socket, IMPORTANCE).map(|importance| ("importance".to_owned(), importance.into())),
    );
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    let until = opening.clock.now() + opening.within;
    let port = topology::await_name(options.name, opening.within)?;
    if !options.caps().closes {
        return datagram::open(&options, port, opening);
    }
    let socket = connected(&opening.clock, until, || {
        let socket = options.socket()?;
        topology::set_connect_timeout(&socket, until - opening.clock.now())?;
        match socket.connect(&service(options.name)) {
            // Nobody accepts.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Fault::TimedOut),
            done => done.map_err(Fault::system("connect")).map(|()| socket),
        }
    })?;
    Ok(options.link(socket, &opening.clock, opening.wait))
}

/// Calls until somebody listens. A name is published before its socket listens, and on a busy host that takes a while:
/// until then the kernel refuses.
fn connected<T>(
    clock: &Clock,
    until: Time,
    mut connect: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    loop {
        match connect() {
            Err(Fault::System { source, .. })
                if source.kind() == io::ErrorKind::ConnectionRefused && clock.now() + CALL_AGAIN < until =>
            {
                clock.sleep_until(clock.now() + CALL_AGAIN);
            }
            done => return done,
        }
    }
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    let socket = options.socket()?;
    if !options.caps().closes {
        return datagram::listen(endpoint, options, socket, opening);
    }
    socket.bind(&range(options.name)).map_err(Fault::system("bind"))?;
    // This family looks at the socket's queue instead of the backlog.
    socket::listen(&socket, BACKLOG).map_err(Fault::system("listen"))?;
    let (clock, wait) = (opening.clock.clone(), opening.wait);
    let admit = move |socket: Socket, from: &SockAddr| -> Admitted {
        options.apply(&socket)?;
        Ok((options.link(socket, &clock, wait), Port::of(from).map(|port| port.to_string())))
    };
    Ok(Box::new(SocketListener { socket, endpoint: endpoint.clone(), admit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, EndpointError> {
        Options::of(&text.parse().unwrap())
    }

    #[test]
    fn addresses_are_laid_out_as_the_kernel_has_them() {
        let bytes = |address: SockAddr| sys::tipc_words(&address).unwrap();
        assert_eq!(bytes(range(Name { kind: 17777, instance: 0 })), (1, [17777, 0, 0]));
        assert_eq!(bytes(service(Name { kind: 18888, instance: 3 })), (2, [18888, 3, 0]));
        let port = Port { node: 0x6e31_0000, reference: 7 };
        assert_eq!(bytes(port.address()), (3, [7, 0x6e31_0000, 0]));
        assert_eq!(Port::of(&port.address()), Some(port));
        assert_eq!(port.address().len(), 16);
        assert_eq!(i32::from(port.address().family()), libc::AF_TIPC);
    }

    #[test]
    fn the_type_decides_what_a_link_can_do() {
        let caps = |kind: &str| read(&format!("tipc://7100:1?type={kind}")).unwrap().caps();
        assert_eq!((caps("stream").framing, caps("stream").max_message), (Framing::Stream, None));
        assert_eq!(
            (caps("seqpacket").framing, caps("seqpacket").max_message),
            (Framing::Message, Some(66_000))
        );
        assert!(caps("seqpacket").reliable && caps("seqpacket").closes && !caps("seqpacket").half_closes);
        assert!(!caps("rdm").closes && !caps("rdm").reliable && !caps("dgram").reliable);
        assert_eq!(read("tipc://7100:4294967295").unwrap().kind, Kind::Sequenced);
    }

    #[test]
    fn a_name_whose_socket_does_not_listen_yet_is_called_until_it_does() {
        let refused = || Fault::system("connect")(io::ErrorKind::ConnectionRefused.into());
        let clock = Clock::new_virtual();
        let begun = clock.now();
        // It listens 300 ms later.
        let opens = begun + Duration::from_millis(300);
        let listening = || if clock.now() < opens { Err(refused()) } else { Ok(()) };
        connected(&clock, begun + Duration::from_secs(1), listening).unwrap();
        assert_eq!(clock.now(), opens);
        // One that never does is given up in time, with the reason.
        let fault =
            connected(&clock, opens + Duration::from_secs(1), || Err::<(), _>(refused())).unwrap_err();
        assert!(matches!(fault, Fault::System { operation: "connect", .. }), "{fault}");
        assert!(clock.now().since(opens) >= Duration::from_millis(980));
        // What is no refusal is not tried again.
        let mut calls = 0;
        let fault = connected(&clock, Time::NEVER, || {
            calls += 1;
            Err::<(), _>(Fault::TimedOut)
        });
        assert!(matches!((fault, calls), (Err(Fault::TimedOut), 1)));
    }

    #[test]
    fn one_clear_line_for_each_slip() {
        let error = |text: &str| read(text).map(|_| ()).unwrap_err().to_string();
        insta::assert_snapshot!([
            "tipc://7100", "tipc://63:1", "tipc://7100:4294967296", "tipc://7100:1?type=raw",
            "tipc://7100:1?importance=9", "tipc://7100:1?multicast=1", "tipc://7100:1?type=rdm&bind=7",
        ].map(error).join("\n"), @r"
        tipc://7100: needed is TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        tipc://63:1: needed is TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        tipc://7100:4294967296: needed is TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        tipc://7100:1?type=raw: 'type=raw' is not seqpacket, stream, rdm or dgram
        tipc://7100:1?importance=9: 'importance=9' is not low, medium, high or critical
        tipc://7100:1?multicast=1: needed is type=rdm or type=dgram for bind, multicast and answers: this type has connections
        tipc://7100:1?type=rdm&bind=7: 'bind=7' is not TYPE:INSTANCE, two numbers like 7100:1, the type from 64
        ");
    }
}
