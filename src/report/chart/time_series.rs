//! Time series of a case: rate, round-trip time and losses by interval.

use super::axes::{AxisUnit, linear_axis, y_axis};
use super::{Chart, MAX_CURVE_POINTS, build_chart};
use crate::plan::Direction;
use crate::report::presentation::is_latency;
use crate::report::svg::{Axis, ChartSeries, SeriesKind};
use crate::report::wording::host_and_date;
use crate::run::{CaseResult, Run, SeriesEntry};

/// Fewer intervals do not make a curve.
const MIN_INTERVALS: usize = 4;

/// Groups of intervals to draw as one, so that a screen can show all groups.
fn merge_intervals(case: &CaseResult) -> impl Iterator<Item = &[SeriesEntry]> {
    let together = case.series.len().div_ceil(MAX_CURVE_POINTS).max(1);
    case.series.chunks(together).filter(|_| case.series.len() >= MIN_INTERVALS)
}

fn total_ns(entries: &[SeriesEntry]) -> f64 {
    entries.iter().map(|entry| entry.length_ns as f64).sum()
}

/// In seconds since the start.
fn middle_seconds(entries: &[SeriesEntry]) -> f64 {
    (entries[0].start_ns as f64 + total_ns(entries) / 2.0) / 1e9
}

/// The range of the longest case.
fn time_axis<'a>(cases: impl Iterator<Item = &'a CaseResult>) -> Axis {
    let ends = cases.filter_map(|case| case.series.last());
    let end = ends.map(|last| (last.start_ns as f64 + last.length_ns as f64) / 1e9).fold(0.0, f64::max);
    Axis { high: end, ..linear_axis("time since the start (s)", AxisUnit::Seconds, end) }
}

/// Payload over time: delivered, or for uploads accepted by the sender's system.
pub fn rate_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let only = [(ChartSeries::curve("", vec![]), case)];
    rate_overlay(&format!(" of {}", case.endpoint), host_and_date(run), &only)
}

/// The rates of several cases in one chart. Each replaces a series without points.
pub fn rate_overlay(of: &str, caption: String, cases: &[(ChartSeries, &CaseResult)]) -> Option<Chart> {
    let series: Vec<ChartSeries> = cases
        .iter()
        .filter(|(_, case)| !is_latency(case))
        .map(|(series, case)| ChartSeries { points: rate_points(case), ..series.clone() })
        .collect();
    let most = series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(1.0, f64::max);
    let is_sent =
        |(_, case): &(ChartSeries, &CaseResult)| is_latency(case) || case.direction == Direction::Send;
    let label = if cases.iter().all(is_sent) { "sent payload" } else { "delivered payload" };
    let y = linear_axis(label, AxisUnit::BitsPerSecond, most);
    let x = time_axis(cases.iter().map(|(_, case)| *case));
    build_chart("Rate over time", of, caption, [&x, &y], series)
}

fn rate_points(case: &CaseResult) -> Vec<(f64, f64)> {
    let point = |entries: &[SeriesEntry]| {
        let bytes: f64 = entries.iter().map(|entry| entry.bytes as f64).sum();
        let rate = bytes * 8e9 / total_ns(entries);
        (total_ns(entries) > 0.0 && rate.is_finite()).then_some((middle_seconds(entries), rate))
    };
    merge_intervals(case).filter_map(point).collect()
}

/// Mean and maximum round trip over time, and the times of losses.
pub fn latency_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    if !is_latency(case) {
        return None;
    }
    let longest = |entries: &[SeriesEntry]| {
        let longest = entries.iter().filter_map(|entry| entry.latency_max_ns).max()?;
        Some((middle_seconds(entries), longest as f64))
    };
    let mut series = vec![
        ChartSeries::curve("mean of the interval", mean_points(case)),
        ChartSeries::curve("longest of the interval", merge_intervals(case).filter_map(longest).collect()),
    ];
    let y = y_axis("round-trip time", AxisUnit::Nanoseconds, &mut series);
    // At the upper edge, because a lost request ranks slowest.
    let losses = merge_intervals(case).filter(|entries| entries.iter().any(|entry| entry.lost > 0));
    let losses: Vec<(f64, f64)> = losses.map(|entries| (middle_seconds(entries), y.high)).collect();
    if !losses.is_empty() {
        series.push(ChartSeries {
            kind: SeriesKind::Event,
            dots: losses,
            ..ChartSeries::curve("lost requests", vec![])
        });
    }
    if series[0].points.len() < MIN_INTERVALS {
        return None;
    }
    let (x, of) = (time_axis(std::iter::once(case)), format!(" of {}", case.endpoint));
    build_chart("Round-trip time over time", &of, host_and_date(run), [&x, &y], series)
}

/// Mean round trips of several cases in one chart. Each replaces a series without points.
pub fn latency_overlay(of: &str, caption: String, cases: &[(ChartSeries, &CaseResult)]) -> Option<Chart> {
    let mut series: Vec<ChartSeries> = cases
        .iter()
        .filter(|(_, case)| is_latency(case))
        .map(|(series, case)| ChartSeries { points: mean_points(case), ..series.clone() })
        .collect();
    let y = y_axis("round-trip time, mean of the interval", AxisUnit::Nanoseconds, &mut series);
    let x = time_axis(cases.iter().map(|(_, case)| *case));
    build_chart("Round-trip time over time", of, caption, [&x, &y], series)
}

fn mean_points(case: &CaseResult) -> Vec<(f64, f64)> {
    let mean = |entries: &[SeriesEntry]| {
        let answered = || entries.iter().filter(|entry| entry.latency_mean_ns.is_some());
        let messages: f64 = answered().map(|entry| entry.messages as f64).sum();
        let sum: f64 =
            answered().filter_map(|entry| Some(entry.latency_mean_ns? * entry.messages as f64)).sum();
        (messages > 0.0 && sum.is_finite()).then(|| (middle_seconds(entries), sum / messages))
    };
    merge_intervals(case).filter_map(mean).collect()
}
