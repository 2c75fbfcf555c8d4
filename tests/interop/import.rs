//! Files that iperf3 and sockperf write here and now, imported.

use std::process::{Child, Command, Stdio};

use linkgauge::run::CaseResult;
use serde_json::Value;

use crate::client::{free_port, imported};
use crate::program::{Running, wait_until};

/// Starts another program, ended with the test.
fn other(program: &str, arguments: &[&str]) -> Running {
    let child: Child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}: ./check --all installs it"));
    Running(child)
}

/// Runs iperf3 against itself and imports its output. A reply shows that the server listens.
fn iperf3(flags: &[&str]) -> (Value, CaseResult) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("iperf3.json");
    let port = free_port().to_string();
    let _server = other("iperf3", &["-s", "-B", "127.0.0.1", "-p", &port]);
    let json = wait_until("a result of iperf3", || {
        let client = ["-c", "127.0.0.1", "-p", &port, "-J", "-t", "1"];
        let output = Command::new("iperf3").args(client).args(flags).output().unwrap();
        // Without a listener it reports this, with status 0.
        let replied = !String::from_utf8_lossy(&output.stdout).contains("\"error\"");
        (output.status.success() && replied).then_some(output.stdout)
    });
    std::fs::write(&file, &json).unwrap();
    let mut run = imported("iperf3", &file, &[]);
    assert!(run.warnings[0].text.contains("was measured by iperf 3"), "{:?}", run.warnings);
    (serde_json::from_slice(&json).unwrap(), run.cases.remove(0))
}

#[test]
fn iperf3_over_tcp() {
    let (json, case) = iperf3(&["-P", "2"]);
    let received = &json["end"]["sum_received"];
    assert_eq!(case.figures.delivery.throughput_bps, received["bits_per_second"].as_f64());
    assert_eq!(case.figures.delivery.delivered_bytes, received["bytes"].as_u64());
    assert_eq!((case.direction.name(), case.parallel, case.message_bytes), ("send", 2, 131_072));
    assert!(case.endpoint.starts_with("tcp://127.0.0.1:"), "{}", case.endpoint);
    let (local, remote) =
        (case.cpu.clone().unwrap().client_seconds, case.cpu.unwrap().server_seconds.unwrap());
    assert!(local > 0.0 && remote > 0.0);
    let bytes: u64 = case.series.iter().map(|entry| entry.bytes).sum();
    assert_eq!(json["end"]["sum_sent"]["bytes"].as_u64(), Some(bytes), "the sender's account");
    // It counts no messages, and has no samples.
    assert_eq!(
        (case.figures.counts.sent, case.figures.counts.lost, case.figures.times.latency_ns),
        (0, 0, None)
    );
}

#[test]
fn iperf3_in_every_direction() {
    let (json, case) = iperf3(&["--bidir"]);
    assert_eq!(case.direction.name(), "both");
    assert_eq!(
        case.figures.delivery.delivered_reverse_bytes,
        json["end"]["sum_received_bidir_reverse"]["bytes"].as_u64()
    );
    let (json, case) = iperf3(&["-R"]);
    assert_eq!(case.direction.name(), "receive");
    assert_eq!(case.figures.delivery.delivered_bytes, json["end"]["sum_received"]["bytes"].as_u64());
}

#[test]
fn iperf3_over_udp() {
    let (json, case) = iperf3(&["-u", "-b", "5M", "-l", "1000"]);
    let figures = &case.figures;
    assert!(case.endpoint.starts_with("udp://"), "{}", case.endpoint);
    assert_eq!(figures.counts.sent, json["end"]["sum_sent"]["packets"].as_u64().unwrap());
    assert_eq!(figures.counts.received + figures.counts.lost, figures.counts.sent);
    assert!(figures.counts.received > 0 && figures.times.jitter_ns.is_none());
}

/// The output of a server about a test with these flags.
fn iperf3_server(flags: &[&str]) -> (Value, CaseResult) {
    let directory = tempfile::tempdir().unwrap();
    let (file, port) = (directory.path().join("server.json"), free_port().to_string());
    let log = ["-s", "-1", "-J", "-B", "127.0.0.1", "-p", &port, "--logfile", file.to_str().unwrap()];
    let mut server = other("iperf3", &log);
    wait_until("a result of iperf3", || {
        let client = ["-c", "127.0.0.1", "-p", &port, "-J", "-t", "1"];
        let output = Command::new("iperf3").args(client).args(flags).output().unwrap();
        (!String::from_utf8_lossy(&output.stdout).contains("\"error\"")).then_some(())
    });
    server.wait();
    let mut run = imported("iperf3", &file, &[]);
    let case = run.cases.remove(0);
    assert_eq!(case.endpoint.rsplit(':').next(), Some(port.as_str()), "not the client's port");
    (serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap(), case)
}

#[test]
fn iperf3_from_the_output_of_its_server() {
    let (json, case) = iperf3_server(&[]);
    assert_eq!(case.figures.delivery.delivered_bytes, json["end"]["sum_received"]["bytes"].as_u64());
    assert!(case.figures.delivery.delivered_bytes > Some(0) && case.cpu.is_none());
    let (_, case) = iperf3_server(&["-R"]);
    assert_eq!((case.direction.name(), case.figures.delivery.delivered_bytes), ("receive", None));
    let (json, case) = iperf3_server(&["-u", "-b", "4M", "-l", "1000", "--bidir"]);
    assert_eq!((case.direction.name(), case.figures.delivery.delivered_reverse_bytes), ("both", None));
    assert_eq!(Some(case.figures.counts.sent), json["end"]["sum_received"]["packets"].as_u64());
}

#[test]
fn sockperf_with_its_own_statistics_beside() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("full.csv");
    let port = free_port().to_string();
    let _server = other("sockperf", &["server", "-i", "127.0.0.1", "-p", &port]);
    wait_until("a full log of sockperf", || {
        let client = ["ping-pong", "-i", "127.0.0.1", "-p", &port, "-t", "1", "--mps", "500"];
        let log = ["--full-rtt", "--full-log", file.to_str().unwrap()];
        let output = Command::new("sockperf").args(client).args(log).output().unwrap();
        (output.status.success() && file.exists()).then_some(())
    });
    let log = std::fs::read_to_string(&file).unwrap();
    let number = |words: &str| -> f64 {
        let (_, rest) = log.split_once(words).unwrap_or_else(|| panic!("{words}: {log}"));
        rest.trim_start().split([' ', ';', '\n', '\u{1b}']).next().unwrap().parse().unwrap()
    };
    let run = imported("sockperf", &file, &["--endpoint", "loopback"]);
    let case = &run.cases[0];
    let latency = case.figures.times.latency_ns.as_ref().unwrap();
    assert_eq!(
        (case.endpoint.as_str(), case.protocol.as_str(), case.message_bytes),
        ("loopback", "sockperf", 14)
    );
    assert_eq!(latency.count as f64, number("mTotal "));
    assert_eq!(case.figures.counts.lost as f64, number("# dropped messages = "));
    // It prints microseconds with three decimals, from clocks of its own: the same to a few nanoseconds.
    let close = |ns: f64, us: f64| assert!((ns / 1e3 - us).abs() < 0.005, "{ns} ns is not {us} us");
    close(latency.max as f64, number("<MAX> observation ="));
    close(latency.min as f64, number("<MIN> observation ="));
    close(latency.mean, number("avg-rtt="));
    assert_eq!(case.series.iter().filter_map(|entry| entry.messages).sum::<u64>(), latency.count);
}
