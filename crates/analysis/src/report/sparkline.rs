//! Charts in one line of text: the distribution of round-trip times, and a rate over time.
//!
//! `chart` is for pages. For ASCII terminals `wording::to_ascii` replaces each of these characters.

use super::decode_figures_histogram;
use super::presentation::is_latency;
use super::wording::median_ns;
use linkgauge_model::run::CaseResult;
use linkgauge_model::units::{format_bit_rate, format_nanoseconds};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters in a line.
const CHART_COLUMNS: usize = 32;
/// The table shows fewer values well enough.
const MIN_VALUES: usize = 4;
/// A single bar has no comparison.
const MIN_BARS: usize = 2;

/// Title, chart, and labels of both ends.
pub(crate) struct Sparkline {
    pub(crate) quantity: &'static str,
    pub(crate) glyphs: String,
    pub(crate) range: String,
}

/// The rate over time or the distribution of a case, if known.
pub(crate) fn case_sparkline(case: &CaseResult) -> Option<Sparkline> {
    if is_latency(case) { distribution_sparkline(case) } else { rate_sparkline(case) }
}

/// Percentiles on one scale.
pub(crate) struct LatencyBars {
    /// Index of each case with a bar, and the bar.
    pub(crate) bars: Vec<(usize, String)>,
    /// Labels of the scale, and the meanings of the characters.
    pub(crate) scale: String,
}

/// The upper limit of each character in a bar. A percentile that is unknown ends at the previous one.
const BAR_STAGES: [(char, &str); 4] = [('▂', "p50"), ('█', "p90"), ('▅', "p99"), ('▁', "max")];

/// Round trips of several cases on one logarithmic scale, each from its minimum to its maximum.
pub(crate) fn latency_bars(cases: &[CaseResult]) -> Option<LatencyBars> {
    let times = |case: &CaseResult| {
        let times = case.figures.times.latency_ns.as_ref().filter(|_| is_latency(case))?;
        let mut ends = vec![times.min.max(1)];
        for (_, name) in BAR_STAGES {
            let end = if name.starts_with('p') { times.percentile(name) } else { Some(times.max) };
            let least = ends[ends.len() - 1];
            ends.push(end.unwrap_or(least).max(least));
        }
        Some(ends)
    };
    let known: Vec<(usize, Vec<u64>)> =
        cases.iter().enumerate().filter_map(|(index, case)| Some((index, times(case)?))).collect();
    let low = *known.iter().filter_map(|(_, ends)| ends.first()).min()?;
    let high = *known.iter().filter_map(|(_, ends)| ends.last()).max()?;
    let span = (high as f64 / low as f64).ln();
    if known.len() < MIN_BARS || span < 0.01 {
        return None;
    }
    let at =
        |nanoseconds: u64| ((nanoseconds as f64 / low as f64).ln() / span * CHART_COLUMNS as f64) as usize;
    let bar = |ends: &[u64]| {
        let mut bar = " ".repeat(at(ends[0]).min(CHART_COLUMNS - 1));
        for ((sign, name), &end) in BAR_STAGES.iter().zip(&ends[1..]) {
            // The median gets a character, however close the others are.
            let least = usize::from(*name == "p90");
            let drawn = bar.chars().count();
            bar.extend(std::iter::repeat_n(
                *sign,
                at(end).saturating_sub(drawn).max(least).min(CHART_COLUMNS - drawn),
            ));
        }
        bar
    };
    let signs: Vec<String> = BAR_STAGES.iter().map(|(sign, name)| format!("{sign} to {name}")).collect();
    let [low, high] = [low, high].map(|nanoseconds| format_nanoseconds(nanoseconds as f64));
    Some(LatencyBars {
        bars: known.iter().map(|(index, ends)| (*index, bar(ends))).collect(),
        scale: format!("{low} to {high}, log scale: {}", signs.join(", ")),
    })
}

/// A character for each value, on a scale from zero. Zero and small values share the lowest character.
pub fn sparkline_glyphs(values: &[f64]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let level = |value: f64| match value / most * LEVELS.len() as f64 {
        level if level.is_finite() => LEVELS[(level.ceil() as usize).clamp(1, LEVELS.len()) - 1],
        _ => LEVELS[0],
    };
    values.iter().map(|value| level(*value)).collect()
}

/// Round-trip times from minimum to maximum, in equal logarithmic steps. An empty step is left blank.
fn distribution_sparkline(case: &CaseResult) -> Option<Sparkline> {
    let histogram = decode_figures_histogram(&case.figures)?;
    median_ns(case.figures.times.latency_ns.as_ref())?;
    let log = |nanoseconds: u64| (nanoseconds.max(1) as f64).ln();
    let (low, high) = (log(histogram.min()), log(histogram.max()));
    if (histogram.len() as usize) < MIN_VALUES || high - low < 0.01 {
        return None;
    }
    let mut counts = [0.0; CHART_COLUMNS];
    for step in histogram.iter_recorded() {
        let at = (log(step.value_iterated_to()) - low) / (high - low) * CHART_COLUMNS as f64;
        counts[(at as usize).min(CHART_COLUMNS - 1)] += step.count_at_value() as f64;
    }
    // The few late ones matter most, so heights are logarithms of counts.
    let heights = counts.map(|count: f64| (1.0 + count).ln());
    let heights = sparkline_glyphs(&heights);
    let drawn = heights.chars().zip(counts).map(|(sign, count)| if count > 0.0 { sign } else { ' ' });
    Some(Sparkline {
        quantity: "distribution",
        glyphs: drawn.collect(),
        range: format!(
            "{} … {} (log)",
            format_nanoseconds(histogram.min() as f64),
            format_nanoseconds(histogram.max() as f64)
        ),
    })
}

/// The counting side of rates over time if that is not the receiver. Buffers accept more than the link carries.
fn counted_by(case: &CaseResult) -> &'static str {
    if case.series_is_sent() { ", as sent" } else { "" }
}

/// The rate over the duration of the case, from zero.
fn rate_sparkline(case: &CaseResult) -> Option<Sparkline> {
    let together = case.series.len().div_ceil(CHART_COLUMNS).max(1);
    let rate = |entries: &[linkgauge_model::run::SeriesEntry]| {
        let (bytes, length) = entries.iter().fold((0.0, 0.0), |(bytes, length), one| {
            (bytes + one.bytes as f64, length + one.length_ns as f64)
        });
        (length > 0.0).then(|| bytes * 8e9 / length)
    };
    let rates: Vec<f64> = case.series.chunks(together).filter_map(rate).collect();
    let (low, high) = rates.iter().fold((f64::MAX, 0.0), |(low, high), rate| (rate.min(low), rate.max(high)));
    (rates.len() >= MIN_VALUES && high > 0.0).then(|| Sparkline {
        quantity: "over time",
        glyphs: sparkline_glyphs(&rates),
        range: format!("{} to {}{}", format_low_rate(low), format_bit_rate(high), counted_by(case)),
    })
}

/// A rate that may be zero: `0 bit/s`.
fn format_low_rate(bits_per_second: f64) -> String {
    match bits_per_second {
        0.0 => "0 bit/s".to_owned(),
        rate => format_bit_rate(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;
    use linkgauge_model::plan::Direction;

    #[test]
    fn bars_are_on_one_scale() {
        let mut run = sample_runs::full();
        let bars = latency_bars(&run.cases).unwrap();
        let drawn = bars.bars.iter().map(|(index, bar)| format!("{index}|{bar}|\n")).collect::<String>();
        insta::assert_snapshot!(drawn + &bars.scale, @r"
        0|█▅▁▁▁▁▁▁▁▁▁▁|
        1|                   ▂█▅▁▁▁▁▁▁▁▁▁▁|
        2|                █▁▁▁▁▁▁▁▁▁▁▁|
        13.00 µs to 43.84 ms, log scale: ▂ to p50, █ to p90, ▅ to p99, ▁ to max
        ");
        // A run of only the fastest case, with extreme values.
        run.cases.truncate(1);
        assert!(super::latency_bars(&run.cases).is_none());
        let mut other = run.cases[0].clone();
        let times = other.figures.times.latency_ns.as_mut().unwrap();
        (times.min, times.max) = (u64::MAX, 0);
        run.cases.push(other);
        assert!(
            super::latency_bars(&run.cases)
                .unwrap()
                .bars
                .iter()
                .all(|(_, bar)| bar.chars().count() <= CHART_COLUMNS)
        );
    }

    #[test]
    fn highest_value_is_full_and_zero_is_lowest() {
        assert_eq!(sparkline_glyphs(&[0.0, 1.0, 4.0, 8.0]), "▁▁▄█");
        assert_eq!(sparkline_glyphs(&[0.0, 0.0]), "▁▁");
        let run = sample_runs::full();
        let spark = |case: usize| {
            case_sparkline(&run.cases[case]).map(|spark| format!("{}|{}", spark.glyphs, spark.range))
        };
        insta::assert_snapshot!(spark(0).unwrap(), @"█▇    ▅                        ▂|13.00 µs … 273.7 µs (log)");
        insta::assert_snapshot!(spark(3).unwrap(), @"▇██▇█▇██▇█|279.0 Mbit/s to 341.0 Mbit/s");
        let sent = CaseResult { direction: Direction::Send, ..run.cases[3].clone() };
        assert_eq!(case_sparkline(&sent).unwrap().range, "279.0 Mbit/s to 341.0 Mbit/s, as sent");
        let mut received = sent;
        received.effective.insert(
            linkgauge_model::run::SERIES_FACT.to_owned(),
            linkgauge_model::run::RECEIVED_SERIES.into(),
        );
        assert_eq!(case_sparkline(&received).unwrap().range, "279.0 Mbit/s to 341.0 Mbit/s");
        let minimal = sample_runs::minimal();
        assert!(case_sparkline(&minimal.cases[0]).is_none());
    }
}
