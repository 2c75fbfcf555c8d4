//! Requests to the drivers of serial ports: counters, latency, half-duplex lines.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;

use crate::serial_port::Rs485;
use crate::unix::terminal::{LineCounters, terminal_control};

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
