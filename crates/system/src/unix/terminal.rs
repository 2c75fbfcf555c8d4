//! System calls on terminals.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::c_int;

use super::error::Errno;
use super::ready::{PollFlags, poll, watch};
use crate::platform::terminal::ControlRequest;

/// Makes reads from the master of a pseudo-terminal begin with a byte for their type.
pub(crate) fn set_packet_mode(fd: impl AsFd) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: `TIOCPKT` reads one `int`, which lives through the call; the descriptor is borrowed.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCPKT, &raw const on) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One terminal `ioctl` that passes the driver a C value to read, to write, or both.
///
/// SAFETY: the caller passes the C type that the request is defined with. It consists of integers and of
/// pointers that are never dereferenced.
pub(crate) unsafe fn terminal_control<T: Copy>(
    fd: impl AsFd,
    request: ControlRequest,
    value: &mut T,
) -> io::Result<()> {
    // SAFETY: the value has the request's type, as the caller promises, and lives through the call; the descriptor is
    // borrowed.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, std::ptr::from_mut(value)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The wires of a serial port: `TIOCM_…` bits.
pub(crate) fn modem_bits(fd: impl AsFd) -> io::Result<c_int> {
    let mut bits: c_int = 0;
    // SAFETY: `TIOCMGET` writes one `int`.
    unsafe { terminal_control(fd, libc::TIOCMGET, &mut bits) }?;
    Ok(bits)
}

/// Sets or clears the outputs among the `TIOCM_…` bits.
pub(crate) fn set_modem_bits(fd: impl AsFd, mut bits: c_int, on: bool) -> io::Result<()> {
    let request = if on { libc::TIOCMBIS } else { libc::TIOCMBIC };
    // SAFETY: both requests read one `int`.
    unsafe { terminal_control(fd, request, &mut bits) }
}

/// Holds the line of a serial port at zero, or releases it.
pub(crate) fn set_break(fd: impl AsFd, on: bool) -> io::Result<()> {
    let request = if on { libc::TIOCSBRK } else { libc::TIOCCBRK };
    // SAFETY: neither request takes a value, so the pointer is not dereferenced.
    unsafe { terminal_control(fd, request as ControlRequest, &mut 0 as &mut c_int) }
}

/// The driver's counters of a serial port since the machine started: `serial_icounter_struct` of
/// linux/serial.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LineCounters {
    /// Changes of CTS.
    pub cts: c_int,
    /// Changes of DSR.
    pub dsr: c_int,
    /// Ends of RI.
    pub ring: c_int,
    /// Changes of DCD.
    pub carrier: c_int,
    /// Characters received.
    pub received: c_int,
    /// Characters sent.
    pub sent: c_int,
    /// Characters without a valid stop bit.
    pub framing: c_int,
    /// Characters lost because the UART was full.
    pub overrun: c_int,
    /// Characters with the wrong parity bit.
    pub parity: c_int,
    /// Breaks.
    pub breaks: c_int,
    /// Characters lost because the driver's buffer was full.
    pub buffer_overrun: c_int,
    /// Unused fields.
    pub reserved: [c_int; 9],
}

/// Columns and rows of a terminal.
pub fn terminal_size(terminal: impl AsFd) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Whether an error means that no program reads the standard output any more: a closed pipe or terminal.
pub fn is_reader_gone(error: &io::Error) -> bool {
    let has_hung_up = || error.raw_os_error() == Some(libc::EIO);
    let is_device = || {
        let status = rustix::fs::fstat(io::stdout());
        status.is_ok_and(|status| {
            rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::CharacterDevice
        })
    };
    error.kind() == io::ErrorKind::BrokenPipe || has_hung_up() && is_device()
}

/// Waits for input of the terminal at the standard input, at most this long. Returns whether there is any.
///
/// # Errors
///
/// The terminal has gone: reading would never end.
pub fn wait_for_keys(within: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut watched = [watch(&stdin, PollFlags::IN)];
    match poll(&mut watched, within) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        found => found?,
    };
    let events = watched[0].revents();
    if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(events.contains(PollFlags::IN))
}
