//! Runs of every kind for tests: one document each in the folder of the same name. The tests of other crates include this file.

#![allow(missing_docs, dead_code, reason = "for tests, and no crate needs all of them")]

use super::Run;

/// A text that a page must never contain as it is.
pub const HOSTILE_SCRIPT: &str = "<script>alert('x')</script>";

macro_rules! sample_runs {
    ($($name:ident),*) => {
        $(pub fn $name() -> Run {
            Run::from_json(include_str!(concat!("sample_runs/", stringify!($name), ".json"))).unwrap()
        })*

        pub fn all_samples() -> Vec<Run> {
            vec![$($name()),*]
        }
    };
}

sample_runs! {
    full, serial_line, message_sizes, download, one_way_delays, further_connections, responsiveness, minimal, empty, hostile, study,
    study_with_prediction, hostile_study, mesh, hostile_mesh, imported, path, path_refused,
    path_under_load
}
