//! State of the watched links: of each link, of its alarms, and of the windows that the store does not have yet.
//!
//! The ledger is given slices and tests, in any order of links; it has no thread and no clock.

mod changes;
mod replay;
mod resume;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::alert::{Alert, Transition};
use super::black_box::{BlackBox, DocumentCompressor};
use super::calendar::ClockChange;
use super::condition::Condition;
use super::config::{Config, Watch, WatchSchedule, gateway_of};
use super::health::LinkHealth;
use super::level::{LevelShift, LevelWatch};
use super::live_probes::ProbeResult;
use super::notice::{AlarmExplanation, Notice, NoticeKind};
use super::status::MonitorStatus;
use super::watcher::Slice;
use linkgauge_model::run::{CaseResult, FailureKind, Run};
use linkgauge_model::sample::Window;
use linkgauge_model::units::format_duration;
use linkgauge_model::warnings::host_warnings;
use linkgauge_store::{Incident, SeriesNumber, Store, StoreError, TIERS};

pub use replay::{Replay, ReplayedAlarm};

/// A link is down after this many lost probes in a row.
const DOWN_AFTER_LOST: u32 = 3;

/// Windows kept for a store that cannot be written: a day of one link. The oldest are dropped then.
const MAX_PENDING: usize = 1440;

/// Events of a monitor, for its log.
#[derive(Debug, Clone, PartialEq)]
pub enum MonitorEvent {
    /// A link does not reply any more: the last three probes were lost.
    Down {
        /// Name of the watch.
        name: String,
        /// Reason why the link could not be opened, if it could not.
        reason: Option<String>,
    },
    /// A link replies again.
    Up {
        /// Name of the watch.
        name: String,
    },
    /// An alarm begins or ends.
    Alarm {
        /// Name of the watch.
        name: String,
        /// The rule, as written.
        rule: String,
        /// Change of the alarm.
        transition: Transition,
        /// The run that holds the last minute before the alarm, if it was saved.
        run: Option<String>,
    },
    /// The median of a link has a new level.
    LevelShift {
        /// Name of the watch.
        name: String,
        /// Both levels, and the begin of the new one.
        shift: LevelShift,
    },
    /// A link was explained after an alarm began.
    Explained {
        /// Name of the watch.
        name: String,
        /// Explanation that was found.
        explanation: AlarmExplanation,
    },
    /// An action could not be performed.
    ActionFailed {
        /// Action that failed, and the reason.
        reason: String,
    },
    /// The normal p99 of a link is known.
    Learnt {
        /// Name of the watch.
        name: String,
        /// 99th percentile in ns.
        p99_ns: u64,
    },
    /// The clocks of this machine jumped.
    Clock {
        /// Change of the clocks.
        change: ClockChange,
    },
    /// A test ended.
    Tested {
        /// Name of the watch.
        name: String,
        /// The id of its run.
        run: String,
        /// Reason why it is incomplete, if it is.
        failure: Option<String>,
    },
    /// The store cannot be written. Windows wait in memory.
    NotStored {
        /// Reason why the store cannot be written.
        reason: String,
    },
    /// The store can be written again.
    StoredAgain,
    /// The receiver of the metrics did not take them. They wait in memory, unless it refused them.
    NotPushed {
        /// Reason why the receiver did not take them.
        reason: String,
    },
    /// The receiver takes metrics again.
    PushedAgain {
        /// Points that it did not get.
        dropped_points: u64,
    },
}

impl MonitorEvent {
    /// The watch that it is about, and the id of the run that it names.
    pub fn subject(&self) -> (Option<&str>, Option<&str>) {
        match self {
            MonitorEvent::Alarm { name, run, .. } => (Some(name), run.as_deref()),
            MonitorEvent::Tested { name, run, .. } => (Some(name), Some(run)),
            MonitorEvent::Down { name, .. }
            | MonitorEvent::Up { name }
            | MonitorEvent::Learnt { name, .. }
            | MonitorEvent::LevelShift { name, .. }
            | MonitorEvent::Explained { name, .. } => (Some(name), None),
            _ => (None, None),
        }
    }
}

/// Receives the events of a monitor.
pub trait MonitorObserver: Sync {
    /// The monitor waits until it returns.
    fn event(&self, at: Timestamp, event: &MonitorEvent);
}

/// The state of one watched link.
#[derive(Debug, Clone)]
pub struct WatchState {
    /// Name of the watch.
    pub name: String,
    /// The endpoint, as typed.
    pub endpoint: String,
    /// Protocol of the remote, `auto` until it is known.
    pub protocol: String,
    /// The workload.
    pub workload: String,
    /// Whether the last probes had a reply. `None`: nothing was measured yet.
    pub is_up: Option<bool>,
    /// All probes since the start.
    pub total: Window,
    /// The probes of the last two minutes, slice by slice, oldest first, with the second at which each begins.
    pub recent: VecDeque<(i64, Window)>,
    /// Probes since the start that this host could not send in time.
    pub missed_sends: u64,
    /// Whether it is tested at intervals, in the place of continuous probes.
    pub(crate) is_tested: bool,
    /// The rates of the last tests, oldest first, in bit/s; `None`: the test failed.
    pub(crate) rates: VecDeque<Option<f64>>,
    /// The last result of a test.
    pub(crate) last_test: Option<Box<CaseResult>>,
    /// Reason why the link is down, if it could not be opened.
    pub failure: Option<String>,
    /// The alarms.
    pub(crate) alerts: Vec<Alert>,
    /// State of its outages, as the actions know it.
    pub(crate) outage: Condition,
    /// The thresholds that the last test missed.
    pub(crate) missed: Condition,
    /// The last change of the level of the median, since the start.
    pub(crate) last_shift: Option<LevelShift>,
    /// Time and explanation of the last alarm since the start.
    pub explanation: Option<(Timestamp, AlarmExplanation)>,
    level: LevelWatch,
    lost_in_row: u32,
    /// Probes of the slice that is measured now whose results are known already.
    known_probes: usize,
    black_box: BlackBox,
}

/// Rates of tests that are kept for the small chart of a link.
const MAX_RATES: usize = 60;

/// All probes show what is normal when they are this many times those of the last two minutes.
const MIN_NORMAL: u64 = 5;

/// Slices of two minutes: the last minute, and that before it, which may still be drawn.
const RECENT_SLICES: usize = 12;

impl WatchState {
    /// The state of a link before anything was measured.
    pub fn new(watch: &Watch) -> WatchState {
        let alerts = match watch.schedule {
            WatchSchedule::Continuous { per_second } => {
                watch.rules.iter().filter_map(|rule| Alert::new(rule.clone(), per_second)).collect()
            }
            WatchSchedule::Every(_) => Vec::new(),
        };
        WatchState {
            name: watch.name.clone(),
            endpoint: watch.endpoint().as_str().to_owned(),
            protocol: watch.case.protocol.clone(),
            workload: watch.case.workload.clone(),
            is_up: None,
            total: Window::default(),
            recent: VecDeque::new(),
            missed_sends: 0,
            is_tested: matches!(watch.schedule, WatchSchedule::Every(_)),
            rates: VecDeque::new(),
            last_test: None,
            failure: None,
            alerts,
            outage: Condition::default(),
            missed: Condition::default(),
            last_shift: None,
            explanation: None,
            level: LevelWatch::default(),
            lost_in_row: 0,
            known_probes: 0,
            black_box: BlackBox::default(),
        }
    }

    /// Whether it needs attention. An outage outranks everything.
    pub fn health(&self) -> LinkHealth {
        let has_alarm = self.alerts.iter().any(Alert::is_raised) || self.missed.is_on();
        match self.is_up {
            Some(false) => LinkHealth::Down,
            _ if has_alarm => LinkHealth::Alarm,
            Some(true) => LinkHealth::Up,
            None => LinkHealth::Unknown,
        }
    }

    /// The probes of the last minutes.
    pub fn last_minutes(&self, minutes: u32) -> Window {
        let Some((last, _)) = self.recent.back() else { return Window::default() };
        let from = last - i64::from(minutes) * 60;
        let mut merged = Window::default();
        let recent = self.recent.iter().filter(|(second, _)| *second > from);
        recent.for_each(|(_, window)| merged.merge(window));
        merged
    }

    /// All probes since the start, once those of the last two minutes are few of them.
    pub(super) fn normal(&self) -> Option<&Window> {
        let recent: u64 = self.recent.iter().map(|(_, window)| window.counts.due).sum();
        (self.total.counts.due >= MIN_NORMAL * recent && recent > 0).then_some(&self.total)
    }

    fn remember(&mut self, second: i64, window: &Window, run: &Run) {
        self.total.merge(window);
        self.protocol_of(run);
        let counts = run.cases.iter().map(|case| case.figures.counts);
        self.missed_sends += counts.map(|counts| counts.late_sends + counts.missed_sends).sum::<u64>();
        if self.recent.len() == RECENT_SLICES {
            self.recent.pop_front();
        }
        self.recent.push_back((second, window.clone()));
    }

    fn protocol_of(&mut self, run: &Run) {
        if let Some(case) = run.cases.first().filter(|case| case.figures.has_measurements()) {
            self.protocol.clone_from(&case.protocol);
        }
    }

    /// Counts a probe; true if the link went down or up.
    fn changes_state(&mut self, has_reply: bool) -> bool {
        self.lost_in_row = if has_reply { 0 } else { self.lost_in_row + 1 };
        let is_up = match self.lost_in_row {
            0 => true,
            lost if lost >= DOWN_AFTER_LOST => false,
            _ => return false,
        };
        self.set_state(is_up)
    }

    /// Sets the state; returns whether it is new. At the start, an outage is new, or the end of one from before a restart.
    fn set_state(&mut self, is_up: bool) -> bool {
        let was_up = self.is_up.replace(is_up);
        was_up.map_or(!is_up || self.outage.is_on(), |was_up| was_up != is_up)
    }
}

/// The ledger of a monitor.
pub struct Ledger<'a> {
    states: Vec<WatchState>,
    store: Option<Store>,
    series: Vec<SeriesNumber>,
    /// The link of the gateway of each link that is behind one.
    gateways: Vec<Option<usize>>,
    pending: BTreeMap<(i64, usize), Window>,
    max_store_bytes: Option<u64>,
    /// The hour in which old windows were removed last.
    removed_in: i64,
    /// New levels, for the actions.
    shifts: Vec<Notice>,
    repeat: Option<Duration>,
    /// The facts of this machine, for the runs around an alarm.
    environment: Map<String, Value>,
    status: Arc<MonitorStatus>,
    packer: DocumentCompressor,
    observer: &'a dyn MonitorObserver,
}

impl<'a> Ledger<'a> {
    /// A ledger of these links. States of links of the same name go on, as after a changed file.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    pub fn new(
        config: &Config,
        earlier: Vec<WatchState>,
        mut store: Option<Store>,
        observer: &'a dyn MonitorObserver,
    ) -> Result<Ledger<'a>, StoreError> {
        let mut series = Vec::new();
        let mut states: Vec<WatchState> = Vec::new();
        for watch in &config.watches {
            let mut state = WatchState::new(watch);
            if let Some(store) = &mut store {
                let number = store.series(&watch.name, &state.endpoint)?;
                resume::from_store(&mut state, store, number)?;
                series.push(number);
            }
            if let Some(same) = earlier.iter().find(|same| same.name == state.name) {
                let alerts = std::mem::take(&mut state.alerts);
                let kept = |alert: Alert| {
                    same.alerts.iter().find(|other| other.rule == alert.rule).cloned().unwrap_or(alert)
                };
                let alerts = alerts.into_iter().map(kept).collect();
                state = if (&same.endpoint, &same.workload) == (&state.endpoint, &state.workload) {
                    WatchState { alerts, ..same.clone() }
                } else {
                    let (outage, missed) = (same.outage.clone(), same.missed.clone());
                    WatchState { alerts, outage, missed, ..state }
                };
            }
            states.push(state);
        }
        let (pending, shifts) = (BTreeMap::new(), Vec::new());
        let max_store_bytes = config.max_store_bytes;
        let removed_in = i64::MIN;
        Ok(Ledger {
            states,
            store,
            series,
            gateways: (0..config.watches.len()).map(|watch| gateway_of(&config.watches, watch)).collect(),
            pending,
            max_store_bytes,
            removed_in,
            shifts,
            repeat: config.repeat,
            environment: Map::new(),
            status: Arc::default(),
            packer: DocumentCompressor::new(),
            observer,
        })
    }

    /// The facts of this machine, for the runs around an alarm.
    pub(crate) fn with_environment(self, environment: Map<String, Value>) -> Ledger<'a> {
        Ledger { environment, ..self }
    }

    /// The state of the monitor itself, in which it says whether the store can be written.
    pub(crate) fn with_status(self, status: Arc<MonitorStatus>) -> Ledger<'a> {
        if self.store.is_some() {
            status.set_store_writable(true);
        }
        Ledger { status, ..self }
    }

    /// The state of each link, in the order of the configuration.
    pub(crate) fn states(&self) -> &[WatchState] {
        &self.states
    }

    /// The state of the monitor itself.
    pub(crate) fn status(&self) -> &MonitorStatus {
        &self.status
    }

    /// The states, when the monitor ends.
    pub(crate) fn into_states(self) -> Vec<WatchState> {
        self.states
    }

    /// Takes the causes that were found after an alarm.
    pub(crate) fn record_explanation(&mut self, watch: usize, at: Timestamp, explanation: AlarmExplanation) {
        let names: Vec<&str> = explanation.causes.iter().map(|cause| cause.id).collect();
        if !names.is_empty() {
            self.note(watch, at, "explained", &names.join(", "));
        }
        let state = &mut self.states[watch];
        state.explanation = Some((at, explanation.clone()));
        let name = state.name.clone();
        self.tell(at, MonitorEvent::Explained { name, explanation });
    }

    /// Takes the results of probes of a slice that is measured now; true if the state of the link is a new one.
    pub(crate) fn record_probes(&mut self, watch: usize, at: Timestamp, probes: &[ProbeResult]) -> bool {
        let before = self.states[watch].is_up;
        for probe in probes {
            let state = &mut self.states[watch];
            state.known_probes += 1;
            if *probe != ProbeResult::Overtaken && state.changes_state(*probe == ProbeResult::Replied) {
                // Why an earlier slice failed says nothing about this probe.
                state.failure = None;
                self.change_state(watch, at, None);
            }
        }
        self.states[watch].is_up != before
    }

    /// Takes a slice of a link.
    pub fn record_slice(&mut self, watch: usize, slice: Slice) {
        let at = slice.ended;
        let second = slice.began.second();
        if let Some(change) = slice.clock_change {
            self.tell(at, MonitorEvent::Clock { change });
            self.note(watch, at, "clock", &describe_clock_change(change));
        }
        let state = &mut self.states[watch];
        state.failure = slice.failure;
        // A timeout says no more than that there are no replies.
        let mut failures = slice.run.cases.iter().flat_map(|case| &case.failures);
        let is_timeout = failures.next().is_some_and(|first| first.kind == FailureKind::TimedOut);
        let reason = state.failure.clone().filter(|_| !is_timeout);
        state.remember(second, &slice.window, &slice.run);
        state.black_box.push(&slice.run, &mut self.packer);
        let mut transitions = Vec::new();
        let mut has_changed = false;
        let known = std::mem::take(&mut state.known_probes);
        for (number, probe) in slice.probes.iter().enumerate() {
            has_changed |= number >= known && state.changes_state(probe.is_some());
            for (index, alert) in state.alerts.iter_mut().enumerate() {
                transitions.extend(alert.record(*probe).map(|transition| (index, transition)));
            }
        }
        if has_changed {
            self.change_state(watch, at, None);
        } else if let Some(reason) = reason {
            self.explain_outage(watch, at, &reason);
        }
        self.learn(watch, at);
        for (index, transition) in transitions {
            self.raise(watch, at, index, transition);
        }
        self.watch_level(watch, at, (second, &slice.window));
        self.pending.entry((second, watch)).or_default().merge(&slice.window);
    }

    /// Reports an event.
    pub(super) fn tell(&self, at: Timestamp, event: MonitorEvent) {
        self.observer.event(at, &event);
    }

    fn learn(&mut self, watch: usize, at: Timestamp) {
        let state = &mut self.states[watch];
        let mut learnt = None;
        for alert in &mut state.alerts {
            if alert.learn(&state.total) {
                learnt = alert.limit_ns();
            }
        }
        if let Some(p99_ns) = learnt {
            let name = state.name.clone();
            self.note(watch, at, resume::LEARNT, &p99_ns.to_string());
            self.tell(at, MonitorEvent::Learnt { name, p99_ns });
        }
    }

    /// Finds a new level of the median, in the probes of a slice and its second.
    fn watch_level(&mut self, watch: usize, at: Timestamp, (second, probes): (i64, &Window)) {
        let state = &mut self.states[watch];
        let Some(shift) = state.level.record(second, probes) else { return };
        state.last_shift = Some(shift);
        let name = state.name.clone();
        self.note(
            watch,
            shift.since,
            resume::LEVEL,
            &format!("{:.0} {:.0}", shift.before_ns, shift.after_ns),
        );
        let notice = Notice { level: Some(shift), ..self.notice(watch, at, NoticeKind::LevelShift) };
        self.shifts.push(notice);
        self.tell(at, MonitorEvent::LevelShift { name, shift });
    }

    /// Saves the last minute as a run, and returns its id.
    fn save_black_box(&mut self, watch: usize, rule: &str) -> Option<String> {
        let state = &self.states[watch];
        let mut run = state.black_box.run()?;
        run.title = Some(format!("{} before the alarm: {rule}", state.name));
        run.warnings.extend(host_warnings(&self.environment));
        run.environment.client = self.environment.clone();
        let tags = [tag(&state.name), "alarm".to_owned()];
        let store = self.store.as_mut()?;
        match store.save(&run) {
            // Another alarm of the same slice saved it before.
            Ok(_) | Err(StoreError::ConflictingRun(_)) => store.tag(&run.id, &tags).ok()?,
            Err(_) => return None,
        }
        Some(run.id)
    }

    fn note(&mut self, watch: usize, at: Timestamp, kind: &str, text: &str) {
        let incident = Incident { at, kind: kind.to_owned(), text: text.to_owned() };
        if let (Some(store), Some(series)) = (&mut self.store, self.series.get(watch)) {
            // A full disk is reported when windows are written.
            let _ = store.add_incident(*series, &incident);
        }
    }

    /// Takes the run of a test.
    pub(crate) fn record_test(&mut self, watch: usize, run: Run) {
        let state = &mut self.states[watch];
        state.protocol_of(&run);
        let case = run.cases.first();
        let failure = case.and_then(|case| case.failures.first()).map(|failure| failure.message.clone());
        let has_changed = !run.interrupted && state.set_state(failure.is_none());
        state.failure = failure.clone();
        state.last_test = case.filter(|case| case.figures.has_measurements()).cloned().map(Box::new);
        if state.rates.len() == MAX_RATES {
            state.rates.pop_front();
        }
        state.rates.push_back(state.last_test.as_ref().and_then(|test| test.figures.delivery.throughput_bps));
        let name = state.name.clone();
        let saved = self.store.as_mut().map(|store| {
            store
                .save(&run)
                .and_then(|_| store.tag(&run.id, &[tag(&name)]))
                .map_err(|error| error.to_string())
        });
        if let Some(Err(reason)) = saved {
            self.status.set_store_writable(false);
            self.tell(run.started, MonitorEvent::NotStored { reason });
        }
        self.tell(run.started, MonitorEvent::Tested { name, run: run.id.clone(), failure });
        if has_changed {
            self.change_state(watch, run.started, Some(run.id.clone()));
        }
        self.judge_test(watch, &run);
    }

    /// Writes the windows to the store, and removes old ones. Windows that cannot be written wait for the next time. Without links, as with
    /// probes on request alone, a store need not even have tables for them.
    pub fn flush(&mut self, now: Timestamp) {
        let Some(store) = self.store.as_mut().filter(|_| !self.states.is_empty()) else {
            self.pending.clear();
            return;
        };
        let series = &self.series;
        let windows = self.pending.iter().map(|((second, watch), window)| (series[*watch], *second, window));
        let mut written = store.add_windows(windows).map(|()| self.pending.clear());
        let hour = TIERS[2].start(now.as_second());
        if written.is_ok() && self.removed_in != hour {
            written = remove_windows(store, now.as_second(), self.max_store_bytes);
            self.removed_in = hour;
        }
        match written {
            Ok(()) => {
                if self.status.set_store_writable(true) == Some(false) {
                    self.tell(now, MonitorEvent::StoredAgain);
                }
            }
            Err(error) => {
                self.merge_pending_to_minutes();
                if self.status.set_store_writable(false) != Some(false) {
                    self.tell(now, MonitorEvent::NotStored { reason: error.to_string() });
                }
            }
        }
    }

    /// A store that cannot be written for long must not fill the memory.
    fn merge_pending_to_minutes(&mut self) {
        for ((second, watch), window) in std::mem::take(&mut self.pending) {
            self.pending.entry((TIERS[0].start(second), watch)).or_default().merge(&window);
        }
        while self.pending.len() > MAX_PENDING * self.states.len() {
            self.pending.pop_first();
        }
    }
}

/// Removes windows by their age, and by the size of the store.
fn remove_windows(store: &mut Store, now: i64, max_bytes: Option<u64>) -> Result<(), StoreError> {
    store.remove_old_windows(now)?;
    if let Some(max_bytes) = max_bytes {
        store.limit_windows(now, max_bytes)?;
    }
    Ok(())
}

/// The name of a watch as a tag: without spaces and other characters that a shell would interpret.
pub fn tag(name: &str) -> String {
    let fits = |c: char| c.is_alphanumeric() || "-_.+@/".contains(c);
    name.chars().map(|c| if fits(c) { c } else { '_' }).take(100).collect()
}

/// Describes what happened to the clocks, for people.
pub fn describe_clock_change(change: ClockChange) -> String {
    match change {
        ClockChange::Suspended(time) => format!("this machine was suspended for {}", format_duration(time)),
        ClockChange::Set(by) => {
            let direction = if by.is_negative() { "back" } else { "forward" };
            format!("the clock of this machine was set {direction} by {}", format_duration(by.unsigned_abs()))
        }
    }
}

#[cfg(test)]
mod tests;
