//! PTP clocks of this host (`/dev/ptp*`): whether its time of day follows one, and how closely.
//!
//! phc2sys and chronyd steer the time of day by such a clock. The kernel does not report which, but the two agree within
//! microseconds then. Only root can read the clocks of many hosts.

use serde::{Deserialize, Serialize};
use std::fs::File;

use crate::host::read;
use linkgauge_system as system;

/// The PTP clock that the time of day of a host follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtpClock {
    /// The number of its device: 0 is `/dev/ptp0`.
    pub number: u32,
    /// The largest distance between it and the time of day, in nanoseconds.
    pub distance_ns: u64,
}

/// Readings of both clocks, of which the fastest counts.
const READINGS: usize = 25;

/// Largest distance of a clock that is followed: a clock further away runs freely, or serves another purpose.
const MAX_FOLLOWED_DISTANCE_NS: u64 = 100_000;

/// TAI minus UTC since 2017, for kernels that do not know it.
const TAI_OFFSET_S: i32 = 37;

/// The PTP clock that the time of day follows, if this program may read it. `tai_offset_s`: TAI minus UTC in seconds as the kernel
/// knows it, 0 if it does not.
pub(super) fn followed_clock(tai_offset_s: i32) -> Option<PtpClock> {
    let names = read::file_names("/sys/class/ptp");
    let numbers = names.iter().filter_map(|name| name.strip_prefix("ptp")?.parse::<u32>().ok());
    let clocks = numbers.filter_map(|number| {
        let device = File::open(format!("/dev/ptp{number}")).ok()?;
        let readings =
            std::iter::repeat_with(|| lead_bounds_ns(|| system::device_clock_ns(&device))).take(READINGS);
        let bounds = readings.flatten().min_by_key(|(low, high)| high - low)?;
        Some(PtpClock { number, distance_ns: distance_ns(bounds, tai_offset_s) })
    });
    clocks.min_by_key(|clock| clock.distance_ns).filter(|clock| clock.distance_ns <= MAX_FOLLOWED_DISTANCE_NS)
}

/// The bounds of a clock minus the time of day, in nanoseconds.
fn lead_bounds_ns(clock: impl Fn() -> Option<i64>) -> Option<(i64, i64)> {
    let before = system::wall_ns();
    let time = clock()?;
    let after = system::wall_ns();
    Some((time.saturating_sub(after), time.saturating_sub(before)))
}

/// The largest distance from the time of day, of a clock that shows UTC or, as PTP does, TAI.
fn distance_ns((low, high): (i64, i64), tai_offset_s: i32) -> u64 {
    let tai_offset_s = if tai_offset_s == 0 { TAI_OFFSET_S } else { tai_offset_s };
    let from = |scale_s: i32| {
        let scale_ns = i64::from(scale_s) * 1_000_000_000;
        low.saturating_sub(scale_ns).unsigned_abs().max(high.saturating_sub(scale_ns).unsigned_abs())
    };
    from(0).min(from(tai_offset_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_utc_or_tai() {
        let second = 1_000_000_000;
        assert_eq!(distance_ns((-300, 200), 0), 300);
        assert_eq!(distance_ns((37 * second - 10, 37 * second + 400), 0), 400, "unknown to the kernel");
        assert_eq!(distance_ns((38 * second - 900, 38 * second - 500), 38), 900);
        assert!(distance_ns((38 * second, 38 * second), 37) == 1_000_000_000, "another second");
        assert!(distance_ns((i64::MIN, i64::MIN), 0) > MAX_FOLLOWED_DISTANCE_NS, "since 1970");
    }

    #[test]
    fn the_time_of_day_is_at_no_distance_from_itself() {
        let (low, high) = lead_bounds_ns(|| Some(system::wall_ns())).unwrap();
        assert!(low <= 0 && high >= 0, "{low} {high}");
        assert_eq!(lead_bounds_ns(|| None), None);
        // A file that is no clock.
        let other = File::open("/dev/null").unwrap();
        assert_eq!(system::device_clock_ns(&other), None);
        // This host may have none.
        assert!(followed_clock(0).is_none_or(|clock| clock.distance_ns <= MAX_FOLLOWED_DISTANCE_NS));
    }
}
