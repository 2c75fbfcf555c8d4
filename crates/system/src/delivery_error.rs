//! Errors of messages that were not delivered, as the network or this host reports them.

use std::net::IpAddr;

use crate::Errno;
use crate::ip_family::IpFamily;

/// An error for a sent message, from the network (ICMP) or from this system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryError {
    /// The protocol of the record.
    pub family: IpFamily,
    /// Type and code of the ICMP message; `None` for an error of this system.
    pub icmp_type_code: Option<(u8, u8)>,
    /// The system's reason.
    pub errno: Errno,
    /// The host that reported the error.
    pub from: Option<IpAddr>,
}

/// An error with the part of the message that its reporter quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotedError {
    /// The error.
    pub error: DeliveryError,
    /// The MTU that the reporter states, if the message was too big.
    pub mtu_bytes: Option<u32>,
    /// Bytes of the quoted message: its payload over UDP, its ICMP message over ICMP, as far as the reporter quoted them.
    pub quoted_bytes: usize,
    /// Arrival time of the error, in nanoseconds of the time of day, if the socket has stamps.
    pub arrived_wall_ns: Option<i64>,
}

impl DeliveryError {
    /// The path does not carry a packet of that size whole.
    pub fn is_too_big(&self) -> bool {
        matches!(
            (self.family, self.icmp_type_code),
            (IpFamily::V4, Some((3, 4))) | (IpFamily::V6, Some((2, _)))
        )
    }
}
