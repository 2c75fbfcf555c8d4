//! PakBus and BMP5, the protocols of Campbell data loggers: encoding and decoding for client and server, without I/O.
//!
//! A *frame* contains a *packet*. A packet contains addresses and, unless it only reports the state of a link, a
//! *message*. Text in messages is Latin-1 here, so that every byte of a name or unit is preserved.

pub mod client;
mod codec;
pub mod directory;
pub mod frame;
pub mod message;
pub mod packet;
pub mod record;
pub mod reply;
pub mod table;
mod time;
pub mod value;

/// Default TCP port of a logger.
pub const DEFAULT_PORT: u16 = 6785;

/// Default address of a logger. Addresses range from 1 to 4094.
pub const DEFAULT_ADDRESS: u16 = 1;

/// Address of all nodes.
pub const BROADCAST_ADDRESS: u16 = 0xFFF;

/// Program name that only the emulated logger has.
pub const EMULATED_MARKER: &str = "emulated by linkgauge";

/// Reason for the failure to parse a message, in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PakBusParseError {
    /// The message ends before its last field.
    #[error("it is too short")]
    TooShort,
    /// The kind, type, table or version is not supported.
    #[error("its content is unknown")]
    Unknown,
}

/// Bytes in the notation of the tests: hexadecimal digits, spaces anywhere.
#[cfg(test)]
pub(crate) fn parse_hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[cfg(test)]
mod tests;
