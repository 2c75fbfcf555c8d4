//! The cases of the demo. They depend on what links support, not on their names.

use std::time::Duration;

use anyhow::Result;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::{Caps, Framing, LinkRate};
use linkgauge::plan::{Case, CaseSpec, Direction, OneOrMany, Plan, ProbeSpec};
use linkgauge::schedule::{self, CheckedPlan};
use linkgauge::units::{Bytes, RateTarget, Span};

/// A link to measure.
pub struct DemoLink {
    pub endpoint: Endpoint,
    pub caps: Caps,
    /// Client and server run in one thread: the measurement overhead.
    pub in_process: bool,
}

/// Durations of the demo.
pub struct DemoTiming {
    /// Left out of a latency, because the first requests on a new connection are slower.
    warm_up_time: Duration,
    latency_time: Duration,
    throughput_time: Duration,
    /// Several sizes for the first link of each framing, one for the others.
    sweeps_sizes: bool,
}

pub const FULL_TIMING: DemoTiming = DemoTiming {
    warm_up_time: Duration::from_millis(50),
    latency_time: Duration::from_millis(200),
    throughput_time: Duration::from_millis(250),
    sweeps_sizes: true,
};
pub const QUICK_TIMING: DemoTiming = DemoTiming {
    warm_up_time: Duration::from_millis(20),
    latency_time: Duration::from_millis(80),
    throughput_time: Duration::from_millis(80),
    sweeps_sizes: false,
};

/// The smallest size of usual messaging benchmarks.
const LATENCY_MESSAGE_BYTES: u64 = 14;
/// From a small write to one that fills a socket buffer.
const STREAM_WRITE_BYTES: [u64; 4] = [1_000, 8_000, 64_000, 128_000];
/// The smallest Ethernet frame, one that fits most tunnels, a storage block. The largest possible size follows.
const DATAGRAM_BYTES: [u64; 3] = [64, 1_400, 8_000];

/// Setup, end and warm-up of a case.
const CASE_OVERHEAD: Duration = Duration::from_millis(140);

/// Latency of every link, and throughput of every kind that supports more than those before it. Client and server get a CPU
/// each, if there are two, because a latency doubles or halves with their placement.
pub fn build_plan(title: String, kinds: &[DemoLink], pace: &DemoTiming, cpus: &[u32]) -> Result<Plan> {
    let mut specs = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let time = Some(Span(pace.latency_time));
        let warm_up_time = Some(Span(pace.warm_up_time));
        let latency = CaseSpec {
            size: size_list(&[LATENCY_MESSAGE_BYTES]),
            time,
            warm_up_time,
            ..base_spec(kind, "latency", cpus)
        };
        // Client and server that busy-poll on one CPU delay each other.
        let can_busy_poll = cpus.len() > 1
            && !kind.in_process
            && !kind.caps.is_device
            && is_first_of_transport(kinds, index, |_, _| true);
        let busy_poll = can_busy_poll.then(|| CaseSpec { busy_poll: Some(true), ..latency.clone() });
        specs.extend([latency].into_iter().chain(busy_poll));
    }
    for (index, kind) in kinds.iter().enumerate() {
        if !is_first_of_transport(kinds, index, |one, other| one.caps == other.caps) {
            continue;
        }
        let sweep = pace.sweeps_sizes
            && !kind.in_process
            && is_first_of_transport(kinds, index, |one, other| one.caps.framing == other.caps.framing);
        let fitting = sweep_sizes(&kind.caps, pace.throughput_time);
        specs.push(CaseSpec {
            size: match (sweep, kind.caps.link_rate) {
                (true, _) => size_list(&fitting),
                (false, Some(_)) => size_list(&fitting[fitting.len() - 1..]),
                (false, None) => None,
            },
            time: Some(Span(pace.throughput_time)),
            // The line would need much longer for what buffers accept in that time.
            volume: kind.caps.link_rate.map(|line| Bytes(line_bytes(&line, pace.throughput_time).max(1))),
            direction: (!kind.caps.is_device).then_some(OneOrMany::One(Direction::Send)),
            ..base_spec(kind, "throughput", cpus)
        });
    }
    let cases = specs.iter().map(CaseSpec::expand).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Plan { keep_going: true, ..Plan::new(cases)?.titled(Some(title)) })
}

/// The demo's logger: its file, and the processing time per chunk, which sum up to 0.2 s.
pub const DEMO_FILE_NAME: &str = "CPU:demo.dat";
pub const DEMO_FILE_BYTES: usize = 100_000;
pub const CHUNK_TIME: Duration = Duration::from_millis(2);

/// A download from a logger.
pub fn download_cases(endpoint: &Endpoint) -> Result<Vec<Case>> {
    let spec = CaseSpec {
        url: Some(OneOrMany::One(endpoint.clone())),
        protocol: Some("pakbus".to_owned()),
        workload: Some("download".to_owned()),
        protocol_options: [("file".to_owned(), DEMO_FILE_NAME.to_owned())].into(),
        interval: Some(Span(Duration::from_millis(50))),
        ..CaseSpec::default()
    };
    Ok(spec.expand()?)
}

/// Duration of a plan, including setup.
pub fn estimate_duration(plan: &CheckedPlan) -> Duration {
    let measuring = schedule::estimate_duration(plan).unwrap_or_default();
    Duration::from_secs(
        (measuring + CASE_OVERHEAD * plan.cases().len() as u32).as_secs_f64().round().max(1.0) as u64,
    )
}

fn base_spec(kind: &DemoLink, workload: &str, cpus: &[u32]) -> CaseSpec {
    let pinned = cpus.len() > 1 && !kind.in_process && !kind.caps.is_device;
    CaseSpec {
        url: Some(OneOrMany::One(kind.endpoint.clone())),
        // An unknown device gets the payload only.
        protocol: Some(if kind.caps.is_device { "echo" } else { "linkgauge" }.to_owned()),
        workload: Some(workload.to_owned()),
        // The traffic stays inside this host.
        rate: Some(RateTarget::Max),
        pin: pinned.then(|| OneOrMany::Many(cpus[..2].to_vec())),
        // Such a short load has too few probes for a result.
        probe: Some(ProbeSpec::Switch(false)),
        interval: Some(Span(Duration::from_millis(50))),
        ..CaseSpec::default()
    }
}

/// True if no earlier link of the same transport is `alike`.
fn is_first_of_transport(
    kinds: &[DemoLink],
    index: usize,
    alike: impl Fn(&DemoLink, &DemoLink) -> bool,
) -> bool {
    let kind = &kinds[index];
    let same = |other: &DemoLink| other.endpoint.scheme() == kind.endpoint.scheme() && alike(kind, other);
    !kinds[..index].iter().any(same)
}

/// Sizes that the link supports, and of which a serial line carries several in the time. At least one, smallest first.
fn sweep_sizes(caps: &Caps, time: Duration) -> Vec<u64> {
    let carried = caps.link_rate.map_or(u64::MAX, |line| line_bytes(&line, time / 4));
    let (all, largest) = match (caps.framing, caps.max_message_bytes) {
        (Framing::Message, Some(largest)) => (DATAGRAM_BYTES.as_slice(), Some(largest as u64)),
        (Framing::Message, None) => (DATAGRAM_BYTES.as_slice(), None),
        (Framing::Stream, _) => (STREAM_WRITE_BYTES.as_slice(), None),
    };
    let limit = largest.unwrap_or(u64::MAX).min(carried);
    let mut fitting: Vec<u64> = all.iter().copied().chain(largest).filter(|size| *size <= limit).collect();
    fitting.dedup();
    if fitting.is_empty() { vec![limit.max(1)] } else { fitting }
}

/// Bytes that a serial line carries in a time.
fn line_bytes(line: &LinkRate, time: Duration) -> u64 {
    (line.bits_per_second / line.bits_per_byte * time.as_secs_f64()) as u64
}

fn size_list(all: &[u64]) -> Option<OneOrMany<Bytes>> {
    Some(OneOrMany::Many(all.iter().copied().map(Bytes).collect()))
}

#[cfg(test)]
mod tests {
    use linkgauge::Registry;
    use linkgauge::plan::WaitMode;

    use super::*;

    fn demo_link(url: &str, caps: Caps, inside: bool) -> DemoLink {
        DemoLink { endpoint: url.parse().unwrap(), caps, in_process: inside }
    }

    fn message_caps(largest: usize, reliable: bool) -> Caps {
        Caps {
            framing: Framing::Message,
            max_message_bytes: Some(largest),
            is_reliable: reliable,
            ..Caps::STREAM
        }
    }

    fn print_plan(plan: &Plan) -> String {
        let line = |case: &Case| {
            let wait = if case.wait == WaitMode::BusyPoll { " busy-poll" } else { "" };
            let Case { workload, protocol, message_bytes, endpoints, .. } = case;
            let size = message_bytes.map_or_else(String::new, |bytes| format!(" {bytes}"));
            format!("{workload} {} {protocol}{size}{wait}", endpoints[0])
        };
        plan.cases.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn plan_covers_each_kind_of_link() {
        let line = LinkRate { bits_per_byte: 10.0, ..LinkRate::without_overhead(9600.0) };
        let kinds = [
            demo_link("tcp://127.0.0.1:1", Caps::STREAM, false),
            demo_link("tcp://[::1]:2", Caps::STREAM, false),
            demo_link("unix:///a?type=dgram", message_caps(2000, true), false),
            demo_link("unix:///b?type=seqpacket", message_caps(2000, false), false),
            demo_link(
                "serial:///dev/ttyS0",
                Caps { is_device: true, link_rate: Some(line), ..Caps::STREAM },
                false,
            ),
            demo_link("mem://floor", Caps::STREAM, true),
        ];
        let whole = build_plan("demo".to_owned(), &kinds, &FULL_TIMING, &[0, 1]).unwrap();
        insta::assert_snapshot!(print_plan(&whole), @r"
        latency tcp://127.0.0.1:1 linkgauge 14
        latency tcp://127.0.0.1:1 linkgauge 14 busy-poll
        latency tcp://[::1]:2 linkgauge 14
        latency unix:///a?type=dgram linkgauge 14
        latency unix:///a?type=dgram linkgauge 14 busy-poll
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
        throughput unix:///b?type=seqpacket linkgauge
        throughput serial:///dev/ttyS0 echo 60
        throughput mem://floor linkgauge
        ");
        let quick = build_plan("demo".to_owned(), &kinds, &QUICK_TIMING, &[0]).unwrap();
        insta::assert_snapshot!(print_plan(&quick), @r"
        latency tcp://127.0.0.1:1 linkgauge 14
        latency tcp://[::1]:2 linkgauge 14
        latency unix:///a?type=dgram linkgauge 14
        latency unix:///b?type=seqpacket linkgauge 14
        latency serial:///dev/ttyS0 echo 14
        latency mem://floor linkgauge 14
        throughput tcp://127.0.0.1:1 linkgauge
        throughput unix:///a?type=dgram linkgauge
        throughput unix:///b?type=seqpacket linkgauge
        throughput serial:///dev/ttyS0 echo 19
        throughput mem://floor linkgauge
        ");
        let estimate =
            |plan| estimate_duration(&linkgauge::schedule::check(plan, Registry::standard()).unwrap());
        assert!(estimate(quick) < estimate(whole));
    }
}
