//! The size model: the per-message overhead and the per-byte cost.
//!
//! The model is time = α + β·size, fitted to cases that differ only in message size. α is a time, β is shown as a rate
//! (1/β). α/β is the size that reaches half of that rate: n½ of Hockney and Jesshope, "Parallel Computers", 1981. If
//! the rate of the link is known, it is compared with the slope between the two largest sizes, where α matters least.

use serde::Serialize;
use serde_json::json;

use super::{DeclaredFacts, ExplainError, Finding, Model, ModelInput};
use linkgauge_model::run::Run;
use linkgauge_model::stats::Interval;
use linkgauge_model::stats::fit::{FitPoint, LinearFit, fit_segmented, relative_least_squares, theil_sen};

mod render;
mod sweeps;

pub(crate) use sweeps::{LineLimit, SizeSample};
use sweeps::{LineSource, SizeSweep};

/// The size model in the list of models.
pub(crate) const MODEL: Model = Model {
    name: "size",
    summary: "per-message overhead and per-byte cost",
    explain: |input, declared| SizeModel::fit(input, declared).map(|sizes| sizes.to_finding()),
};

/// Formula of the model, as printed.
const FORMULA: &str = "time of a message = overhead + size ÷ rate";
const CONFIDENCE_LEVEL: f64 = 0.95;
/// A line through two points always fits.
const MIN_SIZES: usize = 3;
/// Tolerance for comparing a slope with the link rate. It covers clock errors, rounded figures and protocol headers.
const LINE_RATE_TOLERANCE: f64 = 0.05;

/// Comparison of the slope between the two largest sizes with the link rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum LineComparison {
    /// Slower than the link rate: the link is not the bottleneck.
    #[serde(rename = "not_the_line")]
    Slower,
    /// Equal to the link rate, within the tolerance: the link is the bottleneck.
    #[serde(rename = "the_line")]
    Equal,
    /// Faster than possible.
    #[serde(rename = "beyond_the_line")]
    Faster,
}

/// A fitted line as quantities. `None` where the data does not support one: α is not above zero, or the per-byte cost
/// may be zero.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MessageCosts {
    /// α: the per-message overhead.
    pub(crate) message_ns: Option<f64>,
    /// β: the per-byte cost.
    pub(crate) byte_ns: f64,
    /// 95 % interval of the per-byte cost.
    pub(crate) byte_ns_interval: Option<Interval>,
    /// 1/β in bit/s.
    pub(crate) rate_bps: Option<f64>,
    /// 95 % interval of the rate.
    pub(crate) rate_bps_interval: Option<Interval>,
    /// α/β (n½): the message size that reaches half of the rate.
    pub(crate) half_performance_bytes: Option<f64>,
}

/// Two lines that fit clearly better than one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Breakpoint {
    /// Largest size on the lower line.
    pub(crate) last_below_bytes: u32,
    /// Smallest size on the upper line.
    pub(crate) first_above_bytes: u32,
    /// Names of reported sizes (of link or interface) between the two.
    pub(crate) between: Vec<String>,
    /// The fit of the sizes below the break.
    pub below: MessageCosts,
    /// The fit of the sizes above the break.
    pub above: MessageCosts,
}

/// A size and the residual there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SizeRow {
    /// The size and the measured time.
    #[serde(flatten)]
    pub(crate) sample: SizeSample,
    /// Fitted time ÷ measured time − 1.
    pub(crate) residual_percent: f64,
}

/// The fitted line of one sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SizeFit {
    /// Table or workload, and which of its sweeps.
    pub(crate) group: String,
    /// The sweep of the group.
    pub name: String,
    /// Rows by increasing size.
    pub(crate) rows: Vec<SizeRow>,
    /// The line through all sizes.
    #[serde(flatten)]
    pub(crate) costs: MessageCosts,
    /// Rate between the two largest sizes, in bit/s; `None` if the larger one took no longer.
    pub(crate) last_rate_bps: Option<f64>,
    /// The link rate, if it is known.
    #[serde(flatten)]
    pub(crate) line_limit: Option<LineLimit>,
    /// `last_rate_bps` as a share of the link rate.
    pub(crate) last_of_line_percent: Option<f64>,
    /// The assessment of that share.
    pub(crate) against_line: Option<LineComparison>,
    /// The slope over all sizes exceeds the link rate, so it is not a per-byte cost.
    pub(crate) beyond_line: bool,
    /// Two lines, if they fit clearly better than one.
    #[serde(rename = "break")]
    pub(crate) segmented: Option<Breakpoint>,
}

/// The finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SizeModel {
    /// The formula of the model, as printed.
    pub(crate) form: &'static str,
    /// Whether the times are those of a study, not of a run.
    pub(crate) published: bool,
    /// One fit for each sweep with enough sizes.
    pub(crate) fits: Vec<SizeFit>,
}

impl MessageCosts {
    /// Converts a line to costs. `shown`: the slope is above zero.
    fn from_line(line: &LinearFit, shown: bool) -> MessageCosts {
        let interval = line.slope_interval;
        let shown = shown && line.slope > 0.0;
        // Bits per second from nanoseconds per byte.
        let rate = |byte_ns: f64| 8e9 / byte_ns;
        let message_ns = Some(line.intercept).filter(|cost| *cost > 0.0);
        MessageCosts {
            message_ns,
            byte_ns: line.slope,
            byte_ns_interval: interval,
            rate_bps: shown.then(|| rate(line.slope)),
            rate_bps_interval: interval
                .filter(|interval| shown && interval.low > 0.0)
                .map(|interval| Interval { low: rate(interval.high), high: rate(interval.low) }),
            half_performance_bytes: message_ns.filter(|_| shown).map(|cost| cost / line.slope),
        }
    }
}

impl SizeFit {
    fn from_sweep(sweep: SizeSweep) -> Option<SizeFit> {
        let mut sizes: Vec<u32> = sweep.samples.iter().map(|measured| measured.message_bytes).collect();
        sizes.dedup();
        let points: Vec<FitPoint> = sweep.samples.iter().map(SizeSample::as_point).collect();
        let line = theil_sen(&points, CONFIDENCE_LEVEL).filter(|_| sizes.len() >= MIN_SIZES)?;
        let costs = MessageCosts::from_line(
            &line,
            has_positive_slope(&line)
                || relative_least_squares(&points, CONFIDENCE_LEVEL)
                    .is_some_and(|line| has_positive_slope(&line)),
        );
        let last_rate_bps = largest_sizes_rate(&points, &sizes);
        let of_line = |rate: Option<f64>| Some(rate? / sweep.line_limit?.line_limit_bps);
        let last = of_line(last_rate_bps);
        let residual =
            |measured: &SizeSample| 100.0 * (line.predict(measured.as_point().0) / measured.time_ns - 1.0);
        Some(SizeFit {
            rows: sweep
                .samples
                .iter()
                .map(|measured| SizeRow { sample: *measured, residual_percent: residual(measured) })
                .collect(),
            last_rate_bps,
            last_of_line_percent: last.map(|share| 100.0 * share),
            against_line: last.map(LineComparison::from_share),
            beyond_line: of_line(costs.rate_bps).is_some_and(|share| share > 1.0 + LINE_RATE_TOLERANCE),
            segmented: fit_segmented(&points, CONFIDENCE_LEVEL).map(|broken| Breakpoint {
                last_below_bytes: broken.break_between.0 as u32,
                first_above_bytes: broken.break_between.1 as u32,
                between: sweep.reported_sizes_between(broken.break_between),
                below: MessageCosts::from_line(&broken.below, has_positive_slope(&broken.below)),
                above: MessageCosts::from_line(&broken.above, has_positive_slope(&broken.above)),
            }),
            group: sweep.group,
            name: sweep.name,
            line_limit: sweep.line_limit,
            costs,
        })
    }
}

impl LineComparison {
    fn from_share(share: f64) -> LineComparison {
        match share {
            share if share > 1.0 + LINE_RATE_TOLERANCE => LineComparison::Faster,
            share if share >= 1.0 - LINE_RATE_TOLERANCE => LineComparison::Equal,
            _ => LineComparison::Slower,
        }
    }
}

/// Whether the whole interval of the slope is above zero.
fn has_positive_slope(line: &LinearFit) -> bool {
    line.slope_interval.is_some_and(|interval| interval.low > 0.0)
}

/// Bits per second between the two largest sizes, each averaged over its points.
fn largest_sizes_rate(points: &[FitPoint], sizes: &[u32]) -> Option<f64> {
    let [.., before, last] = sizes else { return None };
    let mean = |size: u32| {
        let at = points.iter().filter(|point| point.0 == f64::from(size)).map(|point| point.1);
        at.clone().sum::<f64>() / at.count() as f64
    };
    let longer = mean(*last) - mean(*before);
    (longer > 0.0).then(|| 8e9 * f64::from(last - before) / longer)
}

/// Fits the sweeps of a run, in the order of their first cases.
pub(crate) fn fit_run(run: &Run, declared: &DeclaredFacts) -> Vec<SizeFit> {
    sweeps::sweeps_of_run(run, declared).into_iter().filter_map(SizeFit::from_sweep).collect()
}

impl SizeModel {
    /// Fits the sweeps of the input.
    ///
    /// # Errors
    ///
    /// Fails if no sweep has enough sizes, or if the texts of the study are invalid.
    pub(crate) fn fit(input: &ModelInput, declared: &DeclaredFacts) -> Result<SizeModel, ExplainError> {
        let (fits, published): (Vec<SizeFit>, bool) = match input {
            ModelInput::Run(run) => (fit_run(run, declared), false),
            ModelInput::Study(study) => (
                sweeps::sweeps_of_study(study, declared)?
                    .into_iter()
                    .filter_map(SizeFit::from_sweep)
                    .collect(),
                true,
            ),
        };
        match fits.is_empty() {
            true => Err(ExplainError::InsufficientData(format!(
                "at least {MIN_SIZES} message sizes are needed in cases that differ in nothing else"
            ))),
            false => Ok(SizeModel { form: FORMULA, published, fits }),
        }
    }

    fn to_finding(&self) -> Finding {
        Finding { model: MODEL.name, figures: json!(self), summary: self.summary(), blocks: self.blocks() }
    }
}

#[cfg(test)]
mod tests;
