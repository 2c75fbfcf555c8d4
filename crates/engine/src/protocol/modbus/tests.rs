//! Frames of the Modbus guides, options, and runs against a device on the virtual clock.

use std::time::Duration;

use super::*;
use crate::link::party::{Party, Step};
use crate::link::{Batch, Fault};
use crate::protocol::Registry;
use crate::protocol::ask::text;
use crate::schedule::{self, RunContext};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::Plan;
use linkgauge_model::run::CaseResult;

fn bytes(hex: &str) -> Vec<u8> {
    text::parse_bytes(&format!("hex:{hex}")).unwrap()
}

fn codec(options: &[(&str, &str)], framing: Framing) -> ModbusCodec {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = ModbusRequest::parse(&options, &Caps::STREAM).unwrap();
    ModbusCodec::new(request, framing, ExceptionCounts::default())
}

fn complete(sequence: u64, used: usize) -> ReplyStatus {
    ReplyStatus::Complete { sequence, used, corrupt_bytes: 0 }
}

#[test]
fn frames_are_those_of_the_guides() {
    let mut tcp = codec(&[("register", "99"), ("registers", "2"), ("function", "4")], Framing::Stream);
    assert_eq!(tcp.encode_request(0x1_0007), bytes("0007 0000 0006 01 04 0063 0002"));
    let mut rtu = codec(&[("mode", "rtu")], Framing::Stream);
    assert_eq!(rtu.encode_request(0), bytes("01 03 00 00 00 01 84 0A"));
    let mut returned = codec(&[("mode", "rtu"), ("function", "8"), ("unit", "17")], Framing::Stream);
    assert_eq!(returned.encode_request(0xA537)[..6], bytes("11 08 0000 A537"));
}

#[test]
fn tcp_replies_have_the_number_of_their_request() {
    let reply = bytes("0007 0000 0005 01 03 02 1234");
    for size in 1..=reply.len() {
        let mut codec = codec(&[], Framing::Stream);
        codec.encode_request(0x1_0007);
        let mut parts = reply.chunks(size).peekable();
        while let Some(part) = parts.next() {
            let status = codec.parse_reply(part, 0x1_0005..0x1_0008);
            let expected =
                if parts.peek().is_some() { ReplyStatus::Incomplete } else { complete(0x1_0007, part.len()) };
            assert_eq!(status, expected, "{size}");
        }
    }
    let mut codec = codec(&[], Framing::Stream);
    let status = |codec: &mut ModbusCodec, hex: &str| codec.parse_reply(&bytes(hex), 7..8);
    assert_eq!(status(&mut codec, "0007 0000 0003 01 83 02 00"), complete(7, 9), "the next reply follows");
    assert_eq!(*codec.exceptions.lock().unwrap(), BTreeMap::from([(2, 1)]));
    let unexpected = |used| ReplyStatus::Unexpected { sequence: 7, used };
    assert_eq!(status(&mut codec, "0007 0000 0005 02 03 02 1234"), unexpected(11), "another unit");
    assert_eq!(status(&mut codec, "0007 0000 0005 01 04 02 1234"), unexpected(11), "another function");
    assert_eq!(status(&mut codec, "0007 0000 0007 01 03 04 12341234"), unexpected(13), "more registers");
    assert_eq!(status(&mut codec, "0007 0000 0002 01 03"), ReplyStatus::Malformed { used: 8 });
    assert_eq!(status(&mut codec, "0007 0001 0005 01"), ReplyStatus::Malformed { used: 7 });
    assert_eq!(status(&mut codec, "0007 0000 00FF 01"), ReplyStatus::Malformed { used: 7 });
}

#[test]
fn a_datagram_is_one_reply() {
    let mut codec = codec(&[], Framing::Message);
    let whole = bytes("0007 0000 0005 01 03 02 1234");
    assert_eq!(codec.parse_reply(&whole[..9], 7..8), ReplyStatus::Malformed { used: 9 });
    assert_eq!(codec.parse_reply(&whole, 7..8), complete(7, 11));
    assert_eq!(codec.parse_reply(&[&whole[..], &[0]].concat(), 7..8), ReplyStatus::Malformed { used: 12 });
}

#[test]
fn rtu_replies_are_checked() {
    let mut codec = codec(&[("mode", "rtu")], Framing::Stream);
    let mut reply = |hex: &str| {
        codec.last_number = None;
        codec.encode_request(3);
        codec.parse_reply(&bytes(hex), 3..4)
    };
    assert_eq!(reply("01 03 02 1234 B533"), complete(3, 7));
    assert_eq!(reply("01 83 02 C0F1"), complete(3, 5));
    assert_eq!(reply("01 03 02 1235 B533"), ReplyStatus::Unexpected { sequence: 3, used: 7 }, "checksum");
    assert_eq!(reply("02 03 02 1234 B533"), ReplyStatus::Malformed { used: 7 }, "another unit");
    assert_eq!(reply("01 05 02 1234 B533"), ReplyStatus::Malformed { used: 7 }, "another function");
    assert_eq!(codec.parse_reply(&[1], 3..4), ReplyStatus::Unrelated { used: 1 }, "no request");
    assert_eq!(*codec.exceptions.lock().unwrap(), BTreeMap::from([(2, 1)]));
}

fn run_error(options: &str) -> String {
    let text = format!("[[case]]\nworkload = \"latency\"\nprotocol = \"modbus\"\n{options}");
    schedule::check(Plan::from_toml(&text).unwrap(), Registry::standard())
        .map(|_| ())
        .unwrap_err()
        .to_string()
}

#[test]
fn option_errors_are_reported_before_opening_a_link() {
    insta::assert_snapshot!([
        "url = 'tcp://a'\nprotocol_options = { unit = 256 }",
        "url = 'serial:///dev/ttyS0?baud=9600'\nprotocol_options = { unit = 0 }",
        "url = 'serial:///dev/ttyS0?baud=9600&data=7'",
        "url = 'tcp://a'\nprotocol_options = { function = 6 }",
        "url = 'tcp://a'\nprotocol_options = { function = 8, register = 1 }",
        "url = 'tcp://a'\nprotocol_options = { registers = 126 }",
        "url = 'tcp://a'\nprotocol_options = { mode = 'ascii' }",
        "url = 'tcp://a'\nsize = 100",
    ].map(run_error).join("\n"), @r"
    protocol modbus: unit '256' is not possible: use 0 to 255
    protocol modbus: unit '0' is not possible: use 1 to 247
    Modbus RTU needs bytes of 8 bits without XON and XOFF: use data=8 and another flow control
    protocol modbus: function '6' is not supported: use 3, 4 or 8
    protocol modbus: function 8 has no register: leave it out, or use function 3 or 4
    protocol modbus: registers '126' is not possible: use 1 to 125
    protocol modbus: mode 'ascii' is unknown: use mbap or rtu
    protocol modbus: a request has 12 bytes, not 100: leave out the size; registers sets that of the reply
    ");
}

/// Device that replies to each request of 8 bytes with one register, and keeps the time between its reply and the next request.
struct Device {
    batch: Batch,
    waiting: Vec<u8>,
    reply: Vec<u8>,
    replied: Option<Time>,
    shortest: Arc<Mutex<Duration>>,
    is_closed: bool,
}

impl Party for Device {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.is_closed {
            return Step::Done;
        }
        if !self.reply.is_empty() {
            return Step::Send { bytes: &self.reply, message: self.reply.len() };
        }
        Step::Receive { into: &mut self.batch, until: Time::NEVER }
    }

    fn on_sent(&mut self, count: usize, at: Time) {
        self.reply.drain(..count);
        self.replied = Some(at);
    }

    fn on_received(&mut self, now: Time) {
        if let Some(replied) = self.replied.take() {
            let mut shortest = self.shortest.lock().unwrap();
            *shortest = (*shortest).min(now - replied);
        }
        self.waiting.extend(self.batch.messages().flatten());
        if self.waiting.len() == 8 {
            self.waiting.clear();
            self.reply = bytes("01 03 02 1234 B533");
        }
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_closed = true;
        Ok(())
    }
}

#[test]
fn requests_of_rtu_follow_a_silence() {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let shortest = Arc::new(Mutex::new(Duration::MAX));
    let mut listener = dialer.listen(&"mem://far".parse().unwrap()).unwrap();
    let of_device = shortest.clone();
    let hosted = listener.set_party_factory(Box::new(move |_| {
        Box::new(Device {
            batch: Batch::new(100, 1),
            waiting: Vec::new(),
            reply: Vec::new(),
            replied: None,
            shortest: of_device.clone(),
            is_closed: false,
        })
    }));
    assert!(hosted.is_ok());
    let text = "[[case]]\nworkload = 'latency'\nprotocol = 'modbus'\nurl = 'mem://far?rate=1Mbit/s&delay=1us'\ncount = 50\n\
                protocol_options = { mode = 'rtu' }";
    let plan = schedule::check(Plan::from_toml(text).unwrap(), Registry::standard()).unwrap();
    let run = schedule::run(&plan, &mut RunContext::new(dialer, &()));
    let case: &CaseResult = &run.cases[0];
    assert_eq!((case.figures.counts.received, case.figures.counts.corrupt_messages), (50, 0), "{case:?}");
    let shortest = *shortest.lock().unwrap();
    assert!((MIN_SILENCE..2 * MIN_SILENCE).contains(&shortest), "{shortest:?}");
}

#[test]
fn the_silence_is_that_of_the_rate() {
    let silence = |bits_per_second: f64| {
        let rate = crate::link::LinkRate {
            bits_per_byte: 10.0,
            ..crate::link::LinkRate::without_overhead(bits_per_second)
        };
        silence_between_frames(&Caps { link_rate: Some(rate), ..Caps::STREAM })
    };
    assert_eq!(silence(9600.0), Duration::from_nanos(4_010_417));
    assert_eq!(silence(115_200.0), MIN_SILENCE);
}
