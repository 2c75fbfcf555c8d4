//! The stages of a round trip, as stamped by the kernels of both ends.

use serde::{Deserialize, Serialize};

use super::Distribution;

/// The stages of the round trips whose messages the kernels stamped. Those of one round trip add up to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StageFigures {
    /// Round trips with all their stamps.
    pub stamped: u64,
    /// Round trips that lack a stamp, or whose stamps contradict each other.
    pub unstamped: u64,
    /// Time from the send call until the request was put into the queue of the device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_send_ns: Option<Distribution>,
    /// Time from entering the queue of the device until the request left the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_queue_ns: Option<Distribution>,
    /// Time from the departure of the request until the reply arrived at the host: the network, and the remote host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub beyond_ns: Option<Distribution>,
    /// The part of it that the remote host did not spend. Absent, as the following, if the server reports no stamps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network_ns: Option<Distribution>,
    /// Time from the arrival of the request at the remote host until its program had it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote_receive_ns: Option<Distribution>,
    /// Time from the receipt of the request by the remote program until the program sent the reply.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote_program_ns: Option<Distribution>,
    /// Time from the send call of the remote program until the reply was put into the queue of the device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote_send_ns: Option<Distribution>,
    /// Time from entering the queue of the device until the reply left the remote host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote_queue_ns: Option<Distribution>,
    /// Time from the arrival of the reply at the host until the program had it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_receive_ns: Option<Distribution>,
    /// Difference between a round trip and the sum of its stages: a stage that is negative by rounding counts as 0.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sum_error_ns: Option<Distribution>,
    /// Time that stamps at both ends add to the median round trip over loopback of this host, measured in pairs. Absent: not
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_ns: Option<f64>,
}

/// The name of a stage, and its distribution if it is known.
pub type NamedStage<'a> = (&'static str, Option<&'a Distribution>);

impl StageFigures {
    /// The stages in their order, without gaps: with those of the remote host, if it reported them.
    pub fn parts(&self) -> Vec<NamedStage<'_>> {
        let remote = [
            ("network", &self.network_ns),
            ("remote receive", &self.remote_receive_ns),
            ("remote program", &self.remote_program_ns),
            ("remote send", &self.remote_send_ns),
            ("remote queue", &self.remote_queue_ns),
        ];
        let beyond = [("beyond this host", &self.beyond_ns)];
        let middle = if self.network_ns.is_some() { &remote[..] } else { &beyond[..] };
        let first = [("local send", &self.local_send_ns), ("local queue", &self.local_queue_ns)];
        let last = [("local receive", &self.local_receive_ns)];
        first.iter().chain(middle).chain(&last).map(|(name, times)| (*name, times.as_ref())).collect()
    }
}
