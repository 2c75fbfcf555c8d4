//! The run document of a mesh: its tests as cases, which pair each belongs to, and the part that explains the worst pairs.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::blame::{PairValue, Scale, find_blamed};
use super::coordinator::MeshParts;
use super::hosts::{HostList, Sharing};
use super::outcome::{PairOutcome, TestKind, TestRecord};
use super::served::{OrderedLoad, compare_logs};
use linkgauge_model::clock::Time;
use linkgauge_model::run::{CaseResult, Environment, MeshHost, MeshPair, MeshResource, MeshResult, Run};

/// Longest text of a failure in the document.
const MAX_FAILURE_CHARS: usize = 300;

/// Facts of a run of a mesh that its tests do not hold.
#[derive(Debug, Clone)]
pub struct MeshFacts {
    /// The begin.
    pub started: Timestamp,
    /// Time from the begin to the end.
    pub elapsed: Duration,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Facts of this machine.
    pub environment: Map<String, Value>,
    /// Id of the run that it continues.
    pub resumed_from: Option<String>,
}

/// The document of a mesh.
pub fn mesh_run(parts: MeshParts, facts: MeshFacts) -> Run {
    let tests_elapsed_ns = tests_elapsed_ns(&parts.records);
    let MeshParts { list, tools, lost, logs, records, sharing, lower_bound_ns } = parts;
    let served = compare_logs(&list, &ordered_loads(&records), &logs);
    let (pairs, cases) = pairs_and_cases(&list, records);
    let mesh = MeshResult {
        hosts: hosts(&list, tools, lost),
        pairs,
        resources: list
            .resources
            .iter()
            .map(|resource| MeshResource { name: resource.name.clone(), capacity: resource.capacity })
            .collect(),
        exclusive: sharing == Sharing::Exclusive,
        lower_bound_ns,
        tests_elapsed_ns,
        served,
        tests: list.describe_tests(),
        resumed_from: facts.resumed_from,
        ..MeshResult::default()
    };
    let mesh = with_blame(mesh, &cases, &list.group_numbers());
    let environment = Environment { client: facts.environment, ..Environment::default() };
    let run = Run::of_cases(facts.started, facts.elapsed.as_nanos() as u64, cases, environment);
    Run { title: list.title, interrupted: facts.interrupted, mesh: Some(mesh), ..run }
}

/// The tests that measured anything, as cases, and which pair each belongs to.
fn pairs_and_cases(
    list: &HostList,
    mut records: BTreeMap<(TestKind, usize), TestRecord>,
) -> (Vec<MeshPair>, Vec<CaseResult>) {
    let under_load_of = overlaps(list, &records);
    let mut cases = Vec::new();
    let mut numbers: BTreeMap<(TestKind, usize), u32> = BTreeMap::new();
    let mut failures: BTreeMap<usize, String> = BTreeMap::new();
    for (&(kind, pair), record) in &mut records {
        if let Some(why) = record.failure() {
            failures.entry(pair).or_insert_with(|| why.chars().take(MAX_FAILURE_CHARS).collect());
        }
        if record.case().is_none() {
            continue;
        }
        if let Some(PairOutcome::Measured(case) | PairOutcome::Earlier(case)) = record.outcome.take() {
            cases.push(CaseResult { endpoint: pair_name(list, pair), ..*case });
            numbers.insert((kind, pair), cases.len() as u32);
        }
    }
    let number = |kind, index| numbers.get(&(kind, index)).copied();
    let pair = |(index, [from, to]): (usize, &[usize; 2])| {
        let loads = under_load_of.get(&index).map_or(&[][..], Vec::as_slice);
        let under_load_of: Vec<u32> =
            loads.iter().filter_map(|load| number(TestKind::Throughput, *load)).collect();
        MeshPair {
            from: *from as u32,
            to: *to as u32,
            latency_case: number(TestKind::Latency, index),
            throughput_case: number(TestKind::Throughput, index),
            under_failed_loads: (loads.len() - under_load_of.len()) as u32,
            under_load_of,
            failure: failures.get(&index).cloned(),
        }
    };
    (list.pairs.iter().enumerate().map(pair).collect(), cases)
}

/// The name of a pair where others have a URL: ports change from run to run.
pub fn pair_name(list: &HostList, pair: usize) -> String {
    let [from, to] = list.pairs[pair].map(|host| &list.hosts[host].name);
    format!("{from} → {to}")
}

fn hosts(list: &HostList, tools: Vec<Option<String>>, lost: Vec<Option<String>>) -> Vec<MeshHost> {
    let all = list.hosts.iter().zip(tools).zip(lost);
    let host = |((host, tool), lost): ((&super::hosts::Host, Option<String>), Option<String>)| MeshHost {
        name: host.name.clone(),
        address: host.address.clone(),
        group: host.group.clone(),
        tool,
        lost: lost.map(|why| why.chars().take(MAX_FAILURE_CHARS).collect()),
    };
    all.map(host).collect()
}

/// Time from the first order of a test to the last answer, in ns.
fn tests_elapsed_ns(records: &BTreeMap<(TestKind, usize), TestRecord>) -> u64 {
    let intervals = || records.values().filter_map(|record| record.interval);
    let first = intervals().map(|(began, _)| began).min();
    let last = intervals().map(|(_, ended)| ended).max();
    first.zip(last).map_or(0, |(first, last)| last.since(first).as_nanos() as u64)
}

/// The throughput tests that agents were ordered to make.
fn ordered_loads(records: &BTreeMap<(TestKind, usize), TestRecord>) -> Vec<OrderedLoad> {
    let loads = records.iter().filter(|((kind, _), _)| *kind == TestKind::Throughput);
    loads
        .filter_map(|((_, pair), record)| {
            let has_result = record.case().is_some();
            Some(OrderedLoad { pair: *pair, interval: record.interval?, has_result })
        })
        .collect()
}

/// The throughput tests that ran while the latency of a pair was measured, on one of its hosts or of its shared resources. By
/// index of the pair.
fn overlaps(
    list: &HostList,
    records: &BTreeMap<(TestKind, usize), TestRecord>,
) -> BTreeMap<usize, Vec<usize>> {
    let of_kind = |wanted: TestKind| -> Vec<(usize, (Time, Time))> {
        let of_kind = records.iter().filter(|((kind, _), _)| *kind == wanted);
        of_kind.filter_map(|((_, pair), record)| Some((*pair, record.interval?))).collect()
    };
    let loads = of_kind(TestKind::Throughput);
    let mut overlaps: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    // Without a load that began before the last probe ended, there is nothing to compare.
    let probes = of_kind(TestKind::Latency);
    let last = probes.iter().map(|(_, (_, ended))| *ended).max().unwrap_or(Time(0));
    let loads: Vec<_> = loads.into_iter().filter(|(_, (began, _))| *began < last).collect();
    for (pair, (began, ended)) in probes {
        let disturbs = |(load, (load_began, load_ended)): &(usize, (Time, Time))| {
            let is_together = *load_began < ended && began < *load_ended;
            is_together && shares_anything(list, list.pairs[pair], list.pairs[*load])
        };
        let loads: Vec<usize> = loads.iter().filter(|load| disturbs(load)).map(|(load, _)| *load).collect();
        if !loads.is_empty() {
            overlaps.insert(pair, loads);
        }
    }
    overlaps
}

fn shares_anything(list: &HostList, a: [usize; 2], b: [usize; 2]) -> bool {
    let share_resource =
        |resource: &super::hosts::SharedResource| resource.is_used_by(a) && resource.is_used_by(b);
    a.iter().any(|host| b.contains(host)) || list.resources.iter().any(share_resource)
}

/// Names the parts that explain the worst pairs. Round trips that a load disturbed do not count.
fn with_blame(mut mesh: MeshResult, cases: &[CaseResult], groups: &[usize]) -> MeshResult {
    let case = |number: Option<u32>| cases.get(number?.checked_sub(1)? as usize);
    let value =
        |pair: &MeshPair, value: f64| PairValue { from: pair.from as usize, to: pair.to as usize, value };
    let quiet = mesh.pairs.iter().filter(|pair| !pair.is_under_load());
    let latencies: Vec<PairValue> = quiet
        .filter_map(|pair| {
            let times = case(pair.latency_case)?.figures.times.latency_ns.as_ref()?;
            Some(value(pair, times.percentile("p50")? as f64))
        })
        .collect();
    let rates: Vec<PairValue> = mesh
        .pairs
        .iter()
        .filter_map(|pair| {
            let rate = case(pair.throughput_case)?.figures.delivery.throughput_bps?;
            (rate > 0.0).then(|| value(pair, -rate.ln()))
        })
        .collect();
    mesh.latency_blame = find_blamed(&latencies, groups, Scale::LATENCY);
    mesh.throughput_blame = find_blamed(&rates, groups, Scale::RATE);
    mesh
}

/// The complete tests of an earlier run, for a mesh that continues it: by kind and index of the pair in the list. Pairs are
/// found by the names of their hosts.
pub fn earlier_tests(list: &HostList, run: &Run) -> BTreeMap<(TestKind, usize), TestRecord> {
    let mut earlier = BTreeMap::new();
    let Some(mesh) = &run.mesh else { return earlier };
    let name = |index: u32| mesh.hosts.get(index as usize).map(|host| host.name.as_str());
    for (index, pair) in list.pairs.iter().enumerate() {
        let names = pair.map(|host| list.hosts[host].name.as_str());
        let is_same = |pair: &&MeshPair| [name(pair.from), name(pair.to)] == names.map(Some);
        let Some(known) = mesh.pairs.iter().find(is_same) else { continue };
        let latency = known.latency_case.filter(|_| !known.is_under_load());
        let wanted = [
            (TestKind::Latency, latency.filter(|_| list.latency.is_some())),
            (TestKind::Throughput, known.throughput_case.filter(|_| list.throughput.is_some())),
        ];
        for (kind, number) in wanted {
            let case = number.and_then(|number| run.cases.get(number.checked_sub(1)? as usize));
            if let Some(case) = case.filter(|case| case.complete) {
                let outcome = Some(PairOutcome::Earlier(Box::new(case.clone())));
                earlier.insert((kind, index), TestRecord { outcome, interval: None });
            }
        }
    }
    earlier
}
