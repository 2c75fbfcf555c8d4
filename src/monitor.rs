//! Links that are watched for weeks: probed all the time or tested now and then, with alarms and a history.
//!
//! Each link has a thread, which measures with `schedule` as every command does. One more thread, the caller's, keeps the
//! ledger: it evaluates the alarms and writes the store. A slow disk never delays a probe.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
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
use crate::store::{Filter, Store};

mod alert;
mod calendar;
mod config;
mod http;
mod ledger;
mod metrics;
mod watcher;

pub use alert::{Alert, Badness, Expectation, InvalidRule, Rule, Transition};
pub use calendar::{Calendar, ClockChange, InvalidQuietHours, Moment, QuietHours};
pub use config::{Config, ConfigError, Watch, WatchSchedule};
pub use http::{HttpServer, Page, Pages, Refusal, Request, parse_request};
pub use ledger::{Ledger, MonitorEvent, MonitorObserver, WatchState, describe_clock_change, tag};
pub use metrics::{OPENMETRICS_TYPE, render as render_metrics};
pub use watcher::{SLICE, Slice, Watcher};

/// Windows are written this often. A killed monitor loses at most this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

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
    /// Receives the states after each slice and test.
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
    let last_tests = last_tests(config, store.as_ref());
    let mut ledger = Ledger::new(config, earlier, store, context.observer)?;
    let calendar = Calendar::new(context.dialer.clock.clone(), Timestamp::UNIX_EPOCH);
    let stop = context.dialer.cancel.as_ref();
    let shared = Shared { context, calendar, environment: host::facts(), test: Mutex::new(()), stop };
    std::thread::scope(|scope| {
        let (sender, deliveries) = channel();
        for (index, (watch, last_test)) in config.watches.iter().zip(last_tests).enumerate() {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || match watch.schedule {
                WatchSchedule::Continuous { per_second } => {
                    shared.probe(index, watch, per_second, &sender);
                }
                WatchSchedule::Every(period) => shared.test(index, watch, (period, last_test), &sender),
            });
        }
        drop(sender);
        let mut flushed = shared.calendar.now().monotonic;
        loop {
            match deliveries.recv_timeout(POLL_INTERVAL) {
                Ok(Delivery::Slice(watch, slice)) => ledger.record_slice(watch, *slice),
                Ok(Delivery::Test(watch, run)) => ledger.record_test(watch, *run),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = shared.calendar.now();
            if now.monotonic.since(flushed) >= FLUSH_INTERVAL {
                flushed = now.monotonic;
                ledger.flush(now.wall);
                (context.on_states)(ledger.states());
            }
        }
        ledger.flush(shared.calendar.now().wall);
    });
    Ok(ledger.into_states())
}

/// When each test was made last, so that the schedule survives a restart.
fn last_tests(config: &Config, store: Option<&Store>) -> Vec<Option<Timestamp>> {
    let last = |watch: &Watch| {
        let filter = Filter { tag: Some(tag(&watch.name)), limit: Some(1), ..Filter::default() };
        let runs = store?.runs(&filter).ok()?;
        runs.entries.first().map(|run| run.started)
    };
    config.watches.iter().map(last).collect()
}

impl Shared<'_> {
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
    fn test(
        &self,
        index: usize,
        watch: &Watch,
        when: (Duration, Option<Timestamp>),
        sender: &Sender<Delivery>,
    ) {
        let (period, last) = when;
        let since = last.map(|last| self.calendar.now().wall.duration_since(last));
        let since = since.and_then(|since| Duration::try_from(since).ok()).unwrap_or(period);
        let mut wait = period.saturating_sub(since);
        let mut budget = DayBudget::new(watch.bytes_per_day);
        loop {
            let due = self.context.dialer.now() + wait;
            if self.wait(due) {
                return;
            }
            let day = self.calendar.now().second().div_euclid(86_400);
            if !self.is_quiet(watch) && budget.allows(day) {
                let Some(run) = self.run_test(watch) else { return };
                budget.spend(day, &run);
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

/// The bytes that tests may move in a day (UTC).
struct DayBudget {
    limit: Option<u64>,
    day: i64,
    spent: u64,
    /// Of the last test: the next one takes as much.
    per_test: u64,
}

impl DayBudget {
    fn new(limit: Option<u64>) -> DayBudget {
        DayBudget { limit, day: 0, spent: 0, per_test: 0 }
    }

    /// Whether another test fits into the day.
    fn allows(&mut self, day: i64) -> bool {
        if self.day != day {
            (self.day, self.spent) = (day, 0);
        }
        self.limit.is_none_or(|limit| self.spent + self.per_test <= limit)
    }

    fn spend(&mut self, day: i64, run: &Run) {
        let bytes = |case: &crate::run::CaseResult| {
            let delivery = &case.figures.delivery;
            let echoed =
                u64::from(case.message_bytes) * (case.figures.counts.sent + case.figures.counts.received);
            let delivered =
                delivery.delivered_bytes.unwrap_or(0) + delivery.delivered_reverse_bytes.unwrap_or(0);
            if delivered > 0 { delivered } else { echoed }
        };
        self.per_test = run.cases.iter().map(bytes).sum();
        if self.day == day {
            self.spent += self.per_test;
        }
    }
}
