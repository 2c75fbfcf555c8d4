//! A shaped path: what delay, rate, queue and faults of a link do to what passes, one way.
//!
//! A [`Path`] is one direction: a queue, a line of a certain rate behind it and a delay behind that, shared by all
//! connections. A [`Pipe`] is what one connection has on its way. Both are told the time and neither wait nor read a
//! clock: `mem://` runs on them exactly on the virtual clock, and [`Shaped`] puts them around any link. Payload is
//! counted, no headers.

use std::collections::VecDeque;
use std::time::Duration;

use super::Framing;
use crate::clock::Time;
use crate::stats::SplitMix64;

mod link;

pub use link::{Shaped, Shared};

/// What happens to what passes, one way. The default does nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// From the end of the line to the far end.
    pub delay: Duration,
    /// The delay of each piece is uniform between `delay - jitter` and `delay + jitter`; at most `delay`.
    pub jitter: Duration,
    /// The delay of each piece grows by a long tail: of half of them by more than this, of one in ten by more than 9 times
    /// this, of one in a hundred by more than 99 times, of none by more than 999 times.
    pub tail: Duration,
    /// Pieces whose delay grows by `spike`.
    pub spikes: Often,
    pub spike: Duration,
    /// Pieces arrive when the clock stands at a multiple of this, as in the slots of a radio; zero: at any time.
    pub slot: Duration,
    /// Bits of payload per second, above zero; infinite when not limited.
    pub rate: f64,
    /// Bytes that may wait for the line or be on it. Beyond, messages are dropped, and a stream's sender waits.
    pub queue: u64,
    /// Messages that are lost behind the line.
    pub loss: Often,
    /// Messages that arrive twice.
    pub duplicate: Often,
    /// Messages that the next one of the same connection overtakes, if it is sent before they arrive.
    pub reorder: Often,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape::NONE
    }
}

impl Shape {
    pub const NONE: Shape = Shape {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        tail: Duration::ZERO,
        spikes: Often::Never,
        spike: Duration::ZERO,
        slot: Duration::ZERO,
        rate: f64::INFINITY,
        queue: u64::MAX,
        loss: Often::Never,
        duplicate: Often::Never,
        reorder: Often::Never,
    };

    /// Whether messages may be lost, arrive twice or in another order.
    pub fn is_faulty(&self) -> bool {
        [self.loss, self.duplicate, self.reorder].iter().any(|&often| often != Often::Never)
    }

    /// How long so many bytes are on the line.
    pub fn on_line(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * 8e9 / self.rate).round() as u64)
    }
}

/// How often something happens to a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Often {
    Never,
    /// To every n-th.
    Every(u64),
    /// To this share of them, from 0 to 1, at random.
    Share(f64),
}

/// Draws what happens to which message.
#[derive(Debug)]
struct Chance {
    often: Often,
    random: SplitMix64,
    seen: u64,
}

impl Chance {
    fn strikes(&mut self) -> bool {
        self.seen += 1;
        match self.often {
            Often::Never => false,
            Often::Every(n) => self.seen.is_multiple_of(n),
            Often::Share(share) => self.random.uniform() < share,
        }
    }
}

/// What has passed on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Payload that came out.
    pub bytes: u64,
    /// Receipts it came out in, and how late the first byte of each was, together and at worst.
    pub receipts: u64,
    pub late: Duration,
    pub latest: Duration,
    /// Messages that found the queue full.
    pub dropped: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub overtaken: u64,
}

impl Tally {
    /// Books a receipt of so many bytes that were due `late` ago.
    fn note(&mut self, bytes: usize, late: Duration) {
        self.bytes += bytes as u64;
        self.receipts += 1;
        self.late += late;
        self.latest = self.latest.max(late);
    }
}

/// What was done to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deed {
    /// Of all that came into the path, from 0.
    pub number: u64,
    pub came: Time,
    pub bytes: usize,
    pub fate: Fate,
    /// From then until it is out; none when it is dropped or lost. Of one that is overtaken, before it was.
    pub delay: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Passed,
    /// Found the queue full.
    Dropped,
    Lost,
    Twice,
    /// The next one overtakes it, if that is sent before this one arrives.
    Overtaken,
}

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Fate::Passed => "passed",
            Fate::Dropped => "dropped",
            Fate::Lost => "lost",
            Fate::Twice => "twice",
            Fate::Overtaken => "overtaken",
        }
    }
}

/// Is told what was done to each message, when it came.
pub struct Log(pub Box<dyn FnMut(Deed) + Send>);

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Log")
    }
}

/// One direction of a link, shared by its connections.
#[derive(Debug)]
pub struct Path {
    shape: Shape,
    /// The line has been busy from then on, with so many bytes, until it is free: a schedule that no rounding moves.
    busy_from: Time,
    busy_with: u64,
    free: Time,
    jitter: SplitMix64,
    is_faulty: bool,
    loss: Chance,
    duplicate: Chance,
    reorder: Chance,
    tail: SplitMix64,
    spike: Chance,
    pub tally: Tally,
    log: Option<Log>,
    /// Messages that came in.
    messages: u64,
    /// Memory of all pipes, where somebody keeps count.
    in_flight: usize,
    /// When the last piece was due that was spun for.
    spun: Time,
}

/// One piece in a thousand would be later still, some of them by hours.
const LONGEST_TAIL: f64 = 999.0;

/// What becomes of a piece.
struct Passage {
    due: Time,
    twice: bool,
    overtaken: bool,
}

impl Path {
    /// An idle path. The same seed does the same to the same messages.
    pub fn new(shape: Shape, seed: u64) -> Path {
        let mut seeds = SplitMix64::new(seed);
        let mut random = || SplitMix64::new(seeds.uniform().to_bits());
        Path {
            jitter: random(),
            loss: Chance { often: shape.loss, random: random(), seen: 0 },
            duplicate: Chance { often: shape.duplicate, random: random(), seen: 0 },
            reorder: Chance { often: shape.reorder, random: random(), seen: 0 },
            tail: random(),
            spike: Chance { often: shape.spikes, random: random(), seen: 0 },
            is_faulty: shape.is_faulty(),
            shape,
            busy_from: Time(0),
            busy_with: 0,
            free: Time(0),
            tally: Tally::default(),
            log: None,
            messages: 0,
            in_flight: 0,
            spun: Time(0),
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes that wait for the line or are on it.
    fn backlog(&self, now: Time) -> u64 {
        if self.free <= now {
            return 0;
        }
        (self.free.since(now).as_nanos() as f64 * self.shape.rate / 8e9).ceil() as u64
    }

    /// Bytes the queue takes now.
    fn room(&self, now: Time) -> u64 {
        self.shape.queue.saturating_sub(self.backlog(now))
    }

    /// When the queue will be half empty.
    fn half_empty(&self) -> Time {
        let half = self.shape.on_line(self.shape.queue / 2);
        Time(self.free.0.saturating_sub(half.as_nanos() as u64))
    }

    /// Whether a message finds room. One that is larger than the queue passes if nothing else is in it.
    fn takes(&self, bytes: u64, now: Time) -> bool {
        let backlog = self.backlog(now);
        backlog == 0 || backlog.saturating_add(bytes) <= self.shape.queue
    }

    /// When the line will have sent so many bytes more.
    fn occupy(&mut self, bytes: u64, now: Time) -> Time {
        if self.shape.rate.is_infinite() {
            return now;
        }
        if now > self.free {
            (self.busy_from, self.busy_with) = (now, 0);
        }
        self.busy_with += bytes;
        self.free = self.busy_from + self.shape.on_line(self.busy_with);
        self.free
    }

    /// The delay of one piece.
    fn delay(&mut self) -> Duration {
        let Shape { mut delay, jitter, tail, spike, .. } = self.shape;
        let times = |duration: Duration, factor: f64| {
            Duration::from_nanos((duration.as_nanos() as f64 * factor).round() as u64)
        };
        if !jitter.is_zero() {
            delay = (delay + times(jitter, 2.0 * self.jitter.uniform())).saturating_sub(jitter);
        }
        if !tail.is_zero() {
            let share = self.tail.uniform();
            delay += times(tail, (share / (1.0 - share)).min(LONGEST_TAIL));
        }
        if self.spike.strikes() {
            delay += spike;
        }
        delay
    }

    /// The next slot, where there are any.
    fn in_slot(&self, due: Time) -> Time {
        let slot = self.shape.slot.as_nanos() as u64;
        due.0.checked_next_multiple_of(slot).map_or(due, Time)
    }

    /// The end of a stream goes as its last byte would.
    fn pass_end(&mut self, now: Time) -> Time {
        self.occupy(0, now) + self.shape.delay
    }

    /// Something takes its time on the line and does not come out.
    pub fn swallow(&mut self, bytes: usize, now: Time) {
        let _ = self.pass(bytes, Framing::Stream, now);
    }

    fn pass(&mut self, bytes: usize, framing: Framing, now: Time) -> Option<Passage> {
        if framing == Framing::Message && !self.takes(bytes as u64, now) {
            self.drop_message(bytes, now);
            return None;
        }
        let line = self.occupy(bytes as u64, now);
        let due = line + self.delay();
        let due = self.in_slot(due);
        let passage = self.spoil(due);
        if framing == Framing::Message {
            let fate = match &passage {
                None => Fate::Lost,
                Some(Passage { twice: true, .. }) => Fate::Twice,
                Some(Passage { overtaken: true, .. }) => Fate::Overtaken,
                Some(_) => Fate::Passed,
            };
            self.note(bytes, now, fate, passage.as_ref().map(|passage| passage.due - now));
        }
        passage
    }

    /// A message finds no room.
    fn drop_message(&mut self, bytes: usize, now: Time) {
        self.tally.dropped += 1;
        self.note(bytes, now, Fate::Dropped, None);
    }

    fn note(&mut self, bytes: usize, came: Time, fate: Fate, delay: Option<Duration>) {
        let number = self.messages;
        self.messages += 1;
        if let Some(Log(tell)) = &mut self.log {
            tell(Deed { number, came, bytes, fate, delay });
        }
    }

    /// What is due then, unless it is lost.
    fn spoil(&mut self, due: Time) -> Option<Passage> {
        if !self.is_faulty {
            return Some(Passage { due, twice: false, overtaken: false });
        }
        let [lost, twice, overtaken] =
            [&mut self.loss, &mut self.duplicate, &mut self.reorder].map(Chance::strikes);
        self.tally.lost += u64::from(lost);
        self.tally.duplicated += u64::from(twice && !lost);
        (!lost).then_some(Passage { due, twice, overtaken })
    }
}

/// A message, or a chunk of a stream, on its way.
#[derive(Debug)]
struct Piece {
    due: Time,
    bytes: Vec<u8>,
    /// The next message passes it.
    overtaken: bool,
}

/// What one connection has on a path: on its way, or arrived and not yet taken out.
#[derive(Debug)]
pub struct Pipe {
    framing: Framing,
    /// In the order of arrival.
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been taken out.
    taken: usize,
    held: usize,
    latest: Time,
    /// The message sent last is to be overtaken.
    marked: bool,
    end: Option<Time>,
    /// Buffers for further pieces.
    spare: Vec<Vec<u8>>,
}

/// Buffers kept for further pieces, each as large as a write usually is.
const MOST_SPARE: usize = 16;
const LARGEST_SPARE: usize = 256 * 1024;

/// What the smallest buffer costs an allocator.
const LEAST_ALLOCATED: usize = 32;

impl Pipe {
    pub fn new(framing: Framing) -> Pipe {
        Pipe {
            framing,
            pieces: VecDeque::new(),
            taken: 0,
            held: 0,
            latest: Time(0),
            marked: false,
            end: None,
            spare: Vec::new(),
        }
    }

    /// Bytes in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes of memory that it takes, about.
    fn memory(&self) -> usize {
        self.held + self.pieces.len() * (size_of::<Piece>() + LEAST_ALLOCATED)
    }

    /// Sends a message, or a chunk of a stream, on the way.
    pub fn send(&mut self, path: &mut Path, bytes: &[u8], now: Time) {
        let Some(passage) = path.pass(bytes.len(), self.framing, now) else { return };
        let mut due = passage.due;
        if self.framing == Framing::Stream {
            // Whatever its delay, a byte waits for those before it.
            due = due.max(self.latest);
            self.latest = due;
        }
        let overtaken = self.take_overtaken(now);
        if passage.twice {
            self.put(due, bytes, false);
        }
        self.put(due, bytes, passage.overtaken);
        self.marked = passage.overtaken;
        if let Some(piece) = overtaken {
            path.tally.overtaken += 1;
            // The one in front cannot arrive before it was sent, and the other one comes after it.
            self.insert(Piece { due: piece.due.max(due), overtaken: false, ..piece });
        }
    }

    /// The message that the next one passes, unless it has arrived: then nothing can.
    fn take_overtaken(&mut self, now: Time) -> Option<Piece> {
        if !std::mem::take(&mut self.marked) {
            return None;
        }
        let at = self.pieces.iter().rposition(|piece| piece.overtaken)?;
        self.pieces[at].overtaken = false;
        if self.pieces[at].due > now { self.pieces.remove(at) } else { None }
    }

    fn put(&mut self, due: Time, bytes: &[u8], overtaken: bool) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        self.held += bytes.len();
        self.insert(Piece { due, bytes: copy, overtaken });
    }

    fn insert(&mut self, piece: Piece) {
        if self.pieces.back().is_none_or(|last| last.due <= piece.due) {
            return self.pieces.push_back(piece);
        }
        let at = self.pieces.partition_point(|other| other.due <= piece.due);
        self.pieces.insert(at, piece);
    }

    /// When the next piece arrives; the end is none.
    pub fn due(&self) -> Option<Time> {
        self.pieces.front().map(|piece| piece.due)
    }

    /// What has arrived by `now`: one message, cut off at the length of `into`, or as much of the stream as fits.
    pub fn receive(&mut self, into: &mut [u8], now: Time) -> Option<usize> {
        let mut filled = 0;
        while let Some(piece) = self.pieces.front().filter(|piece| piece.due <= now) {
            if self.framing == Framing::Stream && filled == into.len() {
                break;
            }
            let left = &piece.bytes[self.taken..];
            let part = left.len().min(into.len() - filled);
            into[filled..filled + part].copy_from_slice(&left[..part]);
            filled += part;
            let whole = self.framing == Framing::Message || part == left.len();
            self.taken += part;
            self.held -= if whole { left.len() } else { part };
            if whole {
                self.drop_first();
            }
            if self.framing == Framing::Message {
                return Some(filled);
            }
        }
        (filled > 0).then_some(filled)
    }

    fn drop_first(&mut self) {
        self.taken = 0;
        if let Some(Piece { mut bytes, .. }) = self.pieces.pop_front()
            && self.spare.len() < MOST_SPARE
            && bytes.capacity() <= LARGEST_SPARE
        {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Nothing more will be sent; the reader sees that at `at`, after the last piece.
    pub fn finish(&mut self, at: Time) {
        self.end = self.end.or(Some(at));
    }

    /// Nothing more will be sent.
    pub fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    /// When the reader has seen everything there will ever be, provided that it has taken all pieces.
    fn end(&self) -> Option<Time> {
        self.end.filter(|_| self.pieces.is_empty())
    }

    /// Whether the reader has seen everything there will ever be.
    pub fn ended(&self, now: Time) -> bool {
        self.end().is_some_and(|end| end <= now)
    }
}

#[cfg(test)]
mod tests;
