//! Round trips of protocols whose messages begin with a header: the reply has the header of its request, except for a flag, and
//! equal content.

use std::ops::Range;

use crate::link::{Caps, Framing};
use crate::workload::latency::{ReplyStatus, RequestReplyCodec};
use crate::workload::pattern::{Alphabet, PatternMessage, count_differing};

/// Header of a message of such a protocol.
pub(super) trait PingPongHeader<const BYTES: usize>: Send {
    /// Header of request `sequence`, from 0, in a message of this length.
    fn request(&self, sequence: u64, length: usize) -> [u8; BYTES];

    /// Number of the request that a message with this header and length replies to.
    fn reply_sequence(&self, header: &[u8; BYTES], length: usize) -> Option<u64>;
}

/// Client of a ping-pong test.
pub(super) struct PingPongCodec<H, const BYTES: usize> {
    format: H,
    message: Vec<u8>,
    is_stream: bool,
    /// Current reply of a stream: its header, and the number of bytes that have arrived.
    header: [u8; BYTES],
    received_bytes: usize,
    corrupt_bytes: u64,
}

impl<H: PingPongHeader<BYTES>, const BYTES: usize> PingPongCodec<H, BYTES> {
    /// Client whose messages have this length, at least that of the header.
    pub(super) fn new(format: H, length: usize, caps: &Caps) -> Self {
        PingPongCodec {
            format,
            message: PatternMessage::new(length, Alphabet::from_caps(caps)).bytes().to_vec(),
            is_stream: caps.framing == Framing::Stream,
            header: [0; BYTES],
            received_bytes: 0,
            corrupt_bytes: 0,
        }
    }

    fn parse_message(&self, data: &[u8]) -> ReplyStatus {
        let used = data.len();
        let Some((head, body)) = data.split_first_chunk().filter(|_| used == self.message.len()) else {
            return ReplyStatus::Malformed { used };
        };
        match self.format.reply_sequence(head, used) {
            Some(sequence) => ReplyStatus::Complete {
                sequence,
                used,
                corrupt_bytes: count_differing(body, &self.message[BYTES..]),
            },
            None => ReplyStatus::Malformed { used },
        }
    }

    fn parse_stream(&mut self, data: &[u8]) -> ReplyStatus {
        let in_head = (BYTES - self.received_bytes.min(BYTES)).min(data.len());
        self.header[self.received_bytes.min(BYTES)..][..in_head].copy_from_slice(&data[..in_head]);
        self.received_bytes += in_head;
        if self.received_bytes < BYTES {
            return ReplyStatus::Incomplete;
        }
        let Some(sequence) = self.format.reply_sequence(&self.header, self.message.len()) else {
            self.received_bytes = 0;
            return ReplyStatus::Malformed { used: data.len() };
        };
        let rest = &self.message[self.received_bytes..];
        let in_body = rest.len().min(data.len() - in_head);
        self.corrupt_bytes += count_differing(&data[in_head..][..in_body], &rest[..in_body]);
        self.received_bytes += in_body;
        if self.received_bytes < self.message.len() {
            return ReplyStatus::Incomplete;
        }
        self.received_bytes = 0;
        ReplyStatus::Complete {
            sequence,
            used: in_head + in_body,
            corrupt_bytes: std::mem::take(&mut self.corrupt_bytes),
        }
    }
}

impl<H: PingPongHeader<BYTES>, const BYTES: usize> RequestReplyCodec for PingPongCodec<H, BYTES> {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        let header = self.format.request(sequence, self.message.len());
        self.message[..BYTES].copy_from_slice(&header);
        &self.message
    }

    fn parse_reply(&mut self, data: &[u8], _waiting: Range<u64>) -> ReplyStatus {
        if self.is_stream { self.parse_stream(data) } else { self.parse_message(data) }
    }
}
