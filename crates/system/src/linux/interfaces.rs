//! Settings that the drivers of network interfaces report and let programs change: interrupt coalescing, stamps, offloads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::interfaces::InterruptCoalescing;

/// An `ifreq` for the interface of that name.
pub fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: an `ifreq` is plain memory, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let max_chars = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(max_chars)) {
        *to = from as libc::c_char;
    }
    request
}

/// `ETHTOOL_GCOALESCE` of `ethtool.h`.
const ETHTOOL_GCOALESCE: u32 = 0x0e;

/// A `struct ethtool_coalesce`: the command, `rx_coalesce_usecs`, eight more values, `use_adaptive_rx_coalesce` and another
/// twelve.
type CoalescingValues = [u32; 23];

/// `ETHTOOL_GET_TS_INFO` of `ethtool.h`: its structure has the command, the flags of `SO_TIMESTAMPING` and nine more values.
const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// The interrupt coalescing of an interface; `None` if its driver does not report it, as for virtual ones.
pub fn interrupt_coalescing(fd: impl AsFd, interface: &str) -> Option<InterruptCoalescing> {
    let values = coalescing_values(fd.as_fd(), interface).ok()?;
    Some(InterruptCoalescing { receive_us: values[1], is_adaptive: values[10] != 0 })
}

fn coalescing_values(fd: BorrowedFd<'_>, interface: &str) -> io::Result<CoalescingValues> {
    let mut values = [0; 23];
    values[0] = ETHTOOL_GCOALESCE;
    ethtool(fd, interface, &mut values)?;
    Ok(values)
}

/// A command of ethtool, the first value, whose structure is no longer than this one.
fn ethtool(fd: BorrowedFd<'_>, interface: &str, values: &mut CoalescingValues) -> io::Result<()> {
    let mut request = interface_request(interface);
    request.ifr_ifru.ifru_data = values.as_mut_ptr().cast();
    // SAFETY: the kernel reads the name and reads and writes at most the 23 words behind `ifru_data`; both live through the
    // call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `ETHTOOL_SCOALESCE` of `ethtool.h`.
const ETHTOOL_SCOALESCE: u32 = 0x0f;

/// Sets the interrupt coalescing of an interface for received packets, and leaves its other values. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// The driver has no such setting or refuses the value, or this user may not change it.
pub fn set_interrupt_coalescing(
    fd: impl AsFd,
    interface: &str,
    wanted: InterruptCoalescing,
) -> io::Result<()> {
    let mut values = coalescing_values(fd.as_fd(), interface)?;
    (values[0], values[1], values[10]) = (ETHTOOL_SCOALESCE, wanted.receive_us, wanted.is_adaptive.into());
    ethtool(fd.as_fd(), interface, &mut values)
}

/// Places where an interface stamps messages in both directions (`SO_TIMESTAMPING`); empty if its driver does not report it.
pub fn stamp_sources(fd: impl AsFd, interface: &str) -> Vec<&'static str> {
    let mut values: CoalescingValues = [0; 23];
    values[0] = ETHTOOL_GET_TS_INFO;
    if ethtool(fd.as_fd(), interface, &mut values).is_err() {
        return Vec::new();
    }
    let sources = [
        ("software", libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE),
        ("hardware", libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE),
    ];
    sources.into_iter().filter(|(_, flags)| values[1] & flags == *flags).map(|(name, _)| name).collect()
}

/// Queries of `ethtool.h` with a reply of 0 or 1, and their subjects.
const OFFLOAD_QUERIES: [(u32, &str); 6] = [
    (0x14, "rx-checksum"),
    (0x16, "tx-checksum"),
    (0x18, "scatter-gather"),
    (0x1e, "tso"),
    (0x23, "gso"),
    (0x2b, "gro"),
];

/// The enabled offloads of an interface.
pub fn enabled_offloads(fd: impl AsFd, interface: &str) -> Vec<&'static str> {
    let is_on = |question: u32| {
        let mut value: [u32; 2] = [question, 0];
        let mut request = interface_request(interface);
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        let socket = fd.as_fd().as_raw_fd();
        // SAFETY: the kernel reads the name and reads and writes the two words behind `ifru_data`, a
        // `struct ethtool_value`; both live through the call.
        let result = unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as libc::Ioctl, &mut request) };
        result == 0 && value[1] != 0
    };
    OFFLOAD_QUERIES.into_iter().filter(|(question, _)| is_on(*question)).map(|(_, name)| name).collect()
}

/// The number of an interface in this process's network namespace.
pub fn interface_number(name: &str) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(socket, name).ok()
}

/// A socket to the kernel's generic netlink, which answers about Wi-Fi.
///
/// # Errors
///
/// The system refuses.
pub fn open_netlink() -> io::Result<Socket> {
    let protocol = Some(Protocol::from(libc::NETLINK_GENERIC));
    Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, protocol)
}
