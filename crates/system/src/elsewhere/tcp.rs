//! Options and state of TCP that only Linux has.

use std::io;

use crate::AsHandle;
use crate::Errno;
use crate::tcp::TcpTimer;
use crate::tcp_info::TcpInfo;

fn no_option<T>() -> io::Result<T> {
    Err(Errno::NOPROTOOPT.into())
}

/// Sets a timer of a TCP socket.
///
/// # Errors
///
/// Always.
pub fn set_tcp_timer(_: impl AsHandle, _timer: TcpTimer, _micros: u32) -> io::Result<()> {
    no_option()
}

/// A timer of a TCP socket.
pub fn tcp_timer(_: impl AsHandle, _timer: TcpTimer) -> Option<u32> {
    None
}

/// Limits the rate at which the kernel sends the data of a socket.
///
/// # Errors
///
/// Always.
pub fn set_pacing_rate(_: impl AsHandle, _bytes_per_second: u64) -> io::Result<()> {
    no_option()
}

/// The limit of [`set_pacing_rate`].
pub fn pacing_rate(_: impl AsHandle) -> Option<u64> {
    None
}

/// The state of a TCP socket.
pub fn tcp_info(_: impl AsHandle) -> Option<TcpInfo> {
    None
}

/// Bytes in the send queue that have not been sent at all.
pub fn unsent_bytes(_: impl AsHandle) -> Option<u64> {
    None
}

/// Selects the congestion control of a TCP socket by its name.
///
/// # Errors
///
/// Always.
pub fn set_tcp_congestion(_: impl AsHandle, _name: &str) -> Result<(), Errno> {
    Err(Errno::NOPROTOOPT)
}

/// The name of the congestion control of a TCP socket.
pub fn tcp_congestion(_: impl AsHandle) -> Option<String> {
    None
}
