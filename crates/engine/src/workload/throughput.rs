//! Throughput: payload that one side sends and the other receives and counts. Only delivered payload counts.
//!
//! The two sides are `Source` and `Sink`, either of them on client or server. Over a loopback plug or an echo
//! (direction `loop`) the client has both, on the two halves of one link, and compares every returned byte with the
//! sent one.

pub mod comparison;
mod figures;
pub mod header;
mod keepalive;
mod loopback;
mod received_data;
mod sender_limits;
mod sequence_tracker;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{TrafficKind, Workload};
use crate::link::{Caps, Framing};
pub use comparison::LoopbackState;
use linkgauge_model::plan::{Direction, Pacing, StopCondition};
pub(crate) use sender_limits::{drain_time, overtime, planned_time};
pub(crate) use sink::Sink;
pub(crate) use source::Source;

/// The `throughput` workload.
pub const WORKLOAD: Workload = Workload {
    name: "throughput",
    summary: "payload delivered per second, in one direction or both",
    traffic: TrafficKind::Load,
    default_stop: StopCondition {
        count: None,
        time_ns: Some(10_000_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    has_repetitions: false,
    default_direction: Direction::Send,
    // Long enough for a retransmission timeout over a satellite.
    default_timeout: Duration::from_secs(5),
    default_size,
    default_warm_up: StopCondition::UNLIMITED,
    method: |load| match load.pacing {
        Pacing::Closed => "throughput/1 unpaced".to_owned(),
        _ => "throughput/1 paced".to_owned(),
    },
    figures: figures::figures,
};

/// One write of a stream: on loopback it costs 10 % less per byte than a write of half the size, and twice the size
/// gains nothing. On a serial line the bytes of 10 ms, rounded down to a power of two: small enough that the line
/// limits the rate, large enough that system calls do not. A message: fits an Ethernet frame through most tunnels.
fn default_size(caps: &Caps) -> u32 {
    match caps.framing {
        Framing::Stream
            if caps.is_device
                && let Some(line) = caps.link_rate =>
        {
            1 << line.bytes_in(Duration::from_millis(10)).ilog2().min(18)
        }
        Framing::Stream => 262_144,
        Framing::Message => 1_400.min(caps.max_message_bytes.unwrap_or(1_400)) as u32,
    }
}

/// Maximum bytes for one send: a full packet of segments, or one write.
const MAX_SEND_BATCH_BYTES: usize = 65_507;
