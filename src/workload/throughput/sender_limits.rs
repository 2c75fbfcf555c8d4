//! When a receiver has had enough: of silence, or of a sender that brings more, or goes on for longer, than it was asked to.

use std::time::Duration;

use crate::clock::Time;
use crate::plan::{Case, Pacing, StopCondition};

/// Silence after which a receiver of messages takes the flow as over, where a link cannot say so.
pub const MIN_QUIET_TIME: Duration = Duration::from_millis(300);

/// Silence between messages of a slow schedule, at most.
const MAX_QUIET_TIME: Duration = Duration::from_secs(60);

/// How long a receiver of messages waits for one more.
pub fn quiet_time(pacing: Pacing) -> Duration {
    let ten = pacing.per_second().map(|per_second| Duration::try_from_secs_f64(10.0 / per_second));
    ten.map_or(MIN_QUIET_TIME, |ten| MIN_QUIET_TIME.max(ten.unwrap_or(MAX_QUIET_TIME).min(MAX_QUIET_TIME)))
}

/// What a sender may still bring before it is one that will not stop.
pub struct SenderLimits {
    max_duration: Option<Duration>,
    bytes_left: u64,
    first_receive: Option<Time>,
}

/// What the bounds say of a sender.
pub enum LimitCheck {
    Within,
    /// More bytes than were planned.
    TooManyBytes,
    /// Longer than was planned, and than a link may take to empty its buffers: what came by now is the measurement.
    TooLong,
}

/// Beyond what was planned: what may lie in buffers on the way.
const MAX_OVERRUN_BYTES: u64 = 64 << 20;

/// How much longer than planned the bytes may take: as long again, because slow links have long buffers, within these.
/// Busy machines let a sender begin its time, or end it, late.
const MIN_OVERTIME: Duration = Duration::from_secs(2);
const MAX_OVERTIME: Duration = Duration::from_secs(120);

/// How much longer than planned the last bytes may take to arrive.
pub fn overtime(planned: Duration) -> Duration {
    planned.clamp(MIN_OVERTIME, MAX_OVERTIME)
}

/// Warm-up and measurement, where time ends both.
pub fn planned_time(stop: StopCondition, warm_up: StopCondition) -> Option<Duration> {
    let nanoseconds = |stop: StopCondition| Duration::from_nanos(stop.time_ns.unwrap_or(0));
    let ends = stop.time_ns.is_some() && (warm_up.count.is_none() || warm_up.time_ns.is_some());
    ends.then(|| nanoseconds(warm_up).saturating_add(nanoseconds(stop)))
}

impl SenderLimits {
    pub fn new(case: &Case) -> SenderLimits {
        let (stop, warm_up) = (case.stop, case.warm_up.unwrap_or_default());
        let of_count =
            |stop: StopCondition| stop.count.map(|count| count.saturating_mul(case.message_bytes.into()));
        let volume = [stop.volume_bytes, of_count(stop)].into_iter().flatten().min();
        let bytes = volume.filter(|_| warm_up.time_ns.is_none()).map_or(u64::MAX, |volume| {
            volume
                .saturating_add(of_count(warm_up).unwrap_or(0))
                .saturating_mul(2)
                .saturating_add(MAX_OVERRUN_BYTES)
        });
        let planned = planned_time(stop, warm_up).map(|planned| planned.saturating_add(overtime(planned)));
        SenderLimits { max_duration: planned, bytes_left: bytes, first_receive: None }
    }

    /// Books what came.
    #[inline]
    pub fn check(&mut self, now: Time, bytes: u64) -> LimitCheck {
        let since = now.since(*self.first_receive.get_or_insert(now));
        if self.max_duration.is_some_and(|planned| since > planned) {
            return LimitCheck::TooLong;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        if self.bytes_left > 0 { LimitCheck::Within } else { LimitCheck::TooManyBytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::server_case;

    fn limits(stop: StopCondition, warm_up: StopCondition) -> SenderLimits {
        SenderLimits::new(&Case { stop, warm_up: Some(warm_up), ..server_case(1000) })
    }

    #[test]
    fn a_fast_sender_that_ends_its_time_late_is_no_flood() {
        let half = StopCondition::after_time(Duration::from_millis(500));
        let mut bounds = limits(half, half);
        // 20 Gbit/s, and another second because its thread had to wait.
        for millisecond in 0..2_000u64 {
            assert!(matches!(bounds.check(Time(millisecond * 1_000_000), 2_500_000), LimitCheck::Within));
        }
        assert!(matches!(bounds.check(Time(3_100_000_000), 1), LimitCheck::TooLong));
    }

    #[test]
    fn a_slow_link_has_as_long_again_and_a_volume_is_a_volume() {
        let mut slow = limits(StopCondition::after_time(Duration::from_secs(10)), StopCondition::default());
        assert!(matches!(slow.check(Time(0), 1), LimitCheck::Within));
        assert!(matches!(slow.check(Time(19_000_000_000), u64::MAX / 2), LimitCheck::Within));
        assert!(matches!(slow.check(Time(21_000_000_000), 1), LimitCheck::TooLong));
        let mut counted = limits(StopCondition::after_count(1), StopCondition::default());
        assert!(matches!(counted.check(Time(0), MAX_OVERRUN_BYTES), LimitCheck::Within));
        assert!(matches!(counted.check(Time(1 << 60), 2000), LimitCheck::TooManyBytes));
        let mut never = limits(StopCondition::after_time(Duration::MAX), StopCondition::default());
        assert!(matches!(never.check(Time(0), 1), LimitCheck::Within));
    }
}
