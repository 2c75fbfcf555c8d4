//! Charts in one line of text: how round-trip times are spread, how a rate went.
//!
//! Not for pages (`chart`). For terminals that know only ASCII `words::plain` has a sign for each of these.

use super::histogram::histogram;
use super::table::is_latency;
use super::words::median;
use crate::run::CaseResult;
use crate::units::{print_bit_rate, print_nanoseconds};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Signs in a line.
const WIDTH: usize = 32;
/// Fewer values are told by the table.
const LEAST: usize = 4;

/// What it shows, the chart, and its ends in words.
pub struct Spark {
    pub what: &'static str,
    pub signs: String,
    pub ends: String,
}

/// How a case went or is spread, if that is known.
pub fn of_case(case: &CaseResult) -> Option<Spark> {
    if is_latency(case) { spread(case) } else { course(case) }
}

/// Of what is nothing the lowest sign stands for nothing; of the rest it stands for a little.
fn signs(values: &[f64]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let level = |value: f64| match value / most * LEVELS.len() as f64 {
        level if level.is_finite() => LEVELS[(level.ceil() as usize).clamp(1, LEVELS.len()) - 1],
        _ => LEVELS[0],
    };
    values.iter().map(|value| level(*value)).collect()
}

/// Round-trip times from the shortest to the longest, in equal steps of their logarithm; an empty step is a gap.
fn spread(case: &CaseResult) -> Option<Spark> {
    let histogram = histogram(&case.figures)?;
    median(case.figures.latency_ns.as_ref())?;
    let log = |nanoseconds: u64| (nanoseconds.max(1) as f64).ln();
    let (low, high) = (log(histogram.min()), log(histogram.max()));
    if (histogram.len() as usize) < LEAST || high - low < 0.01 {
        return None;
    }
    let mut counts = [0.0; WIDTH];
    for step in histogram.iter_recorded() {
        let at = (log(step.value_iterated_to()) - low) / (high - low) * WIDTH as f64;
        counts[(at as usize).min(WIDTH - 1)] += step.count_at_value() as f64;
    }
    // The few that are late are what one looks for: their number counts by its logarithm.
    let heights = counts.map(|count: f64| (1.0 + count).ln());
    let heights = signs(&heights);
    let drawn = heights.chars().zip(counts).map(|(sign, count)| if count > 0.0 { sign } else { ' ' });
    Some(Spark {
        what: "spread",
        signs: drawn.collect(),
        ends: format!(
            "{} to {}, log scale",
            print_nanoseconds(histogram.min() as f64),
            print_nanoseconds(histogram.max() as f64)
        ),
    })
}

/// The rate over the time of the case, from nothing upwards.
fn course(case: &CaseResult) -> Option<Spark> {
    let together = case.series.len().div_ceil(WIDTH).max(1);
    let rate = |entries: &[crate::run::SeriesEntry]| {
        let (bytes, length) = entries.iter().fold((0.0, 0.0), |(bytes, length), one| {
            (bytes + one.bytes as f64, length + one.length_ns as f64)
        });
        (length > 0.0).then(|| bytes * 8e9 / length)
    };
    let rates: Vec<f64> = case.series.chunks(together).filter_map(rate).collect();
    let (low, high) = rates.iter().fold((f64::MAX, 0.0), |(low, high), rate| (rate.min(low), rate.max(high)));
    (rates.len() >= LEAST && high > 0.0).then(|| Spark {
        what: "over time",
        signs: signs(&rates),
        ends: format!("{} to {}", print_bit_rate(low), print_bit_rate(high)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_run;

    #[test]
    fn the_highest_is_full_and_nothing_is_low() {
        assert_eq!(signs(&[0.0, 1.0, 4.0, 8.0]), "▁▁▄█");
        assert_eq!(signs(&[0.0, 0.0]), "▁▁");
        let run = sample_run::full();
        let spark =
            |case: usize| of_case(&run.cases[case]).map(|spark| format!("{}|{}", spark.signs, spark.ends));
        insta::assert_snapshot!(spark(0).unwrap(), @"█▇    ▅                        ▂|13.00 µs to 273.7 µs, log scale");
        insta::assert_snapshot!(spark(3).unwrap(), @"▇██▇█▇██▇█|279.0 Mbit/s to 341.0 Mbit/s");
        let minimal = sample_run::minimal();
        assert!(of_case(&minimal.cases[0]).is_none());
    }
}
