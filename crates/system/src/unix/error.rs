//! Errors of the system.

pub use rustix::io::Errno;

/// What a call returns that begins to connect and does not wait.
pub const CONNECT_BEGUN: Errno = Errno::INPROGRESS;
