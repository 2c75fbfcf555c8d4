//! The mesh model: which pairs of a mesh are worst, and which host, uplink or pair explains that.
//!
//! The run holds the fit (`mesh::find_blamed`); this module says it in words, and which command looks further.

use std::collections::BTreeMap;

use serde_json::json;

use super::{ExplainError, Finding, FindingBlock, Model, ModelInput};
use linkgauge_model::run::{BlamedPart, CaseResult, MeshPair, MeshResult, Run};
use linkgauge_model::stats::median;
use linkgauge_model::units::{format_bit_rate, format_nanoseconds, format_plural};

mod pair;

pub use pair::explain_pair;

/// The mesh model in the list of models.
pub(crate) const MODEL: Model = Model {
    name: "mesh",
    summary: "the worst pairs of a mesh, and the host, uplink or pair that explains them",
    explain: |input, _| match input {
        ModelInput::Run(Run { mesh: Some(mesh), cases, .. }) => Ok(finding(mesh, cases)),
        _ => Err(ExplainError::InsufficientData("not a run of 'linkgauge mesh'".to_owned())),
    },
};

/// Pairs that are named.
const MAX_WORST: usize = 5;

/// Two directions differ if one has this many times the rate of the other.
const MIN_ASYMMETRY: f64 = 1.2;

/// The figures of an ordered pair. Absent: not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PairFigures<'a> {
    /// The pair.
    pub(crate) pair: &'a MeshPair,
    /// Round trips on a quiet network, or under the load of other tests.
    pub(crate) latency: Option<&'a CaseResult>,
    /// Payload per second.
    pub(crate) throughput: Option<&'a CaseResult>,
}

impl<'a> PairFigures<'a> {
    /// A percentile of the round trips in nanoseconds.
    pub(crate) fn percentile(&self, name: &str) -> Option<f64> {
        Some(self.latency?.figures.times.latency_ns.as_ref()?.percentile(name)? as f64)
    }

    /// Share of the requests without a reply.
    pub(crate) fn loss(&self) -> Option<f64> {
        self.latency?.figures.loss_share()
    }

    /// Payload bits per second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.throughput?.figures.delivery.throughput_bps.filter(|rate| rate.is_finite() && *rate >= 0.0)
    }

    /// Round trips that other tests disturbed.
    pub(crate) fn is_under_load(&self) -> bool {
        self.pair.is_under_load()
    }

    fn of(pair: &'a MeshPair, cases: &'a [CaseResult]) -> PairFigures<'a> {
        let case = |number: Option<u32>| cases.get(usize::try_from(number?).ok()?.checked_sub(1)?);
        PairFigures { pair, latency: case(pair.latency_case), throughput: case(pair.throughput_case) }
    }
}

/// The figures of all pairs, worst first: those without a result, then by how much worse than the median they are.
pub(crate) fn pairs_by_badness<'a>(mesh: &'a MeshResult, cases: &'a [CaseResult]) -> Vec<PairFigures<'a>> {
    let mut pairs: Vec<PairFigures> = mesh.pairs.iter().map(|pair| PairFigures::of(pair, cases)).collect();
    let typical = Typical::of(&pairs);
    let badness = |pair: &PairFigures| match pair.pair.failure {
        Some(_) => f64::INFINITY,
        None => typical.badness(pair),
    };
    pairs.sort_by(|a, b| badness(b).total_cmp(&badness(a)));
    pairs
}

/// Medians over the pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Typical {
    /// Median of the median round trips, in nanoseconds.
    pub(crate) p50_ns: Option<f64>,
    /// Median rate.
    pub(crate) rate_bps: Option<f64>,
}

impl Typical {
    /// Typical figures of these pairs; round trips under load do not count.
    pub(crate) fn of(pairs: &[PairFigures]) -> Typical {
        let quiet = pairs.iter().filter(|pair| !pair.is_under_load());
        let times: Vec<f64> = quiet.filter_map(|pair| pair.percentile("p50")).collect();
        let rates: Vec<f64> = pairs.iter().filter_map(PairFigures::rate).collect();
        Typical { p50_ns: median(&times), rate_bps: median(&rates) }
    }

    /// How many times worse than typical a pair is, by its round trips or its rate.
    pub(crate) fn badness(&self, pair: &PairFigures) -> f64 {
        let time = pair.percentile("p50").filter(|_| !pair.is_under_load()).zip(self.p50_ns);
        let time = time.map(|(time, typical)| time / typical.max(1.0));
        let rate = pair.rate().zip(self.rate_bps).map(|(rate, typical)| typical / rate.max(1.0));
        time.into_iter().chain(rate).fold(0.0, f64::max)
    }
}

/// `a → b`.
pub fn pair_name(mesh: &MeshResult, pair: &MeshPair) -> String {
    format!("{} → {}", host_name(mesh, pair.from as usize), host_name(mesh, pair.to as usize))
}

fn host_name(mesh: &MeshResult, host: usize) -> &str {
    mesh.hosts.get(host).map_or("?", |host| host.name.as_str())
}

/// The name of a part of a mesh.
fn part_name(mesh: &MeshResult, part: &BlamedPart) -> String {
    let host = |index: usize| host_name(mesh, index);
    match *part {
        BlamedPart::Host { host: index } => format!("host {}", host(index)),
        BlamedPart::HostSends { host: index } => format!("the upload of host {}", host(index)),
        BlamedPart::HostReceives { host: index } => format!("the download of host {}", host(index)),
        BlamedPart::Uplink { group } => format!("the uplink of group {}", group_name(mesh, group)),
        BlamedPart::Pair { from, to } => format!("the path {} → {}", host(from), host(to)),
        BlamedPart::PairBothWays { a, b } => format!("the path between {} and {}", host(a), host(b)),
    }
}

/// Groups are numbered in the order in which the hosts name them.
fn group_name(mesh: &MeshResult, group: usize) -> &str {
    let first = mesh.group_numbers().into_iter().position(|number| number == group);
    first.and_then(|host| mesh.hosts.get(host)?.group.as_deref()).unwrap_or("without a name")
}

/// What explains the worst pairs, in one sentence for each part: those of the rates, then those of the round trips.
pub(crate) fn blame_sentences(mesh: &MeshResult) -> Vec<String> {
    let rates = mesh.throughput_blame.iter().map(|blame| {
        let factor = (-blame.effect).exp();
        let error = factor * blame.effect_error.exp_m1();
        let name = part_name(mesh, &blame.part);
        match blame.pairs {
            1 => format!("{name} has {factor:.2} ± {error:.2} of the usual rate"),
            pairs => format!(
                "{name} slows each of its {pairs} pairs to {factor:.2} ± {error:.2} of the usual rate"
            ),
        }
    });
    let times = mesh.latency_blame.iter().map(|blame| {
        let [effect, error] = [blame.effect, blame.effect_error].map(format_nanoseconds);
        let name = part_name(mesh, &blame.part);
        match blame.pairs {
            1 => format!("{name} adds {effect} ± {error} to its round trip"),
            pairs => format!("{name} adds {effect} ± {error} to the round trip of each of its {pairs} pairs"),
        }
    });
    rates.chain(times).collect()
}

/// Pairs of directions whose rates differ, the most different first: the faster direction, its rate, and that of the other.
pub(crate) fn asymmetries<'a>(pairs: &[PairFigures<'a>]) -> Vec<(&'a MeshPair, f64, f64)> {
    let rates: BTreeMap<(u32, u32), f64> =
        pairs.iter().filter_map(|pair| Some(((pair.pair.from, pair.pair.to), pair.rate()?))).collect();
    let faster = pairs.iter().filter_map(|pair| {
        let (rate, reverse) = (pair.rate()?, *rates.get(&(pair.pair.to, pair.pair.from))?);
        (rate > MIN_ASYMMETRY * reverse.max(1.0)).then_some((pair.pair, rate, reverse))
    });
    let mut found: Vec<(&MeshPair, f64, f64)> = faster.collect();
    found.sort_by(|a, b| (b.1 / b.2.max(1.0)).total_cmp(&(a.1 / a.2.max(1.0))));
    found
}

/// How to look further at a pair.
pub(crate) fn next_command(mesh: &MeshResult, pair: &PairFigures) -> String {
    let [from, to] = [pair.pair.from, pair.pair.to].map(|host| host_name(mesh, host as usize));
    let address = mesh.hosts.get(pair.pair.to as usize).map_or("?", |host| host.address.as_str());
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let load =
        if pair.throughput.is_some() && pair.latency.is_none() { " --workload throughput" } else { "" };
    format!(
        "why {from} → {to}? On {to}: linkgauge serve tcp://0.0.0.0; on {from}: linkgauge explain tcp://{address}{load}"
    )
}

/// The figures of a pair in words.
pub(crate) fn describe_pair(pair: &PairFigures, typical: &Typical) -> String {
    if let Some(failure) = &pair.pair.failure {
        return format!("no result: {failure}");
    }
    let of_typical = |value: String, typical: Option<String>| match typical {
        Some(typical) => format!("{value} (typical {typical})"),
        None => value,
    };
    let rate =
        pair.rate().map(|rate| of_typical(format_bit_rate(rate), typical.rate_bps.map(format_bit_rate)));
    let time = pair.percentile("p50").map(|time| {
        let load = if pair.is_under_load() { " under load" } else { "" };
        let time = format!("{} median round trip{load}", format_nanoseconds(time));
        of_typical(time, typical.p50_ns.map(format_nanoseconds))
    });
    rate.into_iter().chain(time).collect::<Vec<_>>().join(", ")
}

fn finding(mesh: &MeshResult, cases: &[CaseResult]) -> Finding {
    let pairs = pairs_by_badness(mesh, cases);
    let typical = Typical::of(&pairs);
    let blamed = blame_sentences(mesh);
    let hosts = format_plural(mesh.hosts.len() as u64, "host");
    let mut blocks = vec![FindingBlock::Heading(match blamed.first() {
        Some(first) => format!("Mesh of {hosts}: {first}"),
        None => {
            format!("Mesh of {hosts}: no host, uplink or pair differs from the others by more than chance")
        }
    })];
    blocks.extend(blamed.iter().skip(1).map(|sentence| FindingBlock::Text(format!("{sentence}."))));
    let worst = pairs.iter().take(MAX_WORST);
    let worst =
        worst.map(|pair| format!("{}: {}", pair_name(mesh, pair.pair), describe_pair(pair, &typical)));
    blocks.extend(worst.map(FindingBlock::Text));
    let commands = pairs.iter().take(1).map(|pair| next_command(mesh, pair));
    blocks.extend(commands.map(FindingBlock::Text));
    let figures = json!({
        "throughput_blame": mesh.throughput_blame,
        "latency_blame": mesh.latency_blame,
        "typical_p50_ns": typical.p50_ns,
        "typical_throughput_bps": typical.rate_bps,
        "worst": pairs.iter().take(MAX_WORST).map(|pair| json!({
            "pair": pair_name(mesh, pair.pair),
            "p50_ns": pair.percentile("p50"),
            "throughput_bps": pair.rate(),
            "failure": pair.pair.failure,
        })).collect::<Vec<_>>(),
    });
    Finding { model: MODEL.name, figures, summary: Vec::new(), blocks }
}
