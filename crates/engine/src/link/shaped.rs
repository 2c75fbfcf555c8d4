//! A shaped path: delay, rate, queue and faults of a link in one direction.
//!
//! A `ShapedPath` is one direction: a queue, a line with a fixed rate behind it, and a delay behind that,
//! shared by all connections. A `ShapedPipe` holds the data of one connection in flight. Both receive the
//! time from the caller; they neither wait nor read a clock: `mem://` runs on them exactly on the virtual
//! clock, and [`ShapedLink`] wraps any link with them. Only payload counts, not headers.

use std::collections::VecDeque;
use std::time::Duration;

use super::Framing;
use linkgauge_model::clock::Time;
use linkgauge_model::stats::SplitMix64;

mod codel;
mod costs;
mod link;
mod policer;

use codel::Codel;
pub use costs::{MessageFrames, NodeCosts};
pub use link::{ShapedLink, SharedPath};
pub use policer::PolicedRate;
use policer::Policer;

/// Properties of one direction. The default changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Delay from the end of the line to the receiver.
    pub delay: Duration,
    /// The delay of each message or chunk is uniform between `delay - jitter` and `delay + jitter`; at most
    /// `delay`.
    pub jitter: Duration,
    /// Adds a long tail to the delay of each message or chunk: 50 % exceed this value, 10 % exceed 9 times
    /// it, 1 % exceed 99 times it, none exceeds 999 times it.
    pub tail: Duration,
    /// Messages or chunks whose delay grows by `spike`.
    pub spike_occurrence: Occurrence,
    /// The additional delay of those messages.
    pub spike_delay: Duration,
    /// Messages or chunks that wait for the medium, as in a busy radio cell: their delay grows by an exponentially
    /// distributed time.
    pub wait_occurrence: Occurrence,
    /// The mean of that time.
    pub mean_wait: Duration,
    /// Arrivals are aligned to multiples of this time, as in the slots of a radio; zero: no alignment.
    pub slot: Duration,
    /// Bits of payload per second, above zero; infinite for no limit.
    pub bits_per_second: f64,
    /// Bytes of a token bucket that fills at the rate: after an idle time they leave without waiting for the line, so
    /// only the mean rate is limited. Zero: every byte takes its time on the line.
    pub burst_bytes: u64,
    /// Bytes that the line carries in addition to each message or chunk, for headers.
    pub overhead_bytes: u64,
    /// Bytes that may wait for the line or be on it. Beyond, messages are dropped, and the sender of a stream
    /// waits.
    pub queue_bytes: u64,
    /// Cost of each message or chunk for the nodes at both ends, while the line carries it.
    pub costs: Option<NodeCosts>,
    /// Messages that are lost after the line.
    pub loss: Occurrence,
    /// Messages that arrive twice.
    pub duplicate: Occurrence,
    /// Messages overtaken by the next one of the same connection, if that is sent before they arrive.
    pub reorder: Occurrence,
    /// Messages above this rate are dropped before the line.
    pub police: Option<PolicedRate>,
    /// Method that keeps the queue short.
    pub queue_management: QueueManagement,
}

/// Method that keeps a queue short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueManagement {
    /// The maximum size of the queue alone keeps it short.
    #[default]
    TailDrop,
    /// CoDel (RFC 8289): drops messages while all of them wait longer than 5 ms for 100 ms. The sender of a stream waits
    /// while the queue holds what the line sends in 5 ms.
    Codel,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape::NONE
    }
}

impl Shape {
    /// Shape without delay, rate limit, queue limit and faults.
    pub const NONE: Shape = Shape {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        tail: Duration::ZERO,
        spike_occurrence: Occurrence::Never,
        spike_delay: Duration::ZERO,
        wait_occurrence: Occurrence::Never,
        mean_wait: Duration::ZERO,
        slot: Duration::ZERO,
        bits_per_second: f64::INFINITY,
        burst_bytes: 0,
        overhead_bytes: 0,
        queue_bytes: u64::MAX,
        costs: None,
        loss: Occurrence::Never,
        duplicate: Occurrence::Never,
        reorder: Occurrence::Never,
        police: None,
        queue_management: QueueManagement::TailDrop,
    };

    /// Whether messages may be lost, duplicated or reordered.
    pub fn has_faults(&self) -> bool {
        self.police.is_some()
            || [self.loss, self.duplicate, self.reorder].iter().any(|&often| often != Occurrence::Never)
    }

    /// Whether the queue may drop messages.
    fn may_drop_from_queue(&self) -> bool {
        self.queue_bytes != u64::MAX || self.queue_management != QueueManagement::TailDrop
    }

    /// Transmission time of this number of bytes.
    pub fn transmission_time(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * 8e9 / self.bits_per_second).round() as u64)
    }
}

/// Frequency of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Occurrence {
    /// The fault does not occur.
    Never,
    /// The fault occurs at every n-th message.
    Every(u64),
    /// A random share of the messages, from 0 to 1.
    Share(f64),
}

/// Decides for each message whether the fault occurs.
#[derive(Debug)]
struct OccurrenceDraw {
    occurrence: Occurrence,
    random: SplitMix64,
    seen: u64,
}

impl OccurrenceDraw {
    fn occurs(&mut self) -> bool {
        self.seen += 1;
        match self.occurrence {
            Occurrence::Never => false,
            Occurrence::Every(n) => self.seen.is_multiple_of(n),
            Occurrence::Share(share) => self.random.uniform() < share,
        }
    }
}

/// Counters of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Payload bytes delivered.
    pub bytes: u64,
    /// Number of deliveries, and the lateness of the first byte of each: sum and maximum.
    pub receive_count: u64,
    /// Sum of the lateness.
    pub total_lateness: Duration,
    /// Maximum lateness.
    pub max_lateness: Duration,
    /// Messages dropped because the queue was full.
    pub dropped: u64,
    /// Messages dropped because they exceeded the policed rate.
    pub policed: u64,
    /// Messages dropped to keep the queue short.
    pub managed: u64,
    /// Messages lost as a fault.
    pub lost: u64,
    /// Messages delivered twice.
    pub duplicated: u64,
    /// Messages held back until the next one has passed.
    pub overtaken: u64,
}

impl PathCounters {
    /// Records a delivery of `bytes` that were due `late` ago.
    fn record(&mut self, bytes: usize, late: Duration) {
        self.bytes += bytes as u64;
        self.receive_count += 1;
        self.total_lateness += late;
        self.max_lateness = self.max_lateness.max(late);
    }
}

/// Record of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRecord {
    /// Number among all messages of the path, from 0.
    pub number: u64,
    /// The time at which it enters the path.
    pub arrival: Time,
    /// Payload bytes.
    pub bytes: usize,
    /// The treatment of the message.
    pub fate: MessageFate,
    /// Time from `arrival` to delivery; `None` if it is dropped or lost. For an overtaken message: the delay
    /// before that.
    pub delay: Option<Duration>,
}

/// The treatment of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFate {
    /// The message is delivered once, in order.
    Passed,
    /// The queue was full.
    Dropped,
    /// The message is above the policed rate.
    Policed,
    /// The message is dropped to keep the queue short.
    Managed,
    /// The message is lost as a fault.
    Lost,
    /// The message is delivered twice.
    Duplicated,
    /// The next message overtakes it, if that is sent before this one arrives.
    Overtaken,
}

impl MessageFate {
    /// The name in logs.
    pub fn name(self) -> &'static str {
        match self {
            MessageFate::Passed => "passed",
            MessageFate::Dropped => "dropped",
            MessageFate::Policed => "policed",
            MessageFate::Managed => "managed",
            MessageFate::Lost => "lost",
            MessageFate::Duplicated => "twice",
            MessageFate::Overtaken => "overtaken",
        }
    }
}

/// Called for each message when it enters the path.
pub struct MessageLog(pub Box<dyn FnMut(MessageRecord) + Send>);

impl std::fmt::Debug for MessageLog {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Log")
    }
}

/// One direction of a link, shared by its connections.
#[derive(Debug)]
pub(crate) struct ShapedPath {
    shape: Shape,
    /// The line has been busy since then with these bytes: a schedule without accumulated rounding.
    busy_from: Time,
    busy_bytes: u64,
    free_at: Time,
    /// The nodes have been busy until then.
    nodes_free_at: Time,
    jitter: SplitMix64,
    has_faults: bool,
    loss: OccurrenceDraw,
    duplicate: OccurrenceDraw,
    reorder: OccurrenceDraw,
    policer: Option<Policer>,
    codel: Codel,
    tail: SplitMix64,
    spike: OccurrenceDraw,
    wait: OccurrenceDraw,
    /// The time of the line that a full token bucket saves.
    burst_time: Duration,
    /// The counters since the path was made.
    pub(crate) counters: PathCounters,
    log: Option<MessageLog>,
    /// Messages that entered the path.
    message_count: u64,
    /// Memory of all pipes, where it is counted.
    in_flight_bytes: usize,
    /// Streams whose senders have more than the queue takes: they share it.
    held_up_streams: usize,
    /// Due time of the last message or chunk that was busy-polled for.
    last_busy_polled: Time,
}

/// Bytes of a packet on Ethernet.
const MAX_PACKET_BYTES: u64 = 1514;

/// Limit of the tail: one message in a thousand would exceed it, some by hours.
const MAX_TAIL_FACTOR: f64 = 999.0;

/// The fate of a message or chunk.
struct Transit {
    due: Time,
    is_duplicated: bool,
    is_overtaken: bool,
}

impl ShapedPath {
    /// An idle path. The same seed has the same effect on the same messages.
    pub fn new(shape: Shape, seed: u64) -> ShapedPath {
        let mut seeds = SplitMix64::new(seed);
        let mut random = || SplitMix64::new(seeds.uniform().to_bits());
        ShapedPath {
            jitter: random(),
            loss: OccurrenceDraw { occurrence: shape.loss, random: random(), seen: 0 },
            duplicate: OccurrenceDraw { occurrence: shape.duplicate, random: random(), seen: 0 },
            reorder: OccurrenceDraw { occurrence: shape.reorder, random: random(), seen: 0 },
            tail: random(),
            spike: OccurrenceDraw { occurrence: shape.spike_occurrence, random: random(), seen: 0 },
            wait: OccurrenceDraw { occurrence: shape.wait_occurrence, random: random(), seen: 0 },
            burst_time: shape.transmission_time(shape.burst_bytes),
            policer: shape.police.map(Policer::new),
            codel: Codel::default(),
            has_faults: shape.has_faults(),
            shape,
            busy_from: Time(0),
            busy_bytes: 0,
            free_at: Time(0),
            nodes_free_at: Time(0),
            counters: PathCounters::default(),
            log: None,
            message_count: 0,
            in_flight_bytes: 0,
            held_up_streams: 0,
            last_busy_polled: Time(0),
        }
    }

    /// The shape of the path.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes that wait for the line or are on it.
    fn backlog(&self, now: Time) -> u64 {
        let waiting = self.last_departure().since(now);
        if waiting.is_zero() {
            return 0;
        }
        (waiting.as_nanos() as f64 * self.shape.bits_per_second / 8e9).ceil() as u64
    }

    /// Bytes that the queue takes of a stream now.
    fn free_bytes(&self, now: Time) -> u64 {
        self.stream_queue_bytes().saturating_sub(self.backlog(now))
    }

    /// Bytes of streams that may wait for the line or be on it.
    fn stream_queue_bytes(&self) -> u64 {
        let Shape { queue_bytes, bits_per_second, queue_management, .. } = self.shape;
        match queue_management {
            QueueManagement::TailDrop => queue_bytes,
            QueueManagement::Codel => {
                let at_target = (bits_per_second / 8.0 * codel::TARGET.as_secs_f64()) as u64;
                queue_bytes.min(at_target.max(2 * MAX_PACKET_BYTES))
            }
        }
    }

    /// Whether CoDel drops a message that enters now.
    fn is_dropped_by_codel(&mut self, now: Time) -> bool {
        let leaves = self.last_departure().max(now);
        let is_last = self.backlog(now) <= MAX_PACKET_BYTES;
        self.shape.queue_management == QueueManagement::Codel
            && self.codel.drops(leaves, leaves.since(now), is_last)
    }

    /// The time at which the queue is half empty.
    fn half_empty_at(&self) -> Time {
        let half = self.shape.transmission_time(self.stream_queue_bytes() / 2);
        Time(self.last_departure().0.saturating_sub(half.as_nanos() as u64))
    }

    /// The time at which the last byte so far leaves the line. A token bucket lets it leave before the line would have
    /// sent it.
    fn last_departure(&self) -> Time {
        Time(self.free_at.0.saturating_sub(self.burst_time.as_nanos() as u64))
    }

    /// Whether the queue has room for a message. A message larger than the queue passes if the queue is
    /// empty.
    fn has_room_for(&self, bytes: u64, now: Time) -> bool {
        let backlog = self.backlog(now);
        backlog == 0 || backlog.saturating_add(bytes) <= self.shape.queue_bytes
    }

    /// Occupies the line with these bytes; returns the time at which it has sent them.
    fn occupy(&mut self, bytes: u64, now: Time) -> Time {
        if self.shape.bits_per_second.is_infinite() {
            return now;
        }
        if now > self.free_at {
            (self.busy_from, self.busy_bytes) = (now, 0);
        }
        self.busy_bytes += bytes;
        self.free_at = self.busy_from + self.shape.transmission_time(self.busy_bytes);
        self.last_departure().max(now)
    }

    /// Occupies the nodes with a message; returns the time at which it has passed them.
    fn occupy_nodes(&mut self, bytes: u64, now: Time) -> Time {
        let Some(costs) = &self.shape.costs else { return now };
        let start = self.nodes_free_at.max(now);
        self.nodes_free_at = start + costs.interval(bytes);
        start + costs.passage(bytes)
    }

    /// The delay of one message or chunk.
    fn draw_delay(&mut self) -> Duration {
        let Shape { mut delay, jitter, tail, spike_delay: spike, mean_wait, .. } = self.shape;
        let times = |duration: Duration, factor: f64| {
            Duration::from_nanos((duration.as_nanos() as f64 * factor).round() as u64)
        };
        if !jitter.is_zero() {
            delay = (delay + times(jitter, 2.0 * self.jitter.uniform())).saturating_sub(jitter);
        }
        if !tail.is_zero() {
            let share = self.tail.uniform();
            delay += times(tail, (share / (1.0 - share)).min(MAX_TAIL_FACTOR));
        }
        if self.spike.occurs() {
            delay += spike;
        }
        if self.wait.occurs() {
            delay += times(mean_wait, -(1.0 - self.wait.random.uniform()).ln());
        }
        delay
    }

    /// The next slot, if the path has slots.
    fn align_to_slot(&self, due: Time) -> Time {
        let slot = self.shape.slot.as_nanos() as u64;
        due.0.checked_next_multiple_of(slot).map_or(due, Time)
    }

    /// The end of a stream takes as long as its last byte.
    fn transit_end(&mut self, now: Time) -> Time {
        self.occupy(0, now) + self.shape.delay
    }

    /// Occupies the line with bytes that are not delivered.
    pub(crate) fn discard(&mut self, bytes: usize, now: Time) {
        let _ = self.transit(bytes, Framing::Stream, now);
    }

    fn transit(&mut self, bytes: usize, framing: Framing, now: Time) -> Option<Transit> {
        if framing == Framing::Message
            && self.policer.as_mut().is_some_and(|policer| !policer.admits(bytes, now))
        {
            self.counters.policed += 1;
            self.log_message(bytes, now, MessageFate::Policed, None);
            return None;
        }
        if framing == Framing::Message && !self.has_room_for(bytes as u64, now) {
            self.drop_message(bytes, now);
            return None;
        }
        if framing == Framing::Message && self.is_dropped_by_codel(now) {
            self.counters.managed += 1;
            self.log_message(bytes, now, MessageFate::Managed, None);
            return None;
        }
        let line = self.occupy(bytes as u64 + self.shape.overhead_bytes, now);
        let line = line.max(self.occupy_nodes(bytes as u64, now));
        let due = line + self.draw_delay();
        let due = self.align_to_slot(due);
        let passage = self.apply_faults(due);
        if framing == Framing::Message {
            let fate = match &passage {
                None => MessageFate::Lost,
                Some(Transit { is_duplicated: true, .. }) => MessageFate::Duplicated,
                Some(Transit { is_overtaken: true, .. }) => MessageFate::Overtaken,
                Some(_) => MessageFate::Passed,
            };
            self.log_message(bytes, now, fate, passage.as_ref().map(|passage| passage.due - now));
        }
        passage
    }

    /// Drops a message because the queue is full.
    fn drop_message(&mut self, bytes: usize, now: Time) {
        self.counters.dropped += 1;
        self.log_message(bytes, now, MessageFate::Dropped, None);
    }

    fn log_message(&mut self, bytes: usize, arrival: Time, fate: MessageFate, delay: Option<Duration>) {
        let number = self.message_count;
        self.message_count += 1;
        if let Some(MessageLog(log_record)) = &mut self.log {
            log_record(MessageRecord { number, arrival, bytes, fate, delay });
        }
    }

    /// The transit of a message due at `due`, unless it is lost.
    fn apply_faults(&mut self, due: Time) -> Option<Transit> {
        if !self.has_faults {
            return Some(Transit { due, is_duplicated: false, is_overtaken: false });
        }
        let [lost, twice, overtaken] =
            [&mut self.loss, &mut self.duplicate, &mut self.reorder].map(OccurrenceDraw::occurs);
        self.counters.lost += u64::from(lost);
        self.counters.duplicated += u64::from(twice && !lost);
        (!lost).then_some(Transit { due, is_duplicated: twice, is_overtaken: overtaken })
    }
}

/// A message, or a chunk of a stream, in flight.
#[derive(Debug)]
struct Chunk {
    due: Time,
    bytes: Vec<u8>,
    /// The next message overtakes it.
    is_overtaken: bool,
}

/// The data of one connection on a path: in flight, or arrived and not yet received.
#[derive(Debug)]
pub(crate) struct ShapedPipe {
    framing: Framing,
    /// Chunks in order of arrival.
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that have been received.
    taken_bytes: usize,
    held_bytes: usize,
    last_due: Time,
    /// The last message is to be overtaken.
    is_last_overtaken: bool,
    end_at: Option<Time>,
    /// Buffers for reuse.
    spare_buffers: Vec<Vec<u8>>,
}

/// Maximum number of spare buffers, each the size of a typical write.
const MAX_SPARE_BUFFERS: usize = 16;
const MAX_SPARE_BUFFER_BYTES: usize = 256 * 1024;

/// Smallest memory block of an allocator.
const MIN_ALLOCATION_BYTES: usize = 32;

impl ShapedPipe {
    /// An empty pipe for a stream or for messages.
    pub fn new(framing: Framing) -> ShapedPipe {
        ShapedPipe {
            framing,
            chunks: VecDeque::new(),
            taken_bytes: 0,
            held_bytes: 0,
            last_due: Time(0),
            is_last_overtaken: false,
            end_at: None,
            spare_buffers: Vec::new(),
        }
    }

    /// Payload bytes in the pipe.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Approximate memory use in bytes.
    fn memory_bytes(&self) -> usize {
        self.held_bytes + self.chunks.len() * (size_of::<Chunk>() + MIN_ALLOCATION_BYTES)
    }

    /// Sends a message, or a chunk of a stream.
    pub(crate) fn send(&mut self, path: &mut ShapedPath, bytes: &[u8], now: Time) {
        let Some(passage) = path.transit(bytes.len(), self.framing, now) else { return };
        let mut due = passage.due;
        if self.framing == Framing::Stream {
            // Whatever its delay, a byte waits for the bytes before it.
            due = due.max(self.last_due);
            self.last_due = due;
        }
        let overtaken = self.take_overtaken(now);
        if passage.is_duplicated {
            self.insert_copy(Chunk { due, bytes: Vec::new(), is_overtaken: false }, bytes);
        }
        self.insert_copy(Chunk { due, bytes: Vec::new(), is_overtaken: passage.is_overtaken }, bytes);
        self.is_last_overtaken = passage.is_overtaken;
        if let Some(chunk) = overtaken {
            path.counters.overtaken += 1;
            // The overtaking message cannot arrive before it was sent, and the overtaken one follows it.
            self.insert(Chunk { due: chunk.due.max(due), is_overtaken: false, ..chunk });
        }
    }

    /// Takes the message that the next one overtakes, unless it has already arrived.
    fn take_overtaken(&mut self, now: Time) -> Option<Chunk> {
        if !std::mem::take(&mut self.is_last_overtaken) {
            return None;
        }
        let at = self.chunks.iter().rposition(|chunk| chunk.is_overtaken)?;
        self.chunks[at].is_overtaken = false;
        if self.chunks[at].due > now { self.chunks.remove(at) } else { None }
    }

    /// Inserts the chunk with a copy of the bytes.
    fn insert_copy(&mut self, chunk: Chunk, bytes: &[u8]) {
        let mut copy = self.spare_buffers.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        self.held_bytes += bytes.len();
        self.insert(Chunk { bytes: copy, ..chunk });
    }

    fn insert(&mut self, chunk: Chunk) {
        if self.chunks.back().is_none_or(|last| last.due <= chunk.due) {
            return self.chunks.push_back(chunk);
        }
        let at = self.chunks.partition_point(|other| other.due <= chunk.due);
        self.chunks.insert(at, chunk);
    }

    /// Bytes that arrive after `time`, counted up to about `most`.
    fn bytes_after(&self, time: Time, most: usize) -> usize {
        let mut bytes = 0;
        for chunk in self.chunks.iter().rev().take_while(|chunk| chunk.due > time) {
            bytes += chunk.bytes.len();
            if bytes >= most {
                break;
            }
        }
        bytes
    }

    /// Arrival time of the next message or chunk; the end of the stream does not count.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.chunks.front().map(|chunk| chunk.due)
    }

    /// Receives data that has arrived by `now`: one message, truncated to the length of `into`, or as much of
    /// the stream as fits.
    pub(crate) fn receive(&mut self, into: &mut [u8], now: Time) -> Option<usize> {
        let mut filled = 0;
        while let Some(chunk) = self.chunks.front().filter(|chunk| chunk.due <= now) {
            if self.framing == Framing::Stream && filled == into.len() {
                break;
            }
            let left = &chunk.bytes[self.taken_bytes..];
            let part = left.len().min(into.len() - filled);
            into[filled..filled + part].copy_from_slice(&left[..part]);
            filled += part;
            let is_complete = self.framing == Framing::Message || part == left.len();
            self.taken_bytes += part;
            self.held_bytes -= if is_complete { left.len() } else { part };
            if is_complete {
                self.recycle_first();
            }
            if self.framing == Framing::Message {
                return Some(filled);
            }
        }
        (filled > 0).then_some(filled)
    }

    fn recycle_first(&mut self) {
        self.taken_bytes = 0;
        if let Some(Chunk { mut bytes, .. }) = self.chunks.pop_front()
            && self.spare_buffers.len() < MAX_SPARE_BUFFERS
            && bytes.capacity() <= MAX_SPARE_BUFFER_BYTES
        {
            bytes.clear();
            self.spare_buffers.push(bytes);
        }
    }

    /// Ends sending. The reader sees the end at `at`, after the last chunk.
    pub fn finish(&mut self, at: Time) {
        self.end_at = self.end_at.or(Some(at));
    }

    /// Whether sending has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.end_at.is_some()
    }

    /// The time at which the reader sees the end, provided that it has received all chunks.
    fn end_after_last(&self) -> Option<Time> {
        self.end_at.filter(|_| self.chunks.is_empty())
    }

    /// Whether the reader has received everything and sees the end.
    pub(crate) fn is_ended(&self, now: Time) -> bool {
        self.end_after_last().is_some_and(|end| end <= now)
    }
}

#[cfg(test)]
mod tests;
