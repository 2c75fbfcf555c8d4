//! Values that fall into separate groups: a figure that depends on something that differs from repetition to repetition.
//!
//! For: a few to some hundred repetitions. Not for: naming the cause, and not for the modes of a distribution.
//! Source: the largest gap in proportion to the values beside it; its limits are simulated (see the tests).

use super::Interval;

/// One group of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Number of values of the group: at least 2, and 15 % of all.
    pub size: usize,
    /// The smallest and largest value.
    pub range: Interval,
}

/// Minimum number of values that can show groups.
const MIN_VALUES: usize = 6;

/// Minimum number of values in a group; a group of one is an outlier.
const MIN_GROUP_SIZE: usize = 2;
/// Minimum share of the values in a group; a smaller group is an outlier, too.
const MIN_GROUP_SHARE: f64 = 0.15;

/// The gap between two groups is at least this multiple of the wider group.
const MIN_GAP_RATIO: f64 = 2.5;

/// Maximum number of groups; more are a wide distribution.
const MAX_GROUPS: usize = 4;

/// Groups that differ by less than this share of the lower one are not worth a note.
const MIN_GAP_SHARE: f64 = 0.05;

/// The groups of positive values, smallest first. Empty unless there are at least 2.
pub fn separate_groups(values: &[f64]) -> Vec<Group> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    if sorted.len() < MIN_VALUES || sorted.len() < values.len() {
        return Vec::new();
    }
    let min_size = MIN_GROUP_SIZE.max((MIN_GROUP_SHARE * sorted.len() as f64).ceil() as usize);
    let partitions = (1..MAX_GROUPS).filter_map(|cuts| partition(&sorted, cuts, min_size));
    partitions.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, groups)| groups).unwrap_or_default()
}

/// The values cut at their widest gaps, with the smallest of these gaps divided by the widest group. `None` if the
/// parts are no groups.
fn partition(sorted: &[f64], cuts: usize, min_size: usize) -> Option<(f64, Vec<Group>)> {
    let gap = |cut: usize| sorted[cut] - sorted[cut - 1];
    let mut places: Vec<usize> = (1..sorted.len()).collect();
    places.sort_by(|&a, &b| gap(b).total_cmp(&gap(a)));
    places.truncate(cuts);
    places.sort_unstable();
    let ends = places.iter().copied().chain([sorted.len()]);
    let starts = std::iter::once(0).chain(places.iter().copied());
    let groups: Vec<Group> = starts
        .zip(ends)
        .map(|(from, to)| Group {
            size: to - from,
            range: Interval { low: sorted[from], high: sorted[to - 1] },
        })
        .collect();
    let widest = groups.iter().map(|group| group.range.high - group.range.low).fold(0.0, f64::max);
    let narrowest_gap = places.iter().map(|&cut| gap(cut)).fold(f64::INFINITY, f64::min);
    let is_separate = narrowest_gap > MIN_GAP_RATIO * widest
        && places.iter().all(|&cut| gap(cut) > MIN_GAP_SHARE * sorted[cut - 1])
        && groups.iter().all(|group| group.size >= min_size);
    is_separate.then_some((narrowest_gap / widest, groups))
}

#[cfg(test)]
mod tests {
    use super::super::simulate::log_normal;
    use super::*;

    fn sizes(values: &[f64]) -> Vec<usize> {
        separate_groups(values).iter().map(|group| group.size).collect()
    }

    #[test]
    fn groups_have_their_sizes_and_ranges() {
        let values = [13.0, 45.0, 13.4, 44.0, 12.9, 13.1, 46.0, 13.2];
        let groups = separate_groups(&values);
        assert_eq!(groups[0], Group { size: 5, range: Interval { low: 12.9, high: 13.4 } });
        assert_eq!(groups[1], Group { size: 3, range: Interval { low: 44.0, high: 46.0 } });
        assert_eq!(groups.len(), 2);
        assert_eq!(sizes(&[1.0, 1.1, 5.0, 5.1, 5.2, 9.0, 9.1]), [2, 3, 2]);
    }

    #[test]
    fn outliers_small_gaps_and_few_values_are_no_groups() {
        assert!(sizes(&[10.0, 10.1, 10.2, 10.3, 10.1, 99.0]).is_empty());
        assert!(sizes(&[10.0, 10.0, 10.0, 10.4, 10.4, 10.4]).is_empty());
        assert!(sizes(&[1.0, 1.0, 9.0, 9.0, 9.0]).is_empty());
        assert!(sizes(&[1.0, 1.0, 1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]).is_empty());
        assert!(sizes(&[]).is_empty() && sizes(&[7.0; 30]).is_empty());
    }

    #[test]
    fn one_group_is_rarely_split() {
        for n in [6, 10, 30] {
            let split = (0..1000).filter(|&seed| !sizes(&log_normal(n, 0.2, seed)).is_empty()).count();
            assert!(split <= 50, "{split} of 1000 with {n} values");
        }
    }
}
