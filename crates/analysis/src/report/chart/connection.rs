//! Chart of the readings of a TCP connection during a transfer: delivery rate, round-trip time and congestion window.

use super::axes::{AxisUnit, linear_axis};
use super::{Chart, ChartText, build_panels};
use crate::report::svg::{Axis, ChartSeries};
use linkgauge_model::run::ConnectionReading;

/// Minimum number of readings of a curve.
const MIN_READINGS: usize = 4;

/// The readings of a connection that sends, on one time axis, with the retransmissions as ticks.
pub(crate) fn connection_chart(readings: &[ConnectionReading], caption: String) -> Option<Chart> {
    let last = readings.last().filter(|_| readings.len() >= MIN_READINGS)?;
    let seconds = |reading: &ConnectionReading| reading.at_ns as f64 / 1e9;
    let x = Axis {
        high: seconds(last),
        ..linear_axis("time since the start (s)", AxisUnit::Seconds, seconds(last))
    };
    let panel = |label: &str, unit: AxisUnit, value: fn(&ConnectionReading) -> Option<f64>| {
        let points = readings.iter().filter_map(|reading| Some((seconds(reading), value(reading)?)));
        let points: Vec<(f64, f64)> = points.collect();
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        (linear_axis(label, unit, most.max(1.0)), vec![ChartSeries::curve("", points)])
    };
    let rates =
        panel("delivery rate, as the sender's kernel estimates it", AxisUnit::BitsPerSecond, |reading| {
            reading.delivery_rate_bps.map(|rate| rate as f64)
        });
    let times =
        panel("smoothed round-trip time", AxisUnit::Nanoseconds, |reading| Some(reading.rtt_ns as f64));
    let text = ChartText { title: "The connection over time", of: "", caption };
    build_panels(text, &x, vec![rates, times, window_curve(readings, 0.0)])
}

/// The congestion window over time, moved by `shift` seconds, with the retransmissions as ticks.
pub(crate) fn window_curve(readings: &[ConnectionReading], shift: f64) -> (Axis, Vec<ChartSeries>) {
    let seconds = |reading: &ConnectionReading| reading.at_ns as f64 / 1e9 + shift;
    let point = |reading: &ConnectionReading| (seconds(reading), reading.congestion_window_segments as f64);
    let points: Vec<(f64, f64)> = readings.iter().map(point).collect();
    let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let axis = linear_axis("congestion window (segments)", AxisUnit::Number, most.max(1.0));
    let grew =
        readings.windows(2).filter(|two| two[1].retransmitted_segments > two[0].retransmitted_segments);
    let ticks: Vec<(f64, f64)> = grew.map(|two| (seconds(&two[1]), axis.high)).collect();
    let mut series = vec![ChartSeries::curve("", points)];
    series.extend((!ticks.is_empty()).then(|| ChartSeries::events("retransmissions", ticks)));
    (axis, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_are_ticks_where_their_number_grew() {
        let reading = |(index, retransmitted): (usize, &u64)| ConnectionReading {
            at_ns: 100_000_000 * index as u64,
            rtt_ns: 20_000_000,
            congestion_window_segments: 10 + index as u64,
            retransmitted_segments: *retransmitted,
            delivery_rate_bps: Some(90_000_000),
        };
        let readings: Vec<ConnectionReading> = [0, 0, 2, 2, 5].iter().enumerate().map(reading).collect();
        let chart = connection_chart(&readings, String::new()).unwrap();
        let ticks: Vec<usize> =
            chart.panels.iter().map(|panel| panel.svg.matches("event-line").count()).collect();
        assert_eq!((ticks, chart.x.high), (vec![0, 0, 2], 0.4));
        assert!(connection_chart(&readings[..3], String::new()).is_none());
    }
}
