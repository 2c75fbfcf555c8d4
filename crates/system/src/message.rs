//! What calls with messages take and return.

use std::net::IpAddr;

use socket2::SockAddr;

/// Whether a system call may wait until the socket is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// The call may wait up to the timeout of the socket.
    Allowed,
    /// The call returns at once.
    Never,
}

/// Fields of the IP header of a datagram, as far as the system reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpFields {
    /// TTL (hop limit) on arrival, if `set_receive_ttl` has had an effect.
    pub ttl: Option<u8>,
    /// Traffic class, if `set_receive_traffic_class` has had an effect.
    pub traffic_class: Option<u8>,
}

/// Maximum number of messages that `send_many` and `receive_many` move in one system call.
pub const MAX_CALL_MESSAGES: usize = 64;

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

/// The end of a connection, as its socket reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HangUp {
    /// An error has ended it, which a call will return.
    pub has_error: bool,
}
