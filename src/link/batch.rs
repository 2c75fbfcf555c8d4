//! The messages of one receive operation, in memory that is allocated once.

use std::time::Duration;

use super::{Fault, Framing, Link};

/// Messages received in one operation. Fixed size: nothing is allocated after construction.
#[derive(Debug, Default)]
pub struct Batch {
    /// The memory of the messages.
    pub bytes: Vec<u8>,
    /// Bytes reserved per message, where a link fills several at once.
    pub slot_bytes: usize,
    pub(super) spans: Vec<(u32, u32)>,
    /// Requests the TTL of messages, where the link supports it.
    pub(super) wants_ttl: bool,
    pub(super) ttl: Option<u8>,
    /// Messages with a CE mark, where the link reads marks.
    pub(super) ce_messages: u64,
}

impl Batch {
    /// For `messages` messages of at most `slot` bytes.
    pub fn new(slot: usize, messages: usize) -> Batch {
        // A link may receive a whole coalesced packet at once, whatever the size of its messages.
        let bytes = if messages > 1 { (slot * messages).max(MAX_COALESCED_BYTES) } else { slot };
        Batch {
            bytes: vec![0; bytes],
            slot_bytes: slot,
            spans: Vec::with_capacity(MAX_BATCH_MESSAGES),
            ..Batch::default()
        }
    }

    /// For one message with the TTL (hop limit) on arrival.
    pub fn with_ttl(slot: usize) -> Batch {
        Batch { wants_ttl: true, ..Batch::new(slot, 1) }
    }

    /// The TTL of the message on arrival, if requested and supported.
    pub fn ttl(&self) -> Option<u8> {
        self.ttl
    }

    /// Messages whose IP header shows congestion (CE), where the link reads marks.
    pub fn ce_messages(&self) -> u64 {
        self.ce_messages
    }

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.ttl = None;
        self.ce_messages = 0;
    }

    /// Records a message at `start`. The caller ensures that the count fits.
    pub fn push_span(&mut self, start: usize, length: usize) {
        debug_assert!(self.spans.len() < MAX_BATCH_MESSAGES);
        self.spans.push((start as u32, length as u32));
    }

    /// The messages, in order; one chunk on a stream.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|&(start, length)| &self.bytes[start as usize..(start + length) as usize])
    }

    /// Bytes of all messages together.
    pub fn total_bytes(&self) -> u64 {
        self.spans.iter().map(|&(_, length)| u64::from(length)).sum()
    }

    /// Bytes of all messages together, and of the longest.
    #[inline]
    pub fn total_and_longest(&self) -> (u64, usize) {
        let lengths = self.spans.iter().map(|&(_, length)| length);
        lengths.fold((0, 0), |(total, longest), length| {
            (total + u64::from(length), longest.max(length as usize))
        })
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.spans.len()
    }
}

/// Maximum number of messages per receive operation: a coalesced packet holds at most 128 segments
/// (`UDP_MAX_SEGMENTS` of linux/udp.h since 6.9, 64 before).
pub const MAX_BATCH_MESSAGES: usize = 128;

/// Maximum size of a coalesced packet: the length field of IP.
pub const MAX_COALESCED_BYTES: usize = 65_536;

/// [`Link::send_batch`] of a link that sends one message per operation, or any part of a stream.
///
/// # Errors
///
/// As [`Link::send`].
#[inline]
pub fn send_first<L: Link>(
    link: &mut L,
    messages: &[u8],
    message: usize,
    within: Duration,
) -> Result<usize, Fault> {
    match link.caps().framing {
        Framing::Stream => link.send(messages, within),
        Framing::Message => link.send(&messages[..messages.len().min(message)], within),
    }
}

/// [`Link::receive_batch`] of a link that receives one message per operation.
///
/// # Errors
///
/// As [`Link::receive`].
#[inline]
pub fn receive_single<L: Link>(link: &mut L, into: &mut Batch, within: Duration) -> Result<(), Fault> {
    into.clear();
    let length = link.receive(&mut into.bytes, within)?;
    into.push_span(0, length);
    Ok(())
}
