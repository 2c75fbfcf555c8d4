//! The lab: links made of software, for work without hardware.
//!
//! Each piece starts, runs in threads of its own, and stops when it is dropped. Nothing here prints.

use crate::endpoint::Endpoint;

pub mod device_server;
mod kernel_echo;
pub mod logger;
pub mod netem;
pub mod packing;
pub mod redirect;
pub mod shaper;
pub mod uart;
pub mod vm;

/// Stand-ins for the far ends of transports that nobody can listen on: the contract tests and the demo start them.
pub static STAND_INS: &[StandIn] =
    &[kernel_echo::STAND_IN, uart::STAND_IN, device_server::STAND_IN, redirect::STAND_IN];

/// How to start a far end that sends back what it gets.
pub struct StandIn {
    pub summary: &'static str,
    pub start: fn() -> Result<Box<dyn RunningStandIn>, LabError>,
}

/// A stand-in that runs until it is dropped.
pub trait RunningStandIn: Send {
    /// Where links to it lead, every variant once.
    fn endpoints(&self) -> Vec<Endpoint>;

    /// The same with settings that people meet, where those of the variants are chosen for speed.
    fn typical_endpoints(&self) -> Vec<Endpoint> {
        self.endpoints()
    }
}

/// Why a piece of the lab does not run: what failed, on what, what to try.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LabError(pub String);

impl From<crate::link::LinkError> for LabError {
    fn from(error: crate::link::LinkError) -> LabError {
        LabError(error.to_string())
    }
}
