//! Messages of clients and the expected replies, byte for byte.

use proptest::prelude::*;

use super::super::telnet;
use super::*;
use crate::link::serial_line::{FlowControl, Parity, PurgeTarget, StopBits};

/// A port that logs all calls.
#[derive(Default)]
struct LoggingPort {
    settings: SerialSettings,
    /// The driver's rounding of a rate.
    round: Option<fn(u32) -> u32>,
    refuses: bool,
    gone: bool,
    modem: Option<ModemLines>,
    done: Vec<String>,
}

impl LoggingPort {
    fn check_present(&self) -> Result<(), Fault> {
        if self.gone { Err(Fault::Closed) } else { Ok(()) }
    }

    fn log_call(&mut self, what: String) -> Result<(), Fault> {
        self.check_present()?;
        if self.refuses {
            return Err(Fault::Refused("no".to_owned()));
        }
        self.done.push(what);
        Ok(())
    }
}

impl PortControl for LoggingPort {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        self.check_present().map(|()| self.settings)
    }

    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        self.log_call(wanted.to_string())?;
        let baud = self.round.map_or(wanted.baud, |round| round(wanted.baud));
        self.settings = SerialSettings { baud, ..*wanted };
        Ok(self.settings)
    }

    fn set_signal(&mut self, signal: OutputSignal, on: bool) -> Result<(), Fault> {
        self.log_call(format!("{signal:?} {on}"))
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        self.modem
    }

    fn purge(&mut self, purge: PurgeTarget) -> Result<(), Fault> {
        self.log_call(format!("purge {purge:?}"))
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        None
    }
}

/// A session with its port, its replies and its data.
struct ServerWithPort {
    server: PortServer,
    port: LoggingPort,
    data: Vec<u8>,
}

impl ServerWithPort {
    pub fn new(port: LoggingPort) -> ServerWithPort {
        ServerWithPort { server: PortServer::new(port.settings, "linkgauge"), port, data: Vec::new() }
    }

    /// A session after the greeting.
    fn greeted(port: LoggingPort) -> ServerWithPort {
        let mut session = ServerWithPort::new(port);
        let mut greeting = Vec::new();
        session.server.write_greeting(&mut greeting);
        assert_eq!(hex(&greeting), "FF FB 00 FF FD 00 FF FB 03 FF FD 03 FF FD 2C");
        session
    }

    /// Passes the client's bytes to the server, call by call; returns the replies.
    fn receive_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut rest, mut replies) = (bytes, Vec::new());
        while !rest.is_empty() {
            let mut data = Vec::new();
            let used = self.server.handle_bytes(rest, &mut data, &mut replies, &mut self.port).unwrap();
            assert!(used > 0 && (used == rest.len() || !data.is_empty()));
            if !data.is_empty() {
                self.port.done.push(format!("data {:?}", String::from_utf8_lossy(&data)));
            }
            self.data.append(&mut data);
            rest = &rest[used..];
        }
        replies
    }

    fn replies_to(&mut self, bytes: &str) -> String {
        let replies = self.receive_bytes(&unhex(bytes));
        hex(&replies)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ")
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// pyserial 3.5 from its first byte to the first data, and the replies that it needs.
const PYSERIAL: [(&str, &str); 10] = [
    // DO ECHO, WILL SGA, DO SGA, DO 44, WILL 44: the greeting already offered most of it.
    ("FF FD 01 FF FB 03 FF FD 03 FF FD 2C FF FB 2C", "FF FC 01 FF FB 2C FF FA 2C 6B B0 FF F0"),
    ("FF FD 00 FF FB 00", ""),
    ("FF FA 2C 01 00 00 E1 00 FF F0", "FF FA 2C 65 00 00 E1 00 FF F0"),
    (
        "FF FA 2C 02 08 FF F0 FF FA 2C 03 01 FF F0 FF FA 2C 04 01 FF F0",
        "FF FA 2C 66 08 FF F0 FF FA 2C 67 01 FF F0 FF FA 2C 68 01 FF F0",
    ),
    ("FF FA 2C 05 01 FF F0", "FF FA 2C 69 01 FF F0"),
    ("FF FA 2C 05 08 FF F0", "FF FA 2C 69 08 FF F0"),
    ("FF FA 2C 05 0B FF F0", "FF FA 2C 69 0B FF F0"),
    ("FF FA 2C 0C 01 FF F0", "FF FA 2C 70 01 FF F0"),
    ("FF FA 2C 0C 02 FF F0", "FF FA 2C 70 02 FF F0"),
    ("41 FF FF 42", ""),
];

#[test]
fn pyserial_opens_a_port() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    for (request, reply) in PYSERIAL {
        assert_eq!(session.replies_to(request), reply, "to {request}");
    }
    assert_eq!(session.data, b"A\xffB");
    assert_eq!(
        session.port.done,
        ["57600 8N1", "Dtr true", "Rts true", "purge Received", "purge ToSend", "data \"A\u{fffd}B\""]
    );
}

#[test]
fn a_conversation_is_independent_of_segmentation() {
    let request: Vec<u8> = PYSERIAL.iter().flat_map(|(request, _)| unhex(request)).collect();
    let reply: Vec<u8> = PYSERIAL.iter().flat_map(|(_, reply)| unhex(reply)).collect();
    for cut in 0..=request.len() {
        let mut session = ServerWithPort::greeted(LoggingPort::default());
        let mut replies = session.receive_bytes(&request[..cut]);
        replies.extend(session.receive_bytes(&request[cut..]));
        assert_eq!((replies, &session.data[..]), (reply.clone(), &b"A\xffB"[..]), "cut at {cut}");
    }
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    let replies: Vec<u8> = request.iter().flat_map(|byte| session.receive_bytes(&[*byte])).collect();
    assert_eq!(replies, reply);
}

#[test]
fn a_terminal_is_served_as_one() {
    // Reply of inetutils-telnet to the greeting: no option 44. Its lone CR has a NUL until BINARY is agreed.
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    assert_eq!(session.replies_to("FF FD 03 FF FB 03 FF FD 01 FF FC 2C"), "FF FC 01");
    assert_eq!(session.replies_to("41 0D 00 42 0D"), "");
    assert_eq!(session.replies_to("00 43 00 0D 0A FF FB 00 0D 00"), "");
    assert_eq!(session.data, b"A\rB\rC\0\r\n\r\0");
    let mut out = Vec::new();
    telnet::escape(b"\r\xff\n", &mut out);
    assert_eq!(hex(&out), "0D FF FF 0A");
    assert_eq!(
        session.replies_to("FF FB 1F FF FB 18 FF F6 FF F1"),
        "FF FE 1F FF FE 18",
        "window size, terminal type"
    );
}

#[test]
fn every_setting_is_set_and_confirmed() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    for (request, reply) in [
        ("01 00 00 25 80", "65 00 00 25 80"),
        ("01 00 00 FF FF FF FF", "65 00 00 FF FF FF FF"),
        ("01 00 01 FF FF 00", "65 00 01 FF FF 00"),
        ("01 00 00 00 00", "65 00 01 FF FF 00"),
        ("01", "65 00 01 FF FF 00"),
        ("02 07", "66 07"),
        ("02 00", "66 07"),
        ("02 09", "66 07"),
        ("03 03", "67 03"),
        ("03 00", "67 03"),
        ("03 06", "67 03"),
        ("04 02", "68 02"),
        ("04 00", "68 02"),
        ("04", "68 02"),
    ] {
        let (request, reply) = (format!("FF FA 2C {request} FF F0"), format!("FF FA 2C {reply} FF F0"));
        assert_eq!(session.replies_to(&request), reply, "to {request}");
    }
    assert_eq!(
        session.port.done,
        ["65535 8N1", "130816 8N1", "130816 7N1", "130816 7E1", "130816 7E2"],
        "9600 was there already"
    );
    assert_eq!(session.server.session.settings.to_string(), "130816 7E2");
}

#[test]
fn control_commands_reply_with_the_state() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    for (request, reply) in [
        // Flow control: query, set, query for received data only, set for that, unsupported kinds.
        ("00", "01"),
        ("03", "03"),
        ("00", "03"),
        ("0D", "10"),
        ("0E", "10"),
        ("11", "03"),
        ("12", "10"),
        ("13", "03"),
        ("02", "02"),
        ("0D", "0F"),
        // BREAK, DTR, RTS.
        ("04", "06"),
        ("05", "05"),
        ("04", "05"),
        ("06", "06"),
        ("07", "08"),
        ("09", "09"),
        ("07", "09"),
        ("0A", "0B"),
        ("0C", "0C"),
        ("0A", "0C"),
    ] {
        let reply = format!("FF FA 2C 69 {reply} FF F0");
        assert_eq!(session.replies_to(&format!("FF FA 2C 05 {request} FF F0")), reply, "to {request}");
    }
    assert_eq!(
        session.replies_to("FF FA 2C 05 14 FF F0 FF FA 2C 0D 01 FF F0 FF FA 2C 65 01 FF F0"),
        "",
        "unknown"
    );
    assert_eq!(
        session.port.done,
        ["9600 8N1 rtscts", "9600 8N1 xonxoff", "Break true", "Break false", "Dtr false", "Rts false"]
    );
}

#[test]
fn a_rate_within_tolerance_is_reported_as_requested() {
    // A clock of 1.8432 MHz divided by 16 and an integer.
    let round: fn(u32) -> u32 = |asked| 115_200 / (115_200 / asked).max(1);
    let mut session = ServerWithPort::greeted(LoggingPort { round: Some(round), ..LoggingPort::default() });
    assert_eq!(
        session.replies_to("FF FA 2C 01 00 00 25 6C FF F0"),
        "FF FA 2C 65 00 00 25 6C FF F0",
        "9580 by 9600"
    );
    assert_eq!(session.port.settings.baud, 9600);
    // 250000 is far above its maximum.
    assert_eq!(session.replies_to("FF FA 2C 01 00 03 D0 90 FF F0"), "FF FA 2C 65 00 01 C2 00 FF F0");
}

#[test]
fn refused_settings_stay_unchanged() {
    let mut session = ServerWithPort::greeted(LoggingPort { refuses: true, ..LoggingPort::default() });
    assert_eq!(session.replies_to("FF FA 2C 01 00 00 4B 00 FF F0"), "FF FA 2C 65 00 00 25 80 FF F0");
    assert_eq!(session.replies_to("FF FA 2C 05 09 FF F0"), "FF FA 2C 69 08 FF F0");
    assert_eq!(session.replies_to("FF FA 2C 0C 03 FF F0"), "FF FA 2C 70 03 FF F0");
    session.port.gone = true;
    let gone = unhex("FF FA 2C 01 00 00 4B 00 FF F0");
    let ended = session.server.handle_bytes(&gone, &mut Vec::new(), &mut Vec::new(), &mut session.port);
    assert!(matches!(ended, Err(Fault::Closed)), "{ended:?}");
}

#[test]
fn inputs_are_reported_once_and_then_on_change() {
    let inputs = ModemLines { cts: true, dsr: true, ri: false, cd: false };
    let mut session = ServerWithPort::greeted(LoggingPort { modem: Some(inputs), ..LoggingPort::default() });
    let report = |session: &mut ServerWithPort, now| {
        let mut out = Vec::new();
        session.server.report_modem_lines(now, &mut out);
        hex(&out)
    };
    assert_eq!(report(&mut session, inputs), "", "not before both agree");
    assert_eq!(session.replies_to("FF FB 2C"), "FF FA 2C 6B 30 FF F0");
    assert_eq!(report(&mut session, inputs), "");
    let all = ModemLines { ri: true, cd: true, ..inputs };
    assert_eq!(report(&mut session, all), "FF FA 2C 6B F8 FF F0");
    assert_eq!(report(&mut session, ModemLines::default()), "FF FA 2C 6B 0F FF F0");
    // Only CD is reported, then nothing.
    assert_eq!(session.replies_to("FF FA 2C 0B 80 FF F0"), "FF FA 2C 6F 80 FF F0");
    assert_eq!(report(&mut session, inputs), "");
    assert_eq!(report(&mut session, all), "FF FA 2C 6B 80 FF F0");
    assert_eq!(session.replies_to("FF FA 2C 0B FF FF FF F0"), "FF FA 2C 6F FF FF FF F0");
    // A client that sends an empty notification receives the port's current state.
    assert_eq!(session.replies_to("FF FA 2C 07 FF F0"), "FF FA 2C 6B 3C FF F0");
    assert_eq!(session.replies_to("FF FA 2C 06 FF F0"), "FF FA 2C 6A 00 FF F0");
}

#[test]
fn errors_are_reported_to_clients_that_requested_them() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    let report = |session: &mut ServerWithPort, framing, overruns| {
        let mut out = Vec::new();
        session
            .server
            .report_line_errors(UartErrors { framing, overruns, ..UartErrors::default() }, &mut out);
        hex(&out)
    };
    assert_eq!(report(&mut session, 1, 1), "", "the mask is empty at first");
    assert_eq!(session.replies_to("FF FA 2C 0A 1E FF F0"), "FF FA 2C 6E 1E FF F0");
    assert_eq!(report(&mut session, 1, 1), "");
    assert_eq!(report(&mut session, 2, 5), "FF FA 2C 6A 0A FF F0");
    assert_eq!(session.replies_to("FF FA 2C 0A 08 FF F0"), "FF FA 2C 6E 08 FF F0");
    assert_eq!(report(&mut session, 2, 6), "");
    assert_eq!(session.replies_to("FF FA 2C 08 FF F0"), "");
    assert_eq!(report(&mut session, 3, 6), "", "suspended");
    assert_eq!(session.replies_to("FF FA 2C 09 FF F0"), "");
    assert_eq!(report(&mut session, 3, 6), "FF FA 2C 6A 08 FF F0");
}

#[test]
fn a_suspended_session_still_replies() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    assert_eq!(session.replies_to("FF FB 2C"), "FF FA 2C 6B B0 FF F0");
    assert_eq!(session.replies_to("FF FA 2C 08 FF F0 FF FA 2C 08 FF F0"), "");
    assert!(session.server.is_suspended());
    let mut out = Vec::new();
    session.server.report_modem_lines(ModemLines::default(), &mut out);
    assert_eq!(hex(&out), "");
    assert_eq!(session.replies_to("FF FA 2C 02 00 FF F0"), "FF FA 2C 66 08 FF F0");
    assert_eq!(session.replies_to("FF FA 2C 09 FF F0"), "FF FA 2C 6B 0B FF F0", "what was held back");
    assert!(!session.server.is_suspended());
}

#[test]
fn the_signature_is_sent_for_every_form_of_request() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    let signature = "FF FA 2C 64 6C 69 6E 6B 67 61 75 67 65 FF F0";
    assert_eq!(session.replies_to("FF FA 2C 00 FF F0"), signature);
    assert_eq!(session.replies_to("FF FA 2C 00 00 FF F0"), signature);
    assert_eq!(session.replies_to("FF FA 2C 00 48 69 FF F0"), "", "its own");
}

#[test]
fn the_port_changes_after_the_data_before_it() {
    let mut session = ServerWithPort::greeted(LoggingPort::default());
    session.receive_bytes(b"old\xff\xfa\x2c\x01\x00\x00\x4b\x00\xff\xf0new\xff\xfa\x2c\x05\x06\xff\xf0");
    assert_eq!(session.port.done, ["data \"old\"", "19200 8N1", "data \"new\"", "Break false"]);
    // A value with all settings.
    let frame = SerialSettings {
        baud: 19200,
        data_bits: 5,
        parity: Parity::Space,
        stop_bits: StopBits::OneAndHalf,
        flow_control: FlowControl::RtsCts,
    };
    session.receive_bytes(&unhex(
        "FF FA 2C 02 05 FF F0 FF FA 2C 03 05 FF F0 FF FA 2C 04 03 FF F0 FF FA 2C 05 03 FF F0",
    ));
    assert_eq!(session.port.settings, frame);
}

/// Bytes with a high share of Telnet commands.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let item = prop_oneof![
        Just(vec![0xff]),
        Just(vec![0xff, 0xfa, 0x2c]),
        Just(vec![0xff, 0xf0]),
        (0u8..14, any::<u8>()).prop_map(|(code, value)| vec![0xff, 0xfa, 0x2c, code, value, 0xff, 0xf0]),
        (0xfbu8..=0xfe, prop_oneof![Just(0u8), Just(3), Just(44), any::<u8>()])
            .prop_map(|(verb, option)| vec![0xff, verb, option]),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(item, 0..200).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_get_replies_within_bounds(bytes in garbage(), cut in 1usize..50) {
        let mut session = ServerWithPort::greeted(LoggingPort::default());
        let mut replies = 0;
        for chunk in bytes.chunks(cut) {
            replies += session.receive_bytes(chunk).len();
        }
        // The longest reply to a query is the signature: 15 bytes for 6. The inputs are reported once
        // unrequested.
        prop_assert!(replies <= 3 * bytes.len() + 8, "{} for {}", replies, bytes.len());
        prop_assert!(session.data.len() <= bytes.len());
    }

    #[test]
    fn data_go_through_whole(data in prop::collection::vec(prop_oneof![Just(0xffu8), Just(13), Just(0), any::<u8>()], 0..600)) {
        let mut session = ServerWithPort::greeted(LoggingPort::default());
        session.replies_to("FF FB 2C");
        let mut sent = Vec::new();
        telnet::escape(&data, &mut sent);
        prop_assert!(session.receive_bytes(&sent).is_empty());
        prop_assert_eq!(&session.data, &data);
    }
}
