//! The first sentence of a study: the number of published values with a counterpart, and their distance.

use crate::report::wording::{ABSENT, printable};
use linkgauge_model::run::{StudyResult, StudyRow};
use linkgauge_model::stats;

/// The study in one sentence: the number of published values with a measured counterpart, and their typical ratio.
pub(crate) fn answer(paper: &StudyResult) -> String {
    if let Some(sentence) = &paper.twins {
        return printable(sentence);
    }
    let rows: Vec<&StudyRow> = paper.tables.iter().flat_map(|table| &table.rows).collect();
    let published = rows.iter().filter(|row| published_value(row).is_some()).count();
    let measured = rows.iter().filter(|row| published_value(row).is_some() && row.measured.is_some()).count();
    let mut text = format!("{measured} of {published} published values have a measured counterpart");
    let ratios: Vec<f64> = rows.iter().filter_map(|row| measured_ratio(row)).collect();
    if let [ratio] = ratios[..] {
        text += &format!("; measured ÷ published: {}", format_ratio(ratio));
    } else if let Some(median) = stats::median(&ratios) {
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let [median, low, high] = [median, low, high].map(format_ratio);
        text += &format!("; measured ÷ published: median {median}, {low} to {high}");
    }
    text + "."
}

fn published_value(row: &StudyRow) -> Option<f64> {
    row.published.trim().replace([',', ' '], "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// The ratio for a table, or the sign for none.
pub(crate) fn ratio_text(row: &StudyRow) -> String {
    measured_ratio(row).map_or(ABSENT.to_owned(), format_ratio)
}

/// The measured figure as a multiple of the published one.
fn measured_ratio(row: &StudyRow) -> Option<f64> {
    let ratio = row.measured? / published_value(row)?;
    Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
}

/// Formats a ratio with three significant digits, without a unit.
fn format_ratio(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r if r >= 0.095 => format!("{r:.2}"),
        r => format!("{r:.3}"),
    }
}
