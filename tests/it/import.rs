//! Results of other programs: logs of samples, of any length, and files that are no results.

use std::io::Write;
use std::process::Stdio;

use linkgauge::run::Run;

use crate::client::imported;
use crate::program::{command, run};

#[test]
fn a_million_samples_from_standard_input() {
    let mut child = command(&["import", "samples", "-", "--unit", "ms", "--lost", "999", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        let mut text = String::new();
        for index in 0..1_000_000u32 {
            // One in a thousand is lost, the others are 1 … 100 ms.
            let value = if index % 1000 == 7 { 999 } else { index * 37 % 100 + 1 };
            text += &format!("{value}\n");
        }
        input.write_all(text.as_bytes()).unwrap();
    });
    let ended = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let run = Run::from_json(str::from_utf8(&ended.stdout).unwrap()).unwrap();
    let figures = &run.cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.lost), (1_000_000, 1000));
    let latency = figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max), (1_000_000, 100_000_000));
    let p50 = latency.percentiles["p50"].unwrap() as f64;
    assert!((p50 / 50e6 - 1.0).abs() < 0.02, "{p50}");
}

/// A hundred round trips of 1, 2 … 95 ms, five of them lost.
#[test]
fn a_log_of_the_studys_kind_as_counted_by_hand() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("study.log");
    let of = |number: u32| if number > 95 { 999 } else { number };
    // In no order: 37 and 100 have no common divisor.
    let log: String = (0..100).map(|number| format!("{}\n", of(number * 37 % 100 + 1))).collect();
    std::fs::write(&file, log).unwrap();
    let flags = ["--unit", "ms", "--lost", "999"];
    let figures = &imported("samples", &file, &flags).cases[0].figures;
    assert_eq!((figures.counts.sent, figures.counts.received, figures.counts.lost), (100, 95, 5));
    let times = figures.times.latency_ns.as_ref().unwrap();
    for decile in 1..=9 {
        assert_eq!(times.percentiles[&format!("p{decile}0")], Some(decile * 10_000_000));
    }
    assert_eq!(times.mean_fastest_95_percent, Some(48e6));
    let shares = [("50", 0.5), ("100", 0.05), ("200", 0.05), ("300", 0.05)];
    assert!(shares.iter().all(|(limit, share)| times.later_than_ms[*limit] == *share), "{times:?}");
    let ended = run(&[&["import", "samples", file.to_str().unwrap(), "--all"], &flags[..]].concat());
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = "late: 50.0 % over 50 ms, 5.00 % over 100 ms, 5.00 % over 200 ms, 5.00 % over 300 ms; the lost are \
                among them. Mean of the fastest 95 %: 48.00 ms.";
    assert!(words.contains(message), "{}", ended.stdout);
}

#[test]
fn invalid_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log.txt");
    std::fs::write(&file, "1.5\nfast\n").unwrap();
    let name = file.to_str().unwrap();
    for (arguments, complaint) in [
        (
            &["samples", name, "--unit", "ms"][..],
            "line 2: 'fast' is not a latency: write one number per line, and '#' before comments. If it marks a lost \
             request: --lost='fast'",
        ),
        (&["samples", name], "the file does not contain the unit of the times: use --unit ms, us, ns or s"),
        (&["iperf3", name], "not a result of iperf3 --json: it contains no JSON object"),
        (
            &["sockperf", name],
            "not a full log of sockperf: no row follows 'packet, txTime(sec), rxTime(sec), …'. Try: sockperf … --full-log FILE",
        ),
        (
            &["hdr", name],
            "line 1: '1.5' is no interval of an HdrHistogram log: it has 1 column, not 4 columns",
        ),
        (&["samples", "/", "--unit", "ms"], "cannot be read: Is a directory (os error 21)"),
        (&["run", "/nonexistent"], "cannot be read: No such file or directory (os error 2)"),
        (&["run", "/"], "cannot be read: Is a directory (os error 21)"),
    ] {
        let ended = run(&[&["import"], arguments].concat());
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert_eq!(ended.stderr, format!("error: {}: {complaint}\n", arguments[1]));
    }
    let ended = run(&["import", "samples", name, "--unit", "hours"]);
    assert!(ended.stderr.contains("'hours' is not a unit (known: ns, us, ms, s)"), "{}", ended.stderr);
}
