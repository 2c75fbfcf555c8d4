//! Exact bytes on the wire, in both roles and every dialect; and the resulting counts.

use std::time::Duration;

use super::wire::make_block;
use super::*;
use crate::link::Fault;
use crate::link::party::{Party, Step};
use crate::protocol::{ServerLimits, Service};
use crate::workload::RecordingParty;
use linkgauge_model::sample::Recorder;

/// Load of two blocks of 16 bytes.
fn load() -> Load {
    Load { stop: StopCondition::after_count(2), timeout: Duration::from_secs(5), ..Load::endless(16) }
}

/// Actions of a party until it ended, or had read everything and only waited for more.
struct Transcript {
    output: Vec<u8>,
    outcome: Option<Result<(), Fault>>,
}

/// Runs a party: a send takes a second, a receive no time. The chunks arrive one by one when the party receives,
/// followed by silence.
fn run_party(party: &mut dyn Party, chunks: &[&[u8]]) -> Transcript {
    let (mut output, mut now) = (Vec::new(), Time(1));
    let mut chunks = chunks.iter();
    for _ in 0..1000 {
        match party.next_step(now) {
            Step::Send { bytes, .. } => {
                output.extend_from_slice(bytes);
                let length = bytes.len();
                party.on_sent(length, now);
                now = now + Duration::from_secs(1);
            }
            Step::Receive { into, until } => match chunks.as_slice().first() {
                // A non-blocking check finds nothing.
                Some(_) | None if until <= now => party.on_timeout(now),
                Some(chunk) => {
                    chunks.next();
                    into.clear();
                    into.bytes[..chunk.len()].copy_from_slice(chunk);
                    into.push_span(0, chunk.len());
                    party.on_received(now);
                }
                None => return Transcript { output, outcome: None },
            },
            Step::Sleep(_) | Step::Tune(_) | Step::FinishSending | Step::Reopen | Step::ReadStamps(_) => {}
            Step::Done => return Transcript { output, outcome: Some(Ok(())) },
            Step::Fail(fault) => return Transcript { output, outcome: Some(Err(fault)) },
        }
    }
    panic!("it never rests");
}

fn word_bytes(bytes: [u8; 8]) -> Vec<u8> {
    bytes.to_vec()
}

/// Block of the transcripts: flag, then filler starting at `first`.
fn filled_block(flag: u8, first: u8) -> Vec<u8> {
    std::iter::once(flag).chain(first..first + 15).collect()
}

/// Block as sent by linkgauge.
fn own_block(flag: u8) -> Vec<u8> {
    let mut block = make_block(16);
    block[0] = flag;
    block
}

fn sender(dialect: NetioDialect) -> BlockSender {
    BlockSender::new(&load(), &Caps::STREAM, Recorder::for_counting()).with_announcement(dialect)
}

fn receiver(word: Option<[u8; 8]>) -> BlockReceiver {
    let sink = Sink::new(&load(), &Caps::STREAM, Recorder::for_counting());
    BlockReceiver::new(sink, &load(), word, Arc::default())
}

fn server(limits: ServerLimits) -> Box<dyn Party> {
    let facts = crate::protocol::ServerConfig { limits, secret: [7; 32], ..Default::default() };
    let service: Arc<dyn Service> = server::new_service(&Arc::new(facts));
    service.new_party(&Caps::STREAM, "test")
}

/// Limits that allow two blocks: two steps of the party.
fn short_limits() -> ServerLimits {
    ServerLimits { duration_s: 2, ..ServerLimits::default() }
}

#[test]
fn a_client_sends_what_the_transcripts_contain() {
    let c = [word_bytes([0, 0, 0, 1, 0, 0, 0, 0x10]), own_block(0), own_block(0), own_block(1)].concat();
    let b = [word_bytes([1, 0, 0, 0, 0x10, 0, 0, 0]), own_block(0), own_block(0), own_block(1)].concat();
    let a = [own_block(0), own_block(0)].concat();
    for (dialect, wanted) in [(NetioDialect::C, c), (NetioDialect::B, b), (NetioDialect::A, a)] {
        let mut party = sender(dialect);
        let talk = run_party(&mut party, &[]);
        assert_eq!(talk.output, wanted, "{dialect:?}");
        assert!(matches!(talk.outcome, Some(Ok(()))));
        party.on_ended(Default::default());
        let tally = party.shared_tally();
        let tally = tally.lock().unwrap();
        assert_eq!((tally.bytes, tally.owed_bytes.len()), (32, 0), "the last block does not count");
        assert_eq!(party.recorder().counts.delivered_bytes, 32);
    }
}

#[test]
fn a_client_reverses_direction_in_dialects_b_and_c() {
    let back =
        [(NetioDialect::C, [0, 0, 0, 2, 0, 0, 0, 0x10]), (NetioDialect::B, [2, 0, 0, 0, 0x10, 0, 0, 0])];
    for (dialect, ask) in back {
        let handoff = Arc::<Handoff>::default();
        let mut party = sender(dialect).with_next_request(dialect, handoff.clone());
        let sent = run_party(&mut party, &[]).output;
        assert_eq!(sent[8 + 32..], [own_block(1), word_bytes(ask)].concat());
        assert!(handoff.requested_at().is_some());
        assert_eq!(run_party(&mut receiver(Some(ask)), &[]).output, ask);
    }
}

#[test]
fn a_client_counts_what_it_receives_with_the_last_block() {
    let blocks = [filled_block(0, 0xb1), filled_block(0, 0xb1), filled_block(1, 0xb1)].concat();
    for chunk_bytes in [1, 7, 16, 48] {
        let mut party = receiver(Some(ControlWord::ServerSends(16).encode(NetioDialect::C)));
        let chunks: Vec<&[u8]> = blocks.chunks(chunk_bytes).collect();
        let talk = run_party(&mut party, &chunks);
        assert!(matches!(talk.outcome, Some(Ok(()))));
        party.on_ended(Default::default());
        let tally = party.shared_tally();
        let tally = tally.lock().unwrap();
        assert_eq!((tally.bytes, tally.is_complete), (48, true));
        assert_eq!(party.recorder().counts.delivered_bytes, 48);
    }
}

#[test]
fn a_client_explains_invalid_blocks() {
    let fault = |chunks: &[&[u8]], closes: bool| {
        let mut party = receiver(Some(ControlWord::ServerSends(16).encode(NetioDialect::C)));
        let fault = match run_party(&mut party, chunks).outcome {
            Some(ended) => ended.unwrap_err(),
            None if closes => party.on_closed(Time(1)).unwrap_err(),
            None => {
                party.on_timeout(Time(1));
                run_party(&mut party, &[]).outcome.unwrap().unwrap_err()
            }
        };
        fault.to_string()
    };
    let (block, last) = (filled_block(0, 1), filled_block(1, 1));
    insta::assert_snapshot!([
        fault(&[], false),
        fault(&[], true),
        fault(&[&block, &block[..5]], false),
        fault(&[&block], true),
        fault(&[b"SSH-2.0-OpenSSH_9\r\n"], true),
        fault(&[&[last, b"more".to_vec()].concat()], true),
    ].join("\n"), @r#"
    no block arrived: the server became silent
    no block arrived: the server closed the link
    the server became silent within a block, after 5 of 16 bytes
    the server closed the link after 1 blocks, before its last one
    no block begins like "SSH-2.0-OpenSSH_": it may not be a NETIO server
    it continues after its last block
    "#);
}

#[test]
fn a_receiver_that_sends_data_is_rejected() {
    let mut party = sender(NetioDialect::C);
    while !matches!(party.next_step(Time(9)), Step::Receive { .. }) {
        let length = match party.next_step(Time(9)) {
            Step::Send { bytes, .. } => bytes.len(),
            _ => 0,
        };
        party.on_sent(length, Time(9));
    }
    if let Step::Receive { into, .. } = party.next_step(Time(9)) {
        into.clear();
        into.bytes[..5].copy_from_slice(b"500 \n");
        into.push_span(0, 5);
    }
    party.on_received(Time(9));
    assert!(matches!(party.next_step(Time(9)), Step::Done));
    party.on_ended(Default::default());
    let fault = party.shared_tally().lock().unwrap().fault.take().unwrap();
    assert_eq!(fault, "a NETIO server sends nothing while it receives, but this one sent \"500 \\n\"");
}

#[test]
fn an_interrupted_client_completes_its_block() {
    let mut party = sender(NetioDialect::C);
    // The word, a block, and five bytes of the next.
    for length in [8, 16, 5] {
        while !matches!(party.next_step(Time(9)), Step::Send { .. }) {}
        party.on_sent(length, Time(9));
    }
    party.on_ended(Default::default());
    let owed = party.shared_tally().lock().unwrap().owed_bytes.clone();
    assert_eq!(owed, [&own_block(0)[5..], &own_block(1)].concat());
}

#[test]
fn a_server_follows_the_transcripts_in_any_chunks() {
    let dialogue = |dialect| {
        let words = [
            ControlWord::ClientSends(16).encode(dialect).to_vec(),
            filled_block(0, 0xa1),
            filled_block(0, 0xa1),
            filled_block(1, 0xa1),
            ControlWord::ServerSends(16).encode(dialect).to_vec(),
            ControlWord::Quit.encode(dialect).to_vec(),
        ];
        words.concat()
    };
    for dialect in [NetioDialect::C, NetioDialect::B] {
        let client = dialogue(dialect);
        for chunk_bytes in [1, 3, 8, 16, client.len()] {
            let chunks: Vec<&[u8]> = client.chunks(chunk_bytes).collect();
            let talk = run_party(server(short_limits()).as_mut(), &chunks);
            assert_eq!(
                talk.output,
                [own_block(0), own_block(0), own_block(1)].concat(),
                "{dialect:?} in chunks of {chunk_bytes}"
            );
            assert!(matches!(talk.outcome, Some(Ok(()))), "QUIT ends it");
        }
    }
}

#[test]
fn a_server_drains_a_dialect_a_client_until_it_closes() {
    let mut party = server(short_limits());
    let blocks = [own_block(0), own_block(0)].concat();
    let talk = run_party(party.as_mut(), &[&blocks, &[1; 16], &blocks]);
    assert!(talk.output.is_empty() && talk.outcome.is_none());
    party.on_closed(Time(1)).unwrap();
    assert!(matches!(party.next_step(Time(2)), Step::Done));
}

#[test]
fn a_server_refuses_invalid_requests() {
    let ended = |request: &[u8]| match run_party(server(short_limits()).as_mut(), &[request]).outcome {
        Some(Ok(())) => "ends".to_owned(),
        Some(Err(fault)) => fault.to_string(),
        None => "waits".to_owned(),
    };
    let c = |word: ControlWord| word.encode(NetioDialect::C);
    insta::assert_snapshot!([
        ended(&c(ControlWord::ClientSends(0))),
        ended(&c(ControlWord::ServerSends(0))),
        ended(&c(ControlWord::ServerSends(65_537))),
        ended(&c(ControlWord::ClientSends(u32::MAX))),
        ended(&[0; 8]),
        ended(b"GET / HTTP/1.1\r\n"),
        ended(&c(ControlWord::ClientSends(65_536))),
    ].join("\n"), @r#"
    ends
    ends
    blocks of 65537 bytes: at most 65536
    blocks of 4294967295 bytes: at most 65536
    ends
    a NETIO client does not begin with "GET / HT"
    waits
    "#);
}
