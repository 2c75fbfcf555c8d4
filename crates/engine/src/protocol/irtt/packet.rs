//! Encodes and decodes packets: magic number, flags, HMAC, then what the kind of the packet holds. All numbers are
//! little-endian.
//!
//! ```text
//! magic[3] flags[1] hmac[16, signed] parameters                      open
//! magic[3] flags[1] hmac[16, signed] token[8] parameters             reply to it
//! magic[3] flags[1] hmac[16, signed] token[8] number[4] fields data  echo, and reply to it
//! magic[3] flags[1] hmac[16, signed] token[8]                        close
//! ```
//!
//! The granted parameters determine the fields ([`Layout`]); no packet describes them.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;

const MAGIC: [u8; 3] = [0x14, 0xa7, 0x5b];

/// Flags of a packet.
pub const OPEN: u8 = 1;
pub(crate) const REPLY: u8 = 2;
pub(crate) const CLOSE: u8 = 4;
const SIGNED: u8 = 8;
const ALL_FLAGS: u8 = OPEN | REPLY | CLOSE | SIGNED;

/// Bytes of magic number and flags.
const HEAD_BYTES: usize = 4;
const HMAC_BYTES: usize = 16;
/// Bytes of the token.
pub(crate) const TOKEN_BYTES: usize = 8;
/// Bytes of the number of an echo.
pub(crate) const NUMBER_BYTES: usize = 4;

/// The key of signed packets. The protocol prescribes MD5, which no other part of linkgauge uses.
#[derive(Clone)]
pub struct PacketKey(Hmac<Md5>);

impl PacketKey {
    /// A key of any length.
    pub fn new(key: &[u8]) -> PacketKey {
        PacketKey(<Hmac<Md5> as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    /// The HMAC of a packet with zeros in its place.
    fn mac(&self, packet: &[u8]) -> Hmac<Md5> {
        let mac = self.0.clone().chain_update(&packet[..HEAD_BYTES]).chain_update([0; HMAC_BYTES]);
        mac.chain_update(&packet[HEAD_BYTES + HMAC_BYTES..])
    }
}

/// Bytes in front of the body of a packet.
pub fn prefix_bytes(key: Option<&PacketKey>) -> usize {
    if key.is_some() { HEAD_BYTES + HMAC_BYTES } else { HEAD_BYTES }
}

/// Writes magic number, flags and HMAC in front of the body of a packet, which is complete.
pub fn seal(packet: &mut [u8], flags: u8, key: Option<&PacketKey>) {
    packet[..MAGIC.len()].copy_from_slice(&MAGIC);
    packet[MAGIC.len()] = if key.is_some() { flags | SIGNED } else { flags };
    if let Some(key) = key {
        let mac = key.mac(packet).finalize().into_bytes();
        packet[HEAD_BYTES..HEAD_BYTES + HMAC_BYTES].copy_from_slice(&mac);
    }
}

/// A packet of these parts of a body.
pub fn packet_of(flags: u8, parts: &[&[u8]], key: Option<&PacketKey>) -> Vec<u8> {
    let mut packet = vec![0; prefix_bytes(key)];
    parts.iter().for_each(|part| packet.extend_from_slice(part));
    seal(&mut packet, flags, key);
    packet
}

/// Flags and body of a packet. `None` if it is none, or not signed with the key; with no key, if it is signed.
pub fn read_packet<'a>(packet: &'a [u8], key: Option<&PacketKey>) -> Option<(u8, &'a [u8])> {
    let [magic @ .., flags] = packet.first_chunk::<HEAD_BYTES>()?;
    let is_known = magic == &MAGIC && flags & !ALL_FLAGS == 0 && (flags & SIGNED != 0) == key.is_some();
    let body = packet.get(prefix_bytes(key)..).filter(|_| is_known)?;
    if let Some(key) = key {
        key.mac(packet).verify_slice(&packet[HEAD_BYTES..HEAD_BYTES + HMAC_BYTES]).ok()?;
    }
    Some((flags & !SIGNED, body))
}

/// The token at the start of a body, and the rest.
pub(crate) fn split_token(body: &[u8]) -> Option<(u64, &[u8])> {
    let (token, rest) = body.split_first_chunk::<TOKEN_BYTES>()?;
    Some((u64::from_le_bytes(*token), rest))
}

/// The number at the start of the rest of an echo, and what follows it.
pub(crate) fn split_number(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = rest.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// Bits for the counts that a reply holds, and all of them.
const COUNT: u8 = 1;
const WINDOW: u8 = 2;
pub(crate) const STATS: u8 = COUNT | WINDOW;
/// Bits for the times that a reply holds.
pub(crate) const SENT: u8 = 1;
pub(crate) const RECEIVED: u8 = 2;
pub(crate) const MIDPOINT: u8 = 4;
/// Bits for the clocks that a time is read from, and all of them.
const WALL: u8 = 1;
const MONOTONIC: u8 = 2;
pub(crate) const CLOCKS: u8 = WALL | MONOTONIC;

/// Fields that follow the number of an echo. Requests have zeros there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// [`COUNT`] and [`WINDOW`].
    pub(crate) stats: u8,
    /// [`SENT`] and [`RECEIVED`], or [`MIDPOINT`].
    pub(crate) times: u8,
    /// [`WALL`] and [`MONOTONIC`].
    pub(crate) clocks: u8,
}

/// A time by both clocks, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DualTime<T = i64> {
    /// Wall-clock time since 1970.
    pub(crate) wall: T,
    /// Time since an instant that the server chooses.
    pub(crate) monotonic: T,
}

impl DualTime {
    fn midpoint(self, other: DualTime) -> DualTime {
        let middle = |one: i64, other: i64| one.wrapping_add(other.wrapping_sub(one) / 2);
        DualTime { wall: middle(self.wall, other.wall), monotonic: middle(self.monotonic, other.monotonic) }
    }
}

/// Fields that a server writes into a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerFields {
    /// Requests received so far.
    pub(crate) count: u32,
    /// Received ones of the last 64 requests, as bits; 0: unknown.
    pub(crate) window: u64,
    pub(crate) received: DualTime,
    pub(crate) sent: DualTime,
}

/// The fields of a reply, as far as the layout has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyFields {
    pub(crate) count: Option<u32>,
    pub(crate) window: Option<u64>,
    pub(crate) received: DualTime<Option<i64>>,
    pub(crate) sent: DualTime<Option<i64>>,
}

impl Layout {
    /// Everything that the protocol has.
    pub(crate) const FULL: Layout = Layout { stats: STATS, times: SENT | RECEIVED, clocks: CLOCKS };

    /// Bytes of the fields.
    fn field_bytes(self) -> usize {
        let stats =
            if self.stats & COUNT != 0 { 4 } else { 0 } + if self.stats & WINDOW != 0 { 8 } else { 0 };
        stats + 8 * (self.times.count_ones() * self.clocks.count_ones()) as usize
    }

    /// Bytes of an echo without data.
    pub fn min_packet_bytes(self, key: Option<&PacketKey>) -> usize {
        prefix_bytes(key) + TOKEN_BYTES + NUMBER_BYTES + self.field_bytes()
    }

    /// Appends the fields.
    pub fn write(self, fields: &ServerFields, into: &mut Vec<u8>) {
        if self.stats & COUNT != 0 {
            into.extend(fields.count.to_le_bytes());
        }
        if self.stats & WINDOW != 0 {
            into.extend(fields.window.to_le_bytes());
        }
        let midpoint = fields.received.midpoint(fields.sent);
        for (bit, stamp) in [(RECEIVED, fields.received), (MIDPOINT, midpoint), (SENT, fields.sent)] {
            for (clock, time) in [(WALL, stamp.wall), (MONOTONIC, stamp.monotonic)] {
                if self.times & bit != 0 && self.clocks & clock != 0 {
                    into.extend(time.to_le_bytes());
                }
            }
        }
    }

    /// The fields at the start of `bytes`. A midpoint is skipped: it shows neither when a request was received nor when
    /// its reply was sent.
    pub fn read(self, mut bytes: &[u8]) -> Option<ReplyFields> {
        let mut fields = ReplyFields::default();
        if self.stats & COUNT != 0 {
            fields.count = Some(u32::from_le_bytes(take(&mut bytes)?));
        }
        if self.stats & WINDOW != 0 {
            fields.window = Some(u64::from_le_bytes(take(&mut bytes)?));
        }
        let mut midpoint = DualTime::default();
        let stamps = [(RECEIVED, &mut fields.received), (MIDPOINT, &mut midpoint), (SENT, &mut fields.sent)];
        for (bit, stamp) in stamps {
            for (clock, time) in [(WALL, &mut stamp.wall), (MONOTONIC, &mut stamp.monotonic)] {
                if self.times & bit != 0 && self.clocks & clock != 0 {
                    *time = Some(i64::from_le_bytes(take(&mut bytes)?));
                }
            }
        }
        Some(fields)
    }
}

/// Takes the first bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
