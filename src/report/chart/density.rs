//! How the round-trip times of a case are spread: the share of exchanges in each bin, all bins equally wide on a
//! logarithmic axis.

use super::axes::{Unit, linear, logarithmic};
use super::{Chart, chart};
use crate::report::histogram::histogram;
use crate::report::svg::Series;
use crate::run::{CaseResult, Figures, Run};

/// As many as can be told apart at the width of a page, and a few dozen samples fill.
const BINS: usize = 60;
/// Fewer are no distribution.
const LEAST_SAMPLES: u64 = 100;

pub fn of_case(run: &Run, case: &CaseResult) -> Option<Chart> {
    let (figures, title) = match &case.under_load {
        Some(loaded) => (loaded, "How round-trip times under load are spread"),
        None => (&case.figures, "How round-trip times are spread"),
    };
    let points = bins(figures)?;
    let end = |point: Option<&(f64, f64)>| point.map_or(1.0, |point| 10f64.powf(point.0));
    let highest = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let x = logarithmic("round-trip time", Unit::Nanoseconds, end(points.first()), end(points.last()));
    let y = linear("share of the answered exchanges", Unit::Percent, highest);
    chart(run, title, &format!(" of {}", case.endpoint), "", &x, &y, vec![Series::curve("", points)])
}

/// The outline of the bins, from the shortest time to the longest.
fn bins(figures: &Figures) -> Option<Vec<(f64, f64)>> {
    let histogram = histogram(figures).filter(|histogram| histogram.len() >= LEAST_SAMPLES)?;
    let log = |nanoseconds: u64| Unit::Nanoseconds.log(nanoseconds as f64);
    let (low, high) = (log(histogram.min()), log(histogram.max()));
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
        let points = bins(&run.cases[0].figures).unwrap();
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
        let width = (points.last().unwrap().0 - points[0].0) / BINS as f64;
        let area: f64 = points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1 / width).sum();
        assert!((area - 100.0).abs() < 1e-6, "{area}");
        assert!(of_case(&run, &run.cases[0]).is_some());
        assert!(of_case(&sample_run::minimal(), &sample_run::minimal().cases[0]).is_none());
    }
}
