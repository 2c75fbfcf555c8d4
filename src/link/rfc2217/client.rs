//! The side that wants the serial port (RFC 2217's client) as a state: what was said to it, and what that means.
//!
//! Not for moving bytes or for waiting: `link.rs` does that.

use super::super::line::{Errors, Modem, Settings};
use super::command::{self, ANSWER, code};
use super::telnet::{Agreement, Event, Negotiation, option};

/// The commands that settings are made of, each with its name for messages.
pub const SETTINGS: [(u8, &str); 5] = [
    (code::BAUD, "rate"),
    (code::DATA, "data bits"),
    (code::PARITY, "parity"),
    (code::STOP, "stop bits"),
    (code::CONTROL, "flow control"),
];

/// More of a signature is not kept.
const LONGEST_SIGNATURE: usize = 100;

/// What a server has said.
#[derive(Debug, Default)]
pub struct Heard {
    negotiation: Negotiation,
    /// Bit n: command n has been answered.
    answered: u16,
    /// There was Telnet in what came.
    pub is_telnet: bool,
    /// It says what a client says: what it is told comes back.
    pub echoes: bool,
    /// In force, as far as it has answered.
    pub settings: Settings,
    pub modem: Option<Modem>,
    /// At least so many.
    pub errors: Errors,
    pub signature: Option<String>,
}

impl Heard {
    /// Writes what a client says first.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        for option in [option::BINARY, option::SUPPRESS_GO_AHEAD] {
            self.negotiation.offer(option, out);
            self.negotiation.ask(option, out);
        }
        self.negotiation.offer(option::COM_PORT, out);
    }

    /// Whether the server lets its port be controlled: it takes our offer, or makes one of its own.
    pub fn agreement(&self) -> Agreement {
        match self.negotiation.theirs(option::COM_PORT) {
            Agreement::Yes => Agreement::Yes,
            _ => self.negotiation.ours(option::COM_PORT),
        }
    }

    /// Takes what came, of which data say nothing; writes what has to be answered.
    pub fn take(&mut self, event: Event, answers: &mut Vec<u8>) {
        self.is_telnet |= !matches!(event, Event::Data(_));
        match event {
            Event::Negotiation(verb, option) => self.negotiation.received(verb, option, answers),
            Event::Subnegotiation(option::COM_PORT, said) => {
                if let Some((&code, value)) = said.split_first() {
                    match code.checked_sub(ANSWER) {
                        Some(code) => self.answer(code, value),
                        None => self.echoes |= (code::BAUD..=code::CONTROL).contains(&code),
                    }
                }
            }
            Event::Data(_) | Event::Opened | Event::Subnegotiation(..) => {}
        }
    }

    /// What makes no sense is no answer.
    fn answer(&mut self, code: u8, value: &[u8]) {
        let settings = &mut self.settings;
        let first = value.first().copied();
        let understood = match code {
            code::SIGNATURE => {
                let text = String::from_utf8_lossy(value);
                let printable = text.chars().filter(|c| !c.is_control()).take(LONGEST_SIGNATURE);
                self.signature = Some(printable.collect());
                true
            }
            code::BAUD => put(&mut settings.baud, command::baud_of(value)),
            code::DATA => put(&mut settings.data_bits, first.and_then(command::data_of)),
            code::PARITY => put(&mut settings.parity, first.and_then(command::parity_of)),
            code::STOP => put(&mut settings.stop, first.and_then(command::stop_of)),
            code::CONTROL => put(&mut settings.flow, first.and_then(command::flow_of)),
            code::LINE_STATE => {
                command::count(first.unwrap_or(0), &mut self.errors);
                true
            }
            code::MODEM_STATE => put(&mut self.modem, first.map(|state| Some(command::modem_of(state)))),
            _ => code == code::PURGE,
        };
        if understood {
            self.answered |= 1 << code;
        }
    }

    /// Forgets that a command was ever answered: it is about to be sent.
    pub fn forget(&mut self, code: u8) {
        self.answered &= !(1 << code);
    }

    pub fn has_answered(&self, code: u8) -> bool {
        self.answered & (1 << code) != 0
    }

    /// Settings that were asked for and not answered, for a message.
    pub fn unanswered(&self) -> Vec<&'static str> {
        SETTINGS.iter().filter(|(code, _)| !self.has_answered(*code)).map(|(_, name)| *name).collect()
    }

    /// Writes the commands for what is `wanted`: all of them, or those that change something.
    pub fn ask(&mut self, wanted: &Settings, all: bool, out: &mut Vec<u8>) {
        let now = self.settings;
        let baud = wanted.baud.to_be_bytes();
        let commands = [
            (code::BAUD, &baud[..], wanted.baud != now.baud),
            (code::DATA, &[wanted.data_bits], wanted.data_bits != now.data_bits),
            (code::PARITY, &[command::parity(wanted.parity)], wanted.parity != now.parity),
            (code::STOP, &[command::stop(wanted.stop)], wanted.stop != now.stop),
            (code::CONTROL, &[command::flow(wanted.flow)], wanted.flow != now.flow),
        ];
        for (code, value, _) in commands.into_iter().filter(|(.., changes)| all || *changes) {
            self.forget(code);
            command::write(code, value, out);
        }
    }
}

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    let understood = value.is_some();
    if let Some(value) = value {
        *place = value;
    }
    understood
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::line::{Flow, Parity};
    use super::super::telnet::Decoder;
    use super::*;

    /// A client that has said what it says first, and then hears this; what it answers.
    fn heard(bytes: &[u8]) -> (Heard, Vec<u8>) {
        let (mut heard, mut first, mut answers) = (Heard::default(), Vec::new(), Vec::new());
        heard.open(&mut first);
        assert_eq!(first, b"\xff\xfb\x00\xff\xfd\x00\xff\xfb\x03\xff\xfd\x03\xff\xfb\x2c");
        let (mut decoder, mut rest) = (Decoder::default(), bytes);
        while let Some(event) = decoder.next(&mut rest) {
            heard.take(event, &mut answers);
        }
        (heard, answers)
    }

    #[test]
    fn servers_agree_each_in_its_way() {
        // ser2net's greeting; its WONT 44 to a DO 44 of ours is no refusal.
        let ser2net = b"\xff\xfb\x03\xff\xfd\x03\xff\xfb\x01\xff\xfe\x01\xff\xfd\x00\xff\xfb\x00\xff\xfd\x2c\xff\xfc\x2c";
        let (client, answers) = heard(ser2net);
        assert_eq!((client.agreement(), &answers[..]), (Agreement::Yes, &b"\xff\xfe\x01"[..]), "no ECHO");
        // pyserial's says WILL and DO, sredird's DO and WILL: the former is answered, since it was not asked for.
        let (client, answers) = heard(b"\xff\xfb\x2c");
        assert_eq!((client.agreement(), &answers[..]), (Agreement::Yes, &b"\xff\xfd\x2c"[..]));
        assert_eq!(heard(b"\xff\xfe\x2c").0.agreement(), Agreement::Refused);
        assert_eq!(heard(b"\xff\xfd\x00").0.agreement(), Agreement::Open);
        let (client, answers) = heard(b"login: ");
        assert_eq!((client.agreement(), client.is_telnet, &answers[..]), (Agreement::Open, false, &b""[..]));
    }

    #[test]
    fn answers_are_what_is_in_force() {
        let (mut client, _) = heard(
            b"\xff\xfa\x2c\x65\x00\x00\x4b\x00\x00\x00\x00\x00\xff\xf0\xff\xfa\x2c\x67\x03\xff\xf0\
              \xff\xfa\x2c\x69\x03\xff\xf0\xff\xfa\x2c\x69\x08\xff\xf0\xff\xfa\x2c\x6b\xb0\xff\xf0\
              \xff\xfa\x2c\x6a\x1e\xff\xf0\xff\xfa\x2c\x6a\x62\xff\xf0\xff\xfa\x2c\x64Box\x07 1\xff\xf0\
              \xff\xfa\x2c\x66\x09\xff\xf0\xff\xfa\x2c\xc8\x09\xff\xf0\xff\xfa\x2c\xff\xf0",
        );
        let expected =
            Settings { baud: 19200, parity: Parity::Even, flow: Flow::RtsCts, ..Settings::default() };
        assert_eq!(client.settings, expected);
        assert_eq!(client.unanswered(), ["data bits", "stop bits"], "nine data bits are no answer");
        assert_eq!(client.modem, Some(Modem { cts: true, dsr: true, ri: false, cd: true }));
        assert_eq!(client.errors, Errors { framing: 1, parity: 1, breaks: 1, overruns: 2 });
        assert_eq!(client.signature.as_deref(), Some("Box 1"));
        assert!(!client.echoes);
        let mut out = Vec::new();
        client.ask(&Settings { baud: 9600, ..expected }, false, &mut out);
        assert_eq!(out, b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0");
        assert!(!client.has_answered(code::BAUD));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_answered_within_bounds(
            words in prop::collection::vec(
                prop_oneof![
                    (0xfbu8..=0xfe, 0u8..50).prop_map(|(verb, option)| vec![0xff, verb, option]),
                    (any::<u8>(), prop::collection::vec(0u8..=0xfe, 0..9))
                        .prop_map(|(code, value)| [&[0xff, 0xfa, 0x2c, code][..], &value, &[0xff, 0xf0]].concat()),
                    prop::collection::vec(any::<u8>(), 0..5),
                ],
                0..100,
            ),
        ) {
            let bytes = words.concat();
            let (client, answers) = heard(&bytes);
            prop_assert!(answers.len() <= bytes.len());
            prop_assert!((5..=8).contains(&client.settings.data_bits));
        }
    }

    #[test]
    fn a_client_of_its_own_words_is_an_echo() {
        assert!(heard(b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0").0.echoes);
    }
}
