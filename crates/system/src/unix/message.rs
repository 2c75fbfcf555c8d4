//! Messages that are sent and received with what the kernel says beside their bytes, one by one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};
use socket2::SockAddr;

use crate::message::{Blocking, DatagramInfo, IpFields, ReceivedDatagram};
use crate::platform::message::{NO_SIGNAL, TRAFFIC_CLASS_MESSAGE, TTL_MESSAGE, coalesced_bytes};
use crate::platform::stamps;
use crate::unix::raw::{
    ControlBuffer, call_flags, control_value, empty_header, receive_with_control, send_with_control, to_count,
};

/// Receives one datagram and the fields of its IP header.
pub fn receive_with_ip_fields(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, IpFields), Errno> {
    receive_with_control(fd, into, call_flags(blocking), |header| {
        let ttl = control_value::<c_int>(header, libc::IPPROTO_IP, TTL_MESSAGE)
            .or_else(|| control_value(header, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT));
        IpFields { ttl: ttl.and_then(|ttl| u8::try_from(ttl).ok()), traffic_class: traffic_class(header) }
    })
}

/// Traffic class of a received message, over IPv4 or IPv6.
fn traffic_class(header: &libc::msghdr) -> Option<u8> {
    let class_v6 = || control_value::<c_int>(header, libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
    control_value::<u8>(header, libc::IPPROTO_IP, TRAFFIC_CLASS_MESSAGE)
        .or_else(|| u8::try_from(class_v6()?).ok())
}

/// Receives one datagram, or several that the kernel coalesced.
pub fn receive_with_info(
    fd: impl AsFd,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, DatagramInfo), Errno> {
    receive_with_control(fd, into, call_flags(blocking), |header| DatagramInfo {
        segment_bytes: coalesced_bytes(header),
        traffic_class: traffic_class(header),
        arrived_wall_ns: stamps::received_wall_ns(header),
    })
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
    rustix::net::send(socket, bytes, blocking.send_flags() | NO_SIGNAL)
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
