//! The header of iperf3's datagrams: send time by the sender's clock, and number; and the jitter derived from them.

use super::wire;
use crate::protocol::jitter::{JitterMeter, SharedJitter};
use crate::workload::throughput::header::{HeaderCodec, ParsedHeader};
use linkgauge_model::clock::Time;

/// Seconds and microseconds, then a number starting at 1, of 32 or 64 bits.
pub struct DatagramHeader {
    has_64bit_counter: bool,
    jitter: JitterMeter,
}

impl DatagramHeader {
    /// A header with numbers of 64 or 32 bits, which updates `jitter` with each received datagram.
    pub fn new(counters_64bit: bool, jitter: SharedJitter) -> DatagramHeader {
        DatagramHeader { has_64bit_counter: counters_64bit, jitter: JitterMeter::new(jitter) }
    }
}

impl HeaderCodec for DatagramHeader {
    fn length(&self) -> usize {
        if self.has_64bit_counter { 16 } else { 12 }
    }

    #[inline]
    fn write(&mut self, message: &mut [u8], number: u64, now: Time) {
        let micros = now.0 / 1000;
        let (seconds, micros) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
        // Datagrams are never shorter than the longer header.
        let Some(head) = message.first_chunk_mut::<16>() else { return };
        head[..4].copy_from_slice(&seconds.to_be_bytes());
        head[4..8].copy_from_slice(&micros.to_be_bytes());
        match self.has_64bit_counter {
            true => head[8..].copy_from_slice(&(number + 1).to_be_bytes()),
            false => head[8..12].copy_from_slice(&(number as u32).wrapping_add(1).to_be_bytes()),
        }
    }

    #[inline]
    fn read(&mut self, message: &[u8], next: u64, now: Time) -> ParsedHeader {
        let Some(head) = message.first_chunk::<16>() else {
            return if wire::is_udp_greeting(message) { ParsedHeader::Setup } else { ParsedHeader::Foreign };
        };
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let number = match self.has_64bit_counter {
            true => (u64::from(word(8)) << 32 | u64::from(word(12))).checked_sub(1),
            // The number nearest to the expected one.
            false => {
                let step = word(8).wrapping_sub(1).wrapping_sub(next as u32) as i32;
                next.checked_add_signed(step.into())
            }
        };
        let Some(number) = number else { return ParsedHeader::Foreign };
        self.jitter.observe(i64::from(word(0)) * 1_000_000 + i64::from(word(4)), now);
        ParsedHeader::Sequence(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_those_of_captured_datagrams() {
        let sent = Time(0x849 * 1_000_000_000 + 0xB_6DB6 * 1000);
        let mut message = [0xD0; 20];
        DatagramHeader::new(false, SharedJitter::default()).write(&mut message, 0, sent);
        assert_eq!(message[..13], [0, 0, 8, 0x49, 0, 0x0B, 0x6D, 0xB6, 0, 0, 0, 1, 0xD0]);
        let sent = Time(0x84E * 1_000_000_000 + 0xA_BE8C * 1000);
        DatagramHeader::new(true, SharedJitter::default()).write(&mut message, 0, sent);
        assert_eq!(message[..17], [0, 0, 8, 0x4E, 0, 0x0A, 0xBE, 0x8C, 0, 0, 0, 0, 0, 0, 0, 1, 0xD0]);
    }

    #[test]
    fn numbers_come_back_also_beyond_32_bits() {
        for wide in [false, true] {
            let mut head = DatagramHeader::new(wide, SharedJitter::default());
            for number in [0, 1, 77, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, (1 << 40) + 5] {
                let mut message = [0; 16];
                head.write(&mut message, number, Time(5_000_000));
                for next in [number, number + 3, number.saturating_sub(2)] {
                    assert_eq!(
                        head.read(&message, next, Time(6_000_000)),
                        ParsedHeader::Sequence(number),
                        "{wide} {next}"
                    );
                }
            }
            let strange = head.read(&[0; 15], 0, Time(0));
            // Number 0 is invalid: the first is 1.
            assert_eq!(
                (strange, head.read(&[0; 16], 0, Time(0))),
                (ParsedHeader::Foreign, ParsedHeader::Foreign)
            );
        }
    }

    #[test]
    fn jitter_is_smoothed_differences_of_transit() {
        let jitter = SharedJitter::default();
        let mut head = DatagramHeader::new(false, jitter.clone());
        let mut message = [0; 16];
        for (number, (sent_ms, arrives_ms)) in
            [(10, 90), (20, 100), (30, 126), (40, 130)].into_iter().enumerate()
        {
            head.write(&mut message, number as u64, Time(sent_ms * 1_000_000));
            head.read(&message, number as u64, Time(arrives_ms * 1_000_000));
        }
        // Transit 80, 80, 96, 90 ms.
        let first = 0.016 / 16.0;
        assert!((jitter.seconds().unwrap() - (first + (0.006 - first) / 16.0)).abs() < 1e-9);
    }

    #[test]
    fn datagrams_without_a_time_have_no_jitter() {
        let jitter = SharedJitter::default();
        let mut head = DatagramHeader::new(false, jitter.clone());
        for number in 0..5 {
            let mut message = [0; 16];
            head.write(&mut message, number, Time(5_000_000));
            message[..8].fill(0);
            assert_eq!(head.read(&message, number, Time(number * 7_000_000)), ParsedHeader::Sequence(number));
        }
        assert_eq!(jitter.seconds(), None);
    }
}
