//! Decides what a server grants to the plan of a client, by the server's limits and the link.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::host::cpu;
use crate::link::{Caps, Framing};
use crate::protocol::ServerLimits;
use crate::protocol::linkgauge::server_socket;
use crate::protocol::linkgauge::wire::{FlowKind, LEAD_IN_CAPABILITY, ServerPlan, SessionRefusal};

/// Plausible message rates: from one in eleven days to more than any link carries.
pub(crate) const VALID_MESSAGE_RATES: RangeInclusive<f64> = 1e-6..=1e12;

/// Checks a plan against the limits. Returns the message rate granted to each flow, if the server limits it.
pub(crate) fn granted_rate(
    plan: &ServerPlan,
    limits: &ServerLimits,
    caps: &Caps,
) -> Result<Option<f64>, SessionRefusal> {
    if plan.flows.len() > limits.flows as usize {
        return Err(SessionRefusal(format!(
            "{} connections are too many, its limit is {}",
            plan.flows.len(),
            limits.flows
        )));
    }
    if plan.message_bytes == 0 || plan.message_bytes > limits.message_bytes {
        return Err(SessionRefusal(format!(
            "messages of {} bytes: its limit is {}",
            plan.message_bytes, limits.message_bytes
        )));
    }
    if let Some(most) = caps.max_message_bytes.filter(|most| plan.message_bytes as usize > *most) {
        return Err(SessionRefusal(format!(
            "messages of {} bytes are too large for the link: use at most {most}",
            plan.message_bytes
        )));
    }
    let searches = |kind: &FlowKind| matches!(kind, FlowKind::CapacityReceive | FlowKind::CapacitySend);
    if caps.framing == Framing::Stream && plan.flows.iter().any(searches) {
        return Err(SessionRefusal(
            "a capacity search needs messages, and this link is a stream: use udp://".to_owned(),
        ));
    }
    if plan_duration(plan).is_some_and(|time| time > Duration::from_secs(limits.duration_s)) {
        return Err(SessionRefusal(format!(
            "the measurement takes too long: its limit is {} s",
            limits.duration_s
        )));
    }
    if let Some(cpu) = plan.cpu.filter(|cpu| !cpu::current_affinity().contains(cpu)) {
        return Err(SessionRefusal(format!(
            "it may not run on CPU {cpu}: choose another CPU for the server (--pin)"
        )));
    }
    server_socket::check(&plan.socket)?;
    let requested = plan.pacing.per_second();
    if let Some(rate) = requested.filter(|rate| !VALID_MESSAGE_RATES.contains(rate)) {
        let (least, most) = (VALID_MESSAGE_RATES.start(), VALID_MESSAGE_RATES.end());
        return Err(SessionRefusal(format!(
            "a rate of {rate:e} messages/s: give one from {least:e} to {most:e}"
        )));
    }
    let bits = |flows: u32| 8.0 * f64::from(plan.message_bytes) * f64::from(flows);
    let most = limits.bit_rate.map(|rate| rate / bits(flows_sharing_rate(plan)));
    if most.is_some_and(|most| most < *VALID_MESSAGE_RATES.start()) {
        return Err(SessionRefusal(format!(
            "messages of {} bytes are too large for its rate",
            plan.message_bytes
        )));
    }
    Ok(most.filter(|most| requested.is_none_or(|requested| requested > *most)))
}

/// Number of flows that share the rate: the loads, or all flows if there is no load. A probe in parallel with a load is
/// negligible.
fn flows_sharing_rate(plan: &ServerPlan) -> u32 {
    let loads = plan.flows.iter().filter(|kind| !kind.is_round_trip()).count();
    (if loads > 0 { loads } else { plan.flows.len() }).max(1) as u32
}

/// Duration of warm-up and measurement, if the plan limits them by time.
fn plan_duration(plan: &ServerPlan) -> Option<Duration> {
    let time = plan.stop.time_ns?.saturating_add(plan.warm_up.time_ns.unwrap_or(0));
    Some(Duration::from_nanos(time))
}

/// The kinds of flow and the further abilities of this version.
pub(super) fn capabilities() -> Vec<String> {
    let kinds = FlowKind::ALL.iter().map(|kind| kind.name());
    kinds.chain([server_socket::CAPABILITY, LEAD_IN_CAPABILITY]).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::plan::{Pacing, SocketSettings, StopCondition, WaitMode};

    fn plan(pacing: Pacing) -> ServerPlan {
        ServerPlan {
            flows: vec![FlowKind::Send],
            message_bytes: 100,
            pacing,
            stop: StopCondition::default(),
            warm_up: StopCondition::default(),
            timeout_ns: u64::MAX,
            wait: WaitMode::Block,
            cpu: None,
            socket: SocketSettings::default(),
            evidence: false,
            lead_in_ns: 0,
            series_interval_ns: 0,
            time_of_day: false,
            alive_interval_ns: 0,
        }
    }

    #[test]
    fn an_invalid_rate_is_refused_before_the_start() {
        let limits = ServerLimits::default();
        for per_second in [0.0, -1.0, 1e-300, 5e-324, -1e308, 1e308, f64::INFINITY, f64::NAN] {
            for pacing in [Pacing::Fixed { per_second }, Pacing::Poisson { per_second, seed: 1 }] {
                let refused = granted_rate(&plan(pacing), &limits, &Caps::STREAM).unwrap_err();
                assert!(refused.to_string().starts_with("a rate of "), "{refused}");
            }
        }
        for per_second in [1e-6, 0.5, 1e12] {
            let pacing = Pacing::Poisson { per_second, seed: 1 };
            assert_eq!(granted_rate(&plan(pacing), &limits, &Caps::STREAM), Ok(None));
        }
        // A limit too low for any message is an error, not a grant.
        let tiny = ServerLimits { bit_rate: Some(1e-4), ..limits };
        assert!(granted_rate(&plan(Pacing::Closed), &tiny, &Caps::STREAM).is_err());
    }

    #[test]
    fn a_capacity_search_on_a_stream_is_refused() {
        for kind in [FlowKind::CapacityReceive, FlowKind::CapacitySend] {
            let plan = ServerPlan { flows: vec![FlowKind::Reflect, kind], ..plan(Pacing::Closed) };
            let refused = granted_rate(&plan, &ServerLimits::default(), &Caps::STREAM).unwrap_err();
            assert!(refused.to_string().contains("use udp://"), "{refused}");
            let messages = Caps { framing: Framing::Message, ..Caps::STREAM };
            assert_eq!(granted_rate(&plan, &ServerLimits::default(), &messages), Ok(None));
        }
    }
}
