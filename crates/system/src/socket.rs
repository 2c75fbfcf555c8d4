//! Options and state of sockets that no dependency wraps.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use socket2::{SockFilter, Socket};

use crate::ip_family::IpFamily;
use crate::raw::{get_option, set_option};

/// The path MTU that the kernel holds for a connected socket, in bytes.
pub fn path_mtu(fd: impl AsFd) -> Option<u32> {
    let fd = fd.as_fd();
    get_option::<c_int>(fd, libc::IPPROTO_IP, libc::IP_MTU)
        .or_else(|| get_option::<c_int>(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU))
        .and_then(|bytes| u32::try_from(bytes).ok())
}

/// Sends packets up to the MTU of the device whole (DF), whatever path MTU the kernel holds: what a search for it needs.
pub fn set_path_mtu_probing(fd: impl AsFd, family: IpFamily) -> io::Result<()> {
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        IpFamily::V6 => {
            let fd = fd.as_fd();
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
            // Otherwise this host fragments what is larger than the path MTU.
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1 as c_int)
        }
    }
}

/// The process at the other end of a Unix socket, if it is a process in a visible namespace.
pub fn remote_process(fd: impl AsFd) -> Option<i32> {
    get_option::<libc::ucred>(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)
        .map(|peer| peer.pid)
        .filter(|&process| process > 0)
}

/// Bytes in the send queue that the remote has not acknowledged.
pub fn unacknowledged_bytes(fd: impl AsFd) -> Option<u64> {
    // Bluetooth sockets report the free bytes of the queue instead (`bt_sock_ioctl`).
    if get_option::<c_int>(&fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_BLUETOOTH) {
        return None;
    }
    let mut bytes: c_int = 0;
    // SAFETY: `SIOCOUTQ` (the same number as `TIOCOUTQ`) writes one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}

/// Datagrams that the socket has dropped since it was made, mostly because its buffer was full: the drop
/// counter of `SO_MEMINFO`, which `SO_RXQ_OVFL` also reports with each datagram.
pub fn socket_drops(fd: impl AsFd) -> Option<u64> {
    // `SK_MEMINFO_DROPS` of linux/sock_diag.h, the last of nine.
    const DROPS: usize = 8;
    socket_memory(fd).map(|info| u64::from(info[DROPS]))
}

/// The memory of a socket: nine numbers in the order of `SK_MEMINFO_…` of linux/sock_diag.h.
pub fn socket_memory(fd: impl AsFd) -> Option<[u32; 9]> {
    get_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)
}

/// Lets the kernel coalesce consecutive datagrams of one sender (generic receive offload).
pub fn set_udp_coalescing(fd: impl AsFd, on: bool) -> io::Result<()> {
    set_option(fd, libc::SOL_UDP, libc::UDP_GRO, c_int::from(on))
}

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

/// Keeps all but ICMP messages of this type with this identifier out of the buffer of a raw socket, where those to other programs could
/// displace them.
///
/// # Errors
///
/// The system refuses.
pub fn keep_icmp_replies(socket: &Socket, family: IpFamily, reply: u8, identifier: u16) -> io::Result<()> {
    // linux/filter.h: code of the operation, jumps if true and if false, operand.
    let operation = |code: u32, k: u32| SockFilter::new(code as u16, 0, 0, k);
    let unless_equal =
        |skip: u8, k: u32| SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, skip, k);
    let at_header = match family {
        // The length of the IP header, with which the packet begins.
        IpFamily::V4 => operation(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0),
        IpFamily::V6 => operation(libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, 0),
    };
    socket.attach_filter(&[
        at_header,
        operation(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0),
        unless_equal(3, reply.into()),
        operation(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 4),
        unless_equal(1, identifier.into()),
        operation(libc::BPF_RET | libc::BPF_K, u32::MAX),
        operation(libc::BPF_RET | libc::BPF_K, 0),
    ])
}
