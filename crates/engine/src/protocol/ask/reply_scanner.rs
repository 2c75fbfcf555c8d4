//! Finds the end of a reply, byte by byte, without storing the reply.
//!
//! The memory use is constant, so a wrong length field in a reply has no cost. The codec matches replies to requests.

use super::text::{self, InvalidText};

/// Maximum reply size in bytes; longer replies are malformed. No device sends more for a small request.
pub const MAX_REPLY_BYTES: u64 = 1 << 20;

/// Rule for the end of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The reply ends with these bytes.
    Terminator(PatternSearch),
    /// The reply always has this many bytes.
    FixedLength(u64),
    /// A field of the reply holds its length.
    LengthField(LengthField),
    /// The link preserves message boundaries: the next message is the reply.
    Message,
}

/// The length field of a reply: `offset,size,endian,add`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthField {
    offset: u64,
    /// Size of the field in bytes, 1 to 8.
    size: u64,
    big_endian: bool,
    /// Number of bytes to add to the value of the field to get the length of the whole reply; may be negative.
    adjustment: i64,
}

impl LengthField {
    /// Parses `offset,size,endian,add`, as `4,2,big,6`.
    ///
    /// # Errors
    ///
    /// The text does not have that form, or a number is out of range; the message names the ranges.
    pub fn parse(text: &str) -> Result<LengthField, InvalidText> {
        let wrong = || {
            InvalidText(format!(
                "'{text}' is not offset,size,endian,add, like 4,2,big,6: offset 0 to 65535, size 1 to 8, endian big or \
                 little, add -1048576 to 1048576"
            ))
        };
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let [offset, size, endian, add] = parts[..] else { return Err(wrong()) };
        let big_endian = match endian {
            "big" => true,
            "little" => false,
            _ => return Err(wrong()),
        };
        let offset = offset.parse().ok().filter(|offset| (0..=65_535).contains(offset));
        let size = size.parse().ok().filter(|size| (1..=8).contains(size));
        let add = add.parse().ok().filter(|add: &i64| add.unsigned_abs() <= MAX_REPLY_BYTES);
        let ((offset, size), add) = offset.zip(size).zip(add).ok_or_else(wrong)?;
        Ok(LengthField { offset, size, big_endian, adjustment: add })
    }

    /// Offset of the end of the field.
    fn end_offset(&self) -> u64 {
        self.offset + self.size
    }

    /// Adds the byte at `index` of the field to its value.
    fn accumulate(&self, value: u64, index: u64, byte: u8) -> u64 {
        match self.big_endian {
            true => value << 8 | u64::from(byte),
            false => value | u64::from(byte) << (8 * index),
        }
    }

    /// The length of the whole reply, if it is plausible.
    fn total_length(&self, value: u64) -> Option<u64> {
        let total = u64::try_from(i128::from(value) + i128::from(self.adjustment)).ok()?;
        (self.end_offset()..=MAX_REPLY_BYTES).contains(&total).then_some(total)
    }
}

/// Finds a byte string in a stream that arrives in chunks (Knuth, Morris, Pratt 1977).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternSearch {
    pattern: Vec<u8>,
    /// Length of the prefix that still matches after a mismatch, by the number of matched bytes.
    failure_table: Vec<usize>,
    matched: usize,
}

impl PatternSearch {
    /// Parses the text form; see `text::parse_bytes`.
    ///
    /// # Errors
    ///
    /// Same errors as `text::parse_bytes`.
    pub fn parse(text: &str) -> Result<PatternSearch, InvalidText> {
        text::parse_bytes(text).map(PatternSearch::new)
    }

    pub(crate) fn new(wanted: Vec<u8>) -> PatternSearch {
        let mut shorter = vec![0; wanted.len()];
        let mut matched = 0;
        for at in 1..wanted.len() {
            while matched > 0 && wanted[at] != wanted[matched] {
                matched = shorter[matched - 1];
            }
            matched += usize::from(wanted[at] == wanted[matched]);
            shorter[at] = matched;
        }
        PatternSearch { pattern: wanted, failure_table: shorter, matched: 0 }
    }

    /// Returns whether `byte` completes a match.
    pub fn push(&mut self, byte: u8) -> bool {
        if self.matched == self.pattern.len() {
            self.matched = self.failure_table[self.matched - 1];
        }
        while self.matched > 0 && self.pattern[self.matched] != byte {
            self.matched = self.failure_table[self.matched - 1];
        }
        self.matched += usize::from(self.pattern[self.matched] == byte);
        self.matched == self.pattern.len()
    }
}

/// Result of scanning some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanResult {
    /// All bytes belong to the reply, which is not complete.
    Incomplete,
    /// The reply ends after `used` bytes; `is_expected` if it contains the expected bytes.
    Complete {
        /// Bytes that belong to the reply.
        used: usize,
        /// Whether the reply contains the expected bytes, if any are expected.
        is_expected: bool,
    },
    /// The input is not a reply after `used` bytes: longer than [`MAX_REPLY_BYTES`], or with an impossible length.
    Malformed {
        /// Bytes before the malformed input.
        used: usize,
    },
}

/// Scans replies one after the other.
#[derive(Debug, Clone)]
pub struct ReplyScanner {
    end: ReplyEnd,
    expected_text: Option<PatternSearch>,
    has_expected: bool,
    scanned_bytes: u64,
    /// Value of the length field received so far, and length of the reply once the field is complete.
    length_value: u64,
    total_length: Option<u64>,
}

impl ReplyScanner {
    /// Scanner for replies with this end. `expect` finds the bytes that each reply must contain.
    pub fn new(end: ReplyEnd, expect: Option<PatternSearch>) -> ReplyScanner {
        ReplyScanner {
            end,
            has_expected: expect.is_none(),
            expected_text: expect,
            scanned_bytes: 0,
            length_value: 0,
            total_length: None,
        }
    }

    /// Starts a reply with the next byte.
    pub(crate) fn restart(&mut self) {
        (self.scanned_bytes, self.length_value, self.total_length) = (0, 0, None);
        self.has_expected = self.expected_text.is_none();
        if let Some(expect) = &mut self.expected_text {
            expect.matched = 0;
        }
        if let ReplyEnd::Terminator(until) = &mut self.end {
            until.matched = 0;
        }
    }

    /// Continues the scan. The next call starts a new reply unless this one is [`ScanResult::Incomplete`].
    pub fn scan(&mut self, data: &[u8]) -> ScanResult {
        for (index, &byte) in data.iter().enumerate() {
            if let Some(expect) = &mut self.expected_text {
                self.has_expected |= expect.push(byte);
            }
            let used = index + 1;
            match self.push(byte) {
                ByteResult::More => {}
                ByteResult::Complete => return self.complete(used),
                ByteResult::Malformed => {
                    self.restart();
                    return ScanResult::Malformed { used };
                }
            }
        }
        match self.end {
            ReplyEnd::Message => self.complete(data.len()),
            _ => ScanResult::Incomplete,
        }
    }

    fn complete(&mut self, used: usize) -> ScanResult {
        let expected = self.has_expected;
        self.restart();
        ScanResult::Complete { used, is_expected: expected }
    }

    fn push(&mut self, byte: u8) -> ByteResult {
        let index = self.scanned_bytes;
        self.scanned_bytes += 1;
        match &mut self.end {
            ReplyEnd::Terminator(until) => match until.push(byte) {
                true => ByteResult::Complete,
                false if self.scanned_bytes >= MAX_REPLY_BYTES => ByteResult::Malformed,
                false => ByteResult::More,
            },
            ReplyEnd::FixedLength(bytes) if self.scanned_bytes >= *bytes => ByteResult::Complete,
            ReplyEnd::LengthField(field) => {
                if (field.offset..field.end_offset()).contains(&index) {
                    self.length_value = field.accumulate(self.length_value, index - field.offset, byte);
                }
                if self.scanned_bytes == field.end_offset() {
                    self.total_length = field.total_length(self.length_value);
                    if self.total_length.is_none() {
                        return ByteResult::Malformed;
                    }
                }
                if self.total_length == Some(self.scanned_bytes) {
                    ByteResult::Complete
                } else {
                    ByteResult::More
                }
            }
            ReplyEnd::FixedLength(_) | ReplyEnd::Message => ByteResult::More,
        }
    }
}

enum ByteResult {
    More,
    Complete,
    Malformed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn until(text: &str) -> ReplyEnd {
        ReplyEnd::Terminator(PatternSearch::parse(text).unwrap())
    }

    fn length(text: &str) -> ReplyEnd {
        ReplyEnd::LengthField(LengthField::parse(text).unwrap())
    }

    /// Scans a stream in chunks of these lengths; returns the end and the result of every reply.
    fn scan_all(
        end: &ReplyEnd,
        expect: Option<&str>,
        stream: &[u8],
        chunk_lengths: &[usize],
    ) -> Vec<(usize, &'static str)> {
        let mut reply =
            ReplyScanner::new(end.clone(), expect.map(|text| PatternSearch::parse(text).unwrap()));
        let mut found = Vec::new();
        let (mut at, mut chunk_lengths) = (0, chunk_lengths.iter().cycle());
        while at < stream.len() {
            let chunk_bytes =
                chunk_lengths.next().map_or(stream.len(), |&length| length.max(1)).min(stream.len() - at);
            let end = at + chunk_bytes;
            while at < end {
                let (used, what) = match reply.scan(&stream[at..end]) {
                    ScanResult::Incomplete => break,
                    ScanResult::Complete { used, is_expected: true } => (used, "whole"),
                    ScanResult::Complete { used, is_expected: false } => (used, "unexpected"),
                    ScanResult::Malformed { used } => (used, "broken"),
                };
                assert!((1..=end - at).contains(&used));
                at += used;
                found.push((at, what));
            }
            at = end;
        }
        found
    }

    #[test]
    fn a_terminator_may_arrive_in_chunks() {
        let stream = b"\r\nOK\r\nO\r\nOOK\r\nERROR\r\n";
        for chunk_lengths in [&[][..], &[1], &[3, 1], &[5], &[2, 7]] {
            assert_eq!(
                scan_all(&until(r"OK\r\n"), None, stream, chunk_lengths),
                [(6, "whole"), (14, "whole")]
            );
        }
        assert_eq!(scan_all(&until("aab"), None, b"aaab.aab", &[1]), [(4, "whole"), (8, "whole")]);
    }

    #[test]
    fn a_length_field_is_read_wherever_it_stands() {
        // Modbus/TCP: transaction, protocol, length, unit, function, bytes, one register.
        let modbus = [0, 1, 0, 0, 0, 5, 1, 3, 2, 0x12, 0x34];
        let twice = [modbus, modbus].concat();
        assert_eq!(scan_all(&length("4,2,big,6"), None, &twice, &[4]), [(11, "whole"), (22, "whole")]);
        assert_eq!(
            scan_all(&length("0,1,big,1"), None, &[0, 1, 9, 0], &[]),
            [(1, "whole"), (3, "whole"), (4, "whole")]
        );
        assert_eq!(scan_all(&length("0,4,little,0"), None, &[5, 0, 0, 0, 9], &[1]), [(5, "whole")]);
        assert_eq!(scan_all(&length("0,2,big,-1"), None, &[0, 4, 7], &[]), [(3, "whole")]);
    }

    #[test]
    fn lengths_that_cannot_be_are_broken() {
        for (field, stream) in [
            ("0,4,big,0", &[0xff, 0xff, 0xff, 0xff][..]),
            ("0,8,big,6", &[0xff; 8]),
            ("0,2,big,0", &[0, 1]),
            ("0,1,big,-5", &[1]),
            ("0,3,little,0", &[1, 0, 16]),
        ] {
            assert_eq!(scan_all(&length(field), None, stream, &[]), [(stream.len(), "broken")], "{field}");
        }
    }

    #[test]
    fn an_endless_reply_is_cut_off() {
        let stream = vec![b'x'; 2 * MAX_REPLY_BYTES as usize + 5];
        let broken = [(MAX_REPLY_BYTES as usize, "broken"), (2 * MAX_REPLY_BYTES as usize, "broken")];
        assert_eq!(scan_all(&until("OK"), None, &stream, &[65_536]), broken);
    }

    #[test]
    fn expected_text_must_be_in_the_reply_itself() {
        let stream = b"OK1;ERR;O;K;OK;";
        let found = scan_all(&until(";"), Some("OK"), stream, &[1]);
        assert_eq!(
            found.iter().map(|(_, what)| *what).collect::<Vec<_>>(),
            ["whole", "unexpected", "unexpected", "unexpected", "whole"]
        );
    }

    #[test]
    fn a_message_is_a_reply() {
        let mut reply = ReplyScanner::new(ReplyEnd::Message, Some(PatternSearch::parse("pong").unwrap()));
        assert_eq!(reply.scan(b"pong 1"), ScanResult::Complete { used: 6, is_expected: true });
        assert_eq!(reply.scan(b"ping"), ScanResult::Complete { used: 4, is_expected: false });
        assert_eq!(reply.scan(b""), ScanResult::Complete { used: 0, is_expected: false });
    }

    #[test]
    fn length_field_errors_are_explained() {
        for text in [
            "",
            "4,2,big",
            "4,2,big,6,7",
            "4,0,big,6",
            "4,9,big,6",
            "-1,2,big,6",
            "4,2,middle,6",
            "4,2,big,x",
        ] {
            let error = LengthField::parse(text).unwrap_err().to_string();
            assert!(error.contains("offset,size,endian,add"), "{error}");
        }
    }

    /// Ends of replies in small alphabets, so that terminators occur, overlap with themselves, and are split.
    fn ends() -> impl Strategy<Value = ReplyEnd> {
        prop_oneof![
            "[ab]{1,5}".prop_map(|text| until(&text)),
            (1u64..9).prop_map(ReplyEnd::FixedLength),
            (0u64..4, 1u64..4, any::<bool>(), -3i64..4).prop_map(|(offset, size, big_endian, add)| {
                ReplyEnd::LengthField(LengthField { offset, size, big_endian, adjustment: add })
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_replies(
            end in ends(),
            expect in prop::option::of("[ab]{1,3}"),
            stream in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), 0u8..8], 0..200),
            chunk_lengths in prop::collection::vec(1usize..9, 1..20),
        ) {
            let whole = scan_all(&end, expect.as_deref(), &stream, &[]);
            prop_assert_eq!(whole, scan_all(&end, expect.as_deref(), &stream, &chunk_lengths));
        }

        #[test]
        fn any_length_field_reads_any_bytes(
            offset in 0u64..20, size in 1u64..9, big_endian: bool, add: i32,
            stream in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let add = i64::from(add) % (MAX_REPLY_BYTES as i64 + 1);
            scan_all(&ReplyEnd::LengthField(LengthField { offset, size, big_endian, adjustment: add }), None, &stream, &[7]);
        }

        #[test]
        fn a_search_finds_what_a_window_finds(wanted in "[ab]{1,6}", stream in "[ab]{0,80}") {
            let mut search = PatternSearch::new(wanted.clone().into_bytes());
            let found = stream.bytes().map(|byte| search.push(byte)).collect::<Vec<_>>();
            let windows = (0..stream.len()).map(|at| stream[..=at].ends_with(&wanted)).collect::<Vec<_>>();
            prop_assert_eq!(found, windows);
        }
    }
}
