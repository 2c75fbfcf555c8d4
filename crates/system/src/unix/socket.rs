//! Options and state of sockets that no dependency wraps.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;

use crate::ip_family::IpFamily;
use crate::unix::raw::set_option;

/// Requests the local destination address of each datagram.
pub fn set_receive_destination(fd: impl AsFd, family: IpFamily) -> io::Result<()> {
    let on: c_int = 1;
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, on),
        IpFamily::V6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, on),
    }
}

/// Requests the TTL of each received datagram, over IPv4, IPv6 or both.
pub fn set_receive_ttl(fd: impl AsFd) {
    let (fd, on) = (fd.as_fd(), 1 as c_int);
    // The option that does not apply is refused; then there is no TTL.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, on);
    let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, on);
}

/// Requests the traffic class of each received datagram, over IPv4, IPv6 or both.
pub fn set_receive_traffic_class(fd: impl AsFd) {
    let (fd, on) = (fd.as_fd(), 1 as c_int);
    // The option that does not apply is refused; then no class is reported.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, on);
    let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, on);
}
