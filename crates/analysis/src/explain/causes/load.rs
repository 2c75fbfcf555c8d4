//! Queues that the load itself fills.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, RateKnob, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
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
                "the probe sends one request at a time. Try: linkgauge explain URL --workload throughput",
            ),
            remedy: "limit the rate below that of the link, or use fq_codel or cake at the bottleneck",
            plant: Plant::Lab("lab shaper --rate 10Mbit/s --queue 1000"),
        },
        Cause {
            id: "radio_busy",
            name: "radio channel that other stations use",
            applies: |target| target.is_remote(),
            signature: Signature::Hidden,
            counter: Some("channel busy time of the interface (iw dev WLAN survey dump)"),
            knob: Knob::Missing("the other stations are not ours. Try another channel, or a cable"),
            remedy: "use a channel with fewer stations, 5 or 6 GHz, or a cable",
            plant: Plant::Lab("lab shaper --wait 3ms@35%"),
        },
        Cause {
            id: "link_rate_reached",
            name: "rate of the link",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some("share of the payload that a serial line can carry; tcpi_rtt grows under load"),
            knob: Knob::Rate(RateKnob::LowerRate),
            remedy: "use a faster link, or send less",
            plant: Plant::Lab("lab shaper --rate 10Mbit/s"),
        },
        Cause {
            id: "policed_rate",
            name: "policer that drops above a rate",
            applies: |target| target.caps.link_rate.is_none(),
            signature: Signature::Hidden,
            counter: Some("messages lost, or segments sent again, without a longer round trip"),
            knob: Knob::Rate(RateKnob::LowerRate),
            remedy: "send below the policed rate (--bit-rate, ?pacing_rate=), or have the network shape instead of police",
            plant: Plant::Lab("lab shaper --police 10Mbit/s"),
        },
        Cause {
            id: "requested_pacing",
            name: "pacing that was requested",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Hidden,
            counter: Some("tcpi_pacing_rate equal to the rate, tcpi_max_pacing_rate set"),
            knob: Knob::Rate(RateKnob::Pacing),
            remedy: "raise or remove the pacing rate",
            plant: Plant::Lab("?pacing_rate=20Mbit/s"),
        },
    ],
};
