//! Fits a table into the width of a terminal.
//!
//! Endpoints vary most in width. If there is room, they form a column, and the longest are shortened in the middle.
//! Otherwise each endpoint gets its own line above its rows, unless most have a single row. For those, expendable
//! columns make room. `text` adds colours and headings.

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, presets};

use super::table::{ReportTable, TableRow};
use super::wording::{printable, shorten};

/// Minimum width of a shortened endpoint. Below it the endpoint gets its own line.
const MIN_ENDPOINT_COLUMNS: usize = 24;
/// Maximum width of a cell. Only invented names and figures are longer.
const MAX_CELL_COLUMNS: usize = 13;
/// Preferred space between two columns.
const COLUMN_GAP: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    Header,
    Row,
}

/// A table that fits the width.
pub(crate) struct FittedTable {
    /// Values of every row that shows no other value.
    pub(crate) common_values: Vec<String>,
    /// Lines of the table, header first.
    pub(crate) lines: Vec<(String, LineKind)>,
}

/// Whether the rows have the numbers of their cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseNumbers {
    Shown,
    /// The table has a single case.
    Hidden,
}

impl CaseNumbers {
    /// Width of the numbers in a run with this many cases.
    pub(crate) fn for_cases(count: usize) -> CaseNumbers {
        if count > 1 { CaseNumbers::Shown } else { CaseNumbers::Hidden }
    }

    fn columns(self, table: &ReportTable) -> usize {
        match self {
            CaseNumbers::Shown => number_columns(table),
            CaseNumbers::Hidden => 0,
        }
    }
}

/// The lines of a table, with at most `width` columns if that is at least 78. Removes columns without room from the
/// table.
pub(crate) fn fit_table(table: &mut ReportTable, width: usize, case_numbers: CaseNumbers) -> FittedTable {
    if let Some(lines) = lay_out_with_endpoint_column(table, width, case_numbers) {
        return FittedTable { common_values: Vec::new(), lines };
    }
    if table.drop_detail_columns()
        && let Some(lines) = lay_out_with_endpoint_column(table, width, case_numbers)
    {
        return FittedTable { common_values: Vec::new(), lines };
    }
    let common_values = table.move_columns_to_names();
    let mut spared = table.clone();
    while has_mostly_single_rows(table) {
        if let Some(lines) = lay_out_with_endpoint_column(&spared, width, case_numbers) {
            *table = spared;
            return FittedTable { common_values, lines };
        }
        if !spared.drop_expendable_column() {
            break;
        }
    }
    FittedTable { common_values, lines: lay_out_below_endpoints(table, width, case_numbers) }
}

/// The layout with each endpoint on its own line.
fn lay_out_below_endpoints(
    table: &mut ReportTable,
    width: usize,
    case_numbers: CaseNumbers,
) -> Vec<(String, LineKind)> {
    let longest_also = max_label_columns(table);
    let labels = case_numbers.columns(table) + longest_also;
    let gap = if used_columns(table, labels, COLUMN_GAP) + usize::from(COLUMN_GAP) <= width {
        COLUMN_GAP
    } else {
        1
    };
    while used_columns(table, labels, gap) + usize::from(gap) > width && table.drop_expendable_column() {}
    let label = |row: &TableRow| row.secondary.unwrap_or_default().to_owned();
    let label: Option<LabelColumn> = if longest_also > 0 { Some(("", &label)) } else { None };
    let mut drawn = draw_table(table, case_numbers, label, gap).into_iter();
    let mut lines: Vec<(String, LineKind)> = drawn.next().into_iter().collect();
    let mut above = None;
    for (row, line) in table.rows.iter().zip(drawn) {
        let this = Some((&row.endpoint, &row.details));
        if above != this {
            lines.push((fit_name(row, width), LineKind::Row));
            above = this;
        }
        lines.push(line);
    }
    lines
}

/// The layout with a column of endpoints. `None` if the endpoints would be ambiguous.
fn lay_out_with_endpoint_column(
    table: &ReportTable,
    width: usize,
    case_numbers: CaseNumbers,
) -> Option<Vec<(String, LineKind)>> {
    let longest = table.rows.iter().map(|row| full_name(row).chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(used_columns(table, case_numbers.columns(table), COLUMN_GAP));
    let least = longest.min(MIN_ENDPOINT_COLUMNS).max("endpoint".len());
    if room < least.max(max_label_columns(table) + usize::from(COLUMN_GAP)) {
        return None;
    }
    let label = |row: &TableRow| match row.secondary {
        Some(also) => format!("{}{also}", " ".repeat(COLUMN_GAP.into())),
        None => fit_name(row, room),
    };
    let different =
        |label: &dyn Fn(&TableRow) -> String| table.rows.iter().map(label).collect::<BTreeSet<_>>().len();
    if different(&|row| fit_name(row, room)) < different(&full_name) {
        return None;
    }
    Some(draw_table(table, case_numbers, Some(("endpoint", &label)), COLUMN_GAP))
}

/// Whether endpoint lines would number more than half the lines with figures.
fn has_mostly_single_rows(table: &ReportTable) -> bool {
    let mains: Vec<&TableRow> = table.rows.iter().filter(|row| row.secondary.is_none()).collect();
    let changes = mains.windows(2).filter(|pair| full_name(pair[0]) != full_name(pair[1])).count();
    2 * (changes + 1) > mains.len()
}

fn max_label_columns(table: &ReportTable) -> usize {
    table.rows.iter().filter_map(|row| row.secondary).map(str::len).max().unwrap_or(0)
}

fn full_name(row: &TableRow) -> String {
    printable(&format!("{}{}", row.endpoint, row.details))
}

/// Endpoint and distinguishing details. The endpoint is shortened first.
fn fit_name(row: &TableRow, width: usize) -> String {
    let tags = printable(&row.details);
    let room = width.saturating_sub(tags.chars().count());
    if room < MIN_ENDPOINT_COLUMNS / 2 {
        return shorten(&full_name(row), width);
    }
    shorten(&printable(&row.endpoint), room) + &tags
}

fn number_columns(table: &ReportTable) -> usize {
    table.rows.iter().map(|row| row.case.to_string().len()).max().unwrap_or(0)
}

/// Width of all columns except the endpoint, with the space between them.
fn used_columns(table: &ReportTable, labels: usize, gap: u16) -> usize {
    let widths = table.columns.iter().enumerate().map(|(index, column)| {
        let cells = table.rows.iter().map(|row| fit_cell(&row.cells[index]).chars().count());
        cells.chain([column.title.chars().count()]).max().unwrap_or(0) + usize::from(gap)
    });
    widths.sum::<usize>() + if labels > 0 { labels + usize::from(gap) } else { 0 }
}

fn fit_cell(text: &str) -> String {
    shorten(&printable(text), MAX_CELL_COLUMNS)
}

/// Title of the label column, and the label of each row.
type LabelColumn<'a> = (&'a str, &'a dyn Fn(&TableRow) -> String);

/// Draws the table. Names are left-aligned, figures right-aligned, without rules.
fn draw_table(
    table: &ReportTable,
    case_numbers: CaseNumbers,
    label: Option<LabelColumn>,
    gap: u16,
) -> Vec<(String, LineKind)> {
    let numbered = case_numbers == CaseNumbers::Shown;
    let header = numbered.then_some("#").into_iter().chain(label.map(|(title, _)| title));
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(presets::NOTHING);
    drawn.set_header(header.chain(table.columns.iter().map(|column| column.title)));
    for row in &table.rows {
        let number =
            numbered.then(|| if row.secondary.is_none() { row.case.to_string() } else { String::new() });
        let label = label.map(|(_, label)| label(row));
        drawn.add_row(number.into_iter().chain(label).chain(row.cells.iter().map(|text| fit_cell(text))));
    }
    let labels = usize::from(numbered) + usize::from(label.is_some());
    for (index, column) in drawn.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { gap }, 0));
        let left = index < labels
            || matches!(table.columns[index - labels].title, "protocol" | "direction" | "wait");
        column.set_cell_alignment(if left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let kinds = std::iter::once(LineKind::Header).chain(std::iter::repeat(LineKind::Row));
    drawn.lines().map(|line| line.trim_end().to_owned()).zip(kinds).collect()
}
