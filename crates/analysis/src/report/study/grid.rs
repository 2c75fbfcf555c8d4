//! Tables with one measured case per column, for a terminal: in the study's layout, measured below published.
//!
//! Tables with limits, predictions or many cases are lists instead, with one figure per line.

use std::collections::BTreeMap;

use super::{INDENT, format_measured, ratio_text};
use crate::report::layout::LineKind;
use crate::report::wording::{ABSENT, printable};
use linkgauge_model::run::{StudyRow, StudyTable};

const COLUMN_GAP: usize = 2;

/// The table as lines for a terminal of that width. `place` names the place of a measurement. `None` if the table has
/// another form or does not fit.
pub(crate) fn render_grid(
    table: &StudyTable,
    width: usize,
    place: &dyn Fn(&StudyRow) -> &'static str,
) -> Option<Vec<(String, LineKind)>> {
    let grid = StudyGrid::from_table(table)?;
    let head = grid.header_rows(&table.rows_are, place);
    let heads = head.len();
    let cells: Vec<Vec<String>> = head.into_iter().chain(grid.body_rows()).collect();
    let widths: Vec<usize> = (0..grid.columns.len() + 2)
        .map(|column| cells.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0))
        .collect();
    if INDENT.len() + widths.iter().sum::<usize>() + COLUMN_GAP * (widths.len() - 1) > width {
        return None;
    }
    let kinds = std::iter::repeat_n(LineKind::Header, heads).chain(std::iter::repeat(LineKind::Row));
    Some(cells.iter().zip(kinds).map(|(cells, kind)| (format_line(cells, &widths), kind)).collect())
}

fn format_line(cells: &[String], widths: &[usize]) -> String {
    let mut text = INDENT.to_owned();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        // Names are left-aligned, figures right-aligned.
        text += &if index < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        text += &" ".repeat(COLUMN_GAP);
    }
    text.trim_end().to_owned()
}

struct StudyGrid<'a> {
    columns: Vec<&'a str>,
    /// Rows with one figure per column.
    rows: Vec<Vec<&'a StudyRow>>,
}

impl<'a> StudyGrid<'a> {
    fn from_table(table: &'a StudyTable) -> Option<StudyGrid<'a>> {
        let mut cases: BTreeMap<&str, &str> = BTreeMap::new();
        let mut grid = StudyGrid { columns: Vec::new(), rows: Vec::new() };
        for row in &table.rows {
            let case = *cases.entry(&row.column).or_insert(&row.planned_case);
            if row.theoretical_limit.is_some() || row.predicted.is_some() || case != row.planned_case {
                return None;
            }
            match grid.rows.last_mut() {
                Some(last) if last[0].row == row.row && last[0].unit == row.unit => last.push(row),
                _ => grid.rows.push(vec![row]),
            }
        }
        grid.columns = grid.rows.first()?.iter().map(|row| row.column.as_str()).collect();
        let is_whole =
            |row: &Vec<&StudyRow>| row.iter().map(|row| row.column.as_str()).eq(grid.columns.iter().copied());
        (grid.columns.len() > 1 && grid.rows.iter().all(is_whole)).then_some(grid)
    }

    /// Column names, case numbers, and the places of measurement if any are named.
    fn header_rows(&self, rows_are: &str, place: &dyn Fn(&StudyRow) -> &'static str) -> Vec<Vec<String>> {
        // A name of several words uses two lines.
        let names = |part: fn(&str) -> &str| {
            self.columns.iter().map(|name| printable(part(name))).collect::<Vec<_>>()
        };
        let upper = names(|name| name.rsplit_once(' ').map_or(name, |(first, _)| first));
        let lower = names(|name| name.rsplit_once(' ').map_or("", |(_, last)| last));
        let of_case = |what: &dyn Fn(&StudyRow) -> Option<String>| -> Vec<String> {
            let of_column =
                |column: usize| self.rows.iter().find_map(|row| what(row[column])).unwrap_or_default();
            (0..self.columns.len()).map(of_column).collect()
        };
        let numbers = of_case(&|row| row.case.map(|case| case.to_string()));
        let places = of_case(&|row| Some(place(row).to_owned()).filter(|place| !place.is_empty()));
        let lines = [(rows_are, "", upper), ("", "", lower), ("", "#", numbers), ("", "on", places)];
        let says = |(_, _, cells): &(&str, &str, Vec<String>)| cells.iter().any(|cell| !cell.is_empty());
        let with_names = |(first, second, cells): (&str, &str, Vec<String>)| {
            [vec![printable(first), second.to_owned()], cells].concat()
        };
        lines.into_iter().filter(says).map(with_names).collect()
    }

    /// Published, measured and their ratio below each other, beside name and unit. One line if the study states nothing.
    fn body_rows(&self) -> impl Iterator<Item = Vec<String>> {
        let is_published = |row: &&StudyRow| row.published != ABSENT;
        let ours = !self.rows.iter().flatten().any(is_published);
        let body = move |row: &Vec<&StudyRow>| {
            let [name, unit] = [&row[0].row, &row[0].unit].map(|text| printable(text));
            let cells = |name: String, line: &str, print: &dyn Fn(&StudyRow) -> String| {
                [vec![name, line.to_owned()], row.iter().map(|row| print(row)).collect()].concat()
            };
            if ours {
                return vec![cells(format!("{name}, {unit}"), "measured", &format_measured)];
            }
            let published = |row: &StudyRow| printable(&row.published);
            let mut lines = vec![
                cells(name, "published", &published),
                cells(format!("  {unit}"), "measured", &format_measured),
            ];
            if row.iter().any(|row| ratio_text(row) != ABSENT) {
                lines.push(cells(String::new(), "ratio", &ratio_text));
            }
            lines
        };
        self.rows.iter().flat_map(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two links with one case each.
    fn study_table(published: &[[&str; 2]]) -> StudyTable {
        let row = |(index, published): (usize, &[&str; 2])| {
            [("TCP", 0), ("UDP ad-hoc", 1)].map(|(column, place)| StudyRow {
                row: format!("p{}0", index + 1),
                column: column.to_owned(),
                published: published[place].to_owned(),
                unit: "ms".to_owned(),
                planned_case: column.to_owned(),
                statistic: "latency".to_owned(),
                measured: (place == 0).then_some(2.25),
                predicted: None,
                theoretical_limit: None,
                case: (place == 0).then_some(3),
                stand_in: place == 0,
                guest: false,
                fitted: false,
                reason: None,
                note: None,
            })
        };
        StudyTable {
            number: "1".to_owned(),
            title: "Round trips".to_owned(),
            rows_are: "percentile".to_owned(),
            rows: published.iter().enumerate().flat_map(row).collect(),
        }
    }

    fn draw_grid(table: &StudyTable, width: usize) -> Option<String> {
        let place = |row: &StudyRow| if row.stand_in { "lab" } else { "" };
        let lines = render_grid(table, width, &place)?;
        Some(lines.into_iter().map(|(line, _)| line).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn links_stand_side_by_side() {
        insta::assert_snapshot!(draw_grid(&study_table(&[["1.7501", "1.8"], ["N/A", "2"]]), 80).unwrap(), @r"
        percentile                TCP      UDP
                                        ad-hoc
                    #               3
                    on            lab
        p10         published  1.7501      1.8
          ms        measured    2.250  not run
                    ratio        1.29        –
        p20         published     N/A        2
          ms        measured    2.250  not run
        ");
        insta::assert_snapshot!(draw_grid(&study_table(&[["–", "–"]]), 80).unwrap(), @r"
        percentile              TCP      UDP
                                      ad-hoc
                    #             3
                    on          lab
        p10, ms     measured  2.250  not run
        ");
    }

    #[test]
    fn other_tables_are_no_grid() {
        let good = study_table(&[["1.7", "1.8"], ["2.1", "2.2"]]);
        assert!(draw_grid(&good, 80).is_some() && draw_grid(&good, 30).is_none());
        let mut limited = good.clone();
        limited.rows[3].theoretical_limit = Some(1.0);
        let mut another_case = good.clone();
        another_case.rows[2].planned_case = "another".to_owned();
        let mut gap = good.clone();
        gap.rows.pop();
        let mut empty = good;
        empty.rows.clear();
        for table in [limited, another_case, gap, empty] {
            assert_eq!(draw_grid(&table, 80), None);
        }
    }
}
