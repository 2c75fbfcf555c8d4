//! Simulated meshes with a planted cause, and without one.

use std::ops::Range;

use super::*;
use linkgauge_model::stats::SplitMix64;
use linkgauge_model::stats::simulate::simulations;

/// The rule was tuned on the seeds from 0 to 199. These judge it: it has never been changed because of them.
const FIRST_SEED: u64 = 6_000_000;
const ALL_SEEDS: u64 = 200;

fn seeds() -> Range<u64> {
    FIRST_SEED..FIRST_SEED + simulations(ALL_SEEDS)
}

/// Number of `seeds` for which the result must be right: `percent` of them.
fn enough(percent: u64) -> usize {
    (simulations(ALL_SEEDS) * percent / 100) as usize
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    Host,
    Uplink,
    Pair,
}

struct Mesh {
    random: SplitMix64,
    groups: Vec<usize>,
    group_count: usize,
}

impl Mesh {
    /// Mesh of 3 to 5 groups of 3 to 6 hosts.
    pub fn new(seed: u64) -> Mesh {
        let mut random = SplitMix64::new(seed);
        let mut between =
            |low: usize, high: usize| low + (random.uniform() * (high - low + 1) as f64) as usize;
        let group_count = between(3, 5);
        let groups = (0..group_count).flat_map(|group| vec![group; between(3, 6)]).collect();
        Mesh { random, groups, group_count }
    }

    /// Hosts of one group.
    fn of_one_group(seed: u64, hosts: usize) -> Mesh {
        Mesh { random: SplitMix64::new(seed), groups: vec![0; hosts], group_count: 1 }
    }

    fn normal(&mut self) -> f64 {
        let [a, b] = [self.random.uniform().max(1e-12), self.random.uniform()];
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    fn pick(&mut self, count: usize) -> usize {
        (self.random.uniform() * count as f64) as usize % count
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let hosts = 0..self.groups.len();
        hosts
            .clone()
            .flat_map(|from| hosts.clone().filter(move |to| *to != from).map(move |to| (from, to)))
            .collect()
    }

    /// Times: 200 µs inside a group, 2 ms ± 10 % between two, hosts ± 2 %, pairs ± 3 % with a tail. The planted part adds half
    /// as much again, or for an uplink twice as much.
    fn latencies(&mut self, part: Option<BlamedPart>, planted: Planted) -> Vec<PairValue> {
        let count = self.group_count;
        let distances: Vec<f64> = (0..count * count).map(|_| 2e6 * (1.0 + 0.1 * self.normal())).collect();
        let hosts: Vec<f64> = (0..self.groups.len()).map(|_| 0.02 * self.normal()).collect();
        let excess = if planted == Planted::Uplink { 4e6 } else { 2e6 };
        let value = |mesh: &mut Mesh, from: usize, to: usize| {
            let [a, b] = [mesh.groups[from], mesh.groups[to]];
            let base = if a == b { 2e5 } else { distances[a.min(b) * count + a.max(b)] };
            let tail = if mesh.random.uniform() < 0.02 { 3.0 } else { 1.0 };
            base * (1.0 + hosts[from] + hosts[to] + 0.03 * tail * mesh.normal())
        };
        self.values(part, excess, value)
    }

    /// Rates: all hosts and uplinks alike, pairs ± 2 %. The planted part halves the rate.
    fn rates(&mut self, part: Option<BlamedPart>) -> Vec<PairValue> {
        let value = |mesh: &mut Mesh, _: usize, _: usize| -(9.4e8 * (1.0 + 0.02 * mesh.normal())).ln();
        self.values(part, std::f64::consts::LN_2, value)
    }

    fn values(
        &mut self,
        part: Option<BlamedPart>,
        excess: f64,
        value: impl Fn(&mut Mesh, usize, usize) -> f64,
    ) -> Vec<PairValue> {
        let pairs = self.pairs();
        let mut values: Vec<PairValue> = Vec::new();
        for (from, to) in pairs {
            values.push(PairValue { from, to, value: value(self, from, to) });
        }
        let groups = self.groups.clone();
        let fit = Fit::new(&values, &groups, Scale::RATE);
        for index in part.map(|part| fit.members(part)).unwrap_or_default() {
            values[index].value += excess;
        }
        values
    }

    fn part(&mut self, planted: Planted) -> Option<BlamedPart> {
        let hosts = self.groups.len();
        Some(match planted {
            Planted::Nothing => return None,
            Planted::Host => BlamedPart::Host { host: self.pick(hosts) },
            Planted::Uplink => BlamedPart::Uplink { group: self.pick(self.group_count) },
            Planted::Pair => {
                let a = self.pick(hosts - 1);
                BlamedPart::PairBothWays { a, b: a + 1 + self.pick(hosts - a - 1) }
            }
        })
    }
}

/// Number of seeds for which exactly the planted part is named first, or no part if nothing is planted.
fn right(planted: Planted, scale: Scale, seeds: Range<u64>) -> usize {
    let is_right = |seed: &u64| {
        let mut mesh = Mesh::new(*seed);
        let part = mesh.part(planted);
        let values = if scale.is_logarithm { mesh.rates(part) } else { mesh.latencies(part, planted) };
        let found = find_blamed(&values, &mesh.groups, scale);
        found.first().map(|blamed| blamed.part) == part
    };
    seeds.filter(is_right).count()
}

#[test]
fn a_planted_cause_is_named_and_a_clean_mesh_has_none() {
    let mut wrong = Vec::new();
    for scale in [Scale::LATENCY, Scale::RATE] {
        for planted in [Planted::Nothing, Planted::Host, Planted::Uplink, Planted::Pair] {
            let right = right(planted, scale, seeds());
            if right < enough(95) {
                wrong.push(format!(
                    "{planted:?}, logarithm {}: {right} of {:?}",
                    scale.is_logarithm,
                    seeds()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Few hosts: the pairs of one of them are half of all, or more.
#[test]
fn a_slow_host_of_few_is_named() {
    let mut wrong = Vec::new();
    for (hosts, scale) in (3..=6).flat_map(|hosts| [(hosts, Scale::LATENCY), (hosts, Scale::RATE)]) {
        let is_right = |seed: &u64| {
            let mut mesh = Mesh::of_one_group(*seed, hosts);
            let part = mesh.part(Planted::Host);
            let values =
                if scale.is_logarithm { mesh.rates(part) } else { mesh.latencies(part, Planted::Host) };
            let found = find_blamed(&values, &mesh.groups, scale);
            found.iter().map(|blamed| blamed.part).eq(part)
        };
        let right = seeds().filter(is_right).count();
        if right < enough(95) {
            wrong.push(format!("{hosts} hosts, logarithm {}: {right} of {:?}", scale.is_logarithm, seeds()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Paths differ by their nature: 10 % from pair to pair, alike in both directions.
#[test]
fn paths_that_differ_among_few_hosts_blame_no_part() {
    let mut wrong = Vec::new();
    for (hosts, scale) in (3..=6).flat_map(|hosts| [(hosts, Scale::LATENCY), (hosts, Scale::RATE)]) {
        let is_right = |seed: &u64| {
            let mut mesh = Mesh::of_one_group(*seed, hosts);
            let paths: Vec<f64> = (0..hosts * hosts).map(|_| 1.0 + 0.1 * mesh.normal()).collect();
            let value = |mesh: &mut Mesh, from: usize, to: usize| {
                let path = (paths[from.min(to) * hosts + from.max(to)] + 0.01 * mesh.normal()).max(0.1);
                if scale.is_logarithm { -(9.4e8 * path).ln() } else { 2e5 * path }
            };
            let values = mesh.values(None, 0.0, value);
            find_blamed(&values, &mesh.groups, scale).is_empty()
        };
        let right = seeds().filter(is_right).count();
        if right < enough(95) {
            wrong.push(format!("{hosts} hosts, logarithm {}: {right} of {:?}", scale.is_logarithm, seeds()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_error_covers_the_planted_effect() {
    let covers = |seed: &u64| {
        let mut mesh = Mesh::new(*seed);
        let part = mesh.part(Planted::Host);
        let values = mesh.rates(part);
        let found = find_blamed(&values, &mesh.groups, Scale::RATE).remove(0);
        (found.effect - std::f64::consts::LN_2).abs() <= found.effect_error
    };
    let covered = seeds().filter(covers).count();
    assert!(covered >= enough(90), "{covered} of {:?}", seeds());
}

#[test]
fn a_host_that_only_sends_slowly_is_named_so() {
    let mut mesh = Mesh::new(5);
    let part = BlamedPart::HostSends { host: 2 };
    let values = mesh.rates(Some(part));
    let found = find_blamed(&values, &mesh.groups, Scale::RATE);
    assert_eq!(found.iter().map(|blamed| blamed.part).collect::<Vec<_>>(), [part]);
}

#[test]
fn two_causes_are_named_the_larger_first() {
    let mut mesh = Mesh::new(11);
    let mut values = mesh.rates(Some(BlamedPart::Host { host: 1 }));
    let slow = values.iter().position(|value| (value.from, value.to) == (4, 7)).unwrap();
    values[slow].value += 1.0;
    let found: Vec<BlamedPart> =
        find_blamed(&values, &mesh.groups, Scale::RATE).into_iter().map(|blamed| blamed.part).collect();
    assert_eq!(found, [BlamedPart::Host { host: 1 }, BlamedPart::Pair { from: 4, to: 7 }]);
}

#[test]
fn few_pairs_blame_no_part() {
    let value = |from, to, value| PairValue { from, to, value };
    for values in [vec![], vec![value(0, 1, 1.0)], vec![value(0, 1, 1.0), value(1, 0, 9.0)]] {
        assert_eq!(find_blamed(&values, &[0, 0], Scale::LATENCY), []);
    }
}
