//! A stated time is a stated time: a command ends within its time, one timeout and a drain, also if its server is slow or stops.

use std::thread::scope;
use std::time::{Duration, Instant};

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::shaper::{Shaper, ShaperOptions};
use linkgauge::link::shaped::Shape;
use rustix::process::Signal;

use crate::program::{Ended, PATIENCE, Running, Serving, cpu_waits};

/// The time and the timeout of every row.
const TIME: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(1);

/// The longest wait for late data and for the report of the server (docs/security.md).
const DRAIN: Duration = Duration::from_secs(5);

/// For the start of a process and the wait for its end; the time in which other processes have the CPUs comes on top.
const MARGIN: Duration = Duration::from_secs(3);

/// The commands that measure. `TCP` and `UDP` are the server.
const ROWS: [&str; 10] = [
    "latency TCP",
    "latency TCP --rate 50",
    "latency UDP --rate 50",
    "throughput TCP",
    "throughput TCP -R",
    "throughput TCP --direction both --parallel 2",
    "throughput UDP --bit-rate 5M -R",
    "responsiveness TCP",
    "responsiveness TCP -R",
    "connect TCP --rate 20",
];

/// Runs all commands against the server at these URLs, and stops it after this time. All end in time.
fn run_all(serving: &Serving, tcp: &str, stop_after: Option<Duration>) -> Vec<(&'static str, Ended)> {
    let udp = serving.udp.as_str();
    let (began, waits) = (Instant::now(), cpu_waits());
    let start = |row: &'static str| {
        let words = row.split(' ').map(|word| match word {
            "TCP" => tcp,
            "UDP" => udp,
            word => word,
        });
        let common = ["--time", "1s", "--timeout", "1s", "--quiet", "--no-store"];
        (row, Running::start(&words.chain(common).collect::<Vec<_>>()))
    };
    let running = ROWS.map(start);
    if let Some(time) = stop_after {
        std::thread::sleep(time);
        serving.process.signal(Signal::STOP);
    }
    let ended = scope(|scope| {
        let wait = |(row, process): (&'static str, Running)| {
            scope.spawn(move || (row, process.ended_within(PATIENCE), began.elapsed()))
        };
        running.map(wait).map(|thread| thread.join().unwrap())
    });
    let most = TIME + TIMEOUT + DRAIN + MARGIN + (cpu_waits() - waits);
    for (row, ended, took) in &ended {
        assert!(took < &most, "{row} took {took:?}, at most {most:?}: {}", ended.stderr);
    }
    ended.into_iter().map(|(row, ended, _)| (row, ended)).collect()
}

#[test]
#[ignore = "long"]
fn of_a_server_that_is_alive() {
    let serving = Serving::start(&[]);
    for (row, ended) in run_all(&serving, serving.tcp.as_str(), None) {
        assert_eq!(ended.status, Some(0), "{row}: {}", ended.stderr);
    }
}

#[test]
#[ignore = "long"]
fn of_a_server_that_is_slow() {
    let serving = Serving::start(&[]);
    let slow = Shape { delay: Duration::from_millis(100), bits_per_second: 2e6, ..Shape::NONE };
    let options = ShaperOptions {
        listen: "tcp://127.0.0.1:0".parse().unwrap(),
        to: serving.tcp.clone(),
        up: slow.clone(),
        down: slow,
        seed: 1,
        log: None,
    };
    let relay = Shaper::start(&options, &Registry::standard().dialer(Clock::System)).unwrap();
    run_all(&serving, relay.endpoint().as_str(), None);
}

#[test]
fn of_a_server_that_stops_in_the_middle() {
    let serving = Serving::start(&[]);
    run_all(&serving, serving.tcp.as_str(), Some(Duration::from_millis(1300)));
    serving.process.signal(Signal::CONT);
}

/// A kernel that replies to ten requests a second leaves no time for proofs.
#[test]
fn of_an_explanation_with_limited_requests() {
    let (began, waits) = (Instant::now(), cpu_waits());
    let ended = crate::program::run(&["explain", "icmp://127.0.0.1", "--time", "2s"]);
    let took = began.elapsed();
    let most = Duration::from_secs(2) + TIMEOUT + MARGIN + (cpu_waits() - waits);
    assert!(took < most, "{took:?}: {}", ended.stderr);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}
