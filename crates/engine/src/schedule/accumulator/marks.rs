//! Marks of the messages of a repetition, from what both ends read.

use crate::link::marks::MarkCounts;
use crate::workload::{FlowResult, FlowRole, ServerReport};
use linkgauge_model::run::{Evidence, PacketMarks};

/// The marks of datagrams: forward as the server reports them, reverse as this end read them.
pub(super) fn packet_marks(flows: &[FlowResult], report: Option<&ServerReport>) -> PacketMarks {
    let measured = flows.iter().filter(|flow| !matches!(flow.role, FlowRole::Probe | FlowRole::Control));
    let was_read = |marks: &MarkCounts| marks.messages > 0;
    let forward = report.and_then(|report| report.marks.as_deref().copied()).filter(was_read);
    let mut received = MarkCounts::default();
    measured.filter_map(|flow| flow.marks.as_ref()).for_each(|marks| received.add(marks));
    let reverse = Some(received).filter(was_read);
    PacketMarks {
        forward_ce: forward.map(|marks| marks.ce),
        reverse_ce: reverse.map(|marks| marks.ce),
        forward_ecn_changed: forward.map(|marks| marks.ecn_changed),
        reverse_ecn_changed: reverse.map(|marks| marks.ecn_changed),
        forward_dscp_changed: forward.map(|marks| marks.dscp_changed),
        reverse_dscp_changed: reverse.map(|marks| marks.dscp_changed),
    }
}

/// Adds the marked segments of TCP connections that use ECN, as the senders' kernels counted them.
pub(super) fn add_segment_marks(marks: &mut PacketMarks, evidence: Option<&Evidence>) {
    let Some(evidence) = evidence else { return };
    let delivered = |end: &linkgauge_model::run::EndEvidence| {
        let uses_ecn = end.gauge("tcp_ecn").is_some_and(|gauge| gauge.max > 0);
        end.counter("tcp_delivered_ce_segments").filter(|_| uses_ecn)
    };
    marks.forward_ce = marks.forward_ce.or_else(|| delivered(&evidence.client));
    marks.reverse_ce = marks.reverse_ce.or_else(|| delivered(evidence.server.as_ref()?));
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::run::{EndEvidence, Gauge};

    #[test]
    fn segments_count_where_the_connection_uses_ecn() {
        let end = |uses_ecn: u64, ce: u64| {
            let mut end = EndEvidence::default();
            end.connections.counters.insert("tcp_delivered_ce_segments".to_owned(), ce);
            let gauge = Gauge { min: uses_ecn, median: uses_ecn, max: uses_ecn, readings: 3 };
            end.connections.gauges.insert("tcp_ecn".to_owned(), gauge);
            end
        };
        let evidence = Evidence { client: end(1, 7), server: Some(end(0, 9)) };
        let mut marks = PacketMarks::default();
        add_segment_marks(&mut marks, Some(&evidence));
        assert_eq!(marks, PacketMarks { forward_ce: Some(7), ..PacketMarks::default() });
    }
}
