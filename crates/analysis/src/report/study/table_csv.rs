//! A study as a table for spreadsheets: one row per published figure.

use std::io;

use crate::report::csv::{write_header, write_row};
use linkgauge_model::run::{Run, StudyResult};

/// Column names of a study's CSV table and their meanings.
static COLUMNS: &[(&str, &str)] = &[
    ("run", "id of the run"),
    ("paper", "name of the study"),
    ("table", "number of its table"),
    ("row", "row of the table"),
    ("column", "column of the table"),
    ("unit", "of the figures"),
    ("published", "as printed"),
    ("measured", "what met it; empty: not run"),
    ("predicted", "expected value from the study's settings; empty: no basis for a prediction"),
    ("theoretical_limit", "theoretical minimum or maximum of the physical line"),
    ("statistic", "which statistic met it"),
    ("planned_case", "case of the study's plan"),
    ("case", "number of the case in the run, from 1"),
    ("endpoint", "where its first link led"),
    ("ports", "ports measured side by side"),
    ("stand_in", "measured in the lab: no hardware"),
    ("fitted", "the published figure determined parameters of the twin; empty: no figure of a twin"),
    ("guest", "measured in a guest: compare it only with other figures of the guest"),
    ("reason", "why nothing was measured, or why the measured figure is doubtful"),
    ("note", "a remark on the published figure"),
];

/// Writes one row per published figure.
pub(crate) fn write_csv(run: &Run, paper: &StudyResult, out: &mut dyn io::Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    write_header(&mut table, COLUMNS.iter().map(|(name, _)| *name))?;
    for (number, row) in paper.tables.iter().flat_map(|t| t.rows.iter().map(|row| (&t.number, row))) {
        let case = row.case.and_then(|case| run.cases.get(case.checked_sub(1)?));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let cells = [
            run.id.clone(),
            paper.name.clone(),
            number.clone(),
            row.row.clone(),
            row.column.clone(),
            row.unit.clone(),
            row.published.clone(),
            format_number(row.measured),
            format_number(row.predicted),
            format_number(row.theoretical_limit),
            row.statistic.clone(),
            row.planned_case.clone(),
            row.case.map(|case| case.to_string()).unwrap_or_default(),
            case.map(|case| case.endpoint.clone()).unwrap_or_default(),
            case.map(|case| case.ports.to_string()).unwrap_or_default(),
            row.measured.map(|_| row.stand_in.to_string()).unwrap_or_default(),
            paper.twins.as_ref().and(row.measured).map(|_| row.fitted.to_string()).unwrap_or_default(),
            row.measured.map(|_| row.guest.to_string()).unwrap_or_default(),
            text(&row.reason),
            text(&row.note),
        ];
        write_row(&mut table, &cells)?;
    }
    table.flush()
}

/// Formats a number with six decimals: a nanosecond if the unit is milliseconds.
fn format_number(value: Option<f64>) -> String {
    let text = value.map(|value| format!("{value:.6}")).unwrap_or_default();
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
