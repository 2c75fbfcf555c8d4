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
            &["irtt", name],
            "not a result of irtt client -o FILE: invalid type: floating point `1.5`, expected an object at line 2 column 0",
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

/// A client's upload of iperf3 whose receiver counted nothing.
const NOTHING_RECEIVED: &str = r#"{"start": {"connecting_to": {"host": "192.0.2.7", "port": 5201}, "test_start": {"protocol": "TCP",
    "num_streams": 1, "blksize": 1000, "duration": 2}}, "intervals": [], "end": {"sum_sent": {"seconds": 2, "bytes": 9000000,
    "bits_per_second": 36e6}, "sum_received": {"seconds": 2, "bytes": 0, "bits_per_second": 0}}}"#;

#[test]
fn an_incomplete_test_has_the_status_of_incomplete_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("zero.json");
    std::fs::write(&file, NOTHING_RECEIVED).unwrap();
    let ended = run(&["import", "iperf3", file.to_str().unwrap(), "--no-store"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stdout);
    assert!(ended.stdout.contains(": 0.000 bit/s"), "{}", ended.stdout);
    assert!(ended.stdout.contains("the imported measurement did not complete"), "{}", ended.stdout);
}

#[test]
fn the_same_result_under_another_name_is_saved_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store.db");
    let import = |name: &str| {
        let file = directory.path().join(name);
        let begun = "\"start\": {\"timestamp\": {\"timesecs\": 1800000000}, ";
        let text =
            NOTHING_RECEIVED.replace("\"bytes\": 0", "\"bytes\": 9000000").replace("\"start\": {", begun);
        std::fs::write(&file, text).unwrap();
        run(&["import", "iperf3", file.to_str().unwrap(), "--store", store.to_str().unwrap()])
    };
    let (first, again) = (import("first.json"), import("again.json"));
    assert_eq!((first.status, again.status), (Some(0), Some(0)), "{}", again.stderr);
    assert!(first.stderr.starts_with("Saved as "), "{}", first.stderr);
    assert!(again.stderr.contains("again.json: the store has this result already, as "), "{}", again.stderr);
}

#[test]
fn a_rate_without_counts_has_an_unknown_loss() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("damaged.json");
    std::fs::write(
        &file,
        NOTHING_RECEIVED.replace("\"bytes\": 0, \"bits_per_second\": 0", "\"bits_per_second\": 36e6"),
    )
    .unwrap();
    let ended = run(&["import", "iperf3", file.to_str().unwrap(), "--no-store"]);
    assert!(ended.stdout.contains("36.0 Mbit/s; loss unknown"), "{}", ended.stdout);
}

#[test]
fn headlines_hide_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ping.txt");
    let answer = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&["import", "ping", file.to_str().unwrap(), "--no-store"]).stdout
    };
    let lost = answer("gw : 1.00 - 3.00 - -\nnas : - - - - -\n");
    assert!(lost.starts_with("ping.txt: 2 latency cases: p50 lost, 8 of 10 lost (80.0 %)"), "{lost}");
    let some = answer("gw : 4.00\nnas : - - -\n");
    assert!(some.starts_with("ping.txt: 2 latency cases: p50 4.00 ms to lost, 3 of 4 lost"), "{some}");
    let untimed =
        answer("PING gw (192.0.2.1) 8(36) bytes of data.\n16 bytes from 192.0.2.1: icmp_seq=1 ttl=64\n");
    assert!(untimed.contains("no times; loss unknown"), "{untimed}");
}

#[test]
fn documents_are_checked_wherever_they_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let document = include_str!("../data/run-v1-latency.json");
    let mut value: serde_json::Value = serde_json::from_str(document).unwrap();
    value["cases"][0]["lost"] = 1_000_000_000_000_000u64.into();
    std::fs::write(&file, value.to_string()).unwrap();
    let name = file.to_str().unwrap();
    for arguments in [&["show", name][..], &["import", "run", name, "--no-store"]] {
        let ended = run(arguments);
        assert!(ended.stdout.contains("contradict"), "{arguments:?}: {}", ended.stdout);
        assert!(!ended.stdout.contains("000 000 000 of"), "{arguments:?}: {}", ended.stdout);
    }
}

#[test]
fn two_results_never_go_to_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("log.txt"), "1\n2\n").unwrap();
    let import = ["import", "samples", &path("log.txt"), "--unit", "ms", "--no-store", "--json", &path("x")];
    let other = format!("{}/../{}/x", path(""), directory.path().file_name().unwrap().display());
    for html in [path("x"), other] {
        let ended = run(&[&import[..], &["--html", &html]].concat());
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
        assert!(ended.stderr.ends_with("x: --json and --html name one file: name two\n"), "{}", ended.stderr);
    }
    assert!(!std::path::Path::new(&path("x")).exists());
    assert_eq!(run(&[&import[..], &["--html", "/dev/null", "--csv", "/dev/null"]].concat()).status, Some(0));
}

#[test]
fn several_files_are_shown_and_written_as_their_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [one, two] = [file("one.log", "1.5\n2.5\n"), file("two.log", "3.5\n4.5\n")];
    let import = |more: &[&str]| {
        run(&[&["import", "samples", &one, &two, "--unit", "ms", "--no-store"], more].concat())
    };
    let shown = import(&[]);
    assert!(shown.stdout.contains("one.log") && shown.stdout.contains("two.log"), "{}", shown.stdout);
    let json = directory.path().join("both.json");
    import(&["--quiet", "--json", json.to_str().unwrap()]);
    assert_eq!(Run::read_stream(std::fs::File::open(&json).unwrap()).count(), 2);
    let csv = import(&["--format", "csv"]).stdout;
    assert_eq!(csv.lines().count(), 3, "a header and two rows: {csv}");
    let junit = import(&["--format", "junit"]);
    assert!(junit.stderr.contains("JUnit XML holds one run"), "{}", junit.stderr);
}
