//! The messages in which Linux tells of a wireless interface (linux/netlink.h, genetlink.h, nl80211.h). Bytes in, bytes
//! out, in this machine's own order.
//!
//! Not for sending them, nor for what is made of it.

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// The number under which the kernel knows these messages.
    Family,
    /// An interface, by its number.
    Interface(u32),
    /// Who an interface talks with.
    Stations(u32),
    PowerSave(u32),
}

/// Types of messages with a meaning of their own.
const REFUSED: u16 = 2;
const DONE: u16 = 3;
const CONTROL: u16 = 16;

const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;

/// Lengths of both headers of a message, and of that of an attribute.
const HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;

impl Question {
    /// Whether the answer may be long and says where it ends.
    pub fn has_end(self) -> bool {
        matches!(self, Question::Stations(_))
    }

    /// As sent to the kernel; `family` is what [`family`] read.
    pub fn write(self, family: u16) -> Vec<u8> {
        const INTERFACE: u16 = 3;
        const FAMILY_NAME: u16 = 2;
        let number = |index: u32| (INTERFACE, index.to_ne_bytes().to_vec());
        let (to, command, (name, value)) = match self {
            Question::Family => (CONTROL, 3, (FAMILY_NAME, b"nl80211\0".to_vec())),
            Question::Interface(index) => (family, 5, number(index)),
            Question::Stations(index) => (family, 17, number(index)),
            Question::PowerSave(index) => (family, 62, number(index)),
        };
        let flags = if self.has_end() { REQUEST | DUMP } else { REQUEST };
        let length = HEADER + GENERIC + ATTRIBUTE + value.len();
        let mut message = Vec::with_capacity(length);
        message.extend((length as u32).to_ne_bytes());
        message.extend([to, flags].map(u16::to_ne_bytes).concat());
        // Sequence and port: there is one question at a time, and the kernel knows the socket.
        message.extend([0; 8]);
        message.extend([command, 0, 0, 0]);
        message.extend([(ATTRIBUTE + value.len()) as u16, name].map(u16::to_ne_bytes).concat());
        message.extend(value);
        message
    }
}

/// What a message of the kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Refused,
    Done,
    /// Its body is attributes.
    Said,
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The messages in what was received, up to one that is cut off.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (Kind, &[u8])> {
    std::iter::from_fn(move || {
        let length = four(bytes, 0)? as usize;
        let message = bytes.get(..length).filter(|_| length >= HEADER)?;
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        Some(match two(message, 4)? {
            REFUSED => (Kind::Refused, &[][..]),
            DONE => (Kind::Done, &[][..]),
            _ => (Kind::Said, message.get(HEADER + GENERIC..)?),
        })
    })
}

/// The attributes in a body, or in an attribute that holds others: number and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(two(bytes, 0)?);
        let value = bytes.get(ATTRIBUTE..length)?;
        // The upper bits say what kind of value it is.
        let name = two(bytes, 2)? & 0x3fff;
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        Some((name, value))
    })
}

fn attribute(bytes: &[u8], name: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The number of the family, from the answer to [`Question::Family`].
pub fn family(body: &[u8]) -> Option<u16> {
    two(attribute(body, 1)?, 0)
}

/// Whether power save is on.
pub fn power_save(body: &[u8]) -> Option<bool> {
    Some(four(attribute(body, 93)?, 0)? != 0)
}

/// What an interface is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// As `iw` calls it.
    pub mode: &'static str,
    pub frequency_mhz: Option<u32>,
    pub width_mhz: Option<u32>,
}

/// By number (`NL80211_IFTYPE_…`), in the words of `iw`.
const MODES: [&str; 13] = [
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

/// By number (`NL80211_CHAN_WIDTH_…`), in MHz.
const WIDTHS: [u32; 14] = [20, 20, 40, 80, 160, 160, 5, 10, 1, 2, 4, 8, 16, 320];

impl Interface {
    pub fn read(body: &[u8]) -> Option<Interface> {
        let number = |name| four(attribute(body, name)?, 0);
        let mode = MODES.get(number(5)? as usize).copied().unwrap_or("unknown");
        let width_mhz = number(159).and_then(|width| WIDTHS.get(width as usize).copied());
        Some(Interface { mode, frequency_mhz: number(38), width_mhz })
    }
}

/// Whoever an interface talks with: its access point, or a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    pub signal_dbm: Option<i8>,
    pub outward: Option<Rate>,
    pub inward: Option<Rate>,
}

impl Station {
    pub fn read(body: &[u8]) -> Option<Station> {
        let about = attribute(body, 21)?;
        let signal = attribute(about, 7).and_then(|value| value.first()).map(|&byte| byte as i8);
        let rate = |name| attribute(about, name).and_then(Rate::read);
        Some(Station { signal_dbm: signal, outward: rate(8), inward: rate(14) })
    }
}

/// A rate at which frames were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub bits_per_second: u64,
    pub generation: Generation,
}

/// What the way of coding a frame came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Before 802.11n.
    Old,
    /// High throughput …
    Ht,
    /// … very high …
    Vht,
    /// … high efficiency …
    He,
    /// … extremely high throughput.
    Eht,
}

impl Generation {
    /// The standard, which of the old ones depends on the band; None where that does not tell them apart.
    pub fn name(self, frequency_mhz: u32) -> Option<&'static str> {
        match self {
            Generation::Old if frequency_mhz < 5000 => None,
            Generation::Old => Some("802.11a"),
            Generation::Ht => Some("802.11n"),
            Generation::Vht => Some("802.11ac"),
            Generation::He => Some("802.11ax"),
            Generation::Eht => Some("802.11be"),
        }
    }
}

/// The attribute that tells of each generation's coding, and that generation.
const CODINGS: [(u16, Generation); 4] =
    [(19, Generation::Eht), (13, Generation::He), (6, Generation::Vht), (2, Generation::Ht)];

impl Rate {
    fn read(about: &[u8]) -> Option<Rate> {
        let narrow = || two(attribute(about, 1)?, 0).map(u64::from);
        let wide = attribute(about, 5).and_then(|value| four(value, 0)).map(u64::from);
        let coding = CODINGS.iter().find(|(name, _)| attribute(about, *name).is_some());
        let generation = coding.map_or(Generation::Old, |(_, generation)| *generation);
        // The kernel counts in 100 kbit/s.
        Some(Rate { bits_per_second: 100_000 * wide.or_else(narrow)?, generation })
    }
}

/// The number of a channel, by its middle frequency in MHz (IEEE 802.11, annex E).
pub fn channel(frequency_mhz: u32) -> Option<u32> {
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
        let mut bytes = [(ATTRIBUTE + value.len()) as u16, name].map(u16::to_ne_bytes).concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn number(name: u16, value: u32) -> Vec<u8> {
        put(name, &value.to_ne_bytes())
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = (HEADER + GENERIC + body.len()) as u32;
        [&length.to_ne_bytes(), &kind.to_ne_bytes()[..], &[0; 10], &[7, 1, 0, 0], body].concat()
    }

    #[test]
    fn questions_are_laid_out_as_the_kernel_reads_them() {
        let asked = Question::Stations(3).write(28);
        assert_eq!((four(&asked, 0), two(&asked, 4), two(&asked, 6)), (Some(28), Some(28), Some(0x301)));
        assert_eq!(asked[16..20], [17, 0, 0, 0]);
        assert_eq!(attribute(&asked[20..], 3), Some(&3u32.to_ne_bytes()[..]));
        let family = Question::Family.write(0);
        assert_eq!(attribute(&family[20..], 2), Some(&b"nl80211\0"[..]));
        assert_eq!(family.len(), four(&family, 0).unwrap() as usize);
    }

    #[test]
    fn an_interface_and_its_station() {
        let body = [number(5, 2), number(38, 5180), number(159, 3), put(52, b"home")].concat();
        let read = Interface::read(&body).unwrap();
        assert_eq!(read, Interface { mode: "managed", frequency_mhz: Some(5180), width_mhz: Some(80) });
        let fast = [put(1, &8667u16.to_ne_bytes()), number(5, 8667), put(6, &[9]), put(7, &[2])].concat();
        let slow = put(1, &60u16.to_ne_bytes());
        let about = [put(7, &[(-42i8) as u8]), put(0x8000 | 8, &fast), put(0x8000 | 14, &slow)].concat();
        let station = Station::read(&put(0x8000 | 21, &about)).unwrap();
        assert_eq!(station.signal_dbm, Some(-42));
        let rate = |bits_per_second, generation| Some(Rate { bits_per_second, generation });
        assert_eq!(station.outward, rate(866_700_000, Generation::Vht));
        assert_eq!(station.inward, rate(6_000_000, Generation::Old));
        assert_eq!(power_save(&number(93, 1)), Some(true));
        assert_eq!(family(&put(1, &28u16.to_ne_bytes())), Some(28));
        assert_eq!(Station::read(&body), None);
    }

    #[test]
    fn messages_end_where_they_say() {
        let bytes = [message(28, &number(5, 1)), message(28, &number(5, 3)), message(DONE, &[])].concat();
        let read: Vec<_> = messages(&bytes).map(|(kind, body)| (kind, Interface::read(body))).collect();
        let modes: Vec<_> =
            read.iter().map(|(kind, read)| (*kind, read.as_ref().map(|one| one.mode))).collect();
        assert_eq!(modes, [(Kind::Said, Some("ad-hoc")), (Kind::Said, Some("AP")), (Kind::Done, None)]);
        assert_eq!(messages(&message(REFUSED, &[0; 4])).next(), Some((Kind::Refused, &[][..])));
        // Cut off, or with a length that cannot be.
        assert_eq!(messages(&bytes[..30]).count(), 1);
        for length in [0u32, 15, u32::MAX] {
            assert_eq!(messages(&[&length.to_ne_bytes()[..], &[0; 20]].concat()).count(), 0);
        }
        assert_eq!(attributes(&[0, 0, 5, 0]).count() + attributes(&[3, 0, 5, 0]).count(), 0);
    }

    #[test]
    fn channels_of_three_bands() {
        let channels = [2412, 2437, 2472, 2484, 5180, 5825, 5955, 7115, 2450, 60_480].map(channel);
        let expected = [1, 6, 13, 14, 36, 165, 1, 233, 8].map(Some);
        assert_eq!((&channels[..9], channels[9]), (&expected[..], None));
        assert_eq!(Generation::Old.name(5180), Some("802.11a"));
        assert_eq!(Generation::Old.name(2412), None);
        assert_eq!(Generation::He.name(5955), Some("802.11ax"));
    }
}
