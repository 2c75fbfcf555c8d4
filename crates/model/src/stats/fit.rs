//! Straight lines through points: slope, intercept, their intervals, and residuals.
//!
//! For: a few to some hundred points with exact x (Theil–Sen costs n²). `explain` interprets the slopes.
//! Sources: Draper and Smith, "Applied Regression Analysis" (least squares); Sen, "Estimates of the
//! regression coefficient based on Kendall's tau", JASA 1968; Burnham and Anderson, "Model Selection and
//! Multimodel Inference", 2nd ed. 2002 (two lines or one).

use super::centre::{median, median_in_place};
use super::kendall::{score_variance, tie_counts};
use super::sum::CompensatedSum;
use super::{Interval, normal, student};

/// y = `intercept` + `slope` · x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFit {
    /// y at x = 0.
    pub intercept: f64,
    /// y per x.
    pub slope: f64,
    /// Interval of the intercept. `None` if there are too few points, or the method gives none.
    pub intercept_interval: Option<Interval>,
    /// Interval of the slope. `None` if there are too few points, or the method gives none.
    pub slope_interval: Option<Interval>,
}

/// x and y.
pub type FitPoint = (f64, f64);

impl LinearFit {
    /// y at this x.
    pub fn predict(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Vertical distance of a point above the line.
    pub fn residual(&self, (x, y): FitPoint) -> f64 {
        y - self.predict(x)
    }
}

/// The line with the smallest sum of squared residuals. Intervals by Student's t, for independent residuals
/// of equal variance. `None` unless all values are finite and two values of x differ.
pub fn least_squares(points: &[FitPoint], confidence: f64) -> Option<LinearFit> {
    weighted_least_squares(points, &vec![1.0; points.len()], confidence)
}

/// [`least_squares`] with a weight above zero for each point; only the ratios of weights matter. A weight of
/// 1/y² makes residuals relative to y.
pub(crate) fn weighted_least_squares(
    points: &[FitPoint],
    weights: &[f64],
    confidence: f64,
) -> Option<LinearFit> {
    let weighted = |of: &dyn Fn(FitPoint) -> f64| {
        let mut sum = CompensatedSum::default();
        points.iter().zip(weights).for_each(|(&point, weight)| sum.add(weight * of(point)));
        sum.value()
    };
    if points.len() != weights.len() || !has_finite_line(points) {
        return None;
    }
    let weight = weighted(&|_| 1.0);
    let (x, y) = (weighted(&|point| point.0) / weight, weighted(&|point| point.1) / weight);
    let spread = weighted(&|point| (point.0 - x).powi(2));
    let slope = weighted(&|point| (point.0 - x) * (point.1 - y)) / spread;
    let mut line =
        LinearFit { intercept: y - slope * x, slope, intercept_interval: None, slope_interval: None };
    let freedom = points.len() as u32 - 2;
    if freedom > 0 {
        let variance = weighted(&|point| line.residual(point).powi(2)) / f64::from(freedom);
        let t = student::half_width(freedom, confidence);
        let around = |value: f64, variance: f64| {
            let half = t * variance.sqrt();
            Some(Interval { low: value - half, high: value + half })
        };
        line.slope_interval = around(slope, variance / spread);
        line.intercept_interval = around(line.intercept, variance * (1.0 / weight + x * x / spread));
    }
    Some(line)
}

/// Weighted least squares with the weights 1/y²; y must not be zero.
pub fn relative_least_squares(points: &[FitPoint], confidence: f64) -> Option<LinearFit> {
    let weights: Vec<f64> = points.iter().map(|(_, y)| 1.0 / (y * y)).collect();
    weighted_least_squares(points, &weights, confidence)
}

/// The line whose slope is the median of the slopes between all pairs of points: robust against up to 29 %
/// outliers. The intercept leaves equally many points above and below; it has no interval, the interval of
/// the slope is Sen's. `None` unless all values are finite and two values of x differ.
pub fn theil_sen(points: &[FitPoint], confidence: f64) -> Option<LinearFit> {
    if !has_finite_line(points) {
        return None;
    }
    let mut slopes = Vec::new();
    for (index, one) in points.iter().enumerate() {
        let others = points[index + 1..].iter().filter(|other| other.0 != one.0);
        slopes.extend(others.map(|other| (other.1 - one.1) / (other.0 - one.0)));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let slope = median(&slopes)?;
    let mut above: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let intercept = median_in_place(&mut above)?;
    Some(LinearFit {
        intercept,
        slope,
        intercept_interval: None,
        slope_interval: sen_interval(points, &slopes, confidence),
    })
}

/// Sen's interval: the sorted slopes that Kendall's score just does not reject.
fn sen_interval(points: &[FitPoint], slopes: &[f64], confidence: f64) -> Option<Interval> {
    let of = |coordinate: fn(&FitPoint) -> f64| tie_counts(points.iter().map(coordinate).collect());
    let variance = score_variance(points.len(), &[of(|point| point.0), of(|point| point.1)]);
    let half = normal::half_width(confidence) * variance.sqrt();
    let count = slopes.len() as f64;
    // Ranks from 1; with few points the normal approximation may exceed the number of pairs.
    let low = ((count - half) / 2.0).round_ties_even() as usize;
    let high = ((count + half) / 2.0).round_ties_even() as usize;
    Some(Interval { low: *slopes.get(low.checked_sub(1)?)?, high: *slopes.get(high)? })
}

/// Two lines instead of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentedFit {
    /// The line through the points below the break.
    pub below: LinearFit,
    /// The line through the points above the break.
    pub above: LinearFit,
    /// The last x of the lower line, and the first x of the upper one.
    pub break_between: (f64, f64),
}

/// Minimum number of points on each side of a break: with fewer, the residuals are too small to judge the
/// line.
const MIN_SEGMENT_POINTS: usize = 4;
/// Burnham and Anderson, p. 70: beyond this difference of AICc the worse model has "essentially no support".
const MIN_AICC_GAIN: f64 = 10.0;
/// Measurements are no more accurate than a thousandth: smaller residuals do not make a line better.
const MIN_RELATIVE_RESIDUAL: f64 = 1e-3;

/// Two lines, separated between two neighbours, if they fit clearly better: their AICc, with the position of
/// the break as a parameter, is lower by more than 10 than that of one line. Residuals are relative to y,
/// which must be above zero.
pub fn fit_segmented(points: &[FitPoint], confidence: f64) -> Option<SegmentedFit> {
    let mut points = points.to_vec();
    points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    if points.iter().any(|(_, y)| *y <= 0.0) {
        return None;
    }
    let count = points.len();
    let relative = |points: &[FitPoint]| {
        let line = relative_least_squares(points, confidence)?;
        let squared_residuals: f64 =
            points.iter().map(|&point| (line.residual(point) / point.1).powi(2)).sum();
        Some((line, squared_residuals))
    };
    // Two coefficients and the variance; four, the variance and the position.
    let one = corrected_aic(relative(&points)?.1, count, 3)?;
    let beside = MIN_SEGMENT_POINTS..(count + 1).saturating_sub(MIN_SEGMENT_POINTS);
    let two = |at: usize| {
        let (below, above) = points.split_at(at);
        let between = (below.last()?.0, above.first()?.0);
        let ((below, missed_below), (above, missed_above)) = (relative(below)?, relative(above)?);
        let aic = corrected_aic(missed_below + missed_above, count, 6)?;
        (between.0 < between.1).then_some((SegmentedFit { below, above, break_between: between }, aic))
    };
    let (broken, two) = beside.filter_map(two).min_by(|one, other| one.1.total_cmp(&other.1))?;
    (one - two > MIN_AICC_GAIN).then_some(broken)
}

/// Akaike's criterion, corrected for few points; `None` if there are too few points for the parameters.
fn corrected_aic(squared_residuals: f64, count: usize, parameters: usize) -> Option<f64> {
    let (n, k) = (count as f64, parameters as f64);
    let spare = n - k - 1.0;
    let variance = (squared_residuals / n).max(MIN_RELATIVE_RESIDUAL * MIN_RELATIVE_RESIDUAL);
    (spare > 0.0).then(|| n * variance.ln() + 2.0 * k + 2.0 * k * (k + 1.0) / spare)
}

fn has_finite_line(points: &[FitPoint]) -> bool {
    points.iter().all(|(x, y)| x.is_finite() && y.is_finite())
        && points.iter().any(|(x, _)| *x != points[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1/rate in s/B over the round trip in s, of a published table; two rows have the same x and y.
    fn delays() -> Vec<FitPoint> {
        let rows = [
            (4.1, 155.0),
            (2.0, 321.0),
            (1.0, 631.0),
            (0.4, 1493.0),
            (0.2, 2720.0),
            (0.1, 4600.0),
            (0.1, 4600.0),
            (0.04, 7100.0),
            (0.0, 8300.0),
        ];
        rows.map(|(x, rate)| (x, 1.0 / rate)).to_vec()
    }

    /// Ties in x and in y.
    fn tied() -> Vec<FitPoint> {
        let x = [1.0, 2.0, 2.0, 3.0, 5.0, 8.0, 8.0, 8.0, 13.0, 21.0];
        x.into_iter().zip([2.1, 3.9, 4.2, 6.1, 9.8, 16.5, 15.9, 16.5, 26.3, 41.7]).collect()
    }

    /// Intercept, slope, interval of the slope, interval of the intercept.
    pub fn figures(line: Option<LinearFit>) -> Vec<f64> {
        let line = line.unwrap();
        let ends = [line.slope_interval, line.intercept_interval].into_iter().flatten();
        [line.intercept, line.slope].into_iter().chain(ends.flat_map(|i| [i.low, i.high])).collect()
    }

    fn agrees(actual: &[f64], wanted: &[f64]) {
        assert_eq!(actual.len(), wanted.len(), "{actual:?}");
        for (actual, wanted) in actual.iter().zip(wanted) {
            assert!((actual / wanted - 1.0).abs() < 1e-9, "{actual} is not {wanted}");
        }
    }

    #[test]
    fn least_squares_agree_with_scipy() {
        // SciPy 1.17.1: r = scipy.stats.linregress(x, y); t = scipy.stats.t.ppf(0.975, len(x) - 2);
        // r.intercept, r.slope, r.slope -+ t*r.stderr, r.intercept -+ t*r.intercept_stderr
        let wanted = [
            6.434010607603161e-05,
            0.0015498931775757734,
            0.0015293366996898033,
            0.0015704496554617435,
            3.217755642373922e-05,
            9.650265572832401e-05,
        ];
        agrees(&figures(least_squares(&delays(), 0.95)), &wanted);
        let wanted = [
            0.15623349955998833,
            1.992079788794368,
            1.955703913473209,
            2.0284556641155267,
            -0.17814766588545383,
            0.4906146650054305,
        ];
        agrees(&figures(least_squares(&tied(), 0.95)), &wanted);
    }

    #[test]
    fn relative_weights_agree_with_scipy() {
        // SciPy 1.17.1: p, c = scipy.optimize.curve_fit(lambda x, a, b: a + b*x, x, y, sigma=y), which
        // minimizes iteratively and stops at 7 to 10 digits; these are the digits of its limit (normal
        // equations with mpmath 1.3, 40 digits), t as above.
        let relative = |points: &[FitPoint]| figures(relative_least_squares(points, 0.95));
        let wanted = [
            9.764020036965031e-05,
            0.0014103683482489993,
            0.001226033968023956,
            0.0015947027284740425,
            7.598507309255898e-05,
            0.00011929532764674164,
        ];
        agrees(&relative(&delays()), &wanted);
        let wanted = [
            0.07775356866693563,
            2.000684467952826,
            1.943938888232449,
            2.057430047673203,
            -0.06243025724799328,
            0.21793739458186454,
        ];
        agrees(&relative(&tied()), &wanted);
    }

    #[test]
    fn theil_and_sen_agree_with_scipy() {
        // SciPy 1.17.1: scipy.stats.theilslopes(y, x, method='joint'): intercept, slope, low and high slope
        let wanted =
            [6.722496863514785e-05, 0.001517561085247578, 0.0014175124275062137, 0.0015441782867109668];
        agrees(&figures(theil_sen(&delays(), 0.95)), &wanted);
        let wanted = [0.10000000000000042, 1.9999999999999998, 1.9600000000000002, 2.0625];
        agrees(&figures(theil_sen(&tied(), 0.95)), &wanted);
    }

    #[test]
    fn no_line_without_two_different_x() {
        for points in [&[][..], &[(1.0, 2.0)], &[(1.0, 2.0), (1.0, 3.0)], &[(0.0, f64::NAN), (1.0, 1.0)]] {
            assert_eq!(least_squares(points, 0.95), None);
            assert_eq!(theil_sen(points, 0.95), None);
        }
        assert_eq!(weighted_least_squares(&[(0.0, 1.0), (1.0, 2.0)], &[1.0], 0.95), None);
    }

    #[test]
    fn two_points_have_a_line_and_no_interval() {
        let points = [(1.0, 5.0), (3.0, 9.0)];
        for line in [least_squares(&points, 0.95).unwrap(), theil_sen(&points, 0.95).unwrap()] {
            assert_eq!((line.intercept, line.slope), (3.0, 2.0));
            assert_eq!((line.intercept_interval, line.slope_interval), (None, None));
        }
    }

    /// The time of a message of each size: one line below 1500 bytes, another above, plus noise.
    fn swept(above: (f64, f64), noise: f64) -> Vec<FitPoint> {
        let mut random = crate::stats::SplitMix64::new(7);
        let sizes = (0..11).map(|power| f64::from(64 << power));
        let time = |x: f64| if x < 1500.0 { 20.0 + x / 90.0 } else { above.0 + x / above.1 };
        sizes.map(|x| (x, time(x) * (1.0 + noise * (2.0 * random.uniform() - 1.0)))).collect()
    }

    #[test]
    fn the_breakpoint_is_found() {
        for noise in [0.0, 0.02] {
            let broken = fit_segmented(&swept((45.0, 60.0), noise), 0.95).unwrap();
            assert_eq!(broken.break_between, (1024.0, 2048.0), "{noise}");
            assert!(
                (1.0 / broken.below.slope - 90.0).abs() < 15.0 && (broken.above.intercept - 45.0).abs() < 5.0
            );
        }
    }

    #[test]
    fn noise_does_not_segment_one_line() {
        for noise in [0.0, 0.02, 0.1, 0.3] {
            assert_eq!(fit_segmented(&swept((20.0, 90.0), noise), 0.95), None, "{noise}");
        }
    }

    #[test]
    fn few_points_show_no_break() {
        let six: Vec<FitPoint> = swept((45.0, 60.0), 0.0).into_iter().step_by(2).collect();
        assert_eq!((six.len(), fit_segmented(&six, 0.95)), (6, None));
        for points in [&[][..], &[(1.0, 1.0)], &[(1.0, 1.0); 20], &[(1.0, 0.0), (2.0, -1.0)]] {
            assert_eq!(fit_segmented(points, 0.95), None);
        }
    }

    proptest! {
        #[test]
        fn points_of_a_line_give_it_back(
            intercept in -1e3f64..1e3, slope in -1e3f64..1e3, xs in prop::collection::vec(-1e3f64..1e3, 2..20),
        ) {
            prop_assume!(xs.iter().any(|x| (x - xs[0]).abs() > 1.0));
            let points: Vec<FitPoint> = xs.iter().map(|x| (*x, intercept + slope * x)).collect();
            for line in [least_squares(&points, 0.95), theil_sen(&points, 0.95)] {
                let line = line.unwrap();
                prop_assert!(points.iter().all(|point| line.residual(*point).abs() < 1e-6), "{:?}", line);
            }
        }
    }
}
