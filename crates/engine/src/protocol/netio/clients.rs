//! State of the server's clients over datagrams, shared by a client's stream and the link of its datagrams.
//!
//! Only the sender identifies a datagram's client, so a client is known by its address: one client for each address.
//! Clients up to 1.31 send from the address of their `-h` option, but connect from another. Such datagrams are counted
//! for the only client that has announced some and sent none, as in the original. No datagrams are sent to that
//! address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::sender::{BlockSender, sending_load};
use crate::link::party::{ClientTrust, Party, Step};
use crate::link::{Batch, Caps};
use crate::protocol::ServerLimits;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Recorder;

/// Interval between checks for a request (datagram link) and for its result (stream).
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// State that the stream and the datagram link of one client share.
#[derive(Default)]
pub(crate) struct DatagramClient {
    pub(crate) received_packets: AtomicU64,
    /// Whether a link to send on exists: its first datagram has arrived.
    pub(crate) is_reachable: AtomicBool,
    /// Whether the client has announced datagrams and not yet requested their count.
    pub(crate) has_announced: AtomicBool,
    /// Size of the requested datagrams; 0: none.
    requested_bytes: AtomicU32,
    /// Number of datagrams sent for the last request, once complete.
    sent_packets: AtomicU64,
    /// Whether the stream has ended.
    closed: AtomicBool,
}

impl DatagramClient {
    /// Requests datagrams of this size; 0 stops them.
    pub(crate) fn request_datagrams(&self, size: u32) {
        self.sent_packets.store(0, Relaxed);
        self.requested_bytes.store(size, Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Result of the request; `None` while it runs.
    pub(crate) fn completed_packets(&self) -> Option<u64> {
        (self.requested_bytes.load(Acquire) == 0).then(|| self.sent_packets.load(Relaxed))
    }
}

/// Clients with open streams, by address.
#[derive(Default)]
pub(crate) struct ClientRegistry(Mutex<BTreeMap<String, Arc<DatagramClient>>>);

/// Returns the address without the port.
fn sender_address(from: &str) -> String {
    from.parse::<SocketAddr>().map_or_else(|_| from.to_owned(), |from| from.ip().to_canonical().to_string())
}

impl ClientRegistry {
    /// Registers a client; replaces an earlier one of the same address.
    pub(crate) fn register(self: &Arc<ClientRegistry>, from: &str) -> RegisteredClient {
        let (address, client) = (sender_address(from), Arc::<DatagramClient>::default());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.insert(address.clone(), client.clone()) {
            before.closed.store(true, Relaxed);
        }
        RegisteredClient { client, client_address: address, registry: self.clone() }
    }

    /// Finds the client of a datagram from this sender.
    pub(crate) fn find(&self, from: &str) -> Option<ClientMatch> {
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

/// Client that a datagram belongs to.
pub(crate) enum ClientMatch {
    /// The datagram has the address of the client's stream.
    SameAddress(Arc<DatagramClient>),
    /// The datagram has another address, to which nothing is sent.
    OtherAddress(Arc<DatagramClient>),
}

/// Registration of a client, until its stream ends.
pub(crate) struct RegisteredClient {
    pub(crate) client: Arc<DatagramClient>,
    client_address: String,
    registry: Arc<ClientRegistry>,
}

impl Drop for RegisteredClient {
    fn drop(&mut self) {
        self.client.closed.store(true, Relaxed);
        let mut all = self.registry.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another client may have replaced it.
        if all.get(&self.client_address).is_some_and(|client| Arc::ptr_eq(client, &self.client)) {
            all.remove(&self.client_address);
        }
    }
}

/// Counts the datagrams of a client, and sends the requested ones.
pub(crate) struct DatagramParty {
    client: Arc<DatagramClient>,
    /// Whether the party may send the requested datagrams.
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

    /// Starts and stops requested sending.
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
            let load = sending_load(&self.limits, size);
            let sender = BlockSender::new(&load, &self.caps, Recorder::for_counting());
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

    /// Exempts the client: its stream vouches for its datagrams, and ends them.
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
