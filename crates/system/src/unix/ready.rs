//! Waiting until a few links are ready.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;

use crate::AsHandle;

pub use rustix::event::{PollFd, PollFlags};

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// An entry for [`poll`]: what to wait for on a handle.
pub fn watch(on: &impl AsHandle, flags: PollFlags) -> PollFd<'_> {
    PollFd::from_borrowed_fd(on.as_handle(), flags)
}

/// Waits until one of the descriptors is ready, at most this long. Returns the number of those that are.
///
/// # Errors
///
/// A signal interrupted the wait, or the system refuses.
pub fn poll(watched: &mut [PollFd<'_>], within: Duration) -> Result<usize, Errno> {
    rustix::event::poll(watched, Some(&timespec(within)))
}
