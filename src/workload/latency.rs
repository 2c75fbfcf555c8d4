//! Latency: round trips of a request and its reply, timed at the client. A closed loop has one request in flight. A
//! schedule does not wait for replies, so that a stall affects every message it delays.
//!
//! The client is [`Pinger`], the server [`Reflector`]. A protocol may replace the [`RequestReplyCodec`], but not the
//! pacing, the stop or the recorder.

mod echo;
mod stamped;

use std::ops::Range;
use std::time::Duration;

pub use echo::EchoCodec;
pub use stamped::{STAMPED_BYTES, StampedEchoCodec, StampingReflector};

use super::pattern::Alphabet;
use super::phases::{Phase, PhaseTracker, SendSchedule};
use super::{FlowRole, Load, MeasuredFlows, RecordingParty, TrafficKind, Workload};
use crate::clock::Time;
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::plan::{Direction, Pacing, StopCondition};
use crate::run::Figures;
use crate::sample::{ProbePeriod, Recorder, Sample, ServerTimestamps};

/// The `latency` workload, for [`WORKLOADS`](super::WORKLOADS).
pub const WORKLOAD: Workload = Workload {
    name: "latency",
    summary: "round-trip time of messages, one at a time or on a schedule",
    traffic: TrafficKind::RoundTrips,
    default_stop: StopCondition {
        count: Some(10_000),
        time_ns: Some(10_000_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    has_repetitions: true,
    default_direction: Direction::Loop,
    default_timeout: Duration::from_secs(1),
    default_size: |_| 1,
    // The first round trips include cold caches, ARP and slow start.
    default_warm_up: StopCondition {
        count: Some(100),
        time_ns: Some(500_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    method,
    figures,
};

/// Largest receive in bytes; a longer reply arrives in several chunks.
const MAX_CHUNK_BYTES: usize = 65_536;

/// Maximum requests in flight on a schedule. Beyond it the schedule waits and counts a missed send.
const MAX_OUTSTANDING_REQUESTS: u64 = 16_384;

/// The same limits for each of many connections, so that one takes a few kilobytes.
const MAX_OUTSTANDING_OF_MANY: u64 = 64;
const MANY_CHUNK_BYTES: usize = 4096;
const MIN_TRACKED_OF_MANY: u64 = 4;

/// A run ends early after this many requests without any reply, over at least this time. With a timeout shorter than
/// the round trip all replies are late, but they prove that a server is running.
const MAX_UNANSWERED: u64 = 5;
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// Minimum number of tracked requests. It sets how late, in timeouts, a reply is still recognised as late.
const MIN_TRACKED_REQUESTS: u64 = 256;

fn method(pacing: Pacing) -> String {
    let loop_ = match pacing {
        Pacing::Closed => "closed",
        Pacing::Fixed { .. } => "fixed-schedule",
        Pacing::Poisson { .. } => "poisson-schedule",
        Pacing::ThinkTime { .. } => "think-time",
    };
    format!("latency/1 {loop_}")
}

fn figures(measured: &MeasuredFlows) -> Figures {
    super::merged_recorder(measured.flows, FlowRole::RoundTrip)
        .map_or_else(Figures::default, |all| all.latency_figures(measured.late_limits))
}

/// Encodes requests and decodes replies.
pub trait RequestReplyCodec: Send {
    /// The request with this sequence number.
    fn encode_request(&mut self, sequence: u64) -> &[u8];

    /// Sets the current time before each request, for requests with a timestamp.
    fn set_time(&mut self, _now: Time) {}

    /// Parses received bytes; `waiting` are the sequence numbers without a reply.
    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus;

    /// Gives up waiting for a reply to this number.
    fn abandon(&mut self, _sequence: u64) {}

    /// Why the server refused to reply, in one line.
    fn refusal_reason(&self) -> String {
        "the server refuses to reply".to_owned()
    }

    /// Whether complete replies have [`RequestReplyCodec::server_timestamps`].
    fn has_server_timestamps(&self) -> bool {
        false
    }

    /// Receive and send time of the last request, as the server reported them.
    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        None
    }

    /// Whether replies identify their requests. If not, only one request is in flight, and the input is drained before
    /// the next one: after a lost request for the duration of another timeout.
    fn has_sequence_numbers(&self) -> bool {
        true
    }
}

/// Result of parsing received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// All bytes were consumed; the reply is not complete yet.
    Incomplete,
    /// The first `used` bytes are the reply to `sequence`; some of them may be corrupt.
    Complete {
        /// Sequence number of the request.
        sequence: u64,
        /// Bytes to remove from the input.
        used: usize,
        /// Bytes of the reply with unexpected content.
        corrupt_bytes: u64,
    },
    /// The first `used` bytes are a reply to `sequence`, but with unexpected content.
    Unexpected {
        /// Sequence number of the request.
        sequence: u64,
        /// Bytes to remove from the input.
        used: usize,
    },
    /// The first `used` bytes belong to no round trip.
    Unrelated {
        /// Bytes to remove from the input.
        used: usize,
    },
    /// The first `used` bytes are not a reply, and the end of the bad data is unknown.
    Malformed {
        /// Bytes to remove from the input.
        used: usize,
    },
    /// The server does not support this kind of request; see [`RequestReplyCodec::refusal_reason`].
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Waiting,
    Answered,
    Lost,
}

/// What is wrong with a reply that has a valid number.
#[derive(Debug, Clone, Copy)]
struct Corruption {
    /// Bytes that differ from the expected ones.
    bytes: u64,
    /// 1 if its content is not that of the reply.
    messages: u64,
}

/// One sequence number in flight.
#[derive(Debug, Clone, Copy)]
struct RequestSlot {
    intended: Time,
    sent: Time,
    state: RequestState,
    is_measured: bool,
    period: ProbePeriod,
}

/// Requests that may be in flight, if replies identify them.
fn max_outstanding_requests(load: &Load, caps: &Caps) -> u64 {
    match load.pacing {
        Pacing::Closed | Pacing::ThinkTime { .. } => 1,
        _ => Alphabet::from_caps(caps)
            .max_distinguishable(load.message_bytes as usize)
            .min(MAX_OUTSTANDING_REQUESTS)
            .min(if load.is_one_of_many() { MAX_OUTSTANDING_OF_MANY } else { u64::MAX }),
    }
}

/// Bytes that one call may receive.
fn max_received_bytes(load: &Load, caps: &Caps) -> usize {
    match caps.framing {
        Framing::Stream if load.is_one_of_many() => MANY_CHUNK_BYTES,
        Framing::Stream => MAX_CHUNK_BYTES,
        Framing::Message => caps
            .max_message_bytes
            .unwrap_or(MAX_CHUNK_BYTES)
            .min(MAX_CHUNK_BYTES)
            .max(load.message_bytes as usize),
    }
}

/// The client: sends requests, matches replies, records.
pub struct Pinger {
    codec: Box<dyn RequestReplyCodec>,
    schedule: SendSchedule,
    phases: PhaseTracker,
    /// The next message is the first one after the warm-up.
    is_first_measured: bool,
    timeout: Duration,
    payload_bytes: u64,
    max_outstanding: u64,
    recorder: Recorder,
    tuning: Option<Tuning>,
    /// A ring, indexed by sequence number. It is twice the window, to recognise late and duplicate replies.
    slots: Vec<RequestSlot>,
    oldest_outstanding: u64,
    next_sequence: u64,
    highest_answered: Option<u64>,
    /// Size of the current request, and how many of its bytes the link has taken.
    request_bytes: usize,
    sent_bytes: usize,
    /// Maximum bytes of a request for one send.
    max_send_bytes: usize,
    /// A send is pending: the link takes the bytes or reports that it could not.
    is_send_pending: bool,
    /// Since this time the link has taken nothing of an unfinished request.
    stalled_since: Option<Time>,
    /// Receive pending input before the next send: the server may be blocked until the client reads.
    must_receive_first: bool,
    is_closed: bool,
    is_refused: bool,
    batch: Batch,
    /// Whether replies have sequence numbers. The next three fields matter only if they do not.
    has_sequence_numbers: bool,
    /// The last receive found no input, so the next request can be sent.
    is_drained: bool,
    /// End of the wait for the late reply to a lost request.
    drain_until: Time,
    drain_since: Option<Time>,
    /// Requests lost before the first reply; set if waiting for all planned requests would take too long.
    unanswered: Option<u64>,
    /// Recorded while the next reply is in flight, so that recording is not part of any latency.
    unrecorded_sample: Option<(Sample, ProbePeriod)>,
}

impl Pinger {
    /// A client for one flow over a link with these capabilities. `codec` defines the layout of requests and
    /// replies.
    pub fn new(
        codec: Box<dyn RequestReplyCodec>,
        load: &Load,
        caps: &Caps,
        mut recorder: Recorder,
    ) -> Pinger {
        if codec.has_server_timestamps() {
            recorder.expect_server_timestamps();
        }
        let numbered = codec.has_sequence_numbers();
        let window = if numbered { max_outstanding_requests(load, caps) } else { 1 };
        let min_tracked = if load.is_one_of_many() { MIN_TRACKED_OF_MANY } else { MIN_TRACKED_REQUESTS };
        let slot = RequestSlot {
            intended: Time(0),
            sent: Time(0),
            state: RequestState::Answered,
            is_measured: false,
            period: ProbePeriod::Loaded,
        };
        let schedule = SendSchedule::new(load.pacing).sharing(load.flow_index, load.flows);
        let phases = PhaseTracker::new(load.warm_up, load.stop);
        Pinger {
            codec,
            // Not every flow has a turn in the time of a shared schedule.
            phases: if schedule.is_shared() { phases } else { phases.with_first_message() },
            schedule,
            is_first_measured: false,
            timeout: load.timeout,
            payload_bytes: u64::from(load.message_bytes),
            max_outstanding: window,
            recorder,
            tuning: Some(load.tuning()),
            slots: vec![slot; (2 * window).max(min_tracked).next_power_of_two() as usize],
            oldest_outstanding: 0,
            next_sequence: 0,
            highest_answered: None,
            request_bytes: 0,
            sent_bytes: 0,
            has_sequence_numbers: numbered,
            is_drained: numbered,
            drain_until: Time(0),
            drain_since: None,
            max_send_bytes: if caps.framing == Framing::Stream { MAX_CHUNK_BYTES } else { usize::MAX },
            is_send_pending: false,
            stalled_since: None,
            must_receive_first: false,
            is_closed: false,
            is_refused: false,
            batch: Batch::new(max_received_bytes(load, caps), 1),
            // Without a time limit each request would take a full timeout.
            unanswered: (caps.is_serial_device() || window == 1 && load.stop.time_ns.is_none()).then_some(0),
            unrecorded_sample: None,
        }
    }

    /// Whether unexpected bytes count: only after the warm-up.
    fn is_measuring(&self) -> bool {
        self.phases.phase() != Phase::WarmUp && !self.is_first_measured
    }

    fn slot(&mut self, sequence: u64) -> &mut RequestSlot {
        let mask = self.slots.len() - 1;
        &mut self.slots[sequence as usize & mask]
    }

    /// Expires overdue requests and moves `oldest` past all settled ones.
    fn expire_requests(&mut self, now: Time) {
        while self.oldest_outstanding < self.next_sequence {
            let (oldest, timeout) = (self.oldest_outstanding, self.timeout);
            let slot = self.slot(oldest);
            if slot.state == RequestState::Waiting {
                if now < slot.sent + timeout {
                    return;
                }
                slot.state = RequestState::Lost;
                let RequestSlot { intended, is_measured, period, .. } = *slot;
                if is_measured {
                    self.recorder.of_period(period).record_loss(now);
                    self.recorder.of_period(period).record_missed_frame(oldest, intended);
                }
                self.codec.abandon(oldest);
                self.unanswered = self.unanswered.map(|unanswered| unanswered + 1);
                self.drain_until = now + timeout;
            }
            self.oldest_outstanding += 1;
        }
    }

    fn record_pending(&mut self) {
        if let Some((sample, period)) = self.unrecorded_sample.take() {
            self.recorder.record_reply_in(period, sample, self.payload_bytes);
        }
    }

    /// Whether late input must be drained before the next request. The wait is bounded for devices that send
    /// continuously.
    fn must_drain(&mut self, now: Time) -> bool {
        let since = *self.drain_since.get_or_insert(now);
        !self.is_drained && now < since + 2 * self.timeout
    }

    /// Records the reply to `sequence`.
    fn record_reply(&mut self, sequence: u64, corruption: Corruption, now: Time) {
        let known = self.next_sequence.saturating_sub(self.slots.len() as u64)..self.next_sequence;
        if !known.contains(&sequence) {
            let is_measuring = u64::from(self.is_measuring());
            // A number further ahead than this was never used.
            match (self.next_sequence..self.next_sequence + self.slots.len() as u64).contains(&sequence) {
                true => self.recorder.counts.early += is_measuring,
                false => self.recorder.counts.corrupt_messages += is_measuring,
            }
            return;
        }
        let reordered = self.highest_answered.is_some_and(|highest| sequence < highest);
        let slot = self.slot(sequence);
        let RequestSlot { state, is_measured, period, .. } = *slot;
        if state == RequestState::Lost {
            self.drain_until = now;
        }
        let slot = self.slot(sequence);
        let sample = Sample { sequence, intended: slot.intended, sent: slot.sent, received: now };
        if state == RequestState::Waiting {
            slot.state = RequestState::Answered;
            self.highest_answered = self.highest_answered.max(Some(sequence));
        }
        if !is_measured {
            return;
        }
        let counts = &mut self.recorder.of_period(period).counts;
        match state {
            RequestState::Waiting => {
                counts.reordered += u64::from(reordered);
                counts.corrupt_bytes += corruption.bytes;
                counts.corrupt_messages += corruption.messages;
                self.record_pending();
                self.unrecorded_sample = Some((sample, period));
                if let Some(stages) = self.codec.server_timestamps() {
                    self.recorder.record_server_timestamps(sample, stages);
                }
            }
            RequestState::Lost => counts.late += 1,
            RequestState::Answered => counts.duplicate += 1,
        }
    }
}

impl Party for Pinger {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        self.expire_requests(now);
        if self.is_refused {
            return Step::Fail(Fault::Refused(self.codec.refusal_reason()));
        }
        let is_silent = |&unanswered: &u64| {
            let silence = self.timeout.saturating_mul(u32::try_from(unanswered).unwrap_or(u32::MAX));
            unanswered >= MAX_UNANSWERED && silence >= LEAST_SILENCE
        };
        if self.unanswered.as_ref().is_some_and(is_silent) {
            return Step::Fail(Fault::TimedOut);
        }
        let waiting = self.next_sequence - self.oldest_outstanding;
        let gives_up =
            if waiting > 0 { self.slot(self.oldest_outstanding).sent + self.timeout } else { Time::NEVER };
        if self.is_send_pending {
            (self.is_send_pending, self.must_receive_first) = (false, true);
            self.stalled_since.get_or_insert(now);
        }
        if self.stalled_since.is_some_and(|since| now >= since + self.timeout) {
            return Step::Fail(Fault::TimedOut);
        }
        if self.must_receive_first {
            return Step::Receive { into: &mut self.batch, until: now };
        }
        if self.sent_bytes == 0 {
            let (phase, begins) = self.phases.advance_to(now);
            self.is_first_measured |= begins;
            if phase == Phase::Finished {
                self.stalled_since = None;
                if waiting == 0 {
                    return Step::Done;
                }
            }
            // The pause before a request begins with the reply to the previous one.
            let due = if waiting < self.max_outstanding { self.schedule.due(now) } else { now };
            if phase == Phase::Finished || waiting >= self.max_outstanding || due > now && waiting > 0 {
                let until =
                    if waiting >= self.max_outstanding || phase == Phase::Finished { gives_up } else { due };
                return Step::Receive { into: &mut self.batch, until: until.min(gives_up) };
            }
            if due > now {
                // The time of a shared schedule does not wait for the next turn of a flow.
                let until = if self.schedule.is_shared() { due.min(self.phases.time_limit()) } else { due };
                return Step::Sleep(until);
            }
            if !self.has_sequence_numbers && self.must_drain(now) {
                return Step::Receive { into: &mut self.batch, until: self.drain_until.max(now) };
            }
        }
        self.codec.set_time(now);
        let request = self.codec.encode_request(self.next_sequence);
        self.request_bytes = request.len();
        self.is_send_pending = true;
        let rest = &request[self.sent_bytes..];
        Step::Send { bytes: &rest[..rest.len().min(self.max_send_bytes)], message: request.len() }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if self.sent_bytes == 0 {
            let intended = if self.schedule.is_closed_loop() { at } else { self.schedule.due(at) };
            let is_measured = self.phases.phase() == Phase::Measuring;
            if std::mem::take(&mut self.is_first_measured) && !self.schedule.is_shared() {
                self.phases.set_begin(at);
            }
            let period = self.recorder.period_at(at);
            let recorder = self.recorder.of_period(period);
            if is_measured && recorder.first_instant.is_none() {
                recorder.begin(at);
            }
            *self.slot(self.next_sequence) =
                RequestSlot { intended, sent: at, state: RequestState::Waiting, is_measured, period };
        }
        self.sent_bytes += bytes;
        self.is_send_pending = false;
        if self.sent_bytes < self.request_bytes {
            (self.stalled_since, self.must_receive_first) = (Some(at), true);
        } else {
            self.sent_bytes = 0;
            self.stalled_since = None;
            let period = self.slot(self.next_sequence).period;
            self.next_sequence += 1;
            self.schedule.advance();
            if self.phases.phase() == Phase::Measuring {
                let counts = &mut self.recorder.of_period(period).counts;
                counts.sent += 1;
                // The schedule has advanced: if the next message is already due, this one was delayed.
                let held_up = !self.schedule.is_closed_loop() && self.schedule.due(at) <= at;
                counts.missed_sends += u64::from(held_up);
            }
            self.phases.count_sent(1, self.payload_bytes);
            (self.is_drained, self.drain_since) = (self.has_sequence_numbers, None);
        }
        self.record_pending();
    }

    fn on_received(&mut self, now: Time) {
        self.unanswered = None;
        // With continuous input, one receive is enough before the next send.
        self.must_receive_first = false;
        let batch = std::mem::take(&mut self.batch);
        // The reply to a long request may begin before all of the request is sent.
        let sending = u64::from(self.sent_bytes > 0);
        for message in batch.messages() {
            let mut data = message;
            while !data.is_empty() {
                match self.codec.parse_reply(data, self.oldest_outstanding..self.next_sequence + sending) {
                    ReplyStatus::Incomplete => break,
                    ReplyStatus::Complete { sequence, used, corrupt_bytes } => {
                        let messages = u64::from(corrupt_bytes > 0);
                        self.record_reply(sequence, Corruption { bytes: corrupt_bytes, messages }, now);
                        data = &data[used..];
                    }
                    ReplyStatus::Unexpected { sequence, used } => {
                        self.record_reply(sequence, Corruption { bytes: 0, messages: 1 }, now);
                        data = &data[used..];
                    }
                    ReplyStatus::Unrelated { used } => {
                        if self.is_measuring() {
                            self.recorder.counts.corrupt_bytes += used as u64;
                        }
                        data = &data[used..];
                    }
                    ReplyStatus::Malformed { used } => {
                        if self.is_measuring() {
                            self.recorder.counts.corrupt_messages += 1;
                        }
                        data = &data[used..];
                    }
                    ReplyStatus::Refused => {
                        self.is_refused = true;
                        break;
                    }
                }
            }
        }
        self.batch = batch;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.is_drained |= self.oldest_outstanding == self.next_sequence;
        self.must_receive_first = false;
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_closed = true;
        Err(Fault::Closed)
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.record_pending();
        self.recorder.finish();
        for sequence in self.oldest_outstanding..self.next_sequence {
            let slot = *self.slot(sequence);
            if !slot.is_measured || slot.state != RequestState::Waiting {
                continue;
            }
            let recorder = self.recorder.of_period(slot.period);
            if self.is_closed {
                recorder.record_loss(slot.sent);
                recorder.record_missed_frame(sequence, slot.intended);
            } else {
                // Stopped in the middle: this request is neither complete nor lost, so it does not count.
                recorder.counts.sent -= 1;
            }
        }
        self.oldest_outstanding = self.next_sequence;
    }
}

impl RecordingParty for Pinger {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

/// The server: returns received bytes, message by message or as a stream.
pub struct Reflector {
    batch: Batch,
    /// The part of the batch that is still to be returned.
    unsent: Range<usize>,
    framing: Framing,
    tuning: Option<Tuning>,
    idle_timeout: Duration,
    last_received: Option<Time>,
    returned_bytes: u64,
    is_finished: bool,
}

impl Reflector {
    /// Ends after `idle` without input.
    pub fn new(framing: Framing, largest: usize, tuning: Tuning, idle: Duration) -> Reflector {
        Reflector {
            batch: Batch::new(largest, 1),
            unsent: 0..0,
            framing,
            tuning: Some(tuning),
            idle_timeout: idle,
            last_received: None,
            returned_bytes: 0,
            is_finished: false,
        }
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes returned so far.
    pub fn returned_bytes(&self) -> u64 {
        self.returned_bytes
    }

    /// Returns `bytes` first: they arrived before the protocol was known to be an echo.
    pub fn with_initial_bytes(mut self, bytes: &[u8]) -> Reflector {
        self.batch.bytes[..bytes.len()].copy_from_slice(bytes);
        self.unsent = 0..bytes.len();
        self
    }
}

impl Party for Reflector {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if !self.unsent.is_empty() {
            return Step::Send { bytes: &self.batch.bytes[self.unsent.clone()], message: self.unsent.len() };
        }
        if self.is_finished {
            return Step::Done;
        }
        let last = *self.last_received.get_or_insert(now);
        Step::Receive { into: &mut self.batch, until: last + self.idle_timeout }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, _at: Time) {
        self.unsent.start += bytes;
        self.returned_bytes += bytes as u64;
        if self.framing == Framing::Message {
            self.unsent = 0..0;
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.last_received = Some(now);
        let length = self.batch.messages().next().map_or(0, <[u8]>::len);
        self.unsent = 0..length;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.is_finished = true;
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
