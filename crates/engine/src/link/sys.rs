//! The only `unsafe` code of the program: system calls and socket options that no dependency wraps.
//!
//! Every block states why it is sound. This module contains no policy.
#![allow(unsafe_code)]

mod cache;
mod clock;
mod families;
mod interfaces;
mod stamps;
mod tcp;
mod terminal;

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::SockAddr;

use super::ip_family::IpFamily;

pub(crate) use cache::*;
pub(crate) use clock::*;
pub(crate) use families::*;
pub(crate) use interfaces::*;
pub(crate) use stamps::*;
pub(crate) use tcp::*;
pub(crate) use terminal::*;

/// Whether a system call may wait until the socket is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// Up to the timeout of the socket.
    Allowed,
    /// The call returns at once.
    Never,
}

impl Blocking {
    /// Flags of a call that sends.
    pub(crate) fn send_flags(self) -> SendFlags {
        match self {
            Blocking::Allowed => SendFlags::empty(),
            Blocking::Never => SendFlags::DONTWAIT,
        }
    }

    /// Flags of a call that receives.
    pub(crate) fn receive_flags(self) -> RecvFlags {
        match self {
            Blocking::Allowed => RecvFlags::empty(),
            Blocking::Never => RecvFlags::DONTWAIT,
        }
    }
}

/// C data for which every bit pattern is valid, and which does not make the kernel access other memory.
///
/// # Safety
/// The type consists of integers: one integer, or an array or a C structure of integers. A reference, a
/// `bool` or an `enum` has invalid bit patterns, and the target of a pointer is not part of the data.
// SAFETY: the promise that each `impl` below gives.
unsafe trait PlainData: Copy {}

// SAFETY: integers.
unsafe impl PlainData for u8 {}
// SAFETY: integers.
unsafe impl PlainData for u16 {}
// SAFETY: integers.
unsafe impl PlainData for u32 {}
// SAFETY: integers.
unsafe impl PlainData for u64 {}
// SAFETY: integers.
unsafe impl PlainData for i64 {}
// SAFETY: integers.
unsafe impl PlainData for c_int {}
// SAFETY: an array of a type that consists of integers.
unsafe impl<T: PlainData, const N: usize> PlainData for [T; N] {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::ucred {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::in_pktinfo {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::in6_pktinfo {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::sockaddr_in {}
// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::sockaddr_in6 {}

/// Blocks of the allocator from this size on are mapped one by one.
#[cfg(target_env = "gnu")]
const MIN_MAPPED_BLOCK: c_int = 64 * 1024;

/// Areas from which all threads allocate. Each keeps freed memory that the others cannot use, and threads begin a new one when
/// they meet in another.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: c_int = 1;

/// Freed buffers go back to the system, and their unused pages take no memory: for programs in which many threads allocate and free
/// buffers for weeks. Only the allocator of glibc has these settings. Call it before other threads start.
pub fn return_freed_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread runs yet; the calls change numbers of the allocator, and no memory.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MIN_MAPPED_BLOCK);
        libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS);
    }
}

/// Reads a socket option.
fn get_option<T: PlainData>(fd: impl AsFd, level: c_int, name: c_int) -> Option<T> {
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
    // SAFETY: the memory was zeroed, and every bit pattern is a valid value; an older kernel writes less and
    // leaves zeros.
    (result == 0).then(|| unsafe { value.assume_init() })
}

/// The path MTU that the kernel holds for a connected socket, in bytes.
pub(crate) fn path_mtu(fd: impl AsFd) -> Option<u32> {
    let fd = fd.as_fd();
    get_option::<c_int>(fd, libc::IPPROTO_IP, libc::IP_MTU)
        .or_else(|| get_option::<c_int>(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU))
        .and_then(|bytes| u32::try_from(bytes).ok())
}

/// The process at the other end of a Unix socket, if it is a process in a visible namespace.
pub(crate) fn remote_process(fd: impl AsFd) -> Option<i32> {
    get_option::<libc::ucred>(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)
        .map(|peer| peer.pid)
        .filter(|&process| process > 0)
}

/// Bytes in the send queue that the remote has not acknowledged.
pub(crate) fn unacknowledged_bytes(fd: impl AsFd) -> Option<u64> {
    // Bluetooth sockets report the free bytes of the queue instead (`bt_sock_ioctl`).
    if get_option::<c_int>(&fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_BLUETOOTH) {
        return None;
    }
    let mut bytes: c_int = 0;
    // SAFETY: `SIOCOUTQ` (the same number as `TIOCOUTQ`) writes one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}

/// Sets a socket option.
fn set_option<T: PlainData>(fd: impl AsFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size for the length of the call; the descriptor is borrowed.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams that the socket has dropped since it was made, mostly because its buffer was full: the drop
/// counter of `SO_MEMINFO`, which `SO_RXQ_OVFL` also reports with each datagram.
pub(crate) fn socket_drops(fd: impl AsFd) -> Option<u64> {
    // `SK_MEMINFO_DROPS` of linux/sock_diag.h, the last of nine.
    const DROPS: usize = 8;
    socket_memory(fd).map(|info| u64::from(info[DROPS]))
}

/// The memory of a socket: nine numbers in the order of `SK_MEMINFO_…` of linux/sock_diag.h.
pub(crate) fn socket_memory(fd: impl AsFd) -> Option<[u32; 9]> {
    get_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)
}

/// Lets the kernel coalesce consecutive datagrams of one sender (generic receive offload).
pub(crate) fn set_udp_coalescing(fd: impl AsFd, on: bool) -> io::Result<()> {
    set_option(fd, libc::SOL_UDP, libc::UDP_GRO, c_int::from(on))
}

/// Requests the local destination address of each datagram.
pub(crate) fn set_receive_destination(fd: impl AsFd, family: IpFamily) -> io::Result<()> {
    let on: c_int = 1;
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, on),
        IpFamily::V6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, on),
    }
}

/// Makes the system store errors of undelivered messages for [`take_delivery_error`], and report them in the
/// next call; or not.
pub(crate) fn set_receive_errors(fd: impl AsFd, family: IpFamily, is_on: bool) -> io::Result<()> {
    let on = c_int::from(is_on);
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, on),
        IpFamily::V6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, on),
    }
}

/// An error for a sent message, from the network (ICMP) or from this system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryError {
    /// The protocol of the record.
    pub(crate) family: IpFamily,
    /// Type and code of the ICMP message; `None` for an error of this system.
    pub(crate) icmp_type_code: Option<(u8, u8)>,
    /// The system's reason.
    pub(crate) errno: Errno,
    /// The host that reported the error.
    pub(crate) from: Option<IpAddr>,
}

/// The system's record of an undelivered message, followed by the address of its reporter.
#[repr(C)]
#[derive(Clone, Copy)]
struct ExtendedError<A> {
    error: libc::sock_extended_err,
    from: A,
}

// SAFETY: a C structure of integers and of types that consist of them.
unsafe impl<A: PlainData> PlainData for ExtendedError<A> {}

/// The oldest error of an undelivered message; does not wait.
pub(crate) fn take_delivery_error(fd: impl AsFd, family: IpFamily) -> Option<DeliveryError> {
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    control.attach(&mut header);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: header and control buffer live through the call and are borrowed for writing; no room for bytes or an
    // address is given.
    to_count(unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) }).ok()?;
    let (error, from) = if family == IpFamily::V6 {
        let record: ExtendedError<libc::sockaddr_in6> =
            control_value(&header, libc::IPPROTO_IPV6, libc::IPV6_RECVERR)?;
        let known = c_int::from(record.from.sin6_family) == libc::AF_INET6;
        (record.error, known.then(|| IpAddr::from(Ipv6Addr::from(record.from.sin6_addr.s6_addr))))
    } else {
        let record: ExtendedError<libc::sockaddr_in> =
            control_value(&header, libc::IPPROTO_IP, libc::IP_RECVERR)?;
        let known = c_int::from(record.from.sin_family) == libc::AF_INET;
        (record.error, known.then(|| IpAddr::from(Ipv4Addr::from(record.from.sin_addr.s_addr.to_ne_bytes()))))
    };
    if stamps::is_stamp(&error) {
        return take_delivery_error(fd, family);
    }
    let is_icmp = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin);
    Some(DeliveryError {
        family,
        icmp_type_code: is_icmp.then_some((error.ee_type, error.ee_code)),
        errno: Errno::from_raw_os_error(error.ee_errno as c_int),
        from,
    })
}

/// Requests the TTL of each received datagram, over IPv4, IPv6 or both.
pub(crate) fn set_receive_ttl(fd: impl AsFd) {
    let (fd, on) = (fd.as_fd(), 1 as c_int);
    // The option that does not apply is refused; then there is no TTL.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, on);
    let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, on);
}

/// Receives one datagram and its TTL, if [`set_receive_ttl`] has had an effect.
pub(crate) fn receive_with_ttl(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, Option<u8>), Errno> {
    receive_with_control(fd, into, blocking, |header| {
        let ttl = control_value::<c_int>(header, libc::IPPROTO_IP, libc::IP_TTL)
            .or_else(|| control_value(header, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT));
        ttl.and_then(|ttl| u8::try_from(ttl).ok())
    })
}

/// Receives one message, and the value that `read` finds in its control messages.
fn receive_with_control<T>(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
    read: impl FnOnce(&libc::msghdr) -> T,
) -> Result<(usize, T), Errno> {
    let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    control.attach(&mut header);
    let flags = call_flags(blocking);
    // SAFETY: header, vector, control buffer and `into` live through the call and are borrowed for writing.
    let received = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    let length = to_count(received)?;
    Ok((length, read(&header)))
}

fn call_flags(blocking: Blocking) -> c_int {
    match blocking {
        Blocking::Allowed => libc::MSG_NOSIGNAL,
        Blocking::Never => libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
    }
}

fn to_count(result: isize) -> Result<usize, Errno> {
    usize::try_from(result)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// An empty message header.
fn empty_header() -> libc::msghdr {
    // SAFETY: `msghdr` is a C structure of integers and pointers, for which all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

/// Bytes of control messages: those of a stamp and of the traffic class, or of a record of the error queue.
const CONTROL_BYTES: usize = 128;

/// Buffer for the control messages used here, with the alignment that the kernel requires.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

impl ControlBuffer {
    pub fn new() -> ControlBuffer {
        ControlBuffer([0; CONTROL_BYTES])
    }

    /// Attaches the empty buffer to a header that receives.
    fn attach(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.0.as_mut_ptr().cast::<c_void>();
        header.msg_controllen = self.0.len() as _;
    }

    /// Attaches one control message to a header that sends.
    fn attach_value<T: PlainData>(&mut self, header: &mut libc::msghdr, level: c_int, kind: c_int, value: T) {
        self.attach(header);
        let size = size_of::<T>() as u32;
        // SAFETY: `CMSG_SPACE` only computes.
        let space = unsafe { libc::CMSG_SPACE(size) };
        assert!(space as usize <= self.0.len());
        header.msg_controllen = space as _;
        // SAFETY: the buffer is attached, aligned and, as just asserted, has room for one message of this size, so the
        // first header lies inside it; the payload is written unaligned.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(header);
            (*first).cmsg_level = level;
            (*first).cmsg_type = kind;
            (*first).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(first).cast::<T>().write_unaligned(value);
        }
    }
}

/// The payload of one control message of a received header.
fn control_value<T: PlainData>(header: &libc::msghdr, level: c_int, kind: c_int) -> Option<T> {
    // SAFETY: the kernel filled the attached buffer and set its length, so the walk stays inside; the length of the
    // message is compared before its payload is read, unaligned; every pattern of bits is a value of the type.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let fits = (*message).cmsg_len as usize >= libc::CMSG_LEN(size_of::<T>() as u32) as usize;
            if (*message).cmsg_level == level && (*message).cmsg_type == kind && fits {
                return Some(libc::CMSG_DATA(message).cast::<T>().read_unaligned());
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// Sends `bytes` as datagrams of `segment` bytes (the last may be shorter), segmented by the kernel or the
/// card (`UDP_SEGMENT`).
pub(crate) fn send_segments(
    fd: impl AsFd,
    bytes: &[u8],
    segment: u16,
    blocking: Blocking,
) -> Result<usize, Errno> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    control.attach_value(&mut header, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    // SAFETY: header, vector, control buffer and bytes live through the call, which only reads them.
    to_count(unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const header, call_flags(blocking)) })
}

/// Maximum number of messages that [`send_many`] and [`receive_many`] move in one system call.
pub(crate) const MAX_CALL_MESSAGES: usize = 64;

/// Sends messages of `message` bytes stored back to back as separate datagrams (`sendmmsg`). Returns the
/// number sent.
pub(crate) fn send_many(
    fd: impl AsFd,
    bytes: &[u8],
    message: usize,
    blocking: Blocking,
) -> Result<usize, Errno> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_CALL_MESSAGES];
    let mut headers = [libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 }; MAX_CALL_MESSAGES];
    let mut filled = 0;
    for (chunk, (vector, header)) in bytes.chunks(message).zip(vectors.iter_mut().zip(&mut headers)) {
        vector.iov_base = chunk.as_ptr().cast_mut().cast();
        vector.iov_len = chunk.len();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        filled += 1;
    }
    // SAFETY: the first `filled` headers point at vectors and bytes that live through the call; the bytes are only read.
    let sent = unsafe {
        libc::sendmmsg(fd.as_fd().as_raw_fd(), headers.as_mut_ptr(), filled, call_flags(blocking) as _)
    };
    to_count(sent as isize)
}

/// What the kernel reports beside the bytes of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct DatagramInfo {
    /// Size of each datagram but the last, if the kernel coalesced several.
    pub(crate) segment_bytes: Option<usize>,
    /// Traffic class, if [`set_receive_traffic_class`] has had an effect. Coalesced datagrams have the same.
    pub(crate) traffic_class: Option<u8>,
    /// When the device passed it to the kernel, in nanoseconds of the time of day, if the socket has stamps.
    pub(crate) arrived_wall_ns: Option<i64>,
}

/// Receives one datagram, or several that the kernel coalesced.
pub(crate) fn receive_with_info(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, DatagramInfo), Errno> {
    receive_with_control(fd, into, blocking, |header| {
        let segment = control_value::<c_int>(header, libc::SOL_UDP, libc::UDP_GRO);
        let class = control_value::<u8>(header, libc::IPPROTO_IP, libc::IP_TOS);
        let class_v6 = || control_value::<c_int>(header, libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
        DatagramInfo {
            segment_bytes: segment.and_then(|bytes| usize::try_from(bytes).ok()).filter(|&bytes| bytes > 0),
            traffic_class: class.or_else(|| u8::try_from(class_v6()?).ok()),
            arrived_wall_ns: stamps::received_wall_ns(header),
        }
    })
}

/// Requests the traffic class of each received datagram, over IPv4, IPv6 or both.
pub(crate) fn set_receive_traffic_class(fd: impl AsFd) {
    let (fd, on) = (fd.as_fd(), 1 as c_int);
    // The option that does not apply is refused; then no class is reported.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, on);
    let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, on);
}

/// Receives at least one message and all others that are ready (`recvmmsg`) into slots of `slot` bytes. Calls
/// `each` with the start and the length of a message. Returns the number received.
pub(crate) fn receive_many(
    fd: impl AsFd,
    into: &mut [u8],
    slot: usize,
    blocking: Blocking,
    mut each: impl FnMut(usize, usize),
) -> Result<usize, Errno> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_CALL_MESSAGES];
    let mut headers = [libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 }; MAX_CALL_MESSAGES];
    let mut slots = 0;
    for (slot_buffer, (vector, header)) in
        into.chunks_exact_mut(slot).zip(vectors.iter_mut().zip(&mut headers))
    {
        vector.iov_base = slot_buffer.as_mut_ptr().cast();
        vector.iov_len = slot_buffer.len();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        slots += 1;
    }
    let flags = call_flags(blocking) | libc::MSG_WAITFORONE;
    // SAFETY: the first `slots` headers point at vectors and disjoint parts of `into`, which is borrowed for writing; no
    // timeout structure is given.
    let received = unsafe {
        libc::recvmmsg(fd.as_fd().as_raw_fd(), headers.as_mut_ptr(), slots, flags as _, std::ptr::null_mut())
    };
    let received = to_count(received as isize)?;
    for (index, header) in headers[..received].iter().enumerate() {
        each(index * slot, header.msg_len as usize);
    }
    Ok(received)
}

/// A datagram with its sender and, if the socket reports it, its local destination address and the interface.
pub(crate) struct ReceivedDatagram {
    /// Bytes of the datagram.
    pub(crate) length: usize,
    /// The address of the sender.
    pub(crate) from: SockAddr,
    /// The local destination address, and the number of the interface.
    pub(crate) to: Option<(IpAddr, u32)>,
    /// When the device passed it to the kernel, in nanoseconds of the time of day, if the socket has stamps.
    pub(crate) arrived_wall_ns: Option<i64>,
}

/// Receives one datagram and its addresses.
pub(crate) fn receive_from(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> io::Result<ReceivedDatagram> {
    receive_with_flags(fd, into, call_flags(blocking))
}

/// A frame from a packet socket; does not wait.
pub(crate) fn receive_frame(fd: impl AsFd, into: &mut [u8]) -> io::Result<ReceivedDatagram> {
    // Packet sockets refuse unknown flags.
    receive_with_flags(fd, into, libc::MSG_DONTWAIT)
}

/// The sender of the next message; does not wait.
pub(crate) fn peek_sender(fd: impl AsFd) -> io::Result<SockAddr> {
    Ok(receive_with_flags(fd, &mut [], libc::MSG_DONTWAIT | libc::MSG_PEEK)?.from)
}

fn receive_with_flags(fd: impl AsFd, into: &mut [u8], flags: c_int) -> io::Result<ReceivedDatagram> {
    let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    control.attach(&mut header);
    // SAFETY: the closure writes an address of the length it stores, or leaves storage and length as they are and
    // reports the failure; header, vector, control buffer and `into` live through the call.
    let (length, from) = unsafe {
        SockAddr::try_init(|storage, room| {
            header.msg_name = storage.cast();
            header.msg_namelen = *room;
            let length = to_count(libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags))?;
            *room = header.msg_namelen;
            Ok(length)
        })?
    };
    let v4 = control_value::<libc::in_pktinfo>(&header, libc::IPPROTO_IP, libc::IP_PKTINFO).map(|info| {
        let address = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
        (IpAddr::from(address), info.ipi_ifindex as u32)
    });
    let v6 = || {
        control_value::<libc::in6_pktinfo>(&header, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
            .map(|info| (IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)), info.ipi6_ifindex))
    };
    let arrived_wall_ns = stamps::received_wall_ns(&header);
    Ok(ReceivedDatagram { length, from, to: v4.or_else(v6), arrived_wall_ns })
}

/// Sends one datagram to `to`, from the local address `from` if one is given.
pub(crate) fn send_to(
    fd: impl AsFd,
    bytes: &[u8],
    to: &SockAddr,
    from: Option<IpAddr>,
    blocking: Blocking,
) -> Result<usize, Errno> {
    send_with_control(fd, bytes, to, blocking, |control, header| match from {
        None => {}
        Some(IpAddr::V4(address)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from(address).to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            control.attach_value(header, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(address)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: 0,
            };
            control.attach_value(header, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    })
}

/// Sends one datagram to `to`, with what `add` puts into its control buffer.
fn send_with_control(
    fd: impl AsFd,
    bytes: &[u8],
    to: &SockAddr,
    blocking: Blocking,
    add: impl FnOnce(&mut ControlBuffer, &mut libc::msghdr),
) -> Result<usize, Errno> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer::new();
    let mut header = empty_header();
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    add(&mut control, &mut header);
    // SAFETY: header, address, vector, control buffer and bytes live through the call, which only reads them.
    to_count(unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const header, call_flags(blocking)) })
}
