//! Fits a table into the width of a terminal.
//!
//! Endpoints are what varies most. As long as there is room they are a column, the longest shortened in the middle;
//! then each gets a line of its own above its rows, unless most have a single row: for those, columns that can be
//! spared make room. Not for colours and headings (`text`).

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, presets};

use super::table::{Row, Table};
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

/// A table that fits.
pub struct Fitted {
    /// What holds for every row that does not say otherwise.
    pub unless_said: Vec<String>,
    /// Header first.
    pub lines: Vec<(String, Line)>,
}

/// The lines of a table, none longer than `width` if that is at least 78. Takes the columns that found no room out of the
/// table.
pub fn fit(table: &mut Table, width: usize, numbered: bool) -> Fitted {
    let numbers = if numbered { digits(table) } else { 0 };
    if let Some(lines) = inside(table, width, numbers) {
        return Fitted { unless_said: Vec::new(), lines };
    }
    if table.spare_details()
        && let Some(lines) = inside(table, width, numbers)
    {
        return Fitted { unless_said: Vec::new(), lines };
    }
    let unless_said = table.name_rows();
    let mut spared = table.clone();
    while mostly_single(table) {
        if let Some(lines) = inside(&spared, width, numbers) {
            *table = spared;
            return Fitted { unless_said, lines };
        }
        if !spared.spare() {
            break;
        }
    }
    Fitted { unless_said, lines: below(table, width, numbered, numbers) }
}

/// The table with each endpoint on a line of its own.
fn below(table: &mut Table, width: usize, numbered: bool, numbers: usize) -> Vec<(String, Line)> {
    let longest_also = longest_also(table);
    let labels = numbers + longest_also;
    let gap = if used(table, labels, GAP) + usize::from(GAP) <= width { GAP } else { 1 };
    while used(table, labels, gap) + usize::from(gap) > width && table.spare() {}
    let label = |row: &Row| row.also.unwrap_or_default().to_owned();
    let label: Option<Label> = if longest_also > 0 { Some(("", &label)) } else { None };
    let mut drawn = draw(table, numbered, label, gap).into_iter();
    let mut lines: Vec<(String, Line)> = drawn.next().into_iter().collect();
    let mut above = None;
    for (row, line) in table.rows.iter().zip(drawn) {
        let this = Some((&row.endpoint, &row.tags));
        if above != this {
            lines.push((name(row, width), Line::Row));
            above = this;
        }
        lines.push(line);
    }
    lines
}

/// The table with the endpoints as a column, if there is room to tell them apart.
fn inside(table: &Table, width: usize, numbers: usize) -> Option<Vec<(String, Line)>> {
    let longest = table.rows.iter().map(|row| whole(row).chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(used(table, numbers, GAP));
    let least = longest.min(SHORTEST_ENDPOINT).max("endpoint".len());
    if room < least.max(longest_also(table) + usize::from(GAP)) {
        return None;
    }
    let label = |row: &Row| match row.also {
        Some(also) => format!("{}{also}", " ".repeat(GAP.into())),
        None => name(row, room),
    };
    let different =
        |label: &dyn Fn(&Row) -> String| table.rows.iter().map(label).collect::<BTreeSet<_>>().len();
    if different(&|row| name(row, room)) < different(&whole) {
        return None;
    }
    Some(draw(table, numbers > 0, Some(("endpoint", &label)), GAP))
}

/// Whether lines for the endpoints alone would be more than half as many as those with figures.
fn mostly_single(table: &Table) -> bool {
    let mains: Vec<&Row> = table.rows.iter().filter(|row| row.also.is_none()).collect();
    let changes = mains.windows(2).filter(|pair| whole(pair[0]) != whole(pair[1])).count();
    2 * (changes + 1) > mains.len()
}

fn longest_also(table: &Table) -> usize {
    table.rows.iter().filter_map(|row| row.also).map(str::len).max().unwrap_or(0)
}

fn whole(row: &Row) -> String {
    printable(&format!("{}{}", row.endpoint, row.tags))
}

/// Endpoint and what else tells a row apart; the endpoint gives way first.
fn name(row: &Row, width: usize) -> String {
    let tags = printable(&row.tags);
    let room = width.saturating_sub(tags.chars().count());
    if room < SHORTEST_ENDPOINT / 2 {
        return shorten(&whole(row), width);
    }
    shorten(&printable(&row.endpoint), room) + &tags
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
        let left = index < labels || matches!(table.columns[index - labels].title, "peer" | "way" | "wait");
        column.set_cell_alignment(if left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let kinds = std::iter::once(Line::Header).chain(std::iter::repeat(Line::Row));
    drawn.lines().map(|line| line.trim_end().to_owned()).zip(kinds).collect()
}
