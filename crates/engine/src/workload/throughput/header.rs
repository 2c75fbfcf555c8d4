//! Headers of messages, including the header of the end message. The protocol defines the format; the default is the
//! message number. A stream without headers is plain noise; a stream with headers is a sequence of blocks.

use crate::workload::pattern;
use linkgauge_model::clock::Time;

/// Maximum size of a header in bytes.
pub(crate) const MAX_HEADER_BYTES: usize = 64;

/// The header format of one flow, for its sender or its receiver.
pub trait HeaderCodec: Send {
    /// Bytes of the header in a message with enough room, at most `MAX_HEADER_BYTES`.
    fn length(&self) -> usize;

    /// Writes the header of message `number` (from 0), sent at `now`, over the start of a message.
    fn write(&mut self, message: &mut [u8], number: u64, now: Time);

    /// Parses the header of a message received at `now`; `next` is the highest number so far plus one.
    fn read(&mut self, message: &[u8], next: u64, now: Time) -> ParsedHeader;

    /// Writes the end message and returns `true`, if the protocol has one. It is sent after the stop and does not count
    /// as payload.
    fn write_end(&mut self, message: &mut [u8], now: Time) -> bool {
        let _ = (message, now);
        false
    }
}

/// Content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedHeader {
    /// A message of the flow.
    Sequence(u64),
    /// The last message of the flow.
    End,
    /// The message does not belong to this flow.
    Foreign,
    /// The message belongs to the setup of the flow, and may arrive late or twice.
    Setup,
}

/// The default header: the number, truncated to the size of the message.
pub(crate) struct SequenceHeader;

impl HeaderCodec for SequenceHeader {
    fn length(&self) -> usize {
        pattern::SEQUENCE_BYTES
    }

    #[inline]
    fn write(&mut self, message: &mut [u8], number: u64, _now: Time) {
        pattern::write_sequence(message, number);
    }

    #[inline]
    fn read(&mut self, message: &[u8], next: u64, _now: Time) -> ParsedHeader {
        ParsedHeader::Sequence(pattern::read_sequence(message, next))
    }
}

/// Finds the headers in a stream of blocks of one length, for any chunk sizes.
pub(super) struct BlockParser {
    header: Box<dyn HeaderCodec>,
    block_bytes: u64,
    /// Number of bytes of the stream so far, and the position of its end once known.
    position: u64,
    end_position: Option<u64>,
    /// The start of a header that arrives in several chunks.
    partial_header: [u8; MAX_HEADER_BYTES],
    /// Blocks that do not belong to this flow.
    pub(crate) foreign_blocks: u64,
}

impl BlockParser {
    /// A parser for blocks of `block` bytes that begin with the header `head`.
    pub fn new(head: Box<dyn HeaderCodec>, block: u64) -> BlockParser {
        BlockParser {
            header: head,
            block_bytes: block,
            position: 0,
            end_position: None,
            partial_header: [0; MAX_HEADER_BYTES],
            foreign_blocks: 0,
        }
    }

    fn header_length(&self) -> u64 {
        (self.header.length().min(MAX_HEADER_BYTES) as u64).min(self.block_bytes)
    }

    /// Processes the next chunk. Returns its number of payload bytes.
    pub fn push(&mut self, chunk: &[u8], now: Time) -> u64 {
        let mut payload = 0;
        let mut rest = chunk;
        while !rest.is_empty() && !self.is_finished() {
            let (into, length) = (self.position % self.block_bytes, self.header_length());
            let left = if into < length { length - into } else { self.block_bytes - into };
            let (taken, behind) = rest.split_at(rest.len().min(left as usize));
            if into < length {
                self.partial_header[into as usize..][..taken.len()].copy_from_slice(taken);
            }
            self.position += taken.len() as u64;
            if into < length && into + taken.len() as u64 == length {
                payload += self.parse_header(length, now);
            } else if into >= length && self.end_position.is_none() {
                payload += taken.len() as u64;
            }
            rest = behind;
        }
        payload
    }

    /// Parses a complete header. Returns its bytes as payload, or 0 for an end header.
    fn parse_header(&mut self, length: u64, now: Time) -> u64 {
        let block = (self.position - length) / self.block_bytes;
        match self.header.read(&self.partial_header[..length as usize], block, now) {
            ParsedHeader::Sequence(_) => length,
            ParsedHeader::Foreign | ParsedHeader::Setup => {
                self.foreign_blocks += 1;
                length
            }
            ParsedHeader::End => {
                self.end_position = Some(self.position - length + self.block_bytes);
                0
            }
        }
    }

    /// Whether the end block is complete.
    pub(crate) fn is_finished(&self) -> bool {
        self.end_position.is_some_and(|end| self.position >= end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::link::party::{Party, Step};
    use crate::link::{Caps, Framing};
    use crate::workload::throughput::{Sink, Source};
    use crate::workload::{Load, RecordingParty};
    use linkgauge_model::plan::StopCondition;
    use linkgauge_model::sample::Recorder;

    /// Header of two bytes: 0 and the low byte of the number; 1 and 0 at the end.
    pub(crate) struct FlaggedHeader;

    impl HeaderCodec for FlaggedHeader {
        fn length(&self) -> usize {
            2
        }

        fn write(&mut self, message: &mut [u8], number: u64, _now: Time) {
            let head = [0, number as u8];
            let length = message.len().min(2);
            message[..length].copy_from_slice(&head[..length]);
        }

        fn read(&mut self, message: &[u8], next: u64, _now: Time) -> ParsedHeader {
            match message {
                [0] => ParsedHeader::Sequence(next),
                [0, low, ..] if *low == next as u8 => ParsedHeader::Sequence(next),
                [1, ..] => ParsedHeader::End,
                _ => ParsedHeader::Foreign,
            }
        }

        fn write_end(&mut self, message: &mut [u8], now: Time) -> bool {
            self.write(message, 0, now);
            message[0] = 1;
            true
        }
    }

    proptest! {
        #[test]
        fn blocks_are_found_however_they_are_cut(
            block in 1usize..9, count in 0u64..20, cut in 1usize..30, behind in 0usize..5,
        ) {
            let mut stream = Vec::new();
            let mut one = vec![7; block];
            for number in 0..count {
                FlaggedHeader.write(&mut one, number, Time(0));
                stream.extend_from_slice(&one);
            }
            assert!(FlaggedHeader.write_end(&mut one, Time(0)));
            stream.extend_from_slice(&one);
            stream.extend_from_slice(&vec![9; behind]);
            let mut blocks = BlockParser::new(Box::new(FlaggedHeader), block as u64);
            let mut payload = 0;
            for chunk in stream.chunks(cut) {
                payload += blocks.push(chunk, Time(0));
            }
            prop_assert_eq!(payload, count * block as u64);
            prop_assert!(blocks.is_finished());
            prop_assert_eq!(blocks.foreign_blocks, 0);
        }
    }

    /// Transfers the output of a source to a sink, in chunks of at most `most` bytes, one each microsecond.
    fn transfer(caps: &Caps, stop: StopCondition, most: usize) -> (Source, Sink) {
        let load = Load { stop, timeout: Duration::from_secs(1), ..Load::endless(10) };
        let mut source =
            Source::new(&load, caps, Recorder::for_counting()).with_header(Box::new(FlaggedHeader), caps);
        let mut sink = Sink::new(&load, caps, Recorder::for_counting()).with_header(Box::new(FlaggedHeader));
        for now in (0..).map(|step| Time(step * 1000)) {
            let mut on_its_way = Vec::new();
            match source.next_step(now) {
                Step::Send { bytes, .. } => on_its_way.extend_from_slice(&bytes[..bytes.len().min(most)]),
                Step::FinishSending => return (source, sink),
                _ => continue,
            }
            source.on_sent(on_its_way.len(), now);
            loop {
                match sink.next_step(now) {
                    Step::Receive { into, .. } => {
                        into.clear();
                        into.bytes[..on_its_way.len()].copy_from_slice(&on_its_way);
                        into.push_span(0, on_its_way.len());
                    }
                    _ => continue,
                }
                sink.on_received(now);
                break;
            }
        }
        unreachable!("it finishes")
    }

    #[test]
    fn a_flow_with_heads_ends_by_its_last_message() {
        let message = Caps { framing: Framing::Message, max_message_bytes: Some(100), ..Caps::STREAM };
        // Blocks are complete for any send size, even if the time ends within one.
        for (caps, most) in [(Caps::STREAM, 3), (Caps::STREAM, 10), (message, 10)] {
            for stop in [StopCondition::after_count(5), StopCondition::after_time(Duration::from_micros(14))]
            {
                let (source, mut sink) = transfer(&caps, stop, most);
                let counts = source.recorder().counts;
                assert_eq!(counts.delivered_bytes, counts.sent * 10);
                assert!(counts.sent >= 4 && (stop.count.is_none() || counts.sent == 5), "{}", counts.sent);
                assert!(matches!(sink.next_step(Time(1 << 30)), Step::Done));
                let delivered = sink.recorder().counts;
                assert_eq!(
                    (delivered.received, delivered.delivered_bytes, delivered.corrupt_messages),
                    (counts.sent, counts.delivered_bytes, 0)
                );
            }
        }
    }

    #[test]
    fn a_foreign_block_is_counted() {
        let mut blocks = BlockParser::new(Box::new(FlaggedHeader), 4);
        assert_eq!(blocks.push(&[0, 0, 7, 7, 5, 5, 7, 7, 0, 2, 7, 7], Time(0)), 12);
        assert!(!blocks.is_finished());
        assert_eq!(blocks.foreign_blocks, 1);
    }
}
