//! Messages of measurements over the linkgauge protocol: blocks of a load with probes, datagrams of a capacity search, and
//! round trips with times of the server.

use std::time::Duration;

use linkgauge::link::{Caps, Framing};
use linkgauge::sample::Recorder;
use linkgauge::workload::Load;
use linkgauge::workload::capacity::wire::{LOAD_HEADER_BYTES, LoadHeader, LoadStatus};
use linkgauge::workload::capacity::{CapacityReceiver, Side};
use linkgauge::workload::latency::{
    ReplyStatus, RequestReplyCodec, STAGED_BYTES, StampedEchoCodec, StampingReflector,
};
use linkgauge::workload::responsiveness::ProbedReceiver;
use linkgauge::workload::responsiveness::block::BlockReader;

use super::connection;

/// The messages alone, and the parties that receive them, in chunks whose length the first byte gives. The second byte sets
/// the size of the messages of round trips.
pub fn probes(data: &[u8]) {
    let [chunk_bytes, size, input @ ..] = data else { return };
    let chunks = || input.chunks(usize::from(*chunk_bytes).max(1));
    messages(input);
    let numbers = |chunks: std::slice::Chunks<u8>| {
        let (mut reader, mut numbers) = (BlockReader::default(), Vec::new());
        let is_valid =
            chunks.map(|chunk| reader.push(chunk, |number| numbers.push(number))).all(|read| read.is_ok());
        (is_valid, numbers)
    };
    assert_eq!(numbers(input.chunks(input.len().max(1))), numbers(chunks()));
    let load = Load { timeout: Duration::from_secs(1), ..Load::endless(1000) };
    connection(&mut ProbedReceiver::new(&load, Recorder::for_counting()), chunks());
    for side in [Side::Client, Side::Server] {
        connection(&mut CapacityReceiver::new(side, &load, Recorder::for_counting()), chunks());
    }
    let datagrams = Caps {
        framing: Framing::Message,
        max_message_bytes: Some(2000),
        can_signal_close: true,
        ..Caps::STREAM
    };
    for caps in [Caps::STREAM, datagrams] {
        for stamps in [false, true] {
            let message_bytes = STAGED_BYTES as u32 + u32::from(*size);
            let load = Load { message_bytes, stamps, ..load };
            let idle = Duration::from_secs(1);
            connection(&mut StampingReflector::new(&caps, &load, message_bytes as usize, idle), chunks());
            replies(&mut StampedEchoCodec::new(&load, &caps), chunks());
        }
    }
}

/// A message that is read is written as it was.
fn messages(input: &[u8]) {
    if let Some(header) = LoadHeader::parse(input) {
        let mut datagram = [0; LOAD_HEADER_BYTES];
        header.write(&mut datagram);
        assert_eq!(datagram, input[..LOAD_HEADER_BYTES]);
    }
    if let Some(status) = LoadStatus::parse(input) {
        assert_eq!(status.encode(), input);
    }
}

/// Reads replies as the client does.
fn replies<'a>(codec: &mut StampedEchoCodec, chunks: impl Iterator<Item = &'a [u8]>) {
    for mut chunk in chunks {
        while !chunk.is_empty() {
            match codec.parse_reply(chunk, 0..4) {
                ReplyStatus::Incomplete | ReplyStatus::Refused => break,
                ReplyStatus::Complete { used, .. }
                | ReplyStatus::Unexpected { used, .. }
                | ReplyStatus::Unrelated { used }
                | ReplyStatus::Malformed { used } => {
                    assert!((1..=chunk.len()).contains(&used));
                    let _ = (codec.server_timestamps(), codec.reply_stages());
                    chunk = &chunk[used..];
                }
            }
        }
    }
}
