//! Joint test of several figures of the same few repetitions: their p-values hold for all of them together, and reach lower
//! values than a correction for their number.
//!
//! For: so few repetitions that no corrected p-value could be small. All divisions of the repetitions into two sides are counted, and each
//! figure is compared with the largest difference of any figure.
//! Source: Westfall and Young, "Resampling-Based Multiple Testing", 1993 (single-step max-T), with exact enumeration.

/// Divisions that are counted at most, within some milliseconds.
const MAX_DIVISIONS: u128 = 20_000;

/// Values of both sides together at most.
const MAX_VALUES: usize = 24;

/// Distance beyond the finite values at which a value that was not reached lies, as a multiple of their range.
const BEYOND: f64 = 10.0;

/// The p-values of lists of two sides, one for each figure, if each figure has a value for each repetition of `a` and of `b`. `None` for
/// lists of different lengths, and for too many repetitions.
pub fn joint_p_of_lists(figures: &[(&[f64], &[f64])]) -> Option<Vec<f64>> {
    let (first_a, first_b) = figures.first()?;
    let (in_a, all) = (first_a.len(), first_a.len() + first_b.len());
    let have_equal_lengths = figures.iter().all(|(a, b)| a.len() == in_a && b.len() == first_b.len());
    if !have_equal_lengths || divisions(all, in_a)? > MAX_DIVISIONS || all > MAX_VALUES {
        return None;
    }
    let pooled: Vec<Vec<f64>> = figures.iter().map(|(a, b)| finite(a.iter().chain(*b).copied())).collect();
    let masks = (0u64..1 << all).filter(|mask| mask.count_ones() as usize == in_a);
    Some(shares(&pooled, (1 << in_a) - 1, masks, difference_of_lists))
}

/// The p-values of differences within pairs, one for each figure. `None` for lists of different lengths, and for too many pairs.
pub fn joint_p_of_pairs(figures: &[&[f64]]) -> Option<Vec<f64>> {
    let pairs = figures.first()?.len();
    let is_finite = figures.iter().all(|figure| figure.iter().all(|value| value.is_finite()));
    if figures.iter().any(|figure| figure.len() != pairs)
        || 1u128 << pairs.min(100) > MAX_DIVISIONS
        || !is_finite
    {
        return None;
    }
    let lists: Vec<Vec<f64>> = figures.iter().map(|figure| figure.to_vec()).collect();
    Some(shares(&lists, 0, 0..1 << pairs, difference_of_pairs))
}

/// The smallest p-value that a test of two lists of these lengths can have.
pub fn least_p_of_lists(a: usize, b: usize) -> f64 {
    divisions(a + b, a).map_or(0.0, |count| (2.0 / count as f64).min(1.0))
}

/// The smallest p-value that a test of the differences of this number of pairs can have.
pub fn least_p_of_pairs(pairs: usize) -> f64 {
    0.5f64.powi(pairs as i32 - 1)
}

/// The number of choices of `some` of `all`; `None` beyond its range.
fn divisions(all: usize, some: usize) -> Option<u128> {
    (0..some.min(all - some))
        .try_fold(1u128, |count, taken| Some(count.checked_mul((all - taken) as u128)? / (taken as u128 + 1)))
}

/// Share of divisions, for each figure, in which any figure differs at least as much as this one does in the observed division.
fn shares(
    figures: &[Vec<f64>],
    observed: u64,
    masks: impl Iterator<Item = u64>,
    difference: fn(&[f64], u64) -> f64,
) -> Vec<f64> {
    let own: Vec<f64> = figures.iter().map(|values| difference(values, observed)).collect();
    let (mut counts, mut all) = (vec![0u64; figures.len()], 0u64);
    for mask in masks {
        let largest = figures.iter().map(|values| difference(values, mask)).fold(0.0, f64::max);
        // The sums of a division and of its mirror image may differ in their last bit.
        own.iter()
            .zip(&mut counts)
            .for_each(|(own, count)| *count += u64::from(largest * (1.0 + 1e-9) >= *own));
        all += 1;
    }
    counts.into_iter().map(|count| count as f64 / all as f64).collect()
}

/// The values; those that were not reached lie far beyond the others.
fn finite(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
    let range = if low < high { high - low } else { high.abs().max(1.0) };
    let beyond = if low.is_finite() { high + BEYOND * range } else { 0.0 };
    values.iter().map(|value| if value.is_finite() { *value } else { beyond }).collect()
}

/// Difference of the means of the values in the mask and of the others, divided by its error.
fn difference_of_lists(values: &[f64], mask: u64) -> f64 {
    let part = |inside: bool| {
        let of: Vec<f64> = values
            .iter()
            .enumerate()
            .filter(|(index, _)| (mask >> index & 1 == 1) == inside)
            .map(|(_, value)| *value)
            .collect();
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        let squares: f64 = of.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, squares / (of.len() as f64 - 1.0).max(1.0) / of.len() as f64)
    };
    let ((mean_a, error_a), (mean_b, error_b)) = (part(true), part(false));
    ratio((mean_a - mean_b).abs(), (error_a + error_b).sqrt())
}

/// Mean of the differences, with the sign of those in the mask changed, divided by its error.
fn difference_of_pairs(values: &[f64], mask: u64) -> f64 {
    let signed = |(index, value): (usize, &f64)| if mask >> index & 1 == 1 { -value } else { *value };
    let of: Vec<f64> = values.iter().enumerate().map(signed).collect();
    let mean = of.iter().sum::<f64>() / of.len() as f64;
    let squares: f64 = of.iter().map(|value| (value - mean).powi(2)).sum();
    ratio(mean.abs(), (squares / (of.len() as f64 - 1.0).max(1.0) / of.len() as f64).sqrt())
}

/// Ratio of a difference to its error; 0 for no difference, also without an error.
fn ratio(difference: f64, error: f64) -> f64 {
    if difference == 0.0 { 0.0 } else { difference / error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::SplitMix64;

    #[test]
    fn four_against_four_show_a_clear_difference_beside_another_figure() {
        let rate: (&[f64], &[f64]) = (&[91.5, 91.6, 91.7, 91.4], &[9.5, 9.6, 9.5, 9.6]);
        let added: (&[f64], &[f64]) = (&[3.0, 5.0, 4.0, 6.0], &[4.0, 5.5, 3.5, 5.0]);
        let p = joint_p_of_lists(&[rate, added]).unwrap();
        assert_eq!(p[0], 2.0 / 70.0);
        assert!(p[1] > 0.5, "{p:?}");
        assert_eq!(least_p_of_lists(4, 4), 2.0 / 70.0);
        let lost: (&[f64], &[f64]) = (&[f64::INFINITY; 4], &[1.2, 1.3, 1.1, 1.2]);
        assert_eq!(joint_p_of_lists(&[lost, added]).unwrap()[0], 2.0 / 70.0);
        assert_eq!(joint_p_of_lists(&[rate, (&[1.0; 3], &[1.0; 4])]), None);
    }

    #[test]
    fn six_pairs_show_a_clear_difference_beside_another_figure() {
        let p =
            joint_p_of_pairs(&[&[5.0, 5.1, 4.9, 5.2, 5.0, 4.8], &[0.1, -0.2, 0.3, -0.1, 0.0, 0.1]]).unwrap();
        assert_eq!((p[0], least_p_of_pairs(6)), (2.0 / 64.0, 2.0 / 64.0));
        assert!(p[1] > 0.5, "{p:?}");
    }

    #[test]
    fn any_of_three_figures_without_a_difference_is_significant_in_at_most_5_percent() {
        let mut random = SplitMix64::new(11);
        let runs = 2000;
        let false_findings = (0..runs)
            .filter(|_| {
                let lists: Vec<Vec<f64>> =
                    (0..3).map(|_| (0..8).map(|_| random.uniform().ln()).collect()).collect();
                let figures: Vec<(&[f64], &[f64])> = lists.iter().map(|list| list.split_at(4)).collect();
                joint_p_of_lists(&figures).unwrap().iter().any(|p| *p < 0.05)
            })
            .count();
        assert!(false_findings as f64 <= 0.05 * f64::from(runs), "{false_findings}");
    }
}
