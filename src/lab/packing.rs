//! Packing: when a device server sends on what came from its line, by the rules that real ones have.
//!
//! Bytes in with the time, packets out, and when the next one is due. Reads no clock and waits for nothing.

use std::time::Duration;

use crate::clock::Time;

/// The rules of a port. Whichever is met first ends a packet; so does a full buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// Send once the line was silent for so long. Zero: no such rule.
    pub inter_character: Duration,
    /// Send so long after the first byte. Zero: no such rule.
    pub force_transmit: Duration,
    /// Send when so many bytes are there, at most `buffer`. Zero: no such rule.
    pub length: usize,
    /// Send when these one or two bytes have come, one after the other. Empty: no such rule.
    pub delimiter: Vec<u8>,
    pub process: DelimiterProcess,
    /// Bytes that wait for a rule at most, 1 to [`Packing::LARGEST_BUFFER`].
    pub buffer: usize,
}

/// What becomes of a delimiter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DelimiterProcess {
    /// It ends the packet.
    #[default]
    Keep,
    /// The packet ends before it; it is not sent.
    Strip,
    /// So many bytes behind it belong to the packet: checksums.
    Plus(usize),
}

/// What a read brings is sent at once.
impl Default for Packing {
    fn default() -> Packing {
        Packing {
            inter_character: Duration::ZERO,
            force_transmit: Duration::ZERO,
            length: 0,
            delimiter: Vec::new(),
            process: DelimiterProcess::Keep,
            buffer: 1024, // Moxa's NPort
        }
    }
}

impl Packing {
    /// More would only hide the line behind a buffer.
    pub const LARGEST_BUFFER: usize = 1 << 20;

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        let Packing { length, buffer, .. } = *self;
        if !(1..=Packing::LARGEST_BUFFER).contains(&buffer) {
            return Err(format!("a buffer of {buffer} bytes: use 1 to {}", Packing::LARGEST_BUFFER));
        }
        if length > buffer {
            return Err(format!("packets of {length} bytes do not fit in a buffer of {buffer}"));
        }
        if self.delimiter.len() > 2 {
            return Err(format!("a delimiter of {} bytes: use one or two", self.delimiter.len()));
        }
        if self.delimiter.is_empty() && self.process != DelimiterProcess::Keep {
            return Err("a way to process the delimiter, but no delimiter".to_owned());
        }
        Ok(())
    }

    /// Whether nothing ever waits.
    fn passes_at_once(&self) -> bool {
        self.inter_character.is_zero()
            && self.force_transmit.is_zero()
            && self.length == 0
            && self.delimiter.is_empty()
    }
}

/// The buffer of one port. Allocates when it is made, never after.
///
/// Fill its [`room`](Packer::room), say so with [`filled`](Packer::filled), and take packets with
/// [`next`](Packer::next) until there is none.
#[derive(Debug)]
pub struct Packer {
    packing: Packing,
    at_once: bool,
    bytes: Box<[u8]>,
    /// The packet that is being collected lies from `start` to `end`.
    start: usize,
    end: usize,
    /// Up to here no rule of content is met.
    scanned: usize,
    /// A delimiter was seen: the packet ends here.
    ends_at: Option<usize>,
    /// The line was silent here for long enough, but its next bytes were faster than this was noticed.
    silent_at: Option<usize>,
    first: Time,
    last: Time,
}

impl Packer {
    pub fn new(packing: &Packing) -> Packer {
        Packer {
            at_once: packing.passes_at_once(),
            bytes: vec![0; packing.buffer].into(),
            packing: packing.clone(),
            start: 0,
            end: 0,
            scanned: 0,
            ends_at: None,
            silent_at: None,
            first: Time(0),
            last: Time(0),
        }
    }

    /// Where the next bytes of the line go. Never empty, if all packets were taken.
    pub fn room(&mut self) -> &mut [u8] {
        let start = std::mem::take(&mut self.start);
        self.bytes.copy_within(start..self.end, 0);
        self.end -= start;
        self.scanned -= start;
        self.ends_at = self.ends_at.map(|at| at - start);
        &mut self.bytes[self.end..]
    }

    /// The first `bytes` of the room came from the line; `now` is the time just after they did.
    pub fn filled(&mut self, bytes: usize, now: Time) {
        if self.start == self.end {
            self.first = now;
        } else if self.due() <= now {
            self.silent_at = Some(self.end);
        }
        self.end += bytes;
        self.last = now;
    }

    /// When something has to be sent although nothing more came; [`Time::NEVER`] if nothing has.
    pub fn due(&self) -> Time {
        if self.start == self.end {
            return Time::NEVER;
        }
        if self.at_once {
            return self.first;
        }
        let after = |from: Time, rule: Duration| if rule.is_zero() { Time::NEVER } else { from + rule };
        after(self.last, self.packing.inter_character).min(after(self.first, self.packing.force_transmit))
    }

    /// The next packet, if one is complete by now.
    pub fn next(&mut self, now: Time) -> Option<&[u8]> {
        loop {
            let (packet_end, next_start) = self.boundary(now)?;
            let packet = self.start..packet_end;
            self.start = next_start;
            self.scanned = next_start;
            self.ends_at = None;
            // What is left came with the last bytes.
            self.first = self.last;
            if !packet.is_empty() {
                return Some(&self.bytes[packet]);
            }
        }
    }

    /// Forgets what waits, but not what is being put into the room; returns how many bytes that was.
    pub fn clear(&mut self) -> usize {
        let waiting = self.end - self.start;
        (self.start, self.scanned) = (self.end, self.end);
        (self.ends_at, self.silent_at) = (None, None);
        waiting
    }

    /// Where the packet ends, and where the one behind it begins.
    fn boundary(&mut self, now: Time) -> Option<(usize, usize)> {
        let limit = self.silent_at.unwrap_or(self.end);
        if let Some(found) = self.scan(limit) {
            return Some(found);
        }
        if self.silent_at.take().is_some() {
            return Some((limit, limit));
        }
        let full = self.end - self.start == self.bytes.len();
        (full || self.due() <= now).then_some((self.end, self.end))
    }

    /// Looks for what the rules of content want, byte by byte.
    fn scan(&mut self, limit: usize) -> Option<(usize, usize)> {
        let Packing { length, delimiter, process, .. } = &self.packing;
        if *length == 0 && delimiter.is_empty() {
            return None;
        }
        while self.scanned < limit {
            self.scanned += 1;
            let at = self.scanned;
            let packet = &self.bytes[self.start..at];
            if self.ends_at.is_none() && !delimiter.is_empty() && packet.ends_with(delimiter) {
                let more = if let DelimiterProcess::Plus(more) = process { *more } else { 0 };
                self.ends_at = Some(at + more);
            }
            if self.ends_at == Some(at) {
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

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Puts bytes in at an instant; what comes out then.
    fn put(packer: &mut Packer, bytes: &[u8], now: Time) -> Vec<String> {
        packer.room()[..bytes.len()].copy_from_slice(bytes);
        packer.filled(bytes.len(), now);
        take(packer, now)
    }

    fn take(packer: &mut Packer, now: Time) -> Vec<String> {
        std::iter::from_fn(|| packer.next(now).map(|packet| String::from_utf8(packet.to_vec()).unwrap()))
            .collect()
    }

    fn packer(change: impl FnOnce(&mut Packing)) -> Packer {
        let mut packing = Packing::default();
        change(&mut packing);
        packing.check().unwrap();
        Packer::new(&packing)
    }

    #[test]
    fn without_rules_every_read_is_a_packet() {
        let mut packer = packer(|_| {});
        assert_eq!(packer.due(), Time::NEVER);
        assert_eq!(put(&mut packer, b"abc", at(1)), ["abc"]);
        assert_eq!(put(&mut packer, b"d", at(1)), ["d"]);
        assert_eq!(packer.due(), Time::NEVER);
        assert_eq!(packer.room().len(), 1024);
    }

    #[test]
    fn the_inter_character_time_counts_from_the_last_byte() {
        let mut packer = packer(|packing| packing.inter_character = 5 * MS);
        assert!(put(&mut packer, b"a", at(0)).is_empty());
        assert!(put(&mut packer, b"b", at(4)).is_empty());
        assert_eq!(packer.due(), at(9));
        assert!(take(&mut packer, at(8)).is_empty());
        assert_eq!(take(&mut packer, at(9)), ["ab"]);
        // Noticed late, silence still parts what came before it from what came after.
        assert!(put(&mut packer, b"c", at(20)).is_empty());
        assert_eq!(put(&mut packer, b"d", at(30)), ["c"]);
        assert_eq!(packer.due(), at(35));
        assert_eq!(take(&mut packer, at(35)), ["d"]);
    }

    #[test]
    fn force_transmit_counts_from_the_first_byte() {
        let mut packer = packer(|packing| packing.force_transmit = 5 * MS);
        assert!(put(&mut packer, b"a", at(0)).is_empty());
        assert!(put(&mut packer, b"b", at(4)).is_empty());
        assert_eq!(packer.due(), at(5));
        assert_eq!(take(&mut packer, at(5)), ["ab"]);
        assert!(put(&mut packer, b"c", at(7)).is_empty());
        assert_eq!(packer.due(), at(12));
    }

    #[test]
    fn a_length_cuts_and_the_rest_waits() {
        let mut packer = packer(|packing| {
            packing.length = 3;
            packing.force_transmit = 5 * MS;
        });
        assert_eq!(put(&mut packer, b"abcdefgh", at(1)), ["abc", "def"]);
        assert_eq!(packer.due(), at(6), "counted from when the rest came");
        assert_eq!(put(&mut packer, b"i", at(2)), ["ghi"]);
        assert_eq!(packer.due(), Time::NEVER);
    }

    #[test]
    fn a_full_buffer_is_sent() {
        let mut packer = packer(|packing| {
            packing.inter_character = 5 * MS;
            packing.buffer = 4;
        });
        assert!(put(&mut packer, b"abc", at(0)).is_empty());
        assert_eq!(packer.room().len(), 1);
        assert_eq!(put(&mut packer, b"d", at(0)), ["abcd"]);
        assert_eq!(packer.room().len(), 4);
    }

    #[test]
    fn delimiters_end_packets() {
        let with = |delimiter: &[u8], process| {
            packer(|packing| {
                packing.delimiter = delimiter.to_vec();
                packing.process = process;
            })
        };
        let mut keep = with(b"\n", DelimiterProcess::Keep);
        assert_eq!(put(&mut keep, b"one\ntwo\nthr", at(0)), ["one\n", "two\n"]);
        assert_eq!(keep.due(), Time::NEVER, "without a time-out it waits for ever");
        assert_eq!(put(&mut keep, b"ee\n", at(9)), ["three\n"]);

        let mut strip = with(b"\r\n", DelimiterProcess::Strip);
        assert_eq!(put(&mut strip, b"one\r\n\r\ntwo\n\r", at(0)), ["one"], "an empty packet is none");
        assert_eq!(put(&mut strip, b"\n", at(1)), ["two\n"], "over two reads");

        let mut plus = with(b";", DelimiterProcess::Plus(2));
        assert_eq!(put(&mut plus, b"a;", at(0)), [""; 0]);
        assert_eq!(put(&mut plus, b";", at(0)), [""; 0], "a delimiter among the bytes behind one is none");
        assert_eq!(put(&mut plus, b"xb;12c", at(0)), ["a;;x", "b;12"]);
    }

    #[test]
    fn a_delimiter_does_not_reach_over_a_packet_that_was_sent() {
        let mut packer = packer(|packing| {
            packing.delimiter = b"\r\n".to_vec();
            packing.force_transmit = 5 * MS;
        });
        assert!(put(&mut packer, b"a\r", at(0)).is_empty());
        assert_eq!(take(&mut packer, at(5)), ["a\r"]);
        assert!(put(&mut packer, b"\nb", at(6)).is_empty());
        packer.room()[..3].copy_from_slice(b"new");
        assert_eq!(packer.clear(), 2);
        assert_eq!(packer.due(), Time::NEVER);
        packer.filled(3, at(7));
        assert_eq!(take(&mut packer, at(12)), ["new"]);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = |change: fn(&mut Packing)| {
            let mut packing = Packing::default();
            change(&mut packing);
            packing.check().unwrap_err()
        };
        assert_eq!(refused(|p| p.buffer = 0), "a buffer of 0 bytes: use 1 to 1048576");
        assert_eq!(refused(|p| p.length = 2000), "packets of 2000 bytes do not fit in a buffer of 1024");
        assert_eq!(refused(|p| p.delimiter = vec![1, 2, 3]), "a delimiter of 3 bytes: use one or two");
        assert_eq!(
            refused(|p| p.process = DelimiterProcess::Strip),
            "a way to process the delimiter, but no delimiter"
        );
    }

    fn any_packing() -> impl Strategy<Value = Packing> {
        let process = prop_oneof![
            Just(DelimiterProcess::Keep),
            Just(DelimiterProcess::Plus(1)),
            Just(DelimiterProcess::Plus(2))
        ];
        (0u32..4, 0u32..4, 0usize..9, prop::collection::vec(0u8..3, 0..3), process, 8usize..20).prop_map(
            |(silence, force, length, delimiter, process, buffer)| Packing {
                inter_character: silence * MS,
                force_transmit: force * MS,
                length: length.min(buffer),
                process: if delimiter.is_empty() { DelimiterProcess::Keep } else { process },
                delimiter,
                buffer,
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
            let (mut sent, mut got) = (Vec::<u8>::new(), Vec::<u8>::new());
            for (bytes, pause) in reads {
                now += pause;
                let room = packer.room();
                let count = bytes.len().min(room.len());
                prop_assert!(count > 0, "there is always room");
                room[..count].copy_from_slice(&bytes[..count]);
                packer.filled(count, at(now));
                sent.extend(&bytes[..count]);
                while let Some(packet) = packer.next(at(now)) {
                    prop_assert!(packing.length == 0 || packet.len() <= packing.length);
                    got.extend_from_slice(packet);
                }
                prop_assert!(packer.due() > at(now));
            }
            let waiting = packer.clear();
            prop_assert_eq!(&sent[..sent.len() - waiting], &got[..]);
        }
    }
}
