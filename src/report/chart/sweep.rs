//! Rate by message size and by the rate of the line, with what the line can carry beside it.

use super::axes::{Unit, linear, logarithmic_at, upright};
use super::{Chart, chart};
use crate::report::svg::{Axis, Kind, Series};
use crate::report::table::is_latency;
use crate::report::words::{limit_bps, line_bps, shorten, wait};
use crate::run::{CaseResult, Run};

/// One curve for each endpoint, peer, direction and number of ports that was measured with several sizes.
pub fn by_size(run: &Run) -> Option<Chart> {
    let place = |case: &CaseResult| shorten(&case.endpoint, 48);
    let sizes = Sweep::of(run, &place, |case| Some(f64::from(case.message_bytes)));
    let x = logarithmic_at("message size", Unit::Bytes, sizes.values())?;
    sizes.chart(run, "Rate by message size", &x)
}

/// One curve for each kind of line that was measured at several rates.
pub fn by_line_rate(run: &Run) -> Option<Chart> {
    // The options of a URL say how fast its line is: without them one kind of line is one curve.
    let place = |case: &CaseResult| {
        let place = case.endpoint.split('?').next().unwrap_or_default();
        shorten(place.split_once("://").map_or(place, |(scheme, _)| scheme), 48)
    };
    let rates = Sweep::of(run, &place, |case| line_bps(case).filter(|_| case.ports > 0));
    let x = logarithmic_at("rate of the line", Unit::Baud, rates.values())?;
    rates.chart(run, "Rate by the rate of the line", &x)
}

struct Sweep {
    series: Vec<Series>,
}

impl Sweep {
    fn of(
        run: &Run,
        place: &dyn Fn(&CaseResult) -> String,
        swept: impl Fn(&CaseResult) -> Option<f64>,
    ) -> Sweep {
        let mut series: Vec<Series> = Vec::new();
        let mut limits: Vec<(String, (f64, f64))> = Vec::new();
        let mut add = |label: String, at: f64, rate: Option<f64>| {
            let Some(rate) = rate.filter(|rate| rate.is_finite() && *rate >= 0.0 && at > 0.0) else { return };
            match series.iter_mut().find(|one| one.label == label) {
                Some(one) => one.points.push((at, rate)),
                None => series.push(Series::curve(&label, vec![(at, rate)])),
            }
        };
        for case in run.cases.iter().filter(|case| !is_latency(case)) {
            let Some(at) = swept(case) else { continue };
            let ports = if case.ports > 1 { format!(", {} ports", case.ports) } else { String::new() };
            let spin = if wait(case) == "spin" { ", spin" } else { "" };
            let parallel = if case.parallel > 1 { format!(" × {}", case.parallel) } else { String::new() };
            let label =
                format!("{}{spin}{ports}{parallel}, {}, {}", place(case), case.peer, case.direction.name());
            add(label.clone(), at, case.figures.throughput_bps);
            add(format!("{label}, other way"), at, case.figures.throughput_back_bps);
            if let Some(limit) = limit_bps(case).filter(|limit| limit.is_finite() && *limit > 0.0) {
                limits.push((label, (at, limit)));
            }
        }
        for one in &mut series {
            one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            one.points.dedup_by(|a, b| a.0 == b.0);
            one.dots = one.points.clone();
        }
        series.retain(|one| one.points.len() > 1);
        let drawn = |label: &String| series.iter().any(|one| one.label == *label);
        let drawn = limits.into_iter().filter(|(label, _)| drawn(label)).map(|(_, limit)| limit);
        let mut limits: Vec<(f64, f64)> = drawn.collect();
        limits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        limits.dedup_by(|a, b| a.0 == b.0);
        if limits.len() > 1 {
            series.push(Series { kind: Kind::Limit, ..Series::curve("what the line can carry", limits) });
        }
        Sweep { series }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.series.iter().flat_map(|one| &one.points).map(|point| point.0)
    }

    fn chart(mut self, run: &Run, title: &str, x: &Axis) -> Option<Chart> {
        for one in &mut self.series {
            one.points.iter_mut().chain(&mut one.dots).for_each(|point| point.0 = Unit::Bytes.log(point.0));
        }
        let on_lines = self.series.iter().any(|one| one.kind == Kind::Limit);
        let most = self.series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(1.0, f64::max);
        let y = match on_lines {
            true => upright("delivered payload", Unit::BitsPerSecond, &mut self.series),
            false => linear("delivered payload", Unit::BitsPerSecond, most),
        };
        chart(run, title, "", "", x, &y, self.series)
    }
}
