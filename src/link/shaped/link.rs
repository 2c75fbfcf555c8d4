//! A link around a link: what it receives has gone along a shaped path. What it sends goes straight on.
//!
//! Put around both links of a relay it shapes both directions. The thread that receives does all there is to do: it
//! notes when something comes, and hands it out when it is due.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Log, Path, Pipe, Shape, Tally};
use crate::clock::{Clock, SPIN, Time};
use crate::link::party::Tuning;
use crate::link::{Caps, Facts, Fault, Framing, Link};

/// A path that several links share. Clones are handles on the same one.
#[derive(Debug, Clone)]
pub struct Shared(Arc<Mutex<Path>>);

impl Shared {
    /// An idle path; the same seed does the same to the same messages.
    pub fn new(shape: Shape, seed: u64) -> Shared {
        Shared(Arc::new(Mutex::new(Path::new(shape, seed))))
    }

    pub fn tally(&self) -> Tally {
        self.lock().tally
    }

    /// From now on tells what is done to each message; `None`: no longer.
    pub fn log(&self, log: Option<Log>) {
        self.lock().log = log;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Path> {
        // Whoever panicked left numbers behind, nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A link whose received bytes come along a shaped path.
pub struct Shaped {
    inner: Box<dyn Link>,
    clock: Clock,
    caps: Caps,
    path: Shared,
    passage: Arc<Mutex<OnItsWay>>,
    room: Vec<u8>,
}

/// What is on its way to the halves of one link.
struct OnItsWay {
    pipe: Pipe,
    path: Shared,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.path.lock().in_flight -= self.pipe.memory();
    }
}

/// Most bytes on their way to one link: 130 MB/s at 500 ms. Beyond, a stream's sender waits and messages are dropped.
pub const MOST_OF_ONE: usize = 64 << 20;

/// Most bytes on their way on one path: they are in this process's memory.
pub const MOST_OF_ALL: usize = 512 << 20;

/// Payload of a full segment over Ethernet: what a stream travels in where the line is slow.
const SEGMENT: usize = 1460;

/// Most of a stream taken in at once, and the longest it may be on the line as one piece.
const MOST_OF_STREAM: usize = 64 * 1024;
const LONGEST_ON_LINE: Duration = Duration::from_millis(1);

/// What others do to a path is looked for this often.
const LOOK: Duration = Duration::from_millis(20);

/// The end of a wait for a piece is spun, because a sleeping thread is woken late; but no more than this share of the
/// time on a path, so that it stays cheap.
const SPUN_SHARE: u32 = 20;

/// What the receiving thread does next.
enum Next {
    Received(usize),
    Ended,
    /// Takes in at most so many bytes for so long.
    TakesIn(usize, Duration),
    Sleeps(Time),
}

impl Shaped {
    pub fn new(inner: Box<dyn Link>, clock: &Clock, path: &Shared) -> Shaped {
        let pipe = Pipe::new(inner.caps().framing);
        let passage = Arc::new(Mutex::new(OnItsWay { pipe, path: path.clone() }));
        Shaped::around(inner, clock, path, passage)
    }

    fn around(inner: Box<dyn Link>, clock: &Clock, path: &Shared, passage: Arc<Mutex<OnItsWay>>) -> Shaped {
        let mut caps = inner.caps().clone();
        let shape = path.lock().shape().clone();
        caps.reliable &= !shape.is_faulty() && (caps.framing == Framing::Stream || shape.queue == u64::MAX);
        // A stream on a slow line comes segment by segment, not after a long silence all at once.
        let grain = (shape.rate / 8.0 * LONGEST_ON_LINE.as_secs_f64()).clamp(1.0, MOST_OF_STREAM as f64);
        let room = caps.max_message.unwrap_or(SEGMENT.max(grain as usize));
        Shaped { inner, clock: clock.clone(), caps, path: path.clone(), passage, room: vec![0; room] }
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.lock().pipe.due().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, OnItsWay> {
        self.passage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, into: &mut [u8], now: Time, until: Time) -> Next {
        let mut passage = self.lock();
        let mut path = self.path.lock();
        let (due, before) = (passage.pipe.due(), passage.pipe.memory());
        if let Some(length) = passage.pipe.receive(into, now) {
            path.in_flight -= before - passage.pipe.memory();
            path.tally.note(length, now - due.unwrap_or(now));
            return Next::Received(length);
        }
        if passage.pipe.ended(now) {
            return Next::Ended;
        }
        if passage.pipe.is_finished() {
            return Next::Sleeps(due.or(passage.pipe.end()).unwrap_or(Time::NEVER));
        }
        let due = due.unwrap_or(Time::NEVER);
        let patience = if due == Time::NEVER {
            until - now
        } else if self.spins(&mut path, due, now) {
            // Near the end it asks again and again.
            (due - now).saturating_sub(SPIN).min(until - now)
        } else {
            due.min(until) - now
        };
        if self.caps.framing == Framing::Message {
            return Next::TakesIn(self.room.len(), patience);
        }
        let in_flight = MOST_OF_ONE.saturating_sub(before).min(MOST_OF_ALL.saturating_sub(path.in_flight));
        let enough = self.room.len().min((path.shape.queue / 2).max(1) as usize);
        let room = usize::try_from(path.room(now)).unwrap_or(usize::MAX);
        match room.min(self.room.len()) {
            // Others take out what is on its way, and nobody tells when.
            _ if in_flight < enough => Next::Sleeps(due.min(now + LOOK)),
            room if room < enough => Next::Sleeps(due.min(path.half_empty())),
            room => Next::TakesIn(room, patience),
        }
    }

    /// Whether the end of the wait for a piece is spun.
    fn spins(&self, path: &mut Path, due: Time, now: Time) -> bool {
        let may = path.spun == due || due >= path.spun + SPUN_SHARE * SPIN;
        let spins = may && matches!(self.clock, Clock::System);
        if spins && due - now <= SPIN {
            path.spun = due;
        }
        spins
    }

    /// Sends what has come in on its way.
    fn take_in(&mut self, length: usize) {
        let now = self.clock.now();
        let mut passage = self.lock();
        let mut path = self.path.lock();
        let before = passage.pipe.memory();
        let full = before + length > MOST_OF_ONE || path.in_flight + length > MOST_OF_ALL;
        if full && self.caps.framing == Framing::Message {
            path.drop_message(length, now);
            return;
        }
        passage.pipe.send(&mut path, &self.room[..length], now);
        path.in_flight += passage.pipe.memory() - before;
    }

    fn finish_taking_in(&mut self) {
        let now = self.clock.now();
        let mut passage = self.lock();
        let end = self.path.lock().pass_end(now);
        passage.pipe.finish(end);
    }
}

impl Link for Shaped {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.inner.tune(tuning);
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.inner.send(bytes, within)
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        self.inner.send_batch(messages, message, within)
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let until = self.clock.now() + within;
        let mut has_tried = false;
        loop {
            let now = self.clock.now();
            let next = self.next(into, now, until);
            if matches!(next, Next::TakesIn(..) | Next::Sleeps(_)) && has_tried && now >= until {
                return Err(Fault::TimedOut);
            }
            has_tried = true;
            match next {
                Next::Received(length) => return Ok(length),
                Next::Ended => return Err(Fault::Closed),
                Next::Sleeps(due) => self.clock.sleep_until(due.min(until)),
                Next::TakesIn(room, patience) => match self.inner.receive(&mut self.room[..room], patience) {
                    Ok(length) => self.take_in(length),
                    Err(Fault::TimedOut) => {}
                    Err(Fault::Closed) => self.finish_taking_in(),
                    Err(fault) => return Err(fault),
                },
            }
        }
    }

    fn other_half(&self) -> Result<Box<dyn Link>, Fault> {
        let inner = self.inner.other_half()?;
        Ok(Box::new(Shaped::around(inner, &self.clock, &self.path, self.passage.clone())))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.inner.finish()
    }

    fn unacknowledged(&self) -> Option<u64> {
        self.inner.unacknowledged()
    }

    fn socket_drops(&self) -> Option<u64> {
        self.inner.socket_drops()
    }
}
