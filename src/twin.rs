//! Twins of the published systems on the virtual clock: each is a part of the lab, runs the cases of its study, and gives a
//! value for each published figure.
//!
//! Parameters and figures are in the study's folder (`study::Twin`). The same parameters give the same values.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;

use crate::run::CaseResult;
use crate::study::{Study, StudyError, TwinFigure};

mod bench;
mod parts;

pub use bench::CaseError;
pub use parts::{link_shapes, logger_config, transfer_costs};

/// Why a twin cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TwinError {
    /// The study or one of its twins is invalid.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The study has no twins for the selected tables.
    #[error("the selected tables of {0} have no twin. Select others with --table")]
    None(String),
    /// A case did not run on the twin.
    #[error("{case} on the twin {twin}: {why}")]
    Case {
        /// The name of the case.
        case: String,
        /// The name of the twin.
        twin: String,
        /// The reason.
        why: CaseError,
    },
}

/// Published figures beside those of the twins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinReport {
    /// The name of the study.
    pub study: String,
    /// How well the twins predict.
    pub summary: TwinSummary,
    /// One row per published figure.
    pub rows: Vec<TwinRow>,
}

/// How far the figures of the twins are from the published ones. Only figures that determined no parameter count as checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinSummary {
    /// Figures that determined parameters.
    pub fitted: usize,
    /// All others.
    pub checked: usize,
    /// Median of the deviations of the checked figures, without sign, in percent. `None` without checked figures.
    pub median_percent: Option<f64>,
    /// The largest deviation, with its sign, in percent. A published figure of zero that the twin misses counts as largest.
    pub worst_percent: Option<f64>,
    /// Checked figures within 15 %.
    pub within_15_percent: usize,
}

/// A published figure and that of its twin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinRow {
    /// The name of the twin.
    pub twin: String,
    /// The number of the table.
    pub table: String,
    /// The row of the table.
    pub row: String,
    /// The column of the table.
    pub column: String,
    /// The unit of both values.
    pub unit: String,
    /// The name of the case.
    pub case: String,
    /// The published value.
    pub published: f64,
    /// The value of the twin; `None` if the case gave none.
    pub value: Option<f64>,
    /// Twin ÷ published − 1, in percent. `None` without a value, or if only the published value is zero.
    pub deviation_percent: Option<f64>,
    /// The figure determined parameters.
    pub fitted: bool,
    /// Why the twin misses the figure, where that is known.
    pub miss: Option<String>,
}

/// The limit of a good prediction, in percent.
const GOOD_PERCENT: f64 = 15.0;

/// Runs the twins of the selected tables on the virtual clock.
///
/// # Errors
///
/// Fails if the study is invalid, has no twin for the selected tables, or if a case does not run.
pub fn compare(study: &Study) -> Result<TwinReport, TwinError> {
    let figures = study.twin_figures()?;
    if figures.is_empty() {
        return Err(TwinError::None(study.name.clone()));
    }
    // A twin does not know by which way its client reaches it: such cases have one result.
    let mut results: BTreeMap<(&str, &str, u32, u32), CaseResult> = BTreeMap::new();
    let mut rows = Vec::new();
    for figure in &figures {
        let measure = figure.case.name.split(':').next().unwrap_or_default();
        let point = &figure.case.point;
        let key = (figure.twin.name.as_str(), measure, point.ports, point.value);
        let result = match results.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(run_figure(figure)?),
        };
        rows.push(TwinRow::new(figure, result));
    }
    Ok(TwinReport { study: study.name.clone(), summary: TwinSummary::of(&rows), rows })
}

fn run_figure(figure: &TwinFigure) -> Result<CaseResult, TwinError> {
    let case_error = |why: CaseError| TwinError::Case {
        case: figure.case.name.clone(),
        twin: figure.twin.name.clone(),
        why,
    };
    bench::run_case(&figure.twin.model()?, &figure.case).map_err(case_error)
}

impl TwinRow {
    fn new(figure: &TwinFigure, result: &CaseResult) -> TwinRow {
        let value = figure.value(result);
        let deviation = value.and_then(|value| match (value, figure.published) {
            (0.0, 0.0) => Some(0.0),
            (_, 0.0) => None,
            (value, published) => Some(100.0 * (value / published - 1.0)),
        });
        TwinRow {
            twin: figure.twin.name.clone(),
            table: figure.table().to_owned(),
            row: figure.row().to_owned(),
            column: figure.column().to_owned(),
            unit: figure.unit().to_owned(),
            case: figure.case.name.clone(),
            published: figure.published,
            value,
            deviation_percent: deviation,
            fitted: figure.is_fitted,
            miss: figure.miss.map(str::to_owned),
        }
    }

    /// The deviation for ranking: without a number it is infinite.
    fn ranked_percent(&self) -> f64 {
        self.deviation_percent.unwrap_or(f64::INFINITY)
    }
}

impl TwinSummary {
    /// The summary of these rows.
    pub fn of(rows: &[TwinRow]) -> TwinSummary {
        let mut checked: Vec<f64> =
            rows.iter().filter(|row| !row.fitted).map(TwinRow::ranked_percent).collect();
        checked.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
        let middle = |checked: &[f64]| {
            let half = checked.len() / 2;
            let upper = checked.get(half)?.abs();
            Some(if checked.len().is_multiple_of(2) {
                (checked[half - 1].abs() + upper) / 2.0
            } else {
                upper
            })
        };
        TwinSummary {
            fitted: rows.len() - checked.len(),
            checked: checked.len(),
            median_percent: middle(&checked),
            worst_percent: checked.last().copied(),
            within_15_percent: checked.iter().filter(|percent| percent.abs() <= GOOD_PERCENT).count(),
        }
    }
}

#[cfg(test)]
mod tests;
