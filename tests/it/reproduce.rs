//! A published study from the command line: in the lab, on other endpoints, interrupted.

use linkgauge::run::{StudyResult, StudyRow};
use rustix::process::Signal;

use crate::program::{Ended, Running, Serving, run, wait_for_progress, wait_until};
use crate::study::{document, is_sound};

fn sena(arguments: &[&str]) -> Ended {
    run(&[&["reproduce", "sena"], arguments].concat())
}

fn rows(paper: &StudyResult) -> Vec<&StudyRow> {
    paper.tables.iter().flat_map(|table| &table.rows).collect()
}

#[test]
#[ignore = "long"]
fn the_lab_meets_the_published_figures_in_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let [json, csv, html] = ["json", "csv", "html"].map(|end| directory.path().join(format!("sena.{end}")));
    let files =
        ["--json", json.to_str().unwrap(), "--csv", csv.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let ended = sena(&[&["--quick", "--table", "5,6"], &files[..]].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("12 cases, at least") && ended.stderr.contains("no hardware"));
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);

    let run = document(&json);
    let paper = run.study.as_ref().unwrap();
    let rows = rows(paper);
    assert_eq!((rows.len(), run.cases.len()), (76, 12));
    assert!(paper.shortened.is_some());
    for row in &rows {
        let case = &run.cases[row.case.unwrap() - 1];
        assert!(row.stand_in && is_sound(row), "{row:?}");
        assert_eq!(case.figures.counts.received, 400 * u64::from(case.ports));
        let mean = case.figures.times.latency_ns.as_ref().unwrap().mean;
        assert_eq!(row.measured, Some(mean / 1e6));
        // A line never gives a character before its time.
        assert!(row.measured >= row.theoretical_limit, "{row:?}");
    }
    let ports: Vec<u32> = run.cases.iter().map(|case| case.ports).collect();
    assert_eq!(ports, [1, 4, 8, 16, 1, 4, 8, 16, 1, 4, 8, 16]);

    let table = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(table.lines().count(), 1 + rows.len());
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Table 6: ") && page.contains("Not Conducted") && page.contains("no hardware"));
    assert!(!page.contains("not run"));
    // A saved run can be shown again.
    let again = crate::program::run(&["report", json.to_str().unwrap()]);
    assert_eq!(again.stdout, ended.stdout);
}

#[test]
fn only_endpoints_named_by_on_are_measured() {
    let remote = Serving::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("sena.json");
    let on = format!("tcp/1@57600={}", remote.tcp);
    let ended = sena(&["--quick", "--table", "8", "--on", &on, "--json", json.to_str().unwrap()]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let run = document(&json);
    assert_eq!(run.cases.len(), 1);
    let endpoint = &run.cases[0].endpoint;
    assert!(endpoint.starts_with(remote.tcp.as_str()) && endpoint.contains("baud=57600"), "{endpoint}");
    for row in rows(run.study.as_ref().unwrap()) {
        assert!(!row.stand_in);
        let reason = row.reason.as_deref().unwrap();
        if row.row == "57600" {
            // Loopback TCP does not have the rate of a line at 57600 baud.
            assert!(
                row.measured > row.theoretical_limit && reason.starts_with("better than a line"),
                "{row:?}"
            );
        } else {
            assert!(row.measured.is_none() && reason.starts_with("no --on"), "{row:?}");
        }
    }
}

#[test]
fn an_interrupt_reports_the_results_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let [json, events] = ["sena.json", "events"].map(|name| directory.path().join(name));
    let files = ["--json", json.to_str().unwrap(), "--events", events.to_str().unwrap()];
    let process = Running::start(&[&["reproduce", "sena", "--table", "5"], &files[..]].concat());
    wait_for_progress(&events);
    process.signal(Signal::INT);
    let ended = process.ended();
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    assert!(ended.stdout.contains("not run, 3 figures: interrupted before it started."), "{}", ended.stdout);
    let run = document(&json);
    assert!(run.interrupted);
    assert_eq!(run.cases.len(), 1);
    let rows = rows(run.study.as_ref().unwrap());
    let received = run.cases[0].figures.counts.received;
    assert!(rows[0].measured.is_some() && received > 0 && received < 10_000, "{:?}", rows[0]);
    assert!(rows[0].reason.as_ref().unwrap().contains("stopped"));
    assert!(rows[1..].iter().all(|row| row.measured.is_none() && row.case.is_none()));
}

/// Processes that this one has started and that run.
fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_server_ends_with_the_process_that_started_it() {
    let mut process = Running::start(&["reproduce", "wireless", "--cell", "tcp"]);
    let server = wait_until("the server", || children(process.0.id()).first().copied());
    process.signal(Signal::KILL);
    process.wait();
    // A zombie process has no command line.
    let runs = || std::fs::read(format!("/proc/{server}/cmdline")).is_ok_and(|words| !words.is_empty());
    wait_until("the end of the server", || (!runs()).then_some(()));
}

#[test]
fn a_failed_case_does_not_stop_the_others() {
    let remote = Serving::start(&[]);
    let unused = unused_port();
    let on = [format!("native/1=tcp://127.0.0.1:{unused}"), format!("native/4={0},{0},{0},{0}", remote.tcp)];
    let ended = sena(&["--quick", "--table", "5", "--on", &on[0], "--on", &on[1]]);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("connection refused"), "{}", ended.stderr);
    let measured = |line: &&str| line.contains("RS232, 4 ports") && !line.contains("not run");
    assert!(ended.stdout.lines().any(|line| measured(&line)), "{}", ended.stdout);
}

/// A port of this host without a listener.
fn unused_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn errors_are_reported_before_a_measurement() {
    let remote = Serving::start(&[]);
    let url = &remote.tcp;
    let error_of = |arguments: &[&str]| {
        let ended = sena(arguments);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        ended.stderr.replace(url.as_str(), "URL")
    };
    // The program names the modules that this host's kernel lacks.
    let nothing =
        ". Try --vm, which measures it in a guest. Use --on CELL=URL for hardware; --list prints the cells\n";
    assert!(error_of(&["--table", "7"]).ends_with(nothing));
    insta::assert_snapshot!([
        error_of(&["--table", "6", "--on", &format!("TCP={url}")]),
        error_of(&["--table", "6", "--on", &format!("tcp/2={url}")]),
        error_of(&["--table", "6", "--on", &format!("tcp/4={url},{url}")]),
        error_of(&["--table", "6", "--on", &format!("tcp/4={url}?baud=9600")]),
        error_of(&["--table", "6", "--on", &format!("tcp/1={url}"), "--on", &format!("tcp/1={url}")]),
        error_of(&["--table", "8", "--on", &format!("tcp={url}")]),
        error_of(&["--table", "4"]),
    ].concat(), @r"
    error: --on TCP: unknown cell (known: tcp/1, tcp/4, tcp/8, tcp/16, serialip/1, serialip/4, serialip/8, serialip/16)
    error: --on tcp/2: unknown cell (known: tcp/1, tcp/4, tcp/8, tcp/16, serialip/1, serialip/4, serialip/8, serialip/16)
    error: --on tcp/4: 2 URLs for 4 ports: give one to count up from, or all
    error: URL?baud=9600: leave 'baud' out, the study sets it
    error: --on tcp/1: given twice. Separate several URLs by commas
    error: --on tcp: URL cannot set the rate of the line behind it: set the line there, and name its rate, like tcp@75=URL
    error: the study has no table 4 (known: 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    ");
}
