//! The server's side of datagrams: what the stream of a client and the link of its datagrams know of each other.
//!
//! Nothing in a datagram says whose it is but its sender, so a client is known by its address: one at a time from each.
//! Clients up to 1.31 send from the address of their `-h`, and connect from another: such datagrams are counted for the one
//! client that has announced some and sent none, as the original would. None are sent to that address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::far::sending_case;
use super::sender::Sender;
use crate::clock::Time;
use crate::link::party::{Party, Standing, Step, Tuning};
use crate::link::{Batch, Caps};
use crate::peer::Limits;
use crate::sample::Recorder;

/// How often the datagrams' end looks for an order, and the stream's for its outcome.
pub const LOOK: Duration = Duration::from_millis(5);

/// What the two ends of one client share.
#[derive(Default)]
pub struct Client {
    pub packets: AtomicU64,
    /// There is a link to send on: its first datagram has come.
    pub reachable: AtomicBool,
    /// It has announced datagrams and not asked for their count.
    pub announces: AtomicBool,
    /// Size of the datagrams that it asked for; 0: none.
    order: AtomicU32,
    /// Datagrams that the last order came to, once it is done.
    sent: AtomicU64,
    /// The stream has ended.
    over: AtomicBool,
}

impl Client {
    /// Datagrams of so many bytes; 0: no more.
    pub fn order(&self, size: u32) {
        self.sent.store(0, Relaxed);
        self.order.store(size, Release);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// What the order came to; none while it is under way.
    pub fn outcome(&self) -> Option<u64> {
        (self.order.load(Acquire) == 0).then(|| self.sent.load(Relaxed))
    }
}

/// Those whose streams are open, by their addresses.
#[derive(Default)]
pub struct Clients(Mutex<BTreeMap<String, Arc<Client>>>);

/// The address without the port.
fn address(from: &str) -> String {
    from.parse::<SocketAddr>().map_or_else(|_| from.to_owned(), |from| from.ip().to_canonical().to_string())
}

impl Clients {
    /// A place for a client; one that had it before has gone, or should have.
    pub fn enter(self: &Arc<Clients>, from: &str) -> Entered {
        let (address, client) = (address(from), Arc::<Client>::default());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.insert(address.clone(), client.clone()) {
            before.over.store(true, Relaxed);
        }
        Entered { client, address, clients: self.clone() }
    }

    /// Whose a datagram of this sender is.
    pub fn find(&self, from: &str) -> Option<Found> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = all.get(&address(from)) {
            return Some(Found::Own(client.clone()));
        }
        let waits = |client: &&Arc<Client>| {
            client.announces.load(Relaxed) && !client.reachable.load(Relaxed) && !client.is_over()
        };
        let mut waiting = all.values().filter(waits);
        match (waiting.next(), waiting.next()) {
            (Some(client), None) => Some(Found::Astray(client.clone())),
            _ => None,
        }
    }
}

/// The client that a datagram belongs to.
pub enum Found {
    /// It came from the address of the client's stream.
    Own(Arc<Client>),
    /// It came from another address, where nothing is sent.
    Astray(Arc<Client>),
}

/// A client's place, until its stream ends.
pub struct Entered {
    pub client: Arc<Client>,
    address: String,
    clients: Arc<Clients>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.client.over.store(true, Relaxed);
        let mut all = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Its place may be another one's by now.
        if all.get(&self.address).is_some_and(|client| Arc::ptr_eq(client, &self.client)) {
            all.remove(&self.address);
        }
    }
}

/// Counts the datagrams of a client, and sends it those that it asks for.
pub struct Datagrams {
    client: Arc<Client>,
    /// It is sent what it asks for.
    is_own: bool,
    limits: Limits,
    caps: Caps,
    batch: Batch,
    sender: Option<Box<Sender>>,
}

impl Datagrams {
    pub fn new(found: Found, limits: Limits, caps: &Caps) -> Datagrams {
        let (client, is_own) = match found {
            Found::Own(client) => (client, true),
            Found::Astray(client) => (client, false),
        };
        if is_own {
            client.reachable.store(true, Relaxed);
        }
        let batch = Batch::new(caps.max_message.unwrap_or(crate::link::COALESCED), 1);
        Datagrams { client, is_own, limits, caps: caps.clone(), batch, sender: None }
    }

    /// Begins and ends what was ordered.
    fn attend(&mut self) {
        use crate::workload::Measured;
        if !self.is_own {
            return;
        }
        let size = self.client.order.load(Acquire);
        if let Some(sender) = self.sender.take_if(|sender| sender.is_over()) {
            self.client.sent.store(sender.recorder().counts.sent, Relaxed);
            self.client.order.store(0, Release);
        } else if size > 0 && self.sender.is_none() {
            let case = sending_case(&self.limits, size);
            let sender = Sender::new(&case, &self.caps, Tuning::default(), Recorder::counting());
            self.sender = Some(Box::new(sender.handed_on()));
        }
    }
}

impl Party for Datagrams {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.client.is_over() {
            return Step::Done;
        }
        self.attend();
        match &mut self.sender {
            Some(sender) => sender.next(now),
            None => Step::Receive { into: &mut self.batch, until: now + LOOK },
        }
    }

    /// The stream of the client vouches for its datagrams, and ends them.
    fn standing(&self) -> Standing {
        Standing::Vouched
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if let Some(sender) = &mut self.sender {
            sender.sent(bytes, at);
        }
    }

    #[inline]
    fn received(&mut self, _now: Time) {
        self.client.packets.fetch_add(self.batch.len() as u64, Relaxed);
    }

    fn timed_out(&mut self, _now: Time) {}
}
