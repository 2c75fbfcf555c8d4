//! A study that is run again, and the document that it left.

use std::path::Path;

use linkgauge::run::{Placement, Run, StudyRow};

use crate::program::{Ended, run};

/// The document a run left, checked against its schema.
pub fn document(path: &Path) -> Run {
    let text = std::fs::read_to_string(path).unwrap();
    let schema = serde_json::from_str(linkgauge::report::RUN_SCHEMA).unwrap();
    jsonschema::validate(&schema, &serde_json::from_str(&text).unwrap()).unwrap();
    Run::from_json(&text).unwrap()
}

/// The only possible defect of the figure is the load of this host.
pub fn is_sound(row: &StudyRow) -> bool {
    row.reason.as_deref().is_none_or(|reason| reason == linkgauge::study::HOST_BUSY_NOTE)
}

/// A study, its document and its output.
pub fn reproduced(study: &str, flags: &[&str]) -> (Run, Ended) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json");
    let ended = run(&[&["reproduce", study, "--quick", "--json", json.to_str().unwrap()], flags].concat());
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    (document(&json), ended)
}

/// The output, without its lines.
pub fn words(ended: &Ended) -> String {
    ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The figures of a column of a table, from above.
pub fn column<'a>(run: &'a Run, table: &str, column: &str) -> Vec<&'a StudyRow> {
    let tables = &run.study.as_ref().unwrap().tables;
    let table = tables.iter().find(|one| one.number == table).unwrap();
    table.rows.iter().filter(|row| row.column == column).collect()
}

pub fn placement<'a>(run: &'a Run, row: &StudyRow) -> &'a Placement {
    &run.cases[row.case.unwrap() - 1].placement
}
