//! Sender and reflector together on virtual time, without a network; and packets that are not replies.

use super::reflector::new_service;
use super::*;
use crate::link::party::{Party, Step};
use crate::protocol::{ServerConfig, Service};
use linkgauge_model::clock::Clock;

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
    pub fn new(dialect: StampVariant, token: Option<&str>, stateless: bool) -> TestReflector {
        TestReflector::of(&facts(token, stateless), dialect)
    }

    fn of(config: &Arc<ServerConfig>, dialect: StampVariant) -> TestReflector {
        let mut party = new_service(config, dialect).new_party(&CAPS, "192.0.2.1:5000");
        assert!(matches!(party.next_step(Time(0)), Step::Tune(_)), "the TTL of its replies");
        TestReflector { party, now: 0 }
    }

    /// Delivers a packet. Returns the reply that is sent 125 µs later, if any.
    fn reply_to(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let Step::Receive { into, .. } = self.party.next_step(Time(self.now)) else { panic!("it listens") };
        into.clear();
        into.bytes[..packet.len()].copy_from_slice(packet);
        into.push_span(0, packet.len());
        self.party.on_received(Time(self.now));
        match self.party.next_step(Time(self.now)) {
            Step::Receive { .. } => return None,
            Step::Sleep(until) => assert_eq!(until, Time(self.now), "it asks for the time"),
            _ => panic!("neither silence nor a reply"),
        }
        self.now += 125_000;
        let Step::Send { bytes, message } = self.party.next_step(Time(self.now)) else {
            panic!("it replies")
        };
        assert_eq!(bytes.len(), message);
        let reply = bytes.to_vec();
        self.party.on_sent(message, Time(self.now));
        Some(reply)
    }
}

#[test]
fn a_stream_is_refused_before_listening() {
    let service = new_service(&facts(None, false), StampVariant::Stamp);
    assert!(service.check_link(&CAPS).is_ok() && service.check_link(&Caps::STREAM).is_err());
}

fn key_of(token: &str) -> HmacKey {
    HmacKey::new(&crate::protocol::signing::token_key(token))
}

fn sender(dialect: StampVariant, key: Option<&str>, length: usize) -> StampCodec {
    let wall = WallClock::now(&Clock::new_virtual());
    StampCodec::new(dialect, key.map(key_of), wall, length, Arc::default())
}

fn encode_request(sender: &mut StampCodec, number: u64) -> Vec<u8> {
    sender.set_time(Time(number * 1_000_000));
    sender.encode_request(number).to_vec()
}

#[test]
fn a_reflector_replies_in_kind() {
    for (dialect, token, lengths) in [
        (StampVariant::Stamp, None, &[44, 48, 1472][..]),
        (StampVariant::Stamp, Some("secret"), &[112, 136, 1472]),
        (StampVariant::TwampLight, None, &[41, 44, 1472]),
        (StampVariant::TwampLight, Some("no matter"), &[112]),
    ] {
        for &length in lengths {
            let (mut client, mut reflector) = (
                sender(dialect, token.filter(|_| dialect == StampVariant::Stamp), length),
                TestReflector::new(dialect, token, false),
            );
            for number in 0..3 {
                let request = encode_request(&mut client, number);
                let reply = reflector.reply_to(&request).unwrap();
                assert_eq!((request.len(), reply.len()), (length, length));
                let whole = ReplyStatus::Complete { sequence: number, used: length, corrupt_bytes: 0 };
                assert_eq!(client.parse_reply(&reply, number..number + 1), whole);
                let stages = client.server_timestamps().unwrap();
                assert_eq!(
                    (stages.sent_ns - stages.received_ns, stages.reply_number),
                    (125_000, number as u32)
                );
            }
        }
    }
}

#[test]
fn both_clocks_must_be_synchronised_for_common_time() {
    for (local, remote, expected) in [
        (Some(200_000), Some(300_000), Some(500_000)),
        (Some(200_000), None, None),
        (None, Some(300_000), None),
    ] {
        let time_of_day = Some(TimeOfDay { offset_ns: 0, error_ns: remote, ptp: None });
        let config = Arc::new(ServerConfig { time_of_day, ..ServerConfig::default() });
        let (mut client, mut reflector) =
            (sender(StampVariant::Stamp, None, 44), TestReflector::of(&config, StampVariant::Stamp));
        client.local_error = local.map(|stated_ns| ClockError { stated_ns, stated_at: Time(7) });
        let request = encode_request(&mut client, 0);
        assert_eq!(
            SenderPacket::read(&request, None).unwrap().error_estimate.is_synchronised(),
            local.is_some()
        );
        let reply = reflector.reply_to(&request).unwrap();
        client.parse_reply(&reply, 0..1);
        let common = client.common_time();
        assert_eq!(common.is_some(), expected.is_some(), "{common:?}");
        if let (Some(common), Some(expected)) = (common, expected) {
            assert_eq!((common.offset_ns, common.stated_at), (0, Time(7)));
            // Estimates are rounded up, by less than 1 %.
            assert!((expected..expected + 3_100).contains(&common.error_ns), "{common:?}");
        }
    }
}

#[test]
fn short_requests_get_no_reply_because_it_would_be_longer() {
    let (mut client, mut reflector) = (
        sender(StampVariant::TwampLight, None, 14),
        TestReflector::new(StampVariant::TwampLight, None, false),
    );
    let mut request = encode_request(&mut client, 0);
    for length in [14, TWAMP_REPLY_BYTES - 1] {
        request.resize(length, 0);
        assert_eq!(reflector.reply_to(&request), None, "{length}");
    }
    request.resize(TWAMP_REPLY_BYTES, 0);
    let reply = reflector.reply_to(&request).unwrap();
    assert_eq!(reply.len(), TWAMP_REPLY_BYTES);
    // Other reflectors reply to short requests.
    assert!(matches!(client.parse_reply(&reply, 0..1), ReplyStatus::Complete { sequence: 0, .. }));
    assert!(TestReflector::new(StampVariant::Stamp, None, false).reply_to(&[0x11; 43]).is_none());
}

#[test]
fn two_reflectors_do_not_loop() {
    for dialect in [StampVariant::Stamp, StampVariant::TwampLight] {
        let mut pair = [TestReflector::new(dialect, None, false), TestReflector::new(dialect, None, true)];
        let (mut packet, mut hops) = (encode_request(&mut sender(dialect, None, 44), 0), 0);
        while let Some(reply) = pair[hops % 2].reply_to(&packet) {
            (packet, hops) = (reply, hops + 1);
            assert!(hops < 10, "it never ends");
        }
        // The clocks of the pair differ a little, so either may be the first that recognises it.
        assert!((1..=2).contains(&hops), "{hops}");
    }
}

#[test]
fn an_echo_of_a_reply_gets_no_reply() {
    for (variant, token) in
        [(StampVariant::Stamp, None), (StampVariant::Stamp, Some("token")), (StampVariant::TwampLight, None)]
    {
        let (key, mut reflector) = (token.map(key_of), TestReflector::new(variant, token, true));
        // Its own times tell nothing.
        let mut bytes = encode_request(&mut sender(variant, token, 112), 0);
        let request = SenderPacket { sent: 7, ..SenderPacket::read(&bytes, key.as_ref()).unwrap() };
        request.write(&mut bytes, key.as_ref());
        let reply = reflector.reply_to(&bytes).unwrap();
        assert_eq!(reflector.reply_to(&reply), None, "{variant:?}");
    }
}

#[test]
fn a_reflector_counts_unless_it_is_stateless() {
    let number = |reply: Vec<u8>| u32::from_be_bytes(*reply.first_chunk().unwrap());
    for (stateless, expected) in [(false, [0, 1, 0, 2]), (true, [7, 9, 7, 11])] {
        let mut reflector = TestReflector::new(StampVariant::Stamp, None, stateless);
        let (mut one, mut other) =
            (sender(StampVariant::Stamp, None, 44), sender(StampVariant::Stamp, None, 44));
        (one.session_id, other.session_id) = (1, 2);
        let numbers = [
            encode_request(&mut one, 7),
            encode_request(&mut one, 9),
            encode_request(&mut other, 7),
            encode_request(&mut one, 11),
        ]
        .map(|request| number(reflector.reply_to(&request).unwrap()));
        assert_eq!(numbers, expected);
    }
}

#[test]
fn the_session_table_is_bounded() {
    let mut reflector = TestReflector::new(StampVariant::Stamp, None, false);
    let mut client = sender(StampVariant::Stamp, None, 44);
    for session in 0..1000 {
        client.session_id = session;
        assert!(reflector.reply_to(&encode_request(&mut client, 0)).is_some());
    }
}

#[test]
fn only_signed_requests_get_replies() {
    let mut reflector = TestReflector::new(StampVariant::Stamp, Some("secret"), false);
    assert!(
        reflector
            .reply_to(&encode_request(&mut sender(StampVariant::Stamp, Some("other"), 112), 0))
            .is_none()
    );
    assert!(reflector.reply_to(&encode_request(&mut sender(StampVariant::Stamp, None, 112), 0)).is_none());
    let mut client = sender(StampVariant::Stamp, Some("hex:736563726574"), 112);
    let mut reply = reflector.reply_to(&encode_request(&mut client, 0)).unwrap();
    assert!(matches!(client.parse_reply(&reply, 0..1), ReplyStatus::Complete { .. }));
    reply[40] ^= 1;
    assert_eq!(client.parse_reply(&reply, 0..1), ReplyStatus::Malformed { used: 112 });
    assert_eq!(client.server_timestamps(), None);
}

#[test]
fn invalid_replies_are_rejected() {
    let (mut client, mut reflector) =
        (sender(StampVariant::Stamp, None, 44), TestReflector::new(StampVariant::Stamp, None, false));
    let request = encode_request(&mut client, 5);
    let good = reflector.reply_to(&request).unwrap();
    let mut broken =
        |bytes: &[u8]| client.parse_reply(bytes, 5..6) == ReplyStatus::Malformed { used: bytes.len() };
    assert!(!broken(&good));
    assert!(
        broken(&request) && broken(&encode_request(&mut sender(StampVariant::Stamp, None, 44), 0)),
        "an echo"
    );
    assert!(broken(b"") && broken(b"220 mail.example ESMTP") && broken(&good[..37]));
    let with = |at: usize, byte: u8| {
        let mut changed = good.clone();
        changed[at] = byte;
        changed
    };
    assert!(broken(&with(14, !good[14])), "another session");
    assert!(
        !broken(&with(16, good[16] + 1)),
        "received months after it was sent: only its times are impossible"
    );
    // An old number is reported; the caller knows that this request has its reply.
    let old = reflector.reply_to(&encode_request(&mut client, 2)).unwrap();
    assert_eq!(
        client.parse_reply(&old, 5..6),
        ReplyStatus::Complete { sequence: 2, used: 44, corrupt_bytes: 0 }
    );
    let early = reflector.reply_to(&encode_request(&mut client, u64::from(u32::MAX))).unwrap();
    assert_eq!(client.parse_reply(&early, 0..1), ReplyStatus::Malformed { used: 44 }, "before the first");
}

/// Some reflectors have no clock, or state nothing about it.
#[test]
fn a_reply_without_valid_times_counts_as_a_round_trip_alone() {
    for variant in [StampVariant::Stamp, StampVariant::TwampLight] {
        let (mut client, mut reflector) =
            (sender(variant, None, 44), TestReflector::new(variant, None, false));
        let good = reflector.reply_to(&encode_request(&mut client, 5)).unwrap();
        // T2, T3, and the multiplier of the error estimate.
        for zeros in [&[(16, 24)][..], &[(4, 12)], &[(4, 12), (16, 24)], &[(13, 14)], &[(12, 14)]] {
            let mut reply = good.clone();
            zeros.iter().for_each(|(from, to)| reply[*from..*to].fill(0));
            let whole = ReplyStatus::Complete { sequence: 5, used: 44, corrupt_bytes: 0 };
            assert_eq!(client.parse_reply(&reply, 5..6), whole, "{zeros:?}");
            assert_eq!((client.server_timestamps(), client.common_time()), (None, None), "{zeros:?}");
            let facts = client.last_reply.facts();
            assert_eq!(facts["server_time_stamps"], "none");
            assert!(!facts.contains_key("server_clock_synchronised"), "{facts:?}");
        }
        client.parse_reply(&good, 5..6);
        assert!(
            client.server_timestamps().is_some() && client.last_reply.facts()["server_time_stamps"] == "ntp"
        );
    }
}

#[test]
fn sequence_numbers_wrap() {
    let (mut client, mut reflector) =
        (sender(StampVariant::Stamp, None, 44), TestReflector::new(StampVariant::Stamp, None, true));
    let number = (7 << 32) - 1;
    for number in [number, number + 1] {
        let reply = reflector.reply_to(&encode_request(&mut client, number)).unwrap();
        let whole = ReplyStatus::Complete { sequence: number, used: 44, corrupt_bytes: 0 };
        assert_eq!(client.parse_reply(&reply, number - 1..number + 1), whole);
    }
}

#[test]
fn only_valid_packets_admit_a_sender() {
    let admits = |service: &dyn Service, packet: &[u8], from: &str| {
        let mut reply = Vec::new();
        let admission = service.admit_sender(packet, from, &mut reply);
        assert!(reply.is_empty());
        admission == crate::link::Admission::Open
    };
    let request = encode_request(&mut sender(StampVariant::Stamp, None, 44), 0);
    let open = new_service(&facts(None, false), StampVariant::Stamp);
    assert!(admits(&*open, &request, "192.0.2.1:40000"));
    assert!(!admits(&*open, b"hello", "192.0.2.1:40000"));
    assert!(!admits(
        &*new_service(&facts(Some("secret"), false), StampVariant::Stamp),
        &request,
        "192.0.2.1:40000"
    ));
}
