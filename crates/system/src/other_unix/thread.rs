//! The CPUs and the timers of the current thread, which this system selects alone.

use std::io;

/// Binds the current thread to one CPU.
///
/// # Errors
///
/// Always: this system binds no threads.
pub fn pin_to_cpu(_cpu: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The CPUs that the current thread may run on.
pub fn current_affinity() -> Option<Vec<u32>> {
    None
}

/// The CPU on which the current thread runs now: not known, so always the same.
pub fn current_cpu() -> u32 {
    0
}

/// Maximum delay that the kernel may add to the timers of the current thread.
pub fn timer_slack_ns() -> Option<u64> {
    None
}

/// Sets that delay.
///
/// # Errors
///
/// Always: this system has no such setting.
pub fn set_timer_slack_ns(_slack_ns: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
