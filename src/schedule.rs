//! Runs a plan: order, repetitions, parallel ports, stop on a signal. Sends events, never prints.
//!
//! The measurement itself is done by the workload's parties on the protocol's links.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::host::{cpu, load};
use crate::link::{Caps, Dialer, Fault, Framing};
use crate::plan::{Case, Direction, Pacing, Plan, RequestedRate};
use crate::protocol::shorthand::expand_url;
use crate::protocol::{ConnectContext, ConnectionCache, Protocol, ProtocolError, auto, find_protocol};
use crate::run::{CaseResult, Environment, Figures, Run, SCHEMA, TOOL};
use crate::sample::{Progress, RawFile, Recorder};
use crate::warnings;
use crate::workload::download::ContentSender;
use crate::workload::report_check::LocalObservations;
use crate::workload::{FlowRole, Workload, default_timeout, find_workload, planned_time, receiving_ns};

mod accumulator;
mod default_pacing;
mod flow_runner;
mod no_data;

use accumulator::CaseAccumulator;
use flow_runner::run_flows;

/// Events while a plan runs.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent<'a> {
    Begins {
        cases: usize,
        repeat: u32,
        /// Estimate from the plan; absent when it depends on the speed of the links.
        #[serde(skip_serializing_if = "Option::is_none")]
        estimate_ns: Option<u64>,
    },
    CaseBegins {
        case: usize,
        repetition: u32,
        endpoint: &'a str,
        peer: &'a str,
        workload: &'a str,
        message_bytes: u32,
    },
    /// Sent every interval while a case runs. Counts start at the beginning of the case.
    Progress {
        case: usize,
        repetition: u32,
        elapsed_ns: u64,
        messages: u64,
        bytes: u64,
        /// Completed share of the plan, 0 to 1, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        share: Option<f64>,
    },
    CaseEnds {
        case: usize,
        repetition: u32,
        figures: &'a Figures,
    },
    Failed {
        case: usize,
        repetition: u32,
        reason: &'a str,
    },
    Ends {
        complete: bool,
        elapsed_ns: u64,
    },
}

/// Receives the events of a run.
pub trait Observer: Sync {
    fn event(&self, event: &RunEvent);
}

/// Ignores all events.
impl Observer for () {
    fn event(&self, _event: &RunEvent) {}
}

/// Inputs of a run besides its plan.
pub struct RunContext<'a> {
    pub dialer: Dialer,
    pub observer: &'a dyn Observer,
    /// Set by a signal: the current case ends with its data so far, and no further case starts.
    pub cancel: &'a AtomicBool,
    pub token: Option<String>,
    pub raw: Option<RawFile>,
    /// Receiver of the content of a download; takes the content of one case.
    pub content: Option<ContentSender>,
    /// Facts of this machine, for the document.
    pub environment: Map<String, Value>,
    /// Connections that stay open between cases, of this run and others that share the cache.
    pub connection_cache: Arc<ConnectionCache>,
    /// Median round trip over `mem://`, if it was measured: the measurement overhead.
    pub overhead_ns: Option<f64>,
}

impl<'a> RunContext<'a> {
    /// A context without token, raw file or machine facts.
    pub fn new(dialer: Dialer, observer: &'a dyn Observer, cancel: &'a AtomicBool) -> RunContext<'a> {
        RunContext {
            dialer,
            observer,
            cancel,
            token: None,
            raw: None,
            content: None,
            environment: Map::new(),
            connection_cache: Arc::default(),
            overhead_ns: None,
        }
    }
}

/// A case that cannot run as planned, found before any link is opened.
#[derive(Debug, thiserror::Error)]
#[error("{}{what}", .case.map(|case| format!("case {case}: ")).unwrap_or_default())]
pub struct InvalidCase {
    /// Index of the case, if the plan has several.
    case: Option<usize>,
    what: String,
}

/// Resolves every name of the plan, checks the combinations, and fills in defaults.
pub fn check(mut plan: Plan) -> Result<Plan, InvalidCase> {
    plan.cases = plan.cases.into_iter().flat_map(expand_sizes).collect();
    let several = plan.cases.len() > 1;
    for (index, case) in plan.cases.iter_mut().enumerate() {
        resolve_case(case).map_err(|what| InvalidCase { case: several.then_some(index + 1), what })?;
    }
    Ok(plan)
}

/// Expands a case without a size into one case for each default size of its protocol.
fn expand_sizes(case: Case) -> Vec<Case> {
    match find_protocol(&case.peer).map_or(&[][..], |peer| peer.sizes) {
        sizes if case.message_bytes == 0 && !sizes.is_empty() => {
            sizes.iter().map(|&message_bytes| Case { message_bytes, ..case.clone() }).collect()
        }
        _ => vec![case],
    }
}

fn resolve_case(case: &mut Case) -> Result<(), String> {
    expand_url(case)?;
    let names = |names: Vec<&str>| names.join(", ");
    let workload = find_workload(&case.workload).ok_or_else(|| {
        let known = names(crate::workload::WORKLOADS.iter().map(|workload| workload.name).collect());
        format!("unknown workload '{}' (known: {known})", case.workload)
    })?;
    if case.peer != auto::NAME && find_protocol(&case.peer).is_none() {
        let known = names(crate::protocol::PROTOCOLS.iter().map(|peer| peer.name).collect());
        return Err(format!("unknown peer '{}' (known: auto, {known})", case.peer));
    }
    let all_caps = case_caps(case)?;
    if case.stop.is_unlimited() {
        case.stop = workload.default_stop;
    }
    case.warm_up.get_or_insert(workload.default_warm_up);
    let may = cpu::current_affinity();
    if let Some(cpu) = case.pin.near.filter(|cpu| !may.contains(cpu)) {
        let may: Vec<String> = may.iter().map(u32::to_string).collect();
        let may = may.join(", ");
        return Err(format!("there is no CPU {cpu} for this end: it may run on {may} (--pin NEAR,FAR)"));
    }
    if case.peer != auto::NAME {
        check_protocol_support(case, workload, &all_caps)?;
    } else if let Some(option) = case.peer_options.keys().next() {
        let knows = |peer: &&Protocol| peer.options.iter().any(|(name, _)| name == option);
        let known = names(crate::protocol::PROTOCOLS.iter().filter(knows).map(|peer| peer.name).collect());
        let known = if known.is_empty() { "none".to_owned() } else { known };
        return Err(format!("option '{option}' needs a named peer that has it (--peer): {known}"));
    }
    if case.message_bytes == 0 {
        case.message_bytes = (workload.default_size)(&all_caps[0]);
        if let RequestedRate::Bits { per_second } = case.rate
            && all_caps[0].framing == Framing::Stream
        {
            case.message_bytes = case.message_bytes.min(default_pacing::paced_block_bytes(per_second));
        }
        if let Some(volume) = case.stop.volume_bytes.filter(|_| all_caps[0].framing == Framing::Stream) {
            case.message_bytes = u32::try_from(volume).unwrap_or(u32::MAX).min(case.message_bytes);
        }
    }
    if let (RequestedRate::Bits { .. }, Pacing::Closed, Some(per_second)) =
        (case.rate, case.pacing, case.rate.per_second(case.message_bytes))
    {
        case.pacing = Pacing::Fixed { per_second };
    }
    if case.timeout.is_zero() {
        case.timeout = default_timeout(workload, case.message_bytes, &all_caps);
    }
    // The protocol may have changed the options of the endpoints.
    if let Some(limit) = case_caps(case)?.iter().filter_map(|caps| caps.max_message_bytes).min()
        && case.message_bytes as usize > limit
    {
        let endpoint = &case.endpoints[0];
        return Err(format!(
            "{endpoint}: a message of {} bytes does not fit: use a --size of at most {limit}",
            case.message_bytes
        ));
    }
    Ok(())
}

/// Capabilities of the links to each endpoint.
fn case_caps(case: &Case) -> Result<Vec<Caps>, String> {
    let caps = case.endpoints.iter().map(|endpoint| {
        crate::link::endpoint_caps(endpoint).map_err(|fault| match fault {
            Fault::Endpoint(error) => error.to_string(),
            fault => format!("{endpoint}: {fault}"),
        })
    });
    caps.collect()
}

/// Checks that need the protocol to be known.
fn check_protocol_support(case: &mut Case, workload: &Workload, all_caps: &[Caps]) -> Result<(), String> {
    let Some(peer) = find_protocol(&case.peer) else { return Ok(()) };
    let endpoint = &case.endpoints[0];
    let Some((_, directions)) = peer.workloads.iter().find(|(name, _)| *name == workload.name) else {
        let can: Vec<&str> = peer.workloads.iter().map(|(name, _)| *name).collect();
        let (peer, can) = (peer.name, can.join(", "));
        return Err(format!("{endpoint}: peer {peer} cannot do {} (it can: {can})", workload.name));
    };
    let direction = *case.direction.get_or_insert(directions[0]);
    if !directions.contains(&direction) {
        let can: Vec<&str> = directions.iter().map(|direction| direction.name()).collect();
        let (peer, direction) = (peer.name, direction.name());
        let can = can.join(", ");
        return Err(format!("{endpoint}: peer {peer} cannot go in direction {direction} (it can: {can})"));
    }
    if let Some(option) =
        case.peer_options.keys().find(|key| !peer.options.iter().any(|(name, _)| name == key))
    {
        let known: Vec<&str> = peer.options.iter().map(|(name, _)| *name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("peer {} has no option '{option}' (known: {known})", peer.name));
    }
    all_caps.iter().try_for_each(|caps| (peer.prepare_case)(case, caps))
}

/// Duration of the plan, if it follows from the plan alone.
pub fn estimate_duration(plan: &Plan) -> Option<Duration> {
    let once: Option<Duration> = plan.cases.iter().map(planned_time).sum();
    once.map(|once| once * plan.repeat)
}

/// Runs a checked plan. The document always has the data measured so far, even after an error or interrupt.
pub fn run(plan: &Plan, context: &mut RunContext) -> Run {
    let clock = context.dialer.clock.clone();
    let started = clock.now();
    let stamp = crate::clock::wall_clock_date();
    context.observer.event(&RunEvent::Begins {
        cases: plan.cases.len(),
        repeat: plan.repeat,
        estimate_ns: estimate_duration(plan).map(|time| time.as_nanos() as u64),
    });
    let mut accumulators: Vec<CaseAccumulator> = plan.cases.iter().map(CaseAccumulator::new).collect();
    let mut peers = BTreeMap::new();
    'plan: for repetition in 0..plan.repeat {
        for (index, accumulator) in accumulators.iter_mut().enumerate() {
            if context.cancel.load(Relaxed) {
                break 'plan;
            }
            if let Err(reason) = run_case_once(context, index, repetition, accumulator, &mut peers) {
                context.observer.event(&RunEvent::Failed { case: index, repetition, reason: &reason });
                accumulator.failures.push(reason);
                if !plan.keep_going && !context.cancel.load(Relaxed) {
                    break 'plan;
                }
            }
        }
    }
    let interrupted = context.cancel.load(Relaxed);
    let mut far_environment = Map::new();
    for accumulator in &accumulators {
        far_environment.extend(accumulator.server_environment.clone());
    }
    let cases: Vec<CaseResult> =
        accumulators.into_iter().map(|a| a.into_result(plan.repeat, context.overhead_ns)).collect();
    let mut run = Run {
        schema: SCHEMA.to_owned(),
        id: format!("{}-{:06x}", stamp.strftime("%Y%m%dT%H%M%SZ"), fastrand::u32(..1 << 24)),
        title: plan.title.clone(),
        tool: TOOL.to_owned(),
        started: stamp,
        elapsed_ns: clock.now().since(started).as_nanos() as u64,
        interrupted,
        cases,
        paper: None,
        environment: Environment { near: context.environment.clone(), far: far_environment },
        warnings: Vec::new(),
    };
    run.warnings = warnings::host_warnings(&run.environment.near);
    if let Some(raw) = context.raw.take() {
        run.warnings.extend(warnings::raw_file_warning(raw.finish()));
    }
    context.observer.event(&RunEvent::Ends { complete: run.is_complete(), elapsed_ns: run.elapsed_ns });
    run
}

/// Interval between queries while the server still receives.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs one case once and adds it to its accumulator.
fn run_case_once(
    context: &RunContext,
    index: usize,
    repetition: u32,
    accumulator: &mut CaseAccumulator,
    peers: &mut BTreeMap<String, &'static Protocol>,
) -> Result<(), String> {
    let mut case = accumulator.case.clone();
    let mut dialer = context.dialer.clone();
    (dialer.wait, dialer.timeout) = (case.wait, case.timeout.max(Duration::from_secs(1)));
    let peer = resolve_protocol(&mut case, &dialer, peers).map_err(|error| error.to_string())?;
    let scheme = case.endpoints[0].scheme();
    let port = peer.default_ports.iter().find(|(name, _)| *name == scheme);
    dialer.default_port = port.map(|(_, port)| *port);
    let workload = find_workload(&case.workload).ok_or("unknown workload")?;
    let all_caps = case_caps(&case)?;
    check_protocol_support(&mut case, workload, &all_caps)?;
    default_pacing::apply_default_pacing(&mut case, &all_caps, &dialer);
    accumulator.case = case.clone();
    context.observer.event(&RunEvent::CaseBegins {
        case: index,
        repetition,
        endpoint: case.endpoints[0].as_str(),
        peer: peer.name,
        workload: workload.name,
        message_bytes: case.message_bytes,
    });

    let progress: Mutex<Vec<Arc<Progress>>> = Mutex::default();
    let flow_number = AtomicUsize::new(0);
    let recorder = |role: FlowRole, _port: usize| {
        let shared = Arc::<Progress>::default();
        let counts = matches!(role, FlowRole::RoundTrip | FlowRole::Download)
            || (role == FlowRole::Upload && case.direction != Some(Direction::Loop));
        if counts && let Ok(mut all) = progress.lock() {
            all.push(shared.clone());
        }
        let scheduled =
            role == FlowRole::Probe || (role == FlowRole::RoundTrip && case.pacing != Pacing::Closed);
        // A sender's messages are not samples.
        let raw = context.raw.as_ref().filter(|_| role != FlowRole::Upload);
        let raw = raw.map(|raw| raw.sink(index, flow_number.fetch_add(1, Relaxed)));
        Recorder::new(scheduled, case.series_interval.as_nanos() as u64, shared, raw)
    };
    let connect_context = ConnectContext {
        dialer: &dialer,
        token: context.token.as_deref(),
        content: context.content.as_ref(),
        connection_cache: &context.connection_cache,
        new_recorder: &recorder,
    };
    let mut session = (peer.connect)(&case, &connect_context).map_err(|error| error.to_string())?;
    let flows = session.take_flows();
    accumulator.record_links(&flows, session.as_ref());

    let began = dialer.now();
    let tick = |elapsed: Duration| {
        let (mut messages, mut bytes, mut planned) = (0, 0, 0);
        for progress in progress.lock().iter().flat_map(|all| all.iter()) {
            messages += progress.messages.load(Relaxed);
            bytes += progress.bytes.load(Relaxed);
            planned += progress.planned_bytes.load(Relaxed);
        }
        let elapsed_ns = elapsed.as_nanos() as u64;
        let share = completed_share(&case, messages, bytes, elapsed_ns, planned);
        context.observer.event(&RunEvent::Progress {
            case: index,
            repetition,
            elapsed_ns,
            messages,
            bytes,
            share,
        });
    };
    // On the virtual clock, host load has no relation to the run.
    let before = matches!(dialer.clock, Clock::System).then(load::HostSnapshot::now);
    let began = if before.is_some() { dialer.now() } else { began };
    let (flowed, mut links) = run_flows(flows, &dialer, context.cancel, &case, &tick);
    // An interrupted case has partial data but no fault of its own.
    accumulator.was_interrupted |= context.cancel.load(Relaxed);
    let elapsed = dialer.now().since(began);
    if let Some(before) = before {
        accumulator.record_load(&before, elapsed, &flowed);
    }
    while !context.cancel.load(Relaxed) && session.is_draining(&mut links) {
        dialer.clock.sleep_until(dialer.now() + DRAIN_POLL_INTERVAL);
    }
    let report = session.finish(&flowed, links);
    accumulator.server_environment = session.server_environment();
    accumulator.effective.extend(session.effective_settings());

    let near_fault = flowed.iter().find_map(|flow| flow.fault.clone());
    let (report, report_fault) = match report {
        Ok(report) => (report, None),
        Err(error) => (None, Some(error.to_string())),
    };
    // Data accepted by the local system may still have been in transit for a while.
    let server_elapsed = receiving_ns(report.iter().flat_map(|report| &report.flows));
    let elapsed = elapsed.max(Duration::from_nanos(server_elapsed).min(dialer.now().since(began)));
    let known = LocalObservations {
        case: &case,
        caps: &all_caps,
        flows: &flowed,
        elapsed: dialer.now().since(began),
        was_interrupted: context.cancel.load(Relaxed),
    };
    let (report, doubt) = accumulator.check_report(report, &known);
    // After an abort by the server, the client sees only a closed link.
    let server_fault = report.iter().flat_map(|report| &report.flows).find_map(|flow| flow.fault.clone());
    accumulator.record(workload, flowed, report, elapsed);
    let mut silence = None;
    if let Some(part) = accumulator.repetitions.last() {
        context.observer.event(&RunEvent::CaseEnds { case: index, repetition, figures: &part.figures });
        silence = no_data::reason(&case, &all_caps, &part.figures).filter(|_| !context.cancel.load(Relaxed));
    }
    server_fault.or(near_fault).or(report_fault).or(doubt).or(silence).map_or(Ok(()), Err)
}

/// The protocol of a case. `auto` probes the server, once for each endpoint.
fn resolve_protocol(
    case: &mut Case,
    dialer: &Dialer,
    peers: &mut BTreeMap<String, &'static Protocol>,
) -> Result<&'static Protocol, ProtocolError> {
    if case.peer == auto::NAME {
        let endpoint = &case.endpoints[0];
        let found = match peers.get(endpoint.as_str()) {
            Some(found) => found,
            None => {
                let found = auto::detect(endpoint, dialer)?;
                peers.insert(endpoint.to_string(), found);
                found
            }
        };
        case.peer = found.name.to_owned();
    }
    find_protocol(&case.peer)
        .ok_or_else(|| ProtocolError::InvalidCase(format!("unknown peer '{}'", case.peer)))
}

/// Completed share of the plan.
fn completed_share(
    case: &Case,
    messages: u64,
    bytes: u64,
    elapsed_ns: u64,
    planned_bytes: u64,
) -> Option<f64> {
    let flows = u64::from(case.parallel) * case.endpoints.len() as u64;
    let part = |done: u64, of: Option<u64>| of.map(|of| done as f64 / of as f64);
    let of = |limit: Option<u64>| limit.map(|limit| limit * flows);
    [
        part(messages, of(case.stop.count)),
        part(bytes, of(case.stop.volume_bytes)),
        part(elapsed_ns, case.stop.time_ns),
        part(bytes, Some(planned_bytes).filter(|&bytes| bytes > 0)),
    ]
    .into_iter()
    .flatten()
    .max_by(f64::total_cmp)
    .map(|share| share.min(1.0))
}

/// Measurement overhead of a round trip: the median over `mem://` in real time, in nanoseconds. Takes 10 ms at most, also on a
/// slow host: fewer round trips are enough for a median.
pub fn measure_overhead_ns() -> f64 {
    const EXCHANGES: u64 = 20_000;
    const TIME: Duration = Duration::from_millis(10);
    let measure = || -> Option<f64> {
        let dialer = Dialer::new(Clock::System);
        let endpoint: crate::endpoint::Endpoint = "mem://floor".parse().ok()?;
        let mut listener = dialer.listen(&endpoint).ok()?;
        let caps = crate::link::endpoint_caps(&endpoint).ok()?;
        let new_server = move |_: &str| -> Box<dyn crate::link::party::Party> {
            Box::new(crate::protocol::echo_reflector(&caps, Duration::from_secs(60)))
        };
        listener.set_party_factory(Box::new(new_server)).ok()?;
        let spec = crate::plan::CaseSpec {
            url: Some(crate::plan::OneOrMany::One(endpoint)),
            peer: Some("echo".to_owned()),
            workload: Some("latency".to_owned()),
            count: Some(crate::units::Count(EXCHANGES)),
            time: Some(crate::units::Span(TIME)),
            ..Default::default()
        };
        let plan = check(Plan::new(None, 1, false, spec.expand().ok()?).ok()?).ok()?;
        let cancel = AtomicBool::new(false);
        let mut context = RunContext::new(dialer, &(), &cancel);
        let run = run(&plan, &mut context);
        run.cases.first()?.figures.times.latency_ns.as_ref()?.percentile("p50").map(|ns| ns as f64)
    };
    // The in-memory link cannot fail; 0 means that no overhead is shown.
    measure().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CaseSpec;

    /// Interrupts at the first event of the first case.
    struct CancelOnCaseStart<'a>(&'a AtomicBool);

    impl Observer for CancelOnCaseStart<'_> {
        fn event(&self, event: &RunEvent) {
            if matches!(event, RunEvent::CaseBegins { .. }) {
                self.0.store(true, Relaxed);
            }
        }
    }

    #[test]
    fn an_interrupted_case_is_incomplete() {
        let dialer = Dialer::new(Clock::new_virtual());
        let endpoint: crate::endpoint::Endpoint = "mem://far".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let caps = crate::link::endpoint_caps(&endpoint).unwrap();
        let new_server = move |_: &str| -> Box<dyn crate::link::party::Party> {
            Box::new(crate::protocol::echo_reflector(&caps, Duration::from_secs(60)))
        };
        assert!(listener.set_party_factory(Box::new(new_server)).is_ok());
        let spec = CaseSpec {
            url: Some(crate::plan::OneOrMany::One(endpoint)),
            peer: Some("echo".to_owned()),
            workload: Some("latency".to_owned()),
            ..CaseSpec::default()
        };
        let plan = check(Plan::new(None, 1, false, spec.expand().unwrap()).unwrap()).unwrap();
        let cancel = AtomicBool::new(false);
        let observer = CancelOnCaseStart(&cancel);
        let mut context = RunContext::new(dialer, &observer, &cancel);
        let run = run(&plan, &mut context);
        assert!(run.interrupted && !run.cases[0].complete);
    }
}
