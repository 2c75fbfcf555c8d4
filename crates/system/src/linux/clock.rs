//! Clocks of Linux, its exact waits, and what it knows about the time of day.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

use crate::clock::ClockState;
use crate::unix::clock::nanoseconds;

/// Nanoseconds of the monotonic clock, with the time in which the host slept.
pub fn monotonic_ns_with_sleep() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime)) as u64
}

/// Blocks until the monotonic clock reaches `until_ns`, or a signal arrives. An absolute time does not drift in a loop, as relative
/// sleeps do.
pub fn sleep_until_ns(until_ns: u64) {
    let at =
        Timespec { tv_sec: (until_ns / 1_000_000_000) as i64, tv_nsec: (until_ns % 1_000_000_000) as i64 };
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Nanoseconds of the clock of a device (`/dev/ptp0`).
pub fn device_clock_ns(device: &File) -> Option<i64> {
    clock_gettime_dynamic(DynamicClockId::Dynamic(device.as_fd())).ok().map(nanoseconds)
}

/// The state of the time of day; reads only.
pub fn clock_state() -> Option<ClockState> {
    // SAFETY: a `timex` is a C structure of integers, for which all zeros is a valid value.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the call reads and writes one `timex`, which lives through it; mode 0 sets nothing.
    let result = unsafe { libc::adjtimex(&mut state) };
    if result < 0 {
        return None;
    }
    let is_synchronised = result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    let max_error_us = u64::try_from(state.maxerror).ok()?;
    Some(ClockState { is_synchronised, max_error_us, tai_offset_s: state.tai })
}
