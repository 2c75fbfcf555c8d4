//! The CPUs and the timers of the current thread.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the current thread, and threads it starts later, to one CPU.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if this process may not use the CPU; or the system refuses.
pub fn pin_to_cpu(cpu: u32) -> io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPUs that the current thread may run on, in ascending order. `None` on kernels built for more CPUs than are known here.
pub fn current_affinity() -> Option<Vec<u32>> {
    let set = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU as u32).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// The CPU on which the current thread runs now.
pub fn current_cpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

/// Maximum delay, in nanoseconds, that the kernel may add to the timers of the current thread to wake the CPU less often.
pub fn timer_slack_ns() -> Option<u64> {
    rustix::thread::current_timer_slack().ok()
}

/// Sets that delay for the current thread and threads it starts later; 0 restores the default (50 µs).
///
/// # Errors
///
/// The system refuses.
pub fn set_timer_slack_ns(slack_ns: u64) -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(slack_ns))?)
}
