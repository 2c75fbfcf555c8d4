//! The shift between the two sides of a comparison, by the test that fits what is known of them.

use super::{MIN_PAIRS, MIN_REPETITIONS, Pairing, ShiftTest, SideCase};
use crate::metric::Metric;
use crate::run::CaseResult;
use crate::stats::{self, Estimate, Interval};

/// A metric of one side.
pub(super) struct SideFigures {
    /// Values of all repetitions, in order.
    pub(super) values: Vec<f64>,
    /// Number of runs.
    runs: usize,
    /// The middle of the runs with its interval: of few runs by the intervals of all of them, of many by the runs.
    estimate: Option<Estimate>,
}

impl SideFigures {
    pub fn new(side: &SideCase, metric: &Metric) -> SideFigures {
        let values: Vec<f64> =
            side.cases.iter().flat_map(|(_, case)| repetition_values(case, metric)).collect();
        let estimates: Option<Vec<Estimate>> =
            side.cases.iter().map(|(_, case)| estimate(case, metric)).collect();
        let runs = side.cases.len();
        let estimate = match runs < MIN_REPETITIONS {
            true => estimates.and_then(|all| middle(&all)),
            false => stats::median(&values)
                .and_then(|value| Some(Estimate { value, interval: stats::error_interval(value, &values)? })),
        };
        SideFigures { values, runs, estimate }
    }

    /// The figure whose shift this test finds.
    pub(super) fn middle(&self, test: ShiftTest) -> Option<f64> {
        let estimate = self.estimate.filter(|_| test == ShiftTest::Intervals);
        estimate.map(|estimate| estimate.value).or_else(|| stats::median(&self.values))
    }
}

/// The metric in each repetition of a run. The parts of one measurement share its host, processes and minute: together they
/// are one value. So are repetitions that are too short for a figure of all of them.
fn repetition_values(case: &CaseResult, metric: &Metric) -> Vec<f64> {
    let of_each: Vec<f64> = match case.is_split() {
        true => Vec::new(),
        false => case.repeats.iter().filter_map(|part| metric.value_of_part(case, &part.figures)).collect(),
    };
    if of_each.is_empty() { metric.value_of_case(case).into_iter().collect() } else { of_each }
}

/// The middle of a run's repetitions with its interval: that of the document, or else by the repetitions.
fn estimate(case: &CaseResult, metric: &Metric) -> Option<Estimate> {
    let of_case = metric.value_of_case(case)?;
    let values = repetition_values(case, metric);
    let value = stats::median(&values)?;
    let documented = metric.interval_name().and_then(|name| case.figures.intervals.get(&name));
    let interval = match documented {
        // The interval lies around the figure of all samples together, which may differ from the middle of the repetitions.
        Some(Interval { low, high }) if value == of_case => Interval { low: *low, high: *high },
        Some(Interval { low, high }) if of_case > 0.0 => {
            Interval { low: low * value / of_case, high: high * value / of_case }
        }
        _ => stats::run_interval(value, &values)?,
    };
    let interval = Interval { low: interval.low.min(value), high: interval.high.max(value) };
    Some(Estimate { value, interval })
}

/// The mean of estimates; its error is that of one divided by the root of their number.
fn middle(all: &[Estimate]) -> Option<Estimate> {
    let count = all.len() as f64;
    let mean = |get: fn(&Estimate) -> f64| all.iter().map(get).sum::<f64>() / count;
    let value = mean(|one| one.value);
    let (below, above) =
        (mean(|one| one.value - one.interval.low), mean(|one| one.interval.high - one.value));
    let interval = Interval { low: value - below / count.sqrt(), high: value + above / count.sqrt() };
    (!all.is_empty()).then_some(Estimate { value, interval })
}

/// A shift from A to B as one test sees it.
pub(super) struct TestedShift {
    pub(super) test: ShiftTest,
    /// The shift; `None` if a side has no figure.
    pub(super) shift: Option<f64>,
    pub(super) interval: Option<Interval>,
    /// Shift as a share of A, with its interval.
    pub(super) relative: Option<(f64, Option<Interval>)>,
    /// The p-value; `None` for too few repetitions.
    pub(super) p: Option<f64>,
}

/// Tests the shift from `a` to `b`. Repetitions of few runs do not show how much runs differ, so their ranks would find a
/// difference between any two: the intervals decide, where they are known.
pub(super) fn test_shift(a: &SideFigures, b: &SideFigures, pairing: Pairing) -> TestedShift {
    if pairing == Pairing::Interleaved && a.values.len() == b.values.len() {
        return shift_of_pairs(&a.values, &b.values);
    }
    let has_few_runs = a.runs.min(b.runs) < MIN_REPETITIONS;
    if has_few_runs && let (Some(of_a), Some(of_b)) = (a.estimate, b.estimate) {
        let found = of_a.shift_to(of_b);
        let relative = of_a.relative_shift_to(of_b);
        return TestedShift {
            test: ShiftTest::Intervals,
            shift: Some(found.shift),
            interval: Some(found.interval),
            relative: relative
                .map(|relative| (relative.shift, Some(relative.interval)))
                .or_else(|| share_of(found.shift, Some(of_a.value))),
            p: Some(relative.map_or(found.p, |relative| relative.p)),
        };
    }
    let p = (a.values.len().min(b.values.len()) >= MIN_REPETITIONS)
        .then(|| stats::mann_whitney_p(&a.values, &b.values));
    TestedShift {
        p,
        relative: relative_shift(&a.values, &b.values, stats::hodges_lehmann_shift),
        ..TestedShift::of_ranks(ShiftTest::MannWhitney, stats::hodges_lehmann_shift(&a.values, &b.values))
    }
}

fn shift_of_pairs(a: &[f64], b: &[f64]) -> TestedShift {
    let centre = |a: &[f64], b: &[f64]| stats::hodges_lehmann_centre(&differences(a, b));
    TestedShift {
        p: (a.len() >= MIN_PAIRS).then(|| stats::signed_rank_p(&differences(a, b))),
        relative: relative_shift(a, b, centre),
        ..TestedShift::of_ranks(ShiftTest::SignedRank, centre(a, b))
    }
}

/// Differences of pairs of values; 0 for two infinite ones (not reached on either side).
pub(super) fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { b - a }).collect()
}

/// A shift with its interval.
type Shift = (f64, Option<Interval>);

impl TestedShift {
    fn of_ranks(test: ShiftTest, found: Option<Shift>) -> TestedShift {
        let (shift, interval) = found.unzip();
        TestedShift { test, shift, interval: interval.flatten(), relative: None, p: None }
    }
}

/// The shift as a share of A: by the logarithms, so that no interval reaches below −1.
fn relative_shift(a: &[f64], b: &[f64], shift: impl Fn(&[f64], &[f64]) -> Option<Shift>) -> Option<Shift> {
    let is_positive = |value: &&f64| **value > 0.0 && value.is_finite();
    if !a.iter().chain(b).all(|value| is_positive(&value)) {
        return share_of(shift(a, b)?.0, stats::median(a));
    }
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (shift, interval) = shift(&logarithms(a), &logarithms(b))?;
    let share = |interval: Interval| Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() };
    Some((shift.exp_m1(), interval.map(share)))
}

/// A shift as a share of this figure, without an interval. A figure that changes its sign has none.
fn share_of(shift: f64, whole: Option<f64>) -> Option<Shift> {
    let share = shift / whole.filter(|whole| *whole != 0.0)?;
    (share.is_finite() && share >= -1.0).then_some((share, None))
}
