//! The cases of the demo: from what links can do, never from what they are called.

use std::time::Duration;

use anyhow::Result;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::{Caps, Framing, Line};
use linkgauge::plan::{Case, CaseSpec, Direction, OneOrMany, Plan, Probe};
use linkgauge::units::{Bytes, Span, UpTo};

/// A link to gauge.
pub struct Kind {
    pub endpoint: Endpoint,
    pub caps: Caps,
    /// Both ends run in one thread: the floor of the instrument.
    pub inside: bool,
}

/// How much time the demo takes.
pub struct Pace {
    /// Left out of a latency: the first exchanges on a new connection are slower.
    warm_up: Duration,
    latency: Duration,
    throughput: Duration,
    /// Several sizes where a link is the first of its framing; one elsewhere.
    sweep: bool,
}

pub const FULL: Pace = Pace {
    warm_up: Duration::from_millis(50),
    latency: Duration::from_millis(200),
    throughput: Duration::from_millis(250),
    sweep: true,
};
pub const QUICK: Pace = Pace {
    warm_up: Duration::from_millis(20),
    latency: Duration::from_millis(80),
    throughput: Duration::from_millis(80),
    sweep: false,
};

/// A question, an order, a set of sensor readings: the size that messaging benchmarks begin with.
const SMALL: u64 = 14;
/// From a small write to one that fills a socket buffer.
const STREAM_SIZES: [u64; 4] = [1_000, 8_000, 64_000, 128_000];
/// The smallest Ethernet frame, one that fits most tunnels, a storage block; then the largest there is.
const MESSAGE_SIZES: [u64; 3] = [64, 1_400, 8_000];

/// Setting up and ending a case, and its warm-up.
const AROUND: Duration = Duration::from_millis(140);

/// Latency of every link; throughput of every kind that can do something else than those before it. The ends get a CPU
/// each, if there are two: left to themselves they wander, and a latency doubles or halves with where they are.
pub fn plan(title: String, kinds: &[Kind], pace: &Pace, cpus: &[u32]) -> Result<Plan> {
    let mut specs = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let time = Some(Span(pace.latency));
        let warm_up_time = Some(Span(pace.warm_up));
        let latency = CaseSpec { size: sizes(&[SMALL]), time, warm_up_time, ..spec(kind, "latency", cpus) };
        // Two ends that spin on one CPU take it from each other.
        let spins = cpus.len() > 1 && !kind.inside && !kind.caps.device && first(kinds, index, |_, _| true);
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
        let fitting = sweep_sizes(&kind.caps, pace.throughput);
        specs.push(CaseSpec {
            size: match (sweep, kind.caps.line) {
                (true, _) => sizes(&fitting),
                (false, Some(_)) => sizes(&fitting[fitting.len() - 1..]),
                (false, None) => None,
            },
            time: Some(Span(pace.throughput)),
            // What buffers before a line take in that time would take the line much longer.
            volume: kind.caps.line.map(|line| Bytes(carried(&line, pace.throughput).max(1))),
            direction: (!kind.caps.device).then_some(OneOrMany::One(Direction::Send)),
            ..spec(kind, "throughput", cpus)
        });
    }
    let cases: Result<Vec<Vec<Case>>, String> = specs.iter().map(CaseSpec::expand).collect();
    let cases = cases.map_err(anyhow::Error::msg)?.concat();
    Ok(Plan::new(Some(title), 1, true, cases)?)
}

/// What the demo's logger holds, and how long each piece of it takes: a fifth of a second together.
pub const FILE: &str = "CPU:demo.dat";
pub const FILE_BYTES: usize = 100_000;
pub const PIECE_TIME: Duration = Duration::from_millis(2);

/// A download from a logger.
pub fn download(endpoint: &Endpoint) -> Result<Vec<Case>> {
    let spec = CaseSpec {
        url: Some(OneOrMany::One(endpoint.clone())),
        peer: Some("pakbus".to_owned()),
        workload: Some("download".to_owned()),
        peer_options: [("file".to_owned(), FILE.to_owned())].into(),
        interval: Some(Span(Duration::from_millis(50))),
        ..CaseSpec::default()
    };
    spec.expand().map_err(anyhow::Error::msg)
}

/// How long a plan takes with all that is around the measuring.
pub fn estimate(plan: &Plan) -> Duration {
    let measuring = linkgauge::schedule::estimate(plan).unwrap_or_default();
    Duration::from_secs((measuring + AROUND * plan.cases.len() as u32).as_secs_f64().round().max(1.0) as u64)
}

fn spec(kind: &Kind, workload: &str, cpus: &[u32]) -> CaseSpec {
    let pinned = cpus.len() > 1 && !kind.inside && !kind.caps.device;
    CaseSpec {
        url: Some(OneOrMany::One(kind.endpoint.clone())),
        // Nothing but the payload goes to a link that might lead to a device.
        peer: Some(if kind.caps.device { "echo" } else { "linkgauge" }.to_owned()),
        workload: Some(workload.to_owned()),
        // All of it stays on this host.
        rate: Some(UpTo::Max),
        pin: pinned.then(|| OneOrMany::Many(cpus[..2].to_vec())),
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

/// Sizes that the link takes, and of which a line carries several in the time; at least one, smallest first.
fn sweep_sizes(caps: &Caps, time: Duration) -> Vec<u64> {
    let carried = caps.line.map_or(u64::MAX, |line| carried(&line, time / 4));
    let (all, largest) = match (caps.framing, caps.max_message) {
        (Framing::Message, Some(largest)) => (MESSAGE_SIZES.as_slice(), Some(largest as u64)),
        (Framing::Message, None) => (MESSAGE_SIZES.as_slice(), None),
        (Framing::Stream, _) => (STREAM_SIZES.as_slice(), None),
    };
    let limit = largest.unwrap_or(u64::MAX).min(carried);
    let mut fitting: Vec<u64> = all.iter().copied().chain(largest).filter(|size| *size <= limit).collect();
    fitting.dedup();
    if fitting.is_empty() { vec![limit.max(1)] } else { fitting }
}

/// Bytes that a line carries in a time.
fn carried(line: &Line, time: Duration) -> u64 {
    (line.bits_per_second / line.bits_per_byte * time.as_secs_f64()) as u64
}

fn sizes(all: &[u64]) -> Option<OneOrMany<Bytes>> {
    Some(OneOrMany::Many(all.iter().copied().map(Bytes).collect()))
}

#[cfg(test)]
mod tests {
    use linkgauge::plan::Wait;

    use super::*;

    fn kind(url: &str, caps: Caps, inside: bool) -> Kind {
        Kind { endpoint: url.parse().unwrap(), caps, inside }
    }

    fn message(largest: usize, reliable: bool) -> Caps {
        Caps { framing: Framing::Message, max_message: Some(largest), reliable, ..Caps::STREAM }
    }

    fn printed(plan: &Plan) -> String {
        let line = |case: &Case| {
            let spin = if case.wait == Wait::Spin { " spin" } else { "" };
            let Case { workload, peer, message_bytes, endpoints, .. } = case;
            format!("{workload} {} {peer} {message_bytes}{spin}", endpoints[0])
        };
        plan.cases.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_link_in_its_kind() {
        let line = Line { bits_per_byte: 10.0, ..Line::bare(9600.0) };
        let kinds = [
            kind("tcp://127.0.0.1:1", Caps::STREAM, false),
            kind("tcp://[::1]:2", Caps::STREAM, false),
            kind("unix:///a?type=dgram", message(2000, true), false),
            kind("unix:///b?type=seqpacket", message(2000, false), false),
            kind("serial:///dev/ttyS0", Caps { device: true, line: Some(line), ..Caps::STREAM }, false),
            kind("mem://floor", Caps::STREAM, true),
        ];
        let whole = plan("demo".to_owned(), &kinds, &FULL, &[0, 1]).unwrap();
        insta::assert_snapshot!(printed(&whole), @r"
        latency tcp://127.0.0.1:1 linkgauge 14
        latency tcp://127.0.0.1:1 linkgauge 14 spin
        latency tcp://[::1]:2 linkgauge 14
        latency unix:///a?type=dgram linkgauge 14
        latency unix:///a?type=dgram linkgauge 14 spin
        latency unix:///b?type=seqpacket linkgauge 14
        latency serial:///dev/ttyS0 echo 14
        latency mem://floor linkgauge 14
        throughput tcp://127.0.0.1:1 linkgauge 1000
        throughput tcp://127.0.0.1:1 linkgauge 8000
        throughput tcp://127.0.0.1:1 linkgauge 64000
        throughput tcp://127.0.0.1:1 linkgauge 128000
        throughput unix:///a?type=dgram linkgauge 64
        throughput unix:///a?type=dgram linkgauge 1400
        throughput unix:///a?type=dgram linkgauge 2000
        throughput unix:///b?type=seqpacket linkgauge 0
        throughput serial:///dev/ttyS0 echo 60
        throughput mem://floor linkgauge 0
        ");
        let quick = plan("demo".to_owned(), &kinds, &QUICK, &[0]).unwrap();
        insta::assert_snapshot!(printed(&quick), @r"
        latency tcp://127.0.0.1:1 linkgauge 14
        latency tcp://[::1]:2 linkgauge 14
        latency unix:///a?type=dgram linkgauge 14
        latency unix:///b?type=seqpacket linkgauge 14
        latency serial:///dev/ttyS0 echo 14
        latency mem://floor linkgauge 14
        throughput tcp://127.0.0.1:1 linkgauge 0
        throughput unix:///a?type=dgram linkgauge 0
        throughput unix:///b?type=seqpacket linkgauge 0
        throughput serial:///dev/ttyS0 echo 19
        throughput mem://floor linkgauge 0
        ");
        assert!(estimate(&quick) < estimate(&whole));
    }
}
