//! Run: the result document of a plan. What was asked, what was negotiated, what the machine was, every case,
//! every warning. `schema/run.v1.json` describes it for others.
//!
//! Not for computing anything: `sample`, `stats` and `schedule` fill it in.
//!
//! The unit stands in every field's name. A field that is absent was not measured; `null` was not reached because
//! too many exchanges were lost. Floating-point numbers are finite, always.

use std::collections::BTreeMap;
use std::io::Read;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plan::Direction;
use crate::stats::Interval;

/// The schema that this version writes.
pub const SCHEMA: &str = "linkgauge.run.v1";

/// The program and version that writes a document or answers a session.
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
    /// What the far end spoke (never `auto`).
    pub peer: String,
    pub workload: String,
    pub direction: Direction,
    pub message_bytes: u32,
    pub ports: u32,
    pub parallel: u32,
    /// Identity of the method: results of different methods are not compared.
    pub method: String,
    /// Everything planned was measured.
    pub complete: bool,
    pub elapsed_ns: u64,
    #[serde(flatten)]
    pub figures: Figures,
    /// Latency of a probe that ran beside the load, on a link of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub under_load: Option<Figures>,
    /// Rate of the slowest port ÷ rate of the fastest, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fairness: Option<f64>,
    /// Median of the slowest port ÷ median of the fastest, 1 and above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_spread: Option<f64>,
    /// Time series, one entry an interval.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<SeriesEntry>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<CpuUse>,
    pub asked: Map<String, Value>,
    pub got: Map<String, Value>,
    /// What the physical line is, where the link knows it.
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub line: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub shaped: Map<String, Value>,
    /// Where both ends ran and how they waited.
    pub placement: Map<String, Value>,
    /// One entry a repetition, when there were several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub repeats: Vec<PartResult>,
    /// One entry a port, when there were several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub per_port: Vec<PartResult>,
    /// What the plan's thresholds said.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub thresholds: Vec<ThresholdResult>,
    pub warnings: Vec<Warning>,
}

/// A threshold, and what was measured, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThresholdResult {
    pub threshold: String,
    pub measured: String,
    /// What was not measured keeps no threshold.
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

/// What was counted and timed; `docs/metrics.md` defines every number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Messages sent by the near end (or by the far end when receiving).
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Answers that came after their time-out; they count as lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub late: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate: u64,
    /// Replies that came before their request had been sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub early: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub reordered: u64,
    pub corrupt_bytes: u64,
    /// Bytes of a loop that did not come back.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
    /// Bytes that came back in a loop and had not been sent, or came twice.
    #[serde(skip_serializing_if = "is_zero")]
    pub inserted_bytes: u64,
    /// The first of what was wrong with a loop, by their places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<Defect>,
    /// Messages that came back, or arrived, with other content than was sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub corrupt_messages: u64,
    /// Sends that the schedule wanted but that could not be made in time.
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
    /// Delivered payload bits a second, by the receiver's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
    /// The same for the other direction, when both were measured.
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
    /// Lost messages that the receiver's socket dropped, and those the path did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_in_socket: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_on_path: Option<u64>,
    /// What the serial ports counted on their lines, where they count it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overruns: Option<u64>,
    /// Requests of a download that were answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<u64>,
    /// Requests that were sent again: unanswered in time, or the link was opened anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// Times that the far end asked for patience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub please_waits: Option<u64>,
    /// Requests for which the far end had no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u64>,
    /// Times that a lost link was opened anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnects: Option<u64>,
    /// Requests that were kept on their way at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Records of a table that came, each counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Records whose numbers were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_gaps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_repeats: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records_out_of_order: Option<u64>,
    /// The first of what was wrong with the numbers of records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub record_faults: Vec<RecordFault>,
    /// The way there and the way back, where the far end tells them apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ways: Option<OneWayFigures>,
    /// 95 % intervals of the statistics, by name (`latency_ns.p50`, `throughput_bps`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, Interval>,
    /// Histogram of the latency in ns: HdrHistogram V2, deflate not used, base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram_hdr_v2: Option<String>,
}

/// Something wrong with a stream that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// Where in what was sent, from 0.
    pub offset: u64,
    pub bytes: u64,
    pub kind: DefectKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefectKind {
    Changed,
    Lost,
    /// Never sent, or more than once.
    Inserted,
    /// Came after what was sent later.
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

/// Something wrong with the numbers of records that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFault {
    pub first_record: u64,
    /// How many in a row.
    pub records: u64,
    pub kind: RecordFaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFaultKind {
    Missing,
    Repeated,
    /// Came after later ones.
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

/// A distribution of times in nanoseconds. A lost exchange counts as later than everything: a percentile that falls
/// among the lost is `null`; one that the sample is too small for is absent, but for the median, which is that of the sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Exchanges that were answered.
    pub count: u64,
    pub min: u64,
    pub mean: f64,
    pub standard_deviation: f64,
    pub max: u64,
    /// Mean of the fastest 95 % of those sent; `null` when more than 5 % were lost.
    pub mean_fastest_95_percent: Option<f64>,
    /// `p10` … `p90`, `p99`, `p99.9` …, nearest rank.
    #[serde(flatten)]
    pub percentiles: BTreeMap<String, Option<u64>>,
    /// Share (0 to 1) of those sent that took longer than so many milliseconds, or were lost.
    pub later_than_ms: BTreeMap<String, f64>,
}

/// Exchanges on a schedule that were answered too late after they were due, or never.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedFrames {
    /// How many of those sent took longer than so many milliseconds, or were lost.
    pub count_later_than_ms: BTreeMap<String, u64>,
    /// The first that missed the shortest of these limits.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub first: Vec<MissedFrame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedFrame {
    /// As in the raw samples: from 0, warm-up included.
    pub sequence: u64,
    /// From the begin of the measurement.
    pub due_ns: u64,
    /// Received − intended; absent: lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<u64>,
}

/// A round trip in its parts. One-way delays are right to `one_way_error_bound_ns` only: the clocks of the two ends
/// differ by no more than that from `clock_offset_ns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWayFigures {
    /// From the receipt of the request at the far end to the sending of its answer, by its clock.
    pub turnaround_ns: Distribution,
    /// The round trip without it.
    pub path_ns: Distribution,
    /// How much longer than the shortest each way was.
    pub there_variation_ns: Distribution,
    pub back_variation_ns: Distribution,
    pub there_p50_ns: f64,
    pub back_p50_ns: f64,
    /// Half of the shortest path.
    pub one_way_error_bound_ns: f64,
    /// How far the far end's time of day is ahead of ours.
    pub clock_offset_ns: f64,
    /// How fast it gains on ours; 0 where that could not be told.
    pub clock_drift_ppm: f64,
    /// How often the far end's clock was set while it was measured.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub clock_steps: u64,
    /// Of the lost, those that did not reach the far end, and those whose answer did not come back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_there: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_back: Option<u64>,
}

impl Figures {
    /// Whether anything was measured; a transfer may be shorter than one message.
    pub fn has_measurements(&self) -> bool {
        self.sent > 0 || self.received > 0 || self.delivered_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Share of the messages that were lost (0 to 1); none where nothing was sent, or where the receiver did not report.
    pub fn loss_share(&self) -> Option<f64> {
        let without_report = self.received + self.lost == 0
            || self.delivered_bytes.is_none() && self.delivered_back_bytes.is_some();
        (self.sent > 0 && !without_report).then(|| self.lost as f64 / self.sent as f64)
    }
}

impl MissedFrames {
    /// How many by each limit in milliseconds, from the shortest.
    pub fn by_limit(&self) -> Vec<(&str, u64)> {
        let mut counts: Vec<_> =
            self.count_later_than_ms.iter().map(|(limit, count)| (limit.as_str(), *count)).collect();
        let length = |limit: &str| limit.parse().unwrap_or(f64::MAX);
        counts.sort_by(|a, b| length(a.0).total_cmp(&length(b.0)));
        counts
    }
}

impl CaseResult {
    /// Share of the time that the threads of the near and of the far end used, 1 being all of it. In a transfer both
    /// ways an end has two threads for a connection.
    pub fn cpu_shares(&self) -> Option<(f64, Option<f64>)> {
        let cpu = self.cpu.as_ref()?;
        let time = self.transfer_seconds() * f64::from(self.ports.max(1)) * f64::from(self.parallel.max(1));
        (time > 0.0).then(|| (cpu.near_seconds / time, cpu.far_seconds.map(|seconds| seconds / time)))
    }

    /// How long payload was delivered. What comes around it, as the far end's report, takes a good part of a short case; but
    /// the CPU's time holds the warm-up, so with one it is the time of the case.
    fn transfer_seconds(&self) -> f64 {
        let elapsed = self.elapsed_ns as f64 / 1e9;
        let warmed_up =
            self.asked.get("warm_up").and_then(Value::as_object).is_some_and(|stop| !stop.is_empty());
        let delivered = self.figures.delivered_bytes.zip(self.figures.throughput_bps).filter(|_| !warmed_up);
        let transfer = delivered.map(|(bytes, rate)| 8.0 * bytes as f64 / rate);
        transfer.filter(|seconds| *seconds <= elapsed).unwrap_or(elapsed)
    }

    /// The pacing that took effect.
    pub fn pacing(&self) -> Option<&Value> {
        self.got.get("pacing").or_else(|| self.asked.get("pacing"))
    }

    /// Whether the rate was nobody's wish: what was sent went slower than the link may carry.
    pub fn is_paced_by_default(&self) -> bool {
        let kind = |map: &Map<String, Value>, name: &str, kind: &str| {
            map.get(name).and_then(|value| value.get("kind")) == Some(&Value::from(kind))
        };
        kind(&self.asked, "rate", "default") && kind(&self.got, "pacing", "fixed")
    }

    /// What besides endpoint, size and numbers tells it from other cases of its method: `100/s`, `spin`; mostly empty.
    pub fn settings_label(&self) -> String {
        let per_second = self.pacing().and_then(|pacing| pacing.get("per_second")?.as_f64());
        let spins = self.placement.get("wait").is_some_and(|wait| wait == "spin");
        let settings = [per_second.map(|rate| format!("{rate}/s")), spins.then(|| "spin".to_owned())];
        settings.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Distribution {
    /// A percentile by its name (`p50`); `None` when it is absent or not reached.
    pub fn percentile(&self, name: &str) -> Option<u64> {
        self.percentiles.get(name).copied().flatten()
    }
}

/// One interval of the time series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesEntry {
    /// From the start of the measurement (after warm-up).
    pub start_ns: u64,
    pub length_ns: u64,
    /// Messages answered (latency) or delivered (throughput).
    pub messages: u64,
    pub bytes: u64,
    pub lost: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_max_ns: Option<u64>,
}

/// CPU seconds of the threads that moved the payload; those spent waiting in a busy loop stand apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    pub near_seconds: f64,
    /// CPU seconds in which the near end only asked whether it is time yet, or whether something came.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub near_waiting_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far_seconds: Option<f64>,
    /// CPU seconds of both ends for 10⁹ delivered bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds_per_gigabyte: Option<f64>,
}

/// A published study, its figures beside what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    pub name: String,
    pub title: String,
    /// Who published it, and when.
    pub source: String,
    /// What was done shorter than in the study.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shortened: Option<String>,
    /// What stands for hardware in the lab, where it has a name: `emulated logger`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stand_ins: Vec<String>,
    /// What the guests were that something was measured in, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub guests: Vec<String>,
    /// Those that were asked for, in the study's order.
    pub tables: Vec<StudyTable>,
}

/// A table of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyTable {
    /// The study's own.
    pub number: String,
    pub title: String,
    /// What the names of its rows are: products, rates.
    pub rows_are: String,
    /// Every figure of the table, row by row.
    pub rows: Vec<StudyRow>,
}

/// One published figure and what meets it. `published`, `measured`, `predicted` and `limit` are in `unit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    pub row: String,
    pub column: String,
    /// As printed, `Not Available` and its like too.
    pub published: String,
    pub unit: String,
    /// The case of the study's plan that meets it; several rows may share one.
    pub planned_case: String,
    /// Which statistic of that case.
    pub statistic: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured: Option<f64>,
    /// What the study's settings lead one to expect.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted: Option<f64>,
    /// What the physical line allows at best.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<f64>,
    /// Number of the case in this document, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<usize>,
    /// Measured in the lab: no hardware.
    #[serde(skip_serializing_if = "is_false", default)]
    pub stand_in: bool,
    /// Measured in a guest, whose figures compare with each other only.
    #[serde(skip_serializing_if = "is_false", default)]
    pub guest: bool,
    /// Why nothing was measured, or what is wrong with what was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What one should know of the published figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// The machine and what it does to a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Facts of the near machine, by name with the unit in it.
    pub near: Map<String, Value>,
    /// The same of the far machine, where our own session told us.
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub far: Map<String, Value>,
}

/// Something that makes a figure doubtful, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Stable short name.
    pub code: String,
    pub text: String,
    pub remedy: String,
}

impl Warning {
    pub fn new(code: &str, text: impl Into<String>, remedy: impl Into<String>) -> Warning {
        Warning { code: code.to_owned(), text: text.into(), remedy: remedy.into() }
    }
}

/// What was wrong with a document.
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

    /// Documents one behind the other. The first thing that is no document of this schema ends them.
    pub fn read_stream(from: impl Read) -> impl Iterator<Item = Run> {
        let values = serde_json::Deserializer::from_reader(from).into_iter::<Value>();
        let known = |value: &Value| value.get("schema").and_then(Value::as_str) == Some(SCHEMA);
        values.map_while(move |value| serde_json::from_value(value.ok().filter(known)?).ok())
    }

    /// Every warning: those of the run, then those of each case with its number.
    pub fn all_warnings(&self) -> impl Iterator<Item = (Option<usize>, &Warning)> {
        let of_cases = self.cases.iter().enumerate();
        let of_cases = of_cases.flat_map(|(index, case)| case.warnings.iter().map(move |w| (Some(index), w)));
        self.warnings.iter().map(|warning| (None, warning)).chain(of_cases)
    }

    /// Whether every threshold was kept.
    pub fn thresholds_passed(&self) -> bool {
        self.cases.iter().flat_map(|case| &case.thresholds).all(|judged| judged.kept)
    }

    /// Whether everything that was planned was measured.
    pub fn is_complete(&self) -> bool {
        !self.interrupted && self.cases.iter().all(|case| case.complete)
    }
}
