//! Socket families that only Linux has: SCTP, vsock, TIPC, Bluetooth, packet sockets. Other systems say that they do not have them.

#[cfg(not(target_os = "linux"))]
mod absent;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use absent::*;
#[cfg(target_os = "linux")]
pub use linux::*;
