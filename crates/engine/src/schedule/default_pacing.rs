//! Default pacing: cases that could disturb others are paced unless full speed is requested.

use crate::link::{Dialer, UnpacedScope};
use crate::protocol::ReadyCase;
use linkgauge_model::plan::{Pacing, RequestedRate, default_late_limits};

/// Block size in bytes of a paced stream: 100 blocks a second, at least one packet each.
pub(super) fn paced_block_bytes(bits_per_second: f64) -> u32 {
    const PACKET: f64 = 1400.0;
    (bits_per_second / 8.0 / 100.0).max(PACKET) as u32
}

/// Default requests per second to hosts that reply without a linkgauge server; a rate that hosts commonly see.
const DEFAULT_REQUESTS_PER_SECOND: f64 = 10.0;

/// Default bits per second on each connection of a load without flow control; the default of iperf3.
const DEFAULT_BITS_PER_SECOND: f64 = 1e6;

/// Sets a rate where the load could disturb others and no rate was requested.
pub(super) fn apply_default_pacing(case: &mut ReadyCase, dialer: &Dialer) {
    if let Some(per_second) = case.default_per_second.filter(|_| case.load.pacing == Pacing::Closed) {
        set_rate(case, per_second / f64::from(case.parallel));
        return;
    }
    let requested = case.rate != RequestedRate::Default || case.load.pacing != Pacing::Closed;
    // A search finds the rate that others leave.
    if requested || case.is_capacity_search() || case.caps.iter().any(|caps| caps.link_rate.is_some()) {
        return;
    }
    let nowhere = case.caps.iter().any(|caps| caps.unpaced_scope == UnpacedScope::Nowhere);
    let beyond = || {
        case.caps.iter().zip(&case.endpoints).any(|(caps, endpoint)| {
            caps.unpaced_scope != UnpacedScope::Anywhere && !dialer.is_local(endpoint)
        })
    };
    let loads = !case.workload.is_round_trip();
    let per_second = if loads && beyond() {
        DEFAULT_BITS_PER_SECOND / (8.0 * f64::from(case.load.message_bytes.max(1)))
    } else if !loads && nowhere {
        DEFAULT_REQUESTS_PER_SECOND
    } else {
        return;
    };
    set_rate(case, per_second);
}

/// Sets the rate of each connection, and the limits that go with a schedule.
fn set_rate(case: &mut ReadyCase, per_second: f64) {
    let was_usual = case.late_limits == default_late_limits(case.load.pacing);
    case.load.pacing = Pacing::Fixed { per_second };
    if was_usual {
        case.late_limits = default_late_limits(case.load.pacing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Registry;
    use crate::protocol::auto::UNDETECTED;
    use linkgauge_model::clock::Clock;
    use linkgauge_model::endpoint::Endpoint;
    use linkgauge_model::plan::{CaseSpec, OneOrMany};
    use linkgauge_model::units::RateTarget;

    /// Effective messages per second of a case.
    fn paced(url: &str, workload: &str, change: impl FnOnce(&mut CaseSpec)) -> Option<f64> {
        let endpoint: Endpoint = url.parse().unwrap();
        let mut spec = CaseSpec {
            url: Some(OneOrMany::One(endpoint)),
            workload: Some(workload.to_owned()),
            ..CaseSpec::default()
        };
        change(&mut spec);
        let typed = spec.expand().unwrap().remove(0);
        let mut case = super::super::check::resolve(&typed, &UNDETECTED, Registry::standard()).unwrap();
        apply_default_pacing(&mut case, &Registry::standard().dialer(Clock::new_virtual()));
        case.load.pacing.per_second()
    }

    #[test]
    fn shared_networks_are_paced_by_default() {
        let plain = |url: &str, workload: &str| paced(url, workload, |_| {});
        assert_eq!(plain("udp://192.0.2.7", "throughput"), Some(1e6 / 8.0 / 1400.0));
        assert_eq!(plain("udp://127.0.0.1", "throughput"), None);
        assert_eq!(plain("tcp://192.0.2.7", "throughput"), None);
        assert_eq!(plain("icmp://192.0.2.7", "latency"), Some(10.0));
        assert_eq!(plain("udp://192.0.2.7", "latency"), None);
        let most = |spec: &mut CaseSpec| spec.rate = Some(RateTarget::Max);
        assert_eq!(paced("icmp://192.0.2.7", "latency", most), None);
        assert_eq!(paced("udp://192.0.2.7", "throughput", most), None);
    }

    #[test]
    fn a_bit_rate_needs_no_size() {
        let at = |url: &str, bits: f64| {
            paced(url, "throughput", |spec| {
                spec.bit_rate = Some(RateTarget::Fixed(linkgauge_model::units::BitRate(bits)))
            })
        };
        assert_eq!(at("udp://127.0.0.1", 1.12e6), Some(100.0));
        // Block sizes give 100 blocks a second, but stay between one packet and the default block size.
        assert_eq!(at("tcp://127.0.0.1", 10e6), Some(100.0));
        assert_eq!(at("tcp://127.0.0.1", 11.2e3), Some(1.0));
        assert_eq!(at("tcp://127.0.0.1", 8.0 * 262_144.0 * 1000.0), Some(1000.0));
    }
}
