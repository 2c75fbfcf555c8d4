//! The algorithm of draft-ietf-ippm-responsiveness-09 without I/O: moving averages, when they are stable, and round
//! trips per minute.
//!
//! Each interval in which the goodput has risen, a connection is added. Once the goodput is stable, the measurement
//! continues until the responsiveness is stable as well. The draft adds connections until the goodput is stable: on a slow link,
//! which one connection fills, the others would only share what it has.

use std::time::Duration;

use linkgauge_model::clock::Time;
use linkgauge_model::run::{Confidence, ResponsivenessFigures};

/// Length of an interval. Draft 09 has 5 s "pending further investigation"; its earlier versions and the programs that
/// exist have 1 s.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Intervals of a moving average, and moving averages that are compared (MAD).
pub const AVERAGED_INTERVALS: usize = 4;

/// Moving averages are stable while their standard deviation is below this share of the newest one (SDT).
const STABLE_SHARE: f64 = 0.05;

/// A goodput has risen if it is this many times the highest before it.
const RISEN_FACTOR: f64 = 1.05;

/// Percentage of the fastest round trips in a trimmed mean (TMP).
const TRIMMED_MEAN_PERCENT: usize = 95;

/// The mean of the fastest 95 % of these times, in ns; `None` without times. Sorts them.
pub fn trimmed_mean_ns(times_ns: &mut [u64]) -> Option<f64> {
    times_ns.sort_unstable();
    let dropped = times_ns.len() * (100 - TRIMMED_MEAN_PERCENT) / 100;
    let kept = &times_ns[..times_ns.len() - dropped];
    (!kept.is_empty()).then(|| kept.iter().map(|&ns| ns as f64).sum::<f64>() / kept.len() as f64)
}

/// Round trips per minute, of probes beside the load and of probes on its connections.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RoundTripsPerMinute {
    /// Number of round trips per minute of probes on a connection without load.
    pub(crate) foreign: Option<f64>,
    /// Number of round trips per minute of probes on the connections of the load.
    pub(crate) own: Option<f64>,
}

impl RoundTripsPerMinute {
    /// Computes the figures from the trimmed means of the round trips, in ns.
    pub fn from_means_ns(foreign: Option<f64>, own: Option<f64>) -> RoundTripsPerMinute {
        let per_minute = |mean_ns: Option<f64>| mean_ns.filter(|&ns| ns > 0.0).map(|ns| 60e9 / ns);
        RoundTripsPerMinute { foreign: per_minute(foreign), own: per_minute(own) }
    }

    /// Mean of both, or the one that was measured.
    pub(crate) fn combined(&self) -> Option<f64> {
        match (self.foreign, self.own) {
            (Some(foreign), Some(own)) => Some((foreign + own) / 2.0),
            (one, other) => one.or(other),
        }
    }
}

/// The newest values, and the newest moving averages of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct MovingAverages {
    values: [f64; AVERAGED_INTERVALS],
    averages: [f64; AVERAGED_INTERVALS],
    count: usize,
}

impl MovingAverages {
    /// Adds the value of an interval.
    pub fn push(&mut self, value: f64) {
        self.values[self.count % AVERAGED_INTERVALS] = value;
        let filled = (self.count + 1).min(AVERAGED_INTERVALS);
        let average = self.values[..filled].iter().sum::<f64>() / filled as f64;
        self.averages[self.count % AVERAGED_INTERVALS] = average;
        self.count += 1;
    }

    /// The newest moving average.
    pub(crate) fn newest(&self) -> Option<f64> {
        let newest = self.count.checked_sub(1)?;
        Some(self.averages[newest % AVERAGED_INTERVALS])
    }

    /// Whether the newest moving averages differ little.
    pub(crate) fn is_stable(&self) -> bool {
        let Some(newest) = self.newest().filter(|_| self.count >= AVERAGED_INTERVALS) else { return false };
        let mean = self.averages.iter().sum::<f64>() / AVERAGED_INTERVALS as f64;
        let variance = self.averages.iter().map(|average| (average - mean).powi(2)).sum::<f64>()
            / AVERAGED_INTERVALS as f64;
        variance.sqrt() < STABLE_SHARE * newest
    }

    /// Confidence in the newest moving average.
    pub(crate) fn confidence(&self) -> Confidence {
        match (self.count >= AVERAGED_INTERVALS, self.is_stable()) {
            (false, _) => Confidence::Low,
            (true, false) => Confidence::Medium,
            (true, true) => Confidence::High,
        }
    }
}

/// Decision after an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The goodput has risen: add a connection, if there is one left.
    AddConnection,
    /// The goodput has not risen, so another connection would not add to it.
    Continue,
    /// Goodput and responsiveness are stable.
    Finish,
}

/// The course of a measurement.
#[derive(Debug, Clone, Default)]
pub struct RampUp {
    goodput_bps: MovingAverages,
    per_minute: MovingAverages,
    /// The interval, from 0, after which the goodput was stable.
    saturated_after: Option<usize>,
    intervals: usize,
    highest_bps: f64,
    /// Data that had arrived when the goodput became stable.
    stable_from: Arrived,
    /// Data that had arrived at the ends of the newest intervals, the newest last.
    arrived: [Arrived; AVERAGED_INTERVALS + 1],
    /// Mean of the averaged intervals at whose end something had arrived, from byte to byte: time in which the link is dead at
    /// the end is not part of it, and a stall in between is.
    mean_bps: Option<f64>,
}

/// Payload of the load that has arrived, and arrival time of its newest byte. The rate between two of them is exact for parts
/// of any size.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrived {
    /// Number of bytes since the beginning of the load.
    pub bytes: u64,
    /// Arrival time of the newest byte.
    pub at: Time,
}

impl Arrived {
    fn rate_bps_since(self, earlier: Arrived) -> Option<f64> {
        let elapsed = self.at.since(earlier.at).as_secs_f64();
        (elapsed > 0.0).then(|| (self.bytes - earlier.bytes) as f64 * 8.0 / elapsed)
    }
}

impl RampUp {
    /// Ends an interval, and decides how to continue.
    pub fn end_interval(&mut self, arrived: Arrived, probes: RoundTripsPerMinute) -> Decision {
        self.intervals += 1;
        let newest = self.newest();
        let goodput_bps = (arrived.bytes - newest.bytes) as f64 * 8.0 / INTERVAL.as_secs_f64();
        self.arrived.rotate_left(1);
        self.arrived[AVERAGED_INTERVALS] = arrived;
        // Before the first byte, its begin is not known.
        let oldest = self.arrived.into_iter().find(|arrived| arrived.bytes > 0);
        if arrived.bytes > newest.bytes {
            let mean_bps = oldest.and_then(|oldest| arrived.rate_bps_since(oldest));
            self.mean_bps = mean_bps.or(self.mean_bps).or(Some(goodput_bps));
        }
        self.goodput_bps.push(goodput_bps);
        let has_risen = goodput_bps > RISEN_FACTOR * self.highest_bps;
        self.highest_bps = self.highest_bps.max(goodput_bps);
        if self.saturated_after.is_none() {
            if !self.goodput_bps.is_stable() {
                // The second connection shows whether there is room for more.
                let is_first = self.intervals == 1;
                return if has_risen || is_first { Decision::AddConnection } else { Decision::Continue };
            }
            self.saturated_after = Some(self.intervals - 1);
            self.stable_from = arrived;
            return Decision::Continue;
        }
        if let Some(per_minute) = probes.combined() {
            self.per_minute.push(per_minute);
        }
        if self.per_minute.is_stable() { Decision::Finish } else { Decision::Continue }
    }

    /// Complete intervals so far.
    pub fn intervals(&self) -> usize {
        self.intervals
    }

    /// Intervals until the goodput was stable; `None` if it never was.
    pub(crate) fn intervals_to_saturation(&self) -> Option<usize> {
        self.saturated_after.map(|index| index + 1)
    }

    fn newest(&self) -> Arrived {
        self.arrived[AVERAGED_INTERVALS]
    }

    /// Mean goodput since it was stable; before, the mean of the last intervals.
    fn goodput_bps(&self) -> Option<f64> {
        let stable = self.saturated_after.and_then(|_| self.newest().rate_bps_since(self.stable_from));
        stable.or(self.mean_bps)
    }

    /// Result, with the round trips of the last intervals and the connections that carried the load. After saturation
    /// the goodput counts as stable.
    pub fn figures(&self, probes: RoundTripsPerMinute, load_connections: u32) -> ResponsivenessFigures {
        let saturation = self.intervals_to_saturation().map(|intervals| INTERVAL * intervals as u32);
        ResponsivenessFigures {
            rpm: probes.combined(),
            foreign_rpm: probes.foreign,
            own_rpm: probes.own,
            goodput_bps: self.goodput_bps(),
            load_connections: load_connections.into(),
            saturation_ns: saturation.map(|time| time.as_nanos() as f64),
            longest_stall_ns: None,
            goodput_confidence: match saturation {
                Some(_) => Confidence::High,
                None => self.goodput_bps.confidence(),
            },
            rpm_confidence: self.per_minute.confidence(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    #[test]
    fn the_trimmed_mean_leaves_out_the_slowest_five_percent() {
        let mut times: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(trimmed_mean_ns(&mut times), Some(48.0));
        let mut twenty: Vec<u64> = (1..=19).chain([1_000_000]).collect();
        assert_eq!(trimmed_mean_ns(&mut twenty), Some(10.0));
        assert_eq!(trimmed_mean_ns(&mut [7]), Some(7.0));
        assert_eq!(trimmed_mean_ns(&mut []), None);
    }

    #[test]
    fn both_kinds_of_probes_have_the_same_weight() {
        // TCP 20, TLS 25, HTTP 30 ms: their mean is 25 ms. A connection of the load takes 100 ms.
        let both = RoundTripsPerMinute::from_means_ns(Some(25.0 * MS), Some(100.0 * MS));
        assert_eq!((both.foreign, both.own, both.combined()), (Some(2400.0), Some(600.0), Some(1500.0)));
        let own = RoundTripsPerMinute::from_means_ns(None, Some(100.0 * MS));
        assert_eq!(own.combined(), Some(600.0));
        assert_eq!(RoundTripsPerMinute::from_means_ns(None, Some(0.0)).combined(), None);
    }

    #[test]
    fn averages_are_stable_once_four_of_them_differ_by_less_than_five_percent() {
        let mut averages = MovingAverages::default();
        assert_eq!((averages.newest(), averages.confidence()), (None, Confidence::Low));
        let stable: Vec<bool> = [10.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0]
            .into_iter()
            .map(|value| {
                averages.push(value);
                averages.is_stable()
            })
            .collect();
        // Averages: 10, 15, 16.7, 17.5, then 20: the four at the seventh deviate by 1.08, which is 5.4 %.
        assert_eq!(stable, [false, false, false, false, false, false, false, true]);
        assert_eq!((averages.newest(), averages.confidence()), (Some(20.0), Confidence::High));
        let mut rising = MovingAverages::default();
        (1..=8).for_each(|step| rising.push(f64::from(step)));
        assert_eq!((rising.newest(), rising.confidence()), (Some(6.5), Confidence::Medium));
        let mut nothing = MovingAverages::default();
        (0..8).for_each(|_| nothing.push(0.0));
        assert!(!nothing.is_stable(), "no goodput is not a stable goodput");
    }

    #[test]
    fn connections_are_added_until_the_goodput_is_stable() {
        let mut ramp = RampUp::default();
        let probes = RoundTripsPerMinute { foreign: Some(600.0), own: Some(400.0) };
        let arrived =
            |interval: u64| Arrived { bytes: 625_000 * interval, at: Time(1_000_000_000 * interval) };
        let decisions: Vec<Decision> =
            (1..=8).map(|interval| ramp.end_interval(arrived(interval), probes)).collect();
        let [add, keep] = [Decision::AddConnection, Decision::Continue];
        assert_eq!(decisions, [add, keep, keep, keep, keep, keep, keep, Decision::Finish]);
        assert_eq!((ramp.intervals(), ramp.intervals_to_saturation()), (8, Some(4)));
        let figures = ramp.figures(probes, 4);
        assert_eq!(
            (figures.goodput_bps, figures.saturation_ns, figures.rpm),
            (Some(5e6), Some(4e9), Some(500.0))
        );
        assert_eq!(
            (figures.goodput_confidence, figures.rpm_confidence),
            (Confidence::High, Confidence::High)
        );
    }

    /// Goodput of a link of 10 Mbit/s, of which this many bytes have arrived by these times.
    fn goodput_mbps(arrived: &[(u64, u64)]) -> f64 {
        let mut ramp = RampUp::default();
        for &(megabits, ms) in arrived {
            let arrived = Arrived { bytes: megabits * 125_000, at: Time(ms * 1_000_000) };
            ramp.end_interval(arrived, RoundTripsPerMinute::default());
        }
        ramp.figures(RoundTripsPerMinute::default(), 1).goodput_bps.unwrap() / 1e6
    }

    #[test]
    fn a_dead_end_does_not_lower_the_goodput_and_a_stall_does_not_raise_it() {
        let dead = [(9, 1000), (19, 2000), (29, 3000), (31, 3200), (31, 3200), (31, 3200), (31, 3200)];
        assert!((goodput_mbps(&dead) - 10.0).abs() < 1e-9);
        // What had queued during the stall arrives at once.
        let stalled = [(9, 1000), (19, 2000), (20, 2100), (20, 2100), (40, 4100), (49, 5000), (59, 6000)];
        assert!(goodput_mbps(&stalled) <= 10.0 + 1e-9, "{}", goodput_mbps(&stalled));
    }

    #[test]
    fn a_goodput_that_keeps_rising_never_saturates() {
        let mut ramp = RampUp::default();
        let probes = RoundTripsPerMinute::default();
        for interval in 1..20 {
            let arrived = Arrived { bytes: interval * interval * interval, at: Time(interval) };
            assert_eq!(ramp.end_interval(arrived, probes), Decision::AddConnection);
        }
        assert_eq!(ramp.intervals_to_saturation(), None);
        let figures = ramp.figures(probes, 16);
        assert_eq!(
            (figures.goodput_confidence, figures.rpm_confidence),
            (Confidence::Medium, Confidence::Low)
        );
    }
}
