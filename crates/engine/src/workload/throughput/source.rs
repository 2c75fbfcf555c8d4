//! The sender of a throughput flow: paced or at full speed, with a header in each message if the protocol has one.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use super::MAX_SEND_BATCH_BYTES;
use super::comparison::LoopbackState;
use super::header::{HeaderCodec, SequenceHeader};
use crate::link::party::{Party, Step, Tuning};
use crate::link::socket_settings::{self, NO_LIMIT};
use crate::link::{Caps, Fault, Framing, Link, LinkRate, MAX_BATCH_MESSAGES, own_socket};
use crate::workload::pattern::{self, Alphabet};
use crate::workload::phases::{Phase, PhaseTracker, SendSchedule};
use crate::workload::{Load, RecordingParty};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::StopCondition;
use linkgauge_model::sample::Recorder;

/// Maximum bytes of a stream for one send; longer messages take several. The kernel's default limit of a send buffer
/// (`net.ipv4.tcp_wmem`) is four times this.
const MAX_STREAM_WRITE_BYTES: usize = 1 << 20;

/// `MAX_STREAM_WRITE_BYTES` for each of many connections: with longer sends, less of what receivers read is still in the caches.
const MAX_STREAM_WRITE_OF_MANY: usize = 128 * 1024;

/// Limit of the unsent bytes of a slow link: 10 ms at [`FAST_BYTES`] in [`FAST_TIME`]. A send buffer grows far beyond what such a
/// link takes, and all of it would have to drain after the time of the transfer.
const UNSENT_BYTES: u32 = 128 * 1024;

/// Bytes that a fast link takes in [`FAST_TIME`]. It gets no limit: that would cost rate, and a full buffer drains at once.
const FAST_BYTES: u64 = 8 << 20;
const FAST_TIME: Duration = Duration::from_millis(640);

/// Maximum sleep of a paced sender: no event wakes it, so it must check for a stop.
const MAX_SCHEDULE_SLEEP: Duration = Duration::from_millis(100);

/// Sender of a throughput flow.
pub(crate) struct Source {
    framing: Framing,
    message_bytes: usize,
    /// Maximum bytes of a stream for one send.
    max_write_bytes: usize,
    schedule: SendSchedule,
    phases: PhaseTracker,
    timeout: Duration,
    tuning: Tuning,
    is_tuned: bool,
    /// The limit of the bytes that the link holds unsent, for a stream that ends at a time: from the first byte on, until the
    /// link proves fast.
    unsent_limit: Option<UnsentLimit>,
    /// Payload of a stream without headers.
    stream: pattern::PatternStream,
    /// Header of each message.
    header: Option<Box<dyn HeaderCodec>>,
    /// Consecutive messages, each with its header; for a stream with headers, one block.
    messages: Vec<u8>,
    /// Number of the first message in `messages`, and of the next one to be written there.
    next_sequence: u64,
    position: u64,
    /// Bytes sent of the end message, once it has begun.
    end_message_sent: Option<usize>,
    /// Time since which the link has taken no bytes.
    stalled_since: Option<Time>,
    /// Undelivered bytes of the link when it last took none.
    unacknowledged_bytes: u64,
    looped: Option<Arc<LoopbackState>>,
    /// Whether to close the sending side of the link at the end.
    finishes_link: bool,
    is_finished: bool,
    recorder: Recorder,
}

/// Limit of the bytes that a link holds unsent: the next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnsentLimit {
    /// The limit must be set.
    Set,
    /// The limit is set; the link has taken bytes since this time.
    Watch(Option<Time>),
    /// The link is fast: the limit must be removed.
    Remove,
}

/// Limits the volume to the capacity of a serial line in the requested time. More would only fill buffers, which then
/// have to drain.
fn limit_to_line_rate(stop: StopCondition, caps: &Caps) -> StopCondition {
    let in_time = |line: LinkRate| stop.time_ns.map(|time| line.bytes_in(Duration::from_nanos(time)));
    StopCondition { volume_bytes: stop.volume_bytes.or(caps.link_rate.and_then(in_time)), ..stop }
}

/// Number of messages in one send.
fn batch_messages(message_bytes: usize) -> usize {
    (MAX_SEND_BATCH_BYTES / message_bytes.max(1)).clamp(1, MAX_BATCH_MESSAGES / 2)
}

impl Source {
    /// Maximum memory of a sender, in bytes: its own, and the part shared with the other senders of its session.
    pub(crate) fn memory_bytes(load: &Load, caps: &Caps) -> (usize, usize) {
        let message = load.message_bytes as usize;
        match caps.framing {
            Framing::Stream => (0, pattern::NOISE_PERIOD_BYTES + message.min(MAX_STREAM_WRITE_BYTES)),
            // One message, and copies of it.
            Framing::Message => (message.saturating_mul(1 + batch_messages(message)), 0),
        }
    }

    /// A sender for one flow over a link with these capabilities.
    pub fn new(load: &Load, caps: &Caps, recorder: Recorder) -> Source {
        let message = load.message_bytes as usize;
        let messages = match caps.framing {
            Framing::Stream => Vec::new(),
            Framing::Message => pattern::PatternMessage::new(message, Alphabet::from_caps(caps))
                .bytes()
                .repeat(batch_messages(message)),
        };
        let max_write_bytes =
            if load.is_one_of_many() { MAX_STREAM_WRITE_OF_MANY } else { MAX_STREAM_WRITE_BYTES };
        Source {
            framing: caps.framing,
            message_bytes: message,
            max_write_bytes,
            schedule: SendSchedule::new(load.pacing),
            phases: PhaseTracker::new(load.warm_up, load.stop),
            timeout: load.timeout,
            tuning: load.batch_tuning(),
            is_tuned: false,
            unsent_limit: (caps.framing == Framing::Stream && load.stop.time_ns.is_some())
                .then_some(UnsentLimit::Set),
            stream: pattern::PatternStream::new(
                if caps.framing == Framing::Stream { message.min(max_write_bytes) } else { 0 },
                &Alphabet::from_caps(caps),
            ),
            messages,
            header: (caps.framing == Framing::Message)
                .then(|| Box::new(SequenceHeader) as Box<dyn HeaderCodec>),
            next_sequence: 0,
            position: 0,
            end_message_sent: None,
            stalled_since: None,
            unacknowledged_bytes: 0,
            looped: None,
            finishes_link: true,
            is_finished: false,
            recorder,
        }
    }

    /// Sets the header of a protocol in place of the default; makes a stream a sequence of blocks.
    pub(crate) fn with_header(mut self, head: Box<dyn HeaderCodec>, caps: &Caps) -> Source {
        if self.framing == Framing::Stream {
            self.messages =
                pattern::PatternMessage::new(self.message_bytes, Alphabet::from_caps(caps)).bytes().to_vec();
        }
        self.header = Some(head);
        self
    }

    /// Bytes sent so far, including warm-up.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Messages sent so far, including warm-up.
    pub(crate) fn messages(&self) -> u64 {
        self.position / self.message_bytes as u64
    }

    /// Makes this the sender of a loop: the bytes return over the same link to a [`super::Sink`] with the same state.
    pub(crate) fn looped(mut self, load: &Load, caps: &Caps, looped: Arc<LoopbackState>) -> Source {
        let warm_up = limit_to_line_rate(load.warm_up, caps);
        self.phases = PhaseTracker::new(warm_up, limit_to_line_rate(load.stop, caps));
        self.looped = Some(looped);
        // If closing ends both directions, it would cut off the bytes that still have to return.
        self.finishes_link = caps.can_half_close;
        self
    }

    /// Leaves the link open at the end: the protocol signals the end in another way.
    pub(crate) fn without_finish(mut self) -> Source {
        self.finishes_link = false;
        self
    }

    /// Whether everything has been sent, with the end of the link if it signals that.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether the receiver of a loop has stopped. Then a stream stops too, but messages continue as planned.
    fn is_loopback_done(&self) -> bool {
        let over = |looped: &Arc<LoopbackState>| looped.is_finished.load(Relaxed);
        self.framing == Framing::Stream && self.looped.as_ref().is_some_and(over)
    }

    /// Number of messages due by now, at most `most`; as an error, the time of the next one.
    fn due_messages(&mut self, now: Time, most: usize) -> Result<usize, Time> {
        if self.schedule.is_closed_loop() {
            return Ok(most);
        }
        let due = self.schedule.due(now);
        if due > now {
            return Err(due);
        }
        let mut ahead = self.schedule.clone();
        let mut count = 0;
        while count < most && ahead.due(now) <= now {
            ahead.advance();
            count += 1;
        }
        Ok(count)
    }

    /// Step that sends the next bytes of a stream: one message, or the rest of it.
    fn stream_step(&mut self, now: Time) -> Step<'_> {
        let into = (self.position % self.message_bytes as u64) as usize;
        if into == 0
            && let Err(due) = self.due_messages(now, 1)
        {
            self.stalled_since = None;
            return Step::Sleep(due.min(now + MAX_SCHEDULE_SLEEP));
        }
        let write_bytes = (self.message_bytes - into).min(self.max_write_bytes);
        if let Some(head) = &mut self.header {
            if into == 0 {
                head.write(&mut self.messages, self.next_sequence, now);
            }
            return Step::Send { bytes: &self.messages[into..into + write_bytes], message: write_bytes };
        }
        let left = self.phases.bytes_left(self.message_bytes as u64);
        let length = (write_bytes as u64).min(left) as usize;
        Step::Send { bytes: self.stream.slice_at(self.position, length), message: length }
    }

    /// Step that sends as many whole messages as are due and fit into one send.
    fn message_step(&mut self, now: Time) -> Step<'_> {
        let left = self.phases.bytes_left(self.message_bytes as u64).div_ceil(self.message_bytes as u64);
        let most = (self.messages.len() / self.message_bytes).min(left as usize);
        let count = match self.due_messages(now, most) {
            Ok(count) => count,
            Err(due) => {
                self.stalled_since = None;
                return Step::Sleep(due.min(now + MAX_SCHEDULE_SLEEP));
            }
        };
        let offered = &mut self.messages[..count * self.message_bytes];
        if let Some(head) = &mut self.header {
            for (index, message) in offered.chunks_mut(self.message_bytes).enumerate() {
                head.write(message, self.next_sequence + index as u64, now);
            }
        }
        Step::Send { bytes: offered, message: self.message_bytes }
    }

    fn is_inside_block(&self) -> bool {
        self.framing == Framing::Stream
            && self.header.is_some()
            && !self.position.is_multiple_of(self.message_bytes as u64)
    }

    /// Sends the end message, if there is one, and then ends.
    fn end_step(&mut self, now: Time) -> Step<'_> {
        if let (Some(head), None) = (&mut self.header, self.end_message_sent)
            && head.write_end(&mut self.messages[..self.message_bytes], now)
        {
            self.end_message_sent = Some(0);
        }
        let last = &self.messages[..if self.end_message_sent.is_some() { self.message_bytes } else { 0 }];
        let sent_bytes = self.end_message_sent.unwrap_or(0);
        if sent_bytes < last.len() {
            return Step::Send { bytes: &last[sent_bytes..], message: last.len() };
        }
        self.is_finished = true;
        if self.finishes_link { Step::FinishSending } else { Step::Done }
    }
}

impl Party for Source {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if !self.is_tuned {
            self.is_tuned = true;
            return Step::Tune(self.tuning);
        }
        if self.is_finished || self.is_loopback_done() {
            return Step::Done;
        }
        // Finish a block that was begun: otherwise the next header would be read as its payload.
        let (phase, begins) =
            if self.is_inside_block() { (self.phases.phase(), false) } else { self.phases.advance_to(now) };
        if begins {
            self.recorder.begin(now);
            if let Some(looped) = &self.looped {
                looped.first_sent_ns.store(now.0.max(1), Relaxed);
            }
        }
        if phase == Phase::Finished && self.end_message_sent.is_none() {
            self.stalled_since = None;
            if let Some(looped) = &self.looped {
                // After `sent_bytes`, because the receiver reads this flag first.
                looped.is_all_sent.store(true, Release);
            }
        }
        let stuck = now > *self.stalled_since.get_or_insert(now) + self.timeout;
        // In a loop over a stream the receiver decides: a serial line may accept nothing for long while its buffer
        // drains.
        if stuck && (self.looped.is_none() || self.framing == Framing::Message) {
            return Step::Fail(Fault::TimedOut);
        }
        if phase == Phase::Finished {
            return self.end_step(now);
        }
        match self.framing {
            Framing::Stream => self.stream_step(now),
            Framing::Message => self.message_step(now),
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if bytes == 0 {
            return;
        }
        self.stalled_since = Some(at);
        if let Some(UnsentLimit::Watch(since)) = &mut self.unsent_limit {
            let since = *since.get_or_insert(at);
            if self.position >= FAST_BYTES {
                let is_fast = at.since(since) < FAST_TIME;
                self.unsent_limit = is_fast.then_some(UnsentLimit::Remove);
                self.is_tuned = !is_fast;
            }
        }
        if let Some(sent) = &mut self.end_message_sent {
            *sent += bytes;
            return;
        }
        let before = self.position / self.message_bytes as u64;
        self.position += bytes as u64;
        if let Some(looped) = &self.looped {
            looped.sent_bytes.store(self.position, Relaxed);
        }
        let messages = self.position / self.message_bytes as u64 - before;
        self.next_sequence += messages;
        for _ in 0..messages {
            self.schedule.advance();
        }
        self.phases.count_sent(messages, bytes as u64);
        if self.phases.phase() == Phase::Measuring {
            self.recorder.counts.sent += messages;
            self.recorder.record_delivery(at, messages, bytes as u64);
        } else {
            self.recorder.counts.warm_up += messages;
        }
    }

    fn on_received(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _now: Time) {}

    fn on_tuned(&mut self, link: &dyn Link) {
        self.unsent_limit = match self.unsent_limit {
            Some(UnsentLimit::Set) => {
                socket_settings::change_unsent_limit(own_socket(link), NO_LIMIT, UNSENT_BYTES);
                Some(UnsentLimit::Watch(None))
            }
            Some(UnsentLimit::Remove) => {
                socket_settings::change_unsent_limit(own_socket(link), UNSENT_BYTES, NO_LIMIT);
                None
            }
            other => other,
        };
    }

    /// A link counts as stalled only if its queue no longer drains: a slow link empties its buffer before it accepts
    /// more.
    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        let before = std::mem::replace(&mut self.unacknowledged_bytes, unacknowledged.unwrap_or(0));
        if self.unacknowledged_bytes < before {
            self.stalled_since = Some(now);
        }
    }
}

impl RecordingParty for Source {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
