//! Time before an instant at which to wake: timers are late, and that delay shows in the times of single characters.
//!
//! `engine` does the waiting. Waking early and busy-polling the rest is exact to a microsecond but occupies a CPU.
//! Busy-polling is therefore limited to a share of the time; beyond that, timers have to do.

use std::time::Duration;

use linkgauge_model::clock::Time;

/// Maximum share of the time for busy-polling.
const MAX_BUSY_POLL_SHARE: f64 = 0.3;

/// Maximum saved budget, which an idle line may spend at once.
const MAX_BUSY_POLL_BUDGET: Duration = Duration::from_millis(20);

/// Lead before anything was measured: the default timer slack and a context switch.
const INITIAL_LEAD: Duration = Duration::from_micros(60);

/// A timer that is later than this was delayed by other load. Busy-polling would take the CPU from that load.
const MAX_LEAD: Duration = Duration::from_micros(120);

/// Measured lateness of this host's timers, and the remaining budget.
#[derive(Debug)]
pub(crate) struct EarlyWake {
    lead: Duration,
    budget: Duration,
    updated_at: Time,
}

impl EarlyWake {
    pub fn new(now: Time) -> EarlyWake {
        EarlyWake { lead: INITIAL_LEAD, budget: MAX_BUSY_POLL_BUDGET, updated_at: now }
    }

    /// Time before an instant at which to wake; zero if the budget is used up.
    pub(crate) fn lead_time(&mut self, now: Time) -> Duration {
        self.budget =
            (self.budget + now.since(self.updated_at).mul_f64(MAX_BUSY_POLL_SHARE)).min(MAX_BUSY_POLL_BUDGET);
        self.updated_at = now;
        if self.budget >= self.lead { self.lead } else { Duration::ZERO }
    }

    /// Records how late a timer was. The lead covers 19 of 20 wake-ups.
    pub(crate) fn record_wake(&mut self, late: Duration) {
        self.lead = if late > self.lead {
            (self.lead + (late - self.lead).min(MAX_LEAD) / 8).min(MAX_LEAD)
        } else {
            self.lead - (self.lead - late) / 152
        };
    }

    /// Records a time of busy-polling.
    pub(crate) fn record_busy_poll(&mut self, time: Duration) {
        self.budget = self.budget.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn busy_polling_stays_below_its_share() {
        let (mut pause, mut now, mut polled) = (EarlyWake::new(Time(0)), Time(0), Duration::ZERO);
        while now < Time(10_000_000_000) {
            let early = pause.lead_time(now);
            pause.record_busy_poll(early);
            polled += early;
            now = now + early + MICROSECOND;
        }
        let share = (polled - MAX_BUSY_POLL_BUDGET).as_secs_f64() / 10.0;
        assert!((0.25..=MAX_BUSY_POLL_SHARE).contains(&share), "{share}");
    }

    #[test]
    fn lead_adapts_to_late_timers() {
        let mut pause = EarlyWake::new(Time(0));
        (0..2000).for_each(|_| pause.record_wake(20 * MICROSECOND));
        assert!(pause.lead_time(Time(0)) < 21 * MICROSECOND);
        (0..100).for_each(|_| pause.record_wake(90 * MICROSECOND));
        assert!(pause.lead_time(Time(0)) > 85 * MICROSECOND);
        (0..100).for_each(|_| pause.record_wake(Duration::from_secs(1)));
        assert_eq!(pause.lead_time(Time(0)), MAX_LEAD);
    }
}
