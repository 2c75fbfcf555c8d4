//! What a transport gets besides the endpoint.

use std::time::Duration;

use super::SharedResources;
use super::mem::MemNetwork;
use crate::clock::Clock;
use crate::plan::WaitMode;

/// Context for opening, besides the endpoint.
#[derive(Debug, Clone)]
pub struct OpenContext {
    /// The clock that the link uses.
    pub clock: Clock,
    /// The servers that live in this process.
    pub memory_network: MemNetwork,
    /// What the links of this process share, as a LINX node.
    pub(crate) shared_resources: SharedResources,
    /// Timeout for opening.
    pub timeout: Duration,
    /// Whether the link blocks or busy-polls, until a party tunes it.
    pub wait: WaitMode,
    /// Used if the endpoint names no port.
    pub(crate) default_port: Option<u16>,
}
