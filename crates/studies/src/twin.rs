//! Twins of the published systems on the virtual clock: each is a part of the lab, runs the cases of its study, and gives a
//! value for each published figure.
//!
//! Parameters and figures are in the study's folder (`study::Twin`). The same parameters give the same values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::study::{PlannedCase, Study, StudyError, TwinFigure, TwinModel};
use linkgauge_engine::link::Dialer;
use linkgauge_model::run::{CaseResult, StudyResult, StudyRow};
use linkgauge_model::stats;

mod bench;
mod formula;
mod parts;
mod profile;
mod real_time;

pub(crate) use bench::TwinCaseError;
pub use parts::{link_shapes, logger_config, node_costs, transfer_costs};
pub use profile::{ParameterProfile, ProfileInterval, TwinProfile, profile};

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
    /// The index of the result of each case, by twin and name.
    #[serde(skip)]
    results: BTreeMap<(String, String), usize>,
    /// The lab device of all cases.
    #[serde(skip)]
    stand_in: &'static str,
}

/// Deviation of the figures of the twins from the published ones. Only figures that determined no parameter count as checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinSummary {
    /// Figures that determined parameters.
    pub fitted: usize,
    /// All other figures.
    pub checked: DeviationScore,
    /// The checked figures that the model without a mechanism misses by more than 5 %.
    pub informative: DeviationScore,
    /// The name of the model without a mechanism.
    pub trivial_name: String,
    /// That model at all checked figures.
    pub trivial_checked: DeviationScore,
    /// That model at the informative figures.
    pub trivial_informative: DeviationScore,
}

/// How far values are from published figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DeviationScore {
    /// Number of figures.
    pub figures: usize,
    /// Median of the deviations, without sign, in percent. `None` without figures.
    pub median_percent: Option<f64>,
    /// The largest deviation, with its sign, in percent. A published figure of zero that is missed counts as largest.
    pub worst_percent: Option<f64>,
    /// Figures within 15 %.
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
    /// The value of the model without a mechanism, where it has one.
    pub trivial: Option<f64>,
    /// Reason why the twin misses the figure, where it is known.
    pub miss: Option<String>,
}

/// The limit of a good prediction, in percent.
const GOOD_PERCENT: f64 = 15.0;

/// A model without a mechanism that is nearer than this predicts a figure, in percent.
const TRIVIAL_PERCENT: f64 = 5.0;

/// Deviations beyond this are explained, in percent.
const EXPLAINED_PERCENT: f64 = 10.0;

/// Runs the twins of the selected tables on the virtual clock.
///
/// # Errors
///
/// Fails if the study is invalid, has no twin for the selected tables, or if a case does not run.
pub fn compare(study: &Study) -> Result<TwinReport, TwinError> {
    let rows = study.twin_rows()?.into_iter().filter(|figure| !figure.is_repeat);
    compare_with(study, rows.collect(), ON_VIRTUAL_CLOCK, bench::run_case)
}

/// Requirements of a comparison in real time.
pub struct RealTime<'a> {
    /// Opens the links, and stops when it is cancelled.
    pub dialer: &'a Dialer,
    /// Selects the cases that run.
    pub selects: &'a dyn Fn(&PlannedCase) -> bool,
    /// Callback that runs before each case.
    pub before_case: &'a dyn Fn(&PlannedCase),
    /// Only as many cases as fit this time, the shortest first.
    pub limit: Option<Duration>,
    /// Callback that runs before the first case in real time, with what will run and what would without a limit.
    pub before_all: &'a dyn Fn(RealTimePlan),
}

/// Expected time of cases in real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealTimePlan {
    /// Number of cases that run, and their time.
    pub chosen: (usize, Duration),
    /// Number of cases that run without a limit, and their time.
    pub all: (usize, Duration),
    /// Number of cases that fit [`SHORT_REAL_TIME`].
    pub short: usize,
}

/// The time of a short comparison in real time.
pub const SHORT_REAL_TIME: Duration = Duration::from_secs(60);

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
    let mut expected = compare_with(study, figures()?, ON_VIRTUAL_CLOCK, bench::run_case)?;
    let mut figures = figures()?;
    let times = real_times(&figures, &expected)?;
    let chosen = shortest(&times, bench.limit.unwrap_or(Duration::MAX));
    let sum = |cases: &[usize]| (cases.len(), cases.iter().map(|index| times[*index]).sum::<Duration>());
    (bench.before_all)(RealTimePlan {
        chosen: sum(&chosen),
        all: (times.len(), times.iter().sum()),
        short: shortest(&times, SHORT_REAL_TIME).len(),
    });
    let mut results = expected.rows.iter().map(|row| row.result);
    figures.retain(|_| results.next().is_some_and(|result| chosen.contains(&result)));
    expected.retain_cases(&chosen);
    let real = compare_with(study, figures, IN_REAL_TIME, |model, case| {
        (bench.before_case)(case);
        real_time::run_case(model, case, bench.dialer)
    })?;
    Ok([expected, real])
}

/// Expected time of each result in real time.
fn real_times(figures: &[TwinFigure], expected: &TwinReport) -> Result<Vec<Duration>, TwinError> {
    let mut times = vec![Duration::ZERO; expected.cases.len()];
    for (figure, row) in figures.iter().zip(&expected.rows) {
        let result = &expected.cases[row.result];
        times[row.result] = real_time::expected_time(&figure.twin.model()?, &figure.case, result);
    }
    Ok(times)
}

/// The indices of the shortest of these times that fit the limit, at least one, in their order.
fn shortest(times: &[Duration], limit: Duration) -> Vec<usize> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|index| times[*index]);
    let mut sum = Duration::ZERO;
    let fits = |index: &&usize| {
        sum = sum.saturating_add(times[**index]);
        sum <= limit
    };
    let count = order.iter().take_while(fits).count();
    order.truncate(count.max(1));
    order.sort_unstable();
    order
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
    let (mut rows, mut cases, mut by_name) = (Vec::new(), Vec::new(), BTreeMap::new());
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
        by_name.insert((figure.twin.name.clone(), figure.case.name.clone()), result);
        rows.extend(
            figure.published.map(|published| TwinRow::new(figure, published, (result, &cases[result]))),
        );
    }
    let summary = TwinSummary::of(&rows, study.trivial_name());
    Ok(TwinReport { study: study.name.clone(), summary, rows, cases, results: by_name, stand_in })
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
    /// Drops all other results, and their rows.
    fn retain_cases(&mut self, chosen: &[usize]) {
        let new_index = |index: usize| chosen.iter().position(|other| *other == index);
        self.rows.retain(|row| chosen.contains(&row.result));
        self.rows.iter_mut().for_each(|row| row.result = new_index(row.result).unwrap_or_default());
        self.results.retain(|_, result| chosen.contains(result));
        self.results.values_mut().for_each(|result| *result = new_index(*result).unwrap_or_default());
        let mut index = 0..;
        self.cases.retain(|_| index.next().is_some_and(|index| chosen.contains(&index)));
    }

    /// Fills the tables of the study with the figures of the twins, where others have measured ones. Other figures keep
    /// their reason, such as [`NO_TWIN`].
    ///
    /// # Errors
    ///
    /// Fails if the study is invalid.
    pub fn fill(&self, study: &Study, result: &mut StudyResult) -> Result<(), StudyError> {
        for figure in study.twin_rows()? {
            let name = (figure.twin.name.clone(), figure.case.name.clone());
            let Some(&case) = self.results.get(&name) else { continue };
            let value = figure.value(&self.cases[case]);
            let row =
                figure.published.map(|published| TwinRow::new(&figure, published, (case, &self.cases[case])));
            let tables = result.tables.iter_mut().filter(|table| table.number == figure.table());
            let is_same = |other: &&mut StudyRow| {
                (&*other.row, &*other.column, &*other.unit) == (figure.row(), figure.column(), figure.unit())
            };
            for place in tables.flat_map(|table| &mut table.rows).filter(is_same) {
                (place.measured, place.case) = (value, Some(case + 1));
                (place.stand_in, place.fitted) = (true, figure.is_fitted);
                place.reason = row.as_ref().filter(|row| row.is_missed()).and_then(|row| row.miss.clone());
            }
        }
        result.stand_ins = vec![self.stand_in.to_owned()];
        result.twins = Some(self.summary.sentence());
        study.judge_statements(result);
        Ok(())
    }
}

/// How far a value is from a published one, in percent. `None` without a value, or if only the published value is zero.
fn deviation_percent(value: Option<f64>, published: f64) -> Option<f64> {
    match (value?, published) {
        (0.0, 0.0) => Some(0.0),
        (_, 0.0) => None,
        (value, published) => Some(100.0 * (value / published - 1.0)),
    }
}

impl TwinRow {
    pub(crate) fn new(figure: &TwinFigure, published: f64, (result, case): (usize, &CaseResult)) -> TwinRow {
        let value = figure.value(case);
        TwinRow {
            twin: figure.twin.name.clone(),
            table: figure.table().to_owned(),
            row: figure.row().to_owned(),
            column: figure.column().to_owned(),
            unit: figure.unit().to_owned(),
            case: figure.case.name.clone(),
            result,
            published,
            value,
            deviation_percent: deviation_percent(value, published),
            fitted: figure.is_fitted,
            trivial: figure.trivial,
            miss: figure.miss.map(str::to_owned),
        }
    }

    /// Whether a model without a mechanism misses the figure.
    pub fn is_informative(&self) -> bool {
        // From the model to the figure: 95 % of the rate of a line are 5 % away from it.
        let to_figure = |trivial: f64| deviation_percent(Some(self.published), trivial);
        self.trivial
            .is_none_or(|trivial| to_figure(trivial).is_none_or(|percent| percent.abs() > TRIVIAL_PERCENT))
    }

    /// Whether the twin misses the figure by so much that a reason is due.
    pub fn is_missed(&self) -> bool {
        self.deviation_percent.is_none_or(|percent| percent.abs() > EXPLAINED_PERCENT)
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
    /// The summary in one sentence: the informative figures, and the model without a mechanism beside the twins.
    pub fn sentence(&self) -> String {
        let TwinSummary { fitted, checked, informative, trivial_informative, trivial_name, .. } = self;
        if checked.figures == 0 {
            return match fitted {
                0 => "no published number belongs to a twin here, only statements.".to_owned(),
                _ => format!("no figure is left to check; {fitted} determined the twins."),
            };
        }
        let of = format!("of {} checked figures", checked.figures);
        let (Some(median), Some(worst)) = (informative.median_percent, informative.worst_percent) else {
            return format!(
                "none {of} is informative: {trivial_name} predicts them all; {fitted} determined the twins."
            );
        };
        let trivial = trivial_informative.median_percent.map_or(String::new(), |median| {
            let within = trivial_informative.within_15_percent;
            format!("; {trivial_name}: {}, {within} within 15 %", format_size(median))
        });
        format!(
            "the twins predict the {} informative {of} with a median deviation of {} (worst {}), {} within 15 %{trivial}.",
            informative.figures,
            format_size(median),
            format_deviation(worst),
            informative.within_15_percent,
        )
    }

    /// All checked figures in one sentence.
    pub fn whole_sentence(&self) -> Option<String> {
        let TwinSummary { fitted, checked, trivial_checked, trivial_name, .. } = self;
        let twins = format_size(checked.median_percent?);
        let trivial = trivial_checked.median_percent.map_or("no value".to_owned(), format_size);
        Some(format!(
            "Informative: {trivial_name} is more than {TRIVIAL_PERCENT:.0} % off. At all {} checked figures the twins have a median \
             deviation of {twins} ({} within 15 %), {trivial_name} {trivial} ({}); {fitted} others determined the parameters.",
            checked.figures, checked.within_15_percent, trivial_checked.within_15_percent
        ))
    }

    /// The summary of these rows.
    pub fn of(rows: &[TwinRow], trivial_name: &str) -> TwinSummary {
        let checked: Vec<&TwinRow> = rows.iter().filter(|row| !row.fitted).collect();
        let informative: Vec<&TwinRow> = checked.iter().copied().filter(|row| row.is_informative()).collect();
        let twins = |rows: &[&TwinRow]| DeviationScore::of(rows.iter().map(|row| row.deviation_percent));
        let trivial = |rows: &[&TwinRow]| {
            DeviationScore::of(rows.iter().map(|row| deviation_percent(row.trivial, row.published)))
        };
        TwinSummary {
            fitted: rows.len() - checked.len(),
            checked: twins(&checked),
            informative: twins(&informative),
            trivial_name: trivial_name.to_owned(),
            trivial_checked: trivial(&checked),
            trivial_informative: trivial(&informative),
        }
    }
}

/// A deviation in percent, without a sign.
fn format_size(percent: f64) -> String {
    if percent.is_finite() { format!("{percent:.1} %") } else { "more than any number".to_owned() }
}

impl DeviationScore {
    /// The score of these deviations. One without a number is the largest.
    fn of(deviations: impl Iterator<Item = Option<f64>>) -> DeviationScore {
        let mut all: Vec<f64> = deviations.map(|percent| percent.unwrap_or(f64::INFINITY)).collect();
        all.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
        let sizes: Vec<f64> = all.iter().map(|percent| percent.abs()).collect();
        DeviationScore {
            figures: all.len(),
            median_percent: stats::median(&sizes),
            worst_percent: all.last().copied(),
            within_15_percent: sizes.iter().filter(|percent| **percent <= GOOD_PERCENT).count(),
        }
    }
}

#[cfg(test)]
mod tests;
