//! Pseudo-terminals, as stand-ins for serial ports.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::platform::pty::CLOSE_ON_EXEC;
use crate::serial_settings::SerialSettings;
use crate::unix::line_modes::{line_settings, set_line};
use crate::unix::terminal::set_packet_mode;

/// A pseudo-terminal: a stand-in for hardware holds the master, programs open the path.
pub struct Pty {
    /// Non-blocking. Each read begins with a byte for its type (`PtyPacket::parse`).
    pub master: OwnedFd,
    /// The path for programs, such as `/dev/pts/7`.
    pub path: PathBuf,
    /// Held open, so that reads from the master do not fail while no program has it open.
    _slave: OwnedFd,
}

impl Pty {
    /// Opens a raw pseudo-terminal with the default settings of a line.
    ///
    /// # Errors
    ///
    /// Fails if the system has no pseudo-terminal left, or refuses.
    pub fn open() -> io::Result<Pty> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | CLOSE_ON_EXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let path = Path::new(OsStr::from_bytes(name.as_bytes())).to_owned();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(&path, flags, Mode::empty())?;
        set_line(&slave, &SerialSettings::default())?;
        set_packet_mode(&master)?;
        fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
        Ok(Pty { master, path, _slave: slave })
    }

    /// Reads one packet (`PtyPacket::parse`).
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if there is none.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.master, into)
    }

    /// Writes what the program on the other side has room for.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if it has none.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(&self.master, bytes)
    }

    /// Bytes that the program on the other side has written and no program has read.
    pub fn unread_bytes(&self) -> usize {
        rustix::io::ioctl_fionread(&self.master).unwrap_or(0) as usize
    }

    /// The settings of the program on the other side, as far as a pseudo-terminal stores them: rate, stop
    /// bits, flow control, and odd, mark and space parity. The kernel discards data bits and even parity
    /// (`pty_set_termios`).
    ///
    /// # Errors
    ///
    /// Same errors as [`line_settings`].
    pub fn settings(&self) -> io::Result<SerialSettings> {
        line_settings(&self.master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serial_settings::{FlowControl, Parity, StopBits};

    #[test]
    fn the_master_sees_the_settings_of_the_program() {
        let pty = Pty::open().unwrap();
        assert_eq!(pty.settings().unwrap(), SerialSettings::default());
        for baud in [75, 230_400, 250_000, 4_000_000] {
            for parity in [Parity::None, Parity::Odd, Parity::Mark, Parity::Space] {
                for stop in [StopBits::One, StopBits::Two] {
                    for flow in FlowControl::ALL {
                        let wanted = SerialSettings {
                            baud,
                            data_bits: 8,
                            parity,
                            stop_bits: stop,
                            flow_control: flow,
                        };
                        assert_eq!(set_line(&pty._slave, &wanted).unwrap(), wanted);
                        assert_eq!(pty.settings().unwrap(), wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn a_pseudo_terminal_loses_data_bits_and_even_parity() {
        // If a kernel ever stores them, the entry in docs/limits.md and the lab's options for them can be
        // removed.
        let pty = Pty::open().unwrap();
        let wanted = SerialSettings { data_bits: 7, parity: Parity::Even, ..SerialSettings::default() };
        assert_eq!(set_line(&pty._slave, &wanted).unwrap(), SerialSettings::default());
    }
}
