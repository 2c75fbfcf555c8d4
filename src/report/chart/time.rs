//! What happened in the course of a case: rate, round-trip time, losses, interval by interval.

use super::axes::{Unit, linear, upright};
use super::{Chart, MOST_POINTS, chart};
use crate::plan::Direction;
use crate::report::svg::{Axis, Kind, Series};
use crate::report::table::is_latency;
use crate::report::words::host_and_date;
use crate::run::{CaseResult, Run, SeriesEntry};

/// A time series of fewer intervals is no curve.
const LEAST_INTERVALS: usize = 4;

/// Intervals that are drawn as one, so that there are no more than a screen can show.
fn drawn(case: &CaseResult) -> impl Iterator<Item = &[SeriesEntry]> {
    let together = case.series.len().div_ceil(MOST_POINTS).max(1);
    case.series.chunks(together).filter(|_| case.series.len() >= LEAST_INTERVALS)
}

fn length(entries: &[SeriesEntry]) -> f64 {
    entries.iter().map(|entry| entry.length_ns as f64).sum()
}

/// In seconds since the start.
fn middle(entries: &[SeriesEntry]) -> f64 {
    (entries[0].start_ns as f64 + length(entries) / 2.0) / 1e9
}

/// As long as the longest of the cases.
fn axis<'a>(cases: impl Iterator<Item = &'a CaseResult>) -> Axis {
    let ends = cases.filter_map(|case| case.series.last());
    let end = ends.map(|last| (last.start_ns as f64 + last.length_ns as f64) / 1e9).fold(0.0, f64::max);
    Axis { high: end, ..linear("time since the start (s)", Unit::Seconds, end) }
}

/// Payload over time: delivered, but in direction send what the sender's system took.
pub fn rate(run: &Run, case: &CaseResult) -> Option<Chart> {
    let only = [(Series::curve("", vec![]), case)];
    rates(&format!(" of {}", case.endpoint), host_and_date(run), &only)
}

/// That of several cases over each other, each in the place of a series without points.
pub fn rates(of: &str, caption: String, cases: &[(Series, &CaseResult)]) -> Option<Chart> {
    let series: Vec<Series> = cases
        .iter()
        .filter(|(_, case)| !is_latency(case))
        .map(|(series, case)| Series { points: rates_of(case), ..series.clone() })
        .collect();
    let most = series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(1.0, f64::max);
    let is_sent = |(_, case): &(Series, &CaseResult)| is_latency(case) || case.direction == Direction::Send;
    let label = if cases.iter().all(is_sent) { "sent payload" } else { "delivered payload" };
    let y = linear(label, Unit::BitsPerSecond, most);
    chart("Rate over time", of, caption, &axis(cases.iter().map(|(_, case)| *case)), &y, series)
}

fn rates_of(case: &CaseResult) -> Vec<(f64, f64)> {
    let point = |entries: &[SeriesEntry]| {
        let bytes: f64 = entries.iter().map(|entry| entry.bytes as f64).sum();
        let rate = bytes * 8e9 / length(entries);
        (length(entries) > 0.0 && rate.is_finite()).then_some((middle(entries), rate))
    };
    drawn(case).filter_map(point).collect()
}

/// Mean and longest round trip over time, and when exchanges were lost.
pub fn latency(run: &Run, case: &CaseResult) -> Option<Chart> {
    if !is_latency(case) {
        return None;
    }
    let longest = |entries: &[SeriesEntry]| {
        let longest = entries.iter().filter_map(|entry| entry.latency_max_ns).max()?;
        Some((middle(entries), longest as f64))
    };
    let mut series = vec![
        Series::curve("mean of the interval", means_of(case)),
        Series::curve("longest of the interval", drawn(case).filter_map(longest).collect()),
    ];
    let y = upright("round-trip time", Unit::Nanoseconds, &mut series);
    // Along the upper edge: a lost exchange is later than everything.
    let losses = drawn(case).filter(|entries| entries.iter().any(|entry| entry.lost > 0));
    let losses: Vec<(f64, f64)> = losses.map(|entries| (middle(entries), y.high)).collect();
    if !losses.is_empty() {
        series.push(Series { kind: Kind::Event, dots: losses, ..Series::curve("exchanges lost", vec![]) });
    }
    if series[0].points.len() < LEAST_INTERVALS {
        return None;
    }
    let (x, of) = (axis(std::iter::once(case)), format!(" of {}", case.endpoint));
    chart("Round-trip time over time", &of, host_and_date(run), &x, &y, series)
}

/// Mean round trips of several cases over each other, each in the place of a series without points.
pub fn means(of: &str, caption: String, cases: &[(Series, &CaseResult)]) -> Option<Chart> {
    let mut series: Vec<Series> = cases
        .iter()
        .filter(|(_, case)| is_latency(case))
        .map(|(series, case)| Series { points: means_of(case), ..series.clone() })
        .collect();
    let y = upright("round-trip time, mean of the interval", Unit::Nanoseconds, &mut series);
    let x = axis(cases.iter().map(|(_, case)| *case));
    chart("Round-trip time over time", of, caption, &x, &y, series)
}

fn means_of(case: &CaseResult) -> Vec<(f64, f64)> {
    let mean = |entries: &[SeriesEntry]| {
        let answered = || entries.iter().filter(|entry| entry.latency_mean_ns.is_some());
        let messages: f64 = answered().map(|entry| entry.messages as f64).sum();
        let sum: f64 =
            answered().filter_map(|entry| Some(entry.latency_mean_ns? * entry.messages as f64)).sum();
        (messages > 0.0 && sum.is_finite()).then(|| (middle(entries), sum / messages))
    };
    drawn(case).filter_map(mean).collect()
}
