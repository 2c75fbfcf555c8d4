//! The topology server of a node reports published names. This file has its formats, and waits for one name.

use std::io;
use std::time::Duration;

use socket2::Type;

use super::{ServiceName, TipcPort, open_socket, service_address};
use crate::link::Fault;
use linkgauge_model::units::format_duration;
use linkgauge_system::{self as system, Blocking, Errno};

/// Address of the server (`TIPC_TOP_SRV` of linux/tipc.h).
const TOPOLOGY_SERVICE: ServiceName = ServiceName { service_type: 1, instance: 1 };

/// Flag for one event for each socket that binds a name (`TIPC_SUB_PORTS`).
const TIPC_SUB_PORTS: u32 = 1;

const TIPC_PUBLISHED: u32 = 1;

/// Subscribes to one name, in the machine's byte order: the server replies in the same.
pub(crate) fn encode_subscription(name: ServiceName, milliseconds: u32) -> [u8; 28] {
    let words = [name.service_type, name.instance, name.instance, milliseconds, TIPC_SUB_PORTS, 0, 0];
    let mut bytes = [0; 28];
    for (at, word) in words.into_iter().enumerate() {
        bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The publishing socket of an event, or `Some(None)` for a timeout; `None` if it is not an event.
pub fn parse_event(bytes: &[u8]) -> Option<Option<TipcPort>> {
    let word = |at: usize| {
        bytes.get(4 * at..4 * at + 4).map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default()))
    };
    if bytes.len() != 48 {
        return None;
    }
    Some((word(0)? == TIPC_PUBLISHED).then_some(TipcPort { reference: word(3)?, node: word(4)? }))
}

/// Waits until a socket has published `name`, and returns that socket.
pub(crate) fn await_name(name: ServiceName, within: Duration) -> Result<TipcPort, Fault> {
    let server = open_socket(Type::SEQPACKET)?;
    server
        .connect(&service_address(TOPOLOGY_SERVICE))
        .map_err(Fault::system("connect to the topology server"))?;
    let milliseconds = u32::try_from(within.as_millis()).unwrap_or(u32::MAX - 1);
    server.send(&encode_subscription(name, milliseconds)).map_err(Fault::system("subscribe for a name"))?;
    // The server reports the timeout; this limit is for a server that does not.
    let max_wait = within.saturating_add(Duration::from_secs(1));
    server.set_read_timeout(Some(max_wait)).map_err(Fault::system("set a timeout"))?;
    let mut buffer = [0; 64];
    let event = match system::receive(&server, &mut buffer, Blocking::Allowed) {
        Ok(length) => parse_event(&buffer[..length]).flatten(),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(errno) => return Err(Fault::system("wait for a name")(io::Error::from(errno))),
    };
    event.ok_or_else(|| name_timeout_fault(name, within))
}

fn name_timeout_fault(name: ServiceName, within: Duration) -> Fault {
    let remedy = match super::limitation() {
        Some(limit) => format!(" If it is on another machine: {}: {}", limit.reason, limit.remedy),
        None => " 'tipc link list' shows the reachable nodes".to_owned(),
    };
    let within = format_duration(within);
    Fault::NoReply(format!(
        "the name {name} did not appear within {within}: check that its server runs.{remedy}"
    ))
}

/// The node's number; 0 while it has no bearer and no identity.
pub fn own_node() -> Option<u32> {
    let unbound = open_socket(Type::SEQPACKET).ok()?;
    Some(TipcPort::from_address(&unbound.local_addr().ok()?)?.node)
}

/// `TIPC_CONN_TIMEOUT` is in milliseconds.
pub(crate) fn set_connect_timeout(socket: &socket2::Socket, within: Duration) -> Result<(), Fault> {
    let milliseconds = u32::try_from(within.as_millis()).unwrap_or(u32::MAX).max(1);
    system::set_tipc_option(socket, 130, milliseconds).map_err(Fault::system("set the connect timeout"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn asks_for_a_name() {
        let subscription = encode_subscription(ServiceName { service_type: 18888, instance: 17 }, 3000);
        assert_eq!(subscription.to_vec(), words(&[18888, 17, 17, 3000, 1, 0, 0]));
    }

    #[test]
    fn understands_events() {
        let event = |kind| {
            let subscription = words(&[16666, 0, 0, 3000, 1, 0, 0]);
            [words(&[kind, 0, 0, 0xe1bd_3d43, 0x6e31_0000]), subscription].concat()
        };
        let port = TipcPort { node: 0x6e31_0000, reference: 0xe1bd_3d43 };
        assert_eq!(parse_event(&event(1)), Some(Some(port)));
        assert_eq!(parse_event(&event(3)), Some(None));
        assert_eq!(parse_event(&event(1)[..47]), None);
    }
}
