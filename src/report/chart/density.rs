//! How the round-trip times of a case are spread: the share of exchanges in each bin, all bins equally wide on a
//! logarithmic axis.

use hdrhistogram::Histogram;

use super::axes::{Unit, linear, logarithmic};
use super::{Chart, chart};
use crate::report::histogram;
use crate::report::svg::Series;
use crate::report::words::host_and_date;
use crate::run::{CaseResult, Run};

/// As many as can be told apart at the width of a page, and a few dozen samples fill.
const BINS: usize = 60;
/// Fewer are no distribution.
const LEAST_SAMPLES: u64 = 100;

pub fn of_case(run: &Run, case: &CaseResult) -> Option<Chart> {
    spread(
        title(case),
        &format!(" of {}", case.endpoint),
        host_and_date(run),
        &[(Series::curve("", vec![]), case)],
    )
}

pub fn title(case: &CaseResult) -> &'static str {
    match &case.under_load {
        Some(_) => "How round-trip times under load are spread",
        None => "How round-trip times are spread",
    }
}

fn samples(case: &CaseResult) -> Option<Histogram<u64>> {
    let histogram = histogram(case.under_load.as_ref().unwrap_or(&case.figures))?;
    (histogram.len() >= LEAST_SAMPLES).then_some(histogram)
}

fn log(nanoseconds: u64) -> f64 {
    Unit::Nanoseconds.log(nanoseconds as f64)
}

/// The cases over each other, in the same bins; each in the place of a series without points.
pub fn spread(title: &str, of: &str, caption: String, cases: &[(Series, &CaseResult)]) -> Option<Chart> {
    let known = cases.iter().filter_map(|(series, case)| Some((series, samples(case)?)));
    let known: Vec<(&Series, Histogram<u64>)> = known.collect();
    let least = known.iter().map(|(_, samples)| samples.min()).min()?;
    let most = known.iter().map(|(_, samples)| samples.max()).max()?;
    let drawn = |(series, samples): &(&Series, Histogram<u64>)| {
        Some(Series { points: bins(samples, log(least), log(most))?, ..(*series).clone() })
    };
    let series: Vec<Series> = known.iter().filter_map(drawn).collect();
    let highest = series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(0.0, f64::max);
    let x = logarithmic("round-trip time", Unit::Nanoseconds, least as f64, most as f64);
    let y = linear("share of the answered exchanges", Unit::Percent, highest);
    chart(title, of, caption, &x, &y, series)
}

/// The outline of the bins, from the shortest time to the longest.
fn bins(histogram: &Histogram<u64>, low: f64, high: f64) -> Option<Vec<(f64, f64)>> {
    // What the histogram cannot tell apart is no spread: it keeps three digits.
    if high - low < 0.005 {
        return None;
    }
    let mut counts = [0_u64; BINS];
    for step in histogram.iter_recorded() {
        let at = (log(step.value_iterated_to()) - low) / (high - low) * BINS as f64;
        counts[(at as usize).min(BINS - 1)] += step.count_at_value();
    }
    let edge = |bin: usize| low + (high - low) * bin as f64 / BINS as f64;
    let mut points = vec![(low, 0.0)];
    for (bin, count) in counts.into_iter().enumerate() {
        let share = count as f64 / histogram.len() as f64 * 100.0;
        // Level with its neighbour, the outline needs no corner.
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
    use crate::report::sample_run;

    #[test]
    fn the_bins_hold_everybody_once() {
        let run = sample_run::full();
        let samples = samples(&run.cases[0]).unwrap();
        let points = bins(&samples, log(samples.min()), log(samples.max())).unwrap();
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
        let width = (points.last().unwrap().0 - points[0].0) / BINS as f64;
        let area: f64 = points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / width).sum();
        assert!((area - 100.0).abs() < 1e-6, "{area}");
        assert!(of_case(&run, &run.cases[0]).is_some());
        assert!(of_case(&sample_run::minimal(), &sample_run::minimal().cases[0]).is_none());
    }
}
