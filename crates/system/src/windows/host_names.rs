//! Names of addresses.

use std::net::{IpAddr, SocketAddr};

use socket2::SockAddr;
use windows_sys::Win32::Networking::WinSock::{GetNameInfoW, NI_NAMEREQD};

/// Characters of the longest name with its end: `NI_MAXHOST`.
const NAME_CHARACTERS: usize = 1025;

/// The name of an address, as the resolver of this system knows it; waits as long as the resolver does.
pub fn name_of_address(address: IpAddr) -> Option<String> {
    let address = SockAddr::from(SocketAddr::new(address, 0));
    let mut name = [0u16; NAME_CHARACTERS];
    // SAFETY: the address is as long as stated; `name` is valid for writes of the stated length; no room for a service is given.
    let result = unsafe {
        GetNameInfoW(
            address.as_ptr().cast(),
            address.len() as _,
            name.as_mut_ptr(),
            NAME_CHARACTERS as u32,
            std::ptr::null_mut(),
            0,
            NI_NAMEREQD as i32,
        )
    };
    let end = name.iter().position(|&character| character == 0).filter(|_| result == 0)?;
    Some(String::from_utf16_lossy(&name[..end]))
}
