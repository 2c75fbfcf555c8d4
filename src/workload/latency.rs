//! Latency: exchanges of a request and its answer, timed at the near end. In a closed loop, one at a time; or on a
//! schedule that does not wait for answers, so that a stall is seen by every message it held up.
//!
//! The near end is [`Pinger`], the far end [`Reflector`]. What is said in an exchange is an [`Exchange`]: a peer may
//! replace it, never the pacing, the stop or the recorder.

mod echo;

use std::ops::Range;
use std::time::Duration;

pub use echo::Echo;

use super::pattern::Alphabet;
use super::phases::{Phase, Phases, Schedule};
use super::{FarReport, Flowed, Measured, Role, Workload};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing};
use crate::plan::{Case, Direction, Pacing, Stop};
use crate::run::Figures;
use crate::sample::{Recorder, Sample, Stages};

pub const WORKLOAD: Workload = Workload {
    name: "latency",
    summary: "round-trip time of messages, one at a time or on a schedule",
    default_stop: Stop { count: Some(10_000), time_ns: Some(10_000_000_000), volume_bytes: None },
    default_direction: Direction::Loop,
    default_timeout: Duration::from_secs(1),
    default_size: |_| 1,
    // The first exchanges pay for cold caches, ARP and slow start.
    default_warm_up: Stop { count: Some(100), time_ns: Some(500_000_000), volume_bytes: None },
    method,
    figures,
};

/// Largest answer taken in one piece; larger ones arrive in several.
const CHUNK: usize = 65_536;

/// Messages that may be on their way at once on a schedule; beyond, the schedule waits and counts it.
const WINDOW: u64 = 16_384;

/// So many requests without a single reply, from the first one on, over so long a time: nothing there replies. With a time-out
/// shorter than the round trip every reply is late, and still tells that there is a server.
const MAX_UNANSWERED: u64 = 5;
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// Numbers remembered at least: so late may an answer be, in time-outs, and still be known as late.
const REMEMBERED: u64 = 256;

fn method(case: &Case) -> String {
    let loop_ = match case.pacing {
        Pacing::Closed => "closed",
        Pacing::Fixed { .. } => "fixed-schedule",
        Pacing::Poisson { .. } => "poisson-schedule",
    };
    format!("latency/1 {loop_}")
}

fn figures(case: &Case, flows: &[Flowed], _far: Option<&FarReport>) -> Figures {
    super::merged(flows, Role::Exchange).map_or_else(Figures::default, |all| all.latency_figures(&case.late))
}

/// What is said in an exchange, and when the answer is whole.
pub trait Exchange: Send {
    fn request(&mut self, sequence: u64) -> &[u8];

    /// How late it is, before each request; for those that carry the time.
    fn tell_time(&mut self, _now: Time) {}

    /// Looks at bytes that came in; `waiting` are the numbers without an answer.
    fn answer(&mut self, data: &[u8], waiting: Range<u64>) -> Answer;

    /// No answer to this number is waited for any longer.
    fn given_up(&mut self, _sequence: u64) {}

    /// Why the far end refused to answer, for one line.
    fn refusal(&self) -> String {
        "the far end refuses to answer".to_owned()
    }

    /// Whole answers come with [`Exchange::stages`].
    fn is_staged(&self) -> bool {
        false
    }

    /// What the far end told in the last answer of when it came and left.
    fn stages(&self) -> Option<Stages> {
        None
    }

    /// Answers tell what they answer. Where they do not, one request is on its way at a time, and what still comes is
    /// read before the next one: after a lost exchange for as long as the time-out again.
    fn is_numbered(&self) -> bool {
        true
    }
}

/// What the bytes meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// All were taken, the answer is not whole yet.
    Partial,
    /// Number `sequence` is answered with the first `used` bytes, some of which may be wrong.
    Whole { sequence: u64, used: usize, corrupt_bytes: u64 },
    /// Number `sequence` is answered with the first `used` bytes, but not with what was expected.
    Wrong { sequence: u64, used: usize },
    /// The first `used` bytes belong to no exchange.
    Stray { used: usize },
    /// What came up to the first `used` bytes is no answer, and nobody knows where it ends.
    Broken { used: usize },
    /// The far end answers no question of this kind; [`Exchange::refusal`] says why.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Answered,
    Lost,
}

/// One number on its way.
#[derive(Debug, Clone, Copy)]
struct Slot {
    intended: Time,
    sent: Time,
    state: State,
    measured: bool,
}

/// The near end: sends requests, matches answers, records.
pub struct Pinger {
    exchange: Box<dyn Exchange>,
    schedule: Schedule,
    phases: Phases,
    /// The next message is the first that counts.
    begins: bool,
    timeout: Duration,
    payload_bytes: u64,
    window: u64,
    recorder: Recorder,
    tuning: Option<Tuning>,
    /// A ring, indexed by sequence number; twice the window, so that late answers and copies are known as such.
    slots: Vec<Slot>,
    oldest: u64,
    next: u64,
    highest: Option<u64>,
    /// Bytes of the request being sent, and how many of them the link has taken.
    length: usize,
    taken: usize,
    /// Most bytes of a request offered at once.
    piece: usize,
    /// The link was offered bytes; they are taken, or it was in vain.
    offered: bool,
    /// Since then nothing of an unfinished request has been taken.
    stuck: Option<Time>,
    /// Take what lies ready before sending on: the far end may be waiting for just that.
    look: bool,
    closed: bool,
    refused: bool,
    batch: Batch,
    /// Whether answers have numbers; the next three matter only where they have none.
    numbered: bool,
    /// Nothing more was coming when last looked at, so that the next request can go.
    heard_out: bool,
    /// The late answer to a lost request is waited for until then.
    listens_until: Time,
    listens_since: Option<Time>,
    /// Requests given up before the first byte came, where it would take too long to go on with all that are planned.
    unanswered: Option<u64>,
    /// Recorded while the next answer is on its way, so that recording is not part of any latency.
    unrecorded: Option<Sample>,
}

impl Pinger {
    pub fn new(exchange: Box<dyn Exchange>, case: &Case, caps: &Caps, mut recorder: Recorder) -> Pinger {
        if exchange.is_staged() {
            recorder.expect_stages();
        }
        recorder.watch_frames(&case.late);
        let numbered = exchange.is_numbered();
        let window = match case.pacing {
            _ if !numbered => 1,
            Pacing::Closed => 1,
            _ => Alphabet::of(caps).distinguishable(case.message_bytes as usize).min(WINDOW),
        };
        let slot = Slot { intended: Time(0), sent: Time(0), state: State::Answered, measured: false };
        let room = match caps.framing {
            Framing::Stream => CHUNK,
            Framing::Message => caps.max_message.unwrap_or(CHUNK).min(CHUNK).max(case.message_bytes as usize),
        };
        Pinger {
            exchange,
            schedule: Schedule::new(case.pacing),
            phases: Phases::new(case.warm_up.unwrap_or_default(), case.stop).with_first_message(),
            begins: false,
            timeout: case.timeout,
            payload_bytes: u64::from(case.message_bytes),
            window,
            recorder,
            tuning: Some(Tuning { wait: case.wait, cpu: case.pin.near, batches_of: None }),
            slots: vec![slot; (2 * window).max(REMEMBERED).next_power_of_two() as usize],
            oldest: 0,
            next: 0,
            highest: None,
            length: 0,
            taken: 0,
            numbered,
            heard_out: numbered,
            listens_until: Time(0),
            listens_since: None,
            piece: if caps.framing == Framing::Stream { CHUNK } else { usize::MAX },
            offered: false,
            stuck: None,
            look: false,
            closed: false,
            refused: false,
            batch: Batch::new(room, 1),
            // Without a time to end it each request would take a time-out.
            unanswered: (caps.is_device_line() || window == 1 && case.stop.time_ns.is_none()).then_some(0),
            unrecorded: None,
        }
    }

    /// Whether strange bytes count: from the first message that does.
    fn is_measuring(&self) -> bool {
        self.phases.phase() != Phase::WarmUp && !self.begins
    }

    fn slot(&mut self, sequence: u64) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[sequence as usize & mask]
    }

    /// Gives up what has waited too long; moves `oldest` over everything that is settled.
    fn settle(&mut self, now: Time) {
        while self.oldest < self.next {
            let (oldest, timeout) = (self.oldest, self.timeout);
            let slot = self.slot(oldest);
            if slot.state == State::Waiting {
                if now < slot.sent + timeout {
                    return;
                }
                slot.state = State::Lost;
                let (intended, measured) = (slot.intended, slot.measured);
                if measured {
                    self.recorder.lost(now);
                    self.recorder.missed(oldest, intended);
                }
                self.exchange.given_up(oldest);
                self.unanswered = self.unanswered.map(|unanswered| unanswered + 1);
                self.listens_until = now + timeout;
            }
            self.oldest += 1;
        }
    }

    fn record_pending(&mut self) {
        if let Some(sample) = self.unrecorded.take() {
            self.recorder.answered(sample, self.payload_bytes);
        }
    }

    /// Whether the next request must wait for what may still come; a device that never falls silent is cut short.
    fn listens(&mut self, now: Time) -> bool {
        let since = *self.listens_since.get_or_insert(now);
        !self.heard_out && now < since + 2 * self.timeout
    }

    /// An answer to `sequence` is here.
    fn answered(&mut self, sequence: u64, corrupt_bytes: u64, wrong: bool, now: Time) {
        let known = self.next.saturating_sub(self.slots.len() as u64)..self.next;
        if !known.contains(&sequence) {
            let is_measuring = u64::from(self.is_measuring());
            // Further ahead than this it is no number of ours at all.
            match (self.next..self.next + self.slots.len() as u64).contains(&sequence) {
                true => self.recorder.counts.early += is_measuring,
                false => self.recorder.counts.corrupt_messages += is_measuring,
            }
            return;
        }
        let reordered = self.highest.is_some_and(|highest| sequence < highest);
        let slot = self.slot(sequence);
        let (state, measured) = (slot.state, slot.measured);
        if state == State::Lost {
            self.listens_until = now;
        }
        let slot = self.slot(sequence);
        let sample = Sample { sequence, intended: slot.intended, sent: slot.sent, received: now };
        if state == State::Waiting {
            slot.state = State::Answered;
            self.highest = self.highest.max(Some(sequence));
        }
        if !measured {
            return;
        }
        match state {
            State::Waiting => {
                self.recorder.counts.reordered += u64::from(reordered);
                self.recorder.counts.corrupt_bytes += corrupt_bytes;
                self.recorder.counts.corrupt_messages += u64::from(wrong);
                self.record_pending();
                self.unrecorded = Some(sample);
                if let Some(stages) = self.exchange.stages() {
                    self.recorder.staged(sample, stages);
                }
            }
            State::Lost => self.recorder.counts.late += 1,
            State::Answered => self.recorder.counts.duplicate += 1,
        }
    }
}

impl Party for Pinger {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        self.settle(now);
        if self.refused {
            return Step::Fail(Fault::Other(self.exchange.refusal()));
        }
        let is_silent = |&unanswered: &u64| {
            let silence = self.timeout.saturating_mul(u32::try_from(unanswered).unwrap_or(u32::MAX));
            unanswered >= MAX_UNANSWERED && silence >= LEAST_SILENCE
        };
        if self.unanswered.as_ref().is_some_and(is_silent) {
            return Step::Fail(Fault::TimedOut);
        }
        let waiting = self.next - self.oldest;
        let gives_up = if waiting > 0 { self.slot(self.oldest).sent + self.timeout } else { Time::NEVER };
        if self.offered {
            (self.offered, self.look) = (false, true);
            self.stuck.get_or_insert(now);
        }
        if self.stuck.is_some_and(|since| now >= since + self.timeout) {
            return Step::Fail(Fault::TimedOut);
        }
        if self.look {
            return Step::Receive { into: &mut self.batch, until: now };
        }
        if self.taken == 0 {
            let (phase, begins) = self.phases.at(now);
            self.begins |= begins;
            if phase == Phase::Over {
                self.stuck = None;
                if waiting == 0 {
                    return Step::Done;
                }
            }
            let due = self.schedule.due(now);
            if phase == Phase::Over || waiting >= self.window || due > now && waiting > 0 {
                let until = if waiting >= self.window || phase == Phase::Over { gives_up } else { due };
                return Step::Receive { into: &mut self.batch, until: until.min(gives_up) };
            }
            if due > now {
                return Step::Sleep(due);
            }
            if !self.numbered && self.listens(now) {
                return Step::Receive { into: &mut self.batch, until: self.listens_until.max(now) };
            }
        }
        self.exchange.tell_time(now);
        let request = self.exchange.request(self.next);
        self.length = request.len();
        self.offered = true;
        let rest = &request[self.taken..];
        Step::Send { bytes: &rest[..rest.len().min(self.piece)], message: request.len() }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if self.taken == 0 {
            let intended = if self.schedule.is_closed() { at } else { self.schedule.due(at) };
            let measured = self.phases.phase() == Phase::Measuring;
            if std::mem::take(&mut self.begins) {
                self.recorder.begin(at);
                self.phases.began(at);
            }
            *self.slot(self.next) = Slot { intended, sent: at, state: State::Waiting, measured };
        }
        self.taken += bytes;
        self.offered = false;
        if self.taken < self.length {
            (self.stuck, self.look) = (Some(at), true);
        } else {
            self.taken = 0;
            self.stuck = None;
            self.next += 1;
            self.schedule.advance();
            if self.phases.phase() == Phase::Measuring {
                self.recorder.counts.sent += 1;
                // The schedule has moved on: if the message after this one is already due, this one was held up.
                let held_up = !self.schedule.is_closed() && self.schedule.due(at) <= at;
                self.recorder.counts.missed_sends += u64::from(held_up);
            }
            self.phases.sent(1, self.payload_bytes);
            (self.heard_out, self.listens_since) = (self.numbered, None);
        }
        self.record_pending();
    }

    fn received(&mut self, now: Time) {
        self.unanswered = None;
        // Of what comes without end, one operation at a time is looked at before the next request, or the rest of one.
        self.look = false;
        let batch = std::mem::take(&mut self.batch);
        // The answer to a long request may begin before all of it is sent.
        let sending = u64::from(self.taken > 0);
        for message in batch.messages() {
            let mut data = message;
            while !data.is_empty() {
                match self.exchange.answer(data, self.oldest..self.next + sending) {
                    Answer::Partial => break,
                    Answer::Whole { sequence, used, corrupt_bytes } => {
                        self.answered(sequence, corrupt_bytes, corrupt_bytes > 0, now);
                        data = &data[used..];
                    }
                    Answer::Wrong { sequence, used } => {
                        self.answered(sequence, 0, true, now);
                        data = &data[used..];
                    }
                    Answer::Stray { used } => {
                        if self.is_measuring() {
                            self.recorder.counts.corrupt_bytes += used as u64;
                        }
                        data = &data[used..];
                    }
                    Answer::Broken { used } => {
                        if self.is_measuring() {
                            self.recorder.counts.corrupt_messages += 1;
                        }
                        data = &data[used..];
                    }
                    Answer::Refused => {
                        self.refused = true;
                        break;
                    }
                }
            }
        }
        self.batch = batch;
    }

    fn timed_out(&mut self, _now: Time) {
        self.heard_out |= self.oldest == self.next;
        self.look = false;
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.closed = true;
        Err(Fault::Closed)
    }

    fn ended(&mut self, _cost: Cost) {
        self.record_pending();
        self.recorder.settle();
        for sequence in self.oldest..self.next {
            let slot = *self.slot(sequence);
            if !slot.measured || slot.state != State::Waiting {
                continue;
            }
            if self.closed {
                self.recorder.lost(slot.sent);
                self.recorder.missed(sequence, slot.intended);
            } else {
                // Stopped in the middle: this one is neither answered nor lost, so it was not measured.
                self.recorder.counts.sent -= 1;
            }
        }
        self.oldest = self.next;
    }
}

impl Measured for Pinger {
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
    span: Range<usize>,
    framing: Framing,
    tuning: Option<Tuning>,
    idle: Duration,
    last: Option<Time>,
    returned: u64,
    over: bool,
}

impl Reflector {
    /// Ends when nothing came for `idle`.
    pub fn new(framing: Framing, largest: usize, tuning: Tuning, idle: Duration) -> Reflector {
        Reflector {
            batch: Batch::new(largest, 1),
            span: 0..0,
            framing,
            tuning: Some(tuning),
            idle,
            last: None,
            returned: 0,
            over: false,
        }
    }

    /// What came last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Bytes sent back so far.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// Sends `bytes` back first: they came before it was known that they are to be echoed.
    pub fn starting_with(mut self, bytes: &[u8]) -> Reflector {
        self.batch.bytes[..bytes.len()].copy_from_slice(bytes);
        self.span = 0..bytes.len();
        self
    }
}

impl Party for Reflector {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if !self.span.is_empty() {
            return Step::Send { bytes: &self.batch.bytes[self.span.clone()], message: self.span.len() };
        }
        if self.over {
            return Step::Done;
        }
        let last = *self.last.get_or_insert(now);
        Step::Receive { into: &mut self.batch, until: last + self.idle }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, _at: Time) {
        self.span.start += bytes;
        self.returned += bytes as u64;
        if self.framing == Framing::Message {
            self.span = 0..0;
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        self.last = Some(now);
        let length = self.batch.messages().next().map_or(0, <[u8]>::len);
        self.span = 0..length;
    }

    fn timed_out(&mut self, _now: Time) {
        self.over = true;
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
