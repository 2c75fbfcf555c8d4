//! Comparison of the connections of a case, and the number of those that were opened.

use serde::{Deserialize, Serialize};

/// Figures over the connections of a case that has several to an endpoint. Of several repetitions, the one with the lowest
/// [`FlowFigures::min_max_ratio`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowFigures {
    /// Connections that were measured.
    #[serde(rename = "flows")]
    pub count: u64,
    /// Jain's index of what the connections transferred: replies of round trips, otherwise bytes. 1 ÷ connections to 1.
    #[serde(rename = "flow_fairness")]
    pub fairness: f64,
    /// The least that a connection transferred ÷ the most, 0 to 1.
    #[serde(rename = "flow_min_max_ratio")]
    pub min_max_ratio: f64,
    /// Smallest mean round trip of a connection. This and the next four: of those with a reply.
    #[serde(rename = "flow_mean_min_ns", skip_serializing_if = "Option::is_none", default)]
    pub mean_min_ns: Option<f64>,
    /// Median of the means, by nearest rank.
    #[serde(rename = "flow_mean_p50_ns", skip_serializing_if = "Option::is_none", default)]
    pub mean_p50_ns: Option<f64>,
    /// 90th percentile of the means.
    #[serde(rename = "flow_mean_p90_ns", skip_serializing_if = "Option::is_none", default)]
    pub mean_p90_ns: Option<f64>,
    /// 99th percentile of the means.
    #[serde(rename = "flow_mean_p99_ns", skip_serializing_if = "Option::is_none", default)]
    pub mean_p99_ns: Option<f64>,
    /// Largest mean round trip of a connection.
    #[serde(rename = "flow_mean_max_ns", skip_serializing_if = "Option::is_none", default)]
    pub mean_max_ns: Option<f64>,
    /// The connections with the longest mean round trips, or with the fewest bytes; the slowest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub slowest_flows: Vec<SlowFlow>,
}

/// Connections that were opened beside the round trips.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that did not open in time.
    pub failed_connections: u64,
}

impl ConnectionCounts {
    /// Adds the counts of another repetition.
    pub fn add(&mut self, other: &ConnectionCounts) {
        self.connections = self.connections.saturating_add(other.connections);
        self.failed_connections = self.failed_connections.saturating_add(other.failed_connections);
    }
}

/// One of the slowest connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowFlow {
    /// Number of the connection among those of the case, from 1.
    pub flow: u64,
    /// Replies of round trips, otherwise bytes.
    pub transferred: u64,
    /// Mean round trip; absent without a reply.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_ns: Option<f64>,
    /// Slowest round trip.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_ns: Option<u64>,
}
