//! A serial port of this host, or a terminal that stands in for one, used exclusively. Its state is restored on close.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, major, minor};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, Termios, ioctl_tiocexcl, ioctl_tiocnxcl, tcflush};

use crate::platform::drivers;
use crate::platform::line_modes::{modes, set_modes};
use crate::platform::terminal::PSEUDO_TERMINALS;
use crate::serial_port::{PortError, Rs485};
use crate::serial_settings::{ModemLines, OutputSignal, PurgeTarget, SerialSettings, UartErrors};
use crate::unix::line_modes::{line_settings, set_line};
use crate::unix::terminal::{self, LineCounters};

/// An open port.
#[derive(Debug)]
pub struct SerialPort {
    terminal: OwnedFd,
    path: PathBuf,
    device_number: (u32, u32),
    saved_state: SavedState,
}

/// State to restore on close; `None` where the driver does not support it or it was not changed.
#[derive(Debug)]
struct SavedState {
    termios: Termios,
    low_latency: Option<bool>,
    rs485: Option<Rs485>,
    output_bits: Option<i32>,
    counters: Option<LineCounters>,
}

/// What the address of a port is.
pub const PORT_ADDRESS: &str = "the path of a device, with the slash it begins with: serial:///dev/ttyS0";

/// Whether a text can be the address of a port.
pub fn is_port_address(text: &str) -> bool {
    text.starts_with('/')
}

const OUTPUT_BITS: i32 = libc::TIOCM_DTR | libc::TIOCM_RTS;

impl SerialPort {
    /// Opens the port, whose settings stay as they are. Nothing is opened that is no port: opening has side effects on some devices.
    ///
    /// # Errors
    ///
    /// [`PortError`].
    pub fn open(path: &Path) -> Result<SerialPort, PortError> {
        let (path, device_number) = resolve_device(path)?;
        // Without O_NONBLOCK opening waits for the carrier of a modem.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let terminal = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::BUSY => PortError::InUse,
            Errno::NOENT | Errno::NXIO | Errno::NODEV => PortError::NotFound,
            Errno::ACCESS => PortError::NotPermitted,
            errno => PortError::Open(errno.into()),
        })?;
        let termios = modes(&terminal).map_err(|errno| match errno {
            Errno::IO => PortError::NoHardware,
            _ => PortError::NotAPort,
        })?;
        let saved_state = SavedState {
            termios,
            low_latency: None,
            rs485: None,
            output_bits: terminal::modem_bits(&terminal).ok().map(|wires| wires & OUTPUT_BITS),
            counters: drivers::line_counters(&terminal).ok(),
        };
        Ok(SerialPort { terminal, path, device_number, saved_state })
    }

    /// Keeps other programs from using the port. Returns whether none has done so before.
    pub fn lock(&self) -> bool {
        let is_first = flock(&self.terminal, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_first {
            let _ = ioctl_tiocexcl(&self.terminal);
        }
        is_first
    }

    /// The path of the device, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The major and the minor number of the device.
    pub fn device_number(&self) -> (u32, u32) {
        self.device_number
    }

    /// Whether a program is at the other side, and the kernel simulates no timing.
    pub fn is_pseudo_terminal(&self) -> bool {
        PSEUDO_TERMINALS.contains(&self.device_number.0)
    }

    /// The effective settings of the line.
    ///
    /// # Errors
    ///
    /// The port is gone.
    pub fn settings(&self) -> io::Result<SerialSettings> {
        line_settings(&self.terminal)
    }

    /// Sets the line; returns the effective settings.
    ///
    /// # Errors
    ///
    /// The driver refuses them, or the port is gone.
    pub fn configure(&self, wanted: &SerialSettings) -> io::Result<SerialSettings> {
        set_line(&self.terminal, wanted)
    }

    /// Whether the driver delivers received data at once. `None` where it cannot be asked.
    pub fn is_low_latency(&self) -> Option<bool> {
        drivers::is_low_latency(&self.terminal).ok()
    }

    /// Makes the driver deliver received data at once, or after its own delay.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the driver has no such setting; or it refuses.
    pub fn set_low_latency(&mut self, on: bool) -> io::Result<()> {
        let before = supported(drivers::is_low_latency(&self.terminal))?;
        self.saved_state.low_latency.get_or_insert(before);
        supported(drivers::set_low_latency(&self.terminal, on))
    }

    /// Way in which the driver switches a half-duplex line. `None` if it cannot.
    pub fn rs485(&self) -> Option<Rs485> {
        drivers::rs485(&self.terminal).ok()
    }

    /// Makes the driver switch a half-duplex line in this way.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the driver has no such setting; or it refuses.
    pub fn set_rs485(&mut self, mut wanted: Rs485) -> io::Result<()> {
        let before = supported(drivers::rs485(&self.terminal))?;
        self.saved_state.rs485.get_or_insert(before);
        supported(drivers::set_rs485(&self.terminal, &mut wanted))
    }

    /// Sets or clears an output.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the terminal lacks it; or the driver refuses.
    pub fn set_signal(&self, signal: OutputSignal, on: bool) -> io::Result<()> {
        supported(match signal {
            OutputSignal::Dtr => terminal::set_modem_bits(&self.terminal, libc::TIOCM_DTR, on),
            OutputSignal::Rts => terminal::set_modem_bits(&self.terminal, libc::TIOCM_RTS, on),
            OutputSignal::Break => terminal::set_break(&self.terminal, on),
        })
    }

    /// The inputs, if the port has any.
    pub fn modem_lines(&self) -> Option<ModemLines> {
        let wires = terminal::modem_bits(&self.terminal).ok()?;
        let is_on = |wire: i32| wires & wire != 0;
        Some(ModemLines {
            cts: is_on(libc::TIOCM_CTS),
            dsr: is_on(libc::TIOCM_DSR),
            ri: is_on(libc::TIOCM_RNG),
            cd: is_on(libc::TIOCM_CAR),
        })
    }

    /// The driver's counters since the port was opened.
    pub fn uart_errors(&self) -> Option<UartErrors> {
        Some(errors_between(&self.saved_state.counters?, &drivers::line_counters(&self.terminal).ok()?))
    }

    /// Discards the contents of the port's buffers.
    ///
    /// # Errors
    ///
    /// The port is gone.
    pub fn purge(&self, target: PurgeTarget) -> io::Result<()> {
        let queue = match target {
            PurgeTarget::Received => QueueSelector::IFlush,
            PurgeTarget::ToSend => QueueSelector::OFlush,
            PurgeTarget::Both => QueueSelector::IOFlush,
        };
        Ok(tcflush(&self.terminal, queue)?)
    }

    /// Writes what the port takes now.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if it takes nothing now.
    #[inline]
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(&self.terminal, bytes)
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if nothing has arrived.
    #[inline]
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.terminal, into)
    }
}

fn supported<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTTY) => io::ErrorKind::Unsupported.into(),
        _ => error,
    })
}

fn errors_between(before: &LineCounters, now: &LineCounters) -> UartErrors {
    // The kernel's counters have 32 bits and wrap around.
    let since =
        |count: fn(&LineCounters) -> i32| u64::from(count(now).wrapping_sub(count(before)).cast_unsigned());
    UartErrors {
        framing: since(|counters| counters.framing),
        parity: since(|counters| counters.parity),
        breaks: since(|counters| counters.breaks),
        overruns: since(|counters| counters.overrun) + since(|counters| counters.buffer_overrun),
    }
}

impl AsFd for SerialPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for SerialPort {
    fn drop(&mut self) {
        // Unsent data would delay closing for up to half a minute. A device that was unplugged refuses these
        // calls and does not need them.
        let _ = tcflush(&self.terminal, QueueSelector::IOFlush);
        let _ = terminal::set_break(&self.terminal, false);
        if let Some(mut before) = self.saved_state.rs485 {
            let _ = drivers::set_rs485(&self.terminal, &mut before);
        }
        if let Some(before) = self.saved_state.low_latency {
            let _ = drivers::set_low_latency(&self.terminal, before);
        }
        let _ = set_modes(&self.terminal, &self.saved_state.termios);
        if let Some(before) = self.saved_state.output_bits {
            let _ = terminal::set_modem_bits(&self.terminal, before, true);
            let _ = terminal::set_modem_bits(&self.terminal, OUTPUT_BITS & !before, false);
        }
        let _ = ioctl_tiocnxcl(&self.terminal);
        // A child of this process holds the open file until it starts its program, and with it the lock.
        let _ = flock(&self.terminal, FlockOperation::Unlock);
    }
}

/// Resolves a path before anything is opened.
fn resolve_device(path: &Path) -> Result<(PathBuf, (u32, u32)), PortError> {
    let lookup_error = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => PortError::NotFound,
        _ => PortError::Lookup(error),
    };
    let path = fs::canonicalize(path).map_err(lookup_error)?;
    let found = fs::metadata(&path).map_err(lookup_error)?;
    if found.is_dir() {
        return Err(PortError::Directory);
    }
    if !found.file_type().is_char_device() {
        return Err(PortError::NotAPort);
    }
    let device = found.rdev() as _;
    Ok((path, (major(device), minor(device))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_begin_at_the_opening_and_may_wrap() {
        let before =
            LineCounters { framing: 5, overrun: i32::MAX, buffer_overrun: -1, ..LineCounters::default() };
        let now = LineCounters {
            framing: 7,
            overrun: i32::MIN,
            buffer_overrun: 1,
            parity: 3,
            breaks: 4,
            ..LineCounters::default()
        };
        let expected = UartErrors { framing: 2, parity: 3, breaks: 4, overruns: 3 };
        assert_eq!(errors_between(&before, &now), expected);
    }
}
