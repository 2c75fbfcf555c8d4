//! The queues of a socket.

use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

use crate::platform::terminal::ControlRequest;

/// Bytes that arrived and were not read yet; of datagrams, those of the first.
pub fn unread_bytes(fd: impl AsFd) -> Option<u64> {
    queue_bytes(fd, libc::FIONREAD)
}

/// A request that writes one `int`.
pub(crate) fn queue_bytes(fd: impl AsFd, request: ControlRequest) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the requests of this crate write one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}
