//! The clocks that every Unix has.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the monotonic clock, which all processes share; about 25 ns a reading.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds of the time of day since 1970.
#[inline]
pub fn wall_ns() -> i64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

pub(crate) fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
