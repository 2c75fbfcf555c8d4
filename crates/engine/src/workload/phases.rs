//! Phases of a run (warm-up, measurement, stop) and the schedule of the messages, for every workload.

use std::time::Duration;

use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::stats::SplitMix64;

/// Phase of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Messages are sent, but no figure includes them.
    WarmUp,
    /// Messages count.
    Measuring,
    /// The stop condition is reached.
    Finished,
}

/// Tracks the phases of a flow.
#[derive(Debug, Clone)]
pub(crate) struct PhaseTracker {
    warm_up: StopCondition,
    stop: StopCondition,
    phase: Phase,
    /// Whether a message is required: a measurement without any has no result, so its time limit does not apply before the first.
    needs_message: bool,
    began_at: Option<Time>,
    count: u64,
    bytes: u64,
}

impl PhaseTracker {
    /// A tracker before the first message. An unlimited warm-up condition means no warm-up.
    pub fn new(warm_up: StopCondition, stop: StopCondition) -> PhaseTracker {
        let phase = if warm_up.is_unlimited() { Phase::Measuring } else { Phase::WarmUp };
        PhaseTracker { warm_up, stop, phase, needs_message: false, began_at: None, count: 0, bytes: 0 }
    }

    /// Extends the measurement at least until its first message is sent.
    pub(crate) fn with_first_message(self) -> PhaseTracker {
        PhaseTracker { needs_message: true, ..self }
    }

    /// The phase at `now`, before the next message is sent. The flag is `true` when the measurement begins.
    #[inline]
    pub(crate) fn advance_to(&mut self, now: Time) -> (Phase, bool) {
        let mut begins = false;
        let began = *self.began_at.get_or_insert_with(|| {
            begins = self.phase == Phase::Measuring;
            now
        });
        let mut elapsed = now.since(began);
        if self.phase == Phase::WarmUp && self.warm_up.is_reached(self.count, elapsed, self.bytes) {
            (self.phase, self.began_at, self.count, self.bytes) = (Phase::Measuring, Some(now), 0, 0);
            (begins, elapsed) = (true, Duration::ZERO);
        }
        if self.phase == Phase::Measuring
            && !(self.needs_message && self.count == 0 && self.bytes_left(1) > 0)
            && self.stop.is_reached(self.count, elapsed, self.bytes)
        {
            self.phase = Phase::Finished;
        }
        (self.phase, begins)
    }

    /// Lets the next message be the first one of the measurement.
    pub(crate) fn end_warm_up(&mut self) {
        self.warm_up = StopCondition { count: Some(0), ..StopCondition::default() };
    }

    /// Whether the phase has sent a message.
    pub(crate) fn has_sent(&self) -> bool {
        self.count > 0
    }

    /// Moves the start of the phase to this instant, to exclude the wait before its first message.
    pub fn set_begin(&mut self, at: Time) {
        self.began_at = Some(at);
    }

    /// Time at which the phase reaches the limit of its time; [`Time::NEVER`] if it has none.
    pub(crate) fn time_limit(&self) -> Time {
        let limit = if self.phase == Phase::WarmUp { &self.warm_up } else { &self.stop };
        match (self.began_at, limit.time_ns) {
            (Some(began), Some(time_ns)) => began + Duration::from_nanos(time_ns),
            _ => Time::NEVER,
        }
    }

    /// The phase at the last call of [`PhaseTracker::advance_to`].
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Counts messages sent in this phase.
    #[inline]
    pub(crate) fn count_sent(&mut self, messages: u64, bytes: u64) {
        self.count += messages;
        self.bytes += bytes;
    }

    /// Bytes left until the volume or count is reached; `u64::MAX` without such a limit. A count with a minimum time is no limit:
    /// more messages follow until that time.
    pub(crate) fn bytes_left(&self, message: u64) -> u64 {
        let limit = if self.phase == Phase::WarmUp { &self.warm_up } else { &self.stop };
        let of_volume = limit.volume_bytes.map_or(u64::MAX, |volume| volume.saturating_sub(self.bytes));
        let of_count = limit
            .count
            .filter(|_| limit.min_time_ns.is_none())
            .map_or(u64::MAX, |count| count.saturating_sub(self.count).saturating_mul(message));
        of_volume.min(of_count)
    }
}

/// Send times of all messages.
#[derive(Debug, Clone)]
pub(crate) struct SendSchedule {
    pacing: Pacing,
    /// Beginning of this flow among several that share a schedule, as a fraction of the time between two of its messages.
    shared_from: Option<f64>,
    started_at: Option<Time>,
    /// Messages scheduled so far. Times are multiples of the interval, so rounding errors do not add up.
    index: u64,
    next_due: Option<Time>,
    random: SplitMix64,
    /// Number of overdue messages that were left out; `None`: they are not left out.
    skipped: Option<u64>,
}

impl SendSchedule {
    /// A schedule that starts with the first call of [`SendSchedule::due`].
    pub fn new(pacing: Pacing) -> SendSchedule {
        let seed = match pacing {
            Pacing::Poisson { seed, .. } | Pacing::ThinkTime { seed, .. } => seed,
            _ => 0,
        };
        SendSchedule {
            pacing,
            shared_from: None,
            started_at: None,
            index: 0,
            next_due: None,
            random: SplitMix64::new(seed),
            skipped: None,
        }
    }

    /// Leaves out messages that are overdue when the next one is due, if `skips` is set. Only a fixed schedule does so.
    pub(crate) fn skipping_overdue(self, skips: bool) -> SendSchedule {
        SendSchedule { skipped: skips.then_some(0), ..self }
    }

    /// Messages left out since the last call.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        self.skipped.as_mut().map_or(0, std::mem::take)
    }

    /// Due time of the newest message that replaces the overdue one.
    fn skip_to(&mut self, due: Time, now: Time) -> Time {
        let (Pacing::Fixed { per_second }, Some(skipped), Some(start)) =
            (self.pacing, &mut self.skipped, self.started_at)
        else {
            return due;
        };
        let overdue = (now.since(due).as_secs_f64() * per_second) as u64;
        (self.index, *skipped) = (self.index + overdue, *skipped + overdue);
        *self.next_due.insert(start + saturating_seconds(self.index as f64 / per_second))
    }

    /// Makes this one of several flows that share a schedule: their messages take turns, in the order of their numbers.
    /// With random intervals, each flow has different ones.
    pub fn sharing(mut self, flow_index: u32, flows: u32) -> SendSchedule {
        if flows > 1 && self.pacing.per_second().is_some() {
            self.shared_from = Some(f64::from(flow_index) / f64::from(flows));
        }
        if let Pacing::Poisson { seed, .. } | Pacing::ThinkTime { seed, .. } = self.pacing
            && flow_index > 0
        {
            // Neighbouring seeds would give the same gaps, one later.
            self.random = SplitMix64::new(seed ^ SplitMix64::new(flow_index.into()).next_bits());
        }
        self
    }

    /// Begins again with the next call of [`SendSchedule::due`].
    pub(crate) fn restart(&mut self) {
        (self.started_at, self.index, self.next_due) = (None, 0, None);
    }

    /// Whether other flows use this schedule as well.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared_from.is_some()
    }

    /// First due time. Flows that share a schedule have one origin, that of the clock, independent of their beginning.
    fn first_due(&mut self, now: Time) -> Time {
        let Some(part) = self.shared_from else { return now };
        match self.pacing {
            Pacing::Fixed { per_second } => {
                let period_ns = 1e9 / per_second;
                let cycles = (now.0 as f64 / period_ns - part).ceil();
                now.max(Time(((cycles + part) * period_ns).round() as u64))
            }
            Pacing::Poisson { per_second, .. } => now + self.random_gap(per_second),
            Pacing::Closed | Pacing::ThinkTime { .. } => now,
        }
    }

    fn random_gap(&mut self, per_second: f64) -> Duration {
        saturating_seconds(-(1.0 - self.random.uniform()).ln() / per_second)
    }

    /// Whether each message is due only once the previous one is complete.
    pub(crate) fn is_closed_loop(&self) -> bool {
        matches!(self.pacing, Pacing::Closed | Pacing::ThinkTime { .. })
    }

    /// Time of the next message; `now` in a closed loop. With a think time the first call after the previous round
    /// trip begins the pause.
    #[inline]
    pub(crate) fn due(&mut self, now: Time) -> Time {
        match self.pacing {
            Pacing::Closed => now,
            Pacing::ThinkTime { mean_seconds, .. } => match self.next_due {
                Some(due) => due,
                None => {
                    let pause = -(1.0 - self.random.uniform()).ln() * mean_seconds;
                    *self.next_due.insert(now + saturating_seconds(pause))
                }
            },
            _ => match self.next_due {
                Some(due) if self.skipped.is_some() => self.skip_to(due, now),
                Some(due) => due,
                None => {
                    let first = self.first_due(now);
                    self.started_at = Some(first);
                    *self.next_due.insert(first)
                }
            },
        }
    }

    /// Number of messages that were due before `end` and not sent, once `end` has passed; then no more is due before it.
    /// One message alone does not count: it may be due just at the end.
    pub(crate) fn take_overdue(&mut self, end: Time, now: Time) -> u64 {
        let mut overdue = 0;
        while !self.is_closed_loop() && now >= end && self.due(end) < end {
            overdue += 1;
            self.advance();
        }
        if overdue > 1 { overdue } else { 0 }
    }

    /// Advances to the next message after one has been sent.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.index += 1;
        match (self.pacing, self.started_at, self.next_due) {
            (Pacing::Fixed { per_second }, Some(start), _) => {
                self.next_due = Some(start + saturating_seconds(self.index as f64 / per_second));
            }
            (Pacing::ThinkTime { .. }, ..) => self.next_due = None,
            (Pacing::Poisson { per_second, .. }, _, Some(last)) => {
                self.next_due = Some(last + self.random_gap(per_second));
            }
            _ => {}
        }
    }
}

/// Duration of this number of seconds; the maximum duration if it would be exceeded.
fn saturating_seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_or_volume_that_is_used_up_ends_before_the_first_message() {
        for stop in [
            StopCondition::after_count(0),
            StopCondition { volume_bytes: Some(0), ..StopCondition::default() },
        ] {
            let mut phases = PhaseTracker::new(StopCondition::default(), stop).with_first_message();
            assert_eq!(phases.advance_to(Time(5)).0, Phase::Finished, "{stop:?}");
            let mut warmed_up = PhaseTracker::new(StopCondition::after_time(Duration::from_nanos(1)), stop);
            assert_eq!(warmed_up.advance_to(Time(5)).0, Phase::WarmUp, "{stop:?}");
            assert_eq!(warmed_up.advance_to(Time(6)).0, Phase::Finished, "{stop:?}");
        }
        let mut timed =
            PhaseTracker::new(StopCondition::default(), StopCondition::after_time(Duration::ZERO))
                .with_first_message();
        assert_eq!(timed.advance_to(Time(5)).0, Phase::Measuring);
    }

    #[test]
    fn a_count_with_a_least_time_leaves_bytes_to_send_until_that_time() {
        let stop = StopCondition { min_time_ns: Some(10), ..StopCondition::after_count(1) };
        let mut phases = PhaseTracker::new(StopCondition::default(), stop);
        phases.advance_to(Time(0));
        phases.count_sent(3, 300);
        assert_eq!(phases.advance_to(Time(9)).0, Phase::Measuring);
        assert!(phases.bytes_left(100) > 0);
        assert_eq!(phases.advance_to(Time(10)).0, Phase::Finished);
    }

    #[test]
    fn the_slowest_schedule_does_not_panic() {
        for pacing in
            [Pacing::Fixed { per_second: 1e-300 }, Pacing::Poisson { per_second: f64::MIN_POSITIVE, seed: 1 }]
        {
            let mut schedule = SendSchedule::new(pacing);
            assert_eq!(schedule.due(Time(5)), Time(5));
            schedule.advance();
            assert_eq!(schedule.due(Time(6)), Time::NEVER);
        }
    }

    #[test]
    fn overdue_messages_are_left_out_where_a_burst_is_too_many() {
        let due_times = |skips: bool| {
            let mut schedule = SendSchedule::new(Pacing::Fixed { per_second: 1e8 }).skipping_overdue(skips);
            // Every 10 ns; the sender is away from 15 to 57.
            let times = [0, 10, 57, 60, 70].map(|now| {
                let due = schedule.due(Time(now)).0;
                schedule.advance();
                due
            });
            (times, schedule.take_skipped(), schedule.take_skipped())
        };
        assert_eq!(due_times(false), ([0, 10, 20, 30, 40], 0, 0));
        assert_eq!(due_times(true), ([0, 10, 50, 60, 70], 3, 0));
    }

    #[test]
    fn warm_up_then_measure_then_over() {
        let mut phases = PhaseTracker::new(StopCondition::after_count(2), StopCondition::after_count(3));
        let mut seen = Vec::new();
        for now in 0.. {
            let (phase, begins) = phases.advance_to(Time(now));
            seen.push((phase, begins));
            if phase == Phase::Finished {
                break;
            }
            phases.count_sent(1, 10);
        }
        use Phase::*;
        assert_eq!(
            seen,
            [
                (WarmUp, false),
                (WarmUp, false),
                (Measuring, true),
                (Measuring, false),
                (Measuring, false),
                (Finished, false)
            ]
        );
    }

    #[test]
    fn a_measurement_that_needs_a_message_waits_for_it() {
        let (warm_up, stop) = (
            StopCondition::after_time(Duration::from_nanos(20)),
            StopCondition::after_time(Duration::from_nanos(10)),
        );
        let mut phases = PhaseTracker::new(warm_up, stop).with_first_message();
        assert_eq!(phases.advance_to(Time(0)), (Phase::WarmUp, false));
        assert_eq!(phases.advance_to(Time(25)), (Phase::Measuring, true));
        assert_eq!(
            phases.advance_to(Time(100)),
            (Phase::Measuring, false),
            "the reply of the warm-up is awaited"
        );
        phases.set_begin(Time(100));
        phases.count_sent(1, 1);
        assert_eq!(phases.advance_to(Time(110)), (Phase::Finished, false));
    }

    #[test]
    fn without_warm_up_the_first_message_begins() {
        let mut phases =
            PhaseTracker::new(StopCondition::default(), StopCondition::after_time(Duration::from_nanos(5)));
        assert_eq!(phases.advance_to(Time(100)), (Phase::Measuring, true));
        assert_eq!(phases.advance_to(Time(104)), (Phase::Measuring, false));
        assert_eq!(phases.advance_to(Time(105)), (Phase::Finished, false));
    }

    #[test]
    fn a_fixed_schedule_does_not_drift() {
        let mut schedule = SendSchedule::new(Pacing::Fixed { per_second: 3.0 });
        for _ in 0..3_000_000 {
            schedule.due(Time(7));
            schedule.advance();
        }
        assert_eq!(schedule.due(Time(0)), Time(7 + 1_000_000 * 1_000_000_000));
    }

    #[test]
    fn flows_that_share_a_schedule_take_turns() {
        let pacing = Pacing::Fixed { per_second: 100.0 };
        let mut due = Vec::new();
        for flow in 0..4 {
            let mut schedule = SendSchedule::new(pacing).sharing(flow, 4);
            // They begin at different times, and keep one schedule.
            let begin = Time(1_000_000_000 + u64::from(flow) * 777_777);
            for _ in 0..3 {
                due.push(schedule.due(begin).0 / 1000);
                schedule.advance();
            }
        }
        due.sort_unstable();
        let expected: Vec<u64> = (0..12).map(|number| 1_000_000 + number * 2500).collect();
        assert_eq!(due, expected);
        // A schedule of one flow begins at once.
        assert_eq!(SendSchedule::new(pacing).sharing(0, 1).due(Time(5)), Time(5));
    }

    #[test]
    fn flows_with_random_gaps_have_gaps_of_their_own() {
        let due = |flow, flows| {
            let pacing = Pacing::Poisson { per_second: 1000.0, seed: 3 };
            let mut schedule = SendSchedule::new(pacing).sharing(flow, flows);
            let mut next = || {
                let due = schedule.due(Time(0)).0;
                schedule.advance();
                due
            };
            [next(), next(), next()]
        };
        let all: std::collections::BTreeSet<u64> = (0..100).flat_map(|flow| due(flow, 100)).collect();
        assert_eq!(all.len(), 300, "no two messages at the same time");
        assert_eq!(due(0, 1)[0], 0, "a single flow begins at once");
    }

    #[test]
    fn no_rate_overflows() {
        for per_second in [0.0, -1.0, 1e-300, 5e-324, -1e308, 1e308, f64::INFINITY, f64::NAN] {
            for pacing in [
                Pacing::Fixed { per_second },
                Pacing::Poisson { per_second, seed: 1 },
                Pacing::ThinkTime { mean_seconds: per_second, seed: 1 },
            ] {
                for flow in 0..3 {
                    let mut schedule = SendSchedule::new(pacing).sharing(flow, 1 + 2 * flow.min(1));
                    for _ in 0..3 {
                        schedule.due(Time(7));
                        schedule.advance();
                    }
                    assert!(schedule.due(Time(7)) >= Time(7));
                }
            }
        }
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_spread() {
        let mut schedule = SendSchedule::new(Pacing::Poisson { per_second: 1000.0, seed: 7 });
        let mut last = schedule.due(Time(0));
        let mut gaps = Vec::new();
        for _ in 0..20_000 {
            schedule.advance();
            let due = schedule.due(Time(0));
            gaps.push(due.since(last).as_secs_f64());
            last = due;
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean / 1e-3 - 1.0).abs() < 0.03 && (spread / mean - 1.0).abs() < 0.03, "{mean} {spread}");
    }
}
