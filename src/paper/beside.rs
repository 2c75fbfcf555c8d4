//! A published figure beside what met it, and what is wrong with that.

use std::collections::BTreeMap;

use super::{BUSY, Outcome, PaperError, PlannedCase, Row, Statistic, TOO_GOOD, statistic};
use crate::run::{CaseResult, Figures, PaperRow};
use crate::warnings::was_host_busy;

impl Row {
    pub(super) fn beside<'a>(
        &self,
        cases: &BTreeMap<String, PlannedCase>,
        outcome: &dyn Fn(&PlannedCase) -> Outcome<'a>,
    ) -> Result<PaperRow, PaperError> {
        let lacking = |what: &str| PaperError::Tables(format!("there is no {what}"));
        let planned = cases.get(&self.case).ok_or_else(|| lacking(&format!("case {}", self.case)))?;
        let statistic = statistic(&self.statistic)
            .filter(|statistic| statistic.unit == self.unit)
            .ok_or_else(|| lacking(&format!("statistic {} in {}", self.statistic, self.unit)))?;
        let mut row = PaperRow {
            row: self.row.clone(),
            column: self.column.clone(),
            published: self.published.clone(),
            unit: self.unit.clone(),
            planned_case: self.case.clone(),
            statistic: self.statistic.clone(),
            measured: None,
            predicted: (statistic.predicted)(planned),
            limit: (statistic.limit)(planned),
            case: None,
            stand_in: false,
            guest: false,
            reason: None,
            note: Some(self.note.clone()).filter(|note| !note.is_empty()),
        };
        match outcome(planned) {
            Outcome::NotRun(reason) => row.reason = Some(reason),
            Outcome::Run { number, case, stand_in, guest } => {
                row.measured = (statistic.of)(case, planned);
                (row.case, row.stand_in, row.guest) = (Some(number), stand_in, guest);
                row.reason = match row.measured {
                    Some(measured) => flaw(case, statistic, row.limit, measured),
                    None => Some(why_not(case)),
                };
            }
        }
        Ok(row)
    }
}

/// What is wrong with a figure of this case.
fn flaw(case: &CaseResult, statistic: &Statistic, limit: Option<f64>, measured: f64) -> Option<String> {
    let figures = &case.figures;
    if !case.complete {
        return Some(why_not(case));
    }
    if figures.corrupt_bytes > 0 {
        return Some(format!("{} bytes came back other than they were sent", figures.corrupt_bytes));
    }
    if figures.lost > 0 && !statistic.counts_lost {
        return Some(lost(figures));
    }
    if limit.is_some_and(|limit| (statistic.too_good)(measured, limit)) {
        return Some(TOO_GOOD.to_owned());
    }
    // How busy stands in the warning of the case: here all such rows are told in one sentence.
    was_host_busy(case).then(|| BUSY.to_owned())
}

/// Why a case is not whole, in its own words.
fn why_not(case: &CaseResult) -> String {
    let told =
        case.warnings.iter().find(|warning| matches!(warning.code.as_str(), "incomplete" | "interrupted"));
    match told {
        Some(warning) => warning.text.clone(),
        None if case.figures.lost > 0 => lost(&case.figures),
        None => "nothing was measured".to_owned(),
    }
}

fn lost(figures: &Figures) -> String {
    format!("{} of {} were lost", figures.lost, figures.sent)
}
