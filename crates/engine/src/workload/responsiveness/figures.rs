//! Figures of a measurement of responsiveness: the round trips on the connections of the load, the delivered payload, and
//! the result of the conductor.

use crate::workload::{FlowRole, MeasuredFlows, merged_recorder, throughput};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::Figures;

/// The figures of a repetition.
pub fn figures(measured: &MeasuredFlows) -> Figures {
    let delivery = (throughput::WORKLOAD.figures)(measured).delivery;
    let Some(probes) = merged_recorder(measured.flows, FlowRole::RoundTrip) else {
        return Figures { delivery, ..Figures::default() };
    };
    let mut figures = Figures { delivery, ..probes.latency_figures(measured.late_limits) };
    if measured.direction == Direction::Loop
        && let Some(sender) = merged_recorder(measured.flows, FlowRole::Upload)
    {
        let (bytes, elapsed_ns) = (probes.counts.delivered_bytes, sender.elapsed_ns());
        figures.delivery.delivered_bytes = Some(bytes);
        figures.delivery.throughput_bps = (elapsed_ns > 0).then(|| bytes as f64 * 8e9 / elapsed_ns as f64);
    }
    // The number of blocks says nothing.
    figures.delivery.messages_per_second = None;
    figures.responsiveness =
        measured.flows.iter().find_map(|flow| flow.recorder.responsiveness.as_deref().copied());
    figures
}
