//! `linkgauge mesh` and `linkgauge agent` as processes: agents of this machine measure each other over loopback.
//!
//! Agents save nothing, and inherit an empty LINKGAUGE_STORE.

use std::path::Path;
use std::time::Duration;

use linkgauge::run::{BlamedPart, Run};
use rustix::process::Signal;

use crate::program::{Ended, Running, command, run, run_within, wait_until};

/// A file of hosts that all run here. `more` is added at the end.
fn hosts_file(place: &Path, count: usize, head: &str, more: &str) -> String {
    let host = |index: usize| {
        format!(
            "[[host]]\nname = \"h{index}\"\naddress = \"127.0.0.1\"\nlocal = true\ngroup = \"g{}\"\n",
            index % 2
        )
    };
    let file = place.join("hosts.toml");
    let text = format!("{head}\n{}{more}", (0..count).map(host).collect::<String>());
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

const SHORT: &str = "test.latency.time = \"300ms\"\ntest.latency.rate = \"100/s\"\ntest.throughput.time = \"200ms\"\n\
                     test.throughput.bit_rate = \"20M\"";

fn document(path: &Path) -> Run {
    Run::from_json(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_pair_is_measured_and_one_run_is_saved() {
    let place = tempfile::tempdir().unwrap();
    let file = hosts_file(place.path(), 4, SHORT, "");
    let store = place.path().join("runs.sqlite").display().to_string();
    let page = place.path().join("mesh.html");
    let json = place.path().join("mesh.json");
    let [page_name, json_name] = [&page, &json].map(|path| path.display().to_string());
    let arguments = ["mesh", &file, "--store", &store, "--html", &page_name, "--json", &json_name];
    let Ended { status, stdout, stderr } = run(&arguments);
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.starts_with("4 hosts, 12 pairs: the worst is h"), "{stdout}");
    assert!(stderr.contains("Saved as "), "{stderr}");
    let saved = document(&json);
    let mesh = saved.mesh.as_ref().unwrap();
    assert_eq!((saved.cases.len(), mesh.pairs.len()), (24, 12));
    assert!(saved.is_complete() && mesh.exclusive);
    assert!(mesh.pairs.iter().all(|pair| pair.failure.is_none() && !pair.is_under_load()));
    let served = mesh.served.as_ref().unwrap();
    assert_eq!((served.throughput_tests, served.overlapping, served.unlogged), (12, 0, 0));
    assert!(saved.cases.iter().all(|case| case.figures.has_measurements() && case.series.is_empty()));
    let shown = run(&["show", "last", "--store", &store]);
    assert_eq!(shown.stdout, stdout);
    let explained = run(&["explain", "last", "--store", &store]).stdout;
    let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(explained.contains("Mesh of 4 hosts"), "{explained}");
    assert!(explained.contains("linkgauge explain tcp://127.0.0.1"), "{explained}");
    let pair = run(&["explain", "last", "--pair", "h0", "h2", "--store", &store]).stdout;
    assert!(pair.starts_with("h0 → h2: ") && pair.contains("\nh2 → h0: "), "{pair}");
    assert!(pair.contains("is usual for such pairs, × "), "{pair}");
    let unknown = run(&["explain", "last", "--pair", "h0", "h9", "--store", &store]);
    assert_eq!(unknown.status, Some(2));
    assert!(
        unknown.stderr.contains("no host is named 'h9'. Name two hosts of the run: h0, h1"),
        "{}",
        unknown.stderr
    );
    assert!(std::fs::read_to_string(&page).unwrap().contains("<table class=\"matrix\">"));
}

#[test]
fn round_trips_beside_throughput_tests_are_kept_apart() {
    let place = tempfile::tempdir().unwrap();
    let head = SHORT.replace("latency.time = \"300ms\"", "latency.time = \"2s\"");
    let file = hosts_file(place.path(), 3, &head, "");
    let [page, json] = ["mesh.html", "mesh.json"].map(|name| place.path().join(name).display().to_string());
    let ended = run(&["mesh", &file, "--overlap", "--html", &page, "--json", &json, "--all"]);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    let saved = document(Path::new(&json));
    let mesh = saved.mesh.as_ref().unwrap();
    for pair in &mesh.pairs {
        assert!(!pair.under_load_of.is_empty(), "{pair:?}");
        let load = |number: &u32| &saved.cases[*number as usize - 1].workload == "throughput";
        assert!(pair.under_load_of.iter().all(load), "{pair:?}");
    }
    assert_eq!(mesh.latency_blame, []);
    let page = std::fs::read_to_string(&page).unwrap();
    for text in [ended.stdout.to_lowercase(), page.to_lowercase()] {
        assert!(text.contains("median round trip while other tests ran"), "{text}");
        assert!(!text.contains("median round trip in "), "{text}");
    }
    assert!(
        ended.stdout.contains("* measured while throughput tests ran on these hosts."),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_host_that_cannot_be_reached_costs_its_pairs_and_the_run_can_be_resumed() {
    let place = tempfile::tempdir().unwrap();
    let broken = "[[host]]\nname = \"broken\"\naddress = \"127.0.0.1\"\ncommand = [\"sh\", \"-c\", \"echo hello; echo no way >&2; exit 3\"]\n";
    let file = hosts_file(place.path(), 3, SHORT, broken);
    let store = place.path().join("runs.sqlite").display().to_string();
    let Ended { status, stdout, stderr } = run(&["mesh", &file, "--store", &store, "--quiet"]);
    assert_eq!((status, stdout.as_str()), (Some(2), ""), "{stderr}");
    let shown = run(&["show", "last", "--store", &store]).stdout;
    // The position of line breaks depends on whether the first sentence blames a host.
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("host broken took no part to the end: its agent ended: no way"), "{shown}");
    assert!(shown.contains("6 pairs without a complete result"), "{shown}");
    let agent = env!("CARGO_BIN_EXE_linkgauge");
    let repaired = broken.replace(
        "\"sh\", \"-c\", \"echo hello; echo no way >&2; exit 3\"",
        &format!("\"{agent}\", \"agent\", \"--stdio\""),
    );
    hosts_file(place.path(), 3, SHORT, &repaired);
    let resumed = run(&["mesh", &file, "--store", &store, "--resume", "last"]);
    assert_eq!(resumed.status, Some(0), "{}{}", resumed.stdout, resumed.stderr);
    assert!(resumed.stderr.contains(": 12 tests left to measure"), "{}", resumed.stderr);
    assert!(resumed.stdout.starts_with("4 hosts, 12 pairs: the worst is "), "{}", resumed.stdout);
}

#[test]
#[ignore = "long"]
fn a_slow_host_is_named() {
    let place = tempfile::tempdir().unwrap();
    let head = "test.latency.off = true\ntest.throughput.time = \"1s\"\ntest.throughput.bit_rate = \"16M\"";
    let agent = env!("CARGO_BIN_EXE_linkgauge");
    let slow = format!(
        "[[host]]\nname = \"slow\"\naddress = \"127.0.0.1\"\ngroup = \"g0\"\n\
         command = [\"{agent}\", \"agent\", \"--stdio\", \"--max-rate\", \"4M\"]\n"
    );
    let file = hosts_file(place.path(), 4, head, &slow);
    let json = place.path().join("mesh.json");
    let ended = run(&["mesh", &file, "--json", &json.display().to_string()]);
    let mesh = document(&json).mesh.unwrap();
    let blamed = mesh.throughput_blame.first().unwrap_or_else(|| panic!("{}", ended.stdout));
    assert_eq!(blamed.part, BlamedPart::Host { host: 4 }, "{}", ended.stdout);
    assert!(ended.stdout.contains("host slow slows each of its 8 pairs to 0.2"), "{}", ended.stdout);
}

#[test]
fn ctrl_c_ends_the_agents_and_keeps_what_was_measured() {
    let place = tempfile::tempdir().unwrap();
    let head = SHORT.replace("200ms", "20s");
    let pids = place.path().join("pids");
    let agent = env!("CARGO_BIN_EXE_linkgauge");
    let third = format!(
        "[[host]]\nname = \"third\"\naddress = \"127.0.0.1\"\n\
         command = [\"sh\", \"-c\", \"echo $$ >> {}; exec {agent} agent --stdio\"]\n",
        pids.display()
    );
    let file = hosts_file(place.path(), 2, &head, &third);
    let json = place.path().join("mesh.json");
    let mut mesh = Running::start(&["mesh", &file, "--json", &json.display().to_string()]);
    let pid = wait_until("the third agent", || {
        let text = std::fs::read_to_string(&pids).ok()?;
        text.trim().parse::<u32>().ok()
    });
    // The round trips take less than a second; then the rates begin.
    std::thread::sleep(Duration::from_secs(3));
    mesh.signal(Signal::INT);
    assert_eq!(mesh.wait().code(), Some(130));
    let saved = document(&json);
    assert!(saved.interrupted && !saved.cases.is_empty());
    wait_until("the end of the agent", || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
}

#[test]
fn a_file_is_checked_before_any_agent_starts() {
    let place = tempfile::tempdir().unwrap();
    let file = hosts_file(place.path(), 12, "", "");
    let Ended { status, stdout, stderr } = run(&["mesh", &file, "--check"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert_eq!(
        stdout,
        "264 tests of 12 hosts in about 4 min\n  round trips: 5.000 s, 1.00 times the least possible\n  \
         rates: 220.0 s, 1.00 times the least possible\n"
    );
    let wrong = place.path().join("wrong.toml");
    std::fs::write(&wrong, "[[host]]\nname = \"a\"").unwrap();
    let ended = run(&["mesh", &wrong.display().to_string()]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("wrong.toml: 1 host: a mesh has 2 to 1000"), "{}", ended.stderr);
    let missing = run(&["mesh", "nowhere.toml"]);
    assert!(missing.stderr.contains("nowhere.toml: the file cannot be read"), "{}", missing.stderr);
}

#[test]
fn an_agent_refuses_what_is_no_order() {
    let mut agent = command(&["agent", "--stdio"]);
    let place = tempfile::tempdir().unwrap();
    let input = place.path().join("orders");
    std::fs::write(&input, "{\"order\": \"run\", \"command\": \"id\"}\n").unwrap();
    agent.stdin(std::fs::File::open(&input).unwrap());
    let ended = run_within(Duration::from_secs(30), &mut agent);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stdout.starts_with("{\"answer\":\"ready\",\"version\":2,"), "{}", ended.stdout);
    assert!(ended.stderr.contains("unknown variant `run`"), "{}", ended.stderr);
}

#[test]
fn a_login_may_greet_but_not_without_end() {
    let place = tempfile::tempdir().unwrap();
    let agent = env!("CARGO_BIN_EXE_linkgauge");
    for (lines, is_lost) in [(100, false), (101, true)] {
        let third = format!(
            "[[host]]\nname = \"third\"\naddress = \"127.0.0.1\"\n\
             command = [\"sh\", \"-c\", \"yes Welcome | head -n {lines}; exec {agent} agent --stdio\"]\n"
        );
        let file =
            hosts_file(place.path(), 1, "test.latency.off = true\ntest.throughput.time = \"100ms\"", &third);
        let json = place.path().join("mesh.json");
        let ended = run(&["mesh", &file, "--json", &json.display().to_string()]);
        assert_eq!(ended.status, Some(if is_lost { 2 } else { 0 }), "{}{}", ended.stdout, ended.stderr);
        let lost = document(&json).mesh.unwrap().hosts.remove(1).lost;
        let expected = "it printed more than 100 lines before its agent started: make its login silent for commands without a terminal";
        assert_eq!(lost.as_deref(), is_lost.then_some(expected));
    }
}
