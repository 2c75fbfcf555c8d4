//! Latency: exchanges of a request and its answer, timed at the near end. In a closed loop, one at a time; or on a
//! schedule that does not wait for answers, so that a stall is seen by every message it held up.
//!
//! The near end is [`Pinger`], the far end [`Reflector`]. What is said in an exchange is an [`RequestReplyCodec`]: a peer may
//! replace it, never the pacing, the stop or the recorder.

mod echo;

use std::ops::Range;
use std::time::Duration;

pub use echo::EchoCodec;

use super::pattern::Alphabet;
use super::phases::{Phase, PhaseTracker, SendSchedule};
use super::{FlowResult, FlowRole, RecordingParty, ServerReport, Workload};
use crate::clock::Time;
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::plan::{Case, Direction, Pacing, StopCondition};
use crate::run::Figures;
use crate::sample::{Recorder, Sample, ServerTimestamps};

pub const WORKLOAD: Workload = Workload {
    name: "latency",
    summary: "round-trip time of messages, one at a time or on a schedule",
    default_stop: StopCondition { count: Some(10_000), time_ns: Some(10_000_000_000), volume_bytes: None },
    default_direction: Direction::Loop,
    default_timeout: Duration::from_secs(1),
    default_size: |_| 1,
    // The first exchanges pay for cold caches, ARP and slow start.
    default_warm_up: StopCondition { count: Some(100), time_ns: Some(500_000_000), volume_bytes: None },
    method,
    figures,
};

/// Largest answer taken in one piece; larger ones arrive in several.
const MAX_CHUNK_BYTES: usize = 65_536;

/// Messages that may be on their way at once on a schedule; beyond, the schedule waits and counts it.
const MAX_OUTSTANDING_REQUESTS: u64 = 16_384;

/// So many requests without a single reply, from the first one on, over so long a time: nothing there replies. With a time-out
/// shorter than the round trip every reply is late, and still tells that there is a server.
const MAX_UNANSWERED: u64 = 5;
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// Numbers remembered at least: so late may an answer be, in time-outs, and still be known as late.
const MIN_TRACKED_REQUESTS: u64 = 256;

fn method(case: &Case) -> String {
    let loop_ = match case.pacing {
        Pacing::Closed => "closed",
        Pacing::Fixed { .. } => "fixed-schedule",
        Pacing::Poisson { .. } => "poisson-schedule",
    };
    format!("latency/1 {loop_}")
}

fn figures(case: &Case, flows: &[FlowResult], _far: Option<&ServerReport>) -> Figures {
    super::merged_recorder(flows, FlowRole::RoundTrip)
        .map_or_else(Figures::default, |all| all.latency_figures(&case.late_limits))
}

/// What is said in an exchange, and when the answer is whole.
pub trait RequestReplyCodec: Send {
    fn encode_request(&mut self, sequence: u64) -> &[u8];

    /// How late it is, before each request; for those that carry the time.
    fn set_time(&mut self, _now: Time) {}

    /// Looks at bytes that came in; `waiting` are the numbers without an answer.
    fn parse_reply(&mut self, data: &[u8], waiting: Range<u64>) -> ReplyStatus;

    /// No answer to this number is waited for any longer.
    fn abandon(&mut self, _sequence: u64) {}

    /// Why the far end refused to answer, for one line.
    fn refusal_reason(&self) -> String {
        "the far end refuses to answer".to_owned()
    }

    /// Whole answers come with [`RequestReplyCodec::server_timestamps`].
    fn has_server_timestamps(&self) -> bool {
        false
    }

    /// What the far end told in the last answer of when it came and left.
    fn server_timestamps(&self) -> Option<ServerTimestamps> {
        None
    }

    /// Answers tell what they answer. Where they do not, one request is on its way at a time, and what still comes is
    /// read before the next one: after a lost exchange for as long as the time-out again.
    fn has_sequence_numbers(&self) -> bool {
        true
    }
}

/// What the bytes meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// All were taken, the answer is not whole yet.
    Incomplete,
    /// Number `sequence` is answered with the first `used` bytes, some of which may be wrong.
    Complete { sequence: u64, used: usize, corrupt_bytes: u64 },
    /// Number `sequence` is answered with the first `used` bytes, but not with what was expected.
    Unexpected { sequence: u64, used: usize },
    /// The first `used` bytes belong to no exchange.
    Unrelated { used: usize },
    /// What came up to the first `used` bytes is no answer, and nobody knows where it ends.
    Malformed { used: usize },
    /// The far end answers no question of this kind; [`RequestReplyCodec::refusal_reason`] says why.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Waiting,
    Answered,
    Lost,
}

/// One number on its way.
#[derive(Debug, Clone, Copy)]
struct RequestSlot {
    intended: Time,
    sent: Time,
    state: RequestState,
    is_measured: bool,
}

/// The near end: sends requests, matches answers, records.
pub struct Pinger {
    codec: Box<dyn RequestReplyCodec>,
    schedule: SendSchedule,
    phases: PhaseTracker,
    /// The next message is the first that counts.
    is_first_measured: bool,
    timeout: Duration,
    payload_bytes: u64,
    max_outstanding: u64,
    recorder: Recorder,
    tuning: Option<Tuning>,
    /// A ring, indexed by sequence number; twice the window, so that late answers and copies are known as such.
    slots: Vec<RequestSlot>,
    oldest_outstanding: u64,
    next_sequence: u64,
    highest_answered: Option<u64>,
    /// Bytes of the request being sent, and how many of them the link has taken.
    request_bytes: usize,
    sent_bytes: usize,
    /// Most bytes of a request offered at once.
    max_send_bytes: usize,
    /// The link was offered bytes; they are taken, or it was in vain.
    is_send_pending: bool,
    /// Since then nothing of an unfinished request has been taken.
    stalled_since: Option<Time>,
    /// Take what lies ready before sending on: the far end may be waiting for just that.
    must_receive_first: bool,
    is_closed: bool,
    is_refused: bool,
    batch: Batch,
    /// Whether answers have numbers; the next three matter only where they have none.
    has_sequence_numbers: bool,
    /// Nothing more was coming when last looked at, so that the next request can go.
    is_drained: bool,
    /// The late answer to a lost request is waited for until then.
    drain_until: Time,
    drain_since: Option<Time>,
    /// Requests given up before the first byte came, where it would take too long to go on with all that are planned.
    unanswered: Option<u64>,
    /// Recorded while the next answer is on its way, so that recording is not part of any latency.
    unrecorded_sample: Option<Sample>,
}

impl Pinger {
    pub fn new(
        exchange: Box<dyn RequestReplyCodec>,
        case: &Case,
        caps: &Caps,
        mut recorder: Recorder,
    ) -> Pinger {
        if exchange.has_server_timestamps() {
            recorder.expect_server_timestamps();
        }
        recorder.watch_missed_frames(&case.late_limits);
        let numbered = exchange.has_sequence_numbers();
        let window = match case.pacing {
            _ if !numbered => 1,
            Pacing::Closed => 1,
            _ => Alphabet::from_caps(caps)
                .max_distinguishable(case.message_bytes as usize)
                .min(MAX_OUTSTANDING_REQUESTS),
        };
        let slot = RequestSlot {
            intended: Time(0),
            sent: Time(0),
            state: RequestState::Answered,
            is_measured: false,
        };
        let room = match caps.framing {
            Framing::Stream => MAX_CHUNK_BYTES,
            Framing::Message => caps
                .max_message_bytes
                .unwrap_or(MAX_CHUNK_BYTES)
                .min(MAX_CHUNK_BYTES)
                .max(case.message_bytes as usize),
        };
        Pinger {
            codec: exchange,
            schedule: SendSchedule::new(case.pacing),
            phases: PhaseTracker::new(case.warm_up.unwrap_or_default(), case.stop).with_first_message(),
            is_first_measured: false,
            timeout: case.timeout,
            payload_bytes: u64::from(case.message_bytes),
            max_outstanding: window,
            recorder,
            tuning: Some(Tuning { wait: case.wait, cpu: case.pin.near, batch_message_bytes: None }),
            slots: vec![slot; (2 * window).max(MIN_TRACKED_REQUESTS).next_power_of_two() as usize],
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
            batch: Batch::new(room, 1),
            // Without a time to end it each request would take a time-out.
            unanswered: (caps.is_serial_device() || window == 1 && case.stop.time_ns.is_none()).then_some(0),
            unrecorded_sample: None,
        }
    }

    /// Whether strange bytes count: from the first message that does.
    fn is_measuring(&self) -> bool {
        self.phases.phase() != Phase::WarmUp && !self.is_first_measured
    }

    fn slot(&mut self, sequence: u64) -> &mut RequestSlot {
        let mask = self.slots.len() - 1;
        &mut self.slots[sequence as usize & mask]
    }

    /// Gives up what has waited too long; moves `oldest` over everything that is settled.
    fn expire_requests(&mut self, now: Time) {
        while self.oldest_outstanding < self.next_sequence {
            let (oldest, timeout) = (self.oldest_outstanding, self.timeout);
            let slot = self.slot(oldest);
            if slot.state == RequestState::Waiting {
                if now < slot.sent + timeout {
                    return;
                }
                slot.state = RequestState::Lost;
                let (intended, measured) = (slot.intended, slot.is_measured);
                if measured {
                    self.recorder.record_loss(now);
                    self.recorder.record_missed_frame(oldest, intended);
                }
                self.codec.abandon(oldest);
                self.unanswered = self.unanswered.map(|unanswered| unanswered + 1);
                self.drain_until = now + timeout;
            }
            self.oldest_outstanding += 1;
        }
    }

    fn record_pending(&mut self) {
        if let Some(sample) = self.unrecorded_sample.take() {
            self.recorder.record_reply(sample, self.payload_bytes);
        }
    }

    /// Whether the next request must wait for what may still come; a device that never falls silent is cut short.
    fn must_drain(&mut self, now: Time) -> bool {
        let since = *self.drain_since.get_or_insert(now);
        !self.is_drained && now < since + 2 * self.timeout
    }

    /// An answer to `sequence` is here.
    fn record_reply(&mut self, sequence: u64, corrupt_bytes: u64, wrong: bool, now: Time) {
        let known = self.next_sequence.saturating_sub(self.slots.len() as u64)..self.next_sequence;
        if !known.contains(&sequence) {
            let is_measuring = u64::from(self.is_measuring());
            // Further ahead than this it is no number of ours at all.
            match (self.next_sequence..self.next_sequence + self.slots.len() as u64).contains(&sequence) {
                true => self.recorder.counts.early += is_measuring,
                false => self.recorder.counts.corrupt_messages += is_measuring,
            }
            return;
        }
        let reordered = self.highest_answered.is_some_and(|highest| sequence < highest);
        let slot = self.slot(sequence);
        let (state, measured) = (slot.state, slot.is_measured);
        if state == RequestState::Lost {
            self.drain_until = now;
        }
        let slot = self.slot(sequence);
        let sample = Sample { sequence, intended: slot.intended, sent: slot.sent, received: now };
        if state == RequestState::Waiting {
            slot.state = RequestState::Answered;
            self.highest_answered = self.highest_answered.max(Some(sequence));
        }
        if !measured {
            return;
        }
        match state {
            RequestState::Waiting => {
                self.recorder.counts.reordered += u64::from(reordered);
                self.recorder.counts.corrupt_bytes += corrupt_bytes;
                self.recorder.counts.corrupt_messages += u64::from(wrong);
                self.record_pending();
                self.unrecorded_sample = Some(sample);
                if let Some(stages) = self.codec.server_timestamps() {
                    self.recorder.record_server_timestamps(sample, stages);
                }
            }
            RequestState::Lost => self.recorder.counts.late += 1,
            RequestState::Answered => self.recorder.counts.duplicate += 1,
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
            return Step::Fail(Fault::Other(self.codec.refusal_reason()));
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
            let due = self.schedule.due(now);
            if phase == Phase::Finished || waiting >= self.max_outstanding || due > now && waiting > 0 {
                let until =
                    if waiting >= self.max_outstanding || phase == Phase::Finished { gives_up } else { due };
                return Step::Receive { into: &mut self.batch, until: until.min(gives_up) };
            }
            if due > now {
                return Step::Sleep(due);
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
            let measured = self.phases.phase() == Phase::Measuring;
            if std::mem::take(&mut self.is_first_measured) {
                self.recorder.begin(at);
                self.phases.set_begin(at);
            }
            *self.slot(self.next_sequence) =
                RequestSlot { intended, sent: at, state: RequestState::Waiting, is_measured: measured };
        }
        self.sent_bytes += bytes;
        self.is_send_pending = false;
        if self.sent_bytes < self.request_bytes {
            (self.stalled_since, self.must_receive_first) = (Some(at), true);
        } else {
            self.sent_bytes = 0;
            self.stalled_since = None;
            self.next_sequence += 1;
            self.schedule.advance();
            if self.phases.phase() == Phase::Measuring {
                self.recorder.counts.sent += 1;
                // The schedule has moved on: if the message after this one is already due, this one was held up.
                let held_up = !self.schedule.is_closed_loop() && self.schedule.due(at) <= at;
                self.recorder.counts.missed_sends += u64::from(held_up);
            }
            self.phases.count_sent(1, self.payload_bytes);
            (self.is_drained, self.drain_since) = (self.has_sequence_numbers, None);
        }
        self.record_pending();
    }

    fn on_received(&mut self, now: Time) {
        self.unanswered = None;
        // Of what comes without end, one operation at a time is looked at before the next request, or the rest of one.
        self.must_receive_first = false;
        let batch = std::mem::take(&mut self.batch);
        // The answer to a long request may begin before all of it is sent.
        let sending = u64::from(self.sent_bytes > 0);
        for message in batch.messages() {
            let mut data = message;
            while !data.is_empty() {
                match self.codec.parse_reply(data, self.oldest_outstanding..self.next_sequence + sending) {
                    ReplyStatus::Incomplete => break,
                    ReplyStatus::Complete { sequence, used, corrupt_bytes } => {
                        self.record_reply(sequence, corrupt_bytes, corrupt_bytes > 0, now);
                        data = &data[used..];
                    }
                    ReplyStatus::Unexpected { sequence, used } => {
                        self.record_reply(sequence, 0, true, now);
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
            if self.is_closed {
                self.recorder.record_loss(slot.sent);
                self.recorder.record_missed_frame(sequence, slot.intended);
            } else {
                // Stopped in the middle: this one is neither answered nor lost, so it was not measured.
                self.recorder.counts.sent -= 1;
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

/// The far end: sends back what it gets, message by message or as a stream.
pub struct Reflector {
    batch: Batch,
    /// What of the batch is still to be sent back.
    unsent: Range<usize>,
    framing: Framing,
    tuning: Option<Tuning>,
    idle_timeout: Duration,
    last_received: Option<Time>,
    returned_bytes: u64,
    is_finished: bool,
}

impl Reflector {
    /// Ends when nothing came for `idle`.
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

    /// What came last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes sent back so far.
    pub fn returned_bytes(&self) -> u64 {
        self.returned_bytes
    }

    /// Sends `bytes` back first: they came before it was known that they are to be echoed.
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
