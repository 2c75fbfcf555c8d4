//! The commands that need no server, run as a user runs them.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use linkgauge::Registry;
use linkgauge::run::Run;

use super::trials::transports;

fn linkgauge(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linkgauge"))
        .args(arguments)
        .current_dir(directory)
        .env("TMPDIR", directory)
        .env("LINKGAUGE_STORE", "")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
#[ignore = "long"]
fn demo_measures_every_transport() {
    let directory = tempfile::tempdir().unwrap();
    // The files of the user stay as they are.
    std::fs::write(directory.path().join("report.html"), "mine").unwrap();
    let output = linkgauge(&["demo", "--quick"], directory.path());
    let (table, message) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{table}\n{message}");
    assert!(message.contains("all links are inside this machine"), "{message}");
    assert!(message.contains("linkgauge-demo-2.json") && message.contains("report-2.html"), "{message}");
    assert!(table.lines().next().is_some_and(|line| line.contains(" links measured in ")), "{table}");
    assert!(table.lines().count() + message.lines().count() <= 25, "{table}{message}");
    assert!(!table.contains('\u{1b}') && !message.contains('\u{1b}'));
    assert!(table.lines().skip(1).all(|line| line.chars().count() <= 80), "{table}");

    let run = std::fs::read_to_string(directory.path().join("linkgauge-demo-2.json")).unwrap();
    let run = Run::from_json(&run).unwrap();
    assert!(run.is_complete());
    for transport in transports() {
        for workload in ["latency", "throughput"] {
            let scheme = format!("{}://", transport.scheme);
            let measured = |case: &&linkgauge::run::CaseResult| {
                case.endpoint.starts_with(&scheme)
                    && case.workload == workload
                    && case.figures.counts.received > 0
            };
            assert!(run.cases.iter().any(|case| measured(&case)), "{workload} of {scheme}");
        }
    }
    assert_eq!(std::fs::read_to_string(directory.path().join("report.html")).unwrap(), "mine");
    let page = std::fs::read_to_string(directory.path().join("report-2.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));

    let mut left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["linkgauge-demo-2.json", "report-2.html", "report.html"]);
}

#[test]
#[ignore = "long"]
fn doctor_examines_this_host() {
    let directory = tempfile::tempdir().unwrap();
    let summary = text(&linkgauge(&["doctor"], directory.path()).stdout);
    let first = summary.lines().next().unwrap();
    assert!(
        ["Ready", "Usable", "Not suitable"].iter().any(|verdict| first.starts_with(verdict)),
        "{summary}"
    );
    assert!(summary.lines().count() <= 25 && summary.contains("overhead  clock "), "{summary}");
    let output = linkgauge(&["doctor", "--all"], directory.path());
    let page = text(&output.stdout);
    assert!(output.status.success(), "{page}{}", text(&output.stderr));
    for transport in Registry::standard().transports.0 {
        assert!(page.contains(transport.scheme), "{page}");
    }
    assert!(page.contains("clock source") && page.contains("\nMeasurement overhead\n"), "{page}");
    assert!(!page.contains('\u{1b}') && page.lines().all(|line| line.chars().count() <= 80), "{page}");
}

#[test]
fn doctor_writes_json() {
    let directory = tempfile::tempdir().unwrap();
    let output = linkgauge(&["doctor", "--json", "-"], directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(findings["transports"].as_array().unwrap().len(), Registry::standard().transports.0.len());
    // The list differs between hosts.
    for port in findings["serial_ports"].as_array().unwrap() {
        assert!(
            port["device"].as_str().unwrap().starts_with("/dev/") && port["may_open"].is_boolean(),
            "{port}"
        );
    }
    assert!(findings["overhead"]["clock_read_ns"].as_f64().unwrap() > 0.0);
    assert!(findings["overhead"]["round_trips"][0]["p50_ns"].as_u64().unwrap() > 0);
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let document = tempfile::NamedTempFile::new().unwrap();
    let path = document.path().to_str().unwrap();
    let serving = ["serve", "tcp://127.0.0.1:0", "--time", "50ms"];
    for arguments in
        [&["completions", "bash"][..], &serving, &["latency", "--help"], &["doctor", "--json", path]]
    {
        let mut command = crate::program::command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let errors = text(&ended.stderr);
        assert!(ended.status.success() && !errors.contains("panicked"), "{arguments:?}: {errors}");
    }
}
