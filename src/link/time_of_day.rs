//! The time of day of a host, and its largest error: both ends of a session compare their clocks by it.

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

use super::sys;
use crate::clock::Clock;

/// Readings of both clocks, of which the fastest counts.
const READINGS: usize = 50;

/// The time of day against the clock of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOfDay {
    /// Nanoseconds since 1970 minus those of the measuring clock.
    pub offset_ns: i64,
    /// The largest error in nanoseconds. Absent: no program keeps the clock of this host synchronised.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_ns: Option<u64>,
}

impl TimeOfDay {
    /// Of this host, now. `None` on the virtual clock.
    pub fn read(clock: &Clock) -> Option<TimeOfDay> {
        if matches!(clock, Clock::Virtual(_)) {
            return None;
        }
        let readings = std::iter::repeat_with(|| offset_bounds(clock)).take(READINGS);
        let (low, high) = readings.min_by_key(|(low, high)| high - low)?;
        let state = sys::clock_state().filter(|state| state.is_synchronised);
        let error_ns = state.map(|state| state.max_error_us.saturating_mul(1000));
        Some(TimeOfDay { offset_ns: low + (high - low) / 2, error_ns })
    }

    /// The offset of the measuring clocks of two hosts, remote minus local, and its largest error; both in nanoseconds. `None`
    /// unless both hosts know theirs.
    pub fn offset_of(&self, remote: &TimeOfDay) -> Option<(i64, u64)> {
        let error_ns = self.error_ns?.checked_add(remote.error_ns?)?;
        Some((self.offset_ns.checked_sub(remote.offset_ns)?, error_ns))
    }
}

/// The bounds of the time of day minus our time, in nanoseconds.
pub(super) fn offset_bounds(clock: &Clock) -> (i64, i64) {
    let before = clock.now().0 as i64;
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
    let wall_ns = tv_sec * 1_000_000_000 + tv_nsec;
    let after = clock.now().0 as i64;
    (wall_ns - after, wall_ns - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_with_common_time_know_the_offset_of_their_clocks() {
        // This host was started 5 s before the other one.
        let local = TimeOfDay { offset_ns: 1_000_000_000_000, error_ns: Some(300_000) };
        let remote = TimeOfDay { offset_ns: 1_005_000_000_000, error_ns: Some(200_000) };
        assert_eq!(local.offset_of(&remote), Some((-5_000_000_000, 500_000)));
        assert_eq!(local.offset_of(&TimeOfDay { error_ns: None, ..remote }), None);
        assert_eq!(TimeOfDay { error_ns: Some(u64::MAX), ..local }.offset_of(&remote), None);
        let own = TimeOfDay::read(&Clock::System).unwrap();
        assert!(own.offset_ns.abs_diff(TimeOfDay::read(&Clock::System).unwrap().offset_ns) < 1_000_000);
        assert_eq!(TimeOfDay::read(&Clock::new_virtual()), None);
    }
}
