//! `tcp://host:port`: a TCP connection over IPv4 or IPv6, or Multipath TCP on request.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::socket::SocketLink;
use super::{Caps, Door, Facts, Fault, Link, Listener, Opening, Transport, Unavailable, sys};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;
use crate::units;

pub const TRANSPORT: Transport = Transport {
    scheme: "tcp",
    summary: "TCP over IPv4 or IPv6",
    example: "tcp://192.0.2.7:7100?congestion=bbr",
    options: &[
        ("nodelay", "1 (default) sends at once, 0 lets the kernel gather small writes (Nagle)"),
        ("congestion", "congestion control, like cubic, reno, bbr"),
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        ("mptcp", "1 asks for Multipath TCP (0)"),
        ("baud", "the rate of the serial line behind a device server, 8N1"),
    ],
    check: |endpoint| Options::of(endpoint).map(|options| options.caps()),
    available: || {
        Socket::new(Domain::IPV4, Type::STREAM, None).map(|_| ()).map_err(|error| Unavailable {
            reason: error.to_string(),
            remedy: "this process may not open Internet sockets: check the sandbox it runs in".to_owned(),
        })
    },
    open,
    listen,
    loopback: |_| vec!["tcp://127.0.0.1:0".to_owned(), "tcp://[::1]:0".to_owned()],
};

/// Our own port, unassigned at IANA.
pub const DEFAULT_PORT: u16 = 7100;

struct Options {
    nodelay: bool,
    congestion: Option<String>,
    buffers: Buffers,
    mptcp: bool,
    baud: Option<u64>,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        endpoint.host_port()?;
        Ok(Options {
            nodelay: flag(endpoint, "nodelay")?.unwrap_or(true),
            congestion: endpoint.option("congestion").map(str::to_owned),
            buffers: Buffers::of(endpoint)?,
            mptcp: flag(endpoint, "mptcp")?.unwrap_or(false),
            baud: endpoint.parsed("baud", "a rate like 9600", |text| {
                units::count(text).ok().filter(|&baud| baud > 0)
            })?,
        })
    }

    fn caps(&self) -> Caps {
        match self.baud {
            None => Caps::STREAM,
            // Start, eight data bits, stop.
            Some(baud) => Caps {
                device: true,
                line: Some(super::Line { bits_per_second: baud as f64, bits_per_byte: 10.0 }),
                ..Caps::STREAM
            },
        }
    }

    fn protocol(&self) -> Protocol {
        if self.mptcp { Protocol::MPTCP } else { Protocol::TCP }
    }

    /// Everything that must be set before the connection exists.
    fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        self.buffers.apply(socket)?;
        if let Some(name) = &self.congestion {
            rustix::net::sockopt::set_tcp_congestion(socket, name)
                .map_err(|errno| Fault::system("set the congestion control")(errno.into()))?;
        }
        socket.set_tcp_nodelay(self.nodelay).map_err(Fault::system("set TCP_NODELAY"))
    }
}

/// An option that is 0 or 1.
pub fn flag(endpoint: &Endpoint, name: &str) -> Result<Option<bool>, EndpointError> {
    endpoint.parsed(name, "0 or 1", |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

/// Socket buffers asked for with `sndbuf` and `rcvbuf`.
#[derive(Clone, Copy)]
pub struct Buffers {
    pub send: Option<u64>,
    receive: Option<u64>,
}

impl Buffers {
    pub fn of(endpoint: &Endpoint) -> Result<Buffers, EndpointError> {
        let size = |name| {
            endpoint.parsed(name, "a size from 1 to 1Gi bytes", |text| {
                units::bytes(text).ok().filter(|size| (1..=1 << 30).contains(size))
            })
        };
        Ok(Buffers { send: size("sndbuf")?, receive: size("rcvbuf")? })
    }

    pub fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        if let Some(bytes) = self.send {
            socket.set_send_buffer_size(bytes as usize).map_err(Fault::system("set the send buffer"))?;
        }
        if let Some(bytes) = self.receive {
            socket.set_recv_buffer_size(bytes as usize).map_err(Fault::system("set the receive buffer"))?;
        }
        Ok(())
    }
}

/// The addresses of an endpoint's host and port, in the order the resolver gives them. Port 0 only to listen.
pub fn addresses(endpoint: &Endpoint, opening: &Opening, listens: bool) -> Result<Vec<SocketAddr>, Fault> {
    let (host, port) = endpoint.host_port()?;
    let port = port.or(opening.default_port).unwrap_or(DEFAULT_PORT);
    if port == 0 && !listens {
        return Err(Fault::Other("port 0 is nobody's: use 1 to 65535".to_owned()));
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unknown =
        |why: &str| Fault::Other(format!("the name '{host}' was not found{why}: check its spelling"));
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(|_| unknown(""))?.collect();
    if found.is_empty() { Err(unknown(" (no address)")) } else { Ok(found) }
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    let mut last = Fault::TimedOut;
    for address in addresses(endpoint, opening, false)? {
        match connect(address, &options, opening.within) {
            Ok(socket) => return Ok(link(socket, &options, &opening.clock, opening.wait)),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

fn connect(address: SocketAddr, options: &Options, within: Duration) -> Result<Socket, Fault> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(options.protocol()))
        .map_err(Fault::system("open a socket"))?;
    options.apply(&socket)?;
    socket.connect_timeout(&address.into(), within).map_err(Fault::system("connect"))?;
    Ok(socket)
}

fn link(socket: Socket, options: &Options, clock: &Clock, wait: Wait) -> Box<dyn Link> {
    Box::new(SocketLink::new(socket, options.caps(), clock, wait, facts))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    let mut note = |name: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            facts.insert(name.to_owned(), value);
        }
    };
    note("local", address_text(socket.local_addr()));
    note("remote", address_text(socket.peer_addr()));
    note("mss_bytes", socket.tcp_mss().ok().map(Into::into));
    note("nodelay", socket.tcp_nodelay().ok().map(Into::into));
    note("congestion_control", rustix::net::sockopt::tcp_congestion(socket).ok().map(Into::into));
    note("path_mtu_bytes", sys::path_mtu(socket).map(Into::into));
    let protocol = socket.protocol().ok().flatten();
    note("mptcp", (protocol == Some(Protocol::MPTCP)).then_some(true.into()));
    if let Some(info) = sys::tcp_info(socket) {
        note("retransmitted_segments", Some(info.retransmits.into()));
        note("kernel_rtt_ns", Some((u64::from(info.rtt_us) * 1000).into()));
    }
}

/// An Internet address as text; `None` for other families.
pub fn address_text(address: std::io::Result<SockAddr>) -> Option<serde_json::Value> {
    address.ok()?.as_socket().map(|address| address.to_string().into())
}

struct TcpListener {
    socket: Socket,
    endpoint: Endpoint,
    options: Options,
    clock: Clock,
    wait: Wait,
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    let address = addresses(endpoint, opening, true)?[0];
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(options.protocol()))
        .map_err(Fault::system("open a socket"))?;
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    options.apply(&socket)?;
    socket.bind(&address.into()).map_err(Fault::system("bind"))?;
    socket.listen(BACKLOG).map_err(Fault::system("listen"))?;
    socket.set_nonblocking(true).map_err(Fault::system("set non-blocking"))?;
    let port = socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |a| a.port());
    let endpoint = endpoint.with_port(port)?;
    Ok(Box::new(TcpListener { socket, endpoint, options, clock: opening.clock.clone(), wait: opening.wait }))
}

/// Room for a burst of clients; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

impl Listener for TcpListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, _door: &mut Door) -> Result<(Box<dyn Link>, String), Fault> {
        let (socket, from) = super::socket::accept(&self.socket, within)?;
        self.options.apply(&socket)?;
        let from = from.as_socket().map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        Ok((link(socket, &self.options, &self.clock, self.wait), from))
    }
}
