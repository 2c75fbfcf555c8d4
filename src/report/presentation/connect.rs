//! Times to open a connection: connect.

use super::Presentation;
use super::latency::{PRESENTATION as ROUND_TRIPS, format_per_second, median_and_tail};
use crate::report::wording::loss_text;
use crate::run::CaseResult;

pub const PRESENTATION: Presentation = Presentation {
    workload: "connect",
    counted: Some("connections"),
    subject: |_| "connection to",
    answer,
    ..ROUND_TRIPS
};

fn answer(case: &CaseResult) -> String {
    let Some(times) = &case.figures.times.latency_ns else {
        return format!("none was opened; {}", loss_text(case));
    };
    let rate = case.figures.delivery.messages_per_second.unwrap_or(0.0);
    format!("{}; {}; {}", median_and_tail(times), format_per_second(rate), loss_text(case))
}
