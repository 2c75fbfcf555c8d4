//! What the operating system offers, behind safe functions with types of their own: the only crate with `unsafe` code, and the only one
//! that knows which system it runs on.
//!
//! Each block of `unsafe` states why it is sound. This crate contains no policy.

#![allow(unsafe_code)]

mod cache;
mod clock;
mod delivery_error;
mod families;
mod interfaces;
mod ip_family;
mod memory;
mod message;
mod raw;
mod ready;
mod socket;
mod stamps;
mod tcp;
pub mod tcp_info;
mod terminal;

pub use cache::*;
pub use clock::*;
pub use delivery_error::*;
pub use families::*;
pub use interfaces::*;
pub use ip_family::IpFamily;
pub use memory::*;
pub use message::*;
pub use raw::Blocking;
pub use ready::*;
pub use rustix::io::Errno;
pub use socket::*;
pub use stamps::*;
pub use tcp::*;
pub use tcp_info::TcpInfo;
pub use terminal::*;
