//! The drivers of network interfaces, which this system does not let ask.

use std::io;

use rustix::io::Errno;
use socket2::Socket;

use super::InterruptCoalescing;
use crate::handle::AsHandle;

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

/// The number of an interface.
pub fn interface_number(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the call reads a string that ends in NUL and lives through it.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|&number| number != 0)
}

/// A socket to the kernel's generic netlink.
///
/// # Errors
///
/// Always.
pub fn open_netlink() -> io::Result<Socket> {
    Err(Errno::AFNOSUPPORT.into())
}
