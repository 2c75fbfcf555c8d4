//! The hops of a path: path.

use super::Presentation;
use super::latency::PRESENTATION as ROUND_TRIPS;
use crate::report::path::path_answer;
use crate::report::wording::link_and_target;

pub(crate) const PRESENTATION: Presentation = Presentation {
    workload: "path",
    counted: Some("probes of each hop"),
    subject: |_| "path to",
    answer: |case| match &case.path {
        Some(path) => path_answer(case, path, &link_and_target(case).1),
        None => (ROUND_TRIPS.answer)(case),
    },
    // The table of hops stands in its place.
    figure_table: |_| vec![vec![String::new()]],
    ..ROUND_TRIPS
};
