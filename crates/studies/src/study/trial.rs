//! A measurement that a study suggests but does not contain: a download with the window that a fit names.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{CaseOutcome, PlannedCase, PublishedFigure, Study, StudyError, StudyLength};
use linkgauge_model::plan::CaseSpec;
use linkgauge_model::run::{StudyResult, StudyTable};

/// A repeated download of one of the measures, with several requests in flight.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowTrial {
    measure: String,
    cell: String,
    at: u32,
    /// Title of its table.
    title: String,
    /// Differences from the measure.
    case: CaseSpec,
    #[serde(default)]
    quick: CaseSpec,
}

/// Number of the table of a trial; no table of a study has it.
const TABLE_NUMBER: &str = "W";
/// Text that is shown where the study has no figure.
const NOT_PUBLISHED: &str = "–";
/// Column and statistic with its unit, for each case.
const SHOWN_STATISTICS: [(&str, &str, &str); 2] =
    [("download", "download_bytes_per_second", "B/s"), ("of the link's rate", "link_rate_percent", "%")];

impl Study {
    /// The case to improve: as in the study, with one request in flight. `None` if the study has no trial or its table
    /// is not selected.
    ///
    /// # Errors
    ///
    /// Fails if the plan is invalid.
    pub fn trial_baseline(&self, length: StudyLength) -> Result<Option<PlannedCase>, StudyError> {
        let Some(trial) = &self.trial else { return Ok(None) };
        let here = |case: &PlannedCase| {
            let measure = case.name.split_once(':').map_or("", |(measure, _)| measure);
            measure == trial.measure && case.point.cell == trial.cell && case.point.value == trial.at
        };
        Ok(self.cases(length)?.into_iter().find(here))
    }

    /// Returns the case with `window` requests in flight.
    pub fn with_window(&self, case: &PlannedCase, window: u32, length: StudyLength) -> PlannedCase {
        let mut spec = case.spec.clone();
        if let Some(trial) = &self.trial {
            spec = trial.case.with_defaults(&spec);
            spec = if length.is_quick() { trial.quick.with_defaults(&spec) } else { spec };
        }
        spec.protocol_options.insert("window".to_owned(), window.to_string());
        PlannedCase {
            name: format!("{} window {window}", case.name),
            spec,
            preparation: None,
            ..case.clone()
        }
    }

    /// Adds the outcomes of these cases to the tables.
    ///
    /// # Errors
    ///
    /// Fails if the tables are invalid.
    pub fn join_trial_results<'a>(
        &self,
        paper: &mut StudyResult,
        cases: &[PlannedCase],
        outcome: &dyn Fn(&PlannedCase) -> CaseOutcome<'a>,
    ) -> Result<(), StudyError> {
        let Some(trial) = &self.trial else { return Ok(()) };
        let by_name: BTreeMap<String, PlannedCase> =
            cases.iter().map(|case| (case.name.clone(), case.clone())).collect();
        let mut rows = Vec::new();
        for case in cases {
            let published = self.rows.iter().find(|row| row.case == case.name);
            // The study's measured figure appears as printed.
            let shown = if published.is_some() { &SHOWN_STATISTICS[..1] } else { &SHOWN_STATISTICS[..] };
            for (column, statistic, unit) in shown {
                let row = PublishedFigure {
                    table: TABLE_NUMBER.to_owned(),
                    row: format!("window {}", case.window()),
                    column: (*column).to_owned(),
                    published: published.map_or(NOT_PUBLISHED.to_owned(), |row| row.published.clone()),
                    unit: (*unit).to_owned(),
                    case: case.name.clone(),
                    statistic: (*statistic).to_owned(),
                    note: String::new(),
                };
                rows.push(row.join_outcome(&by_name, outcome)?);
            }
        }
        let (number, title) = (TABLE_NUMBER.to_owned(), trial.title.clone());
        paper.tables.push(StudyTable { number, title, rows_are: "window".to_owned(), rows });
        Ok(())
    }
}
