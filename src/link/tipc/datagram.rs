//! TIPC sockets of type rdm and dgram: how two ends meet that have no connections.
//!
//! The kernel keeps a destination with such a socket, yet lets anybody send to it, so each message's sender is looked at
//! here. A client sends to a socket that has published the name, and from the first answer on to whoever gave it: our
//! listener gives each sender it lets in a socket of its own and answers from there. What a sender says to the name
//! meanwhile, or all the time because it is not ours, the listener forwards.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockAddr, Socket};

use super::{Options, Port, range, service};
use crate::clock::{Clock, Time};
use crate::endpoint::Endpoint;
use crate::link::party::Tuning;
use crate::link::socket::{SocketLink, Wants, wait_for};
use crate::link::{Admission, Caps, Door, Facts, Fault, Link, Listener, Opening, sys};
use crate::plan::Wait;

/// Whom a link listens to; its halves share this.
enum Hears {
    Anyone,
    /// The far end, once it is known: 0 before. A listener of ours may forward what it said.
    One {
        peer: AtomicU64,
        listener: Port,
    },
}

/// A port in one word; none is 0, for references never are.
fn word(port: Port) -> u64 {
    u64::from(port.node) << 32 | u64::from(port.reference)
}

struct MeetingLink {
    inner: SocketLink,
    hears: Arc<Hears>,
}

impl MeetingLink {
    /// Whether a message is for this link. The first one at a client that is not the listener's own tells where the far
    /// end really is.
    #[inline]
    fn is_heard(&self, from: &SockAddr) -> bool {
        let Hears::One { peer, listener } = self.hears.as_ref() else { return true };
        let Some(from) = Port::of(from) else { return false };
        match peer.load(Relaxed) {
            // It may answer without making a link, or forward.
            _ if from == *listener => true,
            0 if from.node == listener.node => {
                peer.store(word(from), Relaxed);
                self.inner.socket.connect(&from.address()).is_ok()
            }
            known => known == word(from),
        }
    }
}

impl Link for MeetingLink {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn facts(&self) -> Facts {
        let mut facts = self.inner.facts();
        if let Hears::One { peer, .. } = self.hears.as_ref() {
            let known = peer.load(Relaxed);
            let port = Port { node: (known >> 32) as u32, reference: known as u32 };
            if known != 0 {
                facts.insert("remote".to_owned(), port.to_string().into());
            }
        }
        facts
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.inner.tune(tuning);
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner.send(bytes, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let mut until: Option<Time> = None;
        let mut left = within;
        loop {
            let arrival = self.inner.attempt(Wants::ToReceive, left, |socket, may_block| {
                sys::receive_from(socket, into, may_block)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
            if self.is_heard(&arrival.from) {
                return Ok(arrival.length);
            }
            let now = self.inner.clock.now();
            left = *until.get_or_insert(now + within) - now;
        }
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(MeetingLink { inner: self.inner.half()?, hears: self.hears.clone() }))
    }

    fn polled(&self) -> Duration {
        self.inner.polled()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.inner.finish()
    }

    fn socket_drops(&self) -> Option<u64> {
        sys::socket_drops(&self.inner.socket)
    }
}

/// A link to the socket at `port`, which has published the name, or to the name itself.
pub fn open(options: &Options, port: Port, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let socket = options.socket()?;
    if let Some(own) = options.bind {
        socket.bind(&range(own)).map_err(Fault::system("bind"))?;
    }
    let (destination, hears) = match (options.multicast, options.bind) {
        (true, _) => (range(options.name), Hears::Anyone),
        (false, Some(_)) => (service(options.name), Hears::Anyone),
        (false, None) => (port.address(), Hears::One { peer: AtomicU64::new(0), listener: port }),
    };
    socket.connect(&destination).map_err(Fault::system("connect"))?;
    let inner = options.socket_link(socket, &opening.clock, opening.wait);
    Ok(Box::new(MeetingLink { inner, hears: Arc::new(hears) }))
}

/// Where a socket of this node is reached.
fn local(socket: &Socket) -> Result<Port, Fault> {
    let address = socket.local_addr().map_err(Fault::system("read the local address"))?;
    Port::of(&address).ok_or_else(|| Fault::Other("the kernel gave a socket no address".to_owned()))
}

struct DatagramListener {
    socket: Socket,
    endpoint: Endpoint,
    options: Options,
    clock: Clock,
    wait: Wait,
    room: Vec<u8>,
    /// The links that were made and live, by sender, and where they receive.
    links: HashMap<Port, (Port, Weak<Hears>)>,
}

pub fn listen(
    endpoint: &Endpoint,
    options: Options,
    socket: Socket,
    opening: &Opening,
) -> Result<Box<dyn Listener>, Fault> {
    socket.bind(&range(options.name)).map_err(Fault::system("bind"))?;
    Ok(Box::new(DatagramListener {
        socket,
        endpoint: endpoint.clone(),
        options,
        clock: opening.clock.clone(),
        wait: opening.wait,
        room: vec![0; super::MAX_MESSAGE],
        links: HashMap::new(),
    }))
}

impl DatagramListener {
    /// Hands a message to the link of its sender, if there is one.
    fn forward(&mut self, length: usize, from: Port) -> bool {
        let Some((to, hears)) = self.links.get(&from) else { return false };
        if hears.strong_count() == 0 {
            self.links.remove(&from);
            return false;
        }
        // A link that is full loses it, as it would have lost it itself.
        let _ = sys::send_to(&self.socket, &self.room[..length], &to.address(), None, false);
        true
    }

    fn admit(&mut self, length: usize, from: Port) -> Result<Box<dyn Link>, Fault> {
        let socket = self.options.socket()?;
        let address = local(&socket)?;
        let destination = self.options.answers.map_or_else(|| from.address(), service);
        socket.connect(&destination).map_err(Fault::system("connect"))?;
        sys::send_to(&self.socket, &self.room[..length], &address.address(), None, true)
            .map_err(|errno| Fault::system("forward")(errno.into()))?;
        // A node gets its number with its first bearer, perhaps after this began to listen.
        let listener = local(&self.socket)?;
        let hears = Arc::new(Hears::One { peer: AtomicU64::new(word(from)), listener });
        self.links.retain(|_, (_, hears)| hears.strong_count() > 0);
        self.links.insert(from, (address, Arc::downgrade(&hears)));
        let inner = self.options.socket_link(socket, &self.clock, self.wait);
        Ok(Box::new(MeetingLink { inner, hears }))
    }
}

impl Listener for DatagramListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn accept(&mut self, within: Duration, door: &mut Door) -> Result<(Box<dyn Link>, String), Fault> {
        let until = self.clock.now() + within;
        let mut reply = Vec::new();
        loop {
            let left = until - self.clock.now();
            match sys::receive_from(&self.socket, &mut self.room, false) {
                Ok(arrival) => {
                    let (length, Some(from)) = (arrival.length, Port::of(&arrival.from)) else { continue };
                    if !self.forward(length, from) {
                        reply.clear();
                        match door(&self.room[..length], &from.to_string(), &mut reply) {
                            Admission::Open => return Ok((self.admit(length, from)?, from.to_string())),
                            Admission::Reply => {
                                // A reply that cannot be sent is a lost one.
                                let _ = sys::send_to(&self.socket, &reply, &from.address(), None, false);
                            }
                            Admission::Drop => {}
                        }
                    }
                    if left.is_zero() {
                        return Err(Fault::TimedOut);
                    }
                }
                Err(_) if left.is_zero() => return Err(Fault::TimedOut),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_for(&self.socket, Wants::ToReceive, left);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::System { operation: "receive", source: error }),
            }
        }
    }
}
