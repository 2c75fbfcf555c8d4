//! The result document of a plan: what was requested, what was effective, the machine, every case, every warning.
//! `schema/run.v1.json` describes it for other programs.
//!
//! This module computes nothing: `sample`, `stats` and `schedule` fill the document in.
//!
//! Each field's name carries its unit. An absent field was not measured. `null` was not reached because too many
//! requests were lost. Floating-point numbers are always finite.

use std::collections::BTreeMap;
use std::io::Read;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plan::Direction;
use crate::stats::Interval;

/// The schema of the documents that this version writes.
pub const SCHEMA: &str = "linkgauge.run.v1";

/// The program and version that writes a document or takes part in a session.
pub const TOOL: &str = concat!("linkgauge ", env!("CARGO_PKG_VERSION"));

/// A result document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: String,
    /// Unique: the start in UTC and a random part.
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    /// The program and version that wrote this.
    pub tool: String,
    pub started: Timestamp,
    pub elapsed_ns: u64,
    /// Stopped by a signal before everything was measured.
    #[serde(skip_serializing_if = "is_false", default)]
    pub interrupted: bool,
    pub cases: Vec<CaseResult>,
    /// The published study that was run again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paper: Option<StudyResult>,
    pub environment: Environment,
    pub warnings: Vec<Warning>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// One case, all its repetitions and ports together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The first port, as typed.
    pub endpoint: String,
    /// The protocol that the remote spoke (never `auto`).
    pub peer: String,
    pub workload: String,
    pub direction: Direction,
    pub message_bytes: u32,
    pub ports: u32,
    pub parallel: u32,
    /// Identity of the measuring method. Results of different methods are not compared.
    pub method: String,
    /// Everything that was planned was measured.
    pub complete: bool,
    pub elapsed_ns: u64,
    #[serde(flatten)]
    pub figures: Figures,
    /// Latency of a probe that ran during the load, on a separate link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub under_load: Option<Figures>,
    /// Rate of the slowest port ÷ rate of the fastest, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fairness: Option<f64>,
    /// Median of the slowest port ÷ median of the fastest, 1 and above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_spread: Option<f64>,
    /// Time series, one entry for each interval.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<SeriesEntry>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<CpuUse>,
    pub asked: Map<String, Value>,
    pub got: Map<String, Value>,
    /// The physical line, where the link knows it.
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub line: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub shaped: Map<String, Value>,
    /// Where client and server ran and how they waited.
    pub placement: Map<String, Value>,
    /// One entry for each repetition, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub repeats: Vec<PartResult>,
    /// One entry for each port, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub per_port: Vec<PartResult>,
    /// Outcomes of the plan's thresholds.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub thresholds: Vec<ThresholdResult>,
    pub warnings: Vec<Warning>,
}

/// A threshold and the measured value, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThresholdResult {
    pub threshold: String,
    pub measured: String,
    /// A value that was not measured meets no threshold.
    pub kept: bool,
}

/// The figures of one repetition or one port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartResult {
    pub endpoint: String,
    pub elapsed_ns: u64,
    #[serde(flatten)]
    pub figures: Figures,
}

/// Counts and times. `docs/metrics.md` defines every number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Messages that the client sent (or the server, in a download).
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Replies that came after their time-out. They count as lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub late: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate: u64,
    /// Replies that came before their request was sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub early: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub reordered: u64,
    pub corrupt_bytes: u64,
    /// Bytes that a loop did not return.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
    /// Bytes that a loop returned although they were not sent, or were sent once and returned twice.
    #[serde(skip_serializing_if = "is_zero")]
    pub inserted_bytes: u64,
    /// The first defects of a loop, by position.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<Defect>,
    /// Messages that arrived, or came back, with changed content.
    #[serde(skip_serializing_if = "is_zero")]
    pub corrupt_messages: u64,
    /// Sends that the schedule required but that could not be made in time.
    #[serde(skip_serializing_if = "is_zero")]
    pub missed_sends: u64,
    /// Service time: received − sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// Response time: received − intended. Only with a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// Only with a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_frames: Option<MissedFrames>,
    /// Mean |difference| of consecutive latencies (IPDV, RFC 3393).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
    /// Delivered payload bits per second, by the receiver's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
    /// The same for the other direction, if both were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_back_bps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_back_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_rate_percent: Option<f64>,
    /// Lost messages that the receiver's socket dropped, and messages that the network lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_in_socket: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_on_path: Option<u64>,
    /// Errors that the serial ports counted, where they count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overruns: Option<u64>,
    /// Requests of a download that got a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<u64>,
    /// Requests that were sent again because the time-out passed or the link was opened again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// "Please wait" messages of the remote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub please_waits: Option<u64>,
    /// Requests that the remote refused because its queue was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u64>,
    /// Times that a lost link was opened again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnects: Option<u64>,
    /// Requests in flight at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Records received from a table, each counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Records missing from the sequence of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_gaps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_repeats: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records_out_of_order: Option<u64>,
    /// The first faults in the sequence of record numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub record_faults: Vec<RecordFault>,
    /// One-way figures, where the remote reports its timestamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ways: Option<OneWayFigures>,
    /// 95 % intervals of the statistics, by name (`latency_ns.p50`, `throughput_bps`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, Interval>,
    /// Histogram of the latency in ns: HdrHistogram V2, deflate not used, base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram_hdr_v2: Option<String>,
}

/// A defect of a stream that a loop returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// Position in the sent stream, from 0.
    pub offset: u64,
    pub bytes: u64,
    pub kind: DefectKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefectKind {
    Changed,
    Lost,
    /// Never sent, or returned more than once.
    Inserted,
    /// Arrived after bytes that were sent later.
    Reordered,
}

impl DefectKind {
    pub fn name(self) -> &'static str {
        match self {
            DefectKind::Changed => "changed",
            DefectKind::Lost => "lost",
            DefectKind::Inserted => "inserted",
            DefectKind::Reordered => "reordered",
        }
    }
}

/// A fault in the sequence of record numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFault {
    pub first_record: u64,
    /// Consecutive records with this fault.
    pub records: u64,
    pub kind: RecordFaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFaultKind {
    Missing,
    Repeated,
    /// Arrived after records with higher numbers.
    OutOfOrder,
}

impl RecordFaultKind {
    pub fn name(self) -> &'static str {
        match self {
            RecordFaultKind::Missing => "missing",
            RecordFaultKind::Repeated => "again",
            RecordFaultKind::OutOfOrder => "out of order",
        }
    }
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
    pub min: u64,
    pub mean: f64,
    pub standard_deviation: f64,
    pub max: u64,
    /// Mean of the fastest 95 % of the requests sent; `null` if more than 5 % were lost.
    pub mean_fastest_95_percent: Option<f64>,
    /// `p10` … `p90`, `p99`, `p99.9` …, by nearest rank.
    #[serde(flatten)]
    pub percentiles: BTreeMap<String, Option<u64>>,
    /// Share (0 to 1) of the requests sent that took longer than this many milliseconds, or were lost.
    pub later_than_ms: BTreeMap<String, f64>,
}

/// Scheduled requests whose reply came too late after their due time, or never.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedFrames {
    /// Number of requests that took longer than this many milliseconds, or were lost.
    pub count_later_than_ms: BTreeMap<String, u64>,
    /// The first requests that exceeded the shortest limit.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub first: Vec<MissedFrame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedFrame {
    /// As in the raw samples: from 0, including the warm-up.
    pub sequence: u64,
    /// From the start of the measurement.
    pub due_ns: u64,
    /// Received − intended; absent if lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<u64>,
}

/// The parts of a round trip. One-way delays have an error of up to `one_way_error_bound_ns`, because the true offset
/// between the clocks may differ by that much from `clock_offset_ns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWayFigures {
    /// From receiving the request to sending the reply, by the remote's clock.
    pub turnaround_ns: Distribution,
    /// The round trip without the turnaround.
    pub path_ns: Distribution,
    /// Forward and reverse delay, each minus its shortest value.
    pub there_variation_ns: Distribution,
    pub back_variation_ns: Distribution,
    pub there_p50_ns: f64,
    pub back_p50_ns: f64,
    /// Half of the shortest path.
    pub one_way_error_bound_ns: f64,
    /// Remote time of day minus local time of day.
    pub clock_offset_ns: f64,
    /// Rate of the remote's clock relative to the local one; 0 where it could not be determined.
    pub clock_drift_ppm: f64,
    /// Times that the remote's clock was set during the measurement.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub clock_steps: u64,
    /// Lost requests that did not reach the remote, and those whose reply did not come back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_there: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_back: Option<u64>,
}

impl Figures {
    /// True if anything was measured. A transfer may be shorter than one message.
    pub fn has_measurements(&self) -> bool {
        self.sent > 0 || self.received > 0 || self.delivered_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Share of the messages that were lost (0 to 1). `None` if nothing was sent or the receiver did not report.
    pub fn loss_share(&self) -> Option<f64> {
        let without_report = self.received + self.lost == 0
            || self.delivered_bytes.is_none() && self.delivered_back_bytes.is_some();
        (self.sent > 0 && !without_report).then(|| self.lost as f64 / self.sent as f64)
    }
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

impl CaseResult {
    /// Shares of one CPU that the threads of client and server used (1 is all of the time). In a bidirectional
    /// transfer each side has two threads per connection.
    pub fn cpu_shares(&self) -> Option<(f64, Option<f64>)> {
        let cpu = self.cpu.as_ref()?;
        let time = self.transfer_seconds() * f64::from(self.ports.max(1)) * f64::from(self.parallel.max(1));
        (time > 0.0).then(|| (cpu.near_seconds / time, cpu.far_seconds.map(|seconds| seconds / time)))
    }

    /// Time in which payload was delivered. Setup and the server's report take a large part of a short case. CPU time
    /// includes the warm-up, so a case with warm-up counts its whole duration.
    fn transfer_seconds(&self) -> f64 {
        let elapsed = self.elapsed_ns as f64 / 1e9;
        let warmed_up =
            self.asked.get("warm_up").and_then(Value::as_object).is_some_and(|stop| !stop.is_empty());
        let delivered = self.figures.delivered_bytes.zip(self.figures.throughput_bps).filter(|_| !warmed_up);
        let transfer = delivered.map(|(bytes, rate)| 8.0 * bytes as f64 / rate);
        transfer.filter(|seconds| *seconds <= elapsed).unwrap_or(elapsed)
    }

    /// The effective pacing.
    pub fn pacing(&self) -> Option<&Value> {
        self.got.get("pacing").or_else(|| self.asked.get("pacing"))
    }

    /// True if no rate was requested and the default pacing took effect.
    pub fn is_paced_by_default(&self) -> bool {
        let kind = |map: &Map<String, Value>, name: &str, kind: &str| {
            map.get(name).and_then(|value| value.get("kind")) == Some(&Value::from(kind))
        };
        kind(&self.asked, "rate", "default") && kind(&self.got, "pacing", "fixed")
    }

    /// Settings besides endpoint, size and port counts, as text: `100/s`, `spin`. Often empty.
    pub fn settings_label(&self) -> String {
        let per_second = self.pacing().and_then(|pacing| pacing.get("per_second")?.as_f64());
        let is_busy_polling = self.placement.get("wait").is_some_and(|wait| wait == "spin");
        let settings =
            [per_second.map(|rate| format!("{rate}/s")), is_busy_polling.then(|| "spin".to_owned())];
        settings.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Distribution {
    /// A percentile by name (`p50`). `None` if it is absent or was not reached.
    pub fn percentile(&self, name: &str) -> Option<u64> {
        self.percentiles.get(name).copied().flatten()
    }
}

/// One interval of the time series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesEntry {
    /// From the start of the measurement, after the warm-up.
    pub start_ns: u64,
    pub length_ns: u64,
    /// Messages that got a reply (latency) or were delivered (throughput).
    pub messages: u64,
    pub bytes: u64,
    pub lost: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_max_ns: Option<u64>,
}

/// CPU seconds of the threads that moved the payload. Busy-polling is listed separately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    pub near_seconds: f64,
    /// CPU seconds that the client spent polling for a due time or for data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub near_waiting_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far_seconds: Option<f64>,
    /// CPU seconds of client and server per 10⁹ delivered bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds_per_gigabyte: Option<f64>,
}

/// A published study: its figures beside the measured ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    pub name: String,
    pub title: String,
    /// Authors and date.
    pub source: String,
    /// How this run is shorter than the study.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shortened: Option<String>,
    /// Names of the lab devices that replace hardware: `emulated logger`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stand_ins: Vec<String>,
    /// Descriptions of the guests that cases were measured in.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub guests: Vec<String>,
    /// The requested tables, in the study's order.
    pub tables: Vec<StudyTable>,
}

/// A table of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyTable {
    /// As in the study.
    pub number: String,
    pub title: String,
    /// The meaning of the row names: products, rates.
    pub rows_are: String,
    /// Every figure of the table, row by row.
    pub rows: Vec<StudyRow>,
}

/// One published figure and its counterpart. `published`, `measured`, `predicted` and `limit` are in `unit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    pub row: String,
    pub column: String,
    /// As printed, including `Not Available` and the like.
    pub published: String,
    pub unit: String,
    /// The corresponding case of the study's plan. Several rows may share one.
    pub planned_case: String,
    /// The statistic of that case.
    pub statistic: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured: Option<f64>,
    /// The value expected from the study's settings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted: Option<f64>,
    /// The best value that the physical line allows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<f64>,
    /// The case in this document, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<usize>,
    /// Measured with lab devices, not hardware.
    #[serde(skip_serializing_if = "is_false", default)]
    pub stand_in: bool,
    /// Measured in a guest. Such figures compare only with each other.
    #[serde(skip_serializing_if = "is_false", default)]
    pub guest: bool,
    /// Why nothing was measured, or why the measured figure is doubtful.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// A remark on the published figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// The machines and their effects on the measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Facts about the local machine. Each name carries the unit.
    pub near: Map<String, Value>,
    /// The same for the remote machine, if a linkgauge server reported it.
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub far: Map<String, Value>,
}

/// A reason to doubt a figure, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Short and stable.
    pub code: String,
    pub text: String,
    pub remedy: String,
}

impl Warning {
    pub fn new(code: &str, text: impl Into<String>, remedy: impl Into<String>) -> Warning {
        Warning { code: code.to_owned(), text: text.into(), remedy: remedy.into() }
    }
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("not a run document: {0}")]
    NotJson(serde_json::Error),
    #[error("a run document of schema '{0}', this version reads '{SCHEMA}': use a newer linkgauge")]
    Schema(String),
}

impl Run {
    /// Reads a document; unknown fields of the same schema are ignored.
    pub fn from_json(text: &str) -> Result<Run, RunError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(text).map_err(RunError::NotJson)?;
        if head.schema != SCHEMA {
            return Err(RunError::Schema(head.schema));
        }
        serde_json::from_str(text).map_err(RunError::NotJson)
    }

    /// Reads concatenated documents. Stops at the first one that is not of this schema.
    pub fn read_stream(from: impl Read) -> impl Iterator<Item = Run> {
        let values = serde_json::Deserializer::from_reader(from).into_iter::<Value>();
        let known = |value: &Value| value.get("schema").and_then(Value::as_str) == Some(SCHEMA);
        values.map_while(move |value| serde_json::from_value(value.ok().filter(known)?).ok())
    }

    /// The warnings of the run, then those of each case with its number.
    pub fn all_warnings(&self) -> impl Iterator<Item = (Option<usize>, &Warning)> {
        let of_cases = self.cases.iter().enumerate();
        let of_cases = of_cases.flat_map(|(index, case)| case.warnings.iter().map(move |w| (Some(index), w)));
        self.warnings.iter().map(|warning| (None, warning)).chain(of_cases)
    }

    /// True if every threshold was met.
    pub fn thresholds_passed(&self) -> bool {
        self.cases.iter().flat_map(|case| &case.thresholds).all(|judged| judged.kept)
    }

    /// True if everything that was planned was measured.
    pub fn is_complete(&self) -> bool {
        !self.interrupted && self.cases.iter().all(|case| case.complete)
    }
}
