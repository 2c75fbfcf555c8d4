//! System calls on terminals and the drivers of serial ports.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;

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
unsafe fn terminal_control<T: Copy>(fd: impl AsFd, request: libc::Ioctl, value: &mut T) -> io::Result<()> {
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
    unsafe { terminal_control(fd, request, &mut 0 as &mut c_int) }
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

/// The counters, read from the driver now.
pub(crate) fn line_counters(fd: impl AsFd) -> io::Result<LineCounters> {
    let mut counters = LineCounters::default();
    // SAFETY: `TIOCGICOUNT` writes one `serial_icounter_struct`, with the layout above.
    unsafe { terminal_control(fd, libc::TIOCGICOUNT, &mut counters) }?;
    Ok(counters)
}

/// `serial_struct` of linux/serial.h; only the flags are used here.
#[repr(C)]
#[derive(Clone, Copy)]
struct SerialStruct {
    kind_line_port_irq: [c_int; 4],
    flags: c_int,
    fifo_divisor_base: [c_int; 3],
    close_delay: u16,
    io_kind: [u8; 2],
    hub6: c_int,
    closing_wait: [u16; 2],
    memory_base: *mut u8,
    memory_shift: u16,
    port_high: libc::c_uint,
    map_base: libc::c_ulong,
}

/// `ASYNC_LOW_LATENCY` of linux/tty_flags.h.
const LOW_LATENCY: c_int = 1 << 13;

fn serial_struct(fd: impl AsFd) -> io::Result<SerialStruct> {
    // SAFETY: the structure holds integers and a pointer that is never dereferenced; zeros are valid for
    // both.
    let mut value: SerialStruct = unsafe { std::mem::zeroed() };
    // SAFETY: `TIOCGSERIAL` writes one `serial_struct`, with the layout above.
    unsafe { terminal_control(fd, libc::TIOCGSERIAL, &mut value) }?;
    Ok(value)
}

/// Whether the driver delivers received data at once.
pub(crate) fn is_low_latency(fd: impl AsFd) -> io::Result<bool> {
    Ok(serial_struct(fd)?.flags & LOW_LATENCY != 0)
}

/// Makes the driver deliver received data at once, or after its own delay.
pub(crate) fn set_low_latency(fd: impl AsFd, on: bool) -> io::Result<()> {
    let mut value = serial_struct(&fd)?;
    value.flags = if on { value.flags | LOW_LATENCY } else { value.flags & !LOW_LATENCY };
    // SAFETY: `TIOCSSERIAL` reads one `serial_struct`, with the layout above; the value came from the driver.
    unsafe { terminal_control(fd, libc::TIOCSSERIAL, &mut value) }
}

/// `serial_rs485` of linux/serial.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rs485 {
    flags: u32,
    /// Time from RTS on to the first bit.
    pub delay_before_send_ms: u32,
    /// Time from the last bit to RTS off.
    pub delay_after_send_ms: u32,
    addresses: [u32; 5],
}

impl Rs485 {
    /// `SER_RS485_ENABLED`, and `SER_RS485_RTS_ON_SEND`: the pair's driver is on while RTS is.
    const ENABLED_FLAGS: u32 = 1 | 1 << 1;

    /// Half duplex by RTS, with these delays.
    pub fn enabled(delay_before_send_ms: u32, delay_after_send_ms: u32) -> Rs485 {
        Rs485 { flags: Rs485::ENABLED_FLAGS, delay_before_send_ms, delay_after_send_ms, addresses: [0; 5] }
    }

    /// Whether the driver switches the line by RTS.
    pub fn is_enabled(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// The settings, read from the driver now.
pub(crate) fn rs485(fd: impl AsFd) -> io::Result<Rs485> {
    let mut value = Rs485::default();
    // SAFETY: `TIOCGRS485` writes one `serial_rs485`, with the layout above.
    unsafe { terminal_control(fd, libc::TIOCGRS485, &mut value) }?;
    Ok(value)
}

/// The driver writes the effective settings back to `value`.
pub(crate) fn set_rs485(fd: impl AsFd, value: &mut Rs485) -> io::Result<()> {
    // SAFETY: `TIOCSRS485` reads and writes one `serial_rs485`, with the layout above.
    unsafe { terminal_control(fd, libc::TIOCSRS485, value) }
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
