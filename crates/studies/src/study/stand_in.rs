//! Names of lab devices that replace hardware. They appear with every figure: for the whole study if one name covers
//! it, else for the tables with such figures.

use std::collections::BTreeSet;

use super::{Study, StudyTableSpec};
use linkgauge_model::run::StudyRow;

impl Study {
    /// The lab devices that replace hardware; empty unless one name covers the whole study.
    pub fn stand_ins(&self) -> Vec<String> {
        let in_lab = self.cells.iter().filter(|cell| cell.lab.is_some());
        let names: Option<Vec<String>> = in_lab.map(|cell| cell.stand_in.clone()).collect();
        let names = unique(names.unwrap_or_default());
        if names.len() == 1 { names } else { Vec::new() }
    }

    /// The title of a table, with the lab devices of its rows where the study's title does not name them.
    pub(super) fn table_title(&self, table: &StudyTableSpec, rows: &[StudyRow]) -> String {
        let of_row = |row: &StudyRow| {
            let (_, place) = row.planned_case.split_once(':')?;
            self.find_cell(place.split('/').next()?)?.stand_in.clone()
        };
        let names = unique(rows.iter().filter(|row| row.stand_in).filter_map(of_row).collect());
        match names.join(", ") {
            names if names.is_empty() || !self.stand_ins().is_empty() => table.title.clone(),
            names => format!("{} ({names})", table.title),
        }
    }
}

/// Removes duplicates and preserves the order.
fn unique(mut names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}
