//! The drivers of network interfaces, which this system does not let ask.

use std::io;

use crate::Errno;
use socket2::Socket;

use crate::AsHandle;
use crate::interfaces::InterruptCoalescing;

/// The interrupt coalescing of an interface.
pub fn interrupt_coalescing(_: impl AsHandle, _interface: &str) -> Option<InterruptCoalescing> {
    None
}

/// Sets the interrupt coalescing of an interface.
///
/// # Errors
///
/// Always.
pub fn set_interrupt_coalescing(
    _: impl AsHandle,
    _interface: &str,
    _wanted: InterruptCoalescing,
) -> io::Result<()> {
    Err(Errno::OPNOTSUPP.into())
}

/// Places where an interface stamps messages.
pub fn stamp_sources(_: impl AsHandle, _interface: &str) -> Vec<&'static str> {
    Vec::new()
}

/// The enabled offloads of an interface.
pub fn enabled_offloads(_: impl AsHandle, _interface: &str) -> Vec<&'static str> {
    Vec::new()
}

/// A socket to the kernel's generic netlink.
///
/// # Errors
///
/// Always.
pub fn open_netlink() -> io::Result<Socket> {
    Err(Errno::AFNOSUPPORT.into())
}
