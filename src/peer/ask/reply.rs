//! Where an answer ends: a pure reader of what a device says, byte by byte, that keeps nothing of it.
//!
//! It holds a few counters, whatever the device claims: an answer is never stored, so a length that lies costs
//! nothing. Not for deciding which request was answered: that is the exchange's business.

use super::text;

/// Longer answers are not believed: no device that is asked small questions sends more.
pub const LONGEST: u64 = 1 << 20;

/// How the end of an answer is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It ends with these bytes.
    Until(Search),
    /// It always has so many bytes.
    Bytes(u64),
    /// It says itself how long it is.
    Length(LengthField),
    /// The link keeps borders: the next message is the answer.
    Message,
}

/// Where an answer says how long it is: `offset,size,endian,add`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthField {
    offset: u64,
    /// Bytes of the field, 1 to 8.
    size: u64,
    big_endian: bool,
    /// The whole answer has so many bytes more (or fewer) than the field says.
    add: i64,
}

impl LengthField {
    pub fn parse(text: &str) -> Result<LengthField, String> {
        let wrong = || {
            format!(
                "'{text}' is not offset,size,endian,add, like 4,2,big,6: offset 0 to 65535, size 1 to 8, endian big or \
                 little, add -1048576 to 1048576"
            )
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
        let add = add.parse().ok().filter(|add: &i64| add.unsigned_abs() <= LONGEST);
        let ((offset, size), add) = offset.zip(size).zip(add).ok_or_else(wrong)?;
        Ok(LengthField { offset, size, big_endian, add })
    }

    /// Bytes up to the end of the field.
    fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Takes the byte at `index` of the field into its value.
    fn take(&self, value: u64, index: u64, byte: u8) -> u64 {
        match self.big_endian {
            true => value << 8 | u64::from(byte),
            false => value | u64::from(byte) << (8 * index),
        }
    }

    /// The length of the whole answer, if it can be one.
    fn total(&self, value: u64) -> Option<u64> {
        let total = u64::try_from(i128::from(value) + i128::from(self.add)).ok()?;
        (self.end()..=LONGEST).contains(&total).then_some(total)
    }
}

/// Finds a byte string in a stream that comes in pieces (Knuth, Morris, Pratt 1977).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    wanted: Vec<u8>,
    /// How much of the beginning still fits when the byte after so many does not.
    shorter: Vec<usize>,
    matched: usize,
}

impl Search {
    /// `wanted` as typed; see [`text::bytes`].
    pub fn parse(text: &str) -> Result<Search, String> {
        text::bytes(text).map(Search::new)
    }

    fn new(wanted: Vec<u8>) -> Search {
        let mut shorter = vec![0; wanted.len()];
        let mut matched = 0;
        for at in 1..wanted.len() {
            while matched > 0 && wanted[at] != wanted[matched] {
                matched = shorter[matched - 1];
            }
            matched += usize::from(wanted[at] == wanted[matched]);
            shorter[at] = matched;
        }
        Search { wanted, shorter, matched: 0 }
    }

    /// Whether `byte` completes it.
    fn next(&mut self, byte: u8) -> bool {
        if self.matched == self.wanted.len() {
            self.matched = self.shorter[self.matched - 1];
        }
        while self.matched > 0 && self.wanted[self.matched] != byte {
            self.matched = self.shorter[self.matched - 1];
        }
        self.matched += usize::from(self.wanted[self.matched] == byte);
        self.matched == self.wanted.len()
    }
}

/// What the bytes were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All belong to the answer, which goes on.
    Partial,
    /// The answer ends after `used` of them; whether what was expected occurred in it.
    Whole { used: usize, expected: bool },
    /// The `used`th of them shows that this is no answer: longer than [`LONGEST`], or of a length that cannot be.
    Broken { used: usize },
}

/// Reads one answer after the other.
#[derive(Debug, Clone)]
pub struct Reply {
    end: End,
    expect: Option<Search>,
    expected: bool,
    length: u64,
    /// The length field as far as it has come, and the length of the answer once it has.
    value: u64,
    total: Option<u64>,
}

impl Reply {
    pub fn new(end: End, expect: Option<Search>) -> Reply {
        Reply { end, expected: expect.is_none(), expect, length: 0, value: 0, total: None }
    }

    /// What comes now begins an answer.
    pub fn restart(&mut self) {
        (self.length, self.value, self.total) = (0, 0, None);
        self.expected = self.expect.is_none();
        if let Some(expect) = &mut self.expect {
            expect.matched = 0;
        }
        if let End::Until(until) = &mut self.end {
            until.matched = 0;
        }
    }

    /// Reads on; afterwards the next answer begins, unless this one is [`Found::Partial`].
    pub fn read(&mut self, data: &[u8]) -> Found {
        for (index, &byte) in data.iter().enumerate() {
            if let Some(expect) = &mut self.expect {
                self.expected |= expect.next(byte);
            }
            let used = index + 1;
            match self.next(byte) {
                Next::More => {}
                Next::Whole => return self.whole(used),
                Next::Broken => {
                    self.restart();
                    return Found::Broken { used };
                }
            }
        }
        match self.end {
            End::Message => self.whole(data.len()),
            _ => Found::Partial,
        }
    }

    fn whole(&mut self, used: usize) -> Found {
        let expected = self.expected;
        self.restart();
        Found::Whole { used, expected }
    }

    fn next(&mut self, byte: u8) -> Next {
        let index = self.length;
        self.length += 1;
        match &mut self.end {
            End::Until(until) => match until.next(byte) {
                true => Next::Whole,
                false if self.length >= LONGEST => Next::Broken,
                false => Next::More,
            },
            End::Bytes(bytes) if self.length >= *bytes => Next::Whole,
            End::Length(field) => {
                if (field.offset..field.end()).contains(&index) {
                    self.value = field.take(self.value, index - field.offset, byte);
                }
                if self.length == field.end() {
                    self.total = field.total(self.value);
                    if self.total.is_none() {
                        return Next::Broken;
                    }
                }
                if self.total == Some(self.length) { Next::Whole } else { Next::More }
            }
            End::Bytes(_) | End::Message => Next::More,
        }
    }
}

enum Next {
    More,
    Whole,
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn until(text: &str) -> End {
        End::Until(Search::parse(text).unwrap())
    }

    fn length(text: &str) -> End {
        End::Length(LengthField::parse(text).unwrap())
    }

    /// Every answer of a stream that comes in pieces of these lengths: where it ends, and what it was.
    fn answers(
        end: &End,
        expect: Option<&str>,
        stream: &[u8],
        pieces: &[usize],
    ) -> Vec<(usize, &'static str)> {
        let mut reply = Reply::new(end.clone(), expect.map(|text| Search::parse(text).unwrap()));
        let mut found = Vec::new();
        let (mut at, mut pieces) = (0, pieces.iter().cycle());
        while at < stream.len() {
            let piece = pieces.next().map_or(stream.len(), |&length| length.max(1)).min(stream.len() - at);
            let end = at + piece;
            while at < end {
                let (used, what) = match reply.read(&stream[at..end]) {
                    Found::Partial => break,
                    Found::Whole { used, expected: true } => (used, "whole"),
                    Found::Whole { used, expected: false } => (used, "unexpected"),
                    Found::Broken { used } => (used, "broken"),
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
    fn an_end_may_arrive_in_pieces() {
        let stream = b"\r\nOK\r\nO\r\nOOK\r\nERROR\r\n";
        for pieces in [&[][..], &[1], &[3, 1], &[5], &[2, 7]] {
            assert_eq!(answers(&until(r"OK\r\n"), None, stream, pieces), [(6, "whole"), (14, "whole")]);
        }
        assert_eq!(answers(&until("aab"), None, b"aaab.aab", &[1]), [(4, "whole"), (8, "whole")]);
    }

    #[test]
    fn a_length_field_is_read_wherever_it_stands() {
        // Modbus/TCP: transaction, protocol, length, unit, function, bytes, one register.
        let modbus = [0, 1, 0, 0, 0, 5, 1, 3, 2, 0x12, 0x34];
        let twice = [modbus, modbus].concat();
        assert_eq!(answers(&length("4,2,big,6"), None, &twice, &[4]), [(11, "whole"), (22, "whole")]);
        assert_eq!(
            answers(&length("0,1,big,1"), None, &[0, 1, 9, 0], &[]),
            [(1, "whole"), (3, "whole"), (4, "whole")]
        );
        assert_eq!(answers(&length("0,4,little,0"), None, &[5, 0, 0, 0, 9], &[1]), [(5, "whole")]);
        assert_eq!(answers(&length("0,2,big,-1"), None, &[0, 4, 7], &[]), [(3, "whole")]);
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
            assert_eq!(answers(&length(field), None, stream, &[]), [(stream.len(), "broken")], "{field}");
        }
    }

    #[test]
    fn an_answer_without_end_is_broken_off() {
        let stream = vec![b'x'; 2 * LONGEST as usize + 5];
        let broken = [(LONGEST as usize, "broken"), (2 * LONGEST as usize, "broken")];
        assert_eq!(answers(&until("OK"), None, &stream, &[65_536]), broken);
    }

    #[test]
    fn what_is_expected_must_stand_in_the_answer_itself() {
        let stream = b"OK1;ERR;O;K;OK;";
        let found = answers(&until(";"), Some("OK"), stream, &[1]);
        assert_eq!(
            found.iter().map(|(_, what)| *what).collect::<Vec<_>>(),
            ["whole", "unexpected", "unexpected", "unexpected", "whole"]
        );
    }

    #[test]
    fn a_message_is_an_answer() {
        let mut reply = Reply::new(End::Message, Some(Search::parse("pong").unwrap()));
        assert_eq!(reply.read(b"pong 1"), Found::Whole { used: 6, expected: true });
        assert_eq!(reply.read(b"ping"), Found::Whole { used: 4, expected: false });
        assert_eq!(reply.read(b""), Found::Whole { used: 0, expected: false });
    }

    #[test]
    fn slips_in_length_fields_are_named() {
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
            let error = LengthField::parse(text).unwrap_err();
            assert!(error.contains("offset,size,endian,add"), "{error}");
        }
    }

    /// Small alphabets, so that ends occur, overlap with themselves, and are split.
    fn ends() -> impl Strategy<Value = End> {
        prop_oneof![
            "[ab]{1,5}".prop_map(|text| until(&text)),
            (1u64..9).prop_map(End::Bytes),
            (0u64..4, 1u64..4, any::<bool>(), -3i64..4).prop_map(|(offset, size, big_endian, add)| {
                End::Length(LengthField { offset, size, big_endian, add })
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_answers(
            end in ends(),
            expect in prop::option::of("[ab]{1,3}"),
            stream in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), 0u8..8], 0..200),
            pieces in prop::collection::vec(1usize..9, 1..20),
        ) {
            let whole = answers(&end, expect.as_deref(), &stream, &[]);
            prop_assert_eq!(whole, answers(&end, expect.as_deref(), &stream, &pieces));
        }

        #[test]
        fn any_length_field_reads_any_bytes(
            offset in 0u64..20, size in 1u64..9, big_endian: bool, add: i32,
            stream in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let add = i64::from(add) % (LONGEST as i64 + 1);
            answers(&End::Length(LengthField { offset, size, big_endian, add }), None, &stream, &[7]);
        }

        #[test]
        fn a_search_finds_what_a_window_finds(wanted in "[ab]{1,6}", stream in "[ab]{0,80}") {
            let mut search = Search::new(wanted.clone().into_bytes());
            let found = stream.bytes().map(|byte| search.next(byte)).collect::<Vec<_>>();
            let windows = (0..stream.len()).map(|at| stream[..=at].ends_with(&wanted)).collect::<Vec<_>>();
            prop_assert_eq!(found, windows);
        }
    }
}
