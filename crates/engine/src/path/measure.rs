//! Measures a path as a run.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::{Map, Value};

use super::drive::{Trace, open_sockets, run_prober, search_mtu};
use super::hops::{HopCount, hop_count, hops_of, locate_loss, samples_on_path};
use super::prober::{HopSample, LastHop, Prober, Schedule};
use super::socket::ProbeTarget;
use crate::link::{Dialer, Fault, LinkError};
use crate::schedule::{LiveValues, RunContext, RunEvent};
use crate::transport::ProbeKind;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{
    CaseResult, Environment, Failure, FailureKind, Figures, PathEnd, PathLoss, PathResult, Run,
};
use linkgauge_model::sample::{RecordedTimes, Recorder};
use linkgauge_model::warnings;
use linkgauge_system as system;

/// The name of the workload in documents.
pub const PATH_WORKLOAD: &str = "path";

/// Identity of the method: constant ports, a probe for each hop in each round.
const METHOD: &str = "path/1";

/// Port of UDP probes, at which traceroute begins: nothing listens there.
pub const UDP_PORT: u16 = 33434;

/// The longest wait for the names of routers.
const NAME_PATIENCE: Duration = Duration::from_millis(1500);

/// Hosts and routers reply to a datagram that they drop about once in this time, as Linux does by default.
pub const REPLY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A measurement of a path.
#[derive(Debug, Clone)]
pub struct PathPlan {
    /// The host, with the options of its transport.
    pub endpoint: Endpoint,
    /// Kind of the probes.
    pub kind: ProbeKind,
    /// Port of the host if the endpoint has none.
    pub default_port: u16,
    /// Flows with different ports.
    pub flows: u32,
    /// The longest path that is looked for.
    pub max_hops: u8,
    /// Probes for each hop.
    pub count: u32,
    /// Time from one probe of a hop to the next.
    pub interval: Duration,
    /// Timeout of a reply: a later one counts as lost.
    pub timeout: Duration,
    /// Whether to search the largest packet that fits.
    pub finds_mtu: bool,
    /// Whether to look up the names of the hops.
    pub finds_names: bool,
}

impl PathPlan {
    pub(super) fn schedule(&self) -> Schedule {
        Schedule {
            flows: self.flows,
            max_hops: self.max_hops,
            rounds: Some(self.count),
            interval: self.interval,
            timeout: self.timeout,
            under_way: if self.kind == ProbeKind::Tcp { 1 } else { usize::MAX },
            seed: fastrand::u64(..),
        }
    }

    /// Place where loss begins. The host limits its replies to datagrams as well: loss at all hops, and loss of fast probes, may
    /// be the same limit everywhere.
    pub(super) fn loss_in(&self, counts: &[HopCount]) -> Option<PathLoss> {
        let first = (1..).zip(counts).find(|(_, count)| count.answered > 0).map(|(hop, _)| hop);
        let may_be_limit =
            |loss: &PathLoss| self.interval < REPLY_INTERVAL || first.is_some_and(|hop: u8| hop == loss.hop);
        locate_loss(counts).filter(|loss| self.kind != ProbeKind::Udp || !may_be_limit(loss))
    }

    /// Finds the address of the host. Ends soon after an interrupt.
    pub(super) fn resolve(&self, dialer: &Dialer) -> Result<ProbeTarget, LinkError> {
        let (sender, receiver) = mpsc::channel();
        let (plan, dialer_of_thread) = (self.clone(), dialer.clone());
        let lookup = move || {
            sender.send(ProbeTarget::resolve(&plan.endpoint, plan.kind, plan.default_port, &dialer_of_thread))
        };
        std::thread::spawn(lookup);
        let target = loop {
            match receiver.recv_timeout(Duration::from_millis(50)) {
                Ok(target) => break target,
                Err(mpsc::RecvTimeoutError::Timeout) if !dialer.cancel.load(Relaxed) => {}
                Err(_) => break Err(Fault::Interrupted),
            }
        };
        target.map_err(|fault| LinkError::new(&self.endpoint, fault))
    }
}

/// Measures a path. The run also holds partial results.
pub fn measure_path(plan: &PathPlan, context: &mut RunContext) -> Run {
    let (started, stamp) = (context.dialer.now(), linkgauge_model::clock::wall_clock_date());
    let estimate_ns = Some((plan.interval * plan.count).as_nanos() as u64);
    context.observer.event(&RunEvent::Begins { cases: 1, repeat: 1, estimate_ns });
    let case = measure_case(plan, context);
    let environment = Environment { client: context.environment.clone(), server: Map::new() };
    let elapsed_ns = context.dialer.now().since(started).as_nanos() as u64;
    let mut run = Run::of_cases(stamp, elapsed_ns, vec![case], environment);
    run.interrupted = context.is_interrupted();
    run.warnings = warnings::host_warnings(&run.environment.client);
    context.observer.event(&RunEvent::Ends { complete: run.is_complete(), elapsed_ns });
    run
}

fn measure_case(plan: &PathPlan, context: &RunContext) -> CaseResult {
    let (case, repetition) = (0, 0);
    let (endpoint, protocol) = (plan.endpoint.as_str(), plan.kind.name());
    let workload = PATH_WORKLOAD;
    let begins = RunEvent::CaseBegins { case, repetition, endpoint, protocol, workload, message_bytes: 0 };
    context.observer.event(&begins);
    let began = context.dialer.now();
    let measured = trace(plan, context);
    let mut result = CaseResult {
        protocol: protocol.to_owned(),
        method: METHOD.to_owned(),
        parallel: plan.flows,
        requested: requested_settings(plan),
        ..CaseResult::of_figures(endpoint.to_owned(), workload, Direction::Loop, Figures::default())
    };
    let failure = match measured {
        Ok(trace) => {
            result.figures = end_figures(&trace);
            let path = result.path.insert(describe(plan, &trace, context));
            not_reached(&trace, path).filter(|_| !context.is_interrupted())
        }
        Err(error) => Some(Failure::from(error)),
    };
    result.elapsed_ns = context.dialer.now().since(began).as_nanos() as u64;
    match &failure {
        Some(failure) => {
            context.observer.event(&RunEvent::Failed { case, repetition, reason: &failure.message });
        }
        None => context.observer.event(&RunEvent::CaseEnds { case, repetition, figures: &result.figures }),
    }
    result.complete = failure.is_none() && !context.is_interrupted();
    result.failures.extend(failure);
    result
}

/// The settings that decide what a run can be compared with.
fn requested_settings(plan: &PathPlan) -> Map<String, Value> {
    [
        ("flows", Value::from(plan.flows)),
        ("count", plan.count.into()),
        ("interval_ns", (plan.interval.as_nanos() as u64).into()),
        ("timeout_ns", (plan.timeout.as_nanos() as u64).into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

fn trace(plan: &PathPlan, context: &RunContext) -> Result<Trace, LinkError> {
    let fail = |fault| LinkError::new(&plan.endpoint, fault);
    let target = plan.resolve(&context.dialer)?;
    let mut sockets = open_sockets(&target, plan.flows).map_err(fail)?;
    let mut prober = Prober::new(plan.schedule());
    let (began, total) = (context.dialer.now(), (plan.interval * plan.count).as_secs_f64());
    let mut next_report = began + PROGRESS_INTERVAL;
    let is_stopped = |now: Time, prober: &mut Prober| {
        if now >= next_report {
            next_report = next_report + PROGRESS_INTERVAL;
            let share = Some((now.since(began).as_secs_f64() / total.max(1e-9)).min(1.0));
            let elapsed_ns = now.since(began).as_nanos() as u64;
            let messages = prober.samples.iter().filter(|sample| sample.reply.is_some()).count() as u64;
            let values = LiveValues { elapsed_ns, messages, share, ..LiveValues::default() };
            context.observer.event(&RunEvent::Progress { case: 0, repetition: 0, values });
        }
        context.is_interrupted()
    };
    run_prober(&mut prober, &mut sockets, &context.dialer.clock, is_stopped).map_err(fail)?;
    let (samples, ends) = prober.finish();
    Ok(Trace { target, samples, ends })
}

/// Reason why the host is not reached, with the place where the path ends.
fn not_reached(trace: &Trace, path: &PathResult) -> Option<Failure> {
    let others = match trace.target.kind {
        ProbeKind::Udp => "--probe icmp, or --probe tcp with a port that is open",
        ProbeKind::Icmp => "--probe udp, or --probe tcp with a port that is open",
        ProbeKind::Tcp => "--probe icmp or --probe udp",
    };
    let kind = trace.target.kind.name();
    let last = path.hops.iter().rev().find_map(|hop| Some((hop.hop, hop.hosts.first()?.address)));
    let place = last.map(|(hop, address)| format!("the last router that replied is hop {hop} ({address})"));
    let why = match (path.end, path.refused_by, place) {
        (PathEnd::Reached, ..) => return None,
        (PathEnd::Refused, Some(router), place) => {
            let place = place.map_or(String::new(), |place| format!("; {place}"));
            format!(
                "not reached: {router} has no route to it, finds no such host, or forbids {kind} probes{place}. Check the address, or \
                 try {others}"
            )
        }
        (_, _, Some(place)) => {
            format!(
                "not reached: {place}. The host is down, or a firewall drops {kind} probes or their replies. Try {others}"
            )
        }
        (_, _, None) => format!(
            "no router and no host replied to {kind} probes: a firewall may drop them or their replies. Try {others}"
        ),
    };
    Some(Failure::new(FailureKind::NoData, format!("{}: {why}", trace.target.address.ip())))
}

/// The round trips to the host, as figures of a case. Where the host is not reached, no probe of its round returned.
fn end_figures(trace: &Trace) -> Figures {
    let mut recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None);
    for sample in samples_on_path(&trace.samples, &trace.ends) {
        let end = trace.ends[sample.flow as usize].filter(|end| end.refused_by.is_none());
        if end.map_or(sample.hop != 1, |end| end.hop != sample.hop) {
            continue;
        }
        let round_trip = sample.round_trip().filter(|_| end.is_some());
        recorder.counts.sent += 1;
        match round_trip {
            Some(time) => {
                let sequence = recorder.counts.received;
                let (sent, received) = (sample.sent, sample.sent + time);
                recorder.begin(sent);
                let sample = linkgauge_model::sample::Sample { sequence, intended: sent, sent, received };
                recorder.record_reply(sample, 0);
            }
            None => recorder.record_loss(sample.sent),
        }
    }
    recorder.finish();
    let mut figures = recorder.latency_figures(&[]);
    // The probes of a round are no stream of messages.
    figures.delivery.messages_per_second = None;
    figures
}

fn describe(plan: &PathPlan, trace: &Trace, context: &RunContext) -> PathResult {
    let samples = samples_on_path(&trace.samples, &trace.ends);
    let count = hop_count(&samples, &trace.ends);
    let mut path = path_of(trace, plan, &samples, count);
    let counts: Vec<HopCount> =
        (1..=count).map(|hop| HopCount::of(samples.iter().filter(|sample| sample.hop == hop))).collect();
    path.loss = plan.loss_in(&counts);
    if plan.finds_mtu && path.end == PathEnd::Reached && !context.is_interrupted() {
        path.mtu = search_mtu(&trace.target, count, plan.timeout, &context.dialer);
    }
    if plan.finds_names {
        add_names(&mut path, &context.dialer.cancel);
    }
    path
}

pub(super) fn path_of(trace: &Trace, plan: &PathPlan, samples: &[HopSample], count: u8) -> PathResult {
    let ends: Vec<LastHop> = trace.ends.iter().flatten().copied().collect();
    let refused_by = ends.iter().find_map(|end| end.refused_by);
    let end = match () {
        () if ends.iter().any(|end| end.refused_by.is_none()) => PathEnd::Reached,
        () if refused_by.is_some() => PathEnd::Refused,
        () => PathEnd::Silent,
    };
    let has_port = trace.target.kind != ProbeKind::Icmp;
    PathResult {
        address: trace.target.address.ip(),
        probe: trace.target.kind.name().to_owned(),
        port: has_port.then(|| trace.target.address.port()),
        flows: plan.flows,
        end,
        refused_by: refused_by.filter(|_| end == PathEnd::Refused),
        hops: hops_of(samples, count),
        loss: None,
        queue: None,
        mtu: None,
    }
}

/// Looks for the names of all hops at once. A resolver may be slow: what it does not know in time has no name.
fn add_names(path: &mut PathResult, cancel: &AtomicBool) {
    let (sender, receiver) = mpsc::channel();
    let addresses: Vec<IpAddr> =
        path.hops.iter().flat_map(|hop| hop.hosts.iter().map(|host| host.address)).collect();
    for &address in &addresses {
        let sender = sender.clone();
        // A thread that waits for the resolver ends with the program.
        let _ = std::thread::Builder::new()
            .spawn(move || sender.send((address, system::name_of_address(address))));
    }
    drop(sender);
    let clock = Clock::System;
    let until = clock.now() + NAME_PATIENCE;
    while !cancel.load(Relaxed) && clock.now() < until {
        match receiver.recv_timeout(Duration::from_millis(50).min(until.since(clock.now()))) {
            Ok((address, name)) => {
                let hosts = path.hops.iter_mut().flat_map(|hop| &mut hop.hosts);
                hosts.filter(|host| host.address == address).for_each(|host| host.name.clone_from(&name));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}
