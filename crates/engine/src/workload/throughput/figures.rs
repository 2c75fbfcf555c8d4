//! Figures of a throughput case from the counts of client and server. Only received payload counts as delivered.

use crate::workload::{FlowReport, FlowRole, MeasuredFlows, merged_recorder, receiving_ns};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::Figures;
use linkgauge_model::sample::Recorder;

/// Figures of a repetition.
pub fn figures(measured: &MeasuredFlows) -> Figures {
    let is_loop = measured.direction == Direction::Loop;
    let upload = merged_recorder(measured.flows, FlowRole::Upload);
    let download = merged_recorder(measured.flows, FlowRole::Download);
    let mut totals = Totals::default();
    if let Some(sender) = upload.as_ref().filter(|_| !is_loop) {
        totals.add_upload(measured, sender);
    }
    if let Some(receiver) = &download {
        let has_upload = upload.is_some() && !is_loop;
        totals.add_download(measured, receiver, if has_upload { Leg::Second } else { Leg::Only });
    }
    let Totals { mut figures, mut sent, reverse, drops } = totals;
    if !is_loop && sent > 0 {
        // Where the report of a server is missing, at least what arrived was sent.
        sent = sent.max(figures.counts.received);
    }
    figures.counts.sent = sent;
    let broken_off = download.is_some_and(|receiver| receiver.counts.is_interrupted);
    // An echo may lose data even if its link does not.
    let loses = is_loop || !measured.is_reliable_stream;
    if figures.delivery.delivered_bytes.is_some() && !broken_off && loses {
        figures.counts.lost = sent.saturating_sub(figures.counts.received);
        if let Some((sent, received)) = reverse {
            figures.delivery.sent_reverse = Some(sent.max(received));
            figures.delivery.lost_reverse = Some(sent.saturating_sub(received).min(figures.counts.lost));
        }
    }
    if let Some(drops) = drops {
        figures.counts.receiver_socket_drops = Some(drops.min(figures.counts.lost));
        figures.counts.network_lost = Some(figures.counts.lost.saturating_sub(drops));
    }
    figures
}

/// Role of a download: the only direction, or beside an upload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leg {
    Only,
    Second,
}

/// Sums of both directions.
#[derive(Default)]
struct Totals {
    figures: Figures,
    sent: u64,
    /// Messages sent and received by a download beside an upload.
    reverse: Option<(u64, u64)>,
    drops: Option<u64>,
}

impl Totals {
    fn add_upload(&mut self, measured: &MeasuredFlows, sender: &Recorder) {
        let report = measured.report;
        let mut server_flows =
            report.iter().flat_map(|report| &report.flows).filter(|flow| !flow.inward).peekable();
        self.sent += total_sent(server_flows.clone()).map_or(sender.counts.sent, |(warm_up, _)| {
            measured_sent(sender.counts.warm_up, sender.counts.sent, warm_up)
        });
        // Without a server report only the transport may know what was delivered.
        if server_flows.peek().is_some() {
            let elapsed_ns = receiving_ns(server_flows.clone());
            let none = DeliveredCounts { elapsed_ns, ..DeliveredCounts::default() };
            let delivered = server_flows.fold(none, |all, flow| all.add_report(flow));
            self.drops = add_optional(self.drops, delivered.socket_drops);
            self.add_counts(&delivered);
            self.set_delivery(&delivered);
            self.add_drain(sender.elapsed_ns(), elapsed_ns);
        } else if report.is_none()
            && let Some(delivered) = DeliveredCounts::from_acknowledged(measured, sender)
        {
            self.add_counts(&delivered);
            self.set_delivery(&delivered);
        }
    }

    fn add_download(&mut self, measured: &MeasuredFlows, receiver: &Recorder, leg: Leg) {
        let delivered = DeliveredCounts::from_recorder(receiver);
        let sent = sent_to_client(measured, receiver);
        self.sent = self.sent.saturating_add(sent);
        let downloads = measured.flows.iter().filter(|flow| flow.role == FlowRole::Download);
        self.drops = downloads.map(|flow| flow.socket_drops).fold(self.drops, add_optional);
        let errors = &mut self.figures.byte_errors;
        errors.corrupt_bytes += receiver.counts.corrupt_bytes;
        errors.lost_bytes += receiver.counts.lost_bytes;
        errors.inserted_bytes += receiver.counts.inserted_bytes;
        errors.defects.clone_from(&receiver.defects);
        self.add_counts(&delivered);
        if measured.direction != Direction::Loop {
            let senders = measured.report.iter().flat_map(|report| &report.flows).filter(|flow| flow.inward);
            self.add_drain(receiving_ns(senders), delivered.elapsed_ns);
        }
        match leg {
            Leg::Only => self.set_delivery(&delivered),
            Leg::Second => {
                self.reverse = Some((sent, delivered.messages));
                self.figures.delivery.delivered_reverse_bytes = Some(delivered.bytes);
                self.figures.delivery.throughput_reverse_bps = delivered.rate_bps();
            }
        }
    }

    /// Adds the drain time. Both times begin with the first byte: the difference is the additional wait of the last byte.
    fn add_drain(&mut self, sending_ns: u64, receiving_ns: u64) {
        if sending_ns > 0 && receiving_ns > 0 {
            let drain_ns = receiving_ns.saturating_sub(sending_ns);
            let longest = &mut self.figures.delivery.drain_ns;
            *longest = (*longest).max(Some(drain_ns));
        }
    }

    fn add_counts(&mut self, delivered: &DeliveredCounts) {
        let counts = &mut self.figures.counts;
        for (sum, more) in [
            (&mut counts.received, delivered.messages),
            (&mut counts.duplicate, delivered.duplicate),
            (&mut counts.reordered, delivered.reordered),
            (&mut counts.corrupt_messages, delivered.corrupt_messages),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    fn set_delivery(&mut self, delivered: &DeliveredCounts) {
        self.figures.delivery.delivered_bytes = Some(delivered.bytes);
        self.figures.delivery.throughput_bps = delivered.rate_bps();
        self.figures.delivery.messages_per_second = delivered.messages_per_second();
    }
}

/// Messages sent to the client, or in a loop by the client.
fn sent_to_client(measured: &MeasuredFlows, receiver: &Recorder) -> u64 {
    if measured.direction == Direction::Loop {
        // Without an upload flow, the receiving client has sent as well.
        return merged_recorder(measured.flows, FlowRole::Upload).map_or(receiver.counts.sent, |source| {
            measured_sent(source.counts.warm_up, source.counts.sent, receiver.counts.warm_up)
        });
    }
    let flows = measured.report.iter().flat_map(|report| &report.flows).filter(|flow| flow.inward);
    if flows.clone().next().is_none() {
        // Without a report the numbers of the messages show how many were sent up to the last one received.
        return receiver.counts.sent;
    }
    let sent_counts = flows.clone().fold(0, |sum: u64, flow| sum.saturating_add(flow.messages));
    total_sent(flows)
        .map_or(sent_counts, |(warm_up, sent)| measured_sent(warm_up, sent, receiver.counts.warm_up))
}

/// Messages of warm-up and measurement of all these flows; `None` unless every flow reports both.
fn total_sent<'a>(flows: impl Iterator<Item = &'a FlowReport>) -> Option<(u64, u64)> {
    let sent_counts = flows.map(|flow| Some((flow.warm_up_messages?, flow.messages)));
    sent_counts.reduce(|all, one| {
        let ((warm_up, sent), (more_warm_up, more)) = (all?, one?);
        Some((warm_up.saturating_add(more_warm_up), sent.saturating_add(more)))
    })?
}

/// Messages sent since the receiver began to measure. `before` is the number of messages up to then. Sender and
/// receiver end the warm-up by their own clocks, so message numbers are the common reference.
fn measured_sent(warm_up: u64, sent: u64, before: u64) -> u64 {
    warm_up.saturating_add(sent).saturating_sub(before)
}

fn add_optional(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    more.map_or(sum, |more| Some(sum.unwrap_or(0).saturating_add(more)))
}

/// Received payload of all flows of one direction.
#[derive(Default)]
struct DeliveredCounts {
    bytes: u64,
    /// Bytes that took none of the receiver's time: those of the first receipts, which mark its start, and those after the load.
    untimed_bytes: u64,
    messages: u64,
    duplicate: u64,
    reordered: u64,
    corrupt_messages: u64,
    elapsed_ns: u64,
    socket_drops: Option<u64>,
}

impl DeliveredCounts {
    fn from_recorder(recorder: &Recorder) -> DeliveredCounts {
        let counts = &recorder.counts;
        DeliveredCounts {
            bytes: counts.delivered_bytes,
            untimed_bytes: recorder.untimed_bytes,
            messages: counts.received,
            duplicate: counts.duplicate,
            reordered: counts.reordered,
            corrupt_messages: counts.corrupt_messages,
            elapsed_ns: recorder.elapsed_ns(),
            socket_drops: None,
        }
    }

    /// Bytes that the server's system acknowledged, for a server that reports nothing because it has failed. Its program may
    /// have read less.
    fn from_acknowledged(measured: &MeasuredFlows, sender: &Recorder) -> Option<DeliveredCounts> {
        let uploads = measured.flows.iter().filter(|flow| flow.role == FlowRole::Upload);
        let bytes: u64 = uploads.map(|flow| flow.acknowledged_bytes).sum::<Option<u64>>()?;
        let messages = bytes / u64::from(measured.message_bytes.max(1));
        Some(DeliveredCounts {
            bytes,
            messages,
            elapsed_ns: sender.elapsed_ns(),
            ..DeliveredCounts::default()
        })
    }

    fn add_report(self, flow: &crate::workload::FlowReport) -> DeliveredCounts {
        DeliveredCounts {
            // The server's counts are untrusted and may overflow.
            bytes: self.bytes.saturating_add(flow.bytes),
            untimed_bytes: self.untimed_bytes.saturating_add(flow.head_bytes),
            messages: self.messages.saturating_add(flow.messages),
            duplicate: self.duplicate.saturating_add(flow.duplicate),
            reordered: self.reordered.saturating_add(flow.reordered),
            corrupt_messages: self.corrupt_messages.saturating_add(flow.corrupt_messages),
            socket_drops: add_optional(self.socket_drops, flow.socket_drops),
            ..self
        }
    }

    fn rate_bps(&self) -> Option<f64> {
        let timed = self.bytes.saturating_sub(self.untimed_bytes);
        // A single receipt has no rate.
        (self.elapsed_ns > 0 && (timed > 0 || self.bytes == 0))
            .then(|| timed as f64 * 8e9 / self.elapsed_ns as f64)
    }

    fn messages_per_second(&self) -> Option<f64> {
        let bytes_per_message = self.bytes as f64 / self.messages as f64;
        self.rate_bps()
            .filter(|_| self.messages > 0 && self.bytes > 0)
            .map(|rate| rate / 8.0 / bytes_per_message)
    }
}
