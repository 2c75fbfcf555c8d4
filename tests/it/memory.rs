//! The memory of a run does not depend on its length.
//!
//! The peak of a process is for ever, so each length runs in a process of its own: this test program again, with
//! nothing but [`a_run_of_its_own`]. By hand, for any length:
//!
//! ```text
//! LINKGAUGE_TEST_ROUND_TRIPS=100000000 cargo test --release --test it -- --exact memory::a_run_of_its_own --nocapture
//! ```

use std::process::Command;

use crate::virtual_net::VirtualNet;

const ROUND_TRIPS: &str = "LINKGAUGE_TEST_ROUND_TRIPS";

/// A field of `/proc/self/status` or of another process's, in KiB.
pub fn status_kib(process: &str, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Does nothing, unless it is asked to.
#[test]
fn a_run_of_its_own() {
    let Ok(round_trips) = std::env::var(ROUND_TRIPS) else { return };
    // Response times are stored too; the echo replies in the same thread. The time series is full after 6 s.
    let run = VirtualNet::serving("echo").run(&format!(
        "[[case]]\nurl = \"mem://far?delay=10us\"\nworkload = \"latency\"\nprotocol = \"echo\"\nsize = 8\nrate = \"10k/s\"\n\
         interval = \"10ms\"\ncount = {round_trips}"
    ));
    assert!(run.is_complete());
    assert_eq!(run.cases[0].figures.counts.received.to_string(), round_trips);
    println!("\npeak of {round_trips} round trips: {} KiB", status_kib("self", "VmHWM"));
}

/// The peak memory of a process that runs this number of round trips, in KiB.
fn peak_kib(round_trips: u64) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::a_run_of_its_own", "--nocapture", "--test-threads=1"])
        .env(ROUND_TRIPS, round_trips.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let peak = text.lines().find_map(|line| line.strip_prefix("peak of ")?.strip_suffix(" KiB"));
    let peak = peak.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{text}"));
    peak.parse().unwrap()
}

#[test]
#[ignore = "long"]
fn ten_times_the_round_trips_take_no_more_memory() {
    let (few, many) = (peak_kib(100_000), peak_kib(1_000_000));
    assert!(many <= few + 1024, "{few} KiB, then {many} KiB");
}
