//! The CPUs and the CPU time of the current thread.

use std::io;

use windows_sys::Win32::Foundation::{FILETIME, HANDLE};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread, GetProcessAffinityMask, GetProcessTimes,
    GetThreadTimes, SetThreadAffinityMask,
};

use super::clock::steps;

/// Binds the current thread to one CPU.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if this process may not use the CPU, or it is not among the first 64; or the system refuses.
pub fn pin_to_cpu(cpu: u32) -> io::Result<()> {
    let mask = 1usize.checked_shl(cpu).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the handle of the current thread is always valid.
    match unsafe { SetThreadAffinityMask(GetCurrentThread(), mask) } {
        0 => Err(io::ErrorKind::InvalidInput.into()),
        _ => Ok(()),
    }
}

/// The CPUs that this process may run on, in ascending order, among the first 64.
pub fn current_affinity() -> Option<Vec<u32>> {
    let (mut process, mut system) = (0usize, 0usize);
    // SAFETY: the call writes two numbers; the handle of the current process is always valid.
    let result = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &mut process, &mut system) };
    (result != 0).then(|| (0..usize::BITS).filter(|cpu| process >> cpu & 1 == 1).collect())
}

/// The CPU on which the current thread runs now.
pub fn current_cpu() -> u32 {
    // SAFETY: the call takes nothing.
    unsafe { GetCurrentProcessorNumber() }
}

/// Maximum delay that the kernel may add to the timers of the current thread, which this system does not tell.
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

/// The times of a thread or a process: the handle, and room for when it began, when it ended, kernel, user.
type Times =
    unsafe extern "system" fn(HANDLE, *mut FILETIME, *mut FILETIME, *mut FILETIME, *mut FILETIME) -> i32;

/// CPU time of the current thread so far, in seconds.
pub fn thread_cpu_seconds() -> f64 {
    // SAFETY: the call takes nothing and its result is always valid.
    cpu_seconds(GetThreadTimes, unsafe { GetCurrentThread() })
}

/// CPU time of all threads of this process so far, in seconds.
pub fn process_cpu_seconds() -> f64 {
    // SAFETY: the call takes nothing and its result is always valid.
    cpu_seconds(GetProcessTimes, unsafe { GetCurrentProcess() })
}

fn cpu_seconds(read: Times, of: HANDLE) -> f64 {
    let zero = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let [mut began, mut ended, mut kernel, mut user] = [zero; 4];
    // SAFETY: the call writes four times; the handle is that of the current thread or process.
    let result = unsafe { read(of, &mut began, &mut ended, &mut kernel, &mut user) };
    if result == 0 { 0.0 } else { (steps(kernel) + steps(user)) as f64 * 1e-7 }
}
