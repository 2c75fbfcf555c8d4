//! Packets of irtt 0.9.0, and client and server together on virtual time, without a network.

use std::sync::Arc;

use super::packet::{DualTime, ServerFields, read_packet, split_number, split_token};
use super::server::{Receipts, new_service};
use super::*;
use crate::link::Admission;
use crate::link::party::{Party, Step};
use crate::protocol::ask::text;
use crate::protocol::{ServerConfig, ServerLimits, Service};
use linkgauge_model::clock::{Clock, Time};

fn bytes(hex: &str) -> Vec<u8> {
    text::parse_bytes(&format!("hex:{hex}")).unwrap()
}

fn zeros(count: usize) -> String {
    "00".repeat(count)
}

/// Parameters that `irtt client -d 300ms -i 100ms` requests.
fn usual() -> Params {
    Params {
        version: 1,
        duration_ns: 300_000_000,
        interval_ns: 100_000_000,
        length: 0,
        layout: Layout::FULL,
        traffic_class: 0,
        fill: Vec::new(),
    }
}

const PARAMS_HEX: &str = "0102 02808c8d9e02 038084af5f 0506 0606 0706";
const TOKEN_HEX: &str = "5c8a5e6d4aadff53";
const TOKEN: u64 = 0x53ff_ad4a_6d5e_8a5c;

#[test]
fn packets_are_those_of_irtt() {
    let open = packet_of(OPEN, &[&usual().to_bytes()], None);
    assert_eq!(open, bytes(&format!("14a75b01 {PARAMS_HEX}")));
    let reply = bytes(&format!("14a75b03 {TOKEN_HEX} {PARAMS_HEX}"));
    let (flags, body) = read_packet(&reply, None).unwrap();
    let (token, params) = split_token(body).unwrap();
    assert_eq!((flags, token, Params::read(params)), (OPEN | REPLY, TOKEN, Some(usual())));
    let close = packet_of(CLOSE, &[&TOKEN.to_le_bytes()], None);
    assert_eq!(close, bytes(&format!("14a75b04 {TOKEN_HEX}")));

    let mut codec = codec(None, 60);
    assert_eq!(codec.encode_request(0), bytes(&format!("14a75b00 {TOKEN_HEX} 00000000 {}", zeros(44))));
    let answer = bytes(&format!(
        "14a75b02 {TOKEN_HEX} 00000000 01000000 0100000000000000 3f482c474b9aeb18 6f124a2400000000 \
         a7522c474b9aeb18 cd1c4a2400000000"
    ));
    let whole = ReplyStatus::Complete { sequence: 0, used: 60, corrupt_bytes: 0 };
    assert_eq!(codec.parse_reply(&answer, 0..1), whole);
    let times = codec.server_timestamps().unwrap();
    assert_eq!(times.sent_ns - times.received_ns, 2_654);
    assert_eq!(times.reply_number, REPLY_NUMBER_BASE + 1);
    let fields = ServerFields {
        count: 1,
        window: 1,
        received: DualTime { wall: 0x18eb_9a4b_472c_483f, monotonic: 0x244a_126f },
        sent: DualTime { wall: 0x18eb_9a4b_472c_52a7, monotonic: 0x244a_1ccd },
    };
    let mut written = Vec::new();
    Layout::FULL.write(&fields, &mut written);
    assert_eq!(written, answer[16..]);
}

#[test]
fn signed_packets_are_those_of_irtt() {
    let key = PacketKey::new(b"sesame");
    let token = 0xd96b_ec09_27ae_90c4_u64;
    let open = bytes(&format!("14a75b09 beafd71f97da904d641eb9a35e251e85 {PARAMS_HEX}"));
    assert_eq!(packet_of(OPEN, &[&usual().to_bytes()], Some(&key)), open);
    let reply = bytes(&format!("14a75b0b d5ace51be214eece96d9e99039bb5802 c490ae2709ec6bd9 {PARAMS_HEX}"));
    let (flags, body) = read_packet(&reply, Some(&key)).unwrap();
    assert_eq!((flags, split_token(body).unwrap().0), (OPEN | REPLY, token));
    let test = OpenedTest { token, params: usual() };
    let wall = WallClock::now(&Clock::new_virtual());
    let mut codec = IrttCodec::new(test, Some(key.clone()), wall, &Load::endless(76), &Caps::STREAM);
    let echo = format!("14a75b08 de659271b75ff8c7ca0fcf16267a43ac c490ae2709ec6bd9 00000000 {}", zeros(44));
    assert_eq!(codec.encode_request(0), bytes(&echo));
    assert_eq!(
        packet_of(CLOSE, &[&token.to_le_bytes()], Some(&key)),
        bytes("14a75b0c dda87f7c92195ac2845ed60006f4e538 c490ae2709ec6bd9")
    );
    for at in 0..open.len() {
        let mut changed = open.clone();
        changed[at] ^= 1;
        assert!(read_packet(&changed, Some(&key)).is_none(), "byte {at}");
        assert!(read_packet(&open[..at], Some(&key)).is_none(), "{at} bytes");
    }
    assert!(read_packet(&open, Some(&PacketKey::new(b"other"))).is_none());
    assert!(read_packet(&open, None).is_none(), "a key is needed");
    let unsigned = packet_of(OPEN, &[&usual().to_bytes()], None);
    assert!(read_packet(&unsigned, Some(&key)).is_none(), "a signature is needed");
    assert!(read_packet(&bytes("14a75b11"), None).is_none(), "an unknown flag");
}

#[test]
fn parameters_survive_and_impossible_ones_do_not() {
    let full = Params { length: 1472, traffic_class: 0xb8, fill: b"pattern:69727474".to_vec(), ..usual() };
    assert_eq!(Params::read(&full.to_bytes()), Some(full.clone()));
    // Numbers of another version are skipped.
    let longer = [&full.to_bytes()[..], &[11, 0x85, 1, 0x80, 1, 4]].concat();
    assert_eq!(Params::read(&longer), Some(full));
    for (what, hex) in [
        ("no duration", "0102 038084af5f"),
        ("no interval", "0102 02808c8d9e02"),
        ("a negative duration", "0102 0209 038084af5f"),
        ("half a value", "0102 02808c8d9e02 0380"),
        ("a number without its value", "0102 02808c8d9e02 038084af5f 05"),
        ("an endless number", "0102 02808c8d9e02 03ffffffffffffffffffff01"),
        ("times of both kinds", "0102 02808c8d9e02 038084af5f 060a"),
        ("a third clock", "0102 02808c8d9e02 038084af5f 0708"),
        ("more statistics", "0102 02808c8d9e02 038084af5f 0508"),
        ("a negative length", "0102 02808c8d9e02 038084af5f 0401"),
        ("a fill beyond the end", "0102 02808c8d9e02 038084af5f 0904 72616e"),
        ("a long fill", &format!("0102 02808c8d9e02 038084af5f 0921 {}", zeros(33))),
        ("too many", &format!("{PARAMS_HEX} {}", "0a00".repeat(60))),
    ] {
        assert_eq!(Params::read(&bytes(hex)), None, "{what}");
    }
}

/// A client with the token of the vectors.
fn codec(key: Option<PacketKey>, length: u32) -> IrttCodec {
    let test = OpenedTest { token: TOKEN, params: Params { length, ..usual() } };
    IrttCodec::new(test, key, WallClock::now(&Clock::new_virtual()), &Load::endless(length), &Caps::STREAM)
}

#[test]
fn lost_requests_and_lost_replies_are_separate() {
    let received = |replies: &[(u32, Option<u32>, Option<u64>)]| {
        let mut received = ReceivedRequests::default();
        let note = |&(number, count, window)| received.note(number, count, window);
        replies.iter().map(note).collect::<Vec<_>>()
    };
    // Requests 1 and 2 are lost, and the reply to 4.
    let all = [(0, Some(1), Some(1)), (3, Some(2), Some(0b1001)), (5, Some(4), Some(0b10_0111))];
    assert_eq!(received(&all), [Some(1), Some(2), Some(4)]);
    // By one of the two alone.
    assert_eq!(received(&all.map(|(number, count, _)| (number, count, None))), [Some(1), Some(2), Some(4)]);
    assert_eq!(received(&all.map(|(number, _, window)| (number, None, window))), [Some(1), Some(2), Some(4)]);
    assert_eq!(received(&all.map(|(number, ..)| (number, None, None))), [None; 3]);
    // As irtt 0.9.0 counts requests in another order: its window begins again at a late one.
    let late = [(0, 1, 0b1), (1, 2, 0b11), (3, 3, 0b1101), (2, 4, 0b1), (4, 5, 0b101)]
        .map(|(number, count, window)| (number, Some(count), Some(window)));
    assert_eq!(received(&late).last(), Some(&Some(5)));
    // A copy of a request counts again, but is in no window.
    let copied = [(4, Some(5), Some(0b11111)), (4, Some(6), Some(0b11111)), (5, Some(7), Some(0b111111))];
    assert_eq!(received(&copied), [Some(1), Some(1), Some(2)]);
    // Beyond the window.
    assert_eq!(received(&[(0, Some(1), Some(1)), (200, Some(150), Some(1))]), [Some(1), Some(150)]);
}

#[test]
fn a_server_counts_what_has_arrived() {
    let mut receipts = Receipts::default();
    let notes = [0, 1, 3, 2, 4, 4, 100].map(|number| receipts.note(number));
    let expected = [(1, 0b1), (2, 0b11), (3, 0b1101), (4, 0), (5, 0b11111), (6, 0b11111), (7, 1)];
    assert_eq!(notes, expected);
    let mut receipts = Receipts::default();
    assert_eq!([9, u32::MAX, 0].map(|number| receipts.note(number)), [(1, 1), (2, 1), (3, 0)]);
}

const CAPS: Caps = Caps {
    framing: Framing::Message,
    max_message_bytes: Some(1500),
    is_reliable: false,
    can_signal_close: false,
    ..Caps::STREAM
};

const CLIENT: &str = "192.0.2.1:40000";

/// A server with its own link and clock.
struct TestServer {
    service: Arc<dyn Service>,
    party: Box<dyn Party>,
    now: u64,
    /// The traffic class of replies.
    traffic_class: Option<u8>,
}

impl TestServer {
    fn new(token: Option<&str>, limits: ServerLimits) -> TestServer {
        let config = ServerConfig { limits, token: token.map(str::to_owned), ..ServerConfig::default() };
        let service = new_service(&Arc::new(config));
        // Tokens are as old as the clock of the system says.
        let now = Clock::System.now().0;
        TestServer { party: service.new_party(&CAPS, CLIENT), service, now, traffic_class: None }
    }

    /// Delivers a packet. Returns the reply to an echo that is sent 125 µs later, or the grant, if any.
    fn reply_to(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let Step::Receive { into, .. } = self.party.next_step(Time(self.now)) else { panic!("it listens") };
        into.clear();
        into.bytes[..packet.len()].copy_from_slice(packet);
        into.push_span(0, packet.len());
        self.party.on_received(Time(self.now));
        loop {
            match self.party.next_step(Time(self.now)) {
                Step::Receive { .. } | Step::Done => return None,
                Step::Sleep(_) => self.now += 125_000,
                Step::Tune(tuning) => self.traffic_class = tuning.socket.traffic_class,
                Step::Send { bytes, message } => {
                    assert_eq!(bytes.len(), message);
                    let reply = bytes.to_vec();
                    self.party.on_sent(message, Time(self.now));
                    return Some(reply);
                }
                _ => panic!("neither silence nor a reply"),
            }
        }
    }

    fn open(&mut self, requested: &Params, key: Option<&PacketKey>) -> OpenedTest {
        let mut reply = Vec::new();
        let open = packet_of(OPEN, &[&requested.to_bytes()], key);
        assert_eq!(self.service.admit_sender(&open, CLIENT, &mut reply), Admission::Reply);
        assert!(reply.len() <= open.len() + self.service.max_reply_growth_bytes());
        let (flags, body) = read_packet(&reply, key).unwrap();
        let (token, params) = split_token(body).unwrap();
        assert!(flags == OPEN | REPLY && token != 0);
        OpenedTest { token, params: Params::read(params).unwrap() }
    }
}

#[test]
fn client_and_server_agree_in_every_layout() {
    for key in [None, Some("sesame")] {
        for (stats, times, clocks) in (0..4)
            .flat_map(|stats| (0..5).flat_map(move |times| (1..4).map(move |clocks| (stats, times, clocks))))
        {
            let layout = Layout { stats, times, clocks };
            let hmac = key.map(|key| PacketKey::new(key.as_bytes()));
            let length = 100.max(layout.min_packet_bytes(hmac.as_ref()) as u32);
            let requested = Params { length, layout, ..usual() };
            let mut server = TestServer::new(key, ServerLimits::default());
            let test = server.open(&requested, hmac.as_ref());
            assert_eq!(test.params, requested);
            let wall = WallClock::now(&Clock::System);
            let mut client = IrttCodec::new(test, hmac, wall, &Load::endless(length), &CAPS);
            for number in 0..3 {
                let request = client.encode_request(number).to_vec();
                let reply = server.reply_to(&request).unwrap();
                let whole =
                    ReplyStatus::Complete { sequence: number, used: length as usize, corrupt_bytes: 0 };
                assert_eq!(
                    (client.parse_reply(&reply, number..number + 1), reply.len()),
                    (whole, request.len())
                );
                let timestamps = client.server_timestamps();
                assert_eq!(timestamps.is_some(), times == 3, "{layout:?}");
                if let Some(timestamps) = timestamps {
                    assert_eq!(timestamps.sent_ns - timestamps.received_ns, 125_000);
                    let counted =
                        if stats == 0 { number as u32 } else { REPLY_NUMBER_BASE + number as u32 + 1 };
                    assert_eq!(timestamps.reply_number, counted);
                }
            }
        }
    }
}

#[test]
fn a_server_grants_what_its_limits_allow() {
    let limits = ServerLimits { duration_s: 10, message_bytes: 200, ..ServerLimits::default() };
    let requested = Params {
        version: 7,
        duration_ns: 60_000_000_000,
        interval_ns: 1_000_000,
        length: 1000,
        traffic_class: 0xb8,
        fill: b"pattern:6162".to_vec(),
        ..usual()
    };
    let mut server = TestServer::new(None, limits);
    let test = server.open(&requested, None);
    let granted = Params {
        version: 1,
        duration_ns: 10_000_000_000,
        interval_ns: 10_000_000,
        length: 200,
        fill: Vec::new(),
        ..requested.clone()
    };
    assert_eq!(test.params, granted);
    assert_eq!(
        server.open(&Params { interval_ns: i64::MAX, ..usual() }, None).params.interval_ns,
        15_000_000_000
    );
    // The smallest request grows by the token and the interval.
    server.open(&Params { interval_ns: 1, duration_ns: 1, ..usual() }, None);
    // The limits alone.
    let probe = packet_of(OPEN | CLOSE, &[&requested.to_bytes()], None);
    let mut reply = Vec::new();
    assert_eq!(server.service.admit_sender(&probe, CLIENT, &mut reply), Admission::Reply);
    let (flags, body) = read_packet(&reply, None).unwrap();
    let (token, params) = split_token(body).unwrap();
    assert_eq!((flags, token, Params::read(params)), (OPEN | REPLY | CLOSE, 0, Some(granted)));
}

/// An echo of this length.
fn echo(token: u64, number: u32, length: usize) -> Vec<u8> {
    let mut packet = packet_of(0, &[&token.to_le_bytes(), &number.to_le_bytes()], None);
    packet.resize(length, b'x');
    packet
}

#[test]
fn replies_are_filled_as_requested() {
    for (fill, expected) in [("", Some("irttirttir")), ("none", Some("xxxxxxxxxx")), ("rand", None)] {
        let mut server = TestServer::new(None, ServerLimits::default());
        let requested = Params { fill: fill.into(), length: 70, traffic_class: 0xb8, ..usual() };
        let token = server.open(&requested, None).token;
        let fills = [0, 1].map(|number| server.reply_to(&echo(token, number, 70)).unwrap()[60..].to_vec());
        match expected {
            Some(expected) => assert!(fills.iter().all(|fill| fill == expected.as_bytes()), "{fills:?}"),
            None => assert_ne!(fills[0], fills[1]),
        }
        assert_eq!(server.traffic_class, Some(0xb8));
    }
}

#[test]
fn bursts_and_tests_beyond_their_time_are_cut() {
    let mut server = TestServer::new(None, ServerLimits::default());
    let OpenedTest { token, .. } = server.open(&usual(), None);
    let is_answered = |server: &mut TestServer, number| {
        let before = server.now;
        let reply = server.reply_to(&echo(token, number, 60));
        server.now = before;
        reply.map(|reply| read_packet(&reply, None).unwrap().0)
    };
    let burst: Vec<_> = (0..8).map(|number| is_answered(&mut server, number).is_some()).collect();
    assert_eq!(burst, [true, true, true, true, true, false, false, false]);
    server.now += 10_000_000;
    assert_eq!([8, 9].map(|number| is_answered(&mut server, number)), [Some(REPLY), None]);
    // Whole seconds: 1 granted, and 2 more.
    server.now += 3_000_000_000;
    assert_eq!(is_answered(&mut server, 10), Some(REPLY | CLOSE));
    assert!(matches!(server.party.next_step(Time(server.now)), Step::Done));
    let mut client = codec(None, 60);
    let last = packet_of(REPLY | CLOSE, &[&TOKEN.to_le_bytes(), &[0; 48]], None);
    assert_eq!(client.parse_reply(&last, 0..1), ReplyStatus::Refused);
}

#[test]
fn only_tokens_of_this_address_open_a_link() {
    let mut server = TestServer::new(None, ServerLimits::default());
    let OpenedTest { token, .. } = server.open(&usual(), None);
    let admit = |packet: &[u8], from: &str| {
        let mut reply = Vec::new();
        let admission = server.service.admit_sender(packet, from, &mut reply);
        assert!(reply.is_empty());
        admission
    };
    let close = packet_of(CLOSE, &[&token.to_le_bytes()], None);
    assert_eq!(admit(&echo(token, 0, 60), CLIENT), Admission::Open);
    assert_eq!(admit(&close, CLIENT), Admission::Ignore);
    for (packet, from) in [
        (echo(token, 0, 60), "192.0.2.2:40000"),
        (close, "192.0.2.1:40001"),
        (echo(token ^ 1, 0, 60), CLIENT),
        (echo(0, 0, 60), CLIENT),
        (packet_of(REPLY, &[&token.to_le_bytes(), &[0; 48]], None), CLIENT),
        (packet_of(OPEN | REPLY, &[&usual().to_bytes()], None), CLIENT),
        (packet_of(OPEN, &[&[1, 2, 3]], None), CLIENT),
        (b"\x14\xa7\x5b".to_vec(), CLIENT),
    ] {
        assert_eq!(admit(&packet, from), Admission::Drop, "{packet:02x?} from {from}");
    }
    // A packet too short for its fields gets no reply, and a close packet ends the link.
    assert_eq!(server.reply_to(&echo(token, 0, 59)), None);
    assert!(server.reply_to(&echo(token, 0, 60)).is_some());
    server.reply_to(&packet_of(CLOSE, &[&token.to_le_bytes()], None));
    assert!(matches!(server.party.next_step(Time(server.now)), Step::Done));
}

#[test]
fn a_client_accepts_its_own_replies_only() {
    let reply = |flags, token: u64, length| {
        let mut packet = packet_of(flags, &[&token.to_le_bytes(), &[0; 48]], None);
        packet.resize(length, 0);
        codec(None, 60).parse_reply(&packet, 0..1)
    };
    assert_eq!(reply(REPLY, TOKEN, 60), ReplyStatus::Complete { sequence: 0, used: 60, corrupt_bytes: 0 });
    assert_eq!(reply(OPEN | REPLY, 1, 31), ReplyStatus::Incomplete, "a repeated grant");
    for (flags, token, used) in
        [(0, TOKEN, 60), (REPLY, 1, 60), (REPLY, TOKEN, 59), (REPLY, TOKEN, 61), (REPLY, TOKEN, 12)]
    {
        assert_eq!(reply(flags, token, used), ReplyStatus::Malformed { used });
    }
    assert_eq!(split_number(&[1, 0, 0]), None);
}

#[test]
fn servers_may_only_grant_less() {
    let excess = |change: fn(&mut Params)| {
        let mut granted = usual();
        change(&mut granted);
        granted.excess_over(&usual()).is_some()
    };
    assert!(!excess(|_| {}) && !excess(|params| params.duration_ns = 1));
    assert!(!excess(|params| params.interval_ns = i64::MAX) && !excess(|params| params.layout.times = 4));
    assert!(!excess(|params| params.layout = Layout { stats: 0, times: 0, clocks: 1 }));
    let changes: [fn(&mut Params); 4] = [
        |params| params.version = 2,
        |params| params.duration_ns += 1,
        |params| params.interval_ns -= 1,
        |params| params.length = 1,
    ];
    assert!(changes.into_iter().all(excess));
}

#[test]
fn loads_follow_what_the_server_granted() {
    let load = Load {
        pacing: Pacing::Fixed { per_second: 1000.0 },
        stop: StopCondition::after_time(Duration::from_secs(10)),
        warm_up: StopCondition { time_ns: Some(500_000_000), ..StopCondition::after_count(100) },
        ..Load::endless(60)
    };
    let endpoint: Endpoint = "udp://192.0.2.7?dscp=46".parse().unwrap();
    let requested = requested_params(&load, &endpoint);
    // 100 requests take a tenth of a second.
    assert_eq!((requested.duration_ns, requested.interval_ns), (10_100_000_000, 1_000_000));
    assert_eq!((requested.length, requested.traffic_class), (60, 0xb8));
    let granted = |change: fn(&mut Params)| {
        let (mut params, mut settings) = (requested.clone(), Map::new());
        change(&mut params);
        granted_load(&load, &requested, &params, &endpoint, &mut settings).map(|load| (load, settings))
    };
    let (same, settings) = granted(|_| {}).unwrap();
    assert_eq!(same, Load { skips_overdue: true, ..load });
    assert_eq!(settings.len(), 1, "{settings:?}");
    let (less, settings) = granted(|params| {
        params.interval_ns = 10_000_000;
        params.duration_ns = 3_000_000_000;
    })
    .unwrap();
    assert_eq!(less.pacing, Pacing::Fixed { per_second: 100.0 });
    // The warm-up now takes half a second.
    assert_eq!(less.stop, StopCondition::after_time(Duration::from_millis(2500)));
    assert_eq!(settings[SERVER_LIMIT_MESSAGES_PER_SECOND], 100.0);
    assert_eq!(settings[SERVER_LIMIT_SECONDS], 3.0);
    let refusal = |change| granted(change).unwrap_err().to_string();
    insta::assert_snapshot!(
        [refusal(|params| params.length = 50), refusal(|params| params.duration_ns = 100_000_000)].join("\n"),
        @r"
    udp://192.0.2.7?dscp=46: the server allows packets of 50 bytes, not 60: use --size 50
    udp://192.0.2.7?dscp=46: the server ends a test after 100ms, before the warm-up is over: use --warm-up 0
    "
    );
    // A count takes its time on the schedule; no end, as long as a server allows.
    let counted = Load { stop: StopCondition::after_count(5000), ..load };
    assert_eq!(requested_params(&counted, &endpoint).duration_ns, 5_100_000_000);
    let endless = Load { stop: StopCondition::default(), ..load };
    assert_eq!(requested_params(&endless, &endpoint).duration(), ENDLESS);
    let slow = Load { pacing: Pacing::Fixed { per_second: 0.05 }, ..load };
    assert_eq!(requested_params(&slow, &endpoint).interval(), MAX_INTERVAL);
}
