//! The types of control messages.

use libc::c_int;
use rustix::net::SendFlags;

/// The type of a control message with a TTL.
pub(crate) const TTL_MESSAGE: c_int = libc::IP_RECVTTL;

/// The type of a control message with a traffic class.
pub(crate) const TRAFFIC_CLASS_MESSAGE: c_int = libc::IP_RECVTOS;

/// A closed connection is an error, and no signal, because programs in Rust ignore that signal.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Size of each datagram but the last, if the kernel coalesced several, which this system does not do.
pub(crate) fn coalesced_bytes(_header: &libc::msghdr) -> Option<usize> {
    None
}
