//! The distribution as a percentile curve on an axis in nines: 90 %, 99 %, 99.9 % are equidistant.

use hdrhistogram::Histogram;

use super::axes::{AxisUnit, y_axis};
use super::{Chart, ChartText, MAX_CURVE_POINTS, build_chart};
use crate::report::decode_figures_histogram;
use crate::report::presentation::is_latency;
use crate::report::svg::{Axis, COLOUR_COUNT, ChartSeries};
use crate::report::wording::is_download;
use crate::report::wording::{format_loss, host_and_date, shorten, wait_mode};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::{CaseResult, Distribution, Figures, Run};
use linkgauge_model::units::format_bytes;

/// Service, response and loaded times of one case.
pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let own = [
        ("service time", &case.figures.times.latency_ns),
        ("response time", &case.figures.times.response_ns),
    ];
    let mut curves: Vec<ChartSeries> = own
        .into_iter()
        .filter_map(|(label, times)| percentile_curve(label, &case.figures, times.as_ref()?))
        .collect();
    if let Some(loaded) = &case.under_load {
        curves.extend(
            loaded
                .times
                .latency_ns
                .as_ref()
                .and_then(|times| percentile_curve("round trip under load", loaded, times)),
        );
    }
    let note = match case.figures.counts.lost {
        0 => String::new(),
        _ if !is_latency(case) => String::new(),
        _ => format!(" · ends where the lost begin ({})", format_loss(&case.figures)),
    };
    let of = format!(" of {}", case.endpoint);
    let text = ChartText { title: chart_title(case), of: &of, caption: host_and_date(run) + &note };
    percentile_chart(text, curves)
}

pub(crate) fn chart_title(case: &CaseResult) -> &'static str {
    match (is_latency(case), is_download(case)) {
        (true, _) => "Round-trip time by percentile",
        (_, true) => "Time of a chunk by percentile",
        _ => "Round-trip time under load by percentile",
    }
}

/// The curve of a case beside others: service time, or the round trip under load.
pub(crate) fn case_curve(label: &str, case: &CaseResult) -> Option<ChartSeries> {
    let figures = case.under_load.as_ref().unwrap_or(&case.figures);
    percentile_curve(label, figures, figures.times.latency_ns.as_ref()?)
}

/// The curves of all cases, if they are few enough to be distinguished.
pub(crate) fn side_by_side_chart(run: &Run) -> Option<Chart> {
    let measured = |case: &CaseResult| is_latency(case) && case.figures.times.latency_ns.is_some();
    let cases = || run.cases.iter().enumerate().filter(|(_, case)| measured(case));
    if !(2..=COLOUR_COUNT).contains(&cases().count()) {
        return None;
    }
    let curves = cases().filter_map(|(index, case)| {
        let wait = if wait_mode(case) == WaitMode::BusyPoll { ", busy-poll" } else { "" };
        let label = format!(
            "{}: {}{wait}, {}",
            index + 1,
            shorten(&case.endpoint, 48),
            format_bytes(case.message_bytes.into())
        );
        case_curve(&label, case)
    });
    let text = ChartText { title: "Round-trip times side by side", of: "", caption: host_and_date(run) };
    percentile_chart(text, curves.collect())
}

/// Position on the axis: 50 % at 0.3, 90 % at 1, 99 % at 2.
fn nines_position(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// Curve from the histogram if it is readable, with a dot at each named percentile.
fn percentile_curve(label: &str, figures: &Figures, times: &Distribution) -> Option<ChartSeries> {
    let named = times.percentiles.iter().filter_map(|(name, value)| {
        let share = name.strip_prefix('p')?.parse::<f64>().ok()? / 100.0;
        let known = (0.0..1.0).contains(&share) && nines_position(share).is_finite();
        Some((nines_position(share), (*value)? as f64)).filter(|_| known)
    });
    let mut dots: Vec<(f64, f64)> = named.collect();
    dots.sort_by(|a, b| a.0.total_cmp(&b.0));
    let is_service = figures.times.latency_ns.as_ref().is_some_and(|latency| std::ptr::eq(latency, times));
    let points = match decode_figures_histogram(figures).filter(|_| is_service) {
        Some(histogram) => percentile_steps(&histogram, figures.counts.reference()),
        None => dots.clone(),
    };
    (!points.is_empty()).then(|| ChartSeries { dots, ..ChartSeries::curve(label, points) })
}

/// The distribution as steps: constant over the ranks of a value, then up. Joins steps that are too narrow to see.
fn percentile_steps(histogram: &Histogram<u64>, sent: u64) -> Vec<(f64, f64)> {
    let sent = sent.max(histogram.len()) as f64;
    // Half a rank before the end, so that the slowest request has a position on the axis.
    let end = nines_position(1.0 - 0.5 / sent);
    let (mut points, mut counted, mut from) = (Vec::new(), 0, 0.0);
    for step in histogram.iter_recorded() {
        counted += step.count_at_value();
        let to = nines_position(counted as f64 / sent).min(end);
        if to - from >= end / MAX_CURVE_POINTS as f64 || counted == histogram.len() {
            let value = step.value_iterated_to() as f64;
            points.extend([(from, value), (to, value)]);
            from = to;
        }
    }
    points
}

pub(crate) fn percentile_chart(text: ChartText, mut series: Vec<ChartSeries>) -> Option<Chart> {
    let all = || series.iter().flat_map(|one| one.points.iter().chain(&one.dots));
    let high = all().map(|point| point.0).fold(2.0, f64::max);
    let mut ticks = vec![(nines_position(0.5), "50 %".to_owned())];
    if high < 3.5 {
        ticks.insert(0, (0.0, "0 %".to_owned()));
    }
    for nine in 1..=high.floor() as usize {
        let digits = "9".repeat(nine);
        let name = match digits.split_at(digits.len().min(2)) {
            ("9", _) => "90 %".to_owned(),
            (whole, "") => format!("{whole} %"),
            (whole, rest) => format!("{whole}.{rest} %"),
        };
        ticks.push((nine as f64, name));
    }
    let x = Axis {
        label: "share of the requests that took no longer".to_owned(),
        low: 0.0,
        high,
        ticks,
        script_scale: "nines %".to_owned(),
    };
    let y = y_axis("round-trip time", AxisUnit::Nanoseconds, &mut series);
    build_chart(text, &x, y, series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn curve_ends_at_the_lost_requests() {
        let run = sample_runs::full();
        let (whole, lossy) = (&run.cases[0].figures, &run.cases[2].figures);
        let end = |figures: &Figures| {
            let curve = percentile_curve("", figures, figures.times.latency_ns.as_ref().unwrap()).unwrap();
            let last = curve.points.last().copied().unwrap();
            assert!(curve.points.len() <= 2 * MAX_CURVE_POINTS + 2 && curve.points.is_sorted());
            1.0 - 10f64.powf(-last.0)
        };
        assert!((end(whole) - 0.99995).abs() < 1e-9);
        assert!((end(lossy) - 0.94).abs() < 1e-9);
        let caption = case_chart(&run, &run.cases[2]).unwrap().caption;
        assert_eq!(caption, "gauge-1 · 2026-11-20 10:00 UTC · ends where the lost begin (6.00 %)");
    }
}
