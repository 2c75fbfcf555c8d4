//! The numbers of interfaces.

/// The number of an interface.
pub fn interface_number(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the call reads a string that ends in NUL and lives through it.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|&number| number != 0)
}
