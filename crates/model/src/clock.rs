//! The clock: monotonic nanoseconds, real or virtual; waiting for an instant, and the cost of a reading.
//!
//! The wall clock is read only once per date ([`wall_clock_date`]), because it may be set during a run.
//!
//! The virtual clock does not sleep: waiting moves its time to the awaited instant. So a run of hours takes
//! microseconds and is exact to the nanosecond.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use linkgauge_system as system;

/// An instant: nanoseconds since an origin shared by all processes of this machine (boot), or since the start
/// of a virtual clock.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Instant that is later than every instant of a run.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    /// Same as [`Time::since`].
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

/// The source of the time.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// `CLOCK_MONOTONIC` of this machine.
    #[default]
    System,
    /// A clock that advances only with waits.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// A virtual clock at zero.
    pub fn new_virtual() -> Clock {
        Clock::Virtual(Arc::default())
    }

    /// The current instant; about 25 ns on the system clock (see [`measure_read_cost`]).
    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Clock::System => Time(system::monotonic_ns()),
            Clock::Virtual(now) => Time(now.load(Relaxed)),
        }
    }

    /// Blocks until `until`; returns at once if it has passed. The wake-up may be some tens of microseconds
    /// late.
    pub fn sleep_until(&self, until: Time) {
        match self {
            Clock::System => {
                // A signal ends a sleep.
                while self.now() < until {
                    system::sleep_until_ns(until.0);
                }
            }
            Clock::Virtual(now) => {
                now.fetch_max(until.0, Relaxed);
            }
        }
    }

    /// Sleeps as [`Clock::sleep_until`], but only until `BUSY_POLL_LEAD` before the instant, and busy-polls the rest. On an idle
    /// CPU the error is well under a microsecond, at the cost of that CPU. Returns the busy-polled time.
    pub fn sleep_then_busy_poll(&self, until: Time) -> Duration {
        if let Clock::System = self {
            let early = Time(until.0.saturating_sub(BUSY_POLL_LEAD.as_nanos() as u64));
            let mut began = self.now();
            if began < early {
                self.sleep_until(early);
                began = self.now();
            }
            let mut now = began;
            while now < until {
                std::hint::spin_loop();
                now = self.now();
            }
            now.since(began)
        } else {
            self.sleep_until(until);
            Duration::ZERO
        }
    }
}

/// Time before an instant at which sleeping ends and busy-polling begins: the usual lateness of a wake-up (50
/// µs of timer slack by default, and the context switch) with a margin.
pub const BUSY_POLL_LEAD: Duration = Duration::from_micros(120);

/// The date of the wall clock, limited to the years that can be formatted.
pub fn wall_clock_date() -> Timestamp {
    timestamp_of(SystemTime::now())
}

fn timestamp_of(wall: SystemTime) -> Timestamp {
    let limit = if wall < UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::try_from(wall).unwrap_or(limit)
}

/// The clock's own effect on a measurement, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct ReadCost {
    /// Median cost of one reading.
    pub read_ns: f64,
    /// Smallest step between two different readings.
    pub step_ns: u64,
}

/// Measures the cost of reading the system clock: the median over 101 rounds of 1000 readings (about 3 ms).
pub fn measure_read_cost() -> ReadCost {
    const READINGS: u32 = 1000;
    let clock = Clock::System;
    let mut rounds = [0u64; 101];
    let mut step_ns = u64::MAX;
    for round in &mut rounds {
        let start = clock.now();
        let mut last = start;
        for _ in 0..READINGS {
            let now = clock.now();
            if now > last {
                step_ns = step_ns.min(now.0 - last.0);
            }
            last = now;
        }
        *round = last.0 - start.0;
    }
    rounds.sort_unstable();
    ReadCost { read_ns: rounds[50] as f64 / f64::from(READINGS), step_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_moves_only_by_waiting() {
        let clock = Clock::new_virtual();
        assert_eq!(clock.now(), Time(0));
        clock.sleep_until(Time(5_000_000_000));
        assert_eq!(clock.now(), Time(5_000_000_000));
        clock.sleep_then_busy_poll(Time(1));
        assert_eq!(clock.now(), Time(5_000_000_000), "never backwards");
    }

    #[test]
    fn every_wall_clock_gives_a_date() {
        let year = Duration::from_secs(31_556_952);
        for (wall, date) in [
            (UNIX_EPOCH + 8029 * year, "9999-01-01T00:46:48Z"),
            (UNIX_EPOCH + 8030 * year, "9999-12-30T22:00:00.999999999Z"),
            (UNIX_EPOCH + 100_000 * year, "9999-12-30T22:00:00.999999999Z"),
            (UNIX_EPOCH - 20_000 * year, "-009999-01-02T01:59:59Z"),
        ] {
            assert_eq!(timestamp_of(wall).to_string(), date);
        }
    }

    #[test]
    fn sleeping_never_ends_early() {
        let clock = Clock::System;
        for wait in [Duration::from_micros(30), Duration::from_millis(2)] {
            let until = clock.now() + wait;
            clock.sleep_until(until);
            assert!(clock.now() >= until);
            let until = clock.now() + wait;
            let busy_polled = clock.sleep_then_busy_poll(until);
            assert!(
                clock.now() >= until && busy_polled <= clock.now().since(until) + wait,
                "{busy_polled:?}"
            );
        }
    }

    #[test]
    fn time_does_not_overflow() {
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time(1).since(Time(5)), Duration::ZERO);
    }

    #[test]
    fn reading_costs_something() {
        let cost = measure_read_cost();
        assert!(cost.read_ns > 0.1 && cost.step_ns > 0);
    }
}
