//! Pseudo-terminals as stand-ins for serial ports, which this system does not have.

use std::io;
use std::path::PathBuf;

use super::error::Errno;
use super::handle::{AsHandle, OwnedHandle};
use crate::serial_settings::SerialSettings;

/// A pseudo-terminal, of which there is none.
pub struct Pty {
    /// The side of the stand-in.
    pub master: OwnedHandle,
    /// The path for programs.
    pub path: PathBuf,
}

impl Pty {
    /// Opens a pseudo-terminal.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open() -> io::Result<Pty> {
        let reason = "this system has no pseudo-terminals in the place of serial ports";
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }

    /// Reads one packet.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn read(&self, _into: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Writes what the program on the other side has room for.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn write(&self, _bytes: &[u8]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Bytes that no program has read.
    pub fn unread_bytes(&self) -> usize {
        0
    }

    /// The settings of the program on the other side.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn settings(&self) -> io::Result<SerialSettings> {
        Err(Errno::OPNOTSUPP.into())
    }
}

/// Configures a terminal as a serial port, which this system does not have.
///
/// # Errors
///
/// Always.
pub fn set_line(_terminal: impl AsHandle, _wanted: &SerialSettings) -> io::Result<SerialSettings> {
    Err(Errno::OPNOTSUPP.into())
}
