//! What the lab has in hardware's place is called so wherever its figures appear: of the whole study where all of the lab has
//! one name, else of the tables that hold its figures.

use std::collections::BTreeSet;

use super::{Study, StudyTableSpec};
use crate::run::StudyRow;

impl Study {
    /// What its lab stands for hardware with; nothing where that is not one thing for all of it.
    pub fn stand_ins(&self) -> Vec<String> {
        let in_lab = self.cells.iter().filter(|cell| cell.lab.is_some());
        let names: Option<Vec<String>> = in_lab.map(|cell| cell.stand_in.clone()).collect();
        let names = unique(names.unwrap_or_default());
        if names.len() == 1 { names } else { Vec::new() }
    }

    /// The title of a table, and what stands in its rows for hardware where that is not said of the whole study.
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

/// Each once, in the order in which they are.
fn unique(mut names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}
