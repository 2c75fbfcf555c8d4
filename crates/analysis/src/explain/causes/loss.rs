//! Losses and their repair.

use super::{Cause, CauseFamily, Knob, Plant, RateKnob, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "loss",
    summary: "packets are lost and sent again: groups at the distances of the timers, and counters of retransmissions",
    causes: &[
        Cause {
            id: "path_loss",
            name: "loss on the path, repaired by TCP",
            applies: |target| target.has_delayed_acknowledgements() && !target.is_local,
            signature: Signature::Retransmissions,
            counter: Some("tcpi_total_retrans of both ends: one for each slow request"),
            knob: Knob::Missing("the loss is in the network. Try another path, cable or queue"),
            remedy: "remove the loss of the path: cable, radio, a short queue, a policer",
            plant: Plant::Lab("netem loss 1% in a guest"),
        },
        Cause {
            id: "tail_loss_probe",
            name: "tail loss probe",
            applies: |target| target.has_delayed_acknowledgements() && !target.is_local,
            signature: Signature::Hidden,
            counter: Some("TcpExt TCPLossProbes"),
            knob: Knob::Missing("the loss is in the network. Try another path, cable or queue"),
            remedy: "remove the loss of the path",
            plant: Plant::Lab("netem loss 1% in a guest"),
        },
        Cause {
            id: "loss_limited_window",
            name: "congestion control limited by loss",
            applies: |target| target.has_delayed_acknowledgements() && !target.is_local,
            signature: Signature::Hidden,
            counter: Some("tcpi_bytes_retrans above 0.01 % of tcpi_bytes_sent, tcpi_rtt near tcpi_min_rtt"),
            knob: Knob::Rate(RateKnob::CongestionControl),
            remedy: "remove the loss, use bbr, or use several connections",
            plant: Plant::Lab("netem loss 0.5% in a guest"),
        },
        Cause {
            id: "reordering",
            name: "reordering that looks like loss",
            applies: |target| target.has_delayed_acknowledgements() && !target.is_local,
            signature: Signature::Hidden,
            counter: Some("tcpi_reord_seen, tcpi_dsack_dups, TcpExt TCPSACKReorder"),
            knob: Knob::Missing("this changes the whole host. Try: sysctl net.ipv4.tcp_reordering"),
            remedy: "keep the packets of a connection on one path",
            plant: Plant::Lab("netem reorder in a guest"),
        },
        Cause {
            id: "uart_overrun",
            name: "characters lost in the UART (overrun)",
            applies: |target| target.caps.link_rate.is_some(),
            signature: Signature::Hidden,
            counter: Some("overruns of the port (TIOCGICOUNT, RFC 2217)"),
            knob: Knob::Missing(
                "flow control needs both ends. Try: ?flow=rtscts at both, or a lower baud rate",
            ),
            remedy: "use flow control (?flow=rtscts), a lower baud rate, or a lower receive trigger (rx_trig_bytes)",
            plant: Plant::NotHere("pseudo-terminals do not count errors"),
        },
        Cause {
            id: "line_noise",
            name: "characters with errors (framing, parity)",
            applies: |target| target.caps.link_rate.is_some(),
            signature: Signature::Hidden,
            counter: Some("framing and parity errors of the port (TIOCGICOUNT, RFC 2217)"),
            knob: Knob::Missing(
                "both ends must change. Try another cable, or the same baud rate and frame at both",
            ),
            remedy: "set the same baud rate and frame at both ends, and check cable, ground and termination",
            plant: Plant::NotHere("pseudo-terminals do not count errors"),
        },
        Cause {
            id: "receiver_socket_overflow",
            name: "overflow of the receiver's socket",
            applies: |target| target.caps.max_message_bytes.is_some() && target.has_option("rcvbuf"),
            signature: Signature::Hidden,
            counter: Some("Udp RcvbufErrors, receiver socket drops"),
            knob: Knob::Rate(RateKnob::ReceiveBuffer),
            remedy: "raise the receive buffer (?rcvbuf=), or read faster",
            plant: Plant::Lab("linkgauge throughput udp://… --rate max with ?rcvbuf=4Ki"),
        },
    ],
};
