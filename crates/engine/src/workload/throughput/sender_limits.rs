//! Limits of a receiver: on silence, and on a sender that exceeds the planned volume or time.

use std::time::Duration;

use crate::workload::Load;
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};

/// Silence that ends a flow of messages on links without a close signal.
pub(crate) const MIN_QUIET_TIME: Duration = Duration::from_millis(300);

/// Maximum silence between messages of a slow schedule.
const MAX_QUIET_TIME: Duration = Duration::from_secs(60);

/// Additional silence for each flow of a case beyond the first, and its maximum: their senders get a CPU in turn.
const QUIET_TIME_PER_FLOW: Duration = Duration::from_millis(10);
const MAX_QUIET_TIME_OF_FLOWS: Duration = Duration::from_secs(2);

/// Time for which a receiver of messages waits for the next one.
pub(crate) fn quiet_time(pacing: Pacing, flows: u32) -> Duration {
    let of_others = QUIET_TIME_PER_FLOW.saturating_mul(flows.saturating_sub(1)).min(MAX_QUIET_TIME_OF_FLOWS);
    let least = MIN_QUIET_TIME + of_others;
    let ten = pacing.per_second().map(|per_second| Duration::try_from_secs_f64(10.0 / per_second));
    ten.map_or(least, |ten| least.max(ten.unwrap_or(MAX_QUIET_TIME).min(MAX_QUIET_TIME)))
}

/// Time that a sender takes by its plan: by its time, or by the messages of its schedule. 0 if the plan does not say.
pub(crate) fn planned_sending(load: &Load) -> Duration {
    let Load { stop, warm_up, pacing, message_bytes, .. } = *load;
    let messages = |stop: StopCondition| {
        let of_volume = stop.volume_bytes.map(|bytes| bytes / u64::from(message_bytes.max(1)));
        stop.count.into_iter().chain(of_volume).min()
    };
    let on_schedule = || {
        let all = messages(stop)?.saturating_add(messages(warm_up).unwrap_or(0));
        Duration::try_from_secs_f64(all as f64 / pacing.per_second()?).ok()
    };
    let times = planned_time(stop, warm_up).into_iter().chain(on_schedule());
    times.min().unwrap_or_default().min(MAX_PLANNED_SENDING)
}

/// Maximum time for which a receiver waits for a silent sender.
const MAX_PLANNED_SENDING: Duration = Duration::from_secs(24 * 3600);

/// Volume and time within which a sender must stop.
pub(crate) struct SenderLimits {
    /// Planned time, with the time for senders that are late.
    max_sending: Option<Duration>,
    /// Planned time, with the time for long queues. After `max_sending` only the bytes that a queue can hold are accepted.
    max_duration: Duration,
    late_bytes_left: u64,
    bytes_left: u64,
    first_receive: Option<Time>,
}

/// Result of a check.
pub(crate) enum LimitCheck {
    Within,
    /// The sender has sent more bytes than planned.
    TooManyBytes,
    /// The sender takes longer than planned, including the time to empty the buffers of the link. The data so far is the
    /// measurement.
    TooLong,
}

/// Bytes beyond the plan that buffers on the network may hold.
const MAX_OVERRUN_BYTES: u64 = 64 << 20;

/// Bounds of the overtime. The overtime is as long as the plan, because slow links have long buffers, within these
/// bounds. Busy hosts may start or end a sender late.
const MIN_OVERTIME: Duration = Duration::from_secs(2);
/// Additional overtime for each flow of a case beyond the first: their threads get a CPU in turn.
const OVERTIME_PER_FLOW: Duration = Duration::from_millis(20);
const MAX_OVERTIME: Duration = Duration::from_secs(120);

/// Extra time for the arrival of the last bytes of this many flows.
pub(crate) fn overtime(planned: Duration, flows: u32) -> Duration {
    let many = OVERTIME_PER_FLOW.saturating_mul(flows.saturating_sub(1));
    planned.max(MIN_OVERTIME).saturating_add(many).min(MAX_OVERTIME)
}

/// Time in which the queue of a slow link can empty, as a multiple of the measurement that filled it, and its maximum.
const DRAIN_FACTOR: u32 = 6;
const MAX_DRAIN_TIME: Duration = Duration::from_secs(30);

/// Maximum bytes in a queue that takes longer than the overtime: a sender of more does not stop.
const MAX_LATE_BYTES: u64 = 4 << 20;

/// Time after the plan within which the last bytes of that many flows arrive, if the queue of a slow link holds them.
pub(crate) fn drain_time(planned: Duration, flows: u32) -> Duration {
    overtime(planned, flows).max(planned.saturating_mul(DRAIN_FACTOR).min(MAX_DRAIN_TIME))
}

/// Planned time of warm-up and measurement, if time ends both.
pub(crate) fn planned_time(stop: StopCondition, warm_up: StopCondition) -> Option<Duration> {
    let nanoseconds = |stop: StopCondition| Duration::from_nanos(stop.time_ns.unwrap_or(0));
    let ends = stop.time_ns.is_some() && (warm_up.count.is_none() || warm_up.time_ns.is_some());
    ends.then(|| nanoseconds(warm_up).saturating_add(nanoseconds(stop)))
}

impl SenderLimits {
    pub fn new(load: &Load) -> SenderLimits {
        let Load { stop, warm_up, .. } = *load;
        let of_count =
            |stop: StopCondition| stop.count.map(|count| count.saturating_mul(load.message_bytes.into()));
        let volume = [stop.volume_bytes, of_count(stop)].into_iter().flatten().min();
        let bytes = volume.filter(|_| warm_up.time_ns.is_none()).map_or(u64::MAX, |volume| {
            volume
                .saturating_add(of_count(warm_up).unwrap_or(0))
                .saturating_mul(2)
                .saturating_add(MAX_OVERRUN_BYTES)
        });
        let planned = planned_time(stop, warm_up);
        let with = |extra: fn(Duration, u32) -> Duration| {
            planned.map(|planned| planned.saturating_add(extra(planned, load.flows)))
        };
        SenderLimits {
            max_sending: with(overtime),
            max_duration: with(drain_time).unwrap_or(Duration::MAX),
            late_bytes_left: MAX_LATE_BYTES,
            bytes_left: bytes,
            first_receive: None,
        }
    }

    /// Adds received bytes and checks the limits.
    #[inline]
    pub(crate) fn check(&mut self, now: Time, bytes: u64) -> LimitCheck {
        let since = now.since(*self.first_receive.get_or_insert(now));
        if self.max_sending.is_some_and(|planned| since > planned) {
            self.late_bytes_left = self.late_bytes_left.saturating_sub(bytes);
            if since > self.max_duration || self.late_bytes_left == 0 {
                return LimitCheck::TooLong;
            }
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        if self.bytes_left > 0 { LimitCheck::Within } else { LimitCheck::TooManyBytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(stop: StopCondition, warm_up: StopCondition) -> SenderLimits {
        SenderLimits::new(&Load { stop, warm_up, ..Load::endless(1000) })
    }

    #[test]
    fn a_fast_sender_that_ends_its_time_late_is_no_flood() {
        let half = StopCondition::after_time(Duration::from_millis(500));
        let mut bounds = limits(half, half);
        // 20 Gbit/s, and an extra second for a delayed thread.
        for millisecond in 0..2_000u64 {
            assert!(matches!(bounds.check(Time(millisecond * 1_000_000), 2_500_000), LimitCheck::Within));
        }
        let late = Time(3_100_000_000);
        assert!(matches!(bounds.check(late, 2_500_000), LimitCheck::Within), "a long queue");
        assert!(matches!(bounds.check(late, 2_500_000), LimitCheck::TooLong), "a flood");
    }

    #[test]
    fn many_flows_have_more_time_to_end() {
        let held = |flows, seconds: u64| {
            let stop = StopCondition::after_time(Duration::from_secs(2));
            let mut bounds = SenderLimits::new(&Load { stop, flows, ..Load::endless(1000) });
            bounds.check(Time(0), 1);
            bounds.check(Time(seconds * 1_000_000_000), MAX_LATE_BYTES)
        };
        assert!(matches!(held(1, 5), LimitCheck::TooLong));
        assert!(matches!(held(1000, 20), LimitCheck::Within));
        assert!(matches!(held(1000, 25), LimitCheck::TooLong));
        assert!(matches!(held(u32::MAX, 123), LimitCheck::TooLong), "within the longest overtime");
    }

    #[test]
    fn a_slow_link_has_as_long_again_and_a_volume_is_a_volume() {
        let mut slow = limits(StopCondition::after_time(Duration::from_secs(10)), StopCondition::default());
        assert!(matches!(slow.check(Time(0), 1), LimitCheck::Within));
        assert!(matches!(slow.check(Time(19_000_000_000), u64::MAX / 2), LimitCheck::Within));
        assert!(matches!(slow.check(Time(39_000_000_000), 1), LimitCheck::Within), "a queue of 29 s");
        assert!(matches!(slow.check(Time(41_000_000_000), 1), LimitCheck::TooLong));
        let mut counted = limits(StopCondition::after_count(1), StopCondition::default());
        assert!(matches!(counted.check(Time(0), MAX_OVERRUN_BYTES), LimitCheck::Within));
        assert!(matches!(counted.check(Time(1 << 60), 2000), LimitCheck::TooManyBytes));
        let mut never = limits(StopCondition::after_time(Duration::MAX), StopCondition::default());
        assert!(matches!(never.check(Time(0), 1), LimitCheck::Within));
    }
}
