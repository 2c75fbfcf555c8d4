//! How wrong a line through the offsets of two clocks can be.
//!
//! Delays are never negative. So an offset that a message shows in forward direction is an upper bound of the true one, and in
//! reverse direction a lower bound. The clocks gain on each other at a constant, limited rate. So the true offset is a line
//! below all upper bounds and above all lower ones. For: the error of one-way delays. Not for: a rate that changes.

use super::hull::lower_hull;

/// A line: offset at position 0, and slope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// The value at position 0.
    pub at_zero: f64,
    /// The change for each unit of the position.
    pub slope: f64,
}

impl Line {
    fn at(self, position: f64) -> f64 {
        self.at_zero + self.slope * position
    }
}

/// Enough to halve the range of slopes down to the last digit.
const SEARCH_STEPS: usize = 100;

/// The largest distance of `line`, at any position of the points, from a line that lies below all upper bounds and above all
/// lower ones and whose slope is at most `max_slope` either way. Each point is a position, an upper and a lower bound, in the
/// order of the positions. `None` without points, or if there is no such line.
pub fn max_line_error(points: &[(f64, f64, f64)], line: Line, max_slope: f64) -> Option<f64> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let band = Band {
        upper: lower_hull(points.iter().map(|point| (point.0, point.1))),
        // Its corners, upside down.
        lower: lower_hull(points.iter().map(|point| (point.0, -point.2))),
    };
    let (low, high) = band.possible_slopes(max_slope)?;
    // The distance of two lines is largest at an end.
    let error_at = |position: f64| {
        let above = maximum(low, high, |slope| band.highest(slope, position));
        let below = maximum(low, high, |slope| -band.lowest(slope, position));
        (above - line.at(position)).max(line.at(position) + below)
    };
    Some(error_at(first).max(error_at(last)).max(0.0))
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

    const FLAT: Line = Line { at_zero: 101.0, slope: 0.0 };

    #[test]
    fn without_drift_it_is_half_of_the_shortest_delays_together() {
        // Forward 5, 3, 4, 9 and reverse 2, 6, 1, 8, with an offset of 100.
        let points: Vec<(f64, f64, f64)> = [(105.0, 98.0), (103.0, 94.0), (104.0, 99.0), (109.0, 92.0)]
            .into_iter()
            .zip([0.0, 1.0, 2.0, 3.0])
            .map(|((upper, lower), at)| (at, upper, lower))
            .collect();
        assert_eq!(max_line_error(&points, FLAT, 0.0), Some(2.0));
        assert_eq!(max_line_error(&points, Line { at_zero: 100.0, ..FLAT }, 0.0), Some(3.0));
        // With a drift, the last bounds are the wide ones: 103 − 1·s at 1, then up to 2·s more.
        let error = max_line_error(&points, FLAT, 1.0).unwrap();
        assert!((error - 4.0).abs() < 1e-9, "{error}");
    }

    #[test]
    fn steady_delays_leave_no_room_for_drift() {
        let points: Vec<(f64, f64, f64)> = (0..100).map(|at| (f64::from(at), 103.0, 99.0)).collect();
        let error = max_line_error(&points, FLAT, 1.0).unwrap();
        assert!((error - 2.0).abs() < 1e-9, "{error}");
    }

    #[test]
    fn bounds_that_contradict_each_other_have_no_error() {
        assert_eq!(max_line_error(&[(0.0, 1.0, 2.0)], FLAT, 1.0), None);
        assert_eq!(max_line_error(&[], FLAT, 1.0), None);
    }
}
