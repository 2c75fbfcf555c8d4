//! CPU time.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the current thread so far, in seconds.
pub fn thread_cpu_seconds() -> f64 {
    clock_seconds(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process so far, in seconds.
pub fn process_cpu_seconds() -> f64 {
    clock_seconds(ClockId::ProcessCPUTime)
}

fn clock_seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
