//! The counters model: what the evidence of a run says about its limits. Nothing is proved here: a counter that agrees
//! with a cause makes it a suspect, and only a changed setting decides.
//!
//! For a rate the rules stand in the order in which they exclude each other, as in a decision tree (`rates`); of a latency
//! each rule stands for itself.

use serde::Serialize;
use serde_json::json;

use super::causes::{self, Cause, Target};
use super::{ExplainError, Finding, FindingBlock, Model, ModelInput};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, EndEvidence};
use linkgauge_model::units::{format_nanoseconds, format_plural};

pub(crate) mod rates;

/// The counters model in the list of models.
pub const MODEL: Model = Model {
    name: "counters",
    summary: "causes that the counters of both systems agree with, of each case of a run",
    explain: |input, _| explain(input),
};

/// A counter that moved in this share of the requests belongs to them.
const MIN_REQUEST_SHARE: f64 = 0.5;
/// A median below this has other reasons.
const MIN_TIMER_NS: f64 = 5e6;
/// Waits that are a smaller share of the mean do not matter.
const MIN_WAIT_SHARE: f64 = 0.05;
/// Minimum share of the time that matters as steal.
const MIN_STEAL_SHARE: f64 = 0.02;

/// A cause that the counters of a case agree with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CountedCause {
    /// The name in the catalogue.
    pub(super) id: &'static str,
    /// The counters, in words.
    pub(super) evidence: String,
    /// Share of the busy time in which the cause stopped the sender, where that is less than half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial_share: Option<f64>,
}

/// The causes of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CaseCauses {
    /// Number in the run, from 1.
    case: usize,
    endpoint: String,
    workload: String,
    #[serde(skip)]
    direction: Direction,
    causes: Vec<CountedCause>,
}

fn explain(input: &ModelInput) -> Result<Finding, ExplainError> {
    let lacking = |why: &str| ExplainError::InsufficientData(why.to_owned());
    let ModelInput::Run(run) = input else { return Err(lacking("published figures have no counters")) };
    let cases = run.cases.iter().enumerate().filter(|(_, case)| case.evidence.is_some());
    let cases: Vec<CaseCauses> = cases
        .map(|(index, case)| CaseCauses {
            case: index + 1,
            endpoint: case.endpoint.clone(),
            workload: case.workload.clone(),
            direction: case.direction,
            causes: counted_causes(case),
        })
        .collect();
    if cases.is_empty() {
        return Err(lacking("no case has counters: measure it again with this version"));
    }
    Ok(Finding {
        model: MODEL.name,
        figures: json!({ "cases": cases }),
        summary: Vec::new(),
        blocks: blocks(&cases),
    })
}

/// The causes that the counters of this case agree with.
fn counted_causes(case: &CaseResult) -> Vec<CountedCause> {
    let limit = if case.workload == "latency" { None } else { rates::limits(case).into_iter().next() };
    let delays = if case.workload == "latency" { delays(case) } else { Vec::new() };
    let mut causes: Vec<CountedCause> = limit.into_iter().chain(delays).collect();
    for cause in line_causes(case).into_iter().chain(host_causes(case)) {
        if causes.iter().all(|known| known.id != cause.id) {
            causes.push(cause);
        }
    }
    causes
}

fn counted(id: &'static str, evidence: String) -> Option<CountedCause> {
    Some(CountedCause { id, evidence, partial_share: None })
}

/// Counters of the end that sends the payload.
struct Sender<'a>(&'a EndEvidence);

impl Sender<'_> {
    fn count(&self, name: &str) -> Option<f64> {
        self.0.counter(name).map(|count| count as f64)
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.0.gauge(name).map(|gauge| gauge.median as f64)
    }

    /// The share of the busy time that one counter took.
    fn busy_share(&self, name: &str) -> Option<f64> {
        let busy = self.count("tcp_busy_ns").filter(|busy| *busy > 0.0)?;
        Some(self.count(name)? / busy)
    }
}

/// Causes that delayed the replies of this case.
fn delays(case: &CaseResult) -> Vec<CountedCause> {
    let Some(evidence) = &case.evidence else { return Vec::new() };
    let client = Sender(&evidence.client);
    [delayed_acknowledgements(case), retransmissions(&client, evidence.server.as_ref()), run_queue(case)]
        .into_iter()
        .flatten()
        .collect()
}

/// The delayed acknowledgements of the host at this end. `None` for links that have none: then they are those of other programs.
fn delayed_acknowledgement_count(case: &CaseResult, end: &EndEvidence) -> Option<u64> {
    let target = Target::new(case.endpoint.parse().ok()?).ok()?;
    end.counter("TcpExt.DelayedACKs").filter(|_| target.has_delayed_acknowledgements())
}

/// Acknowledgements that the client delayed, one for each request.
pub(super) fn delayed_acknowledgements(case: &CaseResult) -> Option<CountedCause> {
    let replies = case.figures.counts.received.max(1) as f64;
    let delayed = delayed_acknowledgement_count(case, &case.evidence.as_ref()?.client)? as f64;
    let median = case.figures.times.latency_ns.as_ref()?.percentile("p50")? as f64;
    let text = format!(
        "{delayed:.0} delayed acknowledgements in {replies:.0} requests of {}: the server waits for them between its \
         writes (Nagle). ?quickack=1 decides",
        format_nanoseconds(median)
    );
    let belongs = delayed >= MIN_REQUEST_SHARE * replies && median > MIN_TIMER_NS;
    if belongs { counted("delayed_ack_nagle", text) } else { None }
}

fn retransmissions(client: &Sender, server: Option<&EndEvidence>) -> Option<CountedCause> {
    if let Some(timeouts) = client.count("tcp_retransmission_timeouts").filter(|timeouts| *timeouts > 0.0) {
        let text = format!("{timeouts:.0} retransmission timers of the client ran out");
        return counted("retransmission_timeout", text);
    }
    let both = |name: &str| {
        let ends = [Some(client.0), server];
        ends.into_iter().flatten().filter_map(|end| end.counter(name)).sum::<u64>()
    };
    let (again, sent) = (both("tcp_retransmitted_segments"), both("tcp_sent_segments"));
    let text = format!(
        "{again} of {sent} segments were sent again ({:.1} %)",
        100.0 * again as f64 / sent.max(1) as f64
    );
    // One can be by chance.
    if again > 1 { counted("path_loss", text) } else { None }
}

fn run_queue(case: &CaseResult) -> Option<CountedCause> {
    const NAME: &str = "thread_run_queue_wait_ns";
    let evidence = case.evidence.as_ref()?;
    let of_server = evidence.server.as_ref().and_then(|server| server.counter(NAME)).unwrap_or(0);
    let wait = evidence.client.counter(NAME)?.saturating_add(of_server) as f64;
    let per_reply = wait / case.figures.counts.received.max(1) as f64;
    let share = per_reply / case.figures.times.latency_ns.as_ref()?.mean;
    let text = format!(
        "the measuring threads waited {} for a CPU per request, {:.0} % of the mean round trip",
        format_nanoseconds(per_reply),
        100.0 * share.min(1.0)
    );
    if share >= MIN_WAIT_SHARE { counted("run_queue", text) } else { None }
}

/// Causes that the serial ports counted.
pub(super) fn line_causes(case: &CaseResult) -> Vec<CountedCause> {
    let Some(errors) = &case.figures.line_errors else { return Vec::new() };
    let overruns = format!("the port lost {}", format_plural(errors.overruns, "character"));
    let wrong = errors.framing + errors.parity;
    let noise = format!(
        "{} with framing errors, {} with parity errors",
        format_plural(errors.framing, "character"),
        errors.parity
    );
    let overruns = (errors.overruns > 0).then(|| counted("uart_overrun", overruns));
    let noise = (wrong > 0).then(|| counted("line_noise", noise));
    [overruns, noise].into_iter().flatten().flatten().collect()
}

/// Causes that disturbed the hosts.
fn host_causes(case: &CaseResult) -> Vec<CountedCause> {
    let Some(evidence) = &case.evidence else { return Vec::new() };
    let ends = [("client", Some(&evidence.client)), ("server", evidence.server.as_ref())];
    let ends = ends.into_iter().filter_map(|(name, end)| Some((name, end?)));
    ends.flat_map(|(name, end)| {
        let observed = end.observed_ns.max(1) as f64;
        let steal = Sender(end)
            .count("cpu_steal_ns")
            .map(|steal| steal / observed)
            .filter(|share| *share >= MIN_STEAL_SHARE);
        let throttled = end.counter("cgroup_throttled_periods").filter(|periods| *periods > 0);
        // TCP discards segments without a loss of data.
        let is_tcp = end.counter("tcp_sent_segments").is_some();
        let drops = end.counter("socket_drops").filter(|drops| *drops > 0 && !is_tcp);
        [
            steal.and_then(|share| counted("steal", format!("{name}: the hypervisor took {share:.2} CPUs"))),
            throttled.and_then(|periods| {
                counted("cpu_quota", format!("{name}: its CPU quota ran out {periods} times"))
            }),
            drops.and_then(|drops| {
                counted("receiver_socket_overflow", format!("{name}: its socket dropped {drops} packets"))
            }),
        ]
    })
    .flatten()
    .collect()
}

/// The entry of the catalogue.
fn catalogued(id: &str) -> Option<&'static Cause> {
    causes::all().map(|(_, cause)| cause).find(|cause| cause.id == id)
}

/// Answer such as `Counted in 1 of 2 cases: receive window too small.`
fn answer(cases: &[CaseCauses]) -> String {
    let of = format_plural(cases.len() as u64, "case");
    let mut names: Vec<&str> = Vec::new();
    for counted in cases.iter().flat_map(|case| &case.causes) {
        let name = catalogued(counted.id).map_or(counted.id, |cause| cause.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match cases.iter().filter(|case| !case.causes.is_empty()).count() {
        0 => format!("No counter agrees with a cause in {of}."),
        found => format!("Counted in {found} of {of}: {}.", names.join("; ")),
    }
}

fn blocks(cases: &[CaseCauses]) -> Vec<FindingBlock> {
    let mut blocks = vec![FindingBlock::Heading(answer(cases))];
    let mut none = Vec::new();
    for case in cases {
        let label = format!("{}. {}, {}", case.case, case.endpoint, case.workload);
        if case.causes.is_empty() {
            none.push(case.case.to_string());
        }
        for counted in &case.causes {
            let (name, remedy) = catalogued(counted.id)
                .map_or((counted.id, ""), |cause| (cause.name, causes::remedy(cause, case.direction)));
            blocks.push(FindingBlock::Text(format!(
                "{label}: {name} (counted): {}. Fix: {remedy}.",
                counted.evidence
            )));
        }
    }
    if !none.is_empty() && none.len() < cases.len() {
        let which = none.join(", ");
        blocks.push(FindingBlock::Text(format!("No counter agrees with a cause: case {which}.")));
    }
    let next = "A counter shows a suspect. 'linkgauge explain URL' measures the link and proves causes of its latency.";
    blocks.push(FindingBlock::Text(next.to_owned()));
    blocks
}

#[cfg(test)]
mod tests;
