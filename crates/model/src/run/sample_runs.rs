//! Runs of every kind for tests: one document each in the folder of the same name. The tests of other crates include this file.

use super::Run;

/// A text that a page must never contain as it is.
#[allow(dead_code, reason = "not every crate writes pages")]
pub const HOSTILE_SCRIPT: &str = "<script>alert('x')</script>";

macro_rules! sample_runs {
    ($($name:ident),*) => {
        $(#[allow(dead_code, reason = "no crate needs all of them")]
        pub fn $name() -> Run {
            Run::from_json(include_str!(concat!("sample_runs/", stringify!($name), ".json"))).unwrap()
        })*

        #[allow(dead_code, reason = "no crate needs all of them")]
        pub fn all_samples() -> Vec<Run> {
            vec![$($name()),*]
        }
    };
}

sample_runs! {
    full, serial_line, message_sizes, download, one_way_delays, further_connections, responsiveness, minimal, empty, hostile, study,
    study_with_prediction, hostile_study, mesh, hostile_mesh, imported
}
