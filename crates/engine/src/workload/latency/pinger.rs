//! The client of the latency workload: sends requests, matches replies, records.

use std::ops::Range;
use std::time::Duration;

use super::outgoing::{LateReplies, OutgoingRequest};
use super::stages::StageTracker;
use super::window::{RequestSlot, RequestState, RequestWindow, WindowSize};
use super::{MAX_CHUNK_BYTES, ReplyStatus, RequestReplyCodec};
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, prefetch};
use crate::workload::pattern::Alphabet;
use crate::workload::phases::{Phase, PhaseTracker, SendSchedule};
use crate::workload::redial::{OpeningEnd, RequestsPerConnection};
use crate::workload::silence::FinalSilence;
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::sample::{
    ProbePeriod, Recorder, ReplyEventKind, Sample, StageTimes, StampedEnds, event_ns,
};

/// Maximum requests in flight on a schedule. Beyond it the schedule waits and counts a missed send.
pub(super) const MAX_OUTSTANDING_REQUESTS: u64 = 16_384;

/// Maximum requests in flight on a schedule for each of many connections, so that one takes a few kilobytes.
const MAX_OUTSTANDING_OF_MANY: u64 = 64;

/// Maximum requests in flight on a schedule for a flow of few requests, besides those of its rate.
const MAX_OUTSTANDING_OF_FEW: u64 = 16;

/// Number of requests without any reply, over at least this time, after which a run ends early. With a timeout shorter than
/// the round trip all replies are late, but they prove that a server is running.
const MAX_UNANSWERED: u64 = 5;
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// Number of requests of a schedule that may be in flight after a stall, as a multiple of the usual number.
const BURST_FACTOR: f64 = 8.0;

/// Round trip that is not recorded yet.
struct UnrecordedSample {
    sample: Sample,
    period: ProbePeriod,
    /// Latencies of the requests just before and after this one.
    neighbours_ns: [Option<u64>; 2],
}

/// Defect of a reply that has a valid number.
#[derive(Debug, Clone, Copy)]
struct Corruption {
    /// Number of bytes that differ from the expected ones.
    bytes: u64,
    /// 1 if the content is not that of the reply.
    messages: u64,
}

impl Corruption {
    /// Kind of such a reply to a request in this state.
    fn kind_of_reply(self, state: RequestState) -> ReplyEventKind {
        match (state, self.bytes + self.messages > 0) {
            (RequestState::Waiting, true) => ReplyEventKind::CorruptReply,
            (RequestState::Waiting, false) => ReplyEventKind::Reply,
            (RequestState::Lost, _) => ReplyEventKind::Late,
            (RequestState::Received, true) => ReplyEventKind::CorruptDuplicate,
            (RequestState::Received, false) => ReplyEventKind::Duplicate,
        }
    }
}

/// Number of requests that may be in flight, if replies identify them.
fn window_size(load: &Load, caps: &Caps, is_numbered: bool) -> WindowSize {
    let min_tracked = min_tracked_requests(load);
    if !is_numbered || load.pacing.per_second().is_none() {
        return WindowSize { max_outstanding: 1, min_tracked, numbers: None };
    }
    let needed = outstanding_by_rate(load);
    let distinguishable = Alphabet::from_caps(caps).max_distinguishable(load.message_bytes as usize);
    let is_short = distinguishable < needed && distinguishable <= 2 * MAX_OUTSTANDING_REQUESTS;
    let numbers = is_short.then_some(2 * distinguishable);
    let most = if load.is_one_of_many() { MAX_OUTSTANDING_OF_MANY } else { MAX_OUTSTANDING_REQUESTS };
    let max_outstanding = needed.min(most).min(numbers.unwrap_or(distinguishable));
    WindowSize { max_outstanding, min_tracked, numbers }
}

/// Upper limit of the requests that a schedule has in flight, even in bursts: they expire after the timeout.
fn outstanding_by_rate(load: &Load) -> u64 {
    let Some(per_second) = load.pacing.per_second() else { return u64::MAX };
    let expected = per_second * load.timeout.as_secs_f64();
    let least = if load.has_few_samples() { MAX_OUTSTANDING_OF_FEW } else { MAX_OUTSTANDING_OF_MANY };
    ((BURST_FACTOR * expected) as u64).saturating_add(least)
}

/// Minimum number of tracked requests. It sets how late, in timeouts, a reply is still recognised as late.
fn min_tracked_requests(load: &Load) -> u64 {
    match (load.is_one_of_many(), load.has_few_samples()) {
        (true, _) => 4,
        (false, true) => 64,
        (false, false) => 256,
    }
}

/// Memory for one receive.
fn new_batch(load: &Load, caps: &Caps) -> Batch {
    match caps.framing {
        Framing::Stream if load.is_one_of_many() || load.has_few_samples() => Batch::lent(MAX_CHUNK_BYTES),
        Framing::Stream => Batch::new(MAX_CHUNK_BYTES, 1),
        Framing::Message => {
            let longest = caps.max_message_bytes.unwrap_or(MAX_CHUNK_BYTES).min(MAX_CHUNK_BYTES);
            Batch::new(longest.max(load.message_bytes as usize), 1)
        }
    }
}

/// Client of the latency workload. The fields that every step uses come first, and those that few use are boxed, because the
/// caches hold none of ten thousand clients.
#[repr(C)]
pub struct Pinger {
    /// Settings of the link, until the first step.
    tuning: Option<Box<Tuning>>,
    /// Tracker of the stages, only where the kernel stamps messages.
    stages: Option<Box<StageTracker>>,
    /// State of the connection, only where the link is opened again after some requests.
    connection: Option<Box<RequestsPerConnection>>,
    codec: Box<dyn RequestReplyCodec>,
    /// Whether the next message is the first one after the warm-up.
    is_first_measured: bool,
    is_closed: bool,
    is_refused: bool,
    /// Number of bytes that arrived after the last reply.
    stray_bytes: u64,
    /// Number of requests lost before the first reply; set if waiting for all planned requests would take too long.
    unanswered: Option<u64>,
    /// Requests without a reply at the end; absent where a further measurement follows, or other connections show more.
    silence: Option<FinalSilence>,
    window: RequestWindow,
    timeout: Duration,
    outgoing: OutgoingRequest,
    schedule: SendSchedule,
    late_replies: LateReplies,
    batch: Batch,
    phases: PhaseTracker,
    /// Round trip that is recorded while the next reply is in flight, so that recording is not part of any latency.
    unrecorded_sample: Option<UnrecordedSample>,
    payload_bytes: u64,
    recorder: Recorder,
}

/// Makes room for the stages of round trips in the recorder, and a tracker for them.
fn track_stages(
    codec: &dyn RequestReplyCodec,
    load: &Load,
    caps: &Caps,
    recorder: &mut Recorder,
) -> Option<Box<StageTracker>> {
    if !load.stamps || !caps.has_kernel_stamps {
        return None;
    }
    let ends = if codec.has_reply_stages() { StampedEnds::Both } else { StampedEnds::Local };
    recorder.stages = Some(Box::new(StageTimes::new(ends)));
    let tracker = StageTracker::new(ends, caps, u64::from(load.message_bytes));
    Some(Box::new(tracker.with_reply_log(recorder.reply_log.clone())))
}

impl Pinger {
    /// Client for one flow over a link with these capabilities. `codec` defines the layout of requests and
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
        let stages = track_stages(codec.as_ref(), load, caps, &mut recorder);
        let numbered = codec.has_sequence_numbers();
        let window = window_size(load, caps, numbered);
        let schedule = SendSchedule::new(load.pacing)
            .sharing(load.flow_index, load.flows)
            .skipping_overdue(load.skips_overdue);
        let phases = PhaseTracker::new(load.warm_up, load.stop);
        let late_replies = LateReplies::new(numbered, codec.silence_before_request());
        Pinger {
            codec,
            // Not every flow has a turn in the time of a shared schedule.
            phases: if schedule.is_shared() { phases } else { phases.with_first_message() },
            schedule,
            is_first_measured: false,
            timeout: load.timeout,
            payload_bytes: u64::from(load.message_bytes),
            recorder,
            tuning: Some(Box::new(load.tuning())),
            window: RequestWindow::new(window),
            outgoing: OutgoingRequest::new(caps.framing),
            late_replies,
            connection: load
                .requests_per_connection
                .map(|most| Box::new(RequestsPerConnection::new(most.get()))),
            is_closed: false,
            is_refused: false,
            batch: new_batch(load, caps),
            // Without a time limit each request would take a full timeout.
            stray_bytes: 0,
            unanswered: (caps.is_serial_device()
                || window.max_outstanding == 1 && load.stop.time_ns.is_none())
            .then_some(0),
            unrecorded_sample: None,
            silence: (!load.has_few_samples() && !load.is_one_of_many()).then(FinalSilence::default),
            stages,
        }
    }

    /// Whether unexpected bytes count: only after the warm-up.
    fn is_measuring(&self) -> bool {
        self.phases.phase() != Phase::WarmUp && !self.is_first_measured
    }

    /// Phase of the next request. The warm-up ends with its last reply, if the next request is due only after it: the time
    /// between them would be lost.
    #[inline]
    fn advance_phase(&mut self, now: Time) -> Phase {
        let is_warm =
            self.phases.phase() == Phase::WarmUp && self.phases.has_sent() && self.window.is_empty();
        if is_warm && !self.schedule.is_shared() && self.schedule.due(now) >= self.phases.time_limit() {
            self.phases.end_warm_up();
            self.schedule.restart();
        }
        let (phase, begins) = self.phases.advance_to(now);
        self.is_first_measured |= begins;
        phase
    }

    /// Records overdue requests as lost.
    fn expire_requests(&mut self, now: Time) {
        while let Some(lost) = self.window.expire_next(now, self.timeout) {
            let sequence = lost.sequence();
            if lost.is_measured {
                if lost.period == ProbePeriod::Loaded {
                    self.silence.iter_mut().for_each(FinalSilence::on_loss);
                }
                self.recorder.end_request_in(lost.period);
                let recorder = self.recorder.of_period(lost.period);
                recorder.record_loss(now);
                recorder.record_missed_frame(sequence, lost.intended);
                recorder.note(sequence, ReplyEventKind::Lost, event_ns(self.timeout));
            }
            self.codec.abandon(lost.number);
            self.unanswered = self.unanswered.map(|unanswered| unanswered + 1);
            self.late_replies.expect_until(now + self.timeout);
        }
    }

    /// Whether so few requests have a reply that no more replies are expected.
    fn is_silent(&self) -> bool {
        let Some(unanswered) = self.unanswered else { return false };
        let silence = self.timeout.saturating_mul(u32::try_from(unanswered).unwrap_or(u32::MAX));
        unanswered >= MAX_UNANSWERED && silence >= LEAST_SILENCE
    }

    /// Whether stamps are to be read now. Uses the stamps that were read before.
    #[inline]
    fn must_read_stamps(&mut self) -> bool {
        let (Some(stages), Some(times)) = (&mut self.stages, &mut self.recorder.stages) else { return false };
        stages.settle(times);
        stages.take_must_read()
    }

    fn record_pending(&mut self) {
        if let Some(UnrecordedSample { sample, period, neighbours_ns }) = self.unrecorded_sample.take() {
            self.recorder.record_reply_beside(neighbours_ns, period, sample, self.payload_bytes);
        }
    }

    /// Records the reply to `number`, which arrived from the device at `arrived`, if that is known.
    fn record_reply(&mut self, number: u64, corruption: Corruption, arrived: Option<Time>, now: Time) {
        let Some(slot) = self.window.find(number) else {
            let is_measuring = u64::from(self.is_measuring());
            match self.window.is_ahead(number) {
                true => self.recorder.counts.early += is_measuring,
                false => self.recorder.counts.corrupt_messages += is_measuring,
            }
            self.note_unknown();
            return;
        };
        let RequestSlot { number, intended, sent, state, is_measured, period, .. } = *slot;
        self.stray_bytes = 0;
        let sequence = slot.sequence();
        let sample = Sample { sequence, intended, sent, received: now };
        let reordered = self.window.is_overtaken(number);
        self.silence.iter_mut().for_each(FinalSilence::on_reply);
        let mut neighbours_ns = [None; 2];
        match state {
            RequestState::Lost => {
                self.late_replies.expect_until(now);
                // A further one is a duplicate.
                self.window.find(number).iter_mut().for_each(|slot| slot.state = RequestState::Received);
            }
            RequestState::Waiting => {
                neighbours_ns = self.window.mark_received(number, sample.service_ns());
            }
            RequestState::Received => {}
        }
        if !is_measured {
            return;
        }
        self.recorder.note(sequence, corruption.kind_of_reply(state), sample.service_ns());
        let counts = &mut self.recorder.of_period(period).counts;
        match state {
            RequestState::Waiting => {
                counts.reordered += u64::from(reordered);
                counts.corrupt_bytes += corruption.bytes;
                counts.corrupt_messages += corruption.messages;
                self.recorder.end_request_in(period);
                self.record_pending();
                self.unrecorded_sample = Some(UnrecordedSample { sample, period, neighbours_ns });
                if let Some(stages) = self.codec.server_timestamps() {
                    self.recorder.record_server_timestamps(sample, stages);
                }
                if let (Some(tracker), Some(times)) = (&mut self.stages, &mut self.recorder.stages) {
                    let numbered = Sample { sequence: number, ..sample };
                    tracker.on_reply(numbered, arrived, self.codec.reply_stages(), times);
                }
            }
            RequestState::Lost => counts.late += 1,
            RequestState::Received => counts.duplicate += 1,
        }
    }

    /// Notes a reply that belongs to no request.
    fn note_unknown(&self) {
        if self.is_measuring() {
            self.recorder.note(0, ReplyEventKind::Unknown, 0);
        }
    }

    /// Last step: all requests have a reply or are lost.
    fn last_step(&mut self, now: Time) -> Step<'_> {
        self.record_pending();
        let Recorder { counts, last_instant, .. } = &self.recorder;
        let shows_lost =
            |silence: &FinalSilence| silence.shows_lost_server(counts, *last_instant, self.timeout, now);
        match self.silence.as_ref().is_some_and(shows_lost) {
            true => Step::Fail(Fault::TimedOut),
            false => Step::Done,
        }
    }

    /// Ends the schedule: no request follows. Counts those that were due until the end of the measurement and are still not sent.
    fn end_schedule(&mut self, now: Time) {
        self.outgoing.end();
        self.recorder.counts.missed_sends += self.schedule.take_overdue(self.phases.time_limit(), now);
    }
}

impl Party for Pinger {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(*tuning);
        }
        if self.must_read_stamps()
            && let Some(ref mut stages) = self.stages
        {
            return Step::ReadStamps(&mut stages.stamps);
        }
        self.expire_requests(now);
        if self.is_refused {
            return Step::Fail(Fault::Refused(self.codec.refusal_reason()));
        }
        if self.is_silent() {
            return Step::Fail(Fault::TimedOut);
        }
        self.outgoing.settle_send(now);
        if self.outgoing.is_stalled(now, self.timeout) {
            return Step::Fail(Fault::TimedOut);
        }
        if self.outgoing.must_receive_first {
            return Step::Receive { into: &mut self.batch, until: now };
        }
        if !self.outgoing.is_begun() {
            let phase = self.advance_phase(now);
            if phase == Phase::Finished {
                self.end_schedule(now);
                if self.window.is_empty() {
                    return self.last_step(now);
                }
            }
            let is_full = self.window.is_full(now, self.timeout);
            // The pause before a request begins with the reply to the previous one.
            let due = if is_full { now } else { self.schedule.due(now) };
            let is_used_up = self.connection.as_deref().is_some_and(RequestsPerConnection::is_used_up);
            // A connection is closed when its last reply has arrived.
            let is_blocked = phase == Phase::Finished || is_full || is_used_up && !self.window.is_empty();
            if is_blocked || due > now && !self.window.is_empty() {
                let expiry = self.window.next_change(self.timeout, is_full && phase != Phase::Finished);
                let until = if is_blocked { expiry } else { due.min(expiry) };
                return Step::Receive { into: &mut self.batch, until };
            }
            if due > now {
                // The time of a shared schedule does not wait for the next turn of a flow.
                let until = if self.schedule.is_shared() { due.min(self.phases.time_limit()) } else { due };
                return Step::Sleep(until);
            }
            // Only when a request is due, so that its response time includes the connection.
            if let Some(step) = self.connection.as_mut().and_then(|connection| connection.next_step(now)) {
                return step;
            }
            if let Some(until) = self.late_replies.drain_until(now, self.timeout) {
                return Step::Receive { into: &mut self.batch, until };
            }
        }
        self.codec.set_time(now);
        let request = self.codec.encode_request(self.window.next_number());
        Step::Send { bytes: self.outgoing.next_part(request), message: request.len() }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if !self.outgoing.is_begun() {
            let intended = if self.schedule.is_closed_loop() { at } else { self.schedule.due(at) };
            let is_measured = self.phases.phase() == Phase::Measuring;
            if std::mem::take(&mut self.is_first_measured) && !self.schedule.is_shared() {
                self.phases.set_begin(at);
            }
            let period = self.recorder.period_at(at);
            let recorder = self.recorder.of_period(period);
            if is_measured && recorder.first_instant.is_none() {
                recorder.begin(at);
                if let Some(log) = &recorder.reply_log {
                    log.begin(self.window.next_sequence());
                }
            }
            self.window.begin_request(intended, at, is_measured, period);
        }
        if self.outgoing.mark_sent(bytes, at) {
            let RequestSlot { number, period, is_measured, .. } = *self.window.advance();
            if let (Some(stages), Some(times)) = (&mut self.stages, &mut self.recorder.stages) {
                stages.on_sent(number, is_measured, times);
            }
            if is_measured {
                self.recorder.begin_request_in(period);
            }
            self.schedule.advance();
            let skipped = self.schedule.take_skipped();
            if self.phases.phase() == Phase::Measuring {
                let counts = &mut self.recorder.of_period(period).counts;
                counts.sent += 1;
                counts.missed_sends += skipped;
                // The schedule has advanced: if the next message is already due, this one was delayed.
                let held_up = !self.schedule.is_closed_loop() && self.schedule.due(at) <= at;
                counts.late_sends += u64::from(held_up);
            }
            self.phases.count_sent(1, self.payload_bytes);
            self.late_replies.restart();
            self.connection.iter_mut().for_each(|connection| connection.count_sent());
        }
        self.record_pending();
    }

    fn on_received(&mut self, now: Time) {
        self.unanswered = None;
        // With continuous input, one receive is enough before the next send.
        self.outgoing.must_receive_first = false;
        self.late_replies.note_input(now);
        let mut batch = std::mem::take(&mut self.batch);
        // The reply to a long request may begin before all of the request is sent.
        let sending = u64::from(self.outgoing.is_begun());
        let arrived = batch.arrived();
        if let Some(stages) = &mut self.stages {
            stages.on_received();
        }
        for message in batch.messages() {
            self.stray_bytes += message.len() as u64;
            let mut data = message;
            while !data.is_empty() {
                let Range { start, end } = self.window.outstanding();
                match self.codec.parse_reply(data, start..end + sending) {
                    ReplyStatus::Incomplete => break,
                    ReplyStatus::Complete { sequence, used, corrupt_bytes } => {
                        let messages = u64::from(corrupt_bytes > 0);
                        self.record_reply(
                            sequence,
                            Corruption { bytes: corrupt_bytes, messages },
                            arrived,
                            now,
                        );
                        data = &data[used..];
                    }
                    ReplyStatus::Unexpected { sequence, used } => {
                        self.record_reply(sequence, Corruption { bytes: 0, messages: 1 }, arrived, now);
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
                        self.note_unknown();
                        data = &data[used..];
                    }
                    ReplyStatus::Refused => {
                        self.is_refused = true;
                        break;
                    }
                }
            }
        }
        if batch.ce_messages() > 0 && self.is_measuring() {
            self.recorder.record_ce(now, batch.ce_messages());
        }
        batch.return_memory();
        self.batch = batch;
    }

    fn on_timeout(&mut self, now: Time) {
        if self.window.is_empty() {
            self.late_replies.mark_drained(now);
        }
        self.outgoing.must_receive_first = false;
    }

    fn on_reopened(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<(), Fault> {
        let Some(connection) = &mut self.connection else { return outcome };
        let OpeningEnd { began, is_open } = connection.end_opening(outcome, now)?;
        if self.is_measuring() {
            self.recorder.record_connection(is_open.then(|| now.since(began)));
        }
        self.codec.restart();
        Ok(())
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_closed = true;
        Err(Fault::Closed)
    }

    fn prefetch_parts(&self) {
        prefetch(self.codec.as_ref());
        self.window.prefetch_oldest();
        self.recorder.time_series.last_entry().map(prefetch);
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.record_pending();
        if self.recorder.counts.received == 0 {
            // Also those of the warm-up, which had no reply either.
            let corrupt_bytes = &mut self.recorder.counts.corrupt_bytes;
            *corrupt_bytes = self.stray_bytes.max(*corrupt_bytes);
        }
        if let Some(common_time) = self.codec.common_time() {
            self.recorder.use_common_time(common_time);
        }
        if let (Some(stages), Some(times)) = (&mut self.stages, &mut self.recorder.stages) {
            stages.finish(times);
        }
        self.recorder.finish();
        for slot in self.window.in_flight().filter(|slot| slot.is_measured) {
            let is_overtaken = self.recorder.is_overtaken(slot.period);
            let recorder = self.recorder.of_period(slot.period);
            if self.is_closed || is_overtaken {
                recorder.record_loss(slot.sent);
                recorder.record_missed_frame(slot.sequence(), slot.intended);
                let kind = if is_overtaken { ReplyEventKind::Lost } else { ReplyEventKind::Closed };
                recorder.note(slot.sequence(), kind, 0);
            } else {
                // Stopped in the middle: this request is neither complete nor lost, so it does not count.
                recorder.counts.sent -= 1;
            }
        }
        self.window.clear();
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

#[cfg(test)]
mod tests;
