//! Names of addresses.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use socket2::SockAddr;

/// Bytes of the longest name with its end: `NI_MAXHOST` of netdb.h.
const NAME_BYTES: usize = 1025;

/// The name of an address, as the resolver of this system knows it; waits as long as the resolver does.
pub fn name_of_address(address: IpAddr) -> Option<String> {
    let address = SockAddr::from(SocketAddr::new(address, 0));
    let mut name = [0u8; NAME_BYTES];
    // SAFETY: the address is as long as stated; `name` is valid for writes of the stated length; no room for a service is given.
    let result = unsafe {
        libc::getnameinfo(
            address.as_ptr().cast(),
            address.len(),
            name.as_mut_ptr().cast(),
            NAME_BYTES as _,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    let text = CStr::from_bytes_until_nul(&name).ok().filter(|_| result == 0)?;
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_for_documentation_have_no_name() {
        assert_eq!(name_of_address("192.0.2.1".parse().unwrap()), None);
    }
}
