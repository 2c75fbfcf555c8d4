//! `lab trouble` in real time: the latency that its faults cause on TCP and UDP, and its messages.

use std::time::Duration;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::lab::trouble::{Faults, TroubleOptions, TroubledServer};
use serde_json::Value;

use super::program::run;

/// The median round trip of 100 bytes against a server with these faults, in milliseconds. The client has these options.
fn median_ms(listen: &str, faults: Faults, options_of_client: &[(&str, &str)]) -> f64 {
    let options =
        TroubleOptions { listen: vec![listen.parse().unwrap()], faults, ..TroubleOptions::default() };
    let server = TroubledServer::start(&options, Registry::standard().dialer(Clock::System)).unwrap();
    let mut url = server.endpoints()[0].clone();
    for (name, value) in options_of_client {
        url = url.with_option(name, value).unwrap();
    }
    let url = url.to_string();
    let ended = run(&[
        "latency",
        &url,
        "--protocol",
        "echo",
        "--size",
        "100",
        "-n",
        "30",
        "-w",
        "20s",
        "-q",
        "--json",
        "-",
    ]);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    document["cases"][0]["latency_ns"]["p50"].as_f64().unwrap_or_else(|| panic!("{document}")) / 1e6
}

#[test]
fn a_split_reply_waits_for_a_delayed_acknowledgement() {
    let split = Faults { split_write_bytes: Some(10), ..Faults::default() };
    let with_nagle = median_ms("tcp://127.0.0.1:0?nodelay=0", split, &[]);
    // Linux delays acknowledgements by 40 ms at least.
    assert!(with_nagle > 35.0, "{with_nagle} ms");
    let without = median_ms("tcp://127.0.0.1:0", split, &[]);
    assert!(without < 35.0, "{without} ms");
    let at_once = median_ms("tcp://127.0.0.1:0?nodelay=0", split, &[("quickack", "1")]);
    assert!(at_once < 35.0, "{at_once} ms");
}

#[test]
fn a_server_that_polls_is_late_by_its_interval() {
    let poll = Faults { poll: Some(Duration::from_millis(20)), ..Faults::default() };
    for listen in ["tcp://127.0.0.1:0", "udp://127.0.0.1:0"] {
        // Each request leaves just after the read that found the previous one.
        let median = median_ms(listen, poll, &[]);
        assert!(median > 15.0, "{listen}: {median} ms");
    }
}

#[test]
fn wrong_faults_get_one_line() {
    for (flags, line) in [
        (
            ["--stall", "1s@1s"],
            "error: the stall is as long as its period or longer: use a longer period, like 50ms@1s\n",
        ),
        (["--poll", "0s"], "error: a tick of 0 s: use a time above zero, like 10ms\n"),
    ] {
        let ended = run(&["lab", "trouble", flags[0], flags[1]]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(2), line));
    }
}
