//! Mean, variance, minimum and maximum of a stream of values, in fixed memory.
//!
//! For: figures over every sample of a run of any length. Not for: percentiles (see
//! [`percentile`](super::percentile)).
//! Sources: Welford, "Note on a method for calculating corrected sums of squares and products",
//! Technometrics 1962; merging, Chan, Golub and LeVeque 1979. The mean and the sum of squares are
//! compensated sums: after 10^9 samples near 10^9 a plain running mean no longer moves.

use super::sum::CompensatedSum;

/// The running moments of a stream of finite values, all in the unit of the values.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    count: u64,
    mean: CompensatedSum,
    squares: CompensatedSum,
    min: f64,
    max: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self::new()
    }
}

impl Moments {
    /// The moments of no values.
    pub fn new() -> Self {
        Self {
            count: 0,
            mean: CompensatedSum::default(),
            squares: CompensatedSum::default(),
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }

    /// The moments of `count` values that are all the same and finite.
    pub(crate) fn of_equal(x: f64, count: u64) -> Self {
        let mut moments = Self::new();
        if count > 0 {
            moments.add(x);
            moments.count = count;
        }
        moments
    }

    /// The moments after `count` zeros among the values were replaced by `limit`. `least` is the smallest of the others.
    pub(crate) fn with_raised_zeros(&self, limit: f64, count: u64, least: Option<f64>) -> Self {
        let mut raised = Self::of_equal(limit, count);
        let others = self.count.saturating_sub(count);
        if let Some(least) = least.filter(|_| others > 0) {
            let mut rest = Self::of_equal(self.mean.value() * self.count as f64 / others as f64, others);
            // The squares without the distance of the zeros to the mean of the others.
            let apart = rest.mean.value();
            let between = apart * apart * others as f64 * (count as f64 / self.count as f64);
            rest.squares.add((self.squares.value() - between).max(0.0));
            raised.merge(&rest);
            (raised.min, raised.max) = (limit.min(least), limit.max(self.max));
        }
        raised
    }

    /// Adds one value, which must be finite.
    pub fn add(&mut self, x: f64) {
        self.count += 1;
        let before = self.mean.difference_to(x);
        self.mean.add(before / self.count as f64);
        self.squares.add(before * self.mean.difference_to(x));
        self.min = self.min.min(x);
        self.max = self.max.max(x);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (own_count, other_count) = (self.count as f64, other.count as f64);
        let share = other_count / (own_count + other_count);
        let apart = self.mean.difference_to(other.mean.value());
        self.count += other.count;
        self.mean.add(apart * share);
        self.squares.add(other.squares.value());
        self.squares.add(apart * apart * own_count * share);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The arithmetic mean; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.mean.value())
    }

    /// The sample variance (divisor count − 1), in the unit squared; `None` below 2 values.
    pub(crate) fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares.value().max(0.0) / (self.count - 1) as f64)
    }

    /// The sample standard deviation; `None` below 2 values.
    pub fn standard_deviation(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// The minimum; `None` without values.
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    /// The maximum; `None` without values.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }
}

impl Extend<f64> for Moments {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        values.into_iter().for_each(|x| self.add(x));
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut moments = Self::new();
        moments.extend(values);
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
    }

    #[test]
    fn agrees_with_numpy() {
        // NumPy 2.4.6: g = np.array([1e9 + k*k*31 % 1000 for k in range(1000)]);
        // g.mean(), g.var(ddof=1), g.std(ddof=1)
        let m: Moments = (0..1000u32).map(|k| 1e9 + f64::from(k * k * 31 % 1000)).collect();
        assert_eq!(m.count(), 1000);
        assert!(close(m.mean().unwrap(), 1_000_000_528.5));
        assert!(close(m.variance().unwrap(), 87_648.6986986987));
        assert!(close(m.standard_deviation().unwrap(), 296.0552291358805));
        assert_eq!((m.min(), m.max()), (Some(1e9), Some(1e9 + 999.0)));
    }

    #[test]
    fn no_values_give_no_moments() {
        let mut m = Moments::default();
        assert_eq!((m.count(), m.mean(), m.min(), m.max()), (0, None, None, None));
        m.merge(&Moments::new());
        m.add(-3.0);
        assert_eq!((m.mean(), m.variance(), m.max()), (Some(-3.0), None, Some(-3.0)));
        m.add(-3.0);
        assert_eq!(m.standard_deviation(), Some(0.0));
    }

    #[test]
    fn the_mean_still_moves_after_a_thousand_million_samples() {
        // 1000 values of mean 1e9 and variance 4, doubled 20 times.
        let mut m: Moments = (0..1000).map(|k| 1e9 + if k % 2 == 0 { 2.0 } else { -2.0 }).collect();
        for _ in 0..20 {
            let same = m;
            m.merge(&same);
        }
        let before = m.count() as f64;
        assert_eq!(before, 1_048_576_000.0);
        assert!(close(m.variance().unwrap(), 4.0 * before / (before - 1.0)));

        // Each of these moves the mean by 1e-9, a hundredth of the last digit of 1e9.
        let more = 1_000_000.0;
        (0..1_000_000).for_each(|_| m.add(1e9 + 1.0));
        let share = more / (before + more);
        assert!((m.mean().unwrap() - 1e9 - share).abs() < 2e-7);
        let squares = 4.0 * before + before * share;
        assert!(close(m.variance().unwrap(), squares / (before + more - 1.0)));
    }

    proptest! {
        #[test]
        fn agrees_with_two_passes(values in prop::collection::vec(-1e9f64..1e9, 2..200)) {
            let m: Moments = values.iter().copied().collect();
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
            prop_assert!((m.mean().unwrap() - mean).abs() < 1e-4);
            prop_assert!((m.variance().unwrap() / variance - 1.0).abs() < 1e-9);
            prop_assert_eq!(m.min(), values.iter().copied().reduce(f64::min));
            prop_assert_eq!(m.max(), values.iter().copied().reduce(f64::max));
        }

        #[test]
        fn merged_parts_are_the_whole(
            values in prop::collection::vec(0.0f64..1e9, 2..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let (left, right) = values.split_at(cut.index(values.len()));
            let mut parts: Moments = left.iter().copied().collect();
            parts.merge(&right.iter().copied().collect());
            let combined: Moments = values.iter().copied().collect();
            prop_assert_eq!(parts.count(), combined.count());
            prop_assert!((parts.mean().unwrap() - combined.mean().unwrap()).abs() < 1e-5);
            prop_assert!((parts.variance().unwrap() / combined.variance().unwrap() - 1.0).abs() < 1e-9);
            prop_assert_eq!((parts.min(), parts.max()), (combined.min(), combined.max()));
        }
    }
}
