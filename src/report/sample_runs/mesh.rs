//! Runs of a mesh: five hosts of two groups with a slow one, and one whose texts are malicious.

use super::{HOSTILE_SCRIPT, case, latency_figures, rate_figures, run};
use crate::plan::Direction;
use crate::run::{BlamedPart, MeshBlame, MeshHost, MeshPair, MeshResource, MeshResult, MeshServed, Run};

/// Host `c` sends and receives half as much as the others; the round trips of the last pair were disturbed; one pair failed.
pub fn mesh() -> Run {
    let host = |name: &str, group: &str| MeshHost {
        name: name.to_owned(),
        address: format!("{name}.example"),
        group: Some(group.to_owned()),
        tool: Some("linkgauge 0.1.0".to_owned()),
        lost: None,
    };
    let hosts: Vec<MeshHost> =
        [("a", "north"), ("b", "north"), ("c", "south"), ("d", "south"), ("e", "south")]
            .map(|(name, group)| host(name, group))
            .into();
    let (mut cases, mut pairs) = (Vec::new(), Vec::new());
    for from in 0..5u32 {
        for to in (0..5u32).filter(|to| *to != from) {
            let name = format!("{} → {}", hosts[from as usize].name, hosts[to as usize].name);
            let is_slow = [from, to].contains(&2);
            let base = if (from < 2) == (to < 2) { 200_000 } else { 2_000_000 };
            let latency = latency_figures(base, 10_000);
            cases.push(case(&name, "latency", Direction::Loop, 64, latency));
            let latency_case = Some(cases.len() as u32);
            if (from, to) == (3, 1) {
                let failure = Some("tcp://b.example:7100: connection refused".to_owned());
                pairs.push(MeshPair { from, to, latency_case, failure, ..MeshPair::default() });
                continue;
            }
            let rate = if is_slow { 46.1e6 } else { 94.1e6 };
            let rate = if (from, to) == (0, 3) { rate / 1.5 } else { rate };
            cases.push(case(&name, "throughput", Direction::Send, 131_072, rate_figures(rate)));
            let throughput_case = Some(cases.len() as u32);
            pairs.push(MeshPair { from, to, latency_case, throughput_case, ..MeshPair::default() });
        }
    }
    if let Some(last) = pairs.last_mut() {
        last.under_load_of = vec![2];
        last.under_failed_loads = 1;
    }
    let mut run = run(Some("two sites"), cases);
    run.mesh = Some(MeshResult {
        hosts,
        pairs,
        resources: vec![MeshResource { name: "uplink".to_owned(), capacity: 1 }],
        exclusive: true,
        lower_bound_ns: 65_000_000_000,
        tests_elapsed_ns: 67_100_000_000,
        throughput_blame: vec![
            blame(BlamedPart::Host { host: 2 }, 0.7136, 0.02, 8),
            blame(BlamedPart::HostSends { host: 0 }, 0.4, 0.02, 4),
        ],
        latency_blame: vec![
            blame(BlamedPart::Uplink { group: 1 }, 1.8e6, 1e4, 12),
            blame(BlamedPart::PairBothWays { a: 0, b: 3 }, 1e5, 1e4, 2),
            blame(BlamedPart::Pair { from: 0, to: 3 }, 1e5, 1e4, 1),
            blame(BlamedPart::HostReceives { host: 1 }, 1e5, 1e4, 3),
        ],
        served: Some(LOGS),
        resumed_from: Some("20261120T090000Z-7f3a00".to_owned()),
    });
    run
}

const LOGS: MeshServed =
    MeshServed { throughput_tests: 18, overlapping: 0, unlogged: 1, clock_error_ns: 400_000 };

fn blame(part: BlamedPart, effect: f64, effect_error: f64, pairs: u32) -> MeshBlame {
    MeshBlame { part, effect, effect_error, pairs }
}

/// Numbers that lead nowhere, and texts that would be code.
pub fn hostile_mesh() -> Run {
    let mut run = mesh();
    let mesh = run.mesh.get_or_insert_default();
    mesh.hosts[0].name = HOSTILE_SCRIPT.to_owned();
    mesh.hosts[1].lost = Some(format!("{HOSTILE_SCRIPT}\u{1b}[2J"));
    mesh.hosts[2].group = None;
    mesh.pairs[0] = MeshPair { from: 77, to: 0, latency_case: Some(9999), ..MeshPair::default() };
    mesh.pairs[1] = MeshPair { from: 0, to: 0, throughput_case: Some(u32::MAX), ..MeshPair::default() };
    mesh.pairs[2].failure = Some(HOSTILE_SCRIPT.to_owned());
    mesh.throughput_blame[0] = blame(BlamedPart::Uplink { group: usize::MAX }, -1e308, 1e308, 1);
    mesh.latency_blame[0] = blame(BlamedPart::Host { host: usize::MAX }, f64::MAX, 0.0, 1);
    run
}
