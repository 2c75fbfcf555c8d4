//! Links that are watched for weeks: probed all the time or tested now and then, with alarms and a history.
//!
//! `schedule` measures each slice of a link, as every command does. The probes of many links share a few threads, and further ones
//! begin and end their slices (`workers`). One more thread, the caller's, keeps the ledger: it evaluates the alarms and writes the
//! store. A slow disk never delays a probe.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use linkgauge_engine::host;
use linkgauge_engine::link::Dialer;
use linkgauge_engine::schedule::{self, FlowThreads, RunContext};
use linkgauge_model::clock::Time;
use linkgauge_model::run::Run;
use linkgauge_store::Store;

mod access;
mod action;
mod alert;
mod black_box;
mod budget;
mod calendar;
mod columns;
mod condition;
mod config;
mod exposition;
mod families;
mod health;
mod http;
mod ledger;
mod level;
mod live;
mod live_probes;
mod message;
mod metrics;
mod notice;
mod notifier;
mod pattern;
mod plain_text;
mod probe;
mod prober;
mod protobuf;
mod push;
mod pusher;
mod remote_write;
mod silence;
mod site;
mod status;
mod watcher;
mod workers;

pub use access::{Access, RequestRefusal};
pub use alert::{Alert, Badness, Expectation, InvalidRule, Rule, Transition};
pub use calendar::{Calendar, ClockChange, ClockSnapshot, InvalidQuietHours, QuietHours, SLICE};
pub use columns::{Column, HistorySpan, SPANS};
pub use config::{Config, ConfigError, FileError, TargetFiles, Watch, WatchSchedule};
pub use families::{FamilyKind, MetricFamily, MetricLabel, MetricSample, MetricValue, Snapshot};
pub use health::{LinkHealth, Severity};
pub use http::SiteServer;
pub use ledger::{
    Ledger, MonitorEvent, MonitorObserver, Replay, ReplayedAlarm, WatchState, describe_clock_change, tag,
};
pub use level::{LEVEL_WINDOW_S, LevelShift, LevelWatch, MAX_LEVEL_WINDOWS, USUAL_SHIFT_DELAY};
pub use live::{LinkView, Live, LiveEvent, Overview, SPARK_MINUTES};
pub use metrics::MetricsFormat;
pub use notice::{
    ALARM_SCHEMA, AlarmCause, AlarmExplanation, MinuteFigures, Notice, NoticeKind, alarm_message,
};
pub use probe::{ProbeModule, ProbeRequest, ProbeSettings};
pub use prober::ScrapeProber;
pub use push::{DEFAULT_PUSH_INTERVAL, Push};
pub use silence::Silence;
pub use site::{Lookup, METRICS_PATH, Page, RunRenderer, Site};
pub use status::MonitorStatus;
pub use watcher::{Slice, Watcher};

use budget::{DayBudget, EarlierTests};
use live_probes::LiveProbes;
use notifier::{NoticeOutcome, Notifier};
use pusher::Pusher;
use watcher::{EndedSlice, MeasuredSlice};
use workers::{NextWork, WorkQueue};

/// Windows are written this often. A killed monitor loses at most this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Slices of many links end at the same time: the states are shown together, at most this often.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Time that the ledger waits for the next slice before it looks at the time and at the results of probes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The probes of more links than this share threads: each thread of its own would also wake up when nothing is due.
const MAX_OWN_THREADS: usize = 32;

/// A test begins up to this share of its period early or late.
const JITTER: f64 = 0.1;

/// Context of a monitor: all that it needs besides its configuration.
pub struct MonitorContext<'a> {
    /// The cancel flag ends the monitor.
    pub dialer: Dialer,
    /// Receives the events.
    pub observer: &'a dyn MonitorObserver,
    /// Receives the states at the start, soon after each slice and test, and when a link goes down or up.
    pub on_states: &'a (dyn Fn(&[WatchState]) + Sync),
    /// Shared secret of servers that require one.
    pub token: Option<String>,
    /// The time zone of quiet hours.
    pub zone: TimeZone,
    /// The state of the monitor itself.
    pub status: Arc<MonitorStatus>,
}

/// Result that a thread of a link delivers.
enum WatchResult {
    Slice(usize, Box<Slice>),
    Test(usize, Box<Run>),
}

/// A link that is probed.
struct ProbedLink<'a> {
    index: usize,
    watch: &'a Watch,
    watcher: Mutex<Watcher>,
}

/// Next task for a link that is probed.
enum SliceTask {
    /// Begins a slice.
    Begin,
    /// Evaluates a slice whose probes have ended.
    End(Box<EndedSlice>),
    /// Delivers a slice after its pause.
    Complete(Box<MeasuredSlice>),
}

/// A task of the link with this place in the list of those that are probed.
type LinkTask = (usize, SliceTask);

/// State that the threads of the links share.
struct WatchContext<'a> {
    context: &'a MonitorContext<'a>,
    calendar: Calendar,
    environment: Map<String, Value>,
    /// Threads for the probes of many links.
    flow_threads: Option<FlowThreads>,
    /// Lock that is held during a test: two tests at once would measure each other.
    test: Mutex<()>,
    stop: &'a AtomicBool,
}

/// Watches the links until the cancel flag of the dialer is set. Returns the states, so that a monitor with a changed
/// configuration goes on with them.
///
/// # Errors
///
/// The store could not be written at the start. Later failures are events.
pub fn run(
    config: &Config,
    earlier: Vec<WatchState>,
    store: Option<Store>,
    context: &MonitorContext,
) -> Result<Vec<WatchState>, linkgauge_store::StoreError> {
    let calendar = Calendar::new(context.dialer.clock.clone(), Timestamp::UNIX_EPOCH);
    let now = calendar.now().wall;
    let earlier_tests = |watch: &Watch| match (&store, watch.schedule) {
        (Some(store), WatchSchedule::Every(_)) => EarlierTests::read(watch, store, now),
        _ => EarlierTests::default(),
    };
    let earlier_tests: Vec<EarlierTests> = config.watches.iter().map(earlier_tests).collect();
    let environment = host::facts();
    let ledger = Ledger::new(config, earlier, store, context.observer)?;
    let mut ledger = ledger.with_environment(environment.clone()).with_status(context.status.clone());
    let stop = context.dialer.cancel.as_ref();
    // Without threads to share, each probe has its own.
    let flow_threads =
        (config.watches.len() > MAX_OWN_THREADS).then(|| FlowThreads::start(&context.dialer).ok()).flatten();
    let shared = WatchContext { context, calendar, environment, flow_threads, test: Mutex::new(()), stop };
    let notifier = shared.notifier(config);
    let host = shared.host().to_owned();
    std::thread::scope(|scope| {
        let (deliveries, mut live) = shared.start_links(scope, config, earlier_tests);
        let push = config.push.as_ref();
        let mut pusher = push.map(|push| Pusher::start(scope, push, &context.dialer.clock, &host));
        let (notices, to_notify) = channel();
        let (reported, outcomes) = channel();
        if notifier.is_needed() {
            let notifier = &notifier;
            scope.spawn(move || notifier.run(&to_notify, &reported));
        } else {
            drop((to_notify, reported));
        }
        shared.keep(&mut ledger, (&deliveries, &mut live), &mut |ledger| {
            let now = shared.calendar.now().wall;
            for notice in ledger.take_notices(now, &|watch| shared.is_silenced(config, watch, now)) {
                // Without actions there is no receiver.
                let _ = notices.send(notice);
            }
            outcomes.try_iter().for_each(|(at, outcome)| record_outcome(ledger, at, outcome));
            pusher.iter_mut().for_each(|pusher| pusher.update(ledger, shared.calendar.now()));
        });
        // The last alarms reach the actions before the monitor ends.
        drop(notices);
        outcomes.iter().for_each(|(at, outcome)| record_outcome(&mut ledger, at, outcome));
        pusher.into_iter().for_each(|pusher| pusher.end(&ledger, shared.calendar.now()));
    });
    Ok(ledger.into_states())
}

fn record_outcome(ledger: &mut Ledger, at: Timestamp, outcome: NoticeOutcome) {
    match outcome {
        NoticeOutcome::Explained(watch, explanation) => ledger.record_explanation(watch, at, explanation),
        NoticeOutcome::ActionFailed(reason) => ledger.tell(at, MonitorEvent::ActionFailed { reason }),
    }
}

impl WatchContext<'_> {
    /// Gives the ledger what the links deliver, until all their threads have ended. `after_each` is called after each delivery and
    /// now and then.
    fn keep(
        &self,
        ledger: &mut Ledger,
        (deliveries, live): (&Receiver<WatchResult>, &mut BTreeMap<usize, LiveProbes>),
        after_each: &mut dyn FnMut(&mut Ledger),
    ) {
        let mut flushed = self.calendar.now().monotonic;
        let mut shown = flushed;
        let mut is_changed = false;
        (self.context.on_states)(ledger.states());
        loop {
            let delivered = deliveries.recv_timeout(POLL_INTERVAL);
            is_changed |= delivered.is_ok();
            match delivered {
                Ok(WatchResult::Slice(watch, slice)) => {
                    if let Some(live) = live.get_mut(&watch) {
                        ledger.record_probes(watch, slice.ended, &live.end_slice(&slice.replies));
                    }
                    ledger.record_slice(watch, *slice);
                }
                Ok(WatchResult::Test(watch, run)) => ledger.record_test(watch, *run),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = self.calendar.now();
            let mut has_new_state = false;
            for (watch, live) in live.iter_mut() {
                has_new_state |= ledger.record_probes(*watch, now.wall, &live.take());
            }
            after_each(ledger);
            if has_new_state || is_changed && now.monotonic.since(shown) >= SHOW_INTERVAL {
                (shown, is_changed) = (now.monotonic, false);
                (self.context.on_states)(ledger.states());
            }
            if now.monotonic.since(flushed) >= FLUSH_INTERVAL {
                flushed = now.monotonic;
                ledger.flush(now.wall);
            }
        }
        ledger.flush(self.calendar.now().wall);
    }

    fn notifier<'a>(&'a self, config: &'a Config) -> Notifier<'a> {
        Notifier {
            watches: &config.watches,
            actions: &config.actions,
            dialer: self.context.dialer.clone(),
            token: self.context.token.clone(),
            host: self.host(),
            test: &self.test,
        }
    }

    /// The name of this host.
    fn host(&self) -> &str {
        self.environment.get("hostname").and_then(Value::as_str).unwrap_or_default()
    }

    /// Starts to measure all links.
    fn start_links<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        config: &'env Config,
        earlier_tests: Vec<EarlierTests>,
    ) -> (Receiver<WatchResult>, BTreeMap<usize, LiveProbes>) {
        let (sender, deliveries) = channel();
        let (mut probed, mut live) = (Vec::new(), BTreeMap::new());
        for (index, (watch, earlier)) in config.watches.iter().zip(earlier_tests).enumerate() {
            match watch.schedule {
                WatchSchedule::Continuous { per_second } => {
                    let watcher = self.watcher(watch, per_second);
                    live.insert(index, watcher.live_probes());
                    probed.push(ProbedLink { index, watch, watcher: Mutex::new(watcher) });
                }
                WatchSchedule::Every(period) => {
                    let sender = sender.clone();
                    scope.spawn(move || self.test(index, watch, (period, &earlier), &sender));
                }
            }
        }
        scope.spawn(move || {
            self.probe(&probed, &sender);
            // A monitor that only probes on request runs until it is stopped.
            self.wait(if config.watches.is_empty() { Time::NEVER } else { Time(0) });
            drop(sender);
        });
        (deliveries, live)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Waits until a time; true if the monitor stops.
    fn wait(&self, until: Time) -> bool {
        watcher::wait(&self.context.dialer, until);
        self.is_stopped()
    }

    fn is_silenced(&self, config: &Config, watch: usize, now: Timestamp) -> bool {
        let name = &config.watches[watch].name;
        config.silences.iter().any(|silence| silence.is_about(name) && silence.is_on(now, &self.context.zone))
    }

    fn is_quiet(&self, watch: &Watch) -> bool {
        let now = self.calendar.now().wall;
        watch.quiet.iter().any(|hours| hours.contain(now, &self.context.zone))
    }

    fn watcher(&self, watch: &Watch, per_second: f64) -> Watcher {
        let dialer = self.context.dialer.clone();
        let watcher = Watcher::new(watch.clone(), per_second, self.calendar.clone(), dialer);
        watcher.with_token(self.context.token.clone())
    }

    /// Probes these links until the monitor stops.
    fn probe(&self, links: &[ProbedLink], deliveries: &Sender<WatchResult>) {
        let begin = (0..links.len()).map(|place| (place, SliceTask::Begin));
        let queue = Arc::new(WorkQueue::new(&self.context.dialer.clock, begin));
        let perform = |(place, task): LinkTask| {
            let link: &ProbedLink = &links[place];
            let mut watcher = link.watcher.lock().unwrap_or_else(PoisonError::into_inner);
            let measured = match task {
                SliceTask::Begin => return self.begin_slice(link, &mut watcher, (&queue, place)),
                SliceTask::End(ended) => {
                    let measured = Box::new(watcher.end_slice(*ended));
                    match measured.pause_until {
                        Some(until) => return NextWork::At(until, (place, SliceTask::Complete(measured))),
                        None => measured,
                    }
                }
                SliceTask::Complete(measured) => measured,
            };
            let slice = Box::new(watcher.complete(*measured));
            match deliveries.send(WatchResult::Slice(link.index, slice)) {
                Ok(()) => self.begin_slice(link, &mut watcher, (&queue, place)),
                Err(_) => NextWork::Ended,
            }
        };
        queue.run(|| self.is_stopped(), perform);
    }

    /// Begins a slice of a link, if it is to be measured now.
    fn begin_slice(
        &self,
        link: &ProbedLink,
        watcher: &mut Watcher,
        (queue, place): (&Arc<WorkQueue<LinkTask>>, usize),
    ) -> NextWork<LinkTask> {
        if self.is_stopped() {
            return NextWork::Ended;
        }
        if self.is_quiet(link.watch) {
            return NextWork::At(self.context.dialer.now() + SLICE, (place, SliceTask::Begin));
        }
        let queue = queue.clone();
        let on_ended = move |ended| queue.push((place, SliceTask::End(Box::new(ended))));
        match watcher.begin_slice(self.flow_threads.as_ref(), on_ended) {
            Ok(()) => NextWork::Awaited,
            Err(_) => NextWork::Ended,
        }
    }

    /// Tests a link now and then until the monitor stops.
    fn test(
        &self,
        index: usize,
        watch: &Watch,
        when: (Duration, &EarlierTests),
        sender: &Sender<WatchResult>,
    ) {
        let (period, earlier) = when;
        let now = self.calendar.now();
        let since = earlier.last.map(|last| now.wall.duration_since(last));
        let since = since.and_then(|since| Duration::try_from(since).ok()).unwrap_or(period);
        let mut wait = period.saturating_sub(since);
        let mut budget = DayBudget::new(watch.bytes_per_day, now.second(), &earlier.today);
        loop {
            let due = self.context.dialer.now() + wait;
            if self.wait(due) {
                return;
            }
            let second = self.calendar.now().second();
            if !self.is_quiet(watch) && budget.allows(second) {
                let Some(run) = self.run_test(watch, budget.left()) else { return };
                budget.spend(second, &run);
                if sender.send(WatchResult::Test(index, Box::new(run))).is_err() {
                    return;
                }
            }
            wait = period.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0));
        }
    }

    /// Runs a test of a link, which moves at most `left` bytes.
    fn run_test(&self, watch: &Watch, left: Option<u64>) -> Option<Run> {
        let _alone = self.test.lock().unwrap_or_else(PoisonError::into_inner);
        let case = left.map_or_else(|| watch.case.clone(), |left| budget::within(&watch.case, left));
        let plan = config::checked_plan(watch, case).ok()?;
        let mut context = RunContext::new(self.context.dialer.clone(), &());
        context.token = self.context.token.clone();
        context.environment = self.environment.clone();
        Some(schedule::run(&plan.split_into_repetitions(), &mut context))
    }
}
