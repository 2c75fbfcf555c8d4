//! The charts of a run and their contents; one file per kind.
//!
//! `svg` draws them. Charts compute no statistics: every point is in the run document.

mod axes;
mod density;
pub mod overlay;
mod percentile;
mod ports;
mod study;
mod sweep;
mod time_series;

use super::presentation::{MainFigure, presentation};
use super::svg::{Axis, ChartSeries, DRAWING_SIZE, LegendEntry, draw_svg};
use super::wording::plural;
use crate::run::{CaseResult, Run, StudyTable};

/// A finished chart. `svg` is trusted; every other text is not.
pub struct Chart {
    pub title: String,
    pub caption: String,
    /// Text alternative for screen readers.
    pub label: String,
    pub x: Axis,
    pub y: Axis,
    /// Empty if the chart needs none.
    pub legend: Vec<LegendEntry>,
    pub svg: String,
    /// Height of the drawing.
    pub height: u32,
}

/// A screen cannot show more steps of a curve.
const MAX_CURVE_POINTS: usize = 360;

/// In drawing units.
const TICK_LABEL_HEIGHT: u32 = 22;

/// Charts of one case.
pub fn case_charts(run: &Run, case: &CaseResult) -> Vec<Chart> {
    let kinds = [
        percentile::case_chart,
        density::case_chart,
        ports::case_chart,
        time_series::latency_chart,
        time_series::rate_chart,
    ];
    kinds.into_iter().filter_map(|kind| kind(run, case)).collect()
}

/// Charts that show all cases of a workload.
pub fn workload_charts(run: &Run, workload: &str) -> Vec<Chart> {
    let charts = match presentation(workload).main_figure {
        MainFigure::RoundTrip => vec![percentile::side_by_side_chart(run)],
        MainFigure::Rate => vec![sweep::size_chart(run, workload), sweep::line_rate_chart(run, workload)],
    };
    charts.into_iter().flatten().collect()
}

/// The chart of a study table.
pub fn study_chart(run: &Run, table: &StudyTable) -> Option<Chart> {
    study::table_chart(run, table)
}

/// `of` follows the title in the text alternative. The caption is printed next to the chart.
fn build_chart(
    title: &str,
    of: &str,
    caption: String,
    [x, y]: [&Axis; 2],
    series: Vec<ChartSeries>,
) -> Option<Chart> {
    // Prevents overlapping labels on the vertical axis.
    let height = DRAWING_SIZE.1.max(TICK_LABEL_HEIGHT * y.ticks.len() as u32);
    let svg = draw_svg(x, y, &series, height)?;
    let curves = plural(series.len(), "curve");
    let label = format!("{title}{of}: {curves}, {} against {}", y.label, x.label);
    let legend = ChartSeries::legend(&series);
    Some(Chart {
        title: title.to_owned(),
        caption,
        label,
        x: x.clone(),
        y: y.clone(),
        legend: if legend.len() > 1 { legend } else { Vec::new() },
        svg,
        height,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::Direction;
    use crate::report::sample_runs;
    use crate::run::{LineFacts, SeriesEntry};

    #[test]
    fn charts_of_a_workload_show_its_own_cases() {
        let mut run = sample_runs::full();
        run.cases.extend(sample_runs::download().cases);
        let shown = |workload: &str| {
            let charts = workload_charts(&run, workload).into_iter();
            charts.map(|chart| format!("{}: to {}", chart.label, chart.y.high)).collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(shown("throughput"), @"Rate by message size: 2 curves, delivered payload against message size (log scale): to 42952000000");
        insta::assert_snapshot!(shown("download"), @"Rate by message size: 1 curve, delivered payload against message size (log scale): to 5128.24");
    }

    #[test]
    fn rates_of_a_sender_are_no_delivered_ones() {
        let run = sample_runs::full();
        for (direction, label) in
            [(Direction::Send, "sent payload"), (Direction::Receive, "delivered payload")]
        {
            let case = CaseResult { direction, ..run.cases[3].clone() };
            assert_eq!(time_series::rate_chart(&run, &case).unwrap().y.label, label);
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
                    start_ns, length_ns, bytes, messages: bytes, lost: bytes % 2, latency_max_ns: Some(bytes), ..entry.clone()
                })
                .collect();
            run.cases[0].series = entries.clone();
            for (case, (bytes, rate, line)) in run.cases[3..].iter_mut().zip(rates) {
                (case.message_bytes, case.figures.delivery.throughput_bps) = (bytes, Some(rate));
                case.series = entries.clone();
                let facts = LineFacts { max_payload_bps: Some(line), bits_per_second: line, ..LineFacts::default() };
                case.line = Some(facts);
            }
            let charts = run.cases.iter().flat_map(|case| case_charts(&run, case));
            for chart in charts.chain(workload_charts(&run, "latency")).chain(workload_charts(&run, "throughput")) {
                prop_assert!(!chart.svg.contains("NaN") && chart.svg.len() < 1 << 20);
            }
        }
    }
}
