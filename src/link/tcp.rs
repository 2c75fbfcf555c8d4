//! `tcp://host:port`: a TCP connection over IPv4 or IPv6, or Multipath TCP on request.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::internet::{self, IpOptions, addresses};
use super::socket::{self, Admitted, BACKLOG, Buffers, SocketLink, SocketListener, flag};
use super::{Caps, Facts, Fault, Link, Listener, Opening, Transport, Unavailable, line, sys};
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
        internet::FAMILY,
        internet::BIND,
        internet::DEVICE,
        internet::DSCP,
        ("mptcp", "1 asks for Multipath TCP (0)"),
        (
            KEEPALIVE,
            "idle time after which the far end is asked whether it is still there, 1s to 2h; off never (30s where we \
             listen, else off)",
        ),
        ("baud", "a device server is at the far end, with a serial line of this rate behind it"),
        line::DATA,
        line::PARITY,
        line::STOP,
        line::FLOW,
    ],
    check: |endpoint| Options::of(endpoint, false).map(|options| options.caps()),
    available: || {
        Socket::new(Domain::IPV4, Type::STREAM, None).map(|_| ()).map_err(|error| {
            Unavailable::by(
                &error,
                error.to_string(),
                "this process may not open Internet sockets: check the sandbox it runs in",
            )
        })
    },
    limit: || None,
    open,
    listen: Some(listen),
    loopback: |_| vec!["tcp://127.0.0.1:0".to_owned(), "tcp://[::1]:0".to_owned()],
};

pub const KEEPALIVE: &str = "keepalive";

/// What a listener asks of its connections unless told otherwise: a client that vanished without a word frees its place
/// after twice that.
const KEEPALIVE_OF_LISTENERS: Duration = Duration::from_secs(30);

/// So many questions remain without an answer before the connection counts as dead.
const KEEPALIVE_TRIES: u32 = 3;

struct Options {
    nodelay: bool,
    congestion: Option<String>,
    buffers: Buffers,
    ip: IpOptions,
    mptcp: bool,
    /// Whole seconds; `None` if it is off.
    keepalive: Option<Duration>,
    /// Behind the device server at the far end.
    line: Option<line::Settings>,
}

impl Options {
    fn of(endpoint: &Endpoint, listens: bool) -> Result<Options, EndpointError> {
        endpoint.host_port()?;
        let usual = listens.then_some(KEEPALIVE_OF_LISTENERS);
        Ok(Options {
            nodelay: flag(endpoint, "nodelay")?.unwrap_or(true),
            congestion: endpoint.option("congestion").map(str::to_owned),
            buffers: Buffers::of(endpoint)?,
            ip: IpOptions::of(endpoint)?,
            mptcp: flag(endpoint, "mptcp")?.unwrap_or(false),
            keepalive: endpoint
                .parsed(KEEPALIVE, "whole seconds from 1s to 2h, or off", keepalive)?
                .unwrap_or(usual),
            line: line::Settings::declared(endpoint)?,
        })
    }

    fn caps(&self) -> Caps {
        self.line.map_or(Caps::STREAM, |line| line.caps())
    }

    fn protocol(&self) -> Protocol {
        if self.mptcp { Protocol::MPTCP } else { Protocol::TCP }
    }

    /// A socket for that address, with everything that must be set before the connection exists.
    fn socket(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(self.protocol()))
            .map_err(Fault::system("open a socket"))?;
        self.ip.apply(&socket, address.ip())?;
        self.apply(&socket)?;
        Ok(socket)
    }

    /// What an accepted connection needs as well: it has the rest from its listener.
    fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        self.buffers.apply(socket)?;
        if let Some(name) = &self.congestion {
            rustix::net::sockopt::set_tcp_congestion(socket, name)
                .map_err(|errno| Fault::system("set the congestion control")(errno.into()))?;
        }
        if let Some(idle) = self.keepalive {
            let between = (idle / KEEPALIVE_TRIES).max(Duration::from_secs(1));
            let wanted =
                TcpKeepalive::new().with_time(idle).with_interval(between).with_retries(KEEPALIVE_TRIES);
            socket.set_tcp_keepalive(&wanted).map_err(Fault::system("set the keepalive"))?;
        }
        socket.set_tcp_nodelay(self.nodelay).map_err(Fault::system("set TCP_NODELAY"))
    }
}

/// The kernel counts whole seconds.
fn keepalive(text: &str) -> Option<Option<Duration>> {
    if text == "off" {
        return Some(None);
    }
    let idle = units::duration(text).ok().filter(|idle| idle.subsec_nanos() == 0)?;
    (1..=7200).contains(&idle.as_secs()).then_some(Some(idle))
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint, false)?;
    let socket = connection(endpoint, opening)?;
    Ok(link(socket, &options, &opening.clock, opening.wait))
}

/// A connection to the first of the endpoint's addresses that takes one.
pub fn connection(endpoint: &Endpoint, opening: &Opening) -> Result<Socket, Fault> {
    let options = Options::of(endpoint, false)?;
    let mut last = Fault::TimedOut;
    for address in addresses(endpoint, opening, false)? {
        match connect(address, &options, opening.within) {
            Ok(socket) => return Ok(socket),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

fn connect(address: SocketAddr, options: &Options, within: Duration) -> Result<Socket, Fault> {
    let socket = options.socket(address)?;
    options.ip.bind(&socket, address)?;
    socket.connect_timeout(&address.into(), within).map_err(Fault::system("connect"))?;
    Ok(socket)
}

fn link(socket: Socket, options: &Options, clock: &Clock, wait: Wait) -> Box<dyn Link> {
    Box::new(SocketLink::new(socket, options.caps(), clock, wait, facts))
}

/// What the kernel granted to a connection.
pub fn facts(socket: &Socket, facts: &mut Facts) {
    internet::facts(socket, facts);
    let mut note = |name: &str, value: Option<serde_json::Value>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    note("mss_bytes", socket.tcp_mss().ok().map(Into::into));
    note("nodelay", socket.tcp_nodelay().ok().map(Into::into));
    note("congestion_control", rustix::net::sockopt::tcp_congestion(socket).ok().map(Into::into));
    let idle = socket.keepalive().ok().filter(|&on| on).and_then(|_| socket.tcp_keepalive_time().ok());
    note("keepalive_idle_seconds", idle.map(|idle| idle.as_secs().into()));
    let protocol = socket.protocol().ok().flatten();
    note("mptcp", (protocol == Some(Protocol::MPTCP)).then_some(true.into()));
    if let Some(info) = sys::tcp_info(socket) {
        note("retransmitted_segments", Some(info.retransmits.into()));
        note("kernel_rtt_ns", Some((u64::from(info.rtt_us) * 1000).into()));
    }
}

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let (socket, port) = listening(endpoint, opening)?;
    let (endpoint, options) = (endpoint.with_port(port)?, Options::of(endpoint, true)?);
    let (clock, wait) = (opening.clock.clone(), opening.wait);
    let admit = move |socket: Socket, from: &SockAddr| -> Admitted {
        options.apply(&socket)?;
        Ok((link(socket, &options, &clock, wait), internet::text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, admit }))
}

/// A non-blocking socket that listens at the endpoint, and its port.
pub fn listening(endpoint: &Endpoint, opening: &Opening) -> Result<(Socket, u16), Fault> {
    let options = Options::of(endpoint, true)?;
    options.ip.check_listens()?;
    let address = addresses(endpoint, opening, true)?[0];
    let socket = options.socket(address)?;
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    socket.bind(&address.into()).map_err(Fault::system("bind"))?;
    socket::listen(&socket, BACKLOG).map_err(Fault::system("listen"))?;
    let port = internet::port(&socket);
    Ok((socket, port))
}
