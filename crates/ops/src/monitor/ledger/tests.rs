//! The ledger with slices made by hand, and stores on temporary files.

use std::sync::Mutex;

use super::*;
use crate::monitor::live_probes::ProbeResult::{Lost, Overtaken, Replied};
use crate::monitor::{Calendar, LinkHealth, SLICE, Severity};
use linkgauge_engine::Registry;
use linkgauge_engine::schedule::{RunContext, run};
use linkgauge_model::clock::Clock;
use linkgauge_model::run::{Failure, FailureKind};
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
    let run = run(&plan, &mut RunContext::new(Registry::standard().dialer(clock), &()));
    let ended = began.wall + SLICE;
    let replies = Default::default();
    Slice { began, ended, window, probes, failure: None, clock_change: None, run, replies }
}

fn replies(count: usize) -> Vec<Option<u64>> {
    (0..count).map(|n| Some(1_000_000 + n as u64 * 1_000)).collect()
}

/// Notices that the actions receive after the last slice.
fn notices(ledger: &mut Ledger) -> Vec<Notice> {
    let last = ledger.states()[0].recent.back().map_or(0, |(second, _)| *second);
    ledger.take_notices(Timestamp::from_second(last + 10).unwrap(), &|_| false)
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
    let [down, alarm] = &notices(&mut ledger)[..] else { panic!("two notices") };
    assert_eq!(
        (down.event, down.state, down.severity),
        (NoticeKind::Down, LinkHealth::Down, Severity::Critical)
    );
    assert_eq!(down.reason.as_deref(), Some("the last 3 probes have no reply"));
    assert_eq!((alarm.event, alarm.run.as_ref()), (NoticeKind::Alarm, Some(run)));
    assert_eq!((alarm.last_minute.probes, alarm.last_minute.lost), (600, 100));
    assert_eq!(alarm.last_minute.p99_ns, Some(f64::INFINITY));
    for step in 13..22 {
        ledger.record_slice(0, slice(&config, step * 10, replies(100)));
    }
    let [up, resolved] = &notices(&mut ledger)[..] else { panic!("two notices") };
    assert_eq!((up.event, resolved.event, up.severity), (NoticeKind::Up, NoticeKind::Resolved, Severity::Ok));
    assert_eq!((up.duration_s, up.changes), (Some(10.0), Some(1)), "down from 130 to 140 s");
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
    assert_eq!(kinds, ["clear", "up", "down", "alarm"]);
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
fn a_monitor_of_probes_on_request_needs_nothing_in_its_store() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&place.path().join("runs.sqlite")).unwrap();
    let text = "[probe]\nallow = [\"192.0.2.0/24\"]\n[module.icmp]\nscheme = \"icmp\"";
    let (config, events) = (Config::from_toml(text).unwrap(), Events::default());
    let mut ledger = Ledger::new(&config, Vec::new(), Some(store), &events).unwrap();
    ledger.flush(Timestamp::from_second(7200).unwrap());
    assert_eq!(events.take(), []);
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
        let ended: Vec<NoticeKind> = notices(&mut ledger).iter().map(|notice| notice.event).collect();
        assert_eq!(ended, [NoticeKind::Up, NoticeKind::Resolved][..2 * ends]);
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
        notices(&mut ledger).iter().filter_map(|notice| notice.level).collect::<Vec<LevelShift>>()
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

#[test]
fn a_link_with_an_alarm_that_dies_sends_a_message() {
    let text = "[[watch]]\nname = \"link\"\nurl = \"mem://server\"\nprotocol = \"echo\"\nalert = [\"late 1us > 50 %\"]";
    let (config, events) = (Config::from_toml(text).unwrap(), Events::default());
    let mut ledger = Ledger::new(&config, Vec::new(), None, &events).unwrap();
    ledger.record_slice(0, slice(&config, 0, replies(100)));
    let [alarm] = &notices(&mut ledger)[..] else { panic!("one notice") };
    assert_eq!(
        (alarm.event, alarm.state, alarm.severity),
        (NoticeKind::Alarm, LinkHealth::Alarm, Severity::Warning)
    );
    assert!(
        alarm.reason.as_ref().unwrap().contains("0.0 % of the probes were lost, and the median is 1.057 ms"),
        "{alarm:?}"
    );
    ledger.record_slice(0, slice(&config, 10, vec![None; 100]));
    let [down] = &notices(&mut ledger)[..] else { panic!("one notice") };
    assert_eq!((down.event, down.severity), (NoticeKind::Down, Severity::Critical));
    let unreachable = "host unreachable, reported by 192.0.2.1";
    let failed = Slice { failure: Some(unreachable.to_owned()), ..slice(&config, 20, vec![None; 100]) };
    ledger.record_slice(0, failed);
    let [explained] = &notices(&mut ledger)[..] else { panic!("one notice") };
    assert_eq!((explained.event, explained.changes), (NoticeKind::Down, Some(0)));
    assert_eq!(explained.reason.as_deref(), Some(unreachable));
    ledger.record_slice(0, slice(&config, 30, replies(100)));
    let [up] = &notices(&mut ledger)[..] else { panic!("one notice") };
    assert_eq!((up.event, up.state, up.severity), (NoticeKind::Up, LinkHealth::Alarm, Severity::Warning));
    assert_eq!((up.duration_s, up.reason.as_deref()), (Some(20.0), Some(unreachable)));
}

#[test]
fn an_outage_that_ends_after_a_restart_is_sent_once() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("runs.sqlite");
    let text = "[[watch]]\nname = \"link\"\nurl = \"mem://server\"\nprotocol = \"echo\"";
    let (config, events) = (Config::from_toml(text).unwrap(), Events::default());
    let mut kinds = Vec::new();
    for (second, probes) in [(0, vec![None; 9]), (10, vec![None; 9]), (20, replies(9)), (30, replies(9))] {
        let store = Store::open(&path).unwrap();
        let mut ledger = Ledger::new(&config, Vec::new(), Some(store), &events).unwrap();
        ledger.record_slice(0, slice(&config, second, probes));
        kinds.push(
            notices(&mut ledger).iter().map(|notice| (notice.event, notice.duration_s)).collect::<Vec<_>>(),
        );
    }
    let up = vec![(NoticeKind::Up, Some(20.0))];
    assert_eq!(kinds, [vec![(NoticeKind::Down, Some(0.0))], vec![], up, vec![]]);
    let is_down = |event: &MonitorEvent| matches!(event, MonitorEvent::Down { .. });
    assert_eq!(events.take().iter().filter(|event| is_down(event)).count(), 2, "each start says it");
}

#[test]
fn a_failed_test_and_a_missed_threshold_send_messages() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("runs.sqlite");
    let text = "[[watch]]\nname = \"test\"\nurl = \"mem://server\"\nprotocol = \"echo\"\ncount = 10\nevery = \"1h\"\n\
                thresholds = [\"p50 <= 1ms\"]";
    let (config, events) = (Config::from_toml(text).unwrap(), Events::default());
    let document = include_str!("../../../../../tests/data/run-v1-latency.json");
    let test = |number: u64, measured: Option<&str>, failure: Option<&str>| {
        let mut run = Run::from_json(document).unwrap();
        run.id = format!("20260101T000000Z-{number:06}");
        run.started = Timestamp::from_second(number as i64).unwrap();
        let case = &mut run.cases[0];
        let judged = |measured: &str| linkgauge_model::run::ThresholdResult {
            threshold: "p50 <= 1ms".to_owned(),
            measured: measured.to_owned(),
            passed: measured == "0.9 ms",
        };
        case.thresholds = measured.map(judged).into_iter().collect();
        let failed = |message: &str| Failure { kind: FailureKind::Closed, message: message.to_owned() };
        case.failures = failure.map(failed).into_iter().collect();
        run
    };
    let mut sent = Vec::new();
    for (number, measured, failure) in [
        (1, Some("0.9 ms"), None),
        (2, None, Some("connection refused")),
        (3, Some("3 ms"), None),
        (4, Some("3 ms"), None),
        (5, Some("0.9 ms"), None),
    ] {
        // Each after a restart.
        let store = Store::open(&path).unwrap();
        let mut ledger = Ledger::new(&config, Vec::new(), Some(store), &events).unwrap();
        ledger.record_test(0, test(number, measured, failure));
        let now = Timestamp::from_second(number as i64).unwrap();
        let notices = ledger.take_notices(now, &|_| false);
        sent.push(notices.into_iter().map(|notice| (notice.event, notice.reason)).collect::<Vec<_>>());
    }
    let refused = || Some("connection refused".to_owned());
    assert_eq!(
        sent,
        [
            vec![],
            vec![(NoticeKind::Down, refused())],
            vec![(NoticeKind::Up, refused()), (NoticeKind::Alarm, Some("the test measured 3 ms".to_owned()))],
            vec![],
            vec![(NoticeKind::Resolved, None)],
        ]
    );
}

#[test]
fn a_link_behind_a_dead_gateway_sends_nothing() {
    let text = "[[watch]]\nname = \"host\"\nurl = \"mem://a\"\nprotocol = \"echo\"\nbehind = \"gateway\"\n\
                [[watch]]\nname = \"gateway\"\nurl = \"mem://b\"\nprotocol = \"echo\"";
    let (config, events) = (Config::from_toml(text).unwrap(), Events::default());
    let mut ledger = Ledger::new(&config, Vec::new(), None, &events).unwrap();
    let mut sent_at = |second: i64, host: Vec<Option<u64>>, gateway: Vec<Option<u64>>| {
        ledger.record_slice(0, slice(&config, second, host));
        ledger.record_slice(1, slice(&config, second, gateway));
        let now = Timestamp::from_second(second + 10).unwrap();
        let notices = ledger.take_notices(now, &|_| false);
        notices.into_iter().map(|notice| (notice.link, notice.event)).collect::<Vec<_>>()
    };
    let (lost, only) = (|| vec![None; 3], |link: &str, event| vec![(link.to_owned(), event)]);
    assert_eq!(sent_at(0, lost(), vec![Some(1_000), None]), [], "the gateway may be down, too");
    assert_eq!(sent_at(10, lost(), lost()), only("gateway", NoticeKind::Down));
    assert_eq!(
        sent_at(20, lost(), replies(9)),
        only("gateway", NoticeKind::Up),
        "the host may still recover"
    );
    assert_eq!(sent_at(80, lost(), replies(9)), []);
    assert_eq!(sent_at(100, lost(), replies(9)), only("host", NoticeKind::Down), "the host itself");
}

#[test]
fn gateways_are_watched_and_form_no_circle() {
    let watch = |name: &str, behind: &str| {
        format!(
            "[[watch]]\nname = \"{name}\"\nurl = \"mem://{name}\"\nprotocol = \"echo\"\nbehind = \"{behind}\"\n"
        )
    };
    let error = |text: String| Config::from_toml(&text).unwrap_err().to_string();
    assert!(error(watch("a", "b")).contains("no watch is named 'b'"));
    assert!(error(watch("a", "b") + &watch("b", "a")).contains("behind itself"));
}

#[test]
fn a_silenced_link_sends_what_lasts() {
    let (config, events) = (config(), Events::default());
    let mut ledger = Ledger::new(&config, Vec::new(), None, &events).unwrap();
    ledger.record_slice(0, slice(&config, 0, vec![None; 3]));
    let now = Timestamp::from_second(10).unwrap();
    assert_eq!(ledger.take_notices(now, &|watch| watch == 0), []);
    assert_eq!(ledger.take_notices(now, &|_| false)[0].event, NoticeKind::Down);
}
