//! What the lab has in hardware's place is called so wherever its figures appear: of the whole study where all of the lab has
//! a name, else of the tables that hold its figures.

use super::{Study, Table};
use crate::run::PaperRow;

impl Study {
    /// What its lab stands for hardware with, each once; nothing where some of it has no name.
    pub fn stand_ins(&self) -> Vec<String> {
        let in_lab = self.cells.iter().filter(|cell| cell.lab.is_some());
        let names: Option<Vec<String>> = in_lab.map(|cell| cell.stand_in.clone()).collect();
        let mut names = names.unwrap_or_default();
        names.dedup();
        names
    }

    /// The title of a table, and what stands in its rows for hardware where that is not said of the whole study.
    pub(super) fn title(&self, table: &Table, rows: &[PaperRow]) -> String {
        let of_row = |row: &PaperRow| {
            let (_, place) = row.planned_case.split_once(':')?;
            self.cell(place.split('/').next()?)?.stand_in.clone()
        };
        let mut names: Vec<String> = rows.iter().filter(|row| row.stand_in).filter_map(of_row).collect();
        names.dedup();
        match names.join(", ") {
            names if names.is_empty() || !self.stand_ins().is_empty() => table.title.clone(),
            names => format!("{} ({names})", table.title),
        }
    }
}
