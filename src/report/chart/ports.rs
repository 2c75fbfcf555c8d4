//! The ports of a case side by side: whether one of them is slower than the others.

use super::axes::{Unit, linear};
use super::{Chart, chart};
use crate::report::svg::{Axis, Kind, Series};
use crate::report::table::is_latency;
use crate::report::words::limit_bps;
use crate::run::{CaseResult, Figures, Run};

/// Of a latency a dot at the median and one at the p99, of a throughput one at the rate.
pub fn of_case(run: &Run, case: &CaseResult) -> Option<Chart> {
    if case.per_port.len() < 2 {
        return None;
    }
    let dots = |label: &str, value: &dyn Fn(&Figures) -> Option<f64>| {
        let places = case.per_port.iter().zip(1..).filter_map(|(part, number)| {
            Some((
                f64::from(number),
                value(&part.figures).filter(|value| value.is_finite() && *value >= 0.0)?,
            ))
        });
        Series { dots: places.collect(), ..Series::curve(label, vec![]) }
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
    let values = series.iter().flat_map(|one| one.points.iter().chain(&one.dots)).map(|point| point.1);
    let y = linear(what, unit, values.fold(1.0, f64::max));
    // Sixteen numbers find room.
    let every = case.per_port.len().div_ceil(16);
    let ticks = (1..=case.per_port.len()).step_by(every).map(|number| (number as f64, number.to_string()));
    let x = Axis {
        label: "port".to_owned(),
        low: 0.5,
        high: count + 0.5,
        ticks: ticks.collect(),
        reads: "linear port".to_owned(),
    };
    chart(run, "Port by port", &format!(" of {}", case.endpoint), "", &x, &y, series)
}
