//! Waits of a system whose sleeps are relative, and which does not tell how exact its time of day is.

use std::fs::File;
use std::time::Duration;

use crate::clock::ClockState;
use crate::unix::clock::monotonic_ns;

/// Nanoseconds of the monotonic clock, which runs while the host sleeps.
pub fn monotonic_ns_with_sleep() -> u64 {
    monotonic_ns()
}

/// Blocks until the monotonic clock reaches `until_ns`.
pub fn sleep_until_ns(until_ns: u64) {
    std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(monotonic_ns())));
}

/// Nanoseconds of the clock of a device: there is none.
pub fn device_clock_ns(_device: &File) -> Option<i64> {
    None
}

/// The state of the time of day, which this system does not tell.
pub fn clock_state() -> Option<ClockState> {
    None
}
