//! The clocks of this host.

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
