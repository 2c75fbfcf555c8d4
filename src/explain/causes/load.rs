//! Queues that the load itself fills.

use super::{Cause, Family, Knob, Plant, Signature};

pub(super) const FAMILY: Family = Family {
    name: "load",
    summary: "latency grows with the load: a queue fills",
    causes: &[
        Cause {
            id: "bufferbloat",
            name: "queue of a slow link (bufferbloat)",
            applies: |target| target.caps.link_rate.is_none(),
            signature: Signature::Hidden,
            counter: Some("tcpi_rtt far above tcpi_min_rtt under load"),
            knob: Knob::Missing(
                "the probe sends one request at a time. Try: linkgauge throughput URL, which measures latency under load",
            ),
            remedy: "limit the rate below that of the link, or use fq_codel or cake at the bottleneck",
            plant: Plant::Lab("lab shaper --rate 10Mbit/s --queue 1000"),
        },
        Cause {
            id: "link_rate_reached",
            name: "rate of the link",
            applies: |target| target.caps.link_rate.is_none(),
            signature: Signature::Hidden,
            counter: Some("tcpi_delivery_rate equal to the rate of the link"),
            knob: Knob::Missing(
                "compare rates. Try: linkgauge ab --workload throughput with 1 and 4 connections",
            ),
            remedy: "use a faster link, or send less",
            plant: Plant::Lab("lab shaper --rate 10Mbit/s"),
        },
        Cause {
            id: "requested_pacing",
            name: "pacing that was requested",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Hidden,
            counter: Some("tcpi_pacing_rate equal to the rate, tcpi_max_pacing_rate set"),
            knob: Knob::Missing(
                "compare rates with and without the limit (linkgauge ab --workload throughput)",
            ),
            remedy: "raise or remove the pacing rate",
            plant: Plant::Lab("SO_MAX_PACING_RATE"),
        },
    ],
};
