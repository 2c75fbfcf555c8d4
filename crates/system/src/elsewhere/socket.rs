//! State of sockets that only Linux reports, and options that only it has.

use std::io;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::ip_family::IpFamily;
use crate::message::HangUp;
use crate::{AsHandle, Errno, PollFlags, peek, poll, socket_of, watch};

/// The path MTU of a connected socket, which this system does not tell.
pub fn path_mtu(_: impl AsHandle) -> Option<u32> {
    None
}

/// The process at the other end of a Unix socket, which this system does not tell.
pub fn remote_process(_: impl AsHandle) -> Option<i32> {
    None
}

/// Datagrams that the socket has dropped, which this system counts for the whole host only.
pub fn socket_drops(_: impl AsHandle) -> Option<u64> {
    None
}

/// The memory of a socket, which this system does not tell.
pub fn socket_memory(_: impl AsHandle) -> Option<[u32; 9]> {
    None
}

/// Lets the kernel coalesce datagrams, which this system does not do.
///
/// # Errors
///
/// Unless it is off.
pub fn set_udp_coalescing(_: impl AsHandle, on: bool) -> io::Result<()> {
    if on { Err(Errno::NOPROTOOPT.into()) } else { Ok(()) }
}

/// Keeps messages to other programs out of the buffer of a raw socket, which this system does not do: they are skipped when read.
///
/// # Errors
///
/// None.
pub fn keep_icmp_replies(_: &Socket, _family: IpFamily, _reply: u8, _identifier: u16) -> io::Result<()> {
    Ok(())
}

fn no_option<T>() -> io::Result<T> {
    Err(Errno::NOPROTOOPT.into())
}

/// Whether the remote has ended its output, or the connection has ended.
pub fn hang_up(socket: impl AsHandle) -> Option<HangUp> {
    let socket = socket.as_handle();
    let mut watched = [watch(&socket, PollFlags::IN)];
    poll(&mut watched, Duration::ZERO).ok()?;
    let events = watched[0].revents();
    let is_stream =
        socket_of(&socket).is_some_and(|socket| socket.r#type().is_ok_and(|kind| kind == Type::STREAM));
    let has_ended = || is_stream && events.contains(PollFlags::IN) && matches!(peek(socket, &mut [0]), Ok(0));
    let is_over = events.intersects(PollFlags::HUP | PollFlags::ERR) || has_ended();
    is_over.then(|| HangUp { has_error: events.contains(PollFlags::ERR) })
}

/// The family of a socket.
pub fn socket_domain(socket: &Socket) -> Option<Domain> {
    socket.local_addr().ok().map(|address: SockAddr| address.domain())
}

/// The protocol of a socket that has an address.
pub fn socket_protocol(socket: &Socket) -> Option<Protocol> {
    let is_internet = [Some(Domain::IPV4), Some(Domain::IPV6)].contains(&socket_domain(socket));
    match socket.r#type() {
        Ok(Type::STREAM) if is_internet => Some(Protocol::TCP),
        Ok(Type::DGRAM) if is_internet => Some(Protocol::UDP),
        _ => None,
    }
}

/// Acknowledges at once, for which this system has no option.
///
/// # Errors
///
/// Always.
pub fn set_quick_ack(_: impl AsHandle, _on: bool) -> io::Result<()> {
    no_option()
}

/// Limits the bytes that a TCP socket holds unsent, for which this system has no option.
///
/// # Errors
///
/// Always.
pub fn set_unsent_limit(_: impl AsHandle, _bytes: u32) -> io::Result<()> {
    no_option()
}

/// The limit of the bytes that a TCP socket holds unsent.
pub fn unsent_limit(_: impl AsHandle) -> Option<u32> {
    None
}

/// Binds a socket to a network device, for which this system has no option.
///
/// # Errors
///
/// Always.
pub fn bind_to_device(_: &Socket, _device: &str) -> io::Result<()> {
    no_option()
}

/// The network device that a socket is bound to.
pub fn bound_device(_: &Socket) -> Option<String> {
    None
}

/// Sets the priority of what a socket sends, for which this system has no option.
///
/// # Errors
///
/// Always.
pub fn set_priority(_: &Socket, _priority: u32) -> io::Result<()> {
    no_option()
}

/// The priority of what a socket sends.
pub fn priority(_: &Socket) -> Option<u32> {
    None
}

/// The name of a Unix address outside of the file system, which this system does not have.
pub fn abstract_name(_address: &SockAddr) -> Option<&[u8]> {
    None
}
