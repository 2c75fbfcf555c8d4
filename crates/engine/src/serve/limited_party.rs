//! Enforces the limits of the server on the party of a connection.
//!
//! It wraps the party in the loop, so that no protocol can bypass a limit:
//!
//! - silence: only received data, or data that a reliable link has taken, counts as activity. A client that never reads
//!   is silent, too;
//! - the length of a measurement;
//! - the rate of the source, in both directions: streams wait, datagrams beyond it are dropped;
//! - the length of a message, on links with message boundaries;
//! - on links without connections, where senders can be forged: never more bytes out than in, until the party reports
//!   that the sender has proved its address.
//!
//! It allocates nothing and takes no lock while bytes move.

use std::time::Duration;

use super::pending::PendingSlot;
use super::rate_limiter::RateMeter;
use crate::link::party::{ClientTrust, CostDetail, Party, PartyCost, Step, StopReason};
use crate::link::shared_thread::Waker;
use crate::link::{Caps, Fault, Framing, Link, prefetch};
use crate::protocol::ServerLimits;
use linkgauge_model::clock::Time;

/// Interval between checks whether a client without a handshake must leave; no event announces that.
const EVICTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartyLimits {
    pub(crate) idle_timeout: Duration,
    pub(crate) max_duration: Duration,
    pub(crate) max_message_bytes: usize,
}

impl PartyLimits {
    /// Limits of a connection. `grace`: additional time that a connection may last beyond the maximum of a measurement.
    pub fn new(limits: &ServerLimits, grace: Duration) -> PartyLimits {
        PartyLimits {
            idle_timeout: Duration::from_secs(limits.idle_s),
            max_duration: Duration::from_secs(limits.duration_s).saturating_add(grace),
            max_message_bytes: limits.message_bytes as usize,
        }
    }
}

pub(crate) struct LimitedParty {
    party: Box<dyn Party>,
    limits: PartyLimits,
    /// Whether the link loses nothing, so that bytes that it takes count as activity, and unread input waits.
    is_reliable: bool,
    has_messages: bool,
    /// The client's address is verified.
    is_address_verified: bool,
    rate_meter: Option<RateMeter>,
    /// Slot that is held until the client has introduced itself; on links without connections, until its address is verified.
    pending_slot: Option<PendingSlot>,
    began_at: Option<Time>,
    /// Time of the last activity.
    last_activity: Time,
    /// Time since which the link has taken no output.
    stalled_since: Option<Time>,
    /// Time before which no time limit expires.
    next_check: Time,
    /// The party's own receive timeout.
    receive_until: Time,
    /// Bytes in and out.
    received_bytes: u64,
    sent_bytes: u64,
    /// Whether the last input exceeds the rate.
    is_over_rate: bool,
    stop_reason: Option<StopReason>,
}

impl LimitedParty {
    pub fn new(party: Box<dyn Party>, caps: &Caps, rules: PartyLimits) -> LimitedParty {
        LimitedParty {
            is_address_verified: caps.can_signal_close
                || party.client_trust() >= ClientTrust::AddressVerified,
            party,
            limits: rules,
            is_reliable: caps.is_reliable,
            has_messages: caps.framing == Framing::Message,
            rate_meter: None,
            pending_slot: None,
            began_at: None,
            last_activity: Time(0),
            stalled_since: None,
            next_check: Time(0),
            receive_until: Time::NEVER,
            received_bytes: 0,
            sent_bytes: 0,
            is_over_rate: false,
            stop_reason: None,
        }
    }

    pub(crate) fn with_rate_meter(self, meter: Option<RateMeter>) -> LimitedParty {
        LimitedParty { rate_meter: meter, ..self }
    }

    /// Holds the slot of a pending client until it has introduced itself.
    pub(crate) fn with_pending_slot(self, ticket: Option<PendingSlot>) -> LimitedParty {
        LimitedParty { pending_slot: ticket, ..self }
    }

    /// Checks the time limits and computes the next check.
    fn check_deadlines(&mut self, now: Time) -> Option<StopReason> {
        let began = *self.began_at.get_or_insert_with(|| {
            self.last_activity = now;
            now
        });
        let deadlines =
            |began: Time, alive: Time| (alive + self.limits.idle_timeout, began + self.limits.max_duration);
        let (silent, long) = deadlines(began, self.last_activity);
        if now < silent.min(long) {
            self.next_check = silent.min(long);
            return None;
        }
        if self.party.client_trust() == ClientTrust::Exempt {
            (self.began_at, self.last_activity) = (Some(now), now);
            let (silent, long) = deadlines(now, now);
            self.next_check = silent.min(long);
            return None;
        }
        Some(if now >= silent { StopReason::Idle } else { StopReason::TooLong })
    }

    /// Updates the trust level that the party reports.
    fn update_trust(&mut self) {
        if self.is_address_verified && self.pending_slot.is_none() {
            return;
        }
        let standing = self.party.client_trust();
        self.is_address_verified |= standing >= ClientTrust::AddressVerified;
        if standing > ClientTrust::Unidentified && self.is_address_verified {
            self.pending_slot = None;
        }
    }

    fn stop(&mut self, reason: StopReason) -> Step<'_> {
        self.party.on_stopped(reason);
        match reason {
            // The usual end of a link without connections.
            StopReason::Idle => Step::Done,
            reason => Step::Fail(Fault::LimitReached(reason.message().to_owned())),
        }
    }
}

impl Party for LimitedParty {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if now >= self.next_check && self.stop_reason.is_none() {
            self.stop_reason = self.check_deadlines(now);
        }
        if self.pending_slot.as_ref().is_some_and(PendingSlot::is_evicted) {
            self.stop_reason = Some(StopReason::Evicted);
        }
        if let Some(reason) = self.stop_reason {
            return self.stop(reason);
        }
        let paid = self.rate_meter.as_ref().and_then(|meter| meter.next_allowed(now));
        if let Some(at) = paid.filter(|_| self.is_reliable) {
            // The server caused this pause, not the client.
            self.last_activity = now;
            return Step::Sleep(at.min(self.next_check));
        }
        match self.party.next_step(now) {
            Step::Receive { into, until } => {
                self.receive_until = until;
                let look_again =
                    if self.pending_slot.is_some() { now + EVICTION_CHECK_INTERVAL } else { Time::NEVER };
                Step::Receive { into, until: until.min(self.next_check).min(look_again) }
            }
            Step::Send { bytes, message } => {
                if !self.is_address_verified && self.sent_bytes + bytes.len() as u64 > self.received_bytes {
                    self.stop_reason = Some(StopReason::Amplification);
                } else if now >= *self.stalled_since.get_or_insert(now) + self.limits.idle_timeout {
                    self.stop_reason = Some(StopReason::Idle);
                }
                match (self.stop_reason, paid) {
                    (Some(_), _) => Step::Sleep(now),
                    (None, Some(at)) => Step::Sleep(at),
                    (None, None) => Step::Send { bytes, message },
                }
            }
            step => step,
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.sent_bytes += bytes as u64;
        self.stalled_since = None;
        if self.is_reliable && bytes > 0 {
            self.last_activity = at;
        }
        if let Some(meter) = &self.rate_meter {
            meter.charge(bytes as u64, at);
        }
        self.party.on_sent(bytes, at);
        if let Some(successor) = self.party.take_successor() {
            self.party = successor;
        }
    }

    #[inline]
    fn on_arriving(&mut self, bytes: u64, longest: usize, now: Time) {
        self.received_bytes += bytes;
        if self.has_messages && longest > self.limits.max_message_bytes {
            self.stop_reason = Some(StopReason::MessageTooLong);
        }
        if let Some(meter) = &self.rate_meter {
            // Input of a stream is accepted; the next receive waits.
            self.is_over_rate = !self.is_reliable && meter.next_allowed(now).is_some();
            if !self.is_over_rate {
                meter.charge(bytes, now);
            }
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        self.last_activity = now;
        if self.is_over_rate || self.stop_reason.is_some() {
            return;
        }
        if let Some(slot) = &mut self.pending_slot {
            slot.count_message(now);
        }
        self.party.on_received(now);
        self.update_trust();
    }

    fn on_send_blocked(&mut self, now: Time, unacknowledged: Option<u64>) {
        self.party.on_send_blocked(now, unacknowledged);
    }

    fn on_timeout(&mut self, now: Time) {
        if now >= self.receive_until {
            self.party.on_timeout(now);
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.party.on_closed(now)
    }

    fn on_reopened(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<(), Fault> {
        self.party.on_reopened(outcome, now)
    }

    fn client_trust(&self) -> ClientTrust {
        self.party.client_trust()
    }

    fn on_tuned(&mut self, link: &dyn Link) {
        self.party.on_tuned(link);
    }

    fn on_shared(&mut self, waker: &Waker) {
        self.party.on_shared(waker);
    }

    fn refusal(&self) -> Option<&str> {
        self.stop_reason.map(StopReason::message).or_else(|| self.party.refusal())
    }

    fn closing_message(&mut self) -> &'static [u8] {
        self.party.closing_message()
    }

    fn prefetch_parts(&self) {
        prefetch(self.party.as_ref());
    }

    fn cost_detail(&self) -> CostDetail {
        self.party.cost_detail()
    }

    fn on_ended(&mut self, cost: PartyCost) {
        self.party.on_ended(cost);
    }
}

#[cfg(test)]
mod tests;
