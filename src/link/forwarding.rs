//! Accepts clients on one datagram socket of an address family without connections. Each accepted client gets a link with a
//! socket of its own. Messages that the client still sends to the first socket are forwarded to its link.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::Weak;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::socket::{IoDirection, wait_ready};
use super::{AcceptFilter, Admission, Fault, Link, Listener, sys};
use crate::clock::Clock;
use crate::endpoint::Endpoint;

/// How the sockets of an address family find each other.
pub trait DatagramFamily: Send {
    /// Identifies a client.
    type Sender: Clone + Eq + Hash + Send;
    /// State that the handles of a link share. A link without handles is gone.
    type Shared: Send + Sync;

    /// Whether the listener waits if the socket of a link is full. Otherwise the message is lost.
    const WAITS_FOR_ROOM: bool;

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
pub struct AcceptedLink<S> {
    pub link: Box<dyn Link>,
    pub address: SockAddr,
    pub shared: Weak<S>,
}

/// A link and the name of its client.
type NamedLink = (Box<dyn Link>, String);

pub struct ForwardingListener<F: DatagramFamily> {
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
        let _ = sys::send_to(&self.socket, &self.receive_buffer[..length], to, None, F::WAITS_FOR_ROOM);
        true
    }

    fn open_link(&mut self, length: usize, from: &F::Sender) -> Result<Box<dyn Link>, Fault> {
        let forward = |to: &SockAddr| {
            sys::send_to(&self.socket, &self.receive_buffer[..length], to, None, true)
                .map(drop)
                .map_err(|errno| Fault::system("forward")(errno.into()))
        };
        let accepted = self.family.open_link(&self.socket, from, &forward)?;
        self.links.retain(|_, (_, shared)| shared.strong_count() > 0);
        self.links.insert(from.clone(), (accepted.address, accepted.shared));
        Ok(accepted.link)
    }

    /// Handles a message; returns the link that it opens.
    fn handle_message(
        &mut self,
        length: usize,
        from: &SockAddr,
        filter: &mut AcceptFilter,
        reply: &mut Vec<u8>,
    ) -> Result<Option<NamedLink>, Fault> {
        let Some(from) = self.family.sender(from) else { return Ok(None) };
        if self.forward(length, &from) {
            return Ok(None);
        }
        let name = self.family.name(&from);
        reply.clear();
        match filter(&self.receive_buffer[..length], &name, reply) {
            Admission::Open => return Ok(Some((self.open_link(length, &from)?, name))),
            Admission::Reply => {
                // A reply that cannot be sent counts as lost.
                let _ = sys::send_to(&self.socket, reply, &self.family.address(&from), None, false);
            }
            Admission::Drop => {}
        }
        Ok(None)
    }
}

impl<F: DatagramFamily> Listener for ForwardingListener<F> {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(
        &mut self,
        within: Duration,
        filter: &mut AcceptFilter,
    ) -> Result<(Box<dyn Link>, String), Fault> {
        let until = self.clock.now() + within;
        let mut reply = Vec::new();
        loop {
            let left = until - self.clock.now();
            match sys::receive_from(&self.socket, &mut self.receive_buffer, false) {
                Ok(arrival) => {
                    if let Some(accepted) =
                        self.handle_message(arrival.length, &arrival.from, filter, &mut reply)?
                    {
                        return Ok(accepted);
                    }
                    if left.is_zero() {
                        return Err(Fault::TimedOut);
                    }
                }
                Err(_) if left.is_zero() => return Err(Fault::TimedOut),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_ready(&self.socket, IoDirection::Receive, left);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::System { operation: "receive", source: error }),
            }
        }
    }
}
