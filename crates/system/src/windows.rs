//! Windows.

mod clock;
mod error;
mod files;
mod handle;
mod host_names;
mod interfaces;
mod line_modes;
mod message;
mod poll_flags;
mod process;
mod pty;
mod raw;
mod ready;
mod serial_port;
mod socket;
mod terminal;
mod thread;

pub use clock::*;
pub use error::*;
pub use files::*;
pub use handle::*;
pub use host_names::*;
pub use interfaces::*;
pub use message::*;
pub use poll_flags::*;
pub use process::*;
pub use pty::*;
pub use ready::*;
pub use serial_port::*;
pub use socket::*;
pub use terminal::*;
pub use thread::*;
