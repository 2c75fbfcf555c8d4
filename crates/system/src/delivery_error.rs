//! Errors of messages that were not delivered, as the network or this host reports them.

use std::net::IpAddr;

use rustix::io::Errno;

use crate::ip_family::IpFamily;

#[cfg(not(target_os = "linux"))]
mod absent;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use absent::*;
#[cfg(target_os = "linux")]
pub use linux::*;

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

impl DeliveryError {
    /// The path does not carry a packet of that size whole.
    pub fn is_too_big(&self) -> bool {
        matches!(
            (self.family, self.icmp_type_code),
            (IpFamily::V4, Some((3, 4))) | (IpFamily::V6, Some((2, _)))
        )
    }
}
