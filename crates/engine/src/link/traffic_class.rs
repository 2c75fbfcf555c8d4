//! The traffic class of IP: DSCP and ECN.

use std::net::IpAddr;

use socket2::Socket;

use super::Fault;
use linkgauge_system::set_traffic_class_v6;

/// Sets DSCP and ECN of sent packets, which are parts of one field, on a socket of the family of `address`.
pub(crate) fn set_traffic_class(socket: &Socket, address: IpAddr, class: u8) -> Result<(), Fault> {
    if address.is_ipv6() {
        set_traffic_class_v6(socket, class).map_err(Fault::system("set the traffic class"))?;
    }
    // An IPv6 socket may also serve mapped IPv4 addresses.
    match socket.set_tos_v4(class.into()) {
        Err(error) if address.is_ipv4() => {
            Err(Fault::System { operation: "set the type of service", source: error })
        }
        _ => Ok(()),
    }
}
