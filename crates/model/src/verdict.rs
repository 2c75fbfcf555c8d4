//! Verdicts on two runs or two sets of runs, case by case: worse, better, unchanged, or not decidable.
//!
//! Thresholds are in `metric`. A few runs are compared by their intervals, which hold how much runs differ; many runs, and
//! interleaved repetitions, by their ranks. Samples within a run depend on each other and would make every difference
//! significant.

mod path_change;
mod sensitivity;
mod shift;
mod usual;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::metric::{Metric, MetricUnit};
use crate::plan::Direction;
use crate::run::{CaseResult, Run, Warning, WarningCode};
use crate::stats::{self, Interval};
use crate::units::format_bytes;

pub use sensitivity::{Sensitivity, case_sensitivity};
use sensitivity::{sensitivity, sensitivity_of_pairs};
use shift::{SideFigures, TestedShift, test_shift};
pub use usual::{correct_intervals, unusual};

/// Minimum number of values per side: with 3 and 3 even the clearest difference has p = 0.1.
pub const MIN_REPETITIONS: usize = 4;
/// Minimum number of pairs: with 5 even the clearest difference has p = 0.06.
pub const MIN_PAIRS: usize = 6;
/// A difference is shown if its p-value is below this.
pub const SIGNIFICANCE_LEVEL: f64 = 0.05;
/// Default margin: smaller differences, as a share of the median of A, do not matter.
pub(crate) const DEFAULT_MARGIN: f64 = 0.05;

/// Metrics to compare and the criteria.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Minimum difference as a share of the median of A; 0 or more.
    pub margin: f64,
    /// Metrics to compare. Empty: the median of a latency; the rate, the added latency and the share of lost messages of a
    /// transfer.
    pub metrics: Vec<Metric>,
    /// Whether to compare figures despite different measuring methods.
    pub force: bool,
    /// Relation between the repetitions of both sides.
    pub pairing: Pairing,
}

/// Relation between the repetitions of two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairing {
    /// Independent, as the values of two runs.
    #[default]
    Independent,
    /// Interleaved: each repetition of A was measured next to the repetition of B with the same number.
    Interleaved,
}

/// The test of a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShiftTest {
    /// Test of two independent lists.
    MannWhitney,
    /// Test of the differences of pairs.
    SignedRank,
    /// Comparison of two figures with their intervals.
    Intervals,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions {
            margin: DEFAULT_MARGIN,
            metrics: Vec::new(),
            force: false,
            pairing: Pairing::Independent,
        }
    }
}

/// Error of two sets that cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The difference between the two most similar cases.
    #[error(
        "no case in common: the most similar cases differ in {0}. Try runs of one case: 'linkgauge history' lists them"
    )]
    NothingInCommon(String),
    /// The case was measured by different methods.
    #[error("{case}: measured in different ways ({ways}): compare runs of one method, or use --force")]
    Methods {
        /// The endpoint of the case.
        case: String,
        /// The methods of both sides.
        ways: String,
    },
}

/// The result for one metric of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// B is worse: the shift is significant and larger than the margin.
    Worse,
    /// B is better: the shift is significant and larger than the margin.
    Better,
    /// The interval of the shift lies within the margin.
    Unchanged,
    /// The shift is not shown to matter, and not shown to be within the margin; or it has no interval.
    NotDecidable,
    /// The figure is missing on one side or both.
    NotMeasured,
}

impl Verdict {
    /// The verdict as printed.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::Better => "better",
            Verdict::Unchanged => "unchanged",
            Verdict::NotDecidable => "not decidable",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// One metric of one case. Values are in the metric's unit. A value that was not reached is infinite (`null` in JSON).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The case of A, and the case of B if its endpoint differs.
    pub case: CaseKey,
    /// The case of B, if its endpoint differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case_b: Option<CaseKey>,
    /// Name of the metric, as in [`crate::metric::list_metrics`].
    pub metric: String,
    /// Unit of the metric's values.
    #[serde(skip)]
    pub unit: Option<MetricUnit>,
    /// The result for this metric.
    pub verdict: Verdict,
    /// The repetitions of A.
    pub a: SideSummary,
    /// The repetitions of B.
    pub b: SideSummary,
    /// Difference by which the values of B are larger (Hodges–Lehmann).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shift: Option<f64>,
    /// 95 % interval of the shift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shift_interval: Option<Interval>,
    /// The largest shift that does not matter, in the metric's unit: the margin, as a share of A's median; of an added latency, of
    /// A's whole round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerated_shift: Option<f64>,
    /// Whether the figure is unchanged by the unit, not by the share: a small latency may grow by a large share that does not
    /// matter.
    #[serde(skip)]
    pub is_shown_in_units: bool,
    /// The shift as a share of the median of A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_shift: Option<f64>,
    /// 95 % interval of the relative shift; at least −1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_shift_interval: Option<Interval>,
    /// p-value of the two-sided test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The test. Interleaved repetitions are paired only if both sides have the same number.
    pub test: ShiftTest,
    /// The smallest change that such repetitions show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Sensitivity>,
}

/// The repetitions of one side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideSummary {
    /// Repetitions that have the figure.
    pub repetitions: usize,
    /// Median of the repetitions, in the metric's unit; `None` without repetitions. Where intervals decide, the mean of that of
    /// the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
}

/// The properties that identify a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseKey {
    /// The endpoint, as typed.
    pub endpoint: String,
    /// Name of the workload.
    pub workload: String,
    /// Direction of the payload.
    pub direction: Direction,
    /// Payload bytes of one message.
    pub message_bytes: u32,
    /// Number of endpoints used at once.
    pub ports: u32,
    /// Connections to each endpoint.
    pub parallel: u32,
    /// Settings, like `100/s`, `busy-poll`; often empty.
    pub settings: String,
}

impl CaseKey {
    fn from_case(case: &CaseResult) -> CaseKey {
        CaseKey {
            endpoint: case.endpoint.clone(),
            workload: case.workload.clone(),
            direction: case.direction,
            message_bytes: case.message_bytes,
            ports: case.ports,
            parallel: case.parallel,
            settings: case.settings_label(),
        }
    }

    /// The key without its endpoint.
    fn without_endpoint(&self) -> CaseKey {
        CaseKey { endpoint: String::new(), ..self.clone() }
    }
}

/// The differing properties of two cases, with both values.
fn differences(a: &CaseKey, b: &CaseKey) -> Vec<String> {
    let text = |value: &str| if value.is_empty() { "none".to_owned() } else { value.to_owned() };
    let both = [
        ("endpoint", text(&a.endpoint), text(&b.endpoint)),
        ("workload", text(&a.workload), text(&b.workload)),
        ("direction", text(a.direction.name()), text(b.direction.name())),
        ("message size", format_bytes(a.message_bytes.into()), format_bytes(b.message_bytes.into())),
        ("ports", a.ports.to_string(), b.ports.to_string()),
        ("connections", a.parallel.to_string(), b.parallel.to_string()),
        ("settings", text(&a.settings), text(&b.settings)),
    ];
    let differ = both.into_iter().filter(|(_, a, b)| a != b);
    differ.map(|(what, a, b)| format!("{what} ({a}, {b})")).collect()
}

/// The differences between the most similar cases of two sides.
fn closest_difference(a: &[CaseKey], b: &[CaseKey]) -> String {
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| differences(a, b)));
    let least = pairs.min_by_key(Vec::len);
    least.map_or("everything: one of them has no case".to_owned(), |differences| differences.join(", "))
}

/// The whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    /// Name of the JSON schema.
    pub schema: &'static str,
    /// Ids of the runs of A.
    pub a: Vec<String>,
    /// Ids of the runs of B.
    pub b: Vec<String>,
    /// Minimum difference as a share of the median of A.
    pub margin: f64,
    /// The compared metrics, case by case.
    pub cases: Vec<MetricComparison>,
    /// Cases of A that B lacks.
    pub only_a: Vec<CaseKey>,
    /// Cases of B that A lacks.
    pub only_b: Vec<CaseKey>,
    /// Reasons to doubt the comparison.
    pub warnings: Vec<Warning>,
}

/// Schema of the comparison's JSON.
const SCHEMA: &str = "linkgauge.compare.v1";

impl RunComparison {
    /// Whether a metric of any case has this verdict.
    pub fn has_verdict(&self, verdict: Verdict) -> bool {
        self.cases.iter().any(|compared| compared.verdict == verdict)
    }
}

/// One case of one side in all its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SideCase<'a> {
    /// The properties that identify the case.
    pub name: CaseKey,
    /// The measuring method.
    pub(crate) method: String,
    /// Each result with the index of its run in the side, from 0.
    pub cases: Vec<(usize, &'a CaseResult)>,
}

/// A case that several sides have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedCase<'a> {
    /// Results of the sides, one entry per side, at least one of them `Some`.
    pub sides: Vec<Option<SideCase<'a>>>,
}

impl<'a> MatchedCase<'a> {
    /// The first side that has the case. It names the case.
    pub fn first(&self) -> &SideCase<'a> {
        self.sides.iter().flatten().next().expect("one side has the case")
    }
}

/// The distinct cases of a side, in order of appearance.
fn distinct_cases(runs: &[Run]) -> Vec<SideCase<'_>> {
    let mut all: Vec<SideCase> = Vec::new();
    let cases =
        runs.iter().enumerate().flat_map(|(index, run)| run.cases.iter().map(move |case| (index, case)));
    for (run, case) in cases {
        let (name, way) =
            (CaseKey::from_case(case), format!("{} with protocol {}", case.method, case.protocol));
        match all.iter_mut().find(|found| found.name == name && found.method == way) {
            Some(found) => found.cases.push((run, case)),
            None => all.push(SideCase { name, method: way, cases: vec![(run, case)] }),
        }
    }
    all
}

/// Compares B with A.
///
/// # Errors
///
/// Fails if the runs have no case in common, or if a case was measured by different methods and `force` is not
/// set.
pub fn compare(a: &[Run], b: &[Run], options: &CompareOptions) -> Result<RunComparison, CompareError> {
    let (mut pairs, mut only_a, mut only_b) = (Vec::new(), Vec::new(), Vec::new());
    for case in match_cases(&[a, b]) {
        match <[Option<SideCase>; 2]>::try_from(case.sides).expect("two sides") {
            [Some(a), Some(b)] => pairs.push((a, b)),
            [a, b] => {
                only_a.extend(a.map(|found| found.name));
                only_b.extend(b.map(|found| found.name));
            }
        }
    }
    if pairs.is_empty() {
        return Err(CompareError::NothingInCommon(closest_difference(&only_a, &only_b)));
    }
    let mut warnings = machine_warnings(a, b);
    let mut cases = Vec::new();
    for (a, b) in &pairs {
        if a.method != b.method {
            let ways = format!("{}, {}", a.method, b.method);
            let case = a.name.endpoint.clone();
            if !options.force {
                return Err(CompareError::Methods { case, ways });
            }
            let text = format!("{case}: measured in different ways ({ways})");
            warnings.push(Warning::new(WarningCode::DifferentMethods, text, "measure both in the same way"));
        }
        warnings.extend(path_change::path_change(a, b));
        let metrics = match &options.metrics[..] {
            [] => default_metrics(a, b),
            named => named.to_vec(),
        };
        cases.extend(compare_metrics(a, b, &metrics, options));
    }
    let ids = |runs: &[Run]| runs.iter().map(|run| run.id.clone()).collect();
    Ok(RunComparison {
        schema: SCHEMA,
        a: ids(a),
        b: ids(b),
        margin: options.margin,
        cases,
        only_a,
        only_b,
        warnings,
    })
}

/// The cases of all sides, in order of appearance. Identical cases match first; then cases with another measuring
/// method; then cases at another endpoint, in order, because the same plan may run against another host.
pub fn match_cases<'a>(sides: &[&'a [Run]]) -> Vec<MatchedCase<'a>> {
    const LIKE: [fn(&SideCase, &SideCase) -> bool; 3] = [
        |a, b| a.name == b.name && a.method == b.method,
        |a, b| a.name == b.name,
        |a, b| a.name.without_endpoint() == b.name.without_endpoint(),
    ];
    let mut all: Vec<MatchedCase> = Vec::new();
    for (before, runs) in sides.iter().enumerate() {
        let mut left = distinct_cases(runs);
        for like in LIKE {
            for one in all.iter_mut().filter(|one| one.sides.len() == before) {
                if let Some(index) = left.iter().position(|other| like(one.first(), other)) {
                    one.sides.push(Some(left.remove(index)));
                }
            }
        }
        for one in &mut all {
            one.sides.resize(before + 1, None);
        }
        let new = |found| MatchedCase { sides: [vec![None; before], vec![Some(found)]].concat() };
        all.extend(left.into_iter().map(new));
    }
    all
}

fn machine_warnings(a: &[Run], b: &[Run]) -> Vec<Warning> {
    const FACTS: [&str; 4] = ["hostname", "cpu_model", "kernel_release", "cpus_online"];
    let mut warnings = Vec::new();
    for fact in FACTS {
        let values = |runs: &[Run]| -> BTreeSet<String> {
            let value =
                |run: &Run| run.environment.client.get(fact).map(|value| value.to_string().replace('"', ""));
            runs.iter().map(|run| value(run).unwrap_or_else(|| "unknown".to_owned())).collect()
        };
        let (ours, theirs) = (values(a), values(b));
        if ours != theirs {
            let list = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
            let text = format!("{fact} differs: {} and {}", list(ours), list(theirs));
            let remedy = "a difference may be the machine's: measure both on one, in turn (linkgauge ab)";
            warnings.push(Warning::new(WarningCode::DifferentMachines, text, remedy));
        }
    }
    warnings
}

/// The headline figure of a case, and for a transfer the latency that it adds and the share that it loses, where both sides have
/// them.
fn default_metrics(a: &SideCase, b: &SideCase) -> Vec<Metric> {
    let (first, other) = (a.cases[0].1, b.cases[0].1);
    let mut metrics = vec![Metric::headline(first)];
    if first.workload == "throughput" {
        let [added, loss] =
            ["added_p50", "loss"].map(|name| name.parse::<Metric>().expect("a name of the list"));
        let values = |metric: &Metric| Some((metric.value_of_case(first)?, metric.value_of_case(other)?));
        metrics.extend(values(&added).map(|_| added));
        let is_lossy = values(&loss).is_some_and(|(a, b)| a > 0.0 || b > 0.0);
        metrics.extend(is_lossy.then_some(loss));
    }
    metrics
}

/// The p-values of the metrics of one case, corrected for their number: so that they hold together (Holm). Of so few repetitions that no
/// corrected value could show anything, all metrics are tested at once.
fn adjusted_p(tested: &[(SideFigures, SideFigures, TestedShift)]) -> Vec<Option<f64>> {
    let known: Vec<_> = tested.iter().filter(|(_, _, tested)| tested.p.is_some()).collect();
    let shows_nothing = |least: f64| known.len() as f64 * least >= SIGNIFICANCE_LEVEL;
    let together = match known.first() {
        Some((a, b, first)) if known.iter().all(|(_, _, other)| other.test == first.test) => match first.test
        {
            ShiftTest::MannWhitney
                if shows_nothing(stats::least_p_of_lists(a.values.len(), b.values.len())) =>
            {
                let lists: Vec<_> = known.iter().map(|(a, b, _)| (&a.values[..], &b.values[..])).collect();
                stats::joint_p_of_lists(&lists)
            }
            ShiftTest::SignedRank if shows_nothing(stats::least_p_of_pairs(a.values.len())) => {
                let pairs: Vec<_> =
                    known.iter().map(|(a, b, _)| shift::differences(&a.values, &b.values)).collect();
                stats::joint_p_of_pairs(&pairs.iter().map(Vec::as_slice).collect::<Vec<_>>())
            }
            _ => None,
        },
        _ => None,
    };
    let of_each: Vec<f64> = known.iter().filter_map(|(_, _, tested)| tested.p).collect();
    let mut adjusted = together.unwrap_or_else(|| stats::holm_adjusted(&of_each)).into_iter();
    tested.iter().map(|(_, _, tested)| tested.p.and_then(|_| adjusted.next())).collect()
}

/// Compares metrics of one case. Their p-values are corrected for their number.
fn compare_metrics(
    a: &SideCase,
    b: &SideCase,
    metrics: &[Metric],
    options: &CompareOptions,
) -> Vec<MetricComparison> {
    let tested: Vec<(SideFigures, SideFigures, TestedShift)> = metrics
        .iter()
        .map(|metric| {
            let [of_a, of_b] = [a, b].map(|side| SideFigures::new(side, metric));
            let tested = test_shift(&of_a, &of_b, options.pairing);
            (of_a, of_b, tested)
        })
        .collect();
    let adjusted = adjusted_p(&tested);
    let compared = metrics.iter().zip(tested).zip(adjusted).map(|((metric, (of_a, of_b, tested)), p)| {
        let tested = TestedShift { p, ..tested };
        let middle = |of: &SideFigures| of.middle(tested.test);
        // A change from a value that was not reached always matters.
        let scale =
            middle(&of_a).filter(|middle| middle.is_finite()).unwrap_or(0.0) + base_of_added(metric, a);
        let tolerated = options.margin * scale;
        let verdict = verdict_of(&tested, metric, tolerated, options.margin);
        let sensitivity = match tested.test {
            ShiftTest::SignedRank => sensitivity_of_pairs(&of_a.values, &of_b.values),
            ShiftTest::MannWhitney => sensitivity(&[&of_a.values, &of_b.values]),
            // The interval of the shift says it.
            ShiftTest::Intervals => None,
        };
        let side = |of: &SideFigures| SideSummary { repetitions: of.values.len(), median: middle(of) };
        MetricComparison {
            case: a.name.clone(),
            case_b: (a.name != b.name).then(|| b.name.clone()),
            metric: metric.name().to_owned(),
            unit: Some(metric.unit()),
            verdict,
            a: side(&of_a),
            b: side(&of_b),
            shift: tested.shift,
            shift_interval: tested.interval,
            is_shown_in_units: verdict == Verdict::Unchanged && !is_within_share(&tested, options.margin),
            tolerated_shift: Some(tolerated).filter(|_| tested.shift.is_some()),
            relative_shift: tested.relative.map(|(shift, _)| shift),
            relative_shift_interval: tested.relative.and_then(|(_, interval)| interval),
            p: tested.p,
            test: tested.test,
            sensitivity,
        }
    });
    compared.collect()
}

/// The begin of the names of added latencies.
const ADDED: &str = "added_";

/// An added latency matters beside the whole round trip: this is the rest of it, of side A.
fn base_of_added(metric: &Metric, a: &SideCase) -> f64 {
    let idle = |case: &CaseResult| Some(case.figures.added_latency?.idle_p50_ns);
    if metric.name().starts_with(ADDED) { idle(a.cases[0].1).unwrap_or(0.0) } else { 0.0 }
}

/// The verdict on a shift. Those of at most `tolerated`, in the metric's unit, or of the share `margin`, do not matter.
fn verdict_of(tested: &TestedShift, metric: &Metric, tolerated: f64, margin: f64) -> Verdict {
    let Some(shift) = tested.shift else { return Verdict::NotMeasured };
    match tested.p {
        Some(p) if p < SIGNIFICANCE_LEVEL && shift.abs() > tolerated => {
            if (shift > 0.0) == metric.is_higher_better() { Verdict::Better } else { Verdict::Worse }
        }
        Some(_) if is_within_share(tested, margin) => Verdict::Unchanged,
        // The interval of a share decides where there is one, except for a latency that matters beside another time.
        Some(_)
            if (!has_share_interval(tested) || metric.name().starts_with(ADDED))
                && is_within(tested.interval, tolerated) =>
        {
            Verdict::Unchanged
        }
        _ => Verdict::NotDecidable,
    }
}

/// Whether the interval of a shift ends at this distance from zero, or before.
fn is_within(interval: Option<Interval>, most: f64) -> bool {
    interval.is_some_and(|interval| interval.low >= -most && interval.high <= most)
}

fn has_share_interval(tested: &TestedShift) -> bool {
    tested.relative.is_some_and(|(_, interval)| interval.is_some())
}

fn is_within_share(tested: &TestedShift, margin: f64) -> bool {
    is_within(tested.relative.and_then(|(_, interval)| interval), margin)
}

#[cfg(test)]
mod tests;
