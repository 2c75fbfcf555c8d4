//! Plans of large meshes against their lower bounds, with the time that planning takes. Release:
//! `cargo bench --bench mesh`

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use linkgauge::mesh::{Demand, Timetable};

const SLOT: Duration = Duration::from_secs(12);

/// All ordered pairs of hosts for which `are_paired` holds; tests between sites take a place of both uplinks.
fn mesh(
    sites: u32,
    hosts: u32,
    uplink: Option<u32>,
    are_paired: impl Fn(u32, u32) -> bool,
) -> (Demand, Vec<[u32; 2]>) {
    let mut demand = Demand::default();
    let all: Vec<u32> = (0..sites * hosts).map(|_| demand.add_resource(1)).collect();
    demand.add_class(all.clone());
    let uplinks: Vec<u32> = (0..sites).filter_map(|_| Some(demand.add_resource(uplink?))).collect();
    if uplink.is_some() {
        demand.add_class(uplinks.clone());
    }
    let mut pairs = Vec::new();
    for &a in &all {
        for &b in all.iter().filter(|b| **b != a && are_paired(a, **b)) {
            let crosses = a / hosts != b / hosts;
            let shared = [a, b].map(|host| uplinks.get((host / hosts) as usize).copied());
            let shared = shared.into_iter().flatten().filter(|_| crosses);
            let used: Vec<u32> = [a, b].into_iter().chain(shared).collect();
            demand.add_test(&used, SLOT);
            pairs.push([a, b]);
        }
    }
    (demand, pairs)
}

fn report(name: &str, (demand, pairs): (Demand, Vec<[u32; 2]>)) {
    let began = Instant::now();
    let plan = Timetable::new(&demand, &pairs);
    let took = began.elapsed();
    println!(
        "{name}: {} tests, {} slots, {:.4} × bound, {:.2} h, planned in {:.2} s",
        pairs.len(),
        plan.length_ns / SLOT.as_nanos() as u64,
        plan.length_ns as f64 / plan.lower_bound_ns as f64,
        plan.length_ns as f64 / 3.6e12,
        took.as_secs_f64()
    );
}

fn main() {
    report("full mesh of 1,000 hosts", mesh(1, 1000, None, |_, _| true));
    let stratified = |a: u32, b: u32| a / 50 == b / 50 || (a % 50 < 3 && b % 50 < 3);
    report("20 sites of 50, 3 representatives", mesh(20, 50, None, stratified));
    report("the same, 1 test at a time on each uplink", mesh(20, 50, Some(1), stratified));
    report("the same, 2 tests at a time", mesh(20, 50, Some(2), stratified));
    report("10 sites of 10, 1 test at a time on each uplink", mesh(10, 10, Some(1), |_, _| true));
}
