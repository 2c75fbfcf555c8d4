//! Packing: when a device server sends the data from its line, by the rules of real ones.
//!
//! The caller supplies bytes with the time, and gets packets and the next due time. Reads no clock and does not wait.

use std::time::Duration;

use super::LabError;
use linkgauge_model::clock::Time;

/// The rules of a port. The first rule that applies ends a packet; so does a full buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackingRules {
    /// Silence on the line after which data is sent. Zero: off.
    pub inter_character_timeout: Duration,
    /// Time after the first byte at which data is sent. Zero: off.
    pub force_transmit_after: Duration,
    /// Number of bytes after which data is sent, at most `buffer_bytes`. Zero: off.
    pub packet_bytes: usize,
    /// Sequence of one or two bytes after which data is sent. Empty: off.
    pub delimiter: Vec<u8>,
    /// The treatment of the delimiter.
    pub delimiter_process: DelimiterProcess,
    /// Maximum number of buffered bytes, 1 to `PackingRules::MAX_BUFFER_BYTES`.
    pub buffer_bytes: usize,
}

/// The treatment of a delimiter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DelimiterProcess {
    /// The delimiter ends the packet.
    #[default]
    Keep,
    /// The packet ends before the delimiter, which is not sent.
    Strip,
    /// This many bytes after the delimiter belong to the packet: checksums.
    Plus(usize),
}

/// Sends the data of each read immediately.
impl Default for PackingRules {
    fn default() -> PackingRules {
        PackingRules {
            inter_character_timeout: Duration::ZERO,
            force_transmit_after: Duration::ZERO,
            packet_bytes: 0,
            delimiter: Vec::new(),
            delimiter_process: DelimiterProcess::Keep,
            buffer_bytes: 1024, // Moxa's NPort
        }
    }
}

impl PackingRules {
    /// A larger buffer would only hide the line.
    pub(crate) const MAX_BUFFER_BYTES: usize = 1 << 20;

    /// Checks the rules for contradictions.
    ///
    /// # Errors
    ///
    /// Describes the first contradiction.
    pub fn check(&self) -> Result<(), LabError> {
        let PackingRules { packet_bytes: length, buffer_bytes: buffer, .. } = *self;
        if !(1..=PackingRules::MAX_BUFFER_BYTES).contains(&buffer) {
            return Err(LabError::Invalid(format!(
                "a buffer of {buffer} bytes: use 1 to {}",
                PackingRules::MAX_BUFFER_BYTES
            )));
        }
        if length > buffer {
            return Err(LabError::Invalid(format!(
                "packets of {length} bytes do not fit in a buffer of {buffer}"
            )));
        }
        if self.delimiter.len() > 2 {
            return Err(LabError::Invalid(format!(
                "a delimiter of {} bytes: use one or two",
                self.delimiter.len()
            )));
        }
        if self.delimiter.is_empty() && self.delimiter_process != DelimiterProcess::Keep {
            return Err(LabError::Invalid("a rule for the delimiter, but no delimiter".to_owned()));
        }
        Ok(())
    }

    /// Whether data is never held back.
    fn is_immediate(&self) -> bool {
        self.inter_character_timeout.is_zero()
            && self.force_transmit_after.is_zero()
            && self.packet_bytes == 0
            && self.delimiter.is_empty()
    }
}

/// The buffer of one port. It allocates only on creation.
///
/// Fill its [`free_space`](Packer::free_space), report that with [`commit`](Packer::commit), and take packets with
/// [`next_packet`](Packer::next_packet) until there are no more.
#[derive(Debug)]
pub(crate) struct Packer {
    rules: PackingRules,
    is_immediate: bool,
    bytes: Box<[u8]>,
    /// The current packet lies from `start` to `end`.
    start: usize,
    end: usize,
    /// The content rules were checked up to here; none applies.
    scanned_end: usize,
    /// The end of the packet, after a delimiter was found.
    packet_end: Option<usize>,
    /// The line was silent long enough here, but the next bytes arrived before that was noticed.
    silence_end: Option<usize>,
    first_byte_time: Time,
    last_byte_time: Time,
}

impl Packer {
    /// A packer with an empty buffer.
    pub fn new(packing: &PackingRules) -> Packer {
        Packer {
            is_immediate: packing.is_immediate(),
            bytes: vec![0; packing.buffer_bytes].into(),
            rules: packing.clone(),
            start: 0,
            end: 0,
            scanned_end: 0,
            packet_end: None,
            silence_end: None,
            first_byte_time: Time(0),
            last_byte_time: Time(0),
        }
    }

    /// Space for the next bytes of the line. Never empty if all packets were taken.
    pub(crate) fn free_space(&mut self) -> &mut [u8] {
        let start = std::mem::take(&mut self.start);
        self.bytes.copy_within(start..self.end, 0);
        self.end -= start;
        self.scanned_end -= start;
        self.packet_end = self.packet_end.map(|at| at - start);
        &mut self.bytes[self.end..]
    }

    /// The first `bytes` of the free space came from the line. `now` is the time just after that.
    pub(crate) fn commit(&mut self, bytes: usize, now: Time) {
        if self.start == self.end {
            self.first_byte_time = now;
        } else if self.due_time() <= now {
            self.silence_end = Some(self.end);
        }
        self.end += bytes;
        self.last_byte_time = now;
    }

    /// Time when buffered data has to be sent without further input; [`Time::NEVER`] if there is none.
    pub(crate) fn due_time(&self) -> Time {
        if self.start == self.end {
            return Time::NEVER;
        }
        if self.is_immediate {
            return self.first_byte_time;
        }
        let after = |from: Time, rule: Duration| if rule.is_zero() { Time::NEVER } else { from + rule };
        after(self.last_byte_time, self.rules.inter_character_timeout)
            .min(after(self.first_byte_time, self.rules.force_transmit_after))
    }

    /// The next packet, if one is complete at `now`.
    pub(crate) fn next_packet(&mut self, now: Time) -> Option<&[u8]> {
        loop {
            let (packet_end, next_start) = self.next_boundary(now)?;
            let packet = self.start..packet_end;
            self.start = next_start;
            self.scanned_end = next_start;
            self.packet_end = None;
            // The remaining bytes arrived with the last ones.
            self.first_byte_time = self.last_byte_time;
            if !packet.is_empty() {
                return Some(&self.bytes[packet]);
            }
        }
    }

    /// The time of the last byte so far.
    pub(crate) fn last_byte_time(&self) -> Time {
        self.last_byte_time
    }

    /// Number of buffered bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Discards the buffered bytes, but not the free space being filled. Returns their number.
    pub(crate) fn discard_waiting(&mut self) -> usize {
        let waiting = self.waiting_bytes();
        (self.start, self.scanned_end) = (self.end, self.end);
        (self.packet_end, self.silence_end) = (None, None);
        waiting
    }

    /// The end of the packet, and the start of the next.
    fn next_boundary(&mut self, now: Time) -> Option<(usize, usize)> {
        let limit = self.silence_end.unwrap_or(self.end);
        if let Some(found) = self.scan_content_rules(limit) {
            return Some(found);
        }
        if self.silence_end.take().is_some() {
            return Some((limit, limit));
        }
        let full = self.end - self.start == self.bytes.len();
        (full || self.due_time() <= now).then_some((self.end, self.end))
    }

    /// Checks the content rules byte by byte.
    fn scan_content_rules(&mut self, limit: usize) -> Option<(usize, usize)> {
        let PackingRules { packet_bytes: length, delimiter, delimiter_process: process, .. } = &self.rules;
        if *length == 0 && delimiter.is_empty() {
            return None;
        }
        while self.scanned_end < limit {
            self.scanned_end += 1;
            let at = self.scanned_end;
            let packet = &self.bytes[self.start..at];
            if self.packet_end.is_none() && !delimiter.is_empty() && packet.ends_with(delimiter) {
                let more = if let DelimiterProcess::Plus(more) = process { *more } else { 0 };
                self.packet_end = Some(at + more);
            }
            if self.packet_end == Some(at) {
                let stripped = if *process == DelimiterProcess::Strip { delimiter.len() } else { 0 };
                return Some((at - stripped, at));
            }
            if packet.len() == *length {
                return Some((at, at));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at_ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Commits bytes at an instant and returns the resulting packets.
    fn commit_bytes(packer: &mut Packer, bytes: &[u8], now: Time) -> Vec<String> {
        packer.free_space()[..bytes.len()].copy_from_slice(bytes);
        packer.commit(bytes.len(), now);
        take_packets(packer, now)
    }

    fn take_packets(packer: &mut Packer, now: Time) -> Vec<String> {
        std::iter::from_fn(|| {
            packer.next_packet(now).map(|packet| String::from_utf8(packet.to_vec()).unwrap())
        })
        .collect()
    }

    fn packer_with(change: impl FnOnce(&mut PackingRules)) -> Packer {
        let mut packing = PackingRules::default();
        change(&mut packing);
        packing.check().unwrap();
        Packer::new(&packing)
    }

    #[test]
    fn without_rules_every_read_is_a_packet() {
        let mut packer = packer_with(|_| {});
        assert_eq!(packer.due_time(), Time::NEVER);
        assert_eq!(commit_bytes(&mut packer, b"abc", at_ms(1)), ["abc"]);
        assert_eq!(commit_bytes(&mut packer, b"d", at_ms(1)), ["d"]);
        assert_eq!(packer.due_time(), Time::NEVER);
        assert_eq!(packer.free_space().len(), 1024);
    }

    #[test]
    fn the_inter_character_time_counts_from_the_last_byte() {
        let mut packer = packer_with(|packing| packing.inter_character_timeout = 5 * MILLISECOND);
        assert!(commit_bytes(&mut packer, b"a", at_ms(0)).is_empty());
        assert!(commit_bytes(&mut packer, b"b", at_ms(4)).is_empty());
        assert_eq!(packer.due_time(), at_ms(9));
        assert!(take_packets(&mut packer, at_ms(8)).is_empty());
        assert_eq!(take_packets(&mut packer, at_ms(9)), ["ab"]);
        // Silence separates packets even if it is noticed late.
        assert!(commit_bytes(&mut packer, b"c", at_ms(20)).is_empty());
        assert_eq!(commit_bytes(&mut packer, b"d", at_ms(30)), ["c"]);
        assert_eq!(packer.due_time(), at_ms(35));
        assert_eq!(take_packets(&mut packer, at_ms(35)), ["d"]);
    }

    #[test]
    fn force_transmit_counts_from_the_first_byte() {
        let mut packer = packer_with(|packing| packing.force_transmit_after = 5 * MILLISECOND);
        assert!(commit_bytes(&mut packer, b"a", at_ms(0)).is_empty());
        assert!(commit_bytes(&mut packer, b"b", at_ms(4)).is_empty());
        assert_eq!(packer.due_time(), at_ms(5));
        assert_eq!(take_packets(&mut packer, at_ms(5)), ["ab"]);
        assert!(commit_bytes(&mut packer, b"c", at_ms(7)).is_empty());
        assert_eq!(packer.due_time(), at_ms(12));
    }

    #[test]
    fn packet_length_splits_and_keeps_the_rest() {
        let mut packer = packer_with(|packing| {
            packing.packet_bytes = 3;
            packing.force_transmit_after = 5 * MILLISECOND;
        });
        assert_eq!(commit_bytes(&mut packer, b"abcdefgh", at_ms(1)), ["abc", "def"]);
        assert_eq!(packer.due_time(), at_ms(6), "counted from the arrival of the rest");
        assert_eq!(commit_bytes(&mut packer, b"i", at_ms(2)), ["ghi"]);
        assert_eq!(packer.due_time(), Time::NEVER);
    }

    #[test]
    fn a_full_buffer_is_sent() {
        let mut packer = packer_with(|packing| {
            packing.inter_character_timeout = 5 * MILLISECOND;
            packing.buffer_bytes = 4;
        });
        assert!(commit_bytes(&mut packer, b"abc", at_ms(0)).is_empty());
        assert_eq!(packer.free_space().len(), 1);
        assert_eq!(commit_bytes(&mut packer, b"d", at_ms(0)), ["abcd"]);
        assert_eq!(packer.free_space().len(), 4);
    }

    #[test]
    fn delimiters_end_packets() {
        let with = |delimiter: &[u8], process| {
            packer_with(|packing| {
                packing.delimiter = delimiter.to_vec();
                packing.delimiter_process = process;
            })
        };
        let mut keep = with(b"\n", DelimiterProcess::Keep);
        assert_eq!(commit_bytes(&mut keep, b"one\ntwo\nthr", at_ms(0)), ["one\n", "two\n"]);
        assert_eq!(keep.due_time(), Time::NEVER, "without a timeout it waits for ever");
        assert_eq!(commit_bytes(&mut keep, b"ee\n", at_ms(9)), ["three\n"]);

        let mut strip = with(b"\r\n", DelimiterProcess::Strip);
        assert_eq!(
            commit_bytes(&mut strip, b"one\r\n\r\ntwo\n\r", at_ms(0)),
            ["one"],
            "an empty packet is none"
        );
        assert_eq!(commit_bytes(&mut strip, b"\n", at_ms(1)), ["two\n"], "over two reads");

        let mut plus = with(b";", DelimiterProcess::Plus(2));
        assert_eq!(commit_bytes(&mut plus, b"a;", at_ms(0)), [""; 0]);
        assert_eq!(
            commit_bytes(&mut plus, b";", at_ms(0)),
            [""; 0],
            "a delimiter among the bytes behind one is none"
        );
        assert_eq!(commit_bytes(&mut plus, b"xb;12c", at_ms(0)), ["a;;x", "b;12"]);
    }

    #[test]
    fn delimiters_do_not_span_sent_packets() {
        let mut packer = packer_with(|packing| {
            packing.delimiter = b"\r\n".to_vec();
            packing.force_transmit_after = 5 * MILLISECOND;
        });
        assert!(commit_bytes(&mut packer, b"a\r", at_ms(0)).is_empty());
        assert_eq!(take_packets(&mut packer, at_ms(5)), ["a\r"]);
        assert!(commit_bytes(&mut packer, b"\nb", at_ms(6)).is_empty());
        packer.free_space()[..3].copy_from_slice(b"new");
        assert_eq!(packer.discard_waiting(), 2);
        assert_eq!(packer.due_time(), Time::NEVER);
        packer.commit(3, at_ms(7));
        assert_eq!(take_packets(&mut packer, at_ms(12)), ["new"]);
    }

    #[test]
    fn contradicting_rules_are_refused() {
        let refused = |change: fn(&mut PackingRules)| {
            let mut packing = PackingRules::default();
            change(&mut packing);
            packing.check().unwrap_err().to_string()
        };
        assert_eq!(refused(|p| p.buffer_bytes = 0), "a buffer of 0 bytes: use 1 to 1048576");
        assert_eq!(
            refused(|p| p.packet_bytes = 2000),
            "packets of 2000 bytes do not fit in a buffer of 1024"
        );
        assert_eq!(refused(|p| p.delimiter = vec![1, 2, 3]), "a delimiter of 3 bytes: use one or two");
        assert_eq!(
            refused(|p| p.delimiter_process = DelimiterProcess::Strip),
            "a rule for the delimiter, but no delimiter"
        );
    }

    fn any_packing() -> impl Strategy<Value = PackingRules> {
        let process = prop_oneof![
            Just(DelimiterProcess::Keep),
            Just(DelimiterProcess::Plus(1)),
            Just(DelimiterProcess::Plus(2))
        ];
        (0u32..4, 0u32..4, 0usize..9, prop::collection::vec(0u8..3, 0..3), process, 8usize..20).prop_map(
            |(silence, force, length, delimiter, process, buffer)| PackingRules {
                inter_character_timeout: silence * MILLISECOND,
                force_transmit_after: force * MILLISECOND,
                packet_bytes: length.min(buffer),
                delimiter_process: if delimiter.is_empty() { DelimiterProcess::Keep } else { process },
                delimiter,
                buffer_bytes: buffer,
            },
        )
    }

    proptest! {
        #[test]
        fn nothing_is_lost_doubled_or_late(
            packing in any_packing(),
            reads in prop::collection::vec((prop::collection::vec(0u8..4, 1..8), 0u64..4), 0..40),
        ) {
            let mut packer = Packer::new(&packing);
            let mut now = 0;
            let (mut sent, mut received) = (Vec::<u8>::new(), Vec::<u8>::new());
            for (bytes, pause) in reads {
                now += pause;
                let room = packer.free_space();
                let count = bytes.len().min(room.len());
                prop_assert!(count > 0, "there is always room");
                room[..count].copy_from_slice(&bytes[..count]);
                packer.commit(count, at_ms(now));
                sent.extend(&bytes[..count]);
                while let Some(packet) = packer.next_packet(at_ms(now)) {
                    prop_assert!(packing.packet_bytes == 0 || packet.len() <= packing.packet_bytes);
                    received.extend_from_slice(packet);
                }
                prop_assert!(packer.due_time() > at_ms(now));
            }
            let waiting = packer.discard_waiting();
            prop_assert_eq!(&sent[..sent.len() - waiting], &received[..]);
        }
    }
}
