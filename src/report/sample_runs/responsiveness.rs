//! A run of responsiveness, with every figure of it and of TCP.

use super::{case, latency_figures, rate_figures, run};
use crate::plan::Direction;
use crate::run::{AddedLatency, Confidence, Figures, ResponsivenessFigures, Run, TcpFigures};

/// Probes in a load over TCP, and beside it.
pub fn responsiveness() -> Run {
    let delivery = rate_figures(4_900_000.0).delivery;
    let figures = Figures { delivery, ..latency_figures(224_000_000, 981) };
    let mut case = case("tcp://192.0.2.7:7100", "responsiveness", Direction::Send, 16_384, figures);
    case.idle = Some(latency_figures(20_200_000, 1000));
    case.under_load = Some(latency_figures(221_000_000, 1000));
    case.figures.added_latency = Some(AddedLatency {
        idle_p50_ns: 20_200_000.0,
        added_p50_ns: Some(200_800_000.0),
        added_p95_ns: Some(230_000_000.0),
        added_p99_ns: Some(260_000_000.0),
        added_forward_p50_ns: Some(200_800_000.0),
        added_reverse_p50_ns: Some(12_000.0),
        recovery_ns: Some(210_000_000.0),
    });
    case.figures.responsiveness = Some(ResponsivenessFigures {
        rpm: Some(269.7),
        foreign_rpm: Some(271.5),
        own_rpm: Some(267.9),
        goodput_bps: Some(4_912_000.0),
        load_connections: 4,
        saturation_ns: Some(7e9),
        goodput_confidence: Confidence::High,
        rpm_confidence: Confidence::Medium,
    });
    case.figures.delivery.capacity_bps = Some(5_120_000.0);
    case.figures.tcp = Some(TcpFigures {
        base_rtt_ns: 20_100_000.0,
        path_mtu_bytes: Some(1500),
        bottleneck_bps: Some(4_960_000.0),
        bdp_bytes: Some(12_462.0),
        transfer_time_ratio: Some(1.012),
        tcp_efficiency_percent: Some(99.2),
        buffer_delay_percent: Some(998.0),
    });
    run(None, vec![case])
}
