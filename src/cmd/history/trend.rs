//! How a metric went over time: one small chart a case.

use linkgauge::metric::Metric;
use linkgauge::report::{
    HistoryChange, HistoryTrend, ReportOptions, case_details, printable, shorten, sparkline_glyphs,
};
use linkgauge::stats::{self, Interval, MIN_EARLIER_RESULTS};
use linkgauge::store::{Trend, TrendPoint};
use linkgauge::units::format_plural;
use serde_json::{Value, json};

use super::super::store::short_id;

/// Columns of a chart; more runs than that share them.
const CHART_COLUMNS: usize = 60;

/// The trends for a terminal. Several have a sentence about all of them first.
pub fn format_trends(trends: &[Trend], metric: &Metric, options: &ReportOptions) -> String {
    let all = (trends.len() > 1).then(|| options.format_answer(&summary(trends, metric)));
    let blocks = all.into_iter().chain(trends.iter().map(|trend| format_trend(trend, metric, options)));
    blocks.collect::<Vec<_>>().join("\n")
}

/// The answer of the trends in one sentence.
pub fn summary(trends: &[Trend], metric: &Metric) -> String {
    if let [trend] = trends {
        return answer(trend, &level_changes(&trend.points), metric);
    }
    let (judged, few): (Vec<&Trend>, Vec<&Trend>) =
        trends.iter().partition(|trend| trend.points.len() >= MIN_EARLIER_RESULTS);
    let changed = judged.iter().filter(|trend| !level_changes(&trend.points).is_empty()).count();
    let counts = [
        (changed, "changed".to_owned()),
        (judged.len() - changed, "without a change shown".to_owned()),
        (few.len(), format!("with fewer than {MIN_EARLIER_RESULTS} runs, too few to see a change")),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    format!("{} of {} cases: {}.", metric.name(), trends.len(), counts.collect::<Vec<_>>().join(", "))
}

fn format_trend(trend: &Trend, metric: &Metric, options: &ReportOptions) -> String {
    let print = |value: f64| metric.unit().format(value);
    let values: Vec<f64> = trend.points.iter().map(|point| point.value).collect();
    let (Some(first), Some(last)) = (trend.points.first(), trend.points.last()) else { return String::new() };
    let median = stats::median(&values).unwrap_or(f64::NAN);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let day = |point: &TrendPoint| point.started.strftime("%Y-%m-%d").to_string();
    let changes = level_changes(&trend.points);
    let answer = answer(trend, &changes, metric);
    format!(
        "{}  {}\n  {} to {}, median {}\n  last {} ({}{})\n  {}, {} to {}\n{}{}",
        options.format_answer(&answer),
        draw_chart(&values),
        print(least),
        print(most),
        print(median),
        print(last.value),
        printable(short_id(&last.id)),
        percent_change(last.value, median)
            .map_or(String::new(), |percent| format!(", {percent:+.1} % from the median")),
        format_plural(values.len() as u64, "run"),
        day(first),
        day(last),
        format_changes(trend, &changes, metric),
        format_usual(&trend.points, metric),
    )
}

/// The last result, and whether the level changed.
fn answer(trend: &Trend, changes: &[LevelChange], metric: &Metric) -> String {
    let last = trend.points.last().map_or(f64::NAN, |point| point.value);
    format!(
        "{} of {}: {} in the last run; {}",
        metric.name(),
        case_name(trend),
        metric.unit().format(last),
        change_sentence(trend, changes, metric),
    )
}

/// Endpoint, direction, details and host.
fn case_name(trend: &Trend) -> String {
    let on = trend.host.as_deref().map(|host| format!(" on {}", printable(host))).unwrap_or_default();
    format!(
        "{} {}{}{on}",
        shorten(&printable(&trend.endpoint), 34),
        printable(&trend.direction),
        case_details(trend.message_bytes, trend.ports, trend.parallel, &trend.settings),
    )
}

/// A trend for the page.
pub fn page_trend(trend: &Trend, metric: &Metric) -> HistoryTrend {
    let changes = level_changes(&trend.points);
    let change = |change: &LevelChange| HistoryChange {
        index: change.index,
        run: short_id(&trend.points[change.index].id).to_owned(),
        before: change.before,
        after: change.after,
    };
    HistoryTrend {
        name: case_name(trend),
        answer: answer(trend, &changes, metric),
        metric: metric.name().to_owned(),
        unit: metric.unit(),
        points: trend.points.iter().map(|point| (point.started, point.value)).collect(),
        changes: changes.iter().map(change).collect(),
    }
}

/// Whether the level changed, and when it did last.
fn change_sentence(trend: &Trend, changes: &[LevelChange], metric: &Metric) -> String {
    let print = |value: f64| metric.unit().format(value);
    match changes.last() {
        Some(change) => format!(
            "changed on {} from {} to {}.",
            trend.points[change.index].started.strftime("%Y-%m-%d"),
            print(change.before),
            print(change.after)
        ),
        None if trend.points.len() < MIN_EARLIER_RESULTS => {
            format!("a change shows from {MIN_EARLIER_RESULTS} runs on.")
        }
        None => format!("no change shown in {} runs.", trend.points.len()),
    }
}

/// Where the next run is expected, by the runs since the last change. Empty with too few.
fn format_usual(points: &[TrendPoint], metric: &Metric) -> String {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let print = |value: f64| metric.unit().format(value);
    stats::usual(&values).map_or(String::new(), |usual| {
        let Interval { low, high } = usual.interval;
        let runs = format_plural((values.len() - usual.since) as u64, "run");
        format!("  usual {} … {} (by the last {runs})\n", print(low), print(high))
    })
}

/// A change of level: the index of its first point, and the medians before and after.
struct LevelChange {
    index: usize,
    before: f64,
    after: f64,
}

fn level_changes(points: &[TrendPoint]) -> Vec<LevelChange> {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let changes = stats::level_changes(&values);
    let starts = std::iter::once(0).chain(changes.iter().copied());
    let ends = changes.iter().copied().skip(1).chain([values.len()]);
    let medians = |from: usize, to: usize| stats::median(&values[from..to]).unwrap_or(f64::NAN);
    let change = |((start, index), end): ((usize, usize), usize)| LevelChange {
        index,
        before: medians(start, index),
        after: medians(index, end),
    };
    starts.zip(changes.iter().copied()).zip(ends).map(change).collect()
}

/// A line for each change of level.
fn format_changes(trend: &Trend, changes: &[LevelChange], metric: &Metric) -> String {
    let print = |value: f64| metric.unit().format(value);
    let line = |change: &LevelChange| {
        let first = &trend.points[change.index];
        let (day, id) = (first.started.strftime("%Y-%m-%d"), printable(short_id(&first.id)));
        format!("  changed {day} ({id}) from {} to {}\n", print(change.before), print(change.after))
    };
    changes.iter().map(line).collect()
}

/// In percent; `None` where there is nothing to compare with.
fn percent_change(value: f64, with: f64) -> Option<f64> {
    Some((value / with - 1.0) * 100.0).filter(|percent| percent.is_finite())
}

/// One sign a run, from zero up; where there are too many, one for the median of neighbours. What was not reached is as
/// high as can be.
fn draw_chart(values: &[f64]) -> String {
    let shared = values.len().div_ceil(CHART_COLUMNS).max(1);
    let heights: Vec<f64> = values.chunks(shared).filter_map(stats::median).collect();
    let most = heights.iter().copied().filter(|height| height.is_finite()).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    sparkline_glyphs(
        &heights.into_iter().map(|height| if height.is_finite() { height } else { most }).collect::<Vec<_>>(),
    )
}

pub fn trends_json(trends: &[Trend], metric: &Metric) -> Value {
    let point = |point: &TrendPoint| {
        // What was not reached is null, as in a run document.
        json!({"id": point.id, "started": point.started, "value": point.value})
    };
    let change = |trend: &Trend, change: &LevelChange| {
        let first = &trend.points[change.index];
        json!({"id": first.id, "started": first.started, "before": change.before, "after": change.after})
    };
    let trend = |trend: &Trend| {
        let changes = level_changes(&trend.points);
        json!({
            "metric": metric.name(),
            "endpoint": trend.endpoint,
            "protocol": trend.protocol,
            "workload": trend.workload,
            "direction": trend.direction,
            "message_bytes": trend.message_bytes,
            "ports": trend.ports,
            "parallel": trend.parallel,
            "method": trend.method,
            "settings": trend.settings,
            "host": trend.host,
            "runs": trend.points.iter().map(point).collect::<Vec<_>>(),
            "changes": changes.iter().map(|found| change(trend, found)).collect::<Vec<_>>(),
        })
    };
    trends.iter().map(trend).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_level_is_found_with_its_medians() {
        let point = |(index, value): (usize, f64)| TrendPoint {
            id: format!("20261122T1000{index:02}Z-{index:06x}"),
            started: jiff::Timestamp::UNIX_EPOCH,
            value,
        };
        let values = [10.0, 11.0, 10.5, 10.2, 10.8, 20.0, 21.0, 20.5, 20.2, 20.8];
        let points: Vec<TrendPoint> = values.into_iter().enumerate().map(point).collect();
        let changes = level_changes(&points);
        assert_eq!(changes.len(), 1);
        assert_eq!((changes[0].index, changes[0].before, changes[0].after), (5, 10.5, 20.5));
        assert!(level_changes(&points[..5]).is_empty() && level_changes(&[]).is_empty());
    }

    #[test]
    fn charts_fit_their_width() {
        assert_eq!(draw_chart(&[0.0, 1.0, 4.0, 7.0, f64::INFINITY]), "▁▂▅██");
        assert_eq!(draw_chart(&[0.0, 0.0]), "▁▁");
        assert_eq!(draw_chart(&[f64::INFINITY]), "█");
        let many: Vec<f64> = (0..1000).map(f64::from).collect();
        assert!(draw_chart(&many).chars().count() <= CHART_COLUMNS);
        assert_eq!(percent_change(110.0, 100.0).map(f64::round), Some(10.0));
        assert_eq!(percent_change(1.0, 0.0), None);
    }
}
