//! Joins published figures with measured ones and finds flaws.

use std::collections::BTreeMap;

use super::{
    BEYOND_LIMIT_NOTE, CaseOutcome, HOST_BUSY_NOTE, PlannedCase, PublishedFigure, StudyError, StudyStatistic,
    find_statistic,
};
use linkgauge_model::run::{CaseResult, Figures, StudyRow, WarningCode};
use linkgauge_model::warnings::was_host_busy;

impl PublishedFigure {
    pub(super) fn join_outcome<'a>(
        &self,
        cases: &BTreeMap<String, PlannedCase>,
        outcome: &dyn Fn(&PlannedCase) -> CaseOutcome<'a>,
    ) -> Result<StudyRow, StudyError> {
        let lacking = |what: &str| StudyError::Tables(format!("there is no {what}"));
        let planned = cases.get(&self.case).ok_or_else(|| lacking(&format!("case {}", self.case)))?;
        let statistic = find_statistic(&self.statistic)
            .filter(|statistic| statistic.unit == self.unit)
            .ok_or_else(|| lacking(&format!("statistic {} in {}", self.statistic, self.unit)))?;
        let mut row = StudyRow {
            row: self.row.clone(),
            column: self.column.clone(),
            published: self.published.clone(),
            unit: self.unit.clone(),
            planned_case: self.case.clone(),
            statistic: self.statistic.clone(),
            measured: None,
            predicted: (statistic.predicted)(planned),
            theoretical_limit: (statistic.theoretical_limit)(planned),
            case: None,
            stand_in: false,
            guest: false,
            fitted: false,
            reason: None,
            note: Some(self.note.clone()).filter(|note| !note.is_empty()),
        };
        match outcome(planned) {
            CaseOutcome::NotMeasured(reason) => row.reason = Some(reason),
            CaseOutcome::Measured { number, case, is_stand_in: stand_in, is_guest: guest } => {
                row.measured = (statistic.measured)(case, planned);
                (row.case, row.stand_in, row.guest) = (Some(number), stand_in, guest);
                row.reason = match row.measured {
                    Some(measured) => find_flaw(case, statistic, row.theoretical_limit, measured),
                    None => Some(incomplete_reason(case)),
                };
            }
        }
        Ok(row)
    }
}

/// The flaw of a figure of this case, if any.
fn find_flaw(
    case: &CaseResult,
    statistic: &StudyStatistic,
    limit: Option<f64>,
    measured: f64,
) -> Option<String> {
    let figures = &case.figures;
    if !case.complete {
        return Some(incomplete_reason(case));
    }
    if figures.byte_errors.corrupt_bytes > 0 {
        return Some(format!("{} bytes arrived changed", figures.byte_errors.corrupt_bytes));
    }
    if figures.counts.lost > 0 && !statistic.includes_lost {
        return Some(loss_text(figures));
    }
    if limit.is_some_and(|limit| (statistic.is_beyond_limit)(measured, limit)) {
        return Some(BEYOND_LIMIT_NOTE.to_owned());
    }
    // The warning of the case has the details; all such rows share this sentence.
    was_host_busy(case).then(|| HOST_BUSY_NOTE.to_owned())
}

/// Reason why a case is incomplete, in the words of its warning.
fn incomplete_reason(case: &CaseResult) -> String {
    let warning = case
        .warnings
        .iter()
        .find(|warning| matches!(warning.code, WarningCode::Incomplete | WarningCode::Interrupted));
    match warning {
        Some(warning) => warning.text.clone(),
        None if case.figures.counts.lost > 0 => loss_text(&case.figures),
        None => "nothing was measured".to_owned(),
    }
}

fn loss_text(figures: &Figures) -> String {
    format!("{} of {} were lost", figures.counts.lost, figures.counts.sent)
}
