//! The ports of a case side by side, to show slow ones.

use super::axes::{AxisUnit, linear_axis};
use super::{Chart, ChartText, build_chart};
use crate::report::presentation::is_latency;
use crate::report::svg::{Axis, ChartSeries, SeriesKind};
use crate::report::wording::{host_and_date, line_limit_bps};
use linkgauge_model::run::{CaseResult, Figures, PartResult, Run};

const TITLE: &str = "Port by port";

/// Chart of the ports of a case: for latency a dot at the median and one at p99, for throughput one at the rate.
pub(crate) fn case_chart(run: &Run, case: &CaseResult) -> Option<Chart> {
    let dots = |label: &str, value: &dyn Fn(&Figures) -> Option<f64>| ChartSeries {
        dots: port_points(case, value),
        ..ChartSeries::curve(label, vec![])
    };
    let time = |name: &'static str| {
        move |figures: &Figures| Some(figures.times.latency_ns.as_ref()?.percentile(name)? as f64)
    };
    let (what, unit, mut series) = match is_latency(case) {
        true => (
            "round-trip time",
            AxisUnit::Nanoseconds,
            vec![dots("p50", &time("p50")), dots("p99", &time("p99"))],
        ),
        false => (
            "delivered payload",
            AxisUnit::BitsPerSecond,
            vec![dots("", &|figures| figures.delivery.throughput_bps)],
        ),
    };
    series.retain(|one| !one.dots.is_empty());
    let count = case.per_port.len() as f64;
    if let Some(limit) =
        line_limit_bps(case).filter(|limit| limit.is_finite() && *limit > 0.0 && !is_latency(case))
    {
        let points = vec![(0.5, limit / count), (count + 0.5, limit / count)];
        series.push(ChartSeries {
            kind: SeriesKind::Limit,
            ..ChartSeries::curve("maximum of one line", points)
        });
    }
    let of = format!(" of {}", case.endpoint);
    let text = ChartText { title: TITLE, of: &of, caption: host_and_date(run) };
    ports_chart(text, (what, unit), case.per_port.len(), series)
}

/// Several cases in one chart. Each replaces a series without points. For latency: the p50 of each port.
pub(crate) fn overlay_chart(of: &str, cases: &[(ChartSeries, &CaseResult)]) -> Option<Chart> {
    let (_, first) = cases.first()?;
    let (what, unit) = match is_latency(first) {
        true => ("round-trip time, p50", AxisUnit::Nanoseconds),
        false => ("delivered payload", AxisUnit::BitsPerSecond),
    };
    let value = |figures: &Figures| match is_latency(first) {
        true => Some(figures.times.latency_ns.as_ref()?.percentile("p50")? as f64),
        false => figures.delivery.throughput_bps,
    };
    let dots = |(series, case): &(ChartSeries, &CaseResult)| ChartSeries {
        dots: port_points(case, &value),
        ..series.clone()
    };
    let count = cases.iter().map(|(_, case)| case.per_port.len()).max()?;
    let text = ChartText { title: TITLE, of, caption: String::new() };
    ports_chart(text, (what, unit), count, cases.iter().map(dots).collect())
}

/// One point per port that has a value.
fn port_points(case: &CaseResult, value: &dyn Fn(&Figures) -> Option<f64>) -> Vec<(f64, f64)> {
    let place = |(part, number): (&PartResult, u32)| {
        let value = value(&part.figures).filter(|value| value.is_finite() && *value >= 0.0)?;
        Some((f64::from(number), value))
    };
    case.per_port.iter().zip(1..).filter_map(place).collect()
}

fn ports_chart(
    text: ChartText,
    (what, unit): (&str, AxisUnit),
    ports: usize,
    series: Vec<ChartSeries>,
) -> Option<Chart> {
    if ports < 2 {
        return None;
    }
    let values = series.iter().flat_map(|one| one.points.iter().chain(&one.dots)).map(|point| point.1);
    let y = linear_axis(what, unit, values.fold(1.0, f64::max));
    // There is room for sixteen labels.
    let every = ports.div_ceil(16);
    let ticks = (1..=ports).step_by(every).map(|number| (number as f64, number.to_string()));
    let x = Axis {
        label: "port".to_owned(),
        low: 0.5,
        high: ports as f64 + 0.5,
        ticks: ticks.collect(),
        script_scale: "linear port".to_owned(),
    };
    build_chart(text, &x, y, series)
}
