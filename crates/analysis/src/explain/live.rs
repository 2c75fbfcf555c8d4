//! Explains a link by measuring it: screen, suspects, proofs.
//!
//! The screen measures round trips with and without pauses. Suspects are causes of the catalogue that the screen shows, or
//! that can be tested cheaply. The proof changes one setting at a time, in pairs with the baseline. What is only seen is
//! never called proved.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::causes::{self, CausePlace, Target};
use linkgauge_engine::Registry;
use linkgauge_engine::host::local_server::LocalServer;
use linkgauge_engine::link::Dialer;
use linkgauge_engine::schedule;
use linkgauge_engine::workload::latency;
use linkgauge_model::clock::{Time, wall_clock_date};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{Case, CaseSpec, OneOrMany, Plan};
use linkgauge_model::run::TOOL;
use linkgauge_model::stats::{self, Interval, SplitMix64};
use linkgauge_model::units::{Bytes, Span, format_duration, format_plural};

mod accounting;
mod blocks;
mod findings;
mod large;
mod lost;
mod path;
mod places;
mod prove;
mod rare;
pub mod rate;
mod screen;
mod signatures;

pub use accounting::{Accounting, Spread, Stage};
use blocks::{BlockRunner, Change};
use findings::{Allowed, Suspect};
pub(crate) use prove::DoseResponse;
use prove::Trial;
use rare::RareLog;
use screen::Screen;

/// Schema of the document.
pub(crate) const SCHEMA: &str = "linkgauge.explain.v1";

/// Default time of an explanation.
pub const DEFAULT_BUDGET: Duration = Duration::from_secs(60);

/// Default message size: several writes of a split reply, one packet of any link.
const DEFAULT_MESSAGE_BYTES: u32 = 64;
/// Default message size on serial lines, where each byte takes long.
const DEFAULT_MESSAGE_BYTES_ON_LINES: u32 = 1;
/// Suspects that are tested at most; more share the time.
const MAX_SUSPECTS: usize = 8;
/// Share of the budget for the proofs, for all proved causes together, and for the doses.
const PROVE_SHARE: f64 = 0.52;
const COMBINED_SHARE: f64 = 0.1;
const DOSE_SHARE: f64 = 0.04;
/// Share of the budget, and mean pause, of requests that show whether losses come from the rate.
const LOSS_SHARE: f64 = 0.2;
const LONG_PAUSE: Duration = Duration::from_millis(100);
/// Minimum share of the budget for further requests after the tests.
const MIN_WATCHED_SHARE: f64 = 0.1;
/// Blocks with one client, and as many with several.
const CLIENT_ROUNDS: u32 = 3;

/// Makes a change like `rx_trig_bytes=1` to the device of the link, which lasts until the returned value is dropped.
pub type ChangeDevice = dyn Fn(&str) -> Result<Box<dyn Any>, LiveError>;

/// Changes settings of a device that all programs share, as far as the user allows it. The program restores them, also
/// after a crash.
#[derive(Clone)]
pub struct DeviceChanger {
    /// The settings that may change, by name.
    pub names: Vec<String>,
    /// Makes the change.
    pub make: Rc<ChangeDevice>,
}

impl DeviceChanger {
    fn change(&self, setting: &str) -> Result<Box<dyn Any>, LiveError> {
        (self.make)(setting)
    }
}

impl fmt::Debug for DeviceChanger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceChanger").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Link to explain, and the options of the explanation.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// The link.
    pub endpoint: Endpoint,
    /// Protocol of the remote, or `auto`.
    pub protocol: String,
    /// Options of the protocol.
    pub protocol_options: BTreeMap<String, String>,
    /// Message size; `None`: 64 bytes, 1 byte on a serial line.
    pub message_bytes: Option<u32>,
    /// Time for the whole explanation.
    pub budget: Duration,
    /// Time for each connection and reply; `None`: that of the workload.
    pub timeout: Option<Duration>,
    /// The secret that the server requires.
    pub token: Option<String>,
    /// Changes settings of the device; `None`: they stay as they are.
    pub change_device: Option<DeviceChanger>,
    /// Seed of the pauses and of the order: the same seed gives the same ones.
    pub seed: u64,
}

impl LiveOptions {
    /// The defaults for an endpoint.
    pub fn new(endpoint: Endpoint) -> LiveOptions {
        LiveOptions {
            endpoint,
            protocol: "auto".to_owned(),
            protocol_options: BTreeMap::new(),
            message_bytes: None,
            budget: DEFAULT_BUDGET,
            timeout: None,
            token: None,
            change_device: None,
            seed: 1,
        }
    }
}

/// Error of an explanation of a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// A setting is invalid, or the link or the protocol does not support it.
    #[error("{0}")]
    InvalidCase(String),
    /// The link could not be measured.
    #[error("{0}")]
    Measurement(String),
    /// The cancel flag of the dialer was set before the screen had ended.
    #[error("interrupted before there was enough to explain. Try: a shorter --time")]
    Interrupted,
}

impl LiveError {
    fn invalid(error: impl Display) -> LiveError {
        LiveError::InvalidCase(error.to_string())
    }
}

/// Level of knowledge about a cause. The words are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseVerdict {
    /// The setting was changed, and the effect has an interval that excludes none.
    Proved,
    /// The samples show its signature.
    Seen,
    /// A counter of the system agrees with it.
    Counted,
    /// The cause was tested, and the data decide nothing.
    NotShown,
    /// Something hints at the cause, but nothing here can test it.
    CannotTest,
    /// The setting was changed without effect.
    RuledOut,
}

impl CauseVerdict {
    /// Whether the cause takes part of the time, as far as is known.
    pub fn is_found(self) -> bool {
        matches!(self, CauseVerdict::Proved | CauseVerdict::Seen | CauseVerdict::Counted)
    }

    /// Word for this verdict, as printed.
    pub fn label(self) -> &'static str {
        match self {
            CauseVerdict::Proved => "proved",
            CauseVerdict::Seen => "seen",
            CauseVerdict::Counted => "counted",
            CauseVerdict::NotShown => "not decided",
            CauseVerdict::CannotTest => "cannot be tested here",
            CauseVerdict::RuledOut => "ruled out",
        }
    }
}

/// A cause and what is known about it here. Its effect is a part of the round trip, or a change of the rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseFinding<E = DelayEffect> {
    /// Name in the catalogue.
    pub id: &'static str,
    /// The family.
    pub family: &'static str,
    /// Place of the cause.
    pub place: CausePlace,
    /// Name for people.
    pub name: &'static str,
    /// Knowledge about the cause.
    pub verdict: CauseVerdict,
    /// The effect.
    #[serde(flatten)]
    pub effect: E,
    /// The reasons, in words.
    pub evidence: Vec<String>,
    /// Advice that removes the cause.
    pub remedy: &'static str,
}

impl CauseFinding {
    /// Part of the median round trip that the cause takes, in ns.
    pub fn share_ns(&self) -> Option<f64> {
        self.effect.cost_ns.filter(|cost| *cost > 0.0)
    }

    /// Time that the cause takes of the median or adds to the mean, whichever is more, in ns: causes are ranked by it.
    pub fn rank_ns(&self) -> f64 {
        self.share_ns().unwrap_or(0.0).max(self.effect.mean_ns.unwrap_or(0.0))
    }

    /// Whether the cause has what no other cause takes, so that the form of the latencies is the only thing known of it.
    pub(crate) fn is_rest(&self) -> bool {
        self.id == causes::SERVER
    }

    /// Whether the cause was found, and takes a part of the median or slows some requests.
    pub fn has_effect(&self) -> bool {
        let has_effect = self.rank_ns() > 0.0 || causes::slows_some_requests(self.id);
        self.verdict.is_found() && !causes::is_tick(self.id) && has_effect
    }
}

/// Effect of a cause on the round trip.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DelayEffect {
    /// Part of the median round trip that the cause takes, in ns. Estimated from the samples unless proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
    /// Time that the cause adds to the mean round trip of requests with or without pauses, in ns: the larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// 95 % interval of the cost, of tested causes; limits of the cost if the samples leave it open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_interval_ns: Option<Interval>,
    /// p-value of the signed-rank test, corrected for the number of tests (Holm).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Median round trip of the baseline and with the changed setting, pair by pair, in ns; of `run_queue` the mean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pairs_ns: Vec<[f64; 2]>,
    /// Dependence of the round trip on the value of the setting, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dose: Option<DoseResponse>,
}

/// Effect of all proved settings at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CombinedEffect {
    /// Cost of the causes together, in ns.
    pub(crate) cost_ns: f64,
    /// 95 % interval of the cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_interval_ns: Option<Interval>,
    /// The cost together minus the sum of the single costs, in ns.
    pub(crate) interaction_ns: f64,
}

/// The explanation of a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Schema of the document: `SCHEMA`.
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
    /// Message size.
    pub message_bytes: u32,
    /// Requested time.
    pub(crate) budget_ns: u64,
    /// Median round trip of one request after the other, in ns: what is explained.
    pub median_ns: f64,
    /// The fastest round trip, in ns.
    pub(crate) fastest_ns: f64,
    /// Round trips of the screen, and those without a reply.
    pub requests: u64,
    /// Requests without a reply.
    pub lost: u64,
    /// Mean of the random pauses of the screen, in ns.
    pub(crate) mean_pause_ns: u64,
    /// Pairs of each test that fitted into the time. 0: nothing was tested.
    pub pairs: u32,
    /// Pairs that were planned.
    pub(crate) planned_pairs: u32,
    /// The causes, the most expensive first within each verdict.
    pub causes: Vec<CauseFinding>,
    /// Effect of all proved causes together, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) combined: Option<CombinedEffect>,
    /// The part of the median that no cause explains, in ns.
    pub unexplained_ns: f64,
    /// The parts of the round trips without a pause.
    pub accounting: Accounting,
}

/// Explains the link, and reports its phase and the completed share (0 to 1) to `progress`.
///
/// # Errors
///
/// The link cannot be measured. An interrupt after the screen returns what is known until then.
pub fn explain_live(
    options: &LiveOptions,
    dialer: &Dialer,
    progress: &dyn Fn(&str, f64),
) -> Result<Explanation, LiveError> {
    let (started, began) = (wall_clock_date(), dialer.now());
    let target = Target::new(options.endpoint.clone());
    let target = target.map_err(LiveError::invalid)?.with_location(dialer.is_local(&options.endpoint));
    // The name was asked for before, so this is what a further connection waits for.
    let look_up = dialer.resolve_once(&options.endpoint);
    let (mut runner, can_resize) = block_runner(options, (dialer, began + options.budget), &target)?;
    progress("measuring round trips", 0.0);
    let mut screen = Screen::measure(&mut runner, &target, options.budget, options.seed)?;
    screen.look_up = look_up;
    // Some protocols choose the size.
    runner.use_protocol(&screen.closed.result.protocol);
    let message_bytes = screen.closed.result.message_bytes;

    let allowed = Allowed { options, can_resize };
    let mut suspects = findings::suspects(&screen, &target, &allowed);
    let proving = Proving { runner: &runner, options, screen: &screen, target: &target, progress };
    let (proved, combined) = proving.prove_all(&mut suspects, &allowed)?;
    let Proved { mut is_interrupted, lost, pairs } = proved;
    is_interrupted |= dialer.cancel.load(std::sync::atomic::Ordering::Relaxed);
    let baseline_ns = suspects.iter().find_map(Suspect::baseline_ns);
    let median_ns = baseline_ns.unwrap_or_else(|| screen.median_ns());
    let causes = findings::findings(suspects, &screen, median_ns);
    let unexplained_ns = unexplained_ns(median_ns, &causes, combined.as_ref());
    Ok(Explanation {
        schema: SCHEMA,
        tool: TOOL,
        started,
        elapsed_ns: dialer.now().since(began).as_nanos() as u64,
        interrupted: is_interrupted,
        lost_link: lost,
        endpoint: options.endpoint.to_string(),
        protocol: screen.closed.result.protocol.clone(),
        message_bytes,
        budget_ns: options.budget.as_nanos() as u64,
        median_ns,
        fastest_ns: screen.fastest_ns(),
        requests: screen.replies() + screen.lost(),
        lost: screen.lost(),
        mean_pause_ns: screen.mean_pause.as_nanos() as u64,
        pairs,
        planned_pairs: prove::ROUNDS as u32,
        causes,
        combined,
        unexplained_ns,
        accounting: accounting::account(&screen),
    })
}

/// The blocks of the baseline until the deadline, and whether its message size may change.
fn block_runner(
    options: &LiveOptions,
    (dialer, deadline): (&Dialer, Time),
    target: &Target,
) -> Result<(BlockRunner, bool), LiveError> {
    let (case, can_resize) = base_case(options, target)?;
    let runner = BlockRunner {
        dialer: dialer.clone(),
        token: options.token.clone(),
        change_device: options.change_device.clone(),
        deadline,
        case,
        server: target.local_port().and_then(LocalServer::on_port),
        summaries: RefCell::default(),
    };
    Ok((runner, can_resize))
}

/// The case of the baseline, and whether its message size may change.
fn base_case(options: &LiveOptions, target: &Target) -> Result<(Case, bool), LiveError> {
    let largest =
        target.caps.max_message_bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    let usual = match target.caps.link_rate {
        Some(_) => DEFAULT_MESSAGE_BYTES_ON_LINES,
        None => DEFAULT_MESSAGE_BYTES,
    };
    let bytes = options.message_bytes.unwrap_or(usual.min(largest));
    let with_size = |bytes: Option<u32>| -> Result<Case, LiveError> {
        let spec = CaseSpec {
            url: Some(OneOrMany::One(options.endpoint.clone())),
            protocol: Some(options.protocol.clone()),
            protocol_options: options.protocol_options.clone(),
            workload: Some(latency::WORKLOAD.name.to_owned()),
            size: bytes.map(|bytes| OneOrMany::One(Bytes(bytes.into()))),
            timeout: options.timeout.map(Span),
            ..CaseSpec::default()
        };
        let case = spec.expand().map_err(LiveError::invalid)?.swap_remove(0);
        let plan = Plan::new(vec![case.clone()]).map_err(LiveError::invalid)?;
        schedule::check(plan, Registry::standard()).map(|_| case).map_err(LiveError::invalid)
    };
    match with_size(Some(bytes)) {
        Ok(case) => Ok((case, true)),
        // The protocol determines the size.
        Err(_) if options.message_bytes.is_none() => Ok((with_size(None)?, false)),
        Err(error) => Err(error),
    }
}

/// Result of the tests of the suspects.
struct Proved {
    is_interrupted: bool,
    /// Reason for the loss of the link.
    lost: Option<String>,
    /// Number of pairs of each test.
    pairs: u32,
}

/// The proofs of the suspects.
struct Proving<'a> {
    runner: &'a BlockRunner,
    options: &'a LiveOptions,
    screen: &'a Screen,
    target: &'a Target,
    progress: &'a dyn Fn(&str, f64),
}

impl Proving<'_> {
    /// A share of the budget, as far as it is left beside this reserve. `None` if less than half of it is left.
    fn time_for(&self, share: f64, reserve: f64) -> Option<Duration> {
        let planned = self.options.budget.mul_f64(share);
        let left = self.runner.left().saturating_sub(self.options.budget.mul_f64(reserve)).min(planned);
        (left >= planned.mul_f64(0.5)).then_some(left)
    }

    /// Tests the suspects, and measures what their outcomes ask for.
    fn prove_all(
        &self,
        suspects: &mut Vec<Suspect>,
        allowed: &Allowed,
    ) -> Result<(Proved, Option<CombinedEffect>), LiveError> {
        let random = &mut SplitMix64::new(self.options.seed);
        // One large message shows it; the proofs use the rest of the time.
        let is_interrupted =
            allowed.can_resize && self.measure_large(suspects)? || self.measure_losses(suspects)?;
        let mut proved = match is_interrupted {
            true => Proved { is_interrupted, lost: None, pairs: 0 },
            false => self.prove(suspects, random)?,
        };
        findings::use_cost_of_bytes(suspects, self.screen, self.target, allowed);
        if proved.lost.is_none() && !proved.is_interrupted {
            proved.is_interrupted = self.watch_longer()?;
        }
        let path = self.screen.path_now();
        path.iter().for_each(|path| findings::update_path(suspects, self.screen, self.target, path));
        let rare = RareLog(&self.runner.summaries.borrow()).sighting(self.target, path.as_ref());
        findings::add_rare(suspects, rare);
        if proved.is_interrupted || proved.lost.is_some() {
            return Ok((proved, None));
        }
        proved.is_interrupted = self.measure_doses(suspects, random)? || self.measure_clients(suspects)?;
        let combined = self.combine(suspects, random)?;
        Ok((proved, combined))
    }

    /// Tests the suspects.
    fn prove(&self, suspects: &mut [Suspect], random: &mut SplitMix64) -> Result<Proved, LiveError> {
        let time = self.time_for(PROVE_SHARE, COMBINED_SHARE).unwrap_or_default();
        let median = self.screen.request_time();
        let most = MAX_SUSPECTS.min(prove::trials_that_fit(time, median));
        let planned = suspects.iter().filter(|suspect| suspect.trial.is_some()).count().min(MAX_SUSPECTS);
        let needed = prove::time_for(planned, median).as_secs_f64() / PROVE_SHARE;
        let why = match most < MAX_SUSPECTS {
            true => {
                let needed = Duration::from_secs(needed.ceil() as u64);
                format!("it needs more time. Try --time {}", format_duration(needed))
            }
            false => format!("{MAX_SUSPECTS} likelier causes are tested"),
        };
        findings::leave_out_trials(suspects, most, &why);
        let trials: Vec<Trial> = suspects.iter().filter_map(|suspect| suspect.trial.clone()).collect();
        let name = format!("testing {}", format_plural(trials.len() as u64, "cause"));
        if trials.is_empty() {
            return Ok(Proved { is_interrupted: false, lost: None, pairs: 0 });
        }
        let report =
            |share: f64| (self.progress)(&name, 1.0 - PROVE_SHARE - COMBINED_SHARE + PROVE_SHARE * share);
        let sequence = prove::measure(self.runner, &trials, (time, median), random, &report)?;
        let why_none = match sequence.lost {
            Some(_) => Some("the link was lost before"),
            None => (sequence.rounds() == 0).then_some("the time was over before its first pair"),
        };
        let mut proofs = sequence.proofs(&trials, self.screen.closed.result.message_bytes).into_iter();
        for suspect in suspects.iter_mut().filter(|suspect| suspect.trial.is_some()) {
            suspect.set_proof(proofs.next(), why_none);
        }
        let pairs = sequence.rounds() as u32;
        Ok(Proved { is_interrupted: sequence.is_interrupted, lost: sequence.lost, pairs })
    }

    /// Uses the time that no test needs for further requests after pauses: rare events and slow changes of the path show in them.
    /// Returns whether the user interrupted.
    fn watch_longer(&self) -> Result<bool, LiveError> {
        let time =
            self.runner.left().saturating_sub(self.options.budget.mul_f64(COMBINED_SHARE + DOSE_SHARE));
        if time < self.options.budget.mul_f64(MIN_WATCHED_SHARE) {
            return Ok(false);
        }
        (self.progress)("watching for rare events", 1.0 - COMBINED_SHARE);
        let (pause, seed) = (self.screen.mean_pause, self.options.seed.wrapping_add(1));
        // The proofs are more than what this block would add.
        Ok(matches!(
            self.runner.run(&[], screen::paused_block(time, pause, seed)),
            Err(LiveError::Interrupted)
        ))
    }

    /// Measures whether fewer requests are lost after longer pauses, if some were lost. Returns whether the user interrupted.
    fn measure_losses(&self, suspects: &mut Vec<Suspect>) -> Result<bool, LiveError> {
        if self.screen.lost() == 0 {
            return Ok(false);
        }
        let pause = self.screen.mean_pause.max(LONG_PAUSE);
        let time = self.options.budget.mul_f64(LOSS_SHARE);
        match self.runner.run(&[], screen::paused_block(time, pause, self.options.seed.wrapping_add(2))) {
            Ok(block) => findings::update_losses(suspects, self.screen, self.target, (&block, pause)),
            Err(LiveError::Interrupted) => return Ok(true),
            // Then nothing is known about longer pauses.
            Err(_) => {}
        }
        Ok(false)
    }

    /// Measures how the round trip follows the values of proved settings. Returns whether the user interrupted.
    fn measure_doses(&self, suspects: &mut [Suspect], random: &mut SplitMix64) -> Result<bool, LiveError> {
        let Some(time) = self.time_for(DOSE_SHARE, 0.0) else { return Ok(false) };
        let median = self.screen.request_time();
        for (dose, proof) in suspects.iter_mut().filter_map(|suspect| suspect.proved_dose(self.target)) {
            match prove::measure_doses(self.runner, dose, (time, median), random) {
                Ok(response) => proof.dose = response,
                Err(LiveError::Interrupted) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Measures whether clients of a slow server wait for each other. Returns whether the user interrupted.
    fn measure_clients(&self, suspects: &mut [Suspect]) -> Result<bool, LiveError> {
        let Some(time) = self.time_for(DOSE_SHARE, 0.0).filter(|_| findings::has_slow_server(suspects))
        else {
            return Ok(false);
        };
        let block =
            prove::short_block(time.div_f64(f64::from(2 * CLIENT_ROUNDS)), self.screen.request_time());
        let (mut one, mut several) = (Vec::new(), Vec::new());
        for _ in 0..CLIENT_ROUNDS {
            for (changes, medians) in
                [(&[][..], &mut one), (&[Change::Parallel(places::CLIENTS)], &mut several)]
            {
                match self.runner.run(changes, block) {
                    Ok(block) => medians.extend(stats::median(&block.latencies_ns())),
                    Err(LiveError::Interrupted) => return Ok(true),
                    // Some protocols and servers have one client at a time.
                    Err(_) => return Ok(false),
                }
            }
        }
        if let (Some(growth), Some(median)) = (places::growth(&one, &several), stats::median(&several)) {
            findings::add_growth(suspects, growth, median);
        }
        Ok(false)
    }

    /// Measures whether large messages have a reply, over networks. Returns whether the user interrupted.
    fn measure_large(&self, suspects: &mut Vec<Suspect>) -> Result<bool, LiveError> {
        if causes::named(self.target, causes::LARGE).is_none() {
            return Ok(false);
        }
        // Losses would look like a limit.
        if self.screen.lost() > 0 {
            return Ok(false);
        }
        let bytes = self.screen.closed.result.message_bytes;
        let round_trip = Duration::from_nanos(self.screen.median_ns() as u64);
        match large::find_limit(self.runner, bytes, round_trip) {
            Ok(limit) => {
                limit.into_iter().for_each(|limit| findings::add_size_limit(suspects, &limit, self.target))
            }
            Err(LiveError::Interrupted) => return Ok(true),
            // The link or the protocol has a smaller limit.
            Err(_) => {}
        }
        Ok(false)
    }

    /// Measures all proved settings at once, if there are several.
    fn combine(
        &self,
        suspects: &[Suspect],
        random: &mut SplitMix64,
    ) -> Result<Option<CombinedEffect>, LiveError> {
        let proved = suspects.iter().filter_map(Suspect::proved_switch);
        let (changes, costs): (Vec<Vec<Change>>, Vec<f64>) = proved.unzip();
        let Some(time) = self.time_for(COMBINED_SHARE, 0.0).filter(|_| changes.len() >= 2) else {
            return Ok(None);
        };
        let all = [Trial::Switch(changes.concat())];
        let median = self.screen.request_time();
        let report =
            |share: f64| (self.progress)("testing them together", 1.0 - COMBINED_SHARE * (1.0 - share));
        let sequence = prove::measure(self.runner, &all, (time, median), random, &report)?;
        let proof = sequence.proofs(&all, self.screen.closed.result.message_bytes).swap_remove(0);
        let is_measured = !sequence.is_interrupted && sequence.lost.is_none() && !proof.pairs.is_empty();
        Ok(is_measured.then(|| CombinedEffect {
            cost_ns: proof.cost_ns,
            cost_interval_ns: proof.cost_interval_ns,
            interaction_ns: proof.cost_ns - costs.iter().sum::<f64>(),
        }))
    }
}

/// Part of the median that remains after all causes that were proved, seen or counted, in ns.
fn unexplained_ns(median_ns: f64, causes: &[CauseFinding], combined: Option<&CombinedEffect>) -> f64 {
    let explained: f64 =
        causes.iter().filter(|cause| cause.verdict.is_found()).filter_map(|cause| cause.effect.cost_ns).sum();
    (median_ns - explained - combined.map_or(0.0, |combined| combined.interaction_ns)).max(0.0)
}
