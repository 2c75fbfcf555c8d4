//! Plans against their bounds, and the rule that no resource carries more tests than it may.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const SLOT: Duration = Duration::from_secs(10);
const SLOT_NS: u64 = 10_000_000_000;

/// All ordered pairs of hosts without other resources.
fn full_mesh(hosts: u32) -> (Demand, Vec<HostPair>) {
    let mut demand = Demand::default();
    let all: Vec<u32> = (0..hosts).map(|_| demand.add_resource(1)).collect();
    demand.add_class(all.clone());
    let pairs = all.iter().flat_map(|a| all.iter().filter(move |b| *b != a).map(move |b| [*a, *b]));
    let pairs: Vec<HostPair> = pairs.collect();
    for pair in &pairs {
        demand.add_test(pair, SLOT);
    }
    (demand, pairs)
}

/// Sites of equal size: all pairs inside a site, and between sites all pairs of their representatives. `uplinks`: tests at a
/// time that leave a site.
fn sites(count: u32, hosts: u32, representatives: u32, uplinks: Option<u32>) -> (Demand, Vec<HostPair>) {
    let mut demand = Demand::default();
    let all: Vec<u32> = (0..count * hosts).map(|_| demand.add_resource(1)).collect();
    demand.add_class(all.clone());
    let uplinks: Option<Vec<u32>> =
        uplinks.map(|capacity| (0..count).map(|_| demand.add_resource(capacity)).collect());
    uplinks.iter().for_each(|uplinks| demand.add_class(uplinks.clone()));
    let mut pairs = Vec::new();
    for &a in &all {
        for &b in all.iter().filter(|b| **b != a) {
            let [of_a, of_b] = [a, b].map(|host| host / hosts);
            let is_between = of_a != of_b;
            if is_between && [a, b].iter().any(|host| host % hosts >= representatives) {
                continue;
            }
            let shared = uplinks.iter().filter(|_| is_between);
            let shared = shared.flat_map(|uplinks| [of_a, of_b].map(|site| uplinks[site as usize]));
            let used: Vec<u32> = [a, b].into_iter().chain(shared).collect();
            demand.add_test(&used, SLOT);
            pairs.push([a, b]);
        }
    }
    (demand, pairs)
}

/// Fails if a test is missing or appears twice, or if a resource carries too many tests at any time.
fn check(demand: &Demand, plan: &Timetable) {
    let mut seen = vec![false; demand.tests()];
    let mut events = Vec::new();
    for slot in &plan.slots {
        assert!(!std::mem::replace(&mut seen[slot.test as usize], true), "test {} twice", slot.test);
        let end = slot.begin_ns + demand.duration_ns(slot.test);
        assert!(end <= plan.length_ns);
        for &resource in demand.resources_of(slot.test) {
            events.push((slot.begin_ns, 1, resource));
            events.push((end, -1, resource));
        }
    }
    assert!(seen.iter().all(|seen| *seen), "a test is missing");
    events.sort_unstable();
    let mut in_use = vec![0i64; demand.resources()];
    for (_, change, resource) in events {
        in_use[resource as usize] += change;
        assert!(in_use[resource as usize] <= i64::from(demand.capacity(resource)), "resource {resource}");
    }
    assert!(plan.length_ns >= plan.lower_bound_ns, "{} < {}", plan.length_ns, plan.lower_bound_ns);
}

fn excess(plan: &Timetable) -> f64 {
    plan.length_ns as f64 / plan.lower_bound_ns as f64
}

#[test]
fn a_full_mesh_of_hosts_takes_the_fewest_rounds() {
    for (hosts, rounds) in [(2, 2), (3, 6), (5, 10), (8, 14), (12, 22), (33, 66)] {
        let (demand, pairs) = full_mesh(hosts);
        let plan = Timetable::new(&demand, &pairs);
        check(&demand, &plan);
        assert_eq!(
            (plan.length_ns, plan.lower_bound_ns),
            (rounds * SLOT_NS, rounds * SLOT_NS),
            "{hosts} hosts"
        );
    }
    assert_eq!(full_mesh(12).1.len(), 132);
}

#[test]
fn shared_uplinks_are_never_overbooked() {
    for (count, hosts, capacity, most) in
        [(10, 5, 1, 1.05), (10, 5, 2, 1.05), (20, 3, 1, 1.05), (5, 10, 1, 1.05)]
    {
        let (demand, pairs) = sites(count, hosts, hosts, Some(capacity));
        let plan = Timetable::new(&demand, &pairs);
        check(&demand, &plan);
        assert!(excess(&plan) <= most, "{count} × {hosts}, {capacity} at a time: {:.3}", excess(&plan));
    }
}

#[test]
fn a_stratified_mesh_is_near_its_bound() {
    for (count, hosts) in [(6, 10), (7, 9)] {
        let (demand, pairs) = sites(count, hosts, 3, None);
        let plan = Timetable::new(&demand, &pairs);
        check(&demand, &plan);
        assert!(excess(&plan) <= 1.05, "{count} × {hosts}: {:.3}", excess(&plan));
    }
}

#[test]
fn a_hub_measures_one_spoke_after_the_other() {
    let mut demand = Demand::default();
    let hosts: Vec<u32> = (0..6).map(|_| demand.add_resource(1)).collect();
    demand.add_class(hosts.clone());
    let pairs: Vec<HostPair> = hosts[1..].iter().map(|spoke| [hosts[0], *spoke]).collect();
    for pair in &pairs {
        demand.add_test(pair, SLOT);
    }
    let plan = Timetable::new(&demand, &pairs);
    check(&demand, &plan);
    assert_eq!(plan.length_ns, 5 * SLOT_NS);
}

#[test]
fn a_test_of_one_pair_can_be_planned_twice() {
    let mut demand = Demand::default();
    let pair = [demand.add_resource(1), demand.add_resource(1)];
    demand.add_test(&pair, SLOT);
    demand.add_test(&pair, SLOT);
    let plan = Timetable::new(&demand, &[pair, pair]);
    check(&demand, &plan);
    assert_eq!(plan.length_ns, 2 * SLOT_NS);
}

#[test]
fn nothing_to_test_takes_no_time() {
    let plan = Timetable::new(&Demand::default(), &[]);
    assert_eq!((plan.slots.len(), plan.length_ns, plan.lower_bound_ns), (0, 0, 0));
}

proptest! {
    /// Any resources, capacities, lengths: never too many tests at once, and at most twice the bound of one resource.
    #[test]
    fn no_resource_carries_more_tests_than_it_may(
        capacities in prop::collection::vec(1u32..4, 2..12),
        tests in prop::collection::vec((prop::collection::vec(0usize..64, 1..5), 1u64..20), 0..80),
    ) {
        let mut demand = Demand::default();
        let resources: Vec<u32> = capacities.iter().map(|capacity| demand.add_resource(*capacity)).collect();
        for (used, seconds) in &tests {
            let used: Vec<u32> = used.iter().map(|index| resources[index % resources.len()]).collect();
            demand.add_test(&used, Duration::from_secs(*seconds));
        }
        check(&demand, &Timetable::new(&demand, &[]));
    }

    /// Plans some pairs of some hosts, by either method.
    #[test]
    fn any_choice_of_pairs_is_planned_once(hosts in 2u32..10, chosen in prop::collection::vec(any::<(u8, u8)>(), 1..60)) {
        let mut demand = Demand::default();
        let all: Vec<u32> = (0..hosts).map(|_| demand.add_resource(1)).collect();
        demand.add_class(all.clone());
        let mut pairs = Vec::new();
        for (a, b) in chosen {
            let pair = [u32::from(a) % hosts, u32::from(b) % hosts];
            if pair[0] != pair[1] {
                demand.add_test(&pair, SLOT);
                pairs.push(pair);
            }
        }
        check(&demand, &Timetable::new(&demand, &pairs));
    }
}
