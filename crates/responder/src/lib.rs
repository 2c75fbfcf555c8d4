//! The server side of a measurement for firmware: what `linkgauge` measures links to microcontrollers, DSPs and RTOS nodes with.
//!
//! No part of this crate needs an operating system, an allocator, a clock or a socket: bytes or packets go in, bytes or packets
//! come out, and the caller gives the time in nanoseconds of any clock that never goes back. Every service has a fixed
//! size; none recurses, loops over values from the remote, or panics on input.
//!
//! | service | over | state | what the host runs |
//! | --- | --- | --- | --- |
//! | [`echo`] | both | none | `--protocol echo` |
//! | [`Discard`] | both | a count | `--protocol discard` |
//! | [`chargen::Generator`], [`chargen::LineChecker`] | streams | a position | `--protocol chargen` |
//! | [`stamp::TestReflector`] | packets | none, or 8 bytes a session | `--protocol stamp` |
//! | [`session::PacketSessions`], [`session::StreamSessions`] | both | 64 bytes a session | `--protocol device` |
//! | [`linx::DeviceNode`] | Ethernet frames | its messages | `linx+eth://` |
//!
//! # Which part of the linkgauge protocol a device speaks
//!
//! A device speaks none of the protocol's text. The linkgauge protocol negotiates in JSON, proves addresses by signed tokens and
//! reports documents; its parser alone is larger than the flash of many devices. A device speaks the **device protocol**
//! ([`session`]) instead: the five binary messages that latency and throughput need (hello, echo, data, end, report) behind one
//! header of 16 bytes, the same on streams and in packets. The host speaks it with `--protocol device`, and
//! `linkgauge serve --protocol device` is this very code.
#![no_std]
#![forbid(unsafe_code)]

mod field;

pub mod chargen;
pub mod linx;
pub mod session;
pub mod stamp;

/// Bytes that a stream service took and gave. Input that it did not take is offered again, when there is room for output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes taken from the input.
    pub consumed: usize,
    /// Bytes written to the output.
    pub produced: usize,
}

/// Echoes a stream (RFC 862), as much as fits. A packet is echoed by sending it back as it is.
pub fn echo(input: &[u8], output: &mut [u8]) -> Progress {
    let bytes = input.len().min(output.len());
    output[..bytes].copy_from_slice(&input[..bytes]);
    Progress { consumed: bytes, produced: bytes }
}

/// Drops and counts bytes (RFC 863).
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard {
    /// Bytes dropped so far.
    pub bytes: u64,
}

impl Discard {
    /// Takes everything.
    pub fn on_bytes(&mut self, input: &[u8]) {
        self.bytes = self.bytes.wrapping_add(input.len() as u64);
    }
}
