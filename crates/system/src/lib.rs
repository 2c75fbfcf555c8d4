//! Safe functions of the operating system, with types of this crate: the only crate with `unsafe` code, and the only one
//! that knows which system it runs on. It contains no policy.
//!
//! - **Sockets**: messages with what the kernel reports beside their bytes, one by one and many in a call (`message`); options and state
//!   (`socket`, `tcp`); stamps; errors of messages that were not delivered; families that only this system has.
//! - **Ports**: serial lines and their settings, pseudo-terminals in their place.
//! - **Readiness**: waiting for one link or for thousands, and waking the thread that waits (`ready`).
//! - **Host**: clocks, CPUs of a thread, files that no other user can have planted, processes, interfaces.
//!
//! Types that every system has lie beside this file; each system has a folder with its functions: `unix` and, for what differs, `linux` and
//! `other_unix` (macOS); `windows`; and `elsewhere` for the systems that lack what Linux has. Every system has all functions. Links and
//! waits name what they use by a handle of this crate (`handle`).
//!
//! Unless its page says otherwise, a function that returns an error returns the error of the system.

mod cache;
mod clock;
mod delivery_error;
mod files;
mod interfaces;
mod ip_family;
mod message;
mod pty_packet;
mod serial_port;
mod serial_settings;
mod stamps;
mod tcp;
pub mod tcp_info;

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(unix, not(target_os = "linux")))]
mod other_unix;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(all(unix, not(target_os = "linux")))]
use other_unix as platform;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::*;
#[cfg(unix)]
pub use platform::*;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

pub use cache::*;
pub use clock::*;
pub use delivery_error::*;
pub use files::*;
pub use interfaces::*;
pub use ip_family::IpFamily;
pub use message::*;
pub use pty_packet::*;
pub use serial_port::*;
pub use serial_settings::*;
pub use stamps::*;
pub use tcp::*;
pub use tcp_info::TcpInfo;
