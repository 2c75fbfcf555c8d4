//! Capacity: the result of a search, with the figures of a throughput.

use super::{Presentation, throughput};
use crate::report::wording::{ABSENT, brief_rate};
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::format_bit_rate;

pub(crate) const PRESENTATION: Presentation =
    Presentation { workload: "capacity", answer, figure_table, ..throughput::PRESENTATION };

fn answer(case: &CaseResult) -> String {
    let capacity = case.figures.delivery.capacity_bps;
    let capacity = capacity.map_or("unknown, because no second was complete".to_owned(), brief_rate);
    format!("capacity {capacity} (IP); on average {}", (throughput::PRESENTATION.answer)(case))
}

fn figure_table(case: &CaseResult) -> Vec<Vec<String>> {
    let mut table = (throughput::PRESENTATION.figure_table)(case);
    let capacity = case.figures.delivery.capacity_bps.map_or(ABSENT.to_owned(), format_bit_rate);
    for (index, row) in table.iter_mut().enumerate() {
        row.insert(1, if index == 0 { "capacity".to_owned() } else { capacity.clone() });
    }
    table
}
