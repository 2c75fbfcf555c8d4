//! Round trips of a probe around a load: on the idle link before it, during it, and afterwards until the queues are empty.
//!
//! The probe runs through all three without a break. The time at which a request was sent decides where it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Recorder, Sample};
use crate::clock::Time;

/// Round trips after a load whose order is stored. That is a minute at the default rate.
const MAX_RECOVERY_SAMPLES: usize = 1024;

/// The part of a measurement in which a probe sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbePeriod {
    /// The link is idle; the load has not begun.
    Before,
    /// The load runs.
    Loaded,
    /// The load has ended.
    After,
}

/// The begin and end of a load, shared by the threads of a case. Without times everything is under load.
#[derive(Debug)]
pub struct LoadWindow {
    begins_ns: AtomicU64,
    ends_ns: AtomicU64,
    /// A round trip up to this time is one of an idle link, in ns; 0 while none is known.
    idle_limit_ns: AtomicU64,
    recovered_probes: AtomicU32,
    /// Requests under load that have neither a reply nor been lost.
    requests_under_way: AtomicI32,
    /// Time of the last reply to a probe.
    last_reply_ns: AtomicU64,
}

impl LoadWindow {
    /// A window without begin and end. `idle_limit_ns`: from an earlier repetition, or 0.
    pub fn new(idle_limit_ns: u64) -> LoadWindow {
        LoadWindow {
            begins_ns: AtomicU64::new(0),
            ends_ns: AtomicU64::new(u64::MAX),
            idle_limit_ns: AtomicU64::new(idle_limit_ns),
            recovered_probes: AtomicU32::new(0),
            requests_under_way: AtomicI32::new(0),
            last_reply_ns: AtomicU64::new(0),
        }
    }

    /// The load begins at this instant.
    pub fn set_begin(&self, at: Time) {
        self.begins_ns.store(at.0, Relaxed);
    }

    /// The load has ended at this instant.
    pub fn set_end(&self, at: Time) {
        self.ends_ns.store(at.0, Relaxed);
    }

    /// The begin of the load.
    pub fn begin(&self) -> Time {
        Time(self.begins_ns.load(Relaxed))
    }

    /// The end of the load; [`Time::NEVER`] before.
    pub fn end(&self) -> Time {
        Time(self.ends_ns.load(Relaxed))
    }

    /// The number of probes with a round trip after the load that was as short as on the idle link.
    pub fn recovered_probes(&self) -> u32 {
        self.recovered_probes.load(Relaxed)
    }

    /// Whether each request of a probe under load has a reply or is lost.
    pub fn is_answered(&self) -> bool {
        self.requests_under_way.load(Relaxed) <= 0
    }

    /// Time at which the remote was last known to reply: the begin of the load, or the last reply to a probe.
    pub fn last_reply(&self) -> Time {
        self.begin().max(Time(self.last_reply_ns.load(Relaxed)))
    }

    #[inline]
    pub(crate) fn period_at(&self, sent: Time) -> ProbePeriod {
        if sent.0 < self.begins_ns.load(Relaxed) {
            ProbePeriod::Before
        } else if sent.0 < self.ends_ns.load(Relaxed) {
            ProbePeriod::Loaded
        } else {
            ProbePeriod::After
        }
    }
}

/// The longest round trip that counts as one of an idle link whose slowest took this long: 10 % more.
pub fn idle_limit_ns(slowest_ns: u64) -> u64 {
    slowest_ns.saturating_add(slowest_ns / 10)
}

/// Records of a probe outside of the load.
#[derive(Debug)]
pub struct IdleRecorders {
    window: Arc<LoadWindow>,
    /// Records before the load.
    pub before: Recorder,
    /// Records after the load.
    pub after: Recorder,
    /// The last request under load that was longer under way than on the idle link.
    last_delayed: Option<Sample>,
    after_samples: Vec<Sample>,
}

impl IdleRecorders {
    /// Time from the end of the load until the queues were empty, in ns. A queue that delays a request by d is empty no
    /// sooner than d after that request was sent, if nothing follows. `idle_ns` is the usual round trip of the idle link.
    /// A sender stops after the `planned` time, if there is one; the receiver of a download sees the end later. `None` if no
    /// round trip after the load was as short as on the idle link.
    pub fn recovery_ns(&self, idle_ns: u64, planned: Option<Duration>) -> Option<u64> {
        let planned_end = planned.map_or(Time::NEVER, |planned| self.window.begin() + planned);
        let end = self.window.end().min(planned_end);
        let limit = self.window.idle_limit_ns.load(Relaxed);
        let mut samples: Vec<&Sample> = self.last_delayed.iter().chain(&self.after_samples).collect();
        samples.sort_by_key(|sample| sample.sent);
        let recovered =
            samples.iter().find(|sample| sample.sent >= end && sample.service_ns() <= limit)?.sent;
        let empty_at = |sample: &&Sample| {
            sample.sent + Duration::from_nanos(sample.service_ns().saturating_sub(idle_ns))
        };
        let delayed =
            samples.into_iter().filter(|sample| sample.sent < recovered && sample.service_ns() > limit);
        let empty = delayed.map(|sample| empty_at(&sample)).max().unwrap_or(end);
        Some(empty.min(recovered).0.saturating_sub(end.0))
    }

    /// Whether a round trip of this probe after the load was as short as on the idle link.
    fn has_recovered(&self) -> bool {
        let limit = self.window.idle_limit_ns.load(Relaxed);
        self.after_samples.iter().any(|sample| sample.service_ns() <= limit)
    }

    fn note(&mut self, period: ProbePeriod, sample: Sample) {
        self.window.last_reply_ns.fetch_max(sample.received.0, Relaxed);
        let limit = &self.window.idle_limit_ns;
        match period {
            ProbePeriod::Before => {
                limit.fetch_max(idle_limit_ns(sample.service_ns()), Relaxed);
            }
            ProbePeriod::Loaded if sample.service_ns() > limit.load(Relaxed) => {
                self.last_delayed = Some(sample)
            }
            ProbePeriod::Loaded => {}
            ProbePeriod::After => {
                if sample.service_ns() <= limit.load(Relaxed) && !self.has_recovered() {
                    self.window.recovered_probes.fetch_add(1, Relaxed);
                }
                if self.after_samples.len() < MAX_RECOVERY_SAMPLES {
                    self.after_samples.push(sample);
                }
            }
        }
    }
}

impl Recorder {
    /// The flow is a probe that also runs before and after the load.
    pub fn watch_idle(&mut self, window: Arc<LoadWindow>) {
        self.idle = Some(Box::new(IdleRecorders {
            window,
            before: self.empty_like(),
            after: self.empty_like(),
            last_delayed: None,
            after_samples: Vec::with_capacity(MAX_RECOVERY_SAMPLES),
        }));
    }

    /// The part of the measurement in which a request sent at this instant counts.
    #[inline]
    pub fn period_at(&self, sent: Time) -> ProbePeriod {
        self.idle.as_ref().map_or(ProbePeriod::Loaded, |idle| idle.window.period_at(sent))
    }

    /// The record of a part of the measurement.
    #[inline]
    pub fn of_period(&mut self, period: ProbePeriod) -> &mut Recorder {
        if period == ProbePeriod::Loaded || self.idle.is_none() {
            return self;
        }
        let idle = self.idle.as_mut().expect("just seen");
        if period == ProbePeriod::Before { &mut idle.before } else { &mut idle.after }
    }

    /// Whether a request of this part of the measurement was overtaken by one after the load, whose reply came as soon as on the idle
    /// link: it will have no reply.
    pub fn is_overtaken(&self, period: ProbePeriod) -> bool {
        period == ProbePeriod::Loaded && self.idle.as_deref().is_some_and(IdleRecorders::has_recovered)
    }

    /// A request that belongs to this part of the measurement was sent.
    #[inline]
    pub fn begin_request_in(&self, period: ProbePeriod) {
        self.count_under_way(period, 1);
    }

    /// A request that belongs to this part of the measurement has its reply, or is lost.
    #[inline]
    pub fn end_request_in(&self, period: ProbePeriod) {
        self.count_under_way(period, -1);
    }

    fn count_under_way(&self, period: ProbePeriod, change: i32) {
        if let Some(idle) = self.idle.as_ref().filter(|_| period == ProbePeriod::Loaded) {
            idle.window.requests_under_way.fetch_add(change, Relaxed);
        }
    }

    /// Records a round trip that belongs to this part of the measurement.
    #[inline]
    pub fn record_reply_in(&mut self, period: ProbePeriod, sample: Sample, bytes: u64) {
        if let Some(idle) = &mut self.idle {
            // The reply may have met the load on its way.
            if period == ProbePeriod::Before && sample.received >= idle.window.begin() {
                idle.before.counts.sent -= 1;
                return;
            }
            idle.note(period, sample);
        }
        self.of_period(period).record_reply(sample, bytes);
    }

    /// Records a round trip where replies may overtake each other: the jitter compares the round trip with those of the requests
    /// just before and just after it, as far as they have their reply.
    #[inline]
    pub fn record_reply_beside(
        &mut self,
        neighbours_ns: [Option<u64>; 2],
        period: ProbePeriod,
        sample: Sample,
        bytes: u64,
    ) {
        let latency_ns = sample.service_ns();
        let times = &mut self.of_period(period).service_times;
        times.record_gap();
        neighbours_ns.into_iter().flatten().for_each(|other| times.record_difference(latency_ns, other));
        self.record_reply_in(period, sample, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::RecordedTimes;

    const MS: u64 = 1_000_000;

    fn sample(sent_ms: u64, took_ms: u64) -> Sample {
        let sent = Time(sent_ms * MS);
        Sample { sequence: 0, intended: sent, sent, received: Time((sent_ms + took_ms) * MS) }
    }

    /// A load from 1000 to 2000 ms; the idle link takes 20 ms.
    fn probe() -> Recorder {
        let window = Arc::new(LoadWindow::new(0));
        window.set_begin(Time(1_000 * MS));
        window.set_end(Time(2_000 * MS));
        let mut recorder = Recorder::new(RecordedTimes::ServiceAndResponse, 100 * MS, Arc::default(), None);
        recorder.watch_idle(window);
        recorder
    }

    fn record(recorder: &mut Recorder, sample: Sample) {
        let period = recorder.period_at(sample.sent);
        recorder.of_period(period).counts.sent += 1;
        recorder.record_reply_in(period, sample, 14);
    }

    #[test]
    fn a_request_counts_where_it_was_sent() {
        let mut recorder = probe();
        for (sent, took) in
            [(0, 20), (900, 30), (999, 150), (1_000, 220), (1_999, 220), (2_000, 220), (2_300, 20)]
        {
            record(&mut recorder, sample(sent, took));
        }
        let idle = recorder.idle.as_ref().unwrap();
        let counts = [&idle.before, &recorder, &idle.after].map(|recorder| recorder.counts.received);
        assert_eq!(counts, [2, 2, 2]);
        assert_eq!(idle.before.counts.sent, 2, "the third met the load");
        let mut plain = Recorder::new(RecordedTimes::ServiceAndResponse, 100 * MS, Arc::default(), None);
        record(&mut plain, sample(0, 20));
        assert_eq!(plain.counts.received, 1);
    }

    #[test]
    fn the_queue_is_empty_when_the_last_delayed_request_says_so() {
        let recovery = |samples: &[(u64, u64)]| {
            let mut recorder = probe();
            record(&mut recorder, sample(0, 20));
            samples.iter().for_each(|&(sent, took)| record(&mut recorder, sample(sent, took)));
            let idle = recorder.idle.unwrap();
            (idle.recovery_ns(20 * MS, None).map(|ns| ns / MS), idle.window.recovered_probes())
        };
        // 200 ms of queue at 2000 ms: 150 ms are left at 2050.
        assert_eq!(recovery(&[(1_950, 220), (2_050, 170), (2_150, 70), (2_250, 20)]), (Some(200), 1));
        // The request before the end sees it as well, where the probe is slow.
        assert_eq!(recovery(&[(1_950, 220), (2_450, 21), (2_550, 20)]), (Some(150), 1));
        assert_eq!(recovery(&[(1_950, 21), (2_050, 20)]), (Some(0), 1), "a load without a queue");
        assert_eq!(recovery(&[(1_950, 220), (2_050, 220)]), (None, 0), "never");
        // A download ends at the receiver when its queue is empty.
        let mut recorder = probe();
        [(0, 20), (1_990, 30), (2_090, 20)]
            .iter()
            .for_each(|&(sent, took)| record(&mut recorder, sample(sent, took)));
        let planned = Some(Duration::from_millis(500));
        assert_eq!(recorder.idle.unwrap().recovery_ns(20 * MS, planned), Some(500 * MS));
        // The recovery is not later than the first fast round trip: the delay was elsewhere.
        assert_eq!(recovery(&[(2_050, 900), (2_150, 20)]), (Some(150), 1));
    }
}
