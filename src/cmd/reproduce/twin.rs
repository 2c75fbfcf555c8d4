//! `reproduce --twin`: the published figures beside those of the twins.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use linkgauge::report::wrap;
use linkgauge::study::Study;
use linkgauge::twin::{self, TwinReport, TwinRow, TwinSummary};
use linkgauge::units::{format_four_digits, format_plural};

use super::super::Status;
use super::super::output::{OutputFlags, print_text};

/// Rows that are printed without `--all`.
const FEW_ROWS: usize = 24;
/// Deviations beyond this are explained, in percent.
const EXPLAINED_PERCENT: f64 = 10.0;
/// Width of sentences.
const WIDTH: usize = 100;

/// Runs the twins of the selected tables and prints the comparison.
pub fn run(study: &Study, output: &OutputFlags) -> Result<Status> {
    if output.has_files_besides_json() {
        bail!("--twin writes text and JSON only. Use --json FILE");
    }
    let report = twin::compare(study)?;
    output.write_json(&report)?;
    if output.prints_text() {
        let text = text(study, &report, output.all);
        print_text(|stdout| write!(stdout, "{text}"))?;
    }
    Ok(Status::Complete)
}

fn text(study: &Study, report: &TwinReport, all: bool) -> String {
    let mut text = wrap(&answer(&study.name, &report.summary), WIDTH, "", "") + "\n";
    text += &twin_table(study, report);
    if all || report.rows.len() <= FEW_ROWS {
        text += &format!("\n{}", row_table(&report.rows));
    }
    text += &misses(&report.rows);
    if !all && report.rows.len() > FEW_ROWS {
        text += &format!("\nEvery figure: linkgauge reproduce {} --twin --all\n", study.name);
    }
    text
}

/// The answer in one sentence.
fn answer(study: &str, summary: &TwinSummary) -> String {
    let TwinSummary { fitted, checked, within_15_percent, .. } = *summary;
    let (Some(median), Some(worst)) = (summary.median_percent, summary.worst_percent) else {
        return format!("{study}: no figure is left to check; {fitted} determined the twins.");
    };
    format!(
        "{study}: the twins predict {} with a median deviation of {median:.1} % (worst {}), {within_15_percent} of them within 15 %; \
         {fitted} other figures determined their parameters.",
        format_plural(checked as u64, "published figure"),
        signed(worst),
    )
}

/// A deviation in percent, with its sign.
fn signed(percent: f64) -> String {
    match percent.is_finite() {
        true => format!("{percent:+.1} %").replace('-', "−"),
        false => "published 0".to_owned(),
    }
}

fn twin_table(study: &Study, report: &TwinReport) -> String {
    let mut lines = vec![["twin", "fitted", "checked", "median", "worst", "what it is"].map(str::to_owned)];
    for twin in study.twins() {
        let rows: Vec<TwinRow> = report.rows.iter().filter(|row| row.twin == twin.name).cloned().collect();
        if rows.is_empty() {
            continue;
        }
        let TwinSummary { fitted, checked, median_percent, worst_percent, .. } = TwinSummary::of(&rows);
        lines.push([
            twin.name.clone(),
            fitted.to_string(),
            checked.to_string(),
            median_percent.map_or(String::new(), |percent| format!("{percent:.1} %")),
            worst_percent.map_or(String::new(), signed),
            twin.is.clone(),
        ]);
    }
    align(&lines, [false, true, true, true, true, false])
}

fn row_table(rows: &[TwinRow]) -> String {
    let mut lines = vec![["table", "row", "column", "published", "twin", "deviation", ""].map(str::to_owned)];
    for row in rows {
        lines.push([
            row.table.clone(),
            row.row.clone(),
            row.column.clone(),
            format!("{} {}", format_four_digits(row.published), row.unit),
            row.value.map_or("none".to_owned(), format_four_digits),
            row.deviation_percent.map_or("–".to_owned(), signed),
            if row.fitted { "fitted" } else { "" }.to_owned(),
        ]);
    }
    align(&lines, [false, false, false, true, true, true, false])
}

/// Figures that a twin misses, with the reasons.
fn misses(rows: &[TwinRow]) -> String {
    let is_missed =
        |row: &&TwinRow| row.deviation_percent.is_none_or(|percent| percent.abs() > EXPLAINED_PERCENT);
    let mut text = String::new();
    for row in rows.iter().filter(is_missed) {
        if text.is_empty() {
            text += "\nMissed by more than 10 %:\n";
        }
        let deviation = row.deviation_percent.map_or("no value".to_owned(), signed);
        let why = row.miss.as_deref().unwrap_or("unknown");
        let mark = if row.fitted { ", fitted" } else { "" };
        let line = format!(
            "{}, table {}, {}, {} {}{mark}: {deviation}: {why}",
            row.twin, row.table, row.row, row.column, row.unit
        );
        text += &wrap(&line, WIDTH, "  ", "    ");
    }
    text
}

/// Columns of equal width; numbers are aligned to the right.
fn align<const N: usize>(lines: &[[String; N]], right: [bool; N]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = (0..N)
            .map(|n| match right[n] {
                true => format!("{:>1$}", line[n], widths[n]),
                false => format!("{:<1$}", line[n], widths[n]),
            })
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
