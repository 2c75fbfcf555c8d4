//! Distribution of the round-trip times of a case: a histogram, whose bins are equally wide on a logarithmic axis, and below
//! it the cumulative distribution.

use hdrhistogram::Histogram;

use super::axes::{AxisUnit, linear_axis, log_axis};
use super::{Chart, ChartText, MAX_CURVE_POINTS, build_panels};
use crate::report::decode_figures_histogram;
use crate::report::svg::ChartSeries;
use crate::report::wording::host_and_date;
use linkgauge_model::run::{CaseResult, Figures, Run};

/// Number of bins: as many as are visible at the width of a page, and few enough for a few dozen samples.
const BIN_COUNT: usize = 60;
/// Points of a curve.
type Outline = Vec<(f64, f64)>;

/// Minimum number of samples of a distribution.
const MIN_SAMPLES: u64 = 100;

pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let of = format!(" of {}", case.endpoint);
    let text = ChartText { title: chart_title(case), of: &of, caption: host_and_date(run) };
    overlay_chart(text, &[(ChartSeries::curve("", vec![]), case)])
}

pub(crate) fn chart_title(case: &CaseResult) -> &'static str {
    match &case.under_load {
        Some(_) => "Distribution of round-trip times under load",
        None => "Distribution of round-trip times",
    }
}

/// The figures whose distribution is drawn: those of the probe, if there is one.
fn drawn_figures(case: &CaseResult) -> &Figures {
    case.under_load.as_ref().unwrap_or(&case.figures)
}

fn latency_histogram(case: &CaseResult) -> Option<Histogram<u64>> {
    let histogram = decode_figures_histogram(drawn_figures(case))?;
    (histogram.len() >= MIN_SAMPLES).then_some(histogram)
}

fn log_position(nanoseconds: u64) -> f64 {
    AxisUnit::Nanoseconds.log_position(nanoseconds as f64)
}

/// The cases in one chart with common bins. Each replaces a series without points.
pub(crate) fn overlay_chart(text: ChartText, cases: &[(ChartSeries, &CaseResult)]) -> Option<Chart> {
    let known = cases.iter().filter_map(|(series, case)| Some((series, case, latency_histogram(case)?)));
    let known: Vec<(&ChartSeries, &&CaseResult, Histogram<u64>)> = known.collect();
    let least = known.iter().map(|(_, _, samples)| samples.min()).min()?;
    let most = known.iter().map(|(_, _, samples)| samples.max()).max()?;
    // Differences below the resolution of the histogram (three digits) are not a distribution.
    let (low, high) = (log_position(least), log_position(most));
    if high - low < 0.005 {
        return None;
    }
    let drawn = |points: &dyn Fn(&Histogram<u64>, &CaseResult) -> Outline| {
        let one = |(series, case, samples): &(&ChartSeries, &&CaseResult, Histogram<u64>)| ChartSeries {
            points: points(samples, case),
            ..(*series).clone()
        };
        known.iter().map(one).collect::<Vec<ChartSeries>>()
    };
    let bins = drawn(&|samples, _| bin_outline(samples, low, high));
    let shares = drawn(&|samples, case| cumulative_shares(samples, drawn_figures(case).counts.reference()));
    let highest = bins.iter().flat_map(|one| &one.points).map(|point| point.1).fold(0.0, f64::max);
    let x = log_axis("round-trip time", AxisUnit::Nanoseconds, least as f64, most as f64);
    let panels = vec![
        (linear_axis("share of the replies in each bin", AxisUnit::Percent, highest), bins),
        (linear_axis("share of the requests that took no longer", AxisUnit::Percent, 100.0), shares),
    ];
    build_panels(text, &x, panels)
}

/// The cumulative share of the requests. It ends below 100 % if requests were lost.
fn cumulative_shares(histogram: &Histogram<u64>, sent: u64) -> Vec<(f64, f64)> {
    let sent = sent.max(histogram.len()) as f64;
    let step_width =
        (log_position(histogram.max()) - log_position(histogram.min())) / MAX_CURVE_POINTS as f64;
    let (mut points, mut replies) = (vec![(log_position(histogram.min()), 0.0)], 0);
    for step in histogram.iter_recorded() {
        replies += step.count_at_value();
        let at = log_position(step.value_iterated_to());
        if at - points[points.len() - 1].0 >= step_width || points.len() == 1 || replies == histogram.len() {
            points.push((at, replies as f64 / sent * 100.0));
        }
    }
    points
}

/// The outline of the bins, from the minimum to the maximum.
fn bin_outline(histogram: &Histogram<u64>, low: f64, high: f64) -> Vec<(f64, f64)> {
    let mut counts = [0_u64; BIN_COUNT];
    for step in histogram.iter_recorded() {
        let at = (log_position(step.value_iterated_to()) - low) / (high - low) * BIN_COUNT as f64;
        counts[(at as usize).min(BIN_COUNT - 1)] += step.count_at_value();
    }
    let edge = |bin: usize| low + (high - low) * bin as f64 / BIN_COUNT as f64;
    let mut points = vec![(low, 0.0)];
    for (bin, count) in counts.into_iter().enumerate() {
        let share = count as f64 / histogram.len() as f64 * 100.0;
        // The outline needs no corner between equal neighbours.
        if points.last().is_some_and(|(_, last)| *last != share) {
            points.extend([(edge(bin), share)]);
        } else {
            points.pop();
        }
        points.push((edge(bin + 1), share));
    }
    points.push((high, 0.0));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn bins_hold_every_sample_once() {
        let run = sample_runs::full();
        let samples = latency_histogram(&run.cases[0]).unwrap();
        let points = bin_outline(&samples, log_position(samples.min()), log_position(samples.max()));
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
        let width = (points.last().unwrap().0 - points[0].0) / BIN_COUNT as f64;
        let area: f64 = points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / width).sum();
        assert!((area - 100.0).abs() < 1e-6, "{area}");
        assert_eq!(case_chart(&run, &run.cases[0]).unwrap().panels.len(), 2);
        assert!(case_chart(&sample_runs::minimal(), &sample_runs::minimal().cases[0]).is_none());
    }

    #[test]
    fn cumulative_share_ends_at_the_lost_requests() {
        let run = sample_runs::full();
        for (case, end) in [(&run.cases[0], 100.0), (&run.cases[2], 94.0)] {
            let points =
                cumulative_shares(&latency_histogram(case).unwrap(), case.figures.counts.reference());
            assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
            assert_eq!(points.last().unwrap().1, end);
            // The median of the document is where half of the requests are.
            let median = case.figures.times.latency_ns.as_ref().unwrap().percentile("p50").unwrap();
            let half = points.iter().find(|point| point.1 >= 50.0).unwrap().0;
            assert!((half - log_position(median)).abs() < 0.01, "{half}");
        }
    }
}
