//! Throughput: payload that one end sends and the other receives and counts; what counts is what was delivered.
//!
//! The ends are [`Source`] and [`Sink`], near or far. Over a plug or an echo (direction `loop`) both are near ends, on
//! the two halves of one link, and every byte that comes back is compared with what was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::phases::{Phase, Phases, Schedule};
use super::{FarReport, Flowed, Measured, Role, Workload, merged, pattern};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Batch, Caps, Fault, Framing, MOST_IN_BATCH};
use crate::plan::{Case, Direction, Pacing, Stop};
use crate::run::Figures;
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
    figures,
};

/// One write of a stream: on loop-back 10 % cheaper a byte than half of it, and twice it gains nothing more.
/// A message: what fits an Ethernet frame through most tunnels.
fn default_size(caps: &Caps) -> u32 {
    match caps.framing {
        Framing::Stream => 262_144,
        Framing::Message => 1_400.min(caps.max_message.unwrap_or(1_400)) as u32,
    }
}

/// Bytes offered to the link in one operation, at most: a full packet of segments, or one write.
const OFFER: usize = 65_507;

/// Room for what one receive operation brings of a stream: stays in the cache where the next operation reuses it.
const STREAM_ROOM: usize = 128 * 1024;

/// Silence after which a receiver of messages takes the flow as over, where a link cannot say so.
const QUIET: Duration = Duration::from_millis(300);

/// Nothing wakes a sender that waits for its schedule but time; it looks around at least this often.
const FAR_AWAY: Duration = Duration::from_millis(100);

/// How long a receiver of messages waits for one more.
fn quiet(pacing: Pacing) -> Duration {
    match pacing {
        Pacing::Closed => QUIET,
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => {
            QUIET.max(Duration::from_secs_f64((10.0 / per_second).min(60.0)))
        }
    }
}

/// What a sender and the receiver of the same bytes (direction `loop`) know of each other.
#[derive(Debug, Default)]
pub struct Looped {
    /// When the first byte was sent; 0 before.
    first_ns: AtomicU64,
    sent_bytes: AtomicU64,
    all_sent: AtomicBool,
}

/// The sending end.
pub struct Source {
    framing: Framing,
    message: usize,
    schedule: Schedule,
    phases: Phases,
    timeout: Duration,
    tuning: Option<Tuning>,
    stream: pattern::Stream,
    /// Messages end to end, each with its number in front.
    messages: Vec<u8>,
    /// Number of the first message in `messages`, and of the next that has not been written there.
    sequence: u64,
    position: u64,
    last_taken: Option<Time>,
    offered: usize,
    looped: Option<Arc<Looped>>,
    finished: bool,
    recorder: Recorder,
}

impl Source {
    pub fn new(case: &Case, caps: &Caps, tuning: Tuning, recorder: Recorder) -> Source {
        let message = case.message_bytes as usize;
        let in_batch = (OFFER / message.max(1)).clamp(1, MOST_IN_BATCH / 2);
        let messages = match caps.framing {
            Framing::Stream => Vec::new(),
            Framing::Message => {
                let one = pattern::Message::new(message);
                let body = one.body();
                let head = vec![0; message - body.len()];
                (0..in_batch).flat_map(|_| head.iter().chain(body)).copied().collect()
            }
        };
        Source {
            framing: caps.framing,
            message,
            schedule: Schedule::new(case.pacing),
            phases: Phases::new(case.warm_up.unwrap_or_default(), case.stop),
            timeout: case.timeout,
            tuning: Some(Tuning { batches_of: Some(case.message_bytes), ..tuning }),
            stream: pattern::Stream::new(if caps.framing == Framing::Stream { message } else { 0 }),
            messages,
            sequence: 0,
            position: 0,
            last_taken: None,
            offered: 0,
            looped: None,
            finished: false,
            recorder,
        }
    }

    /// The bytes come back to a [`Sink`] that shares this.
    pub fn looped(mut self, looped: Arc<Looped>) -> Source {
        self.looped = Some(looped);
        self
    }

    /// Since when the link has taken nothing although it could have had something.
    fn waits_since(&mut self, now: Time) -> Time {
        let last = *self.last_taken.get_or_insert(now);
        if self.schedule.is_closed() { last } else { last.max(self.schedule.due(now)) }
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
            return Step::Sleep(due.min(now + FAR_AWAY));
        }
        let left = self.phases.bytes_left(self.message as u64);
        self.offered = ((self.message - into) as u64).min(left) as usize;
        Step::Send { bytes: self.stream.at(self.position, self.offered), message: self.offered }
    }

    /// As many whole messages as are due and fit one operation.
    fn message_step(&mut self, now: Time) -> Step<'_> {
        let left = self.phases.bytes_left(self.message as u64).div_ceil(self.message as u64);
        let most = (self.messages.len() / self.message).min(left as usize);
        let count = match self.due(now, most) {
            Ok(count) => count,
            Err(due) => return Step::Sleep(due.min(now + FAR_AWAY)),
        };
        self.offered = count * self.message;
        for (index, message) in self.messages[..self.offered].chunks_mut(self.message).enumerate() {
            pattern::write_number(message, self.sequence + index as u64);
        }
        Step::Send { bytes: &self.messages[..self.offered], message: self.message }
    }
}

impl Party for Source {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.finished {
            return Step::Done;
        }
        let (phase, begins) = self.phases.at(now);
        if begins {
            self.recorder.begin(now);
            if let Some(looped) = &self.looped {
                looped.first_ns.store(now.0.max(1), Relaxed);
            }
        }
        if phase == Phase::Over {
            self.finished = true;
            if let Some(looped) = &self.looped {
                looped.sent_bytes.store(self.position, Relaxed);
                looped.all_sent.store(true, Relaxed);
            }
            return Step::Finish;
        }
        if now > self.waits_since(now) + self.timeout {
            return Step::Fail(Fault::TimedOut);
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
        self.last_taken = Some(at);
        let before = self.position / self.message as u64;
        self.position += bytes as u64;
        let messages = self.position / self.message as u64 - before;
        self.sequence += messages;
        for _ in 0..messages {
            self.schedule.advance();
        }
        self.phases.sent(messages, bytes as u64);
        if self.phases.phase() == Phase::Measuring {
            self.recorder.counts.sent += messages;
            self.recorder.delivered(at, messages, bytes as u64);
        }
    }

    fn received(&mut self, _now: Time) {}

    fn timed_out(&mut self, _now: Time) {}
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
    Stream(pattern::Stream),
    Message(pattern::Message),
}

impl Expected {
    /// Bytes that are other than they were sent.
    fn differing(&self, position: u64, received: &[u8]) -> u64 {
        match self {
            Expected::Stream(stream) => pattern::differing(received, stream.at(position, received.len())),
            Expected::Message(message) => {
                let body = received.get(pattern::HEADER..).unwrap_or_default();
                pattern::differing(body, message.body())
            }
        }
    }
}

/// The receiving end.
pub struct Sink {
    framing: Framing,
    phases: Phases,
    timeout: Duration,
    tuning: Option<Tuning>,
    batch: Batch,
    tracker: Tracker,
    numbered: bool,
    looped: Option<(Arc<Looped>, Expected)>,
    position: u64,
    message: u64,
    quiet: Duration,
    waits_since: Option<Time>,
    begun: bool,
    over: bool,
    fault: Option<Fault>,
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
            phases: Phases::new(Stop { count: None, ..case.warm_up.unwrap_or_default() }, Stop::default()),
            timeout: case.timeout,
            tuning: Some(Tuning { batches_of: Some(case.message_bytes), ..tuning }),
            batch,
            tracker: Tracker::new(),
            numbered: caps.framing == Framing::Message,
            looped: None,
            position: 0,
            message: u64::from(case.message_bytes),
            quiet: quiet(case.pacing),
            waits_since: None,
            begun: false,
            over: false,
            fault: None,
            recorder,
        }
    }

    /// The bytes are those that a [`Source`] on the other half sent.
    pub fn looped(mut self, looped: Arc<Looped>) -> Sink {
        let expected = match self.framing {
            Framing::Stream => Expected::Stream(pattern::Stream::new(STREAM_ROOM)),
            Framing::Message => Expected::Message(pattern::Message::new(self.message as usize)),
        };
        self.looped = Some((looped, expected));
        self
    }

    /// Whether every byte that was sent has come back.
    fn all_back(&self) -> bool {
        self.looped.as_ref().is_some_and(|(looped, _)| {
            looped.all_sent.load(Relaxed) && self.position >= looped.sent_bytes.load(Relaxed)
        })
    }

    fn silent(&mut self) {
        // A message link without a notion of closing ends in silence; a stream that falls silent has failed.
        self.over = true;
        if self.framing == Framing::Stream || !self.begun {
            self.fault = Some(Fault::TimedOut);
        }
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
        let patience = if self.framing == Framing::Message && self.begun { self.quiet } else { self.timeout };
        let since = *self.waits_since.get_or_insert(now);
        Step::Receive { into: &mut self.batch, until: since + patience }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        (self.waits_since, self.begun) = (Some(now), true);
        let (phase, begins) = self.phases.at(now);
        let (mut messages, mut bytes) = (0, 0);
        let before = self.position;
        for message in self.batch.messages() {
            if let Some((_, expected)) = &self.looped {
                self.recorder.counts.corrupt_bytes += expected.differing(self.position, message);
            }
            self.position += message.len() as u64;
            if self.numbered && !self.tracker.is_new(message) {
                continue;
            }
            messages += 1;
            bytes += message.len() as u64;
        }
        if self.framing == Framing::Stream {
            // A stream keeps no borders: its messages are counted by its bytes.
            messages = self.position / self.message - before / self.message;
        }
        if begins {
            match &self.looped {
                Some((looped, _)) => self.recorder.begin(Time(looped.first_ns.load(Relaxed))),
                // What arrives first was on its way before the receiver's time began.
                None => self.recorder.begin_with(now, bytes),
            }
        }
        if phase == Phase::Measuring {
            self.recorder.delivered(now, messages, bytes);
        }
    }

    fn sent(&mut self, _bytes: usize, _at: Time) {}

    fn timed_out(&mut self, _now: Time) {
        self.silent();
    }

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        // What was sent into a loop and is still in it will not come back.
        if self.looped.is_some() && !self.all_back() { Err(Fault::Closed) } else { Ok(()) }
    }

    fn ended(&mut self, _cost: Cost) {
        self.recorder.counts.duplicate += self.tracker.duplicate;
        self.recorder.counts.reordered += self.tracker.reordered;
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

/// Tells new messages from copies by their numbers, within a window behind the newest.
#[derive(Debug)]
struct Tracker {
    seen: Vec<u64>,
    next: u64,
    duplicate: u64,
    reordered: u64,
}

/// Numbers remembered behind the newest: a second of small datagrams.
const REMEMBERED: u64 = 1 << 18;

impl Tracker {
    fn new() -> Tracker {
        Tracker { seen: vec![0; (REMEMBERED / 64) as usize], next: 0, duplicate: 0, reordered: 0 }
    }

    #[inline]
    fn is_new(&mut self, message: &[u8]) -> bool {
        let number = pattern::read_number(message, self.next);
        if number == self.next {
            self.mark(number);
            self.next += 1;
            return true;
        }
        self.out_of_order(number)
    }

    #[cold]
    fn out_of_order(&mut self, number: u64) -> bool {
        if number > self.next {
            // Everything in between is missing until it comes.
            let gap = number - self.next;
            for missing in self.next..self.next + gap.min(REMEMBERED) {
                self.clear(missing);
            }
            self.mark(number);
            self.next = number + 1;
            return true;
        }
        if self.next - number > REMEMBERED || self.is_marked(number) {
            self.duplicate += 1;
            return false;
        }
        self.mark(number);
        self.reordered += 1;
        true
    }

    fn place(number: u64) -> (usize, u64) {
        (((number % REMEMBERED) / 64) as usize, 1 << (number % 64))
    }

    #[inline]
    fn mark(&mut self, number: u64) {
        let (word, bit) = Tracker::place(number);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = Tracker::place(number);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Tracker::place(number);
        self.seen[word] & bit != 0
    }
}

fn figures(case: &Case, flows: &[Flowed], far: Option<&FarReport>) -> Figures {
    let mut figures = Figures::default();
    let loop_ = case.direction == Some(Direction::Loop);
    let outward = merged(flows, Role::Outward).filter(|_| !loop_);
    let inward = merged(flows, Role::Inward);
    let mut drops: Option<u64> = None;
    let mut sent = 0;
    if let Some(near) = &outward {
        let far_flows = far.iter().flat_map(|far| &far.flows).filter(|flow| !flow.inward);
        sent += near.counts.sent;
        // Without a report nobody knows what was delivered, and nothing is claimed.
        if far.is_some() {
            let delivered = far_flows.fold(Delivered::default(), |all, flow| all.with_far(flow));
            drops = add(drops, delivered.drops);
            figures.received += delivered.messages;
            figures.duplicate += delivered.duplicate;
            figures.reordered += delivered.reordered;
            figures.delivered_bytes = Some(delivered.bytes);
            figures.throughput_bps = delivered.rate();
            figures.messages_per_second = delivered.message_rate();
        }
    }
    if let Some(near) = &inward {
        let delivered = Delivered::near(near);
        sent += match loop_ {
            true => merged(flows, Role::Outward).map_or(0, |source| source.counts.sent),
            false => far.iter().flat_map(|far| &far.flows).filter(|f| f.inward).map(|f| f.messages).sum(),
        };
        let socket = flows.iter().filter(|flow| flow.role == Role::Inward).map(|flow| flow.socket_drops);
        drops = socket.fold(drops, add);
        figures.received += delivered.messages;
        figures.corrupt_bytes += near.counts.corrupt_bytes;
        figures.duplicate += delivered.duplicate;
        figures.reordered += delivered.reordered;
        if outward.is_some() {
            figures.delivered_back_bytes = Some(delivered.bytes);
            figures.throughput_back_bps = delivered.rate();
        } else {
            figures.delivered_bytes = Some(delivered.bytes);
            figures.throughput_bps = delivered.rate();
            figures.messages_per_second = delivered.message_rate();
        }
    }
    figures.sent = sent;
    if figures.delivered_bytes.is_some() {
        figures.lost = sent.saturating_sub(figures.received);
    }
    if let Some(drops) = drops {
        figures.lost_in_socket = Some(drops.min(figures.lost));
        figures.lost_on_path = Some(figures.lost.saturating_sub(drops));
    }
    figures
}

fn add(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    more.map_or(sum, |more| Some(sum.unwrap_or(0) + more))
}

/// What reached the receiving end of all flows of one direction.
#[derive(Default)]
struct Delivered {
    bytes: u64,
    /// Those that came first: they mark the start of the receiver's time and took none of it.
    head_bytes: u64,
    messages: u64,
    duplicate: u64,
    reordered: u64,
    elapsed_ns: u64,
    drops: Option<u64>,
}

impl Delivered {
    fn near(recorder: &Recorder) -> Delivered {
        let counts = &recorder.counts;
        Delivered {
            bytes: counts.bytes,
            head_bytes: recorder.head_bytes,
            messages: counts.received,
            duplicate: counts.duplicate,
            reordered: counts.reordered,
            elapsed_ns: recorder.elapsed_ns(),
            drops: None,
        }
    }

    fn with_far(self, flow: &super::FarFlow) -> Delivered {
        Delivered {
            bytes: self.bytes + flow.bytes,
            head_bytes: self.head_bytes + flow.head_bytes,
            messages: self.messages + flow.messages,
            duplicate: self.duplicate + flow.duplicate,
            reordered: self.reordered + flow.reordered,
            elapsed_ns: self.elapsed_ns.max(flow.elapsed_ns),
            drops: add(self.drops, flow.socket_drops),
        }
    }

    fn rate(&self) -> Option<f64> {
        let timed = self.bytes.saturating_sub(self.head_bytes);
        (self.elapsed_ns > 0).then(|| timed as f64 * 8e9 / self.elapsed_ns as f64)
    }

    fn message_rate(&self) -> Option<f64> {
        (self.elapsed_ns > 0 && self.messages > 0)
            .then(|| self.messages as f64 * 1e9 / self.elapsed_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tracker: &mut Tracker, numbers: &[u64]) -> Vec<bool> {
        numbers.iter().map(|number| tracker.is_new(&number.to_le_bytes())).collect()
    }

    #[test]
    fn copies_and_stragglers_are_told_apart() {
        let mut tracker = Tracker::new();
        let new = numbers(&mut tracker, &[0, 1, 3, 3, 2, 2, 4, 0, 10, 7, 7, 11]);
        assert_eq!(new, [true, true, true, false, true, false, true, false, true, true, false, true]);
        assert_eq!((tracker.duplicate, tracker.reordered), (4, 2));
    }

    #[test]
    fn a_gap_wider_than_memory_forgets_what_was_before() {
        let mut tracker = Tracker::new();
        let far = 5 * REMEMBERED + 17;
        assert_eq!(numbers(&mut tracker, &[0, far, far - 1, far - 1, 0]), [true, true, true, false, false]);
    }
}
