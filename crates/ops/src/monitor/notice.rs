//! Message to the actions of a monitor, in JSON, with the outages and alarms that began or ended in one slice.

use jiff::Timestamp;
use serde::Serialize;

use super::health::{LinkHealth, Severity};
use super::level::LevelShift;
use linkgauge_analysis::explain::live::{CauseVerdict, Explanation};
use linkgauge_model::run::TOOL;
use linkgauge_model::sample::Window;

/// Schema of the message.
pub const ALARM_SCHEMA: &str = "linkgauge.alarm.v1";

/// Causes that a message lists at most, the most expensive first.
const MAX_CAUSES: usize = 3;

/// Event of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The link does not reply any more, or its test failed.
    Down,
    /// The link replies again.
    Up,
    /// An alarm begins.
    Alarm,
    /// An alarm ends.
    Resolved,
    /// The median has a new level.
    LevelShift,
}

/// Event of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Notice {
    /// Index of the watch in its monitor.
    #[serde(skip)]
    pub watch: usize,
    /// Kind of the event.
    pub event: NoticeKind,
    /// Time at which it was noticed.
    pub at: Timestamp,
    /// Name of the watch.
    pub link: String,
    /// The endpoint, as typed.
    pub endpoint: String,
    /// The state of the link now.
    pub state: LinkHealth,
    /// Importance of the event.
    pub severity: Severity,
    /// Reason for the event, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time for which the link has been down or the alarm on, or was, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Changes of this state since the last message about it; 0 if it is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<u32>,
    /// The rule of an alarm, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The last minute of probes.
    pub(crate) last_minute: MinuteFigures,
    /// The id of the run that holds the last minute before an alarm, if it was saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The new level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelShift>,
    /// The causes, where the watch asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<AlarmExplanation>,
}

/// Figures of a minute. Absent: nothing was measured; `null` in JSON: not reached because too many probes were lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MinuteFigures {
    /// Probes that were due.
    pub probes: u64,
    /// Probes without a reply.
    pub lost: u64,
    /// Median round trip in ns over all probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile of the round trip in ns over all probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
}

impl MinuteFigures {
    /// The figures of these probes.
    pub fn of(minute: &Window) -> MinuteFigures {
        MinuteFigures {
            probes: minute.counts.due,
            lost: minute.counts.lost,
            p50_ns: minute.quantile_with_losses_ns(0.5),
            p99_ns: minute.quantile_with_losses_ns(0.99),
        }
    }
}

/// Explanation that `explain` found while an alarm was on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlarmExplanation {
    /// The causes that take a part of the median or slow some requests, the most expensive first; empty if there are none.
    pub causes: Vec<AlarmCause>,
    /// Reason why the link could not be explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A cause of the catalogue (`docs/explain.md`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlarmCause {
    /// Name in the catalogue.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Verdict on the cause.
    pub verdict: CauseVerdict,
    /// The part of the median round trip, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
    /// Remedy for the cause.
    pub remedy: &'static str,
}

impl AlarmExplanation {
    /// The link could not be explained.
    pub fn failed(why: impl Into<String>) -> AlarmExplanation {
        AlarmExplanation { causes: Vec::new(), failure: Some(why.into()) }
    }
}

impl From<&Explanation> for AlarmExplanation {
    fn from(explanation: &Explanation) -> AlarmExplanation {
        let found = explanation.causes.iter().filter(|cause| cause.has_effect()).take(MAX_CAUSES);
        let causes = found.map(|cause| AlarmCause {
            id: cause.id,
            name: cause.name,
            verdict: cause.verdict,
            cost_ns: cause.share_ns(),
            remedy: cause.remedy,
        });
        AlarmExplanation { causes: causes.collect(), failure: None }
    }
}

/// The message that the actions receive.
#[derive(Serialize)]
struct AlarmMessage<'a> {
    schema: &'static str,
    tool: &'static str,
    host: &'a str,
    events: &'a [Notice],
}

/// The notices as one message, in JSON.
pub fn alarm_message(host: &str, events: &[Notice]) -> Vec<u8> {
    let message = AlarmMessage { schema: ALARM_SCHEMA, tool: TOOL, host, events };
    serde_json::to_vec(&message).expect("strings and numbers are valid JSON")
}
