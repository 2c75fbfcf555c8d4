//! The counter of the processor and the time of day.

use std::fs::File;
use std::sync::OnceLock;
use std::time::Duration;

use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::SystemInformation::GetSystemTimePreciseAsFileTime;

use crate::clock::ClockState;

/// Steps of the counter in a second.
fn frequency() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| {
        let mut frequency = 0;
        // SAFETY: the call writes one number.
        unsafe { QueryPerformanceFrequency(&mut frequency) };
        u64::try_from(frequency).unwrap_or(0).max(1)
    })
}

/// Nanoseconds of the monotonic clock, which all processes share.
#[inline]
pub fn monotonic_ns() -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let mut count = 0;
    // SAFETY: the call writes one number.
    unsafe { QueryPerformanceCounter(&mut count) };
    let (count, frequency) = (count as u64, frequency());
    count / frequency * SECOND + count % frequency * SECOND / frequency
}

/// Nanoseconds of the monotonic clock, which runs while the host sleeps.
pub fn monotonic_ns_with_sleep() -> u64 {
    monotonic_ns()
}

/// The system ends a wait this much late, so the last part is spent in a loop.
const LAST_PART: Duration = Duration::from_micros(100);

/// Blocks until the monotonic clock reaches `until_ns`.
pub fn sleep_until_ns(until_ns: u64) {
    let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
    if left > LAST_PART {
        // A timer of high resolution, where the system has one.
        std::thread::sleep(left - LAST_PART);
    }
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// Steps of 100 ns between the beginning of the system's time, 1601, and 1970.
const EPOCH_STEPS: i64 = 11_644_473_600 * 10_000_000;

/// Nanoseconds of the time of day since 1970.
#[inline]
pub fn wall_ns() -> i64 {
    let mut time = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    // SAFETY: the call writes one time.
    unsafe { GetSystemTimePreciseAsFileTime(&mut time) };
    (steps(time) as i64 - EPOCH_STEPS) * 100
}

/// Steps of 100 ns.
pub(crate) fn steps(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}

/// Nanoseconds of the clock of a device: there is none.
pub fn device_clock_ns(_device: &File) -> Option<i64> {
    None
}

/// The state of the time of day, which this system does not tell.
pub fn clock_state() -> Option<ClockState> {
    None
}
