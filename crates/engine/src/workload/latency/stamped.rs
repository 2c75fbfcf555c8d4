//! Round trips with the times of the server: it writes into each request when it arrived and when its reply left.
//!
//! ```text
//! number[8] arrived[8] left[8] pattern
//! ```
//!
//! The number is that of an echo. The times are nanoseconds of the server's clock, big-endian; requests have zeros there.
//! Where the kernels stamp messages, more follows, with zeros for what is not known:
//!
//! ```text
//! receive[4] earlier[8] send[4] queue[4]
//! ```
//!
//! Nanoseconds from the kernel's stamp of the request to its arrival at the program; the number of an earlier reply, as it
//! stands in its message; and the time from its leaving the program to the two stamps of it, one after the other.

use std::ops::Range;
use std::time::Duration;

use super::stages::{EarlierReply, ReplyStages};
use super::{Reflector, ReplyStatus, RequestReplyCodec};
use crate::link::party::{Party, Step};
use crate::link::stamps::{SendPoint, SendStamps};
use crate::link::{Caps, Fault, Framing};
use crate::workload::Load;
use crate::workload::pattern::{self, Alphabet, PatternMessage, SEQUENCE_BYTES};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::{CommonTime, ServerTimestamps};

/// Bytes of the number and the times: the smallest message.
pub const STAMPED_BYTES: usize = SEQUENCE_BYTES + 16;

/// Position of the times in a message.
const ARRIVED: Range<usize> = SEQUENCE_BYTES..SEQUENCE_BYTES + 8;
const LEFT: Range<usize> = SEQUENCE_BYTES + 8..STAMPED_BYTES;

/// Minimum size of a message with stamps of the kernel, in bytes.
pub const STAGED_BYTES: usize = STAMPED_BYTES + 20;

/// Position of the stamps in a message.
const RECEIVE: Range<usize> = STAMPED_BYTES..STAMPED_BYTES + 4;
const EARLIER: Range<usize> = RECEIVE.end..RECEIVE.end + SEQUENCE_BYTES;
const SEND: Range<usize> = EARLIER.end..EARLIER.end + 4;
const QUEUE: Range<usize> = SEND.end..STAGED_BYTES;

/// Client side of round trips with the server's times.
pub struct StampedEchoCodec {
    message: PatternMessage,
    framing: Framing,
    /// Start of a reply that arrives in several chunks, and number of all its bytes so far.
    header: [u8; STAGED_BYTES],
    /// Bytes of the number, the times and the stamps.
    header_bytes: usize,
    received_bytes: usize,
    corrupt_bytes: u64,
    timestamps: Option<ServerTimestamps>,
    stages: Option<ReplyStages>,
    common_time: Option<CommonTime>,
}

impl StampedEchoCodec {
    /// Codec for messages of at least [`STAMPED_BYTES`], or [`STAGED_BYTES`] with stamps.
    pub fn new(load: &Load, caps: &Caps) -> StampedEchoCodec {
        let mut message = PatternMessage::new(load.message_bytes as usize, Alphabet::from_caps(caps));
        let header_bytes = if load.stamps { STAGED_BYTES } else { STAMPED_BYTES };
        message.clear(SEQUENCE_BYTES..header_bytes);
        StampedEchoCodec {
            message,
            framing: caps.framing,
            header: [0; STAGED_BYTES],
            header_bytes,
            received_bytes: 0,
            corrupt_bytes: 0,
            timestamps: None,
            stages: None,
            common_time: None,
        }
    }

    /// Sets the offset of the clocks by common time, if both hosts follow it.
    pub(crate) fn with_common_time(self, common_time: Option<CommonTime>) -> StampedEchoCodec {
        StampedEchoCodec { common_time, ..self }
    }

    /// Completes a reply whose header is complete.
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
        if self.header_bytes == STAGED_BYTES {
            self.stages = Some(self.read_stages(sequence));
        }
        ReplyStatus::Complete { sequence, used, corrupt_bytes }
    }

    fn read_stages(&self, sequence: u64) -> ReplyStages {
        let known = |at: Range<usize>| {
            let ns = u32::from_be_bytes(self.header[at].try_into().expect("4 bytes"));
            (ns > 0).then(|| u64::from(ns))
        };
        let earlier = || {
            let (send_ns, queue_ns) = (known(SEND)?, known(QUEUE)?);
            let sequence = self.message.read_sequence(&self.header[EARLIER], sequence)?;
            Some(EarlierReply { sequence, send_ns, queue_ns })
        };
        let times = self.timestamps.map(|times| times.sent_ns.wrapping_sub(times.received_ns));
        ReplyStages {
            receive_ns: known(RECEIVE),
            program_ns: times.and_then(|ns| u64::try_from(ns).ok()),
            earlier: earlier(),
        }
    }
}

impl RequestReplyCodec for StampedEchoCodec {
    fn encode_request(&mut self, sequence: u64) -> &[u8] {
        self.message.set_sequence(sequence)
    }

    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus {
        (self.timestamps, self.stages) = (None, None);
        let length = self.message.bytes().len();
        if self.framing == Framing::Message && data.len() != length {
            return ReplyStatus::Malformed { used: data.len() };
        }
        let used = data.len().min(length - self.received_bytes);
        let start = self.received_bytes;
        let in_header = self.header_bytes.saturating_sub(start).min(used);
        self.header[start.min(self.header_bytes)..][..in_header].copy_from_slice(&data[..in_header]);
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

    fn common_time(&self) -> Option<CommonTime> {
        self.common_time
    }

    fn has_reply_stages(&self) -> bool {
        self.header_bytes == STAGED_BYTES
    }

    fn reply_stages(&self) -> Option<ReplyStages> {
        self.stages
    }
}

/// Server side: returns messages of a known size, with its times in them.
pub struct StampingReflector {
    reflector: Reflector,
    message_bytes: usize,
    /// Position in the message at which the batch begins.
    offset: usize,
    /// Arrival time of the current message.
    arrived: Time,
    /// Whether the clock was read again after the receipt, or after a part was sent.
    has_reread_clock: bool,
    /// Tracker of the replies' stamps, only where the kernel stamps messages.
    stages: Option<Box<ReplyTracker>>,
}

impl StampingReflector {
    /// Size of one receive in bytes, which is most of the memory of a reflector.
    pub(crate) fn receive_bytes(caps: &Caps, load: &Load) -> usize {
        match caps.framing {
            Framing::Stream if load.is_one_of_many() => super::MANY_CHUNK_BYTES,
            Framing::Stream => super::MAX_CHUNK_BYTES,
            Framing::Message => caps.max_message_bytes.unwrap_or(super::MAX_CHUNK_BYTES),
        }
    }

    /// Reflector for messages of `message_bytes`, which ends after `idle` without input.
    pub fn new(caps: &Caps, load: &Load, message_bytes: usize, idle: Duration) -> StampingReflector {
        let largest = StampingReflector::receive_bytes(caps, load);
        StampingReflector {
            reflector: Reflector::new(caps.framing, largest, load.tuning(), idle),
            message_bytes: message_bytes.max(if load.stamps { STAGED_BYTES } else { STAMPED_BYTES }),
            offset: 0,
            arrived: Time(0),
            has_reread_clock: false,
            stages: load.stamps.then(|| Box::new(ReplyTracker::new(caps.framing))),
        }
    }

    /// The reflector that returns the messages.
    pub(crate) fn reflector(&self) -> &Reflector {
        &self.reflector
    }

    /// Writes a time into `field` of the messages in the unsent bytes: `first` into the first one if it is the rest of a message.
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

impl StampingReflector {
    /// Writes the known stamps of the kernel into a batch that is one whole message, which leaves now. The messages
    /// of other batches have none.
    fn write_stages(&mut self, now: Time) {
        let Reflector { batch, unsent, .. } = &mut self.reflector;
        let is_whole = self.offset == 0 && *unsent == (0..self.message_bytes);
        let (Some(stages), true) = (&mut self.stages, is_whole) else { return };
        let stamp = batch.arrived();
        let message = &mut batch.bytes[unsent.clone()];
        if let Some(ns) = stamp.and_then(|stamp| nanoseconds_between(stamp, self.arrived)) {
            message[RECEIVE].copy_from_slice(&ns.to_be_bytes());
        }
        if let Some((number, send, queue)) = stages.latest.take() {
            message[EARLIER].copy_from_slice(&number);
            message[SEND].copy_from_slice(&send.to_be_bytes());
            message[QUEUE].copy_from_slice(&queue.to_be_bytes());
        }
        let number = message[..SEQUENCE_BYTES].try_into().expect("8 bytes");
        stages.replies[stages.next % TRACKED_REPLIES] =
            Some(StampedReply { number, id: None, left: now, queued: None });
        stages.is_sending = true;
    }
}

/// Number of replies whose stamps may still arrive.
const TRACKED_REPLIES: usize = 64;

/// A time in the form of a message: at least 1, because 0 stands for an unknown one. Stamps are rounded.
fn nanoseconds_between(from: Time, to: Time) -> Option<u32> {
    const ROUNDING_NS: u64 = 1_000;
    (from.0 <= to.0 + ROUNDING_NS).then_some(())?;
    u32::try_from(to.0.saturating_sub(from.0).max(1)).ok()
}

/// A reply that waits for its stamps.
#[derive(Debug, Clone, Copy)]
struct StampedReply {
    number: [u8; SEQUENCE_BYTES],
    /// Identifier of the reply's stamps.
    id: Option<u32>,
    left: Time,
    queued: Option<Time>,
}

/// Matches the kernel's stamps to the replies.
#[derive(Debug)]
struct ReplyTracker {
    stamps: SendStamps,
    framing: Framing,
    replies: [Option<StampedReply>; TRACKED_REPLIES],
    /// Index of the slot for the next reply.
    next: usize,
    /// Whether the reply in that slot is being sent.
    is_sending: bool,
    /// Number of sends, or of bytes on a stream, so far.
    sent: u32,
    must_read: bool,
    /// Newest reply with both stamps: its number, and the times before them.
    latest: Option<([u8; SEQUENCE_BYTES], u32, u32)>,
}

impl ReplyTracker {
    pub fn new(framing: Framing) -> ReplyTracker {
        ReplyTracker {
            stamps: SendStamps::new(),
            framing,
            replies: [None; TRACKED_REPLIES],
            next: 0,
            is_sending: false,
            sent: 0,
            must_read: false,
            latest: None,
        }
    }

    fn on_sent(&mut self, bytes: usize) {
        self.sent = self.sent.wrapping_add(if self.framing == Framing::Stream { bytes as u32 } else { 1 });
        self.must_read = true;
        if std::mem::take(&mut self.is_sending) {
            if let Some(reply) = &mut self.replies[self.next % TRACKED_REPLIES] {
                reply.id = Some(self.sent.wrapping_sub(1));
            }
            self.next += 1;
        }
    }

    /// Whether the stamps are to be read now. Uses those of the last reading.
    fn take_must_read(&mut self) -> bool {
        self.settle();
        std::mem::take(&mut self.must_read)
    }

    fn settle(&mut self) {
        self.must_read |= self.stamps.is_full();
        for stamp in self.stamps.iter() {
            let slot =
                self.replies.iter_mut().find(|slot| slot.is_some_and(|reply| reply.id == Some(stamp.id)));
            let Some(slot) = slot else { continue };
            let Some(reply) = slot else { continue };
            match (stamp.point, reply.queued) {
                (SendPoint::Queued, _) => reply.queued = Some(stamp.at),
                (SendPoint::Departed, Some(queued)) => {
                    let send = nanoseconds_between(reply.left, queued);
                    let queue = nanoseconds_between(queued, stamp.at);
                    self.latest = send.zip(queue).map(|(send, queue)| (reply.number, send, queue));
                    *slot = None;
                }
                (SendPoint::Departed, None) => *slot = None,
            }
        }
        self.stamps.clear();
    }
}

impl Party for StampingReflector {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.stages.as_mut().is_some_and(|stages| stages.take_must_read())
            && let Some(ref mut stages) = self.stages
        {
            return Step::ReadStamps(&mut stages.stamps);
        }
        if self.reflector.tuning.is_none() && !self.reflector.unsent.is_empty() {
            // The time of leaving is not that of the arrival.
            if !std::mem::replace(&mut self.has_reread_clock, true) {
                return Step::Sleep(now);
            }
            self.write(LEFT, now, now);
            self.write_stages(now);
        }
        self.reflector.next_step(now)
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.has_reread_clock = false;
        self.reflector.on_sent(bytes, at);
        if let Some(stages) = &mut self.stages {
            stages.on_sent(bytes);
        }
        if self.reflector.framing == Framing::Stream {
            self.offset = (self.offset + bytes) % self.message_bytes;
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.has_reread_clock = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_leaving_is_read_after_the_message_was_processed() {
        let datagrams = Caps { framing: Framing::Message, max_message_bytes: Some(100), ..Caps::STREAM };
        for caps in [datagrams, Caps::STREAM] {
            let load = Load::endless(64);
            let mut reflector = StampingReflector::new(&caps, &load, 64, Duration::from_secs(1));
            let mut codec = StampedEchoCodec::new(&load, &caps);
            assert!(matches!(reflector.next_step(Time(0)), Step::Tune(_)));
            let request = codec.encode_request(0).to_vec();
            let Step::Receive { into, .. } = reflector.next_step(Time(0)) else { panic!("it receives") };
            into.bytes[..64].copy_from_slice(&request);
            into.push_span(0, 64);
            reflector.on_received(Time(1000));
            // The loop reads the clock in this step.
            assert!(matches!(reflector.next_step(Time(1000)), Step::Sleep(Time(1000))));
            let Step::Send { bytes, .. } = reflector.next_step(Time(1250)) else { panic!("it replies") };
            codec.parse_reply(bytes, 0..1);
            let times = codec.server_timestamps().unwrap();
            assert_eq!((times.received_ns, times.sent_ns), (1000, 1250));
            // A reply that the link takes later leaves later.
            assert!(matches!(reflector.next_step(Time(2000)), Step::Send { .. }));
        }
    }

    #[test]
    fn times_of_a_server_that_contradict_each_other_are_absent() {
        let datagrams = Caps { framing: Framing::Message, max_message_bytes: Some(100), ..Caps::STREAM };
        let load = Load { stamps: true, ..Load::endless(64) };
        for (left, program_ns) in [(1250_u64, Some(250)), (1000, Some(0)), (999, None)] {
            let mut codec = StampedEchoCodec::new(&load, &datagrams);
            let mut reply = codec.encode_request(0).to_vec();
            reply[ARRIVED].copy_from_slice(&1000_u64.to_be_bytes());
            reply[LEFT].copy_from_slice(&left.to_be_bytes());
            codec.parse_reply(&reply, 0..1);
            assert_eq!(codec.stages.map(|stages| stages.program_ns), Some(program_ns));
        }
    }
}
