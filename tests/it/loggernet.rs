//! The study of downloads from the command line: with the emulated logger, with a given one, interrupted, and with
//! errors in the arguments.

use std::io::{BufRead, BufReader};

use linkgauge::run::{Run, StudyRow};
use rustix::process::Signal;

use crate::program::{Ended, Running, run, wait_for_progress};
use crate::study::{document, is_sound};

fn loggernet(arguments: &[&str]) -> Ended {
    run(&[&["reproduce", "loggernet", "--quick"], arguments].concat())
}

fn rows(run: &Run) -> Vec<&StudyRow> {
    run.study.iter().flat_map(|paper| &paper.tables).flat_map(|table| &table.rows).collect()
}

#[test]
#[ignore = "long"]
fn an_emulated_logger_matches_the_prediction() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let ended = loggernet(&["--cell", "slow@0,fast,direct", "--json", json.to_str().unwrap()]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("in the lab: emulated logger, no hardware"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Measured in the lab: emulated logger, no hardware."), "{}", ended.stdout);
    assert!(ended.stdout.contains("measured on an emulated logger, no hardware"), "{}", ended.stdout);
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    let run = document(&json);
    let rows = rows(&run);
    let measured: Vec<&&StudyRow> = rows.iter().filter(|row| row.measured.is_some()).collect();
    assert_eq!((rows.len(), measured.len(), run.cases.len()), (14, 7, 8));
    // The case without a shaper has the figures of other sources as well: 25 000 and 50 000 B/s.
    let rates: Vec<f64> =
        measured.iter().filter(|row| row.unit == "kbit/s").map(|row| row.measured.unwrap()).collect();
    assert!(rates.len() == 2 && rates[0] == rates[1] && rates[0] < 110.0, "{rates:?}");
    for row in measured.into_iter().filter(|row| row.unit == "B/s") {
        let (measured, predicted) = (row.measured.unwrap(), row.predicted.unwrap());
        // Nothing comes before its time; a busy machine may be late.
        assert!(measured <= 1.001 * predicted && measured > 0.2 * predicted, "{row:?}");
        assert!(row.stand_in && is_sound(row), "{row:?}");
        let case = &run.cases[row.case.unwrap() - 1];
        assert_eq!(case.figures.delivery.delivered_bytes, Some(9910));
        assert_eq!(case.figures.requests.unwrap().round_trips, 10);
        assert_eq!(case.placement.stand_in.as_deref(), Some("emulated logger"));
        // The clock was read through the same link before.
        let clock = &run.cases[row.case.unwrap() - 2];
        assert_eq!((clock.workload.as_str(), &clock.endpoint), ("latency", &case.endpoint));
        let least = case.shaped.map_or(0, |shaped| 2 * shaped.delay_ns);
        assert!(clock.figures.times.latency_ns.as_ref().unwrap().min >= least);
    }
}

#[test]
fn twins_have_a_page_a_table_and_a_document() {
    let directory = tempfile::tempdir().unwrap();
    let [json, html, csv] = ["run.json", "page.html", "rows.csv"].map(|name| directory.path().join(name));
    let files =
        ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap(), "--csv", csv.to_str().unwrap()];
    let ended = run(&[&["reproduce", "loggernet", "--twin"], &files[..]].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    // A pipe has 80 columns.
    let answer = ended.stdout.lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
    let run = document(&json);
    let paper = run.study.as_ref().unwrap();
    let sentence =
        "the twins predict the 4 informative of 5 checked figures with a median deviation of 2.9 %";
    assert!(
        answer.starts_with(&format!("loggernet: {sentence}")) && answer.contains("a curve through"),
        "{answer}"
    );
    assert!(paper.twins.as_ref().unwrap().starts_with(sentence));
    assert!(paper.statements.len() == 8 && paper.statements.iter().all(|statement| statement.holds));
    let table = std::fs::read_to_string(csv).unwrap();
    // Five figures of table 1, and the rate of the text.
    assert_eq!(table.matches(",true,true,false,").count(), 6, "{table}");
    let page = std::fs::read_to_string(html).unwrap();
    for part in [
        "Published beside twins",
        "open as published, filled from the twin",
        "</a> fitted",
        "NL115",
        "Statements of the study",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_twin_runs_in_real_time_too() {
    let flags = ["reproduce", "loggernet", "--twin", "--real-time", "--table", "1", "--cell", "direct"];
    let ended = run(&flags);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.starts_with("loggernet: in real time median round trips and rates of 1 case differ")
    );
    assert!(ended.stderr.starts_with("loggernet: 1 case in real time, about "), "{}", ended.stderr);
    // The time of a chunk of 673 bytes.
    let row = ended.stdout.lines().last().unwrap();
    assert!(row.starts_with("CR1000  download:direct/1@0  53.74 ms"), "{row}");
    let ended = run(&["reproduce", "loggernet", "--twin", "--cell", "direct"]);
    assert_eq!(ended.status, Some(2));
    assert_eq!(ended.stderr, "error: --twin runs all cells: it takes seconds. Leave out --cell\n");
    let ended = run(&["reproduce", "loggernet", "--twin", "--quick"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("Leave out --quick, or add --real-time"), "{}", ended.stderr);
}

/// `lab logger` on a port of its own, and its URL.
fn logger() -> (Running, String) {
    let flags =
        ["lab", "logger", "--listen", "tcp://127.0.0.1:0", "--file", "CPU:other:20k", "--security", "17"];
    let mut process = Running::start(&flags);
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url =
        line.trim().rsplit_once(" on ").expect("it prints where it listens").1.replace("tcp://", "pakbus://");
    (process, url)
}

#[test]
fn a_logger_named_by_on_is_measured() {
    let (_logger, url) = logger();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let on = format!("direct={url}");
    let options = ["--option", "file=CPU:other", "--option", "security=17"];
    let ended = loggernet(&[&["--on", &on, "--json", json.to_str().unwrap()], &options[..]].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    // It is not a stand-in of ours, but it reports that it is emulated.
    assert!(!ended.stdout.contains("Measured in the lab"), "{}", ended.stdout);
    assert!(ended.stdout.contains("the logger is emulated"), "{}", ended.stdout);
    let run = document(&json);
    assert_eq!(run.cases.len(), 2);
    assert_eq!(run.cases[1].figures.delivery.delivered_bytes, Some(9910));
    let is_direct = |row: &StudyRow| row.planned_case == "download:direct/1@0";
    assert!(rows(&run).iter().all(|row| !row.stand_in && row.measured.is_some() == is_direct(row)));
    // Without the code it refuses, and nothing is made up.
    let ended = loggernet(&["--on", &on, "--option", "file=CPU:other"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("security"), "{}", ended.stderr);
}

#[test]
fn one_row_is_enough_for_a_window_and_its_time_is_a_limit() {
    let (_logger, url) = logger();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let options = ["--option", "file=CPU:other", "--option", "security=17"];
    let on = |cell: &str| {
        let on = format!("{cell}={url}");
        loggernet(&[&["--on", &on, "--json", json.to_str().unwrap()], &options[..]].concat())
    };
    // 6 clock reads and 10 chunks of the file, one at a time, then 61 chunks, four at a time: 6 + 10 + 16 s, and around each case a moment.
    let ended = on("slow@500");
    assert!(ended.stderr.contains("loggernet: 1 case, at least 35 s at the speed"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("window"), "{}", ended.stderr);
    let run = document(&json);
    assert_eq!(run.cases.len(), 3);
    assert_eq!(run.cases[2].figures.requests.unwrap().window, 4);
    let tables = run.study.iter().flat_map(|paper| &paper.tables).filter(|table| table.number == "W");
    let tried: Vec<&str> = tables.flat_map(|table| &table.rows).map(|row| row.row.as_str()).collect();
    assert_eq!(tried, ["window 1", "window 4", "window 4"]);
    // The study tries no window there, and how long a logger works is not known.
    let ended = on("direct");
    assert!(ended.stderr.contains("loggernet: 1 case, at least 1 s at the speed"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("no window is tried, because slow/1@500 is not measured"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_busy_logger_skips_records() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let ended = loggernet(&["--table", "3", "--json", json.to_str().unwrap()]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let run = document(&json);
    let row = rows(&run)[0];
    assert_eq!((row.published.as_str(), row.stand_in), ("some", true));
    assert!(row.measured > Some(0.0), "{row:?}");
    assert!(ended.stdout.contains("some"), "{}", ended.stdout);
}

#[test]
fn an_interrupt_saves_the_results_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let [json, events] = ["run.json", "events"].map(|name| directory.path().join(name));
    let files = ["--json", json.to_str().unwrap(), "--events", events.to_str().unwrap()];
    let process = Running::start(&[&["reproduce", "loggernet", "--cell", "slow@50"], &files[..]].concat());
    wait_for_progress(&events);
    process.signal(Signal::INT);
    let ended = process.ended();
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    let run = document(&json);
    assert!(run.interrupted && rows(&run).iter().any(|row| row.reason.is_some()));
}

#[test]
fn errors_are_reported_before_a_download() {
    let error_of = |arguments: &[&str]| {
        let ended = loggernet(arguments);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        ended.stderr.lines().next().unwrap_or_default().to_owned()
    };
    insta::assert_snapshot!([
        error_of(&["--on", "slow=tcp://192.0.2.1"]),
        error_of(&["--cell", "slow@7"]),
        error_of(&["--on", "direct=tcp://192.0.2.1", "--option", "banana=1"]),
        error_of(&["--on", "direct=udp://192.0.2.1"]),
    ].join("\n"), @r"
    error: --on slow: the delay of the link is missing. Write it like slow@2050=tcp://192.0.2.1
    error: --cell slow@7: unknown cell (known: slow/1, fast/1, direct/1, busy/1; --list: what follows the @)
    error: case 1: the protocol pakbus has no option 'banana' (known: node, router, security, file, table, format, window, retries, reconnects)
    error: case 1: udp://192.0.2.1: a logger needs a stream, like TCP, and on lines
    ");
}
