//! Twins of the published systems on the virtual clock: each is a part of the lab, runs the cases of its study, and gives a
//! value for each published figure.
//!
//! Parameters and figures are in the study's folder (`study::Twin`). The same parameters give the same values.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::study::{PlannedCase, Study, StudyError, TwinFigure, TwinModel};
use linkgauge_engine::link::Dialer;
use linkgauge_model::run::{CaseResult, StudyResult, StudyRow};
use linkgauge_model::units::format_plural;

mod bench;
mod parts;
mod real_time;

pub(crate) use bench::TwinCaseError;
pub use parts::{link_shapes, logger_config, node_costs, transfer_costs};

/// Error of a twin that cannot run.
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
        why: TwinCaseError,
    },
}

/// Published figures beside those of the twins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinReport {
    /// The name of the study.
    pub study: String,
    /// Accuracy of the predictions of the twins.
    pub summary: TwinSummary,
    /// One row per published figure.
    pub rows: Vec<TwinRow>,
    /// The results of the cases on the twins.
    #[serde(skip)]
    pub cases: Vec<CaseResult>,
    /// The lab device of all cases.
    #[serde(skip)]
    stand_in: &'static str,
}

/// Deviation of the figures of the twins from the published ones. Only figures that determined no parameter count as checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinSummary {
    /// Figures that determined parameters.
    pub fitted: usize,
    /// Number of all other figures.
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
    /// The index of its result among the cases of the report.
    #[serde(skip)]
    pub result: usize,
    /// The published value.
    pub published: f64,
    /// The value of the twin; `None` if the case gave none.
    pub value: Option<f64>,
    /// Twin ÷ published − 1, in percent. `None` without a value, or if only the published value is zero.
    pub deviation_percent: Option<f64>,
    /// The figure determined parameters.
    pub fitted: bool,
    /// Reason why the twin misses the figure, where it is known.
    pub miss: Option<String>,
}

/// The limit of a good prediction, in percent.
const GOOD_PERCENT: f64 = 15.0;

/// Deviations beyond this are explained, in percent.
const EXPLAINED_PERCENT: f64 = 10.0;

/// Runs the twins of the selected tables on the virtual clock.
///
/// # Errors
///
/// Fails if the study is invalid, has no twin for the selected tables, or if a case does not run.
pub fn compare(study: &Study) -> Result<TwinReport, TwinError> {
    compare_with(study, study.twin_figures()?, ON_VIRTUAL_CLOCK, bench::run_case)
}

/// Requirements of a comparison in real time.
pub struct RealTime<'a> {
    /// Opens the links, and stops when it is cancelled.
    pub dialer: &'a Dialer,
    /// Selects the cases that run.
    pub selects: &'a dyn Fn(&PlannedCase) -> bool,
    /// Callback that runs before each case.
    pub before_case: &'a dyn Fn(&PlannedCase),
}

/// Runs twins of the selected tables on the virtual clock and in real time, as parts of the lab on sockets and
/// pseudo-terminals. Both reports have the same rows, without those of twins that exist on the virtual clock only.
///
/// # Errors
///
/// Fails as [`compare`] does, or if no selected case can run in real time.
pub fn compare_in_real_time(study: &Study, bench: &RealTime) -> Result<[TwinReport; 2], TwinError> {
    let figures = || -> Result<Vec<TwinFigure>, TwinError> {
        let mut figures = Vec::new();
        for figure in study.twin_figures()? {
            if (bench.selects)(&figure.case) && real_time::is_possible(&figure.twin.model()?) {
                figures.push(figure);
            }
        }
        Ok(figures)
    };
    let expected = compare_with(study, figures()?, ON_VIRTUAL_CLOCK, bench::run_case)?;
    let real = compare_with(study, figures()?, IN_REAL_TIME, |model, case| {
        (bench.before_case)(case);
        real_time::run_case(model, case, bench.dialer)
    })?;
    Ok([expected, real])
}

fn compare_with(
    study: &Study,
    figures: Vec<TwinFigure>,
    stand_in: &'static str,
    run: impl Fn(&TwinModel, &PlannedCase) -> Result<CaseResult, TwinCaseError>,
) -> Result<TwinReport, TwinError> {
    if figures.is_empty() {
        return Err(TwinError::None(study.name.clone()));
    }
    // A twin does not know by which way its client reaches it: such cases have one result, unless the link of a download
    // differs.
    let mut results = Vec::new();
    let (mut rows, mut cases) = (Vec::new(), Vec::new());
    for figure in &figures {
        let measure = figure.case.name.split(':').next().unwrap_or_default();
        let PlannedCase { point, download, .. } = &figure.case;
        let key = (figure.twin.name.as_str(), measure, point.ports, point.value, download);
        let result = match results.iter().find(|(known, _)| *known == key) {
            Some((_, result)) => *result,
            None => {
                cases.push(run_figure(figure, &run)?);
                results.push((key, cases.len() - 1));
                cases.len() - 1
            }
        };
        rows.push(TwinRow::new(figure, result, &cases[result]));
    }
    Ok(TwinReport { study: study.name.clone(), summary: TwinSummary::of(&rows), rows, cases, stand_in })
}

fn run_figure(
    figure: &TwinFigure,
    run: impl Fn(&TwinModel, &PlannedCase) -> Result<CaseResult, TwinCaseError>,
) -> Result<CaseResult, TwinError> {
    let case_error = |why: TwinCaseError| TwinError::Case {
        case: figure.case.name.clone(),
        twin: figure.twin.name.clone(),
        why,
    };
    let mut result = run(&figure.twin.model()?, &figure.case).map_err(case_error)?;
    result.placement.stand_in = Some(format!("twin {}", figure.twin.name));
    Ok(result)
}

/// The reason for a figure that no twin explains or predicts.
pub const NO_TWIN: &str = "it belongs to no twin";

/// The lab device of all cases.
const ON_VIRTUAL_CLOCK: &str = "twins on the virtual clock";
const IN_REAL_TIME: &str = "twins in real time";

impl TwinReport {
    /// Fills the tables of the study with the figures of the twins, where others have measured ones. Other figures keep
    /// their reason, such as [`NO_TWIN`].
    ///
    /// # Errors
    ///
    /// Fails if the study is invalid.
    pub fn fill(&self, study: &Study, result: &mut StudyResult) -> Result<(), StudyError> {
        let known: BTreeMap<(&str, &str), usize> =
            self.rows.iter().map(|row| ((row.twin.as_str(), row.case.as_str()), row.result)).collect();
        for figure in study.repeated_twin_figures()? {
            let Some(&case) = known.get(&(figure.twin.name.as_str(), figure.case.name.as_str())) else {
                continue;
            };
            let row = TwinRow::new(&figure, case, &self.cases[case]);
            let tables = result.tables.iter_mut().filter(|table| table.number == row.table);
            let is_same = |other: &&mut StudyRow| {
                (&other.row, &other.column, &other.unit) == (&row.row, &row.column, &row.unit)
            };
            for place in tables.flat_map(|table| &mut table.rows).filter(is_same) {
                (place.measured, place.case) = (row.value, Some(case + 1));
                (place.stand_in, place.fitted) = (true, row.fitted);
                place.reason = row.miss.clone().filter(|_| row.is_missed());
            }
        }
        result.stand_ins = vec![self.stand_in.to_owned()];
        result.twins = Some(self.summary.sentence());
        Ok(())
    }
}

impl TwinRow {
    pub(crate) fn new(figure: &TwinFigure, result: usize, case: &CaseResult) -> TwinRow {
        let value = figure.value(case);
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
            result,
            published: figure.published,
            value,
            deviation_percent: deviation,
            fitted: figure.is_fitted,
            miss: figure.miss.map(str::to_owned),
        }
    }

    /// Whether the twin misses the figure by so much that a reason is due.
    pub fn is_missed(&self) -> bool {
        self.deviation_percent.is_none_or(|percent| percent.abs() > EXPLAINED_PERCENT)
    }

    /// The deviation for ranking: without a number it is infinite.
    fn ranked_percent(&self) -> f64 {
        self.deviation_percent.unwrap_or(f64::INFINITY)
    }
}

/// A deviation in percent, with its sign.
pub fn format_deviation(percent: f64) -> String {
    match percent.is_finite() {
        true => format!("{percent:+.1} %").replace('-', "−"),
        false => "published 0".to_owned(),
    }
}

impl TwinSummary {
    /// The summary in one sentence.
    pub fn sentence(&self) -> String {
        let TwinSummary { fitted, checked, within_15_percent, .. } = *self;
        let (Some(median), Some(worst)) = (self.median_percent, self.worst_percent) else {
            return format!("no figure is left to check; {fitted} determined the twins.");
        };
        format!(
            "the twins predict {} with a median deviation of {median:.1} % (worst {}), {within_15_percent} of them within 15 %; \
             {fitted} other figures determined their parameters.",
            format_plural(checked as u64, "published figure"),
            format_deviation(worst),
        )
    }

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
