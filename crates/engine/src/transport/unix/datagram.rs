//! Unix sockets of type dgram: how two ends without connections find each other.
//!
//! A connected dgram socket receives only from its peer, and no two sockets share a path. So a client does
//! not connect to the path: it binds an abstract name of its own (replies need one), sends to the path and
//! receives from any sender.
//!
//! - A plain server replies from the path. The client keeps this state (each send looks the path up: about 1
//!   µs).
//! - A linkgauge listener gives an accepted sender a separate socket with an abstract name. If the client has
//!   a linkgauge name, the listener announces the socket with an empty datagram from there. The client
//!   connects to the source of that datagram; the server's socket connects to the client with the first
//!   datagram that arrives directly. From then on both are a connected pair.
//! - Other clients continue to send to the path. The listener forwards their datagrams, and replies leave
//!   from the path. That costs one more hop.
//!
//! After its first datagram, a client without a reply delays the second one by at most
//! [`ANNOUNCEMENT_TIMEOUT`], so that no datagram overtakes another. Abstract names have no owner: any process
//! of this host could send to one. Datagrams of unexpected senders are ignored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::{BoundFile, Options, address_text};
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::{Batch, Facts, Fault, Link, Listener, OpenContext};
use crate::transport::datagram::DatagramLink;
use crate::transport::forwarding::{AcceptedLink, DatagramFamily, ForwardingListener};
use crate::transport::offload::OffloadOptions;
use crate::transport::socket::{IoDirection, wait_ready};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{self as system, Blocking, Errno};

/// Prefix of the abstract names of linkgauge sockets.
const ABSTRACT_NAME_PREFIX: &[u8] = b"linkgauge.";

/// Timeout for an announcement: much longer than a running listener needs for it, and still short if none comes.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_millis(50);

/// Time for which the listener waits for room at the target of a forwarded datagram before it drops it.
const FORWARD_TIMEOUT: Duration = Duration::from_millis(100);

/// State of the other end, shared by the handles of a link.
struct SocketPairing {
    /// Destination until the sockets are connected.
    destination: SockAddr,
    /// Whether the socket is connected: it receives from the destination only.
    is_connected: AtomicBool,
    /// Whether a datagram has arrived, so that sending is no longer delayed.
    has_received: AtomicBool,
    role: SocketRole,
}

enum SocketRole {
    Client,
    /// `path` is the listener's socket; other programs' clients receive replies from there.
    Server {
        listener: SockAddr,
        reply_socket: Option<Socket>,
    },
}

struct UnixDatagramLink {
    inner: DatagramLink,
    pairing: Arc<SocketPairing>,
    clock: Clock,
    /// Whether this handle has received its first message, so that no announcement can follow.
    has_first_message: bool,
    has_sent: bool,
}

/// A socket with a separate abstract name.
fn bind_abstract(options: &Options) -> Result<(Socket, SockAddr), Fault> {
    let socket = options.open_socket()?;
    let name = format!("\0{}{:016x}", String::from_utf8_lossy(ABSTRACT_NAME_PREFIX), fastrand::u64(..));
    let address = SockAddr::unix(name).map_err(Fault::system("make an address"))?;
    socket.bind(&address).map_err(Fault::system("bind"))?;
    Ok((socket, address))
}

pub(crate) fn open(options: &Options, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let address = options.socket_address()?;
    // Checks whether a server exists; the first send would report that too late.
    options.open_socket()?.connect(&address).map_err(Fault::system("connect"))?;
    let (socket, _) = bind_abstract(options)?;
    let pairing = SocketPairing {
        destination: address,
        is_connected: AtomicBool::new(false),
        has_received: AtomicBool::new(false),
        role: SocketRole::Client,
    };
    Ok(Box::new(UnixDatagramLink::new(options, socket, Arc::new(pairing), &context.clock, context.wait)))
}

impl UnixDatagramLink {
    pub fn new(
        options: &Options,
        socket: Socket,
        pairing: Arc<SocketPairing>,
        clock: &Clock,
        wait: WaitMode,
    ) -> UnixDatagramLink {
        let inner = DatagramLink::new(
            options.socket_link(socket, clock, wait),
            OffloadOptions::NONE,
            VecDeque::new(),
        );
        UnixDatagramLink { inner, pairing, clock: clock.clone(), has_first_message: false, has_sent: false }
    }

    fn is_connected(&self) -> bool {
        self.pairing.is_connected.load(Relaxed)
    }

    /// Whether a sender's message belongs to this link. Connects the socket at the right moment.
    fn accept_sender(&self, from: &SockAddr) -> bool {
        let socket = &self.inner.inner.socket;
        let pairing = &self.pairing;
        if self.is_connected() {
            return true;
        }
        match &pairing.role {
            SocketRole::Client if *from == pairing.destination => true,
            // The server that bound the path may spell it differently; a link of a linkgauge listener has no
            // path.
            SocketRole::Client if system::abstract_name(from).is_none() => true,
            SocketRole::Client => {
                pairing.is_connected.store(socket.connect(from).is_ok(), Relaxed);
                true
            }
            SocketRole::Server { .. } if *from == pairing.destination => {
                pairing.is_connected.store(socket.connect(from).is_ok(), Relaxed);
                true
            }
            SocketRole::Server { listener, .. } => from == listener,
        }
    }

    /// Waits for the announcement of a linkgauge listener that has just received our first message.
    fn await_announcement(&mut self) {
        let socket = &self.inner.inner.socket;
        wait_ready(socket, IoDirection::Receive, ANNOUNCEMENT_TIMEOUT);
        self.pairing.has_received.store(true, Relaxed);
        // The receiving handle receives the message itself.
        if let Ok(from) = system::peek_sender(socket) {
            self.accept_sender(&from);
        }
    }

    fn receive_unconnected(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let mut until: Option<Time> = None;
        let mut left = within;
        loop {
            let arrival = self.inner.inner.attempt(IoDirection::Receive, left, |socket, blocking| {
                system::receive_from(socket, into, blocking)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
            let is_client = matches!(self.pairing.role, SocketRole::Client);
            if self.accept_sender(&arrival.from) {
                self.pairing.has_received.store(true, Relaxed);
                if arrival.length > 0 || !is_client {
                    self.has_first_message = true;
                    return Ok(arrival.length);
                }
            }
            let now = self.clock.now();
            left = *until.get_or_insert(now + within) - now;
        }
    }

    fn send_unconnected(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner.inner.check_length(bytes.len())?;
        let pairing = self.pairing.clone();
        if matches!(pairing.role, SocketRole::Client) && self.has_sent && !pairing.has_received.load(Relaxed)
        {
            self.await_announcement();
            if self.is_connected() {
                return self.inner.send(bytes, within);
            }
        }
        let sent = self
            .inner
            .inner
            .attempt(IoDirection::Send, within, |socket, blocking| {
                let socket = match &pairing.role {
                    SocketRole::Server { reply_socket: Some(path), .. } => path,
                    _ => socket,
                };
                system::send_to(socket, bytes, &pairing.destination, None, blocking)
            })
            .map_err(|fault| self.inner.inner.map_too_long(fault, bytes.len()));
        // A server whose queue was full knows nothing of this client.
        self.has_sent |= sent.is_ok();
        match sent {
            // The other handle has just connected.
            Err(Fault::System { .. }) if self.is_connected() => self.inner.send(bytes, within),
            sent => sent,
        }
    }
}

impl Link for UnixDatagramLink {
    fn facts(&self) -> Facts {
        let mut facts = self.inner.facts();
        if let Some(name) = address_text(&self.pairing.destination) {
            facts.entry("remote").or_insert(name.into());
        }
        facts
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        if self.is_connected() {
            self.inner.send(bytes, within)
        } else {
            self.send_unconnected(bytes, within)
        }
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.has_first_message && self.is_connected() {
            self.inner.receive(into, within)
        } else {
            self.receive_unconnected(into, within)
        }
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        if self.is_connected() {
            self.inner.send_batch(messages, message, within)
        } else {
            self.send_unconnected(&messages[..messages.len().min(message)], within)
        }
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        if self.has_first_message && self.is_connected() {
            return self.inner.receive_batch(into, within);
        }
        into.clear();
        let length = self.receive_unconnected(&mut into.bytes, within)?;
        into.push_span(0, length);
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(UnixDatagramLink {
            inner: self.inner.duplicate()?,
            pairing: self.pairing.clone(),
            clock: self.clock.clone(),
            has_first_message: self.has_first_message,
            has_sent: self.has_sent,
        }))
    }

    delegate_link!(self => self.inner; caps status tune finish_sending abort descriptor);
    plain_link!(reopen read_send_stamps port_control);
}

/// Address family of Unix datagrams: the way in which clients of the path get separate sockets.
struct UnixFamily {
    /// Address of the listening socket.
    address: SockAddr,
    options: Options,
    clock: Clock,
    wait: WaitMode,
    _file: Option<BoundFile>,
}

pub(crate) fn listen(
    endpoint: &Endpoint,
    options: Options,
    context: &OpenContext,
) -> Result<Box<dyn Listener>, Fault> {
    let (socket, file) = options.bind_socket()?;
    socket.set_write_timeout(Some(FORWARD_TIMEOUT)).map_err(Fault::system("set a timeout"))?;
    let address = socket.local_addr().map_err(Fault::system("read the local address"))?;
    let (clock, wait) = (context.clock.clone(), context.wait);
    let family = UnixFamily { address, options, clock, wait, _file: file };
    Ok(Box::new(ForwardingListener::new(family, socket, endpoint, &context.clock, MAX_DATAGRAM_BYTES)))
}

/// The largest message of a client with the largest buffer; see `unix`.
const MAX_DATAGRAM_BYTES: usize = (4 << 20) + 65_536;

impl DatagramFamily for UnixFamily {
    type Sender = SockAddr;
    type Shared = SocketPairing;

    const WHEN_FULL: Blocking = Blocking::Allowed;

    fn sender(&self, address: &SockAddr) -> Option<SockAddr> {
        Some(address.clone())
    }

    fn address(&self, sender: &SockAddr) -> SockAddr {
        sender.clone()
    }

    fn name(&self, sender: &SockAddr) -> String {
        address_text(sender).unwrap_or_else(|| "a socket without a name".to_owned())
    }

    fn open_link(
        &self,
        listener: &Socket,
        sender: &SockAddr,
        forward: &dyn Fn(&SockAddr) -> Result<(), Fault>,
    ) -> Result<AcceptedLink<SocketPairing>, Fault> {
        let (socket, address) = bind_abstract(&self.options)?;
        let is_ours =
            system::abstract_name(sender).is_some_and(|name| name.starts_with(ABSTRACT_NAME_PREFIX));
        let path = if is_ours { None } else { Some(listener.try_clone()) };
        let pairing = Arc::new(SocketPairing {
            destination: sender.clone(),
            is_connected: AtomicBool::new(false),
            has_received: AtomicBool::new(true),
            role: SocketRole::Server {
                listener: self.address.clone(),
                reply_socket: path.transpose().map_err(Fault::system("clone the socket"))?,
            },
        });
        forward(&address)?;
        if is_ours {
            // If the client has gone, the link detects this.
            let _ = system::send_to(&socket, &[], sender, None, Blocking::Never);
        }
        let shared = Arc::downgrade(&pairing);
        let link = UnixDatagramLink::new(&self.options, socket, pairing, &self.clock, self.wait);
        Ok(AcceptedLink { link: Box::new(link), address, shared })
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Registry;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// Many clients fill the queue of a server with their first messages.
    #[test]
    fn a_message_that_the_queue_refused_is_sent_without_a_pause() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server");
        let server = UnixDatagram::bind(&path).unwrap();
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        let dialer = Registry::standard().dialer(Clock::System);
        let url = format!("unix://{}?type=dgram", path.display()).parse().unwrap();
        // A busy host may delay one of them.
        let shortest = (0..5).map(|_| {
            let mut link = dialer.open(&url).unwrap();
            let mut queued = 0;
            while other.send_to(b"x", &path).is_ok() {
                queued += 1;
            }
            assert!(matches!(link.send(b"first", Duration::ZERO), Err(Fault::TimedOut)));
            for _ in 0..queued {
                server.recv(&mut [0; 8]).unwrap();
            }
            let began = Clock::System.now();
            assert_eq!(link.send(b"first", Duration::ZERO).unwrap(), 5);
            let took = Clock::System.now().since(began);
            server.recv(&mut [0; 8]).unwrap();
            took
        });
        assert!(shortest.min().unwrap() < ANNOUNCEMENT_TIMEOUT / 2);
    }
}
