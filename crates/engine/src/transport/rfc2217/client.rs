//! State of the client side (RFC 2217's client): the messages of the server and their meaning.
//!
//! `link.rs` moves bytes and waits.

use super::command::{self, REPLY_OFFSET, code};
use super::telnet::{OptionAgreement, OptionNegotiation, TelnetEvent, option};
use crate::link::serial_line::{ModemLines, SerialSettings, UartErrors};

/// The commands for the settings, each with its name for messages.
pub(crate) const SETTING_COMMANDS: [(u8, &str); 5] = [
    (code::BAUD, "rate"),
    (code::DATA, "data bits"),
    (code::PARITY, "parity"),
    (code::STOP, "stop bits"),
    (code::CONTROL, "flow control"),
];

/// Maximum number of stored characters of a signature.
const MAX_SIGNATURE_CHARS: usize = 100;

/// Scope of the settings that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingsScope {
    All,
    /// Settings that differ from the effective ones.
    Changed,
}

/// State of the server according to its messages.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    negotiation: OptionNegotiation,
    /// Replies of the server: bit n is set if it has replied to command n.
    replied_commands: u16,
    /// Whether the received data contained Telnet commands.
    pub(crate) is_telnet: bool,
    /// Whether the server sends client messages: it echoes.
    pub(crate) is_echo: bool,
    /// The effective settings, as far as the server has replied.
    pub(crate) settings: SerialSettings,
    pub(crate) modem_lines: Option<ModemLines>,
    /// Lower bounds of the errors of the line.
    pub(crate) uart_errors: UartErrors,
    pub(crate) signature: Option<String>,
}

impl ServerState {
    /// Writes the first message of a client.
    pub(crate) fn write_offers(&mut self, out: &mut Vec<u8>) {
        for option in [option::BINARY, option::SUPPRESS_GO_AHEAD] {
            self.negotiation.offer(option, out);
            self.negotiation.request(option, out);
        }
        self.negotiation.offer(option::COM_PORT, out);
    }

    /// Whether the server supports port control: it accepts our offer, or makes one of its own.
    pub(crate) fn control_agreement(&self) -> OptionAgreement {
        match self.negotiation.remote(option::COM_PORT) {
            OptionAgreement::Yes => OptionAgreement::Yes,
            _ => self.negotiation.local(option::COM_PORT),
        }
    }

    /// Handles a received event, except data; writes the necessary replies.
    pub(crate) fn handle_event(&mut self, event: TelnetEvent, replies: &mut Vec<u8>) {
        self.is_telnet |= !matches!(event, TelnetEvent::Data(_));
        match event {
            TelnetEvent::Negotiation(verb, option) => self.negotiation.handle(verb, option, replies),
            TelnetEvent::Subnegotiation(option::COM_PORT, payload) => {
                if let Some((&code, value)) = payload.split_first() {
                    match code.checked_sub(REPLY_OFFSET) {
                        Some(code) => self.handle_reply(code, value),
                        None => self.is_echo |= (code::BAUD..=code::CONTROL).contains(&code),
                    }
                }
            }
            TelnetEvent::Data(_) | TelnetEvent::SubnegotiationStart | TelnetEvent::Subnegotiation(..) => {}
        }
    }

    /// Handles a reply; ignores invalid ones.
    fn handle_reply(&mut self, code: u8, value: &[u8]) {
        let settings = &mut self.settings;
        let first = value.first().copied();
        let understood = match code {
            code::SIGNATURE => {
                let text = String::from_utf8_lossy(value);
                let printable = text.chars().filter(|c| !c.is_control()).take(MAX_SIGNATURE_CHARS);
                self.signature = Some(printable.collect());
                true
            }
            code::BAUD => assign(&mut settings.baud, command::decode_baud(value)),
            code::DATA => assign(&mut settings.data_bits, first.and_then(command::decode_data_bits)),
            code::PARITY => assign(&mut settings.parity, first.and_then(command::decode_parity)),
            code::STOP => assign(&mut settings.stop_bits, first.and_then(command::decode_stop_bits)),
            code::CONTROL => assign(&mut settings.flow_control, first.and_then(command::decode_flow_control)),
            code::LINE_STATE => {
                command::count_errors(first.unwrap_or(0), &mut self.uart_errors);
                true
            }
            code::MODEM_STATE => {
                assign(&mut self.modem_lines, first.map(|state| Some(command::decode_modem_state(state))))
            }
            _ => code == code::PURGE,
        };
        if understood {
            self.replied_commands |= 1 << code;
        }
    }

    /// Marks a command as not replied to, before it is sent.
    pub(crate) fn clear_reply(&mut self, code: u8) {
        self.replied_commands &= !(1 << code);
    }

    pub(crate) fn has_reply(&self, code: u8) -> bool {
        self.replied_commands & (1 << code) != 0
    }

    /// Requested settings without a reply, for a message.
    pub(crate) fn missing_replies(&self) -> Vec<&'static str> {
        SETTING_COMMANDS.iter().filter(|(code, _)| !self.has_reply(*code)).map(|(_, name)| *name).collect()
    }

    /// Writes the commands for the `wanted` settings.
    pub(crate) fn write_settings(
        &mut self,
        wanted: &SerialSettings,
        scope: SettingsScope,
        out: &mut Vec<u8>,
    ) {
        let now = self.settings;
        let baud = wanted.baud.to_be_bytes();
        let commands = [
            (code::BAUD, &baud[..], wanted.baud != now.baud),
            (code::DATA, &[wanted.data_bits], wanted.data_bits != now.data_bits),
            (code::PARITY, &[command::encode_parity(wanted.parity)], wanted.parity != now.parity),
            (code::STOP, &[command::encode_stop_bits(wanted.stop_bits)], wanted.stop_bits != now.stop_bits),
            (
                code::CONTROL,
                &[command::encode_flow_control(wanted.flow_control)],
                wanted.flow_control != now.flow_control,
            ),
        ];
        let is_sent = |changes| changes || scope == SettingsScope::All;
        for (code, value, _) in commands.into_iter().filter(|(.., changes)| is_sent(*changes)) {
            self.clear_reply(code);
            command::write_command(code, value, out);
        }
    }
}

fn assign<T>(place: &mut T, value: Option<T>) -> bool {
    let understood = value.is_some();
    if let Some(value) = value {
        *place = value;
    }
    understood
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::serial_line::{FlowControl, Parity};
    use crate::transport::rfc2217::telnet::TelnetDecoder;

    /// The state of a client after its first message and these bytes, and its replies.
    fn state_after(bytes: &[u8]) -> (ServerState, Vec<u8>) {
        let (mut state, mut first, mut replies) = (ServerState::default(), Vec::new(), Vec::new());
        state.write_offers(&mut first);
        assert_eq!(first, b"\xff\xfb\x00\xff\xfd\x00\xff\xfb\x03\xff\xfd\x03\xff\xfb\x2c");
        let (mut decoder, mut rest) = (TelnetDecoder::default(), bytes);
        while let Some(event) = decoder.next_event(&mut rest) {
            state.handle_event(event, &mut replies);
        }
        (state, replies)
    }

    #[test]
    fn every_form_of_agreement_is_accepted() {
        // ser2net's greeting; its WONT 44 in reply to our DO 44 is no refusal.
        let ser2net = b"\xff\xfb\x03\xff\xfd\x03\xff\xfb\x01\xff\xfe\x01\xff\xfd\x00\xff\xfb\x00\xff\xfd\x2c\xff\xfc\x2c";
        let (client, replies) = state_after(ser2net);
        assert_eq!(
            (client.control_agreement(), &replies[..]),
            (OptionAgreement::Yes, &b"\xff\xfe\x01"[..]),
            "no ECHO"
        );
        // pyserial's server sends WILL and DO, sredird's DO and WILL: the former gets a reply, because it was
        // not requested.
        let (client, replies) = state_after(b"\xff\xfb\x2c");
        assert_eq!((client.control_agreement(), &replies[..]), (OptionAgreement::Yes, &b"\xff\xfd\x2c"[..]));
        assert_eq!(state_after(b"\xff\xfe\x2c").0.control_agreement(), OptionAgreement::Refused);
        assert_eq!(state_after(b"\xff\xfd\x00").0.control_agreement(), OptionAgreement::Pending);
        let (client, replies) = state_after(b"login: ");
        assert_eq!(
            (client.control_agreement(), client.is_telnet, &replies[..]),
            (OptionAgreement::Pending, false, &b""[..])
        );
    }

    #[test]
    fn replies_are_the_settings_in_force() {
        let (mut client, _) = state_after(
            b"\xff\xfa\x2c\x65\x00\x00\x4b\x00\x00\x00\x00\x00\xff\xf0\xff\xfa\x2c\x67\x03\xff\xf0\
              \xff\xfa\x2c\x69\x03\xff\xf0\xff\xfa\x2c\x69\x08\xff\xf0\xff\xfa\x2c\x6b\xb0\xff\xf0\
              \xff\xfa\x2c\x6a\x1e\xff\xf0\xff\xfa\x2c\x6a\x62\xff\xf0\xff\xfa\x2c\x64Box\x07 1\xff\xf0\
              \xff\xfa\x2c\x66\x09\xff\xf0\xff\xfa\x2c\xc8\x09\xff\xf0\xff\xfa\x2c\xff\xf0",
        );
        let expected = SerialSettings {
            baud: 19200,
            parity: Parity::Even,
            flow_control: FlowControl::RtsCts,
            ..SerialSettings::default()
        };
        assert_eq!(client.settings, expected);
        assert_eq!(client.missing_replies(), ["data bits", "stop bits"], "nine data bits are no reply");
        assert_eq!(client.modem_lines, Some(ModemLines { cts: true, dsr: true, ri: false, cd: true }));
        assert_eq!(client.uart_errors, UartErrors { framing: 1, parity: 1, breaks: 1, overruns: 2 });
        assert_eq!(client.signature.as_deref(), Some("Box 1"));
        assert!(!client.is_echo);
        let mut out = Vec::new();
        client.write_settings(&SerialSettings { baud: 9600, ..expected }, SettingsScope::Changed, &mut out);
        assert_eq!(out, b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0");
        assert!(!client.has_reply(code::BAUD));
    }

    proptest! {
        #[test]
        fn any_bytes_get_replies_within_bounds(
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
            let (client, replies) = state_after(&bytes);
            prop_assert!(replies.len() <= bytes.len());
            prop_assert!((5..=8).contains(&client.settings.data_bits));
        }
    }

    #[test]
    fn an_echo_of_our_commands_is_detected() {
        assert!(state_after(b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0").0.is_echo);
    }
}
