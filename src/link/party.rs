//! A party: what one end of a link does, as a state machine. Near ends and far ends are the same kind of thing.
//!
//! A party never waits and never reads a clock: it is told the time, says what it wants next, and is told how that
//! went. So the same far end runs in a server's thread and inside `mem://` on a virtual clock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::{Batch, Fault, Link};
use crate::clock::{Clock, Time};
use crate::host::cpu;
use crate::plan::WaitMode;

/// What a party wants to do next.
pub enum Step<'a> {
    /// Send these bytes: messages of `message` bytes end to end, or part of a stream.
    Send { bytes: &'a [u8], message: usize },
    /// Receive into `into`, at the latest by `until`.
    Receive { into: &'a mut Batch, until: Time },
    /// Do nothing until then; if that has passed, only read the clock again.
    Sleep(Time),
    /// Set link and thread up for what follows; the first step of most parties.
    Tune(Tuning),
    /// Send nothing more, but go on.
    FinishSending,
    /// Have the link opened anew, in place of one that broke; see [`Link::reopen`].
    Reopen,
    /// The party has done all it wanted.
    Done,
    /// The party cannot go on.
    Fail(Fault),
}

/// How a party wants its link and its thread to behave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    pub wait: WaitMode,
    /// The CPU to run on; `None` leaves it to the system.
    pub cpu: Option<u32>,
    /// Many messages of this size will go in each operation; `None`: one at a time.
    pub batch_message_bytes: Option<u32>,
}

/// One end of a link.
pub trait Party: Send {
    fn next_step(&mut self, now: Time) -> Step<'_>;

    /// So many of the offered bytes were taken; `at` is the time just before the call.
    fn on_sent(&mut self, bytes: usize, at: Time);

    /// What the next [`Party::on_received`] is about: bytes in all, and of the longest message (on a stream, of the chunk).
    /// For guards, which do not see the batch.
    #[inline]
    fn on_arriving(&mut self, _bytes: u64, _longest: usize, _now: Time) {}

    /// The batch offered by the last [`Step::Receive`] holds messages; `now` is the time just after the call.
    fn on_received(&mut self, now: Time);

    /// Nothing came until the instant given with [`Step::Receive`].
    fn on_timeout(&mut self, now: Time);

    /// The link takes nothing of what was offered; so many bytes that it took before are not acknowledged yet, where that
    /// can be known. As long as they become fewer, something takes them.
    fn on_send_blocked(&mut self, _now: Time, _unacknowledged: Option<u64>) {}

    /// The far end sends no more. An error ends the party; `Ok` lets it say what next.
    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }

    /// What became of [`Step::Reopen`]. An error ends the party; `Ok` lets it say what next.
    fn on_reopened(&mut self, outcome: Result<(), Fault>, _now: Time) -> Result<(), Fault> {
        outcome
    }

    /// What this end of a server knows of its client.
    fn client_trust(&self) -> ClientTrust {
        ClientTrust::Unverified
    }

    /// The server ends the link, for this reason. [`Party::on_ended`] follows.
    fn on_stopped(&mut self, _reason: StopReason) {}

    /// Why this end of a server refused its client something, if it did; the last reason.
    fn refusal(&self) -> Option<&str> {
        None
    }

    /// What to say when the server stops while this party runs. [`Party::on_ended`] has been called.
    fn closing_message(&mut self) -> &'static [u8] {
        &[]
    }

    /// The party will not be asked again; what its thread used of a CPU, and what its socket dropped.
    fn on_ended(&mut self, _cost: PartyCost) {}
}

/// How far a server trusts a client. The limits of a server depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientTrust {
    /// It has not introduced itself as the protocol wants it. It goes first where others need room.
    Unidentified,
    /// On links without connections it gets no more bytes than it has sent.
    #[default]
    Unverified,
    /// It has answered something that only the owner of its address could receive, so it may get more.
    AddressVerified,
    /// The party itself, or a connection beside this one, sees to its silence and to the length of what it does.
    Exempt,
}

/// Why a server ends a link that its client would go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    Idle,
    TooLong,
    MessageTooLong,
    /// More would go out than has come in.
    Amplification,
    /// Another takes its place.
    Evicted,
}

impl StopReason {
    pub fn message(self) -> &'static str {
        match self {
            StopReason::Idle => "nothing moved for longer than this server waits",
            StopReason::TooLong => "longer than this server allows",
            StopReason::MessageTooLong => "a message is longer than this server allows",
            StopReason::Amplification => {
                "a sender that has not proved its address gets no more than it sends"
            }
            StopReason::Evicted => "others need the place of a connection that has not introduced itself",
        }
    }
}

/// What running a party cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartyCost {
    /// CPU time of its work.
    pub cpu_seconds: f64,
    /// CPU time in which the thread only asked whether it is time yet, or whether something came: not among those.
    pub busy_poll_seconds: f64,
    /// Packets that arrived but found the socket's buffer full; see [`Link::socket_drops`].
    pub socket_drops: Option<u64>,
    /// Segments that the system sent again; see [`Link::retransmits`].
    pub retransmits: Option<u64>,
}

/// How long one blocking call at a near end may last before the cancel flag is looked at again.
pub const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs a party on a link to its end: the one loop, for near and far ends alike. Allocates nothing.
///
/// Returns early, without an error, once `cancel` is set; it is looked at at least once every `patience`.
pub fn drive(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    cancel: &AtomicBool,
    patience: Duration,
) -> Result<(), Fault> {
    drive_with_cost(party, link, clock, cancel, patience).1
}

/// The same; tells also what it cost.
pub fn drive_with_cost(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    cancel: &AtomicBool,
    patience: Duration,
) -> (PartyCost, Result<(), Fault>) {
    let before = cpu::thread_cpu_seconds();
    let mut spun = Duration::ZERO;
    let mut run = || {
        let mut now = clock.now();
        while !cancel.load(Relaxed) {
            match perform_step(party, link, clock, &mut now, patience)? {
                StepOutcome::Done => break,
                StepOutcome::Sleeping(until) => {
                    spun += clock.sleep_then_busy_poll(until.min(now + patience));
                    now = clock.now();
                }
                StepOutcome::Progress | StepOutcome::Waiting(_) => {}
            }
        }
        Ok(())
    };
    let result = run();
    let used = cpu::thread_cpu_seconds() - before;
    // On a busy host some of that time went to other threads; no more was waited than was used.
    let waiting_seconds = (spun + link.busy_poll_time()).as_secs_f64().min(used);
    let cpu_seconds = used - waiting_seconds;
    let (socket_drops, retransmits) = (link.socket_drops(), link.retransmits());
    let cost = PartyCost { cpu_seconds, busy_poll_seconds: waiting_seconds, socket_drops, retransmits };
    party.on_ended(cost);
    (cost, result)
}

/// What became of one step.
pub enum StepOutcome {
    Progress,
    /// Nothing could be done in the time allowed; the party may have something else to say at that instant.
    Waiting(Time),
    /// The party wants to sleep until then; nobody has slept yet.
    Sleeping(Time),
    Done,
}

/// Does the party's next step, waiting at most `patience`; leaves the time after it in `now`.
#[inline]
pub fn perform_step(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    now: &mut Time,
    patience: Duration,
) -> Result<StepOutcome, Fault> {
    match party.next_step(*now) {
        Step::Send { bytes, message } => {
            // The party may have worked since the clock was read; the time of sending is now.
            *now = clock.now();
            // Whether a sender goes on may be decided elsewhere, so it never waits long.
            match link.send_batch(bytes, message, patience.min(CANCEL_CHECK_INTERVAL)) {
                Ok(bytes) => party.on_sent(bytes, *now),
                Err(Fault::TimedOut) => {
                    *now = clock.now();
                    party.on_send_blocked(*now, link.unacknowledged_bytes());
                    // The party alone knows when it gives up, so it is asked again soon.
                    return Ok(StepOutcome::Waiting(*now + CANCEL_CHECK_INTERVAL));
                }
                Err(fault) => return Err(fault),
            }
        }
        Step::Tune(tuning) => {
            if let Some(cpu) = tuning.cpu {
                cpu::pin_to_cpu(cpu).map_err(|error| Fault::Other(error.to_string()))?;
            }
            link.tune(&tuning);
            *now = clock.now();
        }
        Step::Receive { into, until } => {
            let received = link.receive_batch(into, until.since(*now).min(patience));
            *now = clock.now();
            match received {
                Ok(()) => {
                    let (bytes, longest) = into.total_and_longest();
                    party.on_arriving(bytes, longest, *now);
                    party.on_received(*now);
                }
                Err(Fault::TimedOut) if *now >= until => party.on_timeout(*now),
                Err(Fault::TimedOut) => return Ok(StepOutcome::Waiting(until)),
                Err(Fault::Closed) => party.on_closed(*now)?,
                Err(fault) => return Err(fault),
            }
        }
        Step::Sleep(until) if until > *now => return Ok(StepOutcome::Sleeping(until)),
        Step::Sleep(_) => *now = clock.now(),
        Step::FinishSending => {
            link.finish_sending()?;
            *now = clock.now();
        }
        Step::Reopen => {
            let outcome = link.reopen(patience);
            *now = clock.now();
            match outcome {
                // Still at it.
                Err(Fault::TimedOut) => return Ok(StepOutcome::Waiting(*now + CANCEL_CHECK_INTERVAL)),
                outcome => party.on_reopened(outcome, *now)?,
            }
        }
        Step::Done => return Ok(StepOutcome::Done),
        Step::Fail(fault) => return Err(fault),
    }
    Ok(StepOutcome::Progress)
}
