//! Options and state of sockets that no dependency wraps.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use libc::c_int;
use socket2::{SockAddr, Socket, TcpKeepalive};

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

/// Prepares a socket for the functions of this crate, which needs nothing here.
///
/// # Errors
///
/// None.
#[inline]
pub fn prepare_socket(_socket: &Socket) -> io::Result<()> {
    Ok(())
}

/// Prepares a socket that receives from many.
///
/// # Errors
///
/// None.
pub fn prepare_server_socket(socket: &Socket) -> io::Result<()> {
    prepare_socket(socket)
}

/// Sets DSCP and ECN of what an IPv6 socket sends.
///
/// # Errors
///
/// This is no IPv6 socket.
pub fn set_traffic_class_v6(socket: &Socket, class: u8) -> io::Result<()> {
    socket.set_tclass_v6(class.into())
}

/// DSCP and ECN of what an IPv6 socket sends.
pub fn traffic_class_v6(socket: &Socket) -> Option<u32> {
    socket.tclass_v6().ok()
}

/// The maximum segment size of a TCP socket.
pub fn segment_bytes(socket: &Socket) -> Option<u32> {
    socket.tcp_mss().ok()
}

/// Sets the maximum segment size of a TCP socket.
///
/// # Errors
///
/// The system refuses.
pub fn set_segment_bytes(socket: &Socket, bytes: u32) -> io::Result<()> {
    socket.set_tcp_mss(bytes)
}

/// Makes the system send keepalives after an idle time, at an interval, and break a connection after some without a reply.
///
/// # Errors
///
/// The system refuses.
pub fn set_keepalive(socket: &Socket, idle: Duration, interval: Duration, probes: u32) -> io::Result<()> {
    let wanted = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes);
    socket.set_tcp_keepalive(&wanted)
}

/// Idle time after which keepalives are sent.
pub fn keepalive_time(socket: &Socket) -> Option<Duration> {
    socket.tcp_keepalive_time().ok()
}

/// The path of a Unix address.
pub fn unix_path(address: &SockAddr) -> Option<&Path> {
    address.as_pathname()
}
