//! The receiver of a throughput flow: counts new data, compares looped data, and decides when to stop waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::MAX_SEND_BATCH_BYTES;
use super::comparison::{LoopbackState, StreamComparison};
use super::header::{BlockParser, HeaderCodec, ParsedHeader, SequenceHeader};
use super::keepalive::Keepalive;
use super::sender_limits::{LimitCheck, SenderLimits, quiet_time};
use super::sequence_tracker::SequenceTracker;
use crate::clock::Time;
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, MAX_BATCH_MESSAGES};
use crate::plan::StopCondition;
use crate::sample::Recorder;
use crate::workload::pattern::{self, Alphabet};
use crate::workload::phases::{Phase, PhaseTracker};
use crate::workload::{Load, RecordingParty};

/// Bytes of a receive from a stream: small enough to stay in the cache.
const STREAM_RECEIVE_BYTES: usize = 128 * 1024;

/// The same for each of many connections.
const STREAM_RECEIVE_OF_MANY: usize = 32 * 1024;

/// More missing data than a line carries in this time means that the line has stopped, not that data was lost.
const STALLED_LINE_TIME: Duration = Duration::from_secs(1);

/// Fault of a loop that takes much longer than planned.
const TOO_SLOW: &str =
    "the data takes much longer to return than the measurement: send less (--volume or --rate)";

/// Result of one receive.
struct Arrival {
    /// New messages of this flow, and their bytes.
    messages: u64,
    bytes: u64,
    /// Something of this flow arrived. Foreign messages do not extend the wait.
    is_of_flow: bool,
}

/// The expected content of an unchanged loop.
enum ExpectedEcho {
    Stream(Box<StreamComparison>),
    Message(pattern::PatternMessage),
}

/// The receiver.
pub struct Sink {
    framing: Framing,
    phases: PhaseTracker,
    timeout: Duration,
    tuning: Option<Tuning>,
    batch: Batch,
    tracker: SequenceTracker,
    /// Header of each message, or of each block of a stream.
    header: Option<Box<dyn HeaderCodec>>,
    blocks: Option<BlockParser>,
    looped: Option<(Arc<LoopbackState>, ExpectedEcho)>,
    /// Set if the stream may lose bytes. If more than this many are missing at its end, the line has stopped.
    max_missing_tail_bytes: Option<u64>,
    /// Only silence signals the end of the flow.
    ends_by_silence: bool,
    position: u64,
    /// Messages before the measurement, and how many of those are missing.
    warm_up_counts: (u64, u64),
    message_bytes: u64,
    quiet_time: Duration,
    waiting_since: Option<Time>,
    sender_limits: SenderLimits,
    has_begun: bool,
    is_finished: bool,
    /// The link was closed after the last byte.
    closed: bool,
    fault: Option<Fault>,
    /// Keepalive messages, for links without connections.
    keepalive: Option<Keepalive>,
    recorder: Recorder,
}

impl Sink {
    /// A receiver for one flow over a link with these capabilities.
    pub fn new(load: &Load, caps: &Caps, recorder: Recorder) -> Sink {
        let message = load.message_bytes as usize;
        let batch = match caps.framing {
            Framing::Stream if load.is_one_of_many() => Batch::new(STREAM_RECEIVE_OF_MANY, 1),
            Framing::Stream => Batch::new(STREAM_RECEIVE_BYTES, 1),
            Framing::Message => {
                Batch::new(message, (2 * MAX_SEND_BATCH_BYTES / message).clamp(2, MAX_BATCH_MESSAGES))
            }
        };
        Sink {
            framing: caps.framing,
            phases: PhaseTracker::new(load.warm_up, StopCondition::default()),
            timeout: load.timeout,
            tuning: Some(load.batch_tuning()),
            batch,
            tracker: SequenceTracker::new(),
            header: (caps.framing == Framing::Message)
                .then(|| Box::new(SequenceHeader) as Box<dyn HeaderCodec>),
            blocks: None,
            looped: None,
            max_missing_tail_bytes: (!caps.is_reliable)
                .then(|| caps.link_rate.map_or(u64::MAX, |line| line.bytes_in(STALLED_LINE_TIME))),
            ends_by_silence: caps.framing == Framing::Message && !caps.can_signal_close,
            position: 0,
            warm_up_counts: (0, 0),
            message_bytes: u64::from(load.message_bytes),
            quiet_time: quiet_time(load.pacing),
            waiting_since: None,
            sender_limits: SenderLimits::new(load),
            has_begun: false,
            is_finished: false,
            closed: false,
            fault: None,
            keepalive: None,
            recorder,
        }
    }

    /// Sends this message periodically as a keepalive.
    pub fn with_keepalive(mut self, bytes: Vec<u8>) -> Sink {
        self.keepalive = Some(Keepalive::new(bytes));
        self
    }

    /// Expects the bytes of a [`super::Source`] on the other half of the link.
    pub fn looped(mut self, caps: &Caps, looped: Arc<LoopbackState>) -> Sink {
        let alphabet = Alphabet::from_caps(caps);
        let expected = match self.framing {
            Framing::Stream => {
                ExpectedEcho::Stream(Box::new(StreamComparison::new(self.batch.slot_bytes, &alphabet)))
            }
            Framing::Message => {
                ExpectedEcho::Message(pattern::PatternMessage::new(self.message_bytes as usize, alphabet))
            }
        };
        self.looped = Some((looped, expected));
        self
    }

    /// Sets the header of a protocol in place of the default; a stream is then a sequence of blocks.
    pub fn with_header(mut self, head: Box<dyn HeaderCodec>) -> Sink {
        match self.framing {
            Framing::Stream => self.blocks = Some(BlockParser::new(head, self.message_bytes)),
            Framing::Message => self.header = Some(head),
        }
        self
    }

    /// The bytes after the end of a stream of blocks: the next control messages.
    pub fn trailing_bytes(&self) -> &[u8] {
        self.blocks.as_ref().map_or(&[], BlockParser::trailing_bytes)
    }

    /// Starts the flow: earlier waiting does not count.
    pub fn start_waiting(&mut self, now: Time) {
        self.waiting_since = Some(now);
    }

    /// Whether silence is the regular end, because the link cannot signal that the sender has finished.
    pub fn may_end_in_silence(&self) -> bool {
        self.has_begun && self.framing == Framing::Message && (self.ends_by_silence || self.looped.is_some())
    }

    /// The last received batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes received so far, including warm-up and duplicates.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the sender has closed its side.
    pub fn has_seen_end(&self) -> bool {
        self.closed
    }

    /// Processes a receive.
    #[inline]
    fn take(&mut self, now: Time) -> Arrival {
        let mut arrived = Arrival { messages: 0, bytes: 0, is_of_flow: false };
        let before = self.position;
        for message in self.batch.messages() {
            match &mut self.looped {
                Some((_, ExpectedEcho::Stream(comparison))) => comparison.push(message),
                Some((_, ExpectedEcho::Message(expected))) => {
                    let body = message.get(pattern::SEQUENCE_BYTES..).unwrap_or_default();
                    self.recorder.counts.corrupt_bytes += pattern::count_differing(body, expected.body());
                }
                None => {}
            }
            let length = message.len() as u64;
            let Some(head) = &mut self.header else {
                let payload = self.blocks.as_mut().map_or(length, |blocks| blocks.push(message, now));
                self.position += payload;
                arrived.bytes += payload;
                arrived.is_of_flow = true;
                continue;
            };
            self.position += length;
            let strange = self.tracker.foreign;
            match head.read(message, self.tracker.next_sequence, now) {
                ParsedHeader::End => self.is_finished = true,
                ParsedHeader::Sequence(number) if length == self.message_bytes => {
                    if self.tracker.observe(number) {
                        arrived.messages += 1;
                        arrived.bytes += length;
                    }
                }
                _ => self.tracker.foreign += 1,
            }
            arrived.is_of_flow |= self.tracker.foreign == strange;
        }
        self.is_finished |= self.blocks.as_ref().is_some_and(BlockParser::is_finished);
        if self.framing == Framing::Stream {
            // A stream has no message boundaries: its messages are counted by its bytes.
            arrived.messages = self.position / self.message_bytes - before / self.message_bytes;
        }
        arrived
    }

    /// Whether the last sent byte has returned, as far as known.
    fn has_received_all(&self) -> bool {
        self.looped.as_ref().is_some_and(|(looped, expected)| {
            let position = match expected {
                ExpectedEcho::Stream(comparison) if self.max_missing_tail_bytes.is_some() => {
                    comparison.position()
                }
                ExpectedEcho::Stream(_) => self.position,
                // Duplicates and foreign messages do not replace missing ones.
                ExpectedEcho::Message(_) => self.tracker.distinct * self.message_bytes,
            };
            looped.is_all_sent.load(Acquire) && position >= looped.sent_bytes.load(Relaxed)
        })
    }

    /// Whether all has returned and later input cannot change the result.
    fn is_loopback_complete(&self) -> bool {
        let settled = match &self.looped {
            Some((_, ExpectedEcho::Stream(comparison))) if self.max_missing_tail_bytes.is_some() => {
                comparison.is_in_sync()
            }
            _ => true,
        };
        settled && self.has_received_all()
    }

    /// Messages sent since the measurement began, as derived from the received numbers.
    pub fn measured_messages(&self) -> u64 {
        self.passed_messages() - self.warm_up_counts.0
    }

    /// The same including the warm-up.
    pub fn passed_messages(&self) -> u64 {
        if self.header.is_some() { self.tracker.next_sequence } else { self.position / self.message_bytes }
    }

    /// Missing messages among those, if they have numbers.
    pub fn missing_messages(&self) -> u64 {
        self.tracker.next_sequence - self.tracker.distinct
    }

    /// Missing messages of the warm-up.
    pub fn missing_warm_up_messages(&self) -> u64 {
        self.warm_up_counts.1
    }

    /// How long to wait for more.
    #[inline]
    fn receive_timeout(&self) -> Duration {
        match self.ends_by_silence && self.has_begun {
            true => self.quiet_time,
            // Pauses of a slow schedule are not silence.
            false => self.timeout.max(self.quiet_time),
        }
    }

    fn handle_silence(&mut self) {
        // Silence is the regular end of a message link without a close signal, and of a loop over a line that loses
        // bytes: missing data is counted. On any other stream silence is a fault.
        self.is_finished = true;
        let may_be_silent = match (self.framing, &self.looped) {
            (Framing::Stream, Some((looped, ExpectedEcho::Stream(comparison)))) => {
                let rest = looped.sent_bytes.load(Relaxed).saturating_sub(comparison.position());
                // If nothing ever arrived, report it.
                self.has_received_all()
                    || self.max_missing_tail_bytes.is_some_and(|most| rest <= most || self.position == 0)
            }
            (Framing::Stream, Some(_)) => self.has_received_all(),
            (Framing::Stream, None) => false,
            (Framing::Message, _) => self.may_end_in_silence(),
        };
        if !may_be_silent {
            self.fault = Some(Fault::TimedOut);
        }
    }

    /// Finishes the comparison of a looped stream.
    fn finish_loopback(&mut self) {
        let over = self.is_finished;
        self.recorder.counts.is_interrupted = self.looped.is_some() && !over && !self.has_received_all();
        let Some((looped, expected)) = &mut self.looped else { return };
        looped.is_finished.store(true, Relaxed);
        let ExpectedEcho::Stream(comparison) = expected else { return };
        // After an interruption it is unknown how much more would have returned.
        let sent = if over { looped.sent_bytes.load(Relaxed) } else { comparison.position() };
        comparison.finish(sent);
        let counts = &mut self.recorder.counts;
        counts.corrupt_bytes += comparison.changed;
        counts.lost_bytes += comparison.lost;
        counts.inserted_bytes += comparison.inserted;
        counts.reordered += comparison.reordered;
        self.recorder.defects = std::mem::take(&mut comparison.defects);
    }
}

impl Party for Sink {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.is_finished || self.is_loopback_complete() {
            return Step::Done;
        }
        let until = *self.waiting_since.get_or_insert(now) + self.receive_timeout();
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
        let (before, passed, missing) = (self.position, self.passed_messages(), self.missing_messages());
        let arrived = self.take(now);
        if arrived.is_of_flow {
            (self.waiting_since, self.has_begun) = (Some(now), true);
            let (phase, begins) = self.phases.advance_to(now);
            if begins {
                self.warm_up_counts = (passed, missing);
                match &self.looped {
                    Some((looped, _)) => self.recorder.begin(Time(looped.first_sent_ns.load(Relaxed))),
                    // The first data was in transit before the receiver's time began.
                    None => self.recorder.begin_with_bytes(now, arrived.bytes),
                }
            }
            if phase == Phase::Measuring {
                self.recorder.record_delivery(now, arrived.messages, arrived.bytes);
            } else {
                self.phases.count_sent(self.passed_messages() - passed, arrived.bytes);
            }
        }
        match self.sender_limits.check(now, self.position - before) {
            LimitCheck::Within => {}
            LimitCheck::TooLong if self.looped.is_none() => self.is_finished = true,
            LimitCheck::TooLong => self.fault = Some(Fault::LimitReached(TOO_SLOW.to_owned())),
            LimitCheck::TooManyBytes => {
                self.fault =
                    Some(Fault::UnexpectedData("the server sends more than was requested".to_owned()));
            }
        }
    }

    fn on_sent(&mut self, _bytes: usize, at: Time) {
        if let Some(sign) = &mut self.keepalive {
            sign.mark_sent(at);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if self.waiting_since.is_none_or(|since| now >= since + self.receive_timeout()) {
            self.handle_silence();
        }
    }

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        (self.is_finished, self.closed) = (true, true);
        // Data still in a loop at its end is lost. A reliable stream must return all of it.
        if self.looped.is_some() && !self.has_received_all() { Err(Fault::Closed) } else { Ok(()) }
    }

    fn on_ended(&mut self, _cost: PartyCost) {
        self.finish_loopback();
        let has_warmed_up = self.phases.phase() != Phase::WarmUp;
        self.recorder.counts.warm_up =
            if has_warmed_up { self.warm_up_counts.0 } else { self.passed_messages() };
        self.recorder.counts.duplicate += self.tracker.duplicate;
        self.recorder.counts.reordered += self.tracker.reordered;
        let strange = self.blocks.as_ref().map_or(0, |blocks| blocks.foreign_blocks);
        self.recorder.counts.corrupt_messages += self.tracker.foreign + strange;
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
