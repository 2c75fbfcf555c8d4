//! Options and state of sockets that only Linux has.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::c_int;
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket};

use crate::ip_family::IpFamily;
use crate::message::HangUp;
use crate::unix::raw::{PlainData, get_option, set_option};
use crate::unix::ready::{poll, watch};

// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::ucred {}

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

/// Whether the remote has ended its output, or the connection has ended.
pub fn hang_up(socket: impl AsFd) -> Option<HangUp> {
    let socket = socket.as_fd();
    let mut watched = [watch(&socket, PollFlags::RDHUP)];
    // Errors and the end of both directions are reported without a request.
    let is_over = poll(&mut watched, Duration::ZERO).is_ok_and(|ready| ready > 0);
    is_over.then(|| HangUp { has_error: watched[0].revents().contains(PollFlags::ERR) })
}

/// The family of a socket.
pub fn socket_domain(socket: &Socket) -> Option<Domain> {
    socket.domain().ok()
}

/// The protocol of a socket.
pub fn socket_protocol(socket: &Socket) -> Option<Protocol> {
    socket.protocol().ok().flatten()
}

/// Acknowledges at once (`TCP_QUICKACK`), or not.
///
/// # Errors
///
/// This is no TCP socket.
pub fn set_quick_ack(socket: impl AsFd, on: bool) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_quickack(on)
}

/// Limits the bytes that a TCP socket holds unsent (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
///
/// This is no TCP socket.
pub fn set_unsent_limit(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_notsent_lowat(bytes)
}

/// The limit of the bytes that a TCP socket holds unsent.
pub fn unsent_limit(socket: impl AsFd) -> Option<u32> {
    SockRef::from(&socket).tcp_notsent_lowat().ok()
}

/// Binds a socket to a network device.
///
/// # Errors
///
/// There is no such device, or this user may not do so.
pub fn bind_to_device(socket: &Socket, device: &str) -> io::Result<()> {
    socket.bind_device(Some(device.as_bytes()))
}

/// The network device that a socket is bound to.
pub fn bound_device(socket: &Socket) -> Option<String> {
    let name = socket.device().ok().flatten()?;
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// Sets the priority of what a socket sends, in the queues of this host.
///
/// # Errors
///
/// This user may not do so.
pub fn set_priority(socket: &Socket, priority: u32) -> io::Result<()> {
    socket.set_priority(priority)
}

/// The priority of what a socket sends.
pub fn priority(socket: &Socket) -> Option<u32> {
    socket.priority().ok()
}

/// The name of a Unix address outside of the file system.
pub fn abstract_name(address: &SockAddr) -> Option<&[u8]> {
    address.as_abstract_namespace()
}
