//! Explains the throughput of a link: which setting or resource limits it.
//!
//! The screen is a short transfer, with the counters of both systems. Each cause that a setting of the transfer changes is
//! tested in pairs with the baseline: twice the buffer, several connections, another message size, a lower rate. Their
//! effects on the rate tell the causes apart: a window limits if the rate follows it, a link if nothing but less load helps.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{CauseFinding, CauseVerdict, LiveError, LiveOptions, large};
use crate::explain::causes::{self, Target};
use crate::explain::counters::{self, rates};
use linkgauge_engine::link::Dialer;
use linkgauge_model::clock::wall_clock_date;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{Evidence, TOOL};
use linkgauge_model::stats::{Interval, SplitMix64};
use linkgauge_model::units::{BitRate, RateTarget, format_plural};

mod blocks;
mod pairs;
mod trials;
mod verdicts;

use blocks::{RateBlock, RateBlocks};

/// Schema of the document.
pub(crate) const RATE_SCHEMA: &str = "linkgauge.explain-throughput.v1";

/// Shares of the budget: the screen, the pairs, and the transfer with all proved settings.
const SCREEN_SHARE: f64 = 0.1;
const PROVE_SHARE: f64 = 0.78;
const AFTER_SHARE: f64 = 0.06;
/// Maximum time of the screen; longer transfers show nothing more.
const MAX_SCREEN_TIME: Duration = Duration::from_secs(5);

/// The transfer whose rate is explained.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransferOptions {
    /// Direction of the payload; `None`: that of the protocol, mostly upload.
    pub direction: Option<Direction>,
    /// Offered rate of each connection; `None`: full speed, where that disturbs no other traffic.
    pub bit_rate: Option<RateTarget<BitRate>>,
}

/// A cause that may limit the rate, and what is known about it here.
pub type RateFinding = CauseFinding<RateEffect>;

/// Effect of the change of a setting on the rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RateEffect {
    /// The change, like `rcvbuf=128Ki at the server`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Ratio of the changed quantity to that of the baseline, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Rate with the change, divided by the rate without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// 95 % interval of the gain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gain_interval: Option<Interval>,
    /// Share of the busy time in which the cause stopped the sender, where that is less than half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_share: Option<f64>,
    /// p-value of the signed-rank test, corrected for the number of tests (Holm).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Rate of the baseline and with the change, pair by pair, in bit/s.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs_bps: Vec<[f64; 2]>,
}

/// The transfer with all proved settings, and what the counters say about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedRate {
    /// Delivered payload, in bit/s.
    pub throughput_bps: f64,
    /// The cause that the counters agree with then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cause: Option<&'static str>,
}

/// The explanation of a throughput.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateExplanation {
    /// Schema of the document: `RATE_SCHEMA`.
    pub schema: &'static str,
    /// The program and version.
    pub tool: &'static str,
    /// Start.
    pub started: Timestamp,
    /// Duration.
    pub elapsed_ns: u64,
    /// The user interrupted before all was tested.
    pub interrupted: bool,
    /// Reason for the loss of the link before all was tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_link: Option<String>,
    /// The link, as typed.
    pub endpoint: String,
    /// Protocol of the remote.
    pub protocol: String,
    /// Direction of the payload, as the client sees it.
    pub direction: Direction,
    /// Message size.
    pub message_bytes: u32,
    /// Requested time.
    pub(crate) budget_ns: u64,
    /// Delivered payload, in bit/s, of the screen: the blocks of the tests are short, and much of them is their start.
    pub throughput_bps: f64,
    /// Pairs of each test that fitted into the time. 0: nothing was tested.
    pub pairs: u32,
    /// Pairs that were planned.
    pub(crate) planned_pairs: u32,
    /// The time that all tests would need, if some did not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) needed_ns: Option<u64>,
    /// The causes: first those that limit, by their effect.
    pub causes: Vec<RateFinding>,
    /// The raised rate, if a proved setting raises it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<ChangedRate>,
    /// Counters of both systems during the screen; absent on the virtual clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The counters of the screen that matter, in words.
    pub(crate) observations: Vec<String>,
}

/// Explains the throughput of a link, and reports its phase and the completed share (0 to 1) to `progress`.
///
/// # Errors
///
/// The link cannot carry the transfer. An interrupt after the screen returns what is known until then.
pub fn explain_rate(
    options: &LiveOptions,
    transfer: &TransferOptions,
    dialer: &Dialer,
    progress: &dyn Fn(&str, f64),
) -> Result<RateExplanation, LiveError> {
    let (started, began) = (wall_clock_date(), dialer.now());
    let target = Target::new(options.endpoint.clone());
    let target = target.map_err(LiveError::invalid)?.with_location(dialer.is_local(&options.endpoint));
    dialer.resolve_once(&options.endpoint);
    let deadline = began + options.budget;
    let mut runner = RateBlocks::new(options, transfer, (dialer, deadline), &target)?;
    progress("measuring the rate", 0.0);
    let screen = runner.run(&[], options.budget.mul_f64(SCREEN_SHARE).min(MAX_SCREEN_TIME));
    let screen = screen.map_err(|error| failure(error, options, dialer, &target))?;
    runner.detected(&screen.result);

    let mut counted = rates::limits(&screen.result);
    counted.extend(counters::line_causes(&screen.result));
    let mut plan = trials::plan(&screen, &target, &counted);
    let time = options.budget.mul_f64(SCREEN_SHARE + PROVE_SHARE).saturating_sub(dialer.now().since(began));
    let name = format!("testing {}", format_plural(plan.tests.len() as u64, "cause"));
    let report = |share: f64| progress(&name, SCREEN_SHARE + PROVE_SHARE * share);
    let random = &mut SplitMix64::new(options.seed);
    let sequence = pairs::measure(&runner, &mut plan, (time, screen.setup()), random, &report);
    let findings = verdicts::findings(&plan, &sequence, &counted, &screen);
    let mut is_interrupted = sequence.is_interrupted;
    let rounds = sequence.rounds() as u32;
    let time = options.budget.mul_f64(AFTER_SHARE);
    let has_ended = is_interrupted || sequence.lost.is_some() || runner.left() < time;
    let changed = (!has_ended).then(|| {
        progress("testing them together", 1.0 - AFTER_SHARE);
        changed_rate(&runner, &plan, &findings, time)
    });
    is_interrupted |= dialer.cancel.load(Relaxed);
    Ok(RateExplanation {
        schema: RATE_SCHEMA,
        tool: TOOL,
        started,
        elapsed_ns: dialer.now().since(began).as_nanos() as u64,
        interrupted: is_interrupted,
        lost_link: sequence.lost,
        endpoint: options.endpoint.to_string(),
        protocol: screen.result.protocol.clone(),
        direction: screen.result.direction,
        message_bytes: screen.result.message_bytes,
        budget_ns: options.budget.as_nanos() as u64,
        throughput_bps: screen.rate_bps,
        pairs: rounds,
        planned_pairs: super::prove::ROUNDS as u32,
        needed_ns: plan.needed.map(|needed| needed.as_nanos() as u64),
        causes: findings,
        changed: changed.flatten(),
        observations: verdicts::observations(&screen),
        evidence: screen.result.evidence,
    })
}

/// The reason why a transfer failed: small messages may have replies where large packets vanish.
fn failure(error: LiveError, options: &LiveOptions, dialer: &Dialer, target: &Target) -> LiveError {
    if !matches!(error, LiveError::Measurement(_)) || causes::named(target, causes::LARGE).is_none() {
        return error;
    }
    // The transfer took a part of the time already.
    let runner = super::block_runner(options, (dialer, dialer.now() + options.budget / 2), target);
    match runner.ok().and_then(|(mut runner, _)| large::find_limit_of_transfer(&mut runner)) {
        Some(limit) => LiveError::Measurement(format!(
            "{}: {limit}, so the transfer stops. Large packets vanish on the path, or the server has a limit. Try: linkgauge path \
             --mtu, which names the hop",
            options.endpoint
        )),
        None => error,
    }
}

/// The budget of which the pairs get this time, in whole seconds.
fn budget_for(pairs: Duration) -> Duration {
    Duration::from_secs((pairs.as_secs_f64() / PROVE_SHARE).ceil() as u64)
}

/// The rate with all proved settings that raise it, and its next limit.
fn changed_rate(
    runner: &RateBlocks,
    plan: &trials::TestPlan,
    findings: &[RateFinding],
    time: Duration,
) -> Option<ChangedRate> {
    let raises = |id: &str| {
        findings.iter().any(|finding| {
            finding.id == id
                && finding.verdict == CauseVerdict::Proved
                && finding.effect.gain.is_some_and(|gain| gain > 1.0)
        })
    };
    let proved = plan.tests.iter().filter(|test| test.removes_limit() && raises(test.cause.id));
    let changes: Vec<_> = proved.flat_map(|test| test.changes.clone()).collect();
    if changes.is_empty() {
        return None;
    }
    // Settings that only exclude each other are no reason to lose the proofs.
    let block: RateBlock = runner.run(&changes, time).ok()?;
    let next_cause = rates::limits(&block.result).first().map(|cause| cause.id);
    Some(ChangedRate { throughput_bps: block.rate_bps, next_cause })
}
