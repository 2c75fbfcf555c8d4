//! Marks and changes that the network made in the IP headers of the messages.

use serde::{Deserialize, Serialize};

/// Marks of received messages, by direction; over TCP of segments. Absent where no end reads them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketMarks {
    /// Messages from the client that were received with congestion experienced (CE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_ce: Option<u64>,
    /// Messages from the server that were received with congestion experienced (CE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse_ce: Option<u64>,
    /// Messages from the client that were received with another ECN field than sent, but not CE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_ecn_changed: Option<u64>,
    /// Messages from the server that were received with another ECN field than sent, but not CE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse_ecn_changed: Option<u64>,
    /// Messages from the client that were received with another DSCP than sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_dscp_changed: Option<u64>,
    /// Messages from the server that were received with another DSCP than sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse_dscp_changed: Option<u64>,
}

impl PacketMarks {
    /// Adds the counts of another repetition.
    pub fn add(&mut self, other: &PacketMarks) {
        for (sum, more) in [
            (&mut self.forward_ce, other.forward_ce),
            (&mut self.reverse_ce, other.reverse_ce),
            (&mut self.forward_ecn_changed, other.forward_ecn_changed),
            (&mut self.reverse_ecn_changed, other.reverse_ecn_changed),
            (&mut self.forward_dscp_changed, other.forward_dscp_changed),
            (&mut self.reverse_dscp_changed, other.reverse_dscp_changed),
        ] {
            *sum = sum.map_or(more, |sum| Some(sum.saturating_add(more.unwrap_or(0))));
        }
    }
}
