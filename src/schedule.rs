//! Runs a plan: order, repetitions, parallel ports, stop on a signal. Sends events, never prints.
//!
//! The measurement itself is done by the workload's parties on the protocol's links.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::host::load;
use crate::link::Dialer;
use crate::plan::{Direction, Pacing, Plan};
use crate::protocol::{ConnectContext, ConnectionCache, Protocol, ReadyCase, auto};
use crate::run::{CaseResult, Environment, Figures, Run, SCHEMA, TOOL};
use crate::sample::{Progress, RawFile, Recorder};
use crate::warnings;
use crate::workload::download::ContentSender;
use crate::workload::report_check::LocalObservations;
use crate::workload::{FlowRole, receiving_ns};

mod accumulator;
mod check;
mod default_pacing;
mod flow_runner;
mod no_data;

use accumulator::CaseAccumulator;
use check::CheckedCase;
pub use check::{CheckedPlan, InvalidCase, check, estimate_duration};
use default_pacing::apply_default_pacing;
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
    /// Its cancel flag ends the current case with the data so far, and no further case starts.
    pub dialer: Dialer,
    pub observer: &'a dyn Observer,
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
    pub fn new(dialer: Dialer, observer: &'a dyn Observer) -> RunContext<'a> {
        RunContext {
            dialer,
            observer,
            token: None,
            raw: None,
            content: None,
            environment: Map::new(),
            connection_cache: Arc::default(),
            overhead_ns: None,
        }
    }

    fn is_interrupted(&self) -> bool {
        self.dialer.cancel.load(Relaxed)
    }
}

/// Runs a checked plan. The document always has the data measured so far, even after an error or interrupt.
pub fn run(plan: &CheckedPlan, context: &mut RunContext) -> Run {
    let clock = context.dialer.clock.clone();
    let started = clock.now();
    let stamp = crate::clock::wall_clock_date();
    context.observer.event(&RunEvent::Begins {
        cases: plan.cases.len(),
        repeat: plan.repeat,
        estimate_ns: estimate_duration(plan).map(|time| time.as_nanos() as u64),
    });
    let mut accumulators: Vec<CaseAccumulator> = plan.cases.iter().map(CaseAccumulator::new).collect();
    let mut detected = BTreeMap::new();
    'plan: for repetition in 0..plan.repeat {
        for (index, (checked, accumulator)) in plan.cases.iter().zip(&mut accumulators).enumerate() {
            if context.is_interrupted() {
                break 'plan;
            }
            let ran = resolve_for_run(checked, context, &mut detected)
                .and_then(|ready| run_case_once(context, (index, repetition), ready, accumulator));
            if let Err(reason) = ran {
                context.observer.event(&RunEvent::Failed { case: index, repetition, reason: &reason });
                accumulator.failures.push(reason);
                if !plan.keep_going && !context.is_interrupted() {
                    break 'plan;
                }
            }
        }
    }
    let interrupted = context.is_interrupted();
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
    (index, repetition): (usize, u32),
    (case, dialer): (ReadyCase, Dialer),
    accumulator: &mut CaseAccumulator,
) -> Result<(), String> {
    accumulator.case = case.clone();
    context.observer.event(&RunEvent::CaseBegins {
        case: index,
        repetition,
        endpoint: case.endpoints[0].as_str(),
        peer: case.protocol.name,
        workload: case.workload.name,
        message_bytes: case.load.message_bytes,
    });

    let progress: Mutex<Vec<Arc<Progress>>> = Mutex::default();
    let flow_number = AtomicUsize::new(0);
    let recorder = |role: FlowRole, _port: usize| {
        let shared = Arc::<Progress>::default();
        let counts = matches!(role, FlowRole::RoundTrip | FlowRole::Download)
            || (role == FlowRole::Upload && case.direction != Direction::Loop);
        if counts && let Ok(mut all) = progress.lock() {
            all.push(shared.clone());
        }
        let scheduled =
            role == FlowRole::Probe || (role == FlowRole::RoundTrip && case.load.pacing != Pacing::Closed);
        // A sender's messages are not samples.
        let raw = context.raw.as_ref().filter(|_| role != FlowRole::Upload);
        let raw = raw.map(|raw| raw.sink(index, flow_number.fetch_add(1, Relaxed)));
        let mut recorder = Recorder::new(scheduled, case.series_interval.as_nanos() as u64, shared, raw);
        if matches!(role, FlowRole::RoundTrip | FlowRole::Probe) {
            recorder.watch_missed_frames(&case.late_limits);
        }
        recorder
    };
    let connect_context = ConnectContext {
        dialer: &dialer,
        token: context.token.as_deref(),
        content: context.content.as_ref(),
        connection_cache: &context.connection_cache,
        new_recorder: &recorder,
    };
    let mut session = (case.protocol.connect)(&case, &connect_context).map_err(|error| error.to_string())?;
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
    let (flowed, mut links) = run_flows(flows, &dialer, &case, &tick);
    // An interrupted case has partial data but no fault of its own.
    accumulator.was_interrupted |= context.is_interrupted();
    let elapsed = dialer.now().since(began);
    if let Some(before) = before {
        accumulator.record_load(&before, elapsed, &flowed);
    }
    while !context.is_interrupted() && session.is_draining(&mut links) {
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
        endpoints: &case.endpoints,
        load: &case.load,
        caps: &case.caps,
        flows: &flowed,
        elapsed: dialer.now().since(began),
        was_interrupted: context.is_interrupted(),
    };
    let (report, doubt) = accumulator.check_report(report, &known);
    // After an abort by the server, the client sees only a closed link.
    let server_fault = report.iter().flat_map(|report| &report.flows).find_map(|flow| flow.fault.clone());
    accumulator.record(flowed, report, elapsed);
    let mut silence = None;
    if let Some(part) = accumulator.repetitions.last() {
        context.observer.event(&RunEvent::CaseEnds { case: index, repetition, figures: &part.figures });
        silence = no_data::reason(&case, &part.figures).filter(|_| !context.is_interrupted());
    }
    server_fault.or(near_fault).or(report_fault).or(doubt).or(silence).map_or(Ok(()), Err)
}

/// Protocols that were detected, by endpoint.
type DetectedProtocols = BTreeMap<String, &'static Protocol>;

/// The case to run and the dialer of its links. With `auto`, the protocol is detected first, once for each endpoint.
fn resolve_for_run(
    checked: &CheckedCase,
    context: &RunContext,
    detected: &mut DetectedProtocols,
) -> Result<(ReadyCase, Dialer), String> {
    let mut dialer = context.dialer.clone();
    let load = &checked.ready.load;
    (dialer.wait, dialer.timeout) = (load.wait, load.timeout);
    let mut case = match &checked.undetected {
        None => checked.ready.clone(),
        Some(typed) => {
            let endpoint = &typed.endpoints[0];
            let protocol = match detected.get(endpoint.as_str()) {
                Some(protocol) => protocol,
                None => auto::detect(endpoint, &dialer).map_err(|error| error.to_string())?,
            };
            detected.insert(endpoint.to_string(), protocol);
            check::resolve(typed, protocol)?
        }
    };
    let scheme = case.endpoints[0].scheme();
    let port = case.protocol.default_ports.iter().find(|(name, _)| *name == scheme);
    dialer.default_port = port.map(|(_, port)| *port);
    apply_default_pacing(&mut case, &dialer);
    Ok((case, dialer))
}

/// Completed share of the plan.
fn completed_share(
    case: &ReadyCase,
    messages: u64,
    bytes: u64,
    elapsed_ns: u64,
    planned_bytes: u64,
) -> Option<f64> {
    let flows = u64::from(case.parallel) * case.endpoints.len() as u64;
    let part = |done: u64, of: Option<u64>| of.map(|of| done as f64 / of as f64);
    let of = |limit: Option<u64>| limit.map(|limit| limit * flows);
    [
        part(messages, of(case.load.stop.count)),
        part(bytes, of(case.load.stop.volume_bytes)),
        part(elapsed_ns, case.load.stop.time_ns),
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
        let mut context = RunContext::new(dialer, &());
        let run = run(&plan, &mut context);
        run.cases.first()?.figures.times.latency_ns.as_ref()?.percentile("p50").map(|ns| ns as f64)
    };
    // The in-memory link cannot fail; 0 means that no overhead is shown.
    measure().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::link::party::{Party, Step};
    use crate::plan::CaseSpec;

    /// Interrupts at the first event of the first case.
    struct CancelOnCaseStart<'a>(&'a std::sync::atomic::AtomicBool);

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
        let observer = CancelOnCaseStart(&dialer.cancel.clone());
        let mut context = RunContext::new(dialer, &observer);
        let run = run(&plan, &mut context);
        assert!(run.interrupted && !run.cases[0].complete);
    }

    fn case_at(endpoint: &str, timeout: Duration) -> CheckedPlan {
        let spec = CaseSpec {
            url: Some(crate::plan::OneOrMany::One(endpoint.parse().unwrap())),
            workload: Some("latency".to_owned()),
            timeout: Some(crate::units::Span(timeout)),
            ..CaseSpec::default()
        };
        check(Plan::new(None, 1, false, spec.expand().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn an_interrupt_ends_the_probe_of_a_silent_server() {
        // The kernel accepts the connection.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let dialer = Dialer::new(Clock::System);
        let cancel = dialer.cancel.clone();
        let began = dialer.now();
        let interrupt = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.store(true, Relaxed);
        });
        let plan = case_at(&endpoint, Duration::from_secs(60));
        let run = run(&plan, &mut RunContext::new(dialer, &()));
        assert!(run.interrupted && Clock::System.now().since(began) < Duration::from_secs(30));
        interrupt.join().unwrap();
    }

    /// Receives and never replies.
    struct SilentParty(crate::link::Batch);

    impl Party for SilentParty {
        fn next_step(&mut self, _now: Time) -> Step<'_> {
            Step::Receive { into: &mut self.0, until: Time::NEVER }
        }

        fn on_sent(&mut self, _bytes: usize, _at: Time) {}

        fn on_received(&mut self, _now: Time) {}

        fn on_timeout(&mut self, _now: Time) {}
    }

    #[test]
    fn a_short_timeout_holds_for_connecting() {
        let dialer = Dialer::new(Clock::new_virtual());
        let mut listener = dialer.listen(&"mem://silent".parse().unwrap()).unwrap();
        let new_server =
            |_: &str| -> Box<dyn Party> { Box::new(SilentParty(crate::link::Batch::new(100, 1))) };
        assert!(listener.set_party_factory(Box::new(new_server)).is_ok());
        let plan = case_at("mem://silent", Duration::from_millis(40));
        let run = run(&plan, &mut RunContext::new(dialer.clone(), &()));
        assert!(!run.is_complete());
        assert_eq!(dialer.now(), Time(40_000_000));
    }
}
