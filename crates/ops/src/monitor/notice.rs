//! Message to the actions of a monitor, in JSON, with the outages and alarms that began or ended in one slice.

use jiff::Timestamp;
use serde::Serialize;

use super::health::{LinkHealth, Severity};
use super::level::LevelShift;
use linkgauge_analysis::explain::live::{CauseFinding, CauseVerdict, Explanation};
use linkgauge_model::run::TOOL;
use linkgauge_model::sample::Window;
use linkgauge_model::units::format_nanoseconds;

/// Schema of the message.
pub const ALARM_SCHEMA: &str = "linkgauge.alarm.v1";

/// Causes that a message lists at most, the most expensive first.
const MAX_CAUSES: usize = 3;

/// The cause of losses, which takes no time.
const LOST_DATAGRAMS: &str = "lost_datagrams";

/// A link is slower than normal by at least this share of the normal median, and a cause takes at least this share of the difference.
const MIN_CHANGE: f64 = 0.1;

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
    /// All probes since the start, once there are enough of them to be the normal ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) normal: Option<MinuteFigures>,
    /// Time by which the mean reply of the last minute is slower than the normal one, in ns.
    #[serde(skip)]
    pub(crate) slower_ns: f64,
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
    /// How the round trips compare with the normal ones of the link, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<String>,
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
        AlarmExplanation { causes: Vec::new(), failure: Some(why.into()), comparison: None }
    }

    /// What explains this event. A cause that takes too little to make the link slower than normal is the same on a normal day.
    pub fn of(explanation: &Explanation, event: &Notice) -> AlarmExplanation {
        let normal_ns = event.normal.and_then(|normal| normal.p50_ns).filter(|normal| normal.is_finite());
        let slower_ns = |normal: f64| event.slower_ns.max(explanation.median_ns - normal);
        let least_ns = normal_ns.map(|normal| least_cost_ns(slower_ns(normal), normal));
        let explains = |cause: &&CauseFinding| {
            let costs_enough =
                least_ns.is_none_or(|least| least.is_some_and(|least| cause.rank_ns() >= least));
            cause.has_effect() && (costs_enough || cause.id == LOST_DATAGRAMS)
        };
        let comparison = normal_ns.map(|normal| {
            let [now, usual] = [explanation.median_ns, normal].map(format_nanoseconds);
            let how = if least_ns.flatten().is_some() { "slower than normal" } else { "as usual" };
            format!("round trips are {how}: median {now}, normally {usual}")
        });
        let found = explanation.causes.iter().filter(explains).take(MAX_CAUSES);
        let causes = found.map(|cause| AlarmCause {
            id: cause.id,
            name: cause.name,
            verdict: cause.verdict,
            cost_ns: cause.share_ns(),
            remedy: cause.remedy,
        });
        AlarmExplanation { causes: causes.collect(), failure: None, comparison }
    }
}

/// The least time that a cause of a slower link takes, in ns. `None`: the link is not slower than normal.
fn least_cost_ns(slower_ns: f64, normal_ns: f64) -> Option<f64> {
    (slower_ns > MIN_CHANGE * normal_ns).then_some(MIN_CHANGE * slower_ns)
}

/// The mean time of the replies, in ns.
pub(super) fn mean_ns(window: &Window) -> Option<f64> {
    (window.replies() > 0).then(|| window.sum_ns() / window.replies() as f64)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_of_a_slower_link_takes_a_part_of_the_difference() {
        assert_eq!(least_cost_ns(5_000.0, 100_000.0), None, "as usual");
        assert_eq!(least_cost_ns(-50_000.0, 100_000.0), None, "faster");
        assert_eq!(least_cost_ns(50e6, 100_000.0), Some(5e6), "a run queue of 60 µs explains no 50 ms");
    }

    #[test]
    fn a_mean_counts_each_reply() {
        let mean = mean_ns(&Window::of_probes(&[1_000, 1_000, 4_000], 2)).unwrap();
        assert!((mean - 2_000.0).abs() < 20.0, "{mean}");
        assert_eq!(mean_ns(&Window::default()), None);
    }
}
