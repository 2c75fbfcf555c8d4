use rustix::time::{ClockId, clock_gettime};
pub fn thread_cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
#[derive(Debug, thiserror::Error)]
#[error("cannot pin to CPU {0}")]
pub struct PinError(u32);
pub fn pin_to(_cpu: u32) -> Result<(), PinError> {
    Ok(())
}
