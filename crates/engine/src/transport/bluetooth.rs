//! Shared code of the Bluetooth links: addresses, adapters, errors of system calls. Data passes only kernel
//! sockets, no daemon.
//!
//! Pairing is done once by the user with `bluetoothctl`.

use std::fmt;
use std::io;
use std::str::FromStr;

use socket2::{SockAddr, Socket, Type};

use crate::host::radio::{self, RadioBlock};
use crate::link::{Facts, Fault, Limitation};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_system::{self as system, Errno, MISSING_KEY};

pub mod hci;

/// Protocols of the family, from the kernel's bluetooth.h.
#[derive(Clone, Copy)]
pub(crate) enum BluetoothProtocol {
    L2cap = 0,
    Hci = 1,
    Rfcomm = 3,
}

/// A device's address, in the order in which it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BluetoothAddress([u8; 6]);

/// Address that stands for every adapter of this host.
pub(crate) const ANY_ADDRESS: BluetoothAddress = BluetoothAddress([0; 6]);

impl BluetoothAddress {
    /// Converts to the kernel's order.
    pub(crate) fn to_kernel_order(self) -> [u8; 6] {
        BluetoothAddress::reversed(self.0).0
    }

    /// Converts from or to the kernel's order, which is reversed.
    fn reversed(bytes: [u8; 6]) -> BluetoothAddress {
        let mut bytes = bytes;
        bytes.reverse();
        BluetoothAddress(bytes)
    }
}

impl FromStr for BluetoothAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<BluetoothAddress, ()> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+')).ok_or(())?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| ())?;
        }
        if parts.next().is_none() { Ok(BluetoothAddress(bytes)) } else { Err(()) }
    }
}

impl fmt::Display for BluetoothAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

/// Parses the device `AA:BB:CC:DD:EE:FF`, or `any` for every adapter of this host.
pub(crate) fn parse_device(text: &str) -> Option<BluetoothAddress> {
    if text == "any" { Some(ANY_ADDRESS) } else { text.parse().ok() }
}

/// Parses device and number of `AA:BB:CC:DD:EE:FF/1`.
pub(crate) fn parse_device_and_number(
    endpoint: &Endpoint,
    wanted: &'static str,
) -> Result<(BluetoothAddress, u16), EndpointError> {
    let parsed = || {
        let (text, number) = endpoint.address().split_once('/')?;
        Some((parse_device(text)?, number.parse().ok()?))
    };
    parsed().ok_or_else(|| EndpointError::BadAddress { url: endpoint.to_string(), wanted })
}

/// The meaning of the option `adapter`.
pub(crate) const ADAPTER_OPTION: (&str, &str) =
    ("adapter", "the adapter to connect from, by name or address, like hci1 (the kernel's choice)");

/// The adapter that the option names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdapterSelector {
    Address(BluetoothAddress),
    /// `hci1`
    Index(u16),
}

impl AdapterSelector {
    pub(crate) fn from_endpoint(endpoint: &Endpoint) -> Result<Option<AdapterSelector>, EndpointError> {
        endpoint.parse_option(ADAPTER_OPTION.0, "a name or an address, like hci0", |text| {
            match text.strip_prefix("hci") {
                Some(number) => number.parse().ok().map(AdapterSelector::Index),
                None => text.parse().ok().map(AdapterSelector::Address),
            }
        })
    }

    /// The address to bind to.
    pub(crate) fn address(self) -> Result<BluetoothAddress, Fault> {
        let number = match self {
            AdapterSelector::Address(address) => return Ok(address),
            AdapterSelector::Index(number) => number,
        };
        let found = list_adapters().into_iter().find(|found| found.number == number);
        found.map(|found| found.address).ok_or_else(|| {
            Fault::NotFound(format!("this host has no adapter hci{number}: {LIST_ADAPTERS_HINT}"))
        })
    }
}

/// An adapter of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalAdapter {
    /// The number of the adapter.
    pub(crate) number: u16,
    /// The address of the adapter.
    pub(crate) address: BluetoothAddress,
    /// The adapter is switched on.
    pub(crate) is_up: bool,
}

impl LocalAdapter {
    /// The name as in `hciconfig`: `hci0`.
    pub(crate) fn name(&self) -> String {
        format!("hci{}", self.number)
    }
}

/// The adapters of this host, as far as the kernel lists them.
pub(crate) fn list_adapters() -> Vec<LocalAdapter> {
    let Ok(control) = open_socket(BluetoothProtocol::Hci) else { return Vec::new() };
    let found = system::bluetooth_adapters(&control).unwrap_or_default().into_iter();
    found
        .map(|(number, address, is_up)| LocalAdapter {
            number,
            address: BluetoothAddress::reversed(address),
            is_up,
        })
        .collect()
}

/// A socket of this protocol.
pub(crate) fn open_socket(protocol: BluetoothProtocol) -> io::Result<Socket> {
    let kind = match protocol {
        BluetoothProtocol::L2cap => Type::SEQPACKET,
        BluetoothProtocol::Hci => Type::RAW,
        BluetoothProtocol::Rfcomm => Type::STREAM,
    };
    system::bluetooth_socket(kind, protocol as i32)
}

/// An address of the family; `before` and `after` are the bytes around the device address.
pub(crate) fn socket_address(before: &[u8], device: BluetoothAddress, after: &[u8]) -> SockAddr {
    system::bluetooth_address(&[before, &device.to_kernel_order(), after].concat())
}

/// `sockaddr_hci` of an adapter, for raw commands.
pub(crate) fn adapter_address(number: u16) -> SockAddr {
    system::bluetooth_address(&[number.to_ne_bytes(), [0; 2]].concat())
}

/// The device in such an address, `before` bytes after the family, and the bytes around it.
pub(crate) fn split_address(
    address: &SockAddr,
    before: usize,
) -> Option<(BluetoothAddress, Vec<u8>, Vec<u8>)> {
    let bytes = system::raw_bytes(address);
    let (before, rest) = bytes.get(2..)?.split_at_checked(before)?;
    let (device, after) = rest.split_first_chunk::<6>()?;
    Some((BluetoothAddress::reversed(*device), before.to_vec(), after.to_vec()))
}

/// Whether the address family exists. The error names the module of the protocol that carries the link.
pub(crate) fn available(protocol: BluetoothProtocol, module: &'static str) -> Result<(), Limitation> {
    open_socket(protocol).map(|_| ()).map_err(|error| {
        Limitation::from_socket_error(
            &error,
            "the kernel has no Bluetooth, or has not loaded it",
            format!("sudo modprobe {module}"),
        )
    })
}

/// The reason why this host cannot reach other devices, if there is one.
pub(crate) fn limitation() -> Option<Limitation> {
    let is_up: Vec<bool> = list_adapters().iter().map(|adapter| adapter.is_up).collect();
    limitation_from(&is_up, radio::bluetooth_block())
}

fn limitation_from(is_up: &[bool], block: Option<RadioBlock>) -> Option<Limitation> {
    let (reason, remedy) = match (is_up, block) {
        ([], None) => ("this host has no Bluetooth adapter", "plug one in"),
        (_, Some(RadioBlock::HardwareSwitch)) => {
            ("a switch of this machine blocks Bluetooth", HARDWARE_SWITCH_HINT)
        }
        (_, Some(RadioBlock::Software)) => ("Bluetooth is blocked", UNBLOCK_COMMAND),
        (is_up, None) if is_up.contains(&true) => return None,
        _ => ("the Bluetooth adapter is off", POWER_ON_COMMAND),
    };
    Some(Limitation { reason: reason.to_owned(), remedy: remedy.to_owned() })
}

const POWER_ON_COMMAND: &str = "bluetoothctl power on";
const LIST_ADAPTERS_HINT: &str = "'bluetoothctl list' and 'hciconfig' list the adapters";
const UNBLOCK_COMMAND: &str = "rfkill unblock bluetooth; bluetoothctl power on";
const HARDWARE_SWITCH_HINT: &str = "move the switch, or leave airplane mode";

/// The meaning of a failed system call, and a remedy. `number` is the number after the slash.
pub fn fault(operation: &'static str, number: &str, error: io::Error) -> Fault {
    fault_with_limitation(operation, number, error, limitation)
}

/// Fault of a failed system call, as of [`fault`]; `limit` is the reason why this host cannot reach other devices.
fn fault_with_limitation(
    operation: &'static str,
    number: &str,
    error: io::Error,
    limit: impl Fn() -> Option<Limitation>,
) -> Fault {
    let (kind, remedy): (fn(String) -> Fault, String) = match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => (
            Fault::Refused,
            format!("no server uses {number} there. Check that the server runs, and its number"),
        ),
        // TIMEDOUT: a connection that made no progress.
        Some(Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::TIMEDOUT) => match limit() {
            Some(limit) => (Fault::Unreachable, format!("{}: {}", limit.reason, limit.remedy)),
            None => (
                Fault::Unreachable,
                format!(
                    "the device does not reply. Check that it is on and in reach, and that the adapter is up ({POWER_ON_COMMAND})"
                ),
            ),
        },
        Some(Errno::ACCESS | Errno::PERM) if operation == "bind" => {
            (Fault::NotPermitted, format!("{number} is for root: use sudo, or a PSM of 4097 and above"))
        }
        // The pairing key is missing, perhaps only at one end.
        Some(Errno::ACCESS | Errno::PERM | Errno::CONNABORTED | MISSING_KEY) => (
            Fault::NotPermitted,
            "the device refuses, or this is not permitted: pair with it (bluetoothctl pair ADDRESS)"
                .to_owned(),
        ),
        Some(Errno::NODEV | Errno::ADDRNOTAVAIL) => {
            (Fault::NotFound, format!("this host has no such adapter: {LIST_ADAPTERS_HINT}"))
        }
        Some(Errno::BUSY | Errno::ADDRINUSE) => {
            (Fault::InUse, format!("{number} is in use: name another, or end the program that has it"))
        }
        _ => return Fault::System { operation, source: error },
    };
    kind(format!("{operation}: {remedy} ({error})"))
}

/// The endpoint with another number after its slash.
pub(crate) fn with_number(endpoint: &Endpoint, number: u16) -> Result<Endpoint, EndpointError> {
    let (device, _) = endpoint.address().split_once('/').unwrap_or((endpoint.address(), ""));
    let tail = endpoint.as_str().find('?').map_or("", |at| &endpoint.as_str()[at..]);
    format!("{}://{device}/{number}{tail}", endpoint.scheme()).parse()
}

/// Endpoints of this host that another of its adapters can reach.
pub(crate) fn loopback_urls(scheme: &str) -> Vec<String> {
    match list_adapters()[..] {
        [local, remote, ..] => vec![format!("{scheme}://{}/0?adapter=hci{}", remote.address, local.number)],
        _ => Vec::new(),
    }
}

/// Adds the addresses of both ends and facts about their connection. `text` formats an address of the
/// transport; the device address follows after `before` bytes. Returns the devices, the local one first.
pub fn facts(
    socket: &Socket,
    text: impl Fn(&SockAddr) -> Option<String>,
    before: usize,
    facts: &mut Facts,
) -> Option<[BluetoothAddress; 2]> {
    let ends = [socket.local_addr(), socket.peer_addr()].map(Result::ok);
    for (name, address) in ["local", "remote"].into_iter().zip(&ends) {
        facts.extend(address.as_ref().and_then(&text).map(|text| (name.to_owned(), text.into())));
    }
    let [local, remote] = ends.map(|end| Some(split_address(&end?, before)?.0));
    let (local, remote) = (local?, remote?);
    hci::connection_facts(local, remote, facts);
    Some([local, remote])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_reversed_for_the_kernel() {
        let device: BluetoothAddress = "00:aa:01:00:00:23".parse().unwrap();
        assert_eq!(device.to_string(), "00:AA:01:00:00:23");
        let address = socket_address(&[], device, &[5, 0]);
        assert_eq!(&system::raw_bytes(&address)[2..], &[0x23, 0, 0, 1, 0xaa, 0, 5, 0]);
        assert_eq!(split_address(&address, 0), Some((device, vec![], vec![5, 0])));
        for wrong in
            ["", "00:aa:01:00:00", "00:aa:01:00:00:2", "00:aa:01:00:00:23:1", "00:aa:01:00:00:+1", "any"]
        {
            assert!(wrong.parse::<BluetoothAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn limitations_come_with_a_remedy() {
        let reason_of = |is_up: &[bool], block| limitation_from(is_up, block).map(|limit| limit.reason);
        assert_eq!(reason_of(&[false, true], None), None);
        assert_eq!(reason_of(&[], None).unwrap(), "this host has no Bluetooth adapter");
        assert_eq!(reason_of(&[false], None).unwrap(), "the Bluetooth adapter is off");
        // A blocked adapter may be absent from the list.
        assert_eq!(reason_of(&[], Some(RadioBlock::Software)).unwrap(), "Bluetooth is blocked");
        assert_eq!(
            reason_of(&[false], Some(RadioBlock::HardwareSwitch)).unwrap(),
            "a switch of this machine blocks Bluetooth"
        );
    }

    #[test]
    fn refusals_come_with_a_remedy() {
        let refused = |errno: Errno, is_up: &[bool]| {
            fault_with_limitation("connect", "channel 3", errno.into(), || limitation_from(is_up, None))
                .to_string()
        };
        for (errno, what) in [
            (Errno::CONNREFUSED, "no server uses channel 3 there. Check that the server runs"),
            (Errno::HOSTDOWN, "Check that it is on and in reach"),
            (Errno::HOSTUNREACH, "Check that it is on and in reach"),
            (Errno::ACCESS, "pair with it"),
            (Errno::PERM, "pair with it"),
            (MISSING_KEY, "pair with it"),
            (Errno::TIMEDOUT, "Check that it is on and in reach"),
            (Errno::NODEV, "no such adapter: 'bluetoothctl list'"),
            (Errno::NETDOWN, "bluetoothctl power on"),
            (Errno::BUSY, "channel 3 is in use: name another"),
        ] {
            let line = refused(errno, &[true]);
            assert!(line.starts_with("connect: ") && line.contains(what) && !line.contains('\n'), "{line}");
        }
        let line = fault_with_limitation("bind", "PSM 25", Errno::ACCESS.into(), || None).to_string();
        assert!(line.starts_with("bind: PSM 25 is for root: use sudo, or a PSM of 4097"), "{line}");
        let line = refused(Errno::HOSTUNREACH, &[]);
        assert!(line.starts_with("connect: this host has no Bluetooth adapter: plug one in ("), "{line}");
    }
}
