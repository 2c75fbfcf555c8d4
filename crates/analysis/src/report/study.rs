//! A published study beside measured figures: lines for a terminal, a table for spreadsheets, and the study's own
//! layout for the HTML page.
//!
//! The document has the joined rows.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::context;
use minijinja::value::Value;

use super::html::parts;
use super::layout::LineKind;
use super::wording::{ABSENT, fit_lines, plural, printable, shorten, wrap};
use super::{Detail, chart};
use crate::explain::size::SizeFit;
use linkgauge_model::run::{Run, StudyResult, StudyRow, StudyTable};

mod answer;
mod facts;
mod grid;
mod remarks;
mod statements;
mod table_csv;

pub(crate) use answer::answer;
use answer::ratio_text;
use facts::{combined_charts, fact_contexts, fact_lines};
use remarks::table_remarks;
use statements::{statement_contexts, statement_lines};
pub use statements::{statement_verdict, statements_summary};
pub(crate) use table_csv::write_csv;

/// Text that is shown if nothing was measured.
const NOT_RUN_TEXT: &str = "not run";
/// Text that is shown if a case lacks the figure, such as a percentile among the lost.
const NO_FIGURE_TEXT: &str = "none";
/// Mark that follows a doubtful figure.
const FLAW_MARK: &str = "*";
/// Decimals of a measured figure next to a word.
const DEFAULT_DECIMALS: usize = 2;
const INDENT: &str = "  ";
const COLUMN_GAP: usize = 2;

/// The tables for a terminal of that width, each followed by the fits of its cases, then the facts of the study.
pub(crate) fn render_lines(
    run: &Run,
    paper: &StudyResult,
    fits: &[SizeFit],
    (detail, width): (Detail, usize),
) -> Vec<(String, LineKind)> {
    let mut lines = Vec::new();
    let put = |lines: &mut Vec<(String, LineKind)>, text: &str, first: &str, rest: &str, kind| {
        let text = wrap(&printable(text), width, first, rest);
        lines.extend(text.lines().map(|line| (line.to_owned(), kind)));
    };
    let title = heading(paper);
    put(&mut lines, &title, "", INDENT, LineKind::Header);
    for sentence in summary_sentences(paper) {
        put(&mut lines, &sentence, INDENT, "    ", LineKind::Row);
    }
    for table in shown_tables(paper) {
        let heading = format!("Table {}: {}", table.number, table.title);
        lines.push((String::new(), LineKind::Row));
        put(&mut lines, &heading, "", INDENT, LineKind::Header);
        let grid = grid::render_grid(table, width, &place_label(paper));
        let left_out = if grid.is_some() { 0 } else { table.rows.len() - informative_rows(table).len() };
        lines.extend(grid.unwrap_or_else(|| draw_list(paper, table, width)));
        if left_out > 0 {
            let left_out = plural(left_out, "figure");
            let text = format!("left out, {left_out}: no number in the study; CSV, JSON and HTML have them.");
            put(&mut lines, &text, INDENT, "    ", LineKind::Row);
        }
        for below in fit_lines(fits, &case_numbers(table)).into_iter().chain(table_remarks(run, table)) {
            put(&mut lines, &below, INDENT, "    ", LineKind::Row);
        }
    }
    if let Some(sentence) = not_run_sentence(paper) {
        lines.push((String::new(), LineKind::Row));
        put(&mut lines, &sentence, "", INDENT, LineKind::Row);
    }
    lines.extend(statement_lines(paper, detail, width));
    lines.extend(fact_lines(paper, detail, width));
    lines
}

fn is_measured(table: &StudyTable) -> bool {
    table.rows.iter().any(|row| row.measured.is_some())
}

/// The tables with a measured figure. All of them if none has one.
fn shown_tables(paper: &StudyResult) -> Vec<&StudyTable> {
    let none_measured = !paper.tables.iter().any(is_measured);
    paper.tables.iter().filter(|table| none_measured || is_measured(table)).collect()
}

/// Names the tables that are not shown.
fn not_run_sentence(paper: &StudyResult) -> Option<String> {
    let shown = shown_tables(paper);
    let is_shown = |table: &StudyTable| shown.iter().any(|one| std::ptr::eq(*one, table));
    let skipped: Vec<&StudyTable> = paper.tables.iter().filter(|table| !is_shown(table)).collect();
    let numbers: Vec<&str> = skipped.iter().map(|table| table.number.as_str()).collect();
    let word = if numbers.len() == 1 { "table" } else { "tables" };
    let figures = plural(skipped.iter().map(|table| table.rows.len()).sum(), "figure");
    (!skipped.is_empty()).then(|| format!("Not run: {word} {}, {figures}.", numbers.join(", ")))
}

fn case_numbers(table: &StudyTable) -> Vec<usize> {
    table.rows.iter().filter_map(|row| row.case).collect()
}

/// The title of the tables.
fn heading(paper: &StudyResult) -> String {
    let other = if paper.twins.is_some() { "twins" } else { "measured" };
    format!("Published beside {other}: {}", paper.title)
}

/// Remarks on all tables.
fn summary_sentences(paper: &StudyResult) -> Vec<String> {
    let rows = || paper.tables.iter().flat_map(|table| &table.rows);
    let measured = rows().filter(|row| row.measured.is_some()).count();
    let mut cases: Vec<usize> = rows().filter_map(|row| row.measured.and(row.case)).collect();
    cases.sort_unstable();
    cases.dedup();
    let mut sentences = vec![format!("Published by {}.", paper.source)];
    sentences.extend(paper.shortened.iter().map(|change| format!("Shorter than the study: {change}.")));
    let coverage = format!(
        "{} of {} met by {}; rows with the same # share one.",
        measured,
        plural(rows().count(), "figure"),
        plural(cases.len(), "measured case")
    );
    sentences.push(coverage);
    let devices = match paper.stand_ins.as_slice() {
        [] => "no hardware".to_owned(),
        stand_ins => format!("{}, no hardware", stand_ins.join(", ")),
    };
    sentences.extend(match lab_share(paper) {
        LabShare::All => Some(format!("Measured in the lab: {devices}.")),
        LabShare::Partial => Some(format!("lab: measured in the lab, {devices}.")),
        LabShare::Nothing => None,
    });
    if !paper.guests.is_empty() {
        let guests = paper.guests.join("; ");
        sentences.push(format!(
            "guest: measured in a guest ({guests}); such figures compare with each other only."
        ));
    }
    if paper.twins.is_some() {
        sentences.push("fitted: the published figure determined parameters of its twin.".to_owned());
    }
    if has_predictions(paper) {
        let sentence = "predicted: from chunk, delays, rates, processing time and window.";
        sentences.push(sentence.to_owned());
    }
    if paper.tables.iter().any(has_limits) {
        sentences.push("theory: the best value that the physical line allows.".to_owned());
    }
    sentences
}

/// The share of figures measured in the lab.
#[derive(PartialEq)]
enum LabShare {
    Nothing,
    Partial,
    All,
}

fn lab_share(paper: &StudyResult) -> LabShare {
    let measured = || paper.tables.iter().flat_map(|table| &table.rows).filter(|row| row.measured.is_some());
    match (measured().any(|row| row.stand_in), measured().all(|row| row.stand_in)) {
        (false, _) => LabShare::Nothing,
        (true, false) => LabShare::Partial,
        (true, true) => LabShare::All,
    }
}

/// Labels rows with their place of measurement, if rows differ in that.
fn place_label(paper: &StudyResult) -> impl Fn(&StudyRow) -> &'static str {
    let mixed = lab_share(paper) == LabShare::Partial;
    move |row| match (row.guest, row.fitted, mixed && row.stand_in) {
        (true, ..) => "guest",
        (false, true, _) => "fitted",
        (false, false, true) => "lab",
        (false, false, false) => "",
    }
}

fn has_limits(table: &StudyTable) -> bool {
    table.rows.iter().any(|row| row.theoretical_limit.is_some())
}

fn has_predictions(paper: &StudyResult) -> bool {
    paper.tables.iter().flat_map(|table| &table.rows).any(|row| row.predicted.is_some())
}

/// A row of a table on a terminal: number, row, column, unit, published, measured, ratio, predicted, limit, where.
type ListRow = [String; 10];

fn draw_list(paper: &StudyResult, table: &StudyTable, width: usize) -> Vec<(String, LineKind)> {
    let place = place_label(paper);
    let predicts = has_predictions(paper);
    let predicted = if predicts { "predicted" } else { "" };
    let limits = has_limits(table);
    let limit = if limits { "theory" } else { "" };
    // Our own tables have no published figures.
    let is_published = table.rows.iter().any(|row| row.published != ABSENT);
    let published = if is_published { "published" } else { "" };
    let ratio = if table.rows.iter().any(|row| ratio_text(row) != ABSENT) { "ratio" } else { "" };
    let on = if table.rows.iter().any(|row| !place(row).is_empty()) { "on" } else { "" };
    let head = ["#", &table.rows_are, "", "unit", published, "measured", ratio, predicted, limit, on];
    let cells = |row: &StudyRow| -> ListRow {
        [
            row.case.map(|case| case.to_string()).unwrap_or_default(),
            printable(&row.row),
            printable(&row.column),
            printable(&row.unit),
            if is_published { printable(&row.published) } else { String::new() },
            format_measured(row),
            if ratio.is_empty() { String::new() } else { ratio_text(row) },
            if predicts { format_figure(row.predicted) } else { String::new() },
            if limits { format_figure(row.theoretical_limit) } else { String::new() },
            place(row).to_owned(),
        ]
    };
    let mut all: Vec<ListRow> = vec![head.map(printable)];
    all.extend(informative_rows(table).into_iter().map(cells));
    let widths = fit_columns(&all, width.saturating_sub(INDENT.len()));
    let kinds = std::iter::once(LineKind::Header).chain(std::iter::repeat(LineKind::Row));
    all.iter().zip(kinds).map(|(cells, kind)| (format_line(cells, &widths), kind)).collect()
}

/// The informative rows. A row where the study printed a word counts only if no other row shows its case.
fn informative_rows(table: &StudyTable) -> Vec<&StudyRow> {
    let is_figure = |row: &&StudyRow| row.published.parse::<f64>().is_ok();
    let shown: BTreeSet<usize> = table.rows.iter().filter(is_figure).filter_map(|row| row.case).collect();
    let is_informative = |row: &&StudyRow| {
        is_figure(row) || row.measured.and(row.case).is_some_and(|case| !shown.contains(&case))
    };
    table.rows.iter().filter(is_informative).collect()
}

/// Shrinking order for a table that is too wide: index of the cell and its minimum width.
const COLUMN_SHRINK_ORDER: [(usize, usize); 9] =
    [(0, 0), (9, 0), (4, 9), (2, 12), (1, 7), (3, 0), (8, 0), (6, 0), (2, 4)];

/// Widths of the cells. 0 omits a cell.
fn fit_columns(all: &[ListRow], room: usize) -> [usize; 10] {
    let mut widths = [0; 10];
    for cells in all {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (index, least) in COLUMN_SHRINK_ORDER {
        let taken: usize = widths.iter().filter(|width| **width > 0).map(|width| width + COLUMN_GAP).sum();
        let above = taken.saturating_sub(room + COLUMN_GAP);
        let narrower = widths[index].saturating_sub(above);
        if above > 0 {
            // Names shrink only as far as necessary; expendable cells are omitted entirely.
            widths[index] = if least == 0 { 0 } else { narrower.max(least).min(widths[index]) };
        }
    }
    widths
}

fn format_line(cells: &ListRow, widths: &[usize; 10]) -> String {
    let mut text = INDENT.to_owned();
    for (index, (cell, &width)) in cells.iter().zip(widths).enumerate().filter(|(_, (_, width))| **width > 0)
    {
        let cell = shorten(cell, width);
        // Names are left-aligned, figures right-aligned.
        let left = matches!(index, 1..=3 | 9);
        text += &if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        text += &" ".repeat(COLUMN_GAP);
    }
    text.trim_end().to_owned()
}

fn not_measured_text(row: &StudyRow) -> &'static str {
    if row.case.is_some() { NO_FIGURE_TEXT } else { NOT_RUN_TEXT }
}

fn format_measured(row: &StudyRow) -> String {
    match row.measured {
        None => not_measured_text(row).to_owned(),
        Some(value) => {
            let decimals =
                row.published.split_once('.').map_or(DEFAULT_DECIMALS, |(_, decimals)| decimals.len());
            format_digits(value, decimals) + if row.reason.is_some() { FLAW_MARK } else { "" }
        }
    }
}

fn format_figure(value: Option<f64>) -> String {
    value.map_or(ABSENT.to_owned(), |value| format_digits(value, 0))
}

/// Formats a value with four significant digits, or more if the published figure has more. Integers stay integers.
fn format_digits(value: f64, decimals: usize) -> String {
    // A document may contain any value.
    if !value.is_finite() || value.abs() >= 1e15 {
        return format!("{value:.3e}");
    }
    let whole = value.abs().max(1.0).log10().floor() as usize + 1;
    let decimals = decimals.min(3).max(4_usize.saturating_sub(whole));
    let text = format!("{value:.decimals$}");
    if value.fract() == 0.0 { format!("{value:.0}") } else { text }
}

/// The tables in the study's layout, for the template.
pub(crate) fn page_context(run: &Run, paper: &StudyResult, fits: &[SizeFit]) -> Value {
    let tables: Vec<Value> =
        shown_tables(paper).into_iter().map(|table| table_context(run, paper, fits, table)).collect();
    let figure_is = if paper.twins.is_some() { "twin" } else { "measured" };
    context! {
        title => heading(paper), figure_is => figure_is, about => summary_sentences(paper), tables => tables,
        facts => fact_contexts(paper), statements => statement_contexts(paper), not_run => not_run_sentence(paper),
    }
}

/// Maximum rows and columns of a table on the page: more than any study has, and a bound for malicious documents.
const MAX_PAGE_ROWS: usize = 256;

/// A cell without a published figure.
fn empty_cell() -> Value {
    context! { text => "", title => None::<String>, case => None::<usize>, place => "", run => false }
}

/// Number of warnings of the case of a figure.
fn warning_count(run: &Run, row: &StudyRow) -> usize {
    let case = row.case.and_then(|number| run.cases.get(number.checked_sub(1)?));
    case.map_or(0, |case| case.warnings.len())
}

fn table_context(run: &Run, paper: &StudyResult, fits: &[SizeFit], table: &StudyTable) -> Value {
    let mut columns: Vec<(&str, &str)> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for row in &table.rows {
        if columns.len() < MAX_PAGE_ROWS && !columns.contains(&(&row.column, &row.unit)) {
            columns.push((&row.column, &row.unit));
        }
        if names.len() < MAX_PAGE_ROWS && !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    let by_place: BTreeMap<(&str, &str, &str), &StudyRow> = table
        .rows
        .iter()
        .map(|row| ((row.row.as_str(), row.column.as_str(), row.unit.as_str()), row))
        .collect();
    let place = place_label(paper);
    let rows: Vec<Value> = names
        .iter()
        .map(|name| {
            let of_row = columns.iter().map(|(column, unit)| by_place.get(&(*name, *column, *unit)).copied());
            let of_row: Vec<Option<&StudyRow>> = of_row.collect();
            let cells = |print: &dyn Fn(&StudyRow) -> Value| {
                of_row.iter().map(|row| row.map_or_else(empty_cell, print)).collect::<Vec<_>>()
            };
            context! {
                name => *name,
                published => cells(&|row| context! { text => row.published.clone(), title => row.note.clone() }),
                measured => cells(&|row| context! {
                    text => format_measured(row), case => row.case, place => place(row),
                    title => row.reason.clone(), run => row.measured.is_some(), warnings => warning_count(run, row),
                }),
                predicted => cells(&|row| context! { text => format_figure(row.predicted) }),
                limit => cells(&|row| context! { text => format_figure(row.theoretical_limit) }),
            }
        })
        .collect();
    let columns: Vec<Value> =
        columns.iter().map(|(column, unit)| context! { name => *column, unit => *unit }).collect();
    context! {
        number => table.number.clone(), title => table.title.clone(), rows_are => table.rows_are.clone(),
        predicts => has_predictions(paper), limits => has_limits(table),
        columns => columns, rows => rows, remarks => table_remarks(run, table),
        fits => parts::fit_texts(fits, &case_numbers(table)),
        charts => parts::chart_contexts(chart::study_chart(run, table).into_iter().chain(combined_charts(run, paper, table))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::report_format;
    use crate::report::{ReportOptions, sample_runs};
    use linkgauge_model::run::CaseResult;

    fn write_text(name: &str, options: &ReportOptions) -> String {
        let mut out = Vec::new();
        (report_format(name).unwrap().write)(&sample_runs::study(), options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn figures_of_cases_with_warnings_are_marked() {
        let mut run = sample_runs::study();
        run.cases[0].warnings = vec![linkgauge_model::run::Warning::new(
            linkgauge_model::run::WarningCode::FewSamples,
            "few",
            "more",
        )];
        let mut page = Vec::new();
        (report_format("html").unwrap().write)(&run, &ReportOptions::default(), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let marked =
            page.lines().find(|line| line.starts_with("<td") && line.contains(">1.203</a>")).unwrap();
        assert!(marked.contains("title=\"1 warning\">⚠"), "{marked}");
        assert!(!write_text("html", &ReportOptions::default()).contains("&nbsp;<span class=\"flag\""));
    }

    #[test]
    fn text_fits_80_columns() {
        let text = write_text("text", &ReportOptions::default());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text, @r"
        A study again: 4 of 5 published values have a measured counterpart; measured ÷
          published: median 0.55, 0.032 to 1.00.

        Published beside measured: Boxes compared
          Published by those who sell them, 2007.
          Shorter than the study: 200 round trips instead of 10 000.
          4 of 6 figures met by 2 measured cases; rows with the same # share one.
          lab: measured in the lab, no hardware.
          theory: the best value that the physical line allows.

        Table 6: Mean latency
          #  product                    unit  published  measured  ratio  theory  on
          1  STS1600  TCP/IP, 1 port    ms        12.35     1.203   0.10   1.042
             STS1600  TCP/IP, 16 ports  ms       112.89   not run      –   1.042
          2  LS100    TCP/IP, 1 port    ms        39.22     1.250  0.032   1.042  lab
          left out, 1 figure: no number in the study; CSV, JSON and HTML have them.
          measured: latency mean (ms).
          not run, 2 figures: there is no such thing in the lab.

        Table 12: Throughput
          #  baud                  unit   published   measured  ratio  theory
          2  19200  SS100, 1 port  bit/s   19252.38  19183.46*   1.00   19200
          2  19200  SS100, 1 port  %         100.27     99.91*   1.00     100
          measured: port line (bit/s), port line rate (%).
          * case 2: the measurement was stopped before its end.
          19200 SS100, 1 port, 19252.38 bit/s: above what a line of this rate can carry.

        Machines, versions and set-up of the study: 1 table and 1 drawing, with --all.
        ");
    }

    #[test]
    fn narrow_ascii_text() {
        let text =
            write_text("text", &ReportOptions { width: 60, unicode: false, ..ReportOptions::default() });
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn one_csv_row_per_figure() {
        insta::assert_snapshot!(write_text("csv", &ReportOptions::default()), @r#"
        run,paper,table,row,column,unit,published,measured,predicted,theoretical_limit,statistic,planned_case,case,endpoint,ports,stand_in,fitted,guest,reason,note
        20261120T100000Z-7f3a,study,6,STS1600,"TCP/IP, 1 port",ms,12.35,1.203456,,1.041667,latency_mean_ms,latency:tcp/1@9600,1,serial:///dev/ttyS0,1,false,,false,,
        20261120T100000Z-7f3a,study,6,STS1600,"TCP/IP, 16 ports",ms,112.89,,,1.041667,latency_mean_ms,latency:tcp/1@9600,,,,,,,there is no such thing in the lab,
        20261120T100000Z-7f3a,study,6,LS100,"TCP/IP, 1 port",ms,39.22,1.25,,1.041667,latency_mean_ms,latency:tcp/1@9600,2,tcp://127.0.0.1:7001,1,true,,false,,
        20261120T100000Z-7f3a,study,6,LS100,"TCP/IP, 16 ports",ms,Not Available,,,1.041667,latency_mean_ms,latency:tcp/1@9600,,,,,,,there is no such thing in the lab,
        20261120T100000Z-7f3a,study,12,19200,"SS100, 1 port",bit/s,19252.38,19183.456,,19200,port_line_bps,throughput:tcp/1@19200,2,tcp://127.0.0.1:7001,1,false,,false,the measurement was stopped before its end,above what a line of this rate can carry
        20261120T100000Z-7f3a,study,12,19200,"SS100, 1 port",%,100.27,99.9138,,100,port_line_rate_percent,throughput:tcp/1@19200,2,tcp://127.0.0.1:7001,1,false,,false,the measurement was stopped before its end,
        "#);
    }

    #[test]
    fn page_follows_the_arrangement_of_the_study() {
        let page = write_text("html", &ReportOptions::default());
        let (_, section) = page.split_once("<section class=\"paper\" id=\"study\">").unwrap();
        let (section, _) = section.split_once("</section>").unwrap();
        // Charts have their own tests.
        let charts = section
            .split("<figure>")
            .map(|rest| rest.split_once("</figure>\n").map_or(rest, |(_, rest)| rest));
        let section = charts.collect::<Vec<_>>().join("<!-- chart -->\n");
        insta::assert_snapshot!(section.trim(), @r##"
        <h2>Published beside measured: Boxes compared</h2>
        <p class="about">Published by those who sell them, 2007.</p>
        <p class="about">Shorter than the study: 200 round trips instead of 10 000.</p>
        <p class="about">4 of 6 figures met by 2 measured cases; rows with the same # share one.</p>
        <p class="about">lab: measured in the lab, no hardware.</p>
        <p class="about">theory: the best value that the physical line allows.</p>
        <h3>Table 6: Mean latency</h3>
        <div class="scroll" role="region" tabindex="0" aria-label="Table 6"><table>
        <caption class="unseen">Mean latency</caption>
        <thead><tr><th scope="col" class="left">product</th><th scope="col"><span class="unseen">figure</span></th>
        <th scope="col">TCP/IP, 1 port<br>ms</th>
        <th scope="col">TCP/IP, 16 ports<br>ms</th>
        </tr></thead>
        <tbody>
        <tr><th scope="rowgroup" rowspan="3" class="left">STS1600</th><td class="left">published</td>
        <td>12.35</td>
        <td>112.89</td>
        </tr>
        <tr class="also measured"><td class="left">measured</td>
        <td><a href="#case-1">1.203</a></td>
        <td class="absent" title="there is no such thing in the lab">not run</td>
        </tr>
        <tr class="also"><td class="left">theory</td>
        <td>1.042</td>
        <td>1.042</td>
        </tr>
        <tr><th scope="rowgroup" rowspan="3" class="left">LS100</th><td class="left">published</td>
        <td>39.22</td>
        <td>Not Available</td>
        </tr>
        <tr class="also measured"><td class="left">measured</td>
        <td><a href="#case-2">1.250</a> lab</td>
        <td class="absent" title="there is no such thing in the lab">not run</td>
        </tr>
        <tr class="also"><td class="left">theory</td>
        <td>1.042</td>
        <td>1.042</td>
        </tr>
        </tbody></table></div>
        <!-- chart -->

        <p class="about">measured: latency mean (ms).</p>
        <p class="about">not run, 2 figures: there is no such thing in the lab.</p>
        <h3>Table 12: Throughput</h3>
        <div class="scroll" role="region" tabindex="0" aria-label="Table 12"><table>
        <caption class="unseen">Throughput</caption>
        <thead><tr><th scope="col" class="left">baud</th><th scope="col"><span class="unseen">figure</span></th>
        <th scope="col">SS100, 1 port<br>bit/s</th>
        <th scope="col">SS100, 1 port<br>%</th>
        </tr></thead>
        <tbody>
        <tr><th scope="rowgroup" rowspan="3" class="left">19200</th><td class="left">published</td>
        <td title="above what a line of this rate can carry">19252.38&nbsp;⚠</td>
        <td>100.27</td>
        </tr>
        <tr class="also measured"><td class="left">measured</td>
        <td title="the measurement was stopped before its end"><a href="#case-2">19183.46*</a></td>
        <td title="the measurement was stopped before its end"><a href="#case-2">99.91*</a></td>
        </tr>
        <tr class="also"><td class="left">theory</td>
        <td>19200</td>
        <td>100</td>
        </tr>
        </tbody></table></div>

        <p class="about">measured: port line (bit/s), port line rate (%).</p>
        <p class="about">* case 2: the measurement was stopped before its end.</p>
        <p class="about">19200 SS100, 1 port, 19252.38 bit/s: above what a line of this rate can carry.</p>
        <h3>Machines, versions and set-up of the study</h3>
        <details><summary>Table 4: Products</summary>
        <div class="scroll"><table class="facts">
        <caption class="unseen">Products</caption>
        <thead><tr><th scope="col" class="left">product</th><th scope="col" class="left">firmware</th></tr></thead>
        <tbody>
        <tr><td class="left">STS1600</td><td class="left">1.4.4, the one for sixteen ports</td></tr>
        <tr><td class="left">LS100</td><td class="left">1.4.4</td></tr>
        </tbody></table></div>
        </details>
        <details open><summary>Figure 1: A box in use</summary>
        <div class="scroll"><svg class="picture" viewBox="0 0 210 44" style="max-width: 210px" role="img" aria-label="A box in use">
        <rect x="1" y="1" width="32" height="28" rx="4"/><text x="17" y="19" text-anchor="middle">PC</text><line x1="33" x2="69" y1="15" y2="15"/><rect x="69" y="1" width="40" height="28" rx="4"/><text x="89" y="19" text-anchor="middle">box</text><line x1="109" x2="145" y1="15" y2="15"/><rect x="145" y="1" width="64" height="28" rx="4"/><text x="177" y="19" text-anchor="middle">device</text></svg></div>
        </details>
        "##);
    }

    #[test]
    fn predictions_are_shown() {
        let run = sample_runs::study_with_prediction();
        let written = |name: &str| {
            let mut out = Vec::new();
            (report_format(name).unwrap().write)(&run, &ReportOptions::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = written("text");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(
            text.contains("measured  ratio  predicted  theory")
                && text.contains("1.203   0.10      1.200   1.042"),
            "{text}"
        );
        assert!(text.contains("lab: measured in the lab, emulated box, no hardware."), "{text}");
        let page = written("html");
        assert!(page.contains("rowspan=\"4\"") && page.contains(">predicted</td>"));
        assert!(written("csv").contains("12.35,1.203456,1.2,1.041667,"));
    }

    #[test]
    fn fits_are_shown_below_their_table() {
        let mut run = sample_runs::study();
        let case = run.cases[0].clone();
        let sizes = [100, 200, 300].map(|message_bytes| CaseResult { message_bytes, ..case.clone() });
        run.cases = sizes.to_vec();
        for (case, mean) in run.cases.iter_mut().zip([3e6, 4e6, 5e6]) {
            let latency = case.figures.times.latency_ns.as_mut().unwrap();
            (latency.mean, latency.percentiles) = (mean, BTreeMap::new());
        }
        let tables = &mut run.study.as_mut().unwrap().tables;
        for (row, case) in tables[0].rows.iter_mut().zip(1..=3) {
            (row.case, row.planned_case) = (Some(case), format!("latency:tcp/1@{case}00"));
        }
        tables[1].rows.clear();
        let options = ReportOptions { detail: Detail::Full, ..ReportOptions::default() };
        let written = |name: &str| {
            let mut out = Vec::new();
            (report_format(name).unwrap().write)(&run, &options, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = written("text");
        let line = "fit 1–3: 2.000 ms + size ÷ 100.0 kB/s, half 200 B; last 100.0 kB/s";
        let (above, below) = text.split_once(line).unwrap_or_else(|| panic!("{text}"));
        assert!(above.contains("Table 6") && !above.contains("Table 12"), "{text}");
        assert!(!below.contains("fit 1–3") && below.contains("fit: time of a message"), "{text}");
        let page = written("html").replace('\u{a0}', " ");
        let (study, rest) = page.split_once("Not run: table 12").unwrap();
        assert!(study.contains(line) && rest.contains(line), "below its table, and below that of its cases");
    }

    #[test]
    fn foreign_texts_are_escaped() {
        let mut out = Vec::new();
        (report_format("html").unwrap().write)(
            &sample_runs::hostile_study(),
            &ReportOptions::default(),
            &mut out,
        )
        .unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains("&lt;script&gt;") && !page.contains(sample_runs::HOSTILE_SCRIPT));
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn figures_keep_significant_digits() {
        let printed = [(1.041_666, 2), (99.981, 2), (230_400.0, 2), (38_395.874, 2), (0.012_3, 0), (74.0, 0)];
        assert_eq!(
            printed.map(|(value, decimals)| format_digits(value, decimals)),
            ["1.042", "99.98", "230400", "38395.87", "0.012", "74"]
        );
        assert_eq!(format_digits(f64::MAX, 2), "1.798e308");
    }
}
