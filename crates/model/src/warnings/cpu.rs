//! CPU time of both ends as the limit of a transfer. Time spent busy-polling is no work and does not count.

use super::sends_messages;
use crate::plan::Direction;
use crate::run::{CaseResult, Warning, WarningCode};

/// A thread that used this share of the time was the limit, not the link.
const SATURATED_CPU_SHARE: f64 = 0.95;

pub(crate) fn cpu_saturated(case: &CaseResult) -> Option<Warning> {
    // A transfer that broke off has a time of its own, which the work for the rest exceeds.
    let is_whole = case.failures.is_empty() && case.workload == "throughput";
    let (client, server) = case.cpu_shares().filter(|_| is_whole)?;
    let ends = [("client", Some(client)), ("server", server)];
    let (end, share) =
        ends.into_iter().filter_map(|(end, share)| Some((end, share?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (share >= SATURATED_CPU_SHARE).then(|| {
        Warning::new(
            WarningCode::CpuSaturated,
            format!(
                "the {end} worked for {:.0} % of the time, without waiting: its CPU limits the rate, not the link",
                100.0 * share.min(1.0)
            ),
            "use --parallel, or larger messages",
        )
    })
}

/// Send cost matters only where nothing else limits the sender.
pub(crate) fn sender_not_busy(case: &CaseResult) -> Option<Warning> {
    let (client, server) = case.cpu_shares()?;
    let share = match case.direction {
        Direction::Send => client,
        Direction::Receive => server?,
        Direction::Loop | Direction::Both => return None,
    };
    let unpaced = case.pacing()?.get("kind")? == "closed";
    // The delay of a line with a rate is already known.
    let may_be_busy = unpaced && case.line.is_none();
    if case.workload != "throughput" || !sends_messages(case) || !may_be_busy {
        return None;
    }
    (share < SATURATED_CPU_SHARE).then(|| {
        Warning::new(
            WarningCode::SenderNotBusy,
            format!(
                "the sender's CPU was busy for {:.0} % of the time: link, receiver or other programs limit the \
                 rate, not the cost of sending",
                100.0 * share
            ),
            "to measure the cost of sending, give client and server a CPU each (--pin 0,1)",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn sender_warning(framing: &str, pacing: &str, direction: &str, client_seconds: f64) -> Option<String> {
        let case = serde_json::json!({
            "endpoint": "udp://a", "protocol": "linkgauge", "workload": "throughput", "direction": direction,
            "message_bytes": 64, "ports": 1, "parallel": 2, "method": "throughput/1", "complete": true,
            "elapsed_ns": 1_000_000_000, "cpu": { "client_seconds": client_seconds, "server_seconds": 2.0 },
            "requested": { "pacing": { "kind": pacing } }, "effective": { "framing": framing }, "placement": {}, "warnings": [],
        });
        sender_not_busy(&serde_json::from_value(case).unwrap()).map(|warning| warning.text)
    }

    #[test]
    fn a_sender_that_waits_by_polling_is_not_saturated() {
        // One second of 100 Mbit/s in datagrams: 0.2 s of work, the rest is polled away until the next one is due.
        let warned = |client_seconds: f64, busy_poll_seconds: f64, server_seconds: f64| {
            let case = serde_json::json!({
                "endpoint": "udp://a", "protocol": "linkgauge", "workload": "throughput", "direction": "send",
                "message_bytes": 1400, "ports": 1, "parallel": 1, "method": "throughput/1", "complete": true,
                "elapsed_ns": 1_000_000_000,
                "cpu": {
                    "client_seconds": client_seconds, "client_busy_poll_seconds": busy_poll_seconds,
                    "server_seconds": server_seconds,
                },
                "requested": { "pacing": { "kind": "fixed", "per_second": 8929.0 } }, "effective": {}, "placement": {},
                "warnings": [],
            });
            cpu_saturated(&serde_json::from_value(case).unwrap()).map(|warning| warning.text)
        };
        assert_eq!(warned(0.2, 0.79, 0.1), None);
        assert_eq!(warned(0.94, 0.06, 0.9), None);
        let client = warned(0.98, 0.01, 0.5).unwrap();
        assert!(client.starts_with("the client worked for 98 % of the time"), "{client}");
        let server = warned(0.97, 0.0, 1.2).unwrap();
        assert!(server.starts_with("the server worked for 100 % of the time"), "{server}");
    }

    #[test]
    fn idle_sender_is_reported() {
        let text = sender_warning("message", "closed", "send", 1.2).unwrap();
        assert!(text.starts_with("the sender's CPU was busy for 60 % of the time"), "{text}");
        assert_eq!(sender_warning("message", "closed", "send", 1.91), None);
        // The server only sends.
        assert_eq!(sender_warning("message", "closed", "receive", 1.2), None);
        assert_eq!(sender_warning("message", "fixed", "send", 1.2), None);
        assert_eq!(sender_warning("stream", "closed", "send", 1.2), None);
        assert_eq!(sender_warning("message", "closed", "both", 1.2), None);
    }

    #[test]
    fn setup_of_a_short_transfer_is_not_idle_time() {
        let share = |warm_up: Value| {
            let case = serde_json::json!({
                "endpoint": "udp://a", "protocol": "linkgauge", "workload": "throughput", "direction": "send",
                "message_bytes": 64, "ports": 1, "parallel": 1, "method": "", "complete": true, "elapsed_ns": 240_000_000,
                "cpu": { "client_seconds": 0.199 }, "throughput_bps": 8e9, "delivered_bytes": 200_000_000,
                "requested": { "pacing": { "kind": "closed" }, "warm_up": warm_up }, "effective": { "framing": "message" },
                "placement": {}, "warnings": [],
            });
            let case: CaseResult = serde_json::from_value(case).unwrap();
            (sender_not_busy(&case).is_some(), (100.0 * case.cpu_shares().unwrap().0).round())
        };
        assert_eq!(share(serde_json::json!({})), (false, 100.0));
        // The warm-up used CPU time but is not part of the transfer's duration.
        assert_eq!(share(serde_json::json!({ "time_ns": 1 })), (true, 83.0));
    }
}
