//! Transports: the kinds of links. Each one is a file or folder with a `TRANSPORT`, and one line in the
//! registry of a program.
//!
//! The other files are what several of them share: sockets of any address family (`socket.rs`), datagrams on them
//! (`datagram.rs`), hosts and addresses of the Internet ([`internet`]), Bluetooth ([`bluetooth`]).

pub mod bluetooth;
pub mod bluez;
mod companion;
mod connect_first;
mod datagram;
mod datagram_accept;
mod fallback;
mod forwarding;
mod hop_probe;
pub mod icmp;
pub mod internet;
pub(crate) mod l2cap;
pub mod linx;
mod offload;
pub mod rfc2217;
pub(crate) mod rfcomm;
pub(crate) mod sctp;
pub mod sdp;
pub(crate) mod serial;
pub(crate) mod socket;
pub(crate) mod tcp;
mod tcp_options;
pub mod tipc;
pub(crate) mod udp;
pub(crate) mod unix;
pub(crate) mod vsock;

pub use companion::{companion_datagrams, companion_stream};
pub use hop_probe::ProbeKind;
