//! The messages of one receive operation, in memory that is allocated once.

use std::cell::Cell;
use std::time::Duration;

use super::{Fault, Framing, Link};
use linkgauge_model::clock::Time;
use linkgauge_system::IpFields;

/// Messages received in one operation. Fixed size: nothing is allocated after construction.
#[derive(Debug, Default)]
pub struct Batch {
    /// The memory of the messages. Empty between two receives if the thread lends it.
    pub bytes: Vec<u8>,
    /// Bytes reserved per message, where a link fills several at once.
    pub slot_bytes: usize,
    /// The memory is that of the thread.
    is_lent: bool,
    pub(crate) spans: Spans,
    /// Requests fields of the IP header of messages, where the link supports it.
    pub(crate) wants_ip_fields: bool,
    pub(crate) ip_fields: IpFields,
    /// Messages with a CE mark, where the link reads marks.
    pub(crate) ce_messages: u64,
    /// Time at which the device passed the newest of these messages to the kernel, where the link was tuned for stamps.
    pub(crate) arrived: Option<Time>,
}

/// The sizes of what a receive got, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizes {
    /// Bytes of all messages together.
    pub total: u64,
    /// Bytes of the longest message.
    pub longest: usize,
    /// Whether no more would have fit.
    pub is_full: bool,
}

impl Batch {
    /// Bytes of memory for `messages` messages of at most `slot` bytes.
    pub(crate) fn bytes_for(slot: usize, messages: usize) -> usize {
        // A link may receive a whole coalesced packet at once, whatever the size of its messages.
        if messages > 1 { slot.saturating_mul(messages).max(MAX_COALESCED_BYTES) } else { slot }
    }

    /// Makes a batch for `messages` messages of at most `slot` bytes.
    pub fn new(slot: usize, messages: usize) -> Batch {
        let bytes = Batch::bytes_for(slot, messages);
        Batch {
            bytes: vec![0; bytes],
            slot_bytes: slot,
            // Several messages never arrive in less.
            spans: Spans::with_capacity(if bytes < MAX_COALESCED_BYTES { 1 } else { MAX_BATCH_MESSAGES }),
            ..Batch::default()
        }
    }

    /// Makes a batch for a part of a stream of at most `slot` bytes, in memory that the thread lends for a receive. Idle streams
    /// then need no memory, and busy streams use the same memory, which stays in the caches. The user of the messages returns the
    /// memory with [`Batch::return_memory`].
    pub fn lent(slot: usize) -> Batch {
        Batch { slot_bytes: slot, is_lent: true, ..Batch::default() }
    }

    /// Takes the memory of the thread before a receive, if this batch has none. Only the first use in a thread, and the
    /// first while other batches keep what they received, allocate.
    #[inline]
    pub fn borrow_memory(&mut self) {
        if self.is_lent && self.bytes.is_empty() {
            self.bytes = THREAD_MEMORY.take();
            if self.bytes.len() != self.slot_bytes {
                self.bytes.resize(self.slot_bytes, 0);
            }
        }
    }

    /// Returns the memory to the thread if it is lent; the messages are gone then.
    #[inline]
    pub fn return_memory(&mut self) {
        if self.is_lent && !self.bytes.is_empty() {
            self.spans.clear();
            THREAD_MEMORY.set(std::mem::take(&mut self.bytes));
        }
    }

    /// Makes a batch for one message with fields of its IP header.
    pub(crate) fn with_ip_fields(slot: usize) -> Batch {
        Batch { wants_ip_fields: true, ..Batch::new(slot, 1) }
    }

    /// Fields of the IP header of the message, if requested and supported.
    pub(crate) fn ip_fields(&self) -> IpFields {
        self.ip_fields
    }

    /// Messages whose IP header shows congestion (CE), where the link reads marks.
    pub(crate) fn ce_messages(&self) -> u64 {
        self.ce_messages
    }

    /// Time at which the device passed the newest of these messages to the kernel, where the kernel stamped it.
    pub(crate) fn arrived(&self) -> Option<Time> {
        self.arrived
    }

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.ip_fields = IpFields::default();
        self.ce_messages = 0;
        self.arrived = None;
    }

    /// Records a message at `start`. The caller ensures that the count fits.
    pub fn push_span(&mut self, start: usize, length: usize) {
        debug_assert!(self.len() < MAX_BATCH_MESSAGES);
        self.spans.push(start, length);
    }

    /// The messages, in order; one chunk on a stream.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|(start, length)| &self.bytes[start as usize..(start + length) as usize])
    }

    /// Bytes of all messages together.
    pub fn total_bytes(&self) -> u64 {
        self.spans.iter().map(|(_, length)| u64::from(length)).sum()
    }

    /// The sizes of what was received.
    #[inline]
    pub(crate) fn sizes(&self) -> BatchSizes {
        let (mut total, mut longest) = (0, 0);
        for (_, length) in self.spans.iter() {
            total += u64::from(length);
            longest = longest.max(length as usize);
        }
        BatchSizes { total, longest, is_full: total >= self.bytes.len() as u64 }
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.spans.first.is_none()
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        usize::from(self.spans.first.is_some()) + self.spans.others.len()
    }
}

/// Start and length of each message. A stream has only one entry, and takes no memory for more.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    first: Option<(u32, u32)>,
    others: Vec<(u32, u32)>,
}

impl Spans {
    fn with_capacity(messages: usize) -> Spans {
        Spans { first: None, others: Vec::with_capacity(messages - 1) }
    }

    #[inline]
    pub fn push(&mut self, start: usize, length: usize) {
        let span = (start as u32, length as u32);
        match self.first {
            None => self.first = Some(span),
            Some(_) => self.others.push(span),
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.first = None;
        self.others.clear();
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.first.into_iter().chain(self.others.iter().copied())
    }
}

thread_local! {
    /// Memory that the batches of a thread borrow.
    static THREAD_MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
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
pub(crate) fn send_first<L: Link>(
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
pub(crate) fn receive_single<L: Link>(link: &mut L, into: &mut Batch, within: Duration) -> Result<(), Fault> {
    into.clear();
    let length = link.receive(&mut into.bytes, within)?;
    into.push_span(0, length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_batches_of_a_thread_use_the_same_memory() {
        let mut batches = [Batch::lent(100), Batch::lent(100)];
        let mut places = Vec::new();
        for batch in &mut batches {
            batch.borrow_memory();
            assert_eq!(batch.bytes.len(), 100);
            batch.bytes[..3].copy_from_slice(b"abc");
            batch.push_span(0, 3);
            assert_eq!(batch.messages().collect::<Vec<_>>(), [b"abc"]);
            places.push(batch.bytes.as_ptr());
            batch.return_memory();
            assert!(batch.is_empty() && batch.bytes.is_empty());
        }
        assert_eq!(places[0], places[1]);
    }

    #[test]
    fn a_batch_that_keeps_its_messages_leaves_other_memory_to_the_next_one() {
        let [mut first, mut second] = [Batch::lent(10), Batch::lent(20)];
        first.borrow_memory();
        first.bytes.fill(1);
        first.push_span(0, 10);
        second.borrow_memory();
        second.bytes.fill(2);
        assert_eq!((second.bytes.len(), first.messages().next()), (20, Some(&[1; 10][..])));
        // A second receive before the memory is returned keeps it.
        first.borrow_memory();
        assert_eq!(first.bytes, [1; 10]);
    }
}
