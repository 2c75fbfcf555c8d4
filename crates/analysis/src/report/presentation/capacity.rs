//! Capacity: the result of a search, with the figures of a throughput.

use super::{Presentation, throughput};
use crate::report::wording::{ABSENT, brief_rate};
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::format_bit_rate;

pub(crate) const PRESENTATION: Presentation =
    Presentation { workload: "capacity", answer, figure_table, ..throughput::PRESENTATION };

fn answer(case: &CaseResult) -> String {
    let capacity = case.figures.delivery.capacity_bps;
    let least = if case.complete { "" } else { "at least " };
    let capacity = capacity.map_or("unknown, because no second was complete".to_owned(), |capacity| {
        format!("{least}{}", brief_rate(capacity))
    });
    format!("capacity {capacity} (IP); on average {}", (throughput::PRESENTATION.answer)(case))
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let mut table = (throughput::PRESENTATION.figure_table)(case);
    // A search that was broken off may still have been rising.
    let least = if case.complete { "" } else { "≥ " };
    let capacity = case.figures.delivery.capacity_bps;
    let capacity =
        capacity.map_or(ABSENT.to_owned(), |capacity| format!("{least}{}", format_bit_rate(capacity)));
    for (index, row) in table.iter_mut().enumerate() {
        row.insert(1, if index == 0 { "capacity".to_owned() } else { capacity.clone() });
    }
    table
}
