//! Data loggers: their frames, the replies to a client that downloads, and a logger that receives requests.

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::logger::{Logger, LoggerConfig, LoggerOptions};
use linkgauge::link::Fault;
use linkgauge::link::party::{Party, PartyCost, Step};
use linkgauge::plan;
use linkgauge::protocol::pakbus::frame::{self, FrameDecoder};
use linkgauge::protocol::pakbus::packet::{Hop, LinkState, PacketRoute, PakBusPacket};
use linkgauge::protocol::pakbus::{client, directory, message, record, reply, table, value};
use linkgauge::sample::Recorder;
use linkgauge::schedule;
use linkgauge::workload::RecordingParty;

/// Bytes of a logger or its client on a line: the packets are the same whether the bytes are read at once or in chunks
/// whose length the first byte gives; parsed packets encode to the same bytes; and a logger is idle after the last
/// byte, with or without a reply. Frames with errors are ignored, so everything between two sync bytes is also framed
/// correctly.
pub fn pakbus(data: &[u8]) {
    let Some((&size, input)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    assert_eq!(packets(input.chunks(input.len().max(1))), packets(input.chunks(size)));
    let mut framed = Vec::new();
    for between in input.split(|&byte| byte == frame::SYNC_BYTE) {
        let packet = &between[..between.len().saturating_sub(2)];
        frame::write(packet, &mut framed);
        parts(packet);
    }
    for input in [input, &framed] {
        logger(input.chunks(size));
    }
}

fn packets<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let (mut decoder, mut packets) = (FrameDecoder::default(), Vec::new());
    for mut chunk in chunks {
        while !chunk.is_empty() {
            let (used, packet) = decoder.read(chunk);
            packets.extend(packet.map(<[u8]>::to_vec));
            chunk = &chunk[used..];
        }
    }
    packets
}

/// A packet, and the files and records that bytes like these may be.
fn parts(bytes: &[u8]) {
    if let Ok(tables) = table::read(bytes) {
        assert_eq!(table::write(&tables), bytes);
    }
    if let Ok(entries) = directory::read(bytes) {
        assert_eq!(directory::write(&entries), bytes);
    }
    let Ok(packet) = PakBusPacket::read(bytes) else { return };
    assert_eq!(packet.write(), bytes);
    let Some((route, input)) = packet.message else { return };
    if let Ok((transaction, command)) = message::LoggerCommand::read(route.protocol, input) {
        let (protocol, written) = command.write(transaction);
        assert_eq!(message::LoggerCommand::read(protocol, &written), Ok((transaction, command)));
    }
    if let Ok((transaction, reply)) = reply::LoggerReply::read(route.protocol, input) {
        let (protocol, written) = reply.write(transaction);
        assert_eq!(reply::LoggerReply::read(protocol, &written), Ok((transaction, reply)));
    }
    let field = |kind| table::FieldDefinition::new("f", value::FieldType(kind), 3);
    let fields = (0..32).map(field).collect();
    let table = table::TableDefinition::new("t", 9, value::LoggerTime { seconds: 1, nanoseconds: 0 }, fields);
    let _ = record::read(&[table], input);
}

/// Sends these bytes to a logger until all are sent and all replies have arrived.
fn logger<'a>(chunks: impl Iterator<Item = &'a [u8]>) {
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let listen: Endpoint = "mem://logger".parse().expect("an endpoint");
    let device = LoggerConfig {
        files: vec![("CPU:a.bin".to_owned(), vec![0xBD; 2000])],
        tables: vec!["Bench:1s:Seq=Int4,Temp=FP2,Name=ASCII(2000):9".parse().expect("a table")],
        command_time: Duration::from_secs(2),
        ..LoggerConfig::default()
    };
    let options = LoggerOptions { listen: vec![listen.clone()], serial_lines: Vec::new(), config: device };
    let clock = value::LoggerTime { seconds: 1000, nanoseconds: 0 };
    let _logger = Logger::start_with(&options, clock, dialer.clone()).expect("it starts");
    let mut link = dialer.open(&listen).expect("it listens");
    let mut reply = [0; 4096];
    for chunk in chunks {
        let mut rest = chunk;
        while !rest.is_empty() {
            match link.send(rest, Duration::from_secs(1)) {
                Ok(sent) => rest = &rest[sent..],
                Err(_) => while link.receive(&mut reply, Duration::ZERO).is_ok() {},
            }
        }
    }
    // Far more than so few commands are worth.
    for _ in 0..10_000 {
        if link.receive(&mut reply, Duration::from_secs(60)).is_err() {
            return;
        }
    }
    panic!("the logger never rests");
}

/// Replies to a client that downloads: chunks, each after its length; the first byte of a chunk gives its kind. The
/// first byte of all selects a file or a table, one request at a time or several, and the short form of chunks: three
/// bytes 0xEE, a count and a byte stand for count repetitions of that byte, up to the largest frame.
pub fn pakbus_client(data: &[u8]) {
    let Some((&mode, mut rest)) = data.split_first() else { return };
    let mut chunks = Vec::new();
    while let Some((&length, more)) = rest.split_first() {
        let (chunk, more) = more.split_at(more.len().min(length.into()));
        chunks.push(chunk);
        rest = more;
    }
    let what = if mode & 1 == 0 { "file = 'CPU:a.bin'" } else { "table = 'Bench'" };
    let window = 1 + (mode >> 1) % 8;
    let plan = format!(
        "[[case]]\nurl = 'pakbus://a/1'\nworkload = 'download'\nprotocol_options = {{ {what}, window = {window}, retries = 1, \
         reconnects = 2 }}"
    );
    let plan = schedule::check(plan::Plan::from_toml(&plan).expect("a plan"), Registry::standard())
        .expect("a plan that fits");
    let case = plan.cases().next().expect("a case");
    let options = client::PakBusOptions::parse(&case.options, case.workload).expect("options");
    let (content, kept) = std::sync::mpsc::sync_channel(4096);
    let mut party = client::Downloader::new(options, &case.load, Some(content), 0, Recorder::for_counting());
    replied(&mut party, &chunks, mode & 0x80 != 0);
    party.on_ended(PartyCost::default());
    let counts = party.recorder().counts;
    drop(party);
    let kept: usize = kept.iter().map(|chunk| chunk.len()).sum();
    assert!(mode & 1 == 1 || kept as u64 <= counts.delivered_bytes, "no byte is invented");
    assert!(counts.received <= counts.sent);
}

/// Runs a client on these chunks until it ends; silence follows the last one.
fn replied(party: &mut client::Downloader, chunks: &[&[u8]], short: bool) {
    let (mut now, mut chunks) = (Time(0), chunks.iter());
    let mut left: Vec<u8> = Vec::new();
    let (mut decoder, mut asked) = (FrameDecoder::default(), Vec::new());
    // Far more than the number of chunks: each may be requested several times, on several links.
    for _ in 0..100_000 {
        now = now + Duration::from_micros(1);
        match party.next_step(now) {
            Step::Send { bytes, .. } => {
                assert!(!bytes.is_empty(), "nothing is no message");
                let (length, mut rest) = (bytes.len(), bytes);
                while !rest.is_empty() {
                    let (used, packet) = decoder.read(rest);
                    if let Some(packet) = packet {
                        asked = packet.to_vec();
                    }
                    rest = &rest[used..];
                }
                party.on_sent(length, now);
            }
            Step::Receive { into, .. } if !left.is_empty() => {
                into.borrow_memory();
                let count = left.len().min(into.bytes.len());
                into.clear();
                into.bytes[..count].copy_from_slice(&left[..count]);
                into.push_span(0, count);
                left.drain(..count);
                party.on_received(now);
            }
            Step::Receive { until, .. } => match chunks.next() {
                Some([4, ..]) => {
                    if party.on_closed(now).is_err() {
                        return;
                    }
                }
                Some([3, ..]) | None => {
                    now = now.max(until);
                    party.on_timeout(now);
                }
                Some(chunk) => {
                    let written = if short { expanded(chunk) } else { chunk.to_vec() };
                    left = respond(&written, &asked);
                }
            },
            Step::Sleep(until) => now = now.max(until),
            Step::Reopen => {
                let outcome = if chunks.len() > 0 { Ok(()) } else { Err(Fault::TimedOut) };
                if party.on_reopened(outcome, now).is_err() {
                    return;
                }
            }
            Step::Tune(_) | Step::FinishSending | Step::ReadStamps(_) => {}
            Step::Done | Step::Fail(_) => return,
        }
    }
    panic!("the client never rests");
}

/// A shortened chunk, expanded to its full length.
fn expanded(chunk: &[u8]) -> Vec<u8> {
    let (mut whole, mut rest) = (Vec::new(), chunk);
    while let [first, behind @ ..] = rest {
        rest = match behind {
            [count, byte, behind @ ..] if *first == 0xEE => {
                whole.extend(std::iter::repeat_n(*byte, 16 * usize::from(*count)));
                behind
            }
            _ => {
                whole.push(*first);
                behind
            }
        };
    }
    whole
}

/// The bytes unchanged; or a message of BMP5 or PakCtrl, with the addresses, number and offset of the last request.
fn respond(chunk: &[u8], asked: &[u8]) -> Vec<u8> {
    let [protocol @ 1..=2, kind, body @ ..] = chunk else { return chunk.to_vec() };
    let transaction = asked.get(9).copied().unwrap_or(0);
    let mut message = vec![*kind, transaction];
    match (kind, body.split_first()) {
        (0x9D, Some((code, data))) => {
            // The name and its zero byte are followed by a flag and the offset.
            let end = asked.iter().skip(12).position(|&byte| byte == 0).map_or(0, |end| end + 14);
            message.push(*code);
            message.extend(asked.get(end..end + 4).unwrap_or(&[0; 4]));
            message.extend(data);
        }
        _ => message.extend(body),
    }
    let hop = Hop { state: LinkState::READY, to: 4093, from: 1, expect_more: 0, priority: 1 };
    let route = PacketRoute { protocol: protocol % 2, to: 4093, from: 1, hops: 0 };
    let mut framed = Vec::new();
    frame::write(&PakBusPacket { hop, message: Some((route, &message)) }.write(), &mut framed);
    framed
}
