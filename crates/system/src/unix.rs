//! What Linux and macOS share.

pub(crate) mod clock;
mod error;
mod files;
mod handle;
mod host_names;
mod interfaces;
pub(crate) mod line_modes;
pub(crate) mod message;
mod process;
mod pty;
pub(crate) mod raw;
pub(crate) mod ready;
mod serial_port;
mod socket;
pub(crate) mod tcp;
pub(crate) mod terminal;
mod thread;

pub use clock::*;
pub use error::*;
pub use files::*;
pub use handle::*;
pub use host_names::*;
pub use interfaces::*;
pub use line_modes::*;
pub use message::*;
pub use process::*;
pub use pty::*;
pub use ready::*;
pub use serial_port::*;
pub use socket::*;
pub use tcp::*;
pub use terminal::*;
pub use thread::*;
