//! How a Unix without more opens a pseudo-terminal.

use rustix::pty::OpenptFlags;

/// Programs that this one starts do not get the terminal: this system cannot say so when it opens it.
pub(crate) const CLOSE_ON_EXEC: OpenptFlags = OpenptFlags::empty();
