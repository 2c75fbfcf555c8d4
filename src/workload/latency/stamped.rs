//! Round trips with the times of the server: it writes into each request when it arrived and when its reply left.
//!
//! ```text
//! number[8] arrived[8] left[8] pattern
//! ```
//!
//! The number is that of an echo. The times are nanoseconds of the server's clock, big-endian; requests have zeros there.

use std::ops::Range;
use std::time::Duration;

use super::{Reflector, ReplyStatus, RequestReplyCodec};
use crate::clock::Time;
use crate::link::party::{Party, Step};
use crate::link::{Caps, Fault, Framing};
use crate::sample::ServerTimestamps;
use crate::workload::Load;
use crate::workload::pattern::{self, Alphabet, PatternMessage, SEQUENCE_BYTES};

/// Bytes of the number and the times: the smallest message.
pub const STAMPED_BYTES: usize = SEQUENCE_BYTES + 16;

/// Where the times stand in a message.
const ARRIVED: Range<usize> = SEQUENCE_BYTES..SEQUENCE_BYTES + 8;
const LEFT: Range<usize> = SEQUENCE_BYTES + 8..STAMPED_BYTES;

/// The client's side.
pub struct StampedEchoCodec {
    message: PatternMessage,
    framing: Framing,
    /// The start of a reply that arrives in several chunks, and all of its bytes so far.
    header: [u8; STAMPED_BYTES],
    received_bytes: usize,
    corrupt_bytes: u64,
    timestamps: Option<ServerTimestamps>,
}

impl StampedEchoCodec {
    /// For messages of at least [`STAMPED_BYTES`].
    pub fn new(load: &Load, caps: &Caps) -> StampedEchoCodec {
        let mut message = PatternMessage::new(load.message_bytes as usize, Alphabet::from_caps(caps));
        message.clear(SEQUENCE_BYTES..STAMPED_BYTES);
        StampedEchoCodec {
            message,
            framing: caps.framing,
            header: [0; STAMPED_BYTES],
            received_bytes: 0,
            corrupt_bytes: 0,
            timestamps: None,
        }
    }

    /// The reply whose header is complete.
    fn complete(&mut self, waiting: &Range<u64>, used: usize, corrupt_bytes: u64) -> ReplyStatus {
        let Some(sequence) = self.message.read_sequence(&self.header[..SEQUENCE_BYTES], waiting.start) else {
            return ReplyStatus::Malformed { used };
        };
        let time = |at: Range<usize>| u64::from_be_bytes(self.header[at].try_into().expect("8 bytes")) as i64;
        self.timestamps = Some(ServerTimestamps {
            received_ns: time(ARRIVED),
            sent_ns: time(LEFT),
            reply_number: sequence as u32,
        });
        ReplyStatus::Complete { sequence, used, corrupt_bytes }
    }
}

impl RequestReplyCodec for StampedEchoCodec {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        self.message.set_sequence(sequence)
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        self.timestamps = None;
        let length = self.message.bytes().len();
        if self.framing == Framing::Message && data.len() != length {
            return ReplyStatus::Malformed { used: data.len() };
        }
        let used = data.len().min(length - self.received_bytes);
        let start = self.received_bytes;
        let in_header = STAMPED_BYTES.saturating_sub(start).min(used);
        self.header[start.min(STAMPED_BYTES)..][..in_header].copy_from_slice(&data[..in_header]);
        let body = &data[in_header..used];
        let expected = &self.message.bytes()[start + in_header..start + used];
        self.corrupt_bytes += pattern::count_differing(body, expected);
        self.received_bytes += used;
        if self.received_bytes < length {
            return ReplyStatus::Incomplete;
        }
        self.received_bytes = 0;
        let corrupt_bytes = std::mem::take(&mut self.corrupt_bytes);
        self.complete(&waiting, used, corrupt_bytes)
    }

    fn has_server_timestamps(&self) -> bool {
        true
    }

    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        self.timestamps
    }
}

/// The server's side: returns messages of a known size, with its times in them.
pub struct StampingReflector {
    reflector: Reflector,
    message_bytes: usize,
    /// Position in the message at which the batch begins.
    offset: usize,
    /// When the current message arrived.
    arrived: Time,
}

impl StampingReflector {
    /// For messages of `message_bytes`. Ends after `idle` without input.
    pub fn new(caps: &Caps, load: &Load, message_bytes: usize, idle: Duration) -> StampingReflector {
        let largest = match caps.framing {
            Framing::Stream if load.is_one_of_many() => super::MANY_CHUNK_BYTES,
            Framing::Stream => super::MAX_CHUNK_BYTES,
            Framing::Message => caps.max_message_bytes.unwrap_or(super::MAX_CHUNK_BYTES),
        };
        StampingReflector {
            reflector: Reflector::new(caps.framing, largest, load.tuning(), idle),
            message_bytes: message_bytes.max(STAMPED_BYTES),
            offset: 0,
            arrived: Time(0),
        }
    }

    /// The reflector that returns the messages.
    pub fn reflector(&self) -> &Reflector {
        &self.reflector
    }

    /// Writes a time into `field` of the messages in the unsent bytes: `first` where the first one is the rest of a message.
    fn write(&mut self, field: Range<usize>, first: Time, others: Time) {
        let Reflector { batch, unsent, .. } = &mut self.reflector;
        let bytes = &mut batch.bytes[unsent.clone()];
        let first_message = bytes.len().min(self.message_bytes - self.offset);
        let write_in = |bytes: &mut [u8], offset: usize, time: Time| {
            let value = time.0.to_be_bytes();
            let from = field.start.max(offset);
            let to = field.end.min(offset + bytes.len());
            if from < to {
                bytes[from - offset..to - offset]
                    .copy_from_slice(&value[from - field.start..to - field.start]);
            }
        };
        let (begun, whole) = bytes.split_at_mut(first_message);
        write_in(begun, self.offset, first);
        whole.chunks_mut(self.message_bytes).for_each(|message| write_in(message, 0, others));
    }
}

impl Party for StampingReflector {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.reflector.tuning.is_none() && !self.reflector.unsent.is_empty() {
            self.write(LEFT, now, now);
        }
        self.reflector.next_step(now)
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.reflector.on_sent(bytes, at);
        if self.reflector.framing == Framing::Stream {
            self.offset = (self.offset + bytes) % self.message_bytes;
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.reflector.on_received(now);
        let length = self.reflector.unsent.len();
        let first = if self.offset == 0 { now } else { self.arrived };
        self.write(ARRIVED, first, now);
        self.arrived = if self.offset + length > self.message_bytes { now } else { first };
    }

    fn on_timeout(&mut self, now: Time) {
        self.reflector.on_timeout(now);
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.reflector.on_closed(now)
    }
}
