//! Messages of Linux about wireless interfaces (linux/netlink.h, genetlink.h, nl80211.h). Bytes in, bytes
//! out, in the machine's byte order.
//!
//! `radio.rs` sends and evaluates them.

/// The supported queries and commands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Query {
    /// The number of the nl80211 family in the kernel.
    Family,
    /// An interface, by its number.
    Interface(u32),
    /// The stations that an interface communicates with.
    Stations(u32),
    /// Power saving of an interface, by its number.
    PowerSave(u32),
    /// Switches power saving of an interface on or off. The kernel confirms it.
    SetPowerSave(u32, bool),
}

/// Message types with a special meaning.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const GENL_ID_CTRL: u16 = 16;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// Mask for the number of an attribute. Its upper bits hold the kind of its value (`NLA_TYPE_MASK`).
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Query for a family, and its attributes (genetlink.h).
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// Commands of nl80211.h.
const CMD_GET_INTERFACE: u8 = 5;
const CMD_GET_STATION: u8 = 17;
const CMD_SET_POWER_SAVE: u8 = 61;
const CMD_GET_POWER_SAVE: u8 = 62;

/// Attributes of nl80211.h (`NL80211_ATTR_…`).
const ATTR_IFINDEX: u16 = 3;
const ATTR_IFTYPE: u16 = 5;
const ATTR_STA_INFO: u16 = 21;
const ATTR_WIPHY_FREQ: u16 = 38;
const ATTR_PS_STATE: u16 = 93;
const ATTR_CHANNEL_WIDTH: u16 = 159;

/// Attributes within the facts of a station (`NL80211_STA_INFO_…`).
const STA_INFO_SIGNAL: u16 = 7;
const STA_INFO_TX_BITRATE: u16 = 8;
const STA_INFO_RX_BITRATE: u16 = 14;

/// Attributes within a rate (`NL80211_RATE_INFO_…`); both bit rates are in units of 100 kbit/s.
const RATE_INFO_BITRATE: u16 = 1;
const RATE_INFO_MCS: u16 = 2;
const RATE_INFO_BITRATE32: u16 = 5;
const RATE_INFO_VHT_MCS: u16 = 6;
const RATE_INFO_HE_MCS: u16 = 13;
const RATE_INFO_EHT_MCS: u16 = 19;
const RATE_UNIT_BPS: u64 = 100_000;

/// Lengths of the two headers of a message, and of the header of an attribute.
const NLMSG_HEADER_BYTES: usize = 16;
const GENL_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;

impl Query {
    /// Whether the reply may have several messages, with an end marker.
    pub(crate) fn is_multipart(self) -> bool {
        matches!(self, Query::Stations(_))
    }

    /// The bytes for the kernel; `family` is the result of [`parse_family`].
    pub(crate) fn encode(self, family: u16) -> Vec<u8> {
        let number = |name: u16, value: u32| (name, value.to_ne_bytes().to_vec());
        let of = |index: u32| vec![number(ATTR_IFINDEX, index)];
        let (to, command, attributes) = match self {
            Query::Family => {
                (GENL_ID_CTRL, CTRL_CMD_GETFAMILY, vec![(CTRL_ATTR_FAMILY_NAME, b"nl80211\0".to_vec())])
            }
            Query::Interface(index) => (family, CMD_GET_INTERFACE, of(index)),
            Query::Stations(index) => (family, CMD_GET_STATION, of(index)),
            Query::PowerSave(index) => (family, CMD_GET_POWER_SAVE, of(index)),
            Query::SetPowerSave(index, on) => {
                let attributes = vec![number(ATTR_IFINDEX, index), number(ATTR_PS_STATE, on.into())];
                (family, CMD_SET_POWER_SAVE, attributes)
            }
        };
        let flags = match self {
            Query::SetPowerSave(..) => NLM_F_REQUEST | NLM_F_ACK,
            _ if self.is_multipart() => NLM_F_REQUEST | NLM_F_DUMP,
            _ => NLM_F_REQUEST,
        };
        // All values are multiples of 4 bytes long, so that nothing is filled up between them.
        let bytes = |value: &[u8]| ATTRIBUTE_HEADER_BYTES + value.len();
        let length: usize = attributes.iter().map(|(_, value)| bytes(value)).sum();
        let length = NLMSG_HEADER_BYTES + GENL_HEADER_BYTES + length;
        let mut message = Vec::with_capacity(length);
        message.extend((length as u32).to_ne_bytes());
        message.extend([to, flags].map(u16::to_ne_bytes).concat());
        // Sequence and port: there is only one query at a time, and the kernel identifies the socket.
        message.extend([0; 8]);
        message.extend([command, 0, 0, 0]);
        for (name, value) in attributes {
            message.extend([bytes(&value) as u16, name].map(u16::to_ne_bytes).concat());
            message.extend(value);
        }
        message
    }
}

/// The kind of a kernel message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// The kernel refuses the query, with this error number.
    Refused(i32),
    /// The end of a multipart reply, or the confirmation of a command.
    Done,
    /// The body consists of attributes.
    Attributes,
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The messages in the received bytes, up to a truncated one.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (ReplyKind, &[u8])> {
    std::iter::from_fn(move || {
        let length = read_u32(bytes, 0)? as usize;
        let message = bytes.get(..length).filter(|_| length >= NLMSG_HEADER_BYTES)?;
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        Some(match read_u16(message, 4)? {
            NLMSG_ERROR => match read_u32(message, NLMSG_HEADER_BYTES)? as i32 {
                0 => (ReplyKind::Done, &[][..]),
                number => (ReplyKind::Refused(number.saturating_abs()), &[][..]),
            },
            NLMSG_DONE => (ReplyKind::Done, &[][..]),
            _ => (ReplyKind::Attributes, message.get(NLMSG_HEADER_BYTES + GENL_HEADER_BYTES..)?),
        })
    })
}

/// The attributes in a body, or in an attribute that contains others: number and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(read_u16(bytes, 0)?);
        let value = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        let name = read_u16(bytes, 2)? & NLA_TYPE_MASK;
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        Some((name, value))
    })
}

fn find_attribute(bytes: &[u8], name: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The number of the family, from the reply to `Query::Family`.
pub fn parse_family(body: &[u8]) -> Option<u16> {
    read_u16(find_attribute(body, CTRL_ATTR_FAMILY_ID)?, 0)
}

/// Whether power save is on.
pub fn parse_power_save(body: &[u8]) -> Option<bool> {
    Some(read_u32(find_attribute(body, ATTR_PS_STATE)?, 0)? != 0)
}

/// The settings of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadioInterface {
    /// The name in `iw`.
    pub mode: &'static str,
    /// Centre of the main channel.
    pub(crate) frequency_mhz: Option<u32>,
    /// Width of the channel.
    pub(crate) width_mhz: Option<u32>,
}

/// Interface modes by number (`NL80211_IFTYPE_…`), with the names of `iw`.
const INTERFACE_MODES: [&str; 13] = [
    "unspecified",
    "ad-hoc",
    "managed",
    "AP",
    "AP/VLAN",
    "WDS",
    "monitor",
    "mesh point",
    "P2P-client",
    "P2P-GO",
    "P2P-device",
    "outside context of a BSS",
    "NAN",
];

/// Channel widths by number (`NL80211_CHAN_WIDTH_…`), in MHz.
const CHANNEL_WIDTHS_MHZ: [u32; 14] = [20, 20, 40, 80, 160, 160, 5, 10, 1, 2, 4, 8, 16, 320];

impl RadioInterface {
    /// Parses the reply to `Query::Interface`; `None` if it does not report the mode.
    pub fn parse(body: &[u8]) -> Option<RadioInterface> {
        let number = |name| read_u32(find_attribute(body, name)?, 0);
        let mode = INTERFACE_MODES.get(number(ATTR_IFTYPE)? as usize).copied().unwrap_or("unknown");
        let width_mhz =
            number(ATTR_CHANNEL_WIDTH).and_then(|width| CHANNEL_WIDTHS_MHZ.get(width as usize).copied());
        Some(RadioInterface { mode, frequency_mhz: number(ATTR_WIPHY_FREQ), width_mhz })
    }
}

/// A station that an interface communicates with: its access point, or a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadioStation {
    /// Strength of the received signal.
    pub(crate) signal_dbm: Option<i8>,
    /// Rate of the last frame sent to the station.
    pub(crate) transmit_rate: Option<RadioRate>,
    /// Rate of the last frame received from the station.
    pub(crate) receive_rate: Option<RadioRate>,
}

impl RadioStation {
    /// Parses a message of the reply to `Query::Stations`; `None` if it does not describe a station.
    pub fn parse(body: &[u8]) -> Option<RadioStation> {
        let about = find_attribute(body, ATTR_STA_INFO)?;
        let signal =
            find_attribute(about, STA_INFO_SIGNAL).and_then(|value| value.first()).map(|&byte| byte as i8);
        let rate = |name| find_attribute(about, name).and_then(RadioRate::parse);
        Some(RadioStation {
            signal_dbm: signal,
            transmit_rate: rate(STA_INFO_TX_BITRATE),
            receive_rate: rate(STA_INFO_RX_BITRATE),
        })
    }
}

/// The rate of sent frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RadioRate {
    /// Gross rate of the physical layer.
    pub(crate) bits_per_second: u64,
    /// The generation of the frame's coding.
    pub(crate) generation: WifiGeneration,
}

/// The generation that introduced a frame's coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WifiGeneration {
    /// Rates before 802.11n.
    Legacy,
    /// High throughput (802.11n).
    Ht,
    /// Very high throughput (802.11ac).
    Vht,
    /// High efficiency (802.11ax).
    He,
    /// Extremely high throughput (802.11be).
    Eht,
}

impl WifiGeneration {
    /// The name of the standard. For the old ones it depends on the band; `None` if the band does not
    /// distinguish them.
    pub(crate) fn name(self, frequency_mhz: u32) -> Option<&'static str> {
        match self {
            WifiGeneration::Legacy if frequency_mhz < 5000 => None,
            WifiGeneration::Legacy => Some("802.11a"),
            WifiGeneration::Ht => Some("802.11n"),
            WifiGeneration::Vht => Some("802.11ac"),
            WifiGeneration::He => Some("802.11ax"),
            WifiGeneration::Eht => Some("802.11be"),
        }
    }
}

/// The attribute of each generation's coding, and that generation.
const RATE_ATTRIBUTES: [(u16, WifiGeneration); 4] = [
    (RATE_INFO_EHT_MCS, WifiGeneration::Eht),
    (RATE_INFO_HE_MCS, WifiGeneration::He),
    (RATE_INFO_VHT_MCS, WifiGeneration::Vht),
    (RATE_INFO_MCS, WifiGeneration::Ht),
];

impl RadioRate {
    fn parse(about: &[u8]) -> Option<RadioRate> {
        let narrow = || read_u16(find_attribute(about, RATE_INFO_BITRATE)?, 0).map(u64::from);
        let wide =
            find_attribute(about, RATE_INFO_BITRATE32).and_then(|value| read_u32(value, 0)).map(u64::from);
        let coding = RATE_ATTRIBUTES.iter().find(|(name, _)| find_attribute(about, *name).is_some());
        let generation = coding.map_or(WifiGeneration::Legacy, |(_, generation)| *generation);
        Some(RadioRate { bits_per_second: RATE_UNIT_BPS * wide.or_else(narrow)?, generation })
    }
}

/// The number of a channel, from its centre frequency in MHz (IEEE 802.11, annex E).
pub(crate) fn channel_number(frequency_mhz: u32) -> Option<u32> {
    let channel = match frequency_mhz {
        2484 => 14,
        2412..=2472 => (frequency_mhz - 2407) / 5,
        5150..=5895 => (frequency_mhz - 5000) / 5,
        5955..=7115 => (frequency_mhz - 5950) / 5,
        _ => return None,
    };
    Some(channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(name: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [(ATTRIBUTE_HEADER_BYTES + value.len()) as u16, name].map(u16::to_ne_bytes).concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn number(name: u16, value: u32) -> Vec<u8> {
        put(name, &value.to_ne_bytes())
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = (NLMSG_HEADER_BYTES + GENL_HEADER_BYTES + body.len()) as u32;
        [&length.to_ne_bytes(), &kind.to_ne_bytes()[..], &[0; 10], &[7, 1, 0, 0], body].concat()
    }

    #[test]
    fn queries_are_encoded_as_the_kernel_reads_them() {
        let request = Query::Stations(3).encode(28);
        assert_eq!(
            (read_u32(&request, 0), read_u16(&request, 4), read_u16(&request, 6)),
            (Some(28), Some(28), Some(0x301))
        );
        assert_eq!(request[16..20], [17, 0, 0, 0]);
        assert_eq!(find_attribute(&request[20..], 3), Some(&3u32.to_ne_bytes()[..]));
        let family = Query::Family.encode(0);
        assert_eq!(find_attribute(&family[20..], 2), Some(&b"nl80211\0"[..]));
        assert_eq!(family.len(), read_u32(&family, 0).unwrap() as usize);
    }

    #[test]
    fn a_command_has_two_attributes_and_is_confirmed() {
        let request = Query::SetPowerSave(3, true).encode(28);
        assert_eq!((read_u32(&request, 0), read_u16(&request, 6)), (Some(36), Some(5)));
        assert_eq!(request[16], 61);
        assert_eq!(find_attribute(&request[20..], 3), Some(&3u32.to_ne_bytes()[..]));
        assert_eq!(parse_power_save(&request[20..]), Some(true));
        let reply = |code: i32| {
            [&20u32.to_ne_bytes(), &2u16.to_ne_bytes()[..], &[0; 10], &code.to_ne_bytes()].concat()
        };
        let kind = |reply: Vec<u8>| messages(&reply).next().unwrap().0;
        assert_eq!(kind(reply(0)), ReplyKind::Done);
        assert_eq!(kind(reply(-1)), ReplyKind::Refused(1));
        assert_eq!(kind(reply(i32::MIN)), ReplyKind::Refused(i32::MAX));
        assert!(messages(&reply(0)[..16]).next().is_none(), "cut short");
    }

    #[test]
    fn an_interface_and_its_station() {
        let body = [number(5, 2), number(38, 5180), number(159, 3), put(52, b"home")].concat();
        let read = RadioInterface::parse(&body).unwrap();
        assert_eq!(read, RadioInterface { mode: "managed", frequency_mhz: Some(5180), width_mhz: Some(80) });
        let fast = [put(1, &8667u16.to_ne_bytes()), number(5, 8667), put(6, &[9]), put(7, &[2])].concat();
        let slow = put(1, &60u16.to_ne_bytes());
        let about = [put(7, &[(-42i8) as u8]), put(0x8000 | 8, &fast), put(0x8000 | 14, &slow)].concat();
        let station = RadioStation::parse(&put(0x8000 | 21, &about)).unwrap();
        assert_eq!(station.signal_dbm, Some(-42));
        let rate = |bits_per_second, generation| Some(RadioRate { bits_per_second, generation });
        assert_eq!(station.transmit_rate, rate(866_700_000, WifiGeneration::Vht));
        assert_eq!(station.receive_rate, rate(6_000_000, WifiGeneration::Legacy));
        assert_eq!(parse_power_save(&number(93, 1)), Some(true));
        assert_eq!(parse_family(&put(1, &28u16.to_ne_bytes())), Some(28));
        assert_eq!(RadioStation::parse(&body), None);
    }

    #[test]
    fn messages_end_at_their_length() {
        let bytes =
            [message(28, &number(5, 1)), message(28, &number(5, 3)), message(NLMSG_DONE, &[])].concat();
        let read: Vec<_> = messages(&bytes).map(|(kind, body)| (kind, RadioInterface::parse(body))).collect();
        let modes: Vec<_> =
            read.iter().map(|(kind, read)| (*kind, read.as_ref().map(|one| one.mode))).collect();
        assert_eq!(
            modes,
            [
                (ReplyKind::Attributes, Some("ad-hoc")),
                (ReplyKind::Attributes, Some("AP")),
                (ReplyKind::Done, None)
            ]
        );
        // Truncated, or with an impossible length.
        assert_eq!(messages(&bytes[..30]).count(), 1);
        for length in [0u32, 15, u32::MAX] {
            assert_eq!(messages(&[&length.to_ne_bytes()[..], &[0; 20]].concat()).count(), 0);
        }
        assert_eq!(attributes(&[0, 0, 5, 0]).count() + attributes(&[3, 0, 5, 0]).count(), 0);
    }

    #[test]
    fn channels_of_three_bands() {
        let channels = [2412, 2437, 2472, 2484, 5180, 5825, 5955, 7115, 2450, 60_480].map(channel_number);
        let expected = [1, 6, 13, 14, 36, 165, 1, 233, 8].map(Some);
        assert_eq!((&channels[..9], channels[9]), (&expected[..], None));
        assert_eq!(WifiGeneration::Legacy.name(5180), Some("802.11a"));
        assert_eq!(WifiGeneration::Legacy.name(2412), None);
        assert_eq!(WifiGeneration::He.name(5955), Some("802.11ax"));
    }
}
