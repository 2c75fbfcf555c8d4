//! Several runs in one chart: the same case of each run, distinguished by colour, dashes and label.

use super::{Chart, ChartText, distribution, percentile, ports, sweep, time_series};
use crate::report::svg::ChartSeries;
use linkgauge_model::run::CaseResult;

/// A case of one run, with its colour and label.
#[derive(Clone, Copy)]
pub(crate) struct ChartLayer<'a> {
    /// Index of its run among all runs of the overlay.
    pub(crate) run_index: usize,
    /// Colour of its group, from 0.
    pub(crate) colour: usize,
    /// Label of its group.
    pub(crate) label: &'a str,
    /// The endpoint that names the case in all groups.
    pub(crate) endpoint: &'a str,
    pub(crate) case: &'a CaseResult,
}

impl ChartLayer<'_> {
    fn styled_series(&self, series: ChartSeries) -> ChartSeries {
        ChartSeries { label: self.label.to_owned(), colour: Some(self.colour), ..series }
    }
}

/// Charts of one case.
pub(crate) fn case_charts(layers: &[ChartLayer]) -> Vec<Chart> {
    let Some(first) = layers.first() else { return Vec::new() };
    let of = format!(" of {}", first.endpoint);
    let cases: Vec<(ChartSeries, &CaseResult)> = layers
        .iter()
        .map(|layer| (layer.styled_series(ChartSeries::curve("", vec![])), layer.case))
        .collect();
    let curve = |layer: &ChartLayer| Some(layer.styled_series(percentile::case_curve("", layer.case)?));
    let curves = layers.iter().filter_map(curve).collect();
    let text = |title| ChartText { title, of: &of, caption: String::new() };
    let charts = [
        time_series::overlay_chart(&of, String::new(), &cases),
        distribution::overlay_chart(text(distribution::chart_title(first.case)), &cases),
        percentile::percentile_chart(text(percentile::chart_title(first.case)), curves),
        ports::overlay_chart(&of, &cases),
    ];
    charts.into_iter().flatten().collect()
}

/// Charts of sweeps, one for each kind of case.
pub(crate) fn sweep_charts(layers: &[ChartLayer]) -> Vec<Chart> {
    let kinds: [fn(&[sweep::NamedCase]) -> sweep::SweepChart; 2] =
        [sweep::size_sweep, sweep::line_rate_sweep];
    kinds.into_iter().flat_map(|kind| charts_of_sweep(layers, kind)).collect()
}

fn charts_of_sweep(layers: &[ChartLayer], kind: fn(&[sweep::NamedCase]) -> sweep::SweepChart) -> Vec<Chart> {
    let mut all: Vec<(String, sweep::SweepChart)> = Vec::new();
    for run in layers.chunk_by(|a, b| a.run_index == b.run_index) {
        let cases: Vec<sweep::NamedCase> = run.iter().map(|layer| (layer.endpoint, layer.case)).collect();
        for (name, mut sweep) in kind(&cases).split_by_series() {
            sweep.series = sweep.series.into_iter().map(|series| run[0].styled_series(series)).collect();
            match all.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sweeps)) => sweeps.merge(sweep),
                None => all.push((name, sweep)),
            }
        }
    }
    all.into_iter().filter_map(|(name, sweep)| sweep.into_chart(&format!(" of {name}"), name)).collect()
}
