//! Socket families that only Linux has: every request says that this system does not have them.

use std::io;

use crate::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::AsHandle;

fn no_family<T>() -> io::Result<T> {
    Err(Errno::AFNOSUPPORT.into())
}

/// `SCTP_NODELAY`.
pub fn set_sctp_nodelay(_: impl AsHandle, _on: bool) -> io::Result<()> {
    no_family()
}

/// The status of an association.
#[derive(Clone, Copy)]
pub struct SctpStatus {
    /// Maximum payload of one packet.
    pub fragment_bytes: u32,
    /// Maximum packet size on the path, in bytes.
    pub path_mtu: u32,
}

/// The status of an association.
pub fn sctp_status(_: impl AsHandle) -> Option<SctpStatus> {
    None
}

/// Sets the size of the buffer.
pub fn set_vsock_buffer(_: impl AsHandle, _bytes: u64) -> io::Result<()> {
    no_family()
}

/// The effective buffer size in bytes.
pub fn vsock_buffer(_: impl AsHandle) -> Option<u64> {
    None
}

/// Any machine.
pub const VSOCK_ANY_CID: u32 = u32::MAX;
/// CID of this machine.
pub const VSOCK_LOCAL_CID: u32 = 1;
/// The host of a guest.
pub const VSOCK_HOST_CID: u32 = 2;
/// The port that the kernel selects.
pub const VSOCK_ANY_PORT: u32 = u32::MAX;

/// A TIPC socket of this type.
///
/// # Errors
///
/// Always.
pub fn tipc_socket(_kind: Type) -> io::Result<Socket> {
    no_family()
}

/// The type of sockets whose datagrams arrive.
pub fn reliable_datagrams() -> Type {
    Type::DGRAM
}

/// Sets an option of TIPC.
pub fn set_tipc_option(_: impl AsHandle, _name: i32, _value: u32) -> io::Result<()> {
    no_family()
}

/// The value of an option of TIPC.
pub fn tipc_option(_: impl AsHandle, _name: i32) -> Option<u32> {
    None
}

/// An address that no socket takes: there is none to give it to.
fn no_address() -> SockAddr {
    std::net::SocketAddr::from(([0, 0, 0, 0], 0)).into()
}

/// An address of TIPC.
pub fn tipc_address(_kind: u8, _words: [u32; 3]) -> SockAddr {
    no_address()
}

/// Kind and words of such an address; `None` for other families.
pub fn tipc_words(_address: &SockAddr) -> Option<(u8, [u32; 3])> {
    None
}

/// A Bluetooth socket of this type and protocol.
///
/// # Errors
///
/// Always.
pub fn bluetooth_socket(_kind: Type, _protocol: i32) -> io::Result<Socket> {
    no_family()
}

/// A Bluetooth address.
pub fn bluetooth_address(_bytes: &[u8]) -> SockAddr {
    no_address()
}

/// The bytes of a socket address of a family that no dependency knows.
pub fn raw_bytes(_address: &SockAddr) -> &[u8] {
    &[]
}

/// The Bluetooth adapters.
pub fn bluetooth_adapters(_: impl AsHandle) -> io::Result<Vec<(u16, [u8; 6], bool)>> {
    no_family()
}

/// A connection of a Bluetooth adapter.
#[derive(Clone, Copy)]
pub struct BluetoothConnection {
    /// The number of the connection in HCI events.
    pub handle: u16,
    /// The type: ACL, SCO or LE.
    pub kind: u8,
    /// Bits of the connection: who is central, whether it is encrypted.
    pub mode: u32,
}

/// The connection of an adapter with a device.
pub fn bluetooth_connection(_: impl AsHandle, _address: [u8; 6]) -> Option<BluetoothConnection> {
    None
}

/// Restricts an HCI socket to one type of event.
pub fn set_bluetooth_event_filter(
    _: impl AsHandle,
    _packet: u8,
    _event: u8,
    _command: u16,
) -> io::Result<()> {
    no_family()
}

/// Largest message of an L2CAP socket, sent and received.
pub fn l2cap_mtus(_: impl AsHandle) -> Option<(u16, u16)> {
    None
}

/// Sets the options of an L2CAP socket.
pub fn set_l2cap_options(_: impl AsHandle, _bytes: u16, _mode: u8) -> io::Result<()> {
    no_family()
}

/// The data of a network device that packet sockets need.
#[derive(Debug, Clone, Copy)]
pub struct NetworkDevice {
    /// The number of the device.
    pub index: i32,
    /// Maximum payload of a frame in bytes.
    pub mtu: usize,
    /// The Ethernet address.
    pub address: [u8; 6],
}

/// The network device of that name.
pub fn find_device(_: impl AsHandle, _name: &str) -> io::Result<NetworkDevice> {
    no_family()
}

/// The address of a host on a device.
pub fn packet_address(_device: &NetworkDevice, _ethertype: u16, _address: [u8; 6]) -> SockAddr {
    no_address()
}

/// The source host of a frame.
pub fn source_mac(_address: &SockAddr) -> Option<[u8; 6]> {
    None
}

/// An SCTP socket of this family.
///
/// # Errors
///
/// Always.
pub fn sctp_socket(_domain: Domain) -> io::Result<Socket> {
    no_family()
}

/// A stream socket between a guest and its host.
///
/// # Errors
///
/// Always.
pub fn vsock_socket() -> io::Result<Socket> {
    no_family()
}

/// The address of a port of a machine.
pub fn vsock_address(_cid: u32, _port: u32) -> SockAddr {
    no_address()
}

/// Machine and port of such an address; `None` for other families.
pub fn vsock_cid_port(_address: &SockAddr) -> Option<(u32, u32)> {
    None
}

/// A socket for the frames of network devices.
///
/// # Errors
///
/// Always.
pub fn packet_socket() -> io::Result<Socket> {
    no_family()
}

/// The error of a Bluetooth device without the key of the pairing, which no call here returns.
pub const MISSING_KEY: Errno = Errno::AFNOSUPPORT;
