//! IPv4 and IPv6, where the kernel or a protocol treats them differently.

use std::net::IpAddr;

use socket2::Domain;

/// A version of the Internet Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// The family of an address.
    pub fn of_address(address: IpAddr) -> IpFamily {
        if address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 }
    }

    /// `None` for other families.
    pub fn of_domain(domain: Domain) -> Option<IpFamily> {
        match domain {
            Domain::IPV4 => Some(IpFamily::V4),
            Domain::IPV6 => Some(IpFamily::V6),
            _ => None,
        }
    }

    /// Family of a host as typed: a name counts as IPv4.
    pub fn of_host(host: &str) -> IpFamily {
        if host.contains(':') { IpFamily::V6 } else { IpFamily::V4 }
    }

    /// "IPv4" or "IPv6".
    pub fn name(self) -> &'static str {
        match self {
            IpFamily::V4 => "IPv4",
            IpFamily::V6 => "IPv6",
        }
    }
}
