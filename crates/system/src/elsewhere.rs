//! What only Linux offers, on the other systems: the same functions, which say that this system lacks them.

mod batches;
mod delivery_error;
mod families;
mod interfaces;
mod memory;
mod ready;
mod socket;
mod stamps;
mod tcp;

pub use batches::*;
pub use delivery_error::*;
pub use families::*;
pub use interfaces::*;
pub use memory::*;
pub use ready::*;
pub use socket::*;
pub use stamps::*;
pub use tcp::*;
