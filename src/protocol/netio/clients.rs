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

use super::sender::BlockSender;
use super::server::sending_case;
use crate::clock::Time;
use crate::link::party::{ClientTrust, Party, Step, Tuning};
use crate::link::{Batch, Caps};
use crate::protocol::ServerLimits;
use crate::sample::Recorder;

/// How often the datagrams' end looks for an order, and the stream's for its outcome.
pub const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What the two ends of one client share.
#[derive(Default)]
pub struct DatagramClient {
    pub received_packets: AtomicU64,
    /// There is a link to send on: its first datagram has come.
    pub is_reachable: AtomicBool,
    /// It has announced datagrams and not asked for their count.
    pub has_announced: AtomicBool,
    /// Size of the datagrams that it asked for; 0: none.
    requested_bytes: AtomicU32,
    /// Datagrams that the last order came to, once it is done.
    sent_packets: AtomicU64,
    /// The stream has ended.
    closed: AtomicBool,
}

impl DatagramClient {
    /// Datagrams of so many bytes; 0: no more.
    pub fn request_datagrams(&self, size: u32) {
        self.sent_packets.store(0, Relaxed);
        self.requested_bytes.store(size, Release);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// What the order came to; none while it is under way.
    pub fn completed_packets(&self) -> Option<u64> {
        (self.requested_bytes.load(Acquire) == 0).then(|| self.sent_packets.load(Relaxed))
    }
}

/// Those whose streams are open, by their addresses.
#[derive(Default)]
pub struct ClientRegistry(Mutex<BTreeMap<String, Arc<DatagramClient>>>);

/// The address without the port.
fn sender_address(from: &str) -> String {
    from.parse::<SocketAddr>().map_or_else(|_| from.to_owned(), |from| from.ip().to_canonical().to_string())
}

impl ClientRegistry {
    /// A place for a client; one that had it before has gone, or should have.
    pub fn register(self: &Arc<ClientRegistry>, from: &str) -> RegisteredClient {
        let (address, client) = (sender_address(from), Arc::<DatagramClient>::default());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.insert(address.clone(), client.clone()) {
            before.closed.store(true, Relaxed);
        }
        RegisteredClient { client, client_address: address, registry: self.clone() }
    }

    /// Whose a datagram of this sender is.
    pub fn find(&self, from: &str) -> Option<ClientMatch> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = all.get(&sender_address(from)) {
            return Some(ClientMatch::SameAddress(client.clone()));
        }
        let waits = |client: &&Arc<DatagramClient>| {
            client.has_announced.load(Relaxed) && !client.is_reachable.load(Relaxed) && !client.is_closed()
        };
        let mut waiting = all.values().filter(waits);
        match (waiting.next(), waiting.next()) {
            (Some(client), None) => Some(ClientMatch::OtherAddress(client.clone())),
            _ => None,
        }
    }
}

/// The client that a datagram belongs to.
pub enum ClientMatch {
    /// It came from the address of the client's stream.
    SameAddress(Arc<DatagramClient>),
    /// It came from another address, where nothing is sent.
    OtherAddress(Arc<DatagramClient>),
}

/// A client's place, until its stream ends.
pub struct RegisteredClient {
    pub client: Arc<DatagramClient>,
    client_address: String,
    registry: Arc<ClientRegistry>,
}

impl Drop for RegisteredClient {
    fn drop(&mut self) {
        self.client.closed.store(true, Relaxed);
        let mut all = self.registry.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Its place may be another one's by now.
        if all.get(&self.client_address).is_some_and(|client| Arc::ptr_eq(client, &self.client)) {
            all.remove(&self.client_address);
        }
    }
}

/// Counts the datagrams of a client, and sends it those that it asks for.
pub struct DatagramParty {
    client: Arc<DatagramClient>,
    /// It is sent what it asks for.
    may_send: bool,
    limits: ServerLimits,
    caps: Caps,
    batch: Batch,
    sender: Option<Box<BlockSender>>,
}

impl DatagramParty {
    pub fn new(found: ClientMatch, limits: ServerLimits, caps: &Caps) -> DatagramParty {
        let (client, is_own) = match found {
            ClientMatch::SameAddress(client) => (client, true),
            ClientMatch::OtherAddress(client) => (client, false),
        };
        if is_own {
            client.is_reachable.store(true, Relaxed);
        }
        let batch = Batch::new(caps.max_message_bytes.unwrap_or(crate::link::MAX_COALESCED_BYTES), 1);
        DatagramParty { client, may_send: is_own, limits, caps: caps.clone(), batch, sender: None }
    }

    /// Begins and ends what was ordered.
    fn update_sender(&mut self) {
        use crate::workload::RecordingParty;
        if !self.may_send {
            return;
        }
        let size = self.client.requested_bytes.load(Acquire);
        if let Some(sender) = self.sender.take_if(|sender| sender.is_finished()) {
            self.client.sent_packets.store(sender.recorder().counts.sent, Relaxed);
            self.client.requested_bytes.store(0, Release);
        } else if size > 0 && self.sender.is_none() {
            let case = sending_case(&self.limits, size);
            let sender = BlockSender::new(&case, &self.caps, Tuning::default(), Recorder::for_counting());
            self.sender = Some(Box::new(sender.keeping_link_open()));
        }
    }
}

impl Party for DatagramParty {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.client.is_closed() {
            return Step::Done;
        }
        self.update_sender();
        match &mut self.sender {
            Some(sender) => sender.next_step(now),
            None => Step::Receive { into: &mut self.batch, until: now + POLL_INTERVAL },
        }
    }

    /// The stream of the client vouches for its datagrams, and ends them.
    fn client_trust(&self) -> ClientTrust {
        ClientTrust::Exempt
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if let Some(sender) = &mut self.sender {
            sender.on_sent(bytes, at);
        }
    }

    #[inline]
    fn on_received(&mut self, _now: Time) {
        self.client.received_packets.fetch_add(self.batch.len() as u64, Relaxed);
    }

    fn on_timeout(&mut self, _now: Time) {}
}
