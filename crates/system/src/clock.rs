//! What the kernel says about its time of day.

/// The state of the time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// A program such as chronyd or phc2sys keeps it synchronised.
    pub is_synchronised: bool,
    /// The largest error in microseconds, by that program. The kernel lets it grow by 500 ppm between its updates.
    pub max_error_us: u64,
    /// TAI minus UTC in seconds; 0 if the kernel does not know it.
    pub tai_offset_s: i32,
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
