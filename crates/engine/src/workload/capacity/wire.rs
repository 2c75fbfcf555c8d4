//! The datagrams of a capacity search.
//!
//! ```text
//! load    "LGcd" 0[4] number[8] sent[8] noise
//! status  "LGcs" 0[4] highest number[8] datagrams[8] bytes[8] time[8] newest sent[8] its age[8]
//! ```
//!
//! Numbers are big-endian and times nanoseconds of the clock of the end that writes them. Counts start at the beginning, so a
//! lost status costs nothing.

/// Bytes of the header of a datagram of the load.
pub const LOAD_HEADER_BYTES: usize = 24;
/// Bytes of a status.
pub(crate) const STATUS_BYTES: usize = 56;

const LOAD_MAGIC: &[u8; 8] = b"LGcd\0\0\0\0";
const STATUS_MAGIC: &[u8; 8] = b"LGcs\0\0\0\0";

pub(crate) fn number(bytes: &[u8], index: usize) -> Option<u64> {
    bytes.get(8 * index..8 * index + 8)?.try_into().ok().map(u64::from_be_bytes)
}

/// A datagram of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadHeader {
    /// Number of the datagram, from 1.
    pub number: u64,
    /// Send time, by the clock of the sender, in ns.
    pub sent_ns: u64,
}

impl LoadHeader {
    /// Writes the header over the start of a datagram.
    pub fn write(self, datagram: &mut [u8]) {
        datagram[..8].copy_from_slice(LOAD_MAGIC);
        datagram[8..16].copy_from_slice(&self.number.to_be_bytes());
        datagram[16..24].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// The header of a datagram; `None` if it is not one of a load.
    pub fn parse(datagram: &[u8]) -> Option<LoadHeader> {
        datagram.strip_prefix(LOAD_MAGIC)?;
        Some(LoadHeader { number: number(datagram, 1)?, sent_ns: number(datagram, 2)? })
    }
}

/// Data that the receiver has got so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadStatus {
    /// Highest number of a datagram.
    pub highest: u64,
    /// Number of datagrams.
    pub datagrams: u64,
    /// Payload of the datagrams, in bytes.
    pub bytes: u64,
    /// Time at which the status was written, in ns.
    pub(crate) at_ns: u64,
    /// Send time of the newest datagram, by the clock of the sender, in ns; 0 without one.
    pub(crate) newest_sent_ns: u64,
    /// Time since the arrival of the newest datagram, in ns.
    pub(crate) newest_age_ns: u64,
}

impl LoadStatus {
    /// Encodes the status.
    pub fn encode(self) -> [u8; STATUS_BYTES] {
        let mut bytes = [0; STATUS_BYTES];
        bytes[..8].copy_from_slice(STATUS_MAGIC);
        let fields =
            [self.highest, self.datagrams, self.bytes, self.at_ns, self.newest_sent_ns, self.newest_age_ns];
        for (field, to) in fields.into_iter().zip(bytes[8..].chunks_mut(8)) {
            to.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Parses a status; `None` if it is something else.
    pub fn parse(bytes: &[u8]) -> Option<LoadStatus> {
        bytes.strip_prefix(STATUS_MAGIC).filter(|rest| rest.len() == STATUS_BYTES - 8)?;
        Some(LoadStatus {
            highest: number(bytes, 1)?,
            datagrams: number(bytes, 2)?,
            bytes: number(bytes, 3)?,
            at_ns: number(bytes, 4)?,
            newest_sent_ns: number(bytes, 5)?,
            newest_age_ns: number(bytes, 6)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn datagrams_have_their_bytes() {
        let mut datagram = [9; 30];
        LoadHeader { number: 3, sent_ns: 0x0102 }.write(&mut datagram);
        assert_eq!(&datagram[..24], b"LGcd\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02");
        assert_eq!(LoadHeader::parse(&datagram), Some(LoadHeader { number: 3, sent_ns: 0x0102 }));
        assert_eq!(LoadHeader::parse(&datagram[..23]), None);
        let status =
            LoadStatus { highest: 1, datagrams: 2, bytes: 3, at_ns: 4, newest_sent_ns: 5, newest_age_ns: 6 };
        assert_eq!(LoadStatus::parse(&status.encode()), Some(status));
        assert_eq!(LoadStatus::parse(&status.encode()[..55]), None);
        assert_eq!(LoadHeader::parse(&status.encode()), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = (LoadHeader::parse(&bytes), LoadStatus::parse(&bytes));
        }
    }
}
