//! The sending end of a throughput: paced or as fast as the link takes it, with a head in front of each message where there
//! is one.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use super::OFFER;
use super::comparison::Looped;
use super::head::{Head, Numbered};
use crate::clock::Time;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Caps, Fault, Framing, Line, MOST_IN_BATCH};
use crate::plan::{Case, Stop};
use crate::sample::Recorder;
use crate::workload::Measured;
use crate::workload::pattern::{self, Alphabet};
use crate::workload::phases::{Phase, Phases, Schedule};

/// Most bytes of a stream offered at once; longer messages go in several pieces. The kernel's default limit of a send
/// buffer (`net.ipv4.tcp_wmem`) is four times this.
const WRITE: usize = 1 << 20;

/// Nothing wakes a sender that waits for its schedule but time; it looks around at least this often.
const FAR_AWAY: Duration = Duration::from_millis(100);

/// The sending end.
pub struct Source {
    framing: Framing,
    message: usize,
    schedule: Schedule,
    phases: Phases,
    timeout: Duration,
    tuning: Option<Tuning>,
    /// What a stream without heads consists of.
    stream: pattern::Stream,
    /// In front of each message.
    head: Option<Box<dyn Head>>,
    /// Messages end to end, each with its head in front; one block of a stream with heads.
    messages: Vec<u8>,
    /// Number of the first message in `messages`, and of the next that has not been written there.
    sequence: u64,
    position: u64,
    /// Of the message that says that it was the last, so many bytes have been sent.
    ending: Option<usize>,
    /// The link has been offered bytes since then, and took none.
    stuck: Option<Time>,
    /// Bytes that the link had taken and not delivered when it last took none.
    on_the_way: u64,
    looped: Option<Arc<Looped>>,
    /// The link is told when all was sent.
    tells_end: bool,
    finished: bool,
    recorder: Recorder,
}

/// What a line carries in the time asked for: what it takes sooner fills buffers, and would have to be waited for.
fn at_line_rate(stop: Stop, caps: &Caps) -> Stop {
    let in_time = |line: Line| stop.time_ns.map(|time| line.bytes_in(Duration::from_nanos(time)));
    Stop { volume_bytes: stop.volume_bytes.or(caps.line.and_then(in_time)), ..stop }
}

impl Source {
    pub fn new(case: &Case, caps: &Caps, tuning: Tuning, recorder: Recorder) -> Source {
        let message = case.message_bytes as usize;
        let in_batch = (OFFER / message.max(1)).clamp(1, MOST_IN_BATCH / 2);
        let messages = match caps.framing {
            Framing::Stream => Vec::new(),
            Framing::Message => pattern::Message::new(message, Alphabet::of(caps)).bytes().repeat(in_batch),
        };
        Source {
            framing: caps.framing,
            message,
            schedule: Schedule::new(case.pacing),
            phases: Phases::new(case.warm_up.unwrap_or_default(), case.stop),
            timeout: case.timeout,
            tuning: Some(Tuning { batches_of: Some(case.message_bytes), ..tuning }),
            stream: pattern::Stream::new(
                if caps.framing == Framing::Stream { message.min(WRITE) } else { 0 },
                &Alphabet::of(caps),
            ),
            messages,
            head: (caps.framing == Framing::Message).then(|| Box::new(Numbered) as Box<dyn Head>),
            sequence: 0,
            position: 0,
            ending: None,
            stuck: None,
            on_the_way: 0,
            looped: None,
            tells_end: true,
            finished: false,
            recorder,
        }
    }

    /// The peer's head instead of our own; makes a stream one of blocks.
    pub fn with_head(mut self, head: Box<dyn Head>, caps: &Caps) -> Source {
        if self.framing == Framing::Stream {
            self.messages = pattern::Message::new(self.message, Alphabet::of(caps)).bytes().to_vec();
        }
        self.head = Some(head);
        self
    }

    /// Bytes sent so far, warm-up included.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Messages sent so far, warm-up included.
    pub fn messages(&self) -> u64 {
        self.position / self.message as u64
    }

    /// The bytes come back over the same link to a [`super::Sink`] that shares this.
    pub fn looped(mut self, case: &Case, caps: &Caps, looped: Arc<Looped>) -> Source {
        let warm_up = at_line_rate(case.warm_up.unwrap_or_default(), caps);
        self.phases = Phases::new(warm_up, at_line_rate(case.stop, caps));
        self.looped = Some(looped);
        // Where finishing ends both directions, it would cut off what is still to come back.
        self.tells_end = caps.half_closes;
        self
    }

    /// The link stays open when all was sent: the protocol has other ways to tell.
    pub fn stays_open(mut self) -> Source {
        self.tells_end = false;
        self
    }

    /// The receiver of a loop waits for no more. A stream is not sent into the void; messages go on as planned.
    fn is_over(&self) -> bool {
        let over = |looped: &Arc<Looped>| looped.over.load(Relaxed);
        self.framing == Framing::Stream && self.looped.as_ref().is_some_and(over)
    }

    /// How many messages the schedule wants sent by now, at most `most`; else when it wants the next.
    fn due(&mut self, now: Time, most: usize) -> Result<usize, Time> {
        if self.schedule.is_closed() {
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

    /// The next bytes of a stream: one message, or the rest of it.
    fn stream_step(&mut self, now: Time) -> Step<'_> {
        let into = (self.position % self.message as u64) as usize;
        if into == 0
            && let Err(due) = self.due(now, 1)
        {
            self.stuck = None;
            return Step::Sleep(due.min(now + FAR_AWAY));
        }
        let piece = (self.message - into).min(WRITE);
        if let Some(head) = &mut self.head {
            if into == 0 {
                head.write(&mut self.messages, self.sequence, now);
            }
            return Step::Send { bytes: &self.messages[into..into + piece], message: piece };
        }
        let left = self.phases.bytes_left(self.message as u64);
        let length = (piece as u64).min(left) as usize;
        Step::Send { bytes: self.stream.at(self.position, length), message: length }
    }

    /// As many whole messages as are due and fit one operation.
    fn message_step(&mut self, now: Time) -> Step<'_> {
        let left = self.phases.bytes_left(self.message as u64).div_ceil(self.message as u64);
        let most = (self.messages.len() / self.message).min(left as usize);
        let count = match self.due(now, most) {
            Ok(count) => count,
            Err(due) => {
                self.stuck = None;
                return Step::Sleep(due.min(now + FAR_AWAY));
            }
        };
        let offered = &mut self.messages[..count * self.message];
        if let Some(head) = &mut self.head {
            for (index, message) in offered.chunks_mut(self.message).enumerate() {
                head.write(message, self.sequence + index as u64, now);
            }
        }
        Step::Send { bytes: offered, message: self.message }
    }

    fn in_block(&self) -> bool {
        self.framing == Framing::Stream
            && self.head.is_some()
            && !self.position.is_multiple_of(self.message as u64)
    }

    /// The message that says that it was the last, where there is one; then the end.
    fn end_step(&mut self, now: Time) -> Step<'_> {
        if let (Some(head), None) = (&mut self.head, self.ending)
            && head.write_end(&mut self.messages[..self.message], now)
        {
            self.ending = Some(0);
        }
        let last = &self.messages[..if self.ending.is_some() { self.message } else { 0 }];
        let said = self.ending.unwrap_or(0);
        if said < last.len() {
            return Step::Send { bytes: &last[said..], message: last.len() };
        }
        self.finished = true;
        if self.tells_end { Step::Finish } else { Step::Done }
    }
}

impl Party for Source {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.finished || self.is_over() {
            return Step::Done;
        }
        // A block is sent whole: the next head would be taken for its payload.
        let (phase, begins) =
            if self.in_block() { (self.phases.phase(), false) } else { self.phases.at(now) };
        if begins {
            self.recorder.begin(now);
            if let Some(looped) = &self.looped {
                looped.first_ns.store(now.0.max(1), Relaxed);
            }
        }
        if phase == Phase::Over && self.ending.is_none() {
            self.stuck = None;
            if let Some(looped) = &self.looped {
                // After the bytes have been told.
                looped.all_sent.store(true, Release);
            }
        }
        let stuck = now > *self.stuck.get_or_insert(now) + self.timeout;
        // In a loop over a stream the receiver knows better: a line may take nothing for long while its buffer drains.
        if stuck && (self.looped.is_none() || self.framing == Framing::Message) {
            return Step::Fail(Fault::TimedOut);
        }
        if phase == Phase::Over {
            return self.end_step(now);
        }
        match self.framing {
            Framing::Stream => self.stream_step(now),
            Framing::Message => self.message_step(now),
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if bytes == 0 {
            return;
        }
        self.stuck = Some(at);
        if let Some(sent) = &mut self.ending {
            *sent += bytes;
            return;
        }
        let before = self.position / self.message as u64;
        self.position += bytes as u64;
        if let Some(looped) = &self.looped {
            looped.sent_bytes.store(self.position, Relaxed);
        }
        let messages = self.position / self.message as u64 - before;
        self.sequence += messages;
        for _ in 0..messages {
            self.schedule.advance();
        }
        self.phases.sent(messages, bytes as u64);
        if self.phases.phase() == Phase::Measuring {
            self.recorder.counts.sent += messages;
            self.recorder.delivered(at, messages, bytes as u64);
        } else {
            self.recorder.counts.warm_up += messages;
        }
    }

    fn received(&mut self, _now: Time) {}

    fn timed_out(&mut self, _now: Time) {}

    /// A slow link empties its buffer before it takes more: as long as it does, it is not stuck.
    fn waits(&mut self, now: Time, unacknowledged: Option<u64>) {
        let before = std::mem::replace(&mut self.on_the_way, unacknowledged.unwrap_or(0));
        if self.on_the_way < before {
            self.stuck = Some(now);
        }
    }
}

impl Measured for Source {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
