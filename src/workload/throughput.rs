//! Throughput: payload that one end sends and the other receives and counts; what counts is what was delivered.
//!
//! The ends are [`Source`] and [`Sink`], near or far. Over a plug or an echo (direction `loop`) both are near ends, on
//! the two halves of one link, and every byte that comes back is compared with what was sent.

mod bounds;
pub mod comparison;
mod figures;
pub mod head;
mod sign;
#[cfg(test)]
mod tests;
mod tracker;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::phases::{Phase, Phases, Schedule};
use bounds::{Bounds, Held, quiet};
use comparison::Comparison;
pub use comparison::Looped;
use head::{Blocks, Head, Numbered, Read};
use sign::Sign;
use tracker::Tracker;

use super::pattern::{self, Alphabet};
use super::{Measured, Workload};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, Line, MOST_IN_BATCH};
use crate::plan::{Case, Direction, Pacing, Stop};
use crate::sample::Recorder;

pub const WORKLOAD: Workload = Workload {
    name: "throughput",
    summary: "payload delivered per second, one or both ways",
    default_stop: Stop { count: None, time_ns: Some(10_000_000_000), volume_bytes: None },
    default_direction: Direction::Send,
    // Long enough for a retransmission time-out over a satellite.
    default_timeout: Duration::from_secs(5),
    default_size,
    default_warm_up: Stop { count: None, time_ns: None, volume_bytes: None },
    method: |case| match case.pacing {
        Pacing::Closed => "throughput/1 unpaced".to_owned(),
        _ => "throughput/1 paced".to_owned(),
    },
    figures: figures::figures,
};

/// One write of a stream: on loop-back 10 % cheaper a byte than half of it, and twice it gains nothing more. On a line
/// what it carries in 10 ms, rounded down to a power of two: so few that the line decides, so many that calls do not.
/// A message: what fits an Ethernet frame through most tunnels.
fn default_size(caps: &Caps) -> u32 {
    match caps.framing {
        Framing::Stream
            if caps.device
                && let Some(line) = caps.line =>
        {
            1 << line.bytes_in(Duration::from_millis(10)).ilog2().min(18)
        }
        Framing::Stream => 262_144,
        Framing::Message => 1_400.min(caps.max_message.unwrap_or(1_400)) as u32,
    }
}

/// Bytes offered to the link in one operation, at most: a full packet of segments, or one write.
const OFFER: usize = 65_507;

/// Most bytes of a stream offered at once; longer messages go in several pieces. The kernel's default limit of a send
/// buffer (`net.ipv4.tcp_wmem`) is four times this.
const WRITE: usize = 1 << 20;

/// Room for what one receive operation brings of a stream: stays in the cache where the next operation reuses it.
const STREAM_ROOM: usize = 128 * 1024;

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

/// What a line would carry in this time is not lost in one piece: it is a line that carries nothing any more.
const STOPPED: Duration = Duration::from_secs(1);

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

    /// The bytes come back over the same link to a [`Sink`] that shares this.
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

/// What comes back in a loop when nothing is changed on the way.
enum Expected {
    Stream(Box<Comparison>),
    Message(pattern::Message),
}

/// The receiving end.
pub struct Sink {
    framing: Framing,
    phases: Phases,
    timeout: Duration,
    tuning: Option<Tuning>,
    batch: Batch,
    tracker: Tracker,
    /// In front of each message; a stream has blocks instead, if the peer puts heads into it.
    head: Option<Box<dyn Head>>,
    blocks: Option<Blocks>,
    looped: Option<(Arc<Looped>, Expected)>,
    /// Bytes may be missing from the stream; of more than so many at its end the line has stopped.
    lossy: Option<u64>,
    /// Nothing but silence tells that no more will come.
    ends_silently: bool,
    position: u64,
    /// Messages before the measurement, and those missing among them.
    warmed_up: (u64, u64),
    message: u64,
    quiet: Duration,
    waits_since: Option<Time>,
    bounds: Bounds,
    begun: bool,
    over: bool,
    /// The link was closed behind the last byte.
    closed: bool,
    fault: Option<Fault>,
    /// What tells a sender on a link without connections that somebody receives.
    sign: Option<Sign>,
    recorder: Recorder,
}

impl Sink {
    pub fn new(case: &Case, caps: &Caps, tuning: Tuning, recorder: Recorder) -> Sink {
        let message = case.message_bytes as usize;
        let batch = match caps.framing {
            Framing::Stream => Batch::new(STREAM_ROOM, 1),
            Framing::Message => Batch::new(message, (2 * OFFER / message).clamp(2, MOST_IN_BATCH)),
        };
        Sink {
            framing: caps.framing,
            phases: Phases::new(case.warm_up.unwrap_or_default(), Stop::default()),
            timeout: case.timeout,
            tuning: Some(Tuning { batches_of: Some(case.message_bytes), ..tuning }),
            batch,
            tracker: Tracker::new(),
            head: (caps.framing == Framing::Message).then(|| Box::new(Numbered) as Box<dyn Head>),
            blocks: None,
            looped: None,
            lossy: (!caps.reliable).then(|| caps.line.map_or(u64::MAX, |line| line.bytes_in(STOPPED))),
            ends_silently: caps.framing == Framing::Message && !caps.closes,
            position: 0,
            warmed_up: (0, 0),
            message: u64::from(case.message_bytes),
            quiet: quiet(case.pacing),
            waits_since: None,
            bounds: Bounds::new(case),
            begun: false,
            over: false,
            closed: false,
            fault: None,
            sign: None,
            recorder,
        }
    }

    /// Says that it is there, now and again, with this message.
    pub fn with_sign(mut self, bytes: Vec<u8>) -> Sink {
        self.sign = Some(Sign::new(bytes));
        self
    }

    /// The bytes are those that a [`Source`] on the other half of the link sent.
    pub fn looped(mut self, caps: &Caps, looped: Arc<Looped>) -> Sink {
        let alphabet = Alphabet::of(caps);
        let expected = match self.framing {
            Framing::Stream => Expected::Stream(Box::new(Comparison::new(STREAM_ROOM, &alphabet))),
            Framing::Message => Expected::Message(pattern::Message::new(self.message as usize, alphabet)),
        };
        self.looped = Some((looped, expected));
        self
    }

    /// The peer's head instead of our own; a stream is then one of blocks.
    pub fn with_head(mut self, head: Box<dyn Head>) -> Sink {
        match self.framing {
            Framing::Stream => self.blocks = Some(Blocks::new(head, self.message)),
            Framing::Message => self.head = Some(head),
        }
        self
    }

    /// What came behind the end of a stream of blocks: the peer's next words.
    pub fn surplus(&self) -> &[u8] {
        self.blocks.as_ref().map_or(&[], Blocks::surplus)
    }

    /// The flow begins: what was waited before does not count.
    pub fn wait_from(&mut self, now: Time) {
        self.waits_since = Some(now);
    }

    /// What came last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes received so far, warm-up and copies included.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the sender said that it sends no more, by closing.
    pub fn has_seen_end(&self) -> bool {
        self.closed
    }

    /// Whether the last byte that was sent has come back, as far as can be told.
    fn has_all(&self) -> bool {
        self.looped.as_ref().is_some_and(|(looped, expected)| {
            let position = match expected {
                Expected::Stream(comparison) if self.lossy.is_some() => comparison.position(),
                _ => self.position,
            };
            looped.all_sent.load(Acquire) && position >= looped.sent_bytes.load(Relaxed)
        })
    }

    /// The same, and nothing that comes could still tell otherwise.
    fn all_back(&self) -> bool {
        let settled = match &self.looped {
            Some((_, Expected::Stream(comparison))) if self.lossy.is_some() => comparison.is_settled(),
            _ => true,
        };
        settled && self.has_all()
    }

    /// Messages that were sent to get here since the measurement began, as far as can be seen.
    pub fn counted(&self) -> u64 {
        self.passed() - self.warmed_up.0
    }

    /// The same with those of the warm-up.
    pub fn passed(&self) -> u64 {
        if self.head.is_some() { self.tracker.next } else { self.position / self.message }
    }

    /// Messages that are missing among those, as far as they have numbers.
    pub fn missing(&self) -> u64 {
        self.tracker.next - self.tracker.new
    }

    /// Of the missing, those of the warm-up.
    pub fn missing_in_warm_up(&self) -> u64 {
        self.warmed_up.1
    }

    /// How long it waits for more.
    #[inline]
    fn patience(&self) -> Duration {
        match self.ends_silently && self.begun {
            true => self.quiet,
            // A slow schedule is not silence.
            false => self.timeout.max(self.quiet),
        }
    }

    fn silent(&mut self) {
        // A message link without a notion of closing ends in silence, and so does a loop over a line that loses bytes:
        // what has not come back is counted. Any other stream that falls silent has failed.
        self.over = true;
        let may_be_silent = match (self.framing, &self.looped) {
            (Framing::Stream, Some((looped, Expected::Stream(comparison)))) => {
                let rest = looped.sent_bytes.load(Relaxed).saturating_sub(comparison.position());
                // Where nothing ever came, that is said.
                self.has_all() || self.lossy.is_some_and(|most| rest <= most || self.position == 0)
            }
            (Framing::Stream, Some(_)) => self.has_all(),
            (Framing::Stream, None) => false,
            (Framing::Message, looped) => self.begun && (self.ends_silently || looped.is_some()),
        };
        if !may_be_silent {
            self.fault = Some(Fault::TimedOut);
        }
    }

    /// What became of the stream of a loop.
    fn judge(&mut self) {
        let over = self.over;
        self.recorder.counts.broken_off = self.looped.is_some() && !over && !self.has_all();
        let Some((looped, expected)) = &mut self.looped else { return };
        looped.over.store(true, Relaxed);
        let Expected::Stream(comparison) = expected else { return };
        // Of a run that was broken off, nobody knows what would still have come.
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
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if let Some(fault) = self.fault.take() {
            return Step::Fail(fault);
        }
        if self.over || self.all_back() {
            return Step::Done;
        }
        let until = *self.waits_since.get_or_insert(now) + self.patience();
        match &self.sign {
            Some(sign) if now >= sign.due && now < until => sign.step(),
            sign => Step::Receive {
                into: &mut self.batch,
                until: sign.as_ref().map_or(until, |s| until.min(s.due)),
            },
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        (self.waits_since, self.begun) = (Some(now), true);
        let (phase, begins) = self.phases.at(now);
        let (mut messages, mut bytes) = (0, 0);
        let (before, passed, missing) = (self.position, self.passed(), self.missing());
        for message in self.batch.messages() {
            match &mut self.looped {
                Some((_, Expected::Stream(comparison))) => comparison.take(message),
                Some((_, Expected::Message(expected))) => {
                    let body = message.get(pattern::HEADER..).unwrap_or_default();
                    self.recorder.counts.corrupt_bytes += pattern::differing(body, expected.body());
                }
                None => {}
            }
            let length = message.len() as u64;
            let Some(head) = &mut self.head else {
                let payload = self.blocks.as_mut().map_or(length, |blocks| blocks.take(message, now));
                self.position += payload;
                bytes += payload;
                continue;
            };
            self.position += length;
            match head.read(message, self.tracker.next, now) {
                Read::End => self.over = true,
                Read::Number(number) if length == self.message => {
                    if self.tracker.is_new(number) {
                        messages += 1;
                        bytes += length;
                    }
                }
                _ => self.tracker.strange += 1,
            }
        }
        self.over |= self.blocks.as_ref().is_some_and(Blocks::is_over);
        if self.framing == Framing::Stream {
            // A stream keeps no borders: its messages are counted by its bytes.
            messages = self.position / self.message - before / self.message;
        }
        if begins {
            self.warmed_up = (passed, missing);
            match &self.looped {
                Some((looped, _)) => self.recorder.begin(Time(looped.first_ns.load(Relaxed))),
                // What arrives first was on its way before the receiver's time began.
                None => self.recorder.begin_with(now, bytes),
            }
        }
        if phase == Phase::Measuring {
            self.recorder.delivered(now, messages, bytes);
        } else {
            self.phases.sent(self.passed() - passed, bytes);
        }
        if self.looped.is_none() {
            match self.bounds.hold(now, self.position - before) {
                Held::Within => {}
                Held::TooLong => self.over = true,
                Held::TooMuch => {
                    self.fault = Some(Fault::Other("the server sends more than was requested".to_owned()));
                }
            }
        }
    }

    fn sent(&mut self, _bytes: usize, at: Time) {
        if let Some(sign) = &mut self.sign {
            sign.was_sent(at);
        }
    }

    fn timed_out(&mut self, now: Time) {
        if self.waits_since.is_none_or(|since| now >= since + self.patience()) {
            self.silent();
        }
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        (self.over, self.closed) = (true, true);
        // What was sent into a loop and is still in it will not come back. A reliable stream has to bring all of it.
        if self.looped.is_some() && !self.has_all() { Err(Fault::Closed) } else { Ok(()) }
    }

    fn ended(&mut self, _cost: Cost) {
        self.judge();
        let has_warmed_up = self.phases.phase() != Phase::WarmUp;
        self.recorder.counts.warm_up = if has_warmed_up { self.warmed_up.0 } else { self.passed() };
        self.recorder.counts.duplicate += self.tracker.duplicate;
        self.recorder.counts.reordered += self.tracker.reordered;
        let strange = self.blocks.as_ref().map_or(0, |blocks| blocks.strange);
        self.recorder.counts.corrupt_messages += self.tracker.strange + strange;
    }
}

impl Measured for Sink {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}
