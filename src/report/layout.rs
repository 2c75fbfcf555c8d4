//! Fits a table into the width of a terminal.
//!
//! Endpoints are what varies most. As long as there is room they are a column, the longest shortened in the middle;
//! then each gets a line of its own above its rows. Not for colours and headings (`text`).

use comfy_table::{CellAlignment, presets};

use super::table::{Kind, Row, Table};
use super::words::{printable, shorten};

/// An endpoint is shortened down to this; below it gets a line of its own.
const SHORTEST_ENDPOINT: usize = 24;
/// Of a cell; only names and figures that somebody made up are longer.
const LONGEST_CELL: usize = 13;
/// Between two columns, where there is room.
const GAP: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Header,
    Row,
}

/// The lines of a table, header first, none longer than `width` if that is at least 78.
pub fn lines(mut table: Table, width: usize, numbered: bool) -> Vec<(String, Line)> {
    let longest = table.rows.iter().map(|row| row.endpoint.chars().count()).max().unwrap_or(0);
    let longest_also = table.rows.iter().filter_map(|row| row.also).map(str::len).max().unwrap_or(0);
    let numbers = if numbered { digits(&table) } else { 0 };
    let room = width.saturating_sub(used(&table, numbers, GAP));
    let least = longest.min(SHORTEST_ENDPOINT).max("endpoint".len()).max(longest_also + usize::from(GAP));
    let inside = room >= least;
    if inside {
        let label = |row: &Row| match row.also {
            Some(also) => format!("{}{also}", " ".repeat(GAP.into())),
            None => shorten(&printable(&row.endpoint), room),
        };
        return draw(&table, numbered, Some(("endpoint", &label)), GAP);
    }

    table.name_rows();
    let labels = numbers + longest_also;
    let gap = if used(&table, labels, GAP) + usize::from(GAP) <= width { GAP } else { 1 };
    while used(&table, labels, gap) + usize::from(gap) > width {
        let Some(last) = table.columns.iter().rposition(|column| column.kind == Kind::Rare) else { break };
        table.remove(last);
    }
    let label = |row: &Row| row.also.unwrap_or_default().to_owned();
    let label: Option<Label> = if longest_also > 0 { Some(("", &label)) } else { None };
    let mut drawn = draw(&table, numbered, label, gap).into_iter();
    let mut lines: Vec<(String, Line)> = drawn.next().into_iter().collect();
    let mut above = None;
    for (row, line) in table.rows.iter().zip(drawn) {
        if above != Some(&row.endpoint) {
            lines.push((shorten(&printable(&row.endpoint), width), Line::Row));
            above = Some(&row.endpoint);
        }
        lines.push(line);
    }
    lines
}

fn digits(table: &Table) -> usize {
    table.rows.iter().map(|row| row.case.to_string().len()).max().unwrap_or(0)
}

/// Characters that everything but the endpoint takes, with the gaps.
fn used(table: &Table, labels: usize, gap: u16) -> usize {
    let widths = table.columns.iter().enumerate().map(|(index, column)| {
        let cells = table.rows.iter().map(|row| cell(&row.cells[index]).chars().count());
        cells.chain([column.title.chars().count()]).max().unwrap_or(0) + usize::from(gap)
    });
    widths.sum::<usize>() + if labels > 0 { labels + usize::from(gap) } else { 0 }
}

fn cell(text: &str) -> String {
    shorten(&printable(text), LONGEST_CELL)
}

/// Title of the column of labels, and the label of a row.
type Label<'a> = (&'a str, &'a dyn Fn(&Row) -> String);

/// Names to the left, figures to the right, no borders.
fn draw(table: &Table, numbered: bool, label: Option<Label>, gap: u16) -> Vec<(String, Line)> {
    let header = numbered.then_some("#").into_iter().chain(label.map(|(title, _)| title));
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(presets::NOTHING);
    drawn.set_header(header.chain(table.columns.iter().map(|column| column.title)));
    for row in &table.rows {
        let number = numbered.then(|| if row.also.is_none() { row.case.to_string() } else { String::new() });
        let label = label.map(|(_, label)| label(row));
        drawn.add_row(number.into_iter().chain(label).chain(row.cells.iter().map(|text| cell(text))));
    }
    let labels = usize::from(numbered) + usize::from(label.is_some());
    for (index, column) in drawn.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { gap }, 0));
        let left = index < labels || matches!(table.columns[index - labels].title, "peer" | "way");
        column.set_cell_alignment(if left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let kinds = std::iter::once(Line::Header).chain(std::iter::repeat(Line::Row));
    drawn.lines().map(|line| line.trim_end().to_owned()).zip(kinds).collect()
}
