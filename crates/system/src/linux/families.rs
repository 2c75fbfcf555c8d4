//! Addresses and options of socket families that no dependency supports: SCTP, vsock, TIPC, Bluetooth, packet
//! sockets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, socklen_t};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::interfaces::interface_request;
use crate::unix::raw::{PlainData, get_option, set_option};

/// `SCTP_NODELAY` of linux/sctp.h.
pub fn set_sctp_nodelay(fd: impl AsFd, on: bool) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_SCTP, SCTP_NODELAY, c_int::from(on))
}

/// Options of linux/sctp.h.
const SCTP_NODELAY: c_int = 3;
const SCTP_STATUS: c_int = 14;

/// `sctp_status` of linux/sctp.h; only two fields are used here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SctpStatus {
    association_state_window: [u32; 3],
    waiting_and_streams: [u16; 4],
    /// Maximum payload of one packet.
    pub fragment_bytes: u32,
    primary_association: u32,
    primary_address: [u8; 128],
    primary_state_window_rtt_timeout: [u32; 4],
    /// Maximum packet size on the path, in bytes.
    pub path_mtu: u32,
}

// SAFETY: a C structure of integers.
unsafe impl PlainData for SctpStatus {}

/// The status of an association (`SCTP_STATUS`).
pub fn sctp_status(fd: impl AsFd) -> Option<SctpStatus> {
    get_option(fd, libc::IPPROTO_SCTP, SCTP_STATUS)
}

/// Options of linux/vm_sockets.h.
const SO_VM_SOCKETS_BUFFER_SIZE: c_int = 0;
const SO_VM_SOCKETS_BUFFER_MAX_SIZE: c_int = 2;

/// Sets the size and its maximum; the maximum limits the size, so it is set first.
pub fn set_vsock_buffer(fd: impl AsFd, bytes: u64) -> io::Result<()> {
    set_option(&fd, libc::AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, bytes)?;
    set_option(&fd, libc::AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, bytes)
}

/// The effective buffer size in bytes.
pub fn vsock_buffer(fd: impl AsFd) -> Option<u64> {
    get_option(fd, libc::AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE)
}

/// Any machine.
pub const VSOCK_ANY_CID: u32 = libc::VMADDR_CID_ANY;
/// CID of this machine.
pub const VSOCK_LOCAL_CID: u32 = libc::VMADDR_CID_LOCAL;
/// The host of a guest.
pub const VSOCK_HOST_CID: u32 = libc::VMADDR_CID_HOST;
/// The port that the kernel selects.
pub const VSOCK_ANY_PORT: u32 = libc::VMADDR_PORT_ANY;

/// A TIPC socket of this type.
///
/// # Errors
///
/// The kernel has no TIPC, or refuses.
pub fn tipc_socket(kind: Type) -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_TIPC), kind, None)
}

/// The type of sockets whose datagrams arrive.
pub fn reliable_datagrams() -> Type {
    Type::from(libc::SOCK_RDM)
}

/// Sets an option of the level `SOL_TIPC`; all of them are 32 bits wide.
pub fn set_tipc_option(fd: impl AsFd, name: c_int, value: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_TIPC, name, value)
}

/// The value of an option of the level `SOL_TIPC`.
pub fn tipc_option(fd: impl AsFd, name: c_int) -> Option<u32> {
    get_option(fd, libc::SOL_TIPC, name)
}

/// `sockaddr_tipc` of linux/tipc.h: the meaning of the words depends on the kind.
#[repr(C)]
#[derive(Clone, Copy)]
struct TipcAddress {
    family: libc::sa_family_t,
    kind: u8,
    scope: i8,
    words: [u32; 3],
}

/// An address with the scope of the whole cluster (`TIPC_CLUSTER_SCOPE`).
pub fn tipc_address(kind: u8, words: [u32; 3]) -> SockAddr {
    let address = TipcAddress { family: libc::AF_TIPC as libc::sa_family_t, kind, scope: 2, words };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the structure above is one of the platform's addresses, smaller than the storage, which stays valid; the
    // length is that of the structure.
    unsafe {
        *storage.view_as::<TipcAddress>() = address;
        SockAddr::new(storage, size_of::<TipcAddress>() as socklen_t)
    }
}

/// Kind and words of such an address; `None` for other families.
pub fn tipc_words(address: &SockAddr) -> Option<(u8, [u32; 3])> {
    let is_one =
        c_int::from(address.family()) == libc::AF_TIPC && address.len() as usize >= size_of::<TipcAddress>();
    if !is_one {
        return None;
    }
    // SAFETY: the storage is larger and at least as aligned as the structure, which holds integers only.
    let address = unsafe { address.as_ptr().cast::<TipcAddress>().read() };
    Some((address.kind, address.words))
}

/// A socket address of these bytes, the family first.
///
/// # Panics
/// Panics with more bytes than any address has, or without a family: the caller composes the bytes.
fn raw_address(bytes: &[u8]) -> SockAddr {
    assert!((size_of::<libc::sa_family_t>()..=size_of::<SockAddrStorage>()).contains(&bytes.len()));
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is at least as long as the bytes, which do not overlap it; the length is theirs.
    unsafe {
        let target: *mut SockAddrStorage = &mut storage;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast::<u8>(), bytes.len());
        SockAddr::new(storage, bytes.len() as socklen_t)
    }
}

/// A Bluetooth socket of this type and protocol (`BTPROTO_…`).
///
/// # Errors
///
/// The kernel has no Bluetooth, or refuses.
pub fn bluetooth_socket(kind: Type, protocol: i32) -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_BLUETOOTH), kind, Some(Protocol::from(protocol)))
}

/// A Bluetooth address of these bytes after the family.
///
/// # Panics
///
/// Panics with more bytes than any address has.
pub fn bluetooth_address(bytes: &[u8]) -> SockAddr {
    raw_address(&[&(libc::AF_BLUETOOTH as libc::sa_family_t).to_ne_bytes(), bytes].concat())
}

/// The bytes of a socket address, the family first.
pub fn raw_bytes(address: &SockAddr) -> &[u8] {
    // SAFETY: the address has this length, and all its bytes are set: its storage was zeroed before the
    // kernel wrote it.
    unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.len() as usize) }
}

/// Maximum number of adapters: the kernel reports no more at once (`HCI_MAX_DEV`).
const MAX_ADAPTERS: usize = 16;

/// `hci_dev_req` of the kernel's hci_sock.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct AdapterEntry {
    number: u16,
    flags: u32,
}

/// `hci_dev_list_req` of the kernel's hci_sock.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct AdapterList {
    count: u16,
    adapters: [AdapterEntry; MAX_ADAPTERS],
}

// The kernel's layout.
const _: () = assert!(size_of::<AdapterEntry>() == 8 && std::mem::offset_of!(AdapterEntry, flags) == 4);
const _: () = assert!(std::mem::offset_of!(AdapterList, adapters) == 4);
const _: () = assert!(size_of::<AdapterInfo>() >= 92);

/// `hci_dev_info` of the kernel's hci_sock.h; only the beginning is used here.
#[repr(C)]
#[derive(Clone, Copy)]
struct AdapterInfo {
    number: u16,
    name: [u8; 8],
    address: [u8; 6],
    flags: u32,
    others: [u32; 32],
}

/// Requests of the kernel's hci_sock.h: `_IOR('H', 210 …, int)`.
const HCIGETDEVLIST: libc::Ioctl = 0x8004_48d2_u32 as libc::Ioctl;
const HCIGETDEVINFO: libc::Ioctl = 0x8004_48d3_u32 as libc::Ioctl;
const HCIGETCONNINFO: libc::Ioctl = 0x8004_48d5_u32 as libc::Ioctl;

/// Flag of an adapter that is up, type of a connection, and an option, of the kernel's hci.h and hci_sock.h.
const HCI_UP: u32 = 1;
const ACL_LINK: u8 = 1;
const SOL_HCI: c_int = 0;
const HCI_FILTER: c_int = 2;

/// The Bluetooth adapters, read through an HCI socket: number, address (in the kernel's order) and whether it
/// is up.
pub fn bluetooth_adapters(fd: impl AsFd) -> io::Result<Vec<(u16, [u8; 6], bool)>> {
    let descriptor = fd.as_fd().as_raw_fd();
    let nothing = AdapterEntry { number: 0, flags: 0 };
    let mut list = AdapterList { count: MAX_ADAPTERS as u16, adapters: [nothing; MAX_ADAPTERS] };
    // SAFETY: `HCIGETDEVLIST` writes at most as many entries as the structure declares, and the structure
    // lives through the call.
    if unsafe { libc::ioctl(descriptor, HCIGETDEVLIST, &raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    for AdapterEntry { number, .. } in list.adapters.into_iter().take(list.count.into()) {
        let mut info = AdapterInfo { number, name: [0; 8], address: [0; 6], flags: 0, others: [0; 32] };
        // SAFETY: `HCIGETDEVINFO` reads the number and writes an `hci_dev_info` (92 bytes), for which there is room.
        if unsafe { libc::ioctl(descriptor, HCIGETDEVINFO, &raw mut info) } == 0 {
            found.push((number, info.address, info.flags & HCI_UP != 0));
        }
    }
    Ok(found)
}

/// `hci_conn_info_req` of the kernel's hci_sock.h, with one `hci_conn_info`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConnectionRequest {
    address: [u8; 6],
    kind: u8,
    others: u8,
    connection: BluetoothConnection,
}

/// A connection of a Bluetooth adapter (`hci_conn_info`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BluetoothConnection {
    /// The number of the connection in HCI events.
    pub handle: u16,
    address: [u8; 6],
    /// The type: ACL, SCO or LE.
    pub kind: u8,
    is_outgoing: u8,
    state: u16,
    /// Bits of the connection: who is central, whether it is encrypted.
    pub mode: u32,
}

/// The connection of an adapter, to which the HCI socket is bound, with a device (address in the kernel's
/// order).
pub fn bluetooth_connection(fd: impl AsFd, address: [u8; 6]) -> Option<BluetoothConnection> {
    let nothing =
        BluetoothConnection { handle: 0, address: [0; 6], kind: 0, is_outgoing: 0, state: 0, mode: 0 };
    let mut request = ConnectionRequest { address, kind: ACL_LINK, others: 0, connection: nothing };
    // SAFETY: `HCIGETCONNINFO` reads the first eight bytes and writes one `hci_conn_info` behind them; the structure has
    // room for both and lives through the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), HCIGETCONNINFO, &raw mut request) };
    (result == 0).then_some(request.connection)
}

/// `hci_ufilter` of the kernel's hci_sock.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct EventFilter {
    packets: u32,
    events: [u32; 2],
    command: u16,
}

// SAFETY: a C structure of integers.
unsafe impl PlainData for EventFilter {}

/// Restricts an HCI socket to one type of event, and to events for one command.
pub fn set_bluetooth_event_filter(fd: impl AsFd, packet: u8, event: u8, command: u16) -> io::Result<()> {
    let events = [1 << (event & 31), 0];
    set_option(fd, SOL_HCI, HCI_FILTER, EventFilter { packets: 1 << packet, events, command })
}

/// `l2cap_options` of the kernel's l2cap.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct L2capOptions {
    outgoing_mtu: u16,
    incoming_mtu: u16,
    flush_timeout: u16,
    mode: u8,
    check: u8,
    max_transmissions: u8,
    window: u16,
}

// SAFETY: a C structure of integers.
unsafe impl PlainData for L2capOptions {}

const SOL_L2CAP: c_int = 6;
const L2CAP_OPTIONS: c_int = 1;

/// Largest message of an L2CAP socket, sent and received.
pub fn l2cap_mtus(fd: impl AsFd) -> Option<(u16, u16)> {
    let options: L2capOptions = get_option(fd, SOL_L2CAP, L2CAP_OPTIONS)?;
    Some((options.outgoing_mtu, options.incoming_mtu))
}

/// Sets the L2CAP options. Must be called before the socket connects or listens.
pub fn set_l2cap_options(fd: impl AsFd, bytes: u16, mode: u8) -> io::Result<()> {
    let options: L2capOptions =
        get_option(&fd, SOL_L2CAP, L2CAP_OPTIONS).ok_or_else(io::Error::last_os_error)?;
    let options = L2capOptions { outgoing_mtu: bytes, incoming_mtu: bytes, mode, ..options };
    set_option(fd, SOL_L2CAP, L2CAP_OPTIONS, options)
}

/// The data of a network device that packet sockets need.
#[derive(Debug, Clone, Copy)]
pub struct NetworkDevice {
    /// The number of the device.
    pub index: c_int,
    /// Maximum payload of a frame in bytes.
    pub mtu: usize,
    /// The Ethernet address.
    pub address: [u8; 6],
}

/// The network device of that name, read through any socket.
pub fn find_device(fd: impl AsFd, name: &str) -> io::Result<NetworkDevice> {
    let ask = |question: libc::Ioctl| {
        let mut request = interface_request(name);
        // SAFETY: the kernel reads the name and writes the result into the `ifreq`, which lives through the
        // call.
        let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), question, &raw mut request) };
        if result == 0 { Ok(request.ifr_ifru) } else { Err(io::Error::last_os_error()) }
    };
    let (index, mtu) = (ask(libc::SIOCGIFINDEX as libc::Ioctl)?, ask(libc::SIOCGIFMTU as libc::Ioctl)?);
    let address = ask(libc::SIOCGIFHWADDR as libc::Ioctl)?;
    // SAFETY: each result is read as the type that its request writes: two integers, and an address of bytes.
    unsafe {
        let bytes = address.ifru_hwaddr.sa_data;
        Ok(NetworkDevice {
            index: index.ifru_ifindex,
            mtu: usize::try_from(mtu.ifru_mtu).unwrap_or(0),
            address: std::array::from_fn(|at| bytes[at] as u8),
        })
    }
}

/// The address of a host on a device, for frames of one Ethernet type.
pub fn packet_address(device: &NetworkDevice, ethertype: u16, address: [u8; 6]) -> SockAddr {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&address);
    let link = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: device.index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: bytes,
    };
    // SAFETY: the closure writes one `sockaddr_ll`, which is smaller than the storage, and its length.
    let made = unsafe {
        SockAddr::try_init(|storage, length| {
            storage.cast::<libc::sockaddr_ll>().write(link);
            *length = size_of::<libc::sockaddr_ll>() as socklen_t;
            Ok(())
        })
    };
    made.map_or_else(|_: io::Error| unreachable!("writing cannot fail"), |((), address)| address)
}

/// The source host of a frame.
pub fn source_mac(address: &SockAddr) -> Option<[u8; 6]> {
    // The kernel's length includes only the six bytes of the address.
    let min_length = std::mem::offset_of!(libc::sockaddr_ll, sll_addr) + 6;
    if address.family() != libc::AF_PACKET as libc::sa_family_t || (address.len() as usize) < min_length {
        return None;
    }
    // SAFETY: the family and the length are those of a `sockaddr_ll`, whose storage is larger than any address and
    // aligned for all of them.
    let link = unsafe { &*address.as_ptr().cast::<libc::sockaddr_ll>() };
    Some(std::array::from_fn(|at| link.sll_addr[at]))
}

/// An SCTP socket of this family.
///
/// # Errors
///
/// The kernel has no SCTP.
pub fn sctp_socket(domain: Domain) -> io::Result<Socket> {
    Socket::new(domain, Type::STREAM, Some(Protocol::SCTP))
}

/// A stream socket between a guest and its host.
///
/// # Errors
///
/// The kernel has no vsock.
pub fn vsock_socket() -> io::Result<Socket> {
    Socket::new(Domain::VSOCK, Type::STREAM, None)
}

/// The address of a port of a machine.
pub fn vsock_address(cid: u32, port: u32) -> SockAddr {
    SockAddr::vsock(cid, port)
}

/// Machine and port of such an address; `None` for other families.
pub fn vsock_cid_port(address: &SockAddr) -> Option<(u32, u32)> {
    address.as_vsock_address()
}

/// A socket for the frames of network devices.
///
/// # Errors
///
/// This user may not open one.
pub fn packet_socket() -> io::Result<Socket> {
    Socket::new(Domain::PACKET, Type::DGRAM, None)
}

/// The error of a Bluetooth device without the key of the pairing, perhaps at one end only.
pub const MISSING_KEY: Errno = Errno::BADE;
