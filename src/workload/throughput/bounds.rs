//! When a receiver has had enough: of silence, or of a sender that brings more, or goes on for longer, than it was asked to.

use std::time::Duration;

use crate::clock::Time;
use crate::plan::{Case, Pacing, Stop};

/// Silence after which a receiver of messages takes the flow as over, where a link cannot say so.
pub const QUIET: Duration = Duration::from_millis(300);

/// Silence between messages of a slow schedule, at most.
const SLOWEST: Duration = Duration::from_secs(60);

/// How long a receiver of messages waits for one more.
pub fn quiet(pacing: Pacing) -> Duration {
    let ten = pacing.per_second().map(|per_second| Duration::try_from_secs_f64(10.0 / per_second));
    ten.map_or(QUIET, |ten| QUIET.max(ten.unwrap_or(SLOWEST).min(SLOWEST)))
}

/// What a sender may still bring before it is one that will not stop.
pub struct Bounds {
    planned: Option<Duration>,
    bytes: u64,
    first: Option<Time>,
}

/// What the bounds say of a sender.
pub enum Held {
    Within,
    /// More bytes than were planned.
    TooMuch,
    /// Longer than was planned, and than a link may take to empty its buffers: what came by now is the measurement.
    TooLong,
}

/// Beyond what was planned: what may lie in buffers on the way.
const OVERRUN: u64 = 64 << 20;

/// How much longer than planned the bytes may take: as long again, because slow links have long buffers, within these.
/// Busy machines let a sender begin its time, or end it, late.
const LEAST_OVERTIME: Duration = Duration::from_secs(2);
const MOST_OVERTIME: Duration = Duration::from_secs(120);

/// How much longer than planned the last bytes may take to arrive.
pub fn overtime(planned: Duration) -> Duration {
    planned.clamp(LEAST_OVERTIME, MOST_OVERTIME)
}

/// Warm-up and measurement, where time ends both.
pub fn planned_time(stop: Stop, warm_up: Stop) -> Option<Duration> {
    let nanoseconds = |stop: Stop| Duration::from_nanos(stop.time_ns.unwrap_or(0));
    let ends = stop.time_ns.is_some() && (warm_up.count.is_none() || warm_up.time_ns.is_some());
    ends.then(|| nanoseconds(warm_up).saturating_add(nanoseconds(stop)))
}

impl Bounds {
    pub fn new(case: &Case) -> Bounds {
        let (stop, warm_up) = (case.stop, case.warm_up.unwrap_or_default());
        let of_count = |stop: Stop| stop.count.map(|count| count.saturating_mul(case.message_bytes.into()));
        let volume = [stop.volume_bytes, of_count(stop)].into_iter().flatten().min();
        let bytes = volume.filter(|_| warm_up.time_ns.is_none()).map_or(u64::MAX, |volume| {
            volume.saturating_add(of_count(warm_up).unwrap_or(0)).saturating_mul(2).saturating_add(OVERRUN)
        });
        let planned = planned_time(stop, warm_up).map(|planned| planned.saturating_add(overtime(planned)));
        Bounds { planned, bytes, first: None }
    }

    /// Books what came.
    #[inline]
    pub fn hold(&mut self, now: Time, bytes: u64) -> Held {
        let since = now.since(*self.first.get_or_insert(now));
        if self.planned.is_some_and(|planned| since > planned) {
            return Held::TooLong;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.bytes > 0 { Held::Within } else { Held::TooMuch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::far_case;

    fn bounds(stop: Stop, warm_up: Stop) -> Bounds {
        Bounds::new(&Case { stop, warm_up: Some(warm_up), ..far_case(1000) })
    }

    #[test]
    fn a_fast_sender_that_ends_its_time_late_is_no_flood() {
        let half = Stop::after(Duration::from_millis(500));
        let mut bounds = bounds(half, half);
        // 20 Gbit/s, and another second because its thread had to wait.
        for millisecond in 0..2_000u64 {
            assert!(matches!(bounds.hold(Time(millisecond * 1_000_000), 2_500_000), Held::Within));
        }
        assert!(matches!(bounds.hold(Time(3_100_000_000), 1), Held::TooLong));
    }

    #[test]
    fn a_slow_link_has_as_long_again_and_a_volume_is_a_volume() {
        let mut slow = bounds(Stop::after(Duration::from_secs(10)), Stop::default());
        assert!(matches!(slow.hold(Time(0), 1), Held::Within));
        assert!(matches!(slow.hold(Time(19_000_000_000), u64::MAX / 2), Held::Within));
        assert!(matches!(slow.hold(Time(21_000_000_000), 1), Held::TooLong));
        let mut counted = bounds(Stop::after_count(1), Stop::default());
        assert!(matches!(counted.hold(Time(0), OVERRUN), Held::Within));
        assert!(matches!(counted.hold(Time(1 << 60), 2000), Held::TooMuch));
        let mut never = bounds(Stop::after(Duration::MAX), Stop::default());
        assert!(matches!(never.hold(Time(0), 1), Held::Within));
    }
}
