//! Time series of cases: rate, round-trip time and losses on one time axis.

use super::axes::{AxisUnit, linear_axis, y_axis};
use super::connection::window_curve;
use super::{Chart, ChartText, MAX_CURVE_POINTS, build_panels};
use crate::report::presentation::is_latency;
use crate::report::svg::{Axis, COLOUR_COUNT, ChartSeries};
use crate::report::wording::{brief_bytes, direction_name, host_and_date, plural, shorten, wait_mode};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, PartResult, Run, SeriesEntry};

/// Minimum number of intervals of a curve.
const MIN_INTERVALS: usize = 4;
/// The ranges of more curves hide each other.
const MAX_RANGES: usize = 3;

/// The curves of a case.
pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let mut caption = host_and_date(run);
    if case.repeats.len() > 1 {
        caption += &format!(" · {} one after another", plural(case.repeats.len(), "repetition"));
    }
    overlay_chart(&format!(" of {}", case.endpoint), caption, &[(ChartSeries::curve("", vec![]), case)])
}

/// All cases of a workload in one chart, if they are few enough to be distinguished.
pub(crate) fn workload_chart(run: &Run, workload: &str) -> Option<Chart> {
    let cases: Vec<&CaseResult> = run
        .cases
        .iter()
        .filter(|case| case.workload == workload && case.series.len() >= MIN_INTERVALS)
        .collect();
    if !(2..=COLOUR_COUNT).contains(&cases.len()) {
        return None;
    }
    let labels = distinguishing_labels(&cases);
    let layers: Vec<(ChartSeries, &CaseResult)> = labels
        .iter()
        .zip(cases)
        .enumerate()
        .map(|(colour, (label, case))| {
            (ChartSeries { colour: Some(colour), ..ChartSeries::curve(label, vec![]) }, case)
        })
        .collect();
    overlay_chart("", host_and_date(run), &layers)
}

/// The properties in which the cases differ.
fn distinguishing_labels(cases: &[&CaseResult]) -> Vec<String> {
    let properties: [fn(&CaseResult) -> String; 6] = [
        |case| direction_name(case.direction).to_owned(),
        |case| shorten(&case.endpoint, 48),
        |case| brief_bytes(case.message_bytes.into()),
        |case| plural(case.parallel as usize, "connection"),
        |case| case.protocol.clone(),
        |case| wait_mode(case).name().to_owned(),
    ];
    let differ = |get: &&fn(&CaseResult) -> String| cases.iter().any(|case| get(case) != get(cases[0]));
    let shown: Vec<_> = properties.iter().filter(differ).collect();
    let label = |case: &&CaseResult| shown.iter().map(|get| get(case)).collect::<Vec<_>>().join(", ");
    cases.iter().map(label).collect()
}

/// Several cases in one chart. Each replaces a series without points.
pub(crate) fn overlay_chart(
    of: &str,
    caption: String,
    cases: &[(ChartSeries, &CaseResult)],
) -> Option<Chart> {
    let end_of = |entries: &[SeriesEntry], shift_ns: u64| {
        let last = entries.last()?;
        Some((shift_ns as f64 + last.start_ns as f64 + last.length_ns as f64) / 1e9)
    };
    let ends = cases.iter().flat_map(|(_, case)| {
        let all = [&case.series, &case.under_load_series, &case.recovery_series];
        all.map(|entries| end_of(entries, idle_ns(case)))
    });
    let end = ends.flatten().fold(0.0, f64::max);
    let x = Axis { high: end, ..linear_axis("time since the start (s)", AxisUnit::Seconds, end) };
    let (rates, times) = (rate_panel(cases), round_trip_panel(cases));
    // More cases would need a legend for each direction.
    let alone = match cases {
        [(_, case)] => Some(*case),
        _ => None,
    };
    let others = alone.and_then(queueing_panel).into_iter().chain(alone.and_then(window_panel));
    let title = match (&rates, &times) {
        (Some(_), Some(_)) => "Rate and round-trip time over time",
        (Some(_), None) => "Rate over time",
        _ => "Round-trip time over time",
    };
    build_panels(ChartText { title, of, caption }, &x, rates.into_iter().chain(times).chain(others).collect())
}

/// Length of the series before the load: the others are moved by it.
fn idle_ns(case: &CaseResult) -> u64 {
    case.idle_series.last().map_or(0, |last| last.start_ns.saturating_add(last.length_ns))
}

/// The entries behind those of the idle link.
fn after_idle<'a>(
    case: &CaseResult,
    entries: impl IntoIterator<Item = &'a SeriesEntry>,
) -> impl Iterator<Item = SeriesEntry> {
    let idle_ns = idle_ns(case);
    let moved = move |entry: &SeriesEntry| SeriesEntry {
        start_ns: entry.start_ns.saturating_add(idle_ns),
        ..entry.clone()
    };
    entries.into_iter().map(moved)
}

/// The round trips of a latency case, or those of the probe: on the idle link, under load, and after the load.
fn round_trip_entries(case: &CaseResult) -> Vec<SeriesEntry> {
    if is_latency(case) {
        return case.series.clone();
    }
    let moved = after_idle(case, case.under_load_series.iter().chain(&case.recovery_series));
    case.idle_series.iter().cloned().chain(moved).collect()
}

/// Payload over time: delivered, or for uploads accepted by the sender's system.
fn rate_panel(cases: &[(ChartSeries, &CaseResult)]) -> Option<(Axis, Vec<ChartSeries>)> {
    let is_drawn =
        |(_, case): &&(ChartSeries, &CaseResult)| !is_latency(case) && case.series.len() >= MIN_INTERVALS;
    let drawn: Vec<&(ChartSeries, &CaseResult)> = cases.iter().filter(is_drawn).collect();
    let mut series: Vec<ChartSeries> = drawn
        .iter()
        .map(|(series, case)| ChartSeries { points: rate_points(case), ..series.clone() })
        .filter(|series| !series.points.is_empty())
        .collect();
    let most = series.iter().flat_map(|one| &one.points).map(|point| point.1).reduce(f64::max)?;
    let label = match drawn.iter().any(|(_, case)| shows_sent_bytes(case)) {
        true if drawn.len() > 1 => "delivered payload (upload: sent payload)",
        true => "sent payload",
        false => "delivered payload",
    };
    let y = linear_axis(label, AxisUnit::BitsPerSecond, most.max(1.0));
    let entries: Vec<Vec<SeriesEntry>> =
        drawn.iter().map(|(_, case)| after_idle(case, &case.series).collect()).collect();
    series.extend(loss_ticks(entries.iter().map(Vec::as_slice), "messages lost", y.high));
    series.extend(ce_marks(entries.iter().map(Vec::as_slice), y.high));
    Some((y, series))
}

/// Round trips of latency cases, and of the probes of other cases.
fn round_trip_panel(cases: &[(ChartSeries, &CaseResult)]) -> Option<(Axis, Vec<ChartSeries>)> {
    let entries: Vec<Vec<SeriesEntry>> = cases.iter().map(|(_, case)| round_trip_entries(case)).collect();
    let timed = cases.iter().zip(&entries).map(|((series, _), entries)| (series, entries.as_slice()));
    let timed: Vec<(&ChartSeries, &[SeriesEntry])> =
        timed.filter(|(_, entries)| entries.len() >= MIN_INTERVALS).collect();
    let has_ranges = timed.len() <= MAX_RANGES;
    let value = if timed.iter().all(|(_, entries)| has_percentiles(entries)) {
        TimeValue::Percentiles
    } else {
        TimeValue::Mean
    };
    let curve = |(series, entries): &(&ChartSeries, &[SeriesEntry])| ChartSeries {
        points: value.points(entries),
        band: if has_ranges { value.ranges(entries) } else { Vec::new() },
        ..(*series).clone()
    };
    let mut series: Vec<ChartSeries> = timed.iter().map(curve).filter(|one| one.points.len() > 1).collect();
    if series.is_empty() {
        return None;
    }
    let label = match (value, has_ranges) {
        (TimeValue::Percentiles, true) => "round-trip time: p50, shaded from the fastest to p99",
        (TimeValue::Percentiles, false) => "round-trip time: p50",
        (TimeValue::Mean, true) => "round-trip time: mean, range shaded",
        (TimeValue::Mean, false) => "round-trip time: mean",
    };
    let y = y_axis(label, AxisUnit::Nanoseconds, &mut series);
    series.extend(loss_ticks(timed.iter().map(|(_, entries)| *entries), "requests lost", y.high));
    series.extend(ce_marks(timed.into_iter().map(|(_, entries)| entries), y.high));
    Some((y, series))
}

/// Colours of the queueing delays; other panels have the first two.
const QUEUEING_COLOURS: [usize; 2] = [2, 3];

/// Forward and reverse delay above the shortest ones.
fn queueing_panel(case: &CaseResult) -> Option<(Axis, Vec<ChartSeries>)> {
    let entries = round_trip_entries(case);
    let curve = |label: &str, colour: usize, get: fn(&SeriesEntry) -> Option<u64>| {
        let point =
            |entry: &SeriesEntry| Some((middle_seconds(std::slice::from_ref(entry)), get(entry)? as f64));
        let points = entries.iter().filter_map(point).collect();
        ChartSeries { colour: Some(colour), ..ChartSeries::curve(label, points) }
    };
    let [forward, reverse] = QUEUEING_COLOURS;
    let series = [
        curve("forward", forward, |entry| entry.forward_queue_ns),
        curve("reverse", reverse, |entry| entry.reverse_queue_ns),
    ];
    let most = series.iter().flat_map(|one| &one.points).map(|point| point.1).reduce(f64::max)?;
    let is_drawn = series.iter().all(|one| one.points.len() >= MIN_INTERVALS);
    let y = linear_axis("queueing delay (mean)", AxisUnit::Nanoseconds, most.max(1.0));
    is_drawn.then(|| (y, series.into()))
}

/// The congestion window of the TCP connection that sends, and its retransmissions.
fn window_panel(case: &CaseResult) -> Option<(Axis, Vec<ChartSeries>)> {
    let evidence = case.evidence.as_ref().filter(|_| !is_latency(case))?;
    let sender = match case.direction {
        Direction::Send | Direction::Both => &evidence.client,
        Direction::Receive => evidence.server.as_ref()?,
        Direction::Loop => return None,
    };
    let series = &sender.connections.series;
    (series.len() >= MIN_INTERVALS).then(|| window_curve(series, idle_ns(case) as f64 / 1e9))
}

/// Figures of the round trips of an interval that are drawn.
#[derive(Clone, Copy)]
enum TimeValue {
    /// The p50, and the range from the fastest to p99.
    Percentiles,
    /// The mean and the whole range, of documents and of joined intervals without percentiles.
    Mean,
}

impl TimeValue {
    fn points(self, entries: &[SeriesEntry]) -> Vec<(f64, f64)> {
        let median = |entry: &SeriesEntry| {
            Some((middle_seconds(std::slice::from_ref(entry)), entry.latency_p50_ns? as f64))
        };
        match self {
            TimeValue::Percentiles => entries.iter().filter_map(median).collect(),
            TimeValue::Mean => mean_points(entries),
        }
    }

    fn ranges(self, entries: &[SeriesEntry]) -> Vec<(f64, f64, f64)> {
        let range = |entry: &SeriesEntry| {
            let (least, most) = (entry.latency_min_ns?, entry.latency_p99_ns?);
            Some((middle_seconds(std::slice::from_ref(entry)), least as f64, most as f64))
        };
        match self {
            TimeValue::Percentiles => entries.iter().filter_map(range).collect(),
            TimeValue::Mean => range_points(entries),
        }
    }
}

/// Whether every interval with replies has its percentiles.
fn has_percentiles(entries: &[SeriesEntry]) -> bool {
    let mut timed = entries.iter().filter(|entry| entry.latency_max_ns.is_some()).peekable();
    timed.peek().is_some() && timed.all(|entry| entry.latency_p50_ns.is_some())
}

/// Ticks of lost requests at the upper edge, because a lost request ranks slowest.
fn loss_ticks<'a>(
    all: impl Iterator<Item = &'a [SeriesEntry]>,
    label: &str,
    high: f64,
) -> Option<ChartSeries> {
    let ticks = upper_edge_points(all, high, |entry| entry.lost > Some(0));
    (!ticks.is_empty()).then(|| ChartSeries::events(label, ticks))
}

/// Marks at the upper edge where messages arrived with a congestion mark.
fn ce_marks<'a>(all: impl Iterator<Item = &'a [SeriesEntry]>, high: f64) -> Option<ChartSeries> {
    let dots = upper_edge_points(all, high, |entry| entry.ce > 0);
    (!dots.is_empty()).then(|| ChartSeries {
        dots,
        colour: Some(CE_COLOUR),
        ..ChartSeries::curve("congestion marks (CE)", vec![])
    })
}

/// Colour of the marks; cases seldom have that many curves.
const CE_COLOUR: usize = 4;

/// The middle of each drawn interval that has such an entry.
fn upper_edge_points<'a>(
    all: impl Iterator<Item = &'a [SeriesEntry]>,
    high: f64,
    is_marked: fn(&SeriesEntry) -> bool,
) -> Vec<(f64, f64)> {
    let marked = all.flat_map(merge_intervals).filter(|entries| entries.iter().any(is_marked));
    marked.map(|entries| (middle_seconds(entries), high)).collect()
}

/// Groups of intervals to draw as one, so that a screen can show all groups.
fn merge_intervals(entries: &[SeriesEntry]) -> impl Iterator<Item = &[SeriesEntry]> {
    entries.chunks(entries.len().div_ceil(MAX_CURVE_POINTS).max(1))
}

fn total_ns(entries: &[SeriesEntry]) -> f64 {
    entries.iter().map(|entry| entry.length_ns as f64).sum()
}

/// Middle of the entries, in seconds since the start.
fn middle_seconds(entries: &[SeriesEntry]) -> f64 {
    (entries[0].start_ns as f64 + total_ns(entries) / 2.0) / 1e9
}

/// The chart shows bytes that the local system accepted.
fn shows_sent_bytes(case: &CaseResult) -> bool {
    case.series_is_sent() && delivered_steps(case).is_none()
}

/// The rate of each repetition by the receiver's clock, where its time series is unknown. Accepted bytes only show how the local
/// buffers fill.
fn delivered_steps(case: &CaseResult) -> Option<Vec<(f64, f64)>> {
    if !case.series_is_sent() || case.repeats.len() < MIN_INTERVALS {
        return None;
    }
    let mut start_ns = idle_ns(case) as f64;
    let step = |part: &PartResult| {
        let (from, to) = (start_ns / 1e9, (start_ns + part.elapsed_ns as f64) / 1e9);
        start_ns += part.elapsed_ns as f64;
        let rate = part.figures.delivery.throughput_bps.filter(|rate| rate.is_finite());
        rate.map(|rate| [(from, rate), (to, rate)])
    };
    Some(case.repeats.iter().filter_map(step).flatten().collect())
}

fn rate_points(case: &CaseResult) -> Vec<(f64, f64)> {
    if let Some(steps) = delivered_steps(case) {
        return steps;
    }
    let point = |entries: &[SeriesEntry]| {
        let bytes: f64 = entries.iter().map(|entry| entry.bytes as f64).sum();
        let rate = bytes * 8e9 / total_ns(entries);
        (total_ns(entries) > 0.0 && rate.is_finite()).then_some((middle_seconds(entries), rate))
    };
    let entries: Vec<SeriesEntry> = after_idle(case, &case.series).collect();
    merge_intervals(&entries).filter_map(point).collect()
}

fn mean_points(entries: &[SeriesEntry]) -> Vec<(f64, f64)> {
    let mean = |entries: &[SeriesEntry]| {
        let with_replies = || entries.iter().filter(|entry| entry.latency_mean_ns.is_some());
        let messages: f64 = with_replies().filter_map(|entry| entry.messages).map(|count| count as f64).sum();
        let sum: f64 =
            with_replies().filter_map(|entry| Some(entry.latency_mean_ns? * entry.messages? as f64)).sum();
        (messages > 0.0 && sum.is_finite()).then(|| (middle_seconds(entries), sum / messages))
    };
    merge_intervals(entries).filter_map(mean).collect()
}

/// Ranges from the fastest round trip, or the mean in older documents, to the slowest.
fn range_points(entries: &[SeriesEntry]) -> Vec<(f64, f64, f64)> {
    let range = |entries: &[SeriesEntry]| {
        let least = entries
            .iter()
            .filter_map(|entry| entry.latency_min_ns.map(|least| least as f64).or(entry.latency_mean_ns));
        let most = entries.iter().filter_map(|entry| entry.latency_max_ns).max()?;
        Some((middle_seconds(entries), least.reduce(f64::min)?, most as f64))
    };
    merge_intervals(entries).filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;
    use linkgauge_model::run::ConnectionReading;

    #[test]
    fn rate_round_trip_and_losses_share_the_time_axis() {
        let run = sample_runs::full();
        let mut case = run.cases[3].clone();
        case.under_load_series = case.series.clone();
        case.under_load_series[4].lost = Some(2);
        let chart = case_chart(&run, &case).unwrap();
        let panels: Vec<(&str, usize)> = chart
            .panels
            .iter()
            .map(|panel| (panel.y.label.as_str(), panel.svg.matches("event-line").count()))
            .collect();
        assert_eq!(panels, [("delivered payload", 0), ("round-trip time: mean, range shaded", 1)]);
        assert_eq!((chart.title.as_str(), chart.x.high), ("Rate and round-trip time over time", 10.0));
        case.under_load_series.clear();
        assert_eq!(case_chart(&run, &case).unwrap().title, "Rate over time");
        case.series.truncate(MIN_INTERVALS - 1);
        assert!(case_chart(&run, &case).is_none());
    }

    #[test]
    fn queueing_delays_and_the_congestion_window_share_the_time_axis() {
        let run = sample_runs::full();
        let mut case = run.cases[3].clone();
        (case.idle_series, case.recovery_series) = (vec![], vec![]);
        case.under_load_series = case.series.clone();
        for (entry, ns) in case.under_load_series.iter_mut().zip((0..).step_by(1000)) {
            (entry.forward_queue_ns, entry.reverse_queue_ns) = (Some(ns), Some(0));
        }
        let connections = &mut case.evidence.get_or_insert_default().client.connections;
        connections.series = (0..4u64)
            .map(|second| ConnectionReading { at_ns: second * 1_000_000_000, ..ConnectionReading::default() })
            .collect();
        let chart = case_chart(&run, &case).unwrap();
        let panels: Vec<&str> = chart.panels.iter().map(|panel| panel.y.label.as_str()).collect();
        assert_eq!(panels[2..], ["queueing delay (mean)", "congestion window (segments)"]);
        for name in ["forward", "reverse"] {
            let entry = chart.legend.iter().find(|entry| entry.name == name).unwrap();
            assert!(
                chart.panels[2].svg.contains(&format!("\"{}-line\"", entry.class)),
                "{name}: {}",
                entry.class
            );
        }
        case.direction = Direction::Receive;
        case.evidence.as_mut().unwrap().server = None;
        assert_eq!(case_chart(&run, &case).unwrap().panels.len(), 3, "the server sends");
        let evidence = case.evidence.as_mut().unwrap();
        evidence.server = Some(std::mem::take(&mut evidence.client));
        assert_eq!(case_chart(&run, &case).unwrap().panels.len(), 4);
    }

    #[test]
    fn congestion_marks_are_points_at_the_upper_edge() {
        let run = sample_runs::full();
        let mut case = run.cases[3].clone();
        (case.series[2].ce, case.series[7].ce) = (3, 1);
        let chart = case_chart(&run, &case).unwrap();
        assert_eq!(chart.panels[0].svg.matches("#mark-5").count(), 2);
        assert!(chart.legend.iter().any(|entry| entry.name == "congestion marks (CE)"));
    }

    #[test]
    fn percentiles_replace_mean_and_range_where_all_intervals_have_them() {
        let run = sample_runs::full();
        let mut case = run.cases[3].clone();
        case.under_load_series = case.series.clone();
        (case.idle_series, case.recovery_series) = (vec![], vec![]);
        let panel = |case: &CaseResult| {
            let mut chart = case_chart(&run, case).unwrap();
            let panel = chart.panels.pop().unwrap();
            (panel.y.label, panel.y.high)
        };
        for (at, entry) in case.under_load_series.iter_mut().enumerate() {
            (entry.latency_min_ns, entry.latency_max_ns) = (Some(20_000), Some(90_000));
            (entry.latency_p50_ns, entry.latency_p99_ns) = (Some(30_000 + at as u64), Some(50_000));
            entry.latency_mean_ns = Some(35_000.0);
        }
        let (label, before) = panel(&case);
        assert_eq!(label, "round-trip time: p50, shaded from the fastest to p99");
        assert!(before < 90_000.0, "the slowest of an interval is not drawn: {before}");
        case.under_load_series[0].latency_p50_ns = None;
        let (label, high) = panel(&case);
        assert_eq!(label, "round-trip time: mean, range shaded");
        assert!(high > before);
    }

    #[test]
    fn cases_are_named_by_what_differs() {
        let run = sample_runs::full();
        let chart = workload_chart(&run, "throughput").unwrap();
        let names: Vec<&str> = chart.legend.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["64 B", "1.024 kB", "16.4 kB", "131 kB"]);
        let mut two = run.cases[3..5].to_vec();
        (two[0].direction, two[0].message_bytes) = (Direction::Send, two[1].message_bytes);
        assert_eq!(distinguishing_labels(&[&two[0], &two[1]]), ["upload", "both"]);
    }
}
