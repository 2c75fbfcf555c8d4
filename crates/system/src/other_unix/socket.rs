//! Options and state of sockets with other names than on Linux.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;

use crate::ip_family::IpFamily;
use crate::unix::raw::{get_option, set_option};

/// Sends packets whole (DF).
///
/// # Errors
///
/// The system refuses.
pub fn set_path_mtu_probing(fd: impl AsFd, family: IpFamily) -> io::Result<()> {
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_DONTFRAG, 1 as c_int),
        IpFamily::V6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1 as c_int),
    }
}

/// Bytes in the send queue that the remote has not acknowledged.
pub fn unacknowledged_bytes(fd: impl AsFd) -> Option<u64> {
    get_option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_NWRITE).and_then(|bytes| u64::try_from(bytes).ok())
}
