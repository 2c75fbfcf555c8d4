//! `udp://host:port`: datagrams over IPv4 or IPv6, on connected sockets at both ends.
//!
//! The listener has one unconnected socket for first datagrams. A sender that is let in gets a socket of its own at the
//! same address, connected to it; what it sent meanwhile is handed to its link, in order. Lost is only what finds a
//! socket buffer full. A second listener on a port in use is refused, also while links of an earlier one live on.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::datagram::DatagramLink;
use super::internet::{self, IpOptions, addresses};
use super::offload::{Choice, Offload};
use super::socket::{Buffers, SocketLink, Wants, wait_for};
use super::{
    Admission, Caps, Door, Fault, Framing, Link, Listener, Opening, Transport, Unavailable, Unpaced, sys,
};
use crate::clock::Clock;
use crate::endpoint::{Endpoint, EndpointError};
use crate::plan::Wait;

pub const TRANSPORT: Transport = Transport {
    scheme: "udp",
    summary: "UDP over IPv4 or IPv6",
    example: "udp://192.0.2.7:7100?rcvbuf=4Mi",
    options: &[
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        internet::FAMILY,
        internet::BIND,
        internet::DEVICE,
        internet::DSCP,
        internet::ECN,
        ("gso", "bulk: 1 has the kernel cut large packets, 0 never; auto (default) where it measures better"),
        ("gro", "bulk: 1 has the kernel join datagrams, 0 never; auto (default) where it measures better"),
    ],
    check: |endpoint| {
        Options::of(endpoint)?;
        let (host, _) = endpoint.host_port()?;
        Ok(caps(host.contains(':')))
    },
    available: || {
        Socket::new(Domain::IPV4, Type::DGRAM, None).map(|_| ()).map_err(|error| {
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
    loopback: |_| {
        let hosts = ["udp://127.0.0.1:0", "udp://[::1]:0", "udp://127.0.0.1:0?gso=0&gro=0"];
        hosts.map(str::to_owned).to_vec()
    },
};

/// The 16-bit length field of the IPv4 header counts header (20) and UDP header (8) too.
const MAX_MESSAGE_V4: usize = 65_535 - 20 - 8;
/// The length field of IPv6 counts the UDP header only.
const MAX_MESSAGE_V6: usize = 65_535 - 8;

fn caps(v6: bool) -> Caps {
    Caps {
        framing: Framing::Message,
        max_message: Some(if v6 { MAX_MESSAGE_V6 } else { MAX_MESSAGE_V4 }),
        reliable: false,
        closes: false,
        unpaced: Unpaced::OnThisHost,
        ..Caps::STREAM
    }
}

struct Options {
    ip: IpOptions,
    buffers: Buffers,
    offload: Offload,
}

impl Options {
    fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let choice = |name| {
            endpoint
                .parsed(name, "auto, 0 or 1", |text| match text {
                    "auto" => Some(Choice::Auto),
                    "0" => Some(Choice::Off),
                    "1" => Some(Choice::On),
                    _ => None,
                })
                .map(|choice| choice.unwrap_or(Choice::Auto))
        };
        let offload = Offload { segments: choice("gso")?, coalesced: choice("gro")? };
        Ok(Options { ip: IpOptions::of(endpoint)?, buffers: Buffers::of(endpoint)?, offload })
    }

    fn socket(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)
            .map_err(Fault::system("open a socket"))?;
        self.ip.apply(&socket, address.ip())?;
        self.buffers.apply(&socket)?;
        Ok(socket)
    }
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let options = Options::of(endpoint)?;
    let mut last = Fault::TimedOut;
    for address in addresses(endpoint, opening, false)? {
        let socket = options.socket(address)?;
        options.ip.bind(&socket, address)?;
        match socket.connect(&address.into()) {
            Ok(()) => {
                let first = VecDeque::new();
                return Ok(Box::new(link(socket, address, &options, &opening.clock, opening.wait, first)));
            }
            Err(error) => last = Fault::System { operation: "connect", source: error },
        }
    }
    Err(last)
}

fn link(
    socket: Socket,
    peer: SocketAddr,
    options: &Options,
    clock: &Clock,
    wait: Wait,
    first: VecDeque<Vec<u8>>,
) -> DatagramLink {
    // An IPv4 peer may show as a mapped IPv6 address on a socket that takes both.
    let v6 = peer.ip().to_canonical().is_ipv6();
    DatagramLink::new(SocketLink::new(socket, caps(v6), clock, wait, internet::facts), options.offload, first)
}

/// A datagram that waits for the door.
struct Waiting {
    bytes: Vec<u8>,
    from: SockAddr,
    /// The address of this host it was sent to, where the listener is bound to all of them.
    to: Option<(IpAddr, u32)>,
}

struct UdpListener {
    socket: Socket,
    address: SocketAddr,
    endpoint: Endpoint,
    options: Options,
    clock: Clock,
    wait: Wait,
    room: Vec<u8>,
    /// Datagrams of others that were found while a link was made.
    backlog: VecDeque<Waiting>,
}

/// Most datagrams that are taken aside while a link is made; those beyond stay in the socket's buffer.
const MOST_ASIDE: usize = 1024;

fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    options.ip.check_listens()?;
    let address = addresses(endpoint, opening, true)?[0];
    let socket = options.socket(address)?;
    socket.bind(&address.into()).map_err(Fault::system("bind"))?;
    // Only after binding: so a second listener is refused, yet the senders' own sockets may share the address.
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    if address.ip().is_unspecified() {
        sys::set_tell_destination(&socket, address.is_ipv6())
            .map_err(Fault::system("ask for destinations"))?;
    }
    let local = socket.local_addr().map_err(Fault::system("read the local address"))?;
    let address = local.as_socket().unwrap_or(address);
    Ok(Box::new(UdpListener {
        socket,
        address,
        endpoint: endpoint.with_port(address.port())?,
        options,
        clock: opening.clock.clone(),
        wait: opening.wait,
        room: vec![0; MAX_MESSAGE_V6],
        backlog: VecDeque::new(),
    }))
}

impl UdpListener {
    fn next(&mut self) -> io::Result<Waiting> {
        if let Some(waiting) = self.backlog.pop_front() {
            return Ok(waiting);
        }
        receive(&self.socket, &mut self.room)
    }

    /// A socket and link for the sender of `first`.
    fn admit(&mut self, first: Waiting, sender: SocketAddr) -> Result<Box<dyn Link>, Fault> {
        let local = match first.to {
            Some((IpAddr::V6(ip), interface)) => {
                let scope = if ip.is_unicast_link_local() { interface } else { 0 };
                SocketAddrV6::new(ip, self.address.port(), 0, scope).into()
            }
            Some((ip, _)) => SocketAddr::new(mapped_like(ip, self.address), self.address.port()),
            None => self.address,
        };
        let socket = self.options.socket(local)?;
        socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
        socket.bind(&local.into()).map_err(Fault::system("bind"))?;
        socket.connect(&first.from).map_err(Fault::system("connect"))?;
        // From here on the kernel gives the new socket what this sender sends, and nobody else's. What came before lies
        // in the listener's queue or, between bind and connect, together with that of others, in the new one.
        let (from, to) = (first.from, first.to);
        let mut messages = VecDeque::from([first.bytes]);
        let mut others = VecDeque::new();
        for waiting in std::mem::take(&mut self.backlog) {
            sort(waiting, &from, &mut messages, &mut others);
        }
        for queue in [&self.socket, &socket] {
            for _ in 0..MOST_ASIDE {
                let Ok(mut waiting) = receive(queue, &mut self.room) else { break };
                waiting.to = waiting.to.or(to);
                sort(waiting, &from, &mut messages, &mut others);
            }
        }
        self.backlog = others;
        self.backlog.truncate(MOST_ASIDE);
        Ok(Box::new(link(socket, sender, &self.options, &self.clock, self.wait, messages)))
    }
}

fn sort(waiting: Waiting, from: &SockAddr, messages: &mut VecDeque<Vec<u8>>, others: &mut VecDeque<Waiting>) {
    if waiting.from == *from { messages.push_back(waiting.bytes) } else { others.push_back(waiting) }
}

/// On a socket of IPv6 an IPv4 address is written as a mapped one.
fn mapped_like(ip: IpAddr, like: SocketAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if like.is_ipv6() => v4.to_ipv6_mapped().into(),
        ip => ip,
    }
}

fn receive(socket: &Socket, room: &mut [u8]) -> io::Result<Waiting> {
    let arrival = sys::receive_from(socket, room, false)?;
    Ok(Waiting { bytes: room[..arrival.length].to_vec(), from: arrival.from, to: arrival.to })
}

impl Listener for UdpListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, door: &mut Door) -> Result<(Box<dyn Link>, String), Fault> {
        let until = self.clock.now() + within;
        let mut reply = Vec::new();
        loop {
            let first = match self.next() {
                Ok(first) => first,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = until - self.clock.now();
                    if left.is_zero() {
                        return Err(Fault::TimedOut);
                    }
                    wait_for(&self.socket, Wants::ToReceive, left);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Fault::System { operation: "receive", source: error }),
            };
            let Some(sender) = first.from.as_socket() else { continue };
            let name = SocketAddr::new(sender.ip().to_canonical(), sender.port()).to_string();
            reply.clear();
            match door(&first.bytes, &name, &mut reply) {
                Admission::Open => return Ok((self.admit(first, sender)?, name)),
                Admission::Reply => {
                    // A reply that cannot be sent is a lost one.
                    let _ =
                        sys::send_to(&self.socket, &reply, &first.from, first.to.map(|(ip, _)| ip), false);
                }
                Admission::Drop => {}
            }
            // A flood must not keep the caller from looking at its own affairs.
            if self.clock.now() >= until {
                return Err(Fault::TimedOut);
            }
        }
    }
}
