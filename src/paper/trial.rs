//! What a study did not measure but its figures ask for: a download with the window that a fit names.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Outcome, PaperError, PlannedCase, Row, Study};
use crate::plan::CaseSpec;
use crate::run::{Paper, PaperTable};

/// A download of one of the measures again, with several requests under way at once.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    measure: String,
    cell: String,
    at: u32,
    /// Of the table that shows it.
    title: String,
    /// What it does otherwise than the measure.
    case: CaseSpec,
    #[serde(default)]
    quick: CaseSpec,
}

/// As no table of a study is called.
const NUMBER: &str = "W";
/// What stands where the study has no figure.
const NOT_PUBLISHED: &str = "–";
/// Of each case: column and statistic, with its unit.
const SHOWN: [(&str, &str, &str); 2] =
    [("download", "download_bytes_per_second", "B/s"), ("of the link's rate", "link_rate_percent", "%")];

impl Study {
    /// The case that the trial is to be better than: as the study did it, one request at a time. `None` where the study
    /// has no trial, or its table is not chosen.
    pub fn before_trial(&self, quick: bool) -> Result<Option<PlannedCase>, PaperError> {
        let Some(trial) = &self.trial else { return Ok(None) };
        let here = |case: &PlannedCase| {
            let measure = case.name.split_once(':').map_or("", |(measure, _)| measure);
            measure == trial.measure && case.place.cell == trial.cell && case.place.at == trial.at
        };
        Ok(self.cases(quick)?.into_iter().find(here))
    }

    /// The same with so many requests under way at once.
    pub fn with_window(&self, case: &PlannedCase, window: u32, quick: bool) -> PlannedCase {
        let mut spec = case.spec.clone();
        if let Some(trial) = &self.trial {
            spec = trial.case.over(&spec);
            spec = if quick { trial.quick.over(&spec) } else { spec };
        }
        spec.peer_options.insert("window".to_owned(), window.to_string());
        PlannedCase { name: format!("{} window {window}", case.name), spec, before: None, ..case.clone() }
    }

    /// Adds what became of these cases to the tables.
    pub fn join_trial<'a>(
        &self,
        paper: &mut Paper,
        cases: &[PlannedCase],
        outcome: &dyn Fn(&PlannedCase) -> Outcome<'a>,
    ) -> Result<(), PaperError> {
        let Some(trial) = &self.trial else { return Ok(()) };
        let by_name: BTreeMap<String, PlannedCase> =
            cases.iter().map(|case| (case.name.clone(), case.clone())).collect();
        let mut rows = Vec::new();
        for case in cases {
            let published = self.rows.iter().find(|row| row.case == case.name);
            // What the study has measured stands there as it was printed.
            let shown = if published.is_some() { &SHOWN[..1] } else { &SHOWN[..] };
            for (column, statistic, unit) in shown {
                let row = Row {
                    table: NUMBER.to_owned(),
                    row: format!("window {}", case.window()),
                    column: (*column).to_owned(),
                    published: published.map_or(NOT_PUBLISHED.to_owned(), |row| row.published.clone()),
                    unit: (*unit).to_owned(),
                    case: case.name.clone(),
                    statistic: (*statistic).to_owned(),
                    note: String::new(),
                };
                rows.push(row.beside(&by_name, outcome)?);
            }
        }
        let (number, title) = (NUMBER.to_owned(), trial.title.clone());
        paper.tables.push(PaperTable { number, title, rows_are: "window".to_owned(), rows });
        Ok(())
    }
}
