//! Requests to the drivers of serial ports, which this system does not have.

use std::io;
use std::os::fd::AsFd;

use crate::serial_port::Rs485;
use crate::unix::terminal::LineCounters;

fn no_request<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The counters of a port.
pub(crate) fn line_counters(_: impl AsFd) -> io::Result<LineCounters> {
    no_request()
}

/// Whether the driver delivers received data at once.
pub(crate) fn is_low_latency(_: impl AsFd) -> io::Result<bool> {
    no_request()
}

/// Makes the driver deliver received data at once.
pub(crate) fn set_low_latency(_: impl AsFd, _on: bool) -> io::Result<()> {
    no_request()
}

/// The settings of a half-duplex line.
pub(crate) fn rs485(_: impl AsFd) -> io::Result<Rs485> {
    no_request()
}

/// Sets a half-duplex line.
pub(crate) fn set_rs485(_: impl AsFd, _value: &mut Rs485) -> io::Result<()> {
    no_request()
}
