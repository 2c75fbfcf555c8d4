//! The only `unsafe` of the program: system calls and socket options that no dependency wraps.
//!
//! Every block says why it is sound; nothing here decides anything.
#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

/// Reads a socket option into a plain C value.
fn option<T: Copy>(fd: impl AsFd, level: c_int, name: c_int) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: `value` is valid for writes of `length` bytes and outlives the call; the descriptor is borrowed.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            &mut length,
        )
    };
    // SAFETY: the memory was zeroed, and callers use only C structures of integers, for which every pattern is valid;
    // an older kernel fills less and leaves zeros.
    (result == 0).then(|| unsafe { value.assume_init() })
}

/// The path MTU that the kernel holds for a connected socket, in bytes.
pub fn path_mtu(fd: impl AsFd) -> Option<u32> {
    let fd = fd.as_fd();
    option::<c_int>(fd, libc::IPPROTO_IP, libc::IP_MTU)
        .or_else(|| option::<c_int>(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU))
        .and_then(|bytes| u32::try_from(bytes).ok())
}

/// What `TCP_INFO` says that we use.
pub struct TcpInfo {
    pub rtt_us: u32,
    pub retransmits: u32,
}

pub fn tcp_info(fd: impl AsFd) -> Option<TcpInfo> {
    let info = option::<libc::tcp_info>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Some(TcpInfo { rtt_us: info.tcpi_rtt, retransmits: info.tcpi_total_retrans })
}

/// Bytes in the send queue that the far end has not acknowledged (streams).
pub fn unacknowledged(fd: impl AsFd) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: `SIOCOUTQ` (the same number as `TIOCOUTQ`) writes one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}
