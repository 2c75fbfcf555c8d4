//! Runs a plan: order, repetitions, parallel ports, stop on a signal. Sends events, never prints.
//!
//! `check` makes a plan ready, `case_run` runs one of its cases, and `accumulator` makes the result of the repetitions.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::link::{Dialer, KeptLinks};
use crate::protocol::ConnectionCache;
use crate::workload::download::{ContentSender, PartialContent};
use linkgauge_model::clock::Time;
use linkgauge_model::run::{CaseResult, Environment, Failure, Figures, Run};
use linkgauge_model::sample::{RawFile, ReplyLogs};
use linkgauge_model::warnings;

mod accumulator;
mod case_run;
mod check;
mod default_pacing;
mod evidence;
mod flow_runner;
mod flow_threads;
mod live;
mod measurement;
mod no_data;
mod overhead;
mod split;
mod until;

use accumulator::CaseAccumulator;
use case_run::{CasePosition, CaseRun, DetectedProtocols, EndedCase, OpenCase};
use check::CheckedCase;
pub use check::{CheckedPlan, InvalidCase, InvalidCaseKind, check, estimate_duration};
pub use flow_threads::FlowThreads;
pub use measurement::FirstFailure;
pub use measurement::{Download, Latency, MeasureError, Measurement, Throughput};
pub use overhead::measure_overhead_ns;
pub use until::{Precision, run_until};

/// Values that a case has measured so far, while it runs.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LiveValues {
    /// Time since the start of the run, or of the case.
    pub elapsed_ns: u64,
    /// Replies, or delivered messages.
    pub messages: u64,
    /// Payload bytes of these messages. For an upload: the bytes that the server has received by its last report, or, without
    /// reports, the bytes that TCP has delivered.
    pub bytes: u64,
    /// Arrival time of the report with these bytes, since the begin of the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_at_ns: Option<u64>,
    /// Time from the first of these bytes until they were counted, by the receiver's clock, or the sender's where only it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiving_ns: Option<u64>,
    /// Messages lost so far.
    pub lost: u64,
    /// Median round trip so far, within 3 %; that of the probe, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the round trips so far, within 3 %; that of the probe, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Completed share of the plan, 0 to 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Expected time from the planned end until the last data arrives, if it is a second or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ns: Option<u64>,
    /// Remaining part of that expected time, once the planned time is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_left_ns: Option<u64>,
}

/// Events while a plan runs.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent<'a> {
    /// The run begins.
    Begins {
        /// Cases of the plan.
        cases: usize,
        /// Repetitions of each case.
        repeat: u32,
        /// Estimate from the plan; absent when it depends on the speed of the links.
        #[serde(skip_serializing_if = "Option::is_none")]
        estimate_ns: Option<u64>,
    },
    /// A repetition of a case begins.
    CaseBegins {
        /// Index of the case in the plan, from 0.
        case: usize,
        /// Index of the repetition, from 0.
        repetition: u32,
        /// The first endpoint, as typed.
        endpoint: &'a str,
        /// Name of the protocol.
        protocol: &'a str,
        /// Name of the workload.
        workload: &'a str,
        /// Payload of one message.
        message_bytes: u32,
    },
    /// Progress of a case, sent every interval while it runs. Counts start at the begin of the case.
    Progress {
        /// Index of the case in the plan, from 0.
        case: usize,
        /// Index of the repetition, from 0.
        repetition: u32,
        /// The values so far.
        #[serde(flatten)]
        values: LiveValues,
    },
    /// A repetition of a case has figures.
    CaseEnds {
        /// Index of the case in the plan, from 0.
        case: usize,
        /// Index of the repetition, from 0.
        repetition: u32,
        /// Figures of the repetition.
        figures: &'a Figures,
    },
    /// A repetition of a case failed.
    Failed {
        /// Index of the case in the plan, from 0.
        case: usize,
        /// Index of the repetition, from 0.
        repetition: u32,
        /// Endpoint, cause and remedy, for people.
        reason: &'a str,
    },
    /// The run is over.
    Ends {
        /// Whether everything planned was measured.
        complete: bool,
        /// Time since the start of the run, or of the case.
        elapsed_ns: u64,
    },
}

/// Receives the events of a run.
pub trait Observer: Sync {
    /// The run waits until it returns, so it must not block.
    fn event(&self, event: &RunEvent);
}

/// Ignores all events.
impl Observer for () {
    fn event(&self, _event: &RunEvent) {}
}

/// Inputs of a run besides its plan.
pub struct RunContext<'a> {
    /// The cancel flag ends the current case with the data so far, and no further case starts.
    pub dialer: Dialer,
    /// Receives the events.
    pub observer: &'a dyn Observer,
    /// Shared secret, for servers that require one.
    pub token: Option<String>,
    /// File for every single sample.
    pub raw: Option<RawFile>,
    /// Receives the fate of each request of round trips, for a thread that prints it.
    pub replies: Option<Arc<ReplyLogs>>,
    /// Receiver of the content of a download; takes the content of one case.
    pub content: Option<ContentSender>,
    /// Part of the content that the receiver has from an earlier download of the file.
    pub partial_content: Option<PartialContent>,
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
            replies: None,
            content: None,
            partial_content: None,
            environment: Map::new(),
            connection_cache: Arc::default(),
            overhead_ns: None,
        }
    }

    /// Makes the same context with another observer; it takes the inputs that only one run can have.
    pub(crate) fn observed_by<'b>(&mut self, observer: &'b dyn Observer) -> RunContext<'b> {
        RunContext {
            dialer: self.dialer.clone(),
            observer,
            token: self.token.clone(),
            raw: self.raw.take(),
            replies: self.replies.clone(),
            content: self.content.take(),
            partial_content: self.partial_content.take(),
            environment: self.environment.clone(),
            connection_cache: self.connection_cache.clone(),
            overhead_ns: self.overhead_ns,
        }
    }

    /// Whether the user has stopped the run.
    pub fn is_interrupted(&self) -> bool {
        self.dialer.cancel.load(Relaxed)
    }
}

/// A run that has begun.
struct BegunRun {
    title: Option<String>,
    started: Time,
    stamp: Timestamp,
    accumulators: Vec<CaseAccumulator>,
    /// The links that the caller keeps open.
    kept_links: Option<KeptLinks>,
}

impl BegunRun {
    pub fn new(plan: &CheckedPlan, context: &mut RunContext) -> BegunRun {
        let started = context.dialer.now();
        let stamp = linkgauge_model::clock::wall_clock_date();
        context.observer.event(&RunEvent::Begins {
            cases: plan.cases.len(),
            repeat: plan.repeat,
            estimate_ns: estimate_duration(plan).map(|time| time.as_nanos() as u64),
        });
        let accumulators = plan.cases.iter().map(|case| CaseAccumulator::new(case, plan.repeat)).collect();
        let kept_links = context.dialer.kept_links.clone();
        context.dialer.kept_links.get_or_insert_default();
        BegunRun { title: plan.title.clone(), started, stamp, accumulators, kept_links }
    }

    /// Notes why a repetition of a case is incomplete.
    fn note_failure(&mut self, context: &RunContext, position: CasePosition, failure: Failure) {
        let CasePosition { case, repetition, .. } = position;
        let reason = failure.message.as_str();
        context.observer.event(&RunEvent::Failed { case, repetition, reason });
        self.accumulators[case].failures.push(failure);
    }

    /// The document.
    pub fn end(self, context: &mut RunContext) -> Run {
        context.dialer.kept_links = self.kept_links;
        let interrupted = context.is_interrupted();
        let accumulators = self.accumulators;
        let server =
            accumulators.iter().flat_map(|accumulator| accumulator.server_environment.clone()).collect();
        let cases: Vec<CaseResult> =
            accumulators.into_iter().map(|a| a.into_result(context.overhead_ns)).collect();
        let environment = Environment { client: context.environment.clone(), server };
        let elapsed_ns = context.dialer.now().since(self.started).as_nanos() as u64;
        let mut run = Run::of_cases(self.stamp, elapsed_ns, cases, environment);
        (run.title, run.interrupted) = (self.title, interrupted);
        run.warnings = warnings::host_warnings(&run.environment.client);
        if let Some(raw) = context.raw.take() {
            run.warnings.extend(warnings::raw_file_warning(raw.finish()));
        }
        context.observer.event(&RunEvent::Ends { complete: run.is_complete(), elapsed_ns: run.elapsed_ns });
        run
    }
}

/// Runs a checked plan. The document always has the data measured so far, even after an error or interrupt.
pub fn run(plan: &CheckedPlan, context: &mut RunContext) -> Run {
    let mut begun = BegunRun::new(plan, context);
    let mut detected = DetectedProtocols::new();
    'plan: for repetition in 0..plan.repeat {
        for (case, checked) in plan.cases.iter().enumerate() {
            if context.is_interrupted() {
                break 'plan;
            }
            let position = CasePosition { case, repetition, repeat: plan.repeat, is_part: plan.is_split };
            let accumulator = &mut begun.accumulators[case];
            if repetition >= accumulator.repeat {
                continue;
            }
            let ran = open_repetition(context, checked, position, &mut detected, accumulator)
                .and_then(|open| open.run(context, accumulator));
            if let Err(failure) = ran {
                begun.note_failure(context, position, failure);
                if !plan.keep_going && !context.is_interrupted() {
                    break 'plan;
                }
            }
        }
    }
    begun.end(context)
}

/// Opens the links of a repetition. If that takes long for the first part of a measurement, the case is measured as a whole.
fn open_repetition(
    context: &RunContext,
    checked: &CheckedCase,
    position: CasePosition,
    detected: &mut DetectedProtocols,
    accumulator: &mut CaseAccumulator,
) -> Result<OpenCase, Failure> {
    let prepared = CaseRun::prepare(context, checked, position, detected)?;
    let began = context.dialer.now();
    let open = prepared.open(context, accumulator)?;
    if !position.is_part || position.repetition > 0 {
        return Ok(open);
    }
    let set_up = context.dialer.now().since(began);
    match split::reason_against_parts(&accumulator.case, set_up, position.repeat) {
        None => Ok(open),
        Some(reason) => {
            drop(open);
            accumulator.measure_as_a_whole(reason);
            let whole = CasePosition { repeat: 1, is_part: false, ..position };
            CaseRun::prepare(context, checked, whole, detected)?.open(context, accumulator)
        }
    }
}

/// A run whose flows have ended, without its document.
pub struct EndedRun {
    context: RunContext<'static>,
    begun: BegunRun,
    /// The case; absent if it is in the accumulator already.
    ended: Option<EndedCase>,
}

impl EndedRun {
    /// The document. Waits for the report of the server.
    pub fn finish(self) -> Run {
        let EndedRun { mut context, mut begun, ended } = self;
        if let Some(Err(failure)) =
            ended.map(|ended| ended.finish(&context, &mut begun.accumulators[ONLY_CASE.case]))
        {
            begun.note_failure(&context, ONLY_CASE, failure);
        }
        begun.end(&mut context)
    }
}

/// The place of a case that runs alone, once.
const ONLY_CASE: CasePosition = CasePosition { case: 0, repetition: 0, repeat: 1, is_part: false };

/// Begins to run the first case of a plan once. If its flows can share threads, they run in these, and this function returns as soon
/// as the links are open. `on_ended` is called after the flows have ended: in one of those threads, or in this one.
pub fn run_in_threads(
    plan: &CheckedPlan,
    mut context: RunContext<'static>,
    threads: Option<&FlowThreads>,
    on_ended: impl FnOnce(EndedRun) + Send + 'static,
) {
    let mut begun = BegunRun::new(plan, &mut context);
    let accumulator = &mut begun.accumulators[ONLY_CASE.case];
    let opened = CaseRun::prepare(&context, &plan.cases[0], ONLY_CASE, &mut DetectedProtocols::new())
        .and_then(|case_run| case_run.open(&context, accumulator));
    let ran = opened.and_then(|open| match threads.filter(|_| open.can_be_guest()) {
        Some(threads) => Ok(Some((open, threads))),
        None => open.run(&context, accumulator).map(|()| None),
    });
    match ran {
        Ok(Some((open, threads))) => {
            open.start_as_guest(threads, move |case| {
                on_ended(EndedRun { context, begun, ended: Some(case) })
            });
        }
        Ok(None) => on_ended(EndedRun { context, begun, ended: None }),
        Err(failure) => {
            begun.note_failure(&context, ONLY_CASE, failure);
            on_ended(EndedRun { context, begun, ended: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Registry;
    use std::time::Duration;

    use super::*;
    use crate::link::party::{Party, Step};
    use linkgauge_model::clock::Clock;
    use linkgauge_model::plan::{CaseSpec, Plan};

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
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let endpoint: linkgauge_model::endpoint::Endpoint = "mem://server".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let caps = Registry::standard().transports.caps(&endpoint).unwrap();
        let new_server = move |_: &str| -> Box<dyn crate::link::party::Party> {
            Box::new(crate::protocol::echo_reflector(&caps, Duration::from_secs(60)))
        };
        assert!(listener.set_party_factory(Box::new(new_server)).is_ok());
        let spec = CaseSpec {
            url: Some(linkgauge_model::plan::OneOrMany::One(endpoint)),
            protocol: Some("echo".to_owned()),
            workload: Some("latency".to_owned()),
            ..CaseSpec::default()
        };
        let plan = check(Plan::new(spec.expand().unwrap()).unwrap(), Registry::standard()).unwrap();
        let observer = CancelOnCaseStart(&dialer.cancel.clone());
        let mut context = RunContext::new(dialer, &observer);
        let run = run(&plan, &mut context);
        assert!(run.interrupted && !run.cases[0].complete);
    }

    fn case_at(endpoint: &str, timeout: Duration) -> CheckedPlan {
        let spec = CaseSpec {
            url: Some(linkgauge_model::plan::OneOrMany::One(endpoint.parse().unwrap())),
            workload: Some("latency".to_owned()),
            timeout: Some(linkgauge_model::units::Span(timeout)),
            ..CaseSpec::default()
        };
        check(Plan::new(spec.expand().unwrap()).unwrap(), Registry::standard()).unwrap()
    }

    #[test]
    fn an_interrupt_ends_the_probe_of_a_silent_server() {
        // The kernel accepts the connection.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let dialer = Registry::standard().dialer(Clock::System);
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
        let dialer = Registry::standard().dialer(Clock::new_virtual());
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
