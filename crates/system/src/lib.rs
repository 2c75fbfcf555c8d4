//! Safe functions of the operating system, with types of this crate: the only crate with `unsafe` code, and the only one
//! that knows which system it runs on. It contains no policy.
//!
//! - **Sockets**: messages with what the kernel reports beside their bytes, one by one and many in a call (`message`); options and state
//!   (`socket`, `tcp`); stamps; errors of messages that were not delivered; families that only this system has.
//! - **Ports**: serial lines and their settings, pseudo-terminals in their place.
//! - **Readiness**: waiting for one link or for thousands, and waking the thread that waits (`ready`).
//! - **Host**: clocks, CPUs of a thread, files that no other user can have planted, processes, interfaces.
//!
//! Functions that only Linux offers have two files in the folder of their topic: `linux.rs`, and `absent.rs` with the same
//! functions, which say that this system lacks them. Links and waits name what they use by a handle of this crate (`handle`).
//!
//! Unless its page says otherwise, a function that returns an error returns the error of the system.

mod cache;
mod clock;
mod delivery_error;
mod families;
mod files;
mod handle;
mod host_names;
mod interfaces;
mod ip_family;
mod line_modes;
mod memory;
mod message;
mod process;
mod pty;
mod raw;
mod ready;
mod serial_port;
mod serial_settings;
mod socket;
mod stamps;
mod tcp;
pub mod tcp_info;
mod terminal;
mod thread;

pub use cache::*;
pub use clock::*;
pub use delivery_error::*;
pub use families::*;
pub use files::*;
pub use handle::*;
pub use host_names::*;
pub use interfaces::*;
pub use ip_family::IpFamily;
pub use line_modes::*;
pub use memory::*;
pub use message::*;
pub use process::*;
pub use pty::*;
pub use raw::Blocking;
pub use ready::*;
pub use rustix::io::Errno;
pub use serial_port::*;
pub use serial_settings::*;
pub use socket::*;
pub use stamps::*;
pub use tcp::*;
pub use tcp_info::TcpInfo;
pub use terminal::{Rs485, is_reader_gone, terminal_size};
pub use thread::*;
