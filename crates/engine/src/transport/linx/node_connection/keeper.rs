//! The thread that stays with a connection until it ends. It handles timers, and reads where no other thread does.
//!
//! The owner of a watched link waits for its doorbell and never reads. While such links get messages, the keeper reads whenever
//! no other thread does. While they get none, it does not compete with a thread that reads often.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use super::super::doorbell::Doorbell;
use super::super::mailbox::Mailbox;
use super::{KEEPER_INTERVAL, NodeConnectionCore, lock};
use crate::link::Fault;
use linkgauge_model::clock::Time;
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{AsHandle, PollFlags, poll, watch};

/// Time for which the keeper leaves reading to a thread that reads often, while watched links get no messages.
const QUIET_INTERVAL: Duration = Duration::from_millis(10);

/// Interval of attempts to send what a full socket did not take.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(1);

/// Reads before the keeper looks at its timers.
const MAX_READS: usize = 16;

/// Runs the thread.
pub(super) fn run_keeper(core: &NodeConnectionCore) {
    while !core.is_over() {
        let (until, is_idle) = core.run_keeper_round();
        core.keep_until(until, is_idle);
    }
    // The owners of the mailboxes learn the end from the next operation.
    lock(&core.directory).mailboxes().for_each(|mailbox| {
        mailbox.accept_output();
        mailbox.ring();
    });
}

impl NodeConnectionCore {
    /// Rings the doorbell from now on: its owner waits for it.
    pub(crate) fn start_watching(&self, mailbox: &Mailbox, doorbell: &Arc<Doorbell>) {
        if !doorbell.start_watching() {
            return;
        }
        mailbox.add_doorbell(doorbell);
        self.watched_links.fetch_add(1, SeqCst);
        self.keeper_bell.ring();
        if mailbox.has_messages() || mailbox.is_ended() || self.is_over() {
            doorbell.ring();
        }
    }

    /// Ends the wait of the owner for the doorbell.
    pub(crate) fn stop_watching(&self, mailbox: &Mailbox, doorbell: &Arc<Doorbell>) {
        if doorbell.stop_watching() {
            mailbox.remove_doorbell(doorbell);
            self.watched_links.fetch_sub(1, SeqCst);
        }
    }

    /// Makes the doorbell unwritable until the connection takes output.
    pub(crate) fn await_output(&self, doorbell: &Doorbell) {
        doorbell.refuse_output();
        self.leave_unsent();
    }

    /// Reports output that no thread waits to send.
    pub(super) fn leave_unsent(&self) {
        if !self.has_unsent.swap(true, SeqCst) {
            self.keeper_bell.ring();
        }
    }

    /// Runs one round of the keeper. Returns when the next one begins, and whether no other thread reads.
    fn run_keeper_round(&self) -> (Time, bool) {
        let now = self.clock.now();
        let due = self.control.tick(now).unwrap_or_else(|ending| {
            self.disconnect(ending);
            Time::NEVER
        });
        if let Ok(mut outgoing) = self.writer.try_lock() {
            // Output that a full socket did not take.
            if let Err(fault) = outgoing.flush(WaitMode::Block, Duration::ZERO) {
                self.handle_fault(fault);
            }
        }
        let round = self.keeper_round.fetch_add(1, Relaxed);
        let is_idle =
            round.wrapping_sub(self.last_read_round.load(Relaxed)) > 1 && !self.has_reader.load(SeqCst);
        (due.min(now + KEEPER_INTERVAL), is_idle)
    }

    /// Waits for the next round, and reads meanwhile if that is the task of this thread.
    fn keep_until(&self, until: Time, is_idle: bool) {
        let mut is_active = self.has_rung.swap(false, SeqCst);
        while !self.is_over() {
            if self.has_unsent.load(SeqCst) {
                self.flush_unsent();
            }
            let mut rest = until.since(self.clock.now());
            if rest.is_zero() {
                return;
            }
            if self.has_unsent.load(SeqCst) {
                rest = rest.min(OUTPUT_INTERVAL);
            }
            is_active |= self.has_rung.load(SeqCst);
            match self.time_for_other_readers(is_idle, is_active) {
                Some(time) => self.rest(rest.min(time)),
                None if self.control.wait_readable(self.keeper_bell.as_handle(), rest) => self.read_pending(),
                None => {}
            }
            self.keeper_bell.silence();
            if is_idle && self.watched_links.load(SeqCst) == 0 {
                return;
            }
        }
    }

    /// Time for which the keeper leaves reading to other threads. `None`: the keeper reads.
    fn time_for_other_readers(&self, is_idle: bool, is_active: bool) -> Option<Duration> {
        if self.full_mailbox.load(SeqCst) != 0 {
            return Some(KEEPER_INTERVAL);
        }
        if self.watched_links.load(SeqCst) == 0 {
            return (!is_idle).then_some(KEEPER_INTERVAL);
        }
        let was_read = self.was_read.swap(false, SeqCst);
        if is_active {
            // That thread delivers for all meanwhile, and rings at its end.
            self.keeper_awaits_reader.store(true, SeqCst);
            return self.has_reader.load(SeqCst).then_some(KEEPER_INTERVAL);
        }
        (was_read || self.has_reader.load(SeqCst)).then_some(QUIET_INTERVAL)
    }

    /// Waits until another thread rings.
    fn rest(&self, time: Duration) {
        // An interrupted wait is repeated.
        let _ = poll(&mut [watch(&self.keeper_bell, PollFlags::IN)], time);
    }

    /// Sends what a full socket did not take. Then the owners of watched links can send again.
    fn flush_unsent(&self) {
        let Ok(mut outgoing) = self.writer.try_lock() else { return };
        self.has_unsent.store(false, SeqCst);
        let flushed = outgoing.flush(WaitMode::Block, Duration::ZERO);
        drop(outgoing);
        match flushed {
            Ok(()) => lock(&self.directory).mailboxes().for_each(|mailbox| mailbox.accept_output()),
            Err(Fault::TimedOut) => self.has_unsent.store(true, SeqCst),
            Err(fault) => drop(self.handle_fault(fault)),
        }
    }

    /// Reads available input, if no other thread does.
    fn read_pending(&self) {
        if let Ok(mut incoming) = self.reader.try_lock() {
            self.has_reader.store(true, SeqCst);
            // All users have already received a fault.
            for _ in 0..MAX_READS {
                if self.dispatch(incoming.as_mut(), None).is_err() || self.full_mailbox.load(SeqCst) != 0 {
                    break;
                }
                match incoming.receive(WaitMode::Block, Duration::ZERO) {
                    Ok(()) => {}
                    Err(Fault::TimedOut) => break,
                    Err(fault) => {
                        self.handle_fault(fault);
                        break;
                    }
                }
            }
            self.has_reader.store(false, SeqCst);
        }
        self.flush_pending();
        self.notify_waiters();
    }
}
