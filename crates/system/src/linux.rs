//! What only Linux has, or has under names of its own.

mod clock;
mod delivery_error;
pub(crate) mod drivers;
mod families;
mod files;
mod interfaces;
pub(crate) mod line_modes;
mod memory;
pub(crate) mod message;
mod process;
pub(crate) mod pty;
mod ready;
mod socket;
pub(crate) mod stamps;
mod tcp;
pub(crate) mod terminal;
mod thread;

pub use clock::*;
pub use delivery_error::*;
pub use families::*;
pub use files::*;
pub use interfaces::*;
pub use memory::*;
pub use message::*;
pub use process::*;
pub use ready::*;
pub use socket::*;
pub use stamps::*;
pub use tcp::*;
pub use thread::*;
