//! A node of Enea LINX on Ethernet (ECM 3, RLNH 2), as `linx+eth://` of the host speaks it: the passive side, with the
//! endpoints `server` (that of `linx_bmark`: echoes and bursts), `echo` and `discard`.
//!
//! Frames go in and out with their Ethernet header. Messages are reassembled in one of `SLOTS` buffers of `MESSAGE` bytes and
//! echoed from there; the buffer is free again when the remote has acknowledged the echo. Frames that come too early are not
//! stored: the node asks for what is missing, and the remote sends again. While all buffers are in use the node does not
//! acknowledge, which closes the remote's window; it asks again as soon as a buffer is free.
//!
//! One remote at a time: the node that connects first, until it ends or is silent for 1.3 s.

mod endpoints;
pub mod frame;
mod node;
mod outbox;

pub use node::DeviceNode;
