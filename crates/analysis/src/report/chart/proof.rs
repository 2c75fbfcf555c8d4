//! The proof of a cause: every pair of blocks, and the round trip at each value of a setting.

use super::axes::{AxisUnit, linear_axis, y_axis};
use super::{Chart, ChartText, build_chart};
use crate::explain::live::rate::RateFinding;
use crate::explain::live::{CauseFinding, CauseVerdict, DoseResponse};
use crate::report::svg::{Axis, ChartSeries, SeriesKind};
use crate::report::wording::plural;

/// Chart of each pair of a proved cause, as a line from the baseline to the block with the changed setting.
pub(crate) fn pair_chart(finding: &CauseFinding) -> Option<Chart> {
    // The sizes of a cost per byte are doses.
    let is_switch = finding.effect.dose.as_ref().is_none_or(|dose| dose.knob != "message_bytes");
    if finding.verdict != CauseVerdict::Proved || finding.effect.pairs_ns.is_empty() || !is_switch {
        return None;
    }
    pairs_as_lines(finding.name, &finding.effect.pairs_ns, BLOCK_TIME)
}

/// Chart of each pair of a transfer with a proved cause, as a line from the baseline to the block with the changed setting.
pub(crate) fn rate_pair_chart(finding: &RateFinding) -> Option<Chart> {
    let is_shown = finding.verdict == CauseVerdict::Proved && !finding.effect.pairs_bps.is_empty();
    is_shown.then(|| {
        pairs_as_lines(finding.name, &finding.effect.pairs_bps, ("rate of a block", AxisUnit::BitsPerSecond))
    })?
}

/// The quantity of a block of round trips.
const BLOCK_TIME: (&str, AxisUnit) = ("round trip of a block", AxisUnit::Nanoseconds);

fn pairs_as_lines(name: &str, pairs: &[[f64; 2]], (label, unit): (&str, AxisUnit)) -> Option<Chart> {
    let line = |[baseline, changed]: &[f64; 2]| {
        let points = vec![(1.0, *baseline), (2.0, *changed)];
        ChartSeries { colour: Some(0), dots: points.clone(), ..ChartSeries::curve("one pair", points) }
    };
    let mut series: Vec<ChartSeries> = pairs.iter().map(line).collect();
    let y = y_axis(label, unit, &mut series);
    let x = Axis {
        label: "setting".to_owned(),
        low: 0.5,
        high: 2.5,
        ticks: vec![(1.0, "as it was".to_owned()), (2.0, "changed".to_owned())],
        script_scale: "linear ".to_owned(),
    };
    let title = format!("Pairs: {name}");
    let caption = plural(pairs.len(), "pair");
    build_chart(ChartText { title: &title, of: "", caption }, &x, y, series)
}

/// The blocks at each value, and the line through them. Only of proved causes.
pub(crate) fn dose_chart(finding: &CauseFinding) -> Option<Chart> {
    let dose = finding.effect.dose.as_ref().filter(|_| finding.verdict == CauseVerdict::Proved)?;
    let (label, unit) = match dose.knob {
        "message_bytes" => ("message size", AxisUnit::Bytes),
        name => (name, AxisUnit::Nanoseconds),
    };
    let dots: Vec<(f64, f64)> = dose.points.iter().map(|[value, ns]| (*value, *ns)).collect();
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let x = linear_axis(label, unit, most(&mut dots.iter().map(|dot| dot.0)));
    let y = linear_axis(
        "median round trip of a block",
        AxisUnit::Nanoseconds,
        most(&mut dots.iter().map(|dot| dot.1)),
    );
    let blocks = ChartSeries { dots, ..ChartSeries::curve("one block", vec![]) };
    let fit =
        ChartSeries { kind: SeriesKind::Limit, ..ChartSeries::curve("fitted line", line(dose, &blocks)) };
    let title = format!("Dose: {}", finding.name);
    let caption = plural(dose.points.len(), "block");
    build_chart(ChartText { title: &title, of: "", caption }, &x, y, vec![blocks, fit])
}

/// The fitted line at the smallest and at the largest value; it passes the middle of the residuals.
fn line(dose: &DoseResponse, blocks: &ChartSeries) -> Vec<(f64, f64)> {
    let residuals: Vec<f64> = blocks.dots.iter().map(|(value, ns)| ns - dose.slope * value).collect();
    let Some(intercept) = linkgauge_model::stats::median(&residuals) else { return Vec::new() };
    let values = || blocks.dots.iter().map(|dot| dot.0);
    let ends = [values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max)];
    ends.map(|value| (value, intercept + dose.slope * value)).to_vec()
}
