//! The interfaces of this host, as they were read lately: a monitor opens a thousand links at once, and each would read the same
//! dozens of files for its facts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::Socket;

use super::Facts;
use crate::host::interfaces;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_system as system;

/// Maximum age of readings that are used.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The latest readings.
struct InterfaceReadings {
    /// Time at which the addresses were read; the facts are not older.
    read_at: Option<Time>,
    /// Interfaces and their addresses.
    addresses: Vec<(String, IpAddr)>,
    /// Facts by the name of the interface.
    facts: BTreeMap<String, Facts>,
}

static READINGS: Mutex<InterfaceReadings> =
    Mutex::new(InterfaceReadings { read_at: None, addresses: Vec::new(), facts: BTreeMap::new() });

/// Whether an address belongs to this host.
pub(crate) fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || system::interface_addresses().iter().any(|(_, own)| *own == address)
}

/// The facts of the interface through which this host reaches `remote` from its address `local`, with its offloads; at most a second
/// old. It is read through any socket.
pub fn recent_facts(socket: &Socket, local: IpAddr, remote: IpAddr) -> Option<Facts> {
    let mut readings = READINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Clock::System.now();
    if readings.read_at.is_none_or(|read_at| now.since(read_at) > MAX_AGE) {
        *readings = InterfaceReadings {
            read_at: Some(now),
            addresses: system::interface_addresses(),
            facts: BTreeMap::new(),
        };
    }
    let name = interface_between(&readings.addresses, local, remote)?.to_owned();
    Some(readings.facts.entry(name).or_insert_with_key(|name| with_offloads(socket, name)).clone())
}

/// The interface of an own address. It is the loopback interface if both ends are on this host, whatever their addresses.
pub fn interface_between(own: &[(String, IpAddr)], local: IpAddr, remote: IpAddr) -> Option<&str> {
    let of = |wanted: IpAddr| own.iter().find(|(_, address)| *address == wanted);
    let entry = match of(remote) {
        Some(_) => own.iter().find(|(_, address)| address.is_loopback()),
        None => of(local),
    };
    entry.map(|(name, _)| name.as_str())
}

fn with_offloads(socket: &Socket, name: &str) -> Facts {
    let mut facts = interface_facts(socket, name);
    facts.insert("offloads".to_owned(), system::enabled_offloads(socket, name).into());
    facts.insert("time_stamps".to_owned(), system::stamp_sources(socket, name).into());
    facts
}

/// Facts about an interface, read through any socket: also its interrupt delay.
pub fn interface_facts(socket: &Socket, name: &str) -> Facts {
    let mut facts = interfaces::facts(name);
    // Known also where /sys shows another network namespace.
    if let Ok(device) = system::find_device(socket, name) {
        facts.insert("mtu_bytes".to_owned(), device.mtu.into());
    }
    if let Some(coalescing) = system::interrupt_coalescing(socket, name) {
        facts.insert("interrupt_delay_us".to_owned(), coalescing.receive_us.into());
        facts.insert("interrupt_delay_adaptive".to_owned(), coalescing.is_adaptive.into());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_on_this_host_use_the_loopback_interface() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = [("lo".to_owned(), ip("127.0.0.1")), ("eth0".to_owned(), ip("192.0.2.7"))];
        let between = |local, remote| interface_between(&own, ip(local), ip(remote));
        assert_eq!(between("192.0.2.7", "192.0.2.9"), Some("eth0"));
        assert_eq!(between("192.0.2.7", "192.0.2.7"), Some("lo"));
        assert_eq!(between("192.0.2.8", "192.0.2.9"), None);
    }

    #[test]
    fn recent_facts_are_those_of_the_interface() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let facts = recent_facts(&socket, loopback, loopback).unwrap();
        assert_eq!(facts.get("kind"), Some(&"loopback".into()));
        assert_eq!(recent_facts(&socket, loopback, loopback), Some(facts), "read once");
    }
}
