//! Telnet as far as serial ports need it: separates and writes data, negotiation and sub-negotiations.
//!
//! `command.rs` interprets the sub-negotiations of option 44. RFC 854, 855, 856 and 858.

/// Interpret as command: starts everything that is not data. As data it is doubled.
pub(crate) const IAC: u8 = 0xff;
/// Ends a sub-negotiation, after IAC.
pub(crate) const SE: u8 = 0xf0;
/// Begins a sub-negotiation, after IAC.
pub(crate) const SB: u8 = 0xfa;

/// The lowest command after IAC (RFC 1184).
const FIRST_COMMAND: u8 = 0xec;

/// Options of Telnet.
pub(crate) mod option {
    /// Eight-bit data without control characters (RFC 856).
    pub(crate) const BINARY: u8 = 0;
    /// Suppress go-ahead: both sides may talk at any time (RFC 858).
    pub(crate) const SUPPRESS_GO_AHEAD: u8 = 3;
    /// Control of a serial port (RFC 2217).
    pub(crate) const COM_PORT: u8 = 44;
}

/// Longest stored sub-negotiation, including its option: a command of option 44 takes six bytes, a signature
/// is a line of text. Longer ones are skipped.
pub(crate) const MAX_SUBNEGOTIATION_BYTES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TelnetVerb {
    Will,
    Wont,
    Do,
    Dont,
}

impl TelnetVerb {
    pub(super) fn from_byte(byte: u8) -> Option<TelnetVerb> {
        Some(match byte {
            0xfb => TelnetVerb::Will,
            0xfc => TelnetVerb::Wont,
            0xfd => TelnetVerb::Do,
            0xfe => TelnetVerb::Dont,
            _ => return None,
        })
    }

    fn to_byte(self) -> u8 {
        match self {
            TelnetVerb::Will => 0xfb,
            TelnetVerb::Wont => 0xfc,
            TelnetVerb::Do => 0xfd,
            TelnetVerb::Dont => 0xfe,
        }
    }
}

/// A received event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TelnetEvent<'a> {
    Data(&'a [u8]),
    Negotiation(TelnetVerb, u8),
    /// A sub-negotiation starts: earlier data can be handled first.
    SubnegotiationStart,
    /// The option and its content, with FF no longer doubled.
    Subnegotiation(u8, &'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    Data,
    Command,
    Option(TelnetVerb),
    Subnegotiation,
    SubnegotiationCommand,
}

/// Decodes a stream that may be split anywhere.
#[derive(Debug)]
pub(crate) struct TelnetDecoder {
    state: DecoderState,
    subnegotiation: Vec<u8>,
    /// FF before bytes that are no command: the sender does not double it in its data.
    pub(crate) undoubled_bytes: u64,
}

impl Default for TelnetDecoder {
    fn default() -> TelnetDecoder {
        TelnetDecoder {
            state: DecoderState::Data,
            subnegotiation: Vec::with_capacity(MAX_SUBNEGOTIATION_BYTES + 1),
            undoubled_bytes: 0,
        }
    }
}

impl TelnetDecoder {
    /// The next event of `bytes`; removes the used bytes. `None` when all are used. Allocates nothing.
    pub(crate) fn next_event<'event, 'bytes: 'event>(
        &'event mut self,
        bytes: &mut &'bytes [u8],
    ) -> Option<TelnetEvent<'event>> {
        loop {
            if self.state == DecoderState::Data {
                let length = bytes.iter().position(|&byte| byte == IAC).unwrap_or(bytes.len());
                if length > 0 {
                    let (data, rest) = bytes.split_at(length);
                    *bytes = rest;
                    return Some(TelnetEvent::Data(data));
                }
            }
            let (first, rest) = bytes.split_at_checked(1)?;
            *bytes = rest;
            let byte = first[0];
            match self.state {
                DecoderState::Data => self.state = DecoderState::Command,
                DecoderState::Command if byte == IAC => {
                    self.state = DecoderState::Data;
                    return Some(TelnetEvent::Data(first));
                }
                DecoderState::Command if byte == SB => {
                    self.begin_subnegotiation();
                    return Some(TelnetEvent::SubnegotiationStart);
                }
                // Single-byte commands are for terminals.
                DecoderState::Command => self.begin_command(byte),
                DecoderState::Option(verb) => {
                    self.state = DecoderState::Data;
                    return Some(TelnetEvent::Negotiation(verb, byte));
                }
                DecoderState::Subnegotiation if byte == IAC => {
                    self.state = DecoderState::SubnegotiationCommand
                }
                DecoderState::Subnegotiation => self.push_byte(byte),
                DecoderState::SubnegotiationCommand if byte == IAC => {
                    self.push_byte(byte);
                    self.state = DecoderState::Subnegotiation;
                }
                DecoderState::SubnegotiationCommand if byte == SE => {
                    self.state = DecoderState::Data;
                    if (1..=MAX_SUBNEGOTIATION_BYTES).contains(&self.subnegotiation.len()) {
                        return Some(TelnetEvent::Subnegotiation(
                            self.subnegotiation[0],
                            &self.subnegotiation[1..],
                        ));
                    }
                }
                // Another command instead of the end: the sub-negotiation was aborted.
                DecoderState::SubnegotiationCommand if byte == SB => self.begin_subnegotiation(),
                DecoderState::SubnegotiationCommand => self.begin_command(byte),
            }
        }
    }

    fn begin_subnegotiation(&mut self) {
        self.subnegotiation.clear();
        self.state = DecoderState::Subnegotiation;
    }

    fn begin_command(&mut self, byte: u8) {
        self.undoubled_bytes += u64::from(byte < FIRST_COMMAND);
        self.state = TelnetVerb::from_byte(byte).map_or(DecoderState::Data, DecoderState::Option);
    }

    fn push_byte(&mut self, byte: u8) {
        if self.subnegotiation.len() <= MAX_SUBNEGOTIATION_BYTES {
            self.subnegotiation.push(byte);
        }
    }
}

/// Writes data: FF is doubled.
pub fn escape(data: &[u8], out: &mut Vec<u8>) {
    for chunk in data.split_inclusive(|&byte| byte == IAC) {
        out.extend_from_slice(chunk);
        if chunk.last() == Some(&IAC) {
            out.push(IAC);
        }
    }
}

/// Writes one negotiation command.
pub(crate) fn write_negotiation(verb: TelnetVerb, option: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[IAC, verb.to_byte(), option]);
}

/// Writes a sub-negotiation of an option: a code and its value, with FF doubled.
pub(crate) fn write_subnegotiation(option: u8, code: u8, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[IAC, SB, option, code]);
    escape(value, out);
    out.extend_from_slice(&[IAC, SE]);
}

/// Whether one side uses an option.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OptionAgreement {
    #[default]
    No,
    /// The option is offered or requested; no reply yet.
    Pending,
    Yes,
    /// The option was offered or requested, and refused.
    Refused,
}

/// The supported options; all others are refused.
const KNOWN_OPTIONS: [u8; 3] = [option::BINARY, option::SUPPRESS_GO_AHEAD, option::COM_PORT];

/// The agreed options. Replies only to changes, so that two sides never reply to each other endlessly.
#[derive(Debug, Default)]
pub(crate) struct OptionNegotiation {
    local: [OptionAgreement; KNOWN_OPTIONS.len()],
    remote: [OptionAgreement; KNOWN_OPTIONS.len()],
}

impl OptionNegotiation {
    /// Offers to use an option on this side.
    pub(crate) fn offer(&mut self, option: u8, out: &mut Vec<u8>) {
        if let Some(known) = option_index(option) {
            self.local[known] = OptionAgreement::Pending;
            write_negotiation(TelnetVerb::Will, option, out);
        }
    }

    /// Requests that the other side uses an option.
    pub(crate) fn request(&mut self, option: u8, out: &mut Vec<u8>) {
        if let Some(known) = option_index(option) {
            self.remote[known] = OptionAgreement::Pending;
            write_negotiation(TelnetVerb::Do, option, out);
        }
    }

    /// Handles a command of the other side, and replies if necessary.
    pub(crate) fn handle(&mut self, verb: TelnetVerb, option: u8, replies: &mut Vec<u8>) {
        let (side, agree, refuse) = match verb {
            TelnetVerb::Will | TelnetVerb::Wont => (&mut self.remote, TelnetVerb::Do, TelnetVerb::Dont),
            TelnetVerb::Do | TelnetVerb::Dont => (&mut self.local, TelnetVerb::Will, TelnetVerb::Wont),
        };
        let wants = matches!(verb, TelnetVerb::Will | TelnetVerb::Do);
        let Some(agreement) = option_index(option).map(|known| &mut side[known]) else {
            if wants {
                write_negotiation(refuse, option, replies);
            }
            return;
        };
        match (wants, *agreement) {
            (true, OptionAgreement::No | OptionAgreement::Refused) => {
                write_negotiation(agree, option, replies)
            }
            (false, OptionAgreement::Yes) => write_negotiation(refuse, option, replies),
            _ => {}
        }
        *agreement = match (wants, *agreement) {
            (true, _) => OptionAgreement::Yes,
            (false, OptionAgreement::Pending | OptionAgreement::Refused) => OptionAgreement::Refused,
            (false, _) => OptionAgreement::No,
        };
    }

    /// Agreement for this side.
    pub(crate) fn local(&self, option: u8) -> OptionAgreement {
        option_index(option).map_or(OptionAgreement::No, |known| self.local[known])
    }

    /// Agreement for the other side.
    pub(crate) fn remote(&self, option: u8) -> OptionAgreement {
        option_index(option).map_or(OptionAgreement::No, |known| self.remote[known])
    }
}

fn option_index(option: u8) -> Option<usize> {
    KNOWN_OPTIONS.iter().position(|&known| known == option)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The events of a decoder as text; adjacent data are joined.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut decoder, mut events, mut data) = (TelnetDecoder::default(), Vec::new(), Vec::new());
        for mut chunk in chunks {
            while let Some(event) = decoder.next_event(&mut chunk) {
                match event {
                    TelnetEvent::Data(bytes) => data.extend_from_slice(bytes),
                    TelnetEvent::SubnegotiationStart => {}
                    other => {
                        if !data.is_empty() {
                            events.push(format!("{:02x?}", std::mem::take(&mut data)));
                        }
                        events.push(format!("{other:02x?}"));
                    }
                }
            }
        }
        if !data.is_empty() {
            events.push(format!("{data:02x?}"));
        }
        events
    }

    #[test]
    fn decoding_is_independent_of_segmentation() {
        let stream =
            b"A\xff\xffB\xff\xfb\x2c\xff\xfa\x2c\x01\x00\x00\xff\xff\x25\xff\xf0C\xff\xf1D\xff\xfe\x01";
        let expected = read([&stream[..]]);
        insta::assert_snapshot!(expected.join("\n"), @r"
        [41, ff, 42]
        Negotiation(Will, 2c)
        Subnegotiation(2c, [01, 00, 00, ff, 25])
        [43, 44]
        Negotiation(Dont, 01)
        ");
        for cut in 0..=stream.len() {
            let (first, second) = stream.split_at(cut);
            assert_eq!(read([first, second]), expected, "cut at {cut}");
        }
        assert_eq!(read(stream.chunks(1)), expected);
    }

    #[test]
    fn an_unterminated_subnegotiation_is_skipped() {
        // Aborted by a negotiation, by another sub-negotiation, by a lone command; empty; far too long.
        let mut stream =
            b"\xff\xfa\x2c\x01\xff\xfb\x00A\xff\xfa\x2c\x01\xff\xfa\x2c\x02\x08\xff\xf0B".to_vec();
        stream.extend_from_slice(b"\xff\xfa\x2c\xff\xf1C\xff\xfa\xff\xf0D\xff\xfa");
        stream.extend_from_slice(&[0x2c; 100_000]);
        stream.extend_from_slice(b"\xff\xf0E");
        let events = read([&stream[..]]);
        insta::assert_snapshot!(events.join("\n"), @r"
        Negotiation(Will, 00)
        [41]
        Subnegotiation(2c, [02, 08])
        [42, 43, 44, 45]
        ");
    }

    #[test]
    fn only_changes_get_replies() {
        let (mut negotiation, mut out) = (OptionNegotiation::default(), Vec::new());
        negotiation.offer(option::BINARY, &mut out);
        negotiation.request(option::COM_PORT, &mut out);
        assert_eq!(out, b"\xff\xfb\x00\xff\xfd\x2c");
        let mut say = |verb, option| {
            let mut replies = Vec::new();
            negotiation.handle(verb, option, &mut replies);
            replies
        };
        assert_eq!(say(TelnetVerb::Do, option::BINARY), b"", "an agreement");
        assert_eq!(say(TelnetVerb::Do, option::BINARY), b"", "repeated");
        assert_eq!(say(TelnetVerb::Will, option::BINARY), b"\xff\xfd\x00", "a wish of theirs");
        assert_eq!(say(TelnetVerb::Will, option::COM_PORT), b"");
        assert_eq!(say(TelnetVerb::Dont, option::COM_PORT), b"", "was never offered");
        assert_eq!(say(TelnetVerb::Do, 1), b"\xff\xfc\x01", "unknown");
        assert_eq!(say(TelnetVerb::Dont, 1), b"");
        assert_eq!(say(TelnetVerb::Wont, option::COM_PORT), b"\xff\xfe\x2c", "taken back");
        assert_eq!(say(TelnetVerb::Wont, option::COM_PORT), b"");
    }

    proptest! {
        #[test]
        fn data_survive(data in prop::collection::vec(prop_oneof![Just(0xffu8), any::<u8>()], 0..600), cut in 1usize..40) {
            let mut sent = Vec::new();
            escape(&data, &mut sent);
            let (mut decoder, mut received) = (TelnetDecoder::default(), Vec::new());
            for mut chunk in sent.chunks(cut) {
                while let Some(event) = decoder.next_event(&mut chunk) {
                    match event {
                        TelnetEvent::Data(bytes) => received.extend_from_slice(bytes),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
            prop_assert_eq!(received, data);
        }

        #[test]
        fn two_sides_never_reply_to_each_other_for_ever(commands in prop::collection::btree_map(0u8..50, 0u8..4, 0..40)) {
            let (mut one, mut other) = (OptionNegotiation::default(), OptionNegotiation::default());
            let mut out = Vec::new();
            other.offer(option::COM_PORT, &mut out);
            for (option, verb) in commands {
                write_negotiation(TelnetVerb::from_byte(0xfb + verb).unwrap(), option, &mut out);
            }
            for _ in 0..4 {
                let (mut decoder, mut replies) = (TelnetDecoder::default(), Vec::new());
                let mut bytes = &out[..];
                while let Some(event) = decoder.next_event(&mut bytes) {
                    let TelnetEvent::Negotiation(verb, option) = event else { continue };
                    one.handle(verb, option, &mut replies);
                }
                prop_assert!(replies.len() <= out.len());
                out = replies;
                std::mem::swap(&mut one, &mut other);
            }
            prop_assert!(out.is_empty());
        }
    }
}
