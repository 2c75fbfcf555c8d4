//! Counts that a case cannot make. Their zero is no measurement.

use serde_json::Value;

use crate::plan::Direction;
use crate::run::{CaseResult, RELIABLE_STREAM_FACT};

/// Whether the case counts what the metric of this name counts.
pub(super) fn is_counted(metric: &str, case: &CaseResult) -> bool {
    match metric {
        // A reliable stream repeats what is lost, and reports no messages.
        "loss" | "lost" | "lost_reverse" | "duplicate" | "reordered" => {
            !is_transfer(case) || case.effective.get(RELIABLE_STREAM_FACT) != Some(&Value::Bool(true))
        }
        // Counts of replies.
        "late" | "early" => !is_transfer(case),
        "late_sends" | "missed_sends" => !has_no_schedule(case),
        // Counts of what a loop returns.
        "lost_bytes" | "inserted_bytes" => case.direction == Direction::Loop,
        _ => true,
    }
}

/// Whether payload was delivered without round trips.
fn is_transfer(case: &CaseResult) -> bool {
    case.figures.delivery.delivered_bytes.is_some() && case.figures.times.latency_ns.is_none()
}

/// Whether each message is sent as soon as the one before it permits.
fn has_no_schedule(case: &CaseResult) -> bool {
    let pacing = case.requested.get("pacing").and_then(|pacing| pacing.get("kind")?.as_str());
    pacing == Some("closed")
}

#[cfg(test)]
mod tests {
    use crate::metric::{Metric, Threshold};
    use crate::run::{CaseResult, RELIABLE_STREAM_FACT, Run};

    fn transfer(is_reliable: bool) -> CaseResult {
        let text = include_str!("../../../../tests/data/run-v1-throughput.json");
        let mut case = Run::from_json(text).unwrap().cases.remove(0);
        case.figures.counts.lost = 0;
        case.figures.counts.sent = case.figures.counts.received;
        case.effective.insert(RELIABLE_STREAM_FACT.to_owned(), is_reliable.into());
        case
    }

    fn value(case: &CaseResult, name: &str) -> Option<f64> {
        name.parse::<Metric>().unwrap().value_of_case(case)
    }

    #[test]
    fn a_reliable_stream_does_not_measure_losses() {
        let stream = transfer(true);
        for name in ["loss", "lost", "duplicate", "reordered", "late", "early", "lost_bytes"] {
            assert_eq!(value(&stream, name), None, "{name}");
        }
        assert!(value(&stream, "rate").is_some() && value(&stream, "sent").is_some());
        assert_eq!(value(&transfer(false), "loss"), Some(0.0));
        let mut broken = stream.clone();
        broken.figures.counts.lost = 1;
        assert!(value(&broken, "loss").is_some_and(|share| share > 0.0), "what was counted is a figure");
        let judged = "loss = 0".parse::<Threshold>().unwrap().evaluate(&stream);
        assert!(!judged.passed && !judged.is_measured());
        assert!(Metric::all_of_case(&stream).iter().all(|(metric, _)| metric.name() != "loss"));
    }
}
