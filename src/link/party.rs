//! A party: what one end of a link does, as a state machine. Near ends and far ends are the same kind of thing.
//!
//! A party never waits and never reads a clock: it is told the time, says what it wants next, and is told how that
//! went. So the same far end runs in a server's thread and inside `mem://` on a virtual clock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::{Batch, Fault, Link};
use crate::clock::{Clock, Time};

/// What a party wants to do next.
pub enum Step<'a> {
    /// Send these bytes: messages of `message` bytes end to end, or part of a stream.
    Send { bytes: &'a [u8], message: usize },
    /// Receive into `into`, at the latest by `until`.
    Receive { into: &'a mut Batch, until: Time },
    /// Do nothing until then.
    Sleep(Time),
    /// Send nothing more, but go on.
    Finish,
    /// The party has done all it wanted.
    Done,
}

/// One end of a link.
pub trait Party: Send {
    fn next(&mut self, now: Time) -> Step<'_>;

    /// So many of the offered bytes were taken; `now` is the time after the call.
    fn sent(&mut self, bytes: usize, now: Time);

    /// The batch offered by the last [`Step::Receive`] holds messages.
    fn received(&mut self, now: Time);

    /// Nothing came until the instant given with [`Step::Receive`].
    fn timed_out(&mut self, now: Time);

    /// The far end sends no more. An error ends the party; `Ok` lets it say what next.
    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }
}

/// How long one blocking call may last before the party's time and the cancel flag are looked at again.
pub const SLICE: Duration = Duration::from_millis(100);

/// Runs a party on a link to its end: the one loop, for near and far ends alike. Allocates nothing.
///
/// Returns early, without an error, once `cancel` is set.
pub fn drive(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    cancel: &AtomicBool,
) -> Result<(), Fault> {
    let mut now = clock.now();
    while !cancel.load(Relaxed) {
        match act(party, link, clock, &mut now, SLICE)? {
            Acted::Done => break,
            Acted::Sleeping(until) => {
                clock.sleep_then_spin(until.min(now + SLICE));
                now = clock.now();
            }
            Acted::Moved | Acted::Waiting(_) => {}
        }
    }
    Ok(())
}

/// What became of one step.
pub enum Acted {
    Moved,
    /// Nothing could be done in the time allowed; the party itself gives up at that instant.
    Waiting(Time),
    /// The party wants to sleep until then; nobody has slept yet.
    Sleeping(Time),
    Done,
}

/// Does the party's next step, waiting at most `patience`; leaves the time after it in `now`.
#[inline]
pub fn act(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    now: &mut Time,
    patience: Duration,
) -> Result<Acted, Fault> {
    match party.next(*now) {
        Step::Send { bytes, message } => {
            let taken = link.send_batch(bytes, message, patience);
            *now = clock.now();
            match taken {
                Ok(bytes) => party.sent(bytes, *now),
                Err(Fault::TimedOut) => return Ok(Acted::Waiting(Time::NEVER)),
                Err(fault) => return Err(fault),
            }
        }
        Step::Receive { into, until } => {
            let received = link.receive_batch(into, until.since(*now).min(patience));
            *now = clock.now();
            match received {
                Ok(()) => party.received(*now),
                Err(Fault::TimedOut) if *now >= until => party.timed_out(*now),
                Err(Fault::TimedOut) => return Ok(Acted::Waiting(until)),
                Err(Fault::Closed) => party.closed(*now)?,
                Err(fault) => return Err(fault),
            }
        }
        Step::Sleep(until) => return Ok(if *now >= until { Acted::Moved } else { Acted::Sleeping(until) }),
        Step::Finish => {
            link.finish()?;
            *now = clock.now();
        }
        Step::Done => return Ok(Acted::Done),
    }
    Ok(Acted::Moved)
}
