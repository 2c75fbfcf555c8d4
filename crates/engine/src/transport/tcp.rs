//! `tcp://host:port`: a TCP connection over IPv4 or IPv6, or Multipath TCP on request.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::connect_first;
use super::internet::{self, EndpointRole, IpOptions, resolve_addresses};
use super::socket::{
    self, AcceptResult, BufferOptions, LISTEN_BACKLOG, SocketLink, SocketListener, parse_flag,
};
use super::tcp_options::{self, TcpOptions};
use crate::link::reachability::ask_for_reports;
use crate::link::{Caps, Facts, Fault, Limitation, Link, Listener, OpenContext, Transport, serial_line};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::units;
use linkgauge_system::{self as system, Errno};

/// The protocol of TCP over several paths (`IPPROTO_MPTCP` of linux/in.h).
const MULTIPATH_TCP: i32 = 262;

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "tcp",
    summary: "TCP over IPv4 or IPv6",
    example: "tcp://192.0.2.7:7100?congestion=bbr",
    options: &[
        NO_DELAY_OPTION,
        ("congestion", "congestion control, like cubic, reno, bbr"),
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        tcp_options::QUICK_ACK_OPTION,
        tcp_options::DELAYED_ACK_OPTION,
        tcp_options::RETRANSMISSION_OPTION,
        tcp_options::NOT_SENT_OPTION,
        tcp_options::PACING_OPTION,
        tcp_options::SEGMENT_OPTION,
        internet::FAMILY_OPTION,
        internet::BIND_OPTION,
        internet::DEVICE_OPTION,
        internet::DSCP_OPTION,
        internet::TTL_OPTION,
        internet::PRIORITY_OPTION,
        ("mptcp", "1 requests Multipath TCP (0)"),
        (
            KEEPALIVE_OPTION,
            "idle time before the system probes the remote, 1s to 2h; off: never (30s for listeners, else off)",
        ),
        ("baud", "the remote is a device server with a serial line of this rate"),
        serial_line::DATA_BITS_OPTION,
        serial_line::PARITY_OPTION,
        serial_line::STOP_BITS_OPTION,
        serial_line::FLOW_CONTROL_OPTION,
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint, EndpointRole::Open).map(|options| options.caps()),
    resolve: Some(internet::resolve),
    available: || {
        Socket::new(Domain::IPV4, Type::STREAM, None).map(|_| ()).map_err(|error| {
            Limitation::from_socket_error(
                &error,
                error.to_string(),
                "this process may not open Internet sockets: check the sandbox it runs in",
            )
        })
    },
    limitation: || None,
    open,
    begin_open: Some(begin_open),
    listen: Some(listen),
    loopback_urls: |_| vec!["tcp://127.0.0.1:0".to_owned(), "tcp://[::1]:0".to_owned()],
};

pub(crate) const NO_DELAY_OPTION: (&str, &str) =
    ("nodelay", "1 (default) sends at once, 0 lets the kernel gather small writes (Nagle)");

pub(crate) const KEEPALIVE_OPTION: &str = "keepalive";

/// Default keep-alive time of accepted connections: a client that vanished without a close is dropped after
/// twice this time.
const LISTENER_KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Probes without a reply before the connection counts as dead.
const KEEPALIVE_PROBES: u32 = 3;

struct Options {
    nodelay: bool,
    congestion: Option<String>,
    buffers: BufferOptions,
    tcp: TcpOptions,
    ip: IpOptions,
    is_multipath: bool,
    /// Idle time before keep-alives, in whole seconds; `None` if they are off.
    keepalive_idle: Option<Duration>,
    /// Settings of the line behind a remote device server.
    serial_settings: Option<serial_line::SerialSettings>,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint, role: EndpointRole) -> Result<Options, EndpointError> {
        endpoint.host_port()?;
        let usual = (role == EndpointRole::Listen).then_some(LISTENER_KEEPALIVE_IDLE);
        Ok(Options {
            nodelay: parse_flag(endpoint, "nodelay")?.unwrap_or(true),
            congestion: endpoint.option("congestion").map(str::to_owned),
            buffers: BufferOptions::from_endpoint(endpoint)?,
            tcp: TcpOptions::from_endpoint(endpoint)?,
            ip: IpOptions::from_endpoint(endpoint)?,
            is_multipath: parse_flag(endpoint, "mptcp")?.unwrap_or(false),
            keepalive_idle: endpoint
                .parse_option(KEEPALIVE_OPTION, "whole seconds from 1s to 2h, or off", parse_keepalive)?
                .unwrap_or(usual),
            serial_settings: serial_line::declared_in(endpoint)?,
        })
    }

    fn caps(&self) -> Caps {
        let caps = self.serial_settings.map_or(Caps::STREAM, |line| serial_line::caps(&line));
        Caps {
            // The connections of Multipath TCP have stamps, but their bytes other numbers.
            has_kernel_stamps: !self.is_multipath,
            is_exhausted_by_short_transfer: !self.is_multipath,
            ..caps
        }
    }

    fn protocol(&self) -> Protocol {
        if self.is_multipath { MULTIPATH_TCP.into() } else { Protocol::TCP }
    }

    /// A socket for that address, with the settings that must precede the connection.
    fn open_socket(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(self.protocol()))
            .map_err(Fault::system("open a socket"))?;
        self.ip.apply(&socket, address.ip())?;
        self.tcp.apply_before_connecting(&socket)?;
        self.apply_to_connection(&socket)?;
        Ok(socket)
    }

    /// A socket for that address, ready to connect.
    fn open_bound(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = self.open_socket(address)?;
        ask_for_reports(&socket, address.ip())?;
        self.ip.bind(&socket, address)?;
        Ok(socket)
    }

    /// Applies the settings that an accepted connection does not inherit from its listener. The connections of TCP are
    /// copies of the listener but for its timers, and thousands may arrive together.
    fn apply_to_accepted(&self, socket: &Socket) -> Result<(), Fault> {
        match self.is_multipath {
            true => self.apply_to_connection(socket),
            false => self.tcp.apply(socket),
        }
    }

    fn apply_to_connection(&self, socket: &Socket) -> Result<(), Fault> {
        self.buffers.apply(socket)?;
        self.tcp.apply(socket)?;
        if let Some(name) = &self.congestion {
            system::set_tcp_congestion(socket, name)
                .map_err(|errno| Fault::system("set the congestion control")(congestion_error(errno)))?;
        }
        if let Some(idle) = self.keepalive_idle {
            let between = (idle / KEEPALIVE_PROBES).max(Duration::from_secs(1));
            system::set_keepalive(socket, idle, between, KEEPALIVE_PROBES)
                .map_err(Fault::system("set the keepalive"))?;
        }
        socket.set_tcp_nodelay(self.nodelay).map_err(Fault::system("set TCP_NODELAY"))
    }
}

/// The kernel counts whole seconds.
fn parse_keepalive(text: &str) -> Option<Option<Duration>> {
    if text == "off" {
        return Some(None);
    }
    let idle = units::parse_duration(text).ok().filter(|idle| idle.subsec_nanos() == 0)?;
    (1..=7200).contains(&idle.as_secs()).then_some(Some(idle))
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint, EndpointRole::Open)?;
    let socket = connect_any(endpoint, context)?;
    Ok(Box::new(new_link(socket, &options, &context.clock, context.wait)))
}

/// Begins to connect and does not wait. `endpoint` has an address, because a name takes time to resolve.
fn begin_open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint, EndpointRole::Open)?;
    let address = resolve_addresses(endpoint, context, EndpointRole::Open)?[0];
    let socket = options.open_bound(address)?;
    let socket = connect_first::begin(socket, address)?;
    let mut link = new_link(socket, &options, &context.clock, context.wait);
    link.is_connecting = true;
    Ok(Box::new(link))
}

/// Connects to the first address of the endpoint that accepts.
pub(crate) fn connect_any(endpoint: &Endpoint, context: &OpenContext) -> Result<Socket, Fault> {
    let options = Options::from_endpoint(endpoint, EndpointRole::Open)?;
    connect_first::connect_first(endpoint, context, |address| options.open_bound(address))
}

fn new_link(socket: Socket, options: &Options, clock: &Clock, wait: WaitMode) -> SocketLink {
    let mut link = SocketLink::new(socket, options.caps(), clock, wait, facts);
    link.rearms_quick_ack = options.tcp.quick_ack == Some(true);
    link
}

/// Adds the effective settings of a connection.
pub fn facts(socket: &Socket, facts: &mut Facts) {
    internet::facts(socket, facts);
    let mut note = |name: &str, value: Option<serde_json::Value>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    note("mss_bytes", system::segment_bytes(socket).map(Into::into));
    note("nodelay", socket.tcp_nodelay().ok().map(Into::into));
    note("congestion_control", system::tcp_congestion(socket).map(Into::into));
    let idle = socket.keepalive().ok().filter(|&on| on).and_then(|_| system::keepalive_time(socket));
    note("keepalive_idle_seconds", idle.map(|idle| idle.as_secs().into()));
    let protocol = system::socket_protocol(socket);
    note("mptcp", (protocol == Some(MULTIPATH_TCP.into())).then_some(true.into()));
    if let Some(info) = system::tcp_info(socket) {
        note("retransmitted_segments", info.retransmits().map(Into::into));
        note("kernel_rtt_ns", info.rtt_us().map(|micros| (u64::from(micros) * 1000).into()));
    }
    tcp_options::facts(socket, facts);
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let (socket, port) = bind_listener(endpoint, context)?;
    let (endpoint, options) =
        (endpoint.with_port(port)?, Options::from_endpoint(endpoint, EndpointRole::Listen)?);
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket: Socket, from: &SockAddr| -> AcceptResult {
        options.apply_to_accepted(&socket)?;
        Ok((Box::new(new_link(socket, &options, &clock, wait)), internet::address_text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, make_link: admit }))
}

/// A non-blocking listening socket for the endpoint, and its port.
pub(crate) fn bind_listener(endpoint: &Endpoint, context: &OpenContext) -> Result<(Socket, u16), Fault> {
    let options = Options::from_endpoint(endpoint, EndpointRole::Listen)?;
    options.ip.refuse_bind_for_listener()?;
    let address = resolve_addresses(endpoint, context, EndpointRole::Listen)?[0];
    let socket = options.open_socket(address)?;
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    internet::bind_to_listen(&socket, address, context)?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(Fault::system("listen"))?;
    let port = internet::bound_port(&socket);
    Ok((socket, port))
}

/// A name that the kernel does not know is no missing server.
fn congestion_error(errno: Errno) -> std::io::Error {
    match errno {
        Errno::NOENT => std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "this kernel has none of that name: 'sysctl net.ipv4.tcp_available_congestion_control' lists them",
        ),
        errno => errno.into(),
    }
}
