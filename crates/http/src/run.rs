//! Measurements as a run, with the events of any other run.

use std::time::Duration;

use super::client::{HttpMeasurement, HttpResult, measure};
use super::error::HttpError;
use linkgauge_engine::schedule::{LiveValues, RunContext, RunEvent};
use linkgauge_model::clock::wall_clock_date;
use linkgauge_model::run::{AddedLatency, CaseResult, Environment, Failure, Figures, Run};

/// Name of the protocol in documents and reports.
const PROTOCOL: &str = "https";

/// The method: draft 09 with the handshakes of TCP and TLS.
const METHOD: &str = "rpm/09";

/// Measures one case after the other. A case that fails has its reason.
pub fn run(plans: &[HttpMeasurement], context: &mut RunContext) -> Run {
    let (started, stamp) = (context.dialer.now(), wall_clock_date());
    let longest: Duration = plans.iter().map(|plan| plan.idle + plan.time).sum();
    let estimate_ns = Some(longest.as_nanos() as u64);
    context.observer.event(&RunEvent::Begins { cases: plans.len(), repeat: 1, estimate_ns });
    let mut cases = Vec::new();
    for (index, plan) in plans.iter().enumerate().take_while(|_| !context.is_interrupted()) {
        cases.push(run_case(index, plan, context));
    }
    let environment = Environment { client: context.environment.clone(), server: Default::default() };
    let elapsed_ns = context.dialer.now().since(started).as_nanos() as u64;
    let mut run = Run::of_cases(stamp, elapsed_ns, cases, environment);
    run.interrupted = context.is_interrupted();
    run.warnings = linkgauge_model::warnings::host_warnings(&run.environment.client);
    context.observer.event(&RunEvent::Ends { complete: run.is_complete(), elapsed_ns });
    run
}

fn run_case(index: usize, plan: &HttpMeasurement, context: &RunContext) -> CaseResult {
    let (case, repetition) = (index, 0);
    let observer = context.observer;
    observer.event(&RunEvent::CaseBegins {
        case,
        repetition,
        endpoint: &plan.url,
        protocol: PROTOCOL,
        workload: "responsiveness",
        message_bytes: 0,
    });
    let progress = |elapsed: Duration, bytes: u64| {
        let share = Some((elapsed.as_secs_f64() / plan.time.as_secs_f64()).min(1.0));
        let elapsed_ns = elapsed.as_nanos() as u64;
        let values = LiveValues { elapsed_ns, bytes, share, ..LiveValues::default() };
        observer.event(&RunEvent::Progress { case, repetition, values });
    };
    let measured = measure(plan, &context.dialer.cancel, &progress);
    let of = |figures: Figures| CaseResult {
        protocol: PROTOCOL.to_owned(),
        method: METHOD.to_owned(),
        parallel: plan.connections,
        ..CaseResult::of_figures(plan.url.clone(), "responsiveness", plan.direction, figures)
    };
    match measured {
        Ok(result) => {
            observer.event(&RunEvent::CaseEnds { case, repetition, figures: &result.figures });
            with_probes(of(result.figures.clone()), result, context.is_interrupted())
        }
        Err(error) => {
            let reason = match &error {
                HttpError::Url { .. } => error.to_string(),
                _ => format!("{}: {error}", plan.url),
            };
            observer.event(&RunEvent::Failed { case, repetition, reason: &reason });
            let failures = vec![Failure::new(error.failure_kind(), reason)];
            CaseResult { complete: false, failures, ..of(Figures::default()) }
        }
    }
}

/// Adds the probes on new connections and the facts of the connection.
fn with_probes(mut case: CaseResult, result: HttpResult, is_interrupted: bool) -> CaseResult {
    let idle_p50_ns = result.idle.times.latency_ns.as_ref().and_then(|times| times.percentile("p50"));
    case.figures.added_latency = idle_p50_ns.map(|ns| AddedLatency::new(ns, Some(&result.beside)));
    case.effective.insert("tls".to_owned(), result.tls_version.into());
    case.elapsed_ns = result.elapsed.as_nanos() as u64;
    case.complete = !is_interrupted;
    (case.idle, case.under_load) = (Some(result.idle), Some(result.beside));
    case
}
