//! Control messages with a time, which this crate requests on Linux only.

/// Time when the device passed a received message to the kernel.
pub(crate) fn received_wall_ns(_header: &libc::msghdr) -> Option<i64> {
    None
}
