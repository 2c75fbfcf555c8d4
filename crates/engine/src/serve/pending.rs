//! Connections of clients that have not introduced themselves, and links of senders whose address is not verified. They are cheap and limited per source; new ones replace
//! the oldest.
//!
//! A connection without input has no thread: one thread watches them all. A connection with input has its own thread,
//! and can be evicted from here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::client_id::ClientId;
use crate::link::{Fault, Link};
use linkgauge_model::clock::Time;

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
}

/// Numbers ascend, so the lowest is the oldest.
#[derive(Default)]
struct PendingTable {
    next_number: u64,
    entries: BTreeMap<u64, PendingEntry>,
    by_client: HashMap<ClientId, BTreeSet<u64>>,
}

pub(crate) struct PendingConnections {
    epoll: OwnedFd,
    table: Mutex<PendingTable>,
    /// Limits per source and in all.
    max_per_client: usize,
    max_total: usize,
    /// Maximum age of a silent connection.
    timeout: Duration,
}

/// Maximum pending connections: each costs a descriptor and less than a kilobyte.
pub(crate) const MAX_PENDING: usize = 16_384;

/// Maximum events of one wait.
const MAX_EVENTS: usize = 256;

impl PendingTable {
    fn insert(&mut self, waiting: PendingEntry) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.by_client.entry(waiting.client.clone()).or_default().insert(number);
        self.entries.insert(number, waiting);
        number
    }

    fn remove(&mut self, number: u64) -> Option<PendingEntry> {
        let waiting = self.entries.remove(&number)?;
        if let Some(of_source) = self.by_client.get_mut(&waiting.client) {
            of_source.remove(&number);
            if of_source.is_empty() {
                self.by_client.remove(&waiting.client);
            }
        }
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
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Fault::system("make an event descriptor")(errno.into()))?;
        Ok(PendingConnections {
            epoll,
            table: Mutex::default(),
            max_per_client: most[0],
            max_total: most[1],
            timeout: patience,
        })
    }

    fn table(&self) -> MutexGuard<'_, PendingTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a connection until its first input. Returns the number of connections evicted for it.
    pub fn add(&self, source: ClientId, silent: SilentConnection, now: Time) -> Result<usize, Fault> {
        let mut room = self.table();
        let number = room.next_number;
        if let Some(descriptor) = silent.link.descriptor() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
            epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(number), flags)
                .map_err(|errno| Fault::system("watch a connection")(errno.into()))?;
        }
        room.insert(PendingEntry { state: PendingState::Silent(silent), client: source.clone(), since: now });
        Ok(self.evict_excess(room, &source))
    }

    /// Reserves a slot for a client that has sent data but has not introduced itself, and evicts others for it: their
    /// parties see that at their next step.
    pub(crate) fn reserve_slot(self: &Arc<PendingConnections>, source: &ClientId, now: Time) -> PendingSlot {
        let over = Arc::new(AtomicBool::new(false));
        let stranger = PendingState::Handshaking(over.clone());
        let mut room = self.table();
        let number = room.insert(PendingEntry { state: stranger, client: source.clone(), since: now });
        let has_evicted = self.evict_excess(room, source) > 0;
        PendingSlot { pending: self.clone(), number, evicted: over, has_evicted }
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
        let mut events = [MaybeUninit::uninit(); MAX_EVENTS];
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        // The next call tries again.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&within)) else { return };
        for event in events.iter() {
            let waiting = self.table().remove(event.data.u64());
            let Some(PendingEntry { state: PendingState::Silent(silent), client: source, .. }) = waiting
            else {
                continue;
            };
            let SilentConnection { link, client_name: from, handler: begin } = silent;
            if let Some(descriptor) = link.descriptor() {
                // If removal fails, the one-shot entry still reports nothing more.
                let _ = epoll::delete(&self.epoll, descriptor);
                let ends = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                let flags = event.flags;
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
pub(crate) fn has_input(descriptor: BorrowedFd<'_>) -> bool {
    matches!(recv(descriptor, &mut [0u8], RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((1.., _)))
}

/// Whether the client has closed the connection without unread data. Such a connection needs no thread.
fn is_closed_without_data(descriptor: BorrowedFd) -> bool {
    matches!(
        recv(descriptor, &mut [0u8], RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Ok((0, _)) | Err(Errno::CONNRESET)
    )
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
    /// Others had to leave for it.
    pub(crate) has_evicted: bool,
}

impl PendingSlot {
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
