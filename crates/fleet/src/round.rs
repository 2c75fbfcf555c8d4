//! The orders of one round: every test of a fleet once, each at the time that the timetable of the mesh gives it.
//!
//! The hub delivers each order when it is due, so no coordinator runs meanwhile. The leases of the hosts keep tests apart that
//! take longer than planned.

use std::time::Duration;

use super::order::FleetOrder;
use linkgauge_ops::mesh::{Demand, HostList, HostPair, Sharing, TestKind, Timetable};

/// Time of a slot beyond its test: lease, slot at the peer, connecting, result.
const SLOT_OVERHEAD: Duration = Duration::from_millis(1500);

/// Time between the round trips and the rates of a round.
const STAGE_PAUSE: Duration = Duration::from_secs(2);

/// Letters of a round in the id of its orders.
pub(crate) const ROUND_CHARS: usize = 8;

/// When a round takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTimes {
    /// The begin, in milliseconds since 1970.
    pub start_ms: u64,
    /// Time after its slot in which a test may still begin.
    pub validity: Duration,
}

/// The orders of a round, by their begin, and the planned end in milliseconds since 1970. `round` has 8 letters or digits.
pub fn plan_round(list: &HostList, list_id: &str, round: &str, times: RoundTimes) -> (Vec<FleetOrder>, u64) {
    let mut orders = Vec::new();
    let mut begin = times.start_ms;
    let mut end = begin;
    let latency = list.latency.map(|test| (TestKind::Latency, list.latency_demand(test.time)));
    let throughput = list.throughput.map(|test| {
        let time = test.time + SLOT_OVERHEAD;
        (TestKind::Throughput, list.throughput_demand(Sharing::Exclusive, time))
    });
    for (test, (demand, pairs)) in latency.into_iter().chain(throughput) {
        let (length, slots) = slots(&demand, &pairs);
        for (pair, slot_ms) in slots {
            let [from, to] = list.pairs[pair].map(|host| list.hosts[host].name.clone());
            let not_before_ms = begin + slot_ms;
            orders.push(FleetOrder {
                id: format!("{round}{:05x}", orders.len()),
                list: list_id.to_owned(),
                from,
                to,
                test,
                not_before_ms,
                not_after_ms: not_before_ms + times.validity.as_millis() as u64,
            });
        }
        end = begin + length;
        begin = end + STAGE_PAUSE.as_millis() as u64;
    }
    (orders, end)
}

/// The length of a timetable and the begin of each test, in milliseconds.
fn slots(demand: &Demand, pairs: &[HostPair]) -> (u64, Vec<(usize, u64)>) {
    let plan = Timetable::new(demand, pairs);
    let slots = plan.slots.iter().map(|slot| (slot.test as usize, slot.begin_ns / 1_000_000));
    (plan.length_ns / 1_000_000, slots.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn hosts(count: usize) -> HostList {
        let hosts: String = (0..count).map(|host| format!("[[host]]\nname = \"h{host}\"\n")).collect();
        HostList::from_toml(&format!(
            "[test.latency]\ntime = \"2s\"\n[test.throughput]\ntime = \"1s\"\n{hosts}"
        ))
        .unwrap()
    }

    #[test]
    fn no_host_has_two_rates_at_a_time_and_none_beside_round_trips() {
        let times = RoundTimes { start_ms: 1_000_000, validity: Duration::from_secs(60) };
        let (orders, end) = plan_round(&hosts(8), "list", "0123abcd", times);
        assert_eq!(orders.len(), 2 * 56);
        let of = |test| orders.iter().filter(move |order| order.test == test);
        let last_probe = of(TestKind::Latency).map(|order| order.not_before_ms).max().unwrap() + 2000;
        let mut busy: BTreeMap<(u64, &str), &str> = BTreeMap::new();
        for order in of(TestKind::Throughput) {
            assert!(order.not_before_ms >= last_probe, "{order:?}");
            for host in [&order.from, &order.to] {
                assert!(busy.insert((order.not_before_ms, host), &order.id).is_none(), "{order:?}");
            }
        }
        // The circle method: 14 rounds of 2.5 s.
        assert_eq!(end, 1_000_000 + 2000 + 2000 + 14 * 2500);
        let ids: std::collections::BTreeSet<&str> = orders.iter().map(|order| order.id.as_str()).collect();
        assert_eq!(ids.len(), orders.len());
        assert!(orders.iter().all(|order| order.not_after_ms == order.not_before_ms + 60_000));
    }
}
