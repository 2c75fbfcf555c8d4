//! The charts of a run and their contents; one file per kind.
//!
//! `svg` draws them. Charts compute no statistics: every point is in the run document.

mod axes;
pub mod connection;
mod distribution;
pub(crate) mod history;
mod late;
pub(crate) mod overlay;
mod percentile;
mod ports;
pub mod proof;
mod repetitions;
mod stages;
mod study;
mod sweep;
mod time_series;

use super::presentation::{MainFigure, presentation};
use super::svg::{Axis, ChartSeries, DRAWING_SIZE, LegendEntry, draw_svg};
use super::wording::plural;
use linkgauge_model::run::{CaseResult, Run, StudyTable};

/// A finished chart: one or more panels on one horizontal axis. `svg` is trusted; every other text is not.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) caption: String,
    pub(crate) x: Axis,
    pub(crate) panels: Vec<Panel>,
    /// Entries of the legend; empty if the chart needs none.
    pub(crate) legend: Vec<LegendEntry>,
}

/// A drawing with its own vertical axis.
pub(crate) struct Panel {
    /// Text alternative for screen readers.
    pub(crate) label: String,
    pub(crate) y: Axis,
    pub(crate) svg: String,
    /// Height of the drawing.
    pub(crate) height: u32,
}

/// Maximum number of cases with all charts; with more cases, a page has only the main chart of each.
const MAX_DETAILED_CASES: usize = 24;
/// Minimum number of cases for a chart that compares them.
const MIN_CHARTED_CASES: usize = 3;

/// A screen cannot show more steps of a curve.
const MAX_CURVE_POINTS: usize = 360;

/// Height of each of several panels, in drawing units.
const PANEL_HEIGHT: u32 = 210;
/// Height of the label of a tick, in drawing units.
const TICK_LABEL_HEIGHT: u32 = 22;

/// Charts of one case: the main one, and those that a page of many cases has no room for.
pub(crate) fn case_charts(run: &Run, case: &CaseResult) -> Vec<Chart> {
    type Kind = fn(&Run, &CaseResult) -> Option<Chart>;
    const KINDS: [Kind; 7] = [
        time_series::case_chart,
        percentile::case_chart,
        stages::case_chart,
        ports::case_chart,
        distribution::case_chart,
        repetitions::case_chart,
        late::case_chart,
    ];
    let kinds = if run.cases.len() > MAX_DETAILED_CASES { &KINDS[..1] } else { &KINDS[..] };
    kinds.iter().filter_map(|kind| kind(run, case)).collect()
}

/// Charts that show all cases of a workload. A table of few rows is easier to read than a chart of its figures.
pub(crate) fn workload_charts(run: &Run, workload: &str) -> Vec<Chart> {
    let over_time = time_series::workload_chart(run, workload);
    if run.cases.iter().filter(|case| case.workload == workload).count() < MIN_CHARTED_CASES {
        return over_time.into_iter().collect();
    }
    let charts = match presentation(workload).main_figure {
        MainFigure::RoundTrip => vec![percentile::side_by_side_chart(run)],
        MainFigure::Rate => vec![sweep::size_chart(run, workload), sweep::line_rate_chart(run, workload)],
    };
    over_time.into_iter().chain(charts.into_iter().flatten()).collect()
}

/// The chart of a study table.
pub(crate) fn study_chart(run: &Run, table: &StudyTable) -> Option<Chart> {
    study::table_chart(run, table)
}

/// The texts of a chart.
pub(crate) struct ChartText<'a> {
    pub(crate) title: &'a str,
    /// Text that follows the title in the text alternative.
    pub(crate) of: &'a str,
    /// Caption that is printed next to the chart.
    pub(crate) caption: String,
}

/// A chart with one panel.
fn build_chart(text: ChartText, x: &Axis, y: Axis, series: Vec<ChartSeries>) -> Option<Chart> {
    build_panels(text, x, vec![(y, series)])
}

/// A chart with a panel for each vertical axis. Panels without data are omitted.
fn build_panels(text: ChartText, x: &Axis, panels: Vec<(Axis, Vec<ChartSeries>)>) -> Option<Chart> {
    let ChartText { title, of, caption } = text;
    let has_nameless = panels.iter().flat_map(|(_, series)| series).any(|one| one.label.is_empty());
    // Each panel begins with the first colour.
    let mut legend: Vec<LegendEntry> = Vec::new();
    for entry in panels.iter().flat_map(|(_, series)| ChartSeries::legend(series)) {
        if !legend.contains(&entry) {
            legend.push(entry);
        }
    }
    let usual = if panels.len() > 1 { PANEL_HEIGHT } else { DRAWING_SIZE.1 };
    let panel = |(y, series): (Axis, Vec<ChartSeries>)| {
        // Prevents overlapping labels on the vertical axis.
        let height = usual.max(TICK_LABEL_HEIGHT * y.ticks.len() as u32);
        let svg = draw_svg(x, &y, &series, height)?;
        let curves = plural(series.len(), "curve");
        let label = format!("{title}{of}: {curves}, {} against {}", y.label, x.label);
        Some(Panel { label, y, svg, height })
    };
    let panels: Vec<Panel> = panels.into_iter().filter_map(panel).collect();
    if panels.is_empty() {
        return None;
    }
    // A single curve needs no legend; marks beside a nameless one do.
    let is_needed = legend.len() > 1 || has_nameless;
    let legend = if is_needed { legend } else { Vec::new() };
    Some(Chart { title: title.to_owned(), caption, x: x.clone(), panels, legend })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::sample_runs;
    use linkgauge_model::plan::Direction;
    use linkgauge_model::run::{LineFacts, SeriesEntry};

    #[test]
    fn charts_of_a_workload_show_its_own_cases() {
        let mut run = sample_runs::full();
        let downloads = sample_runs::download().cases;
        run.cases.push(CaseResult { message_bytes: 100, ..downloads[0].clone() });
        run.cases.extend(downloads);
        let shown = |workload: &str| {
            let charts = workload_charts(&run, workload).into_iter();
            charts
                .map(|chart| format!("{}: to {}", chart.panels[0].label, chart.panels[0].y.high))
                .collect::<Vec<_>>()
                .join("\n")
        };
        insta::assert_snapshot!(shown("throughput"), @r"
        Rate and round-trip time over time: 4 curves, delivered payload against time since the start (s): to 47247200000
        Rate by message size: 2 curves, delivered payload against message size (log scale): to 42952000000
        ");
        insta::assert_snapshot!(shown("download"), @"Rate by message size: 1 curve, delivered payload against message size (log scale): to 5128.24");
    }

    #[test]
    fn the_rate_of_a_sender_is_not_the_delivered_rate() {
        let run = sample_runs::full();
        for (direction, label) in
            [(Direction::Send, "sent payload"), (Direction::Receive, "delivered payload")]
        {
            let case = CaseResult { direction, ..run.cases[3].clone() };
            assert_eq!(time_series::case_chart(&run, &case).unwrap().panels[0].y.label, label);
        }
    }

    proptest! {
        // Each case renders a whole report, so fewer cases than the default.
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn nothing_panics(
            times in prop::collection::vec((0.0f64..101.0, any::<u64>()), 0..6),
            series in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..9),
            rates in prop::collection::vec((any::<u32>(), any::<f64>(), any::<f64>()), 4),
        ) {
            let mut run = sample_runs::full();
            for case in &mut run.cases {
                case.figures.histogram_hdr_v2 = None;
                for figures in case.under_load.iter_mut().chain([&mut case.figures]) {
                    let Some(latency) = &mut figures.times.latency_ns else { continue };
                    latency.percentiles = times.iter().map(|(p, value)| (format!("p{p}"), Some(*value))).collect();
                }
            }
            let entry = run.cases[3].series[0].clone();
            let entries: Vec<SeriesEntry> = series
                .iter()
                .map(|&(start_ns, length_ns, bytes)| SeriesEntry {
                    start_ns, length_ns, bytes, messages: Some(bytes), lost: Some(bytes % 2), latency_max_ns: Some(bytes), ..entry.clone()
                })
                .collect();
            run.cases[0].series = entries.clone();
            run.cases[3].under_load_series = entries.clone();
            for (case, (bytes, rate, line)) in run.cases[3..].iter_mut().zip(rates) {
                (case.message_bytes, case.figures.delivery.throughput_bps) = (bytes, Some(rate));
                case.series = entries.clone();
                let facts = LineFacts { max_payload_bps: Some(line), bits_per_second: line, ..LineFacts::default() };
                case.line = Some(facts);
            }
            let charts = run.cases.iter().flat_map(|case| case_charts(&run, case));
            for chart in charts.chain(workload_charts(&run, "latency")).chain(workload_charts(&run, "throughput")) {
                for panel in chart.panels {
                    prop_assert!(!panel.svg.contains("NaN") && panel.svg.len() < 1 << 20);
                }
            }
        }
    }
}
