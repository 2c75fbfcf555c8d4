//! Intervals: around their figure, and in the range that is possible.

use std::collections::BTreeMap;

use super::{Contradiction, LeftOut};
use crate::metric::LOSS_INTERVAL;
use crate::run::{CaseResult, Distribution, Figures};
use crate::stats::Interval;
use crate::units::format_number;

/// The rounding of an end that was computed as the logarithm of a ratio.
const ROUNDING: f64 = 1e-9;

/// Rates above that of the line are those of its buffers; `beyond_line` says so.
const MAX_LINE_EXCESS: f64 = 0.01;

/// The distribution and the percentile of an interval's name, `latency_ns.p50`.
fn percentile<'a>(figures: &'a Figures, name: &'a str) -> Option<(&'a Distribution, &'a str)> {
    let (times, percentile) = name.split_once('.')?;
    let times = match times {
        "latency_ns" => figures.times.latency_ns.as_ref(),
        "response_ns" => figures.times.response_ns.as_ref(),
        _ => None,
    };
    Some((times?, percentile))
}

/// The figure of an interval, if it is one of those that have intervals.
fn figure(figures: &Figures, name: &str) -> Option<f64> {
    match name {
        "throughput_bps" => figures.delivery.throughput_bps,
        "throughput_reverse_bps" => figures.delivery.throughput_reverse_bps,
        "added_p50_ns" => figures.added_latency?.added_p50_ns,
        LOSS_INTERVAL => figures.loss_share(),
        _ => percentile(figures, name).and_then(|(times, name)| times.percentile(name)).map(|ns| ns as f64),
    }
}

/// The range that is possible for a figure: no percentile is shorter than the fastest round trip, and no rate is above that of the
/// line, as far as it is known and was kept.
fn possible_range(figures: &Figures, case: &CaseResult, name: &str) -> (f64, f64) {
    if let Some((times, _)) = percentile(figures, name) {
        return (times.min as f64, f64::INFINITY);
    }
    match name {
        // The round trip under load is not negative; what the load adds to it may be.
        "added_p50_ns" => {
            let idle = figures.added_latency.map_or(0.0, |added| added.idle_p50_ns);
            return (-idle, f64::INFINITY);
        }
        LOSS_INTERVAL => return (0.0, 1.0),
        _ => {}
    }
    let line = case.line.and_then(|line| line.max_payload_bps).map(|line| line * (1.0 + MAX_LINE_EXCESS));
    let is_kept = |line: &f64| figure(figures, name).is_some_and(|rate| rate <= *line);
    (0.0, line.filter(is_kept).unwrap_or(f64::INFINITY))
}

/// The intervals of these figures, limited to what is possible: over repetitions and within a run.
pub(super) fn limited(figures: &Figures, case: &CaseResult) -> [BTreeMap<String, Interval>; 2] {
    [&figures.intervals, &figures.within_run_intervals].map(|intervals| {
        let limited = intervals.iter().map(|(name, interval)| {
            let (least, most) = possible_range(figures, case, name);
            (name.clone(), Interval { low: interval.low.max(least), high: interval.high.min(most) })
        });
        limited.collect()
    })
}

pub(super) fn check(figures: &Figures, case: &CaseResult) -> Vec<Contradiction> {
    let kinds = [
        (&figures.intervals, LeftOut::Interval as fn(String) -> LeftOut),
        (&figures.within_run_intervals, LeftOut::IntervalWithinRun),
    ];
    let mut found = Vec::new();
    for (intervals, suspect) in kinds {
        for (name, interval) in intervals {
            let text = disorder(*interval, figure(figures, name), possible_range(figures, case, name));
            found.extend(text.map(|text| Contradiction {
                suspect: suspect(name.clone()),
                text: format!("the interval of {name} {text}"),
            }));
        }
    }
    found
}

fn disorder(
    Interval { low, high }: Interval,
    figure: Option<f64>,
    (least, most): (f64, f64),
) -> Option<String> {
    let shown = format!("({} to {})", format_number(low), format_number(high));
    if !low.is_finite() || !high.is_finite() || low > high {
        return Some(format!("{shown} is none"));
    }
    let rounding = ROUNDING * low.abs().max(high.abs());
    if let Some(figure) = figure.filter(|figure| !(low - rounding..=high + rounding).contains(figure)) {
        return Some(format!("{shown} does not hold its figure {}", format_number(figure)));
    }
    (low < least - rounding || high > most + rounding).then(|| {
        let [least, most] = [least, most].map(format_number);
        format!("{shown} reaches beyond what is possible ({least} to {most})")
    })
}
