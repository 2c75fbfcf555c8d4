//! The lab: software links, for work without hardware.
//!
//! Each lab device starts, runs in its own threads, and stops when it is dropped. It prints nothing.
//!
//! # The lab
//!
//! The lab replaces hardware. Each part runs in a few threads around state machines that are given the time:
//! `lab/uart/wire.rs` computes when each character of a serial line has arrived and is tested without a clock;
//! `lab/uart/engine.rs` moves the characters. The ports of a device server are parties that share threads as flows do
//! (`lab/device_server/threads.rs`). Where a transport cannot listen, an entry in `lab::STAND_INS` gives the contract tests and
//! the demo a remote.

use linkgauge_model::endpoint::Endpoint;

pub mod adapter;
pub mod device_server;
mod error;
mod kernel_echo;
mod line_server;
pub mod logger;
pub mod messages;
pub mod netem;
pub mod packing;
pub mod redirect;
pub mod router;
pub mod shaper;
pub mod trouble;
pub mod uart;
mod unsent;
pub mod vm;

pub(crate) use error::LabError;

/// Stand-ins for the remotes of transports that we have no server for. Contract tests and the demo start them.
pub static STAND_INS: &[StandIn] =
    &[kernel_echo::STAND_IN, uart::STAND_IN, device_server::STAND_IN, redirect::STAND_IN];

/// Way to start a remote that returns the payload.
pub struct StandIn {
    /// One line for help and documents.
    pub summary: &'static str,
    /// Starts the stand-in.
    pub start: fn() -> Result<Box<dyn RunningStandIn>, LabError>,
}

/// A stand-in that runs until it is dropped.
pub trait RunningStandIn: Send {
    /// Endpoints of the stand-in, each variant once.
    fn endpoints(&self) -> Vec<Endpoint>;

    /// Endpoints with typical settings, where the settings of the variants are chosen for speed.
    fn typical_endpoints(&self) -> Vec<Endpoint> {
        self.endpoints()
    }
}
