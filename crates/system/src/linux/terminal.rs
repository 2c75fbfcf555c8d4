//! The types of requests.

/// The number of a request to a driver.
pub(crate) type ControlRequest = libc::Ioctl;

/// The major numbers of pseudo-terminals: `UNIX98_PTY_SLAVE_MAJOR` of linux/major.h and the seven that follow.
pub(crate) const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
