//! Wire format of NETIO: control words, flagged blocks, and detection of the dialect. Encoding and decoding only.
//!
//! | dialect | versions | control words |
//! | --- | --- | --- |
//! | A | up to 1.14 | none: the server reads until the client closes |
//! | B | 1.15 to 1.22 | in the byte order of the client's machine, little-endian on x86 |
//! | C | from 1.23 | big-endian |

/// Maximum size of a block in bytes: the size of the original's buffer, which it does not check.
pub(crate) const MAX_BLOCK_BYTES: u32 = 65_536;

/// Sizes of the blocks that NETIO sends, in bytes. The last one is 32 KB less one byte, and shown as 32k.
pub(crate) const BLOCK_SIZES: [u32; 6] = [1024, 2048, 4096, 8192, 16_384, 32_767];

/// Size of a control word in bytes: command and data, 32 bits each.
pub(crate) const WORD_BYTES: usize = 8;

/// Flag in byte 0 of the last block of a direction. It is 0 in all others; a receiver treats any other value as the last block.
pub(crate) const LAST_BLOCK_FLAG: u8 = 1;

/// Wire formats, by version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetioDialect {
    /// Versions up to 1.14.
    A,
    /// Versions 1.15 to 1.22.
    B,
    /// Versions from 1.23.
    C,
}

impl NetioDialect {
    /// Every dialect, in the order of the versions.
    pub const ALL: [NetioDialect; 3] = [NetioDialect::A, NetioDialect::B, NetioDialect::C];

    /// Lower-case letter of the dialect.
    pub fn name(self) -> &'static str {
        match self {
            NetioDialect::A => "a",
            NetioDialect::B => "b",
            NetioDialect::C => "c",
        }
    }

    /// Dialect with this letter, in upper or lower case.
    pub(crate) fn from_name(name: &str) -> Option<NetioDialect> {
        NetioDialect::ALL.into_iter().find(|dialect| dialect.name().eq_ignore_ascii_case(name))
    }

    fn decode_u32(self, bytes: [u8; 4]) -> u32 {
        if self == NetioDialect::B { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn encode_u32(self, number: u32) -> [u8; 4] {
        if self == NetioDialect::B { number.to_le_bytes() } else { number.to_be_bytes() }
    }
}

/// Control word of NETIO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlWord {
    /// Ends the connection, as does any unknown word.
    Quit,
    /// The client will send blocks of this size.
    ClientSends(u32),
    /// The server shall send blocks of this size.
    ServerSends(u32),
    /// Number of datagrams. The value is ignored if a client sends it.
    Result(u32),
}

impl ControlWord {
    /// Encodes the word as it is sent.
    pub fn encode(self, dialect: NetioDialect) -> [u8; WORD_BYTES] {
        let (command, data) = match self {
            ControlWord::Quit => (0, 0),
            ControlWord::ClientSends(size) => (1, size),
            ControlWord::ServerSends(size) => (2, size),
            ControlWord::Result(count) => (3, count),
        };
        let mut bytes = [0; WORD_BYTES];
        bytes[..4].copy_from_slice(&dialect.encode_u32(command));
        bytes[4..].copy_from_slice(&dialect.encode_u32(data));
        bytes
    }

    /// Decodes a word; an unknown command is [`ControlWord::Quit`].
    pub fn decode(bytes: [u8; WORD_BYTES], dialect: NetioDialect) -> ControlWord {
        let [a, b, c, d, e, f, g, h] = bytes;
        let data = dialect.decode_u32([e, f, g, h]);
        match dialect.decode_u32([a, b, c, d]) {
            1 => ControlWord::ClientSends(data),
            2 => ControlWord::ServerSends(data),
            3 => ControlWord::Result(data),
            _ => ControlWord::Quit,
        }
    }
}

/// Result of detecting the dialect from a client's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialectGuess {
    /// More bytes are needed.
    Undecided,
    /// A client of this dialect.
    Known(NetioDialect),
    /// The sender is no NETIO client.
    NotNetio,
}

impl DialectGuess {
    /// Detects the dialect from the first `WORD_BYTES` bytes, or those available.
    pub fn from_first_bytes(first: &[u8]) -> DialectGuess {
        match first {
            [] => DialectGuess::Undecided,
            [0, 0, 0, 1 | 2, ..] => DialectGuess::Known(NetioDialect::C),
            [1 | 2, 0, 0, 0, ..] => DialectGuess::Known(NetioDialect::B),
            // All zeros also occur in dialect B.
            [0, rest @ ..] => match rest.iter().position(|&byte| byte != 0) {
                Some(_) => DialectGuess::Known(NetioDialect::A),
                None if first.len() >= WORD_BYTES => DialectGuess::Known(NetioDialect::C),
                None => DialectGuess::Undecided,
            },
            [1 | 2, rest @ ..] if rest.len() < 3 && rest.iter().all(|&byte| byte == 0) => {
                DialectGuess::Undecided
            }
            _ => DialectGuess::NotNetio,
        }
    }
}

/// Finds the block boundaries in a stream, and the last block of a direction.
#[derive(Debug, Clone)]
pub struct FlaggedBlockParser {
    block_bytes: usize,
    /// Number of received bytes of the current block.
    block_offset: usize,
    /// Flag of that block; 0 before the first.
    block_flag: u8,
    whole_blocks: u64,
    is_finished: bool,
}

impl FlaggedBlockParser {
    /// Parser for blocks of `size` bytes, at least 1.
    pub fn new(size: u32) -> FlaggedBlockParser {
        FlaggedBlockParser {
            block_bytes: (size as usize).max(1),
            block_offset: 0,
            block_flag: 0,
            whole_blocks: 0,
            is_finished: false,
        }
    }

    /// Processes input. Returns the number of bytes that belong to this direction: all, up to the end of its last
    /// block.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_finished {
            if self.block_offset == 0 {
                self.block_flag = bytes[at];
            }
            let length = (self.block_bytes - self.block_offset).min(bytes.len() - at);
            at += length;
            self.block_offset += length;
            if self.block_offset == self.block_bytes {
                self.block_offset = 0;
                self.whole_blocks += 1;
                self.is_finished = self.block_flag != 0;
            }
        }
        at
    }

    /// Whether the last block is complete.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Number of bytes of an incomplete block.
    pub fn block_offset(&self) -> usize {
        self.block_offset
    }

    /// Number of complete blocks, including the last one.
    pub fn whole_blocks(&self) -> u64 {
        self.whole_blocks
    }

    /// Flag of the most recent block.
    pub(crate) fn block_flag(&self) -> u8 {
        self.block_flag
    }
}

/// A block of NETIO up to 1.26 built with glibc: byte 0 is the flag of a block that is not the last, the rest are the
/// low bytes of `rand()`. Receivers ignore the content.
pub(crate) fn make_block(size: usize) -> Vec<u8> {
    let mut random = GlibcRand::new();
    std::iter::once(0).chain(std::iter::repeat_with(|| random.next() as u8)).take(size).collect()
}

/// `rand()` of glibc after `srand(1)`: additive feedback over 31 words (TYPE_3 of its random_r.c).
struct GlibcRand {
    state: [u32; 31],
    index: usize,
}

impl GlibcRand {
    pub fn new() -> GlibcRand {
        let mut state = [1; 31];
        for index in 1..state.len() {
            // Lehmer's generator with the constants of Park and Miller.
            state[index] = (u64::from(state[index - 1]) * 16_807 % 0x7fff_ffff) as u32;
        }
        // The two words of a sum are three apart.
        let mut random = GlibcRand { state, index: 3 };
        // The first 310 values are discarded.
        for _ in 0..310 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u32 {
        let sum = self.state[(self.index + 28) % 31].wrapping_add(self.state[self.index]);
        self.state[self.index] = sum;
        self.index = (self.index + 1) % 31;
        sum >> 1
    }
}

/// Lost datagrams in whole percent of those sent, truncated as in NETIO; `None` if more arrived than were sent.
pub(crate) fn loss_percent(sent: u64, received: u64) -> Option<u64> {
    let lost = sent.checked_sub(received)?;
    Some(u64::try_from(u128::from(lost) * 100 / u128::from(sent.max(1))).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_match_the_original_encoding() {
        let c = |word: ControlWord| word.encode(NetioDialect::C);
        assert_eq!(c(ControlWord::ClientSends(16)), [0, 0, 0, 1, 0, 0, 0, 0x10]);
        assert_eq!(c(ControlWord::ServerSends(16)), [0, 0, 0, 2, 0, 0, 0, 0x10]);
        assert_eq!(c(ControlWord::Result(5379)), [0, 0, 0, 3, 0, 0, 0x15, 3]);
        assert_eq!(c(ControlWord::Result(100_000)), [0, 0, 0, 3, 0, 1, 0x86, 0xa0]);
        assert_eq!(c(ControlWord::Quit), [0; 8]);
        assert_eq!(ControlWord::ClientSends(1024).encode(NetioDialect::B), [1, 0, 0, 0, 0, 4, 0, 0]);
        let heads = BLOCK_SIZES.map(|size| c(ControlWord::ClientSends(size)));
        let data = [[4, 0], [8, 0], [0x10, 0], [0x20, 0], [0x40, 0], [0x7f, 0xff]];
        assert_eq!(heads, data.map(|[high, low]| [0, 0, 0, 1, 0, 0, high, low]));
    }

    #[test]
    fn words_read_back_and_anything_else_quits() {
        for dialect in [NetioDialect::B, NetioDialect::C] {
            for word in [
                ControlWord::ClientSends(0),
                ControlWord::ServerSends(u32::MAX),
                ControlWord::Result(7),
                ControlWord::Quit,
            ] {
                assert_eq!(ControlWord::decode(word.encode(dialect), dialect), word);
            }
            assert_eq!(ControlWord::decode([9; 8], dialect), ControlWord::Quit);
        }
    }

    #[test]
    fn the_first_bytes_tell_the_dialect() {
        use NetioDialect::{A, B, C};
        let speaks = DialectGuess::Known;
        let cases: [(&[u8], DialectGuess); 14] = [
            (&[0, 0, 0, 1, 0, 0, 4, 0], speaks(C)),
            (&[0, 0, 0, 2, 0, 0, 4, 0], speaks(C)),
            (&[1, 0, 0, 0, 0, 4, 0, 0], speaks(B)),
            (&[2, 0, 0, 0], speaks(B)),
            (&[0, 0x67, 0xc6, 0x69, 0x73, 0x51, 0xff, 0x4a], speaks(A)),
            (&[0, 1], speaks(A)),
            (&[0; 8], speaks(C)),
            (&[0; 7], DialectGuess::Undecided),
            (&[1, 0, 0], DialectGuess::Undecided),
            (&[], DialectGuess::Undecided),
            (&[1, 0, 0, 7], DialectGuess::NotNetio),
            (&[3, 0, 0, 0], DialectGuess::NotNetio),
            (b"GET / HTTP/1.1", DialectGuess::NotNetio),
            (b"SSH-2.0", DialectGuess::NotNetio),
        ];
        for (first, wanted) in cases {
            assert_eq!(DialectGuess::from_first_bytes(first), wanted, "{first:x?}");
        }
    }

    /// Checks that blocks end with the flag, for any chunk sizes.
    #[test]
    fn blocks_end_with_the_flag() {
        let stream = [[0, 7, 7], [0, 1, 1], [1, 0, 0]].concat();
        for chunk_bytes in 1..=stream.len() {
            let mut blocks = FlaggedBlockParser::new(3);
            let taken: usize = stream.chunks(chunk_bytes).map(|chunk| blocks.push(chunk)).sum();
            assert_eq!(
                (taken, blocks.whole_blocks(), blocks.is_finished(), blocks.block_offset()),
                (9, 3, true, 0)
            );
            assert_eq!(blocks.push(&[0, 0, 0, 2]), 0, "what follows is a word");
        }
        let mut bytes = FlaggedBlockParser::new(1);
        assert_eq!((bytes.push(&[0, 0, 9, 0, 0]), bytes.whole_blocks(), bytes.block_flag()), (3, 3, 9));
    }

    #[test]
    fn blocks_match_the_original_content() {
        assert_eq!(make_block(12), [0, 0x67, 0xc6, 0x69, 0x73, 0x51, 0xff, 0x4a, 0xec, 0x29, 0xcd, 0xba]);
        assert_eq!(make_block(1), [0]);
    }

    #[test]
    fn loss_is_truncated_and_never_negative() {
        assert_eq!(loss_percent(100_000, 98_500), Some(1));
        assert_eq!((loss_percent(5379, 5379), loss_percent(0, 0)), (Some(0), Some(0)));
        assert_eq!(loss_percent(10, 11), None);
    }
}
