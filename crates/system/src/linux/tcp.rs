//! TCP and socket options that no dependency wraps, and the state of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_ulong, c_void, socklen_t};
use rustix::io::Errno;

use crate::tcp::TcpTimer;
use crate::tcp_info::TcpInfo;
use crate::unix::raw::{get_option, set_option};
use crate::unix::tcp::queue_bytes;

/// Sets a timer of a TCP socket.
pub fn set_tcp_timer(fd: impl AsFd, timer: TcpTimer, micros: u32) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, timer.number(), micros)
}

/// A timer of a TCP socket in microseconds, if the kernel has the option.
pub fn tcp_timer(fd: impl AsFd, timer: TcpTimer) -> Option<u32> {
    get_option(fd, libc::IPPROTO_TCP, timer.number())
}

/// The value of `SO_MAX_PACING_RATE` without a limit.
const UNPACED: c_ulong = c_ulong::MAX;

/// Limits the rate at which the kernel sends the data of this socket.
pub fn set_pacing_rate(fd: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    let rate = c_ulong::try_from(bytes_per_second).unwrap_or(UNPACED);
    set_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
}

/// The limit of [`set_pacing_rate`], if there is one.
pub fn pacing_rate(fd: impl AsFd) -> Option<u64> {
    let rate: c_ulong = get_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)?;
    // A `c_ulong` has 32 bits on some processors.
    #[allow(clippy::useless_conversion)]
    (rate != UNPACED).then(|| rate.into())
}

/// Reads an option of variable length into `into`. Returns the number of bytes that the kernel wrote.
fn option_bytes(fd: impl AsFd, level: c_int, name: c_int, into: &mut [u8]) -> Option<usize> {
    let mut length = into.len() as socklen_t;
    // SAFETY: `into` is valid for writes of `length` bytes and outlives the call; the descriptor is borrowed.
    let result = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, into.as_mut_ptr().cast::<c_void>(), &mut length)
    };
    (result == 0).then_some((length as usize).min(into.len()))
}

/// The state of a TCP socket; `None` on other sockets.
pub fn tcp_info(fd: impl AsFd) -> Option<TcpInfo> {
    // Larger than the structure of any kernel so far.
    let mut bytes = [0; 512];
    let length = option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Some(TcpInfo::from_bytes(&bytes[..length]))
}

/// Bytes in the send queue that have not been sent at all (TCP).
pub fn unsent_bytes(fd: impl AsFd) -> Option<u64> {
    // `SIOCOUTQNSD` of linux/sockios.h.
    queue_bytes(fd, 0x894b)
}

/// Selects the congestion control of a TCP socket by its name.
///
/// # Errors
///
/// The kernel does not have it, or this user may not use it.
pub fn set_tcp_congestion(fd: impl AsFd, name: &str) -> Result<(), Errno> {
    rustix::net::sockopt::set_tcp_congestion(fd, name)
}

/// The name of the congestion control of a TCP socket.
pub fn tcp_congestion(fd: impl AsFd) -> Option<String> {
    rustix::net::sockopt::tcp_congestion(fd).ok()
}
