//! One pair of a mesh: both directions, and what each part of the mesh adds to them.

use serde_json::{Value, json};

use super::{
    MIN_ASYMMETRY, MODEL, PairFigures, Typical, describe_pair, next_command, pair_name, pairs_by_badness,
    part_name,
};
use crate::explain::{ExplainError, Finding, FindingBlock};
use linkgauge_model::run::{MeshBlame, MeshPair, MeshResult, Run};
use linkgauge_model::stats::median;
use linkgauge_model::units::{format_bit_rate, format_nanoseconds};

/// Host names that an error lists.
const MAX_NAMED_HOSTS: usize = 20;

/// Explains both directions between two hosts.
///
/// # Errors
///
/// The run is not that of a mesh, has no such hosts, or did not measure them.
pub fn explain_pair(run: &Run, names: [&str; 2]) -> Result<Finding, ExplainError> {
    let lacking = |what: String| ExplainError::InsufficientData(what);
    let mesh = run.mesh.as_ref().ok_or_else(|| lacking("not a run of 'linkgauge mesh'".to_owned()))?;
    let host = |name: &str| mesh.hosts.iter().position(|host| host.name == name);
    let known: Vec<&str> = mesh.hosts.iter().take(MAX_NAMED_HOSTS).map(|host| host.name.as_str()).collect();
    let find = |name: &str| {
        host(name).ok_or_else(|| {
            lacking(format!("no host is named '{name}'. Name two hosts of the run: {}", known.join(", ")))
        })
    };
    let [from, to] = [find(names[0])? as u32, find(names[1])? as u32];
    let pairs = pairs_by_badness(mesh, &run.cases);
    let typical = Typical::of(mesh, &pairs);
    let direction = |from, to| pairs.iter().find(|pair| (pair.pair.from, pair.pair.to) == (from, to));
    let directions: Vec<&PairFigures> = direction(from, to).into_iter().chain(direction(to, from)).collect();
    let Some(first) = directions.first() else {
        return Err(lacking(format!(
            "the run did not measure {} and {}: name another pair",
            names[0], names[1]
        )));
    };
    let mut blocks = Vec::new();
    let mut figures = Vec::new();
    for pair in &directions {
        let name = pair_name(mesh, pair.pair);
        blocks.push(FindingBlock::Heading(format!("{name}: {}", describe_pair(pair, &typical))));
        let parts = [rate_parts(mesh, &pairs, pair), time_parts(mesh, &pairs, pair)];
        blocks.extend(parts.iter().flatten().map(|parts| FindingBlock::Text(parts.sentence.clone())));
        blocks.extend(cases_sentence(pair.pair).map(FindingBlock::Text));
        figures.push(json!({
            "pair": name,
            "throughput_bps": pair.rate(),
            "p50_ns": pair.percentile("p50"),
            "failure": pair.pair.failure,
            "parts": parts.into_iter().flatten().map(|parts| parts.figures).collect::<Vec<Value>>(),
        }));
    }
    blocks.extend(asymmetry_sentence(mesh, &directions).map(FindingBlock::Text));
    blocks.push(FindingBlock::Text(next_command(mesh, first)));
    Ok(Finding { model: MODEL.name, figures: json!({ "directions": figures }), summary: Vec::new(), blocks })
}

/// Contribution of each part of the mesh to a figure.
struct Parts {
    sentence: String,
    figures: Value,
}

/// Minimum number of other pairs between its groups; with fewer, a pair is compared with all pairs inside groups, or with all
/// between groups.
const MIN_PAIRS_OF_BLOCK: usize = 3;

/// A value as a sum: what is usual between its groups, the effect of each blamed part, and the rest.
struct Sum<'a> {
    usual: f64,
    blamed: Vec<&'a MeshBlame>,
    rest: f64,
}

impl Sum<'_> {
    /// Makes the sum. `values` are those of all pairs that count, with their hosts; larger is worse.
    pub fn new<'a>(
        mesh: &MeshResult,
        values: &[([u32; 2], f64)],
        blamed: &'a [MeshBlame],
        own: [u32; 2],
    ) -> Option<Sum<'a>> {
        let groups = mesh.group_numbers();
        let affecting = |pair: [u32; 2]| {
            let affects = |blame: &&MeshBlame| blame.part.affects(pair.map(|host| host as usize), &groups);
            blamed.iter().filter(affects).collect::<Vec<&MeshBlame>>()
        };
        let without_blamed = |(pair, value): &([u32; 2], f64)| {
            value - affecting(*pair).iter().map(|blame| blame.effect).sum::<f64>()
        };
        let block = |pair: [u32; 2]| pair.map(|host| groups.get(host as usize).copied());
        let is_inside = |[from, to]: [Option<usize>; 2]| from == to;
        let others = || values.iter().filter(|(pair, _)| *pair != own);
        let of_block = others().filter(|(pair, _)| block(*pair) == block(own));
        let mut alike: Vec<f64> = of_block.map(without_blamed).collect();
        if alike.len() < MIN_PAIRS_OF_BLOCK {
            let of_kind = others().filter(|(pair, _)| is_inside(block(*pair)) == is_inside(block(own)));
            alike = of_kind.map(without_blamed).collect();
        }
        let usual = median(&alike)?;
        let value = values.iter().find(|(pair, _)| *pair == own)?;
        Some(Sum { usual, blamed: affecting(own), rest: without_blamed(value) - usual })
    }

    fn parts(&self, mesh: &MeshResult) -> impl Iterator<Item = (String, f64)> {
        let blamed = self.blamed.iter().map(|blame| (part_name(mesh, &blame.part), blame.effect));
        blamed.chain([("the pair itself".to_owned(), self.rest)]).collect::<Vec<_>>().into_iter()
    }
}

fn hosts(pair: &PairFigures) -> [u32; 2] {
    [pair.pair.from, pair.pair.to]
}

/// Parts of the rate, as factors.
fn rate_parts(mesh: &MeshResult, pairs: &[PairFigures], pair: &PairFigures) -> Option<Parts> {
    let logarithm = |pair: &PairFigures| pair.rate().filter(|rate| *rate > 0.0).map(|rate| -rate.ln());
    let values: Vec<([u32; 2], f64)> =
        pairs.iter().filter_map(|pair| Some((hosts(pair), logarithm(pair)?))).collect();
    let sum = Sum::new(mesh, &values, &mesh.throughput_blame, hosts(pair))?;
    let usual = (-sum.usual).exp();
    let factors: Vec<(String, f64)> = sum.parts(mesh).map(|(name, effect)| (name, (-effect).exp())).collect();
    let words: Vec<String> =
        factors.iter().map(|(name, factor)| format!("× {factor:.2} by {name}")).collect();
    Some(Parts {
        sentence: format!("rate: {} is usual for such pairs, {}.", format_bit_rate(usual), words.join(", ")),
        figures: json!({
            "metric": "throughput_bps",
            "usual": usual,
            "factors": factors.iter().map(|(part, factor)| json!({ "part": part, "factor": factor })).collect::<Vec<_>>(),
        }),
    })
}

/// Parts of the median round trip, as times. Round trips under load have no part.
fn time_parts(mesh: &MeshResult, pairs: &[PairFigures], pair: &PairFigures) -> Option<Parts> {
    let quiet = pairs.iter().filter(|pair| !pair.is_under_load());
    let values: Vec<([u32; 2], f64)> =
        quiet.filter_map(|pair| Some((hosts(pair), pair.percentile("p50")?))).collect();
    let sum = Sum::new(mesh, &values, &mesh.latency_blame, hosts(pair))?;
    let words: Vec<String> = sum
        .parts(mesh)
        .map(|(name, effect)| {
            let sign = if effect < 0.0 { "−" } else { "+" };
            format!("{sign} {} by {name}", format_nanoseconds(effect.abs()))
        })
        .collect();
    Some(Parts {
        sentence: format!(
            "median round trip: {} is usual for such pairs, {}.",
            format_nanoseconds(sum.usual),
            words.join(", ")
        ),
        figures: json!({
            "metric": "p50_ns",
            "usual": sum.usual,
            "added": sum.parts(mesh).map(|(part, effect)| json!({ "part": part, "ns": effect })).collect::<Vec<_>>(),
        }),
    })
}

fn cases_sentence(pair: &MeshPair) -> Option<String> {
    let named = |number: Option<u32>, what: &str| Some(format!("case {} has its {what}", number?));
    let cases = [named(pair.latency_case, "round trips"), named(pair.throughput_case, "rate")];
    let cases: Vec<String> = cases.into_iter().flatten().collect();
    (!cases.is_empty()).then(|| format!("{}.", cases.join(", ")))
}

fn asymmetry_sentence(mesh: &MeshResult, directions: &[&PairFigures]) -> Option<String> {
    let [a, b] = directions else { return None };
    let (rate, reverse) = (a.rate()?, b.rate()?);
    let (faster, ratio) =
        if rate >= reverse { (a, rate / reverse.max(1.0)) } else { (b, reverse / rate.max(1.0)) };
    Some(match ratio > MIN_ASYMMETRY {
        true => {
            format!("{} is {ratio:.2} times as fast as the other direction.", pair_name(mesh, faster.pair))
        }
        false => format!("Both directions have about the same rate (ratio {ratio:.2})."),
    })
}
