//! A timer that starts with the request: delayed acknowledgements, packing, retransmission.

use super::{Cause, CauseFamily, Knob, Plant, RateKnob, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "timer",
    summary: "something waits for a fixed time from an event: a second group of latencies, or all of them, at a known distance",
    causes: &[
        Cause {
            id: "delayed_ack_nagle",
            name: "delayed ACK here with Nagle at the server",
            applies: |target| target.has_delayed_acknowledgements(),
            // Linux: 40 ms, and up to one tick more.
            signature: Signature::Timer { delay_ms: 42.0, tolerance_ms: 2.5 },
            counter: Some("TcpExt DelayedACKs: one for each request"),
            knob: Knob::UrlOption { name: "quickack", value: "1" },
            remedy: "set TCP_NODELAY in the server, or send each reply with one write",
            plant: Plant::Lab("lab trouble --split-write 10 --nagle"),
        },
        Cause {
            id: "delayed_ack",
            name: "delayed ACK stops a one-way transfer",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Hidden,
            counter: Some("TcpExt DelayedACKs of the receiver: each stops the sender for up to 40 ms"),
            knob: Knob::Rate(RateKnob::Acknowledgements),
            remedy: "have more data on the way (send buffer, window), or acknowledge at once at the receiver (?quickack=1)",
            plant: Plant::NotHere("Linux acknowledges at once what its program has read"),
        },
        Cause {
            id: "nagle_here",
            name: "Nagle here with delayed ACK at the server",
            applies: |target| {
                target.has_delayed_acknowledgements() && target.endpoint.option("nodelay") == Some("0")
            },
            signature: Signature::Timer { delay_ms: 42.0, tolerance_ms: 2.5 },
            counter: None,
            knob: Knob::UrlOption { name: "nodelay", value: "1" },
            remedy: "set TCP_NODELAY in the client (?nodelay=1), or send each request with one write",
            plant: Plant::Lab("a client with several writes and ?nodelay=0"),
        },
        Cause {
            id: "delayed_ack_windows",
            name: "delayed ACK of a Windows host (200 ms)",
            applies: |target| target.has_delayed_acknowledgements() && !target.is_local,
            signature: Signature::Timer { delay_ms: 200.0, tolerance_ms: 3.0 },
            counter: None,
            knob: Knob::Missing(
                "the acknowledgements are those of the other host. Try TcpAckFrequency = 1 there",
            ),
            remedy: "set TCP_NODELAY on the host that sends in several writes",
            plant: Plant::NotHere("needs a Windows host"),
        },
        Cause {
            id: "retransmission_timeout",
            name: "TCP retransmission timeout after a loss",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Timer { delay_ms: 206.0, tolerance_ms: 8.0 },
            counter: Some("TcpExt TCPTimeouts, Tcp RetransSegs, tcpi_total_retrans"),
            knob: Knob::Missing("the loss is in the network. Try another path, cable or queue"),
            remedy: "remove the loss of the path, or lower the minimum timeout (ip route … rto_min)",
            plant: Plant::Lab("netem loss 1% in a guest"),
        },
        Cause {
            id: "uart_fifo_timeout",
            name: "FIFO timeout of a UART (4 characters)",
            applies: |target| target.caps.is_serial_device(),
            signature: Signature::CharacterTimer { characters: 4.0 },
            counter: Some("rx_trig_bytes of the port in sysfs"),
            knob: Knob::DeviceSetting { name: "rx_trig_bytes", value: "1" },
            remedy: "lower the receive trigger of the FIFO (rx_trig_bytes)",
            plant: Plant::Lab("lab uart --fifo 8"),
        },
        Cause {
            id: "serial_turn_around",
            name: "turn-around time of a bus (3.5 characters)",
            applies: |target| target.caps.link_rate.is_some(),
            signature: Signature::CharacterTimer { characters: 3.5 },
            counter: None,
            knob: Knob::Missing("the pause is part of the protocol of the bus, as of Modbus RTU"),
            remedy: "raise the baud rate, or use a protocol without pauses",
            plant: Plant::Lab("lab uart with a device that waits"),
        },
        Cause {
            id: "device_server_packing",
            name: "device server or adapter that packs or waits",
            applies: |target| target.is_device_server(),
            signature: Signature::LineExcess,
            counter: None,
            knob: Knob::Missing(
                "only the device server can change it. Try a packing length or delimiter there that fits the message",
            ),
            remedy: "lower the inter-character or force-transmit time of the device server, or set a delimiter",
            plant: Plant::Lab("lab device-server --inter-character-timeout 20ms"),
        },
        Cause {
            id: "timer_slack",
            name: "timer slack of the server",
            applies: |target| target.is_local,
            signature: Signature::Timer { delay_ms: 0.055, tolerance_ms: 0.004 },
            counter: None,
            knob: Knob::Missing("only the server can change it. Try prctl(PR_SET_TIMERSLACK, 1) there"),
            remedy: "set PR_SET_TIMERSLACK to 1 ns in the server, or do not sleep before a reply",
            plant: Plant::Lab("lab trouble --delay 1us"),
        },
    ],
};
