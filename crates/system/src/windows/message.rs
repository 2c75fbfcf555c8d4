//! Messages that are sent and received with what the system says beside their bytes, one by one.
//!
//! The calls of this system have no flag for "do not wait". Sockets that these functions get are non-blocking (`prepare_socket`), and a
//! call that may wait does so by waiting until the socket is ready.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use socket2::{SockAddr, Socket};
use windows_sys::Win32::Networking::WinSock::{
    IN_ADDR, IN_ADDR_0, IN_PKTINFO, IN6_ADDR, IN6_ADDR_0, IN6_PKTINFO, IP_PKTINFO, IP_TOS, IP_TTL,
    IPPROTO_IP, IPPROTO_IPV6, IPV6_HOPLIMIT, IPV6_PKTINFO, IPV6_TCLASS, MSG_PEEK, SIO_UDP_CONNRESET,
    SO_RCVTIMEO, SO_SNDTIMEO, SO_TYPE, SOCK_DGRAM, SOL_SOCKET, WSABUF, WSAIoctl, WSAMSG, WSASendMsg, recv,
};

use super::error::Errno;
use super::handle::{AsHandle, raw_socket};
use super::poll_flags::PollFlags;
use super::raw::{ControlBuffer, get_option, receive_function, set_option};
use super::ready::{poll, watch};
use crate::message::{Blocking, DatagramInfo, IpFields, ReceivedDatagram};

/// Prepares a socket for the functions of this crate.
///
/// # Errors
///
/// The system refuses.
pub fn prepare_socket(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)
}

/// Prepares a socket that receives from many. Otherwise it fails to receive because one of its clients has left.
///
/// # Errors
///
/// The system refuses.
pub fn prepare_server_socket(socket: &Socket) -> io::Result<()> {
    prepare_socket(socket)?;
    let (off, mut length) = (0u32, 0);
    // SAFETY: the call reads one number.
    unsafe {
        WSAIoctl(
            raw_socket(socket),
            SIO_UDP_CONNRESET,
            (&raw const off).cast(),
            4,
            std::ptr::null_mut(),
            0,
            &mut length,
            std::ptr::null_mut(),
            None,
        )
    };
    Ok(())
}

/// Which timeout of a socket limits a wait, and what to wait for.
#[derive(Clone, Copy)]
enum Traffic {
    In,
    Out,
}

/// Calls `operation`, and again once the socket is ready, if the call may wait.
#[inline]
fn attempt<T>(
    socket: &impl AsHandle,
    way: Traffic,
    blocking: Blocking,
    mut operation: impl FnMut(usize) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let raw = raw_socket(socket);
    loop {
        match operation(raw) {
            Err(Errno::AGAIN) if blocking == Blocking::Allowed => wait(socket, way)?,
            Err(Errno::CONNRESET) => return Err(reset(socket)),
            done => return done,
        }
    }
}

/// Waits until the socket is ready, as long as its timeout says.
fn wait(socket: &impl AsHandle, way: Traffic) -> Result<(), Errno> {
    let (flags, option) = match way {
        Traffic::In => (PollFlags::IN, SO_RCVTIMEO),
        Traffic::Out => (PollFlags::OUT, SO_SNDTIMEO),
    };
    let within = match get_option(socket, SOL_SOCKET, option) {
        None | Some(0) => Duration::MAX,
        Some(millis) => Duration::from_millis(u64::from(millis.cast_unsigned())),
    };
    match poll(&mut [watch(socket, flags)], within)? {
        0 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

/// The reason of a reset: for datagrams, that no program has the port.
#[cold]
fn reset(socket: &impl AsHandle) -> Errno {
    match get_option(socket, SOL_SOCKET, SO_TYPE) {
        Some(SOCK_DGRAM) => Errno::CONNREFUSED,
        _ => Errno::CONNRESET,
    }
}

/// The length of a part of a call.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// Sends one message, or bytes of a stream.
#[inline]
pub fn send(socket: impl AsHandle, bytes: &[u8], blocking: Blocking) -> Result<usize, Errno> {
    attempt(&socket, Traffic::Out, blocking, |raw| {
        // SAFETY: `bytes` is valid for reads of the stated length.
        let sent = unsafe {
            windows_sys::Win32::Networking::WinSock::send(raw, bytes.as_ptr(), length(bytes.len()), 0)
        };
        usize::try_from(sent).map_err(|_| Errno::last())
    })
}

/// Receives one message, of which the end is lost where `into` is shorter, or bytes of a stream.
#[inline]
pub fn receive(socket: impl AsHandle, into: &mut [u8], blocking: Blocking) -> Result<usize, Errno> {
    attempt(&socket, Traffic::In, blocking, |raw| receive_raw(raw, into, 0))
}

/// Bytes that wait to be received, as far as there is room for them; does not wait.
pub fn peek(socket: impl AsHandle, into: &mut [u8]) -> Result<usize, Errno> {
    attempt(&socket, Traffic::In, Blocking::Never, |raw| receive_raw(raw, into, MSG_PEEK))
}

#[inline]
fn receive_raw(raw: usize, into: &mut [u8], flags: i32) -> Result<usize, Errno> {
    // SAFETY: `into` is valid for writes of the stated length.
    let received = unsafe { recv(raw, into.as_mut_ptr(), length(into.len()), flags) };
    usize::try_from(received).map_err(|_| Errno::last()).or_else(|errno| whole(errno, into.len()))
}

/// A message that is longer than its room fills it.
fn whole(errno: Errno, room: usize) -> Result<usize, Errno> {
    if errno == Errno::MSGSIZE { Ok(room) } else { Err(errno) }
}

/// Receives a part of a message, and whether it is the last.
#[inline]
pub fn receive_part(
    socket: impl AsHandle,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, bool), Errno> {
    receive(socket, into, blocking).map(|length| (length, true))
}

/// Receives one datagram, its sender, and the value that `read` finds in its control messages.
fn receive_with_control<T>(
    socket: &impl AsHandle,
    into: &mut [u8],
    flags: u32,
    blocking: Blocking,
    read: impl Fn(&ControlBuffer, &WSAMSG) -> T,
) -> Result<(usize, SockAddr, T), Errno> {
    let function = receive_function(socket)?.ok_or(Errno::OPNOTSUPP)?;
    attempt(socket, Traffic::In, blocking, |raw| {
        let mut part = WSABUF { len: length(into.len()) as u32, buf: into.as_mut_ptr() };
        let mut control = ControlBuffer::new();
        let mut value = None;
        // SAFETY: the closure writes an address of the length it stores, or reports a failure; message, part, control buffer and `into`
        // live through the call and are borrowed for writing.
        let received = unsafe {
            SockAddr::try_init(|storage, room| {
                let mut message = WSAMSG {
                    name: storage.cast(),
                    namelen: *room,
                    lpBuffers: &mut part,
                    dwBufferCount: 1,
                    Control: control.room(),
                    dwFlags: flags,
                };
                let mut length = 0;
                let result = function(raw, &mut message, &mut length, std::ptr::null_mut(), None);
                if result != 0 {
                    let errno = Errno::last();
                    if errno != Errno::MSGSIZE {
                        return Err(errno.into());
                    }
                    length = part.len;
                }
                *room = message.namelen;
                value = Some(read(&control, &message));
                Ok(length as usize)
            })
        };
        let (length, from) = received.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok((length, from, value.ok_or(Errno::IO)?))
    })
}

/// Receives one datagram and the fields of its IP header.
pub fn receive_with_ip_fields(
    socket: impl AsHandle,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, IpFields), Errno> {
    let read = |control: &ControlBuffer, message: &WSAMSG| {
        let ttl = control.value::<i32>(message, IPPROTO_IP, IP_TTL);
        let ttl = ttl.or_else(|| control.value(message, IPPROTO_IPV6, IPV6_HOPLIMIT));
        IpFields {
            ttl: ttl.and_then(|ttl| u8::try_from(ttl).ok()),
            traffic_class: traffic_class(control, message),
        }
    };
    receive_with_control(&socket, into, 0, blocking, read).map(|(length, _, fields)| (length, fields))
}

/// Traffic class of a received message, over IPv4 or IPv6.
fn traffic_class(control: &ControlBuffer, message: &WSAMSG) -> Option<u8> {
    let class = control.value::<i32>(message, IPPROTO_IP, IP_TOS);
    let class = class.or_else(|| control.value(message, IPPROTO_IPV6, IPV6_TCLASS));
    class.and_then(|class| u8::try_from(class).ok())
}

/// Receives one datagram.
pub fn receive_with_info(
    socket: impl AsHandle,
    into: &mut [u8],
    blocking: Blocking,
) -> Result<(usize, DatagramInfo), Errno> {
    let read = |control: &ControlBuffer, message: &WSAMSG| DatagramInfo {
        segment_bytes: None,
        traffic_class: traffic_class(control, message),
        arrived_wall_ns: None,
    };
    receive_with_control(&socket, into, 0, blocking, read).map(|(length, _, info)| (length, info))
}

/// Receives one datagram and its addresses.
pub fn receive_from(
    socket: impl AsHandle,
    into: &mut [u8],
    blocking: Blocking,
) -> io::Result<ReceivedDatagram> {
    receive_with_flags(&socket, into, 0, blocking)
}

/// A frame from a packet socket, which this system does not have.
///
/// # Errors
///
/// Always.
pub fn receive_frame(_: impl AsHandle, _into: &mut [u8]) -> io::Result<ReceivedDatagram> {
    Err(Errno::AFNOSUPPORT.into())
}

/// The sender of the next message; does not wait.
pub fn peek_sender(socket: impl AsHandle) -> io::Result<SockAddr> {
    Ok(receive_with_flags(&socket, &mut [0], MSG_PEEK as u32, Blocking::Never)?.from)
}

fn receive_with_flags(
    socket: &impl AsHandle,
    into: &mut [u8],
    flags: u32,
    blocking: Blocking,
) -> io::Result<ReceivedDatagram> {
    let read = |control: &ControlBuffer, message: &WSAMSG| {
        let v4 = control.value::<IN_PKTINFO>(message, IPPROTO_IP, IP_PKTINFO).map(|info| {
            // SAFETY: every field of the union is an integer of the same size.
            let address = Ipv4Addr::from(u32::from_be(unsafe { info.ipi_addr.S_un.S_addr }));
            (IpAddr::from(address), info.ipi_ifindex)
        });
        let v6 = || {
            control.value::<IN6_PKTINFO>(message, IPPROTO_IPV6, IPV6_PKTINFO).map(|info| {
                // SAFETY: every field of the union has the same bytes.
                let address = Ipv6Addr::from(unsafe { info.ipi6_addr.u.Byte });
                (IpAddr::from(address), info.ipi6_ifindex)
            })
        };
        v4.or_else(v6)
    };
    let (length, from, to) = receive_with_control(socket, into, flags, blocking, read)?;
    Ok(ReceivedDatagram { length, from, to, arrived_wall_ns: None })
}

/// Sends one datagram to `to`, from the local address `from` if one is given.
pub fn send_to(
    socket: impl AsHandle,
    bytes: &[u8],
    to: &SockAddr,
    from: Option<IpAddr>,
    blocking: Blocking,
) -> Result<usize, Errno> {
    let mut control = ControlBuffer::new();
    let control = match from {
        None => WSABUF { len: 0, buf: std::ptr::null_mut() },
        Some(IpAddr::V4(address)) => {
            let address = IN_ADDR { S_un: IN_ADDR_0 { S_addr: u32::from(address).to_be() } };
            control.with_value(IPPROTO_IP, IP_PKTINFO, IN_PKTINFO { ipi_addr: address, ipi_ifindex: 0 })
        }
        Some(IpAddr::V6(address)) => {
            let address = IN6_ADDR { u: IN6_ADDR_0 { Byte: address.octets() } };
            control.with_value(
                IPPROTO_IPV6,
                IPV6_PKTINFO,
                IN6_PKTINFO { ipi6_addr: address, ipi6_ifindex: 0 },
            )
        }
    };
    let mut part = WSABUF { len: length(bytes.len()) as u32, buf: bytes.as_ptr().cast_mut() };
    let message = WSAMSG {
        name: to.as_ptr().cast_mut().cast(),
        namelen: to.len(),
        lpBuffers: &mut part,
        dwBufferCount: 1,
        Control: control,
        dwFlags: 0,
    };
    attempt(&socket, Traffic::Out, blocking, |raw| {
        let mut sent = 0;
        // SAFETY: message, address, part, control buffer and bytes live through the call, which only reads them.
        let result = unsafe { WSASendMsg(raw, &message, 0, &mut sent, std::ptr::null_mut(), None) };
        if result == 0 { Ok(sent as usize) } else { Err(Errno::last()) }
    })
}

/// Requests the local destination address of each datagram.
pub fn set_receive_destination(socket: impl AsHandle, family: crate::IpFamily) -> io::Result<()> {
    match family {
        crate::IpFamily::V4 => set_option(&socket, IPPROTO_IP, IP_PKTINFO, 1),
        crate::IpFamily::V6 => set_option(&socket, IPPROTO_IPV6, IPV6_PKTINFO, 1),
    }
}
