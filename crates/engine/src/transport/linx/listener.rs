//! Waits for other nodes to connect, and for messages of their endpoints to the served name.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::socket::{self, ReadFacts, accept};
use super::super::tcp;
use super::directory::ServedName;
use super::link::NodeLink;
use super::mailbox::{Mailbox, SIGNAL_NUMBER_BYTES, SignalFormat};
use super::node_connection::{CLOSE_TIMEOUT, NodeConnection};
use super::{ConnectionRole, NodeAddress, Options, ethernet, no_facts, stream, tcp_cm};
use crate::link::{Caps, Fault, Link, LinkDescriptor, Listener, OpenContext};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{self as system, PollFlags, WakeEvent, poll, watch};

/// Maximum number of connected nodes: LINX has one connection for each pair of them.
const MAX_NODES: usize = 256;

/// Accept queue; the kernel caps it at `net.core.somaxconn`.
const LISTEN_BACKLOG: i32 = 256;

/// A link and its sender.
type IncomingLink = (Box<dyn Link>, String);

/// New clients that have not been accepted yet.
struct ArrivalQueue {
    queue: Mutex<VecDeque<(Arc<NodeConnection>, Arc<Mailbox>)>>,
    /// Counts the clients, for threads that poll.
    wake: WakeEvent,
}

impl ArrivalQueue {
    fn queue(&self) -> MutexGuard<'_, VecDeque<(Arc<NodeConnection>, Arc<Mailbox>)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Source of incoming node connections.
enum NodeAcceptor {
    Stream {
        socket: Socket,
        read_facts: ReadFacts,
    },
    /// Acceptor of one node, which may call at any time.
    Ethernet {
        socket: Socket,
        device: system::NetworkDevice,
        node: ethernet::EthernetNode,
    },
}

struct NodeListener {
    acceptor: NodeAcceptor,
    endpoint: Endpoint,
    served_name: ServedName,
    arrivals: Arc<ArrivalQueue>,
    nodes: Vec<Arc<NodeConnection>>,
    clock: Clock,
    wait: WaitMode,
}

pub(crate) fn listen(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Listener>, Fault> {
    let options = Options::from_endpoint(endpoint)?;
    let (acceptor, endpoint) = match &options.node_address {
        NodeAddress::Tcp(node) => {
            let (socket, port) = tcp::bind_listener(node, context)?;
            (NodeAcceptor::Stream { socket, read_facts: tcp::facts }, with_port(endpoint, node, port)?)
        }
        NodeAddress::ThisHost => {
            (NodeAcceptor::Stream { socket: bind_local(&options)?, read_facts: no_facts }, endpoint.clone())
        }
        NodeAddress::Ethernet(node) => {
            let (socket, device) = ethernet::open_socket(node)?;
            (NodeAcceptor::Ethernet { socket, device, node: node.clone() }, endpoint.clone())
        }
    };
    let wake = WakeEvent::new().map_err(Fault::system("make an event descriptor"))?;
    Ok(Box::new(NodeListener {
        acceptor,
        endpoint,
        served_name: ServedName {
            name: options.name.clone(),
            name_prefix: options.own_name.unwrap_or_else(|| format!("{}_", options.name)),
            opening_prefix: None,
        },
        arrivals: Arc::new(ArrivalQueue { queue: Mutex::default(), wake }),
        nodes: Vec::new(),
        clock: context.clock.clone(),
        wait: context.wait,
    }))
}

/// The requested endpoint with the effective port.
fn with_port(endpoint: &Endpoint, node: &Endpoint, port: u16) -> Result<Endpoint, Fault> {
    if matches!(node.host_port()?, (_, Some(requested)) if requested == port) {
        return Ok(endpoint.clone());
    }
    let text = endpoint.as_str();
    let rest = &text[text.find("://").map_or(0, |at| at + 3)..];
    let rest = &rest[rest.find('/').unwrap_or(0)..];
    Ok(format!("{}://{}{rest}", endpoint.scheme(), node.with_port(port)?.address()).parse()?)
}

fn bind_local(options: &Options) -> Result<Socket, Fault> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(Fault::system("open a socket"))?;
    socket.bind(&options.local_address()?).map_err(Fault::system("bind"))?;
    socket::listen(&socket, LISTEN_BACKLOG).map_err(Fault::system("listen"))?;
    Ok(socket)
}

impl NodeListener {
    fn take_arrival(&mut self) -> Result<Option<IncomingLink>, Fault> {
        let Some((connection, mailbox)) = self.arrivals.queue().pop_front() else { return Ok(None) };
        let from = connection.facts().get("remote").and_then(|remote| remote.as_str()).map(str::to_owned);
        let is_raw = mailbox.signal_format == SignalFormat::Raw;
        let caps = Caps {
            max_message_bytes: Some(tcp_cm::MAX_MESSAGE_BYTES - if is_raw { 0 } else { SIGNAL_NUMBER_BYTES }),
            // Raw signals have no number for the end of sending.
            can_half_close: !is_raw,
            framing: crate::link::Framing::Message,
            descriptor: LinkDescriptor::Events,
            has_kernel_stamps: matches!(self.acceptor, NodeAcceptor::Ethernet { .. }),
            ..Caps::STREAM
        };
        let link = NodeLink::new(connection, mailbox, caps, self.wait)?;
        Ok(Some((Box::new(link), from.unwrap_or_else(|| "a node of this host".to_owned()))))
    }

    /// Accepts a waiting call; `false` if there is none.
    fn accept_node(&mut self) -> Result<bool, Fault> {
        self.nodes.retain(|node| !node.is_over());
        let carrier = match &self.acceptor {
            NodeAcceptor::Stream { socket, read_facts } => match accept(socket, Duration::ZERO) {
                Ok(_) if self.nodes.len() >= MAX_NODES => return Ok(true),
                Ok((socket, _)) => {
                    stream::make_carrier(socket, ConnectionRole::Passive, &self.clock, *read_facts)?
                }
                Err(Fault::TimedOut) => return Ok(false),
                Err(fault) => return Err(fault),
            },
            NodeAcceptor::Ethernet { .. } if !self.nodes.is_empty() => return Ok(false),
            NodeAcceptor::Ethernet { socket, device, node: place } => {
                ethernet::make_carrier(socket, device, place, ConnectionRole::Passive, &self.clock)?
            }
        };
        let arrived = self.arrivals.clone();
        let arrivals = move |arrival| {
            arrived.queue().extend(arrival);
            arrived.wake.add(1);
        };
        let service = Some(self.served_name.clone());
        self.nodes.push(NodeConnection::start(carrier, &self.clock, service, Some(Box::new(arrivals)))?);
        Ok(true)
    }

    /// Waits for a node or a client.
    fn wait_for_arrival(&self, left: Duration) {
        let wake = watch(&self.arrivals.wake, PollFlags::IN);
        // The next operation reports a failed poll.
        let _ = match &self.acceptor {
            NodeAcceptor::Stream { socket, .. } => poll(&mut [wake, watch(socket, PollFlags::IN)], left),
            NodeAcceptor::Ethernet { .. } => poll(&mut [wake], left),
        };
        self.arrivals.wake.reset();
    }
}

impl Listener for NodeListener {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn set_opening_prefix(&mut self, bytes: &'static [u8]) {
        self.served_name.opening_prefix = Some(bytes);
    }

    fn accept(
        &mut self,
        within: Duration,
        _filter: &mut crate::link::AcceptFilter,
    ) -> Result<(Box<dyn Link>, String), Fault> {
        let until = self.clock.now() + within;
        loop {
            if let Some(arrived) = self.take_arrival()? {
                return Ok(arrived);
            }
            let left = until.since(self.clock.now());
            if !self.accept_node()? {
                if left.is_zero() {
                    return Err(Fault::TimedOut);
                }
                self.wait_for_arrival(left);
            }
        }
    }
}

impl Drop for NodeListener {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.stop_serving();
        }
        // Each client holds its node, and the node holds the queue.
        self.arrivals.queue().clear();
        // Closing many silent nodes takes no longer than closing one.
        let until = self.clock.now() + CLOSE_TIMEOUT;
        for node in self.nodes.drain(..).filter_map(Arc::into_inner) {
            node.close_until(until);
        }
    }
}
