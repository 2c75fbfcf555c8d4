//! Measures the capacity: the highest rate of a second, at the IP layer.

use std::time::Duration;

use super::search::ip_rate_bps;

/// Length of a part whose rate counts.
const SUB_INTERVAL: Duration = Duration::from_secs(1);

/// Rates of the seconds of a flow, by the clock of the receiver.
#[derive(Debug, Default)]
pub(crate) struct CapacityMeter {
    /// Time, datagrams and bytes at the beginning of the current second.
    start: Option<(u64, u64, u64)>,
    highest_bps: Option<f64>,
}

impl CapacityMeter {
    /// Adds the counts at this time, in ns, since the beginning.
    pub fn push(&mut self, at_ns: u64, datagrams: u64, bytes: u64) {
        let (start_ns, datagrams_before, bytes_before) = *self.start.get_or_insert((at_ns, datagrams, bytes));
        let elapsed = Duration::from_nanos(at_ns.saturating_sub(start_ns));
        if elapsed < SUB_INTERVAL {
            return;
        }
        let (more, more_bytes) =
            (datagrams.saturating_sub(datagrams_before), bytes.saturating_sub(bytes_before));
        let rate = ip_rate_bps(more, more_bytes, elapsed);
        self.highest_bps = Some(self.highest_bps.map_or(rate, |highest| highest.max(rate)));
        self.start = Some((at_ns, datagrams, bytes));
    }

    /// The highest rate of a second; none before the first one is complete.
    pub(crate) fn into_rates(self) -> Vec<f64> {
        self.highest_bps.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_second_counts() {
        let mut meter = CapacityMeter::default();
        let second = 1_000_000_000;
        meter.push(5, 0, 0);
        meter.push(5 + second / 2, 10, 12_220);
        assert_eq!(meter.highest_bps, None);
        meter.push(5 + second, 1000, 1_222_000);
        assert_eq!(meter.highest_bps, Some(10e6));
        meter.push(5 + 2 * second, 1500, 1_833_000);
        assert_eq!(meter.into_rates(), [10e6]);
    }
}
