//! The report on a terminal: the answer, tables and notes. `summary` has the short form.
//!
//! `ReportOptions` describes the terminal; this module does not detect it.

use std::io;

use anstyle::{AnsiColor, Style};

use super::flows::flows_text;
use super::layout::{self, CaseNumbers, LineKind};
use super::presentation::is_latency;
use super::sparkline::{self, Sparkline};
use super::study;
use super::table::{ReportTable, build_tables};
use super::wording::{
    fit_lines, format_case_list, format_date, format_deviation, format_mean, format_time_of, local_host,
    per_run_text, plural, printable, threshold_results, to_ascii, wrap,
};
use super::{Detail, ReportOptions};
use crate::explain::{DeclaredFacts, size};
use linkgauge_model::run::{Distribution, Run, StudyResult, Warning};
use linkgauge_model::units::format_nanoseconds;

/// Minimum width. A narrower terminal wraps the lines itself.
const MIN_COLUMNS: usize = 40;
const INDENT: &str = "  ";
/// Maximum number of cases with charts; with more, the charts would hide the table.
const MAX_SPARKLINE_CASES: usize = 8;

/// Width of the first column of a case's figures and of the notes.
const LABEL_COLUMNS: usize = 8;
/// Represents the lines below a table that show its fits.
const FIT_COLUMN: &str = "fit";

const BOLD: Style = Style::new().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const RED: Style = AnsiColor::Red.on_default().bold();

pub(crate) fn write(run: &Run, options: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let width = options.width.max(MIN_COLUMNS);
    let report = TextReport { options: ReportOptions { width, ..*options }, width, out: String::new() };
    let text = match options.detail {
        Detail::Summary => report.render_summary(run),
        Detail::Full => report.render_full(run),
    };
    let text = if options.unicode { text } else { to_ascii(&text) };
    out.write_all(text.as_bytes())
}

struct TextReport {
    options: ReportOptions,
    width: usize,
    out: String,
}

impl TextReport {
    fn render_full(mut self, run: &Run) -> String {
        self.push_answer(run);
        let title = run.title.as_deref().map_or("linkgauge".to_owned(), printable);
        let on = local_host(run).filter(|host| !title.ends_with(&format!(" on {host}")));
        let on = on.map_or(String::new(), |host| format!(" on {host}"));
        // An imported run may lack its duration.
        let took = match run.elapsed_ns {
            0 => String::new(),
            elapsed => format!(" in {}", format_nanoseconds(elapsed as f64)),
        };
        let cases = plural(run.cases.len(), "case");
        let about = format!("{cases}{took}{on}, {}", format_date(run));
        self.push_paragraph(&about, Style::new(), INDENT, INDENT);
        if let Some(mesh) = &run.mesh {
            self.push_mesh(run, mesh);
            self.push_status(run);
            return self.out;
        }
        let mut shown = Vec::new();
        let fits = size::fit_run(run, &DeclaredFacts::default());
        if let Some(study) = &run.study {
            self.push_study(run, study);
            shown.extend(fits.first().map(|_| FIT_COLUMN));
        }
        let case_numbers = CaseNumbers::for_cases(run.cases.len());
        // A study's own tables contain everything; tables of a hundred more cases would hide them.
        for table in build_tables(run).into_iter().filter(|_| run.study.is_none()) {
            self.out.push('\n');
            let cases: Vec<usize> =
                table.rows.iter().filter(|row| row.secondary.is_none()).map(|row| row.case).collect();
            let titles = self.push_table(table, case_numbers);
            if !titles.contains(&"min") && run.cases.len() <= MAX_SPARKLINE_CASES {
                self.push_details(run, &cases);
            }
            shown.extend(titles);
            for line in fit_lines(&fits, &cases) {
                self.push_paragraph(&line, Style::new(), INDENT, "    ");
                shown.push(FIT_COLUMN);
            }
        }
        if run.study.is_none() && run.cases.len() <= MAX_SPARKLINE_CASES {
            self.push_sparklines(run);
        }
        for case in run.cases.iter().filter(|case| case.path.is_some()) {
            self.out.push('\n');
            self.push_path(case);
        }
        self.push_notes(run, &shown);
        self.push_thresholds(run);
        self.push_warnings(run);
        self.push_status(run);
        self.out
    }

    /// The tables of a study.
    fn push_study(&mut self, run: &Run, study: &StudyResult) {
        self.out.push('\n');
        let fits = size::fit_run(run, &DeclaredFacts::default());
        for (line, kind) in study::render_lines(run, study, &fits, (self.options.detail, self.width)) {
            self.push_line(&line, if kind == LineKind::Header { BOLD } else { Style::new() });
        }
    }

    /// Returns the titles of the visible columns.
    fn push_table(&mut self, mut table: ReportTable, case_numbers: CaseNumbers) -> Vec<&'static str> {
        let what = table.title();
        let heading = [vec![what], table.take_common_values()].concat().join(", ");
        let fitted = layout::fit_table(&mut table, self.width - INDENT.len(), case_numbers);
        let unless_shown = match fitted.common_values.as_slice() {
            [] => String::new(),
            most => format!("; unless stated: {}", most.join(", ")),
        };
        self.push_paragraph(&printable(&(heading + &unless_shown)), BOLD, "", INDENT);
        for (line, kind) in fitted.lines {
            let style = if kind == LineKind::Header { BOLD } else { Style::new() };
            self.push_line(&format!("{INDENT}{line}"), style);
        }
        table.columns.iter().map(|column| column.title).collect()
    }

    /// The time figures of a case that have no room in the table.
    fn push_details(&mut self, run: &Run, cases: &[usize]) {
        for &number in cases {
            let case = &run.cases[number - 1];
            let times = case.figures.times.latency_ns.as_ref().filter(|_| is_latency(case));
            let details: Vec<String> = times
                .map(details_text)
                .into_iter()
                .chain(per_run_text(case))
                .chain(flows_text(case))
                .collect();
            if details.is_empty() {
                continue;
            }
            let name = if run.cases.len() > 1 { format!("{number} ") } else { String::new() };
            self.push_paragraph(&format!("{name}{}", details.join("; ")), Style::new(), INDENT, "    ");
        }
    }

    /// A line per case: distribution or rate over time, then percentile bars on a common scale.
    fn push_sparklines(&mut self, run: &Run) {
        let sparks: Vec<(usize, Sparkline)> = run
            .cases
            .iter()
            .enumerate()
            .filter_map(|(index, case)| Some((index + 1, sparkline::case_sparkline(case)?)))
            .collect();
        if !sparks.is_empty() {
            self.out.push('\n');
        }
        for (number, spark) in sparks {
            let number = if run.cases.len() > 1 { format!("{number} ") } else { String::new() };
            let chart = format!("{INDENT}{number}{:12}  {}", spark.quantity, spark.glyphs);
            let whole = format!("{chart}  {}", spark.range);
            let fits = whole.chars().count() <= self.width;
            self.push_line(if fits { &whole } else { chart.trim_end() }, Style::new());
        }
        let Some(bars) = sparkline::latency_bars(&run.cases) else { return };
        self.out.push('\n');
        for (index, bar) in bars.bars {
            self.push_line(&format!("{INDENT}{} {:12}  {bar}", index + 1, "RTT"), Style::new());
        }
        self.push_paragraph(&bars.scale, Style::new(), "    ", "    ");
    }

    /// Explains the visible columns.
    fn push_notes(&mut self, run: &Run, shown: &[&str]) {
        let notes = [notes::case_remarks(run), notes::figure_notes(run, shown)].concat();
        if !notes.is_empty() {
            self.out.push('\n');
        }
        for note in notes {
            self.push_paragraph(&printable(&note), Style::new(), INDENT, "    ");
        }
    }

    /// Adds failed thresholds one by one, the others as a count.
    fn push_thresholds(&mut self, run: &Run) {
        let (failed, passed) = threshold_results(run);
        if self.options.detail == Detail::Full && passed + failed.len() > 0 {
            self.out.push('\n');
        }
        for failed in failed {
            self.push_note("FAIL", &failed, RED);
        }
        if passed > 0 {
            self.push_note("PASS", &plural(passed, "threshold"), GREEN);
        }
    }

    fn push_warnings(&mut self, run: &Run) {
        for WarningGroup { warning, cases, differ } in group_warnings(run) {
            let of = match (cases.is_empty() || run.cases.len() == 1, differ) {
                (true, _) => String::new(),
                (false, false) => format!("{}: ", format_case_list(&cases)),
                (false, true) => format!("{}, first: ", format_case_list(&cases)),
            };
            let label = format!("warning[{}]:", printable(warning.code.name()));
            self.out.push('\n');
            self.push_labelled(&label, &format!("{of}{}", printable(&warning.text)), YELLOW);
            if !warning.remedy.is_empty() {
                self.push_labelled("  try:", &printable(&warning.remedy), BOLD);
            }
        }
    }

    fn push_status(&mut self, run: &Run) {
        if run.is_complete() {
            return;
        }
        let missing: Vec<usize> = run
            .cases
            .iter()
            .enumerate()
            .filter(|(_, case)| !case.complete)
            .map(|(index, _)| index + 1)
            .collect();
        let (label, text) = match run.interrupted {
            true => ("interrupted:", "stopped by a signal; the figures cover the time until then"),
            false if run.cases.first().is_some_and(|case| case.is_imported()) => {
                ("incomplete:", "the imported measurement did not complete")
            }
            false if !run.cases.iter().any(|case| case.figures.has_measurements()) => {
                ("incomplete:", "nothing was measured")
            }
            false => ("incomplete:", "part of the plan was not measured"),
        };
        let mut text = text.to_owned();
        if !missing.is_empty() && run.cases.len() > 1 {
            text += &format!(" (incomplete: {})", format_case_list(&missing));
        }
        self.out.push('\n');
        self.push_labelled(label, &text, RED);
    }

    fn push_line(&mut self, text: &str, style: Style) {
        self.out += &self.apply_style(text, style);
        self.out.push('\n');
    }

    fn push_paragraph(&mut self, text: &str, style: Style, first: &str, rest: &str) {
        for line in wrap(text, self.width, first, rest).lines() {
            self.push_line(line, style);
        }
    }

    /// A paragraph with a highlighted label.
    fn push_labelled(&mut self, label: &str, text: &str, style: Style) {
        let (indent, words) = label.split_at(label.len() - label.trim_start().len());
        let wrapped = wrap(&format!("{words} {text}"), self.width, indent, "    ");
        let coloured = self.apply_style(label, style);
        self.out += &match wrapped.strip_prefix(label) {
            Some(rest) => coloured + rest,
            None => wrapped,
        };
    }

    /// A paragraph beside a label in the first column.
    fn push_note(&mut self, label: &str, text: &str, style: Style) {
        let first = format!("{INDENT}{label:LABEL_COLUMNS$}  ");
        let rest = " ".repeat(first.len());
        let wrapped = wrap(text, self.width, &first, &rest);
        self.out += &wrapped.replacen(label, &self.apply_style(label, style), 1);
    }

    fn apply_style(&self, text: &str, style: Style) -> String {
        if self.options.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Warnings of one code.
struct WarningGroup<'a> {
    warning: &'a Warning,
    /// Numbers of the cases, from 1. Empty for warnings of the whole run.
    cases: Vec<usize>,
    /// The texts differ; `warning` is the first one.
    differ: bool,
}

fn group_warnings(run: &Run) -> Vec<WarningGroup<'_>> {
    let mut groups: Vec<WarningGroup> = Vec::new();
    for (case, warning) in run.all_warnings() {
        let numbers = case.map(|index| index + 1);
        // Warnings of the whole run have no case number to distinguish them.
        let alike = |first: &Warning| match case {
            Some(_) => first.code == warning.code,
            None => first == warning,
        };
        match groups.iter_mut().find(|group| alike(group.warning)) {
            Some(group) => {
                group.differ |= group.warning.text != warning.text;
                group.cases.extend(numbers);
            }
            None => {
                groups.push(WarningGroup { warning, cases: numbers.into_iter().collect(), differ: false })
            }
        }
    }
    groups
}

/// Text such as `min 13.90 µs, mean 14.21 µs, sd 1.203 µs`.
fn details_text(times: &Distribution) -> String {
    let min = format_time_of(times, times.min, format_nanoseconds);
    let (mean, deviation) = (format_mean(times, times.mean, format_nanoseconds), format_deviation(times));
    format!("min {min}, mean {mean}, sd {deviation}")
}

mod notes;
mod overview;
mod summary;

#[cfg(test)]
mod tests;
