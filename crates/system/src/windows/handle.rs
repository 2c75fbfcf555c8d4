//! Handles of what the system keeps open: sockets and ports, for which it has different calls.

use std::io;
use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, OwnedSocket};

use socket2::SockRef;

use super::serial_port::SerialPort;

/// A handle that is borrowed from its owner.
#[derive(Debug, Clone, Copy)]
pub enum BorrowedHandle<'a> {
    /// A socket.
    Socket(BorrowedSocket<'a>),
    /// A serial port.
    Port(&'a SerialPort),
}

/// A handle that is closed when it is dropped.
pub type OwnedHandle = OwnedSocket;

impl BorrowedHandle<'_> {
    /// A second handle of a socket.
    ///
    /// # Errors
    ///
    /// This is no socket, or the system gives no handle.
    pub fn try_clone_to_owned(&self) -> io::Result<OwnedHandle> {
        match self {
            BorrowedHandle::Socket(socket) => socket.try_clone_to_owned(),
            BorrowedHandle::Port(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Types that have a handle.
pub trait AsHandle {
    /// The handle.
    fn as_handle(&self) -> BorrowedHandle<'_>;
}

impl<T: AsSocket + ?Sized> AsHandle for T {
    #[inline]
    fn as_handle(&self) -> BorrowedHandle<'_> {
        BorrowedHandle::Socket(self.as_socket())
    }
}

impl AsHandle for BorrowedHandle<'_> {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        *self
    }
}

impl AsHandle for &BorrowedHandle<'_> {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        **self
    }
}

impl AsHandle for SerialPort {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        BorrowedHandle::Port(self)
    }
}

impl AsHandle for &SerialPort {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        BorrowedHandle::Port(self)
    }
}

/// The socket of a handle; `None` for a port.
pub fn socket_of<'a>(handle: &'a BorrowedHandle<'_>) -> Option<SockRef<'a>> {
    match handle {
        BorrowedHandle::Socket(socket) => Some(SockRef::from(socket)),
        BorrowedHandle::Port(_) => None,
    }
}

/// The number of a socket; one that no socket has for a port.
pub(crate) fn raw_socket(handle: &impl AsHandle) -> usize {
    match handle.as_handle() {
        BorrowedHandle::Socket(socket) => socket.as_raw_socket() as usize,
        BorrowedHandle::Port(_) => usize::MAX,
    }
}
