//! Joins this node to another one: our call, and the call that the other node may make meanwhile.
//!
//! A real node without a connection looks for one every 2 to 10 s: first among the calls that it has accepted, then by a
//! call of its own. So our call stays open until the node looks at it, we listen where it would call, and the
//! connection that is agreed on first is used. Links of one dialer share it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::{Fault, Opening, socket, tcp};
use super::pairing::Pairing;
use super::{Options, Side, Way, ethernet, facts_of_unix, stream};
use crate::clock::Time;

/// A real node looks at our call 10 s later at the latest, and takes a moment for the rest.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How soon a node is called again that took the connection and closed it: real ones do while they call us.
const CALL_AGAIN: Duration = Duration::from_millis(200);

/// How often we look whether the node has called.
const LOOK: Duration = Duration::from_millis(50);

/// Calls of the node that wait for our answer.
const BACKLOG: i32 = 4;

/// The nodes that this process has called, each once.
static CALLED: Mutex<Vec<(String, Called)>> = Mutex::new(Vec::new());

/// Locked while it is called; leads nowhere once nobody uses it.
type Called = Arc<Mutex<Weak<Pairing>>>;

fn called(key: &str) -> Called {
    let mut called = CALLED.lock().unwrap_or_else(PoisonError::into_inner);
    // Those that nobody uses or is about to use are forgotten.
    called.retain(|(other, node)| {
        other == key
            || Arc::strong_count(node) > 1
            || node.try_lock().map_or(true, |pairing| pairing.strong_count() > 0)
    });
    if let Some((_, node)) = called.iter().find(|(other, _)| other == key) {
        return node.clone();
    }
    let node = Arc::new(Mutex::new(Weak::new()));
    called.push((key.to_owned(), node.clone()));
    node
}

/// The connection to the far node, made if there is none yet.
pub fn call(options: &Options, opening: &Opening) -> Result<Arc<Pairing>, Fault> {
    let key = match &options.way {
        Way::Tcp(node) => node.to_string(),
        Way::Local => format!("/{}", options.name),
        Way::Ethernet(place) => format!("{place:?}"),
    };
    let node = called(&key);
    let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
    let pairing = match node.upgrade().filter(|pairing| pairing.is_usable()) {
        Some(pairing) => pairing,
        None => Hunt::new(options, opening).join()?,
    };
    *node = Arc::downgrade(&pairing);
    opening.shared.keep(format!("linx {key}"), pairing.clone());
    Ok(pairing)
}

/// The search for a connection that both nodes agree on.
struct Hunt<'a> {
    options: &'a Options,
    opening: &'a Opening,
    until: Time,
    ours: Option<Arc<Pairing>>,
    /// When the node is called again that closed our call.
    call: Time,
    door: Option<Door>,
    theirs: Option<Arc<Pairing>>,
}

/// Where the node's own calls come in.
struct Door {
    socket: Socket,
    node: IpAddr,
}

impl Door {
    /// Beside our call: real nodes call the port on which they listen. `None` where another program has it.
    fn beside(call: &Socket) -> Option<Door> {
        let own = call.local_addr().ok()?.as_socket()?;
        let node = call.peer_addr().ok()?.as_socket()?;
        let place = SocketAddr::new(own.ip(), node.port());
        let socket = Socket::new(Domain::for_address(place), Type::STREAM, None).ok()?;
        socket.set_reuse_address(true).ok()?;
        socket.bind(&place.into()).ok()?;
        socket::listen(&socket, BACKLOG).ok()?;
        Some(Door { socket, node: node.ip() })
    }

    /// A call of the node, and of nobody else.
    fn accept(&self) -> Option<Socket> {
        let (socket, from) = socket::accept(&self.socket, Duration::ZERO).ok()?;
        from.as_socket().is_some_and(|from| from.ip() == self.node).then_some(socket)
    }
}

/// Whether the nodes have agreed on a connection in that time; `Closed` where it is over.
fn is_up(pairing: &Pairing, within: Duration) -> Result<bool, Fault> {
    match pairing.await_book(within, |book| book.node.is_up().then_some(())) {
        Ok(()) => Ok(true),
        Err(Fault::TimedOut) => Ok(false),
        Err(fault) => Err(fault),
    }
}

impl<'a> Hunt<'a> {
    fn new(options: &'a Options, opening: &'a Opening) -> Hunt<'a> {
        let until = opening.clock.now() + opening.within;
        Hunt { options, opening, until, ours: None, call: Time(0), door: None, theirs: None }
    }

    fn join(mut self) -> Result<Arc<Pairing>, Fault> {
        loop {
            if let Some(pairing) = self.by_our_call()? {
                return Ok(pairing);
            }
            if let Some(pairing) = self.by_their_call() {
                return Ok(pairing);
            }
            if self.left().is_zero() {
                return Err(self.in_vain());
            }
        }
    }

    fn left(&self) -> Duration {
        self.until.since(self.opening.clock.now())
    }

    fn by_our_call(&mut self) -> Result<Option<Arc<Pairing>>, Fault> {
        let clock = &self.opening.clock;
        if self.ours.is_none() {
            clock.sleep_until(self.call);
            self.ours = Some(self.connect()?);
        }
        let Some(ours) = &self.ours else { return Ok(None) };
        let within = if self.door.is_some() { self.left().min(LOOK) } else { self.left() };
        match is_up(ours, within) {
            Ok(true) => Ok(self.ours.take()),
            Ok(false) => Ok(None),
            Err(Fault::Closed) if clock.now() + CALL_AGAIN < self.until => {
                (self.ours, self.call) = (None, clock.now() + CALL_AGAIN);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn by_their_call(&mut self) -> Option<Arc<Pairing>> {
        if self.theirs.as_ref().is_some_and(|theirs| theirs.is_over()) {
            self.theirs = None;
        }
        if self.theirs.is_none()
            && let Some(socket) = self.door.as_ref().and_then(Door::accept)
        {
            let clock = &self.opening.clock;
            let pairing = stream::carrier(socket, Side::Passive, clock, tcp::facts)
                .and_then(|carrier| Pairing::start(carrier, clock, None, None));
            self.theirs = pairing.ok();
        }
        match is_up(self.theirs.as_ref()?, Duration::ZERO) {
            Ok(true) => self.theirs.take(),
            _ => None,
        }
    }

    fn connect(&mut self) -> Result<Arc<Pairing>, Fault> {
        let opening = Opening { within: self.left(), ..self.opening.clone() };
        let clock = &opening.clock;
        let stream = |socket, facts| stream::carrier(socket, Side::Active, clock, facts);
        let carrier = match &self.options.way {
            Way::Tcp(node) => {
                let socket = tcp::connection(node, &opening)?;
                self.door = self.door.take().or_else(|| Door::beside(&socket));
                stream(socket, tcp::facts)?
            }
            Way::Local => stream(local(self.options)?, facts_of_unix)?,
            Way::Ethernet(place) => {
                let (socket, device) = ethernet::socket(place)?;
                ethernet::carrier(&socket, &device, place, Side::Active, clock)?
            }
        };
        Pairing::start(carrier, clock, None, None)
    }

    /// Why nothing came of it.
    fn in_vain(&self) -> Fault {
        let within = crate::units::print_duration(self.opening.within);
        let configured = "is a link to this host configured on that node";
        let looks = "A real node looks for calls every 2 to 10 s: try a longer --timeout";
        Fault::Other(match (&self.options.way, &self.door) {
            (Way::Ethernet(_), _) => {
                format!(
                    "no LINX node answered in {within}: {configured} (mkethcon, mklink)? Try a longer --timeout"
                )
            }
            (_, Some(_)) => format!(
                "the node took the connection, but neither answered nor called back in {within}: {configured} (mktcpcon, \
                 mklink)? {looks}"
            ),
            (_, None) => format!(
                "it took the connection but did not answer as a LINX node in {within}: {configured} \
                 (mktcpcon, mklink)? {looks}"
            ),
        })
    }
}

/// A connection to this host's own node: the one endpoint of that name.
fn local(options: &Options) -> Result<Socket, Fault> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(Fault::system("open a socket"))?;
    socket.connect(&options.local_address()?).map_err(Fault::system("connect"))?;
    Ok(socket)
}
