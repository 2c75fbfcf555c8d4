//! Context that a transport gets besides the endpoint.

use std::time::Duration;

use super::mem::MemNetwork;
use super::{Hosts, SharedResources};
use linkgauge_model::clock::Clock;
use linkgauge_model::plan::WaitMode;

/// Context for opening, besides the endpoint.
#[derive(Debug, Clone)]
pub struct OpenContext {
    /// The clock that the link uses.
    pub clock: Clock,
    /// The servers that live in this process.
    pub memory_network: MemNetwork,
    /// Resources that the links of this process share, such as a LINX node.
    pub(crate) shared_resources: SharedResources,
    /// The addresses of names, and which of them has answered.
    pub(crate) hosts: Hosts,
    /// Timeout for opening.
    pub timeout: Duration,
    /// Time after the first packet to wait for the report that a host is unreachable, if this is longer than the timeout.
    pub(crate) report_time: Duration,
    /// Whether the link blocks or busy-polls, until a party tunes it.
    pub wait: WaitMode,
    /// Whether a listener on all IPv6 addresses leaves those of IPv4 to another listener.
    pub(crate) is_v6_only: bool,
    /// Port of endpoints that name none.
    pub(crate) default_port: Option<u16>,
}
