//! The figures of a case, in groups that are measured together. In the document the groups form one flat object.
//!
//! `docs/metrics.md` defines every number. Counts may come from an untrusted server, so sums saturate.

mod counts;
mod stages;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::defects::RecordFault;
use super::flow_figures::{ConnectionCounts, FlowFigures};
use super::{LineErrors, PacketMarks, ResponsivenessFigures, TcpFigures};
use crate::stats::Interval;

pub use counts::{ByteErrors, MessageCounts, SaidZeros};
pub use stages::{NamedStage, StageFigures};

/// The figures of a case, a repetition or a port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Messages.
    #[serde(flatten)]
    pub counts: MessageCounts,
    /// Defects of the bytes.
    #[serde(flatten)]
    pub byte_errors: ByteErrors,
    /// Times of round trips.
    #[serde(flatten)]
    pub times: RoundTripTimes,
    /// Delivered payload.
    #[serde(flatten)]
    pub delivery: Delivery,
    /// Errors that the serial ports counted, where they count them.
    #[serde(flatten)]
    pub line_errors: Option<LineErrors>,
    /// Requests of a download.
    #[serde(flatten)]
    pub requests: Option<RequestCounts>,
    /// Records that a download received from a table.
    #[serde(flatten)]
    pub records: Option<RecordCounts>,
    /// One-way figures, where the remote reports its timestamps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub one_way: Option<OneWayFigures>,
    /// Facts that make one-way delays uncertain or impossible.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote_clock: Option<RemoteClock>,
    /// The stages of a round trip, where the kernels stamped its messages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stages: Option<StageFigures>,
    /// Latency that the load adds to that of the idle link.
    #[serde(flatten)]
    pub added_latency: Option<AddedLatency>,
    /// Comparison of the connections to an endpoint, if there are several.
    #[serde(flatten)]
    pub flows: Option<FlowFigures>,
    /// Connections that were opened beside the round trips.
    #[serde(flatten)]
    pub connections: Option<ConnectionCounts>,
    /// Round trips per minute under load.
    #[serde(flatten)]
    pub responsiveness: Option<ResponsivenessFigures>,
    /// Efficiency of TCP on its path.
    #[serde(flatten)]
    pub tcp: Option<TcpFigures>,
    /// Marks in the IP headers of the messages, where both ends read them.
    #[serde(flatten)]
    pub marks: PacketMarks,
    /// 95 % intervals over the repetitions, by the name of the figure (`latency_ns.p50`, `throughput_bps`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub intervals: BTreeMap<String, Interval>,
    /// 95 % intervals within one repetition. They say nothing about another run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub within_run_intervals: BTreeMap<String, Interval>,
    /// Histogram of the latency in ns: HdrHistogram V2, deflate not used, base64.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub histogram_hdr_v2: Option<String>,
}

impl Figures {
    /// Whether anything was measured. A transfer may be shorter than one message.
    pub fn has_measurements(&self) -> bool {
        let counts = &self.counts;
        counts.sent > 0 || counts.received > 0 || self.delivery.delivered_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Whether anything arrived at its destination, as far as is known.
    pub fn has_arrivals(&self) -> bool {
        let delivered = [self.delivery.delivered_bytes, self.delivery.delivered_reverse_bytes];
        self.counts.received > 0 || delivered.into_iter().flatten().any(|bytes| bytes > 0)
    }

    /// Share of the messages that were lost (0 to 1), in a loop over a stream that of the bytes. `None` if nothing was sent or the
    /// receiver did not report.
    pub fn loss_share(&self) -> Option<f64> {
        if let (lost @ 1.., Some(returned)) = (self.byte_errors.lost_bytes, self.delivery.delivered_bytes) {
            return Some(lost as f64 / (lost + returned) as f64);
        }
        let MessageCounts { sent, received, lost, .. } = self.counts;
        let without_report = self.counts.losses_unknown
            || received + lost == 0
            || self.delivery.delivered_bytes.is_none() && self.delivery.delivered_reverse_bytes.is_some();
        (sent > 0 && !without_report).then(|| lost as f64 / sent as f64)
    }

    /// Adds the counts of another repetition. Rates, times and intervals stay.
    pub fn add_counts(&mut self, other: &Figures) {
        self.counts.add(&other.counts);
        self.byte_errors.add(&other.byte_errors);
        self.delivery.add_counts(&other.delivery);
        self.marks.add(&other.marks);
        if let Some(more) = &other.line_errors {
            self.line_errors.get_or_insert_default().add(more);
        }
        if let Some(more) = &other.connections {
            self.connections.get_or_insert_default().add(more);
        }
    }
}

/// The better direction of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Higher values are better.
    Higher,
    /// Lower values are better.
    Lower,
}

/// A number of the figures. CSV columns, metrics, thresholds and the tests of schema and documents read [`NUMBERS`].
#[derive(Debug, Clone, Copy)]
pub struct Number {
    /// Name of the field in the document and of the column in tables. Its suffix is the unit; without one it is a count.
    pub field: &'static str,
    /// Name in thresholds and comparisons.
    pub metric: &'static str,
    /// Meaning, for help and documents.
    pub meaning: &'static str,
    /// The better direction.
    pub goal: Goal,
    /// The value.
    pub read: ReadNumber,
}

/// Reads a number. `None`: not measured.
#[derive(Debug, Clone, Copy)]
pub enum ReadNumber {
    /// A whole number.
    Count(fn(&Figures) -> Option<u64>),
    /// A number with a fraction.
    Value(fn(&Figures) -> Option<f64>),
}

const fn count(
    field: &'static str,
    goal: Goal,
    meaning: &'static str,
    read: fn(&Figures) -> Option<u64>,
) -> Number {
    Number { field, metric: field, meaning, goal, read: ReadNumber::Count(read) }
}

const fn value(
    [field, metric]: [&'static str; 2],
    goal: Goal,
    meaning: &'static str,
    read: fn(&Figures) -> Option<f64>,
) -> Number {
    Number { field, metric, meaning, goal, read: ReadNumber::Value(read) }
}

/// All single numbers of the figures. New ones are added at the end.
#[rustfmt::skip]
pub static NUMBERS: &[Number] = &[
    value(["jitter_ns", "jitter"], Goal::Lower, "mean difference of consecutive latencies", |f| f.times.jitter_ns),
    value(["throughput_bps", "rate"], Goal::Higher,
        "payload delivered per second; compared with a share, that of the line rate", |f| f.delivery.throughput_bps),
    value(["throughput_reverse_bps", "rate_reverse"], Goal::Higher,
        "payload delivered per second in the other direction", |f| f.delivery.throughput_reverse_bps),
    value(["line_rate_percent", "line_rate"], Goal::Higher, "throughput as a share of what the line can carry",
        |f| f.delivery.line_rate_percent),
    value(["messages_per_second", "messages"], Goal::Higher, "round trips or delivered messages per second",
        |f| f.delivery.messages_per_second),
    count("sent", Goal::Higher, "messages sent", |f| f.counts.known_sent()),
    count("received", Goal::Higher, "messages received in time", |f| f.counts.known_received()),
    count("lost", Goal::Lower, "messages lost", |f| f.counts.known_lost()),
    count("receiver_socket_drops", Goal::Lower, "lost messages that the receiver's socket dropped",
        |f| f.counts.receiver_socket_drops),
    count("network_lost", Goal::Lower, "messages that the network lost", |f| f.counts.network_lost),
    count("late", Goal::Lower, "replies after their timeout; they count as lost", |f| Some(f.counts.late)),
    count("duplicate", Goal::Lower, "messages that arrived more than once", |f| Some(f.counts.duplicate)),
    count("early", Goal::Lower, "replies that arrived before their request was sent", |f| Some(f.counts.early)),
    count("reordered", Goal::Lower, "messages that arrived after one that was sent later",
        |f| Some(f.counts.reordered)),
    count("corrupt_messages", Goal::Lower, "messages that arrived with changed content",
        |f| Some(f.counts.corrupt_messages)),
    count("late_sends", Goal::Lower, "messages that left when the next one was already due",
        |f| Some(f.counts.late_sends)),
    count("missed_sends", Goal::Lower, "messages of the schedule that were never sent",
        |f| Some(f.counts.missed_sends)),
    count("corrupt_bytes", Goal::Lower, "bytes that arrived with another value",
        |f| Some(f.byte_errors.corrupt_bytes)),
    count("lost_bytes", Goal::Lower, "bytes that a loop did not return", |f| Some(f.byte_errors.lost_bytes)),
    count("inserted_bytes", Goal::Lower, "bytes of a loop that were not sent, or returned twice",
        |f| Some(f.byte_errors.inserted_bytes)),
    count("delivered_bytes", Goal::Higher, "payload delivered", |f| f.delivery.delivered_bytes),
    count("delivered_reverse_bytes", Goal::Higher, "payload delivered in the other direction",
        |f| f.delivery.delivered_reverse_bytes),
    count("framing_errors", Goal::Lower, "characters without a valid stop bit", |f| Some(f.line_errors?.framing)),
    count("parity_errors", Goal::Lower, "characters with wrong parity", |f| Some(f.line_errors?.parity)),
    count("breaks", Goal::Lower, "break conditions of the serial line", |f| Some(f.line_errors?.breaks)),
    count("overruns", Goal::Lower, "characters that the serial port lost", |f| Some(f.line_errors?.overruns)),
    count("round_trips", Goal::Lower, "requests of a download that got a reply", |f| Some(f.requests?.round_trips)),
    count("retransmissions", Goal::Lower, "requests of a download that were sent again",
        |f| Some(f.requests?.retransmissions)),
    count("please_waits", Goal::Lower, "\"please wait\" messages of the server", |f| Some(f.requests?.please_waits)),
    count("refusals", Goal::Lower, "requests that the server refused because its queue was full",
        |f| Some(f.requests?.refusals)),
    count("reconnects", Goal::Lower, "times that a lost link was opened again", |f| Some(f.requests?.reconnects)),
    count("window", Goal::Higher, "concurrent requests at the end of a download", |f| Some(f.requests?.window)),
    count("records", Goal::Higher, "records received, each counted once", |f| Some(f.records.as_ref()?.received)),
    count("record_gaps", Goal::Lower, "records missing from the sequence", |f| Some(f.records.as_ref()?.missing)),
    count("record_repeats", Goal::Lower, "records received again", |f| Some(f.records.as_ref()?.repeated)),
    count("records_out_of_order", Goal::Lower, "records received after later ones",
        |f| Some(f.records.as_ref()?.out_of_order)),
    value(["forward_p50_ns", "forward_p50"], Goal::Lower,
        "median forward delay; its error is at most one_way_error_bound", |f| Some(f.one_way.as_ref()?.forward_p50_ns)),
    value(["reverse_p50_ns", "reverse_p50"], Goal::Lower,
        "median reverse delay; its error is at most one_way_error_bound", |f| Some(f.one_way.as_ref()?.reverse_p50_ns)),
    value(["one_way_error_bound_ns", "one_way_error_bound"], Goal::Lower, "largest possible error of a one-way delay",
        |f| Some(f.one_way.as_ref()?.one_way_error_bound_ns)),
    count("forward_lost", Goal::Lower, "lost requests that did not reach the server",
        |f| f.one_way.as_ref()?.forward_lost),
    count("reverse_lost", Goal::Lower, "lost requests whose reply did not return", |f| f.one_way.as_ref()?.reverse_lost),
    value(["idle_p50_ns", "idle_p50"], Goal::Lower, "median round trip of the probe on the idle link",
        |f| Some(f.added_latency?.idle_p50_ns)),
    value(["added_p50_ns", "added_p50"], Goal::Lower, "latency that the load adds: loaded p50 − idle p50",
        |f| f.added_latency?.added_p50()),
    value(["added_p95_ns", "added_p95"], Goal::Lower, "the same for 95 % of the probes: loaded p95 − idle p50",
        |f| f.added_latency?.added_p95_ns),
    value(["added_p99_ns", "added_p99"], Goal::Lower, "the same for 99 % of the probes: loaded p99 − idle p50",
        |f| f.added_latency?.added_p99_ns),
    value(["recovery_ns", "recovery"], Goal::Lower, "time from the end of the load until its queues are empty",
        |f| f.added_latency?.recovery_ns),
    count("flows", Goal::Higher, "connections that were measured, where a case has several to an endpoint",
        |f| Some(f.flows.as_ref()?.count)),
    value(["flow_fairness", "flow_fairness"], Goal::Higher, "Jain's index of what the connections transferred, at most 1",
        |f| Some(f.flows.as_ref()?.fairness)),
    value(["flow_min_max_ratio", "flow_min_max"], Goal::Higher, "the least that a connection transferred ÷ the most",
        |f| Some(f.flows.as_ref()?.min_max_ratio)),
    value(["flow_mean_min_ns", "flow_mean_min"], Goal::Lower, "smallest mean round trip of a connection",
        |f| f.flows.as_ref()?.mean_min_ns),
    value(["flow_mean_p50_ns", "flow_mean_p50"], Goal::Lower, "median of the mean round trips of the connections",
        |f| f.flows.as_ref()?.mean_p50_ns),
    value(["flow_mean_p90_ns", "flow_mean_p90"], Goal::Lower, "mean round trip that 90 % of the connections do not exceed",
        |f| f.flows.as_ref()?.mean_p90_ns),
    value(["flow_mean_p99_ns", "flow_mean_p99"], Goal::Lower, "mean round trip that 99 % of the connections do not exceed",
        |f| f.flows.as_ref()?.mean_p99_ns),
    value(["flow_mean_max_ns", "flow_mean_max"], Goal::Lower, "largest mean round trip of a connection",
        |f| f.flows.as_ref()?.mean_max_ns),
    value(["rpm", "rpm"], Goal::Higher, "round trips per minute under load: the mean of foreign_rpm and own_rpm",
        |f| f.responsiveness?.rpm),
    value(["foreign_rpm", "foreign_rpm"], Goal::Higher, "the same for probes on a connection without load",
        |f| f.responsiveness?.foreign_rpm),
    value(["own_rpm", "own_rpm"], Goal::Higher, "the same for probes on the connections of the load",
        |f| f.responsiveness?.own_rpm),
    value(["goodput_bps", "goodput"], Goal::Higher, "payload per second once it was stable, with all connections",
        |f| f.responsiveness?.goodput_bps),
    count("load_connections", Goal::Higher, "connections of the load at the end of its ramp-up",
        |f| Some(f.responsiveness?.load_connections)),
    value(["saturation_ns", "saturation"], Goal::Lower, "time from the begin of the load until the goodput is stable",
        |f| f.responsiveness?.saturation_ns),
    value(["added_forward_p50_ns", "added_forward_p50"], Goal::Lower,
        "median forward delay under load above the shortest one", |f| f.added_latency?.added_forward_p50_ns),
    value(["added_reverse_p50_ns", "added_reverse_p50"], Goal::Lower,
        "median reverse delay under load above the shortest one", |f| f.added_latency?.added_reverse_p50_ns),
    value(["base_rtt_ns", "base_rtt"], Goal::Lower, "shortest round trip of the sender's TCP",
        |f| Some(f.tcp?.base_rtt_ns)),
    count("path_mtu_bytes", Goal::Higher, "largest packet of the path", |f| f.tcp?.path_mtu_bytes),
    value(["bottleneck_bps", "bottleneck"], Goal::Higher, "rate of delivery of the connection",
        |f| f.tcp?.bottleneck_bps),
    value(["bdp_bytes", "bdp"], Goal::Lower, "bandwidth-delay product: bottleneck × base_rtt", |f| f.tcp?.bdp_bytes),
    value(["transfer_time_ratio", "transfer_time_ratio"], Goal::Lower,
        "time of the transfer, in units of that at the rate of the bottleneck", |f| f.tcp?.transfer_time_ratio),
    value(["tcp_efficiency_percent", "tcp_efficiency"], Goal::Higher, "share of the sent bytes that were not sent again",
        |f| f.tcp?.tcp_efficiency_percent),
    value(["buffer_delay_percent", "buffer_delay"], Goal::Lower,
        "mean round trip of the sender's TCP above base_rtt, in percent of it", |f| f.tcp?.buffer_delay_percent),
    value(["capacity_bps", "capacity"], Goal::Higher, "highest rate of a second at the IP layer, by a capacity search",
        |f| f.delivery.capacity_bps),
    count("forward_ce", Goal::Lower, "messages to the server with a congestion mark (CE); over TCP segments",
        |f| f.marks.forward_ce),
    count("reverse_ce", Goal::Lower, "messages from the server with a congestion mark (CE); over TCP segments",
        |f| f.marks.reverse_ce),
    count("forward_ecn_changed", Goal::Lower, "messages to the server whose ECN field was changed, but not to CE",
        |f| f.marks.forward_ecn_changed),
    count("reverse_ecn_changed", Goal::Lower, "messages from the server whose ECN field was changed, but not to CE",
        |f| f.marks.reverse_ecn_changed),
    count("forward_dscp_changed", Goal::Lower, "messages to the server whose DSCP was changed",
        |f| f.marks.forward_dscp_changed),
    count("reverse_dscp_changed", Goal::Lower, "messages from the server whose DSCP was changed",
        |f| f.marks.reverse_dscp_changed),
    count("connections", Goal::Higher, "connections that were opened beside the round trips (--reconnect-every)",
        |f| Some(f.connections?.connections)),
    count("failed_connections", Goal::Lower, "of these, connections that did not open in time",
        |f| Some(f.connections?.failed_connections)),
    count("drain_ns", Goal::Lower, "time from the last byte sent until the last one received",
        |f| f.delivery.drain_ns),
    value(["longest_stall_ns", "longest_stall"], Goal::Lower, "longest time in which no connection of the load moved anything",
        |f| f.responsiveness?.longest_stall_ns),
    count("sent_reverse", Goal::Higher, "those messages sent that went in the other direction", |f| f.delivery.sent_reverse),
    count("lost_reverse", Goal::Lower, "those messages lost that went in the other direction", |f| f.delivery.lost_reverse),
];

/// Times of round trips.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTripTimes {
    /// Service time: received − sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// Response time: received − intended. Only with a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// Time to open a connection, where the flows open further ones beside their round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<Distribution>,
    /// Missed frames, only with a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_frames: Option<MissedFrames>,
    /// Mean |difference| of consecutive latencies (IPDV, RFC 3393).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
}

/// Payload that was delivered, and its rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// Delivered payload bits per second, by the receiver's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
    /// Delivered payload bits per second in the other direction, if both were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_reverse_bps: Option<f64>,
    /// Replies or delivered messages per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_second: Option<f64>,
    /// Payload that arrived at the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_bytes: Option<u64>,
    /// Payload that arrived at the receiver of the other direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_reverse_bytes: Option<u64>,
    /// Messages sent in the other direction, of those of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_reverse: Option<u64>,
    /// Lost messages among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_reverse: Option<u64>,
    /// Highest rate of a second at the IP layer, by a capacity search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bps: Option<f64>,
    /// Throughput as a share of the payload that the line can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_rate_percent: Option<f64>,
    /// Time for which the queues of hosts and path drain: the receiving time less the sending time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ns: Option<u64>,
}

impl Delivery {
    /// Adds the counts of another repetition. Rates stay.
    pub fn add_counts(&mut self, other: &Delivery) {
        for (sum, more) in [
            (&mut self.delivered_bytes, other.delivered_bytes),
            (&mut self.delivered_reverse_bytes, other.delivered_reverse_bytes),
            (&mut self.sent_reverse, other.sent_reverse),
            (&mut self.lost_reverse, other.lost_reverse),
        ] {
            *sum = add_optional(*sum, more);
        }
    }
}

/// Latency that a load adds, by its probe. Percentiles are absent where the probes under load do not support them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AddedLatency {
    /// Median round trip of the probe on the idle link.
    pub idle_p50_ns: f64,
    /// Median under load minus that of the idle link; of several repetitions the median of theirs. Negative if the load makes
    /// replies faster.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_p50_ns: Option<f64>,
    /// The median probe under load was lost, so that `added_p50_ns` was not reached.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_added_p50_lost: bool,
    /// 95th percentile under load minus the median of the idle link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_p95_ns: Option<f64>,
    /// 99th percentile under load minus the median of the idle link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_p99_ns: Option<f64>,
    /// Median forward delay under load above the shortest forward delay; only with `one-way`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_forward_p50_ns: Option<f64>,
    /// Median reverse delay under load above the shortest reverse delay; only with `one-way`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_reverse_p50_ns: Option<f64>,
    /// Time from the end of the load until round trips are as short as on the idle link; absent if they did not become so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery_ns: Option<f64>,
}

impl AddedLatency {
    /// Latency that a load adds to this median of the idle link, in ns; `loaded` are the figures of the probe under load. Without
    /// the time to recover.
    pub fn new(idle_p50_ns: u64, loaded: Option<&Figures>) -> AddedLatency {
        let idle_p50_ns = idle_p50_ns as f64;
        let one_way = loaded.and_then(|loaded| loaded.one_way.as_ref());
        let median = |times: &Distribution| times.percentile("p50").map(|ns| ns as f64);
        let loaded = loaded.and_then(|loaded| loaded.times.latency_ns.as_ref());
        let added = |name: &str| Some(loaded?.percentile(name)? as f64 - idle_p50_ns);
        let is_lost = loaded.is_some_and(|loaded| loaded.percentiles.get("p50") == Some(&None));
        AddedLatency {
            idle_p50_ns,
            added_p50_ns: added("p50"),
            is_added_p50_lost: is_lost,
            added_p95_ns: added("p95"),
            added_p99_ns: added("p99"),
            added_forward_p50_ns: one_way.and_then(|ways| median(&ways.forward_variation_ns)),
            added_reverse_p50_ns: one_way.and_then(|ways| median(&ways.reverse_variation_ns)),
            recovery_ns: None,
        }
    }

    /// Median under load minus that of the idle link, in ns; infinite if it was not reached, `None` if it was not measured.
    pub fn added_p50(&self) -> Option<f64> {
        self.added_p50_ns.or(self.is_added_p50_lost.then_some(f64::INFINITY))
    }
}

/// Counts of a transfer that requests each chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Requests that got a reply.
    pub round_trips: u64,
    /// Requests that were sent again because the timeout passed or the link was opened again.
    pub retransmissions: u64,
    /// "Please wait" messages of the remote.
    pub please_waits: u64,
    /// Requests that the remote refused because its queue was full.
    pub refusals: u64,
    /// Times that a lost link was opened again.
    pub reconnects: u64,
    /// Requests in flight at the end.
    pub window: u64,
}

impl RequestCounts {
    /// Adds the counts of another repetition.
    pub fn add(&mut self, other: &RequestCounts) {
        self.round_trips += other.round_trips;
        self.retransmissions += other.retransmissions;
        self.please_waits += other.please_waits;
        self.refusals += other.refusals;
        self.reconnects += other.reconnects;
        self.window = if self.window == 0 { other.window } else { self.window.min(other.window) };
    }
}

/// Counts of numbered records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordCounts {
    /// Records received, each counted once.
    #[serde(rename = "records")]
    pub received: u64,
    /// Records missing from the sequence of numbers.
    #[serde(rename = "record_gaps")]
    pub missing: u64,
    /// Records received again.
    #[serde(rename = "record_repeats")]
    pub repeated: u64,
    /// Records received after later ones.
    #[serde(rename = "records_out_of_order")]
    pub out_of_order: u64,
    /// The first faults in the sequence of numbers.
    #[serde(rename = "record_faults", skip_serializing_if = "Vec::is_empty", default)]
    pub faults: Vec<RecordFault>,
}

impl RecordCounts {
    /// The listed faults are those of the first that had any.
    pub fn add(&mut self, other: &RecordCounts) {
        self.received += other.received;
        self.missing = self.missing.saturating_add(other.missing);
        self.repeated += other.repeated;
        self.out_of_order += other.out_of_order;
        if self.faults.is_empty() {
            self.faults.clone_from(&other.faults);
        }
    }
}

/// The sum of two counts; `None` only if both are unknown.
fn add_optional(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.saturating_add(b)).or(a).or(b)
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A distribution of times in nanoseconds. A lost request ranks slowest: a percentile that falls among the lost is
/// `null`. A percentile that needs more samples is absent, except the median, which is that of the sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Requests that got a reply.
    pub count: u64,
    /// Fastest reply.
    pub min: u64,
    /// Mean of the requests with a reply.
    pub mean: f64,
    /// Standard deviation of the requests with a reply. Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub standard_deviation: Option<f64>,
    /// Slowest reply.
    pub max: u64,
    /// Limit below which some imported times lie. They count as the limit: figures equal to it and means are upper bounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub below_ns: Option<u64>,
    /// Mean of the fastest 95 % of the requests sent; `null` if more than 5 % were lost.
    pub mean_fastest_95_percent: Option<f64>,
    /// `p10` … `p90`, `p99`, `p99.9` …, by nearest rank.
    #[serde(flatten)]
    pub percentiles: BTreeMap<String, Option<u64>>,
    /// Share (0 to 1) of the requests sent that took longer than this many milliseconds, or were lost.
    pub later_than_ms: BTreeMap<String, f64>,
}

impl Distribution {
    /// A percentile by name (`p50`). `None` if it is absent or was not reached.
    pub fn percentile(&self, name: &str) -> Option<u64> {
        self.percentiles.get(name).copied().flatten()
    }
}

/// Scheduled requests whose reply arrived too late after their due time, or never.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedFrames {
    /// Number of requests that took longer than this many milliseconds, or were lost.
    pub count_later_than_ms: BTreeMap<String, u64>,
    /// The first requests that exceeded the shortest limit.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub first: Vec<MissedFrame>,
}

impl MissedFrames {
    /// Counts by limit in milliseconds, shortest limit first.
    pub fn by_limit(&self) -> Vec<(&str, u64)> {
        let mut counts: Vec<_> =
            self.count_later_than_ms.iter().map(|(limit, count)| (limit.as_str(), *count)).collect();
        let length = |limit: &str| limit.parse().unwrap_or(f64::MAX);
        counts.sort_by(|a, b| length(a.0).total_cmp(&length(b.0)));
        counts
    }
}

/// A request that missed its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedFrame {
    /// The repetition, from 1, if there were several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub repetition: Option<u32>,
    /// Number of the request, as in the raw samples: from 0, including the warm-up.
    pub sequence: u64,
    /// Time from the start of the measurement until the frame was due.
    pub due_ns: u64,
    /// Response time: received − intended; absent if lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<u64>,
}

/// The parts of a round trip. One-way delays have an error of up to `one_way_error_bound_ns`, because the true offset
/// between the clocks may differ by that much from `clock_offset_ns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWayFigures {
    /// Time from receiving the request to sending the reply, by the remote's clock.
    pub turnaround_ns: Distribution,
    /// The round trip without the turnaround.
    pub path_ns: Distribution,
    /// Forward and reverse delay, each minus its shortest value.
    pub forward_variation_ns: Distribution,
    /// Reverse delay minus its shortest value.
    pub reverse_variation_ns: Distribution,
    /// Median forward delay.
    pub forward_p50_ns: f64,
    /// Median reverse delay.
    pub reverse_p50_ns: f64,
    /// Largest possible error of a one-way delay: about half of the shortest path.
    pub one_way_error_bound_ns: f64,
    /// Source of the largest possible error.
    #[serde(skip_serializing_if = "is_by_round_trips", default)]
    pub bound_source: BoundSource,
    /// Minimum by which the statements of the hosts about their clocks contradict the round trips.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_disagreement_ns: Option<f64>,
    /// Remote time of day minus local time of day.
    pub clock_offset_ns: f64,
    /// Rate of the remote's clock relative to the local one; 0 where it could not be determined.
    pub clock_drift_ppm: f64,
    /// Times that the remote's clock was set during the measurement.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub clock_steps: u64,
    /// Lost requests that did not reach the remote, and those whose reply did not come back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forward_lost: Option<u64>,
    /// Lost requests whose reply did not come back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reverse_lost: Option<u64>,
}

/// Properties of the server's clock that its times show, and that make one-way delays uncertain or impossible.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteClock {
    /// The step between its times, if it is a coarse one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tick_ns: Option<f64>,
    /// Rate relative to the local clock, if that is more than a clock has.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excessive_drift_ppm: Option<f64>,
}

/// Source of the largest error of one-way delays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundSource {
    /// The round trips alone: no delay is negative.
    #[default]
    RoundTrips,
    /// The round trips, and the error that both hosts state for their clocks.
    CommonTime,
}

fn is_by_round_trips(source: &BoundSource) -> bool {
    *source == BoundSource::RoundTrips
}
