//! Codec of every protocol that echoes: the request is its own reply.
//!
//! Sequence numbers match replies to requests. If bytes can be lost or changed and one request is in flight, the
//! position matches instead: all input is the reply to that request, whatever its content.

use std::ops::Range;

use super::pinger::MAX_OUTSTANDING_REQUESTS;
use super::{ReplyStatus, RequestReplyCodec};
use crate::link::{Caps, Framing};
use crate::workload::Load;
use crate::workload::pattern::{self, Alphabet, PatternMessage, SEQUENCE_BYTES};

/// Requests and replies with equal content: a sequence number and pseudorandom bytes.
pub struct EchoCodec {
    message: PatternMessage,
    framing: Framing,
    /// Whether the stream may lose bytes, so that an unfinished reply is dropped when its request expires.
    is_lossy: bool,
    /// Whether replies are matched by position.
    matches_by_position: bool,
    header: [u8; SEQUENCE_BYTES],
    received_bytes: usize,
    sequence: u64,
    corrupt_bytes: u64,
    /// Request without a complete reply, and the last expired one; for matching by position.
    outstanding: Option<u64>,
    abandoned: Option<u64>,
}

impl EchoCodec {
    /// Codec for messages of this load over a link with these capabilities.
    pub fn new(load: &Load, caps: &Caps) -> EchoCodec {
        let lossy = caps.framing == Framing::Stream && !caps.is_reliable;
        EchoCodec {
            message: PatternMessage::new(load.message_bytes as usize, Alphabet::from_caps(caps)),
            framing: caps.framing,
            is_lossy: lossy,
            matches_by_position: lossy && load.pacing.per_second().is_none(),
            header: [0; SEQUENCE_BYTES],
            received_bytes: 0,
            sequence: 0,
            corrupt_bytes: 0,
            outstanding: None,
            abandoned: None,
        }
    }

    fn header_bytes(&self) -> usize {
        self.message.len().min(SEQUENCE_BYTES)
    }

    fn parse_message(&self, data: &[u8], waiting: &Range<u64>) -> ReplyStatus {
        let used = data.len();
        if used < self.header_bytes() {
            return ReplyStatus::Unrelated { used };
        }
        let (head, body) = data.split_at(self.header_bytes());
        let Some(sequence) = self.message.read_sequence(head, waiting.start) else {
            return ReplyStatus::Unrelated { used };
        };
        let corrupt_bytes = pattern::count_differing(body, self.message.body());
        ReplyStatus::Complete { sequence, used, corrupt_bytes }
    }

    /// Attributes the input to the request in flight, or to the last expired one.
    fn parse_by_position(&mut self, data: &[u8]) -> ReplyStatus {
        let Some(sequence) = self.outstanding else { return ReplyStatus::Unrelated { used: data.len() } };
        let rest = &self.message.bytes()[self.received_bytes..];
        let used = rest.len().min(data.len());
        self.corrupt_bytes += pattern::count_differing(&data[..used], &rest[..used]);
        let in_head = self.header_bytes().saturating_sub(self.received_bytes).min(used);
        self.header[self.received_bytes.min(SEQUENCE_BYTES)..][..in_head].copy_from_slice(&data[..in_head]);
        self.received_bytes += used;
        if self.received_bytes < self.message.len() {
            return ReplyStatus::Incomplete;
        }
        self.received_bytes = 0;
        let corrupt_bytes = std::mem::take(&mut self.corrupt_bytes);
        if corrupt_bytes > 0 && self.abandoned.is_some() {
            // The reply is too late for the position, but its number identifies it.
            let number = self.message.read_sequence(&self.header[..self.header_bytes()], sequence);
            if number == self.abandoned && number != self.outstanding {
                self.abandoned = None;
                return ReplyStatus::Complete {
                    sequence: number.unwrap_or(sequence),
                    used,
                    corrupt_bytes: 0,
                };
            }
        }
        // A stream keeps the order, so missing bytes are lost for good.
        (self.outstanding, self.abandoned) = (None, None);
        ReplyStatus::Complete { sequence, used, corrupt_bytes }
    }

    /// Parses the next replies of a stream by their numbers.
    fn parse_by_number(&mut self, data: &[u8], waiting: &Range<u64>) -> ReplyStatus {
        let mut used = 0;
        let head_length = self.header_bytes();
        if self.received_bytes < head_length {
            let part = (head_length - self.received_bytes).min(data.len());
            self.header[self.received_bytes..self.received_bytes + part].copy_from_slice(&data[..part]);
            self.received_bytes += part;
            used = part;
            if self.received_bytes < head_length {
                return ReplyStatus::Incomplete;
            }
            let recent = waiting.start.saturating_sub(2 * MAX_OUTSTANDING_REQUESTS)..waiting.end;
            let number = self.message.read_sequence(&self.header[..head_length], waiting.start);
            let Some(sequence) = number.filter(|number| recent.contains(number)) else {
                // These bytes do not start any of our messages, so the stream is misaligned by at least one byte. Try
                // again at the next byte; bytes of the current input stay in place.
                let before = head_length - part;
                self.received_bytes = before.saturating_sub(1);
                if before == 0 {
                    return ReplyStatus::Unrelated { used: 1 };
                }
                self.header.copy_within(1..before, 0);
                self.corrupt_bytes += 1;
                return ReplyStatus::Unrelated { used: 0 };
            };
            self.sequence = sequence;
        }
        let body = self.message.body();
        let from = self.received_bytes - head_length;
        let part = (body.len() - from).min(data.len() - used);
        self.corrupt_bytes += pattern::count_differing(&data[used..used + part], &body[from..from + part]);
        self.received_bytes += part;
        used += part;
        if self.received_bytes < self.message.len() {
            return ReplyStatus::Incomplete;
        }
        self.received_bytes = 0;
        ReplyStatus::Complete {
            sequence: self.sequence,
            used,
            corrupt_bytes: std::mem::take(&mut self.corrupt_bytes),
        }
    }
}

impl RequestReplyCodec for EchoCodec {
    #[inline]
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        // Called again while the link takes the request in parts.
        if self.matches_by_position && self.outstanding != Some(sequence) {
            (self.outstanding, self.received_bytes, self.corrupt_bytes) = (Some(sequence), 0, 0);
        }
        self.message.set_sequence(sequence)
    }

    #[inline]
    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        match self.framing {
            Framing::Message => self.parse_message(data, &waiting),
            Framing::Stream if self.matches_by_position => self.parse_by_position(data),
            Framing::Stream => self.parse_by_number(data, &waiting),
        }
    }

    fn abandon(&mut self, sequence: u64) {
        if self.matches_by_position {
            self.abandoned = Some(sequence);
        } else if self.is_lossy {
            (self.received_bytes, self.corrupt_bytes) = (0, 0);
        }
    }

    fn restart(&mut self) {
        (self.received_bytes, self.corrupt_bytes) = (0, 0);
        (self.outstanding, self.abandoned) = (None, None);
    }

    fn has_sequence_numbers(&self) -> bool {
        !self.matches_by_position
    }
}
