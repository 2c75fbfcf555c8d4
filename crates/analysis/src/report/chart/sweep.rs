//! Rate by message size and by line rate, with the capacity of the line.

use super::axes::{AxisUnit, linear_axis, log_axis_with_ticks, y_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::presentation::is_latency;
use crate::report::svg::{ChartSeries, SeriesKind};
use crate::report::wording::{host_and_date, line_limit_bps, line_rate_bps, shorten, wait_mode};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::{CaseResult, Run};

/// Minimum number of points of a chart; fewer are clearer in the table.
const MIN_SWEEP_POINTS: usize = 3;

/// One curve for each endpoint, protocol, direction and number of ports that has several sizes.
pub(crate) fn size_chart(run: &Run, workload: &str) -> Option<Chart> {
    size_sweep(&named_cases(run, workload)).into_chart("", host_and_date(run))
}

/// A case, and the endpoint that names it.
pub(crate) type NamedCase<'a> = (&'a str, &'a CaseResult);

fn named_cases<'a>(run: &'a Run, workload: &str) -> Vec<NamedCase<'a>> {
    let cases = run.cases.iter().filter(|case| case.workload == workload);
    cases.map(|case| (case.endpoint.as_str(), case)).collect()
}

pub(crate) fn size_sweep(cases: &[NamedCase]) -> SweepChart {
    let place = |endpoint: &str| shorten(endpoint, 48);
    SweepChart::collect_cases(SweepVariable::Size, cases, &place, |case| Some(f64::from(case.message_bytes)))
}

/// One curve for each kind of line that was measured at several rates.
pub(crate) fn line_rate_chart(run: &Run, workload: &str) -> Option<Chart> {
    line_rate_sweep(&named_cases(run, workload)).into_chart("", host_and_date(run))
}

pub(crate) fn line_rate_sweep(cases: &[NamedCase]) -> SweepChart {
    // The options of a URL contain the line rate. Without them one kind of line is one curve.
    let place = |endpoint: &str| {
        let place = endpoint.split('?').next().unwrap_or_default();
        shorten(place.split_once("://").map_or(place, |(scheme, _)| scheme), 48)
    };
    SweepChart::collect_cases(SweepVariable::LineRate, cases, &place, |case| {
        line_rate_bps(case).filter(|_| case.ports > 0)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepVariable {
    Size,
    LineRate,
}

impl SweepVariable {
    fn title_and_axis(self) -> (&'static str, &'static str, AxisUnit) {
        match self {
            SweepVariable::Size => ("Rate by message size", "message size", AxisUnit::Bytes),
            SweepVariable::LineRate => ("Rate by the rate of the line", "rate of the line", AxisUnit::Baud),
        }
    }
}

/// One series for each kind of case, not scaled yet.
pub(crate) struct SweepChart {
    variable: SweepVariable,
    pub series: Vec<ChartSeries>,
    /// Capacities of the lines, each with the label of its series.
    limits: Vec<(String, (f64, f64))>,
}

impl SweepChart {
    fn collect_cases(
        swept: SweepVariable,
        cases: &[NamedCase],
        place: &dyn Fn(&str) -> String,
        value: impl Fn(&CaseResult) -> Option<f64>,
    ) -> SweepChart {
        let mut series: Vec<ChartSeries> = Vec::new();
        let mut limits: Vec<(String, (f64, f64))> = Vec::new();
        let mut add = |label: String, at: f64, rate: Option<f64>| {
            let Some(rate) = rate.filter(|rate| rate.is_finite() && *rate >= 0.0 && at > 0.0) else { return };
            match series.iter_mut().find(|one| one.label == label) {
                Some(one) => one.points.push((at, rate)),
                None => series.push(ChartSeries::curve(&label, vec![(at, rate)])),
            }
        };
        for (endpoint, case) in cases.iter().filter(|(_, case)| !is_latency(case)) {
            let Some(at) = value(case) else { continue };
            let ports = if case.ports > 1 { format!(", {} ports", case.ports) } else { String::new() };
            let wait = if wait_mode(case) == WaitMode::BusyPoll { ", busy-poll" } else { "" };
            let parallel = if case.parallel > 1 { format!(" × {}", case.parallel) } else { String::new() };
            let label = format!(
                "{}{wait}{ports}{parallel}, {}, {}",
                place(endpoint),
                case.protocol,
                case.direction.name()
            );
            add(label.clone(), at, case.figures.delivery.throughput_bps);
            add(format!("{label}, other direction"), at, case.figures.delivery.throughput_reverse_bps);
            if let Some(limit) = line_limit_bps(case).filter(|limit| limit.is_finite() && *limit > 0.0) {
                limits.push((label, (at, limit)));
            }
        }
        for one in &mut series {
            one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            one.points.dedup_by(|a, b| a.0 == b.0);
            one.dots = one.points.clone();
        }
        series.retain(|one| one.points.len() >= MIN_SWEEP_POINTS);
        limits.retain(|(label, _)| series.iter().any(|one| one.label == *label));
        SweepChart { variable: swept, series, limits }
    }

    /// Splits the chart into one sweep per series, with its label.
    pub(crate) fn split_by_series(self) -> impl Iterator<Item = (String, SweepChart)> {
        self.series.into_iter().map(move |one| {
            let limits = self.limits.iter().filter(|(label, _)| *label == one.label).cloned().collect();
            (one.label.clone(), SweepChart { variable: self.variable, series: vec![one], limits })
        })
    }

    /// Adds the same sweep of another run.
    pub(crate) fn merge(&mut self, other: SweepChart) {
        self.series.extend(other.series);
        self.limits.extend(other.limits);
    }

    pub(crate) fn into_chart(mut self, of: &str, caption: String) -> Option<Chart> {
        let (title, label, unit) = self.variable.title_and_axis();
        let mut limits: Vec<(f64, f64)> = self.limits.into_iter().map(|(_, limit)| limit).collect();
        limits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        limits.dedup_by(|a, b| a.0 == b.0);
        if limits.len() > 1 {
            let curve = ChartSeries::curve("maximum of the line", limits);
            self.series.push(ChartSeries { kind: SeriesKind::Limit, ..curve });
        }
        let values = self.series.iter().flat_map(|one| &one.points).map(|point| point.0);
        let x = log_axis_with_ticks(label, unit, values)?;
        for one in &mut self.series {
            one.points
                .iter_mut()
                .chain(&mut one.dots)
                .for_each(|point| point.0 = AxisUnit::Bytes.log_position(point.0));
        }
        let on_lines = self.series.iter().any(|one| one.kind == SeriesKind::Limit);
        let most = self.series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(1.0, f64::max);
        let y = match on_lines {
            true => y_axis("delivered payload", AxisUnit::BitsPerSecond, &mut self.series),
            false => linear_axis("delivered payload", AxisUnit::BitsPerSecond, most),
        };
        build_chart(ChartText { title, of, caption }, &x, y, self.series)
    }
}
