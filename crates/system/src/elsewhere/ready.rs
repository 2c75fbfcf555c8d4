//! Waiting for many links, and waking the thread that waits, with a wait for a list of handles and a pair of sockets.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::Socket;

use crate::message::Blocking;
use crate::{AsHandle, Errno, PollFlags, RawHandle, poll, receive, send, socket_pair, watch, watch_raw};

/// What to wait for, or what has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFlags(u8);

impl EventFlags {
    /// Input, or the end of it.
    pub const IN: EventFlags = EventFlags(1);
    /// Room for output.
    pub const OUT: EventFlags = EventFlags(2);
    /// An exceptional condition, which this system does not report.
    pub const PRI: EventFlags = EventFlags(4);
    /// The remote has ended its output, which is input here.
    pub const RDHUP: EventFlags = EventFlags(8);
    /// The connection has ended.
    pub const HUP: EventFlags = EventFlags(16);
    /// An error.
    pub const ERR: EventFlags = EventFlags(32);
    /// One event, until the handle is watched again.
    pub const ONESHOT: EventFlags = EventFlags(64);
    /// Events for what is new only. Here old input is reported as well.
    pub const ET: EventFlags = EventFlags(128);

    /// Both.
    pub const fn union(self, other: EventFlags) -> EventFlags {
        EventFlags(self.0 | other.0)
    }

    /// Whether any of the others is among these.
    pub const fn intersects(self, other: EventFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of the others are among these.
    pub const fn contains(self, other: EventFlags) -> bool {
        self.0 & other.0 == other.0
    }

    fn to_poll(self) -> PollFlags {
        let input = if self.intersects(EventFlags::IN) { PollFlags::IN } else { PollFlags::empty() };
        let output = if self.intersects(EventFlags::OUT) { PollFlags::OUT } else { PollFlags::empty() };
        input | output
    }

    fn of_poll(events: PollFlags) -> EventFlags {
        let pairs = [
            (PollFlags::IN, EventFlags::IN),
            (PollFlags::OUT, EventFlags::OUT),
            (PollFlags::HUP, EventFlags::HUP),
            (PollFlags::ERR, EventFlags::ERR),
        ];
        let set = pairs.into_iter().filter(|(poll, _)| events.contains(*poll));
        set.fold(EventFlags(0), |flags, (_, flag)| flags | flag)
    }
}

impl std::ops::BitOr for EventFlags {
    type Output = EventFlags;

    fn bitor(self, other: EventFlags) -> EventFlags {
        self.union(other)
    }
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    handle: RawHandle,
    number: u64,
    flags: EventFlags,
}

/// Handles that one thread waits for, each with a number. The time of a wait grows with their count.
#[derive(Debug)]
pub struct EventQueue {
    watched: Mutex<Vec<Watched>>,
    /// Ends a wait when another thread changes the list.
    changed: WakeEvent,
}

impl EventQueue {
    /// A queue that watches nothing yet.
    ///
    /// # Errors
    ///
    /// The system gives no sockets.
    pub fn new() -> io::Result<EventQueue> {
        Ok(EventQueue { watched: Mutex::default(), changed: WakeEvent::new()? })
    }

    fn list(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a handle. Its events carry `number`.
    ///
    /// # Errors
    ///
    /// None: a handle that is watched already is watched for this.
    pub fn add(&self, handle: impl AsHandle, number: u64, flags: EventFlags) -> io::Result<()> {
        let handle = RawHandle::of(handle.as_handle());
        let mut list = self.list();
        list.retain(|watched| watched.handle != handle);
        list.push(Watched { handle, number, flags });
        drop(list);
        self.changed.add(1);
        Ok(())
    }

    /// Changes what is reported of a watched handle.
    ///
    /// # Errors
    ///
    /// None.
    pub fn modify(&self, handle: impl AsHandle, number: u64, flags: EventFlags) -> io::Result<()> {
        self.add(handle, number, flags)
    }

    /// Watches the handle no more.
    pub fn remove(&self, handle: impl AsHandle) {
        let handle = RawHandle::of(handle.as_handle());
        self.list().retain(|watched| watched.handle != handle);
    }

    /// Waits for events, at most this long. They replace those of `events`.
    ///
    /// # Errors
    ///
    /// A signal interrupted the wait.
    pub fn wait<const N: usize>(&self, events: &mut Events<N>, within: Duration) -> Result<(), Errno> {
        events.list.clear();
        for (number, flags) in self.poll_all(within)? {
            if events.list.len() < N {
                events.list.push((number, flags));
            }
        }
        let mut list = self.list();
        for watched in list.iter_mut().filter(|watched| watched.flags.contains(EventFlags::ONESHOT)) {
            if events.list.iter().any(|(number, _)| *number == watched.number) {
                watched.flags = EventFlags::ONESHOT;
            }
        }
        // Those without an event stand before those with one, so that none waits for ever behind the first `N`.
        if events.list.len() == N {
            list.rotate_left(N);
        }
        Ok(())
    }

    /// Waits until there are events, at most this long. Returns whether there are any.
    ///
    /// # Errors
    ///
    /// A signal interrupted the wait.
    pub fn wait_exactly(&self, within: Duration) -> Result<bool, Errno> {
        self.poll_all(within).map(|events| !events.is_empty())
    }

    fn poll_all(&self, within: Duration) -> Result<Vec<(u64, EventFlags)>, Errno> {
        let active = |watched: &&Watched| !watched.flags.to_poll().is_empty();
        let list: Vec<Watched> = self.list().iter().filter(active).copied().collect();
        let mut polled: Vec<_> =
            list.iter().map(|watched| watch_raw(watched.handle, watched.flags.to_poll())).collect();
        polled.push(watch(&self.changed, PollFlags::IN));
        poll(&mut polled, within)?;
        if polled.pop().is_some_and(|changed| !changed.revents().is_empty()) {
            self.changed.reset();
        }
        let happened = list.iter().zip(&polled).map(|(watched, polled)| (watched, polled.revents()));
        // A handle that was closed is watched no more.
        let closed = |events: PollFlags| events.contains(PollFlags::NVAL);
        let ready = happened.filter(|(_, events)| !events.is_empty() && !closed(*events));
        let ready = ready.map(|(watched, events)| (watched.number, EventFlags::of_poll(events))).collect();
        let gone = list.iter().zip(&polled).filter(|(_, polled)| closed(polled.revents()));
        for (watched, _) in gone {
            self.list().retain(|other| other.handle != watched.handle);
        }
        Ok(ready)
    }
}

/// Up to `N` events of a queue.
#[derive(Debug, Default)]
pub struct Events<const N: usize> {
    list: Vec<(u64, EventFlags)>,
}

impl<const N: usize> Events<N> {
    /// Creates room without events.
    pub const fn new() -> Events<N> {
        Events { list: Vec::new() }
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Whether nothing was ready.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of each handle that is ready, and for what.
    pub fn iter(&self) -> impl Iterator<Item = (u64, EventFlags)> {
        self.list.iter().copied()
    }
}

/// A handle that one thread makes ready for another: one end of a pair of connected sockets.
#[derive(Debug)]
pub struct WakeEvent {
    /// The handle.
    seen: Socket,
    other: Socket,
}

impl WakeEvent {
    /// The highest count. With it the handle is not writable.
    pub const MAX_COUNT: u64 = u64::MAX - 1;

    /// An event that has not happened: the handle is writable, and not readable.
    ///
    /// # Errors
    ///
    /// The system gives no sockets.
    pub fn new() -> io::Result<WakeEvent> {
        let (seen, other) = socket_pair()?;
        for socket in [&seen, &other] {
            socket.set_nonblocking(true)?;
            socket.set_send_buffer_size(BUFFER_BYTES)?;
            socket.set_recv_buffer_size(BUFFER_BYTES)?;
        }
        Ok(WakeEvent { seen, other })
    }

    /// Makes the handle readable.
    pub fn add(&self, count: u64) {
        let _ = send(&self.other, &[0], Blocking::Never);
        if count == WakeEvent::MAX_COUNT {
            fill(&self.seen);
        }
    }

    /// Takes the event that a queue has reported.
    pub fn take_edge(&self) {
        drain(&self.seen);
    }

    /// Makes the handle writable, and not readable.
    pub fn reset(&self) {
        drain(&self.seen);
        drain(&self.other);
    }

    /// The socket that waits see.
    pub(crate) fn socket(&self) -> &Socket {
        &self.seen
    }
}

/// Bytes of the buffers of these sockets, which the system may raise.
const BUFFER_BYTES: usize = 4096;

fn drain(socket: &Socket) {
    let mut bytes = [0; BUFFER_BYTES];
    while matches!(receive(socket, &mut bytes, Blocking::Never), Ok(1..)) {}
}

fn fill(socket: &Socket) {
    while matches!(send(socket, &[0; BUFFER_BYTES], Blocking::Never), Ok(1..)) {}
}
