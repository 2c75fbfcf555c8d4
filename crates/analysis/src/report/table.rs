//! The table of a workload: its columns and cells. Text and HTML show the same one.
//!
//! Widths, rules and colours are set elsewhere.

use std::collections::BTreeMap;

use serde_json::Value;

use super::column::{ColumnKind, TableColumn, case_column};
use super::presentation::presentation;
use super::wording::{ABSENT, brief_bytes, direction_name, wait_mode};
use linkgauge_model::run::{CaseResult, Run};

/// All cases of one workload. Cases on serial lines have a separate table with figures relative to the line.
#[derive(Clone)]
pub(crate) struct ReportTable {
    pub(crate) workload: String,
    pub(crate) on_serial_lines: bool,
    pub(crate) columns: Vec<TableColumn>,
    pub(crate) rows: Vec<TableRow>,
}

#[derive(Clone)]
pub(crate) struct TableRow {
    /// Index in the run, from 1.
    pub(crate) case: usize,
    pub(crate) endpoint: String,
    /// Further properties of the case, after its endpoint: `, peer echo`.
    pub(crate) details: String,
    /// Kind of figures, unless they are the case's main figures.
    pub(crate) secondary: Option<&'static str>,
    /// Cells of the row, one per column.
    pub(crate) cells: Vec<String>,
}

const CASE_COLUMNS: [TableColumn; 7] = [
    case_column("protocol", "protocol ", "", "linkgauge"),
    case_column("direction", "", "", ""),
    case_column("size", "", " messages", ""),
    case_column("ports", "", " ports at once", "1"),
    case_column("connections", "", " connections each", "1"),
    case_column("wait", "", "", "block"),
    case_column("CPUs", "CPUs ", "", "any"),
];
/// One or two tables per workload, in the order of first appearance. Cases that an interrupted run did not reach are
/// omitted.
pub(crate) fn build_tables(run: &Run) -> Vec<ReportTable> {
    let mut tables: Vec<ReportTable> = Vec::new();
    for (index, case) in
        run.cases.iter().enumerate().filter(|(_, case)| !run.interrupted || case.figures.has_measurements())
    {
        let shown = presentation(&case.workload);
        let on_lines = case.line.is_some();
        let fits = |table: &ReportTable| table.workload == case.workload && table.on_serial_lines == on_lines;
        let position = tables.iter().position(fits).unwrap_or_else(|| {
            let columns = [CASE_COLUMNS.as_slice(), shown.columns].concat();
            tables.push(ReportTable {
                workload: case.workload.clone(),
                on_serial_lines: on_lines,
                columns,
                rows: Vec::new(),
            });
            tables.len() - 1
        });
        tables[position].add_case(index + 1, case);
    }
    tables
}

/// Formats the message size. Empty if unknown: files of other programs do not always report it.
fn format_size(case: &CaseResult) -> String {
    if case.message_bytes == 0 { String::new() } else { brief_bytes(case.message_bytes.into()) }
}

impl ReportTable {
    /// The quantity that its cases measure.
    pub(crate) fn title(&self) -> String {
        let mut letters = self.workload.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
        let over = if self.on_serial_lines { " over lines" } else { "" };
        format!("{first}{}{over}", letters.as_str())
    }

    fn add_case(&mut self, number: usize, case: &CaseResult) {
        let shown = presentation(&case.workload);
        let what = [
            case.protocol.clone(),
            if shown.has_direction { direction_name(case.direction).to_owned() } else { String::new() },
            format_size(case),
            case.ports.to_string(),
            case.parallel.to_string(),
            wait_mode(case).name().to_owned(),
            format_cpus(case),
        ];
        for row in (shown.rows)(case) {
            // The properties of the case stand in its main row.
            let mut cells = match row.label {
                None => what.to_vec(),
                Some(_) => vec![String::new(); what.len()],
            };
            cells.extend(row.cells);
            self.push_row(number, case, row.label, cells);
        }
    }

    fn push_row(
        &mut self,
        case: usize,
        result: &CaseResult,
        also: Option<&'static str>,
        cells: impl IntoIterator<Item = String>,
    ) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(TableRow {
            case,
            endpoint: result.endpoint.clone(),
            details: String::new(),
            secondary: also,
            cells,
        });
    }

    /// Moves values that all cases share to the heading. Removes those columns and empty ones.
    pub(crate) fn take_common_values(&mut self) -> Vec<String> {
        let mut common = Vec::new();
        let mut keep = vec![true; self.columns.len()];
        for (index, column) in self.columns.iter().enumerate() {
            let cells = self.rows.iter().filter(|row| row.secondary.is_none()).map(|row| &row.cells[index]);
            match column.kind {
                ColumnKind::Figure => {}
                ColumnKind::Optional | ColumnKind::Expendable | ColumnKind::Extra | ColumnKind::Detail => {
                    keep[index] = !self.is_column_empty(index)
                }
                ColumnKind::Case { before, after, usual } => {
                    // A case without a value does not disagree.
                    let mut cells = cells.filter(|cell| !cell.is_empty());
                    let first = cells.next().map_or(usual, String::as_str);
                    if cells.all(|cell| cell == first) {
                        keep[index] = false;
                        if first != usual {
                            common.push(format!("{before}{first}{after}"));
                        }
                    }
                }
            }
        }
        self.retain_columns(&keep);
        common
    }

    /// Moves distinguishing properties next to the endpoint, except the size, because a sweep reads best as a column.
    /// Returns the values that nearly all cases share, for the heading. Only the other cases show their own.
    pub(crate) fn move_columns_to_names(&mut self) -> Vec<String> {
        let keep: Vec<bool> = self
            .columns
            .iter()
            .map(|c| c.title == "size" || !matches!(c.kind, ColumnKind::Case { .. }))
            .collect();
        for index in 1..self.rows.len() {
            // A secondary row has no such cells.
            if self.rows[index].secondary.is_some() {
                for column in (0..keep.len()).filter(|column| !keep[*column]) {
                    self.rows[index].cells[column] = self.rows[index - 1].cells[column].clone();
                }
            }
        }
        let mut common = Vec::new();
        for (index, column) in self.columns.iter().enumerate().filter(|(index, _)| !keep[*index]) {
            let ColumnKind::Case { before, after, usual } = column.kind else { continue };
            let most = common_value(self.rows.iter().map(|row| row.cells[index].as_str()));
            let silent = most.map_or(usual.to_owned(), |most| {
                if most != usual {
                    common.push(format!("{before}{most}{after}"));
                }
                most.to_owned()
            });
            for row in &mut self.rows {
                if ![&silent, ""].contains(&row.cells[index].as_str()) {
                    row.details += &format!(", {before}{}{after}", row.cells[index]);
                }
            }
        }
        self.retain_columns(&keep);
        common
    }

    /// Removes the columns that only the full report shows.
    pub(crate) fn drop_extra_columns(&mut self) {
        let keep: Vec<bool> = self.columns.iter().map(|column| column.kind != ColumnKind::Extra).collect();
        self.retain_columns(&keep);
    }

    /// Removes all detail columns. Returns false if there are none.
    pub(crate) fn drop_detail_columns(&mut self) -> bool {
        let keep: Vec<bool> = self.columns.iter().map(|column| column.kind != ColumnKind::Detail).collect();
        self.retain_columns(&keep);
        keep.contains(&false)
    }

    /// Removes the detail columns, or else the last extra column, or else the first expendable one. Returns false if there is none.
    pub(crate) fn drop_expendable_column(&mut self) -> bool {
        if self.drop_detail_columns() {
            return true;
        }
        let is_of = |kind| move |column: &TableColumn| column.kind == kind;
        let extra = self.columns.iter().rposition(is_of(ColumnKind::Extra));
        // The round trip under load stands after the interval, and says more.
        let first = || self.columns.iter().position(is_of(ColumnKind::Expendable));
        let Some(removed) = extra.or_else(first) else { return false };
        let keep: Vec<bool> = (0..self.columns.len()).map(|column| column != removed).collect();
        self.retain_columns(&keep);
        true
    }

    fn is_column_empty(&self, index: usize) -> bool {
        self.rows.iter().all(|row| row.cells[index].is_empty() || row.cells[index] == ABSENT)
    }

    fn retain_columns(&mut self, keep: &[bool]) {
        let mut keep_column = keep.iter();
        self.columns.retain(|_| *keep_column.next().expect("one a column"));
        for row in &mut self.rows {
            let mut keep_column = keep.iter();
            row.cells.retain(|_| *keep_column.next().expect("one a column"));
        }
    }
}

/// The value of at least three in four cells.
fn common_value<'a>(cells: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    cells.for_each(|cell| *counts.entry(cell).or_default() += 1);
    let all: usize = counts.values().sum();
    counts.into_iter().find(|(_, count)| 4 * count >= 3 * all).map(|(cell, _)| cell)
}

/// The CPUs of client and server, in the form of `--pin`. Empty if one thread does both.
fn format_cpus(case: &CaseResult) -> String {
    if case.effective.get("threads").and_then(Value::as_u64) == Some(1) {
        return String::new();
    }
    match case.placement.pinned_cpus() {
        [None, None] => "any".to_owned(),
        cpus => cpus.map(|cpu| cpu.map_or("any".to_owned(), |cpu| cpu.to_string())).join(","),
    }
}
