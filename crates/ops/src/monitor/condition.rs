//! A state of a link that people learn of: an outage, or an alarm. It decides when the actions receive a message about it.
//!
//! A change is sent at once. A link whose state changes all the time is sent when a change has lasted, and a state that was silenced is
//! sent when the silence ends.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Number of messages about changes within `UNSTEADY_TIME` after which only a change that lasts for `STEADY_TIME` is sent.
const UNSTEADY_MESSAGES: usize = 4;
const UNSTEADY_TIME: SignedDuration = SignedDuration::from_mins(10);
const STEADY_TIME: SignedDuration = SignedDuration::from_mins(1);

/// Details that are known about a condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConditionDetails {
    /// The rule of an alarm, as written; `None` for an outage.
    pub(crate) rule: Option<String>,
    /// Reason for the condition, for people.
    pub(crate) reason: Option<String>,
    /// Id of the run that shows it, if it was saved.
    pub(crate) run: Option<String>,
}

/// An outage or an alarm, and what the actions know of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Condition {
    /// Begin of the current state "on"; `None`: it is off.
    since: Option<Timestamp>,
    /// The last change.
    changed: Timestamp,
    /// Time for which it was on last.
    lasted: SignedDuration,
    details: ConditionDetails,
    /// Whether the last message said that it is on.
    is_known: bool,
    /// Changes since the last message.
    changes: u32,
    has_news: bool,
    /// The latest messages about changes.
    sent: VecDeque<Timestamp>,
    /// The last message of any kind.
    last_sent: Timestamp,
}

/// Message that is to be sent about a condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConditionMessage {
    /// Time of the change, or now if it did not change.
    pub(crate) at: Timestamp,
    pub(crate) is_on: bool,
    /// Time for which it has been on, or was.
    pub(crate) duration: SignedDuration,
    /// Changes since the last message.
    pub(crate) changes: u32,
    pub(crate) details: ConditionDetails,
}

impl Condition {
    pub fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// Begin of the condition, while it is on.
    pub fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Whether it is off and was on within this time.
    pub fn ended_within(&self, time: SignedDuration, now: Timestamp) -> bool {
        !self.is_on() && self.changed > Timestamp::UNIX_EPOCH && !has_passed(self.changed, time, now)
    }

    /// The rule, while it is on.
    pub fn rule(&self) -> Option<&str> {
        self.since.and(self.details.rule.as_deref())
    }

    /// Begins the condition; returns false if it is on already.
    pub fn begin(&mut self, at: Timestamp, details: ConditionDetails) -> bool {
        if self.is_on() {
            return false;
        }
        (self.since, self.details) = (Some(at), details);
        self.count_change(at);
        true
    }

    /// Ends the condition, if it is on, and returns the time for which it was.
    pub fn end(&mut self, at: Timestamp) -> Option<SignedDuration> {
        self.lasted = since(self.since.take()?, at);
        self.count_change(at);
        Some(self.lasted)
    }

    fn count_change(&mut self, at: Timestamp) {
        self.changed = at;
        self.changes = self.changes.saturating_add(1);
    }

    /// Goes on with a condition of which the actions learnt before a restart.
    pub fn resume(&mut self, at: Timestamp, details: ConditionDetails) {
        (self.since, self.details) = (Some(at), details);
        (self.changed, self.last_sent, self.is_known) = (at, at, true);
    }

    /// Takes a reason that became known later; false if it is not on, or has one.
    pub fn explain(&mut self, reason: &str) -> bool {
        let is_news = self.is_on() && self.details.reason.is_none();
        if is_news {
            self.details.reason = Some(reason.to_owned());
            self.has_news = self.is_known;
        }
        is_news
    }

    /// Discards the changes: nothing is sent now, and what began and ended meanwhile is not sent later, either.
    pub fn silence(&mut self) {
        if !self.is_on() && !self.is_known {
            self.changes = 0;
        }
    }

    /// The message that is due now, if one is.
    pub fn next_message(&mut self, now: Timestamp, repeat: Option<Duration>) -> Option<ConditionMessage> {
        let is_on = self.is_on();
        let is_change = self.changes > 0 && !(is_on && self.is_known);
        let repeat = repeat.and_then(|repeat| SignedDuration::try_from(repeat).ok());
        let is_due = match is_change {
            true => !self.is_unsteady(now) || has_passed(self.changed, STEADY_TIME, now),
            false if is_on && self.is_known => {
                self.has_news || repeat.is_some_and(|repeat| has_passed(self.last_sent, repeat, now))
            }
            false => false,
        };
        if !is_due {
            return None;
        }
        if is_change {
            self.sent.truncate(UNSTEADY_MESSAGES - 1);
            self.sent.push_front(now);
        }
        (self.is_known, self.has_news, self.last_sent) = (is_on, false, now);
        Some(ConditionMessage {
            at: if is_change { self.changed } else { now },
            is_on,
            duration: self.since.map_or(self.lasted, |began| since(began, now)),
            changes: if is_change { std::mem::take(&mut self.changes) } else { 0 },
            details: self.details.clone(),
        })
    }

    fn is_unsteady(&self, now: Timestamp) -> bool {
        let recent = self.sent.iter().filter(|sent| !has_passed(**sent, UNSTEADY_TIME, now));
        recent.count() >= UNSTEADY_MESSAGES
    }
}

fn since(began: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(began).max(SignedDuration::ZERO)
}

/// Whether this time has passed. It has after a clock that was set back, too.
fn has_passed(since: Timestamp, time: SignedDuration, now: Timestamp) -> bool {
    !(SignedDuration::ZERO..time).contains(&now.duration_since(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn outage(reason: Option<&str>) -> ConditionDetails {
        ConditionDetails { reason: reason.map(str::to_owned), ..ConditionDetails::default() }
    }

    /// The seconds at which a message is sent, whether it says that the condition is on, and the changes that it stands for.
    fn messages(condition: &mut Condition, seconds: std::ops::Range<i64>) -> Vec<(i64, bool, u32)> {
        let mut sent = Vec::new();
        for second in seconds {
            let message = condition.next_message(at(second), None);
            sent.extend(message.map(|message| (second, message.is_on, message.changes)));
        }
        sent
    }

    #[test]
    fn a_change_is_sent_once_and_repeated_on_request() {
        let mut condition = Condition::default();
        assert!(condition.begin(at(0), outage(None)) && !condition.begin(at(1), outage(None)));
        let hour = Some(Duration::from_secs(3600));
        let first = condition.next_message(at(2), hour).unwrap();
        assert_eq!((first.at, first.is_on, first.changes), (at(0), true, 1));
        assert_eq!(condition.next_message(at(3600), hour), None);
        let repeated = condition.next_message(at(3602), hour).unwrap();
        assert_eq!((repeated.at, repeated.changes), (at(3602), 0));
        assert_eq!(repeated.duration, SignedDuration::from_secs(3602));
        assert_eq!(condition.end(at(4000)), Some(SignedDuration::from_secs(4000)));
        let last = condition.next_message(at(4001), hour).unwrap();
        assert_eq!((last.is_on, last.duration), (false, SignedDuration::from_secs(4000)));
        assert_eq!((condition.next_message(at(99_999), hour), condition.end(at(99_999))), (None, None));
    }

    #[test]
    fn a_reason_that_becomes_known_later_is_sent() {
        let mut condition = Condition::default();
        assert!(!condition.explain("nothing is wrong"));
        condition.begin(at(0), outage(None));
        condition.next_message(at(0), None).unwrap();
        assert!(condition.explain("no route") && !condition.explain("another"));
        let message = condition.next_message(at(9), None).unwrap();
        assert_eq!((message.changes, message.details.reason.as_deref()), (0, Some("no route")));
        assert_eq!(condition.next_message(at(10), None), None);
    }

    #[test]
    fn an_outage_between_two_looks_is_one_message() {
        let mut condition = Condition::default();
        condition.begin(at(0), outage(Some("unplugged")));
        condition.end(at(1));
        let message = condition.next_message(at(2), None).unwrap();
        assert_eq!((message.is_on, message.changes), (false, 2));
        assert_eq!(
            (message.duration, message.details),
            (SignedDuration::from_secs(1), outage(Some("unplugged")))
        );
        assert_eq!(condition.next_message(at(3), None), None);
    }

    #[test]
    fn a_link_that_changes_all_the_time_sends_few_messages_and_the_last_state() {
        let mut condition = Condition::default();
        let mut sent = Vec::new();
        for turn in 0..60 {
            let second = turn * 10;
            condition.begin(at(second), outage(None));
            sent.extend(messages(&mut condition, second..second + 5));
            condition.end(at(second + 5));
            sent.extend(messages(&mut condition, second + 5..second + 10));
        }
        assert_eq!(sent, [(0, true, 1), (5, false, 1), (10, true, 1), (15, false, 1)]);
        condition.begin(at(600), outage(None));
        let later = messages(&mut condition, 600..2000);
        assert_eq!(later.len(), 1, "{later:?}");
        assert!(later[0].1 && later[0].2 == 117, "{later:?}");
    }

    #[test]
    fn what_lasts_longer_than_a_silence_is_sent_after_it() {
        let mut condition = Condition::default();
        condition.begin(at(0), outage(None));
        condition.end(at(5));
        condition.silence();
        assert_eq!(messages(&mut condition, 10..20), []);
        condition.begin(at(20), outage(None));
        condition.silence();
        assert_eq!(messages(&mut condition, 30..31), [(30, true, 1)]);
        condition.end(at(40));
        condition.silence();
        assert_eq!(messages(&mut condition, 50..51), [(50, false, 1)]);
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up() {
        let mut condition = Condition::default();
        condition.resume(at(10_000), outage(None));
        assert_eq!(messages(&mut condition, 0..10), []);
        assert!(condition.next_message(at(0), Some(Duration::from_secs(60))).is_some());
        assert_eq!(condition.end(at(5)), Some(SignedDuration::ZERO));
        assert_eq!(messages(&mut condition, 5..9), [(5, false, 1)]);
    }
}
