//! A fleet at a real hub: agents, nats-server and the collector are processes of this machine, and some of them are killed.

mod database;
mod kills;
mod network;
mod security;
mod setting;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use linkgauge::clock::Clock;
use linkgauge::fleet::{Hub, LEASE_TTL, LeaseTerms, host_lease, issue_order, release, renew, take};
use linkgauge::mesh::TestKind;
use rustix::process::Signal;
use serde_json::Value;

use crate::program::{PATIENCE, Running, wait_until};
use crate::prometheus::{get, lint};
use setting::Setting;

#[test]
fn four_agents_measure_every_pair_and_the_report_shows_them() {
    let setting = Setting::new(4, "");
    let agents = setting.start_agents();
    setting.await_agents();
    let ordered = setting.fleet(&["run"], &[]);
    assert_eq!(ordered.status, Some(0), "{}", ordered.stderr);
    assert!(ordered.stdout.contains(": 24 tests from "), "{}", ordered.stdout);
    setting.collect_all(24);
    assert_eq!(setting.results_on_hub(), 24);
    let report = setting.report();
    assert_eq!(report.status, Some(0), "{}{}", report.stdout, report.stderr);
    let run = setting.reported_run();
    let mesh = run.mesh.as_ref().unwrap();
    assert_eq!((mesh.pairs.len(), run.cases.len()), (12, 24));
    assert_eq!(setting.overlapping_rates(), 0);
    // A second collector finds nothing: each result was confirmed.
    let again = setting.fleet(&["collect", "--once"], &["--store", &setting.path("other.sqlite")]);
    assert_eq!((again.status, again.stderr.as_str()), (Some(0), "0 results saved\n"), "{}", again.stdout);
    for agent in &agents {
        let kib = setting::own_memory_kib(agent.process.0.id());
        assert!(kib < 30 * 1024, "an idle agent has {kib} KiB");
    }
}

#[test]
fn a_lease_is_taken_as_a_whole_and_a_late_owner_is_refused() {
    let setting = Setting::new(2, "");
    let (hub, clock) = (setting.operator(), Clock::System);
    let terms = LeaseTerms { holder: "one".to_owned(), ttl: LEASE_TTL };
    let both = ["lease.host.p", "lease.host.q"].map(|subject| vec![subject.to_owned()]);
    let mut lease = take(&hub, &both, &terms, &clock).unwrap().expect("both hosts are free");
    let other = [vec!["lease.host.r".to_owned()], both[1].clone()];
    assert!(take(&hub, &other, &terms, &clock).unwrap().is_none());
    let third = [other[0].clone()];
    let held = take(&hub, &third, &terms, &clock).unwrap().expect("nothing was taken of the refused pair");
    assert!(held.fence() > lease.fence());
    let late = lease.clone();
    renew(&hub, &mut lease, &terms, &clock);
    assert!(!lease.is_lost(clock.now()));
    let mut late = late;
    renew(&hub, &mut late, &terms, &clock);
    assert!(late.is_lost(clock.now()), "its number is not the last one");
    release(&hub, &lease);
    let began = Instant::now();
    let next = take(&hub, &both, &terms, &clock).unwrap().expect("a released lease is free at once");
    assert!(next.fence() > lease.fence() && began.elapsed() < Duration::from_secs(2));
    // Two places of a shared resource.
    let places = [["lease.resource.u.0", "lease.resource.u.1"].map(str::to_owned).to_vec()];
    let taken: Vec<bool> = (0..3).map(|_| take(&hub, &places, &terms, &clock).unwrap().is_some()).collect();
    assert_eq!(taken, [true, true, false]);
}

/// Longest time between the end of a lease and the next test, on a machine without other work.
const NEXT_TEST: Duration = Duration::from_secs(1);

/// Requests of an agent, to the hub and to its peer, between the end of a lease and its test.
const REQUESTS: u32 = 8;

/// The slowest request until `is_over`: what other programs on this machine add to each.
fn slowest_request(hub: &Hub, is_over: &AtomicBool) -> Duration {
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    while !is_over.load(Relaxed) && began.elapsed() < PATIENCE {
        let sent = Instant::now();
        let _ = hub.api("STREAM.INFO.LEASE", &Value::Null);
        slowest = slowest.max(sent.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    slowest
}

#[test]
fn the_next_test_after_a_killed_holder_begins_when_its_lease_is_over() {
    let setting = Setting::new(2, "");
    let _agents = setting.start_agents();
    setting.await_agents();
    let (hub, key, clock) = (setting.operator(), setting.seed("operator"), Clock::System);
    let terms = LeaseTerms { holder: "killed".to_owned(), ttl: LEASE_TTL };
    let hosts = ["h0", "h1"].map(|host| vec![host_lease(host)]);
    let taken_ms = setting::now_ms();
    take(&hub, &hosts, &terms, &clock).unwrap().expect("both hosts are free");
    issue_order(&hub, &setting.order("0000000100001", TestKind::Throughput), &key).unwrap();
    let is_over = AtomicBool::new(false);
    let slowest = std::thread::scope(|scope| {
        let watching = scope.spawn(|| slowest_request(&hub, &is_over));
        setting.collect_all(1);
        is_over.store(true, Relaxed);
        watching.join().unwrap()
    });
    let began_ms = setting.saved()[0].started.as_millisecond() as u64;
    let waited = Duration::from_millis(began_ms - taken_ms);
    let longest = LEASE_TTL + NEXT_TEST + REQUESTS * slowest;
    assert!(waited >= LEASE_TTL && waited <= longest, "{waited:?}, a request takes up to {slowest:?}");
}

#[test]
fn a_collector_has_metrics_that_prometheus_reads() {
    let setting = Setting::new(2, "");
    let _agents = setting.start_agents();
    setting.await_agents();
    let flags = ["--store", &setting.store(), "--metrics", "127.0.0.1:0"];
    let mut collecting = setting.fleet_command(&["collect"], &flags);
    collecting.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut collecting = Running(collecting.spawn().unwrap());
    let mut messages = BufReader::new(collecting.0.stderr.take().unwrap());
    let mut message = String::new();
    messages.read_line(&mut message).unwrap();
    let address = message.trim().strip_prefix("metrics: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let ordered = setting.fleet(&["run"], &[]);
    assert_eq!(ordered.status, Some(0), "{}", ordered.stderr);
    let wait_for = |lines: &[&str]| {
        wait_until("the metrics", || {
            let text = get(address, "/metrics").unwrap_or_default();
            let has = |line: &&str| text.lines().any(|printed| printed == *line);
            lines.iter().all(has).then_some(text)
        })
    };
    let metrics = wait_for(&[
        "linkgauge_fleet_results_total{agent=\"h0\",result=\"saved\"} 2",
        "linkgauge_fleet_results_total{agent=\"h1\",result=\"saved\"} 2",
        "linkgauge_fleet_results_total{agent=\"h1\",result=\"duplicate\"} 0",
        "linkgauge_fleet_pair_latency_seconds_count{agent=\"h0\",percentile=\"50\"} 1",
        "linkgauge_fleet_hub_up 1",
    ]);
    lint(&metrics);
    let last = metrics.lines().find_map(|line| {
        line.strip_prefix("linkgauge_fleet_last_result_timestamp_seconds{agent=\"h0\"} ")?.parse::<f64>().ok()
    });
    let age = setting::now_ms() as f64 / 1e3 - last.unwrap();
    assert!((0.0..60.0).contains(&age), "{age}");
    setting.kill_hub();
    wait_for(&["linkgauge_fleet_hub_up 0", "linkgauge_fleet_results_total{agent=\"h0\",result=\"saved\"} 2"]);
    collecting.signal(Signal::TERM);
    assert_eq!(collecting.wait().code(), Some(0));
}
