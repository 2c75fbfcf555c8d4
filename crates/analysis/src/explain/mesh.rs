//! The mesh model: which pairs of a mesh are worst, and which host, uplink or pair explains that.
//!
//! The run holds the fit (`mesh::find_blamed`); this module says it in words, and which command looks further.

use std::collections::BTreeMap;

use serde_json::json;

use super::{ExplainError, Finding, FindingBlock, Model, ModelInput};
use linkgauge_model::run::{BlamedPart, CaseResult, MeshBlame, MeshPair, MeshResult, Run};
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

/// Minimum ratio of the rates of two directions that differ.
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
    let typical = Typical::of(mesh, &pairs);
    let badness = |pair: &PairFigures| match pair.pair.failure {
        Some(_) => f64::INFINITY,
        None => typical.badness(pair),
    };
    pairs.sort_by(|a, b| badness(b).total_cmp(&badness(a)));
    pairs
}

/// Typical figures: medians, each that of a pair, over the pairs without those of a host that is blamed. A host of four has half
/// of the pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Typical {
    /// Median of the median round trips, in nanoseconds.
    pub(crate) p50_ns: Option<f64>,
    /// Median rate.
    pub(crate) rate_bps: Option<f64>,
}

impl Typical {
    /// Typical figures of these pairs of a mesh; round trips under load do not count.
    pub(crate) fn of(mesh: &MeshResult, pairs: &[PairFigures]) -> Typical {
        let times: Vec<f64> = without_blamed_hosts(pairs, &mesh.latency_blame)
            .filter(|pair| !pair.is_under_load())
            .filter_map(|pair| pair.percentile("p50"))
            .collect();
        let rates: Vec<f64> = without_blamed_hosts(pairs, &mesh.throughput_blame)
            .filter_map(|pair| Some(-pair.rate()?))
            .collect();
        Typical { p50_ns: better_median(times), rate_bps: better_median(rates).map(|rate| -rate) }
    }

    /// Ratio by which a pair is worse than typical, by its round trips or its rate.
    pub(crate) fn badness(&self, pair: &PairFigures) -> f64 {
        let time = pair.percentile("p50").filter(|_| !pair.is_under_load()).zip(self.p50_ns);
        let time = time.map(|(time, typical)| time / typical.max(1.0));
        let rate = pair.rate().zip(self.rate_bps).map(|(rate, typical)| typical / rate.max(1.0));
        time.into_iter().chain(rate).fold(0.0, f64::max)
    }
}

/// The pairs of hosts that are not blamed.
fn without_blamed_hosts<'a>(
    pairs: &'a [PairFigures<'a>],
    blamed: &'a [MeshBlame],
) -> impl Iterator<Item = &'a PairFigures<'a>> {
    let is_host = |blame: &&MeshBlame| {
        use BlamedPart::{Host, HostReceives, HostSends};
        matches!(blame.part, Host { .. } | HostSends { .. } | HostReceives { .. })
    };
    let blamed: Vec<BlamedPart> = blamed.iter().filter(is_host).map(|blame| blame.part).collect();
    pairs.iter().filter(move |pair| {
        let hosts = [pair.pair.from, pair.pair.to].map(|host| host as usize);
        blamed.iter().all(|part| !part.affects(hosts, &[]))
    })
}

/// The median of values of which less is better; of two in the middle the better one.
fn better_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// The hosts without results, in words. Empty: every host has a result, or it cannot be decided which one fails.
pub(crate) fn silent_hosts(mesh: &MeshResult) -> Vec<String> {
    let of_host = |host: usize| {
        let has = move |pair: &&MeshPair| [pair.from, pair.to].contains(&(host as u32));
        mesh.pairs.iter().filter(has)
    };
    let has_result = |pair: &MeshPair| pair.latency_case.or(pair.throughput_case).is_some();
    let is_silent = |host: usize| !of_host(host).any(has_result);
    // If the hosts of its pairs are silent, too, any of them can be the reason.
    let is_known = |host: usize| {
        of_host(host).any(|pair| [pair.from, pair.to].iter().any(|peer| !is_silent(*peer as usize)))
    };
    let hosts = mesh.hosts.iter().enumerate();
    let silent = hosts.filter(|(index, host)| host.lost.is_some() || is_silent(*index) && is_known(*index));
    silent
        .filter_map(|(index, host)| {
            let failed = of_host(index).filter(|pair| pair.failure.is_some()).count();
            let all = format_plural(of_host(index).count() as u64, "pair");
            (failed > 0).then(|| {
                format!("host {} does not answer: {failed} of {all} without a complete result", host.name)
            })
        })
        .collect()
}

/// Explanation of the worst pairs, in one sentence, or how much is known without an explanation.
pub(crate) fn verdict(mesh: &MeshResult, pairs: &[PairFigures]) -> String {
    /// Minimum ratio of two pairs that differ.
    const MIN_DIFFERENCE: f64 = 2.0;
    let typical = Typical::of(mesh, pairs);
    let badness = || pairs.iter().map(|pair| typical.badness(pair)).filter(|badness| *badness > 0.0);
    let [worst, best] = [badness().fold(0.0, f64::max), badness().fold(f64::INFINITY, f64::min)];
    let is_one_group = mesh.group_numbers().iter().all(|group| *group == 0);
    let first = mesh.throughput_blame.first().or(mesh.latency_blame.first()).map(|blame| blame.part);
    let is_host_of_three = mesh.hosts.len() == 3 && matches!(first, Some(BlamedPart::Host { .. }));
    match blame_sentences(mesh).into_iter().next() {
        // The excess of a host is that of its two paths, against the third.
        Some(first) if is_host_of_three => format!("{first}, or the path between the others is a fast one"),
        Some(first) => first,
        None if is_one_group && worst > MIN_DIFFERENCE * best => {
            "the pairs differ, and no single host, uplink or pair explains it".to_owned()
        }
        None => "no host, uplink or pair stands out".to_owned(),
    }
}

/// Name of a pair: `a → b`.
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

/// Name of a group. Groups are numbered in the order in which the hosts name them.
fn group_name(mesh: &MeshResult, group: usize) -> &str {
    let first = mesh.group_numbers().into_iter().position(|number| number == group);
    first.and_then(|host| mesh.hosts.get(host)?.group.as_deref()).unwrap_or("without a name")
}

/// Explanation of the worst pairs, in one sentence for each part: those of the rates, then those of the round trips.
pub(crate) fn blame_sentences(mesh: &MeshResult) -> Vec<String> {
    let rates = mesh.throughput_blame.iter().map(|blame| {
        let factor = (-blame.effect).exp();
        let share = share_text(factor, factor * blame.effect_error.exp_m1());
        let name = part_name(mesh, &blame.part);
        match blame.pairs {
            1 => format!("{name} has {share} of the usual rate"),
            pairs => format!("{name} slows each of its {pairs} pairs to {share} of the usual rate"),
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

/// Formats a share with its error: `0.49 ± 0.01`, small shares as `0.23 ± 0.01 %`.
fn share_text(share: f64, error: f64) -> String {
    if share >= 0.1 {
        return format!("{share:.2} ± {error:.2}");
    }
    let percent = 100.0 * share;
    let digits = (1.0 - percent.max(1e-9).log10().floor()).clamp(1.0, 9.0) as usize;
    format!("{percent:.digits$} ± {:.digits$} %", 100.0 * error)
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

/// Command that shows more about a pair.
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
    let typical = Typical::of(mesh, &pairs);
    let blamed = blame_sentences(mesh);
    let hosts = format_plural(mesh.hosts.len() as u64, "host");
    let answers = silent_hosts(mesh).into_iter().chain([verdict(mesh, &pairs)]);
    let heading = format!("Mesh of {hosts}: {}", answers.collect::<Vec<String>>().join("; "));
    let mut blocks = vec![FindingBlock::Heading(heading)];
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

#[cfg(test)]
mod tests {
    use super::share_text;

    #[test]
    fn small_shares_keep_their_digits() {
        assert_eq!(share_text(0.49, 0.01), "0.49 ± 0.01");
        assert_eq!(share_text(0.0023, 0.0001), "0.23 ± 0.01 %");
        assert_eq!(share_text(0.000_012, 0.000_001), "0.0012 ± 0.0001 %");
    }
}
