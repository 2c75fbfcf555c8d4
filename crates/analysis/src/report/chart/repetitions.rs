//! The repetitions of a case side by side: box plots of round-trip times, or rates with their interval.

use super::axes::{AxisUnit, linear_axis, y_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::presentation::is_latency;
use crate::report::svg::{Axis, BoxAt, ChartSeries, SeriesKind};
use crate::report::wording::host_and_date;
use linkgauge_model::run::{CaseResult, PartResult, Run};

/// Minimum number of repetitions for a chart; fewer are easier to read in the table.
const MIN_REPETITIONS: usize = 3;

pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let count = case.repeats.len();
    if count < MIN_REPETITIONS {
        return None;
    }
    let (y, series) = if is_latency(case) { time_boxes(case)? } else { rate_dots(case)? };
    let ticks = (1..=count).step_by(count.div_ceil(16)).map(|number| (number as f64, number.to_string()));
    let x = Axis {
        label: "repetition".to_owned(),
        low: 0.5,
        high: count as f64 + 0.5,
        ticks: ticks.collect(),
        script_scale: "linear repetition".to_owned(),
    };
    let of = format!(" of {}", case.endpoint);
    let text = ChartText { title: "Repetition by repetition", of: &of, caption: host_and_date(run) };
    build_chart(text, &x, y, series)
}

fn numbered(case: &CaseResult) -> impl Iterator<Item = (f64, &PartResult)> {
    (1..).map(f64::from).zip(&case.repeats)
}

/// Whiskers end at p99 if each repetition has enough samples for it, else at the maximum.
fn time_boxes(case: &CaseResult) -> Option<(Axis, Vec<ChartSeries>)> {
    let times =
        || numbered(case).filter_map(|(at, part)| Some((at, part.figures.times.latency_ns.as_ref()?)));
    let has_tails = times().all(|(_, times)| times.percentile("p99").is_some());
    let boxes = times().filter_map(|(at, times)| {
        let [p10, p50, p90] = ["p10", "p50", "p90"].map(|name| times.percentile(name));
        let end = times.percentile("p99").filter(|_| has_tails).unwrap_or(times.max);
        Some((at, [times.min as f64, p10? as f64, p50? as f64, p90? as f64, end as f64]))
    });
    let boxes: Vec<BoxAt> = boxes.collect();
    if boxes.len() < MIN_REPETITIONS {
        return None;
    }
    let mut series = vec![ChartSeries { boxes, ..ChartSeries::curve("", vec![]) }];
    let end = if has_tails { "p99" } else { "maximum" };
    let label = format!("round-trip time: minimum, p10, p50, p90, {end}");
    Some((y_axis(&label, AxisUnit::Nanoseconds, &mut series), series))
}

fn rate_dots(case: &CaseResult) -> Option<(Axis, Vec<ChartSeries>)> {
    let delivery = &case.figures.delivery;
    let ends = (0.5, case.repeats.len() as f64 + 0.5);
    let rates = numbered(case).filter_map(|(at, part)| Some((at, part.figures.delivery.throughput_bps?)));
    let dots: Vec<(f64, f64)> = rates.filter(|(_, rate)| rate.is_finite()).collect();
    if dots.len() < MIN_REPETITIONS {
        return None;
    }
    let mut series = vec![ChartSeries { dots, ..ChartSeries::curve("rate", vec![]) }];
    if let Some(median) = delivery.throughput_bps {
        let points = vec![(ends.0, median), (ends.1, median)];
        series.push(ChartSeries { kind: SeriesKind::Limit, ..ChartSeries::curve("median", points) });
    }
    let most = series.iter().flat_map(|one| one.points.iter().chain(&one.dots)).map(|point| point.1);
    let mut y = linear_axis("delivered payload", AxisUnit::BitsPerSecond, most.fold(1.0, f64::max));
    if let Some(interval) = case.figures.intervals.get("throughput_bps") {
        y.label += ", 95 % interval shaded";
        series[0].band = vec![(ends.0, interval.low, interval.high), (ends.1, interval.low, interval.high)];
    }
    Some((y, series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn each_repetition_has_a_box_or_a_dot() {
        let run = sample_runs::full();
        let chart = case_chart(&run, &run.cases[0]).unwrap();
        assert_eq!(chart.panels[0].svg.matches("<polygon").count(), 3);
        assert!(chart.panels[0].y.label.contains("p99"));
        let mut rate = run.cases[3].clone();
        assert!(case_chart(&run, &rate).is_none());
        rate.repeats = vec![run.cases[0].repeats[0].clone(); 3];
        assert!(case_chart(&run, &rate).is_none(), "parts without a rate");
        for part in &mut rate.repeats {
            part.figures.delivery.throughput_bps = Some(3e8);
        }
        let svg = &case_chart(&run, &rate).unwrap().panels[0].svg;
        assert_eq!((svg.matches("<use").count(), svg.matches("<polygon").count()), (3, 1));
    }
}
