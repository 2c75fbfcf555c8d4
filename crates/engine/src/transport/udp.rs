//! `udp://host:port`: datagrams over IPv4 or IPv6, on connected sockets at both ends.
//!
//! The listener has one unconnected socket for first datagrams. An accepted sender gets a separate socket at
//! the same address, connected to it; datagrams that it sent meanwhile go to its link, in order. Datagrams
//! are lost only if a socket buffer is full. A second listener on a used port is refused, also while links of
//! an earlier listener are open.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::datagram::DatagramLink;
use super::datagram_accept::{DatagramListener, NamedLink, accept_client};
use super::fallback;
use super::internet::{self, EndpointRole, IpOptions, resolve_addresses};
use super::offload::{OffloadChoice, OffloadOptions};
use super::socket::{BufferOptions, IoDirection, SocketLink, wait_ready};
use crate::link::reachability::{ask_for_reports, connect_fault};
use crate::link::{
    AcceptFilter, Admission, Caps, Fault, Framing, Limitation, Link, Listener, OpenContext, Transport,
    UnpacedScope,
};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{self as system, Blocking, IpFamily};

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "udp",
    summary: "UDP over IPv4 or IPv6",
    example: "udp://192.0.2.7:7100?rcvbuf=4Mi",
    options: &[
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        internet::FAMILY_OPTION,
        internet::BIND_OPTION,
        internet::DEVICE_OPTION,
        internet::DSCP_OPTION,
        internet::ECN_OPTION,
        internet::TTL_OPTION,
        internet::PRIORITY_OPTION,
        ("gso", "bulk: 1 has the kernel cut large packets, 0 never; auto (default) where it measures better"),
        ("gro", "bulk: 1 has the kernel join datagrams, 0 never; auto (default) where it measures better"),
    ],
    parse_caps: |endpoint| {
        Options::from_endpoint(endpoint)?;
        let (host, _) = endpoint.host_port()?;
        Ok(caps(IpFamily::of_host(host)))
    },
    resolve: Some(internet::resolve),
    available: || {
        Socket::new(Domain::IPV4, Type::DGRAM, None).map(|_| ()).map_err(|error| {
            Limitation::from_socket_error(
                &error,
                error.to_string(),
                "this process may not open Internet sockets: check the sandbox it runs in",
            )
        })
    },
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |_| {
        let hosts = ["udp://127.0.0.1:0", "udp://[::1]:0", "udp://127.0.0.1:0?gso=0&gro=0"];
        hosts.map(str::to_owned).to_vec()
    },
};

/// Maximum message size: the 16-bit length field of the IPv4 header includes the IP header (20) and the UDP header (8).
const MAX_MESSAGE_BYTES_V4: usize = 65_535 - 20 - 8;
/// Maximum message size: the length field of IPv6 includes the UDP header only.
const MAX_MESSAGE_BYTES_V6: usize = 65_535 - 8;

fn caps(family: IpFamily) -> Caps {
    Caps {
        framing: Framing::Message,
        max_message_bytes: Some(match family {
            IpFamily::V4 => MAX_MESSAGE_BYTES_V4,
            IpFamily::V6 => MAX_MESSAGE_BYTES_V6,
        }),
        is_reliable: false,
        can_signal_close: false,
        unpaced_scope: UnpacedScope::OnThisHost,
        has_kernel_stamps: true,
        ..Caps::STREAM
    }
}

#[derive(Clone)]
struct Options {
    ip: IpOptions,
    buffers: BufferOptions,
    offload: OffloadOptions,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let choice = |name| {
            endpoint
                .parse_option(name, "auto, 0 or 1", |text| match text {
                    "auto" => Some(OffloadChoice::Auto),
                    "0" => Some(OffloadChoice::Off),
                    "1" => Some(OffloadChoice::On),
                    _ => None,
                })
                .map(|choice| choice.unwrap_or(OffloadChoice::Auto))
        };
        let offload = OffloadOptions { segments: choice("gso")?, coalesced: choice("gro")? };
        Ok(Options {
            ip: IpOptions::from_endpoint(endpoint)?,
            buffers: BufferOptions::from_endpoint(endpoint)?,
            offload,
        })
    }

    fn open_socket(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)
            .map_err(Fault::system("open a socket"))?;
        self.ip.apply(&socket, address.ip())?;
        self.buffers.apply(&socket)?;
        Ok(socket)
    }
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let maker = LinkMaker::new(endpoint, context)?;
    let addresses = resolve_addresses(endpoint, context, EndpointRole::Open)?;
    let connect = move |address| Ok(Box::new(maker.connect(address)?) as Box<dyn Link>);
    fallback::open(endpoint, context, addresses, Box::new(connect))
}

/// Makes the links of one endpoint.
#[derive(Clone)]
struct LinkMaker {
    options: Options,
    clock: Clock,
    wait: WaitMode,
}

impl LinkMaker {
    pub fn new(endpoint: &Endpoint, context: &OpenContext) -> Result<LinkMaker, Fault> {
        let options = Options::from_endpoint(endpoint)?;
        Ok(LinkMaker { options, clock: context.clock.clone(), wait: context.wait })
    }

    fn connect(&self, address: SocketAddr) -> Result<DatagramLink, Fault> {
        let socket = self.options.open_socket(address)?;
        self.options.ip.bind(&socket, address)?;
        ask_for_reports(&socket, address.ip())?;
        socket.connect(&address.into()).map_err(|error| connect_fault(&socket, address, error))?;
        let mut link = self.make_link(socket, address, VecDeque::new());
        link.inner.reads_reports = true;
        Ok(link)
    }

    /// `first` are messages of this remote that have already been received.
    fn make_link(&self, socket: Socket, remote: SocketAddr, first: VecDeque<Vec<u8>>) -> DatagramLink {
        // An IPv4 remote may appear as a mapped IPv6 address on a socket for both families.
        let family = IpFamily::of_address(remote.ip().to_canonical());
        let link = SocketLink::new(socket, caps(family), &self.clock, self.wait, internet::facts);
        let mut link = DatagramLink::new(link, self.options.offload, first);
        if let Some(class) = self.options.ip.traffic_class() {
            link.read_marks(class);
        }
        link
    }
}

/// A datagram that waits for the accept filter.
struct WaitingDatagram {
    bytes: Vec<u8>,
    from: SockAddr,
    /// The local destination address, if the listener is bound to all addresses.
    to: Option<(IpAddr, u32)>,
}

struct UdpListener {
    socket: Socket,
    address: SocketAddr,
    endpoint: Endpoint,
    maker: LinkMaker,
    receive_buffer: Vec<u8>,
    /// Datagrams of other senders that arrived while a link was made.
    backlog: VecDeque<WaitingDatagram>,
}

/// Maximum number of datagrams taken out of the socket while a link is made; others stay in the socket's
/// buffer.
const MAX_BACKLOG_DATAGRAMS: usize = 1024;

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let maker = LinkMaker::new(endpoint, context)?;
    maker.options.ip.refuse_bind_for_listener()?;
    maker.options.offload.prepare();
    let address = resolve_addresses(endpoint, context, EndpointRole::Listen)?[0];
    let socket = maker.options.open_socket(address)?;
    internet::bind_to_listen(&socket, address, context)?;
    // Set only after binding: so a second listener is refused, but the sockets of the senders can share the
    // address.
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    if address.ip().is_unspecified() {
        system::set_receive_destination(&socket, IpFamily::of_address(address.ip()))
            .map_err(Fault::system("ask for destinations"))?;
    }
    system::prepare_server_socket(&socket).map_err(Fault::system("prepare the socket"))?;
    let local = socket.local_addr().map_err(Fault::system("read the local address"))?;
    let address = local.as_socket().unwrap_or(address);
    Ok(Box::new(UdpListener {
        socket,
        address,
        endpoint: endpoint.with_port(address.port())?,
        maker,
        receive_buffer: vec![0; MAX_MESSAGE_BYTES_V6],
        backlog: VecDeque::new(),
    }))
}

impl UdpListener {
    /// Makes a socket and a link for the sender of `first`.
    fn open_link(&mut self, first: WaitingDatagram, sender: SocketAddr) -> Result<Box<dyn Link>, Fault> {
        let local = match first.to {
            Some((IpAddr::V6(ip), interface)) => {
                let scope = if ip.is_unicast_link_local() { interface } else { 0 };
                SocketAddrV6::new(ip, self.address.port(), 0, scope).into()
            }
            Some((ip, _)) => SocketAddr::new(mapped_like(ip, self.address), self.address.port()),
            None => self.address,
        };
        let socket = self.maker.options.open_socket(local)?;
        socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
        socket.bind(&local.into()).map_err(Fault::system("bind"))?;
        socket.connect(&first.from).map_err(Fault::system("connect"))?;
        // From here on the kernel delivers only this sender's datagrams to the new socket. Earlier ones lie
        // in the listener's queue or, if they arrived between bind and connect, in the new socket together
        // with those of others.
        let (from, to) = (first.from, first.to);
        let mut messages = VecDeque::from([first.bytes]);
        let mut others = VecDeque::new();
        for waiting in std::mem::take(&mut self.backlog) {
            sort_by_sender(waiting, &from, &mut messages, &mut others);
        }
        for queue in [&self.socket, &socket] {
            for _ in 0..MAX_BACKLOG_DATAGRAMS {
                let Ok(mut waiting) = receive_datagram(queue, &mut self.receive_buffer) else { break };
                waiting.to = waiting.to.or(to);
                sort_by_sender(waiting, &from, &mut messages, &mut others);
            }
        }
        self.backlog = others;
        self.backlog.truncate(MAX_BACKLOG_DATAGRAMS);
        Ok(Box::new(self.maker.make_link(socket, sender, messages)))
    }
}

fn sort_by_sender(
    waiting: WaitingDatagram,
    from: &SockAddr,
    messages: &mut VecDeque<Vec<u8>>,
    others: &mut VecDeque<WaitingDatagram>,
) {
    if waiting.from == *from { messages.push_back(waiting.bytes) } else { others.push_back(waiting) }
}

/// Address in the form of another one: on an IPv6 socket an IPv4 address has the mapped form.
fn mapped_like(ip: IpAddr, like: SocketAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if like.is_ipv6() => v4.to_ipv6_mapped().into(),
        ip => ip,
    }
}

fn receive_datagram(socket: &Socket, buffer: &mut [u8]) -> io::Result<WaitingDatagram> {
    let arrival = system::receive_from(socket, buffer, Blocking::Never)?;
    Ok(WaitingDatagram { bytes: buffer[..arrival.length].to_vec(), from: arrival.from, to: arrival.to })
}

impl DatagramListener for UdpListener {
    type Message = WaitingDatagram;

    fn wait_for_message(&self, left: Duration) {
        wait_ready(&self.socket, IoDirection::Receive, left);
    }

    fn next_message(&mut self) -> io::Result<WaitingDatagram> {
        if let Some(waiting) = self.backlog.pop_front() {
            return Ok(waiting);
        }
        receive_datagram(&self.socket, &mut self.receive_buffer)
    }

    fn handle_message(
        &mut self,
        first: WaitingDatagram,
        filter: &mut AcceptFilter,
        reply: &mut Vec<u8>,
    ) -> Result<Option<NamedLink>, Fault> {
        let Some(sender) = first.from.as_socket() else { return Ok(None) };
        let name = SocketAddr::new(sender.ip().to_canonical(), sender.port()).to_string();
        match filter(&first.bytes, &name, reply) {
            Admission::Open => return Ok(Some((self.open_link(first, sender)?, name))),
            Admission::Reply => {
                // A reply that cannot be sent counts as lost.
                let _ = system::send_to(
                    &self.socket,
                    reply,
                    &first.from,
                    first.to.map(|(ip, _)| ip),
                    Blocking::Never,
                );
            }
            Admission::Drop | Admission::Ignore => {}
        }
        Ok(None)
    }
}

impl Listener for UdpListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, filter: &mut AcceptFilter) -> Result<NamedLink, Fault> {
        let clock = self.maker.clock.clone();
        accept_client(self, &clock, within, filter)
    }
}
