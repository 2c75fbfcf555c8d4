//! Options and state of sockets.

use std::io;
use std::path::Path;
use std::time::Duration;

use socket2::{SockAddr, Socket, TcpKeepalive};
use windows_sys::Win32::Networking::WinSock::{
    FIONREAD, IP_DONTFRAGMENT, IP_RECVTOS, IP_RECVTTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_DONTFRAG,
    IPV6_HOPLIMIT, IPV6_RECVTCLASS, IPV6_TCLASS, TCP_KEEPCNT, TCP_KEEPIDLE, ioctlsocket,
};

use super::error::Errno;
use super::handle::{AsHandle, BorrowedHandle, raw_socket};
use super::raw::{get_option, set_option};
use crate::ip_family::IpFamily;

/// Requests the TTL of each received datagram, over IPv4, IPv6 or both.
pub fn set_receive_ttl(socket: impl AsHandle) {
    // The option that does not apply is refused; then there is no TTL.
    let _ = set_option(&socket, IPPROTO_IP, IP_RECVTTL, 1);
    let _ = set_option(&socket, IPPROTO_IPV6, IPV6_HOPLIMIT, 1);
}

/// Requests the traffic class of each received datagram, over IPv4, IPv6 or both.
pub fn set_receive_traffic_class(socket: impl AsHandle) {
    // The option that does not apply is refused; then no class is reported.
    let _ = set_option(&socket, IPPROTO_IP, IP_RECVTOS, 1);
    let _ = set_option(&socket, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
}

/// Sends packets whole (DF).
///
/// # Errors
///
/// The system refuses.
pub fn set_path_mtu_probing(socket: impl AsHandle, family: IpFamily) -> io::Result<()> {
    match family {
        IpFamily::V4 => set_option(&socket, IPPROTO_IP, IP_DONTFRAGMENT, 1),
        IpFamily::V6 => set_option(&socket, IPPROTO_IPV6, IPV6_DONTFRAG, 1),
    }
}

/// Bytes in the send queue that the remote has not acknowledged: those of a port that have not left; a socket does not tell.
pub fn unacknowledged_bytes(handle: impl AsHandle) -> Option<u64> {
    match handle.as_handle() {
        BorrowedHandle::Socket(_) => None,
        BorrowedHandle::Port(port) => port.unsent_bytes(),
    }
}

/// Bytes that arrived and were not read yet; of datagrams, those of the first.
pub fn unread_bytes(handle: impl AsHandle) -> Option<u64> {
    if let BorrowedHandle::Port(port) = handle.as_handle() {
        return port.unread_bytes();
    }
    let mut bytes = 0u32;
    // SAFETY: the call writes one number.
    let result = unsafe { ioctlsocket(raw_socket(&handle), FIONREAD, &mut bytes) };
    (result == 0).then_some(bytes.into())
}

/// Sets DSCP and ECN of what an IPv6 socket sends.
///
/// # Errors
///
/// This is no IPv6 socket.
pub fn set_traffic_class_v6(socket: &Socket, class: u8) -> io::Result<()> {
    set_option(socket, IPPROTO_IPV6, IPV6_TCLASS, class.into())
}

/// DSCP and ECN of what an IPv6 socket sends.
pub fn traffic_class_v6(socket: &Socket) -> Option<u32> {
    get_option(socket, IPPROTO_IPV6, IPV6_TCLASS).and_then(|class| u32::try_from(class).ok())
}

/// The maximum segment size of a TCP socket, which this system does not tell.
pub fn segment_bytes(_: &Socket) -> Option<u32> {
    None
}

/// Sets the maximum segment size of a TCP socket, for which this system has no option.
///
/// # Errors
///
/// Always.
pub fn set_segment_bytes(_: &Socket, _bytes: u32) -> io::Result<()> {
    Err(Errno::NOPROTOOPT.into())
}

/// Makes the system send keepalives after an idle time and at an interval. Older systems break a connection after ten without a reply.
///
/// # Errors
///
/// The system refuses.
pub fn set_keepalive(socket: &Socket, idle: Duration, interval: Duration, probes: u32) -> io::Result<()> {
    let wanted = TcpKeepalive::new().with_time(idle).with_interval(interval);
    let _ = set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes.cast_signed());
    socket.set_tcp_keepalive(&wanted)
}

/// Idle time after which keepalives are sent.
pub fn keepalive_time(socket: &Socket) -> Option<Duration> {
    let seconds = get_option(socket, IPPROTO_TCP, TCP_KEEPIDLE)?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// The path of a Unix address, which links here do not have.
pub fn unix_path(_address: &SockAddr) -> Option<&Path> {
    None
}
