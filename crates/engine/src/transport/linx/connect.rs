//! Connects this node to another one: by our call, or by a call that the other node makes meanwhile.
//!
//! A real node without a connection looks for one every 2 to 10 s: first among the calls that it has
//! accepted, then by a call of its own. So our call stays open until the node looks at it, and we listen
//! where it would call. The first connection agreed on is used. All links of one dialer share it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::{socket, tcp};
use super::node_connection::NodeConnection;
use super::{ConnectionRole, NodeAddress, Options, ethernet, no_facts, stream};
use crate::link::{Fault, OpenContext};
use linkgauge_model::clock::Time;

/// Timeout for connecting: a real node looks at our call after at most 10 s, and needs some time for the rest.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Delay before another call to a node that accepted the connection and closed it. Real nodes do so while
/// they call us.
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of checks for a call from the node.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Queue for calls of the node.
const LISTEN_BACKLOG: i32 = 4;

/// The nodes that this process has called, each once.
static NODE_SLOTS: Mutex<Vec<(String, NodeSlot)>> = Mutex::new(Vec::new());

/// Slot of a node. It is locked during the call, and dangling once the connection has no more users.
type NodeSlot = Arc<Mutex<Weak<NodeConnection>>>;

fn node_slot(key: &str) -> NodeSlot {
    let mut called = NODE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    // Forget nodes that no link uses or is about to use.
    called.retain(|(other, node)| {
        other == key
            || Arc::strong_count(node) > 1
            || node.try_lock().map_or(true, |connection| connection.strong_count() > 0)
    });
    if let Some((_, node)) = called.iter().find(|(other, _)| other == key) {
        return node.clone();
    }
    let node = Arc::new(Mutex::new(Weak::new()));
    called.push((key.to_owned(), node.clone()));
    node
}

/// The connection to the remote node; makes one if there is none yet.
pub(crate) fn connect_node(options: &Options, context: &OpenContext) -> Result<Arc<NodeConnection>, Fault> {
    let key = match &options.node_address {
        NodeAddress::Tcp(node) => node.to_string(),
        NodeAddress::ThisHost => format!("/{}", options.name),
        NodeAddress::Ethernet(place) => format!("{place:?}"),
    };
    let node = node_slot(&key);
    let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
    let connection = match node.upgrade().filter(|connection| connection.is_usable()) {
        Some(connection) => connection,
        None => ConnectAttempt::new(options, context).run()?,
    };
    *node = Arc::downgrade(&connection);
    context.shared_resources.insert(format!("linx {key}"), connection.clone());
    Ok(connection)
}

/// The search for a connection that both nodes accept.
struct ConnectAttempt<'a> {
    options: &'a Options,
    context: &'a OpenContext,
    until: Time,
    outgoing: Option<Arc<NodeConnection>>,
    /// Time of the next call, after the node closed ours.
    next_call: Time,
    callback_listener: Option<CallbackListener>,
    incoming: Option<Arc<NodeConnection>>,
}

/// Accepts the node's own calls.
struct CallbackListener {
    socket: Socket,
    node: IpAddr,
}

impl CallbackListener {
    /// Binds the address of our call: real nodes call the port on which they listen. `None` if another
    /// program uses it.
    fn bind_beside(call: &Socket) -> Option<CallbackListener> {
        let own = call.local_addr().ok()?.as_socket()?;
        let node = call.peer_addr().ok()?.as_socket()?;
        let address = SocketAddr::new(own.ip(), node.port());
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).ok()?;
        socket.set_reuse_address(true).ok()?;
        socket.bind(&address.into()).ok()?;
        socket::listen(&socket, LISTEN_BACKLOG).ok()?;
        Some(CallbackListener { socket, node: node.ip() })
    }

    /// Accepts a call of the node; rejects calls of all others.
    fn accept(&self) -> Option<Socket> {
        let (socket, from) = socket::accept(&self.socket, Duration::ZERO).ok()?;
        from.as_socket().is_some_and(|from| from.ip() == self.node).then_some(socket)
    }
}

/// Whether the nodes agree on a connection `within` this time.
///
/// # Errors
///
/// `Closed` if the connection has ended.
fn is_up(connection: &NodeConnection, within: Duration) -> Result<bool, Fault> {
    match connection.await_directory(within, |directory| directory.node.is_up().then_some(())) {
        Ok(()) => Ok(true),
        Err(Fault::TimedOut) => Ok(false),
        Err(fault) => Err(fault),
    }
}

impl<'a> ConnectAttempt<'a> {
    pub fn new(options: &'a Options, context: &'a OpenContext) -> ConnectAttempt<'a> {
        let until = context.clock.now() + context.timeout;
        ConnectAttempt {
            options,
            context,
            until,
            outgoing: None,
            next_call: Time(0),
            callback_listener: None,
            incoming: None,
        }
    }

    fn run(mut self) -> Result<Arc<NodeConnection>, Fault> {
        loop {
            if let Some(connection) = self.try_outgoing()? {
                return Ok(connection);
            }
            if let Some(connection) = self.try_incoming() {
                return Ok(connection);
            }
            if self.time_left().is_zero() {
                return Err(self.timeout_fault());
            }
        }
    }

    fn time_left(&self) -> Duration {
        self.until.since(self.context.clock.now())
    }

    fn try_outgoing(&mut self) -> Result<Option<Arc<NodeConnection>>, Fault> {
        let clock = &self.context.clock;
        if self.outgoing.is_none() {
            clock.sleep_until(self.next_call);
            self.outgoing = Some(self.connect()?);
        }
        let Some(outgoing) = &self.outgoing else { return Ok(None) };
        let within = if self.callback_listener.is_some() {
            self.time_left().min(POLL_INTERVAL)
        } else {
            self.time_left()
        };
        match is_up(outgoing, within) {
            Ok(true) => Ok(self.outgoing.take()),
            Ok(false) => Ok(None),
            Err(Fault::Closed) if clock.now() + CONNECT_RETRY_INTERVAL < self.until => {
                (self.outgoing, self.next_call) = (None, clock.now() + CONNECT_RETRY_INTERVAL);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn try_incoming(&mut self) -> Option<Arc<NodeConnection>> {
        if self.incoming.as_ref().is_some_and(|theirs| theirs.is_over()) {
            self.incoming = None;
        }
        if self.incoming.is_none()
            && let Some(socket) = self.callback_listener.as_ref().and_then(CallbackListener::accept)
        {
            let clock = &self.context.clock;
            let connection = stream::make_carrier(socket, ConnectionRole::Passive, clock, tcp::facts)
                .and_then(|carrier| NodeConnection::start(carrier, clock, None, None));
            self.incoming = connection.ok();
        }
        match is_up(self.incoming.as_ref()?, Duration::ZERO) {
            Ok(true) => self.incoming.take(),
            _ => None,
        }
    }

    fn connect(&mut self) -> Result<Arc<NodeConnection>, Fault> {
        let context = OpenContext { timeout: self.time_left(), ..self.context.clone() };
        let clock = &context.clock;
        let stream = |socket, facts| stream::make_carrier(socket, ConnectionRole::Active, clock, facts);
        let carrier = match &self.options.node_address {
            NodeAddress::Tcp(node) => {
                let socket = tcp::connect_any(node, &context)?;
                self.callback_listener =
                    self.callback_listener.take().or_else(|| CallbackListener::bind_beside(&socket));
                stream(socket, tcp::facts)?
            }
            NodeAddress::ThisHost => stream(connect_local(self.options)?, no_facts)?,
            NodeAddress::Ethernet(node) => {
                let (socket, device) = ethernet::open_socket(node)?;
                ethernet::make_carrier(&socket, &device, node, ConnectionRole::Active, clock)?
            }
        };
        NodeConnection::start(carrier, clock, None, None)
    }

    /// The reason for the failure.
    fn timeout_fault(&self) -> Fault {
        let within = linkgauge_model::units::format_duration(self.context.timeout);
        let configure = "check that a link to this host is configured on that node";
        let looks = "A real node looks for calls every 2 to 10 s: try a longer --timeout";
        Fault::NoReply(match (&self.options.node_address, &self.callback_listener) {
            (NodeAddress::Ethernet(_), _) => {
                format!(
                    "no LINX node replied within {within}: {configure} (mkethcon, mklink), and try a longer --timeout"
                )
            }
            (_, Some(_)) => format!(
                "the node accepted the connection, but neither replied nor called back within {within}: {configure} \
                 (mktcpcon, mklink). {looks}"
            ),
            (_, None) => format!(
                "it accepted the connection but did not reply as a LINX node within {within}: {configure} \
                 (mktcpcon, mklink). {looks}"
            ),
        })
    }
}

/// A connection to this host's own node: the only endpoint of that name.
fn connect_local(options: &Options) -> Result<Socket, Fault> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(Fault::system("open a socket"))?;
    socket.connect(&options.local_address()?).map_err(Fault::system("connect"))?;
    Ok(socket)
}
