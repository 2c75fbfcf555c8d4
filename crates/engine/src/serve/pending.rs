//! Connections of clients that have not introduced themselves, and links of senders whose address is not verified. They are cheap and
//! limited per source; new ones replace the oldest. Senders that have sent for a while are established: new ones never replace them,
//! so forged senders replace only each other.
//!
//! A connection without input has no thread: one thread watches them all. A connection with input has its own thread,
//! and can be evicted from here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::client_id::{ClientId, ClientQuotas, QuotaSlot, network_of};
use crate::link::{Fault, Link};
use linkgauge_model::clock::Time;
use linkgauge_system::{BorrowedHandle, Errno, EventFlags, EventQueue, Events, peek};

/// A link without input, and its handler for the first input.
pub(crate) struct SilentConnection {
    pub(crate) link: Box<dyn Link>,
    pub(crate) client_name: String,
    pub(crate) handler: Arc<dyn ConnectionHandler>,
}

/// Takes over a connection after its first input.
pub(crate) trait ConnectionHandler: Send + Sync {
    fn start_connection(&self, link: Box<dyn Link>, from: String, ticket: Option<PendingSlot>);
}

enum PendingState {
    Silent(SilentConnection),
    Handshaking(Arc<AtomicBool>),
}

struct PendingEntry {
    state: PendingState,
    client: ClientId,
    since: Time,
    /// The part of what its network may have, once it is established.
    established: Option<QuotaSlot>,
}

/// Connections by number. Numbers ascend, so the lowest is the oldest.
#[derive(Default)]
struct PendingTable {
    next_number: u64,
    entries: BTreeMap<u64, PendingEntry>,
    /// Connections that may be replaced.
    by_client: HashMap<ClientId, BTreeSet<u64>>,
    established: usize,
}

pub(crate) struct PendingConnections {
    events: EventQueue,
    table: Mutex<PendingTable>,
    /// Limits per source and in all.
    max_per_client: usize,
    max_total: usize,
    /// Limits for established senders per network and in all.
    max_established: [usize; 2],
    established_of_networks: Arc<ClientQuotas>,
    /// Maximum age of a silent connection.
    timeout: Duration,
}

/// Maximum pending connections: each costs a descriptor and less than a kilobyte.
pub(crate) const MAX_PENDING: usize = 16_384;

/// Maximum events of one wait.
const MAX_EVENTS: usize = 256;

impl PendingTable {
    /// Removes a connection from those that can be replaced.
    fn forget(&mut self, client: &ClientId, number: u64) {
        if let Some(of_source) = self.by_client.get_mut(client) {
            of_source.remove(&number);
            if of_source.is_empty() {
                self.by_client.remove(client);
            }
        }
    }

    fn insert(&mut self, waiting: PendingEntry) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.by_client.entry(waiting.client.clone()).or_default().insert(number);
        self.entries.insert(number, waiting);
        number
    }

    fn remove(&mut self, number: u64) -> Option<PendingEntry> {
        let waiting = self.entries.remove(&number)?;
        self.forget(&waiting.client, number);
        self.established -= usize::from(waiting.established.is_some());
        Some(waiting)
    }

    fn count(&self, source: &ClientId) -> usize {
        self.by_client.get(source).map_or(0, BTreeSet::len)
    }

    /// The oldest connection of the source with the most; of several such sources, the oldest of all.
    fn oldest(&self) -> Option<u64> {
        let most =
            self.by_client.values().max_by_key(|of_source| (of_source.len(), Reverse(of_source.first())))?;
        most.first().copied()
    }

    fn oldest_of(&self, source: &ClientId) -> Option<u64> {
        self.by_client.get(source)?.first().copied()
    }
}

impl PendingConnections {
    /// `most` are the limits of one source and of all together.
    pub fn new(most: [usize; 2], patience: Duration) -> Result<PendingConnections, Fault> {
        let events = EventQueue::new().map_err(Fault::system("make an event descriptor"))?;
        Ok(PendingConnections {
            events,
            table: Mutex::default(),
            max_per_client: most[0],
            max_total: most[1],
            max_established: [0; 2],
            established_of_networks: Arc::default(),
            timeout: patience,
        })
    }

    /// Limits how many senders can be established: of one network, and in all.
    pub(crate) fn with_established(self, most: [usize; 2]) -> PendingConnections {
        PendingConnections { max_established: most, ..self }
    }

    /// Makes a sender established if there is room: none is replaced for it, and it is replaced for none.
    fn establish(&self, number: u64) -> bool {
        let mut guard = self.table();
        let table = &mut *guard;
        let [most_of_network, most] = self.max_established;
        let Some(entry) = table.entries.get_mut(&number).filter(|_| table.established < most) else {
            return false;
        };
        let slot = self.established_of_networks.try_take(&network_of(&entry.client), most_of_network);
        let Some(slot) = slot else { return false };
        entry.established = Some(slot);
        table.established += 1;
        let client = entry.client.clone();
        table.forget(&client, number);
        true
    }

    fn table(&self) -> MutexGuard<'_, PendingTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a connection until its first input. Returns the number of connections evicted for it.
    pub fn add(&self, source: ClientId, silent: SilentConnection, now: Time) -> Result<usize, Fault> {
        let mut room = self.table();
        let number = room.next_number;
        if let Some(descriptor) = silent.link.descriptor() {
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
            self.events.add(descriptor, number, flags).map_err(Fault::system("watch a connection"))?;
        }
        room.insert(PendingEntry {
            state: PendingState::Silent(silent),
            client: source.clone(),
            since: now,
            established: None,
        });
        Ok(self.evict_excess(room, &source))
    }

    /// Reserves a slot for a client that has sent data but has not introduced itself, and evicts others for it: their
    /// parties see that at their next step.
    pub(crate) fn reserve_slot(self: &Arc<PendingConnections>, source: &ClientId, now: Time) -> PendingSlot {
        let over = Arc::new(AtomicBool::new(false));
        let stranger = PendingState::Handshaking(over.clone());
        let mut room = self.table();
        let number = room.insert(PendingEntry {
            state: stranger,
            client: source.clone(),
            since: now,
            established: None,
        });
        let has_evicted = self.evict_excess(room, source) > 0;
        let candidate = (self.max_established[1] > 0).then_some(UnprovenSender { since: now, messages: 0 });
        PendingSlot { pending: self.clone(), number, evicted: over, has_evicted, candidate }
    }

    fn evict_excess(&self, mut room: MutexGuard<'_, PendingTable>, source: &ClientId) -> usize {
        let mut gone = Vec::new();
        if room.count(source) > self.max_per_client {
            gone.extend(room.oldest_of(source).and_then(|number| room.remove(number)));
        }
        if room.entries.len() > self.max_total {
            gone.extend(room.oldest().and_then(|number| room.remove(number)));
        }
        // Close links without holding the lock.
        drop(room);
        let count = gone.len();
        gone.into_iter().for_each(PendingEntry::close);
        count
    }

    /// Evicts the oldest connection of the source with the most, when descriptors or slots have run out.
    pub(crate) fn evict_oldest(&self) {
        let mut room = self.table();
        let oldest = room.oldest().and_then(|number| room.remove(number));
        drop(room);
        oldest.into_iter().for_each(PendingEntry::close);
    }

    /// Waits up to `within` for connections with input and starts them.
    pub(crate) fn dispatch_ready(self: &Arc<PendingConnections>, within: Duration, clock: impl Fn() -> Time) {
        let mut events = Events::<MAX_EVENTS>::new();
        // After an interrupted wait the next call tries again.
        if self.events.wait(&mut events, within).is_err() {
            return;
        }
        for (number, flags) in events.iter() {
            let waiting = self.table().remove(number);
            let Some(PendingEntry { state: PendingState::Silent(silent), client: source, .. }) = waiting
            else {
                continue;
            };
            let SilentConnection { link, client_name: from, handler: begin } = silent;
            if let Some(descriptor) = link.descriptor() {
                // If removal fails, the one-shot entry still reports nothing more.
                self.events.remove(descriptor);
                let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                if flags.intersects(ends) && is_closed_without_data(descriptor) {
                    continue;
                }
            }
            let ticket = self.reserve_slot(&source, clock());
            begin.start_connection(link, from, Some(ticket));
        }
        self.evict_expired(clock());
    }

    fn evict_expired(&self, now: Time) {
        loop {
            let mut room = self.table();
            let due = |waiting: &PendingEntry| now >= waiting.since + self.timeout;
            let is_silent = |waiting: &PendingEntry| matches!(waiting.state, PendingState::Silent(_));
            let mut old = room.entries.iter().take_while(|(_, waiting)| due(waiting));
            let Some(number) = old.find(|(_, waiting)| is_silent(waiting)).map(|(number, _)| *number) else {
                return;
            };
            let waiting = room.remove(number);
            drop(room);
            waiting.into_iter().for_each(PendingEntry::close);
        }
    }

    /// Closes all connections without input.
    pub(crate) fn close_all(&self) {
        let room = std::mem::take(&mut *self.table());
        room.entries.into_values().for_each(PendingEntry::close);
    }
}

/// Whether the client has sent something already.
pub(crate) fn has_input(descriptor: BorrowedHandle<'_>) -> bool {
    matches!(peek(descriptor, &mut [0]), Ok(1..))
}

/// Whether the client has closed the connection without unread data. Such a connection needs no thread.
fn is_closed_without_data(descriptor: BorrowedHandle) -> bool {
    matches!(peek(descriptor, &mut [0]), Ok(0) | Err(Errno::CONNRESET))
}

impl PendingEntry {
    fn close(self) {
        match self.state {
            PendingState::Silent(silent) => drop(silent),
            PendingState::Handshaking(over) => over.store(true, Relaxed),
        }
    }
}

/// The slot of a client that has sent data but has not introduced itself; released on drop.
pub(crate) struct PendingSlot {
    pending: Arc<PendingConnections>,
    number: u64,
    evicted: Arc<AtomicBool>,
    /// Whether other connections had to leave for it.
    pub(crate) has_evicted: bool,
    /// The sender until it is established, where that is possible.
    candidate: Option<UnprovenSender>,
}

/// A sender that can become established.
struct UnprovenSender {
    /// The first message, or the last attempt.
    since: Time,
    messages: u32,
}

/// Minimum time for which a sender must have sent before it is established, and its minimum number of messages in that time.
const MIN_ESTABLISHED_TIME: Duration = Duration::from_secs(2);
const MIN_ESTABLISHED_MESSAGES: u32 = 3;

impl PendingSlot {
    /// A message of the sender has arrived.
    pub(crate) fn count_message(&mut self, now: Time) {
        let Some(candidate) = &mut self.candidate else { return };
        candidate.messages = candidate.messages.saturating_add(1);
        if candidate.messages < MIN_ESTABLISHED_MESSAGES || now < candidate.since + MIN_ESTABLISHED_TIME {
            return;
        }
        candidate.since = now;
        if self.pending.establish(self.number) {
            self.candidate = None;
        }
    }

    /// Whether a newer connection needs the slot.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Relaxed)
    }
}

impl Drop for PendingSlot {
    fn drop(&mut self) {
        self.pending.table().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn source(network: u32, host: u32) -> ClientId {
        let address = std::net::Ipv4Addr::from(0xC600_0000 | network << 8 | host);
        ClientId::from_sender(&format!("{address}:40000"))
    }

    /// A slot of a sender that goes on for two seconds.
    fn lasting(table: &Arc<PendingConnections>, source: &ClientId) -> PendingSlot {
        let mut slot = table.reserve_slot(source, seconds(1));
        (1..=3).for_each(|second| slot.count_message(seconds(second)));
        slot
    }

    #[test]
    fn forged_senders_replace_each_other_and_no_established_one() {
        let table = PendingConnections::new([64, 256], Duration::from_secs(60)).unwrap();
        let table = Arc::new(table.with_established([32, 128]));
        let old = lasting(&table, &source(0, 1));
        let brief = table.reserve_slot(&source(0, 2), seconds(3));
        let flood: Vec<_> =
            (1..100_000).map(|number| table.reserve_slot(&source(number, 1), seconds(4))).collect();
        assert!(!old.is_evicted() && brief.is_evicted());
        assert_eq!(flood.iter().filter(|slot| !slot.is_evicted()).count(), 255);
        drop(flood);
        drop((old, brief));
        let left = table.table();
        assert!(left.entries.is_empty() && left.by_client.is_empty() && left.established == 0);
    }

    #[test]
    fn established_senders_are_limited_by_network_and_in_all() {
        let table = PendingConnections::new([64, 256], Duration::from_secs(60)).unwrap();
        let table = Arc::new(table.with_established([32, 128]));
        let established =
            |slots: &[PendingSlot]| slots.iter().filter(|slot| slot.candidate.is_none()).count();
        let of_one: Vec<_> = (0..64).map(|host| lasting(&table, &source(7, host))).collect();
        assert_eq!(established(&of_one), 32);
        let of_many: Vec<_> = (100..260).map(|network| lasting(&table, &source(network, 1))).collect();
        assert_eq!(established(&of_many), 96);
        // Connections that end make room.
        drop(of_one);
        assert!(lasting(&table, &source(7, 1)).candidate.is_none());
    }
}
