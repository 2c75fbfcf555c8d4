//! `reproduce --twin`: the published figures beside those of the twins.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::host::raise_open_file_limit;
use linkgauge::report::{Detail, ReportOptions, shorten, statement_verdict, statements_summary, wrap};
use linkgauge::run::{CaseResult, StudyResult, StudyStatement};
use linkgauge::stats::median;
use linkgauge::study::{Study, StudyLength};
use linkgauge::twin::{
    self, DeviationScore, RealTime, RealTimePlan, SHORT_REAL_TIME, TwinReport, TwinRow, TwinSummary,
    format_deviation,
};
use linkgauge::units::{format_bit_rate, format_four_digits, format_nanoseconds, format_plural};

use super::super::output::{OutputFlags, print_message, print_text, terminal_options};
use super::super::signals::interrupt_flag;
use super::super::status::Status;
use super::list::format_rough_duration;
use super::user_endpoints::CellSelector;

/// The name of a column has these columns of a narrow terminal.
const MIN_NAME_COLUMNS: usize = 8;
/// A narrower column for the descriptions of the twins is left out.
const MIN_DESCRIPTION_COLUMNS: usize = 24;
/// Rows that are printed without `--all`.
const FEW_ROWS: usize = 24;

/// Runs the twins of the selected tables and prints the comparison.
pub fn run(study: &Study, mut tables: StudyResult, output: &OutputFlags) -> Result<Status> {
    output.check_writable(0)?;
    let report = twin::compare(study)?;
    let dialer = Registry::standard().dialer(Clock::System);
    let mut document = super::empty_run(&format!("{}: twins", study.name), &dialer);
    report.fill(study, &mut tables)?;
    let statements = tables.statements.clone();
    document.study = Some(tables);
    document.cases.clone_from(&report.cases);
    output.write_without_text(&document)?;
    if output.prints_text() {
        let text = text(study, (&report, &statements), output.detail(), &terminal_options());
        print_text(|stdout| write!(stdout, "{text}"))?;
    }
    Ok(Status::Complete)
}

/// Runs twins on the virtual clock and in real time, and prints how far apart the two are.
pub fn run_in_real_time(
    study: &Study,
    mut tables: StudyResult,
    (cells, length): (&[CellSelector], StudyLength),
    output: &OutputFlags,
) -> Result<Status> {
    output.check_writable(0)?;
    raise_open_file_limit();
    let mut dialer = Registry::standard().dialer(Clock::System);
    dialer.cancel = interrupt_flag()?;
    let reports = twin::compare_in_real_time(
        study,
        &RealTime {
            dialer: &dialer,
            selects: &|case| cells.is_empty() || cells.iter().any(|cell| cell.matches(&case.point)),
            before_case: &|case| {
                if !output.quiet {
                    print_message(&case.name);
                }
            },
            limit: length.is_quick().then_some(SHORT_REAL_TIME),
            before_all: &|plan| {
                if !output.quiet {
                    print_message(estimate_text(&study.name, plan));
                }
            },
        },
    );
    if dialer.cancel.load(Relaxed) {
        return Ok(Status::Interrupted);
    }
    let [expected, real] = reports?;
    let mut document = super::empty_run(&format!("{}: twins in real time", study.name), &dialer);
    real.fill(study, &mut tables)?;
    document.study = Some(tables);
    document.cases.clone_from(&real.cases);
    output.write_without_text(&document)?;
    if output.prints_text() {
        let text = real_time_text(&expected, &real, &terminal_options());
        print_text(|stdout| write!(stdout, "{text}"))?;
    }
    Ok(Status::Complete)
}

/// The expected time, and the fraction of the cases that takes a minute.
fn estimate_text(study: &str, plan: RealTimePlan) -> String {
    let RealTimePlan { chosen, all, short } = plan;
    let time = format_rough_duration(chosen.1);
    let cases = format_plural(all.0 as u64, "case");
    match (chosen.0 == all.0, short == all.0) {
        (true, true) => format!("{study}: {cases} in real time, about {time}"),
        (true, false) => format!(
            "{study}: {cases} in real time, about {time} (--quick: the {short} shortest, about a minute; --cell, --table: a part)"
        ),
        (false, _) => format!("{study}: the {} shortest of {cases} in real time, about {time}", chosen.0),
    }
}

/// The main figure of a case: the median round trip in nanoseconds, or the rate in bits per second. With its text.
fn main_figure(case: &CaseResult) -> Option<(f64, String)> {
    if let Some(latency) = &case.figures.times.latency_ns {
        let median = (*latency.percentiles.get("p50")?)? as f64;
        return Some((median, format_nanoseconds(median)));
    }
    let rate = case.figures.delivery.throughput_bps?;
    Some((rate, format_bit_rate(rate)))
}

/// The main figure of each case on both clocks.
fn real_time_text(expected: &TwinReport, real: &TwinReport, options: &ReportOptions) -> String {
    let mut lines = vec![["twin", "case", "virtual", "real time", "difference"].map(str::to_owned)];
    let mut differences = Vec::new();
    for (index, (expected, real_case)) in expected.cases.iter().zip(&real.cases).enumerate() {
        let Some(row) = real.rows.iter().find(|row| row.result == index) else { continue };
        let figures = [expected, real_case].map(main_figure);
        let difference = match &figures {
            [Some((expected, _)), Some((real, _))] => Some(100.0 * (real / expected - 1.0)),
            _ => None,
        };
        differences.extend(difference);
        let [expected, real] =
            figures.map(|figure| figure.map_or_else(|| "none".to_owned(), |(_, text)| text));
        let difference = difference.map_or("–".to_owned(), format_deviation);
        lines.push([row.twin.clone(), row.case.clone(), expected, real, difference]);
    }
    differences.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    let sizes: Vec<f64> = differences.iter().map(|percent| percent.abs()).collect();
    let answer = match (median(&sizes), differences.last()) {
        (Some(median), Some(worst)) => format!(
            "{}: in real time median round trips and rates of {} differ from those on the virtual clock by a median of \
             {median:.1} % (worst {}).",
            real.study,
            format_plural(sizes.len() as u64, "case"),
            format_deviation(*worst)
        ),
        _ => format!("{}: no case has a figure on both clocks.", real.study),
    };
    let table = align(&lines, [false, false, true, true, true]);
    format!("{}\n{table}", options.format_answer(&answer))
}

fn text(
    study: &Study,
    (report, statements): (&TwinReport, &[StudyStatement]),
    detail: Detail,
    options: &ReportOptions,
) -> String {
    let width = options.width;
    let judged = statements_summary(statements).filter(|_| report.rows.is_empty());
    let answer = judged.map_or_else(|| report.summary.sentence(), |summary| summary + ", by the twins.");
    let mut text = options.format_answer(&format!("{}: {answer}", study.name)) + "\n";
    text +=
        &report.summary.whole_sentence().map_or(String::new(), |whole| wrap(&whole, width, "", "  ") + "\n");
    text += &twin_table(study, report, width);
    let prints_rows = detail == Detail::Full || report.rows.len() <= FEW_ROWS;
    if prints_rows && !report.rows.is_empty() {
        text += &format!("\n{}", row_table(&report.rows, width));
    }
    text += &misses(&report.rows, width);
    let listed = if report.rows.is_empty() { Detail::Full } else { detail };
    text += &statements_text(statements, listed, width);
    if !prints_rows {
        text += &format!("\nEvery figure: linkgauge reproduce {} --twin --all\n", study.name);
    }
    text
}

fn twin_table(study: &Study, report: &TwinReport, width: usize) -> String {
    if report.rows.is_empty() {
        return String::new();
    }
    let mut lines = vec![["twin", "fitted", "informative", "median", "trivial", "worst"].map(str::to_owned)];
    let mut descriptions = vec!["what it is"];
    for twin in study.twins() {
        let rows: Vec<TwinRow> = report.rows.iter().filter(|row| row.twin == twin.name).cloned().collect();
        if rows.is_empty() {
            continue;
        }
        let TwinSummary { fitted, checked, informative, trivial_informative, .. } =
            TwinSummary::of(&rows, &report.summary.trivial_name);
        let median = |score: &DeviationScore| {
            score
                .median_percent
                .map_or(String::new(), |percent| format_deviation(percent).replacen('+', "", 1))
        };
        lines.push([
            twin.name.clone(),
            fitted.to_string(),
            format!("{} of {}", informative.figures, checked.figures),
            median(&informative),
            median(&trivial_informative),
            checked.worst_percent.map_or(String::new(), format_deviation),
        ]);
        descriptions.push(&twin.is);
    }
    let figures = align(&lines, [false, true, true, true, true, true]);
    let start = figures.lines().map(|line| line.chars().count()).max().unwrap_or(0) + "  ".len();
    if start + MIN_DESCRIPTION_COLUMNS > width {
        return figures;
    }
    let line =
        |(figures, is): (&str, &str)| wrap(is, width, &format!("{figures:<start$}"), &" ".repeat(start));
    figures.lines().zip(descriptions).map(line).collect()
}

fn row_table(rows: &[TwinRow], width: usize) -> String {
    const COLUMN: usize = 2;
    let mut lines = vec![["table", "row", "column", "published", "twin", "deviation", ""].map(str::to_owned)];
    for row in rows {
        lines.push([
            row.table.clone(),
            row.row.clone(),
            row.column.clone(),
            format!("{} {}", format_four_digits(row.published), row.unit),
            row.value.map_or("none".to_owned(), format_four_digits),
            row.deviation_percent.map_or("–".to_owned(), format_deviation),
            if row.fitted { "fitted" } else { "" }.to_owned(),
        ]);
    }
    let table = |lines: &[_]| align(lines, [false, false, false, true, true, true, false]);
    let whole = table(&lines);
    let excess = whole.lines().map(|line| line.chars().count()).max().unwrap_or(0).saturating_sub(width);
    if excess == 0 {
        return whole;
    }
    let names = lines.iter().map(|line| line[COLUMN].chars().count()).max().unwrap_or(0);
    let room = names.saturating_sub(excess).max(MIN_NAME_COLUMNS);
    lines.iter_mut().for_each(|line| line[COLUMN] = shorten(&line[COLUMN], room));
    table(&lines)
}

/// The statements of the study, judged by the twins; a summary has only those that do not hold.
pub(super) fn statements_text(statements: &[StudyStatement], detail: Detail, width: usize) -> String {
    let Some(summary) = statements_summary(statements) else { return String::new() };
    let is_shown = |statement: &&StudyStatement| detail == Detail::Full || !statement.holds;
    let all = if statements.iter().all(|one| is_shown(&one)) { ":" } else { " (all: --items):" };
    let mut text = format!("\n{summary}{all}\n");
    if !statements.iter().any(|one| is_shown(&one)) {
        return text.replace("):", ")");
    }
    for statement in statements.iter().filter(is_shown) {
        let line = format!("{}: {}: {}", statement.of, statement.says, statement_verdict(statement));
        text += &wrap(&line, width, "  ", "    ");
    }
    text
}

/// Figures that a twin misses, with the reasons.
fn misses(rows: &[TwinRow], width: usize) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.is_missed()) {
        if text.is_empty() {
            text += "\nMissed by more than 10 %:\n";
        }
        let deviation = row.deviation_percent.map_or("no value".to_owned(), format_deviation);
        let why = row.miss.as_deref().unwrap_or("unknown");
        let mark = if row.fitted { ", fitted" } else { "" };
        let line = format!(
            "{}, table {}, {}, {} {}{mark}: {deviation}: {why}",
            row.twin, row.table, row.row, row.column, row.unit
        );
        text += &wrap(&line, width, "  ", "    ");
    }
    text
}

/// Columns of equal width; numbers are aligned to the right.
pub(super) fn align<const N: usize>(lines: &[[String; N]], right: [bool; N]) -> String {
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
