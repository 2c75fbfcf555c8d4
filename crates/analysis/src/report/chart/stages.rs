//! The anatomy of a round trip: its stages on top of each other.

use super::axes::{AxisUnit, linear_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::svg::{Axis, ChartSeries};
use crate::report::wording::host_and_date;
use linkgauge_model::run::{CaseResult, Distribution, Run};

/// Half of the width of a bar; the bars are one apart.
const HALF_WIDTH: f64 = 0.3;

/// The value of a stage that a bar shows.
type ReadStage = fn(&Distribution) -> Option<f64>;

const BARS: [(&str, ReadStage); 2] =
    [("mean", |times| Some(times.mean)), ("p50", |times| times.percentile("p50").map(|ns| ns as f64))];

/// A bar of the means, which add up to the mean round trip, and one of the medians.
pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let stages = case.figures.stages.as_ref().filter(|stages| stages.stamped > 0)?;
    let mut tops = [0.0; BARS.len()];
    let mut series = Vec::new();
    for (colour, (name, times)) in stages.parts().into_iter().enumerate() {
        for ((at, top), (_, read)) in (1..).map(f64::from).zip(&mut tops).zip(BARS) {
            let Some(height) = times.and_then(read).filter(|height| height.is_finite()) else { continue };
            let (low, left, right) = (*top, at - HALF_WIDTH, at + HALF_WIDTH);
            *top += height.max(0.0);
            series.push(ChartSeries {
                colour: Some(colour),
                band: vec![(left, low, *top), (right, low, *top)],
                ..ChartSeries::curve(name, vec![(left, *top), (right, *top)])
            });
        }
    }
    let ticks = (1..).map(f64::from).zip(BARS).map(|(at, (name, _))| (at, name.to_owned()));
    let x = Axis {
        label: "figure of each stage".to_owned(),
        low: 0.5,
        high: BARS.len() as f64 + 0.5,
        ticks: ticks.collect(),
        script_scale: "linear bar".to_owned(),
    };
    let y =
        linear_axis("time since the send call", AxisUnit::Nanoseconds, tops.into_iter().fold(1.0, f64::max));
    let of = format!(" of {}", case.endpoint);
    let text = ChartText { title: "Stages of a round trip", of: &of, caption: host_and_date(run) };
    build_chart(text, &x, y, series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn each_stage_is_a_part_of_a_bar() {
        let run = sample_runs::one_way_delays();
        let chart = case_chart(&run, &run.cases[0]).unwrap();
        assert_eq!((chart.panels.len(), chart.panels[0].svg.matches("<polygon").count()), (1, 16));
        let legend: Vec<&str> = chart.legend.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!((legend.len(), legend[0], legend[7]), (8, "local send", "local receive"));
        let run = sample_runs::full();
        assert!(case_chart(&run, &run.cases[0]).is_none());
    }
}
