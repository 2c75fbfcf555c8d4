//! Errors of the system.

pub use rustix::io::Errno;
