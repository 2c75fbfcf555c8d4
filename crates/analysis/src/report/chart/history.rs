//! A figure of many runs in order of time, with the medians of its levels.

use jiff::Timestamp;

use super::axes::{AxisUnit, linear_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::svg::{Axis, ChartSeries, SeriesKind};
use linkgauge_model::metric::MetricUnit;

/// A figure of a case over time.
pub struct HistoryTrend {
    /// The case in words.
    pub name: String,
    /// The last result, and whether the level changed.
    pub answer: String,
    /// Name of the metric.
    pub metric: String,
    /// Unit of all values.
    pub unit: MetricUnit,
    /// Start of each run and the value, oldest first; infinite if it was not reached.
    pub points: Vec<(Timestamp, f64)>,
    /// Changes of the level, oldest first.
    pub changes: Vec<HistoryChange>,
}

/// A change of level.
pub struct HistoryChange {
    /// Index of the first run of the new level.
    pub index: usize,
    /// Id of that run.
    pub run: String,
    /// Median of the level before.
    pub before: f64,
    /// Median of the level after.
    pub after: f64,
}

/// Maximum number of dates that have room on the axis.
const MAX_DATES: usize = 8;

/// A dot for each run, and a line for each level.
pub(crate) fn trend_chart(trend: &HistoryTrend) -> Option<Chart> {
    let (unit, factor) = match trend.unit {
        MetricUnit::Nanoseconds => (AxisUnit::Nanoseconds, 1.0),
        MetricUnit::BitsPerSecond => (AxisUnit::BitsPerSecond, 1.0),
        MetricUnit::Bytes => (AxisUnit::Bytes, 1.0),
        MetricUnit::PerSecond | MetricUnit::Count => (AxisUnit::Number, 1.0),
        MetricUnit::Share => (AxisUnit::Percent, 100.0),
    };
    let count = trend.points.len();
    let dots: Vec<(f64, f64)> = trend
        .points
        .iter()
        .zip(1u32..)
        .filter(|((_, value), _)| value.is_finite())
        .map(|((_, value), number)| (f64::from(number), value * factor))
        .collect();
    let most = dots.iter().map(|dot| dot.1).fold(0.0, f64::max);
    let runs = ChartSeries { dots, ..ChartSeries::curve("one run", vec![]) };
    let starts = std::iter::once(0).chain(trend.changes.iter().map(|change| change.index));
    let ends = trend.changes.iter().map(|change| change.index).chain([count]);
    let first = trend.changes.first().map(|change| change.before);
    let levels = first.into_iter().chain(trend.changes.iter().map(|change| change.after));
    let level = |((start, end), level): ((usize, usize), f64)| ChartSeries {
        kind: SeriesKind::Limit,
        ..ChartSeries::curve(
            "median of the level",
            vec![(start as f64 + 0.5, level * factor), (end as f64 + 0.5, level * factor)],
        )
    };
    let series = [vec![runs], starts.zip(ends).zip(levels).map(level).collect()].concat();
    let of = format!(" of {}", trend.name);
    let text = ChartText { title: "Run by run", of: &of, caption: String::new() };
    let y = linear_axis(&trend.metric, unit, most);
    build_chart(text, &date_axis(trend), y, series)
}

/// The runs in equal steps. Dates stand below the changes of level, and below others where there is room.
fn date_axis(trend: &HistoryTrend) -> Axis {
    let count = trend.points.len();
    let every = count.div_ceil(MAX_DATES).max(1);
    let is_near = |index: usize, other: usize| index.abs_diff(other) < every;
    let mut places: Vec<usize> = trend.changes.iter().map(|change| change.index).collect();
    for index in (0..count).step_by(every) {
        if !places.iter().any(|&place| is_near(index, place)) {
            places.push(index);
        }
    }
    places.sort_unstable();
    let ticks = places.into_iter().filter_map(|index| {
        let (started, _) = trend.points.get(index)?;
        Some((index as f64 + 1.0, started.strftime("%m-%d").to_string()))
    });
    Axis {
        label: "run, with the date (month-day)".to_owned(),
        low: 0.5,
        high: count as f64 + 0.5,
        ticks: ticks.collect(),
        script_scale: "linear run".to_owned(),
    }
}
