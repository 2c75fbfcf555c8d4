//! Statistics of studies that count microseconds per message, for a round trip or one way. The limit is the payload
//! time at the link rate of the plan.

use super::protocol_counters::UNLIMITED;
use super::{DelayedLink, PlannedCase, StudyStatistic, is_below_limit};

pub(super) static STATISTICS: [StudyStatistic; 4] = [
    StudyStatistic {
        name: "latency_mean_us",
        unit: "µs",
        measured: |case, _| case.figures.times.latency_ns.as_ref().map(|latency| latency.mean / 1e3),
        theoretical_limit: |planned| {
            Some(link_microseconds(planned, |link| link.rate_to)? + receive_microseconds(planned)?)
        },
        predicted: |_| None,
        is_beyond_limit: is_below_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "message_us",
        unit: "µs",
        measured: |case, _| {
            case.figures.delivery.messages_per_second.filter(|rate| *rate > 0.0).map(|rate| 1e6 / rate)
        },
        theoretical_limit: receive_microseconds,
        predicted: |_| None,
        is_beyond_limit: is_below_limit,
        includes_lost: false,
    },
    StudyStatistic {
        name: "client_cpu_percent",
        unit: "%",
        measured: |case, _| case.cpu_shares().map(|(client, _)| 100.0 * client),
        ..UNLIMITED
    },
    StudyStatistic {
        name: "server_cpu_percent",
        unit: "%",
        measured: |case, _| case.cpu_shares()?.1.map(|server| 100.0 * server),
        ..UNLIMITED
    },
];

fn receive_microseconds(planned: &PlannedCase) -> Option<f64> {
    link_microseconds(planned, |link| link.rate_from)
}

/// Time of a message on the link of its case.
fn link_microseconds(planned: &PlannedCase, rate: fn(&DelayedLink) -> f64) -> Option<f64> {
    let bits = (planned.message_bytes() * u64::from(u8::BITS)) as f64;
    planned.link.map(|link| 1e6 * bits / rate(&link))
}
