//! Errors and settings of ports.

use std::io;

/// Error of a port that cannot be opened.
#[derive(Debug)]
pub enum PortError {
    /// No file has this name, or no device is behind it.
    NotFound,
    /// The name is that of a directory.
    Directory,
    /// The name is that of something else.
    NotAPort,
    /// The port exists in the system, but not in the machine.
    NoHardware,
    /// Another program uses the port.
    InUse,
    /// This user may not open it.
    NotPermitted,
    /// The name cannot be looked up.
    Lookup(io::Error),
    /// Another error of the system.
    Open(io::Error),
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
