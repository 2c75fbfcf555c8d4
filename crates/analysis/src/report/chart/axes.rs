//! Axes: their ranges, their ticks, and their scales for the page's script.

use crate::report::svg::{Axis, ChartSeries};
use linkgauge_model::units::{format_bit_rate, format_nanoseconds, format_size, trim_zeros};

/// The unit of the values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AxisUnit {
    Nanoseconds,
    BitsPerSecond,
    Baud,
    Bytes,
    Seconds,
    Percent,
    Number,
}

impl AxisUnit {
    /// The name that `page.html` uses.
    fn name(self) -> &'static str {
        match self {
            AxisUnit::Nanoseconds => "ns",
            AxisUnit::BitsPerSecond => "bit/s",
            AxisUnit::Baud => "baud",
            AxisUnit::Bytes => "B",
            AxisUnit::Seconds => "s",
            AxisUnit::Percent => "%",
            AxisUnit::Number => "",
        }
    }

    /// Formats a value. Ticks are round numbers.
    fn format(self, value: f64) -> String {
        match self {
            AxisUnit::Nanoseconds => trim_zeros(&format_nanoseconds(value)),
            AxisUnit::BitsPerSecond => trim_zeros(&format_bit_rate(value)),
            AxisUnit::Baud => format!("{value:.0}"),
            AxisUnit::Bytes => format_size(value.round() as u64),
            AxisUnit::Seconds => format!("{} s", format_number(value)),
            AxisUnit::Percent => format!("{} %", format_number(value)),
            AxisUnit::Number => format_number(value),
        }
    }
}

impl AxisUnit {
    /// Position of a value on a logarithmic axis. The minimum is a nanosecond for times, and a thousandth for other
    /// units.
    pub(crate) fn log_position(self, value: f64) -> f64 {
        value.max(if self == AxisUnit::Nanoseconds { 1.0 } else { 1e-3 }).log10()
    }
}

/// Formats a number without the rounding error of a sum of tenths.
fn format_number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Minimum ratio of a logarithmic axis: a linear axis would hide the small values.
const MIN_LOG_RATIO: f64 = 8.0;

/// Axis from 0 to slightly above `most`, with four to six steps of 1, 2 or 5.
pub(crate) fn linear_axis(label: &str, unit: AxisUnit, most: f64) -> Axis {
    let rough = most.max(f64::MIN_POSITIVE) / 4.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * decade).rfind(|step| *step <= rough).unwrap_or(decade);
    let high = most * 1.04;
    let ticks = (0..20).map(|n| f64::from(n) * step).take_while(|at| *at <= high);
    let ticks = ticks.map(|at| (at, if at == 0.0 { "0".to_owned() } else { unit.format(at) })).collect();
    Axis { label: label.to_owned(), low: 0.0, high, ticks, script_scale: format!("linear {}", unit.name()) }
}

pub(crate) fn log_axis(label: &str, unit: AxisUnit, least: f64, most: f64) -> Axis {
    let (low, high) = (unit.log_position(least) - 0.08, unit.log_position(most) + 0.08);
    let decades = (high - low).ceil() as i32;
    let steps: &[f64] = if decades <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    // There is room for twelve decades, and 64 bits of ns span at most twenty.
    let every = if decades > 8 { 3 } else { 1 };
    let exponents = (low.floor() as i32..=high.ceil() as i32).filter(|exponent| exponent % every == 0);
    let ticks = exponents
        .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
        .map(|value| (value.log10(), unit.format(value)))
        .filter(|(at, _)| (low..=high).contains(at));
    Axis {
        label: format!("{label} (log scale)"),
        low,
        high,
        ticks: ticks.collect(),
        script_scale: format!("log {}", unit.name()),
    }
}

/// A logarithmic axis with ticks at these values, as far as there is room.
pub(crate) fn log_axis_with_ticks(
    label: &str,
    unit: AxisUnit,
    values: impl Iterator<Item = f64>,
) -> Option<Axis> {
    let mut at: Vec<f64> = values.map(|value| unit.log_position(value)).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let (low, high) = (*at.first()?, *at.last()?);
    let ticks = thin_out_ticks(at, low, high).into_iter();
    let ticks = ticks.map(|place| (place, unit.format(10f64.powf(place).round()))).collect();
    let margin = (high - low) * 0.03;
    let reads = format!("log {}", unit.name());
    let label = format!("{label} (log scale)");
    (low < high).then_some(Axis { label, low: low - margin, high: high + margin, ticks, script_scale: reads })
}

/// A linear axis with ticks at these values, as far as there is room.
pub(crate) fn linear_axis_with_ticks(
    label: &str,
    unit: AxisUnit,
    values: impl Iterator<Item = f64>,
) -> Option<Axis> {
    let mut at: Vec<f64> = values.collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let (low, high) = (*at.first()?, *at.last()?);
    let ticks = thin_out_ticks(at, low, high).into_iter().map(|place| (place, unit.format(place))).collect();
    let margin = (high - low) * 0.03;
    let (label, reads) = (label.to_owned(), format!("linear {}", unit.name()));
    (low < high).then_some(Axis { label, low: low - margin, high: high + margin, ticks, script_scale: reads })
}

/// Thins out the ticks: labels need about an eighth of the width between them.
fn thin_out_ticks(places: Vec<f64>, low: f64, high: f64) -> Vec<f64> {
    let mut result: Vec<f64> = Vec::new();
    for place in places {
        if result.last().is_none_or(|last| place - last >= (high - low) / 8.0) {
            result.push(place);
        }
    }
    result
}

/// The vertical axis for these series, linear or logarithmic. Scales the series to it.
pub(crate) fn y_axis(label: &str, unit: AxisUnit, series: &mut [ChartSeries]) -> Axis {
    scaled_axis(label, unit, series.iter_mut().flat_map(ChartSeries::values_mut).collect())
}

/// The horizontal axis for these series, linear or logarithmic. Scales the series to it.
pub(crate) fn x_axis(label: &str, unit: AxisUnit, series: &mut [ChartSeries]) -> Axis {
    let places =
        series.iter_mut().flat_map(|one| one.points.iter_mut().chain(&mut one.dots).chain(&mut one.rings));
    scaled_axis(label, unit, places.map(|point| &mut point.0).collect())
}

fn scaled_axis(label: &str, unit: AxisUnit, mut all: Vec<&mut f64>) -> Axis {
    let (least, most) =
        all.iter().fold((f64::MAX, 0.0), |(low, high), value| (value.min(low), value.max(high)));
    // A percentage needs the full scale.
    if unit == AxisUnit::Percent
        || unit.log_position(most) - unit.log_position(least.min(most)) < MIN_LOG_RATIO.log10()
    {
        return linear_axis(label, unit, if most > 0.0 { most } else { 1.0 });
    }
    all.iter_mut().for_each(|value| **value = unit.log_position(**value));
    log_axis(label, unit, least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let names = |axis: Axis| axis.ticks.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        insta::assert_snapshot!(names(linear_axis("", AxisUnit::BitsPerSecond, 41.3e9)), @"0, 10 Gbit/s, 20 Gbit/s, 30 Gbit/s, 40 Gbit/s");
        insta::assert_snapshot!(names(linear_axis("", AxisUnit::Seconds, 9.0)), @"0, 2 s, 4 s, 6 s, 8 s");
        insta::assert_snapshot!(names(linear_axis("", AxisUnit::Percent, 0.7)), @"0, 0.1 %, 0.2 %, 0.3 %, 0.4 %, 0.5 %, 0.6 %, 0.7 %");
        insta::assert_snapshot!(names(log_axis("", AxisUnit::Nanoseconds, 13e3, 310e3)), @"20 µs, 50 µs, 100 µs, 200 µs");
        insta::assert_snapshot!(names(log_axis("", AxisUnit::Nanoseconds, 0.0, 1.8e19)), @"1 ns, 1 µs, 1 ms, 1 s, 1000 s, 1000000 s, 1000000000 s");
        let rates = [75.0, 150.0, 9600.0, 230_400.0, 9600.0];
        insta::assert_snapshot!(names(log_axis_with_ticks("", AxisUnit::Baud, rates.into_iter()).unwrap()), @"75, 9600, 230400");
        assert!(log_axis_with_ticks("", AxisUnit::Baud, [75.0].into_iter()).is_none());
    }
}
