//! A rough distribution that other threads read while the loop runs: buckets of a quarter of an octave.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Buckets of a power of two, as a power of two.
const SPLIT_BITS: u32 = 4;
const SPLIT: usize = 1 << SPLIT_BITS;
/// Buckets of all powers of two of 64 bits.
const BUCKETS: usize = 64 * SPLIT;

/// Counts of round-trip times. Other threads may read.
#[derive(Debug)]
pub struct LiveTimes(Box<[AtomicU32]>);

impl Default for LiveTimes {
    fn default() -> LiveTimes {
        LiveTimes((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }
}

/// The power of two, and the bits after the highest one.
fn bucket_of(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(SPLIT as u64);
    let power = value.ilog2();
    SPLIT * power as usize + (value >> (power - SPLIT_BITS)) as usize % SPLIT
}

/// The time at this share of a bucket, in nanoseconds.
fn time_in_bucket(bucket: usize, share: f64) -> u64 {
    let width = (1_u64 << (bucket / SPLIT).saturating_sub(SPLIT_BITS as usize).min(59)) as f64;
    ((SPLIT + bucket % SPLIT) as f64 * width + share * width) as u64
}

impl LiveTimes {
    /// Counts a time. Only one thread may call this, so that no count is lost.
    #[inline]
    pub fn record(&self, nanoseconds: u64) {
        let count = &self.0[bucket_of(nanoseconds)];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts a time; several threads may call this.
    #[inline]
    pub(crate) fn record_shared(&self, nanoseconds: u64) {
        self.0[bucket_of(nanoseconds)].fetch_add(1, Relaxed);
    }

    /// The percentile (0 to 100) of all these times together, within 3 %: by its rank among the times of its bucket, so that it
    /// moves as the times do. `None` with fewer times than it needs.
    pub fn percentile<'a>(all: impl Iterator<Item = &'a LiveTimes>, percent: f64) -> Option<u64> {
        let mut counts = [0_u64; BUCKETS];
        for times in all {
            for (sum, count) in counts.iter_mut().zip(&times.0) {
                *sum += u64::from(count.load(Relaxed));
            }
        }
        let total: u64 = counts.iter().sum();
        let rank = (total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        if (total as f64) < 1.0 / (1.0 - percent / 100.0) {
            return None;
        }
        let mut below = 0;
        let (bucket, count) = counts.iter().enumerate().find(|(_, count)| {
            below += **count;
            below >= rank
        })?;
        let share = (rank as f64 - (below - count) as f64 - 0.5) / *count as f64;
        Some(time_in_bucket(bucket, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near() {
        let [a, b] = [LiveTimes::default(), LiveTimes::default()];
        let percentile = |percent| LiveTimes::percentile([&a, &b].into_iter(), percent);
        assert_eq!(percentile(50.0), None);
        for n in 1..=500_u64 {
            a.record(n * 1_000);
            b.record((500 + n) * 1_000);
        }
        for (percent, value) in [(50.0, 500_000.0), (99.0, 990_000.0), (10.0, 100_000.0)] {
            let found = percentile(percent).unwrap() as f64;
            assert!((found / value - 1.0).abs() < 0.01, "{percent}: {found}");
        }
    }

    #[test]
    fn every_time_has_a_bucket() {
        for time in [0, 1, 4, 5, 7, 8, 1_000_000, u64::MAX] {
            let bucket = bucket_of(time);
            assert!(bucket < BUCKETS);
            assert_eq!(bucket_of(time_in_bucket(bucket, 0.5)), bucket, "{time}");
        }
    }
}
