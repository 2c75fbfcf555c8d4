//! The receiving end of a throughput: counts what is new, compares what comes back in a loop, and knows how long to wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::OFFER;
use super::bounds::{Bounds, Held, quiet};
use super::comparison::{Comparison, Looped};
use super::head::{Blocks, Head, Numbered, Read};
use super::sign::Sign;
use super::tracker::Tracker;
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, MOST_IN_BATCH};
use crate::plan::{Case, Stop};
use crate::sample::Recorder;
use crate::workload::Measured;
use crate::workload::pattern::{self, Alphabet};
use crate::workload::phases::{Phase, Phases};

/// Room for what one receive operation brings of a stream: stays in the cache where the next operation reuses it.
const STREAM_ROOM: usize = 128 * 1024;

/// What a line would carry in this time is not lost in one piece: it is a line that carries nothing any more.
const STOPPED: Duration = Duration::from_secs(1);

/// Why a loop ends that brings something back for much longer than planned.
const TOO_SLOW: &str =
    "what was sent takes much longer to come back than the measurement: send less, with --volume or --rate";

/// What one receive operation brought.
struct Came {
    /// New messages of this flow, and their bytes.
    messages: u64,
    bytes: u64,
    /// Something of this flow came. Strange messages are no reason to wait on.
    is_of_flow: bool,
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

    /// The bytes are those that a [`super::Source`] on the other half of the link sent.
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

    /// Whether silence is its regular end: what the sender has finished with cannot be told otherwise.
    pub fn may_end_in_silence(&self) -> bool {
        self.begun && self.framing == Framing::Message && (self.ends_silently || self.looped.is_some())
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

    /// Looks at what came.
    #[inline]
    fn take(&mut self, now: Time) -> Came {
        let mut came = Came { messages: 0, bytes: 0, is_of_flow: false };
        let before = self.position;
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
                came.bytes += payload;
                came.is_of_flow = true;
                continue;
            };
            self.position += length;
            let strange = self.tracker.strange;
            match head.read(message, self.tracker.next, now) {
                Read::End => self.over = true,
                Read::Number(number) if length == self.message => {
                    if self.tracker.is_new(number) {
                        came.messages += 1;
                        came.bytes += length;
                    }
                }
                _ => self.tracker.strange += 1,
            }
            came.is_of_flow |= self.tracker.strange == strange;
        }
        self.over |= self.blocks.as_ref().is_some_and(Blocks::is_over);
        if self.framing == Framing::Stream {
            // A stream has no message boundaries: its messages are counted by its bytes.
            came.messages = self.position / self.message - before / self.message;
        }
        came
    }

    /// Whether the last byte that was sent has come back, as far as can be told.
    fn has_all(&self) -> bool {
        self.looped.as_ref().is_some_and(|(looped, expected)| {
            let position = match expected {
                Expected::Stream(comparison) if self.lossy.is_some() => comparison.position(),
                Expected::Stream(_) => self.position,
                // Neither copies nor strange messages take the place of one that is missing.
                Expected::Message(_) => self.tracker.new * self.message,
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
            (Framing::Message, _) => self.may_end_in_silence(),
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
        let (before, passed, missing) = (self.position, self.passed(), self.missing());
        let came = self.take(now);
        if came.is_of_flow {
            (self.waits_since, self.begun) = (Some(now), true);
            let (phase, begins) = self.phases.at(now);
            if begins {
                self.warmed_up = (passed, missing);
                match &self.looped {
                    Some((looped, _)) => self.recorder.begin(Time(looped.first_ns.load(Relaxed))),
                    // What arrives first was on its way before the receiver's time began.
                    None => self.recorder.begin_with(now, came.bytes),
                }
            }
            if phase == Phase::Measuring {
                self.recorder.delivered(now, came.messages, came.bytes);
            } else {
                self.phases.sent(self.passed() - passed, came.bytes);
            }
        }
        match self.bounds.hold(now, self.position - before) {
            Held::Within => {}
            Held::TooLong if self.looped.is_none() => self.over = true,
            Held::TooLong => self.fault = Some(Fault::Other(TOO_SLOW.to_owned())),
            Held::TooMuch => {
                self.fault = Some(Fault::Other("the server sends more than was requested".to_owned()));
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
