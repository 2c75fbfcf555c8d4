//! Content of a throughput flow at its receiver: new messages, the number of missing ones, and whether the end has
//! has arrived.

use super::header::{BlockParser, HeaderCodec, ParsedHeader, SequenceHeader};
use super::loopback::Received;
use super::sequence_tracker::SequenceTracker;
use crate::link::{Batch, Framing};
use linkgauge_model::clock::Time;

/// Result of one receive.
pub(super) struct Arrival {
    /// New messages of this flow. Those of the warm-up that the first message after it overtook do not count.
    pub(crate) messages: u64,
    /// Bytes of the new messages.
    pub bytes: u64,
    /// Whether something of this flow arrived. Foreign messages do not extend the wait.
    pub(crate) is_of_flow: bool,
    /// Whether the header of the end was part of the receive.
    pub(crate) has_end: bool,
}

/// Data that a flow has received.
pub(super) struct ReceivedData {
    framing: Framing,
    message_bytes: u64,
    tracker: SequenceTracker,
    /// Header of each message.
    header: Option<Box<dyn HeaderCodec>>,
    /// Headers of a stream that consists of blocks.
    blocks: Option<BlockParser>,
    position: u64,
    /// Number of the first message after the warm-up, once that has ended.
    first_measured: Option<u64>,
}

impl ReceivedData {
    /// Empty data of messages with the default header, or of a stream.
    pub fn new(framing: Framing, message_bytes: u32) -> ReceivedData {
        let header = || Box::new(SequenceHeader) as Box<dyn HeaderCodec>;
        ReceivedData {
            framing,
            message_bytes: u64::from(message_bytes),
            tracker: match framing {
                Framing::Stream => SequenceTracker::unused(),
                Framing::Message => SequenceTracker::new(),
            },
            header: (framing == Framing::Message).then(header),
            blocks: None,
            position: 0,
            first_measured: None,
        }
    }

    /// Ends the warm-up before the message with this number. Earlier ones that are still on their way do not count.
    pub(crate) fn end_warm_up(&mut self, first_measured: u64) {
        self.first_measured = Some(first_measured);
    }

    /// Sets the header of a protocol in place of the default; a stream is then a sequence of blocks.
    pub(crate) fn set_header(&mut self, header: Box<dyn HeaderCodec>) {
        match self.framing {
            Framing::Stream => self.blocks = Some(BlockParser::new(header, self.message_bytes)),
            Framing::Message => self.header = Some(header),
        }
    }

    /// Processes a batch.
    #[inline]
    pub fn add(&mut self, batch: &Batch, now: Time) -> Arrival {
        let mut arrived = Arrival { messages: 0, bytes: 0, is_of_flow: false, has_end: false };
        let before = self.position;
        // Any message may turn out to be the first one after the warm-up.
        let first_counted = self.first_measured.unwrap_or(self.tracker.next_sequence);
        for message in batch.messages() {
            let length = message.len() as u64;
            let Some(header) = &mut self.header else {
                let payload = self.blocks.as_mut().map_or(length, |blocks| blocks.push(message, now));
                self.position += payload;
                arrived.bytes += payload;
                arrived.is_of_flow = true;
                continue;
            };
            self.position += length;
            let foreign = self.tracker.foreign;
            match header.read(message, self.tracker.next_sequence, now) {
                ParsedHeader::Setup => {
                    self.position -= length;
                    continue;
                }
                ParsedHeader::End => arrived.has_end = true,
                ParsedHeader::Sequence(number) if length == self.message_bytes => {
                    if self.tracker.observe(number) && number >= first_counted {
                        arrived.messages += 1;
                        arrived.bytes += length;
                    }
                }
                _ => self.tracker.foreign += 1,
            }
            arrived.is_of_flow |= self.tracker.foreign == foreign;
        }
        arrived.has_end |= self.blocks.as_ref().is_some_and(BlockParser::is_finished);
        if self.framing == Framing::Stream {
            // A stream has no message boundaries: its messages are counted by its bytes.
            arrived.messages = self.position / self.message_bytes - before / self.message_bytes;
        }
        arrived
    }

    /// Framing of the flow: messages, or a stream.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// The size of a message; a stream is counted in units of it.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// Bytes so far, including warm-up and duplicates.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Received bytes of a loop, for the comparison with the sent bytes.
    pub(crate) fn received(&self) -> Received {
        let distinct_bytes = self.tracker.distinct * self.message_bytes;
        Received { position: self.position, distinct_bytes }
    }

    /// Messages sent so far, as derived from the received numbers.
    pub(crate) fn passed_messages(&self) -> u64 {
        if self.header.is_some() { self.tracker.next_sequence } else { self.position / self.message_bytes }
    }

    /// Missing messages among the sent ones, if they have numbers.
    pub(crate) fn missing_messages(&self) -> u64 {
        self.tracker.next_sequence - self.tracker.distinct
    }

    /// Messages that arrived twice.
    pub(crate) fn duplicates(&self) -> u64 {
        self.tracker.duplicate
    }

    /// Messages that a later one overtook.
    pub(crate) fn reordered(&self) -> u64 {
        self.tracker.reordered
    }

    /// Messages or blocks that do not belong to the flow.
    pub(crate) fn foreign(&self) -> u64 {
        self.tracker.foreign + self.blocks.as_ref().map_or(0, |blocks| blocks.foreign_blocks)
    }
}
