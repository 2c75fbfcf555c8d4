//! Command lines of ping and iperf3 users, and their results: a figure, or a line with the reason why there is none.

use std::io::Read;

use linkgauge::endpoint::Endpoint;
use linkgauge::run::{CaseResult, Run};
use rustix::process::Signal;
use serde_json::Value;

use super::program::{Ended, Running, Serving, command, run};

/// The place of a server, without the scheme.
fn place(serving: &Serving) -> String {
    serving.tcp.address().to_owned()
}

/// The document of a run of the program, and how it ended.
fn measured(arguments: &[&str]) -> (Ended, Run) {
    let ended = run(&[arguments, &["--json", "-"]].concat());
    let run = Run::from_json(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    (ended, run)
}

fn case(arguments: &[&str]) -> CaseResult {
    let (ended, mut run) = measured(arguments);
    assert_eq!(ended.status, Some(0), "{arguments:?}: {}", ended.stderr);
    run.cases.remove(0)
}

#[test]
fn few_replies_have_every_supported_figure() {
    let server = Serving::start(&[]);
    for count in ["1", "2", "5"] {
        let arguments = ["ping", &place(&server), "-c", count, "--warm-up", "0"];
        let times = case(&arguments).figures.times.latency_ns.unwrap();
        let median = times.percentile("p50").unwrap();
        assert!(times.min <= median && median <= times.max && times.mean > 0.0, "{times:?}");
        assert_eq!(times.percentiles.len(), 1, "{times:?}");
        let text = run(&arguments).stdout;
        assert!(text.starts_with("TCP round trip to 127.0.0.1:") && text.contains(" median, "), "{text}");
        let head = text.lines().find(|line| line.contains(" min ")).unwrap();
        let head: Vec<&str> = head.split_whitespace().collect();
        // One reply has no deviation.
        let columns = ["min", "p50", "mean", "max", "sd"];
        assert_eq!(head, columns[..columns.len() - usize::from(count == "1")]);
        assert!(!text.contains('–'), "{text}");
    }
    // Where percentiles take the room, the others stand below.
    let text = run(&["latency", &place(&server), "-n", "500", "--all"]).stdout;
    assert!(text.contains("\n  min ") && text.contains(", mean ") && text.contains(", sd "), "{text}");
}

#[test]
fn a_measurement_shorter_than_a_round_trip_still_has_one() {
    let server = Serving::start(&[]);
    let mut shaper = Running::start(&[
        "lab",
        "shaper",
        "--listen",
        "tcp://127.0.0.1:0",
        "--to",
        server.tcp.as_str(),
        "--delay",
        "100ms",
    ]);
    let mut line = String::new();
    let stdout = shaper.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let place = line.trim().rsplit_once(" on ").unwrap().1.to_owned();
    let times =
        case(&["latency", &place, "-t", "50ms", "--warm-up", "80ms"]).figures.times.latency_ns.unwrap();
    assert!(times.min >= 200_000_000, "{times:?}");
}

#[test]
#[ignore = "long"]
fn bare_hosts_times_and_rates() {
    let server = Serving::start(&[]);
    let paced = case(&["latency", &place(&server), "-t", "0.3", "--rate", "50", "--warm-up", "0"]);
    assert_eq!(paced.endpoint, server.tcp.as_str());
    assert_eq!(paced.requested["rate"], serde_json::json!({ "kind": "messages", "per_second": 50.0 }));
    assert!((10..=16).contains(&paced.figures.counts.sent), "{}", paced.figures.counts.sent);
    let reverse = case(&["throughput", &place(&server), "-R", "-t", "0.3"]);
    assert_eq!(reverse.direction.name(), "receive");
    assert_eq!(case(&["throughput", &place(&server), "--bidir", "-t", "0.3"]).direction.name(), "both");
    let counted = case(&["throughput", server.udp.as_str(), "-c", "70", "-l", "100"]);
    assert_eq!((counted.figures.counts.sent, counted.message_bytes), (70, 100));
    let paced = case(&["throughput", &place(&server), "-b", "8M", "-t", "0.5"]);
    assert_eq!(paced.message_bytes, 10_000);
    assert!(
        paced.figures.delivery.throughput_bps.unwrap() < 9e6,
        "{:?}",
        paced.figures.delivery.throughput_bps
    );
}

/// The port of an endpoint, as other programs want it.
fn port(url: &Endpoint) -> String {
    url.host_port().unwrap().1.unwrap().to_string()
}

#[test]
fn flags_of_other_programs_mean_the_same() {
    let server = Serving::start(&[]);
    let (host, tcp, udp) = ("127.0.0.1", port(&server.tcp), port(&server.udp));
    let asked = |line: &str| {
        let line = line.replace("TCP", &tcp).replace("UDP", &udp);
        case(&[&line.split(' ').collect::<Vec<_>>()[..], &[host]].concat())
    };
    let ping = asked("ping -p TCP -c 3 -i 0.01 -s 56 -W 2 -w 5 -q");
    let stop = serde_json::json!({ "count": 3, "time_ns": 5_000_000_000_u64 });
    assert_eq!((&ping.requested["stop"], ping.message_bytes), (&stop, 56));
    assert_eq!(ping.requested["rate"], serde_json::json!({ "kind": "messages", "per_second": 100.0 }));
    assert_eq!(ping.requested["timeout_ns"], 2_000_000_000_u64);
    let irtt = asked("latency -p TCP -i 10ms -d 200ms -l 100");
    assert_eq!((&irtt.requested["stop"]["time_ns"], irtt.message_bytes), (&200_000_000.into(), 100));
    let sockperf = asked("latency -u -p UDP -m 64 -t 0.2 --mps 100");
    assert_eq!(
        (sockperf.endpoint.as_str(), sockperf.message_bytes),
        (format!("udp://{host}:{udp}").as_str(), 64)
    );
    let flood = asked("ping -p TCP -c 3 -i 0");
    assert_eq!(flood.requested["pacing"]["kind"], "closed");
    let iperf3 =
        asked("throughput -p UDP -u -b 1m -l 500 -t 0.3 -i 0.1 -O 0.1 -B 127.0.0.1 -4 -T test --runs 1");
    assert_eq!(iperf3.endpoint, format!("udp://{host}:{udp}?family=4&bind=127.0.0.1"));
    assert_eq!(
        (iperf3.requested["warm_up"]["time_ns"].as_u64(), iperf3.message_bytes),
        (Some(100_000_000), 500)
    );
    assert_eq!(iperf3.requested["rate"]["per_second"].as_f64(), Some(1e6), "{:?}", iperf3.requested["rate"]);
    assert_eq!(asked("throughput -p TCP -k 7 --protocol linkgauge").figures.counts.sent, 7);
    assert_eq!(asked("throughput -p TCP --bytes 1M").requested["stop"]["volume_bytes"], 1_000_000);
}

#[test]
fn a_server_listens_on_the_port_of_its_flag() {
    let mut server = Running::start(&["serve", "-p", "0", "127.0.0.1", "--time", "20ms"]);
    assert!(server.wait().success());
    let mut line = String::new();
    server.0.stdout.take().unwrap().read_to_string(&mut line).unwrap();
    assert!(!line.contains(":7100") && line.starts_with("serving linkgauge on tcp://127.0.0.1:"), "{line}");
}

#[test]
fn a_killed_server_ends_the_run_at_once() {
    for flow in ["send", "both"] {
        let server = Serving::start(&[]);
        let directory = tempfile::tempdir().unwrap();
        let events = directory.path().join("events").display().to_string();
        let client = Running::start(&[
            "throughput",
            server.tcp.as_str(),
            "-d",
            flow,
            "-t",
            "1h",
            "--timeout",
            "10min",
            "--interval",
            "20ms",
            "--events",
            &events,
        ]);
        crate::program::wait_for_progress(std::path::Path::new(&events));
        server.process.signal(Signal::KILL);
        // Its timeout is longer than the tests wait.
        let ended = client.ended();
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("closed the link"), "{}", ended.stderr);
    }
}

#[test]
#[ignore = "long"]
fn default_runs_end_and_have_a_low_rate() {
    let (ended, document) = measured(&["latency", "icmp://127.0.0.1", "-n", "3", "--warm-up", "0"]);
    if ended.stderr.contains("not permitted") {
        return;
    }
    let case = &document.cases[0];
    assert_eq!(case.requested["rate"]["kind"], "default");
    assert_eq!(case.requested["pacing"]["kind"], "closed");
    assert_eq!(case.effective["pacing"], serde_json::json!({ "kind": "fixed", "per_second": 10.0 }));
    let server = Serving::start(&[]);
    let stop = &self::case(&["latency", &place(&server)]).requested["stop"];
    assert_eq!((&stop["count"], &stop["time_ns"]), (&Value::from(10_000), &Value::from(10_000_000_000_u64)));
    // Within this host there is no other traffic that the load could affect.
    let full = self::case(&["throughput", server.udp.as_str(), "-t", "0.3"]);
    assert!(!full.effective.contains_key("pacing") && full.requested["rate"]["kind"] == "default");
}

#[test]
fn repetitions_hold_the_cpus_of_both_ends() {
    let server = Serving::start(&[]);
    let allowed = linkgauge::host::cpu::current_affinity();
    let pin = format!("{0},{0}", allowed[0]);
    let pinned = case(&["latency", &place(&server), "-n", "60", "--pin", &pin]);
    assert_eq!(pinned.repeats.len(), 6);
    for part in &pinned.repeats {
        assert_eq!((part.client_cpu, part.server_cpu), (Some(allowed[0]), Some(allowed[0])));
    }
    let free = case(&["throughput", &place(&server), "-t", "0.2", "--repeat", "2"]);
    assert!(free.repeats.len() > 1);
    for part in &free.repeats {
        assert!(part.client_cpu.is_some_and(|cpu| allowed.contains(&cpu)), "{:?}", part.client_cpu);
        assert!(part.server_cpu.is_some_and(|cpu| allowed.contains(&cpu)), "{:?}", part.server_cpu);
    }
    let two = case(&["latency", &place(&server), "-n", "60", "-P", "2"]);
    assert!(two.repeats.iter().all(|part| part.client_cpu.is_none() && part.server_cpu.is_none()));
}

#[test]
fn waiting_for_the_schedule_is_not_counted_as_work() {
    let server = Serving::start(&[]);
    // A gap of 100 µs is waited for in a busy loop, all of it.
    let case = case(&["throughput", server.udp.as_str(), "-l", "100", "-b", "8M", "-t", "1"]);
    let cpu = case.cpu.as_ref().unwrap();
    assert!(cpu.client_busy_poll_seconds.unwrap() > 0.1, "{cpu:?}");
    let codes: Vec<&str> = case.warnings.iter().map(|warning| warning.code.name()).collect();
    assert!(!codes.contains(&"cpu_saturated"), "{codes:?} {cpu:?}");
}

#[test]
fn a_download_is_saved_with_its_tags_and_a_logger_lists_its_contents() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("runs.sqlite").display().to_string();
    let mut logger = Running::start(&["lab", "logger", "--listen", "tcp://127.0.0.1:0"]);
    let mut line = String::new();
    let stdout = logger.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let url = line.trim().rsplit_once(" on ").unwrap().1.to_owned();
    let listed = run(&["download", &url, "--list"]);
    assert_eq!(listed.status, Some(0), "{}", listed.stderr);
    let status = listed.stdout.lines().find(|line| line.trim_start().starts_with("Status ")).unwrap();
    assert!(status.contains(" on event  "), "{status}");
    for what in ["2 files, 3 tables", "CPU:data.dat", "100.0 kB", "Wind", "Speed, Direction"] {
        assert!(listed.stdout.contains(what), "{what}: {}", listed.stdout);
    }
    let file =
        ["download", &url, "--file", "CPU:data.dat", "--no-output", "--store", &store, "--tag", "mine"];
    let ended = run(&file);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let shown = run(&["show", "tag:mine", "--store", &store]);
    assert!(shown.stdout.contains("(pakbus): "), "{}{}", shown.stdout, shown.stderr);
    // A place that cannot be written is found before anything is downloaded.
    let nowhere = run(&[&file[..5], &["--store", "/nowhere/runs.sqlite"]].concat());
    assert_eq!(nowhere.status, Some(2));
    assert!(nowhere.stderr.contains("/nowhere"), "{}", nowhere.stderr);
}

/// The error of a measurement that has none.
fn refused(arguments: &[&str]) -> String {
    let ended = run(arguments);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    ended.stderr
}

#[test]
fn a_case_without_replies_names_the_reason() {
    // A port that was free a moment ago is closed; one whose socket is never read is silent.
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let flags = ["--protocol", "echo", "-n", "3", "--timeout", "100ms"];
    for scheme in ["tcp", "udp"] {
        let url = format!("{scheme}://{closed}");
        let message = refused(&[&["latency", url.as_str()], &flags[..]].concat());
        assert!(message.contains("connection refused"), "{message}");
    }
    let url = format!("udp://{}", silent.local_addr().unwrap());
    let message = refused(&[&["latency", url.as_str()], &flags[..]].concat());
    assert!(message.contains("none of 3 messages arrived: the server does not reply"), "{message}");
    let message = refused(&["latency", &url, "-n", "3"]);
    assert!(message.contains("no reply: the server is silent. If it speaks another protocol"), "{message}");
    // One that ends every connection.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let message = refused(&["latency", &url, "-n", "3"]);
    assert!(
        message.contains("the server closed the connection. It is busy, or uses another protocol"),
        "{message}"
    );
}

#[test]
fn the_help_names_the_aliases() {
    let help = String::from_utf8(command(&["--help"]).output().unwrap().stdout).unwrap();
    assert!(help.contains("[alias: ping]"), "{help}");
}

#[test]
fn a_server_reports_refusals_with_the_reason() {
    let token = std::env::temp_dir().join(format!("linkgauge-token-{}", std::process::id()));
    std::fs::write(&token, "the server's own").unwrap();
    let mut server = Serving::start(&["--token-file", token.to_str().unwrap()]);
    std::fs::remove_file(&token).unwrap();
    let ended = run(&["latency", &place(&server), "-n", "1"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    server.process.signal(Signal::INT);
    server.process.wait();
    let mut words = String::new();
    server.process.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    let lines: Vec<&str> = words.lines().filter(|line| line.contains("refused 1 time")).collect();
    assert_eq!(lines.len(), 1, "{words}");
    assert!(lines[0].starts_with("refused 1 time, last from 127.0.0.1:"), "{}", lines[0]);
    assert!(lines[0].ends_with(": it requires a token: use --token-file"), "{}", lines[0]);
}
