//! Waiting for thousands of links at a time, and waking the thread that waits.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::AsHandle;
use crate::unix::ready::{PollFlags, poll, timespec, watch};

pub use rustix::event::epoll::EventFlags;

/// Descriptors that one thread waits for, each with a number.
#[derive(Debug)]
pub struct EventQueue(OwnedFd);

impl EventQueue {
    /// A queue that watches nothing yet.
    ///
    /// # Errors
    ///
    /// The system gives no descriptor.
    pub fn new() -> io::Result<EventQueue> {
        Ok(EventQueue(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a descriptor. Its events carry `number`.
    ///
    /// # Errors
    ///
    /// The system refuses, as for a descriptor that is watched already.
    pub fn add(&self, descriptor: impl AsHandle, number: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.0, descriptor.as_handle(), epoll::EventData::new_u64(number), flags)?)
    }

    /// Changes what is reported of a watched descriptor.
    ///
    /// # Errors
    ///
    /// The system refuses, as for a descriptor that is not watched.
    pub fn modify(&self, descriptor: impl AsHandle, number: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.0, descriptor.as_handle(), epoll::EventData::new_u64(number), flags)?)
    }

    /// Watches the descriptor no more. One that was closed has left already.
    pub fn remove(&self, descriptor: impl AsHandle) {
        let _ = epoll::delete(&self.0, descriptor.as_handle());
    }

    /// Waits for events, at most this long, which the system may round up to milliseconds. They replace those of `events`.
    ///
    /// # Errors
    ///
    /// A signal interrupted the wait.
    pub fn wait<const N: usize>(&self, events: &mut Events<N>, within: Duration) -> Result<(), Errno> {
        events.count = 0;
        let (filled, _) = epoll::wait(&self.0, &mut events.room, Some(&timespec(within)))?;
        events.count = filled.len();
        Ok(())
    }

    /// Waits until there are events, at most this long and as exactly as [`poll`](crate::poll) waits. Returns whether there are any.
    ///
    /// # Errors
    ///
    /// A signal interrupted the wait, or the system refuses.
    pub fn wait_exactly(&self, within: Duration) -> Result<bool, Errno> {
        Ok(poll(&mut [watch(&self.0, PollFlags::IN)], within)? > 0)
    }
}

/// Up to `N` events of a queue.
pub struct Events<const N: usize> {
    room: [MaybeUninit<epoll::Event>; N],
    /// The first entries of the room that hold an event.
    count: usize,
}

impl<const N: usize> Events<N> {
    /// Creates room without events.
    pub const fn new() -> Events<N> {
        Events { room: [MaybeUninit::uninit(); N], count: 0 }
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether nothing was ready.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of each descriptor that is ready, and for what.
    pub fn iter(&self) -> impl Iterator<Item = (u64, EventFlags)> {
        self.room[..self.count].iter().map(|event| {
            // SAFETY: the wait has initialised this many entries.
            let event = unsafe { event.assume_init_ref() };
            (event.data.u64(), event.flags)
        })
    }
}

impl<const N: usize> Default for Events<N> {
    fn default() -> Events<N> {
        Events::new()
    }
}

/// A descriptor that one thread makes ready for another.
#[derive(Debug)]
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// The highest count. With it the descriptor is not writable.
    pub const MAX_COUNT: u64 = u64::MAX - 1;

    /// An event that has not happened: the descriptor is writable, and not readable.
    ///
    /// # Errors
    ///
    /// The system gives no descriptor.
    pub fn new() -> io::Result<WakeEvent> {
        Ok(WakeEvent(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable. It fails only if the count would exceed the highest, and then the descriptor is readable.
    pub fn add(&self, count: u64) {
        let _ = rustix::io::write(&self.0, &count.to_ne_bytes());
    }

    /// Takes the event that an edge-triggered queue has reported. Here each [`WakeEvent::add`] is an edge, so nothing is to do.
    #[inline]
    pub fn take_edge(&self) {}

    /// Makes the descriptor writable, and not readable.
    pub fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
