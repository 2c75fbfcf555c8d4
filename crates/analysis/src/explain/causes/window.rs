//! A window: a limited amount of data on its way.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, RateKnob, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "window",
    summary: "rate times round trip time is constant: a buffer or a protocol limits the data on its way",
    causes: &[
        Cause {
            id: "receive_window",
            name: "receive window too small",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Hidden,
            counter: Some("tcpi_rwnd_limited above half of tcpi_busy_time"),
            knob: Knob::Rate(RateKnob::ReceiveBuffer),
            remedy: "raise the receive buffer of the server",
            plant: Plant::Lab("serve tcp://:7333?rcvbuf=4Ki, lab trouble --receive-buffer 4Ki"),
        },
        Cause {
            id: "slow_reader",
            name: "receiving program too slow",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Hidden,
            counter: Some("tcpi_rwnd_limited above half of tcpi_busy_time, and unread bytes at the server"),
            knob: Knob::Missing(
                "a larger receive buffer has no effect then, which explain --workload throughput shows",
            ),
            remedy: "read faster in the server",
            plant: Plant::Lab("lab trouble --read-rate 1Mbit/s"),
        },
        Cause {
            id: "send_buffer",
            name: "send buffer too small",
            applies: |target| target.has_option("sndbuf") || target.has_option("buffer"),
            signature: Signature::Hidden,
            counter: Some("the sender is always in write, tcpi_delivery_rate_app_limited is set"),
            knob: Knob::Rate(RateKnob::SendBuffer),
            remedy: "leave the send buffer to the kernel, or raise it",
            plant: Plant::Lab("?sndbuf=64Ki over a delay"),
        },
        Cause {
            id: "application_limited",
            name: "the sender offers too little",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some("tcpi_delivery_rate_app_limited is set, and the sender is seldom in write"),
            knob: Knob::Missing("only the sender can offer more. Try a higher --bit-rate"),
            remedy: "send more at once, or over several connections",
            plant: Plant::Lab("linkgauge throughput --rate 10M"),
        },
        Cause {
            id: "connection_limit",
            name: "limit of each connection",
            applies: |target| target.caps.can_open_parallel,
            signature: Signature::Hidden,
            counter: None,
            knob: Knob::Rate(RateKnob::Connections),
            remedy: "use several connections, or look for a limit of each of them (window, rate, thread of the server)",
            plant: Plant::Lab("mem://x?rate=10Mbit/s"),
        },
        Cause {
            id: "stop_and_wait",
            name: "one chunk for each round trip",
            applies: |target| target.caps.is_reliable,
            signature: Signature::Hidden,
            counter: Some("bytes for each round trip of a download (linkgauge explain RUN)"),
            knob: Knob::Missing("downloads only. Try: linkgauge download URL --window 4"),
            remedy: "request several chunks at a time (--window), or larger ones",
            plant: Plant::Lab("lab logger over lab shaper --delay 20ms"),
        },
    ],
};
