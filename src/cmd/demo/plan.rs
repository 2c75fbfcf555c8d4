//! The cases of the demo: from what links can do, never from what they are called.

use std::time::Duration;

use anyhow::Result;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::{Caps, Framing};
use linkgauge::plan::{Case, CaseSpec, Direction, OneOrMany, Plan, Probe};
use linkgauge::units::{Bytes, Span};

/// A link to gauge.
pub struct Kind {
    pub endpoint: Endpoint,
    pub caps: Caps,
    /// Both ends run in one thread: the floor of the instrument.
    pub inside: bool,
}

/// How much time the demo takes.
pub struct Pace {
    latency: Duration,
    throughput: Duration,
    /// Several sizes where a link is the first of its framing; one elsewhere.
    sweep: bool,
}

pub const FULL: Pace =
    Pace { latency: Duration::from_millis(400), throughput: Duration::from_millis(400), sweep: true };
pub const QUICK: Pace =
    Pace { latency: Duration::from_millis(100), throughput: Duration::from_millis(100), sweep: false };

/// A question, an order, a set of sensor readings: the size that messaging benchmarks begin with.
const SMALL: u64 = 14;
/// From a small write to one that fills a socket buffer.
const STREAM_SIZES: [u64; 4] = [1_000, 8_000, 64_000, 128_000];
/// The smallest Ethernet frame, one that fits most tunnels, a storage block; then the largest there is.
const MESSAGE_SIZES: [u64; 3] = [64, 1_400, 8_000];

/// Setting up and ending a case, and its warm-up.
const AROUND: Duration = Duration::from_millis(100);

/// Latency of every link; throughput of every kind that can do something else than those before it.
pub fn plan(title: String, kinds: &[Kind], pace: &Pace, cpus: usize) -> Result<Plan> {
    let mut specs = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let time = Some(Span(pace.latency));
        let latency = CaseSpec { size: sizes(&[SMALL]), time, ..spec(kind, "latency") };
        // Two ends that spin on one CPU take it from each other.
        let spins = cpus > 1 && !kind.inside && !kind.caps.device && first(kinds, index, |_, _| true);
        let spin = spins.then(|| CaseSpec { spin: Some(true), ..latency.clone() });
        specs.extend([latency].into_iter().chain(spin));
    }
    for (index, kind) in kinds.iter().enumerate() {
        if !first(kinds, index, |one, other| one.caps == other.caps) {
            continue;
        }
        let sweep = pace.sweep
            && !kind.inside
            && first(kinds, index, |one, other| one.caps.framing == other.caps.framing);
        specs.push(CaseSpec {
            size: if sweep { sizes(&sweep_sizes(&kind.caps, pace.throughput)) } else { None },
            time: Some(Span(pace.throughput)),
            direction: (!kind.caps.device).then_some(OneOrMany::One(Direction::Send)),
            ..spec(kind, "throughput")
        });
    }
    let cases: Result<Vec<Vec<Case>>, String> = specs.iter().map(CaseSpec::expand).collect();
    let cases = cases.map_err(anyhow::Error::msg)?.concat();
    Ok(Plan::new(Some(title), 1, true, cases)?)
}

/// How long a plan takes with all that is around the measuring.
pub fn estimate(plan: &Plan) -> Duration {
    let measuring = linkgauge::schedule::estimate(plan).unwrap_or_default();
    Duration::from_secs((measuring + AROUND * plan.cases.len() as u32).as_secs_f64().ceil() as u64)
}

fn spec(kind: &Kind, workload: &str) -> CaseSpec {
    CaseSpec {
        url: Some(OneOrMany::One(kind.endpoint.clone())),
        // Nothing but the payload goes to a link that might lead to a device.
        peer: Some(if kind.caps.device { "echo" } else { "linkgauge" }.to_owned()),
        workload: Some(workload.to_owned()),
        // So short a load holds too few probes to say anything.
        probe: Some(Probe::Switch(false)),
        interval: Some(Span(Duration::from_millis(50))),
        ..CaseSpec::default()
    }
}

/// Whether no link of the same transport before this one is `alike`.
fn first(kinds: &[Kind], index: usize, alike: impl Fn(&Kind, &Kind) -> bool) -> bool {
    let kind = &kinds[index];
    let same = |other: &Kind| other.endpoint.scheme() == kind.endpoint.scheme() && alike(kind, other);
    !kinds[..index].iter().any(same)
}

/// Sizes that the link takes, and of which a line carries several in the time.
fn sweep_sizes(caps: &Caps, time: Duration) -> Vec<u64> {
    let carried = caps.line.map_or(u64::MAX, |line| {
        (line.bits_per_second / line.bits_per_byte * time.as_secs_f64() / 4.0) as u64
    });
    let (all, largest) = match (caps.framing, caps.max_message) {
        (Framing::Message, Some(largest)) => (MESSAGE_SIZES.as_slice(), Some(largest as u64)),
        (Framing::Message, None) => (MESSAGE_SIZES.as_slice(), None),
        (Framing::Stream, _) => (STREAM_SIZES.as_slice(), None),
    };
    let limit = largest.unwrap_or(u64::MAX).min(carried);
    let mut fitting: Vec<u64> = all.iter().copied().chain(largest).filter(|size| *size <= limit).collect();
    fitting.dedup();
    if fitting.is_empty() { vec![1] } else { fitting }
}

fn sizes(all: &[u64]) -> Option<OneOrMany<Bytes>> {
    Some(OneOrMany::Many(all.iter().copied().map(Bytes).collect()))
}
