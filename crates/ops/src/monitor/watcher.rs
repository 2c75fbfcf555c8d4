//! Probes one link all the time, in slices of some seconds.
//!
//! A slice is a run of the schedule: every protocol and transport that measures latency can be watched. Slices end at
//! multiples of their length on the wall clock, so that windows of a minute consist of whole slices.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::calendar::{Calendar, ClockChange, ClockSnapshot, SLICE};
use super::config::{ConfigError, Watch, checked_plan};
use super::live_probes::{CurrentLogs, LiveProbes};
use linkgauge_engine::link::{Dialer, KeptLinks};
use linkgauge_engine::protocol::without_protocols;
use linkgauge_engine::schedule::{self, CheckedPlan, EndedRun, FlowThreads, RunContext};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Pacing, StopCondition};
use linkgauge_model::run::{FailureKind, Run};
use linkgauge_model::sample::{CollectedSamples, RawFile, ReplyLogs, Sample, Window, WindowCounts};

/// A shorter rest of a slice is joined to the next one.
const MIN_SLICE: Duration = Duration::from_secs(2);

/// Wait before a link that failed is opened again: doubled each time, within these limits.
const MIN_BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(60);

/// An interval of the time series of a slice is for about this number of probes.
const PROBES_PER_INTERVAL: f64 = 10.0;

/// Measurements of a slice.
#[derive(Debug)]
pub struct Slice {
    /// The clocks at its begin.
    pub began: ClockSnapshot,
    /// The date at its end.
    pub ended: Timestamp,
    /// The probes.
    pub window: Window,
    /// Result of each probe in order: the time of its reply in ns, or `None` without one.
    pub probes: Vec<Option<u64>>,
    /// The link could not be opened, or broke.
    pub failure: Option<String>,
    /// Change of the clocks during the slice. Losses of a slice in which the machine was suspended do not count.
    pub(crate) clock_change: Option<ClockChange>,
    /// The document of the slice, for the time around an alarm; without the facts of this machine.
    pub run: Run,
    /// The results of its probes, as they arrived.
    pub(super) replies: Arc<ReplyLogs>,
}

/// A slice that has begun.
struct BegunSlice {
    began: ClockSnapshot,
    length: Duration,
    samples: CollectedSamples,
    replies: Arc<ReplyLogs>,
}

/// A slice whose probes have ended.
pub(super) struct EndedSlice {
    begun: BegunSlice,
    run: EndedRun,
}

/// A slice that is complete after its pause.
pub(super) struct MeasuredSlice {
    slice: Slice,
    /// Time until which the link is not opened again, after a failure.
    pub(super) pause_until: Option<Time>,
}

/// Watches one link.
pub struct Watcher {
    watch: Watch,
    per_second: f64,
    calendar: Calendar,
    dialer: Dialer,
    token: Option<String>,
    /// The protocol of the last slice, if it was detected.
    detected: Option<String>,
    /// Whether a slice had replies, so that its protocol is no question.
    has_worked: bool,
    kept_links: KeptLinks,
    connection_cache: Arc<linkgauge_engine::protocol::ConnectionCache>,
    failures_in_row: u32,
    seed: u64,
    current_logs: CurrentLogs,
}

impl Watcher {
    /// A watcher of a link with continuous probes, at this rate.
    pub fn new(watch: Watch, per_second: f64, calendar: Calendar, dialer: Dialer) -> Watcher {
        Watcher {
            watch,
            per_second,
            calendar,
            dialer,
            token: None,
            detected: None,
            has_worked: false,
            kept_links: KeptLinks::default(),
            connection_cache: Arc::default(),
            failures_in_row: 0,
            seed: 1,
            current_logs: CurrentLogs::default(),
        }
    }

    /// Reads the results of the probes while they are measured.
    pub(super) fn live_probes(&self) -> LiveProbes {
        LiveProbes::new(self.current_logs.clone())
    }

    /// The shared secret of servers that require one.
    pub(crate) fn with_token(mut self, token: Option<String>) -> Watcher {
        self.token = token;
        self
    }

    /// Measures until the slice ends, and waits after a failure.
    ///
    /// # Errors
    ///
    /// The case became invalid: it was checked before.
    pub fn run_slice(&mut self) -> Result<Slice, ConfigError> {
        let (begun, plan, mut context) = self.prepare()?;
        let run = schedule::run(&plan, &mut context);
        let measured = self.measured(begun, run);
        if let Some(until) = measured.pause_until {
            wait(&self.dialer, until);
        }
        Ok(self.complete(measured))
    }

    /// Begins a slice. If its flows can share these threads, this function returns as soon as the link is open. `on_ended` is called in
    /// one of them when the slice ends, or in this thread.
    ///
    /// # Errors
    ///
    /// The case became invalid: it was checked before.
    pub(super) fn begin_slice(
        &mut self,
        threads: Option<&FlowThreads>,
        on_ended: impl FnOnce(EndedSlice) + Send + 'static,
    ) -> Result<(), ConfigError> {
        let (begun, plan, context) = self.prepare()?;
        schedule::run_in_threads(&plan, context, threads, |run| on_ended(EndedSlice { begun, run }));
        Ok(())
    }

    /// Evaluates a slice that has ended. Waits for the report of the server.
    pub(super) fn end_slice(&mut self, ended: EndedSlice) -> MeasuredSlice {
        let run = ended.run.finish();
        self.measured(ended.begun, run)
    }

    fn prepare(&mut self) -> Result<(BegunSlice, CheckedPlan, RunContext<'static>), ConfigError> {
        let began = self.calendar.now();
        let mut length = began.until_next(SLICE);
        if length < MIN_SLICE {
            length += SLICE;
        }
        let mut case = self.watch.case.clone();
        case.stop = StopCondition::after_time(length);
        case.pacing = Pacing::Poisson { per_second: self.per_second, seed: self.seed };
        let interval =
            Duration::from_secs_f64((PROBES_PER_INTERVAL / self.per_second).min(SLICE.as_secs_f64()));
        case.series_interval = case.series_interval.max(interval);
        // What the remote speaks is asked again after a failure.
        case.protocol = self.detected.take().unwrap_or(case.protocol);
        self.seed += 1;
        let plan = checked_plan(&self.watch, case)?;
        let mut context = RunContext::new(self.dialer.clone(), &());
        context.dialer.kept_links = Some(self.kept_links.clone());
        context.connection_cache = self.connection_cache.clone();
        context.token = self.token.clone();
        let (raw, samples) = RawFile::collect((2.0 * self.per_second * length.as_secs_f64()) as usize);
        context.raw = Some(raw);
        // The reader looks several times a second.
        let replies = Arc::new(ReplyLogs::with_events(16 + (2.0 * self.per_second) as usize));
        *self.current_logs.lock().unwrap_or_else(PoisonError::into_inner) = replies.clone();
        context.replies = Some(replies.clone());
        Ok((BegunSlice { began, length, samples, replies }, plan, context))
    }

    fn measured(&mut self, begun: BegunSlice, run: Run) -> MeasuredSlice {
        let BegunSlice { began, length, samples, replies } = begun;
        let measured = run.cases.first().filter(|case| case.complete && case.figures.has_measurements());
        self.detected = measured.map(|case| case.protocol.clone());
        self.has_worked |= self.detected.is_some();
        let failure = run.cases.first().and_then(|case| {
            let first = case.failures.first()?;
            Some((first.kind, first.reason(&case.endpoint)))
        });
        let mut slice = self.slice_of(began, run, samples.take());
        let failure = failure.filter(|(kind, _)| *kind != FailureKind::Interrupted);
        slice.replies = replies;
        slice.failure = failure.map(|(_, reason)| match self.has_worked {
            true => without_protocols(&reason).to_owned(),
            false => reason,
        });
        self.failures_in_row = if slice.failure.is_some() { self.failures_in_row + 1 } else { 0 };
        let pause_until = slice.failure.is_some().then(|| self.dialer.now() + self.pause(began, length));
        MeasuredSlice { slice, pause_until }
    }

    /// Ends a slice, after its pause.
    pub(super) fn complete(&self, measured: MeasuredSlice) -> Slice {
        let mut slice = measured.slice;
        if slice.failure.is_some() {
            self.add_unsent(&mut slice);
        }
        let ended = self.calendar.now();
        slice.ended = ended.wall;
        slice.clock_change = ended.change_since(&slice.began);
        match slice.clock_change {
            Some(ClockChange::Suspended(_)) => discard_losses(&mut slice),
            Some(ClockChange::Set(by)) => slice.began = slice.began.shifted(by),
            None => {}
        }
        slice
    }

    fn slice_of(&self, began: ClockSnapshot, run: Run, mut samples: Vec<Sample>) -> Slice {
        let measured = self.calendar.now().monotonic.since(began.monotonic);
        let counts = run.cases.first().map(|case| &case.figures.counts);
        let sent = counts.map_or(0, |counts| counts.sent).max(samples.len() as u64);
        samples.sort_unstable_by_key(|sample| sample.sequence);
        let mut probes = vec![None; sent as usize];
        for sample in &samples {
            if let Some(probe) = probes.get_mut(sample.sequence as usize) {
                *probe = Some(sample.response_ns());
            }
        }
        if run.interrupted {
            // The monitor stopped while these were on their way.
            let kept = probes.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            probes.truncate(kept);
        }
        let mut window = Window::new(WindowCounts {
            measured_ms: measured.as_millis() as u64,
            due: probes.len() as u64,
            lost: probes.iter().filter(|probe| probe.is_none()).count() as u64,
            corrupt: counts.map_or(0, |counts| counts.corrupt_messages),
            down_ms: 0,
        });
        probes.iter().flatten().for_each(|time| window.record(*time));
        let replies = Arc::default();
        Slice { began, ended: began.wall, window, probes, failure: None, clock_change: None, run, replies }
    }

    /// Time for which a link that failed is not opened again, within a slice.
    fn pause(&self, began: ClockSnapshot, length: Duration) -> Duration {
        let back_off = MIN_BACK_OFF * 2u32.saturating_pow(self.failures_in_row.saturating_sub(1).min(16));
        let elapsed = self.calendar.now().monotonic.since(began.monotonic);
        back_off.min(MAX_BACK_OFF).min(length.saturating_sub(elapsed))
    }

    /// Probes that were due while the link was down are lost.
    fn add_unsent(&self, slice: &mut Slice) {
        let passed = self.calendar.now().monotonic.since(slice.began.monotonic);
        let due = (passed.as_secs_f64() * self.per_second).round() as u64;
        let unsent = due.saturating_sub(slice.window.counts.due);
        let counts = &mut slice.window.counts;
        counts.measured_ms = passed.as_millis() as u64;
        counts.down_ms =
            counts.measured_ms.saturating_sub((counts.due as f64 * 1e3 / self.per_second) as u64);
        counts.due += unsent;
        counts.lost += unsent;
        slice.probes.extend(std::iter::repeat_n(None, unsent as usize));
    }
}

/// Interval at which a waiting thread checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until a time, and ends early when the monitor stops.
pub(super) fn wait(dialer: &Dialer, until: Time) {
    while dialer.now() < until && !dialer.cancel.load(Relaxed) {
        dialer.clock.sleep_until(until.min(dialer.now() + POLL_INTERVAL));
    }
}

/// Discards lost probes: while the machine was suspended, a missing reply says nothing about the link, so this time is left out.
fn discard_losses(slice: &mut Slice) {
    let replies: Vec<u64> = slice.probes.drain(..).flatten().collect();
    let corrupt = slice.window.counts.corrupt;
    let due = replies.len() as u64;
    slice.window = Window::new(WindowCounts { due, corrupt, ..WindowCounts::default() });
    replies.into_iter().for_each(|time| slice.window.record(time));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::{Config, WatchSchedule};
    use linkgauge_engine::Registry;
    use linkgauge_engine::link::Listener;
    use linkgauge_engine::link::party::Party;
    use linkgauge_model::clock::Clock;

    const LINK: &str = "mem://server?delay=5ms";

    fn serve(dialer: &Dialer) -> Box<dyn Listener> {
        let endpoint = LINK.parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let caps = Registry::standard().transports.caps(&endpoint).unwrap();
        let new_server = move |_: &str| -> Box<dyn Party> {
            Box::new(linkgauge_engine::protocol::echo_reflector(&caps, Duration::from_secs(60)))
        };
        assert!(listener.set_party_factory(Box::new(new_server)).is_ok());
        listener
    }

    fn watcher(dialer: &Dialer, second: i64) -> Watcher {
        let text = format!("[[watch]]\nurl = \"{LINK}\"\nprotocol = \"echo\"");
        let watch = Config::from_toml(&text).unwrap().watches.remove(0);
        let WatchSchedule::Continuous { per_second } = watch.schedule else { panic!("not continuous") };
        let calendar = Calendar::new(dialer.clock.clone(), Timestamp::from_second(second).unwrap());
        Watcher::new(watch, per_second, calendar, dialer.clone())
    }

    #[test]
    fn slices_end_at_multiples_of_ten_seconds() {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let _listener = serve(&dialer);
        let mut watcher = watcher(&dialer, 1_000_003);
        let slices: Vec<Slice> = (0..7).map(|_| watcher.run_slice().unwrap()).collect();
        let begins: Vec<i64> = slices.iter().map(|slice| slice.began.second()).collect();
        assert_eq!(begins[..3], [1_000_003, 1_000_010, 1_000_020]);
        let mut minute = Window::default();
        slices[1..].iter().for_each(|slice| minute.merge(&slice.window));
        assert!((540..660).contains(&minute.counts.due), "{:?}", minute.counts);
        assert_eq!((minute.counts.lost, minute.counts.down_ms), (0, 0));
        let times = [0.0, 0.5, 1.0].map(|share| minute.quantile_ns(share).unwrap() as f64 / 1e6);
        assert!(times.iter().all(|time| (9.9..10.1).contains(time)), "{times:?}");
    }

    #[test]
    fn probes_of_a_link_that_is_down_are_lost() {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let mut watcher = watcher(&dialer, 1_000_000);
        let mut down = Window::default();
        while dialer.now() < Time(300_000_000_000) {
            let slice = watcher.run_slice().unwrap();
            assert!(slice.failure.is_some() && slice.probes.iter().all(Option::is_none));
            down.merge(&slice.window);
        }
        assert_eq!(down.counts.due, down.counts.lost);
        assert!((2_990..3_110).contains(&down.counts.due), "{:?}", down.counts);
        assert!(down.counts.down_ms >= 299_000, "{:?}", down.counts);
        let _listener = serve(&dialer);
        let slice = watcher.run_slice().unwrap();
        assert_eq!((slice.failure, slice.window.counts.lost), (None, 0));
    }
}
