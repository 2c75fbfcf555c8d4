//! What is on the wire, byte for byte, in both roles and every dialect; and what the ends count.

use std::time::Duration;

use super::wire::block;
use super::*;
use crate::link::Fault;
use crate::link::party::{Party, Step};
use crate::peer::{Limits, Service};
use crate::plan::{CaseSpec, OneOrMany};
use crate::sample::Recorder;
use crate::units::{Bytes, Count};
use crate::workload::Measured;

/// Blocks of 16 bytes, two of them.
fn case(direction: Direction) -> Case {
    let spec = CaseSpec {
        url: Some(OneOrMany::One("mem://far".parse().unwrap())),
        peer: Some("netio".to_owned()),
        workload: Some("throughput".to_owned()),
        direction: Some(OneOrMany::One(direction)),
        size: Some(OneOrMany::One(Bytes(16))),
        count: Some(Count(2)),
        timeout: Some("5s".parse().unwrap()),
        ..CaseSpec::default()
    };
    spec.expand().unwrap().remove(0)
}

/// What a party did until it ended, heard everything or wanted nothing but to hear more.
struct Talk {
    said: Vec<u8>,
    ended: Option<Result<(), Fault>>,
}

/// Lets a party talk; what it says takes a second, what it hears no time. The pieces come one after the other whenever it listens, then silence.
fn talk(party: &mut dyn Party, pieces: &[&[u8]]) -> Talk {
    let (mut said, mut now) = (Vec::new(), Time(1));
    let mut pieces = pieces.iter();
    for _ in 0..1000 {
        match party.next(now) {
            Step::Send { bytes, .. } => {
                said.extend_from_slice(bytes);
                let length = bytes.len();
                party.sent(length, now);
                now = now + Duration::from_secs(1);
            }
            Step::Receive { into, until } => match pieces.as_slice().first() {
                // A look without waiting finds nothing.
                Some(_) | None if until <= now => party.timed_out(now),
                Some(piece) => {
                    pieces.next();
                    into.clear();
                    into.bytes[..piece.len()].copy_from_slice(piece);
                    into.push(0, piece.len());
                    party.received(now);
                }
                None => return Talk { said, ended: None },
            },
            Step::Sleep(_) | Step::Tune(_) | Step::Finish | Step::Reopen => {}
            Step::Done => return Talk { said, ended: Some(Ok(())) },
            Step::Fail(fault) => return Talk { said, ended: Some(Err(fault)) },
        }
    }
    panic!("it never rests");
}

fn word(bytes: [u8; 8]) -> Vec<u8> {
    bytes.to_vec()
}

/// A block of the test's transcripts: flag, then filler from `first` on.
fn filled(flag: u8, first: u8) -> Vec<u8> {
    std::iter::once(flag).chain(first..first + 15).collect()
}

/// A block as we send it.
fn ours(flag: u8) -> Vec<u8> {
    let mut block = block(16);
    block[0] = flag;
    block
}

fn sender(direction: Direction, dialect: Dialect) -> Sender {
    Sender::new(&case(direction), &Caps::STREAM, Tuning::default(), Recorder::counting()).announced(dialect)
}

fn receiver(word: Option<[u8; 8]>) -> Receiver {
    let case = case(Direction::Receive);
    let sink = Sink::new(&case, &Caps::STREAM, Tuning::default(), Recorder::counting());
    Receiver::new(sink, &case, word, Arc::default())
}

fn server(limits: Limits) -> Box<dyn Party> {
    let facts = crate::peer::ServerFacts { limits, secret: [7; 32], ..Default::default() };
    let service: Arc<dyn Service> = far::service(&Arc::new(facts));
    service.party(&Caps::STREAM, "test")
}

/// One that sends two blocks: two steps of a talk.
fn short() -> Limits {
    Limits { duration_s: 2, ..Limits::default() }
}

#[test]
fn a_client_sends_as_the_transcripts_have_it() {
    let c = [word([0, 0, 0, 1, 0, 0, 0, 0x10]), ours(0), ours(0), ours(1)].concat();
    let b = [word([1, 0, 0, 0, 0x10, 0, 0, 0]), ours(0), ours(0), ours(1)].concat();
    let a = [ours(0), ours(0)].concat();
    for (dialect, wanted) in [(Dialect::C, c), (Dialect::B, b), (Dialect::A, a)] {
        let mut party = sender(Direction::Send, dialect);
        let talk = talk(&mut party, &[]);
        assert_eq!(talk.said, wanted, "{dialect:?}");
        assert!(matches!(talk.ended, Some(Ok(()))));
        party.ended(Default::default());
        let told = party.tally();
        let tally = told.lock().unwrap();
        assert_eq!((tally.bytes, tally.owed.len()), (32, 0), "the last block does not count");
        assert_eq!(party.recorder().counts.bytes, 32);
    }
}

#[test]
fn a_client_turns_the_connection_round_in_both_dialects_that_can() {
    let back = [(Dialect::C, [0, 0, 0, 2, 0, 0, 0, 0x10]), (Dialect::B, [2, 0, 0, 0, 0x10, 0, 0, 0])];
    for (dialect, ask) in back {
        let handoff = Arc::<Handoff>::default();
        let mut party = sender(Direction::Both, dialect).then_asks(dialect, handoff.clone());
        let said = talk(&mut party, &[]).said;
        assert_eq!(said[8 + 32..], [ours(1), word(ask)].concat());
        assert!(handoff.asked().is_some());
        assert_eq!(talk(&mut receiver(Some(ask)), &[]).said, ask);
    }
}

#[test]
fn a_client_counts_what_it_receives_with_the_last_block() {
    let blocks = [filled(0, 0xb1), filled(0, 0xb1), filled(1, 0xb1)].concat();
    for piece in [1, 7, 16, 48] {
        let mut party = receiver(Some(Word::ServerSends(16).bytes(Dialect::C)));
        let pieces: Vec<&[u8]> = blocks.chunks(piece).collect();
        let talk = talk(&mut party, &pieces);
        assert!(matches!(talk.ended, Some(Ok(()))));
        party.ended(Default::default());
        let told = party.tally();
        let tally = told.lock().unwrap();
        assert_eq!((tally.bytes, tally.over), (48, true));
        assert_eq!(party.recorder().counts.bytes, 48);
    }
}

#[test]
fn a_client_says_what_is_wrong_with_what_it_receives() {
    let fault = |pieces: &[&[u8]], closes: bool| {
        let mut party = receiver(Some(Word::ServerSends(16).bytes(Dialect::C)));
        let fault = match talk(&mut party, pieces).ended {
            Some(ended) => ended.unwrap_err(),
            None if closes => party.closed(Time(1)).unwrap_err(),
            None => {
                party.timed_out(Time(1));
                talk(&mut party, &[]).ended.unwrap().unwrap_err()
            }
        };
        fault.to_string()
    };
    let (block, last) = (filled(0, 1), filled(1, 1));
    insta::assert_snapshot!([
        fault(&[], false),
        fault(&[], true),
        fault(&[&block, &block[..5]], false),
        fault(&[&block], true),
        fault(&[b"SSH-2.0-OpenSSH_9\r\n"], true),
        fault(&[&[last, b"more".to_vec()].concat()], true),
    ].join("\n"), @r#"
    no block came: the far end fell silent
    no block came: the far end closed the link
    the far end fell silent in mid-block, after 5 of 16 bytes
    the far end closed the link after 1 blocks, before its last one
    no block begins like "SSH-2.0-OpenSSH_": does it speak NETIO?
    it goes on behind its last block
    "#);
}

#[test]
fn a_receiver_that_speaks_is_no_netio() {
    let mut party = sender(Direction::Send, Dialect::C);
    while !matches!(party.next(Time(9)), Step::Receive { .. }) {
        let length = match party.next(Time(9)) {
            Step::Send { bytes, .. } => bytes.len(),
            _ => 0,
        };
        party.sent(length, Time(9));
    }
    if let Step::Receive { into, .. } = party.next(Time(9)) {
        into.clear();
        into.bytes[..5].copy_from_slice(b"500 \n");
        into.push(0, 5);
    }
    party.received(Time(9));
    assert!(matches!(party.next(Time(9)), Step::Done));
    party.ended(Default::default());
    let fault = party.tally().lock().unwrap().fault.take().unwrap();
    assert_eq!(fault, "a NETIO server says nothing while it receives, but this one said \"500 \\n\"");
}

#[test]
fn a_client_that_is_stopped_still_owes_the_end_of_its_block() {
    let mut party = sender(Direction::Send, Dialect::C);
    // The word, a block, and five bytes of the next.
    for length in [8, 16, 5] {
        while !matches!(party.next(Time(9)), Step::Send { .. }) {}
        party.sent(length, Time(9));
    }
    party.ended(Default::default());
    let owed = party.tally().lock().unwrap().owed.clone();
    assert_eq!(owed, [&ours(0)[5..], &ours(1)].concat());
}

#[test]
fn a_server_follows_the_transcripts_in_whatever_pieces_they_come() {
    let dialogue = |dialect| {
        let said = [
            Word::ClientSends(16).bytes(dialect).to_vec(),
            filled(0, 0xa1),
            filled(0, 0xa1),
            filled(1, 0xa1),
            Word::ServerSends(16).bytes(dialect).to_vec(),
            Word::Quit.bytes(dialect).to_vec(),
        ];
        said.concat()
    };
    for dialect in [Dialect::C, Dialect::B] {
        let client = dialogue(dialect);
        for piece in [1, 3, 8, 16, client.len()] {
            let pieces: Vec<&[u8]> = client.chunks(piece).collect();
            let talk = talk(server(short()).as_mut(), &pieces);
            assert_eq!(talk.said, [ours(0), ours(0), ours(1)].concat(), "{dialect:?} in {piece}s");
            assert!(matches!(talk.ended, Some(Ok(()))), "QUIT ends it");
        }
    }
}

#[test]
fn a_server_drains_a_client_without_words_until_it_closes() {
    let mut party = server(short());
    let blocks = [ours(0), ours(0)].concat();
    let talk = talk(party.as_mut(), &[&blocks, &[1; 16], &blocks]);
    assert!(talk.said.is_empty() && talk.ended.is_none());
    party.closed(Time(1)).unwrap();
    assert!(matches!(party.next(Time(2)), Step::Done));
}

#[test]
fn a_server_refuses_what_no_client_may_ask() {
    let ended = |said: &[u8]| match talk(server(short()).as_mut(), &[said]).ended {
        Some(Ok(())) => "ends".to_owned(),
        Some(Err(fault)) => fault.to_string(),
        None => "waits".to_owned(),
    };
    let c = |word: Word| word.bytes(Dialect::C);
    insta::assert_snapshot!([
        ended(&c(Word::ClientSends(0))),
        ended(&c(Word::ServerSends(0))),
        ended(&c(Word::ServerSends(65_537))),
        ended(&c(Word::ClientSends(u32::MAX))),
        ended(&[0; 8]),
        ended(b"GET / HTTP/1.1\r\n"),
        ended(&c(Word::ClientSends(65_536))),
    ].join("\n"), @r#"
    ends
    ends
    blocks of 65537 bytes: at most 65536
    blocks of 4294967295 bytes: at most 65536
    ends
    no NETIO client begins with "GET / HT"
    waits
    "#);
}
