//! `sctp://host:port`: an SCTP association over IPv4 or IPv6, in the one-to-one style: ordered messages with
//! boundaries.
//!
//! One stream of the association is used. SCTP has no half-closed state: an end that has finished receives
//! the data in flight, and the other end can send no more.

use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket};

use super::connect_first::connect_first;
use super::internet::{self, IpOptions, resolve_addresses};
use super::socket::{
    self, AcceptResult, BufferOptions, IoDirection, LISTEN_BACKLOG, SocketLink, SocketListener, parse_flag,
};
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::{Caps, Facts, Fault, Framing, Limitation, Link, Listener, OpenContext, Transport};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::plan::WaitMode;
use linkgauge_system as system;

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "sctp",
    summary: "SCTP over IPv4 or IPv6, one association with message bounds",
    example: "sctp://192.0.2.7:7100",
    options: &[
        ("nodelay", "1 (default) sends at once, 0 lets the kernel gather small messages (Nagle)"),
        ("sndbuf", "send buffer in bytes (the kernel's choice)"),
        ("rcvbuf", "receive buffer in bytes (the kernel's choice)"),
        internet::FAMILY_OPTION,
        internet::BIND_OPTION,
        internet::DEVICE_OPTION,
        internet::DSCP_OPTION,
        internet::TTL_OPTION,
        internet::PRIORITY_OPTION,
    ],
    parse_caps: |endpoint| Options::from_endpoint(endpoint).map(|_| ASSOCIATION_CAPS),
    resolve: Some(internet::resolve),
    available: || {
        system::sctp_socket(Domain::IPV4).map(|_| ()).map_err(|error| {
            Limitation::from_socket_error(
                &error,
                "the kernel has no SCTP, or has not loaded it",
                "sudo modprobe sctp (Debian and Ubuntu: in linux-modules-extra where it is missing)",
            )
        })
    },
    limitation: || None,
    open,
    begin_open: None,
    listen: Some(listen),
    loopback_urls: |_| {
        ["sctp://127.0.0.1:0", "sctp://[::1]:0", "sctp://127.0.0.1:0?rcvbuf=16Ki&dscp=EF&device=lo"]
            .map(str::to_owned)
            .to_vec()
    },
};

/// A third of the kernel's default buffer (`net.core.rmem_default`): a whole message fits the receiver's
/// window.
const MAX_MESSAGE_BYTES: usize = 65_536;

const ASSOCIATION_CAPS: Caps = Caps {
    framing: Framing::Message,
    max_message_bytes: Some(MAX_MESSAGE_BYTES),
    can_half_close: false,
    ..Caps::STREAM
};

struct Options {
    nodelay: bool,
    ip: IpOptions,
    buffers: BufferOptions,
}

impl Options {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        endpoint.host_port()?;
        Ok(Options {
            nodelay: parse_flag(endpoint, "nodelay")?.unwrap_or(true),
            ip: IpOptions::from_endpoint(endpoint)?,
            buffers: BufferOptions::from_endpoint(endpoint)?,
        })
    }

    fn open_socket(&self, address: SocketAddr) -> Result<Socket, Fault> {
        let socket = system::sctp_socket(Domain::for_address(address))
            .map_err(Fault::system("open an SCTP socket"))?;
        self.ip.apply(&socket, address.ip())?;
        self.apply_to_connection(&socket)?;
        Ok(socket)
    }

    fn apply_to_connection(&self, socket: &Socket) -> Result<(), Fault> {
        self.buffers.apply(socket)?;
        system::set_sctp_nodelay(socket, self.nodelay).map_err(Fault::system("set SCTP_NODELAY"))
    }
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let socket = connect_first(endpoint, context, |address| {
        let socket = options.open_socket(address)?;
        options.ip.bind(&socket, address)?;
        Ok(socket)
    })?;
    Ok(Box::new(SctpLink::new(socket, &context.clock, context.wait)))
}

fn facts(socket: &Socket, facts: &mut Facts) {
    internet::facts(socket, facts);
    let Some(status) = system::sctp_status(socket) else { return };
    facts.insert("path_mtu_bytes".to_owned(), status.path_mtu.into());
    facts.insert("fragment_bytes".to_owned(), status.fragment_bytes.into());
}

struct SctpLink {
    inner: SocketLink,
    /// The beginning of a message that the kernel delivers in fragments.
    partial_message: Vec<u8>,
}

impl SctpLink {
    pub fn new(socket: Socket, clock: &Clock, wait: WaitMode) -> SctpLink {
        SctpLink {
            inner: SocketLink::new(socket, ASSOCIATION_CAPS, clock, wait, facts),
            partial_message: Vec::new(),
        }
    }

    /// Receives a fragment of a message, and whether it is the last.
    #[inline]
    fn receive_fragment(&mut self, into: &mut [u8], within: Duration) -> Result<(usize, bool), Fault> {
        let (length, last) = self.inner.attempt(IoDirection::Receive, within, |socket, blocking| {
            system::receive_part(socket, into, blocking)
        })?;
        if length == 0 && !into.is_empty() { Err(Fault::Closed) } else { Ok((length, last)) }
    }
}

impl Link for SctpLink {
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let mut until: Option<Time> = None;
        let mut left = within;
        loop {
            let (length, last) = self.receive_fragment(into, left)?;
            if last && self.partial_message.is_empty() {
                return Ok(length);
            }
            // The message is longer than `into`, or the kernel needed room before it was complete.
            let remaining = MAX_MESSAGE_BYTES.saturating_sub(self.partial_message.len());
            self.partial_message.extend_from_slice(&into[..length.min(remaining)]);
            if last {
                let length = self.partial_message.len().min(into.len());
                into[..length].copy_from_slice(&self.partial_message[..length]);
                self.partial_message.clear();
                return Ok(length);
            }
            let now = self.inner.clock.now();
            left = *until.get_or_insert(now + within) - now;
        }
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        // Data in flight to this end still arrives.
        self.inner.shutdown(Shutdown::Write)
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(SctpLink { inner: self.inner.duplicate()?, partial_message: Vec::new() }))
    }

    delegate_link!(self => self.inner; caps facts status tune send abort descriptor);
    plain_link!(send_batch receive_batch reopen read_send_stamps port_control);
}

fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    options.ip.refuse_bind_for_listener()?;
    let address = resolve_addresses(endpoint, context, internet::EndpointRole::Listen)?[0];
    let socket = options.open_socket(address)?;
    socket.set_reuse_address(true).map_err(Fault::system("set SO_REUSEADDR"))?;
    internet::bind_to_listen(&socket, address, context)?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(Fault::system("listen"))?;
    let endpoint = endpoint.with_port(internet::bound_port(&socket))?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let admit = move |socket: Socket, from: &SockAddr| -> AcceptResult {
        options.apply_to_connection(&socket)?;
        Ok((Box::new(SctpLink::new(socket, &clock, wait)), internet::address_text(from)))
    };
    Ok(Box::new(SocketListener { socket, endpoint, make_link: admit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_TIMEOUT: Duration = Duration::from_secs(10);

    /// The system may lack SCTP, and another connection shows the same: the state is that of the socket.
    #[test]
    fn the_state_is_that_of_the_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (remote, _) = listener.accept().unwrap();
        let mut link = SctpLink::new(stream.into(), &Clock::System, WaitMode::Block);
        let status = link.status();
        assert_eq!((status.is_hung_up, status.unacknowledged_bytes), (false, Some(0)));
        assert_eq!(link.send_batch(b"aaaabbbb", 4, LONG_TIMEOUT).unwrap(), 4, "one message at a time");
        drop(remote);
        assert!(link.receive(&mut [0; 9], LONG_TIMEOUT).is_err());
        assert!(link.status().is_hung_up);
        assert!(link.descriptor().is_some());
    }
}
