//! Times below the resolution of a file: only a limit of them is known. They count as the limit.

use std::time::Duration;

use linkgauge_model::run::{Figures, Warning, WarningCode};
use linkgauge_model::sample::Recorder;
use linkgauge_model::units::{format_milliseconds, format_plural};

/// Finest step at which a round trip can be too short for the file. At a finer one a time of 0 is impossible.
const COARSE_NS: f64 = 2_000.0;

/// The step between two numbers with as many decimals as this text, in units of `unit_ns`. 0 if the text does not show it.
pub(super) fn step_ns(text: &str, unit_ns: f64) -> f64 {
    if text.contains(['e', 'E']) {
        return 0.0;
    }
    let decimals = text.trim().split_once(['.', ',']).map_or(0, |(_, decimals)| decimals.len());
    unit_ns / 10f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX))
}

/// The limit of a time of 0 in a file with this step; `None`: such a time is impossible.
pub(super) fn limit_ns(step_ns: f64) -> Option<u64> {
    (step_ns >= COARSE_NS).then_some(step_ns.round() as u64)
}

/// The figures of the recorder, in which times of 0 are known to be below this limit, and the number of those times.
pub(super) fn latency_figures(
    recorder: &mut Recorder,
    late: &[Duration],
    limit: Option<u64>,
) -> (Figures, u64) {
    let below = limit.map_or(0, |limit| recorder.service_times.raise_zeros(limit));
    let mut figures = recorder.latency_figures(late);
    if let (Some(limit), Some(times)) = (limit.filter(|_| below > 0), &mut figures.times.latency_ns) {
        times.below_ns = Some(limit);
        times.standard_deviation = None;
        times.later_than_ms.retain(|late, _| late.parse().is_ok_and(|late: f64| late * 1e6 >= limit as f64));
        figures.within_run_intervals.retain(|_, interval| interval.low > limit as f64);
    }
    (figures, below)
}

/// Figures of the recorder where zeros are below the step of the file, with a note on them. If all are, the figures have no
/// times.
pub(super) fn resolved_figures(
    recorder: &mut Recorder,
    late: &[Duration],
    step_ns: f64,
) -> (Figures, Option<Warning>) {
    let limit = limit_ns(step_ns);
    let (mut figures, below) = latency_figures(recorder, late, limit);
    let Some(limit) = limit.filter(|_| below > 0) else { return (figures, None) };
    let (received, step) = (recorder.counts.received, format_limit(limit));
    let text = if below < received {
        format!(
            "{below} of {} are below the resolution of the file ({step}) and count as {step}, so the figures are upper bounds",
            format_plural(received, "time")
        )
    } else {
        figures.times = Default::default();
        (figures.histogram_hdr_v2, figures.within_run_intervals) = Default::default();
        format!(
            "all {} are below the resolution of the file ({step}), so there are no times",
            format_plural(received, "time")
        )
    };
    (figures, Some(Warning::new(WarningCode::UpperBound, text, "write times with more digits to the file")))
}

/// A limit for people: `1 ms`.
pub(super) fn format_limit(limit_ns: u64) -> String {
    format!("{} ms", format_milliseconds(Duration::from_nanos(limit_ns)))
}
