//! Links that are watched for weeks: probed all the time or tested now and then, with alarms and a history.
//!
//! Each link has a thread, which measures with `schedule` as every command does. One more thread, the caller's, keeps the
//! ledger: it evaluates the alarms and writes the store. A slow disk never delays a probe.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use crate::clock::Time;
use crate::host;
use crate::link::Dialer;
use crate::run::Run;
use crate::schedule::{self, RunContext};
use crate::store::Store;

mod access;
mod action;
mod alert;
mod budget;
mod calendar;
mod columns;
mod config;
mod http;
mod ledger;
mod level;
mod live;
mod metrics;
mod notice;
mod notifier;
mod site;
mod watcher;

pub use access::{Access, Refusal};
pub use action::{Action, ActionError, ActionTarget, DEFAULT_ACTION_TIMEOUT};
pub use alert::{Alert, Badness, Expectation, InvalidRule, Rule, Transition};
pub use calendar::{Calendar, ClockChange, InvalidQuietHours, Moment, QuietHours, SLICE};
pub use columns::{Column, HistorySpan, SPANS};
pub use config::{Config, ConfigError, Watch, WatchSchedule};
pub use http::HttpServer;
pub use ledger::{Ledger, MonitorEvent, MonitorObserver, WatchState, describe_clock_change, tag};
pub use level::{LEVEL_WINDOW_S, LevelShift, LevelWatch, MAX_LEVEL_WINDOWS, USUAL_SHIFT_DELAY};
pub use live::{LinkState, LinkView, Live, LiveEvent, Overview, SPARK_MINUTES};
pub use metrics::{OPENMETRICS_TYPE, render as render_metrics};
pub use notice::{
    ALARM_SCHEMA, AlarmCause, AlarmExplanation, MinuteFigures, Notice, NoticeKind, alarm_message,
};
pub use site::{Lookup, Page, RunRenderer, Site};
pub use watcher::{Slice, Watcher};

use budget::{DayBudget, EarlierTests};
use notifier::{Notifier, Outcome};

/// Windows are written this often. A killed monitor loses at most this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Slices of many links end at the same time: the states are shown together, at most this often.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// How long the ledger waits for the next slice before it looks at the time.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A test begins up to this share of its period early or late.
const JITTER: f64 = 0.1;

/// What a monitor needs besides its configuration.
pub struct MonitorContext<'a> {
    /// Its cancel flag ends the monitor.
    pub dialer: Dialer,
    /// Receives the events.
    pub observer: &'a dyn MonitorObserver,
    /// Receives the states at the start, and soon after each slice and test.
    pub on_states: &'a (dyn Fn(&[WatchState]) + Sync),
    /// Shared secret of servers that require one.
    pub token: Option<String>,
    /// The time zone of quiet hours.
    pub zone: TimeZone,
}

/// What the threads of the links deliver.
enum Delivery {
    Slice(usize, Box<Slice>),
    Test(usize, Box<Run>),
}

/// What the threads of the links share.
struct Shared<'a> {
    context: &'a MonitorContext<'a>,
    calendar: Calendar,
    environment: Map<String, Value>,
    /// Held during a test: two tests at once would measure each other.
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
) -> Result<Vec<WatchState>, crate::store::StoreError> {
    let calendar = Calendar::new(context.dialer.clock.clone(), Timestamp::UNIX_EPOCH);
    let now = calendar.now().wall;
    let earlier_tests = |watch: &Watch| match (&store, watch.schedule) {
        (Some(store), WatchSchedule::Every(_)) => EarlierTests::read(watch, store, now),
        _ => EarlierTests::default(),
    };
    let earlier_tests: Vec<EarlierTests> = config.watches.iter().map(earlier_tests).collect();
    let mut ledger = Ledger::new(config, earlier, store, context.observer)?;
    let stop = context.dialer.cancel.as_ref();
    let shared = Shared { context, calendar, environment: host::facts(), test: Mutex::new(()), stop };
    let notifier = shared.notifier(config);
    std::thread::scope(|scope| {
        let (sender, deliveries) = channel();
        for (index, (watch, earlier)) in config.watches.iter().zip(earlier_tests).enumerate() {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || shared.measure(index, watch, &earlier, &sender));
        }
        drop(sender);
        let (notices, to_notify) = channel();
        let (reported, outcomes) = channel();
        if notifier.is_needed() {
            let notifier = &notifier;
            scope.spawn(move || notifier.run(&to_notify, &reported));
        } else {
            drop((to_notify, reported));
        }
        shared.keep(&mut ledger, &deliveries, &mut |ledger| {
            for notice in ledger.take_notices() {
                // Without actions there is no receiver.
                let _ = notices.send(notice);
            }
            outcomes.try_iter().for_each(|(at, outcome)| record_outcome(ledger, at, outcome));
        });
        // The last alarms reach the actions before the monitor ends.
        drop(notices);
        outcomes.iter().for_each(|(at, outcome)| record_outcome(&mut ledger, at, outcome));
    });
    Ok(ledger.into_states())
}

fn record_outcome(ledger: &mut Ledger, at: Timestamp, outcome: Outcome) {
    match outcome {
        Outcome::Explained(watch, explanation) => ledger.record_explanation(watch, at, explanation),
        Outcome::ActionFailed(reason) => ledger.tell(at, MonitorEvent::ActionFailed { reason }),
    }
}

impl Shared<'_> {
    /// Gives the ledger what the links deliver, until all their threads have ended. `after_each` is called after each delivery and
    /// now and then.
    fn keep(
        &self,
        ledger: &mut Ledger,
        deliveries: &Receiver<Delivery>,
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
                Ok(Delivery::Slice(watch, slice)) => ledger.record_slice(watch, *slice),
                Ok(Delivery::Test(watch, run)) => ledger.record_test(watch, *run),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            after_each(ledger);
            let now = self.calendar.now();
            if is_changed && now.monotonic.since(shown) >= SHOW_INTERVAL {
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
            host: self.environment.get("hostname").and_then(Value::as_str).unwrap_or_default(),
            test: &self.test,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Waits until a time; true if the monitor stops.
    fn wait(&self, until: Time) -> bool {
        watcher::wait(&self.context.dialer, until);
        self.is_stopped()
    }

    fn is_quiet(&self, watch: &Watch) -> bool {
        let now = self.calendar.now().wall;
        watch.quiet.iter().any(|hours| hours.contain(now, &self.context.zone))
    }

    /// Measures a link until the monitor stops.
    fn measure(&self, index: usize, watch: &Watch, earlier: &EarlierTests, sender: &Sender<Delivery>) {
        match watch.schedule {
            WatchSchedule::Continuous { per_second } => self.probe(index, watch, per_second, sender),
            WatchSchedule::Every(period) => self.test(index, watch, (period, earlier), sender),
        }
    }

    /// Probes a link until the monitor stops.
    fn probe(&self, index: usize, watch: &Watch, per_second: f64, sender: &Sender<Delivery>) {
        let facts = self.environment.clone();
        let watcher =
            Watcher::new(watch.clone(), per_second, self.calendar.clone(), self.context.dialer.clone());
        let mut watcher = watcher.with_token(self.context.token.clone()).with_environment(facts);
        while !self.is_stopped() {
            if self.is_quiet(watch) {
                self.wait(self.context.dialer.now() + SLICE);
                continue;
            }
            let Ok(slice) = watcher.run_slice() else { return };
            if sender.send(Delivery::Slice(index, Box::new(slice))).is_err() {
                return;
            }
        }
    }

    /// Tests a link now and then until the monitor stops.
    fn test(&self, index: usize, watch: &Watch, when: (Duration, &EarlierTests), sender: &Sender<Delivery>) {
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
                let Some(run) = self.run_test(watch) else { return };
                budget.spend(second, &run);
                if sender.send(Delivery::Test(index, Box::new(run))).is_err() {
                    return;
                }
            }
            wait = period.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0));
        }
    }

    fn run_test(&self, watch: &Watch) -> Option<Run> {
        let _alone = self.test.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = config::checked_plan(watch, watch.case.clone()).ok()?;
        let mut context = RunContext::new(self.context.dialer.clone(), &());
        context.token = self.context.token.clone();
        context.environment = self.environment.clone();
        Some(schedule::run(&plan.split_into_repetitions(), &mut context))
    }
}
