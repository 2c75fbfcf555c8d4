//! The first line of the output of every command answers the question of its user, in one sentence.
//!
//! Not here: `demo` and `doctor` (`commands.rs`), `reproduce` (`reproduce.rs`), `explain URL` (`explain_live.rs`).

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use crate::lab_logger::Logger;
use crate::program::{Running, Serving, run};

/// Numbers with their unit, as `#`.
fn masked(sentence: &str) -> String {
    let is_number = |word: &str| {
        let inner = word.trim_matches(|c: char| "(),;:.…→+-−±%#".contains(c));
        !inner.is_empty() && inner.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    let is_unit = |word: &str| {
        ["ns", "µs", "ms", "s", "kB", "MB", "GB", "kbit/s", "Mbit/s", "Gbit/s"]
            .contains(&word.trim_end_matches([',', ';', '.']))
    };
    let mut words: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        if let Some((place, _port)) = word.split_once("127.0.0.1:") {
            words.push(format!("{place}127.0.0.1:#"));
        } else if is_number(word) {
            words.push("#".to_owned());
        } else if is_unit(word) && words.last().is_some_and(|last| last == "#") {
            let mark: String = word.chars().filter(|c| ",;.".contains(*c)).collect();
            words.last_mut().unwrap().push_str(&mark);
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

/// The first sentence of the standard output, or of the messages if a command has no output; numbers and units, which differ
/// between runs, are `#`.
fn answer(arguments: &[&str]) -> String {
    let ended = run(arguments);
    assert_eq!(ended.status, Some(0), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    let text = if ended.stdout.is_empty() { ended.stderr } else { ended.stdout };
    masked(text.lines().next().unwrap_or_default())
}

#[test]
fn measurements() {
    let server = Serving::start(&[]);
    let url = server.tcp.as_str();
    let logger = Logger::on_tcp(&["--file", "CPU:data.dat:4000"]);
    let logger = format!("pakbus://{}/1", logger.place);
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, format!("[[case]]\nurl = \"{url}\"\nworkload = \"latency\"\ncount = 50\n"))
        .unwrap();
    let plan = plan.to_str().unwrap();
    let few = ["-n", "50", "--repeat", "6"];
    let answers = [
        answer(&[&["latency", url][..], &few].concat()),
        // What a load adds differs between hosts.
        answer(&["throughput", url, "--time", "600ms", "--repeat", "1", "--direction", "send,receive"])
            .split(';')
            .next()
            .unwrap()
            .trim_end_matches(". #")
            .to_owned(),
        answer(&["download", &logger, "--file", "CPU:data.dat", "--no-output"]),
        answer(&["download", &logger, "--list"]),
        answer(&["run", plan]),
        // The share of the pairs may be that of the medians.
        answer(&["ab", "--a", plan, "--b", plan, "--repeat", "2"]).replace(" in pairs, medians # %", ""),
    ];
    insta::assert_snapshot!(answers.join("\n"), @"
    TCP round trip to 127.0.0.1:# # median, # max; no loss. # runs × # requests of # B, #
    TCP to 127.0.0.1:# upload #, download #
    TCP download from 127.0.0.1:# (pakbus): #; chunk # median, # max. # chunks of # B, #
    pakbus://127.0.0.1:# # file, # tables
    TCP round trip to 127.0.0.1:# # median, # max; no loss. # requests of # B, #
    NOT DECIDABLE: p50 # → # # %, n = # pairs)
    ");
}

#[test]
fn servers_and_the_lab() {
    let places: [&[&str]; 4] = [
        &["serve", "tcp://127.0.0.1:0"],
        &["lab", "logger", "--listen", "tcp://127.0.0.1:0"],
        &["lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to", "tcp://127.0.0.1:9", "--delay", "5ms"],
        &["lab", "trouble", "--listen", "tcp://127.0.0.1:0"],
    ];
    let answers = places.map(|arguments| {
        let mut process = Running::start(arguments);
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        process.signal(Signal::INT);
        masked(&line)
    });
    insta::assert_snapshot!(answers.join("\n"), @"
    serving linkgauge on tcp://127.0.0.1:#
    emulated logger, address # on tcp://127.0.0.1:#
    shaping tcp://127.0.0.1:# on tcp://127.0.0.1:#
    echo with faults on tcp://127.0.0.1:#
    ");
}

#[test]
fn results() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("runs.sqlite").display().to_string();
    let to = directory.path().join("exported").display().to_string();
    let data = |name: &str| format!("{}/tests/data/run-v1-{name}.json", env!("CARGO_MANIFEST_DIR"));
    let with_store = |arguments: &[&str]| answer(&[arguments, &["--store", &store]].concat());
    let answers = [
        with_store(&["import", "run", &data("throughput")]),
        with_store(&["import", "run", &data("latency")]),
        with_store(&["history"]),
        with_store(&["show", "last"]),
        with_store(&["show", &data("paper")]),
        with_store(&["compare", "last", "last"]),
        with_store(&["export", &to, "last"]).replace(&to, "DIRECTORY"),
        with_store(&["prune", "--keep", "1", "--dry-run"]),
    ];
    insta::assert_snapshot!(answers.join("\n"), @"
    TCP to 127.0.0.1:# upload #, download #; RTT # → # under load (lowest, p50). # runs, # messages, #
    TCP round trip to 127.0.0.1:# # median, # max; no loss. # requests of # B, #
    # saved runs of 2026-11-21; the last: throughput of tcp://127.0.0.1:# rate #.
    TCP to 127.0.0.1:# upload #, download #; RTT # → # under load (lowest, p50). # runs, # messages, #
    sena again, quick: # of # published values have a measured counterpart; measured ÷ published: #
    NOT DECIDABLE: rate # → # # %, n = 2/2)
    # run written to DIRECTORY
    # run would be deleted
    ");
}
