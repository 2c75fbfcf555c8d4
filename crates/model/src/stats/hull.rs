//! The line below a cloud of points: the rate of one clock against another, seen through delays that are
//! never negative.
//!
//! Of all lines with no point below them, the one with the smallest mean distance to the points is the edge
//! of their lower convex hull at the mean of their positions (Moon, Skelly, Towsley: Estimation and removal
//! of clock skew, 1999).

/// The slope of that line; points in the order of their positions. `None` if all have the same position.
pub(crate) fn lower_hull_slope(points: &[(f64, f64)]) -> Option<f64> {
    let hull = lower_hull(points.iter().copied());
    let mean = points.iter().map(|point| point.0).sum::<f64>() / points.len() as f64;
    let edge = hull.windows(2).find(|edge| edge[1].0 >= mean)?;
    Some((edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0))
}

/// The corners of the lower convex hull; points in the order of their positions.
pub(super) fn lower_hull(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..]
            && (b.0 - a.0) * (point.1 - a.1) <= (b.1 - a.1) * (point.0 - a.0)
        {
            hull.pop();
        }
        match hull.last_mut() {
            // Of several points at one position the lowest counts.
            Some(last) if last.0 == point.0 => last.1 = last.1.min(point.1),
            _ => hull.push(point),
        }
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_above_the_hull_do_not_matter() {
        let points: Vec<(f64, f64)> = (0..1000)
            .map(|n| {
                (
                    f64::from(n),
                    0.25 * f64::from(n) + f64::from(n * 7 % 13) + if n % 100 == 3 { 500.0 } else { 0.0 },
                )
            })
            .collect();
        let slope = lower_hull_slope(&points).unwrap();
        assert!((slope - 0.25).abs() < 0.001, "{slope}");
    }

    #[test]
    fn a_line_is_itself() {
        assert_eq!(lower_hull_slope(&[(0.0, 1.0), (2.0, 2.0), (4.0, 3.0)]), Some(0.5));
        assert_eq!(lower_hull_slope(&[(0.0, 1.0), (2.0, -7.0)]), Some(-4.0));
        assert_eq!(lower_hull_slope(&[(3.0, 1.0), (3.0, 2.0)]), None);
        assert_eq!(lower_hull_slope(&[]), None);
    }
}
