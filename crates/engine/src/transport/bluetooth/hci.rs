//! Facts that the kernel and the Bluetooth controller report about a connection: adapter, role, encryption,
//! signal strength; for RFCOMM also frame size and credits.
//!
//! Only reads. Facts that are unavailable, to this user or in general, are omitted.

use std::time::Duration;

use serde_json::Value;
use socket2::Socket;

use super::{BluetoothAddress, BluetoothProtocol, adapter_address, list_adapters, open_socket};
use crate::link::Facts;
use linkgauge_system::{self as system, Blocking};

/// Timeout for a controller, which replies within milliseconds.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);

/// A link type and flags of a link, from the kernel's hci.h.
const ACL_LINK: u8 = 0x01;
const HCI_LM_MASTER: u32 = 0x0001;
const HCI_LM_ENCRYPT: u32 = 0x0004;

/// Facts of the connection between an adapter of this host and a device.
pub(crate) fn connection_facts(local: BluetoothAddress, remote: BluetoothAddress, facts: &mut Facts) {
    let Some(adapter) = list_adapters().into_iter().find(|adapter| adapter.address == local) else {
        return;
    };
    facts.insert("adapter".to_owned(), adapter.name().into());
    let Some(socket) = open_controller(adapter.number) else { return };
    let Some(connection) = system::bluetooth_connection(&socket, remote.to_kernel_order()) else { return };
    // The other link types are audio and Low Energy, which are not used here.
    let facts_by_name: [(&str, Option<Value>); 4] = [
        ("link_type", (connection.kind == ACL_LINK).then(|| "BR/EDR (ACL)".into())),
        ("role", Some(if connection.mode & HCI_LM_MASTER != 0 { "central" } else { "peripheral" }.into())),
        ("encrypted", Some((connection.mode & HCI_LM_ENCRYPT != 0).into())),
        ("rssi_db", read_rssi(&socket, connection.handle).map(Value::from)),
    ];
    facts.extend(facts_by_name.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

/// A socket on which the controller replies to query commands.
fn open_controller(number: u16) -> Option<Socket> {
    let socket = open_socket(BluetoothProtocol::Hci).ok()?;
    socket.bind(&adapter_address(number)).ok()?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT)).ok()?;
    Some(socket)
}

/// Opcode of the command Read RSSI (Core, volume 4, part E, 7.5.4).
const OPCODE_READ_RSSI: u16 = 0x1405;

/// The parameters of that command: the handle of the connection.
const READ_RSSI_PARAMETER_BYTES: u8 = 2;

/// The event that completes a command (7.7.14), and the packet types of both (volume 4, part A, 2).
const EVENT_COMMAND_COMPLETE: u8 = 0x0e;
const PACKET_COMMAND: u8 = 1;
const PACKET_EVENT: u8 = 4;

/// The longest event: its packet type, code, length, and 255 bytes of parameters (5.4.4).
const MAX_EVENT_BYTES: usize = 1 + 2 + 255;

/// Deviation of the remote's signal from the controller's preferred range, in dB: 0 within, below 0 weaker.
fn read_rssi(socket: &Socket, handle: u16) -> Option<i8> {
    system::set_bluetooth_event_filter(socket, PACKET_EVENT, EVENT_COMMAND_COMPLETE, OPCODE_READ_RSSI)
        .ok()?;
    let ([low, high], [first, second]) = (OPCODE_READ_RSSI.to_le_bytes(), handle.to_le_bytes());
    let command = [PACKET_COMMAND, low, high, READ_RSSI_PARAMETER_BYTES, first, second];
    system::send(socket, &command, Blocking::Allowed).ok()?;
    let mut event = [0; MAX_EVENT_BYTES];
    let length = system::receive(socket, &mut event, Blocking::Allowed).ok()?;
    parse_rssi(&event[..length], handle)
}

/// Parses this value from an event of the controller.
pub fn parse_rssi(event: &[u8], handle: u16) -> Option<i8> {
    let &[PACKET_EVENT, EVENT_COMMAND_COMPLETE, _, _, low, high, status, first, second, signal] =
        event.first_chunk()?
    else {
        return None;
    };
    let is_reply =
        u16::from_le_bytes([low, high]) == OPCODE_READ_RSSI && u16::from_le_bytes([first, second]) == handle;
    (is_reply && status == 0).then_some(signal as i8)
}

/// The kernel's list of RFCOMM channels, readable only by root.
const RFCOMM_CHANNELS_FILE: &str = "/sys/kernel/debug/bluetooth/rfcomm_dlc";

/// Frame size, and the current credits of both ends: how many frames each may still send.
pub(crate) fn rfcomm_facts(
    local: BluetoothAddress,
    remote: BluetoothAddress,
    channel: u8,
    facts: &mut Facts,
) {
    let figures = std::fs::read_to_string(RFCOMM_CHANNELS_FILE)
        .ok()
        .and_then(|text| parse_credits(&text, local, remote, channel));
    let Some([mtu, receive, send]) = figures else { return };
    for (name, number) in [("frame_bytes", mtu), ("receive_credits", receive), ("send_credits", send)] {
        facts.insert(name.to_owned(), number.into());
    }
}

/// Fields: source, destination, state, channel number with a direction bit, then the three figures.
pub fn parse_credits(
    text: &str,
    local: BluetoothAddress,
    remote: BluetoothAddress,
    channel: u8,
) -> Option<[u64; 3]> {
    text.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let ends: [BluetoothAddress; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
        let number: u8 = fields.nth(1)?.parse().ok()?;
        let mut figure = || fields.next()?.parse().ok();
        let figures = [figure()?, figure()?, figure()?];
        (ends == [local, remote] && number >> 1 == channel).then_some(figures)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rssi_is_taken_from_the_reply_to_our_command() {
        let reply = [4, 0x0e, 7, 1, 0x05, 0x14, 0, 0x2a, 0, (-7i8) as u8];
        assert_eq!(parse_rssi(&reply, 42), Some(-7));
        assert_eq!(parse_rssi(&reply, 43), None);
        assert_eq!(parse_rssi(&reply[..9], 42), None);
        for (at, byte) in [(0, 2), (1, 0x0f), (4, 6), (6, 0x0c)] {
            let mut other = reply;
            other[at] = byte;
            assert_eq!(parse_rssi(&other, 42), None);
        }
    }

    #[test]
    fn credits_are_found_by_both_ends_and_the_channel() {
        let text = "00:aa:01:00:00:00 00:aa:01:01:00:01 1 10 127 33 7\n\
                    00:aa:01:01:00:01 00:aa:01:00:00:00 1 11 127 40 6\nnonsense\n";
        let [local, remote] =
            ["00:AA:01:01:00:01", "00:AA:01:00:00:00"].map(|text| text.parse::<BluetoothAddress>().unwrap());
        assert_eq!(parse_credits(text, local, remote, 5), Some([127, 40, 6]));
        assert_eq!(parse_credits(text, local, remote, 6), None);
        assert_eq!(parse_credits(text, local, local, 5), None);
    }
}
