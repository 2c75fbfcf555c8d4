//! The addresses of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use windows_sys::Win32::NetworkManagement::IpHelper::{
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, GetAdaptersAddresses,
    IP_ADAPTER_ADDRESSES_LH,
};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNSPEC, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6,
};

/// Room for the adapters of a host, as the system's documents advise; it grows by this.
const ROOM_BYTES: usize = 16 * 1024;

/// The interfaces of this host: name and address.
pub fn interface_addresses() -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    each_adapter(|name, adapter| {
        let mut at = adapter.FirstUnicastAddress;
        // SAFETY: the list lies in the buffer that the call has filled.
        while let Some(entry) = unsafe { at.as_ref() } {
            at = entry.Next;
            // SAFETY: the address is as long as its own family says, and lies in the same buffer.
            let address = unsafe { ip_address(entry.Address.lpSockaddr) };
            found.extend(address.map(|address| (name.to_owned(), address)));
        }
    });
    found
}

/// The number of an interface.
pub fn interface_number(name: &str) -> Option<u32> {
    let mut number = None;
    each_adapter(|other, adapter| {
        if other == name {
            // SAFETY: both fields of the union are numbers.
            let v4 = unsafe { adapter.Anonymous1.Anonymous.IfIndex };
            number = Some(if v4 != 0 { v4 } else { adapter.Ipv6IfIndex });
        }
    });
    number
}

fn each_adapter(mut visit: impl FnMut(&str, &IP_ADAPTER_ADDRESSES_LH)) {
    let flags = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
    for factor in 1..=16 {
        // Numbers of 64 bits have the alignment that the structures need.
        let mut room = vec![0u64; factor * ROOM_BYTES / 8];
        let mut bytes = (room.len() * 8) as u32;
        let first: *mut IP_ADAPTER_ADDRESSES_LH = room.as_mut_ptr().cast();
        // SAFETY: `room` is valid for writes of `bytes` bytes.
        let result =
            unsafe { GetAdaptersAddresses(u32::from(AF_UNSPEC), flags, std::ptr::null(), first, &mut bytes) };
        if result != 0 {
            continue;
        }
        let mut at: *const IP_ADAPTER_ADDRESSES_LH = first;
        // SAFETY: the list lies in `room`, which the call has filled.
        while let Some(adapter) = unsafe { at.as_ref() } {
            at = adapter.Next;
            // SAFETY: a name ends in zero and lies in `room`.
            let name = unsafe { text(adapter.FriendlyName) };
            visit(&name, adapter);
        }
        return;
    }
}

/// SAFETY: the characters end in zero.
unsafe fn text(characters: *const u16) -> String {
    if characters.is_null() {
        return String::new();
    }
    let mut length = 0;
    // SAFETY: the walk stops at the zero.
    while unsafe { *characters.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: this number of characters stands before the zero.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(characters, length) })
}

/// SAFETY: the address is absent, or as long as its family says.
unsafe fn ip_address(address: *const SOCKADDR) -> Option<IpAddr> {
    // SAFETY: as the caller promises; each address is read as its family only, whose fields are numbers.
    unsafe {
        match address.as_ref()?.sa_family {
            AF_INET => {
                let raw = (*address.cast::<SOCKADDR_IN>()).sin_addr.S_un.S_addr;
                Some(IpAddr::V4(Ipv4Addr::from(raw.to_ne_bytes())))
            }
            AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from((*address.cast::<SOCKADDR_IN6>()).sin6_addr.u.Byte))),
            _ => None,
        }
    }
}
