//! Waits for handles whose owners may close them, and the sockets of events.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::{Domain, Socket, Type};

use crate::{BorrowedHandle, PollFd, PollFlags, WakeEvent};

/// A handle without its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawHandle(RawFd);

impl RawHandle {
    pub(crate) fn of(handle: BorrowedHandle<'_>) -> RawHandle {
        RawHandle(handle.as_raw_fd())
    }
}

/// An entry for a wait. The handle may have been closed; the wait reports that.
pub(crate) fn watch_raw(handle: RawHandle, flags: PollFlags) -> PollFd<'static> {
    // SAFETY: nothing but the wait uses the descriptor, and the wait accepts closed ones.
    PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(handle.0) }, flags)
}

/// Two connected sockets.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    Socket::pair(Domain::UNIX, Type::STREAM, None)
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}
