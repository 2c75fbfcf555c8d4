//! The wireless study run again: its statistics over links of the lab, and its Bluetooth between two virtual controllers of a
//! guest, as are the adapters of the study of device servers.

use std::path::Path;

use linkgauge::run::{PaperRow, Run};

use super::program::{Ended, Serving, run};

/// A study, its document and what was printed.
fn reproduced(study: &str, flags: &[&str]) -> (Run, Ended) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let ended = run(&[&["reproduce", study, "--quick", "--json", json.to_str().unwrap()], flags].concat());
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    (document(&json), ended)
}

fn document(path: &Path) -> Run {
    let text = std::fs::read_to_string(path).unwrap();
    let schema = serde_json::from_str(linkgauge::report::RUN_SCHEMA).unwrap();
    jsonschema::validate(&schema, &serde_json::from_str(&text).unwrap()).unwrap();
    Run::from_json(&text).unwrap()
}

/// What was printed, without its lines.
fn words(ended: &Ended) -> String {
    ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The figures of a column of a table, from above.
fn column<'a>(run: &'a Run, table: &str, column: &str) -> Vec<&'a PaperRow> {
    let tables = &run.paper.as_ref().unwrap().tables;
    let table = tables.iter().find(|one| one.number == table).unwrap();
    table.rows.iter().filter(|row| row.column == column).collect()
}

fn placement<'a>(run: &'a Run, row: &PaperRow, name: &str) -> Option<&'a serde_json::Value> {
    run.cases[row.case.unwrap() - 1].placement.get(name)
}

#[test]
fn every_figure_of_the_study_has_one_of_ours_beside_it() {
    let (run, ended) = reproduced("wireless", &["--table", "1,2", "--cell", "tcp,udp-ad-hoc"]);
    for (link, hops) in [("TCP", 4), ("UDP ad-hoc", 1)] {
        let times = column(&run, "1", link);
        assert_eq!(placement(&run, times[0], "hops"), Some(&hops.into()));
        assert_eq!(placement(&run, times[0], "stand_in"), Some(&"shaper profile wifi: no radio".into()));
        let deciles: Vec<f64> = times[1..].iter().map(|row| row.measured.unwrap()).collect();
        assert_eq!(deciles.len(), 9);
        assert!(deciles.is_sorted() && times.iter().all(|row| crate::reproduce::is_sound(row)), "{times:?}");
        let late = column(&run, "2", link);
        let shares: Vec<f64> = late.iter().map(|row| row.measured.unwrap()).collect();
        // What was lost took longer than any of the limits.
        assert!(shares.iter().rev().is_sorted() && shares.len() == 5, "{late:?}");
        let figures = &run.cases[late[4].case.unwrap() - 1].figures;
        assert_eq!((figures.sent, shares[4]), (400, 100.0 * figures.lost as f64 / 400.0));
    }
    let words = words(&ended);
    assert!(words.contains("(shaper profile wifi: no radio)"), "{}", ended.stdout);
    assert!(words.contains("over 100 ms TCP, 1.7 %: impossible, more than over 50 ms."));
}

#[test]
fn links_that_are_given_are_measured_in_their_columns() {
    let far = Serving::start(&[]);
    let on = format!("tcp={}", far.tcp);
    let (run, _) = reproduced("wireless", &["--table", "1,4", "--on", &on]);
    assert_eq!(run.cases.len(), 2);
    let missed = column(&run, "4", "TCP");
    assert!(missed.iter().all(|row| row.measured.is_some() && !row.stand_in), "{missed:?}");
    assert_eq!(placement(&run, missed[0], "stand_in"), None);
    assert!(column(&run, "1", "RFCOMM").iter().all(|row| row.measured.is_none()));
}

#[test]
fn what_is_not_in_this_lab_is_told_with_its_remedy() {
    let ended = run(&["reproduce", "wireless", "--quick", "--cell", "rfcomm"]);
    let remedy = ": --vm measures it in a guest; --on CELL=URL measures hardware, --list prints the cells\n";
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.ends_with(remedy), "{}", ended.stderr);
}

const GUEST: [&str; 4] = ["--vm", "--virtual-time", "--cache", concat!(env!("CARGO_TARGET_TMPDIR"), "/vm")];

#[test]
fn bluetooth_is_measured_between_two_controllers() {
    let (run, ended) = reproduced("wireless", &[&GUEST[..], &["--cell", "rfcomm,l2cap"]].concat());
    assert_eq!(run.cases.len(), 4, "{}", ended.stderr);
    for link in ["RFCOMM", "L2CAP"] {
        for table in ["1", "2", "3", "4"] {
            for row in column(&run, table, link) {
                assert!(row.measured.is_some() && row.stand_in, "{row:?}\n{}", ended.stderr);
                assert_eq!(placement(&run, row, "stand_in"), Some(&"virtual controller: no radio".into()));
            }
        }
    }
    assert!(run.cases.iter().all(|case| (case.figures.received, case.figures.lost) == (400, 0)));
    assert!(words(&ended).contains("(virtual controller: no radio)"), "{}", ended.stdout);
}

#[test]
fn a_bluetooth_adapter_is_a_line_behind_a_channel() {
    let (run, ended) = reproduced("sena", &[&GUEST[..], &["--table", "7", "--cell", "bluetooth/4"]].concat());
    assert_eq!(run.cases.len(), 1, "{}", ended.stderr);
    assert_eq!((run.cases[0].ports, run.cases[0].figures.received), (4, 4 * 400));
    for row in column(&run, "7", "Bluetooth, 4 ports") {
        // A line never gives a character before its time.
        assert!(row.measured >= row.limit && crate::reproduce::is_sound(row) && row.stand_in, "{row:?}");
        assert_eq!(placement(&run, row, "stand_in"), Some(&"virtual controller: no radio".into()));
    }
    assert!(words(&ended).contains("(virtual controller: no radio)"), "{}", ended.stdout);
}
