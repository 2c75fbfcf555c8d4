//! What NETIO says on the wire: control words, blocks with a flag in front, and how its dialects are told apart. Pure:
//! bytes in, bytes out; not for when anything is said.
//!
//! | dialect | versions | control words |
//! | --- | --- | --- |
//! | A | up to 1.14 | none: the server reads until the client closes |
//! | B | 1.15 to 1.22 | in the byte order of the client's machine, little-endian on x86 |
//! | C | from 1.23 | big-endian |

/// Largest block: the original's buffer holds no more, and does not check.
pub const LARGEST: u32 = 65_536;

/// The sizes that NETIO runs. The last one is 32 KB less one byte, and shown as 32k.
pub const SIZES: [u32; 6] = [1024, 2048, 4096, 8192, 16_384, 32_767];

/// Bytes of a control word: command and data, 32 bits each.
pub const WORD: usize = 8;

/// What byte 0 of the last block of a direction holds. The others hold 0; a receiver takes anything else as the last.
pub const LAST: u8 = 1;

/// The wire formats, told apart by their versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    A,
    B,
    C,
}

impl Dialect {
    pub const ALL: [Dialect; 3] = [Dialect::A, Dialect::B, Dialect::C];

    pub fn name(self) -> &'static str {
        match self {
            Dialect::A => "a",
            Dialect::B => "b",
            Dialect::C => "c",
        }
    }

    pub fn named(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name().eq_ignore_ascii_case(name))
    }

    fn number(self, bytes: [u8; 4]) -> u32 {
        if self == Dialect::B { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn bytes(self, number: u32) -> [u8; 4] {
        if self == Dialect::B { number.to_le_bytes() } else { number.to_be_bytes() }
    }
}

/// A control word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The end of the connection. Any word that is none of the others means the same.
    Quit,
    /// The client will send blocks of so many bytes.
    ClientSends(u32),
    /// The server shall.
    ServerSends(u32),
    /// Datagrams counted. What a client says here means nothing.
    Result(u32),
}

impl Word {
    pub fn bytes(self, dialect: Dialect) -> [u8; WORD] {
        let (command, data) = match self {
            Word::Quit => (0, 0),
            Word::ClientSends(size) => (1, size),
            Word::ServerSends(size) => (2, size),
            Word::Result(count) => (3, count),
        };
        let mut bytes = [0; WORD];
        bytes[..4].copy_from_slice(&dialect.bytes(command));
        bytes[4..].copy_from_slice(&dialect.bytes(data));
        bytes
    }

    pub fn read(bytes: [u8; WORD], dialect: Dialect) -> Word {
        let [a, b, c, d, e, f, g, h] = bytes;
        let data = dialect.number([e, f, g, h]);
        match dialect.number([a, b, c, d]) {
            1 => Word::ClientSends(data),
            2 => Word::ServerSends(data),
            3 => Word::Result(data),
            _ => Word::Quit,
        }
    }
}

/// What the first bytes of a client tell a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Too few of them yet.
    Undecided,
    Speaks(Dialect),
    /// No NETIO begins like that.
    Stranger,
}

impl Opening {
    /// By the first [`WORD`] bytes, or as many as have come.
    pub fn of(first: &[u8]) -> Opening {
        match first {
            [] => Opening::Undecided,
            [0, 0, 0, 1 | 2, ..] => Opening::Speaks(Dialect::C),
            [1 | 2, 0, 0, 0, ..] => Opening::Speaks(Dialect::B),
            // Nothing but zeros says the same in B.
            [0, rest @ ..] => match rest.iter().position(|&byte| byte != 0) {
                Some(_) => Opening::Speaks(Dialect::A),
                None if first.len() >= WORD => Opening::Speaks(Dialect::C),
                None => Opening::Undecided,
            },
            [1 | 2, rest @ ..] if rest.len() < 3 && rest.iter().all(|&byte| byte == 0) => Opening::Undecided,
            _ => Opening::Stranger,
        }
    }
}

/// Finds the borders of the blocks in a stream, and the last block of a direction.
#[derive(Debug, Clone)]
pub struct Blocks {
    size: usize,
    /// Bytes of the block that has begun.
    into: usize,
    /// The flag of that block; of none before the first.
    flag: u8,
    whole: u64,
    over: bool,
}

impl Blocks {
    /// Blocks of `size` bytes, at least 1.
    pub fn new(size: u32) -> Blocks {
        Blocks { size: (size as usize).max(1), into: 0, flag: 0, whole: 0, over: false }
    }

    /// Takes what came; returns how many of the bytes belong to this direction: all, until its last block ends.
    #[inline]
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.over {
            if self.into == 0 {
                self.flag = bytes[at];
            }
            let length = (self.size - self.into).min(bytes.len() - at);
            at += length;
            self.into += length;
            if self.into == self.size {
                self.into = 0;
                self.whole += 1;
                self.over = self.flag != 0;
            }
        }
        at
    }

    /// The last block has come, whole.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Bytes of a block that has begun and not ended.
    pub fn begun(&self) -> usize {
        self.into
    }

    /// Whole blocks, the last one too.
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// The flag of the block that came last.
    pub fn flag(&self) -> u8 {
        self.flag
    }
}

/// A block as NETIO up to 1.26 sends it when it was built with glibc: byte 0 is the flag of a block that others follow,
/// the rest the low bytes of `rand()`. Whoever receives it does not look.
pub fn block(size: usize) -> Vec<u8> {
    let mut random = Rand::new();
    std::iter::once(0).chain(std::iter::repeat_with(|| random.next() as u8)).take(size).collect()
}

/// `rand()` of glibc after `srand(1)`: additive feedback over 31 words (TYPE_3 of its random_r.c).
struct Rand {
    state: [u32; 31],
    at: usize,
}

impl Rand {
    fn new() -> Rand {
        let mut state = [1; 31];
        for index in 1..state.len() {
            // Lehmer's generator, as Park and Miller chose it.
            state[index] = (u64::from(state[index - 1]) * 16_807 % 0x7fff_ffff) as u32;
        }
        // Three words apart: what is added, and what it is added to.
        let mut random = Rand { state, at: 3 };
        // Ten times round, unseen.
        for _ in 0..310 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u32 {
        let sum = self.state[(self.at + 28) % 31].wrapping_add(self.state[self.at]);
        self.state[self.at] = sum;
        self.at = (self.at + 1) % 31;
        sum >> 1
    }
}

/// Lost of those sent, in whole percent, cut off as NETIO does; none where more came than were sent.
pub fn loss_percent(sent: u64, received: u64) -> Option<u64> {
    let lost = sent.checked_sub(received)?;
    Some(u64::try_from(u128::from(lost) * 100 / u128::from(sent.max(1))).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_the_originals_write_them() {
        let c = |word: Word| word.bytes(Dialect::C);
        assert_eq!(c(Word::ClientSends(16)), [0, 0, 0, 1, 0, 0, 0, 0x10]);
        assert_eq!(c(Word::ServerSends(16)), [0, 0, 0, 2, 0, 0, 0, 0x10]);
        assert_eq!(c(Word::Result(5379)), [0, 0, 0, 3, 0, 0, 0x15, 3]);
        assert_eq!(c(Word::Result(100_000)), [0, 0, 0, 3, 0, 1, 0x86, 0xa0]);
        assert_eq!(c(Word::Quit), [0; 8]);
        assert_eq!(Word::ClientSends(1024).bytes(Dialect::B), [1, 0, 0, 0, 0, 4, 0, 0]);
        let heads = SIZES.map(|size| c(Word::ClientSends(size)));
        let data = [[4, 0], [8, 0], [0x10, 0], [0x20, 0], [0x40, 0], [0x7f, 0xff]];
        assert_eq!(heads, data.map(|[high, low]| [0, 0, 0, 1, 0, 0, high, low]));
    }

    #[test]
    fn words_read_back_and_anything_else_quits() {
        for dialect in [Dialect::B, Dialect::C] {
            for word in [Word::ClientSends(0), Word::ServerSends(u32::MAX), Word::Result(7), Word::Quit] {
                assert_eq!(Word::read(word.bytes(dialect), dialect), word);
            }
            assert_eq!(Word::read([9; 8], dialect), Word::Quit);
        }
    }

    #[test]
    fn the_first_bytes_tell_the_dialect() {
        use Dialect::{A, B, C};
        let speaks = Opening::Speaks;
        let cases: [(&[u8], Opening); 14] = [
            (&[0, 0, 0, 1, 0, 0, 4, 0], speaks(C)),
            (&[0, 0, 0, 2, 0, 0, 4, 0], speaks(C)),
            (&[1, 0, 0, 0, 0, 4, 0, 0], speaks(B)),
            (&[2, 0, 0, 0], speaks(B)),
            (&[0, 0x67, 0xc6, 0x69, 0x73, 0x51, 0xff, 0x4a], speaks(A)),
            (&[0, 1], speaks(A)),
            (&[0; 8], speaks(C)),
            (&[0; 7], Opening::Undecided),
            (&[1, 0, 0], Opening::Undecided),
            (&[], Opening::Undecided),
            (&[1, 0, 0, 7], Opening::Stranger),
            (&[3, 0, 0, 0], Opening::Stranger),
            (b"GET / HTTP/1.1", Opening::Stranger),
            (b"SSH-2.0", Opening::Stranger),
        ];
        for (first, wanted) in cases {
            assert_eq!(Opening::of(first), wanted, "{first:x?}");
        }
    }

    /// In whatever pieces the bytes come.
    #[test]
    fn blocks_end_with_the_flag() {
        let stream = [[0, 7, 7], [0, 1, 1], [1, 0, 0]].concat();
        for piece in 1..=stream.len() {
            let mut blocks = Blocks::new(3);
            let taken: usize = stream.chunks(piece).map(|piece| blocks.take(piece)).sum();
            assert_eq!((taken, blocks.whole(), blocks.is_over(), blocks.begun()), (9, 3, true, 0));
            assert_eq!(blocks.take(&[0, 0, 0, 2]), 0, "what follows is a word");
        }
        let mut bytes = Blocks::new(1);
        assert_eq!((bytes.take(&[0, 0, 9, 0, 0]), bytes.whole(), bytes.flag()), (3, 3, 9));
    }

    #[test]
    fn blocks_hold_what_the_original_s_hold() {
        assert_eq!(block(12), [0, 0x67, 0xc6, 0x69, 0x73, 0x51, 0xff, 0x4a, 0xec, 0x29, 0xcd, 0xba]);
        assert_eq!(block(1), [0]);
    }

    #[test]
    fn loss_is_cut_off_and_never_negative() {
        assert_eq!(loss_percent(100_000, 98_500), Some(1));
        assert_eq!((loss_percent(5379, 5379), loss_percent(0, 0)), (Some(0), Some(0)));
        assert_eq!(loss_percent(10, 11), None);
    }
}
