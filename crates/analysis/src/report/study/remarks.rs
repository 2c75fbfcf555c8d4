//! Remarks below the tables of a study.

use std::collections::{BTreeMap, BTreeSet};

use super::{FLAW_MARK, not_measured_text};
use crate::report::wording::{format_case_list, plural, statistic_label};
use linkgauge_model::run::{Run, StudyRow, StudyTable};

/// Lab devices and their cases in a table, unless one name covers all.
fn stand_in_notes(run: &Run, table: &StudyTable) -> Vec<String> {
    let mut cases: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for row in table.rows.iter().filter(|row| row.stand_in) {
        let number = row.case.unwrap_or_default();
        let case = run.cases.get(number.wrapping_sub(1));
        if let Some(name) = case.and_then(|case| case.placement.stand_in.as_deref()) {
            cases.entry(name).or_default().insert(number);
        }
    }
    let note = |(name, cases): (&&str, &BTreeSet<usize>)| {
        format!("{}: {name}.", format_case_list(&cases.iter().copied().collect::<Vec<_>>()))
    };
    cases.iter().filter(|_| cases.len() > 1).map(note).collect()
}

/// Remarks below a table: lab devices, incomplete cases, notes on published figures.
pub(crate) fn table_remarks(run: &Run, table: &StudyTable) -> Vec<String> {
    let mut reasons: BTreeMap<(bool, &str), Vec<&StudyRow>> = BTreeMap::new();
    for row in &table.rows {
        if let Some(reason) = &row.reason {
            reasons.entry((row.measured.is_some(), reason)).or_default().push(row);
        }
    }
    let why = reasons.iter().map(|((measured, reason), rows)| match measured {
        false => format!(
            "{}, {}: {}",
            not_measured_text(rows[0]),
            plural(rows.len(), "figure"),
            end_sentence(reason)
        ),
        true => {
            let mut cases: Vec<usize> = rows.iter().filter_map(|row| row.case).collect();
            cases.sort_unstable();
            format!("{FLAW_MARK} {}: {}", format_case_list(&cases), end_sentence(reason))
        }
    });
    let notes = table.rows.iter().filter_map(|row| {
        let note = row.note.as_ref()?;
        Some(format!("{} {}, {} {}: {note}.", row.row, row.column, row.published, row.unit))
    });
    let mut statistics: Vec<&str> = table.rows.iter().map(|row| row.statistic.as_str()).collect();
    statistics.sort_unstable();
    statistics.dedup();
    let words: Vec<String> = statistics.into_iter().map(statistic_label).collect();
    let measured_statistics = format!("measured: {}.", words.join(", "));
    std::iter::once(measured_statistics).chain(stand_in_notes(run, table)).chain(why).chain(notes).collect()
}

fn end_sentence(sentence: &str) -> String {
    sentence.trim_end_matches('.').to_owned() + if sentence.ends_with(['?', '!']) { "" } else { "." }
}
