//! Telnet as far as serial ports need it: telling data, negotiation and sub-negotiations apart, and writing each.
//!
//! Not for what a sub-negotiation says: `command.rs` reads those of option 44. RFC 854, 855, 856 and 858.

/// Interpret as command: begins everything that is not data. As data it is sent twice.
pub const IAC: u8 = 0xff;
/// Ends a sub-negotiation, after IAC.
pub const SE: u8 = 0xf0;
/// Begins a sub-negotiation, after IAC.
pub const SB: u8 = 0xfa;

/// Options of Telnet.
pub mod option {
    /// Eight bits, and no character that means something (RFC 856).
    pub const BINARY: u8 = 0;
    /// Suppress go-ahead: both sides may talk at any time (RFC 858).
    pub const SUPPRESS_GO_AHEAD: u8 = 3;
    /// Control of a serial port (RFC 2217).
    pub const COM_PORT: u8 = 44;
}

/// The longest sub-negotiation that is kept, with its option: a command of option 44 takes six bytes, a signature is a
/// line of text. What is longer is passed over.
pub const LONGEST: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Will,
    Wont,
    Do,
    Dont,
}

impl Verb {
    fn of(byte: u8) -> Option<Verb> {
        Some(match byte {
            0xfb => Verb::Will,
            0xfc => Verb::Wont,
            0xfd => Verb::Do,
            0xfe => Verb::Dont,
            _ => return None,
        })
    }

    fn byte(self) -> u8 {
        match self {
            Verb::Will => 0xfb,
            Verb::Wont => 0xfc,
            Verb::Do => 0xfd,
            Verb::Dont => 0xfe,
        }
    }
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    Data(&'a [u8]),
    Negotiation(Verb, u8),
    /// A sub-negotiation begins: what came before it can be dealt with first.
    Opened,
    /// Its option and what it says, FF no longer doubled.
    Subnegotiation(u8, &'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Data,
    Command,
    Option(Verb),
    Inside,
    CommandInside,
}

/// Reads a stream that may be cut anywhere.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    inside: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { state: State::Data, inside: Vec::with_capacity(LONGEST + 1) }
    }
}

impl Decoder {
    /// The next event of `bytes`, which loses what was used; `None` when all of them are. Allocates nothing.
    pub fn next<'event, 'bytes: 'event>(&'event mut self, bytes: &mut &'bytes [u8]) -> Option<Event<'event>> {
        loop {
            if self.state == State::Data {
                let length = bytes.iter().position(|&byte| byte == IAC).unwrap_or(bytes.len());
                if length > 0 {
                    let (data, rest) = bytes.split_at(length);
                    *bytes = rest;
                    return Some(Event::Data(data));
                }
            }
            let (first, rest) = bytes.split_at_checked(1)?;
            *bytes = rest;
            let byte = first[0];
            match self.state {
                State::Data => self.state = State::Command,
                State::Command => {
                    self.state = State::Data;
                    match byte {
                        IAC => return Some(Event::Data(first)),
                        SB => {
                            self.inside.clear();
                            self.state = State::Inside;
                            return Some(Event::Opened);
                        }
                        // The commands of one byte are for terminals.
                        _ => self.state = Verb::of(byte).map_or(State::Data, State::Option),
                    }
                }
                State::Option(verb) => {
                    self.state = State::Data;
                    return Some(Event::Negotiation(verb, byte));
                }
                State::Inside if byte == IAC => self.state = State::CommandInside,
                State::Inside => self.keep(byte),
                State::CommandInside if byte == IAC => {
                    self.keep(byte);
                    self.state = State::Inside;
                }
                State::CommandInside if byte == SE => {
                    self.state = State::Data;
                    if (1..=LONGEST).contains(&self.inside.len()) {
                        return Some(Event::Subnegotiation(self.inside[0], &self.inside[1..]));
                    }
                }
                // No end, but the beginning of something else: the sub-negotiation was broken off.
                State::CommandInside if byte == SB => {
                    self.inside.clear();
                    self.state = State::Inside;
                }
                State::CommandInside => {
                    self.state = Verb::of(byte).map_or(State::Data, State::Option);
                }
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.inside.len() <= LONGEST {
            self.inside.push(byte);
        }
    }
}

/// Writes data: FF is doubled.
pub fn escape(data: &[u8], out: &mut Vec<u8>) {
    for piece in data.split_inclusive(|&byte| byte == IAC) {
        out.extend_from_slice(piece);
        if piece.last() == Some(&IAC) {
            out.push(IAC);
        }
    }
}

/// Writes one word of negotiation.
pub fn negotiate(verb: Verb, option: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[IAC, verb.byte(), option]);
}

/// Writes a sub-negotiation of an option: a code and its value, in which FF is doubled.
pub fn subnegotiate(option: u8, code: u8, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[IAC, SB, option, code]);
    escape(value, out);
    out.extend_from_slice(&[IAC, SE]);
}

/// Whether one side does what an option says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Agreement {
    #[default]
    No,
    /// Offered or asked for; the answer has not come.
    Open,
    Yes,
    /// Offered or asked for, and refused.
    Refused,
}

/// The options that this program knows; all others are refused.
const KNOWN: [u8; 3] = [option::BINARY, option::SUPPRESS_GO_AHEAD, option::COM_PORT];

/// What both sides agreed on. Answers only what changes something, so that two sides never answer each other for ever.
#[derive(Debug, Default)]
pub struct Negotiation {
    ours: [Agreement; KNOWN.len()],
    theirs: [Agreement; KNOWN.len()],
}

impl Negotiation {
    /// Says that this side will do what an option means.
    pub fn offer(&mut self, option: u8, out: &mut Vec<u8>) {
        if let Some(known) = place(option) {
            self.ours[known] = Agreement::Open;
            negotiate(Verb::Will, option, out);
        }
    }

    /// Asks the other side to do what an option means.
    pub fn ask(&mut self, option: u8, out: &mut Vec<u8>) {
        if let Some(known) = place(option) {
            self.theirs[known] = Agreement::Open;
            negotiate(Verb::Do, option, out);
        }
    }

    /// Takes what the other side said, and answers where it has to be.
    pub fn received(&mut self, verb: Verb, option: u8, answers: &mut Vec<u8>) {
        let (side, agree, refuse) = match verb {
            Verb::Will | Verb::Wont => (&mut self.theirs, Verb::Do, Verb::Dont),
            Verb::Do | Verb::Dont => (&mut self.ours, Verb::Will, Verb::Wont),
        };
        let wants = matches!(verb, Verb::Will | Verb::Do);
        let Some(agreement) = place(option).map(|known| &mut side[known]) else {
            if wants {
                negotiate(refuse, option, answers);
            }
            return;
        };
        match (wants, *agreement) {
            (true, Agreement::No | Agreement::Refused) => negotiate(agree, option, answers),
            (false, Agreement::Yes) => negotiate(refuse, option, answers),
            _ => {}
        }
        *agreement = match (wants, *agreement) {
            (true, _) => Agreement::Yes,
            (false, Agreement::Open | Agreement::Refused) => Agreement::Refused,
            (false, _) => Agreement::No,
        };
    }

    /// What this side does.
    pub fn ours(&self, option: u8) -> Agreement {
        place(option).map_or(Agreement::No, |known| self.ours[known])
    }

    /// What the other side does.
    pub fn theirs(&self, option: u8) -> Agreement {
        place(option).map_or(Agreement::No, |known| self.theirs[known])
    }
}

fn place(option: u8) -> Option<usize> {
    KNOWN.iter().position(|&known| known == option)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a decoder makes of pieces, in words; neighbouring data are one.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut decoder, mut words, mut data) = (Decoder::default(), Vec::new(), Vec::new());
        for mut piece in pieces {
            while let Some(event) = decoder.next(&mut piece) {
                match event {
                    Event::Data(bytes) => data.extend_from_slice(bytes),
                    Event::Opened => {}
                    other => {
                        if !data.is_empty() {
                            words.push(format!("{:02x?}", std::mem::take(&mut data)));
                        }
                        words.push(format!("{other:02x?}"));
                    }
                }
            }
        }
        if !data.is_empty() {
            words.push(format!("{data:02x?}"));
        }
        words
    }

    #[test]
    fn a_stream_is_read_the_same_wherever_it_is_cut() {
        let stream =
            b"A\xff\xffB\xff\xfb\x2c\xff\xfa\x2c\x01\x00\x00\xff\xff\x25\xff\xf0C\xff\xf1D\xff\xfe\x01";
        let whole = read([&stream[..]]);
        insta::assert_snapshot!(whole.join("\n"), @r"
        [41, ff, 42]
        Negotiation(Will, 2c)
        Subnegotiation(2c, [01, 00, 00, ff, 25])
        [43, 44]
        Negotiation(Dont, 01)
        ");
        for cut in 0..=stream.len() {
            let (first, second) = stream.split_at(cut);
            assert_eq!(read([first, second]), whole, "cut at {cut}");
        }
        assert_eq!(read(stream.chunks(1)), whole);
    }

    #[test]
    fn what_has_no_end_is_passed_over() {
        // Broken off by a negotiation, by another one, by a lone command; nothing inside; far too long.
        let mut stream =
            b"\xff\xfa\x2c\x01\xff\xfb\x00A\xff\xfa\x2c\x01\xff\xfa\x2c\x02\x08\xff\xf0B".to_vec();
        stream.extend_from_slice(b"\xff\xfa\x2c\xff\xf1C\xff\xfa\xff\xf0D\xff\xfa");
        stream.extend_from_slice(&[0x2c; 100_000]);
        stream.extend_from_slice(b"\xff\xf0E");
        let words = read([&stream[..]]);
        insta::assert_snapshot!(words.join("\n"), @r"
        Negotiation(Will, 00)
        [41]
        Subnegotiation(2c, [02, 08])
        [42, 43, 44, 45]
        ");
    }

    #[test]
    fn only_what_changes_something_is_answered() {
        let (mut negotiation, mut out) = (Negotiation::default(), Vec::new());
        negotiation.offer(option::BINARY, &mut out);
        negotiation.ask(option::COM_PORT, &mut out);
        assert_eq!(out, b"\xff\xfb\x00\xff\xfd\x2c");
        let mut say = |verb, option| {
            let mut answers = Vec::new();
            negotiation.received(verb, option, &mut answers);
            answers
        };
        assert_eq!(say(Verb::Do, option::BINARY), b"", "an agreement");
        assert_eq!(say(Verb::Do, option::BINARY), b"", "said again");
        assert_eq!(say(Verb::Will, option::BINARY), b"\xff\xfd\x00", "a wish of theirs");
        assert_eq!(say(Verb::Will, option::COM_PORT), b"");
        assert_eq!(say(Verb::Dont, option::COM_PORT), b"", "was never offered");
        assert_eq!(say(Verb::Do, 1), b"\xff\xfc\x01", "unknown");
        assert_eq!(say(Verb::Dont, 1), b"");
        assert_eq!(say(Verb::Wont, option::COM_PORT), b"\xff\xfe\x2c", "taken back");
        assert_eq!(say(Verb::Wont, option::COM_PORT), b"");
    }

    proptest! {
        #[test]
        fn data_survive(data in prop::collection::vec(prop_oneof![Just(0xffu8), any::<u8>()], 0..600), cut in 1usize..40) {
            let mut sent = Vec::new();
            escape(&data, &mut sent);
            let (mut decoder, mut came) = (Decoder::default(), Vec::new());
            for mut piece in sent.chunks(cut) {
                while let Some(event) = decoder.next(&mut piece) {
                    match event {
                        Event::Data(bytes) => came.extend_from_slice(bytes),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
            prop_assert_eq!(came, data);
        }

        #[test]
        fn two_sides_never_answer_each_other_for_ever(said in prop::collection::btree_map(0u8..50, 0u8..4, 0..40)) {
            let (mut one, mut other) = (Negotiation::default(), Negotiation::default());
            let mut out = Vec::new();
            other.offer(option::COM_PORT, &mut out);
            for (option, verb) in said {
                negotiate(Verb::of(0xfb + verb).unwrap(), option, &mut out);
            }
            for _ in 0..4 {
                let (mut decoder, mut answers) = (Decoder::default(), Vec::new());
                let mut bytes = &out[..];
                while let Some(event) = decoder.next(&mut bytes) {
                    let Event::Negotiation(verb, option) = event else { continue };
                    one.received(verb, option, &mut answers);
                }
                prop_assert!(answers.len() <= out.len());
                out = answers;
                std::mem::swap(&mut one, &mut other);
            }
            prop_assert!(out.is_empty());
        }
    }
}
