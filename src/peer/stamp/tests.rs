//! Sender and reflector against each other on made-up time, without a network; and what is no answer.

use super::reflector::service;
use super::*;
use crate::clock::Clock;
use crate::link::party::{Party, Step};
use crate::peer::{ServerFacts, Service};

const CAPS: Caps = Caps {
    framing: Framing::Message,
    max_message: Some(1500),
    reliable: false,
    closes: false,
    ..Caps::STREAM
};

fn facts(token: Option<&str>, stateless: bool) -> Arc<ServerFacts> {
    Arc::new(ServerFacts { token: token.map(str::to_owned), stateless, ..ServerFacts::default() })
}

/// A reflector with a link of its own, and its clock.
struct Far {
    party: Box<dyn Party>,
    now: u64,
}

impl Far {
    fn new(dialect: Dialect, token: Option<&str>, stateless: bool) -> Far {
        Far { party: service(&facts(token, stateless), dialect).party(&CAPS, "192.0.2.1:5000"), now: 0 }
    }

    /// Takes a packet, and sends its answer 125 µs later, if it has one.
    fn answer(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let Step::Receive { into, .. } = self.party.next(Time(self.now)) else { panic!("it listens") };
        into.clear();
        into.bytes[..packet.len()].copy_from_slice(packet);
        into.push(0, packet.len());
        self.party.received(Time(self.now));
        match self.party.next(Time(self.now)) {
            Step::Receive { .. } => return None,
            Step::Sleep(until) => assert_eq!(until, Time(self.now), "it asks for the time"),
            _ => panic!("neither silence nor an answer"),
        }
        self.now += 125_000;
        let Step::Send { bytes, message } = self.party.next(Time(self.now)) else { panic!("it answers") };
        assert_eq!(bytes.len(), message);
        let answer = bytes.to_vec();
        self.party.sent(message, Time(self.now));
        Some(answer)
    }
}

#[test]
fn a_stream_is_refused_before_anybody_listens() {
    let service = service(&facts(None, false), Dialect::Stamp);
    assert!(service.fits(&CAPS).is_ok() && service.fits(&Caps::STREAM).is_err());
}

fn sender(dialect: Dialect, key: Option<&str>, length: usize) -> Sender {
    let wall = Wall::now(&Clock::new_virtual());
    Sender::new(dialect, key.map(key_of), wall, length, Arc::default())
}

fn ask(sender: &mut Sender, number: u64) -> Vec<u8> {
    sender.tell_time(Time(number * 1_000_000));
    sender.request(number).to_vec()
}

#[test]
fn a_reflector_answers_in_kind() {
    for (dialect, token, lengths) in [
        (Dialect::Stamp, None, &[44, 48, 1472][..]),
        (Dialect::Stamp, Some("secret"), &[112, 136, 1472]),
        (Dialect::Light, None, &[41, 44, 1472]),
        (Dialect::Light, Some("no matter"), &[112]),
    ] {
        for &length in lengths {
            let (mut near, mut far) = (
                sender(dialect, token.filter(|_| dialect == Dialect::Stamp), length),
                Far::new(dialect, token, false),
            );
            for number in 0..3 {
                let asked = ask(&mut near, number);
                let answered = far.answer(&asked).unwrap();
                assert_eq!((asked.len(), answered.len()), (length, length));
                let whole = Answer::Whole { sequence: number, used: length, corrupt_bytes: 0 };
                assert_eq!(near.answer(&answered, number..number + 1), whole);
                let stages = near.stages().unwrap();
                assert_eq!((stages.sent - stages.received, stages.number), (125_000, number as u32));
            }
        }
    }
}

#[test]
fn short_requests_get_no_answer_since_it_would_be_longer() {
    let (mut near, mut far) = (sender(Dialect::Light, None, 14), Far::new(Dialect::Light, None, false));
    let mut asked = ask(&mut near, 0);
    for length in [14, LIGHT - 1] {
        asked.resize(length, 0);
        assert_eq!(far.answer(&asked), None, "{length}");
    }
    asked.resize(LIGHT, 0);
    let answered = far.answer(&asked).unwrap();
    assert_eq!(answered.len(), LIGHT);
    // Other reflectors answer short ones.
    assert!(matches!(near.answer(&answered, 0..1), Answer::Whole { sequence: 0, .. }));
    assert!(Far::new(Dialect::Stamp, None, false).answer(&[0x11; 43]).is_none());
}

#[test]
fn two_reflectors_do_not_answer_each_other_for_ever() {
    for dialect in [Dialect::Stamp, Dialect::Light] {
        let mut pair = [Far::new(dialect, None, false), Far::new(dialect, None, true)];
        let (mut packet, mut hops) = (ask(&mut sender(dialect, None, 44), 0), 0);
        while let Some(answer) = pair[hops % 2].answer(&packet) {
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
        let mut far = Far::new(Dialect::Stamp, None, stateless);
        let (mut one, mut other) = (sender(Dialect::Stamp, None, 44), sender(Dialect::Stamp, None, 44));
        (one.session, other.session) = (1, 2);
        let numbers = [ask(&mut one, 7), ask(&mut one, 9), ask(&mut other, 7), ask(&mut one, 11)]
            .map(|asked| number(far.answer(&asked).unwrap()));
        assert_eq!(numbers, expected);
    }
}

#[test]
fn more_sessions_than_are_remembered_are_no_more_memory() {
    let mut far = Far::new(Dialect::Stamp, None, false);
    let mut near = sender(Dialect::Stamp, None, 44);
    for session in 0..1000 {
        near.session = session;
        assert!(far.answer(&ask(&mut near, 0)).is_some());
    }
}

#[test]
fn only_what_is_signed_is_answered() {
    let mut far = Far::new(Dialect::Stamp, Some("secret"), false);
    assert!(far.answer(&ask(&mut sender(Dialect::Stamp, Some("other"), 112), 0)).is_none());
    assert!(far.answer(&ask(&mut sender(Dialect::Stamp, None, 112), 0)).is_none());
    let mut near = sender(Dialect::Stamp, Some("hex:736563726574"), 112);
    let mut answered = far.answer(&ask(&mut near, 0)).unwrap();
    assert!(matches!(near.answer(&answered, 0..1), Answer::Whole { .. }));
    answered[40] ^= 1;
    assert_eq!(near.answer(&answered, 0..1), Answer::Broken { used: 112 });
    assert_eq!(near.stages(), None);
}

#[test]
fn what_is_no_answer_is_none() {
    let (mut near, mut far) = (sender(Dialect::Stamp, None, 44), Far::new(Dialect::Stamp, None, false));
    let asked = ask(&mut near, 5);
    let good = far.answer(&asked).unwrap();
    let mut broken = |bytes: &[u8]| near.answer(bytes, 5..6) == Answer::Broken { used: bytes.len() };
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
    // A number long past is told as such; whoever asked knows that it has been answered.
    let old = far.answer(&ask(&mut near, 2)).unwrap();
    assert_eq!(near.answer(&old, 5..6), Answer::Whole { sequence: 2, used: 44, corrupt_bytes: 0 });
    let early = far.answer(&ask(&mut near, u64::from(u32::MAX))).unwrap();
    assert_eq!(near.answer(&early, 0..1), Answer::Broken { used: 44 }, "before the first");
}

#[test]
fn numbers_go_round() {
    let (mut near, mut far) = (sender(Dialect::Stamp, None, 44), Far::new(Dialect::Stamp, None, true));
    let number = (7 << 32) - 1;
    for number in [number, number + 1] {
        let answered = far.answer(&ask(&mut near, number)).unwrap();
        let whole = Answer::Whole { sequence: number, used: 44, corrupt_bytes: 0 };
        assert_eq!(near.answer(&answered, number - 1..number + 1), whole);
    }
}

#[test]
fn the_door_lets_in_senders_of_packets() {
    let door = |service: &dyn Service, packet: &[u8], from: &str| {
        let mut reply = Vec::new();
        let admission = service.door(packet, from, &mut reply);
        assert!(reply.is_empty());
        admission == crate::link::Admission::Open
    };
    let asked = ask(&mut sender(Dialect::Stamp, None, 44), 0);
    let open = service(&facts(None, false), Dialect::Stamp);
    assert!(door(&*open, &asked, "192.0.2.1:40000"));
    assert!(!door(&*open, b"hello", "192.0.2.1:40000"));
    assert!(!door(&*service(&facts(Some("secret"), false), Dialect::Stamp), &asked, "192.0.2.1:40000"));
}
