//! Sender and reflector together on virtual time, without a network; and packets that are not replies.

use super::reflector::new_service;
use super::*;
use crate::clock::Clock;
use crate::link::party::{Party, Step};
use crate::protocol::{ServerConfig, Service};

const CAPS: Caps = Caps {
    framing: Framing::Message,
    max_message_bytes: Some(1500),
    is_reliable: false,
    can_signal_close: false,
    ..Caps::STREAM
};

fn facts(token: Option<&str>, stateless: bool) -> Arc<ServerConfig> {
    Arc::new(ServerConfig {
        token: token.map(str::to_owned),
        is_stateless: stateless,
        ..ServerConfig::default()
    })
}

/// A reflector with its own link and clock.
struct TestReflector {
    party: Box<dyn Party>,
    now: u64,
}

impl TestReflector {
    fn new(dialect: StampVariant, token: Option<&str>, stateless: bool) -> TestReflector {
        TestReflector {
            party: new_service(&facts(token, stateless), dialect).new_party(&CAPS, "192.0.2.1:5000"),
            now: 0,
        }
    }

    /// Delivers a packet. Returns the reply that is sent 125 µs later, if any.
    fn exchange(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let Step::Receive { into, .. } = self.party.next_step(Time(self.now)) else { panic!("it listens") };
        into.clear();
        into.bytes[..packet.len()].copy_from_slice(packet);
        into.push_span(0, packet.len());
        self.party.on_received(Time(self.now));
        match self.party.next_step(Time(self.now)) {
            Step::Receive { .. } => return None,
            Step::Sleep(until) => assert_eq!(until, Time(self.now), "it asks for the time"),
            _ => panic!("neither silence nor an answer"),
        }
        self.now += 125_000;
        let Step::Send { bytes, message } = self.party.next_step(Time(self.now)) else {
            panic!("it answers")
        };
        assert_eq!(bytes.len(), message);
        let answer = bytes.to_vec();
        self.party.on_sent(message, Time(self.now));
        Some(answer)
    }
}

#[test]
fn a_stream_is_refused_before_listening() {
    let service = new_service(&facts(None, false), StampVariant::Stamp);
    assert!(service.check_link(&CAPS).is_ok() && service.check_link(&Caps::STREAM).is_err());
}

fn sender(dialect: StampVariant, key: Option<&str>, length: usize) -> StampCodec {
    let wall = WallClock::now(&Clock::new_virtual());
    StampCodec::new(dialect, key.map(key_from_token), wall, length, Arc::default())
}

fn encode_request(sender: &mut StampCodec, number: u64) -> Vec<u8> {
    sender.set_time(Time(number * 1_000_000));
    sender.encode_request(number).to_vec()
}

#[test]
fn a_reflector_answers_in_kind() {
    for (dialect, token, lengths) in [
        (StampVariant::Stamp, None, &[44, 48, 1472][..]),
        (StampVariant::Stamp, Some("secret"), &[112, 136, 1472]),
        (StampVariant::TwampLight, None, &[41, 44, 1472]),
        (StampVariant::TwampLight, Some("no matter"), &[112]),
    ] {
        for &length in lengths {
            let (mut near, mut far) = (
                sender(dialect, token.filter(|_| dialect == StampVariant::Stamp), length),
                TestReflector::new(dialect, token, false),
            );
            for number in 0..3 {
                let asked = encode_request(&mut near, number);
                let answered = far.exchange(&asked).unwrap();
                assert_eq!((asked.len(), answered.len()), (length, length));
                let whole = ReplyStatus::Complete { sequence: number, used: length, corrupt_bytes: 0 };
                assert_eq!(near.parse_reply(&answered, number..number + 1), whole);
                let stages = near.server_timestamps().unwrap();
                assert_eq!(
                    (stages.sent_ns - stages.received_ns, stages.reply_number),
                    (125_000, number as u32)
                );
            }
        }
    }
}

#[test]
fn short_requests_get_no_answer_since_it_would_be_longer() {
    let (mut near, mut far) = (
        sender(StampVariant::TwampLight, None, 14),
        TestReflector::new(StampVariant::TwampLight, None, false),
    );
    let mut asked = encode_request(&mut near, 0);
    for length in [14, TWAMP_REPLY_BYTES - 1] {
        asked.resize(length, 0);
        assert_eq!(far.exchange(&asked), None, "{length}");
    }
    asked.resize(TWAMP_REPLY_BYTES, 0);
    let answered = far.exchange(&asked).unwrap();
    assert_eq!(answered.len(), TWAMP_REPLY_BYTES);
    // Other reflectors reply to short requests.
    assert!(matches!(near.parse_reply(&answered, 0..1), ReplyStatus::Complete { sequence: 0, .. }));
    assert!(TestReflector::new(StampVariant::Stamp, None, false).exchange(&[0x11; 43]).is_none());
}

#[test]
fn two_reflectors_do_not_loop() {
    for dialect in [StampVariant::Stamp, StampVariant::TwampLight] {
        let mut pair = [TestReflector::new(dialect, None, false), TestReflector::new(dialect, None, true)];
        let (mut packet, mut hops) = (encode_request(&mut sender(dialect, None, 44), 0), 0);
        while let Some(answer) = pair[hops % 2].exchange(&packet) {
            (packet, hops) = (answer, hops + 1);
            assert!(hops < 10, "it never ends");
        }
        assert_eq!(hops, 2);
    }
}

#[test]
fn a_reflector_counts_unless_it_is_to_be_stateless() {
    let number = |answer: Vec<u8>| u32::from_be_bytes(*answer.first_chunk().unwrap());
    for (stateless, expected) in [(false, [0, 1, 0, 2]), (true, [7, 9, 7, 11])] {
        let mut far = TestReflector::new(StampVariant::Stamp, None, stateless);
        let (mut one, mut other) =
            (sender(StampVariant::Stamp, None, 44), sender(StampVariant::Stamp, None, 44));
        (one.session_id, other.session_id) = (1, 2);
        let numbers = [
            encode_request(&mut one, 7),
            encode_request(&mut one, 9),
            encode_request(&mut other, 7),
            encode_request(&mut one, 11),
        ]
        .map(|asked| number(far.exchange(&asked).unwrap()));
        assert_eq!(numbers, expected);
    }
}

#[test]
fn the_session_table_is_bounded() {
    let mut far = TestReflector::new(StampVariant::Stamp, None, false);
    let mut near = sender(StampVariant::Stamp, None, 44);
    for session in 0..1000 {
        near.session_id = session;
        assert!(far.exchange(&encode_request(&mut near, 0)).is_some());
    }
}

#[test]
fn only_what_is_signed_is_answered() {
    let mut far = TestReflector::new(StampVariant::Stamp, Some("secret"), false);
    assert!(far.exchange(&encode_request(&mut sender(StampVariant::Stamp, Some("other"), 112), 0)).is_none());
    assert!(far.exchange(&encode_request(&mut sender(StampVariant::Stamp, None, 112), 0)).is_none());
    let mut near = sender(StampVariant::Stamp, Some("hex:736563726574"), 112);
    let mut answered = far.exchange(&encode_request(&mut near, 0)).unwrap();
    assert!(matches!(near.parse_reply(&answered, 0..1), ReplyStatus::Complete { .. }));
    answered[40] ^= 1;
    assert_eq!(near.parse_reply(&answered, 0..1), ReplyStatus::Malformed { used: 112 });
    assert_eq!(near.server_timestamps(), None);
}

#[test]
fn invalid_replies_are_rejected() {
    let (mut near, mut far) =
        (sender(StampVariant::Stamp, None, 44), TestReflector::new(StampVariant::Stamp, None, false));
    let asked = encode_request(&mut near, 5);
    let good = far.exchange(&asked).unwrap();
    let mut broken =
        |bytes: &[u8]| near.parse_reply(bytes, 5..6) == ReplyStatus::Malformed { used: bytes.len() };
    assert!(!broken(&good));
    assert!(broken(&asked), "an echo");
    assert!(broken(b"") && broken(b"220 mail.example ESMTP") && broken(&good[..37]));
    let with = |at: usize, byte: u8| {
        let mut changed = good.clone();
        changed[at] = byte;
        changed
    };
    assert!(broken(&with(14, !good[14])), "another session");
    assert!(broken(&with(16, good[16] + 1)), "received months after it was sent");
    assert!(broken(&with(13, 0)), "an error estimate that nobody may write");
    // An old number is reported; the caller knows that this request has its reply.
    let old = far.exchange(&encode_request(&mut near, 2)).unwrap();
    assert_eq!(
        near.parse_reply(&old, 5..6),
        ReplyStatus::Complete { sequence: 2, used: 44, corrupt_bytes: 0 }
    );
    let early = far.exchange(&encode_request(&mut near, u64::from(u32::MAX))).unwrap();
    assert_eq!(near.parse_reply(&early, 0..1), ReplyStatus::Malformed { used: 44 }, "before the first");
}

#[test]
fn sequence_numbers_wrap() {
    let (mut near, mut far) =
        (sender(StampVariant::Stamp, None, 44), TestReflector::new(StampVariant::Stamp, None, true));
    let number = (7 << 32) - 1;
    for number in [number, number + 1] {
        let answered = far.exchange(&encode_request(&mut near, number)).unwrap();
        let whole = ReplyStatus::Complete { sequence: number, used: 44, corrupt_bytes: 0 };
        assert_eq!(near.parse_reply(&answered, number - 1..number + 1), whole);
    }
}

#[test]
fn only_valid_packets_admit_a_sender() {
    let door = |service: &dyn Service, packet: &[u8], from: &str| {
        let mut reply = Vec::new();
        let admission = service.admit_sender(packet, from, &mut reply);
        assert!(reply.is_empty());
        admission == crate::link::Admission::Open
    };
    let asked = encode_request(&mut sender(StampVariant::Stamp, None, 44), 0);
    let open = new_service(&facts(None, false), StampVariant::Stamp);
    assert!(door(&*open, &asked, "192.0.2.1:40000"));
    assert!(!door(&*open, b"hello", "192.0.2.1:40000"));
    assert!(!door(
        &*new_service(&facts(Some("secret"), false), StampVariant::Stamp),
        &asked,
        "192.0.2.1:40000"
    ));
}
