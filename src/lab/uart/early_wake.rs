//! How long before an instant to wake: timers are late, and who waits for a lone character sees it.
//!
//! Not for waiting itself (`engine`). Waking early and spinning the rest is right to a microsecond and costs a CPU for
//! that time, so it is kept below a share of the time; beyond, timers have to do.

use std::time::Duration;

use crate::clock::Time;

/// Most of the time that may be spun away.
const MAX_BUSY_POLL_SHARE: f64 = 0.3;

/// Spinning saved up at most: what an idle line may spend at once.
const MAX_BUSY_POLL_BUDGET: Duration = Duration::from_millis(20);

/// How early to wake before anything is known: the default timer slack and a switch.
const INITIAL_LEAD: Duration = Duration::from_micros(60);

/// Later than this a timer is because others wanted the CPU, and spinning would take it from them.
const MAX_LEAD: Duration = Duration::from_micros(120);

/// What is known about this host's timers, and how much spinning is left.
#[derive(Debug)]
pub struct EarlyWake {
    lead: Duration,
    budget: Duration,
    updated_at: Time,
}

impl EarlyWake {
    pub fn new(now: Time) -> EarlyWake {
        EarlyWake { lead: INITIAL_LEAD, budget: MAX_BUSY_POLL_BUDGET, updated_at: now }
    }

    /// How long before an instant to wake for it; zero when too much was spun already.
    pub fn lead_time(&mut self, now: Time) -> Duration {
        self.budget =
            (self.budget + now.since(self.updated_at).mul_f64(MAX_BUSY_POLL_SHARE)).min(MAX_BUSY_POLL_BUDGET);
        self.updated_at = now;
        if self.budget >= self.lead { self.lead } else { Duration::ZERO }
    }

    /// A timer was so late: the next ones are expected to be earlier than that 19 times in 20.
    pub fn record_wake(&mut self, late: Duration) {
        self.lead = if late > self.lead {
            (self.lead + (late - self.lead).min(MAX_LEAD) / 8).min(MAX_LEAD)
        } else {
            self.lead - (self.lead - late) / 152
        };
    }

    /// So long was spun.
    pub fn record_busy_poll(&mut self, time: Duration) {
        self.budget = self.budget.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn busy_polling_stays_below_its_share() {
        let (mut pause, mut now, mut spun) = (EarlyWake::new(Time(0)), Time(0), Duration::ZERO);
        while now < Time(10_000_000_000) {
            let early = pause.lead_time(now);
            pause.record_busy_poll(early);
            spun += early;
            now = now + early + MICROSECOND;
        }
        let share = (spun - MAX_BUSY_POLL_BUDGET).as_secs_f64() / 10.0;
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
