//! Runs a plan: order, repetitions, ports side by side, stop on a signal. Sends events, never prints.
//!
//! Not for how anything is measured: that is the workload's parties on the peer's links.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::clock::{Clock, Time};
use crate::host::cpu;
use crate::link::party::{Acted, Cost, SLICE, act, drive};
use crate::link::{Dialer, Fault, Line, Link, LinkError};
use crate::peer::{Flow, Near, Peer, PeerError, Session, auto, peer};
use crate::plan::{Case, Direction, Pacing, Plan, Wait};
use crate::run::{CaseResult, CpuUse, Environment, Figures, Part, Run, SCHEMA, TOOL, Warning};
use crate::sample::{Progress, RawFile, Recorder};
use crate::stats;
use crate::warnings;
use crate::workload::{FarReport, Flowed, Role, Workload, merged, planned_time, workload};

/// What happens while a plan runs.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    Begins {
        cases: usize,
        repeat: u32,
        /// By the plan; absent when it depends on how fast the links are.
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
    /// Sent every interval while a case runs; what it counts, it counts since the beginning of the case.
    Progress {
        case: usize,
        repetition: u32,
        elapsed_ns: u64,
        messages: u64,
        bytes: u64,
        /// Of what is planned, 0 to 1, where that is known.
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

/// Who is told.
pub trait Observer: Sync {
    fn event(&self, event: &Event);
}

/// Nobody.
impl Observer for () {
    fn event(&self, _event: &Event) {}
}

/// What a run needs besides its plan.
pub struct Bench<'a> {
    pub dialer: Dialer,
    pub observer: &'a dyn Observer,
    /// Set by a signal: the case that runs ends with what it has, no other begins.
    pub cancel: &'a AtomicBool,
    pub token: Option<String>,
    pub raw: Option<RawFile>,
    /// Facts of this machine, for the document.
    pub environment: Map<String, Value>,
    /// Median of an exchange over `mem://`, if it was measured: what the instrument itself costs.
    pub floor_ns: Option<f64>,
}

/// What cannot be run as planned, found before anything is opened.
#[derive(Debug, thiserror::Error)]
#[error("{}{what}", .case.map(|case| format!("case {case}: ")).unwrap_or_default())]
pub struct Unfit {
    /// Where there are several.
    case: Option<usize>,
    what: String,
}

/// Looks up every name of the plan, checks what fits with what, and fills in what the plan leaves to us.
pub fn check(mut plan: Plan) -> Result<Plan, Unfit> {
    let several = plan.cases.len() > 1;
    for (index, case) in plan.cases.iter_mut().enumerate() {
        fit(case).map_err(|what| Unfit { case: several.then_some(index + 1), what })?;
    }
    Ok(plan)
}

fn fit(case: &mut Case) -> Result<(), String> {
    let names = |names: Vec<&str>| names.join(", ");
    let workload = workload(&case.workload).ok_or_else(|| {
        let known = names(crate::workload::WORKLOADS.iter().map(|workload| workload.name).collect());
        format!("unknown workload '{}' (known: {known})", case.workload)
    })?;
    if case.peer != auto::NAME && peer(&case.peer).is_none() {
        let known = names(crate::peer::PEERS.iter().map(|peer| peer.name).collect());
        return Err(format!("unknown peer '{}' (known: auto, {known})", case.peer));
    }
    let mut all_caps = Vec::new();
    for endpoint in &case.endpoints {
        all_caps.push(crate::link::caps(endpoint).map_err(|fault| match fault {
            Fault::Endpoint(error) => error.to_string(),
            fault => format!("{endpoint}: {fault}"),
        })?);
    }
    let caps = &all_caps[0];
    if case.message_bytes == 0 {
        case.message_bytes = (workload.default_size)(caps);
    }
    if case.timeout.is_zero() {
        case.timeout = workload.default_timeout;
    }
    if case.stop.is_none() {
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
        fit_peer(case, workload)?;
    }
    if let Some(limit) = all_caps.iter().filter_map(|caps| caps.max_message).min()
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

/// What can be checked only once it is known what the far end speaks.
fn fit_peer(case: &mut Case, workload: &Workload) -> Result<(), String> {
    let Some(peer) = peer(&case.peer) else { return Ok(()) };
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
    Ok(())
}

/// How long the plan takes, as far as it says so itself.
pub fn estimate(plan: &Plan) -> Option<Duration> {
    let once: Option<Duration> = plan.cases.iter().map(planned_time).sum();
    once.map(|once| once * plan.repeat)
}

/// Runs a checked plan. What was measured is always in the document, however it ended.
pub fn run(plan: &Plan, bench: &mut Bench) -> Run {
    let clock = bench.dialer.clock.clone();
    let started = clock.now();
    let stamp = jiff::Timestamp::now();
    bench.observer.event(&Event::Begins {
        cases: plan.cases.len(),
        repeat: plan.repeat,
        estimate_ns: estimate(plan).map(|time| time.as_nanos() as u64),
    });
    let mut accounts: Vec<Account> = plan.cases.iter().map(Account::new).collect();
    let mut peers = BTreeMap::new();
    'plan: for repetition in 0..plan.repeat {
        for (index, account) in accounts.iter_mut().enumerate() {
            if bench.cancel.load(Relaxed) {
                break 'plan;
            }
            if let Err(reason) = one(bench, index, repetition, account, &mut peers) {
                bench.observer.event(&Event::Failed { case: index, repetition, reason: &reason });
                account.failures.push(reason);
                if !plan.keep_going && !bench.cancel.load(Relaxed) {
                    break 'plan;
                }
            }
        }
    }
    let interrupted = bench.cancel.load(Relaxed);
    let mut far_environment = Map::new();
    for account in &accounts {
        far_environment.extend(account.far_environment.clone());
    }
    let cases: Vec<CaseResult> =
        accounts.into_iter().map(|a| a.result(plan.repeat, bench.floor_ns)).collect();
    let mut run = Run {
        schema: SCHEMA.to_owned(),
        id: format!("{}-{:06x}", stamp.strftime("%Y%m%dT%H%M%SZ"), fastrand::u32(..1 << 24)),
        title: plan.title.clone(),
        tool: TOOL.to_owned(),
        started: stamp,
        elapsed_ns: clock.now().since(started).as_nanos() as u64,
        interrupted,
        cases,
        environment: Environment { near: bench.environment.clone(), far: far_environment },
        warnings: Vec::new(),
    };
    run.warnings = warnings::of_machine(&run.environment.near);
    if let Some(raw) = bench.raw.take() {
        run.warnings.extend(warnings::of_raw_file(raw.finish()));
    }
    bench.observer.event(&Event::Ends { complete: run.complete(), elapsed_ns: run.elapsed_ns });
    run
}

/// Runs one case once and books it on its account.
fn one(
    bench: &Bench,
    index: usize,
    repetition: u32,
    account: &mut Account,
    peers: &mut BTreeMap<String, &'static Peer>,
) -> Result<(), String> {
    let mut case = account.case.clone();
    let mut dialer = bench.dialer.clone();
    (dialer.wait, dialer.timeout) = (case.wait, case.timeout.max(Duration::from_secs(1)));
    let peer = resolve(&mut case, &dialer, peers).map_err(|error| error.to_string())?;
    let scheme = case.endpoints[0].scheme();
    let port = peer.default_ports.iter().find(|(name, _)| *name == scheme);
    dialer.default_port = port.map(|(_, port)| *port);
    let workload = workload(&case.workload).ok_or("unknown workload")?;
    fit_peer(&mut case, workload)?;
    account.case = case.clone();
    bench.observer.event(&Event::CaseBegins {
        case: index,
        repetition,
        endpoint: case.endpoints[0].as_str(),
        peer: peer.name,
        workload: workload.name,
        message_bytes: case.message_bytes,
    });

    let progress: Mutex<Vec<Arc<Progress>>> = Mutex::default();
    let flow_number = AtomicUsize::new(0);
    let recorder = |role: Role, _port: usize| {
        let shared = Arc::<Progress>::default();
        let counts = matches!(role, Role::Exchange | Role::Inward)
            || (role == Role::Outward && case.direction != Some(Direction::Loop));
        if counts && let Ok(mut all) = progress.lock() {
            all.push(shared.clone());
        }
        let scheduled = role == Role::Probe || (role == Role::Exchange && case.pacing != Pacing::Closed);
        let raw = bench.raw.as_ref().filter(|_| matches!(role, Role::Exchange | Role::Probe));
        let raw = raw.map(|raw| raw.sink(index, flow_number.fetch_add(1, Relaxed)));
        Recorder::new(scheduled, case.interval.as_nanos() as u64, shared, raw)
    };
    let near = Near { dialer: &dialer, token: bench.token.as_deref(), recorder: &recorder };
    let mut session = (peer.connect)(&case, &near).map_err(|error| error.to_string())?;
    let flows = session.flows();
    account.note_links(&flows, session.as_ref());

    let began = dialer.now();
    let tick = |elapsed: Duration| {
        let (mut messages, mut bytes) = (0, 0);
        for progress in progress.lock().iter().flat_map(|all| all.iter()) {
            messages += progress.messages.load(Relaxed);
            bytes += progress.bytes.load(Relaxed);
        }
        let elapsed_ns = elapsed.as_nanos() as u64;
        let share = share(&case, messages, bytes, elapsed_ns);
        bench.observer.event(&Event::Progress {
            case: index,
            repetition,
            elapsed_ns,
            messages,
            bytes,
            share,
        });
    };
    let (flowed, links) = side_by_side(flows, &dialer, bench.cancel, &case, &tick);
    account.cut_short |= bench.cancel.load(Relaxed);
    let elapsed = dialer.now().since(began);
    let far = session.finish(&flowed, links);
    account.far_environment = session.far_environment();
    account.got.extend(session.got());

    let near_fault = flowed.iter().find_map(|flow| flow.fault.clone());
    let (far, far_fault) = match far {
        Ok(far) => (far, None),
        Err(error) => (None, Some(error.to_string())),
    };
    // What was handed over here may still have been on its way for a while.
    let far_elapsed = far.iter().flat_map(|far| &far.flows).map(|flow| flow.elapsed_ns).max();
    let elapsed = elapsed.max(Duration::from_nanos(far_elapsed.unwrap_or(0)).min(dialer.now().since(began)));
    // When the far end broke it off, all that is seen here is that the link was closed.
    let told = far.iter().flat_map(|far| &far.flows).find_map(|flow| flow.fault.clone());
    account.book(workload, flowed, far, elapsed);
    if let Some(part) = account.parts.last() {
        bench.observer.event(&Event::CaseEnds { case: index, repetition, figures: &part.figures });
    }
    told.or(near_fault).or(far_fault).map_or(Ok(()), Err)
}

/// The peer of a case; asks the far end where that is left to us, once for each endpoint.
fn resolve(
    case: &mut Case,
    dialer: &Dialer,
    peers: &mut BTreeMap<String, &'static Peer>,
) -> Result<&'static Peer, PeerError> {
    if case.peer == auto::NAME {
        let endpoint = &case.endpoints[0];
        let found = match peers.get(endpoint.as_str()) {
            Some(found) => found,
            None => {
                let found = auto::find(endpoint, dialer)?;
                peers.insert(endpoint.to_string(), found);
                found
            }
        };
        case.peer = found.name.to_owned();
    }
    peer(&case.peer).ok_or_else(|| PeerError::Unfit(format!("unknown peer '{}'", case.peer)))
}

/// How much of what is planned has been done.
fn share(case: &Case, messages: u64, bytes: u64, elapsed_ns: u64) -> Option<f64> {
    let flows = u64::from(case.parallel) * case.endpoints.len() as u64;
    let part = |done: u64, of: Option<u64>| of.map(|of| done as f64 / of as f64);
    let of = |limit: Option<u64>| limit.map(|limit| limit * flows);
    [
        part(messages, of(case.stop.count)),
        part(bytes, of(case.stop.volume_bytes)),
        part(elapsed_ns, case.stop.time_ns),
    ]
    .into_iter()
    .flatten()
    .max_by(f64::total_cmp)
    .map(|share| share.min(1.0))
}

/// Runs flows at the same time, started together; calls `tick` every interval meanwhile.
fn side_by_side(
    flows: Vec<Flow>,
    dialer: &Dialer,
    cancel: &AtomicBool,
    case: &Case,
    tick: &dyn Fn(Duration),
) -> (Vec<Flowed>, Vec<Box<dyn Link>>) {
    let ended: Vec<(Flow, Ended)> = match &dialer.clock {
        Clock::Virtual(_) => in_virtual_time(flows, dialer, cancel),
        Clock::System => in_threads(flows, &dialer.clock, cancel, case.interval, tick),
    };
    let mut links = Vec::new();
    let mut flowed = Vec::new();
    for (flow, Ended { cpu_seconds, result }) in ended {
        let socket_drops = flow.link.socket_drops();
        let fault = result.err().map(|fault| LinkError::new(&case.endpoints[flow.port], fault).to_string());
        links.push(flow.link);
        flowed.push(Flowed {
            role: flow.role,
            port: flow.port,
            recorder: flow.party.into_recorder(),
            cpu_seconds,
            socket_drops,
            fault,
        });
    }
    (flowed, links)
}

/// How a flow ended, and what its thread used of a CPU.
struct Ended {
    cpu_seconds: f64,
    result: Result<(), Fault>,
}

fn in_threads(
    flows: Vec<Flow>,
    clock: &Clock,
    cancel: &AtomicBool,
    interval: Duration,
    tick: &dyn Fn(Duration),
) -> Vec<(Flow, Ended)> {
    // Threads that could not be started must not let the others wait for them: so no barrier, but a lock that is
    // opened once all are there.
    let gate = RwLock::new(());
    // A probe goes on as long as anything else does; then this stops it.
    let alone = AtomicBool::new(false);
    let loads = AtomicUsize::new(flows.iter().filter(|flow| flow.role != Role::Probe).count());
    let run = |flow: &mut Flow| {
        // Timers of this thread end when they should, not up to 50 µs later.
        let _ = cpu::set_timer_slack_ns(1);
        drop(gate.read());
        let before = cpu::thread_cpu_seconds();
        let stop = if flow.role == Role::Probe { &alone } else { cancel };
        let result = drive(flow.party.as_mut(), flow.link.as_mut(), clock, stop, SLICE);
        if flow.role != Role::Probe && loads.fetch_sub(1, Relaxed) == 1 {
            alone.store(true, Relaxed);
        }
        Ended { cpu_seconds: cpu::thread_cpu_seconds() - before, result }
    };
    let flows: Vec<Mutex<Flow>> = flows.into_iter().map(Mutex::new).collect();
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let closed = gate.write();
        let spawned: Vec<_> = flows
            .iter()
            .map(|flow| {
                // Each thread is the only one that uses its flow until it ends.
                let run = || run(&mut flow.lock().unwrap_or_else(PoisonError::into_inner));
                Builder::new().spawn_scoped(scope, run)
            })
            .collect();
        if spawned.iter().any(Result::is_err) {
            // The loads will not all end, so nobody else would stop the probe.
            alone.store(true, Relaxed);
        }
        drop(closed);
        let began = clock.now();
        let mut next = began + interval;
        while spawned.iter().flatten().any(|thread| !thread.is_finished()) {
            // Short at first, so that a case of milliseconds does not wait for a tick.
            let patience =
                Duration::from_millis(50).min(clock.now().since(began) / 4).max(Duration::from_micros(200));
            clock.sleep_until((clock.now() + patience).min(next));
            if clock.now() >= next {
                tick(next.since(began));
                next = next + interval;
            }
        }
        let failed = |fault| Ended { cpu_seconds: 0.0, result: Err(fault) };
        let joined = spawned.into_iter().map(|thread| match thread.map(ScopedJoinHandle::join) {
            Ok(Ok(ended)) => ended,
            Ok(Err(_)) => failed(Fault::Other("the thread of this flow failed".to_owned())),
            Err(source) => failed(Fault::System { operation: "start a thread", source }),
        });
        joined.collect()
    });
    let flows = flows.into_iter().map(|flow| flow.into_inner().unwrap_or_else(PoisonError::into_inner));
    flows.zip(ended).collect()
}

/// On the virtual clock one thread does it all, in the order of the flows whenever several could move.
fn in_virtual_time(mut flows: Vec<Flow>, dialer: &Dialer, cancel: &AtomicBool) -> Vec<(Flow, Ended)> {
    let mut results: Vec<Option<Result<(), Fault>>> = flows.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        let (mut moved, mut until) = (false, Time::NEVER);
        let loads_over =
            flows.iter().zip(&results).all(|(flow, result)| flow.role == Role::Probe || result.is_some());
        for (flow, result) in flows.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            let mut now = dialer.now();
            if cancel.load(Relaxed) || (loads_over && flow.role == Role::Probe) {
                *result = Some(Ok(()));
            } else {
                match act(flow.party.as_mut(), flow.link.as_mut(), &dialer.clock, &mut now, Duration::ZERO) {
                    Ok(Acted::Moved) => moved = true,
                    Ok(Acted::Waiting(at) | Acted::Sleeping(at)) => until = until.min(at),
                    Ok(Acted::Done) => *result = Some(Ok(())),
                    Err(fault) => *result = Some(Err(fault)),
                }
            }
            if result.is_some() {
                flow.party.ended(Cost::default());
                moved = true;
            }
        }
        if !moved {
            dialer.memory.step(until);
        }
    }
    let ended =
        results.into_iter().map(|result| Ended { cpu_seconds: 0.0, result: result.unwrap_or(Ok(())) });
    flows.into_iter().zip(ended).collect()
}

/// What is known of a case so far.
struct Account {
    case: Case,
    asked: Map<String, Value>,
    got: Map<String, Value>,
    line: Option<Line>,
    far_environment: Map<String, Value>,
    parts: Vec<Part>,
    per_port: Vec<Part>,
    /// Exchanges, and those of the probe, of all repetitions.
    exchanges: Option<Recorder>,
    probes: Option<Recorder>,
    /// The flows whose time series is shown.
    shown: Option<Recorder>,
    cpu: CpuUse,
    elapsed: Duration,
    failures: Vec<String>,
    /// Stopped by a signal in the middle.
    cut_short: bool,
    /// The far end did not tell what it received.
    unconfirmed: bool,
}

impl Account {
    fn new(case: &Case) -> Account {
        Account {
            case: case.clone(),
            asked: asked(case),
            got: Map::new(),
            line: None,
            far_environment: Map::new(),
            parts: Vec::new(),
            per_port: Vec::new(),
            exchanges: None,
            probes: None,
            shown: None,
            cpu: CpuUse::default(),
            elapsed: Duration::ZERO,
            failures: Vec::new(),
            cut_short: false,
            unconfirmed: false,
        }
    }

    /// What the links were granted; the first of each kind stands for all.
    fn note_links(&mut self, flows: &[Flow], session: &dyn Session) {
        if let Some(flow) = flows.first() {
            self.got = flow.link.facts();
            self.line = flow.link.caps().line;
        }
        self.got.extend(session.got());
    }

    fn book(&mut self, workload: &Workload, flows: Vec<Flowed>, far: Option<FarReport>, elapsed: Duration) {
        let endpoint = |port: usize| self.case.endpoints[port].to_string();
        let figures = self.with_line_rate((workload.figures)(&self.case, &flows, far.as_ref()));
        let elapsed_ns = elapsed.as_nanos() as u64;
        self.elapsed += elapsed;
        self.unconfirmed |= far.is_none()
            && self.case.direction != Some(Direction::Loop)
            && flows.iter().any(|flow| flow.role == Role::Outward);
        self.parts.push(Part { endpoint: endpoint(0), elapsed_ns, figures });
        self.cpu.near_seconds += flows.iter().map(|flow| flow.cpu_seconds).sum::<f64>();
        if let Some(seconds) = far.as_ref().and_then(|far| far.cpu_seconds) {
            *self.cpu.far_seconds.get_or_insert(0.0) += seconds;
        }
        for (role, all) in [(Role::Exchange, &mut self.exchanges), (Role::Probe, &mut self.probes)] {
            if let Some(recorder) = merged(&flows, role) {
                all.get_or_insert_with(|| recorder.blank()).merge(&recorder);
            }
        }
        let shown = [Role::Exchange, Role::Inward, Role::Outward];
        if let Some(recorder) = shown.into_iter().find_map(|role| merged(&flows, role)) {
            self.shown = Some(recorder);
        }
        if self.case.endpoints.len() > 1 {
            self.per_port = self.by_port(workload, flows, far, elapsed_ns);
        }
    }

    /// The figures of each port of the last repetition.
    fn by_port(
        &self,
        workload: &Workload,
        flows: Vec<Flowed>,
        far: Option<FarReport>,
        elapsed_ns: u64,
    ) -> Vec<Part> {
        let mut ports: Vec<Vec<Flowed>> = self.case.endpoints.iter().map(|_| Vec::new()).collect();
        for flow in flows {
            ports[flow.port].push(flow);
        }
        let parts = ports.iter().enumerate().map(|(port, flows)| {
            let far = far.as_ref().map(|far| FarReport {
                flows: far.flows.iter().filter(|flow| flow.port == port).cloned().collect(),
                cpu_seconds: None,
            });
            let figures = self.with_line_rate((workload.figures)(&self.case, flows, far.as_ref()));
            Part { endpoint: self.case.endpoints[port].to_string(), elapsed_ns, figures }
        });
        parts.collect()
    }

    fn with_line_rate(&self, mut figures: Figures) -> Figures {
        if let (Some(line), Some(rate)) = (self.line, figures.throughput_bps) {
            let on_line = rate / 8.0 * line.bits_per_byte;
            figures.line_rate_percent = Some(100.0 * on_line / line.bits_per_second);
        }
        figures
    }

    /// The case for the document.
    fn result(self, repeat: u32, floor_ns: Option<f64>) -> CaseResult {
        let case = &self.case;
        let complete = self.failures.is_empty() && !self.cut_short && self.parts.len() == repeat as usize;
        let mut figures = together(&self.parts);
        if let Some(exchanges) = &self.exchanges {
            // Between repetitions nobody measured, so their rate is not that of all together.
            let messages_per_second = figures.messages_per_second;
            figures = Figures { messages_per_second, ..exchanges.latency_figures(&case.late) };
        }
        if self.parts.len() > 1 {
            over_repetitions(&mut figures, &self.parts);
        }
        let cpu = (!self.parts.is_empty()).then(|| {
            let both = self.cpu.near_seconds + self.cpu.far_seconds.unwrap_or(0.0);
            let delivered = figures.delivered_bytes.unwrap_or(0) as f64
                + figures.delivered_back_bytes.unwrap_or(0) as f64;
            let seconds_per_gigabyte = (delivered > 0.0).then(|| both * 1e9 / delivered);
            CpuUse { seconds_per_gigabyte, ..self.cpu.clone() }
        });
        let workload = workload(&case.workload);
        let mut result = CaseResult {
            endpoint: case.endpoints[0].to_string(),
            peer: case.peer.clone(),
            workload: case.workload.clone(),
            direction: case
                .direction
                .unwrap_or_else(|| workload.map_or(Direction::Loop, |workload| workload.default_direction)),
            message_bytes: case.message_bytes,
            ports: case.endpoints.len() as u32,
            parallel: case.parallel,
            method: workload.map(|workload| (workload.method)(case)).unwrap_or_default(),
            complete,
            elapsed_ns: self.elapsed.as_nanos() as u64,
            figures,
            under_load: self.probes.as_ref().map(|probes| probes.latency_figures(&case.late)),
            series: self.shown.as_ref().map(|shown| shown.series.entries()).unwrap_or_default(),
            cpu,
            asked: self.asked,
            got: self.got,
            line: self.line.map(line_facts).unwrap_or_default(),
            shaped: Map::new(),
            placement: placement(case),
            repeats: if self.parts.len() > 1 { self.parts } else { Vec::new() },
            per_port: self.per_port,
            warnings: Vec::new(),
        };
        for failure in &self.failures {
            let text = format!("not measured as planned: {failure}");
            result.warnings.push(Warning::new("incomplete", text, "mend the cause and run again"));
        }
        if self.cut_short {
            let text = "stopped before all that was planned was measured";
            result.warnings.push(Warning::new("interrupted", text, "let it run to its end"));
        }
        if self.unconfirmed {
            let text =
                "the far end did not tell what it received: what counts here is what was handed to the link";
            result.warnings.push(Warning::new("unconfirmed", text, "read it as an upper bound"));
        }
        let head = self.exchanges.as_ref().map(|exchanges| exchanges.service.head());
        result.warnings.extend(warnings::of_case(&result, head.unwrap_or_default(), floor_ns));
        result
    }
}

/// Counts of all repetitions together; rates are the median repetition's.
fn together(parts: &[Part]) -> Figures {
    let Some(first) = parts.first() else { return Figures::default() };
    let mut all = first.figures.clone();
    for part in &parts[1..] {
        let more = &part.figures;
        all.sent = all.sent.saturating_add(more.sent);
        all.received = all.received.saturating_add(more.received);
        all.lost = all.lost.saturating_add(more.lost);
        all.duplicate = all.duplicate.saturating_add(more.duplicate);
        all.reordered = all.reordered.saturating_add(more.reordered);
        all.corrupt_bytes += more.corrupt_bytes;
        all.corrupt_messages = all.corrupt_messages.saturating_add(more.corrupt_messages);
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b)).or(a).or(b);
        all.delivered_bytes = sum(all.delivered_bytes, more.delivered_bytes);
        all.delivered_back_bytes = sum(all.delivered_back_bytes, more.delivered_back_bytes);
        all.lost_in_socket = sum(all.lost_in_socket, more.lost_in_socket);
        all.lost_on_path = sum(all.lost_on_path, more.lost_on_path);
    }
    let median = |get: fn(&Figures) -> Option<f64>| {
        stats::median(&parts.iter().filter_map(|part| get(&part.figures)).collect::<Vec<f64>>())
    };
    all.throughput_bps = median(|figures| figures.throughput_bps);
    all.throughput_back_bps = median(|figures| figures.throughput_back_bps);
    all.messages_per_second = median(|figures| figures.messages_per_second);
    all.line_rate_percent = median(|figures| figures.line_rate_percent);
    all
}

/// A statistic that is compared over repetitions: its name and where it stands.
type Statistic = (&'static str, fn(&Figures) -> Option<f64>);

/// Intervals over the repetitions replace those within: repetitions vary more than one run shows.
fn over_repetitions(figures: &mut Figures, parts: &[Part]) {
    fn percentile(figures: &Figures, name: &str) -> Option<f64> {
        figures.latency_ns.as_ref()?.percentile(name).map(|ns| ns as f64)
    }
    const STATISTICS: [Statistic; 5] = [
        ("latency_ns.p50", |figures| percentile(figures, "p50")),
        ("latency_ns.p90", |figures| percentile(figures, "p90")),
        ("latency_ns.p99", |figures| percentile(figures, "p99")),
        ("throughput_bps", |figures| figures.throughput_bps),
        ("throughput_back_bps", |figures| figures.throughput_back_bps),
    ];
    for (name, get) in STATISTICS {
        let values: Vec<f64> = parts.iter().filter_map(|part| get(&part.figures)).collect();
        figures.intervals.remove(name);
        // Too few repetitions give no interval, and the one within a run would promise too much.
        if let Some(interval) = stats::median_interval(&values, 0.95, 1) {
            figures.intervals.insert(name.to_owned(), interval);
        }
    }
}

/// What the plan asked for, with units in the names.
fn asked(case: &Case) -> Map<String, Value> {
    let value = json!({
        "peer": case.peer,
        "peer_options": case.peer_options,
        "direction": case.direction.map(Direction::name),
        "endpoints": case.endpoints,
        "pacing": case.pacing,
        "stop": case.stop,
        "warm_up": case.warm_up,
        "timeout_ns": case.timeout.as_nanos() as u64,
        "wait": case.wait,
        "pin": case.pin,
        "probe_per_second": case.probe_per_second,
    });
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// Where both ends ran and how they waited: a figure without it means nothing.
fn placement(case: &Case) -> Map<String, Value> {
    let cpu = |cpu: Option<u32>| cpu.map_or_else(|| Value::from("any"), Value::from);
    let mut placement = Map::new();
    placement.insert("near_cpu".to_owned(), cpu(case.pin.near));
    placement.insert("far_cpu".to_owned(), cpu(case.pin.far));
    placement.insert("wait".to_owned(), if case.wait == Wait::Spin { "spin" } else { "block" }.into());
    placement
}

fn line_facts(line: Line) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("bits_per_second".to_owned(), line.bits_per_second.into());
    facts.insert("bits_per_byte".to_owned(), line.bits_per_byte.into());
    facts
}

/// What an exchange costs the instrument itself: the median over `mem://` in real time, in nanoseconds (about 10 ms).
pub fn floor_ns() -> f64 {
    const EXCHANGES: u64 = 20_000;
    let measure = || -> Option<f64> {
        let dialer = Dialer::new(Clock::System);
        let endpoint: crate::endpoint::Endpoint = "mem://floor".parse().ok()?;
        let mut listener = dialer.listen(&endpoint).ok()?;
        let caps = crate::link::caps(&endpoint).ok()?;
        let far = move |_: &str| -> Box<dyn crate::link::party::Party> {
            Box::new(crate::peer::echo_far_end(&caps, Duration::from_secs(60)))
        };
        listener.host(Box::new(far)).ok()?;
        let spec = crate::plan::CaseSpec {
            url: Some(crate::plan::OneOrMany::One(endpoint)),
            peer: Some("echo".to_owned()),
            workload: Some("latency".to_owned()),
            count: Some(crate::units::Count(EXCHANGES)),
            ..Default::default()
        };
        let plan = check(Plan::new(None, 1, false, spec.expand().ok()?).ok()?).ok()?;
        let mut bench = Bench {
            dialer,
            observer: &(),
            cancel: &AtomicBool::new(false),
            token: None,
            raw: None,
            environment: Map::new(),
            floor_ns: None,
        };
        let run = run(&plan, &mut bench);
        run.cases.first()?.figures.latency_ns.as_ref()?.percentile("p50").map(|ns| ns as f64)
    };
    // The in-memory link has nothing that could fail; if it did, no result is near its floor.
    measure().unwrap_or(0.0)
}
