//! Handles of what the system keeps open: sockets, ports, events.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::SockRef;

/// A handle that is borrowed from its owner.
pub type BorrowedHandle<'a> = BorrowedFd<'a>;

/// A handle that is closed when it is dropped.
pub type OwnedHandle = OwnedFd;

/// Types that have a handle.
pub trait AsHandle {
    /// The handle.
    fn as_handle(&self) -> BorrowedHandle<'_>;
}

impl<T: AsFd + ?Sized> AsHandle for T {
    #[inline]
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.as_fd()
    }
}

/// The socket of a handle; `None` where a handle says that it is something else.
pub fn socket_of<'a>(handle: &'a BorrowedHandle<'_>) -> Option<SockRef<'a>> {
    Some(SockRef::from(handle))
}
