//! The ledger with slices made by hand, and stores on temporary files.

use std::sync::Mutex;

use super::*;
use crate::monitor::live_probes::ProbeResult::{Lost, Overtaken, Replied};
use crate::monitor::{Calendar, SLICE};
use linkgauge_engine::link::Dialer;
use linkgauge_engine::schedule::{RunContext, run};
use linkgauge_model::clock::Clock;
use linkgauge_model::sample::WindowCounts;

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
    let mut window = Window::new(WindowCounts { measured_ms: 10_000, due, lost, ..WindowCounts::default() });
    probes.iter().flatten().for_each(|time| window.record(*time));
    let began = calendar.now();
    let run = run(&plan, &mut RunContext::new(Dialer::new(clock), &()));
    let ended = began.wall + SLICE;
    let replies = Default::default();
    Slice { began, ended, window, probes, failure: None, clock_change: None, run, replies }
}

fn replies(count: usize) -> Vec<Option<u64>> {
    (0..count).map(|n| Some(1_000_000 + n as u64 * 1_000)).collect()
}

#[test]
fn an_outage_is_an_alarm_with_the_minute_before_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("runs.sqlite");
    let (config, events) = (config(), Events::default());
    let mut ledger = Ledger::new(&config, Vec::new(), Some(Store::open(&path).unwrap()), &events).unwrap();
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
    let [alarm] = &ledger.take_notices()[..] else { panic!("one notice") };
    assert_eq!((alarm.event, alarm.run.as_ref()), (NoticeKind::Alarm, Some(run)));
    assert_eq!((alarm.last_minute.probes, alarm.last_minute.lost), (600, 100));
    assert_eq!(alarm.last_minute.p99_ns, Some(f64::INFINITY));
    for step in 13..22 {
        ledger.record_slice(0, slice(&config, step * 10, replies(100)));
    }
    assert_eq!(ledger.take_notices()[0].event, NoticeKind::Resolved);
    let logged = events.take();
    assert_eq!(logged[0], MonitorEvent::Up { name });
    assert!(matches!(logged[1], MonitorEvent::Alarm { transition: Transition::Cleared, .. }), "{logged:?}");
    ledger.flush(Timestamp::from_second(220).unwrap());
    drop(ledger);
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.load(run).unwrap().cases.len(), 6);
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
    let mut ledger = Ledger::new(&config, Vec::new(), Some(Store::open(&path).unwrap()), &events).unwrap();
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

#[test]
fn an_alarm_ends_also_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("runs.sqlite");
    let (config, events) = (config(), Events::default());
    let open = || Some(Store::open(&path).unwrap());
    let mut ledger = Ledger::new(&config, Vec::new(), open(), &events).unwrap();
    ledger.record_slice(0, slice(&config, 0, vec![None; 100]));
    drop(ledger);
    for (begin, ends) in [(10, 1), (200, 0)] {
        let mut ledger = Ledger::new(&config, Vec::new(), open(), &events).unwrap();
        assert_eq!(ledger.states()[0].alerts[0].is_raised(), ends == 1);
        for step in 0..8 {
            ledger.record_slice(0, slice(&config, begin + step * 10, replies(100)));
        }
        let resolved = ledger.take_notices();
        assert_eq!(resolved.iter().filter(|notice| notice.event == NoticeKind::Resolved).count(), ends);
        assert_eq!(resolved.len(), ends);
    }
}

#[test]
fn a_level_shift_is_found_with_the_windows_before_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("runs.sqlite");
    let (config, events) = (config(), Events::default());
    let open = || Some(Store::open(&path).unwrap());
    let level = |ns: u64| (0..100).map(|n| Some(ns + n * ns / 1000)).collect::<Vec<_>>();
    let hours = |from: i64, to: i64, ns: u64| {
        let mut ledger = Ledger::new(&config, Vec::new(), open(), &events).unwrap();
        for second in (from * 3600..to * 3600).step_by(300) {
            ledger.record_slice(0, slice(&config, second, level(ns)));
        }
        ledger.flush(Timestamp::from_second(to * 3600).unwrap());
        ledger.take_notices().iter().filter_map(|notice| notice.level).collect::<Vec<LevelShift>>()
    };
    assert_eq!(hours(0, 6, 1_000_000), []);
    let [shift] = hours(6, 8, 2_000_000)[..] else { panic!("one shift: {:?}", events.take()) };
    assert_eq!(shift.since.as_second(), 6 * 3600);
    assert!((1.9..2.1).contains(&(shift.after_ns / shift.before_ns)), "{shift:?}");
    assert_eq!(hours(8, 10, 2_000_000), [], "it is reported once");
}

#[test]
fn a_link_is_down_and_up_while_its_slice_is_measured() {
    let (config, events) = (config(), Events::default());
    let mut ledger = Ledger::new(&config, Vec::new(), None, &events).unwrap();
    let (at, name) = (Timestamp::UNIX_EPOCH, "link".to_owned());
    assert!(ledger.record_probes(0, at, &[Replied; 4]), "it is up");
    assert!(!ledger.record_probes(0, at, &[Lost, Lost]));
    assert_eq!((ledger.states()[0].is_up, events.take()), (Some(true), vec![]));
    assert!(ledger.record_probes(0, at, &[Lost]));
    assert_eq!(ledger.states()[0].is_up, Some(false));
    assert!(ledger.record_probes(0, at, &[Replied, Overtaken, Overtaken, Overtaken]));
    assert_eq!(
        events.take(),
        [MonitorEvent::Down { name: name.clone(), reason: None }, MonitorEvent::Up { name: name.clone() }]
    );
    // The slice repeats what is known.
    let probes = [replies(4), vec![None; 6], replies(1)].concat();
    ledger.record_slice(0, slice(&config, 0, probes));
    let of_state = |events: Vec<MonitorEvent>| {
        let is_state =
            |event: &MonitorEvent| matches!(event, MonitorEvent::Down { .. } | MonitorEvent::Up { .. });
        events.into_iter().filter(is_state).collect::<Vec<_>>()
    };
    assert_eq!(of_state(events.take()), []);
    // The last three of this one could not be sent.
    ledger.record_probes(0, at, &[Replied; 8]);
    ledger.record_slice(0, slice(&config, 10, [replies(8), vec![None; 3]].concat()));
    assert_eq!(of_state(events.take()), [MonitorEvent::Down { name, reason: None }]);
}
