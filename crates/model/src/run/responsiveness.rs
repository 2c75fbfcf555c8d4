//! Responsiveness: round trips per minute on a loaded link.

use serde::{Deserialize, Serialize};

/// Responsiveness while connections load the link, by draft-ietf-ippm-responsiveness.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResponsivenessFigures {
    /// Round trips per minute: the mean of the two kinds of probes, or the one that was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rpm: Option<f64>,
    /// Round trips per minute of probes on a connection without load.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_rpm: Option<f64>,
    /// Round trips per minute of probes on the connections of the load.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own_rpm: Option<f64>,
    /// Moving average of the payload that the receiver got per second, at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goodput_bps: Option<f64>,
    /// Connections that carried the load at the end.
    pub load_connections: u64,
    /// Time from the begin of the load until the goodput was stable; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub saturation_ns: Option<f64>,
    /// Longest time in which no connection of the load moved anything; absent where that was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_stall_ns: Option<f64>,
    /// Confidence in the goodput.
    pub goodput_confidence: Confidence,
    /// Confidence in the round trips per minute.
    pub rpm_confidence: Confidence,
}

/// Confidence in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Low: there were fewer intervals than a moving average has.
    Low,
    /// The moving averages still changed at the end.
    Medium,
    /// The moving averages were stable.
    High,
}

impl Confidence {
    /// The name in documents and reports.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}
