//! How Linux opens a pseudo-terminal.

use rustix::pty::OpenptFlags;

/// Programs that this one starts do not get the terminal.
pub(crate) const CLOSE_ON_EXEC: OpenptFlags = OpenptFlags::CLOEXEC;
