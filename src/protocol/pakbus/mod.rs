//! PakBus and BMP5, the protocols of Campbell data loggers: bytes in, bytes out, no I/O, both sides.
//!
//! A *frame* carries a *packet*; a packet carries addresses and, unless it only tells the state of a link, a *message*.
//! Text in messages is Latin-1 here, so that every byte of a name or unit comes back as it was.

pub mod client;
mod codec;
pub mod directory;
pub mod frame;
pub mod message;
pub mod packet;
pub mod record;
pub mod reply;
pub mod table;
pub mod value;

/// The TCP port of a logger, unless it was set to another.
pub const DEFAULT_PORT: u16 = 6785;

/// The address of a logger, unless it was set to another. Addresses go from 1 to 4094.
pub const DEFAULT_ADDRESS: u16 = 1;

/// Whoever hears it.
pub const BROADCAST_ADDRESS: u16 = 0xFFF;

/// What the lab's logger says of its program, and no other.
pub const EMULATED_MARKER: &str = "emulated by linkgauge";

/// What could not be read, for one clear line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PakBusParseError {
    #[error("it is too short")]
    TooShort,
    #[error("it holds something unknown")]
    Unknown,
}

/// Bytes as the tests write them: hexadecimal digits, spaces anywhere.
#[cfg(test)]
pub(crate) fn parse_hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[cfg(test)]
mod tests;
