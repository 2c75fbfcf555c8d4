//! How long before an instant to wake: timers are late, and who waits for a lone character sees it.
//!
//! Not for waiting itself (`engine`). Waking early and spinning the rest is right to a microsecond and costs a CPU for
//! that time, so it is kept below a share of the time; beyond, timers have to do.

use std::time::Duration;

use crate::clock::Time;

/// Most of the time that may be spun away.
const SHARE: f64 = 0.3;

/// Spinning saved up at most: what an idle line may spend at once.
const SAVED: Duration = Duration::from_millis(20);

/// How early to wake before anything is known: the default timer slack and a switch.
const FIRST: Duration = Duration::from_micros(60);

/// Later than this a timer is because others wanted the CPU, and spinning would take it from them.
const MOST: Duration = Duration::from_micros(120);

/// What is known about this host's timers, and how much spinning is left.
#[derive(Debug)]
pub struct Pause {
    early: Duration,
    saved: Duration,
    at: Time,
}

impl Pause {
    pub fn new(now: Time) -> Pause {
        Pause { early: FIRST, saved: SAVED, at: now }
    }

    /// How long before an instant to wake for it; zero when too much was spun already.
    pub fn early(&mut self, now: Time) -> Duration {
        self.saved = (self.saved + now.since(self.at).mul_f64(SHARE)).min(SAVED);
        self.at = now;
        if self.saved >= self.early { self.early } else { Duration::ZERO }
    }

    /// A timer was so late: the next ones are expected to be earlier than that 19 times in 20.
    pub fn woke(&mut self, late: Duration) {
        self.early = if late > self.early {
            (self.early + (late - self.early).min(MOST) / 8).min(MOST)
        } else {
            self.early - (self.early - late) / 152
        };
    }

    /// So long was spun.
    pub fn spun(&mut self, time: Duration) {
        self.saved = self.saved.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn spinning_stays_below_its_share() {
        let (mut pause, mut now, mut spun) = (Pause::new(Time(0)), Time(0), Duration::ZERO);
        while now < Time(10_000_000_000) {
            let early = pause.early(now);
            pause.spun(early);
            spun += early;
            now = now + early + MICROSECOND;
        }
        let share = (spun - SAVED).as_secs_f64() / 10.0;
        assert!((0.25..=SHARE).contains(&share), "{share}");
    }

    #[test]
    fn it_learns_how_late_timers_are() {
        let mut pause = Pause::new(Time(0));
        (0..2000).for_each(|_| pause.woke(20 * MICROSECOND));
        assert!(pause.early(Time(0)) < 21 * MICROSECOND);
        (0..100).for_each(|_| pause.woke(90 * MICROSECOND));
        assert!(pause.early(Time(0)) > 85 * MICROSECOND);
        (0..100).for_each(|_| pause.woke(Duration::from_secs(1)));
        assert_eq!(pause.early(Time(0)), MOST);
    }
}
