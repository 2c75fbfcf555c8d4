//! State of a wireless interface: mode, standard, channel, signal, rates, power save. Read from the kernel
//! over generic netlink (nl80211), like `iw`, without special rights.
//!
//! `nl80211` has the message formats. Does not scan for networks, because that disturbs the link.

pub mod nl80211;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use socket2::Socket;

use super::read;
use linkgauge_system::{self as system, Blocking};
use nl80211::{Query, RadioInterface, RadioStation, ReplyKind};

/// Timeout for a broken driver: the kernel replies at once.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);

/// Buffer for the largest packet of the kernel: with a smaller one it would send smaller packets.
const RECEIVE_BUFFER_BYTES: usize = 32 << 10;

/// Maximum number of packets in a reply; each holds a few stations.
const MAX_REPLY_PACKETS: usize = 1000;

/// Facts about the radio of the interface with that number; empty if it has none or the driver reports
/// nothing.
pub fn facts(index: u32) -> Map<String, Value> {
    let Ok(kernel) = Nl80211Socket::open() else { return Map::new() };
    let Some(interface) =
        kernel.query(Query::Interface(index)).and_then(|reply| RadioInterface::parse(reply.first()?))
    else {
        return Map::new();
    };
    let stations = kernel.query(Query::Stations(index)).unwrap_or_default();
    let stations: Vec<RadioStation> =
        stations.iter().filter_map(|reply| RadioStation::parse(reply)).collect();
    let saves =
        kernel.query(Query::PowerSave(index)).and_then(|reply| nl80211::parse_power_save(reply.first()?));
    let mut facts = radio_facts(&interface, &stations, saves);
    // Bluetooth sends in one of the same bands.
    facts.insert(
        "bluetooth_adapter".to_owned(),
        (!read::file_names("/sys/class/bluetooth").is_empty()).into(),
    );
    facts
}

/// Whether power save of the interface with that number is on; `None` if it has no radio or the driver does not report it.
pub(crate) fn power_save(index: u32) -> Option<bool> {
    let reply = Nl80211Socket::open().ok()?.query(Query::PowerSave(index))?;
    nl80211::parse_power_save(reply.first()?)
}

/// Switches power save of the interface with that number on or off. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// The interface has no radio, its driver has no power save, or this user may not change it.
pub(crate) fn set_power_save(index: u32, on: bool) -> io::Result<()> {
    Nl80211Socket::open()?.request(Query::SetPowerSave(index, on)).map(|_| ())
}

/// Number of paired devices: those with which an adapter of this host shares a key. `None` if this user may
/// not read it.
pub(crate) fn count_bluetooth_pairs() -> Option<usize> {
    count_pairs_in(Path::new("/var/lib/bluetooth"))
}

/// BlueZ has a folder per adapter, and in it one per device, with its key.
fn count_pairs_in(folder: &Path) -> Option<usize> {
    if std::fs::read_dir(folder).is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
        return None;
    }
    let adapters = read::file_names(folder).into_iter().map(|name| folder.join(name));
    let devices = adapters
        .flat_map(|adapter| read::file_names(&adapter).into_iter().map(move |name| adapter.join(name)));
    let has_key = |device: &PathBuf| {
        read::text(device.join("info")).is_some_and(|text| text.lines().any(|line| line == "[LinkKey]"))
    };
    Some(devices.filter(has_key).count())
}

/// The reason why a radio does not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RadioBlock {
    /// A hardware switch of the machine.
    HardwareSwitch,
    /// A command of the user or of the system.
    Software,
}

/// The block of this host's Bluetooth, if all radios are blocked (`/sys/class/rfkill`).
pub(crate) fn bluetooth_block() -> Option<RadioBlock> {
    block_in(Path::new("/sys/class/rfkill"), "bluetooth")
}

fn block_in(class: &Path, kind: &str) -> Option<RadioBlock> {
    let radios = read::file_names(class).into_iter().map(|name| class.join(name));
    let radios = radios.filter(|radio| read::text(radio.join("type")).as_deref() == Some(kind));
    let is_set = |radio: &Path, file: &str| read::number(radio.join(file)) == Some(1);
    let blocks = radios.map(|radio| match (is_set(&radio, "hard"), is_set(&radio, "soft")) {
        (true, _) => Some(RadioBlock::HardwareSwitch),
        (false, true) => Some(RadioBlock::Software),
        (false, false) => None,
    });
    // One free radio is enough.
    blocks.reduce(|a, b| a.and(b)).flatten()
}

/// The nl80211 family on a generic netlink socket.
struct Nl80211Socket {
    socket: Socket,
    family_id: u16,
}

impl Nl80211Socket {
    fn open() -> io::Result<Nl80211Socket> {
        let socket = system::open_netlink()?;
        socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let mut kernel = Nl80211Socket { socket, family_id: 0 };
        let reply = kernel.query(Query::Family).unwrap_or_default();
        kernel.family_id =
            reply.first().and_then(|reply| nl80211::parse_family(reply)).ok_or(io::ErrorKind::NotFound)?;
        Ok(kernel)
    }

    /// All messages of the reply; `None` if the kernel refuses.
    fn query(&self, query: Query) -> Option<Vec<Vec<u8>>> {
        self.request(query).ok()
    }

    /// All messages of the reply; none if it is a confirmation.
    fn request(&self, query: Query) -> io::Result<Vec<Vec<u8>>> {
        system::send(&self.socket, &query.encode(self.family_id), Blocking::Allowed)?;
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        let mut reply = Vec::new();
        for _ in 0..MAX_REPLY_PACKETS {
            let length = system::receive(&self.socket, &mut buffer, Blocking::Allowed)?;
            for (kind, body) in nl80211::messages(&buffer[..length]) {
                match kind {
                    ReplyKind::Refused(number) => return Err(io::Error::from_raw_os_error(number)),
                    ReplyKind::Done => return Ok(reply),
                    ReplyKind::Attributes => reply.push(body.to_vec()),
                }
            }
            if !query.is_multipart() {
                return Ok(reply);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn radio_facts(
    interface: &RadioInterface,
    stations: &[RadioStation],
    saves: Option<bool>,
) -> Map<String, Value> {
    // With several stations it is unknown which one is the remote.
    let station = if let [only] = stations { Some(only) } else { None };
    let rate = |rate: fn(&RadioStation) -> Option<nl80211::RadioRate>| station.and_then(rate);
    let (outward, inward) = (rate(|station| station.transmit_rate), rate(|station| station.receive_rate));
    // The rate of sent frames is the negotiated one; a received frame may have been a beacon in an old
    // standard.
    let newest = [outward, inward].into_iter().flatten().map(|rate| rate.generation).max();
    let megahertz = interface.frequency_mhz;
    let standard = newest.and_then(|newest| newest.name(megahertz?));
    let is_client = interface.mode == "managed";
    let facts: [(&str, Option<Value>); 9] = [
        ("mode", Some(interface.mode.into())),
        ("standard", standard.map(Value::from)),
        ("frequency_mhz", megahertz.map(Value::from)),
        ("channel", megahertz.and_then(nl80211::channel_number).map(Value::from)),
        ("width_mhz", interface.width_mhz.map(Value::from)),
        ("signal_dbm", station.and_then(|station| station.signal_dbm).map(Value::from)),
        ("transmit_rate_bps", outward.map(|rate| rate.bits_per_second.into())),
        ("receive_rate_bps", inward.map(|rate| rate.bits_per_second.into())),
        ("power_save", saves.filter(|_| is_client).map(Value::from)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::nl80211::{RadioRate, WifiGeneration};
    use super::*;

    #[test]
    fn the_newest_standard_of_both_directions_is_reported() {
        let rate = |bits_per_second, generation| Some(RadioRate { bits_per_second, generation });
        let interface = RadioInterface { mode: "managed", frequency_mhz: Some(2437), width_mhz: Some(20) };
        let station = RadioStation {
            signal_dbm: Some(-61),
            transmit_rate: rate(130_000_000, WifiGeneration::Ht),
            receive_rate: rate(1_000_000, WifiGeneration::Legacy),
        };
        insta::assert_snapshot!(Value::from(radio_facts(&interface, std::slice::from_ref(&station), Some(true))),
            @r#"{"channel":6,"frequency_mhz":2437,"mode":"managed","power_save":true,"receive_rate_bps":1000000,"signal_dbm":-61,"standard":"802.11n","transmit_rate_bps":130000000,"width_mhz":20}"#);
        let ad_hoc = RadioInterface { mode: "ad-hoc", ..interface };
        insta::assert_snapshot!(Value::from(radio_facts(&ad_hoc, &[station.clone(), station], Some(true))),
            @r#"{"channel":6,"frequency_mhz":2437,"mode":"ad-hoc","width_mhz":20}"#);
    }

    #[test]
    fn bluetooth_devices_with_a_key_are_paired() {
        let folder = tempfile::tempdir().unwrap();
        for (device, info) in [
            ("00:1A:7D:DA:71:13", "[General]\nName=box\n\n[LinkKey]\nKey=00\n"),
            ("00:1A:7D:DA:71:14", "[General]\nName=[LinkKey]\n"),
        ] {
            let folder = folder.path().join("00:AA:01:00:00:23").join(device);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("info"), info).unwrap();
        }
        assert_eq!(count_pairs_in(folder.path()), Some(1));
        assert_eq!(count_pairs_in(&folder.path().join("none")), Some(0));
    }

    #[test]
    fn bluetooth_is_blocked_if_every_adapter_is() {
        let class = tempfile::tempdir().unwrap();
        let radio = |name: &str, files: [&str; 3]| {
            let folder = class.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in ["type", "hard", "soft"].into_iter().zip(files) {
                std::fs::write(folder.join(file), text).unwrap();
            }
        };
        let block = || block_in(class.path(), "bluetooth");
        assert_eq!(block(), None);
        radio("rfkill0", ["wlan\n", "0\n", "1\n"]);
        assert_eq!(block(), None);
        radio("rfkill1", ["bluetooth\n", "0\n", "1\n"]);
        assert_eq!(block(), Some(RadioBlock::Software));
        radio("rfkill1", ["bluetooth\n", "1\n", "1\n"]);
        assert_eq!(block(), Some(RadioBlock::HardwareSwitch));
        radio("rfkill2", ["bluetooth\n", "0\n", "0\n"]);
        assert_eq!(block(), None);
    }

    #[test]
    fn an_interface_without_radio_has_no_facts() {
        assert!(facts(0).is_empty() && facts(1).is_empty());
    }
}
