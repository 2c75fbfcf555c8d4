//! `linkgauge explain` from the command line: a published table, what cannot be explained, JSON.

use std::path::Path;

use linkgauge::run::Run;
use linkgauge::store::Store;
use linkgauge::study::STUDIES;
use serde_json::Value;

use crate::program::run;

#[test]
fn a_published_table_is_explained() {
    let ended = run(&["explain", "loggernet", "--all"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("645 (637–654)"), "{}", ended.stdout);
    assert!(ended.stdout.contains("least squares (+87 %) and Theil–Sen (+79 %)"), "{}", ended.stdout);
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
}

#[test]
fn findings_are_json_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("found.json");
    let on_stdout = run(&["explain", "loggernet", "--json", "-"]);
    let in_file = run(&["explain", "loggernet", "--json", path.to_str().unwrap()]);
    assert_eq!((on_stdout.status, in_file.status), (Some(0), Some(0)));
    assert!(in_file.stdout.starts_with("loggernet: what limits CR1000: one chunk "), "{}", in_file.stdout);
    assert!(in_file.stdout.contains("\nThe window"));
    let found: Value = serde_json::from_str(&on_stdout.stdout).unwrap();
    let again: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(found, again);
    let window = &found["findings"]["window"];
    assert_eq!((&window["limit"], &window["chunk_bytes"]), (&"window".into(), &1000.into()));
    assert_eq!(window["rows"].as_array().unwrap().len(), 9);
    let bytes = window["fits"][2]["window_bytes"].as_f64().unwrap();
    assert!((bytes - 709.03).abs() < 0.01, "{bytes}");
}

/// A run of messages of five sizes: 20 µs each, and 10 ns for a byte. In a store of its own, and as a file.
fn swept(directory: &Path) -> (String, String) {
    let mut run = Run::from_json(include_str!("../data/run-v1-latency.json")).unwrap();
    let mut case = run.cases[0].clone();
    (case.workload, case.figures.times.latency_ns) = ("throughput".to_owned(), None);
    let of_size = |bytes: u32| {
        let mut case = case.clone();
        case.message_bytes = bytes;
        case.figures.delivery.throughput_bps =
            Some(8e9 * f64::from(bytes) / (20_000.0 + 10.0 * f64::from(bytes)));
        case
    };
    run.cases = [64, 256, 1024, 4096, 16_384].map(of_size).to_vec();
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (file, store) = (path("sweep.json"), path("runs.sqlite"));
    std::fs::write(&file, serde_json::to_string(&run).unwrap()).unwrap();
    let mut kept = Store::open(Path::new(&store)).unwrap();
    kept.save(&run).unwrap();
    kept.save(&Run { id: "20261120T100000Z-beef".to_owned(), ..run }).unwrap();
    kept.tag("20261120T100000Z-beef", &["both".to_owned()]).unwrap();
    (file, store)
}

#[test]
fn a_run_is_a_file_or_in_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let (file, store) = swept(directory.path());
    let of_file = run(&["explain", &file]);
    assert_eq!((of_file.status, of_file.stderr.as_str()), (Some(0), ""));
    assert!(of_file.stdout.contains("20.00 µs 100.0 MB/s"), "{}", of_file.stdout);
    for named in ["beef", "20261120T100000Z-beef", "tag:both", "both"] {
        assert_eq!(run(&["explain", named, "--store", &store]).stdout, of_file.stdout, "{named}");
    }
    for (named, words) in [
        ("cafe/", &["cafe/: cannot be read"][..]),
        (
            "ca_fe!",
            &[
                "'ca_fe!' is neither the name of a host nor a study (sena, ",
                "no run or tag 'ca_fe!' in the store",
            ],
        ),
        (
            "nosuchhost.invalid",
            &[
                "error: tcp://nosuchhost.invalid: the name 'nosuchhost.invalid' was not found: check its spelling\n",
            ],
        ),
        ("tag:none", &["no run is tagged 'none'"]),
        ("beef,beef", &["'beef,beef' names 2 runs"]),
    ] {
        let ended = run(&["explain", named, "--store", &store]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{named}");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
    }
}

#[test]
fn a_bare_host_is_measured() {
    let server = crate::program::Serving::start(&[]);
    let host = server.tcp.address();
    let ended = run(&["explain", host, "--time", "1", "--protocol", "linkgauge"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains(host), "{}", ended.stdout);
}

#[test]
fn a_run_that_no_model_treats_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = swept(directory.path());
    let mut run_of_file = Run::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    run_of_file.cases.truncate(1);
    run_of_file.cases[0].workload = "connect".to_owned();
    std::fs::write(&file, serde_json::to_string(&run_of_file).unwrap()).unwrap();
    let ended = run(&["explain", &file]);
    assert_eq!((ended.status, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    let expected = format!("a run of connect has nothing that a model explains. Try 'linkgauge show {file}'");
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
}

#[test]
fn the_line_can_be_declared() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = swept(directory.path());
    let declared = |line: &str| run(&["explain", &file, "--line", line]);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (line, verdict) in [
        ("1Gbit/s", "last two 80.0 % of the line as declared (125.0 MB/s): not the line."),
        ("820M*1500/1538", "last two 100.0 % of the line as declared (99.97 MB/s): it is the line."),
        ("100M", "last two 800.0 % of the line as declared (12.50 MB/s): faster than the line can be"),
    ] {
        let ended = declared(line);
        assert!(words(&ended.stdout).contains(verdict), "{line}: {}", ended.stdout);
    }
    for (line, words) in
        [("fast", "fast"), ("1G*2/1", "'2/1' is not a share"), ("1G*0/0", "'0/0'"), ("1G*", "''")]
    {
        let ended = declared(line);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{line}");
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn the_published_sizes_of_linx_and_tipc_are_explained() {
    let ended = run(&["explain", "linx", "--all"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for found in [
        "LINX 6 21.21 µs 91.64 MB/s 89.05–240.0 1.943 kB 89.69 MB/s",
        "TIPC 6 – – – – 58.65 MB/s +35 %",
        "TIPC: the model does not fit (off by +35 %): no costs shown.",
        "LINX: last two 74.2 % of the line (120.9 MB/s): not the line.",
        "TIPC: last two 48.5 % of the line (120.9 MB/s): not the line.",
        "LINX: last two 99.6 % of the line (12.09 MB/s): it is the line.",
        "LINX: last two 100.0 % of the line (12.09 MB/s): it is the line.",
        "LINX: the rate of all sizes is beyond the line",
    ] {
        assert!(words.contains(found), "{found}: {}", ended.stdout);
    }
}

#[test]
fn published_rates_by_size_are_explained() {
    let ended = run(&["explain", "netio", "--all"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("Table 1: From the board to the PC"), "{}", ended.stdout);
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
}

#[test]
fn a_study_is_explained_on_one_screen() {
    for study in STUDIES {
        let ended = run(&["explain", study.name]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        let lines: Vec<&str> = ended.stdout.lines().collect();
        assert!(lines[0].starts_with(&format!("{}: what limits ", study.name)), "{}", ended.stdout);
        assert!(
            lines.len() <= 24 && lines.iter().skip(1).all(|line| line.chars().count() <= 80),
            "{}",
            ended.stdout
        );
    }
    insta::assert_snapshot!(run(&["explain", "loggernet"]).stdout, @"
    loggernet: what limits CR1000: one chunk for each round trip, time of the server between receipt and reply
      one chunk for each round trip: 673 bytes per round trip.
      time of the server between receipt and reply: 53.74 ms per request.
      Seen in 5 published figures, not proved: they determine the parameters above,
        which predict 5 others. Each system, and how well: linkgauge explain
        loggernet --all

    The window: 709 bytes for each round trip; capacity 10 242 B/s
      Bottleneck: the window, in 7 of 9 rows: most of the time is spent waiting for
        replies.
    ");
    insta::assert_snapshot!(run(&["explain", "wireless"]).stdout, @"
    wireless: what limits 5 systems: mostly shortest round trip of the path (5 of 5), time slots of a radio or bus (5 of 5)
      shortest round trip of the path: 1.612 ms at least (tcp, udp, tcp-ad-hoc,
        udp-ad-hoc); 6.88 ms at least (rfcomm).
      time slots of a radio or bus: up to 300 µs (tcp, udp); up to 686.8 µs
        (tcp-ad-hoc, udp-ad-hoc); frames of 1 ms (rfcomm); 17.9 % wait 9.024 ms for
        another turn (rfcomm).
      radio channel that other stations use: 34.95 % wait 2.906 ms (tcp, udp);
        59.82 % wait 1.885 ms (tcp-ad-hoc, udp-ad-hoc).
      TCP retransmission timeout after a loss: 1.75 % lost, repeated after 300 ms
        (tcp); 1.9 % lost, repeated after 300 ms (tcp-ad-hoc).
      lost requests or replies: 1.75 % lost for good (udp); 0.7 % lost for good
        (udp-ad-hoc).
      Seen in 30 published figures, not proved: they determine the parameters above,
        which predict 45 others; 8 figures not explained. Each system, and how well:
        linkgauge explain wireless --all
    ");
}

#[test]
#[ignore = "long"]
fn the_mechanisms_of_each_published_system_are_named() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (study, found) in [
        // The twins of sena take a minute.
        (
            "loggernet",
            "CR1000, a logger that answers 673 bytes per round trip, behind a token bucket: one chunk for each round trip: 673 bytes for each round trip, and then the next request",
        ),
        ("netio", "the sender's processor needs 111.6 ns for each byte: 71.68 Mbit/s at most"),
        ("wireless", "each direction waits up to 300.0 µs for a slot"),
        ("linx", "the line carries 100.0 Mbit/s; the first frame crosses it 4 times"),
    ] {
        let ended = run(&["explain", study, "--all"]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        assert!(words(&ended.stdout).contains(found), "{}", ended.stdout);
        assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    }
    let fit = run(&["explain", "netio", "--all"]);
    assert_eq!((fit.status, fit.stderr.as_str()), (Some(0), ""));
    assert!(
        fit.stdout.contains("netio: how well the mechanisms predict the other figures"),
        "{}",
        fit.stdout
    );
    let all = fit.stdout.lines().find(|line| line.trim_start().starts_with("all ")).unwrap();
    assert_eq!(all.split_whitespace().skip(1).take(4).collect::<Vec<_>>(), ["9", "3", "of", "9"], "{all}");
}

#[test]
fn a_run_without_enough_data_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let nonsense = file("nonsense.json", "{");
    let old = file("old.json", include_str!("../data/run-v1-latency.json"));
    let newer = file("newer.json", r#"{"schema": "linkgauge.run.v9"}"#);
    for (of, words) in [
        (old.as_str(), &["old.json", "3 different round trips", "not that of a study"][..]),
        (
            "loggernut!",
            &["'loggernut!' is neither the name of a host nor a study (sena, loggernet", "is not a file"],
        ),
        ("nowhere.json", &["nowhere.json: cannot be read"]),
        (nonsense.as_str(), &["nonsense.json", "the document is cut off"]),
        (newer.as_str(), &["newer.json", "linkgauge.run.v9", "newer linkgauge"]),
    ] {
        let ended = run(&["explain", of]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{of}");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{of}: {}", ended.stderr);
    }
    let ended = run(&["explain", "loggernet", "--json", "/nowhere/found.json"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("/nowhere/found.json"), "{}", ended.stderr);
}
