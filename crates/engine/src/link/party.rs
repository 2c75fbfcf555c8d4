//! A party: one end of a link, as a state machine. Clients and servers are both parties.
//!
//! A party never waits and never reads a clock: it receives the time, returns its next step, and receives the
//! outcome. So the same server runs in a thread and inside `mem://` on a virtual clock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::counters::LinkReading;
use super::marks::MarkCounts;
use super::stamps::SendStamps;
use super::waker::Waker;
use super::{Batch, BatchSizes, Fault, Link, LinkStatus, own_socket, socket_settings};
use crate::host::cpu;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::traffic::{SocketSettings, WaitMode};

/// The next step of a party.
pub enum Step<'a> {
    /// Sends these bytes: messages of `message` bytes back to back, or part of a stream.
    Send {
        /// The payload.
        bytes: &'a [u8],
        /// The size of each message but the last, in bytes.
        message: usize,
    },
    /// Receives into `into`, until `until` at the latest.
    Receive {
        /// Destination of the messages.
        into: &'a mut Batch,
        /// The latest time.
        until: Time,
    },
    /// Sleeps until then. If that time has passed, only reads the clock again.
    Sleep(Time),
    /// Sets up link and thread for the following steps; the first step of most parties.
    Tune(Tuning),
    /// Sends nothing more, but continues.
    FinishSending,
    /// Reads the kernel's stamps of sent messages; see [`Link::read_send_stamps`].
    ReadStamps(&'a mut SendStamps),
    /// Opens a broken link again; see [`Link::reopen`].
    Reopen,
    /// The party is complete.
    Done,
    /// The party cannot go on.
    Fail(Fault),
}

/// Settings of the link and the thread for a party.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Whether the party blocks or busy-polls.
    pub wait: WaitMode,
    /// The CPU to run on; `None` leaves the choice to the system.
    pub cpu: Option<u32>,
    /// Size of the many messages that each operation sends, in bytes; `None`: one message at a time.
    pub batch_message_bytes: Option<u32>,
    /// Options of the link's socket.
    pub socket: SocketSettings,
    /// Flows of the same measurement, which a server runs alike; 0 counts as one.
    pub flows: u32,
    /// Whether the kernel stamps messages, where the link supports it.
    pub stamps: bool,
}

/// A party: one end of a link.
pub trait Party: Send {
    /// The next action. `now` is the time of the last outcome.
    fn next_step(&mut self, now: Time) -> Step<'_>;

    /// `bytes` of the offered bytes were taken; `at` is the time just before the call.
    fn on_sent(&mut self, bytes: usize, at: Time);

    /// Announces the next [`Party::on_received`]: bytes in total, and of the longest message (on a stream, of
    /// the chunk). For guards, which do not see the batch.
    #[inline]
    fn on_arriving(&mut self, _bytes: u64, _longest: usize, _now: Time) {}

    /// The batch of the last [`Step::Receive`] holds messages; `now` is the time just after the call.
    fn on_received(&mut self, now: Time);

    /// Reports that nothing arrived until the instant given with [`Step::Receive`].
    fn on_timeout(&mut self, now: Time);

    /// The link takes none of the offered bytes. `unacknowledged` is the number of bytes sent but not yet
    /// acknowledged, if known. While it decreases, the remote is still receiving.
    fn on_send_blocked(&mut self, _now: Time, _unacknowledged: Option<u64>) {}

    /// The remote sends no more.
    ///
    /// # Errors
    ///
    /// An error ends the party; after `Ok` it gives its next step.
    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }

    /// The outcome of [`Step::Reopen`].
    ///
    /// # Errors
    ///
    /// An error ends the party; after `Ok` it gives its next step.
    fn on_reopened(&mut self, outcome: Result<(), Fault>, _now: Time) -> Result<(), Fault> {
        outcome
    }

    /// Trust of this server party in its client.
    fn client_trust(&self) -> ClientTrust {
        ClientTrust::Unverified
    }

    /// The link after [`Step::Tune`], for parties that let another thread read its counters.
    fn on_tuned(&mut self, _link: &dyn Link) {}

    /// The party runs in a shared thread from now on; called again after [`Step::Tune`] if it still does. A sweep of the waker
    /// lets it look at a state that it would have to poll otherwise.
    fn on_shared(&mut self, _waker: &Waker) {}

    /// The server ends the link for this reason. [`Party::on_ended`] follows.
    fn on_stopped(&mut self, _reason: StopReason) {}

    /// The last reason why this server party refused a request of its client, if it did.
    fn refusal(&self) -> Option<&str> {
        None
    }

    /// The bytes to send when the server stops while this party runs. Called after [`Party::on_ended`].
    fn closing_message(&mut self) -> &'static [u8] {
        &[]
    }

    /// The party that continues in place of this one, if there is one. A server asks after each send, so that what
    /// identified a client takes neither memory nor time while it measures.
    fn take_successor(&mut self) -> Option<Box<dyn Party>> {
        None
    }

    /// Asks the CPU to load what the next steps use besides the party itself. Of thousands of parties none stays in the caches.
    fn prefetch_parts(&self) {}

    /// Detail of the cost for [`Party::on_ended`]. Reading the counters of a link takes some system calls, which a thread with
    /// thousands of parties leaves out.
    fn cost_detail(&self) -> CostDetail {
        CostDetail::Status
    }

    /// Informs the party that it gets no more calls. `cost` holds the CPU time of its thread and the drops of its socket.
    fn on_ended(&mut self, _cost: PartyCost) {}
}

/// Content of a [`PartyCost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostDetail {
    /// The time of the thread.
    Thread,
    /// The times and the counts of [`LinkStatus`].
    Status,
    /// The times, the counts and a reading of the link's counters.
    Counters,
}

/// Trust of a server in a client. The limits of a server depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientTrust {
    /// Client that has not completed the handshake of the protocol. It is dropped first when the server needs room.
    Unidentified,
    /// Client that, on links without connections, receives no more bytes than it has sent.
    #[default]
    Unverified,
    /// Client that has replied to a message that only the owner of its address could receive, so it may receive more.
    AddressVerified,
    /// Client whose silence and duration the party itself, or a connection beside this one, limits.
    Exempt,
}

/// Reason of a server for ending a link that its client would continue to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The link was idle for longer than the limit.
    Idle,
    /// The link was in use for longer than the limit.
    TooLong,
    /// A message was longer than the limit.
    MessageTooLong,
    /// The server would send more bytes than it has received.
    Amplification,
    /// The server needs the place of this connection for another one.
    Evicted,
}

impl StopReason {
    /// The reason, as printed and as sent to clients.
    pub fn message(self) -> &'static str {
        match self {
            StopReason::Idle => "no data moved for longer than this server waits",
            StopReason::TooLong => "longer than this server allows",
            StopReason::MessageTooLong => "a message is longer than this server allows",
            StopReason::Amplification => {
                "a sender that has not proved its address receives no more than it sent"
            }
            StopReason::Evicted => "other clients need the place of a connection without a handshake",
        }
    }
}

/// Cost of running a party.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartyCost {
    /// CPU time of its work.
    pub cpu_seconds: f64,
    /// CPU time spent polling the clock or the link; not part of `cpu_seconds`.
    pub(crate) busy_poll_seconds: f64,
    /// The CPU on which its thread ran at its end.
    pub cpu: Option<u32>,
    /// Whether other parties ran in its thread, so that the times are its share.
    pub(crate) has_shared_thread: bool,
    /// Packets dropped because the socket's buffer was full; see [`LinkStatus::socket_drops`].
    pub socket_drops: Option<u64>,
    /// Segments retransmitted by the system; see [`LinkStatus::retransmits`].
    pub(crate) retransmits: Option<u64>,
    /// Marks of received messages; see [`LinkStatus::marks`].
    pub marks: Option<MarkCounts>,
    /// The counters of the link at the end, if the link has a separate descriptor and the party uses them.
    pub reading: Option<LinkReading>,
}

impl PartyCost {
    /// Adds what the system has counted for a link, as far as its party uses that.
    pub(super) fn with_link(self, link: &dyn Link, detail: CostDetail) -> PartyCost {
        if detail == CostDetail::Thread {
            return self;
        }
        let LinkStatus { socket_drops, retransmits, marks, .. } = link.status();
        let reading = match detail {
            CostDetail::Counters => own_socket(link).map(LinkReading::of),
            CostDetail::Thread | CostDetail::Status => None,
        };
        PartyCost { socket_drops, retransmits, marks, reading, ..self }
    }
}

/// Maximum duration of a blocking call in a client before it checks the cancel flag again.
pub const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs a party on a link until it ends: one loop for clients and servers. Allocates nothing.
///
/// Returns early, without an error, once `cancel` is set. It checks `cancel` at least once every `max_wait`.
///
/// # Errors
///
/// The fault of the party or of the link that ended the party.
pub fn drive(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    cancel: &AtomicBool,
    max_wait: Duration,
) -> Result<(), Fault> {
    drive_with_cost(party, link, clock, cancel, max_wait).1
}

/// Runs a party like [`drive`], and returns the cost as well.
pub(crate) fn drive_with_cost(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    cancel: &AtomicBool,
    max_wait: Duration,
) -> (PartyCost, Result<(), Fault>) {
    let before = cpu::thread_cpu_seconds();
    let mut busy_polled = Duration::ZERO;
    let mut run = || {
        let mut now = clock.now();
        while !cancel.load(Relaxed) {
            match perform_step(party, link, clock, &mut now, StepMode::Blocking(max_wait))? {
                StepOutcome::Done => break,
                StepOutcome::Sleeping(until) => {
                    busy_polled += clock.sleep_then_busy_poll(until.min(now + max_wait));
                    now = clock.now();
                }
                StepOutcome::Progress
                | StepOutcome::ReceivedLessThanFits
                | StepOutcome::Reopened
                | StepOutcome::Opening(_)
                | StepOutcome::Tuned(_)
                | StepOutcome::Waiting(_)
                | StepOutcome::SendBlocked(_) => {}
            }
        }
        Ok(())
    };
    let result = run();
    let cpu = Some(cpu::current_cpu());
    let used = cpu::thread_cpu_seconds() - before;
    // On a busy host part of that time went to other threads; the wait cannot exceed the CPU time used.
    let busy_poll_seconds = (busy_polled + link.status().busy_poll_time).as_secs_f64().min(used);
    let cpu_seconds = used - busy_poll_seconds;
    let cost = PartyCost { cpu_seconds, busy_poll_seconds, cpu, ..PartyCost::default() };
    let cost = cost.with_link(link, party.cost_detail());
    party.on_ended(cost);
    (cost, result)
}

/// Use of the thread by a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepMode {
    /// Only this party runs in the thread: the step may block for this time.
    Blocking(Duration),
    /// Several parties share the thread: the step neither blocks nor changes the thread.
    Shared,
    /// Shared thread as in [`StepMode::Shared`], and the link has no input, so a receive that may wait is not tried.
    SharedWithoutInput,
}

impl StepMode {
    fn max_wait(self) -> Duration {
        match self {
            StepMode::Blocking(max_wait) => max_wait,
            StepMode::Shared | StepMode::SharedWithoutInput => Duration::ZERO,
        }
    }

    fn is_shared(self) -> bool {
        !matches!(self, StepMode::Blocking(_))
    }
}

/// Outcome of one step.
pub enum StepOutcome {
    /// The step was performed.
    Progress,
    /// The step was performed: a receive that got less of a stream than fits.
    ReceivedLessThanFits,
    /// The link is tuned; in a shared thread, the caller decides about the thread.
    Tuned(Tuning),
    /// The link received nothing in the time allowed; the party may give another step at that instant.
    Waiting(Time),
    /// The link took nothing in the time allowed, or takes no more now; the party may give another step at that instant. In a
    /// shared thread the caller informs the party ([`Party::on_send_blocked`]) if the link still takes nothing then.
    SendBlocked(Time),
    /// The party wants to sleep until then; the caller has to wait.
    Sleeping(Time),
    /// The link is being opened again; it is writable when that has ended. The party may give another step at that instant.
    Opening(Time),
    /// Opening the link again has ended, so it may have another descriptor.
    Reopened,
    /// The party has finished.
    Done,
}

impl StepOutcome {
    /// The time until which nothing happens by itself; `None` if something has happened.
    pub(crate) fn waits_until(&self) -> Option<Time> {
        match self {
            StepOutcome::Waiting(at)
            | StepOutcome::SendBlocked(at)
            | StepOutcome::Sleeping(at)
            | StepOutcome::Opening(at) => Some(*at),
            StepOutcome::Progress
            | StepOutcome::ReceivedLessThanFits
            | StepOutcome::Tuned(_)
            | StepOutcome::Reopened
            | StepOutcome::Done => None,
        }
    }
}

/// Prepares the link, and the thread if the party has it for itself.
///
/// # Errors
///
/// The system refuses the CPU or a setting of the socket.
pub(crate) fn tune(link: &mut dyn Link, tuning: &Tuning, mode: StepMode) -> Result<(), Fault> {
    match mode {
        StepMode::Blocking(_) => {
            pin_thread(tuning)?;
            link.tune(tuning);
        }
        // The thread waits for all its links at once.
        StepMode::Shared | StepMode::SharedWithoutInput => {
            link.tune(&Tuning { wait: WaitMode::Block, ..*tuning });
        }
    }
    if !tuning.socket.is_empty() {
        socket_settings::apply(own_socket(link), &tuning.socket)?;
    }
    Ok(())
}

/// Pins the thread to the requested CPU, if there is one.
///
/// # Errors
///
/// The system refuses the CPU.
pub(crate) fn pin_thread(tuning: &Tuning) -> Result<(), Fault> {
    let Some(cpu) = tuning.cpu else { return Ok(()) };
    Ok(cpu::pin_to_cpu(cpu)?)
}

/// Performs the party's next step; `now` is the time after it.
///
/// # Errors
///
/// The fault of the party or of the link. Timeouts are not faults.
#[inline]
pub fn perform_step(
    party: &mut dyn Party,
    link: &mut dyn Link,
    clock: &Clock,
    now: &mut Time,
    mode: StepMode,
) -> Result<StepOutcome, Fault> {
    let max_wait = mode.max_wait();
    match party.next_step(*now) {
        Step::Send { bytes, message } => {
            // The party may have worked since the clock was read; this is the time of sending.
            *now = clock.now();
            // A thread with other parties does not try again where less fits.
            let expected = if mode.is_shared() { bytes.len() } else { 0 };
            // Other code may decide whether a sender continues, so it never waits long.
            let sent = link.send_batch(bytes, message, max_wait.min(CANCEL_CHECK_INTERVAL));
            if finish_send(party, link, sent, expected, *now)? {
                *now = clock.now();
                if !mode.is_shared() {
                    party.on_send_blocked(*now, link.status().unacknowledged_bytes);
                }
                // Only the party knows when it gives up, so it is called again soon.
                return Ok(StepOutcome::SendBlocked(*now + CANCEL_CHECK_INTERVAL));
            }
        }
        Step::Tune(tuning) => {
            tune(link, &tuning, mode).inspect(|()| party.on_tuned(link))?;
            *now = clock.now();
            return Ok(StepOutcome::Tuned(tuning));
        }
        Step::Receive { until, .. } if mode == StepMode::SharedWithoutInput && until > *now => {
            return Ok(StepOutcome::Waiting(until));
        }
        Step::Receive { into, until } => {
            into.borrow_memory();
            let received = link.receive_batch(into, until.since(*now).min(max_wait));
            *now = clock.now();
            if received.is_err() {
                into.return_memory();
            }
            let received = received.map(|()| into.sizes());
            return finish_receive(party, received, until, *now);
        }
        Step::Sleep(until) if until > *now => return Ok(StepOutcome::Sleeping(until)),
        Step::Sleep(_) => *now = clock.now(),
        Step::FinishSending => {
            link.finish_sending()?;
            *now = clock.now();
        }
        Step::ReadStamps(into) => link.read_send_stamps(into),
        Step::Reopen => {
            let outcome = link.reopen(max_wait);
            *now = clock.now();
            return finish_reopen(party, outcome, *now);
        }
        Step::Done => return Ok(StepOutcome::Done),
        Step::Fail(fault) => return Err(fault),
    }
    Ok(StepOutcome::Progress)
}

/// Reports the outcome of a send; returns whether the link takes no more now, which a send of less than `expected` bytes may show.
#[inline]
fn finish_send(
    party: &mut dyn Party,
    link: &dyn Link,
    sent: Result<usize, Fault>,
    expected: usize,
    at: Time,
) -> Result<bool, Fault> {
    match sent {
        Err(Fault::TimedOut) => Ok(true),
        sent => {
            let sent = sent?;
            party.on_sent(sent, at);
            Ok(sent < expected && link.caps().is_exhausted_by_short_transfer)
        }
    }
}

/// Reports the outcome of opening a link again, unless that is still in progress.
fn finish_reopen(party: &mut dyn Party, outcome: Result<(), Fault>, now: Time) -> Result<StepOutcome, Fault> {
    if matches!(outcome, Err(Fault::TimedOut)) {
        return Ok(StepOutcome::Opening(now + CANCEL_CHECK_INTERVAL));
    }
    party.on_reopened(outcome, now)?;
    Ok(StepOutcome::Reopened)
}

/// Reports the outcome of a receive.
#[inline]
fn finish_receive(
    party: &mut dyn Party,
    received: Result<BatchSizes, Fault>,
    until: Time,
    now: Time,
) -> Result<StepOutcome, Fault> {
    match received {
        Ok(BatchSizes { total, longest, is_full }) => {
            party.on_arriving(total, longest, now);
            party.on_received(now);
            if !is_full {
                return Ok(StepOutcome::ReceivedLessThanFits);
            }
        }
        Err(Fault::TimedOut) if now >= until => party.on_timeout(now),
        Err(Fault::TimedOut) => return Ok(StepOutcome::Waiting(until)),
        Err(Fault::Closed) => party.on_closed(now)?,
        Err(fault) => return Err(fault),
    }
    Ok(StepOutcome::Progress)
}
