//! Where clients wait that have not introduced themselves. They cost little, and are limited for each source: the oldest
//! make room for new ones.
//!
//! A connection on which nothing has come yet has no thread: one thread watches them all. One whose client has begun to
//! speak runs in a thread of its own, and is ended from here if need be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::source::Source;
use crate::clock::Time;
use crate::link::{Fault, Link};

/// A link on which nothing has come, and what goes on with it once something has.
pub struct Silent {
    pub link: Box<dyn Link>,
    pub from: String,
    pub begin: Arc<dyn Begin>,
}

/// Takes a connection whose client has begun to speak.
pub trait Begin: Send + Sync {
    fn begin(&self, link: Box<dyn Link>, from: String, ticket: Option<Ticket>);
}

enum Stranger {
    Silent(Silent),
    Speaking(Arc<AtomicBool>),
}

struct Waiting {
    stranger: Stranger,
    source: Source,
    since: Time,
}

/// Numbers rise, so that the lowest is the oldest.
#[derive(Default)]
struct Room {
    next: u64,
    all: BTreeMap<u64, Waiting>,
    by_source: HashMap<Source, BTreeSet<u64>>,
}

pub struct Hall {
    epoll: OwnedFd,
    room: Mutex<Room>,
    /// Of one source, and in all.
    most_of_source: usize,
    most: usize,
    /// A silent connection is not kept longer.
    patience: Duration,
}

/// Connections that wait at once: each costs a descriptor and less than a kilobyte.
const MOST: usize = 16_384;

/// Events that are read at once.
const EVENTS: usize = 256;

impl Room {
    fn insert(&mut self, waiting: Waiting) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_source.entry(waiting.source.clone()).or_default().insert(number);
        self.all.insert(number, waiting);
        number
    }

    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.all.remove(&number)?;
        if let Some(of_source) = self.by_source.get_mut(&waiting.source) {
            of_source.remove(&number);
            if of_source.is_empty() {
                self.by_source.remove(&waiting.source);
            }
        }
        Some(waiting)
    }

    fn count(&self, source: &Source) -> usize {
        self.by_source.get(source).map_or(0, BTreeSet::len)
    }

    /// The oldest of the source that has most.
    fn oldest(&self) -> Option<u64> {
        let most = self.by_source.values().max_by_key(|of_source| of_source.len())?;
        most.first().copied()
    }

    fn oldest_of(&self, source: &Source) -> Option<u64> {
        self.by_source.get(source)?.first().copied()
    }
}

impl Hall {
    pub fn new(most_of_source: usize, patience: Duration) -> Result<Hall, Fault> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Fault::system("make an event descriptor")(errno.into()))?;
        Ok(Hall { epoll, room: Mutex::default(), most_of_source, most: MOST, patience })
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a connection until something comes. Those that have to go for it: as many as are returned.
    pub fn wait(&self, source: Source, silent: Silent, now: Time) -> Result<usize, Fault> {
        let mut room = self.room();
        let number = room.next;
        if let Some(descriptor) = silent.link.descriptor() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
            epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(number), flags)
                .map_err(|errno| Fault::system("watch a connection")(errno.into()))?;
        }
        room.insert(Waiting { stranger: Stranger::Silent(silent), source: source.clone(), since: now });
        Ok(self.make_room(room, &source))
    }

    /// A place for a client that speaks but has not introduced itself.
    fn speaking(self: &Arc<Hall>, source: &Source, now: Time) -> Ticket {
        let over = Arc::new(AtomicBool::new(false));
        let stranger = Stranger::Speaking(over.clone());
        let mut room = self.room();
        let number = room.insert(Waiting { stranger, source: source.clone(), since: now });
        self.make_room(room, source);
        Ticket { hall: self.clone(), number, over }
    }

    fn make_room(&self, mut room: MutexGuard<'_, Room>, source: &Source) -> usize {
        let mut gone = Vec::new();
        if room.count(source) > self.most_of_source {
            gone.extend(room.oldest_of(source).and_then(|number| room.remove(number)));
        }
        if room.all.len() > self.most {
            gone.extend(room.oldest().and_then(|number| room.remove(number)));
        }
        // Links are closed without the lock.
        drop(room);
        let count = gone.len();
        gone.into_iter().for_each(Waiting::end);
        count
    }

    /// Ends the oldest connection of the source that has most: descriptors or places have run out.
    pub fn end_one(&self) {
        let mut room = self.room();
        let oldest = room.oldest().and_then(|number| room.remove(number));
        drop(room);
        oldest.into_iter().for_each(Waiting::end);
    }

    /// Waits for connections on which something has come, at most `within`, and has them begun.
    pub fn attend(self: &Arc<Hall>, within: Duration, clock: impl Fn() -> Time) {
        let mut events = [MaybeUninit::uninit(); EVENTS];
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        // A failed wait is tried again.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&within)) else { return };
        for event in events.iter() {
            let waiting = self.room().remove(event.data.u64());
            let Some(Waiting { stranger: Stranger::Silent(silent), source, .. }) = waiting else { continue };
            let Silent { link, from, begin } = silent;
            if let Some(descriptor) = link.descriptor() {
                // One that is not removed reports nothing any more.
                let _ = epoll::delete(&self.epoll, descriptor);
                let ends = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                let flags = event.flags;
                if flags.intersects(ends) && has_said_nothing(descriptor) {
                    continue;
                }
            }
            let ticket = self.speaking(&source, clock());
            begin.begin(link, from, Some(ticket));
        }
        self.end_silent(clock());
    }

    fn end_silent(&self, now: Time) {
        loop {
            let mut room = self.room();
            let due = |waiting: &Waiting| now >= waiting.since + self.patience;
            let is_silent = |waiting: &Waiting| matches!(waiting.stranger, Stranger::Silent(_));
            let mut old = room.all.iter().take_while(|(_, waiting)| due(waiting));
            let Some(number) = old.find(|(_, waiting)| is_silent(waiting)).map(|(number, _)| *number) else {
                return;
            };
            let waiting = room.remove(number);
            drop(room);
            waiting.into_iter().for_each(Waiting::end);
        }
    }

    /// Closes all connections on which nothing has come.
    pub fn close(&self) {
        let room = std::mem::take(&mut *self.room());
        room.all.into_values().for_each(Waiting::end);
    }
}

/// Whether a connection that has ended holds nothing to be read. It needs no thread then.
fn has_said_nothing(descriptor: BorrowedFd) -> bool {
    matches!(
        recv(descriptor, &mut [0u8], RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Ok((0, _)) | Err(Errno::CONNRESET)
    )
}

impl Waiting {
    fn end(self) {
        match self.stranger {
            Stranger::Silent(silent) => drop(silent),
            Stranger::Speaking(over) => over.store(true, Relaxed),
        }
    }
}

/// The place of a client that speaks but has not introduced itself; given back when it is dropped.
pub struct Ticket {
    hall: Arc<Hall>,
    number: u64,
    over: Arc<AtomicBool>,
}

impl Ticket {
    /// Another needs the place.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.hall.room().remove(self.number);
    }
}
