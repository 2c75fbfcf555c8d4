//! Times to open a connection: connect.

use super::Presentation;
use super::latency::{PRESENTATION as ROUND_TRIPS, median_and_tail};
use crate::report::wording::loss_text;
use crate::run::CaseResult;
use crate::units::format_count;

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
    let rate = if rate < 10.0 { format!("{rate:.2}") } else { format_count(rate.round() as u64) };
    format!("{}; {rate}/s; {}", median_and_tail(times), loss_text(case))
}
