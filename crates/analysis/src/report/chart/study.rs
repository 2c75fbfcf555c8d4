//! A table of a published study as a chart: published beside measured figures.
//!
//! If the rows are numbers (rates, sizes, delays, percentiles), they form an axis, and each column is a curve.
//! Otherwise every row has its own line with its figures along it.

use super::axes::{AxisUnit, linear_axis, linear_axis_with_ticks, log_axis_with_ticks, x_axis, y_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::svg::{Axis, ChartSeries, SeriesKind};
use crate::report::wording::{host_and_date, printable, shorten};
use linkgauge_model::run::{Run, StudyRow, StudyTable};

/// Maximum number of rows of a chart; with more, a table is clearer.
const MAX_ROWS: usize = 64;
/// Maximum width of a row's name.
const MAX_NAME_COLUMNS: usize = 13;

/// Chart of a table; `None` if too few cells are numbers.
pub(crate) fn table_chart(run: &Run, table: &StudyTable) -> Option<Chart> {
    let unit = charted_unit(table)?;
    let rows: Vec<&StudyRow> = table.rows.iter().filter(|row| row.unit == unit).collect();
    match positioned_rows(&rows) {
        Some(numbered) => numeric_chart(run, table, numbered),
        None => named_rows_chart(run, table, &rows),
    }
}

/// The title, with the names of the series.
fn chart_title(run: &Run, table: &StudyTable, series: &[ChartSeries]) -> String {
    let any = |kind| series.iter().any(|one| one.kind == kind);
    let is_twin = run.study.as_ref().is_some_and(|study| study.twins.is_some());
    let measured = if is_twin { "from the twin" } else { "as measured" };
    let whose = match (any(SeriesKind::Published), any(SeriesKind::Measured)) {
        (true, true) => &format!("open as published, filled {measured}"),
        (true, false) => "as published",
        _ => measured,
    };
    format!("{}: {whose}", printable(&table.title))
}

/// The unit of the chart. If the table has percentages, the chart shows those.
fn charted_unit(table: &StudyTable) -> Option<&str> {
    let share = table.rows.iter().find(|row| row.unit == "%");
    share.or(table.rows.first()).map(|row| row.unit.as_str())
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// The axis unit for a unit of a study, and the conversion factor.
fn axis_scale(unit: &str) -> (AxisUnit, f64) {
    match unit {
        "ns" => (AxisUnit::Nanoseconds, 1.0),
        "us" | "µs" => (AxisUnit::Nanoseconds, 1e3),
        "ms" => (AxisUnit::Nanoseconds, 1e6),
        "s" => (AxisUnit::Nanoseconds, 1e9),
        "bit/s" => (AxisUnit::BitsPerSecond, 1.0),
        "%" => (AxisUnit::Percent, 1.0),
        _ => (AxisUnit::Number, 1.0),
    }
}

/// Label and unit of the value axis.
fn value_axis(unit: &str) -> (String, AxisUnit) {
    match axis_scale(unit).0 {
        AxisUnit::Number => (format!("figure of the table ({})", printable(unit)), AxisUnit::Number),
        known => ("figure of the table".to_owned(), known),
    }
}

/// The position of a row on an axis.
#[derive(Debug, PartialEq)]
struct RowPosition<'a> {
    value: f64,
    /// Unit of the position: `p` of a percentile, else the text after the number.
    unit: &'a str,
    /// The text after the unit.
    rest: &'a str,
}

/// Position in a row name such as `9600`, `64 B`, `p90`, `over 50 ms`, `500 ms, 10/1000`.
fn parse_row_position(row: &str) -> Option<RowPosition<'_>> {
    let (name, rest) = row.split_once(", ").unwrap_or((row, ""));
    let number = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
    if let Some(value) = name.strip_prefix('p').and_then(number) {
        return Some(RowPosition { value, unit: "p", rest });
    }
    let split = |text| str::split_once(text, ' ').unwrap_or((text, ""));
    let (first, behind) = split(name);
    // One word may precede the number. The unit follows it.
    let (first, unit) = if number(first).is_some() { (first, behind) } else { split(behind) };
    (!unit.contains(' ')).then_some(RowPosition { value: number(first)?, unit, rest })
}

/// Published and measured figures of one column, in one colour. `at` maps a figure of a row to a point, and `named` is
/// the column's name.
fn column_series(
    rows: &[&StudyRow],
    named: impl Fn(usize) -> String,
    at: impl Fn(usize, f64) -> (f64, f64),
) -> Vec<ChartSeries> {
    let mut names: Vec<String> = Vec::new();
    let mut pairs: Vec<[ChartSeries; 2]> = Vec::new();
    let known = |row: &StudyRow| row.published.parse().ok().and_then(positive);
    // A published word has no value to compare. A column of words shows its measured values.
    let compared = |row: &StudyRow| {
        known(row).is_some() || !rows.iter().any(|other| other.column == row.column && known(other).is_some())
    };
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| compared(row)) {
        let (_, factor) = axis_scale(&row.unit);
        let name = named(index);
        let number = names.iter().position(|other| *other == name).unwrap_or_else(|| {
            let kinds = [SeriesKind::Published, SeriesKind::Measured];
            pairs.push(kinds.map(|kind| ChartSeries {
                kind,
                colour: Some(names.len()),
                ..ChartSeries::curve("", vec![])
            }));
            names.push(name);
            names.len() - 1
        });
        let [published, measured] = &mut pairs[number];
        published.rings.extend(known(row).map(|value| at(index, value * factor)));
        measured.dots.extend(row.measured.and_then(positive).map(|value| at(index, value * factor)));
    }
    for (pair, name) in pairs.iter_mut().zip(names) {
        let labelled = usize::from(!pair[1].dots.is_empty());
        pair[labelled].label = name;
    }
    let drawn = |one: &ChartSeries| !one.rings.is_empty() || !one.dots.is_empty();
    pairs.into_iter().flatten().filter(drawn).collect()
}

/// Rows with a position on an axis.
type PositionedRows<'a> = (Vec<&'a StudyRow>, Vec<RowPosition<'a>>);

/// The rows that are numbers, if most are. A row of another kind (a mean among percentiles) is only in the table.
fn positioned_rows<'a>(rows: &[&'a StudyRow]) -> Option<PositionedRows<'a>> {
    let units = rows.iter().filter_map(|row| Some(parse_row_position(&row.row)?.unit));
    let units: Vec<&str> = units.collect();
    let usual = units.iter().max_by_key(|unit| units.iter().filter(|other| other == unit).count())?;
    let on_axis =
        |row: &&'a StudyRow| Some((*row, parse_row_position(&row.row).filter(|place| place.unit == *usual)?));
    let numbered: PositionedRows = rows.iter().filter_map(on_axis).unzip();
    (3 * numbered.0.len() >= 2 * rows.len()).then_some(numbered)
}

fn numeric_chart(run: &Run, table: &StudyTable, (rows, places): PositionedRows) -> Option<Chart> {
    let columns = rows.iter().any(|row| row.column != rows[0].column);
    let rests = places.iter().any(|place| place.rest != places[0].rest);
    let (what, rest_is) = table.rows_are.split_once(", ").unwrap_or((&table.rows_are, ""));
    let named = |index: usize| {
        let column = columns || !rests;
        let rest = format!("{} {rest_is}", places[index].rest);
        let parts = [(column, rows[index].column.as_str()), (rests, rest.trim())];
        let parts: Vec<&str> =
            parts.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, part)| part).collect();
        printable(&parts.join(", "))
    };
    let values = || places.iter().map(|place| place.value);
    let (label, unit) = match (places.first()?.unit, what) {
        ("", "baud") => (what.to_owned(), AxisUnit::Baud),
        ("p", what) => (what.to_owned(), AxisUnit::Percent),
        ("", what) => (what.to_owned(), AxisUnit::Number),
        ("B", what) => (what.to_owned(), AxisUnit::Bytes),
        (unit, what) => (format!("{what} ({unit})"), AxisUnit::Number),
    };
    let spread = values().fold(0.0, f64::max) / values().fold(f64::MAX, f64::min);
    let log = spread.is_finite() && unit != AxisUnit::Percent && spread > MIN_LOG_RATIO;
    let x = match log {
        true => log_axis_with_ticks(&printable(&label), unit, values())?,
        false => linear_axis_with_ticks(&printable(&label), unit, values())?,
    };
    let on = |value: f64| if log { AxisUnit::Number.log_position(value) } else { value };
    let mut series = column_series(&rows, named, |row, value| (on(places[row].value), value));
    for one in &mut series {
        let marks = if one.kind == SeriesKind::Published { &mut one.rings } else { &mut one.dots };
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        one.points = marks.clone();
    }
    // Single points show no course.
    if series.iter().all(|one| one.points.len() < 2) {
        return None;
    }
    series.extend(limit_series(&rows, &places, on));
    let (label, unit) = value_axis(&rows.first()?.unit);
    let y = y_axis(&label, unit, &mut series);
    finish_chart(run, table, (&x, y), series)
}

fn finish_chart(
    run: &Run,
    table: &StudyTable,
    (x, y): (&Axis, Axis),
    series: Vec<ChartSeries>,
) -> Option<Chart> {
    let title = chart_title(run, table, &series);
    build_chart(ChartText { title: &title, of: "", caption: host_and_date(run) }, x, y, series)
}

/// Minimum ratio of positions for a logarithmic axis: a linear axis would hide the small ones.
const MIN_LOG_RATIO: f64 = 8.0;

/// The best value that the physical line allows, if there is one figure per position.
fn limit_series(rows: &[&StudyRow], places: &[RowPosition], on: impl Fn(f64) -> f64) -> Option<ChartSeries> {
    let (_, factor) = axis_scale(&rows.first()?.unit);
    let limits = rows
        .iter()
        .zip(places)
        .filter_map(|(row, place)| Some((on(place.value), positive(row.theoretical_limit?)? * factor)));
    let mut limits: Vec<(f64, f64)> = limits.collect();
    limits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    limits.dedup();
    let one_each = limits.len() > 1 && limits.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let curve = || ChartSeries::curve("maximum of the line", limits.clone());
    one_each.then(|| ChartSeries { kind: SeriesKind::Limit, ..curve() })
}

fn named_rows_chart(run: &Run, table: &StudyTable, rows: &[&StudyRow]) -> Option<Chart> {
    let figures = |row: &&&StudyRow| row.published.parse::<f64>().is_ok();
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(figures) {
        if !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    if names.is_empty() || names.len() > MAX_ROWS {
        return None;
    }
    // The first row is at the top.
    let line = |name: &str| names.iter().rev().position(|one| *one == name).map_or(0.0, |at| at as f64 + 1.0);
    let named = |index: usize| printable(&rows[index].column);
    let mut series = column_series(rows, named, |row, value| (value, line(&rows[row].row)));
    let (label, unit) = value_axis(&rows.first()?.unit);
    let x = x_axis(&label, unit, &mut series);
    let ticks = names.iter().map(|name| (line(name), shorten(&printable(name), MAX_NAME_COLUMNS))).collect();
    let y =
        Axis { ticks, low: 0.5, high: names.len() as f64 + 0.5, ..linear_axis("", AxisUnit::Number, 1.0) };
    let y = Axis { script_scale: "names".to_owned(), ..y };
    finish_chart(run, table, (&x, y), series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn row_names_become_positions() {
        let position = |row| parse_row_position(row).map(|place| (place.value, place.unit, place.rest));
        assert_eq!(position("9600"), Some((9600.0, "", "")));
        assert_eq!(position("64 B"), Some((64.0, "B", "")));
        assert_eq!(position("p90"), Some((90.0, "p", "")));
        assert_eq!(position("over 50 ms"), Some((50.0, "ms", "")));
        assert_eq!(position("500 ms, 10/1000"), Some((500.0, "ms", "10/1000")));
        for row in ["STS1600", "no shaper", "", "time-out", "4 ports of it", "-3", "NaN", "p"] {
            assert_eq!(position(row), None, "{row}");
        }
    }

    #[test]
    fn published_and_measured_points_have_their_values() {
        let run = sample_runs::study();
        let tables = &run.study.as_ref().unwrap().tables;
        let latency = table_chart(&run, &tables[0]).unwrap();
        // Four published figures, one of them a word; two measured.
        assert_eq!(latency.panels[0].svg.matches("<use").count(), 3 + 2, "{}", latency.panels[0].svg);
        assert!(["STS1600", "LS100"].iter().all(|name| latency.panels[0].svg.contains(name)));
        // A single rate does not make an axis.
        assert!(table_chart(&run, &tables[1]).is_none());
        let mut sweep = tables[1].clone();
        for (row, baud) in ["300", "9600", "115200"].iter().zip([300.0, 9600.0, 115_200.0]) {
            let more =
                StudyRow { row: (*row).to_owned(), measured: Some(baud / 10.0), ..sweep.rows[0].clone() };
            sweep.rows.push(StudyRow { unit: "%".to_owned(), ..more });
        }
        let chart = table_chart(&run, &sweep).unwrap();
        assert_eq!(chart.panels[0].svg.matches("<use").count(), 8, "{}", chart.panels[0].svg);
        assert_eq!(chart.x.script_scale, "log baud");
    }
}
