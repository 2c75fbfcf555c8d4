//! The types of requests.

/// The number of a request to a driver.
pub(crate) type ControlRequest = libc::c_ulong;

/// The major numbers of pseudo-terminals: on macOS that of `/dev/ttys…`.
pub(crate) const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 16..=16;
