//! A sum that retains the rounding error.
//!
//! For: running totals and means over billions of values, where each addend is smaller than the
//! last digit of the total. Source: TwoSum, Knuth, "The Art of Computer Programming" vol. 2, §4.2.2.

/// A running total: a rounded value and its rounding error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CompensatedSum {
    high: f64,
    low: f64,
}

impl CompensatedSum {
    /// Adds `x`, finite, of either sign.
    pub fn add(&mut self, x: f64) {
        let x = x + self.low;
        let total = self.high + x;
        let part = total - self.high;
        self.low = (self.high - (total - part)) + (x - part);
        self.high = total;
    }

    /// The total, rounded once.
    pub(super) fn value(self) -> f64 {
        self.high + self.low
    }

    /// `x` − total, without first rounding the total.
    pub(super) fn difference_to(self, x: f64) -> f64 {
        (x - self.high) - self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addends_below_the_last_digit_are_not_lost() {
        let mut sum = CompensatedSum::default();
        sum.add(1e18);
        (0..1_000_000).for_each(|_| sum.add(0.25));
        assert_eq!(sum.value(), 1e18 + 250_000.0);
        assert_eq!(sum.difference_to(1e18), -250_000.0);
    }
}
