//! Several runs in one chart: the same case of each, told apart by colour, dashes and name.

use super::{Chart, density, percentile, ports, sweep, time};
use crate::report::svg::Series;
use crate::run::CaseResult;

/// A case of one run, and how it is told from the same case of the others.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// Place of its run among all of the overlay.
    pub run: usize,
    /// Of its side, from 0.
    pub colour: usize,
    /// Of its side; the runs of a side share it.
    pub label: &'a str,
    /// That by which the case goes on all sides.
    pub endpoint: &'a str,
    pub case: &'a CaseResult,
}

impl Layer<'_> {
    fn series(&self, series: Series) -> Series {
        Series { label: self.label.to_owned(), colour: Some(self.colour), ..series }
    }
}

/// Charts of one case.
pub fn of_case(layers: &[Layer]) -> Vec<Chart> {
    let Some(first) = layers.first() else { return Vec::new() };
    let of = format!(" of {}", first.endpoint);
    let cases: Vec<(Series, &CaseResult)> =
        layers.iter().map(|layer| (layer.series(Series::curve("", vec![])), layer.case)).collect();
    let curve = |layer: &Layer| Some(layer.series(percentile::beside("", layer.case)?));
    let curves = layers.iter().filter_map(curve).collect();
    let charts = [
        percentile::percentiles(percentile::title(first.case), &of, String::new(), curves),
        density::spread(density::title(first.case), &of, String::new(), &cases),
        ports::beside(&of, &cases),
        time::means(&of, String::new(), &cases),
        time::rates(&of, String::new(), &cases),
    ];
    charts.into_iter().flatten().collect()
}

/// What was swept, one chart for each kind of case.
pub fn sweeps(layers: &[Layer]) -> Vec<Chart> {
    let kinds: [fn(&[sweep::Told]) -> sweep::Sweep; 2] = [sweep::sizes, sweep::line_rates];
    kinds.into_iter().flat_map(|kind| swept(layers, kind)).collect()
}

fn swept(layers: &[Layer], kind: fn(&[sweep::Told]) -> sweep::Sweep) -> Vec<Chart> {
    let mut all: Vec<(String, sweep::Sweep)> = Vec::new();
    for run in layers.chunk_by(|a, b| a.run == b.run) {
        let told: Vec<sweep::Told> = run.iter().map(|layer| (layer.endpoint, layer.case)).collect();
        for (name, mut sweep) in kind(&told).apart() {
            sweep.series = sweep.series.into_iter().map(|series| run[0].series(series)).collect();
            match all.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sweeps)) => sweeps.join(sweep),
                None => all.push((name, sweep)),
            }
        }
    }
    all.into_iter().filter_map(|(name, sweep)| sweep.chart(&format!(" of {name}"), name)).collect()
}
