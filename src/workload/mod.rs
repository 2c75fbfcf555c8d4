//! Workloads: what is measured. Both ends of a workload stand in one file; each has one line in [`WORKLOADS`].
//!
//! A workload's ends are parties (`link::party`); the loop that runs them is `link::party::drive`, the only one.

use std::time::Duration;

use crate::link::Caps;
use crate::link::party::Party;
use crate::link::serial_line::UartErrors;
use crate::plan::{Case, Direction, Pacing, StopCondition};
use crate::run::Figures;
use crate::sample::Recorder;

pub mod download;
pub mod latency;
pub mod pattern;
pub mod phases;
pub mod report_check;
pub mod throughput;

/// Every workload, in the order in which help shows them.
pub static WORKLOADS: &[Workload] = &[latency::WORKLOAD, throughput::WORKLOAD, download::WORKLOAD];

/// What the list knows of a workload.
pub struct Workload {
    pub name: &'static str,
    pub summary: &'static str,
    /// When no stop was asked for.
    pub default_stop: StopCondition,
    pub default_direction: Direction,
    /// When none was asked for; on a line four times what a message takes there comes on top.
    pub default_timeout: Duration,
    /// Message size when none was asked for.
    pub default_size: fn(&Caps) -> u32,
    /// Left out of the figures when no warm-up was asked for.
    pub default_warm_up: StopCondition,
    /// Identity of the way it measures; a change of method changes it.
    pub method: fn(&Case) -> String,
    /// Figures of one repetition from what its flows recorded and the far end told.
    pub figures: fn(&Case, &[FlowResult], Option<&ServerReport>) -> Figures,
}

/// The workload of that name.
pub fn find_workload(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// A near end that records.
pub trait RecordingParty: Party {
    fn recorder(&self) -> &Recorder;
    fn into_recorder(self: Box<Self>) -> Recorder;
}

/// What a flow is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowRole {
    /// Exchanges that are the measurement.
    RoundTrip,
    /// Payload from the near end to the far end.
    Upload,
    /// Payload from the far end to the near end.
    Download,
    /// Exchanges beside a load.
    Probe,
    /// What a peer says beside the payload while it flows.
    Control,
}

/// A flow after it ran.
#[derive(Debug)]
pub struct FlowResult {
    pub role: FlowRole,
    /// Which port of the case it belongs to.
    pub endpoint_index: usize,
    pub recorder: Recorder,
    pub cpu_seconds: f64,
    /// Its thread was ready to run for so long, and waited for a CPU.
    pub cpu_wait_seconds: f64,
    /// CPU time that waiting took, not among those.
    pub busy_poll_seconds: f64,
    pub socket_drops: Option<u64>,
    /// What the serial port at its end counted.
    pub line_errors: Option<UartErrors>,
    /// Why it ended early.
    pub fault: Option<String>,
}

/// Everything that the flows of one role recorded, together.
pub fn merged_recorder(flows: &[FlowResult], role: FlowRole) -> Option<Recorder> {
    let mut recorders = flows.iter().filter(|flow| flow.role == role).map(|flow| &flow.recorder);
    let first = recorders.next()?;
    let mut all = first.empty_like();
    all.merge(first);
    recorders.for_each(|recorder| all.merge(recorder));
    Some(all)
}

/// What the far end counted of one flow.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FlowReport {
    pub port: usize,
    /// Payload delivered to the far end, or sent by it.
    pub bytes: u64,
    pub messages: u64,
    /// Messages of its warm-up, where it counts them: its measurement begins with the one that follows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warm_up_messages: Option<u64>,
    /// Bytes of the first receipt, which took none of the time.
    pub head_bytes: u64,
    /// First to last receipt, by the far end's clock.
    pub elapsed_ns: u64,
    pub duplicate: u64,
    pub reordered: u64,
    pub corrupt_messages: u64,
    pub socket_drops: Option<u64>,
    pub inward: bool,
    /// The server did not receive to the end of what was sent.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unfinished: bool,
    /// Why the far end broke it off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
}

/// What the far end tells after a case.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ServerReport {
    pub flows: Vec<FlowReport>,
    pub cpu_seconds: Option<f64>,
    /// The server ends a report only when it has seen the end of each flow, so nothing of a stream is missing in it.
    #[serde(skip)]
    pub is_complete: bool,
}

/// How long to wait for an answer, or for the next bytes, when nothing was asked for.
pub fn default_timeout(workload: &Workload, message_bytes: u32, all_caps: &[Caps]) -> Duration {
    // There and back, and once more for what gathers the characters; the rest is leeway.
    let on_lines = all_caps
        .iter()
        .filter_map(|caps| caps.link_rate)
        .map(|line| line.transmission_time(message_bytes.into()));
    let answered =
        workload.default_timeout.saturating_add(on_lines.max().unwrap_or_default().saturating_mul(4));
    all_caps.iter().map(|caps| caps.open_timeout).fold(answered, Duration::max)
}

/// How long it takes by the plan to measure a case once, if that can be told: on a line, at best.
pub fn planned_time(case: &Case) -> Option<Duration> {
    let (count, message) = (case.stop.count, u64::from(case.message_bytes));
    let counted = match case.pacing {
        Pacing::Closed => count.and_then(|count| time_on_line(case, count.saturating_mul(message))),
        Pacing::Fixed { per_second } | Pacing::Poisson { per_second, .. } => {
            count.and_then(|count| Duration::try_from_secs_f64(count as f64 / per_second).ok())
        }
    };
    let timed = case.stop.time_ns.map(Duration::from_nanos);
    let volume = case.stop.volume_bytes.and_then(|bytes| time_on_line(case, bytes));
    [counted, timed, volume].into_iter().flatten().min()
}

/// How long so many bytes take on the slowest of the lines; none where one port has no line.
fn time_on_line(case: &Case, bytes: u64) -> Option<Duration> {
    let line = |endpoint| crate::link::endpoint_caps(endpoint).ok()?.link_rate;
    let times: Option<Vec<Duration>> =
        case.endpoints.iter().map(|endpoint| Some(line(endpoint)?.transmission_time(bytes))).collect();
    times?.into_iter().max()
}
