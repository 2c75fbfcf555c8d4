//! The shift between two figures that are known with their 95 % intervals only.
//!
//! For: two runs, each with the interval in which other runs like it lie. Not for: lists of repetitions (`rank.rs`) and pairs
//! (`signed_rank.rs`). Source: the method of variance estimates recovery, Zou and Donner, "Construction of confidence limits
//! about effect measures", Statistics in Medicine 2008.

use super::Interval;
use super::normal::two_sided_p;

/// The normal deviate of 95 %.
const NORMAL_DEVIATE: f64 = 1.959_964;

/// A figure and its 95 % interval, which holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Interval in which other figures like it lie.
    pub interval: Interval,
}

/// Difference by which a second figure is larger than a first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimatedShift {
    /// The difference.
    pub shift: f64,
    /// The 95 % interval.
    pub interval: Interval,
    /// The two-sided p-value of no difference, 0 to 1.
    pub p: f64,
}

impl Estimate {
    /// Logarithms of the figure and of its interval; `None` unless all of it is positive.
    fn logarithm(self) -> Option<Estimate> {
        let Estimate { value, interval: Interval { low, high } } = self;
        let interval = Interval { low: low.ln(), high: high.ln() };
        (low > 0.0 && high.is_finite()).then(|| Estimate { value: value.ln(), interval })
    }

    /// Difference by which `other` is larger.
    pub fn shift_to(self, other: Estimate) -> EstimatedShift {
        let (a, b) = (self.interval, other.interval);
        let shift = other.value - self.value;
        let below = (other.value - b.low).hypot(a.high - self.value);
        let above = (b.high - other.value).hypot(self.value - a.low);
        let error = if shift > 0.0 { below } else { above } / NORMAL_DEVIATE;
        let p = match error > 0.0 {
            true => two_sided_p(shift / error),
            false => f64::from(u8::from(shift == 0.0)),
        };
        EstimatedShift { shift, interval: Interval { low: shift - below, high: shift + above }, p }
    }

    /// Difference by which `other` is larger, as a share of this: never below −1. `None` unless both are positive.
    pub fn relative_shift_to(self, other: Estimate) -> Option<EstimatedShift> {
        let EstimatedShift { shift, interval, p } = self.logarithm()?.shift_to(other.logarithm()?);
        let interval = Interval { low: interval.low.exp_m1(), high: interval.high.exp_m1() };
        Some(EstimatedShift { shift: shift.exp_m1(), interval, p })
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate::log_normal;
    use super::*;
    use proptest::prelude::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value, interval: Interval { low, high } }
    }

    #[test]
    fn the_shift_agrees_with_the_formula_by_hand() {
        let found = estimate(10.0, 7.0, 14.0).shift_to(estimate(20.0, 16.0, 23.0));
        assert_eq!(found.shift, 10.0);
        assert!((found.interval.low - (10.0 - 32f64.sqrt())).abs() < 1e-12);
        assert!((found.interval.high - (10.0 + 18f64.sqrt())).abs() < 1e-12);
        // 10 ÷ (√32 ÷ 1.96) = 3.4648: R's 2*pnorm(-3.46477)
        assert!((found.p - 0.000_530_7).abs() < 1e-6, "{}", found.p);
    }

    #[test]
    fn one_in_twenty_equal_figures_seems_to_differ() {
        let differ = (0..2000).filter(|&seed| {
            let values = log_normal(2, 0.05, seed);
            let of = |value: f64| estimate(value, value * (-0.098f64).exp(), value * 0.098f64.exp());
            of(values[0]).relative_shift_to(of(values[1])).unwrap().p < 0.05
        });
        let share = differ.count() as f64 / 2000.0;
        assert!((0.035..0.065).contains(&share), "{share}");
    }

    #[test]
    fn exact_figures_differ_or_are_equal() {
        let exact = |value: f64| estimate(value, value, value);
        assert_eq!(exact(5.0).shift_to(exact(5.0)).p, 1.0);
        assert_eq!(exact(5.0).shift_to(exact(6.0)).p, 0.0);
        assert_eq!(estimate(0.0, 0.0, 0.1).relative_shift_to(exact(5.0)), None);
    }

    proptest! {
        #[test]
        fn intervals_hold_the_shift_and_relative_ones_are_possible(
            a in 0.001f64..1e9, b in 0.001f64..1e9, reach_a in 0.0f64..3.0, reach_b in 0.0f64..3.0,
        ) {
            let of = |value: f64, reach: f64| estimate(value, value * (-reach).exp(), value * reach.exp());
            let (a, b) = (of(a, reach_a), of(b, reach_b));
            let relative = a.relative_shift_to(b).unwrap();
            for found in [a.shift_to(b), relative] {
                prop_assert!(found.interval.low <= found.shift && found.shift <= found.interval.high);
                prop_assert!((0.0..=1.0).contains(&found.p));
            }
            prop_assert!(relative.interval.low >= -1.0);
        }
    }
}
