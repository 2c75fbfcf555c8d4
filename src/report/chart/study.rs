//! A table of a published study as a chart: what was published beside what was measured.
//!
//! Where the rows are numbers (rates, sizes, delays), figures stand against them; otherwise every row has a line of
//! its own and its figures lie along it.

use super::axes::{Unit, linear, logarithmic_at, spanning};
use super::{Chart, chart};
use crate::report::svg::{Axis, Series};
use crate::report::words::{printable, shorten};
use crate::run::{PaperRow, PaperTable, Run};

/// More lines than this are no chart but a table.
const MOST_ROWS: usize = 64;
/// Of the name of a row, beside its line.
const NAME: usize = 11;

/// What lies along the axis; the title says of what.
const FIGURE: &str = "figure of the table";

/// None where too little of the table is numbers.
pub fn of_table(run: &Run, table: &PaperTable) -> Option<Chart> {
    let unit = shown(table)?;
    let rows: Vec<&PaperRow> = table.rows.iter().filter(|row| row.unit == unit).collect();
    let title = format!("{}: rings as published, dots as measured", printable(&table.title));
    let numbers: Option<Vec<f64>> = rows.iter().map(|row| positive(row.row.parse().ok()?)).collect();
    match numbers {
        Some(numbers) => against_numbers(run, table, &title, &rows, &numbers),
        None => line_by_line(run, &title, &rows),
    }
}

/// The unit of which the chart is; a table that gives a share as well is read by that.
fn shown(table: &PaperTable) -> Option<&str> {
    let share = table.rows.iter().find(|row| row.unit == "%");
    share.or(table.rows.first()).map(|row| row.unit.as_str())
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// What the axes know of a unit of a study: theirs, and how much of it one of the study's is.
fn scale(unit: &str) -> (Unit, f64) {
    match unit {
        "ns" => (Unit::Nanoseconds, 1.0),
        "us" | "µs" => (Unit::Nanoseconds, 1e3),
        "ms" => (Unit::Nanoseconds, 1e6),
        "s" => (Unit::Nanoseconds, 1e9),
        "bit/s" => (Unit::BitsPerSecond, 1.0),
        "%" => (Unit::Percent, 1.0),
        _ => (Unit::Number, 1.0),
    }
}

/// One series a column; `place` makes a point of a figure of that row.
fn series(rows: &[&PaperRow], place: impl Fn(usize, f64) -> (f64, f64)) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let (_, factor) = scale(&row.unit);
        let at = |value: Option<f64>| Some(place(index, positive(value?)? * factor));
        // Beside a word there is nothing to compare with.
        let Some(published) = at(row.published.parse().ok()) else { continue };
        let label = printable(&row.column);
        let one = match series.iter().position(|one| one.label == label) {
            Some(index) => &mut series[index],
            None => {
                series.push(Series::curve(&label, vec![]));
                series.last_mut().expect("just added")
            }
        };
        one.rings.push(published);
        one.dots.extend(at(row.measured));
    }
    series
}

fn against_numbers(
    run: &Run,
    table: &PaperTable,
    title: &str,
    rows: &[&PaperRow],
    numbers: &[f64],
) -> Option<Chart> {
    let unit = match table.rows_are.as_str() {
        "baud" => Unit::Baud,
        _ => Unit::Number,
    };
    let x = logarithmic_at(&printable(&table.rows_are), unit, numbers.iter().copied())?;
    let mut series = series(rows, |row, value| (Unit::Number.log(numbers[row]), value));
    for one in &mut series {
        one.rings.sort_by(|a, b| a.0.total_cmp(&b.0));
        one.points = one.rings.clone();
    }
    let (unit, _) = scale(&rows.first()?.unit);
    let y = spanning(FIGURE, unit, &mut series, |point| &mut point.1);
    chart(run, title, "", "", &x, &y, series)
}

fn line_by_line(run: &Run, title: &str, rows: &[&PaperRow]) -> Option<Chart> {
    let figures = |row: &&&PaperRow| row.published.parse::<f64>().is_ok();
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(figures) {
        if !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    if names.is_empty() || names.len() > MOST_ROWS {
        return None;
    }
    // The first row is the uppermost.
    let line = |name: &str| names.iter().rev().position(|one| *one == name).map_or(0.0, |at| at as f64 + 1.0);
    let mut series = series(rows, |row, value| (value, line(&rows[row].row)));
    let (unit, _) = scale(&rows.first()?.unit);
    let x = spanning(FIGURE, unit, &mut series, |point| &mut point.0);
    let ticks = names.iter().map(|name| (line(name), shorten(&printable(name), NAME))).collect();
    let y = Axis { ticks, low: 0.5, high: names.len() as f64 + 0.5, ..linear("", Unit::Number, 1.0) };
    let y = Axis { reads: "names".to_owned(), ..y };
    chart(run, title, "", "", &x, &y, series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_run;

    #[test]
    fn rings_and_dots_stand_where_the_figures_are() {
        let run = sample_run::reproduced();
        let tables = &run.paper.as_ref().unwrap().tables;
        let latency = of_table(&run, &tables[0]).unwrap();
        // Four published, one of them a word; two measured.
        assert_eq!(latency.svg.matches("<circle").count(), 3 + 2, "{}", latency.svg);
        assert!(latency.svg.contains("STS1600") && latency.svg.contains("LS100"));
        // A single rate is no axis.
        assert!(of_table(&run, &tables[1]).is_none());
        let mut sweep = tables[1].clone();
        for (row, baud) in ["300", "9600", "115200"].iter().zip([300.0, 9600.0, 115_200.0]) {
            let more =
                PaperRow { row: (*row).to_owned(), measured: Some(baud / 10.0), ..sweep.rows[0].clone() };
            sweep.rows.push(PaperRow { unit: "%".to_owned(), ..more });
        }
        let chart = of_table(&run, &sweep).unwrap();
        assert_eq!(chart.svg.matches("<circle").count(), 8, "{}", chart.svg);
        assert_eq!(chart.x.reads, "log baud");
    }
}
