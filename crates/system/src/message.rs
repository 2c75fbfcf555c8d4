//! Messages that are sent and received with what the kernel says beside their bytes, one by one and many in a call.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, recvmsg};
use socket2::SockAddr;

use crate::raw::{
    Blocking, ControlBuffer, call_flags, control_value, empty_header, receive_with_control,
    send_with_control, to_count,
};
use crate::stamps;

/// Fields of the IP header of a datagram, as far as the system reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpFields {
    /// TTL (hop limit) on arrival, if `set_receive_ttl` has had an effect.
    pub ttl: Option<u8>,
    /// Traffic class, if `set_receive_traffic_class` has had an effect.
    pub traffic_class: Option<u8>,
}

/// Receives one datagram and the fields of its IP header.
pub fn receive_with_ip_fields(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, IpFields), Errno> {
    receive_with_control(fd, into, blocking, |header| {
        let ttl = control_value::<c_int>(header, libc::IPPROTO_IP, libc::IP_TTL)
            .or_else(|| control_value(header, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT));
        IpFields { ttl: ttl.and_then(|ttl| u8::try_from(ttl).ok()), traffic_class: traffic_class(header) }
    })
}

/// Traffic class of a received message, over IPv4 or IPv6.
fn traffic_class(header: &libc::msghdr) -> Option<u8> {
    let class_v6 = || control_value::<c_int>(header, libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
    control_value::<u8>(header, libc::IPPROTO_IP, libc::IP_TOS).or_else(|| u8::try_from(class_v6()?).ok())
}

/// Sends `bytes` as datagrams of `segment` bytes (the last may be shorter), segmented by the kernel or the
/// card (`UDP_SEGMENT`).
pub fn send_segments(fd: impl AsFd, bytes: &[u8], segment: u16, blocking: Blocking) -> Result<usize, Errno> {
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
pub const MAX_CALL_MESSAGES: usize = 64;

/// Sends messages of `message` bytes stored back to back as separate datagrams (`sendmmsg`). Returns the
/// number sent.
pub fn send_many(fd: impl AsFd, bytes: &[u8], message: usize, blocking: Blocking) -> Result<usize, Errno> {
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

/// Report of the kernel about a datagram, beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct DatagramInfo {
    /// Size of each datagram but the last, if the kernel coalesced several.
    pub segment_bytes: Option<usize>,
    /// Traffic class, if `set_receive_traffic_class` has had an effect. Coalesced datagrams have the same.
    pub traffic_class: Option<u8>,
    /// Time when the device passed the datagram to the kernel, in nanoseconds of the time of day, if the socket has stamps.
    pub arrived_wall_ns: Option<i64>,
}

/// Receives one datagram, or several that the kernel coalesced.
pub fn receive_with_info(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, DatagramInfo), Errno> {
    receive_with_control(fd, into, blocking, |header| {
        let segment = control_value::<c_int>(header, libc::SOL_UDP, libc::UDP_GRO);
        DatagramInfo {
            segment_bytes: segment.and_then(|bytes| usize::try_from(bytes).ok()).filter(|&bytes| bytes > 0),
            traffic_class: traffic_class(header),
            arrived_wall_ns: stamps::received_wall_ns(header),
        }
    })
}

/// Receives at least one message and all others that are ready (`recvmmsg`) into slots of `slot` bytes. Calls
/// `each` with the start and the length of a message. Returns the number received.
pub fn receive_many(
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
pub struct ReceivedDatagram {
    /// Bytes of the datagram.
    pub length: usize,
    /// The address of the sender.
    pub from: SockAddr,
    /// The local destination address, and the number of the interface.
    pub to: Option<(IpAddr, u32)>,
    /// Time when the device passed the datagram to the kernel, in nanoseconds of the time of day, if the socket has stamps.
    pub arrived_wall_ns: Option<i64>,
}

/// Receives one datagram and its addresses.
pub fn receive_from(fd: impl AsFd, into: &mut [u8], blocking: Blocking) -> io::Result<ReceivedDatagram> {
    receive_with_flags(fd, into, call_flags(blocking))
}

/// A frame from a packet socket; does not wait.
pub fn receive_frame(fd: impl AsFd, into: &mut [u8]) -> io::Result<ReceivedDatagram> {
    // Packet sockets refuse unknown flags.
    receive_with_flags(fd, into, libc::MSG_DONTWAIT)
}

/// The sender of the next message; does not wait.
pub fn peek_sender(fd: impl AsFd) -> io::Result<SockAddr> {
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
pub fn send_to(
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

/// Sends one message, or bytes of a stream. A closed connection is an error, and no signal.
#[inline]
pub fn send(socket: impl AsFd, bytes: &[u8], blocking: Blocking) -> Result<usize, Errno> {
    rustix::net::send(socket, bytes, blocking.send_flags() | SendFlags::NOSIGNAL)
}

/// Receives one message, or bytes of a stream.
#[inline]
pub fn receive(socket: impl AsFd, into: &mut [u8], blocking: Blocking) -> Result<usize, Errno> {
    rustix::net::recv(socket, into, blocking.receive_flags()).map(|(length, _)| length)
}

/// Bytes that wait to be received, as far as there is room for them; does not wait.
pub fn peek(socket: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, into, RecvFlags::PEEK | RecvFlags::DONTWAIT).map(|(length, _)| length)
}

/// Receives a part of a message, and whether it is the last.
#[inline]
pub fn receive_part(socket: impl AsFd, into: &mut [u8], blocking: Blocking) -> Result<(usize, bool), Errno> {
    let (parts, mut control) = (&mut [io::IoSliceMut::new(into)], RecvAncillaryBuffer::default());
    let received = recvmsg(socket, parts, &mut control, blocking.receive_flags())?;
    Ok((received.bytes, received.flags.contains(ReturnFlags::EOR)))
}
