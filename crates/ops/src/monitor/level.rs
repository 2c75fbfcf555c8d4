//! Level shifts of the median of a link, by the method with which `history` finds them among runs.
//!
//! Medians of ten minutes are compared, and a shift must also be large: the method alone would call one history in fifty
//! shifted, and a monitor looks at thousands of them a month.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use linkgauge_model::sample::Window;
use linkgauge_model::stats::{level_changes, median};

/// Length of the windows whose medians are compared, in seconds.
pub const LEVEL_WINDOW_S: i64 = 600;

/// Medians that are compared: 12 hours.
pub const MAX_LEVEL_WINDOWS: usize = 72;

/// Time until a shift of several deviations is noticed: the median of five or six windows must have changed.
pub const USUAL_SHIFT_DELAY: Duration = Duration::from_secs(3600);

/// A window needs this many replies.
const MIN_REPLIES: u64 = 10;

/// A shift is at least this share of the level before.
const MIN_SHIFT: f64 = 0.1;

/// A shift is at least this many standard deviations of the medians around their level.
const MIN_DEVIATIONS: f64 = 3.0;

/// The standard deviation of normal values whose median absolute deviation is 1.
const DEVIATION_OF_MAD: f64 = 1.4826;

/// A new level of the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LevelShift {
    /// Begin of the new level, to ten minutes.
    pub since: Timestamp,
    /// The level before, in ns.
    pub before_ns: f64,
    /// The level since then, in ns.
    pub after_ns: f64,
}

/// The medians of one link.
#[derive(Debug, Clone, Default)]
pub struct LevelWatch {
    /// The second at which each complete window begins, and its median in ns.
    medians: VecDeque<(i64, f64)>,
    current: Option<(i64, Window)>,
}

impl LevelWatch {
    /// Goes on with the windows that were stored before; the last one may be incomplete.
    pub fn resume(&mut self, windows: impl IntoIterator<Item = (i64, Window)>) {
        for (start, window) in windows {
            self.complete_current();
            self.current = Some((start, window));
        }
    }

    /// Adds probes that were due from this second on. Returns a shift when the window before shows one.
    pub fn record(&mut self, second: i64, probes: &Window) -> Option<LevelShift> {
        let start = second - second.rem_euclid(LEVEL_WINDOW_S);
        match &mut self.current {
            Some((current, window)) if *current == start => {
                window.merge(probes);
                None
            }
            _ => {
                let has_new_median = self.complete_current();
                self.current = Some((start, probes.clone()));
                if has_new_median { self.shift() } else { None }
            }
        }
    }

    /// Completes the current window. Returns whether it has a median: in an outage it has none.
    fn complete_current(&mut self) -> bool {
        let Some((start, window)) = self.current.take() else { return false };
        let median = window.quantile_with_losses_ns(0.5).filter(|median| median.is_finite());
        let Some(median) = median.filter(|_| window.replies() >= MIN_REPLIES) else { return false };
        if self.medians.len() == MAX_LEVEL_WINDOWS {
            self.medians.pop_front();
        }
        self.medians.push_back((start, median));
        true
    }

    /// The last change of level. What was before it is forgotten, so it is found once.
    fn shift(&mut self) -> Option<LevelShift> {
        let medians: Vec<f64> = self.medians.iter().map(|(_, median)| *median).collect();
        let last = *level_changes(&medians).last()?;
        let (before, after) = medians.split_at(last);
        let (before_ns, after_ns) = (median(before)?, median(after)?);
        let deviation = deviation(before, before_ns).max(deviation(after, after_ns));
        let size = (after_ns - before_ns).abs();
        if size < (MIN_SHIFT * before_ns).max(MIN_DEVIATIONS * deviation) {
            return None;
        }
        // The method leaves at least four medians after a change, of which the first may belong to the level before.
        let is_new = |median: &f64| (median - after_ns).abs() < (median - before_ns).abs();
        let first = last + after.iter().position(is_new).unwrap_or(0);
        self.medians.drain(..first);
        let since = Timestamp::from_second(self.medians[0].0).unwrap_or(Timestamp::UNIX_EPOCH);
        Some(LevelShift { since, before_ns, after_ns })
    }
}

/// The standard deviation around a level, without regard to outliers.
fn deviation(values: &[f64], level: f64) -> f64 {
    let distances: Vec<f64> = values.iter().map(|value| (value - level).abs()).collect();
    DEVIATION_OF_MAD * median(&distances).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::sample::WindowCounts;
    use linkgauge_model::stats::SplitMix64;

    /// Ten minutes of probes around a median, with noise of this share; the median is off by some of it as well.
    fn ten_minutes(median_ns: f64, noise: f64, random: &mut SplitMix64) -> Window {
        let mut window = Window::new(WindowCounts { due: 60, ..WindowCounts::default() });
        let off = 1.0 + noise * (random.uniform() - 0.5);
        (0..60)
            .for_each(|_| window.record((median_ns * off * (1.0 + noise * (random.uniform() - 0.5))) as u64));
        window
    }

    fn shifts(levels: &[(usize, f64)], noise: f64, seed: u64) -> Vec<LevelShift> {
        let (mut watch, mut random) = (LevelWatch::default(), SplitMix64::new(seed));
        let medians = levels.iter().flat_map(|(count, level)| std::iter::repeat_n(*level, *count));
        let record = |(index, level): (usize, f64)| {
            watch.record(index as i64 * LEVEL_WINDOW_S, &ten_minutes(level, noise, &mut random))
        };
        medians.enumerate().filter_map(record).collect()
    }

    #[test]
    fn a_shift_is_found_once_and_in_its_place() {
        let found = shifts(&[(40, 1e6), (40, 1.3e6), (30, 0.9e6)], 0.05, 1);
        assert_eq!(found.len(), 2, "{found:?}");
        let since: Vec<i64> = found.iter().map(|shift| shift.since.as_second() / LEVEL_WINDOW_S).collect();
        assert!(since[0].abs_diff(40) <= 1 && since[1].abs_diff(80) <= 1, "{since:?}");
        assert!((found[0].after_ns / 1.3e6 - 1.0).abs() < 0.03, "{found:?}");
    }

    #[test]
    fn steady_links_and_outages_show_no_shift() {
        let found: usize = (0..20).map(|seed| shifts(&[(300, 1e6)], 0.3, seed).len()).sum();
        assert_eq!(found, 0, "20 links for two days");
        let mut watch = LevelWatch::default();
        let lost = Window::new(WindowCounts { due: 60, lost: 60, ..WindowCounts::default() });
        let mut random = SplitMix64::new(1);
        for index in 0..60 {
            let window = if index % 20 < 5 { lost.clone() } else { ten_minutes(1e6, 0.05, &mut random) };
            assert_eq!(watch.record(index * LEVEL_WINDOW_S, &window), None, "{index}");
        }
    }

    #[test]
    fn stored_windows_continue_after_a_restart() {
        let mut random = SplitMix64::new(3);
        let mut watch = LevelWatch::default();
        watch.resume((0..30).map(|index| (index * LEVEL_WINDOW_S, ten_minutes(1e6, 0.05, &mut random))));
        let found: Vec<i64> = (30..42)
            .filter(|&index| {
                watch.record(index * LEVEL_WINDOW_S, &ten_minutes(2e6, 0.05, &mut random)).is_some()
            })
            .collect();
        assert!(found.len() == 1 && found[0] <= 38, "{found:?}");
    }
}
