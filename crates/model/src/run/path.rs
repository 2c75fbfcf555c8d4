//! The path to the host of a case, as hop-limited probes saw it.
//!
//! A router that drops a packet whose hop limit is used up says so to the sender. Such a reply measures the path and the router's control
//! processor, which may be slow and may limit its replies, so only what later hops show as well is a fact about the path.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The path to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// The address of the host.
    pub address: IpAddr,
    /// Kind of the probes: `udp`, `icmp` or `tcp`.
    pub probe: String,
    /// Destination port of the probes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// Flows with different ports. Equal-cost paths are chosen by the ports, so each flow may take another path.
    pub flows: u32,
    /// Whether the host, or a router in its place, ended the path, and why.
    pub end: PathEnd,
    /// The router that refused the probes, if one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused_by: Option<IpAddr>,
    /// The hops, from 1.
    pub hops: Vec<PathHop>,
    /// Place where loss begins that later hops show as well: the loss under load, if the case has a load.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub loss: Option<PathLoss>,
    /// Place where the load of the case queues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queue: Option<PathQueue>,
    /// The largest packet that fits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<PathMtu>,
}

/// End of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathEnd {
    /// The host replied.
    Reached,
    /// A router refused to forward the probes.
    Refused,
    /// No host replied beyond the last hop.
    Silent,
}

/// One hop of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathHop {
    /// The hop limit of its probes.
    pub hop: u8,
    /// Hosts that replied, the most frequent first; several for equal-cost paths.
    pub hosts: Vec<PathHost>,
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that were answered.
    pub answered: u64,
    /// Round-trip times to the hop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_ns: Option<HopTimes>,
    /// Figures of the hop while the load of the case ran; the other figures are then those of the idle path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub loaded: Option<LoadedHop>,
}

/// A host that replied at a hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHost {
    /// Address of the host.
    pub address: IpAddr,
    /// Name of the host, as the resolver of the client knows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Number of replies of the host.
    pub answered: u64,
    /// The flows to which it replied, from 1.
    pub flows: Vec<u32>,
}

/// Times of the replies of a hop, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HopTimes {
    /// Fastest reply.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile by nearest rank: up to 99 replies the slowest.
    pub p99: u64,
    /// Slowest reply.
    pub max: u64,
    /// Mean difference of consecutive replies.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter: Option<f64>,
}

/// A hop during the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadedHop {
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that were answered.
    pub answered: u64,
    /// Round trips.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_ns: Option<HopTimes>,
    /// Median with load minus idle median, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_ns: Option<f64>,
    /// The least growth of this hop and of all later ones: what the path up to here adds, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lasting_ns: Option<f64>,
}

/// Loss that begins at a hop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PathLoss {
    /// The first hop that shows it.
    pub hop: u8,
    /// The share of probes that this hop and all those behind it lose at least, 0 to 1.
    pub share: f64,
    /// Lost probes to this hop.
    pub lost: u64,
    /// Probes to this hop.
    pub sent: u64,
}

/// Place of the queue, as far as it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathQueue {
    /// The verdict.
    pub verdict: QueueVerdict,
    /// The last hop before the queue; 0 is the client. Absent: none was found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after_hop: Option<u8>,
    /// The first hop behind it. Absent with `after_hop`: it is behind the last hop that replied.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before_hop: Option<u8>,
    /// The delay that this queue adds, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delay_ns: Option<f64>,
    /// The lasting growth of the whole path, in ns.
    pub total_ns: f64,
    /// The share of resamplings of the replies with the same verdict, 0 to 1.
    pub agreement: f64,
    /// Delay that the load's own probe adds, in ns: it needs no replies of routers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_added_ns: Option<f64>,
}

/// Verdict about the growth of the hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueVerdict {
    /// One link adds most of the delay.
    Found,
    /// No hop grows.
    None,
    /// Several links add delay, none of them most of it.
    Spread,
    /// The replies under load are too few.
    TooFewReplies,
}

/// The largest packet that passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathMtu {
    /// Bytes of the largest IP packet that passed whole.
    pub bytes: u32,
    /// The last hop that still replies to a packet that is too large for the path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_hop: Option<u8>,
    /// The router that reported the limit. Absent with a limit: larger packets vanish without a report.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_by: Option<IpAddr>,
    /// The limit is that of the local interface.
    pub is_local: bool,
    /// Whether larger packets vanish, and nothing reports it.
    pub is_black_hole: bool,
    /// Number of packets that were sent to find it.
    pub probes: u32,
}
