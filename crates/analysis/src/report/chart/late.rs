//! The first late requests of a schedule, by the time at which they were due.

use super::axes::{AxisUnit, linear_axis, y_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::svg::ChartSeries;
use crate::report::wording::{host_and_date, plural};
use linkgauge_model::run::{CaseResult, Run};

/// The table shows fewer well enough.
const MIN_REQUESTS: usize = 3;

/// Response times of the late requests, and the times of the lost ones.
pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let first = &case.figures.times.missed_frames.as_ref()?.first;
    if first.len() < MIN_REQUESTS {
        return None;
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let late = first.iter().filter_map(|frame| Some((seconds(frame.due_ns), frame.response_ns? as f64)));
    let mut series = vec![ChartSeries { dots: late.collect(), ..ChartSeries::curve("late", vec![]) }];
    let y = y_axis("response time", AxisUnit::Nanoseconds, &mut series);
    let lost = first.iter().filter(|frame| frame.response_ns.is_none());
    let lost: Vec<(f64, f64)> = lost.map(|frame| (seconds(frame.due_ns), y.high)).collect();
    if !lost.is_empty() {
        series.push(ChartSeries::events("lost", lost));
    }
    let last = first.iter().map(|frame| seconds(frame.due_ns)).fold(0.0, f64::max);
    let x = linear_axis("time since the start (s)", AxisUnit::Seconds, last.max(1e-9));
    let caption = format!("{} · {}", plural(first.len(), "request"), host_and_date(run));
    let of = format!(" of {}", case.endpoint);
    build_chart(ChartText { title: "First late requests", of: &of, caption }, &x, y, series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;
    use linkgauge_model::run::MissedFrame;

    #[test]
    fn many_late_requests_become_a_chart() {
        let run = sample_runs::full();
        let mut case = run.cases[0].clone();
        assert!(case_chart(&run, &case).is_none(), "two are in the table");
        let first = &mut case.figures.times.missed_frames.as_mut().unwrap().first;
        first.push(MissedFrame {
            repetition: None,
            sequence: 5000,
            due_ns: 50_000_000_000,
            response_ns: None,
        });
        let chart = case_chart(&run, &case).unwrap();
        let svg = &chart.panels[0].svg;
        assert_eq!((svg.matches("s1-fill").count(), svg.matches("event-line").count()), (2, 1));
        assert_eq!(chart.legend.len(), 2);
    }
}
