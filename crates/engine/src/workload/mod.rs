//! Workloads: the kinds of measurement. One file has the client and the server side of a workload; each workload has
//! one line in the registry of a program.
//!
//! Both sides are parties (`link::party`). The only loop that runs them is `link::party::drive`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host::evidence::ThreadCounters;
use crate::link::Caps;
use crate::link::marks::MarkCounts;
use crate::link::party::Party;
use crate::link::serial_line::UartErrors;
use linkgauge_model::clock::Time;
use linkgauge_model::plan::{Direction, Pacing, StopCondition};
use linkgauge_model::run::{EndEvidence, Failure, Figures};
use linkgauge_model::sample::{Recorder, TimeSeries};

pub mod capacity;
pub mod connect;
pub mod download;
pub(crate) mod flow_figures;
pub mod latency;
mod load;
pub mod pattern;
pub(crate) mod phases;
mod redial;
pub(crate) mod report_check;
pub mod responsiveness;
mod silence;
pub mod throughput;

pub use load::Load;

/// Kind of traffic on the flows of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficKind {
    /// Requests, each timed until its reply.
    RoundTrips,
    /// Payload that does not wait for replies.
    Load,
    /// Payload that carries probes.
    ProbedLoad,
    /// Datagrams at a rate that a search decides.
    CapacitySearch,
    /// Content that the server has.
    Content,
    /// No payload: connections are opened and closed.
    Connections,
}

/// An entry of the list of workloads.
pub struct Workload {
    /// Name in plans, on the command line and in run documents.
    pub name: &'static str,
    /// One line for the help.
    pub summary: &'static str,
    /// Traffic of its flows. Every protocol that carries this traffic supports the workload.
    pub traffic: TrafficKind,
    /// Default stop condition.
    pub(crate) default_stop: StopCondition,
    /// Whether the time can be split into repetitions.
    pub(crate) has_repetitions: bool,
    /// Direction of the payload if the plan sets none.
    pub(crate) default_direction: Direction,
    /// Default timeout. On a serial line, four times the time of a message on the line is added.
    pub(crate) default_timeout: Duration,
    /// Default message size in bytes.
    pub(crate) default_size: fn(&Caps) -> u32,
    /// Default warm-up; its messages are excluded from the figures.
    pub(crate) default_warm_up: StopCondition,
    /// Identity of the measurement method. It changes whenever the method changes.
    pub method: fn(&Load) -> String,
    /// Figures of one repetition.
    pub figures: fn(&MeasuredFlows) -> Figures,
}

impl Workload {
    /// Whether each message is a request that is timed until its reply, or a connection until it is open.
    pub fn is_round_trip(&self) -> bool {
        matches!(self.traffic, TrafficKind::RoundTrips | TrafficKind::Connections)
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Workload({})", self.name)
    }
}

/// The measurement of one repetition, or of one of its endpoints.
pub struct MeasuredFlows<'a> {
    /// Direction of the payload.
    pub direction: Direction,
    /// Whether every link delivers all bytes in order or breaks, so that missing messages are not lost.
    pub(crate) is_reliable_stream: bool,
    /// Limits for the shares of late requests.
    pub late_limits: &'a [Duration],
    /// Payload bytes of one message.
    pub message_bytes: u32,
    /// The client's flows.
    pub flows: &'a [FlowResult],
    /// The server's counts, if the protocol reports them.
    pub report: Option<&'a ServerReport>,
}

/// A client party that records.
pub trait RecordingParty: Party {
    /// The records so far.
    fn recorder(&self) -> &Recorder;
    /// Ends the party and returns its records.
    fn into_recorder(self: Box<Self>) -> Recorder;
}

/// The purpose of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlowRole {
    /// Round trips that are the measurement.
    RoundTrip,
    /// Payload from client to server.
    Upload,
    /// Payload from server to client.
    Download,
    /// Round trips in parallel with a load.
    Probe,
    /// Control messages of a protocol during the measurement.
    Control,
}

/// A flow after its run.
#[derive(Debug)]
pub struct FlowResult {
    /// The purpose of the flow.
    pub(crate) role: FlowRole,
    /// Index of its endpoint in the case.
    pub(crate) endpoint_index: usize,
    /// The samples and counts.
    pub recorder: Recorder,
    /// The CPU on which its thread ran at its end.
    pub cpu: Option<u32>,
    /// CPU time of its thread, in seconds.
    pub cpu_seconds: f64,
    /// Counters of the scheduler for its thread.
    pub thread: ThreadCounters,
    /// CPU seconds spent busy-polling; not part of the other CPU times.
    pub(crate) busy_poll_seconds: f64,
    /// Packets that the socket dropped because its buffer was full, where the system counts them.
    pub socket_drops: Option<u64>,
    /// Marks of the messages that it received, where the link reads them.
    pub marks: Option<MarkCounts>,
    /// Payload of the measurement that the remote system had acknowledged when the flow ended, where the transport
    /// knows that.
    pub(crate) acknowledged_bytes: Option<u64>,
    /// Segments that the local system sent again, where it counts them.
    pub(crate) retransmits: Option<u64>,
    /// Whether the link took nothing, or nothing arrived, for the whole timeout.
    pub(crate) is_stalled: bool,
    /// Errors that its serial port counted.
    pub line_errors: Option<UartErrors>,
    /// Reason for an early end.
    pub fault: Option<Failure>,
}

#[cfg(test)]
impl FlowResult {
    /// A flow of the first endpoint that ended as planned and about which only its records are known.
    pub(crate) fn of_records(role: FlowRole, recorder: Recorder) -> FlowResult {
        FlowResult {
            role,
            endpoint_index: 0,
            recorder,
            cpu: None,
            cpu_seconds: 0.0,
            thread: ThreadCounters::default(),
            busy_poll_seconds: 0.0,
            socket_drops: None,
            marks: None,
            acknowledged_bytes: None,
            retransmits: None,
            is_stalled: false,
            line_errors: None,
            fault: None,
        }
    }
}

/// The merged records of all flows of one role.
pub(crate) fn merged_recorder(flows: &[FlowResult], role: FlowRole) -> Option<Recorder> {
    let mut recorders = flows.iter().filter(|flow| flow.role == role).map(|flow| &flow.recorder);
    let first = recorders.next()?;
    let mut all = first.empty_like();
    all.merge(first);
    recorders.for_each(|recorder| all.merge(recorder));
    Some(all)
}

/// The server's counts of one flow.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FlowReport {
    /// Index of the endpoint of the flow in the case.
    pub port: usize,
    /// Payload bytes that the server received or sent.
    pub bytes: u64,
    /// Messages that the server received or sent, without those of the warm-up.
    pub messages: u64,
    /// Warm-up messages, if the server counts them. The measurement starts with the next message.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warm_up_messages: Option<u64>,
    /// Bytes of the first receipt, which took no part of the elapsed time.
    pub head_bytes: u64,
    /// Time from the first to the last receipt by the server's clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time from the first receipt on the port to the first receipt of this flow, by the same clock, if it is reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub began_ns: Option<u64>,
    /// Received data over time, if the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub series: Option<Box<ReceivedSeries>>,
    /// Messages that arrived more than once.
    pub duplicate: u64,
    /// Messages that arrived after a later one.
    pub reordered: u64,
    /// Messages with invalid content.
    pub corrupt_messages: u64,
    /// Packets that the server's socket dropped because its buffer was full, where the system counts them.
    pub socket_drops: Option<u64>,
    /// Marks of the messages that the server received, if the client asked for that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub marks: Option<Box<MarkCounts>>,
    /// Whether the server sent; otherwise it received.
    pub inward: bool,
    /// The CPU on which the server's thread ran at the end of the flow, if it is reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<u32>,
    /// Whether the server did not receive until the end of the transfer.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unfinished: bool,
    /// Reason for the abort of the flow by the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
}

/// Data that a flow received over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReceivedSeries {
    /// Length of an interval.
    pub interval_ns: u64,
    /// Messages, payload bytes, and messages with a congestion mark of each interval, from the first receipt.
    pub entries: Vec<[u64; 3]>,
}

/// Maximum number of reported intervals: a report of one flow must fit into a message of 8 KiB.
pub(crate) const MAX_REPORTED_INTERVALS: usize = 300;

impl ReceivedSeries {
    /// Deliveries of a recorded series.
    pub fn of(series: &TimeSeries) -> ReceivedSeries {
        let series = series.reduced(MAX_REPORTED_INTERVALS);
        ReceivedSeries { interval_ns: series.interval_ns(), entries: series.deliveries().collect() }
    }

    /// Payload bytes of all intervals.
    fn total_bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum: u64, [_, bytes, _]| sum.saturating_add(*bytes))
    }
}

/// Maximum length of a server's reason for the end of a flow, in bytes.
const MAX_FAULT_BYTES: usize = 1000;

impl FlowReport {
    /// Whether the report takes no more memory than that of an honest server, which reports series of some flows only.
    pub(crate) fn is_bounded(&self, may_have_series: bool) -> bool {
        let most = if may_have_series { MAX_REPORTED_INTERVALS } else { 0 };
        self.series.as_ref().is_none_or(|series| series.entries.len() <= most)
            && self.fault.as_ref().is_none_or(|fault| fault.len() <= MAX_FAULT_BYTES)
    }
}

impl ServerReport {
    /// Data that the server's receivers got over time, all flows together, and its duration in ns. `None` unless each of them
    /// reported it.
    pub(crate) fn received_series(&self) -> Option<(TimeSeries, u64)> {
        let received = || self.flows.iter().filter(|flow| !flow.inward);
        let one = |flow: &FlowReport| {
            let reported = flow.series.as_ref()?;
            TimeSeries::from_deliveries(reported.interval_ns, Time(flow.began_ns?), &reported.entries)
        };
        let mut all = received().map(one);
        let mut first = all.next()??;
        for series in all {
            first.merge(&series?);
        }
        Some((first, receiving_ns(received())))
    }
}

/// Receiving time of these flows in ns: first receipt of any flow to last receipt of all flows, of the port that takes longest.
/// Flows that do not start together take longer than the longest of them.
pub(crate) fn receiving_ns<'a>(flows: impl Iterator<Item = &'a FlowReport>) -> u64 {
    let mut spans: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let mut longest = 0;
    for flow in flows {
        longest = flow.elapsed_ns.max(longest);
        if let Some(began) = flow.began_ns {
            let (first, last) = spans.entry(flow.port).or_insert((u64::MAX, 0));
            *first = began.min(*first);
            *last = began.saturating_add(flow.elapsed_ns).max(*last);
        }
    }
    spans.values().map(|(first, last)| last.saturating_sub(*first)).fold(longest, u64::max)
}

/// Payload of the measurement that a server has moved so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MovedBytes {
    /// Bytes that its receivers got; absent without receivers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_bytes: Option<u64>,
    /// Bytes that its senders sent; absent without senders.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
    /// Time since the first byte that its receivers got, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receiving_ns: Option<u64>,
}

impl MovedBytes {
    /// Adds the bytes that others have moved.
    pub fn add(&mut self, other: MovedBytes) {
        for (sum, more) in
            [(&mut self.received_bytes, other.received_bytes), (&mut self.sent_bytes, other.sent_bytes)]
        {
            *sum = more.map_or(*sum, |more| Some(sum.unwrap_or(0).saturating_add(more)));
        }
        self.receiving_ns = self.receiving_ns.max(other.receiving_ns);
    }
}

/// The server's report after a case.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServerReport {
    /// Counts of each flow.
    pub flows: Vec<FlowReport>,
    /// CPU time of the server for the case, in seconds, if it is reported.
    pub cpu_seconds: Option<f64>,
    /// Counters of the server's system, if the client asked for them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<EndEvidence>,
    /// Marks of the messages that the server's flows of the measurement received.
    #[serde(skip)]
    pub marks: Option<Box<MarkCounts>>,
    /// The CPU on which the server ran at the end of its first flow, if it reports that.
    #[serde(skip)]
    pub cpu: Option<u32>,
    /// Whether the server saw the end of each flow, so that no data of a stream is missing.
    #[serde(skip)]
    pub is_complete: bool,
    /// Whether the server decided about the size of each message.
    #[serde(skip)]
    pub has_other_sizes: bool,
    /// Contradictions within the server's own counts of received data, one line each.
    #[serde(skip)]
    pub contradictions: Vec<String>,
}

/// Default timeout for a reply or for the next bytes.
pub(crate) fn default_timeout(workload: &Workload, message_bytes: u32, all_caps: &[Caps]) -> Duration {
    // A round trip, plus one message time for devices that buffer characters; the rest is margin.
    let on_lines = all_caps
        .iter()
        .filter_map(|caps| caps.link_rate)
        .map(|line| line.transmission_time(message_bytes.into()));
    let reply_time =
        workload.default_timeout.saturating_add(on_lines.max().unwrap_or_default().saturating_mul(4));
    all_caps.iter().map(|caps| caps.open_timeout).fold(reply_time, Duration::max)
}

/// Planned duration of one repetition over links with these capabilities, if the plan determines it. On a serial line this
/// is the minimum.
pub(crate) fn planned_time(load: &Load, all_caps: &[Caps]) -> Option<Duration> {
    let count = load.stop.count;
    let counted = match load.pacing {
        Pacing::Closed => {
            count.and_then(|count| time_on_line(all_caps, count.saturating_mul(load.message_bytes.into())))
        }
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => {
            count.and_then(|count| Duration::try_from_secs_f64(count as f64 / per_second).ok())
        }
        Pacing::ThinkTime { mean_seconds, .. } => {
            count.and_then(|count| Duration::try_from_secs_f64(count as f64 * mean_seconds).ok())
        }
    };
    let timed = load.stop.time_ns.map(Duration::from_nanos);
    let volume = load.stop.volume_bytes.and_then(|bytes| time_on_line(all_caps, bytes));
    [counted, timed, volume].into_iter().flatten().min()
}

/// Time for this number of bytes on the slowest line; `None` if a port has no link rate.
fn time_on_line(all_caps: &[Caps], bytes: u64) -> Option<Duration> {
    let times: Option<Vec<Duration>> =
        all_caps.iter().map(|caps| Some(caps.link_rate?.transmission_time(bytes))).collect();
    times?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_one_after_another_receive_longer_than_the_longest() {
        let flow =
            |port, began_ns, elapsed_ns| FlowReport { port, began_ns, elapsed_ns, ..FlowReport::default() };
        let of = |flows: &[FlowReport]| receiving_ns(flows.iter());
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[flow(0, Some(0), 10), flow(0, Some(7), 10), flow(0, Some(30), 5)]), 35);
        // Each port has a server's clock of its own; some do not report when a flow began.
        assert_eq!(of(&[flow(0, Some(0), 10), flow(1, Some(30), 5), flow(1, Some(38), 4)]), 12);
        assert_eq!(of(&[flow(0, None, 10), flow(0, None, 11), flow(0, Some(5), 3)]), 11);
        assert_eq!(of(&[flow(0, Some(0), 1), flow(0, Some(u64::MAX), u64::MAX)]), u64::MAX);
    }
}
