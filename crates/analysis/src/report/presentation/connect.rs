//! Times to open a connection: connect.

use super::Presentation;
use super::latency::{PRESENTATION as ROUND_TRIPS, format_per_second, median_and_tail};
use crate::report::wording::format_share;
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::format_count;

pub(crate) const PRESENTATION: Presentation = Presentation {
    workload: "connect",
    counted: Some("connections"),
    subject: |_| "connection to",
    answer,
    figure_table,
    ..ROUND_TRIPS
};

fn answer(case: &CaseResult) -> String {
    let Some(times) = &case.figures.times.latency_ns else {
        return format!("none was opened; {}", failed_text(case));
    };
    let rate = case.figures.delivery.messages_per_second.unwrap_or(0.0);
    format!("{}; {}; {}", median_and_tail(times), format_per_second(rate), failed_text(case))
}

/// Text such as `none failed`, `9 of 4 034 failed (0.22 %)`.
fn failed_text(case: &CaseResult) -> String {
    let counts = &case.figures.counts;
    match counts.lost {
        0 => "none failed".to_owned(),
        lost => {
            let share = format_share(lost as f64 / counts.sent.max(1) as f64);
            format!("{} of {} failed ({share})", format_count(lost), format_count(counts.sent))
        }
    }
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let mut table = (ROUND_TRIPS.figure_table)(case);
    table.iter_mut().filter(|row| row[0] == "RTT").for_each(|row| row[0] = "connect".to_owned());
    table
}
