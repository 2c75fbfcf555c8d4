//! The result document of a plan: what was requested, what was effective, the machine, every case, every warning.
//! `schema/run.v1.json` describes it for other programs.
//!
//! This module computes nothing: `sample`, `stats` and `schedule` fill the document in.
//!
//! Each field's name carries its unit. An absent field was not measured. `null` was not reached because too many
//! requests were lost. Floating-point numbers are always finite.

mod damage;
mod defects;
mod evidence;
mod facts;
mod failure;
mod figures;
mod flow_figures;
mod line_errors;
mod marks;
mod mesh;
mod path;
mod responsiveness;
#[cfg(test)]
pub mod sample_runs;
mod setting_names;
mod study;
mod tcp;
mod warning;

use std::io::{self, Read};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::stats::MIN_INTERVAL_REPETITIONS;
use crate::traffic::{Direction, WaitMode};
use crate::units::format_number;

pub use defects::{Defect, DefectKind, RecordFault, RecordFaultKind};
pub use evidence::{
    ConnectionEvidence, ConnectionReading, Counters, EndEvidence, Evidence, Gauge, MAX_OBSERVED_CONNECTIONS,
    add_counters, thin,
};
pub use facts::{CpuChoice, HostLoad, LineFacts, Placement, Shaping};
pub use failure::{Failure, FailureKind};
pub use figures::{
    AddedLatency, BoundSource, ByteErrors, Delivery, Distribution, Figures, Goal, MessageCounts, MissedFrame,
    MissedFrames, NUMBERS, NamedStage, Number, OneWayFigures, ReadNumber, RecordCounts, RemoteClock,
    RequestCounts, RoundTripTimes, SaidZeros, StageFigures,
};
pub use flow_figures::{ConnectionCounts, FlowFigures, SlowFlow};
pub use line_errors::LineErrors;
pub use marks::PacketMarks;
pub use mesh::{
    BlamedPart, MeshBlame, MeshHost, MeshPair, MeshResource, MeshResult, MeshServed, number_groups,
};
pub use path::{
    HopTimes, LoadedHop, PathEnd, PathHop, PathHost, PathLoss, PathMtu, PathQueue, PathResult, QueueVerdict,
};
pub use responsiveness::{Confidence, ResponsivenessFigures};
pub use setting_names::*;
pub use study::{StudyChart, StudyFact, StudyResult, StudyRow, StudyStatement, StudyTable};
pub use tcp::TcpFigures;
pub use warning::{Warning, WarningCode};

/// The schema of the documents that this version writes.
pub const SCHEMA: &str = "linkgauge.run.v1";

/// The program and version that writes a document or takes part in a session.
pub const TOOL: &str = concat!("linkgauge ", env!("CARGO_PKG_VERSION"));

/// A result document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Schema of the document: [`SCHEMA`].
    pub schema: String,
    /// Unique id of the run: the start in UTC and a random part.
    pub id: String,
    /// Title of the plan.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    /// The program and version that wrote this.
    pub tool: String,
    /// Start of the run.
    pub started: Timestamp,
    /// Duration.
    pub elapsed_ns: u64,
    /// Whether a signal stopped the run before everything was measured.
    #[serde(skip_serializing_if = "is_false", default)]
    pub interrupted: bool,
    /// Results, in the order of the plan.
    pub cases: Vec<CaseResult>,
    /// The published study that was run again.
    #[serde(rename = "paper", skip_serializing_if = "Option::is_none", default)]
    pub study: Option<StudyResult>,
    /// The mesh of hosts whose tests the cases are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mesh: Option<MeshResult>,
    /// Facts about the machines.
    pub environment: Environment,
    /// Reasons to doubt the figures.
    pub warnings: Vec<Warning>,
}

impl Run {
    /// The results of a run that this host has made, with a new name.
    pub fn of_cases(
        started: Timestamp,
        elapsed_ns: u64,
        cases: Vec<CaseResult>,
        environment: Environment,
    ) -> Run {
        Run {
            schema: SCHEMA.to_owned(),
            id: format!("{}-{:06x}", started.strftime("%Y%m%dT%H%M%SZ"), fastrand::u32(..1 << 24)),
            title: None,
            tool: TOOL.to_owned(),
            started,
            elapsed_ns,
            interrupted: false,
            cases,
            study: None,
            mesh: None,
            environment,
            warnings: Vec::new(),
        }
    }
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
    pub protocol: String,
    /// Name of the workload: `latency`, `throughput`, `download`, `connect`, `path`, ….
    pub workload: String,
    /// Direction of the payload, as the client sees it.
    pub direction: Direction,
    /// Payload of one message; 0 if it is unknown, or if there is none, and absent in documents.
    #[serde(skip_serializing_if = "is_zero_size", default)]
    pub message_bytes: u32,
    /// Ports measured at the same time.
    pub ports: u32,
    /// Connections to each port.
    pub parallel: u32,
    /// Identity of the measuring method. Results of different methods are not compared.
    pub method: String,
    /// Whether everything that was planned was measured.
    pub complete: bool,
    /// Failures of repetitions, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub failures: Vec<Failure>,
    /// Duration; 0 if it is unknown, and absent in documents.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub elapsed_ns: u64,
    /// Counts and times.
    #[serde(flatten)]
    pub figures: Figures,
    /// Latency of a probe that ran during the load, on a separate link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub under_load: Option<Figures>,
    /// Latency of the same probe on the idle link, before the load.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle: Option<Figures>,
    /// Rate of the slowest port ÷ rate of the fastest, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fairness: Option<f64>,
    /// Median of the slowest port ÷ median of the fastest, 1 and above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port_latency_ratio: Option<f64>,
    /// Time series, one entry for each interval.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<SeriesEntry>,
    /// Time series of the probe, on the same time axis.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub under_load_series: Vec<SeriesEntry>,
    /// Time series of the probe on the idle link. It ends where the other series begin.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub idle_series: Vec<SeriesEntry>,
    /// Time series of the probe after the load, on the time axis of `series`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub recovery_series: Vec<SeriesEntry>,
    /// The path to the host, if hop-limited probes looked at it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<PathResult>,
    /// CPU time of the threads that moved the payload.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<CpuUse>,
    /// Requested settings, by name with the unit in it.
    pub requested: Map<String, Value>,
    /// Effective settings, as the link, the protocol and the server report them.
    pub effective: Map<String, Value>,
    /// The physical line, where the link knows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<LineFacts>,
    /// Delay and rates that the lab added.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shaped: Option<Shaping>,
    /// Placement of client and server.
    pub placement: Placement,
    /// Counters of the systems of both ends; absent on the virtual clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<Evidence>,
    /// One entry for each repetition, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub repeats: Vec<PartResult>,
    /// One entry for each port, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub per_port: Vec<PartResult>,
    /// Outcomes of the plan's thresholds.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub thresholds: Vec<ThresholdResult>,
    /// Reasons to doubt the figures.
    pub warnings: Vec<Warning>,
}

impl CaseResult {
    /// A complete case with these figures and nothing else: one connection, no settings, no warnings.
    pub fn of_figures(
        endpoint: String,
        workload: &str,
        direction: Direction,
        figures: Figures,
    ) -> CaseResult {
        CaseResult {
            endpoint,
            protocol: "unknown".to_owned(),
            workload: workload.to_owned(),
            direction,
            message_bytes: 0,
            ports: 1,
            parallel: 1,
            method: workload.to_owned(),
            complete: true,
            failures: Vec::new(),
            elapsed_ns: 0,
            figures,
            under_load: None,
            idle: None,
            fairness: None,
            port_latency_ratio: None,
            series: Vec::new(),
            under_load_series: Vec::new(),
            idle_series: Vec::new(),
            recovery_series: Vec::new(),
            path: None,
            cpu: None,
            requested: Map::new(),
            effective: Map::new(),
            line: None,
            shaped: None,
            placement: Placement::default(),
            evidence: None,
            repeats: Vec::new(),
            per_port: Vec::new(),
            thresholds: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl CaseResult {
    /// A percentile of the round trips, `percent` from 0 to 100, if the document has it: 10, 20 … 90, 95, 99, 99.9 …. `None` for
    /// others, if the sample is too small for it, and if it was not reached because too many requests were lost.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        self.figures.times.latency_ns.as_ref()?.percentile(&format!("p{percent}")).map(Duration::from_nanos)
    }

    /// The median round trip.
    pub fn p50(&self) -> Option<Duration> {
        self.percentile(50.0)
    }

    /// The 90th percentile of the round trips.
    pub fn p90(&self) -> Option<Duration> {
        self.percentile(90.0)
    }

    /// The 99th percentile of the round trips.
    pub fn p99(&self) -> Option<Duration> {
        self.percentile(99.0)
    }
}

/// A threshold and the measured value, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThresholdResult {
    /// Metric, relation and limit.
    pub threshold: String,
    /// The measured value, if there is one.
    pub measured: String,
    /// A value that was not measured meets no threshold.
    pub passed: bool,
}

/// The text of a value that was not measured.
pub const NOT_MEASURED: &str = "not measured";

impl ThresholdResult {
    /// Whether the metric was measured.
    pub fn is_measured(&self) -> bool {
        self.measured != NOT_MEASURED
    }
}

/// The figures of one repetition or one port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartResult {
    /// The URL of the link.
    pub endpoint: String,
    /// Duration.
    pub elapsed_ns: u64,
    /// The CPU on which the client's thread ran at the end of a repetition with one flow.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_cpu: Option<u32>,
    /// The CPU on which the server's thread ran at the end of a repetition with one flow, if the server reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_cpu: Option<u32>,
    /// Counts and times.
    #[serde(flatten)]
    pub figures: Figures,
}

impl PartResult {
    /// A part without known CPUs.
    pub fn new(endpoint: impl Into<String>, elapsed_ns: u64, figures: Figures) -> PartResult {
        PartResult { endpoint: endpoint.into(), elapsed_ns, client_cpu: None, server_cpu: None, figures }
    }
}

impl CaseResult {
    /// Whether anything arrived, of the measurement or of the probe beside it.
    pub fn has_arrivals(&self) -> bool {
        self.figures.has_arrivals() || self.under_load.as_ref().is_some_and(Figures::has_arrivals)
    }

    /// Whether the repetitions are parts of one measurement. They show how sure it is, but do not replace further runs.
    pub fn is_split(&self) -> bool {
        self.requested.contains_key(SPLIT_FACT)
    }

    /// Whether another program measured it.
    pub fn is_imported(&self) -> bool {
        self.requested.contains_key(IMPORTED_FROM)
    }

    /// Whether a 0 of this field means that the imported file does not say it.
    pub fn is_unsaid(&self, field: &str) -> bool {
        let counts = &self.figures.counts;
        match field {
            _ if !self.is_imported() => false,
            "message_bytes" | "elapsed_ns" => true,
            "corrupt_bytes" | "lost_bytes" | "inserted_bytes" => self.figures.byte_errors.are_unknown,
            "sent" | "received" | "lost" => counts.messages_unknown,
            _ => MessageCounts::is_rare(field) && !counts.said_zeros.contains(field),
        }
    }

    /// Whether more may have been lost than is counted: the server sent no report.
    pub fn is_loss_unconfirmed(&self) -> bool {
        let is_unconfirmed = |warning: &Warning| warning.code == WarningCode::Unconfirmed;
        // Repetitions without the bytes of an upload have no share in the figures.
        let may_be_counted =
            self.direction == Direction::Receive || self.figures.delivery.delivered_bytes.is_none();
        may_be_counted && self.warnings.iter().any(is_unconfirmed)
    }

    /// Whether the time series holds what the sender's system accepted, which may be ahead of the receiver.
    pub fn series_is_sent(&self) -> bool {
        let is_received = self.effective.get(SERIES_FACT).is_some_and(|of| of == RECEIVED_SERIES);
        self.direction == Direction::Send && !is_received
    }

    /// Shares of one CPU that the threads of client and server used (1 is all of the time). In a bidirectional
    /// transfer each side has two threads per connection.
    pub fn cpu_shares(&self) -> Option<(f64, Option<f64>)> {
        let cpu = self.cpu.as_ref()?;
        let flows = f64::from(self.ports.max(1)) * f64::from(self.parallel.max(1));
        let threads =
            self.effective.get(CLIENT_THREADS_FACT).and_then(Value::as_f64).unwrap_or(flows).max(1.0);
        let time = self.transfer_seconds();
        let share = |seconds: f64, threads: f64| seconds / (time * threads);
        (time > 0.0).then(|| {
            (
                share(cpu.client_seconds, threads.min(flows)),
                cpu.server_seconds.map(|seconds| share(seconds, flows)),
            )
        })
    }

    /// Time in which payload was delivered. Setup and the server's report take a large part of a short case. CPU time
    /// includes the warm-up, so a case with warm-up counts its whole duration.
    fn transfer_seconds(&self) -> f64 {
        let elapsed = self.elapsed_ns as f64 / 1e9;
        let warmed_up =
            self.requested.get("warm_up").and_then(Value::as_object).is_some_and(|stop| !stop.is_empty());
        let delivered = self
            .figures
            .delivery
            .delivered_bytes
            .zip(self.figures.delivery.throughput_bps)
            .filter(|_| !warmed_up);
        let transfer = delivered.map(|(bytes, rate)| 8.0 * bytes as f64 / rate);
        transfer.filter(|seconds| *seconds <= elapsed).unwrap_or(elapsed)
    }

    /// The effective pacing.
    pub fn pacing(&self) -> Option<&Value> {
        self.effective.get("pacing").or_else(|| self.requested.get("pacing"))
    }

    /// Whether no rate was requested and the default pacing took effect.
    pub fn is_paced_by_default(&self) -> bool {
        let kind = |map: &Map<String, Value>, name: &str, kind: &str| {
            map.get(name).and_then(|value| value.get("kind")) == Some(&Value::from(kind))
        };
        kind(&self.requested, "rate", "default") && kind(&self.effective, "pacing", "fixed")
    }

    /// Settings besides endpoint, size and port counts, as text: `100/s`, `busy-poll`. Often empty.
    pub fn settings_label(&self) -> String {
        // Connections share the schedule of round trips.
        let connections = if ["latency", "connect"].contains(&self.workload.as_str()) {
            f64::from(self.parallel.max(1))
        } else {
            1.0
        };
        let per_second = self.pacing().and_then(|pacing| pacing.get("per_second")?.as_f64());
        let per_second = per_second.map(|rate| match connections {
            1.0 => rate,
            // Rounded, without the rest that the division among the connections left.
            _ => (rate * connections * 1e6).round() / 1e6,
        });
        let is_busy_polling = self.placement.wait == Some(WaitMode::BusyPoll);
        let settings = [per_second.map(format_schedule), is_busy_polling.then(|| "busy-poll".to_owned())];
        settings.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Formats the rate of a schedule: `100/s`. A whole rate has all its digits, because the label identifies the case.
fn format_schedule(per_second: f64) -> String {
    match per_second.fract() == 0.0 {
        true => format!("{per_second:.0}/s"),
        false => format!("{}/s", format_number(per_second)),
    }
}

impl CaseResult {
    /// The settings that separate the histories of a case: those of [`CaseResult::settings_label`], and the CPUs.
    pub fn history_label(&self) -> String {
        let number = |cpu: Option<u32>| cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        let pinned = match self.placement.pinned_cpus() {
            [None, None] => None,
            [client, None] => Some(format!("pin {}", number(client))),
            [client, server] => Some(format!("pin {},{}", number(client), number(server))),
        };
        let settings = Some(self.settings_label()).filter(|label| !label.is_empty());
        settings.into_iter().chain(pinned).collect::<Vec<_>>().join(", ")
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_zero_size(bytes: &u32) -> bool {
    *bytes == 0
}

/// One interval of the time series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesEntry {
    /// Time from the start of the measurement, after the warm-up, to the start of the interval.
    pub start_ns: u64,
    /// Length of the interval.
    pub length_ns: u64,
    /// Messages that got a reply (latency) or were delivered (throughput). `None`: an imported file does not count messages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub messages: Option<u64>,
    /// Payload of these messages.
    pub bytes: u64,
    /// Messages found lost in this interval. `None`: an imported file does not count messages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<u64>,
    /// Fastest round trip.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_min_ns: Option<u64>,
    /// Mean round trip.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_mean_ns: Option<f64>,
    /// Median round trip, within 3 %. Absent if intervals of several repetitions were joined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p50_ns: Option<u64>,
    /// Time that 99 % of the replies needed at most, within 3 %.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p99_ns: Option<u64>,
    /// Number of received messages with a congestion mark (CE).
    #[serde(skip_serializing_if = "is_zero", default)]
    pub ce: u64,
    /// Slowest round trip.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_max_ns: Option<u64>,
    /// Mean delay of the requests above the shortest one, where the server reports its times.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forward_queue_ns: Option<u64>,
    /// Mean delay of the replies above the shortest one, where the server reports its times.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reverse_queue_ns: Option<u64>,
}

/// CPU seconds of the threads that moved the payload. Busy-polling is listed separately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// CPU seconds of the client's work, without busy-polling.
    pub client_seconds: f64,
    /// CPU seconds that the client spent polling for a due time or for data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_busy_poll_seconds: Option<f64>,
    /// CPU seconds of the server's work, if it reported them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_seconds: Option<f64>,
    /// CPU seconds of client and server per 10⁹ delivered bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds_per_gigabyte: Option<f64>,
}

/// The machines and their effects on the measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Facts about the local machine. Each name carries the unit.
    pub client: Map<String, Value>,
    /// Facts about the remote machine, if a linkgauge server reported them.
    #[serde(skip_serializing_if = "Map::is_empty", default)]
    pub server: Map<String, Value>,
}

/// Error of a document that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Text that is not a run document, or a damaged one: the fault, and its place.
    #[error("{0}: name a whole file that --json or 'linkgauge export' wrote")]
    Damaged(String),
    /// A document of another schema.
    #[error("a run document of schema '{0}', this version reads '{SCHEMA}': use a newer linkgauge")]
    Schema(String),
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[from] io::Error),
    /// The document is larger than any document of this program.
    #[error("larger than a run document can be ({0}): remove what linkgauge did not write")]
    TooLarge(&'static str),
}

/// Maximum length of a document, in bytes. No real one is longer: it holds a mesh of all tests that one may have.
pub const MAX_DOCUMENT_BYTES: u64 = 128 << 20;

/// Values of a document. Each takes more memory than the shortest text of one.
const MAX_DOCUMENT_VALUES: usize = 8_000_000;

/// Whether an id can be part of the name of a file and of a command: letters, digits and `-_.`, at most 200, none of `.-` at the
/// start. `last` names the last run.
pub fn is_valid_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=200).contains(&id.len()) && !id.starts_with(['.', '-']) && id != "last" && id.chars().all(fits)
}

/// The beginning of an invalid id, for a message.
pub fn quote_id(id: &str) -> String {
    id.chars().take(40).collect::<String>().escape_debug().to_string()
}

impl Run {
    /// Reads a document to its end, in bounded memory.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, or is too large, and as [`Run::from_json`].
    pub fn read(from: impl Read) -> Result<Run, RunError> {
        let mut text = String::new();
        from.take(MAX_DOCUMENT_BYTES + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                RunError::Damaged("not a run document: it is not UTF-8 text".to_owned())
            }
            _ => RunError::Read(error),
        })?;
        if text.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(RunError::TooLarge("128 MiB"));
        }
        if text.bytes().filter(|byte| *byte == b',').count() > MAX_DOCUMENT_VALUES {
            return Err(RunError::TooLarge("8 million values"));
        }
        Run::from_json(&text)
    }

    /// Reads a document; unknown fields of the same schema are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the text is no JSON, or no document of this schema.
    pub fn from_json(text: &str) -> Result<Run, RunError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let damaged = |error| RunError::Damaged(damage::describe(&error, text));
        let head: Head = serde_json::from_str(text).map_err(damaged)?;
        if head.schema != SCHEMA {
            return Err(RunError::Schema(head.schema));
        }
        serde_json::from_str(text).map(Run::with_separate_intervals).map_err(damaged)
    }

    /// Moves the intervals within the run, of all percentiles, to their own field. Earlier versions wrote them under `intervals`.
    fn with_separate_intervals(mut self) -> Run {
        let is_current = |name: &String| {
            !name.contains("_ns.p") || [".p50", ".p90", ".p99"].iter().any(|end| name.ends_with(end))
        };
        for case in &mut self.cases {
            let of_case = (case.repeats.len() < MIN_INTERVAL_REPETITIONS).then_some(&mut case.figures);
            let of_parts = case.repeats.iter_mut().chain(&mut case.per_port).map(|part| &mut part.figures);
            for figures in of_case.into_iter().chain(of_parts) {
                if !figures.intervals.keys().all(is_current) {
                    figures.within_run_intervals.append(&mut figures.intervals);
                }
            }
        }
        self
    }

    /// Reads concatenated documents. Stops at the first one that is not of this schema.
    pub fn read_stream(from: impl Read) -> impl Iterator<Item = Run> {
        let values = serde_json::Deserializer::from_reader(from).into_iter::<Value>();
        let known = |value: &Value| value.get("schema").and_then(Value::as_str) == Some(SCHEMA);
        let runs = values.map_while(move |value| serde_json::from_value(value.ok().filter(known)?).ok());
        runs.map(Run::with_separate_intervals)
    }

    /// The warnings of the run, then those of each case with its number.
    pub fn all_warnings(&self) -> impl Iterator<Item = (Option<usize>, &Warning)> {
        let of_cases = self.cases.iter().enumerate();
        let of_cases = of_cases.flat_map(|(index, case)| case.warnings.iter().map(move |w| (Some(index), w)));
        self.warnings.iter().map(|warning| (None, warning)).chain(of_cases)
    }

    /// Whether every threshold was met.
    pub fn thresholds_passed(&self) -> bool {
        self.cases.iter().flat_map(|case| &case.thresholds).all(|judged| judged.passed)
    }

    /// Whether a threshold was not met by a value that was measured.
    pub fn misses_threshold(&self) -> bool {
        let mut judged = self.cases.iter().flat_map(|case| &case.thresholds);
        judged.any(|judged| !judged.passed && judged.is_measured())
    }

    /// Whether everything that was planned was measured.
    pub fn is_complete(&self) -> bool {
        let has_every_pair = |mesh: &MeshResult| mesh.pairs.iter().all(|pair| pair.failure.is_none());
        !self.interrupted
            && self.cases.iter().all(|case| case.complete)
            && self.mesh.as_ref().is_none_or(has_every_pair)
    }
}
