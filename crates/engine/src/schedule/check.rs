//! Resolves a plan: looks up every name, checks the combinations, and sets whatever was left open. Only what passes here
//! can run.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::default_pacing;
use crate::host::cpu;
use crate::link::{Caps, Framing, LinkError};
use crate::protocol::Registry;
use crate::protocol::shorthand::expand_url;
use crate::protocol::{CaseDraft, CaseError, IdleTimes, Protocol, RECONNECT_OPTION, ReadyCase, auto};
use crate::workload::{Load, TrafficKind, Workload, default_timeout};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Case, Direction, Pacing, Plan, RequestedRate};

/// A case that cannot run as planned, found before any link is opened.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", .case.map(|case| format!("case {case}: ")).unwrap_or_default())]
pub struct InvalidCase {
    /// Number of the case, from 1, if the plan has several.
    pub case: Option<usize>,
    /// Reason why the case is invalid.
    pub kind: InvalidCaseKind,
}

/// Reason why a case cannot run as planned.
#[derive(Debug, thiserror::Error)]
pub enum InvalidCaseKind {
    /// The name of the protocol is unknown.
    #[error("unknown protocol '{name}' (known: auto, {known})")]
    UnknownProtocol {
        /// The name as typed.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// The name of the workload is unknown.
    #[error("unknown workload '{name}' (known: {known})")]
    UnknownWorkload {
        /// The name as typed.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// The protocol does not support the workload.
    #[error("{endpoint}: the protocol {protocol} does not support {workload}: use {supported}")]
    UnsupportedWorkload {
        /// The first endpoint of the case.
        endpoint: Endpoint,
        /// Name of the protocol.
        protocol: &'static str,
        /// Name of the workload.
        workload: &'static str,
        /// The workloads of the protocol, separated by commas.
        supported: String,
    },
    /// The protocol does not support the direction for this workload.
    #[error("{endpoint}: the protocol {protocol} does not support the direction {}: use {supported}", .direction.name())]
    UnsupportedDirection {
        /// The first endpoint of the case.
        endpoint: Endpoint,
        /// Name of the protocol.
        protocol: &'static str,
        /// The requested direction.
        direction: Direction,
        /// The directions of the protocol, separated by commas.
        supported: String,
    },
    /// The option belongs to a protocol, but the protocol is not detected yet.
    #[error("option '{option}' needs a protocol that has it (--protocol): {known}")]
    OptionWithoutProtocol {
        /// Name of the option.
        option: String,
        /// The protocols that have it, separated by commas.
        known: String,
    },
    /// The protocol does not have this option.
    #[error("the protocol {protocol} has no option '{option}' (known: {known})")]
    UnknownOption {
        /// Name of the protocol.
        protocol: &'static str,
        /// Name of the option.
        option: String,
        /// The options of the protocol, separated by commas.
        known: String,
    },
    /// The CPU is not available to this process.
    #[error("this program may not run on CPU {cpu}: choose one of {allowed} (--pin)")]
    Cpu {
        /// The requested CPU.
        cpu: u32,
        /// The CPUs that it may use, separated by commas.
        allowed: String,
    },
    /// The link does not carry messages of this size.
    #[error("{endpoint}: a message of {bytes} bytes does not fit: use a --size of at most {limit}")]
    MessageTooLong {
        /// The first endpoint of the case.
        endpoint: Endpoint,
        /// The message size.
        bytes: u32,
        /// The maximum size.
        limit: usize,
    },
    /// The endpoint is invalid.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The protocol does not accept the case.
    #[error(transparent)]
    Protocol(#[from] CaseError),
}

/// A plan that can run. [`check`] makes it.
#[derive(Debug, Clone)]
pub struct CheckedPlan {
    pub(super) title: Option<String>,
    pub(super) repeat: u32,
    /// Whether each repetition is a part of the case, not the whole.
    pub(super) is_split: bool,
    pub(super) keep_going: bool,
    pub(super) cases: Vec<CheckedCase>,
}

impl CheckedPlan {
    /// The cases in the order in which they run.
    pub fn cases(&self) -> impl ExactSizeIterator<Item = &ReadyCase> {
        self.cases.iter().map(|case| &case.ready)
    }
}

/// A case of a checked plan.
#[derive(Debug, Clone)]
pub(super) struct CheckedCase {
    pub(super) ready: ReadyCase,
    /// The case as typed, if the protocol is still to be detected.
    pub(super) undetected: Option<Case>,
    /// Requested settings for the document, with units in the names.
    pub(super) requested: Map<String, Value>,
}

/// Resolves every name of the plan with the lists of a registry, checks the combinations, and fills in defaults.
///
/// # Errors
/// The first case that cannot run as planned, and why.
pub fn check(plan: Plan, registry: &'static Registry) -> Result<CheckedPlan, InvalidCase> {
    let typed: Vec<Case> = plan.cases.into_iter().flat_map(|case| expand_sizes(case, registry)).collect();
    let several = typed.len() > 1;
    let mut cases = Vec::with_capacity(typed.len());
    for (index, case) in typed.into_iter().enumerate() {
        let checked = check_case(case, registry);
        cases.push(checked.map_err(|kind| InvalidCase { case: several.then_some(index + 1), kind })?);
    }
    Ok(CheckedPlan {
        title: plan.title,
        repeat: plan.repeat,
        is_split: false,
        keep_going: plan.keep_going,
        cases,
    })
}

/// Duration of the plan, if it follows from the plan alone.
pub fn estimate_duration(plan: &CheckedPlan) -> Option<Duration> {
    let once: Option<Duration> = plan.cases().map(ReadyCase::planned_time).sum();
    once.map(|once| if plan.is_split { once } else { once * plan.repeat })
}

/// Expands a case without a size into one case for each default size of its protocol.
fn expand_sizes(case: Case, registry: &'static Registry) -> Vec<Case> {
    match registry.protocol(&case.protocol).map_or(&[][..], |protocol| protocol.sizes) {
        sizes if case.message_bytes.is_none() && !sizes.is_empty() => {
            sizes.iter().map(|&size| Case { message_bytes: Some(size), ..case.clone() }).collect()
        }
        _ => vec![case],
    }
}

fn check_case(mut case: Case, registry: &'static Registry) -> Result<CheckedCase, InvalidCaseKind> {
    expand_url(&mut case, registry)?;
    // Such a case sends nothing by which a server could be detected.
    let sends_nothing = |workload: &Workload| workload.traffic == TrafficKind::Connections;
    if case.protocol == auto::NAME && registry.workload(&case.workload).is_some_and(sends_nothing) {
        let protocol = registry.protocols_with(&case.workload).next();
        case.protocol = protocol.map_or(case.protocol, |protocol| protocol.name.to_owned());
    }
    if case.protocol == auto::NAME && case.protocol_options.contains_key(RECONNECT_OPTION) {
        // A linkgauge server echoes as well, to connections without a session.
        case.protocol = "echo".to_owned();
    }
    if case.protocol == auto::NAME {
        if let Some(option) = case.protocol_options.keys().next() {
            let has_option = |protocol: &&Protocol| protocol.options.iter().any(|(name, _)| name == option);
            let known =
                join_names(registry.protocols.iter().filter(has_option).map(|protocol| protocol.name));
            return Err(InvalidCaseKind::OptionWithoutProtocol { option: option.clone(), known });
        }
        let ready = resolve(&case, &auto::UNDETECTED, registry)?;
        let requested = requested_settings(&case, &ready, case.direction);
        return Ok(CheckedCase { ready, requested, undetected: Some(case) });
    }
    let protocol = registry.protocol(&case.protocol).ok_or_else(|| {
        let known = join_names(registry.protocols.iter().map(|protocol| protocol.name));
        InvalidCaseKind::UnknownProtocol { name: case.protocol.clone(), known }
    })?;
    let ready = resolve(&case, protocol, registry)?;
    let requested = requested_settings(&case, &ready, Some(ready.direction));
    Ok(CheckedCase { ready, requested, undetected: None })
}

/// The names with commas between them, or "none".
fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A case before its protocol has completed it.
fn draft_of(
    case: &Case,
    (protocol, workload): (&'static Protocol, &'static Workload),
    registry: &'static Registry,
) -> Result<CaseDraft, InvalidCaseKind> {
    Ok(CaseDraft {
        workload,
        direction: resolve_direction(case, protocol, workload, registry)?,
        endpoints: case.endpoints.clone(),
        options: case.protocol_options.clone(),
        message_bytes: case.message_bytes,
        parallel: case.parallel,
        pacing: case.pacing,
        stop: if case.stop.is_unlimited() { workload.default_stop } else { case.stop },
        warm_up: case.warm_up.unwrap_or(workload.default_warm_up),
        has_default_stop: case.stop.is_unlimited(),
        requests_per_connection: None,
        default_per_second: None,
        idle: if case.probe_per_second.is_some() { case.idle } else { Duration::ZERO },
        planned_idle: Duration::ZERO,
        stamps: case.stamps,
    })
}

/// Resolves what was typed into a case that can run with this protocol.
pub(super) fn resolve(
    case: &Case,
    protocol: &'static Protocol,
    registry: &'static Registry,
) -> Result<ReadyCase, InvalidCaseKind> {
    let workload = registry.workload(&case.workload).ok_or_else(|| {
        let known = join_names(registry.workloads.iter().map(|workload| workload.name));
        InvalidCaseKind::UnknownWorkload { name: case.workload.clone(), known }
    })?;
    let linked = endpoints_caps(&case.endpoints, registry)?;
    check_cpu(case.pin.client)?;
    let mut draft = draft_of(case, (protocol, workload), registry)?;
    check_options(&draft, protocol)?;
    linked.iter().try_for_each(|caps| (protocol.prepare_case)(&mut draft, caps))?;
    let message_bytes = draft.message_bytes.unwrap_or_else(|| default_size(&draft, case.rate, &linked[0]));
    // The protocol may have changed the options of the endpoints.
    let caps = endpoints_caps(&draft.endpoints, registry)?;
    check_fits(&draft.endpoints[0], message_bytes, &caps)?;
    let load = Load {
        pacing: flow_pacing(&draft, case.rate, message_bytes),
        stop: draft.stop,
        warm_up: draft.warm_up,
        timeout: case.timeout.unwrap_or_else(|| default_timeout(workload, message_bytes, &linked)),
        wait: case.wait,
        cpu: case.pin.client,
        flows: draft.parallel,
        requests_per_connection: draft.requests_per_connection,
        stamps: draft.stamps,
        ..Load::endless(message_bytes)
    };
    Ok(ReadyCase {
        registry,
        protocol,
        workload,
        direction: draft.direction,
        threads: case.threads.or_else(|| own_threads(&draft)),
        endpoints: draft.endpoints,
        caps,
        options: draft.options,
        parallel: draft.parallel,
        load,
        rate: case.rate,
        default_per_second: draft.default_per_second,
        server_cpu: case.pin.server,
        probe_per_second: case.probe_per_second,
        idle: IdleTimes { before: draft.idle, after: draft.idle },
        planned_idle: draft.planned_idle,
        series_interval: case.series_interval,
        progress_interval: case.progress_interval,
        late_limits: case.late_limits.clone(),
        thresholds: case.thresholds.clone(),
    })
}

/// The pacing of messages of this size; a rate in bits has none before the size is known.
fn effective_pacing(rate: RequestedRate, pacing: Pacing, message_bytes: u32) -> Pacing {
    match (rate, pacing, rate.per_second(message_bytes)) {
        (RequestedRate::Bits { .. }, Pacing::Closed, Some(per_second)) => Pacing::Fixed { per_second },
        (_, pacing, _) => pacing,
    }
}

/// The pacing of one connection. Round trips of several connections share a schedule.
fn flow_pacing(draft: &CaseDraft, rate: RequestedRate, message_bytes: u32) -> Pacing {
    let pacing = effective_pacing(rate, draft.pacing, message_bytes);
    let connections = if draft.workload.is_round_trip() { f64::from(draft.parallel) } else { 1.0 };
    match pacing {
        Pacing::Fixed { per_second } => Pacing::Fixed { per_second: per_second / connections },
        Pacing::Poisson { per_second, seed } => {
            Pacing::Poisson { per_second: per_second / connections, seed }
        }
        Pacing::Closed | Pacing::ThinkTime { .. } => pacing,
    }
}

/// Capabilities of the links to each endpoint.
fn endpoints_caps(endpoints: &[Endpoint], registry: &'static Registry) -> Result<Vec<Caps>, InvalidCaseKind> {
    let caps = endpoints.iter().map(|endpoint| {
        registry.transports.caps(endpoint).map_err(|fault| LinkError::new(endpoint, fault).into())
    });
    caps.collect()
}

fn check_cpu(cpu: Option<u32>) -> Result<(), InvalidCaseKind> {
    let may = cpu::current_affinity();
    let Some(cpu) = cpu.filter(|cpu| !may.contains(cpu)) else { return Ok(()) };
    let may: Vec<String> = may.iter().map(u32::to_string).collect();
    Err(InvalidCaseKind::Cpu { cpu, allowed: may.join(", ") })
}

/// The direction of a case, if the protocol supports it for that workload.
fn resolve_direction(
    case: &Case,
    protocol: &Protocol,
    workload: &Workload,
    registry: &'static Registry,
) -> Result<Direction, InvalidCaseKind> {
    // The protocol is not detected yet: the case is resolved again then.
    if protocol.traffic.is_empty() {
        return Ok(case.direction.unwrap_or(workload.default_direction));
    }
    let (endpoint, name) = (case.endpoints[0].clone(), protocol.name);
    let Some((_, directions)) = protocol.traffic.iter().find(|(kind, _)| *kind == workload.traffic) else {
        let supported = join_names(registry.workloads_of(protocol).map(|(workload, _)| workload.name));
        let workload = workload.name;
        return Err(InvalidCaseKind::UnsupportedWorkload { endpoint, protocol: name, workload, supported });
    };
    let direction = case.direction.unwrap_or(directions[0]);
    if directions.contains(&direction) {
        return Ok(direction);
    }
    let supported = join_names(directions.iter().map(|direction| direction.name()));
    Err(InvalidCaseKind::UnsupportedDirection { endpoint, protocol: name, direction, supported })
}

fn check_options(draft: &CaseDraft, protocol: &Protocol) -> Result<(), InvalidCaseKind> {
    check_stamps(draft)?;
    let is_unknown = |option: &&String| !protocol.options.iter().any(|(name, _)| name == option);
    let Some(option) = draft.options.keys().find(is_unknown) else { return Ok(()) };
    let known = join_names(protocol.options.iter().map(|(name, _)| *name));
    Err(InvalidCaseKind::UnknownOption { protocol: protocol.name, option: option.clone(), known })
}

/// Stamps are those of round trips, and take memory for each connection.
fn check_stamps(draft: &CaseDraft) -> Result<(), CaseError> {
    if !draft.stamps {
        return Ok(());
    }
    if draft.workload.traffic != TrafficKind::RoundTrips {
        let text = "stamps belong to round trips: measure the latency, or leave them out";
        return Err(CaseError::Option(text.to_owned()));
    }
    if draft.parallel > MAX_STAMPED_CONNECTIONS {
        let text = format!(
            "stamps need memory for each connection: use at most {MAX_STAMPED_CONNECTIONS} connections (--parallel)"
        );
        return Err(CaseError::Parallel(text));
    }
    Ok(())
}

/// A thread for each connection with stamps: those of one would wake a thread that waits for several.
fn own_threads(draft: &CaseDraft) -> Option<u32> {
    draft.stamps.then_some(draft.parallel * draft.endpoints.len() as u32)
}

/// Connections that a case with stamps may have.
const MAX_STAMPED_CONNECTIONS: u32 = 8;

/// The message size that neither the plan nor the protocol sets.
fn default_size(draft: &CaseDraft, rate: RequestedRate, caps: &Caps) -> u32 {
    let mut bytes = (draft.workload.default_size)(caps);
    if caps.framing == Framing::Stream {
        if let RequestedRate::Bits { per_second } = rate {
            bytes = bytes.min(default_pacing::paced_block_bytes(per_second));
        }
        if let Some(volume) = draft.stop.volume_bytes {
            bytes = bytes.min(u32::try_from(volume).unwrap_or(u32::MAX));
        }
    }
    bytes
}

fn check_fits(endpoint: &Endpoint, message_bytes: u32, caps: &[Caps]) -> Result<(), InvalidCaseKind> {
    match caps.iter().filter_map(|caps| caps.max_message_bytes).min() {
        Some(limit) if message_bytes as usize > limit => {
            Err(InvalidCaseKind::MessageTooLong { endpoint: endpoint.clone(), bytes: message_bytes, limit })
        }
        _ => Ok(()),
    }
}

/// Requested settings, with units in the names. `direction` is known once the protocol is.
fn requested_settings(case: &Case, ready: &ReadyCase, direction: Option<Direction>) -> Map<String, Value> {
    let load = &ready.load;
    let value = json!({
        "protocol": case.protocol,
        "protocol_options": ready.options,
        "direction": direction.map(Direction::name),
        "endpoints": ready.endpoints,
        "rate": ready.rate,
        "pacing": load.pacing,
        "stop": load.stop,
        "warm_up": load.warm_up,
        "timeout_ns": load.timeout.as_nanos() as u64,
        "wait": load.wait,
        "pin": case.pin,
        "threads": case.threads,
        "probe_per_second": ready.probe_per_second,
        "stamps": case.stamps.then_some(true),
        "idle_ns": Some(case.idle.as_nanos() as u64).filter(|ns| *ns > 0),
    });
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}
