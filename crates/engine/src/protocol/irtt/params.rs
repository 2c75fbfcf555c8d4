//! The parameters of a test: what a client requests in its open packet, and what the server grants in the reply.
//!
//! A list of numbers (`uvarint`), each with its value: a signed zig-zag varint, or bytes after their length. Values of
//! zero are left out, and unknown numbers are skipped.

use std::time::Duration;

use super::packet::{CLOCKS, Layout, MIDPOINT, RECEIVED, SENT, STATS};

/// The version of the protocol.
pub(crate) const VERSION: i64 = 1;

/// The longest list that is accepted.
const MAX_BYTES: usize = 128;
const MAX_FILL_BYTES: usize = 32;

const VERSION_ID: u64 = 1;
const DURATION_ID: u64 = 2;
const INTERVAL_ID: u64 = 3;
const LENGTH_ID: u64 = 4;
const STATS_ID: u64 = 5;
const TIMES_ID: u64 = 6;
const CLOCKS_ID: u64 = 7;
const TRAFFIC_CLASS_ID: u64 = 8;
const FILL_ID: u64 = 9;

/// The parameters of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    pub(crate) version: i64,
    /// Duration of the test in nanoseconds, above zero.
    pub(crate) duration_ns: i64,
    /// Interval between requests in nanoseconds, above zero.
    pub(crate) interval_ns: i64,
    /// Bytes of an echo; less than the fields need means no data.
    pub(crate) length: u32,
    pub(crate) layout: Layout,
    /// DSCP and ECN: the whole octet, although the protocol calls it DSCP.
    pub(crate) traffic_class: u8,
    /// Content that fills replies, as text.
    pub(crate) fill: Vec<u8>,
}

impl Params {
    /// Reads a list. `None` if it is too long, or if a value is impossible.
    pub fn read(mut bytes: &[u8]) -> Option<Params> {
        if bytes.len() > MAX_BYTES {
            return None;
        }
        let mut values = [0; FILL_ID as usize];
        let mut fill = Vec::new();
        while !bytes.is_empty() {
            let id = take_unsigned(&mut bytes)?;
            let value = take_unsigned(&mut bytes)?;
            if id == FILL_ID {
                let length = usize::try_from(value).ok().filter(|length| *length <= MAX_FILL_BYTES)?;
                let (text, rest) = bytes.split_at_checked(length)?;
                (fill, bytes) = (text.to_vec(), rest);
            } else if let Some(slot) = usize::try_from(id).ok().and_then(|id| values.get_mut(id)) {
                *slot = (value >> 1) as i64 ^ -((value & 1) as i64);
            }
        }
        let value = |id: u64| values[id as usize];
        let bits = |id: u64, most: u8| u8::try_from(value(id)).ok().filter(|bits| *bits <= most);
        let layout = Layout {
            stats: bits(STATS_ID, STATS)?,
            times: bits(TIMES_ID, MIDPOINT)?,
            clocks: bits(CLOCKS_ID, CLOCKS)?,
        };
        Some(Params {
            version: value(VERSION_ID),
            duration_ns: Some(value(DURATION_ID)).filter(|ns| *ns > 0)?,
            interval_ns: Some(value(INTERVAL_ID)).filter(|ns| *ns > 0)?,
            length: u32::try_from(value(LENGTH_ID)).ok()?,
            layout,
            traffic_class: bits(TRAFFIC_CLASS_ID, u8::MAX)?,
            fill,
        })
    }

    /// The list.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, value) in [
            (VERSION_ID, self.version),
            (DURATION_ID, self.duration_ns),
            (INTERVAL_ID, self.interval_ns),
            (LENGTH_ID, self.length.into()),
            (STATS_ID, self.layout.stats.into()),
            (TIMES_ID, self.layout.times.into()),
            (CLOCKS_ID, self.layout.clocks.into()),
            (TRAFFIC_CLASS_ID, self.traffic_class.into()),
        ] {
            if value != 0 {
                put_unsigned(&mut bytes, id);
                put_unsigned(&mut bytes, (value << 1 ^ value >> 63) as u64);
            }
        }
        if !self.fill.is_empty() {
            put_unsigned(&mut bytes, FILL_ID);
            put_unsigned(&mut bytes, self.fill.len() as u64);
            bytes.extend_from_slice(&self.fill);
        }
        bytes
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns as u64)
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval_ns as u64)
    }

    /// Whether replies have the time of receipt and the time of sending.
    pub(crate) fn has_both_times(&self) -> bool {
        self.layout.times == SENT | RECEIVED && self.layout.clocks != 0
    }

    /// Change of a server that it may not make, as text: it may only grant less.
    pub(crate) fn excess_over(&self, requested: &Params) -> Option<&'static str> {
        let Layout { stats, times, clocks } = self.layout;
        let is_times = times & !requested.layout.times == 0 || times == MIDPOINT;
        [
            (self.version != requested.version, "another version of the protocol"),
            (self.duration_ns > requested.duration_ns, "a longer test than requested"),
            (self.interval_ns < requested.interval_ns, "a shorter interval than requested"),
            (self.length > requested.length, "longer packets than requested"),
            (stats & !requested.layout.stats != 0 || !is_times, "fields that were not requested"),
            (clocks & !requested.layout.clocks != 0, "clocks that were not requested"),
        ]
        .into_iter()
        .find_map(|(is_wrong, what)| is_wrong.then_some(what))
    }
}

fn take_unsigned(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_unsigned(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
