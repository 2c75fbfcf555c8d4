//! Statistics of studies that count microseconds a message, out and back or one way. The limit is the rate of the link that
//! the plan names, payload alone.

use super::{Path, PlannedCase, Statistic, below};

pub(super) static STATISTICS: [Statistic; 2] = [
    Statistic {
        name: "latency_mean_us",
        unit: "µs",
        of: |case, _| case.figures.latency_ns.as_ref().map(|latency| latency.mean / 1e3),
        limit: |planned| Some(microseconds(planned, |link| link.rate_to)? + from(planned)?),
        predicted: |_| None,
        too_good: below,
        counts_lost: false,
    },
    Statistic {
        name: "message_us",
        unit: "µs",
        of: |case, _| case.figures.messages_per_second.filter(|rate| *rate > 0.0).map(|rate| 1e6 / rate),
        limit: from,
        predicted: |_| None,
        too_good: below,
        counts_lost: false,
    },
];

fn from(planned: &PlannedCase) -> Option<f64> {
    microseconds(planned, |link| link.rate_from)
}

/// What a message takes on the link of its case.
fn microseconds(planned: &PlannedCase, rate: fn(&Path) -> f64) -> Option<f64> {
    let bits = (planned.message_bytes() * u64::from(u8::BITS)) as f64;
    planned.link.map(|link| 1e6 * bits / rate(&link))
}
