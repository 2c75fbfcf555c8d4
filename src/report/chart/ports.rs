//! The ports of a case side by side: whether one of them is slower than the others.

use super::axes::{Unit, linear};
use super::{Chart, chart};
use crate::report::svg::{Axis, Kind, Series};
use crate::report::table::is_latency;
use crate::report::words::{host_and_date, limit_bps};
use crate::run::{CaseResult, Figures, Part, Run};

/// Of a latency a dot at the median and one at the p99, of a throughput one at the rate.
pub fn of_case(run: &Run, case: &CaseResult) -> Option<Chart> {
    let dots = |label: &str, value: &dyn Fn(&Figures) -> Option<f64>| Series {
        dots: places(case, value),
        ..Series::curve(label, vec![])
    };
    let time = |name: &'static str| {
        move |figures: &Figures| Some(figures.latency_ns.as_ref()?.percentile(name)? as f64)
    };
    let (what, unit, mut series) = match is_latency(case) {
        true => {
            ("round-trip time", Unit::Nanoseconds, vec![dots("p50", &time("p50")), dots("p99", &time("p99"))])
        }
        false => {
            ("delivered payload", Unit::BitsPerSecond, vec![dots("", &|figures| figures.throughput_bps)])
        }
    };
    series.retain(|one| !one.dots.is_empty());
    let count = case.per_port.len() as f64;
    if let Some(limit) =
        limit_bps(case).filter(|limit| limit.is_finite() && *limit > 0.0 && !is_latency(case))
    {
        let points = vec![(0.5, limit / count), (count + 0.5, limit / count)];
        series.push(Series { kind: Kind::Limit, ..Series::curve("what one line can carry", points) });
    }
    chart_of(&format!(" of {}", case.endpoint), host_and_date(run), what, unit, case.per_port.len(), series)
}

/// Several cases beside each other, each in the place of a series without points: of a latency the p50 of each port.
pub fn beside(of: &str, cases: &[(Series, &CaseResult)]) -> Option<Chart> {
    let (_, first) = cases.first()?;
    let (what, unit) = match is_latency(first) {
        true => ("round-trip time, p50", Unit::Nanoseconds),
        false => ("delivered payload", Unit::BitsPerSecond),
    };
    let value = |figures: &Figures| match is_latency(first) {
        true => Some(figures.latency_ns.as_ref()?.percentile("p50")? as f64),
        false => figures.throughput_bps,
    };
    let dots =
        |(series, case): &(Series, &CaseResult)| Series { dots: places(case, &value), ..series.clone() };
    let count = cases.iter().map(|(_, case)| case.per_port.len()).max()?;
    chart_of(of, String::new(), what, unit, count, cases.iter().map(dots).collect())
}

/// One point a port that has such a value.
fn places(case: &CaseResult, value: &dyn Fn(&Figures) -> Option<f64>) -> Vec<(f64, f64)> {
    let place = |(part, number): (&Part, u32)| {
        let value = value(&part.figures).filter(|value| value.is_finite() && *value >= 0.0)?;
        Some((f64::from(number), value))
    };
    case.per_port.iter().zip(1..).filter_map(place).collect()
}

fn chart_of(
    of: &str,
    caption: String,
    what: &str,
    unit: Unit,
    ports: usize,
    series: Vec<Series>,
) -> Option<Chart> {
    if ports < 2 {
        return None;
    }
    let values = series.iter().flat_map(|one| one.points.iter().chain(&one.dots)).map(|point| point.1);
    let y = linear(what, unit, values.fold(1.0, f64::max));
    // Sixteen numbers find room.
    let every = ports.div_ceil(16);
    let ticks = (1..=ports).step_by(every).map(|number| (number as f64, number.to_string()));
    let x = Axis {
        label: "port".to_owned(),
        low: 0.5,
        high: ports as f64 + 0.5,
        ticks: ticks.collect(),
        reads: "linear port".to_owned(),
    };
    chart("Port by port", of, caption, &x, &y, series)
}
