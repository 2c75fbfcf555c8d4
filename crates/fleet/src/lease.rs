//! Whether a lease is still ours. The lease of a test covers both hosts and what they share; it was taken as a whole.
//!
//! It has no I/O: the caller renews it and reports the outcome. An agent that cannot renew in time must stop its test before
//! the hub gives the hosts to another one, so the time counts from when a request was sent, never from its response.

use std::time::Duration;

use linkgauge_model::clock::Time;

/// Time after which the hub gives up a lease that was not renewed.
pub const LEASE_TTL: Duration = Duration::from_secs(10);

/// Parts of that time after which it is renewed: two renewals may fail.
const RENEWALS: u32 = 3;

/// Time before the end in which the test must have stopped.
const MARGIN: Duration = Duration::from_secs(1);

/// A lease that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    subjects: Vec<String>,
    /// Number of the last message of each subject, which the next one must follow.
    numbers: Vec<u64>,
    fence: u64,
    ttl: Duration,
    /// When the last request was sent that the hub has granted.
    granted: Time,
    is_refused: bool,
    next_attempt: Time,
}

impl Lease {
    /// The hub has stored the messages of these subjects in one batch. `last` is the number of the last message; `asked` is when
    /// the request was sent.
    pub(crate) fn taken(subjects: Vec<String>, last: u64, ttl: Duration, asked: Time) -> Lease {
        let mut lease = Lease {
            numbers: Vec::new(),
            fence: 0,
            subjects,
            ttl,
            granted: asked,
            is_refused: false,
            next_attempt: asked,
        };
        lease.on_renewed(last, asked);
        lease.fence = last;
        lease
    }

    /// The subjects, with the number of the last message of each.
    pub(crate) fn expected(&self) -> Vec<(&str, u64)> {
        self.subjects.iter().map(String::as_str).zip(self.numbers.iter().copied()).collect()
    }

    /// Grows with each lease of a host: the holder of an older one is late.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// When it is to be renewed.
    pub(crate) fn next_renewal(&self) -> Time {
        self.next_attempt
    }

    /// The hub has renewed it; a batch has consecutive numbers.
    pub(crate) fn on_renewed(&mut self, last: u64, asked: Time) {
        let count = self.subjects.len() as u64;
        self.numbers = (0..count).map(|index| (last + 1 + index).saturating_sub(count)).collect();
        self.granted = asked;
        self.next_attempt = asked + self.ttl / RENEWALS;
    }

    /// The hub has refused it: another agent has it.
    pub(crate) fn on_refused(&mut self) {
        self.is_refused = true;
    }

    /// The hub did not reply. It is tried again soon.
    pub(crate) fn on_no_reply(&mut self, now: Time) {
        self.next_attempt = now + self.ttl / (4 * RENEWALS);
    }

    /// Whether the test must stop.
    pub fn is_lost(&self, now: Time) -> bool {
        self.is_refused || now >= self.granted + self.ttl.saturating_sub(MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::clock::Clock;

    fn seconds(seconds: f64) -> Time {
        Time((seconds * 1e9) as u64)
    }

    fn lease() -> Lease {
        let subjects = ["lease.host.a", "lease.host.b"].map(str::to_owned).to_vec();
        Lease::taken(subjects, 8, LEASE_TTL, seconds(100.0))
    }

    #[test]
    fn a_batch_has_consecutive_numbers() {
        let mut lease = lease();
        assert_eq!(lease.expected(), [("lease.host.a", 7), ("lease.host.b", 8)]);
        lease.on_renewed(20, seconds(103.0));
        assert_eq!(lease.expected(), [("lease.host.a", 19), ("lease.host.b", 20)]);
        assert_eq!(lease.fence(), 8, "the fence is that of the begin");
    }

    #[test]
    fn a_refused_lease_is_lost_at_once() {
        let mut lease = lease();
        assert!(!lease.is_lost(seconds(100.1)));
        lease.on_refused();
        assert!(lease.is_lost(seconds(100.1)));
    }

    /// On the virtual clock: a hub that is silent for a while, and for good.
    #[test]
    fn without_a_hub_a_test_stops_before_another_can_begin() {
        for (silent_s, is_kept) in [(0, true), (5, true), (20, false)] {
            let clock = Clock::new_virtual();
            let mut lease = Lease::taken(vec!["lease.host.a".to_owned()], 1, LEASE_TTL, clock.now());
            // The hub counts from the last request that it has seen.
            let mut hub_expires = clock.now() + LEASE_TTL;
            let silence = seconds(10.0)..seconds(10.0 + f64::from(silent_s));
            let mut lost = None;
            while clock.now() < seconds(60.0) && lost.is_none() {
                clock.sleep_until(clock.now() + Duration::from_millis(100));
                let now = clock.now();
                if now >= lease.next_renewal() {
                    match silence.contains(&now) {
                        true => lease.on_no_reply(now),
                        false => {
                            hub_expires = now + LEASE_TTL;
                            lease.on_renewed(2, now);
                        }
                    }
                }
                lost = lease.is_lost(now).then_some(now);
            }
            assert_eq!(lost.is_none(), is_kept, "{silent_s} s");
            assert!(lost.is_none_or(|lost| lost + MARGIN <= hub_expires), "{lost:?} {hub_expires:?}");
        }
    }
}
