//! What a monitor knows: the state of each link, its alarms, and the windows that the store does not have yet.
//!
//! It is given slices and tests, in any order of links; it has no thread and no clock.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::alert::{Alert, Transition};
use super::calendar::ClockChange;
use super::config::{Config, Watch, WatchSchedule};
use super::watcher::Slice;
use crate::run::{CaseResult, Run};
use crate::sample::Window;
use crate::store::{Incident, SeriesNumber, Store, StoreError, TIERS};
use crate::units::format_duration;

/// Slices that a black box holds: a minute before an alarm.
const BLACK_BOX_SLICES: usize = 6;

/// A link is down after this many lost probes in a row.
const DOWN_AFTER_LOST: u32 = 3;

/// Windows kept for a store that cannot be written: a day of one link. The oldest are dropped then.
const MAX_PENDING: usize = 1440;

/// Events of a monitor, for its log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MonitorEvent {
    /// A link does not reply any more: the last three probes were lost.
    Down {
        /// Name of the watch.
        name: String,
        /// Why the link could not be opened, if it could not.
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
        /// What happened.
        transition: Transition,
        /// The run that holds the last minute before the alarm, if it was saved.
        run: Option<String>,
    },
    /// The normal p99 of a link is known.
    Learnt {
        /// Name of the watch.
        name: String,
        /// It, in ns.
        p99_ns: u64,
    },
    /// The clocks of this machine jumped.
    Clock {
        /// What happened.
        change: ClockChange,
    },
    /// A test ended.
    Tested {
        /// Name of the watch.
        name: String,
        /// The id of its run.
        run: String,
        /// Why it is incomplete, if it is.
        failure: Option<String>,
    },
    /// The store cannot be written. Windows wait in memory.
    NotStored {
        /// Why.
        reason: String,
    },
    /// The store can be written again.
    StoredAgain,
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
    /// Its endpoint, as typed.
    pub endpoint: String,
    /// What the remote speaks, `auto` until it is known.
    pub protocol: String,
    /// The workload.
    pub workload: String,
    /// Whether the last probes had a reply. `None`: nothing was measured yet.
    pub is_up: Option<bool>,
    /// All probes since the start.
    pub total: Window,
    /// The probes of the current hour of slices, oldest first, with the second at which each begins.
    pub recent: VecDeque<(i64, Window)>,
    /// The last result of a test.
    pub last_test: Option<CaseResult>,
    /// Why the link is down, if it could not be opened.
    pub failure: Option<String>,
    /// The alarms.
    pub alerts: Vec<Alert>,
    lost_in_row: u32,
    black_box: VecDeque<Run>,
}

/// Slices of an hour.
const RECENT_SLICES: usize = 360;

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
            last_test: None,
            failure: None,
            alerts,
            lost_in_row: 0,
            black_box: VecDeque::new(),
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

    fn remember(&mut self, second: i64, window: &Window, run: Run) {
        self.total.merge(window);
        self.protocol_of(&run);
        if self.recent.len() == RECENT_SLICES {
            self.recent.pop_front();
        }
        self.recent.push_back((second, window.clone()));
        if self.black_box.len() == BLACK_BOX_SLICES {
            self.black_box.pop_front();
        }
        self.black_box.push_back(run);
    }

    fn protocol_of(&mut self, run: &Run) {
        if let Some(case) = run.cases.first().filter(|case| case.figures.has_measurements()) {
            self.protocol.clone_from(&case.protocol);
        }
    }

    /// Counts a probe; true if the link went down or up.
    fn changes_state(&mut self, reply_ns: Option<u64>) -> bool {
        self.lost_in_row = if reply_ns.is_some() { 0 } else { self.lost_in_row + 1 };
        let is_up = match self.lost_in_row {
            0 => true,
            lost if lost >= DOWN_AFTER_LOST => false,
            _ => return false,
        };
        let before = self.is_up.replace(is_up);
        before.is_some_and(|before| before != is_up) || before.is_none() && !is_up
    }
}

/// The ledger of a monitor.
pub struct Ledger<'a> {
    states: Vec<WatchState>,
    store: Option<Store>,
    series: Vec<SeriesNumber>,
    pending: BTreeMap<(i64, usize), Window>,
    is_stored: bool,
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
                learn_from_store(&mut state, store, number)?;
                series.push(number);
            }
            if let Some(same) = earlier.iter().find(|same| same.name == state.name) {
                let alerts = std::mem::take(&mut state.alerts);
                let kept = |alert: Alert| {
                    same.alerts.iter().find(|other| other.rule == alert.rule).cloned().unwrap_or(alert)
                };
                state = WatchState { alerts: alerts.into_iter().map(kept).collect(), ..same.clone() };
            }
            states.push(state);
        }
        Ok(Ledger { states, store, series, pending: BTreeMap::new(), is_stored: true, observer })
    }

    /// The state of each link, in the order of the configuration.
    pub fn states(&self) -> &[WatchState] {
        &self.states
    }

    /// The states, when the monitor ends.
    pub fn into_states(self) -> Vec<WatchState> {
        self.states
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
        state.remember(second, &slice.window, slice.run);
        let mut transitions = Vec::new();
        let mut has_changed = false;
        for probe in &slice.probes {
            has_changed |= state.changes_state(*probe);
            for (index, alert) in state.alerts.iter_mut().enumerate() {
                transitions.extend(alert.record(*probe).map(|transition| (index, transition)));
            }
        }
        if has_changed {
            self.tell_state(watch, at);
        }
        self.learn(watch, at);
        for (index, transition) in transitions {
            self.raise(watch, at, index, transition);
        }
        self.pending.entry((second, watch)).or_default().merge(&slice.window);
    }

    fn tell(&self, at: Timestamp, event: MonitorEvent) {
        self.observer.event(at, &event);
    }

    fn tell_state(&self, watch: usize, at: Timestamp) {
        let state = &self.states[watch];
        let name = state.name.clone();
        match state.is_up {
            Some(false) => self.tell(at, MonitorEvent::Down { name, reason: state.failure.clone() }),
            _ => self.tell(at, MonitorEvent::Up { name }),
        }
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
            self.note(watch, at, LEARNT, &p99_ns.to_string());
            self.tell(at, MonitorEvent::Learnt { name, p99_ns });
        }
    }

    fn raise(&mut self, watch: usize, at: Timestamp, index: usize, transition: Transition) {
        let state = &self.states[watch];
        let (name, rule) = (state.name.clone(), state.alerts[index].rule.text.clone());
        let run = match transition {
            Transition::Raised => self.save_black_box(watch, &rule),
            Transition::Cleared => None,
        };
        let kind = match transition {
            Transition::Raised => "alarm",
            Transition::Cleared => "clear",
        };
        self.note(watch, at, kind, &rule);
        self.tell(at, MonitorEvent::Alarm { name, rule, transition, run });
    }

    /// Saves the last minute as a run, and returns its id.
    fn save_black_box(&mut self, watch: usize, rule: &str) -> Option<String> {
        let state = &self.states[watch];
        let cases = state.black_box.iter().flat_map(|run| run.cases.iter().cloned()).collect();
        let title = Some(format!("{} before the alarm: {rule}", state.name));
        let run = Run { cases, title, ..state.black_box.back()?.clone() };
        let tags = [tag(&state.name), "alarm".to_owned()];
        let store = self.store.as_mut()?;
        store.save(&run).and_then(|_| store.tag(&run.id, &tags)).ok()?;
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
    pub fn record_test(&mut self, watch: usize, run: Run) {
        let state = &mut self.states[watch];
        state.protocol_of(&run);
        let case = run.cases.first();
        let failure = case.and_then(|case| case.failures.first()).map(|failure| failure.message.clone());
        state.is_up = Some(failure.is_none());
        state.failure = failure.clone();
        state.last_test = case.filter(|case| case.figures.has_measurements()).cloned();
        let name = state.name.clone();
        let saved = self.store.as_mut().map(|store| {
            store
                .save(&run)
                .and_then(|_| store.tag(&run.id, &[tag(&name)]))
                .map_err(|error| error.to_string())
        });
        if let Some(Err(reason)) = saved {
            self.tell(run.started, MonitorEvent::NotStored { reason });
        }
        self.tell(run.started, MonitorEvent::Tested { name, run: run.id.clone(), failure });
    }

    /// Writes the windows to the store, and removes old ones. Windows that cannot be written wait for the next time.
    pub fn flush(&mut self, now: Timestamp) {
        let Some(store) = &mut self.store else {
            self.pending.clear();
            return;
        };
        let series = &self.series;
        let windows = self.pending.iter().map(|((second, watch), window)| (series[*watch], *second, window));
        let written = store.add_windows(windows).and_then(|()| store.remove_old_windows(now.as_second()));
        match written {
            Ok(_) => {
                self.pending.clear();
                if !std::mem::replace(&mut self.is_stored, true) {
                    self.tell(now, MonitorEvent::StoredAgain);
                }
            }
            Err(error) => {
                self.merge_pending_to_minutes();
                if std::mem::replace(&mut self.is_stored, false) {
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

/// The kind of the incident that holds the learnt p99 in ns.
const LEARNT: &str = "learnt";

/// The limit of slow replies stays the one that was learnt at first.
fn learn_from_store(state: &mut WatchState, store: &Store, series: SeriesNumber) -> Result<(), StoreError> {
    let learnt = store.latest_incident(series, LEARNT)?.and_then(|incident| incident.text.parse().ok());
    if let Some(limit_ns) = learnt {
        state.alerts.iter_mut().for_each(|alert| alert.set_learnt(limit_ns));
    }
    Ok(())
}

/// The name of a watch as a tag: without spaces and other characters that a shell would interpret.
pub fn tag(name: &str) -> String {
    let fits = |c: char| c.is_alphanumeric() || "-_.+@/".contains(c);
    name.chars().map(|c| if fits(c) { c } else { '_' }).take(100).collect()
}

/// What happened to the clocks, for people.
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
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::clock::Clock;
    use crate::link::Dialer;
    use crate::monitor::{Calendar, SLICE};
    use crate::sample::WindowCounts;
    use crate::schedule::{RunContext, run};

    #[derive(Default)]
    struct Events(Mutex<Vec<MonitorEvent>>);

    impl MonitorObserver for Events {
        fn event(&self, _at: Timestamp, event: &MonitorEvent) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    impl Events {
        fn take(&self) -> Vec<MonitorEvent> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn config() -> Config {
        let text = r#"
            [[watch]]
            name = "link"
            url = "mem://server"
            protocol = "echo"
            alert = ["loss > 5 %", "late p99 > 10 %"]
        "#;
        Config::from_toml(text).unwrap()
    }

    /// A slice that begins at a second, with these probes; its run has no figures.
    fn slice(config: &Config, second: i64, probes: Vec<Option<u64>>) -> Slice {
        let clock = Clock::new_virtual();
        let calendar = Calendar::new(clock.clone(), Timestamp::from_second(second).unwrap());
        let watch = &config.watches[0];
        let plan = super::super::config::checked_plan(watch, watch.case.clone()).unwrap();
        let lost = probes.iter().filter(|probe| probe.is_none()).count() as u64;
        let due = probes.len() as u64;
        let mut window =
            Window::new(WindowCounts { measured_ms: 10_000, due, lost, ..WindowCounts::default() });
        probes.iter().flatten().for_each(|time| window.record(*time));
        let began = calendar.now();
        let run = run(&plan, &mut RunContext::new(Dialer::new(clock), &()));
        let ended = began.wall + SLICE;
        Slice { began, ended, window, probes, failure: None, clock_change: None, run }
    }

    fn replies(count: usize) -> Vec<Option<u64>> {
        (0..count).map(|n| Some(1_000_000 + n as u64 * 1_000)).collect()
    }

    #[test]
    fn an_outage_is_an_alarm_with_the_minute_before_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("runs.sqlite");
        let (config, events) = (config(), Events::default());
        let mut ledger =
            Ledger::new(&config, Vec::new(), Some(Store::open(&path).unwrap()), &events).unwrap();
        for step in 0..12 {
            ledger.record_slice(0, slice(&config, step * 10, replies(100)));
        }
        assert_eq!(events.take(), []);
        ledger.record_slice(0, slice(&config, 120, vec![None; 100]));
        let logged = events.take();
        let name = "link".to_owned();
        assert_eq!(logged[0], MonitorEvent::Down { name: name.clone(), reason: None });
        let MonitorEvent::Alarm { run: Some(run), transition: Transition::Raised, .. } = &logged[1] else {
            panic!("{logged:?}")
        };
        assert_eq!(logged.len(), 2, "the p99 is not learnt yet: {logged:?}");
        for step in 13..22 {
            ledger.record_slice(0, slice(&config, step * 10, replies(100)));
        }
        let logged = events.take();
        assert_eq!(logged[0], MonitorEvent::Up { name });
        assert!(
            matches!(logged[1], MonitorEvent::Alarm { transition: Transition::Cleared, .. }),
            "{logged:?}"
        );
        ledger.flush(Timestamp::from_second(220).unwrap());
        drop(ledger);
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.load(run).unwrap().cases.len(), BLACK_BOX_SLICES);
        let series = store.series("link", "mem://server").unwrap();
        let minutes = store.windows(series, TIERS[0], 0, 1000).unwrap();
        let lost: Vec<u64> = minutes.iter().map(|minute| minute.window.counts.lost).collect();
        assert_eq!(lost, [0, 0, 100, 0]);
        let kinds: Vec<String> =
            store.incidents(series, 9).unwrap().into_iter().map(|incident| incident.kind).collect();
        assert_eq!(kinds, ["clear", "alarm"]);
    }

    #[test]
    fn a_learnt_limit_survives_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("runs.sqlite");
        let (config, events) = (config(), Events::default());
        let open = || Some(Store::open(&path).unwrap());
        let mut ledger = Ledger::new(&config, Vec::new(), open(), &events).unwrap();
        ledger.record_slice(0, slice(&config, 0, replies(4000)));
        assert!(matches!(events.take()[..], [MonitorEvent::Learnt { .. }]));
        let learnt = ledger.states()[0].alerts[1].limit_ns();
        assert!(learnt.is_some());
        drop(ledger);
        let ledger = Ledger::new(&config, Vec::new(), open(), &events).unwrap();
        assert_eq!(ledger.states()[0].alerts[1].limit_ns(), learnt);
    }

    #[test]
    fn a_store_that_cannot_be_written_loses_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("runs.sqlite");
        let (config, events) = (config(), Events::default());
        let mut ledger =
            Ledger::new(&config, Vec::new(), Some(Store::open(&path).unwrap()), &events).unwrap();
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("ALTER TABLE window RENAME TO hidden").unwrap();
        for step in 0..12 {
            ledger.record_slice(0, slice(&config, step * 10, replies(100)));
            ledger.flush(Timestamp::from_second(step * 10).unwrap());
        }
        assert!(matches!(events.take()[..], [MonitorEvent::NotStored { .. }]), "logged once");
        other.execute_batch("ALTER TABLE hidden RENAME TO window").unwrap();
        ledger.flush(Timestamp::from_second(120).unwrap());
        assert_eq!(events.take(), [MonitorEvent::StoredAgain]);
        drop(ledger);
        let mut store = Store::open(&path).unwrap();
        let series = store.series("link", "mem://server").unwrap();
        let minutes = store.windows(series, TIERS[0], 0, 1000).unwrap();
        assert_eq!(minutes.iter().map(|minute| minute.window.counts.due).collect::<Vec<_>>(), [600, 600]);
    }
}
