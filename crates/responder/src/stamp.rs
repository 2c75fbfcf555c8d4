//! A reflector of STAMP (RFC 8762), unauthenticated, stateless or stateful. The reply overwrites the request and has its
//! length, so no answer is longer than what it answers.
//!
//! Times are those of the caller's clock, as 64 bits of NTP: a device without a wall clock counts from its start, and says by
//! its error estimate that it is not synchronised. One-way delays then say nothing, but the time between receipt and reply
//! does, and the host subtracts nothing that it cannot know.

use crate::field;

/// Bytes of a packet, request or reply.
pub const PACKET_BYTES: usize = 44;

/// Fields of both packets, and those of the reply alone.
mod at {
    pub(super) const SEQUENCE: usize = 0;
    pub(super) const SENT: usize = 4;
    pub(super) const ERROR: usize = 12;
    pub(super) const SESSION: usize = 14;
    pub(super) const RECEIVED: usize = 16;
    pub(super) const REQUEST: usize = 24;
    pub(super) const REQUEST_END: usize = 38;
    pub(super) const TTL: usize = 40;
}

/// Nanoseconds of any clock as 64 bits of NTP: seconds, and the fraction in units of 2⁻³² s.
pub fn ntp_of(ns: u64) -> u64 {
    let (seconds, fraction) = (ns / 1_000_000_000, ns % 1_000_000_000);
    (seconds << 32) | ((fraction << 32) / 1_000_000_000)
}

/// The error estimate of a clock that is not synchronised and advances by ticks of this length (RFC 4656 4.1.2).
pub fn error_estimate_of_tick(tick_ns: u32) -> u16 {
    let units = (u64::from(tick_ns.max(1)) << 32).div_ceil(1_000_000_000);
    let scale = (u64::BITS - units.leading_zeros()).saturating_sub(8);
    match units.div_ceil(1 << scale) {
        256 => (scale as u16 + 1) << 8 | 128,
        multiplier => (scale as u16) << 8 | multiplier as u16,
    }
}

/// Replies of one sender's session, in a stateful reflector.
#[derive(Debug, Clone, Copy, Default)]
struct SessionCount {
    /// The sender, as the caller numbers senders (a hash of address and port will do), and its session number.
    key: (u32, u16),
    replies: u32,
}

/// A reflector with room for the counts of `SESSIONS` sessions. With 0 it is stateless: a reply has its request's number.
#[derive(Debug, Clone)]
pub struct TestReflector<const SESSIONS: usize> {
    error_estimate: u16,
    counts: [SessionCount; SESSIONS],
    used: usize,
    /// The one to replace when all are used.
    oldest: usize,
}

impl<const SESSIONS: usize> TestReflector<SESSIONS> {
    /// A reflector whose clock advances by ticks of this length.
    pub const fn new(error_estimate: u16) -> Self {
        let none = SessionCount { key: (0, 0), replies: 0 };
        TestReflector { error_estimate, counts: [none; SESSIONS], used: 0, oldest: 0 }
    }

    /// Turns the request in `packet` into its reply, and returns whether it is one to send. `received_ns` is when it came,
    /// `sender` distinguishes senders. Set [`set_sent`] when the reply leaves.
    pub fn on_packet(&mut self, received_ns: u64, sender: u32, packet: &mut [u8]) -> bool {
        if packet.len() < PACKET_BYTES || packet[at::ERROR + 1] == 0 || is_reply(packet) {
            return false;
        }
        let session = field::read(packet, at::SESSION).map_or(0, u16::from_be_bytes);
        packet.copy_within(at::SEQUENCE..at::SESSION, at::REQUEST);
        if let Some(number) = self.count((sender, session)) {
            field::write(packet, at::SEQUENCE, number.to_be_bytes());
        }
        field::write(packet, at::RECEIVED, ntp_of(received_ns).to_be_bytes());
        field::write(packet, at::ERROR, self.error_estimate.to_be_bytes());
        packet[at::REQUEST_END..PACKET_BYTES].fill(0);
        set_sent(packet, received_ns);
        true
    }

    /// The number of the next reply of a session; `None` where nothing is counted.
    fn count(&mut self, key: (u32, u16)) -> Option<u32> {
        let at = match self.counts[..self.used].iter().position(|count| count.key == key) {
            Some(at) => at,
            None if SESSIONS == 0 => return None,
            None => {
                let at = if self.used < SESSIONS { self.used } else { self.oldest };
                (self.used, self.oldest) = ((at + 1).max(self.used), (at + 1) % SESSIONS);
                self.counts[at] = SessionCount { key, replies: 0 };
                at
            }
        };
        let count = self.counts.get_mut(at)?;
        let number = count.replies;
        count.replies = number.wrapping_add(1);
        Some(number)
    }
}

/// Writes the time at which a reply leaves.
pub fn set_sent(packet: &mut [u8], sent_ns: u64) {
    field::write(packet, at::SENT, ntp_of(sent_ns).to_be_bytes());
}

/// Sets the TTL that the request had on arrival, where the stack reports it.
pub fn set_ttl(packet: &mut [u8], ttl: u8) {
    field::write(packet, at::TTL, [ttl]);
}

/// Whether it has the copy of a request's error estimate, which is 0 in requests and never in replies. A reply to a reply
/// would start an endless loop between two reflectors.
fn is_reply(packet: &[u8]) -> bool {
    field::read(packet, at::REQUEST_END - 2).is_some_and(|copied: [u8; 2]| copied[1] != 0)
        && field::read(packet, at::RECEIVED).is_some_and(|time| u64::from_be_bytes(time) != 0)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn request(sequence: u32, session: u16) -> Vec<u8> {
        let mut packet = std::vec![0; PACKET_BYTES];
        field::write(&mut packet, 0, sequence.to_be_bytes());
        field::write(&mut packet, 4, 0xeeab_5176_8000_0000_u64.to_be_bytes());
        field::write(&mut packet, 12, 0x8a05_u16.to_be_bytes());
        field::write(&mut packet, 14, session.to_be_bytes());
        packet
    }

    #[test]
    fn a_reply_is_that_of_the_vectors() {
        let mut packet = request(1, 0x1234);
        assert!(TestReflector::<0>::new(0x0a05).on_packet(1_500_000_000, 7, &mut packet));
        set_sent(&mut packet, 1_750_000_000);
        set_ttl(&mut packet, 255);
        let mut expected = Vec::new();
        for part in [
            &1_u32.to_be_bytes()[..],
            &0x1_c000_0000_u64.to_be_bytes(),
            &0x0a05_u16.to_be_bytes(),
            &0x1234_u16.to_be_bytes(),
            &0x1_8000_0000_u64.to_be_bytes(),
            &1_u32.to_be_bytes(),
            &0xeeab_5176_8000_0000_u64.to_be_bytes(),
            &0x8a05_u16.to_be_bytes(),
            &[0, 0, 255, 0, 0, 0],
        ] {
            expected.extend_from_slice(part);
        }
        assert_eq!(packet, expected);
        assert!(!TestReflector::<0>::new(1).on_packet(2, 7, &mut packet), "a reply to a reply");
    }

    #[test]
    fn a_stateful_reflector_counts_each_session() {
        let mut reflector = TestReflector::<2>::new(1);
        let mut number = |sender, session| {
            let mut packet = request(90, session);
            assert!(reflector.on_packet(5, sender, &mut packet));
            u32::from_be_bytes(field::read(&packet, 0).unwrap())
        };
        assert_eq!([number(1, 1), number(1, 1), number(2, 1), number(1, 1)], [0, 1, 0, 2]);
        // A third session replaces the oldest.
        assert_eq!([number(3, 1), number(2, 1), number(1, 1)], [0, 1, 0]);
    }

    #[test]
    fn short_packets_and_invalid_errors_get_no_reply() {
        for length in 0..PACKET_BYTES {
            assert!(!TestReflector::<1>::new(1).on_packet(0, 0, &mut request(1, 1)[..length]));
        }
        let mut no_error = request(1, 1);
        no_error[13] = 0;
        assert!(!TestReflector::<1>::new(1).on_packet(0, 0, &mut no_error));
    }

    #[test]
    fn an_error_is_never_too_small() {
        for tick in [1, 59, 80, 1000, 1_000_000, u32::MAX] {
            let estimate = error_estimate_of_tick(tick);
            let units = u128::from(estimate & 0xff) << (estimate >> 8 & 0x3f);
            assert!(units * 1_000_000_000 >= u128::from(tick) << 32, "{tick}");
            assert!(estimate & 0x8000 == 0 && estimate & 0xff != 0);
        }
    }
}
