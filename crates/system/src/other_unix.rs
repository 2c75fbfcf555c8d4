//! macOS and its relatives, where they differ from Linux.

mod clock;
pub(crate) mod drivers;
mod files;
mod interfaces;
pub(crate) mod line_modes;
pub(crate) mod message;
mod process;
pub(crate) mod pty;
mod ready;
mod socket;
pub(crate) mod stamps;
pub(crate) mod terminal;
mod thread;

pub use clock::*;
pub use files::*;
pub use interfaces::*;
pub use process::*;
pub(crate) use ready::*;
pub use socket::*;
pub use thread::*;
