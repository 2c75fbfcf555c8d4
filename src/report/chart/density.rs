//! Distribution of the round-trip times of a case: the share of requests in each bin. All bins are equally wide on a
//! logarithmic axis.

use hdrhistogram::Histogram;

use super::axes::{AxisUnit, linear_axis, log_axis};
use super::{Chart, build_chart};
use crate::report::decode_figures_histogram;
use crate::report::svg::ChartSeries;
use crate::report::wording::host_and_date;
use crate::run::{CaseResult, Run};

/// As many as are visible at the width of a page, and few enough for a few dozen samples.
const BIN_COUNT: usize = 60;
/// Fewer samples do not make a distribution.
const MIN_SAMPLES: u64 = 100;

pub fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    overlay_chart(
        chart_title(case),
        &format!(" of {}", case.endpoint),
        host_and_date(run),
        &[(ChartSeries::curve("", vec![]), case)],
    )
}

pub fn chart_title(case: &CaseResult) -> &'static str {
    match &case.under_load {
        Some(_) => "How round-trip times under load are spread",
        None => "How round-trip times are spread",
    }
}

fn latency_histogram(case: &CaseResult) -> Option<Histogram<u64>> {
    let histogram = decode_figures_histogram(case.under_load.as_ref().unwrap_or(&case.figures))?;
    (histogram.len() >= MIN_SAMPLES).then_some(histogram)
}

fn log_position(nanoseconds: u64) -> f64 {
    AxisUnit::Nanoseconds.log_position(nanoseconds as f64)
}

/// The cases in one chart with common bins. Each replaces a series without points.
pub fn overlay_chart(
    title: &str,
    of: &str,
    caption: String,
    cases: &[(ChartSeries, &CaseResult)],
) -> Option<Chart> {
    let known = cases.iter().filter_map(|(series, case)| Some((series, latency_histogram(case)?)));
    let known: Vec<(&ChartSeries, Histogram<u64>)> = known.collect();
    let least = known.iter().map(|(_, samples)| samples.min()).min()?;
    let most = known.iter().map(|(_, samples)| samples.max()).max()?;
    let drawn = |(series, samples): &(&ChartSeries, Histogram<u64>)| {
        Some(ChartSeries {
            points: bin_outline(samples, log_position(least), log_position(most))?,
            ..(*series).clone()
        })
    };
    let series: Vec<ChartSeries> = known.iter().filter_map(drawn).collect();
    let highest = series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(0.0, f64::max);
    let x = log_axis("round-trip time", AxisUnit::Nanoseconds, least as f64, most as f64);
    let y = linear_axis("share of the replies", AxisUnit::Percent, highest);
    build_chart(title, of, caption, [&x, &y], series)
}

/// The outline of the bins, from the minimum to the maximum.
fn bin_outline(histogram: &Histogram<u64>, low: f64, high: f64) -> Option<Vec<(f64, f64)>> {
    // Differences below the resolution of the histogram (three digits) are not a distribution.
    if high - low < 0.005 {
        return None;
    }
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
    Some(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn bins_hold_every_sample_once() {
        let run = sample_runs::full();
        let samples = latency_histogram(&run.cases[0]).unwrap();
        let points = bin_outline(&samples, log_position(samples.min()), log_position(samples.max())).unwrap();
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
        let width = (points.last().unwrap().0 - points[0].0) / BIN_COUNT as f64;
        let area: f64 = points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / width).sum();
        assert!((area - 100.0).abs() < 1e-6, "{area}");
        assert!(case_chart(&run, &run.cases[0]).is_some());
        assert!(case_chart(&sample_runs::minimal(), &sample_runs::minimal().cases[0]).is_none());
    }
}
