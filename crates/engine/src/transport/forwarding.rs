//! Accepts clients on one datagram socket of an address family without connections. Each accepted client gets a link with a
//! socket of its own. Messages that the client still sends to the first socket are forwarded to its link.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::Weak;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::datagram_accept::{DatagramListener, NamedLink, accept_client};
use super::socket::{IoDirection, wait_ready};
use crate::link::{AcceptFilter, Admission, Fault, Link, Listener};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_system::{self as system, Blocking, ReceivedDatagram};

/// Way in which the sockets of an address family find each other.
pub(crate) trait DatagramFamily: Send {
    /// Identifies a client.
    type Sender: Clone + Eq + Hash + Send;
    /// State that the handles of a link share. A link without handles is gone.
    type Shared: Send + Sync;

    /// Whether the listener waits if the socket of a link is full. Otherwise the message is lost.
    const WHEN_FULL: Blocking;

    /// The sender of a message; `None` to ignore the message.
    fn sender(&self, address: &SockAddr) -> Option<Self::Sender>;

    /// The address of a sender.
    fn address(&self, sender: &Self::Sender) -> SockAddr;

    /// The name of a sender, for limits and messages.
    fn name(&self, sender: &Self::Sender) -> String;

    /// Opens the link of a new client. `forward` passes the first message on to the address of the link's socket.
    fn open_link(
        &self,
        listener: &Socket,
        sender: &Self::Sender,
        forward: &dyn Fn(&SockAddr) -> Result<(), Fault>,
    ) -> Result<AcceptedLink<Self::Shared>, Fault>;
}

/// A new link, the address of its socket, and the state by which the listener knows whether it still exists.
pub(crate) struct AcceptedLink<S> {
    pub(crate) link: Box<dyn Link>,
    pub(crate) address: SockAddr,
    pub(crate) shared: Weak<S>,
}

pub(crate) struct ForwardingListener<F: DatagramFamily> {
    family: F,
    socket: Socket,
    endpoint: Endpoint,
    clock: Clock,
    receive_buffer: Vec<u8>,
    /// The live links by sender, with the addresses of their sockets.
    links: HashMap<F::Sender, (SockAddr, Weak<F::Shared>)>,
}

impl<F: DatagramFamily> ForwardingListener<F> {
    /// Accepts on a bound socket messages of at most `max_message_bytes`.
    pub fn new(
        family: F,
        socket: Socket,
        endpoint: &Endpoint,
        clock: &Clock,
        max_message_bytes: usize,
    ) -> ForwardingListener<F> {
        ForwardingListener {
            family,
            socket,
            endpoint: endpoint.clone(),
            clock: clock.clone(),
            receive_buffer: vec![0; max_message_bytes],
            links: HashMap::new(),
        }
    }

    /// Forwards a message to the link of its sender, if there is one.
    fn forward(&mut self, length: usize, from: &F::Sender) -> bool {
        let Some((to, shared)) = self.links.get(from) else { return false };
        if shared.strong_count() == 0 {
            self.links.remove(from);
            return false;
        }
        // A full link loses the message, as its own socket would.
        let _ = system::send_to(&self.socket, &self.receive_buffer[..length], to, None, F::WHEN_FULL);
        true
    }

    fn open_link(&mut self, length: usize, from: &F::Sender) -> Result<Box<dyn Link>, Fault> {
        let forward = |to: &SockAddr| {
            system::send_to(&self.socket, &self.receive_buffer[..length], to, None, Blocking::Allowed)
                .map(drop)
                .map_err(|errno| Fault::system("forward")(errno.into()))
        };
        let accepted = self.family.open_link(&self.socket, from, &forward)?;
        self.links.retain(|_, (_, shared)| shared.strong_count() > 0);
        self.links.insert(from.clone(), (accepted.address, accepted.shared));
        Ok(accepted.link)
    }
}

impl<F: DatagramFamily> DatagramListener for ForwardingListener<F> {
    type Message = ReceivedDatagram;

    fn wait_for_message(&self, left: Duration) {
        wait_ready(&self.socket, IoDirection::Receive, left);
    }

    fn next_message(&mut self) -> io::Result<ReceivedDatagram> {
        system::receive_from(&self.socket, &mut self.receive_buffer, Blocking::Never)
    }

    fn handle_message(
        &mut self,
        message: ReceivedDatagram,
        filter: &mut AcceptFilter,
        reply: &mut Vec<u8>,
    ) -> Result<Option<NamedLink>, Fault> {
        let Some(from) = self.family.sender(&message.from) else { return Ok(None) };
        if self.forward(message.length, &from) {
            return Ok(None);
        }
        let name = self.family.name(&from);
        match filter(&self.receive_buffer[..message.length], &name, reply) {
            Admission::Open => return Ok(Some((self.open_link(message.length, &from)?, name))),
            Admission::Reply => {
                // A reply that cannot be sent counts as lost.
                let _ =
                    system::send_to(&self.socket, reply, &self.family.address(&from), None, Blocking::Never);
            }
            Admission::Drop | Admission::Ignore => {}
        }
        Ok(None)
    }
}

impl<F: DatagramFamily> Listener for ForwardingListener<F> {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, filter: &mut AcceptFilter) -> Result<NamedLink, Fault> {
        let clock = self.clock.clone();
        accept_client(self, &clock, within, filter)
    }
}
