//! `path` to this host: its one hop, over each kind of probe, and what it refuses.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};

use linkgauge::report::RUN_SCHEMA;
use linkgauge::run::{PathEnd, Run};
use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Running, run};

/// The document of a run that ended well.
fn document(arguments: &[&str]) -> Run {
    let ended = run(&[&["path"], arguments, &["--json", "-"]].concat());
    assert_eq!(ended.status, Some(0), "{arguments:?}: {}", ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let schema: Value = serde_json::from_str(RUN_SCHEMA).unwrap();
    jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    Run::from_json(&ended.stdout).unwrap()
}

#[test]
fn this_host_is_one_hop_away_for_each_kind_of_probe() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap().to_string();
    for (url, probe) in [("127.0.0.1", "udp"), (open.as_str(), "tcp"), ("127.0.0.1:1", "tcp")] {
        let run = document(&[url, "--count", "3", "--interval", "20ms", "--flows", "2", "-n"]);
        let path = run.cases[0].path.as_ref().unwrap();
        assert_eq!((path.end, path.hops.len(), path.probe.as_str()), (PathEnd::Reached, 1, probe));
        let hop = &path.hops[0];
        assert_eq!((hop.sent, hop.answered), (3, 3), "{url}: {hop:?}");
        assert_eq!(hop.hosts[0].address, "127.0.0.1".parse::<std::net::IpAddr>().unwrap());
        assert_eq!(hop.hosts[0].flows, [1, 2]);
        assert_eq!(run.cases[0].figures.counts.received, 3);
    }
}

#[test]
fn a_socket_that_returns_the_payload_is_the_host() {
    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", echo.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut bytes = [0; 2000];
        while let Ok((length, from)) = echo.recv_from(&mut bytes) {
            let _ = echo.send_to(&bytes[..length], from);
        }
    });
    let run = document(&[&url, "--count", "2", "--interval", "20ms", "-n"]);
    let path = run.cases[0].path.as_ref().unwrap();
    assert_eq!((path.end, path.hops.len()), (PathEnd::Reached, 1));
}

#[test]
fn the_answer_comes_first_and_the_mtu_is_that_of_the_interface() {
    let ended = run(&["path", "127.0.0.1", "--count", "2", "--interval", "20ms", "-n", "--mtu"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("1 hop to 127.0.0.1, "), "{}", ended.stdout);
    assert!(lines[0].contains("; nothing wrong; packets of "), "{}", ended.stdout);
    assert!(
        lines[0].contains(" bytes fit, as on the local interface. 2 probes of each hop"),
        "{}",
        ended.stdout
    );
    assert!(lines[1].starts_with("  hop  host"), "{}", ended.stdout);
    assert!(lines[2].starts_with("    1  127.0.0.1      all"), "{}", ended.stdout);
    let csv = run(&["path", "127.0.0.1", "--count", "2", "--interval", "20ms", "-n", "--csv-hops", "-"]);
    let lines: Vec<&str> = csv.stdout.lines().collect();
    assert!(lines.len() == 2 && lines[1].contains(",udp://127.0.0.1,1,127.0.0.1,,2,2,"), "{}", csv.stdout);
}

#[test]
fn an_interrupt_leaves_what_was_measured() {
    let path = std::env::temp_dir().join(format!("linkgauge-path-{}.json", std::process::id()));
    let file = path.to_str().unwrap();
    let arguments =
        ["path", "127.0.0.1", "-c", "100000", "-i", "10ms", "-n", "--events", "-", "--json", file];
    let mut program = Running::start(&arguments);
    let events = BufReader::new(program.0.stdout.take().unwrap());
    let progress = events.lines().map(Result::unwrap).find(|line| line.contains("\"event\":\"progress\""));
    assert!(progress.is_some(), "it ended by itself");
    program.signal(Signal::INT);
    assert_eq!(program.wait().code(), Some(130));
    let run = Run::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(run.interrupted && !run.is_complete());
    let hop = &run.cases[0].path.as_ref().unwrap().hops[0];
    assert!(hop.answered > 0 && hop.answered == hop.sent, "what is under way is not lost: {hop:?}");
}

#[test]
fn bad_input_is_one_line() {
    for (arguments, complaint) in [
        (&["/dev/ttyS0"][..], "a path leads to a host, and serial has none"),
        (&["host.invalid"], "was not found"),
        (&["127.0.0.1", "--repeat", "2"], "path has none of --repeat"),
        (&["127.0.0.1", "--interval", "1us"], "--interval is 10ms to 1h"),
        (&["127.0.0.1", "--flows", "0"], "--flows"),
        (&["127.0.0.1", "--max-hops", "65"], "--max-hops"),
        (&["127.0.0.1", "-6"], "family=6"),
    ] {
        let ended = run(&[&["path"], arguments].concat());
        assert_eq!(ended.status, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(complaint), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    for (arguments, complaint) in [
        (&["throughput", "127.0.0.1", "127.0.0.2", "--path"][..], "--path looks at the path to one host"),
        (&["throughput", "/dev/ttyS0", "--path"], "--path needs a host on a network"),
        (&["throughput", "127.0.0.1", "--path", "--precision", "2%"], "--path looks at one transfer"),
        (&["responsiveness", "127.0.0.1", "--path=1us"], "--path is a time from 10ms to 1h"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.status, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(complaint), "{arguments:?}: {}", ended.stderr);
    }
}
