//! Waits for other nodes to connect, and for their endpoints to speak to the name that is served.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use socket2::{Domain, Socket, Type};

use super::super::socket::{self, ReadFacts, accept};
use super::super::{Caps, Fault, Link, Listener, Opening, sys, tcp};
use super::book::Service;
use super::link::NodeLink;
use super::mailbox::{Mailbox, SIGNAL, Style};
use super::pairing::{LAST_WORDS, Pairing};
use super::{Options, Side, Way, ethernet, facts_of_unix, stream, tcp_cm};
use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::plan::Wait;

/// Nodes at once: LINX has one connection for each pair of them.
const MOST_NODES: usize = 256;

/// Connections that queue; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 256;

/// Clients that have come and nobody has taken yet.
struct Arrived {
    queue: Mutex<VecDeque<(Arc<Pairing>, Arc<Mailbox>)>>,
    /// Counts them, for whoever polls.
    wake: OwnedFd,
}

impl Arrived {
    fn queue(&self) -> MutexGuard<'_, VecDeque<(Arc<Pairing>, Arc<Mailbox>)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where nodes come from.
enum Door {
    Stream {
        socket: Socket,
        read_facts: ReadFacts,
    },
    /// One node, which calls when it likes.
    Ethernet {
        socket: Socket,
        device: sys::Device,
        place: ethernet::Place,
    },
}

struct NodeListener {
    door: Door,
    endpoint: Endpoint,
    service: Service,
    arrived: Arc<Arrived>,
    nodes: Vec<Arc<Pairing>>,
    clock: Clock,
    wait: Wait,
}

pub fn listen(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::of(endpoint)?;
    let (door, endpoint) = match &options.way {
        Way::Tcp(node) => {
            let (socket, port) = tcp::listening(node, opening)?;
            (Door::Stream { socket, read_facts: tcp::facts }, with_port(endpoint, node, port)?)
        }
        Way::Local => {
            (Door::Stream { socket: local(&options)?, read_facts: facts_of_unix }, endpoint.clone())
        }
        Way::Ethernet(place) => {
            let (socket, device) = ethernet::socket(place)?;
            (Door::Ethernet { socket, device, place: place.clone() }, endpoint.clone())
        }
    };
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
        .map_err(|errno| Fault::system("make an event descriptor")(errno.into()))?;
    Ok(Box::new(NodeListener {
        door,
        endpoint,
        service: Service {
            name: options.name.clone(),
            ends: options.own_name.unwrap_or_else(|| format!("{}_", options.name)),
            begins: None,
        },
        arrived: Arc::new(Arrived { queue: Mutex::default(), wake }),
        nodes: Vec::new(),
        clock: opening.clock.clone(),
        wait: opening.wait,
    }))
}

/// The endpoint as it was typed, with the port that was given.
fn with_port(endpoint: &Endpoint, node: &Endpoint, port: u16) -> Result<Endpoint, Fault> {
    if matches!(node.host_port()?, (_, Some(asked)) if asked == port) {
        return Ok(endpoint.clone());
    }
    let text = endpoint.as_str();
    let rest = &text[text.find("://").map_or(0, |at| at + 3)..];
    let rest = &rest[rest.find('/').unwrap_or(0)..];
    Ok(format!("{}://{}{rest}", endpoint.scheme(), node.with_port(port)?.place()).parse()?)
}

fn local(options: &Options) -> Result<Socket, Fault> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(Fault::system("open a socket"))?;
    socket.bind(&options.local_address()?).map_err(Fault::system("bind"))?;
    socket::listen(&socket, BACKLOG).map_err(Fault::system("listen"))?;
    Ok(socket)
}

impl NodeListener {
    fn take_arrived(&mut self) -> Option<(Box<dyn Link>, String)> {
        let (pairing, mailbox) = self.arrived.queue().pop_front()?;
        let from = pairing.facts().get("remote").and_then(|remote| remote.as_str()).map(str::to_owned);
        let caps = Caps {
            max_message: Some(tcp_cm::LARGEST - if mailbox.style == Style::Raw { 0 } else { SIGNAL }),
            framing: super::super::Framing::Message,
            ..Caps::STREAM
        };
        let link = NodeLink::new(pairing, mailbox, caps, self.wait);
        Some((Box::new(link), from.unwrap_or_else(|| "a node of this host".to_owned())))
    }

    /// Lets in whoever calls; false if nobody does.
    fn admit(&mut self) -> Result<bool, Fault> {
        self.nodes.retain(|node| !node.is_over());
        let carrier = match &self.door {
            Door::Stream { socket, read_facts } => match accept(socket, Duration::ZERO) {
                Ok(_) if self.nodes.len() >= MOST_NODES => return Ok(true),
                Ok((socket, _)) => stream::carrier(socket, Side::Passive, &self.clock, *read_facts)?,
                Err(Fault::TimedOut) => return Ok(false),
                Err(fault) => return Err(fault),
            },
            Door::Ethernet { .. } if !self.nodes.is_empty() => return Ok(false),
            Door::Ethernet { socket, device, place } => {
                ethernet::carrier(socket, device, place, Side::Passive, &self.clock)?
            }
        };
        let arrived = self.arrived.clone();
        let arrivals = move |came| {
            arrived.queue().extend(came);
            // If the count is full the listener has been woken already.
            let _ = rustix::io::write(&arrived.wake, &1u64.to_ne_bytes());
        };
        let service = Some(self.service.clone());
        self.nodes.push(Pairing::start(carrier, &self.clock, service, Some(Box::new(arrivals)))?);
        Ok(true)
    }

    /// Waits for a node or a client.
    fn wait(&self, left: Duration) {
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let wake = PollFd::new(&self.arrived.wake, PollFlags::IN);
        // A failed poll shows itself in what follows.
        let _ = match &self.door {
            Door::Stream { socket, .. } => poll(&mut [wake, PollFd::new(socket, PollFlags::IN)], Some(&left)),
            Door::Ethernet { .. } => poll(&mut [wake], Some(&left)),
        };
        let _ = rustix::io::read(&self.arrived.wake, &mut [0u8; 8]);
    }
}

impl Listener for NodeListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn begin_with(&mut self, bytes: &'static [u8]) {
        self.service.begins = Some(bytes);
    }

    fn accept(
        &mut self,
        within: Duration,
        _door: &mut super::super::Door,
    ) -> Result<(Box<dyn Link>, String), Fault> {
        let until = self.clock.now() + within;
        loop {
            if let Some(arrived) = self.take_arrived() {
                return Ok(arrived);
            }
            let left = until.since(self.clock.now());
            if !self.admit()? {
                if left.is_zero() {
                    return Err(Fault::TimedOut);
                }
                self.wait(left);
            }
        }
    }
}

impl Drop for NodeListener {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.stop_serving();
        }
        // Each of them holds its node, which holds the queue.
        self.arrived.queue().clear();
        // Many nodes that do not answer our going take no longer than one.
        let until = self.clock.now() + LAST_WORDS;
        for node in self.nodes.drain(..).filter_map(Arc::into_inner) {
            node.leave(until);
        }
    }
}
