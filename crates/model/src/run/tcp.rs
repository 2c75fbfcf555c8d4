//! Figures of a transfer over TCP, by RFC 6349.

use serde::{Deserialize, Serialize};

/// Efficiency of TCP on its path, by the counters of the sending system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TcpFigures {
    /// Shortest round trip that the sender's TCP saw.
    pub base_rtt_ns: f64,
    /// Largest packet that the path carries, headers of IP included.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_mtu_bytes: Option<u64>,
    /// The rate of delivery: the median estimate of the sender's TCP, or the throughput if that is higher. Of one connection.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bottleneck_bps: Option<f64>,
    /// Bandwidth-delay product: the bottleneck × the base RTT.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bdp_bytes: Option<f64>,
    /// Transfer time ratio: the time of the transfer ÷ that at the rate of the bottleneck. 1 is best.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transfer_time_ratio: Option<f64>,
    /// Share of the sent bytes that were not retransmissions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tcp_efficiency_percent: Option<f64>,
    /// Mean round trip of the sender's TCP under load above the base RTT, in percent of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub buffer_delay_percent: Option<f64>,
}
