//! Costs of each byte: the line, copies, fragments.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, RateKnob, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "per byte",
    summary: "latency grows linearly with the message size",
    causes: &[
        Cause {
            id: "serial_line",
            name: "time of the characters on the line",
            applies: |target| target.caps.link_rate.is_some(),
            signature: Signature::Hidden,
            counter: None,
            knob: Knob::MessageSize,
            remedy: "raise the baud rate at both ends, or send fewer bytes",
            plant: Plant::Lab("lab uart (9600 baud)"),
        },
        Cause {
            id: "per_byte_cost",
            name: "cost of each byte (rate of the link, copies)",
            applies: |target| target.caps.link_rate.is_none(),
            signature: Signature::Hidden,
            counter: None,
            knob: Knob::MessageSize,
            remedy: "send fewer bytes, or use a faster link",
            plant: Plant::Lab("lab shaper --rate 1Mbit/s"),
        },
        Cause {
            id: "fragmentation",
            name: "fragments above the path MTU",
            applies: |target| target.caps.max_message_bytes.is_some() && !target.is_local,
            signature: Signature::Hidden,
            counter: Some("Ip FragCreates, tcpi_pmtu"),
            knob: Knob::Missing(
                "the probe sends small messages. Try: linkgauge latency URL --size 1400,1500,2000",
            ),
            remedy: "keep datagrams below the path MTU",
            plant: Plant::Lab("a veth pair with a small MTU"),
        },
        Cause {
            id: "message_cost",
            name: "cost of each message (calls, headers)",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: None,
            knob: Knob::Rate(RateKnob::MessageSize),
            remedy: "send larger messages (--size)",
            plant: Plant::Lab("linkgauge throughput --size 64"),
        },
    ],
};
