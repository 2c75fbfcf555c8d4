//! Capacity: the rate that a path carries without losses and delay, by the search of RFC 9097.
//!
//! Datagrams are sent at a rate that rises while few are missing and the round trip stays short. The receiver reports every
//! 50 ms. `search` decides without I/O; `sender` and `receiver` are the parties of both ends; `wire` has their datagrams.

mod meter;
mod receiver;
mod search;
mod sender;
pub mod wire;

use std::time::Duration;

use super::{MeasuredFlows, TrafficKind, Workload, throughput};
use crate::link::Caps;
use linkgauge_model::plan::{Direction, StopCondition};
use linkgauge_model::run::Figures;
pub use receiver::CapacityReceiver;
pub(crate) use search::{Algorithm, RateSearch, SearchSettings, ip_rate_bps};
pub use sender::{CapacitySender, Side};

/// The `capacity` workload.
pub(crate) const WORKLOAD: Workload = Workload {
    name: "capacity",
    summary: "highest rate of datagrams that a path carries, by a search",
    traffic: TrafficKind::CapacitySearch,
    default_stop: StopCondition {
        count: None,
        time_ns: Some(10_000_000_000),
        volume_bytes: None,
        min_time_ns: None,
    },
    has_repetitions: false,
    default_direction: Direction::Send,
    default_timeout: Duration::from_secs(1),
    default_size,
    default_warm_up: StopCondition::UNLIMITED,
    method: |_| "9097/B own".to_owned(),
    figures,
};

/// Minimum size of a datagram, in bytes: that of a status of the receiver, and of the header of a load with some payload.
pub(crate) const MIN_DATAGRAM_BYTES: u32 = 64;

/// Default size of a datagram, in bytes: 1250 at the IP layer, as in RFC 9097.
fn default_size(caps: &Caps) -> u32 {
    const PAYLOAD: usize = 1222;
    PAYLOAD.min(caps.max_message_bytes.unwrap_or(PAYLOAD)) as u32
}

pub(crate) fn figures(measured: &MeasuredFlows) -> Figures {
    let mut figures = (throughput::WORKLOAD.figures)(measured);
    let mut sums: Vec<f64> = Vec::new();
    for flow in measured.flows {
        let rates = &flow.recorder.capacity_rates;
        sums.resize(sums.len().max(rates.len()), 0.0);
        sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
    }
    figures.delivery.capacity_bps = sums.into_iter().reduce(f64::max);
    figures
}
