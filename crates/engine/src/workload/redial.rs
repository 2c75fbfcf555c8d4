//! Connections that a party closes and opens again: the time of opening, and its duration.

use std::time::Duration;

use crate::link::Fault;
use crate::link::party::Step;
use linkgauge_model::clock::Time;

/// Connections that fail in a row, each after its timeout, before the flow ends.
const MAX_UNANSWERED: u32 = 5;

/// The connection of a party whose link can be opened again.
#[derive(Debug)]
pub(crate) struct Redial {
    is_open: bool,
    /// Time at which opening began, while it is in progress.
    opening_since: Option<Time>,
    /// Earliest time of the next connection: on a virtual clock, opening may take no time, and a closed loop would never end.
    not_before: Time,
    /// Number of connections without a reply, since the last one with a reply.
    without_reply: u32,
}

/// Outcome of opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpeningEnd {
    /// Time at which opening began.
    pub began: Time,
    /// Whether the connection is open. If not, no reply came in time.
    pub(crate) is_open: bool,
}

impl Redial {
    /// Connection that is open.
    pub fn new() -> Redial {
        Redial { is_open: true, opening_since: None, not_before: Time(0), without_reply: 0 }
    }

    /// Closes the connection, if one is open. Closing reads the clock again, so it is not part of the next connection's time.
    pub(crate) fn close(&mut self) -> Option<Step<'static>> {
        std::mem::take(&mut self.is_open).then_some(Step::FinishSending)
    }

    /// Continues to open the connection, if that is in progress.
    pub(crate) fn continue_opening(&self) -> Option<Step<'static>> {
        self.opening_since.map(|_| Step::Reopen)
    }

    /// Ends the flow, if too many connections have failed.
    pub(crate) fn give_up(&self) -> Option<Step<'static>> {
        (self.without_reply >= MAX_UNANSWERED).then_some(Step::Fail(Fault::TimedOut))
    }

    /// The earliest time for the next connection.
    pub(crate) fn not_before(&self) -> Time {
        self.not_before
    }

    /// Begins to open a connection.
    pub(crate) fn open(&mut self, now: Time) -> Step<'static> {
        self.opening_since = Some(now);
        Step::Reopen
    }

    /// Takes the outcome of [`Step::Reopen`].
    ///
    /// # Errors
    ///
    /// Reasons other than a missing reply for which the link cannot be opened.
    pub(crate) fn end_opening(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<OpeningEnd, Fault> {
        let began = self.opening_since.take().unwrap_or(now);
        match outcome {
            Ok(()) => (self.is_open, self.without_reply) = (true, 0),
            Err(Fault::NoReply(_)) => self.without_reply += 1,
            Err(fault) => return Err(fault),
        }
        if now == began {
            self.not_before = now + Duration::from_millis(1);
        }
        Ok(OpeningEnd { began, is_open: self.is_open })
    }
}

/// The connections of a party that opens a new one after some requests.
#[derive(Debug)]
pub(crate) struct RequestsPerConnection {
    most: u64,
    /// Number of requests on this connection so far.
    sent: u64,
    redial: Redial,
}

impl RequestsPerConnection {
    /// Connections with at most `most` requests each; the first one is open.
    pub fn new(most: u64) -> RequestsPerConnection {
        RequestsPerConnection { most, sent: 0, redial: Redial::new() }
    }

    /// Counts a sent request.
    #[inline]
    pub(crate) fn count_sent(&mut self) {
        self.sent += 1;
    }

    /// Whether the next request needs a new connection.
    #[inline]
    pub(crate) fn is_used_up(&self) -> bool {
        self.sent >= self.most
    }

    /// Next step towards a new connection; `None` once it is open.
    pub(crate) fn next_step(&mut self, now: Time) -> Option<Step<'static>> {
        if !self.is_used_up() {
            return None;
        }
        let redial = &mut self.redial;
        let pending = redial.close().or_else(|| redial.continue_opening()).or_else(|| redial.give_up());
        Some(pending.unwrap_or_else(|| match self.redial.not_before() {
            not_before if not_before > now => Step::Sleep(not_before),
            _ => self.redial.open(now),
        }))
    }

    /// Takes the outcome of [`Step::Reopen`].
    ///
    /// # Errors
    ///
    /// Same errors as [`Redial::end_opening`].
    pub(crate) fn end_opening(&mut self, outcome: Result<(), Fault>, now: Time) -> Result<OpeningEnd, Fault> {
        let ended = self.redial.end_opening(outcome, now)?;
        if ended.is_open {
            self.sent = 0;
        }
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_closed_and_opened_after_its_requests() {
        let mut requests = RequestsPerConnection::new(2);
        requests.count_sent();
        assert!(requests.next_step(Time(1)).is_none());
        requests.count_sent();
        assert!(matches!(requests.next_step(Time(2)), Some(Step::FinishSending)));
        // Opening takes several steps; it began with the first.
        assert!(matches!(requests.next_step(Time(3)), Some(Step::Reopen)));
        assert!(matches!(requests.next_step(Time(7)), Some(Step::Reopen)));
        let ended = requests.end_opening(Ok(()), Time(9)).unwrap();
        assert_eq!(ended, OpeningEnd { began: Time(3), is_open: true });
        assert!(requests.next_step(Time(9)).is_none());
    }

    #[test]
    fn connections_without_a_reply_are_tried_again_and_end_the_flow_in_the_end() {
        let mut requests = RequestsPerConnection::new(1);
        requests.count_sent();
        assert!(matches!(requests.next_step(Time(0)), Some(Step::FinishSending)));
        for attempt in 1..=MAX_UNANSWERED {
            let began = Time(1_000_000_000 * u64::from(attempt));
            assert!(matches!(requests.next_step(began), Some(Step::Reopen)));
            let no_reply = Err(Fault::NoReply("none".to_owned()));
            let ended = requests.end_opening(no_reply, began + Duration::from_secs(1)).unwrap();
            assert_eq!(ended, OpeningEnd { began, is_open: false });
        }
        assert!(matches!(requests.next_step(Time(u64::MAX)), Some(Step::Fail(Fault::TimedOut))));
        assert!(requests.end_opening(Err(Fault::Closed), Time(0)).is_err());
    }
}
