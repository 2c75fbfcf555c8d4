//! The offset of two clocks as a line over time, and how wrong it can be.
//!
//! Delays are never negative. So an offset that a message shows in forward direction is an upper bound of the true one, and in
//! reverse direction a lower bound. The clocks gain on each other at a constant, limited rate. So the true offset is a line
//! below all upper bounds and above all lower ones. For: the error of one-way delays. Not for: a rate that changes.

use super::hull::lower_hull;

/// A line: offset at position 0, and slope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// The value at position 0.
    pub(crate) at_zero: f64,
    /// The change for each unit of the position.
    pub slope: f64,
}

/// Number of steps that halve the range of slopes down to the last digit.
const SEARCH_STEPS: usize = 100;

/// The values that the lines can have, which lie below all upper bounds and above all lower ones and whose slope is limited, at
/// the first and the last position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineBounds {
    first: (f64, f64, f64),
    last: (f64, f64, f64),
}

impl LineBounds {
    /// Bounds of lines with a slope of at most `max_slope` either way. Each point is a position, an upper and a lower bound, in the
    /// order of the positions. `None` without points, or if there is no such line.
    pub fn new(points: &[(f64, f64, f64)], max_slope: f64) -> Option<LineBounds> {
        let band = Band {
            upper: lower_hull(points.iter().map(|point| (point.0, point.1))),
            // Corners of the upper hull, upside down.
            lower: lower_hull(points.iter().map(|point| (point.0, -point.2))),
        };
        let (low, high) = band.possible_slopes(max_slope)?;
        let values_at = |position: f64| {
            let above = maximum(low, high, |slope| band.highest(slope, position));
            let below = maximum(low, high, |slope| -band.lowest(slope, position));
            (position, -below, above)
        };
        Some(LineBounds { first: values_at(points.first()?.0), last: values_at(points.last()?.0) })
    }

    /// The line in the middle, and its largest distance from any of the lines at any position. No other line has a smaller
    /// one.
    pub(crate) fn middle(&self) -> (Line, f64) {
        let [(from, low, high), (to, last_low, last_high)] = [self.first, self.last];
        let (begin, end) = ((low + high) / 2.0, (last_low + last_high) / 2.0);
        let slope = if to > from { (end - begin) / (to - from) } else { 0.0 };
        let line = Line { at_zero: begin - slope * from, slope };
        // The distance of two lines is largest at an end.
        (line, ((high - low) / 2.0).max((last_high - last_low) / 2.0).max(0.0))
    }

    /// The best line with this slope, and its largest distance from any of the lines.
    pub(crate) fn with_slope(&self, slope: f64) -> (Line, f64) {
        let ends = [self.first, self.last].map(|(at, low, high)| (low - slope * at, high - slope * at));
        let low = ends[0].0.min(ends[1].0);
        let high = ends[0].1.max(ends[1].1);
        (Line { at_zero: (low + high) / 2.0, slope }, ((high - low) / 2.0).max(0.0))
    }
}

/// The space between the upper and the lower bounds.
struct Band {
    upper: Vec<(f64, f64)>,
    lower: Vec<(f64, f64)>,
}

impl Band {
    /// The highest value at this position of a line with this slope below the upper bounds.
    fn highest(&self, slope: f64, position: f64) -> f64 {
        let values = self.upper.iter().map(|(at, bound)| bound + slope * (position - at));
        values.fold(f64::INFINITY, f64::min)
    }

    /// The lowest value of such a line above the lower bounds.
    fn lowest(&self, slope: f64, position: f64) -> f64 {
        let values = self.lower.iter().map(|(at, bound)| -bound + slope * (position - at));
        values.fold(f64::NEG_INFINITY, f64::max)
    }

    /// The height of the band for a slope; negative if no line fits. It has one maximum.
    fn height(&self, slope: f64) -> f64 {
        self.highest(slope, 0.0) - self.lowest(slope, 0.0)
    }

    /// The range of slopes for which a line fits.
    fn possible_slopes(&self, max_slope: f64) -> Option<(f64, f64)> {
        let widest = argument_of_maximum(-max_slope, max_slope, |slope| self.height(slope));
        if self.height(widest) < 0.0 {
            return None;
        }
        let limit = |end: f64| {
            let (mut inside, mut outside) = (widest, end);
            if self.height(end) >= 0.0 {
                return end;
            }
            for _ in 0..SEARCH_STEPS {
                let middle = (inside + outside) / 2.0;
                if self.height(middle) >= 0.0 { inside = middle } else { outside = middle }
            }
            inside
        };
        Some((limit(-max_slope), limit(max_slope)))
    }
}

/// The argument for which a function with one maximum is largest.
fn argument_of_maximum(mut low: f64, mut high: f64, value: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..SEARCH_STEPS {
        let third = (high - low) / 3.0;
        if value(low + third) < value(high - third) { low += third } else { high -= third }
    }
    (low + high) / 2.0
}

fn maximum(low: f64, high: f64, value: impl Fn(f64) -> f64) -> f64 {
    let inside = value(argument_of_maximum(low, high, &value));
    inside.max(value(low)).max(value(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forward 5, 3, 4, 9 and reverse 2, 6, 1, 8, with an offset of 100.
    fn points() -> Vec<(f64, f64, f64)> {
        let bounds = [(105.0, 98.0), (103.0, 94.0), (104.0, 99.0), (109.0, 92.0)];
        bounds.into_iter().zip([0.0, 1.0, 2.0, 3.0]).map(|((upper, lower), at)| (at, upper, lower)).collect()
    }

    #[test]
    fn without_drift_it_is_half_of_the_shortest_delays_together() {
        let bounds = LineBounds::new(&points(), 0.0).unwrap();
        assert_eq!(bounds.middle(), (Line { at_zero: 101.0, slope: 0.0 }, 2.0));
        assert_eq!(bounds.with_slope(0.0), bounds.middle());
    }

    #[test]
    fn no_line_is_better_than_the_one_in_the_middle() {
        let bounds = LineBounds::new(&points(), 1.0).unwrap();
        let (line, error) = bounds.middle();
        // At the end 104 + 1, and at least 99 − 1.
        assert!(
            (line.at_zero + 3.0 * line.slope - 101.5).abs() < 1e-9 && (error - 3.5).abs() < 1e-9,
            "{error}"
        );
        for slope in [-1.0, -0.2, 0.0, 0.3, 1.0, line.slope] {
            let (same, other) = bounds.with_slope(slope);
            assert!(other >= error - 1e-9 && same.slope == slope, "{slope}: {other}");
        }
    }

    #[test]
    fn steady_delays_leave_no_room_for_drift() {
        let points: Vec<(f64, f64, f64)> = (0..100)
            .map(|at| (f64::from(at), 103.0 + 0.5 * f64::from(at), 99.0 + 0.5 * f64::from(at)))
            .collect();
        let bounds = LineBounds::new(&points, 2.0).unwrap();
        let (line, error) = bounds.middle();
        assert!((error - 2.0).abs() < 1e-9 && (line.slope - 0.5).abs() < 1e-9, "{line:?} {error}");
        assert!((bounds.with_slope(0.5).1 - 2.0).abs() < 1e-9);
    }

    #[test]
    fn bounds_that_contradict_each_other_have_no_line() {
        assert_eq!(LineBounds::new(&[(0.0, 1.0, 2.0)], 1.0), None);
        assert_eq!(LineBounds::new(&[], 1.0), None);
    }
}
