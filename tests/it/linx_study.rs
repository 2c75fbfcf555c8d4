//! The study of LINX and TIPC from the command line: the measurements on this host, and a guest that fails.

use linkgauge::run::{Run, StudyResult, StudyRow};

use crate::program::{Ended, run};
use crate::study::{document, is_sound};

/// A quick run of these tables, and its document.
fn linx(tables: &str, flags: &[&str]) -> (Ended, Run) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("linx.json");
    let fixed = ["reproduce", "linx", "--quick", "--table", tables, "--json", json.to_str().unwrap()];
    let ended = run(&[&fixed[..], flags].concat());
    let run = document(&json);
    (ended, run)
}

fn rows(run: &Run) -> impl Iterator<Item = &StudyRow> {
    run.study.iter().flat_map(|StudyResult { tables, .. }| tables).flat_map(|table| &table.rows)
}

fn measured(run: &Run) -> Vec<&StudyRow> {
    rows(run).filter(|row| row.measured.is_some()).collect()
}

#[test]
fn this_host_measures_linx_and_names_missing_modules() {
    let cells = "linx-inter@65536,linx-intra@64,linx-oseck@4096,tipc-inter";
    let (ended, run) = linx("1,2,3,4,5,6", &["--cell", cells]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    let met = measured(&run);
    assert_eq!((met.len(), run.cases.len()), (6, 6));
    for row in met {
        let case = &run.cases[row.case.unwrap() - 1];
        assert!(row.row == format!("{} B", case.message_bytes) && row.stand_in && !row.guest, "{row:?}");
        assert!(is_sound(row) && case.figures.counts.received > 0, "{row:?}");
        // The line of the twin never lets a message pass before its time.
        let is_oseck = row.planned_case.contains("oseck");
        assert!(
            row.theoretical_limit.is_some() == is_oseck && row.measured >= row.theoretical_limit,
            "{row:?}"
        );
    }
    let paper = run.study.as_ref().unwrap();
    for table in &paper.tables {
        let is_oseck = ["5", "6"].contains(&table.number.as_str());
        assert_eq!(table.title.ends_with("(nodes of the twin, not OSEck)"), is_oseck, "{}", table.title);
    }
    let of_nodes: Vec<&StudyRow> =
        rows(&run).filter(|row| row.planned_case.contains(":tipc-inter/")).collect();
    assert_eq!(of_nodes.len(), 12);
    let reason =
        |row: &&StudyRow| row.reason.as_ref().unwrap().ends_with(". Try --vm, which measures it in a guest");
    assert!(of_nodes.iter().all(reason), "{:?}", of_nodes[0]);
}

#[test]
fn a_guest_that_fails_leaves_the_rest() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = file.path().to_str().unwrap();
    let flags = ["--vm", "--cache", cache, "--cell", "tipc-inter@64,linx-inter@64,tcp@64"];
    let (ended, run) = linx("1,C", &flags);
    assert_eq!(ended.status, Some(2));
    let errors: Vec<&str> =
        ended.stderr.lines().filter_map(|line| line.strip_prefix("error: guest nodes: ")).collect();
    let [reason] = errors[..] else { panic!("{}", ended.stderr) };
    // A host without QEMU, which the fast lane does not install, gives that reason first.
    let expected = [&format!("{cache}: cannot be used as a cache"), "qemu-system-x86_64 is missing"];
    assert!(expected.iter().any(|start| reason.starts_with(start)), "{reason}");
    let met: Vec<&str> = measured(&run).iter().map(|row| row.planned_case.as_str()).collect();
    assert_eq!(met, ["latency:tcp/1@64"]);
    // LINX is measured where TIPC is, or not at all.
    for case in ["latency:tipc-inter/1@64", "latency:linx-inter/1@64"] {
        let row = rows(&run).find(|row| row.planned_case == case).unwrap();
        assert!(row.reason.as_ref().unwrap().ends_with(reason), "{row:?}");
    }
}

#[test]
fn cells_are_listed_in_columns() {
    let ended = run(&["reproduce", "linx", "--list"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let table = ended.stdout.split("\n\n").nth(1).unwrap();
    let last = |line: &str| line.trim_end().rfind("  ").unwrap() + 2;
    let cells = table.lines().filter(|line| line.contains('/'));
    let ends: Vec<usize> = cells.map(last).collect();
    assert!(
        ends.len() == 18 && ends.iter().all(|end| *end == last(table.lines().next().unwrap())),
        "{table}"
    );
}

#[test]
fn flags_of_a_guest_require_vm() {
    let ended = run(&["reproduce", "linx", "--virtual-time"]);
    let line = "error: --virtual-time, --limit and --cache are options of the guest. Add --vm\n";
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(2), line));
}
