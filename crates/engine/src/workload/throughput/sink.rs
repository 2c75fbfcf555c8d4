//! The receiver of a throughput flow: counts new data, compares looped data, and decides when to stop waiting.

use std::sync::Arc;
use std::time::Duration;

use super::MAX_SEND_BATCH_BYTES;
use super::comparison::LoopbackState;
use super::header::HeaderCodec;
use super::keepalive::Keepalive;
use super::loopback::Loopback;
use super::received_data::{Arrival, ReceivedData};
use super::sender_limits::{LimitCheck, SenderLimits, planned_sending, quiet_time};
use super::sequence_tracker::TRACKER_BYTES;
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, MAX_BATCH_MESSAGES};
use crate::workload::phases::{Phase, PhaseTracker};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::StopCondition;
use linkgauge_model::sample::Recorder;

/// Size of one receive from a stream, in bytes: small enough to stay in the cache.
const STREAM_RECEIVE_BYTES: usize = 128 * 1024;

/// Size of one receive from a stream, in bytes, for each of many connections.
const STREAM_RECEIVE_OF_MANY: usize = 32 * 1024;

/// Interval between checks whether the sender of a loop has ended.
const SENDER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Fault of a loop that takes much longer than planned.
const TOO_SLOW: &str =
    "the data takes much longer to return than the measurement: send less (--volume or --rate)";

/// Time for which a receiver waits for more, and whether silence is the end.
struct SilenceTimer {
    timeout: Duration,
    /// Time without messages after which a flow that signals no end has ended.
    quiet_time: Duration,
    /// Whether only silence signals the end of the flow.
    ends_by_silence: bool,
    /// Time in which the sender sends, as far as the plan says. Silence before its end is a pause: the sender continues.
    planned: Duration,
    /// Whether the sender may end earlier than planned.
    may_end_earlier: bool,
    waiting_since: Option<Time>,
    /// Arrival time of the first part of the flow.
    begun: Option<Time>,
}

impl SilenceTimer {
    /// Time until which to wait for more; waiting begins now if it has not.
    #[inline]
    fn wait_until(&mut self, now: Time) -> Time {
        let since = *self.waiting_since.get_or_insert(now);
        match self.begun.filter(|_| self.ends_by_silence) {
            Some(begun) => {
                // A gap of the timeout is no gap any more.
                let resumes_until = (begun + self.planned).min(since + self.timeout);
                (since + self.quiet_time).max(resumes_until)
            }
            // Pauses of a slow schedule are not silence.
            None => since + self.timeout.max(self.quiet_time),
        }
    }

    fn is_over(&mut self, now: Time) -> bool {
        self.waiting_since.is_none() || now >= self.wait_until(now)
    }

    /// Whether the sender is still sending at this time, as far as the plan says.
    fn is_before_end(&self, now: Time) -> bool {
        !self.may_end_earlier && self.begun.is_some_and(|begun| now < begun + self.planned)
    }

    /// Restarts the wait: a part of the flow has arrived.
    #[inline]
    fn restart(&mut self, now: Time) {
        self.waiting_since = Some(now);
        self.begun.get_or_insert(now);
    }
}

/// End of the flow, by the link or by the limit of the time.
#[derive(Default)]
struct SinkEnd {
    is_reached: bool,
    /// The link was closed after the last byte.
    is_closed: bool,
    /// Data still arrived at the limit of the time.
    is_cut: bool,
    fault: Option<Fault>,
}

/// Counts of the messages before the measurement.
#[derive(Default)]
struct WarmUpCounts {
    passed: u64,
    /// Missing messages of the warm-up.
    missing: u64,
}

/// Receiver of a throughput flow.
pub(crate) struct Sink {
    tuning: Option<Tuning>,
    batch: Batch,
    data: ReceivedData,
    phases: PhaseTracker,
    warm_up: WarmUpCounts,
    loopback: Option<Loopback>,
    silence: SilenceTimer,
    sender_limits: SenderLimits,
    /// Whether the time of the load is over: later messages count, but not for the rate.
    is_load_over: bool,
    /// Keepalive messages, for links without connections.
    keepalive: Option<Keepalive>,
    end: SinkEnd,
    recorder: Recorder,
}

/// Number of messages in one receive.
fn batch_messages(message_bytes: usize) -> usize {
    (2 * MAX_SEND_BATCH_BYTES / message_bytes.max(1)).clamp(2, MAX_BATCH_MESSAGES)
}

impl Sink {
    /// Maximum memory of a receiver, in bytes, with memory of its thread where there are many.
    pub(crate) fn memory_bytes(load: &Load, caps: &Caps) -> usize {
        let message = load.message_bytes as usize;
        match caps.framing {
            Framing::Stream if load.is_one_of_many() => 0,
            Framing::Stream => STREAM_RECEIVE_BYTES,
            Framing::Message => {
                Batch::bytes_for(message, batch_messages(message)).saturating_add(TRACKER_BYTES)
            }
        }
    }

    /// A receiver for one flow over a link with these capabilities.
    pub fn new(load: &Load, caps: &Caps, recorder: Recorder) -> Sink {
        let message = load.message_bytes as usize;
        let batch = match caps.framing {
            Framing::Stream if load.is_one_of_many() => Batch::new(STREAM_RECEIVE_OF_MANY, 1),
            Framing::Stream => Batch::new(STREAM_RECEIVE_BYTES, 1),
            Framing::Message => Batch::new(message, batch_messages(message)),
        };
        Sink {
            tuning: Some(load.batch_tuning()),
            batch,
            data: ReceivedData::new(caps.framing, load.message_bytes),
            phases: PhaseTracker::new(load.warm_up, StopCondition::default()),
            warm_up: WarmUpCounts::default(),
            loopback: None,
            silence: SilenceTimer {
                timeout: load.timeout,
                quiet_time: quiet_time(load.pacing, load.flows),
                ends_by_silence: caps.framing == Framing::Message && !caps.can_signal_close,
                planned: planned_sending(load),
                may_end_earlier: false,
                waiting_since: None,
                begun: None,
            },
            sender_limits: SenderLimits::new(load),
            is_load_over: false,
            keepalive: None,
            end: SinkEnd::default(),
            recorder,
        }
    }

    /// Receives a stream into memory that all flows of a thread share, so [`Sink::batch`] is empty after
    /// [`Party::on_received`].
    pub(crate) fn with_lent_memory(mut self) -> Sink {
        if self.data.framing() == Framing::Stream {
            self.batch = Batch::lent(STREAM_RECEIVE_BYTES);
        }
        self
    }

    /// Sends this message periodically as a keepalive.
    pub(crate) fn with_keepalive(mut self, bytes: Vec<u8>) -> Sink {
        self.keepalive = Some(Keepalive::new(bytes));
        self
    }

    /// Expects the bytes of a [`super::Source`] on the other half of the link.
    pub(crate) fn looped(mut self, caps: &Caps, looped: Arc<LoopbackState>) -> Sink {
        let (receive_bytes, message_bytes) = (self.batch.slot_bytes, self.data.message_bytes() as usize);
        self.loopback = Some(Loopback::new(caps, looped, receive_bytes, message_bytes));
        self
    }

    /// Accepts an earlier end, for a sender that decides itself when it ends: the time of the load is the latest.
    pub(crate) fn with_latest_end(mut self) -> Sink {
        self.silence.may_end_earlier = true;
        self
    }

    /// Sets the header of a protocol in place of the default; a stream is then a sequence of blocks.
    pub(crate) fn with_header(mut self, header: Box<dyn HeaderCodec>) -> Sink {
        self.data.set_header(header);
        self
    }

    /// Starts the flow: earlier waiting does not count.
    pub(crate) fn start_waiting(&mut self, now: Time) {
        self.silence.waiting_since = Some(now);
    }

    /// Ends the time of the load: what arrives from now on is received, but no rate includes it.
    pub(crate) fn end_load(&mut self) {
        self.is_load_over = true;
    }

    /// Whether silence is the regular end, because the link cannot signal that the sender has finished.
    pub(crate) fn may_end_in_silence(&self) -> bool {
        let can_lose = self.silence.ends_by_silence || self.loopback.is_some();
        self.silence.begun.is_some() && self.data.framing() == Framing::Message && can_lose
    }

    /// The last received batch.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Memory for the received messages, for a party that receives before the flow begins.
    pub(crate) fn batch_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Bytes received so far, including warm-up and duplicates.
    pub(crate) fn position(&self) -> u64 {
        self.data.position()
    }

    /// Whether the sender has closed its side.
    pub(crate) fn has_seen_end(&self) -> bool {
        self.end.is_closed
    }

    /// Processes a receive.
    #[inline]
    fn take(&mut self, now: Time) -> Arrival {
        if let Some(loopback) = &mut self.loopback {
            for message in self.batch.messages() {
                self.recorder.counts.corrupt_bytes += loopback.compare(message);
            }
        }
        let arrived = self.data.add(&self.batch, now);
        self.end.is_reached |= arrived.has_end;
        arrived
    }

    /// Whether this is a loop, and its last byte has returned.
    fn has_received_all(&self) -> bool {
        self.loopback.as_ref().is_some_and(|loopback| loopback.has_received_all(self.data.received()))
    }

    /// Messages sent since the measurement began, as derived from the received numbers.
    pub(crate) fn measured_messages(&self) -> u64 {
        self.passed_messages() - self.warm_up.passed
    }

    /// Messages sent including the warm-up, as derived from the received numbers.
    pub(crate) fn passed_messages(&self) -> u64 {
        self.data.passed_messages()
    }

    /// Missing messages among the measured ones, if they have numbers.
    pub(crate) fn missing_messages(&self) -> u64 {
        self.data.missing_messages()
    }

    /// Missing messages of the warm-up.
    pub(crate) fn missing_warm_up_messages(&self) -> u64 {
        self.warm_up.missing
    }

    fn handle_silence(&mut self, now: Time) {
        // Silence is the regular end of a message link without a close signal, and of a loop over a line that loses
        // bytes: missing data is counted. On any other stream silence is a fault, and so it is before the planned end.
        self.end.is_reached = true;
        let may_be_silent = match (self.data.framing(), &self.loopback) {
            (Framing::Stream, Some(loopback)) => loopback.may_end_in_silence(self.data.received()),
            (Framing::Stream, None) => false,
            (Framing::Message, _) => self.may_end_in_silence() && !self.silence.is_before_end(now),
        };
        if !may_be_silent {
            self.end.fault = Some(Fault::TimedOut);
        }
    }

    /// Finishes the comparison of a loop.
    fn finish_loopback(&mut self) {
        let has_ended = self.end.is_reached;
        self.recorder.counts.is_interrupted =
            self.end.is_cut || self.loopback.is_some() && !has_ended && !self.has_received_all();
        if let Some(loopback) = &mut self.loopback {
            loopback.finish(has_ended, &mut self.recorder);
        }
    }
}

impl Party for Sink {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.end.fault.take() {
            return Step::Fail(fault);
        }
        let is_complete = |loopback: &Loopback| loopback.is_complete(self.data.received());
        if self.end.is_reached || self.loopback.as_ref().is_some_and(is_complete) {
            return Step::Done;
        }
        let mut until = self.silence.wait_until(now);
        let is_even = |loopback: &Loopback| loopback.has_received_all_so_far(self.data.received());
        if self.loopback.as_ref().is_some_and(is_even) {
            // The sender may have ended after its last byte returned, which no input shows.
            until = until.min(now + SENDER_CHECK_INTERVAL);
        }
        match &self.keepalive {
            Some(sign) if now >= sign.next_due && now < until => sign.send_step(),
            sign => Step::Receive {
                into: &mut self.batch,
                until: sign.as_ref().map_or(until, |s| until.min(s.next_due)),
            },
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        let (before, passed, missing) = (self.position(), self.passed_messages(), self.missing_messages());
        let arrived = self.take(now);
        if arrived.is_of_flow {
            self.silence.restart(now);
            let (phase, begins) = self.phases.advance_to(now);
            if begins {
                self.warm_up = WarmUpCounts { passed, missing };
                self.data.end_warm_up(passed);
                match &self.loopback {
                    Some(loopback) => self.recorder.begin(loopback.first_sent()),
                    // The first data was in transit before the receiver's time began.
                    None => self.recorder.begin_with_bytes(now, arrived.bytes),
                }
            }
            if phase == Phase::Measuring && self.is_load_over {
                self.recorder.record_late_delivery(arrived.messages, arrived.bytes);
            } else if phase == Phase::Measuring {
                self.recorder.record_delivery(now, arrived.messages, arrived.bytes);
                if self.batch.ce_messages() > 0 {
                    self.recorder.record_ce(now, self.batch.ce_messages());
                }
            } else {
                self.phases.count_sent(self.passed_messages() - passed, arrived.bytes);
            }
        }
        match self.sender_limits.check(now, self.position() - before) {
            LimitCheck::Within => {}
            // What is still queued on the path does not belong to the measurement.
            LimitCheck::TooLong if self.loopback.is_none() => {
                (self.end.is_reached, self.end.is_cut) = (true, true);
            }
            LimitCheck::TooLong => self.end.fault = Some(Fault::LimitReached(TOO_SLOW.to_owned())),
            LimitCheck::TooManyBytes => {
                self.end.fault =
                    Some(Fault::UnexpectedData("the server sends more than was requested".to_owned()));
            }
        }
        self.batch.return_memory();
    }

    fn on_sent(&mut self, _bytes: usize, at: Time) {
        if let Some(sign) = &mut self.keepalive {
            sign.mark_sent(at);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if self.silence.is_over(now) {
            self.handle_silence(now);
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        (self.end.is_reached, self.end.is_closed) = (true, true);
        // Data still in a loop at its end is lost. A reliable stream must return all of it.
        if self.loopback.is_some() && !self.has_received_all() { Err(Fault::Closed) } else { Ok(()) }
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.finish_loopback();
        let has_warmed_up = self.phases.phase() != Phase::WarmUp;
        self.recorder.counts.warm_up =
            if has_warmed_up { self.warm_up.passed } else { self.passed_messages() };
        if self.loopback.is_none() {
            // As far as the received numbers show; the sender may know more.
            self.recorder.counts.sent = self.measured_messages();
        }
        self.recorder.counts.duplicate += self.data.duplicates();
        self.recorder.counts.reordered += self.data.reordered();
        self.recorder.counts.corrupt_messages += self.data.foreign();
    }
}

impl RecordingParty for Sink {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::plan::Pacing;

    const SECOND: Duration = Duration::from_secs(1);

    /// Timer of a flow of datagrams, which only silence ends.
    fn timer(load: &Load) -> SilenceTimer {
        SilenceTimer {
            timeout: 5 * SECOND,
            quiet_time: quiet_time(load.pacing, load.flows),
            ends_by_silence: true,
            planned: planned_sending(load),
            may_end_earlier: false,
            waiting_since: None,
            begun: None,
        }
    }

    #[test]
    fn a_gap_before_the_planned_end_is_not_the_end() {
        let load = |stop, pacing| Load { stop, pacing, ..Load::endless(1000) };
        let paced = Pacing::Fixed { per_second: 100.0 };
        for (load, planned) in [
            (load(StopCondition::after_time(6 * SECOND), Pacing::Closed), 6 * SECOND),
            (load(StopCondition::after_count(400), paced), 4 * SECOND),
            (
                load(StopCondition { volume_bytes: Some(300_000), ..StopCondition::default() }, paced),
                3 * SECOND,
            ),
            (load(StopCondition::after_count(400), Pacing::Closed), Duration::ZERO),
        ] {
            let mut timer = timer(&load);
            let begun = Time(1_000_000_000);
            assert_eq!(timer.wait_until(begun), begun + 5 * SECOND, "nothing has come yet");
            timer.restart(begun);
            let quiet = quiet_time(load.pacing, load.flows);
            assert_eq!(timer.wait_until(begun), begun + planned.min(5 * SECOND).max(quiet));
            // A message after a gap, then the end of the plan: what is late has its time.
            timer.restart(begun + planned);
            assert_eq!(timer.wait_until(begun + planned), begun + planned + quiet);
            assert!(timer.is_over(begun + planned + quiet) && !timer.is_over(begun + planned));
        }
    }

    #[test]
    fn datagrams_that_are_away_for_the_timeout_do_not_return() {
        let load = Load { stop: StopCondition::after_time(60 * SECOND), ..Load::endless(1000) };
        let mut timer = timer(&load);
        let begun = Time(1_000_000_000);
        timer.restart(begun);
        timer.restart(begun + 3 * SECOND);
        assert_eq!(timer.wait_until(begun + 3 * SECOND), begun + 8 * SECOND);
        assert!(timer.is_before_end(begun + 8 * SECOND) && !timer.is_before_end(begun + 60 * SECOND));
        // A message late in the plan: the end of the plan comes first.
        timer.restart(begun + 58 * SECOND);
        assert_eq!(timer.wait_until(begun + 58 * SECOND), begun + 60 * SECOND);
    }
}
