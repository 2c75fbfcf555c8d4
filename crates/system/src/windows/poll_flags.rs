//! What a wait is for, and what has happened.

use windows_sys::Win32::Networking::WinSock::{POLLERR, POLLHUP, POLLNVAL, POLLOUT, POLLRDNORM};

/// What to wait for, or what has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollFlags(pub(super) i16);

impl PollFlags {
    /// Input, or the end of it.
    pub const IN: PollFlags = PollFlags(POLLRDNORM);
    /// Room for output.
    pub const OUT: PollFlags = PollFlags(POLLOUT);
    /// An error.
    pub const ERR: PollFlags = PollFlags(POLLERR);
    /// The connection has ended.
    pub const HUP: PollFlags = PollFlags(POLLHUP);
    /// This is no handle.
    pub const NVAL: PollFlags = PollFlags(POLLNVAL);

    /// Nothing.
    pub const fn empty() -> PollFlags {
        PollFlags(0)
    }

    /// Whether there is nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any of the others is among these.
    pub const fn intersects(self, other: PollFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of the others are among these.
    pub const fn contains(self, other: PollFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for PollFlags {
    type Output = PollFlags;

    fn bitor(self, other: PollFlags) -> PollFlags {
        PollFlags(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for PollFlags {
    fn bitor_assign(&mut self, other: PollFlags) {
        self.0 |= other.0;
    }
}
