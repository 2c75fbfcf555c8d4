//! TIPC sockets of type rdm and dgram: how two ends without connections find each other.
//!
//! Such a socket stores a destination, but receives from any sender, so this file checks the sender of each
//! message. A client sends to a socket that has published the name, and from the first reply on to the sender
//! of that reply: a linkgauge listener gives each accepted sender a separate socket and replies from there.
//! The listener forwards messages that a sender still sends to the name, for example because it is another
//! program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::{Options, TipcPort, range_address, service_address};
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::{Facts, Fault, Link, Listener, OpenContext};
use crate::transport::forwarding::{AcceptedLink, DatagramFamily, ForwardingListener};
use crate::transport::socket::{IoDirection, SocketLink};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{self as system, Blocking, Errno};

/// Accepted senders of a link, shared by its handles.
enum AcceptedSenders {
    Anyone,
    /// The remote socket once it is known; 0 before. A linkgauge listener may forward its messages.
    One {
        remote: AtomicU64,
        listener: TipcPort,
    },
}

/// A port as one integer; never 0, because references never are.
fn port_key(port: TipcPort) -> u64 {
    u64::from(port.node) << 32 | u64::from(port.reference)
}

struct TipcDatagramLink {
    inner: SocketLink,
    accepted_senders: Arc<AcceptedSenders>,
}

impl TipcDatagramLink {
    /// Whether a message belongs to this link. At a client, the first message that is not the listener's own
    /// gives the remote socket.
    #[inline]
    fn is_accepted(&self, from: &SockAddr) -> bool {
        let AcceptedSenders::One { remote: peer, listener } = self.accepted_senders.as_ref() else {
            return true;
        };
        let Some(from) = TipcPort::from_address(from) else { return false };
        match peer.load(Relaxed) {
            // The listener may reply without making a link, or forward.
            _ if from == *listener => true,
            0 if from.node == listener.node => {
                peer.store(port_key(from), Relaxed);
                self.inner.socket.connect(&from.address()).is_ok()
            }
            known => known == port_key(from),
        }
    }
}

impl Link for TipcDatagramLink {
    fn facts(&self) -> Facts {
        let mut facts = self.inner.facts();
        if let AcceptedSenders::One { remote: peer, .. } = self.accepted_senders.as_ref() {
            let known = peer.load(Relaxed);
            let port = TipcPort { node: (known >> 32) as u32, reference: known as u32 };
            if known != 0 {
                facts.insert("remote".to_owned(), port.to_string().into());
            }
        }
        facts
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let mut until: Option<Time> = None;
        let mut left = within;
        loop {
            let arrival = self.inner.attempt(IoDirection::Receive, left, |socket, blocking| {
                system::receive_from(socket, into, blocking)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
            if self.is_accepted(&arrival.from) {
                return Ok(arrival.length);
            }
            let now = self.inner.clock.now();
            left = *until.get_or_insert(now + within) - now;
        }
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(TipcDatagramLink {
            inner: self.inner.duplicate()?,
            accepted_senders: self.accepted_senders.clone(),
        }))
    }

    delegate_link!(self => self.inner; caps status tune send finish_sending descriptor);
    plain_link!(send_batch receive_batch abort reopen read_send_stamps port_control);
}

/// A link to the socket at `port`, which has published the name, or to the name itself.
pub(crate) fn open(options: &Options, port: TipcPort, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let socket = options.open_socket()?;
    if let Some(own) = options.bind_name {
        socket.bind(&range_address(own)).map_err(Fault::system("bind"))?;
    }
    let (destination, accepted_senders) = match (options.is_multicast, options.bind_name) {
        (true, _) => (range_address(options.service_name), AcceptedSenders::Anyone),
        (false, Some(_)) => (service_address(options.service_name), AcceptedSenders::Anyone),
        (false, None) => (port.address(), AcceptedSenders::One { remote: AtomicU64::new(0), listener: port }),
    };
    socket.connect(&destination).map_err(Fault::system("connect"))?;
    let inner = options.socket_link(socket, &context.clock, context.wait);
    Ok(Box::new(TipcDatagramLink { inner, accepted_senders: Arc::new(accepted_senders) }))
}

/// The address of a socket of this node.
fn local_port(socket: &Socket) -> Result<TipcPort, Fault> {
    let address = socket.local_addr().map_err(Fault::system("read the local address"))?;
    TipcPort::from_address(&address)
        .ok_or_else(|| Fault::Internal("the kernel gave a socket no address".to_owned()))
}

/// Address family TIPC: the way in which clients of a name get separate sockets.
struct TipcFamily {
    options: Options,
    clock: Clock,
    wait: WaitMode,
}

pub(crate) fn listen(
    endpoint: &Endpoint,
    options: Options,
    socket: Socket,
    context: &OpenContext,
) -> Result<Box<dyn Listener>, Fault> {
    socket.bind(&range_address(options.service_name)).map_err(Fault::system("bind"))?;
    let family = TipcFamily { options, clock: context.clock.clone(), wait: context.wait };
    Ok(Box::new(ForwardingListener::new(family, socket, endpoint, &context.clock, super::MAX_MESSAGE_BYTES)))
}

impl DatagramFamily for TipcFamily {
    type Sender = TipcPort;
    type Shared = AcceptedSenders;

    const WHEN_FULL: Blocking = Blocking::Never;

    fn sender(&self, address: &SockAddr) -> Option<TipcPort> {
        TipcPort::from_address(address)
    }

    fn address(&self, sender: &TipcPort) -> SockAddr {
        sender.address()
    }

    fn name(&self, sender: &TipcPort) -> String {
        sender.to_string()
    }

    fn open_link(
        &self,
        listener: &Socket,
        sender: &TipcPort,
        forward: &dyn Fn(&SockAddr) -> Result<(), Fault>,
    ) -> Result<AcceptedLink<AcceptedSenders>, Fault> {
        let socket = self.options.open_socket()?;
        let address = local_port(&socket)?.address();
        let destination = self.options.reply_name.map_or_else(|| sender.address(), service_address);
        socket.connect(&destination).map_err(Fault::system("connect"))?;
        forward(&address)?;
        // A node gets its number with its first bearer, perhaps after listening began.
        let listener = local_port(listener)?;
        let accepted_senders =
            Arc::new(AcceptedSenders::One { remote: AtomicU64::new(port_key(*sender)), listener });
        let shared = Arc::downgrade(&accepted_senders);
        let inner = self.options.socket_link(socket, &self.clock, self.wait);
        Ok(AcceptedLink { link: Box::new(TipcDatagramLink { inner, accepted_senders }), address, shared })
    }
}
