//! The addresses of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::c_int;

/// The interfaces of this host: name and address.
pub fn interface_addresses() -> Vec<(String, IpAddr)> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call stores a list that it allocates, and `freeifaddrs` below frees it; on failure it
    // stores none.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut addresses = Vec::new();
    let mut at = list;
    // SAFETY: `at` walks the list, whose nodes stay valid until it is freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: an entry has a name that ends in NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: the address is absent, or as long as its own family says; each is read as its family only.
        let address = unsafe {
            match entry.ifa_addr.as_ref().map(|address| c_int::from(address.sa_family)) {
                Some(libc::AF_INET) => {
                    let raw = (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                    Some(IpAddr::V4(Ipv4Addr::from(raw.to_ne_bytes())))
                }
                Some(libc::AF_INET6) => {
                    let raw = (*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr;
                    Some(IpAddr::V6(Ipv6Addr::from(raw)))
                }
                _ => None,
            }
        };
        addresses.extend(address.map(|address| (name, address)));
    }
    // SAFETY: the list came from `getifaddrs` and is not used any more.
    unsafe { libc::freeifaddrs(list) };
    addresses
}
