//! Suspects and findings: which causes are tested, and what is reported about each.

use std::time::Duration;

use super::super::causes::{
    self, Cause, CauseFamily, CausePlace, DEVICE_SETTINGS, DOSES, Dose, Knob, Signature, Target,
};
use super::super::counters;
use super::blocks::{Block, Change};
use super::large::SizeLimit;
use super::lost;
use super::path::Path;
use super::places::{self, PlacePart};
use super::prove::{DoseResponse, Proof, Trial, TrialOutcome};
use super::screen::Screen;
use super::signatures::{self, Sighting};
use super::{CauseFinding, CauseVerdict, DelayEffect, LiveOptions};
use linkgauge_engine::host::power;
use linkgauge_model::plan::CpuPinning;
use linkgauge_model::stats::{self, Interval};
use linkgauge_model::units::{format_nanoseconds, format_plural};

/// Further sizes of the test of the cost of each byte, as multiples of the message size; parts of it if the multiples need
/// several packets, which are on the way at the same time.
const SIZE_FACTORS: [u32; 2] = [4, 16];
const ONE_PACKET_BYTES: u32 = 1400;
const SMALLEST_BYTES: u32 = 32;
const SIZE_FACTORS_ON_LINES: [u32; 2] = [8, 24];
/// Share of the mean round trip above which waiting for a CPU counts.
const MIN_WAIT_SHARE: f64 = 0.05;
/// Minimum wait per request, in ns, unless it is a large share of the mean.
const MIN_WAIT_NS: f64 = 1e5;
const LARGE_WAIT_SHARE: f64 = 0.5;
/// Minimum size of messages whose bytes can take much longer than a handshake.
const LARGE_BYTES: u32 = 256;
/// Timers shorter than this matter only if they are such a share, too.
const SHORT_TIMER_MS: f64 = 1.0;
/// Minimum share of the excess of slow requests that waits for a CPU explain.
const MIN_HOST_SHARE: f64 = 0.5;
/// Minimum time, in ns, for which another program runs before the scheduler takes the CPU away; a wake-up is shorter.
const LONG_WAIT_NS: f64 = 5e5;
/// Share of the time above which steal counts.
const MIN_STEAL_PERCENT: f64 = 5.0;
/// The protocol whose client can bind the server's threads.
const PROTOCOL_THAT_PINS: &str = "linkgauge";
/// Share of the time of the server that explains it if the bytes take as much.
const BYTES_SHARE: f64 = 0.5;
/// Time of the server, in ns, from which it is measured whether it serialises clients.
const SLOW_SERVER_NS: f64 = 500e3;
/// Causes of requests that wait on the path, and of losses.
const PATH_QUEUE: &str = "path_queue";
const PATH_LOSS: &str = "path_loss";
/// A server that takes a smaller share of the median does not matter.
const MIN_SERVER_SHARE: f64 = 0.05;

/// Evidence of a counter of a system about a cause.
struct Count {
    text: String,
    /// Part of the median, in ns, if the counter shows it.
    cost_ns: Option<f64>,
    /// Part of the mean, in ns.
    mean_ns: f64,
}

impl From<PlacePart> for Count {
    fn from(PlacePart { cost_ns, mean_ns, text }: PlacePart) -> Count {
        Count { text, cost_ns: Some(cost_ns), mean_ns }
    }
}

/// A cause that is tested, or that something points at.
pub(super) struct Suspect {
    family: &'static CauseFamily,
    cause: &'static Cause,
    sighting: Option<Sighting>,
    /// Hint at the cause besides a sighting.
    hint: Option<String>,
    /// Evidence of a counter.
    counted: Option<Count>,
    /// The test; `None`: nothing can test it.
    pub(super) trial: Option<Trial>,
    /// Reason why nothing tests the cause.
    why_untested: String,
    pub(super) proof: Option<Proof>,
}

/// The dose of a cause whose setting has values, if the link has the option.
fn dose_of(cause: &Cause, target: &Target) -> Option<&'static Dose> {
    DOSES.iter().find(|dose| dose.cause == cause.id && target.has_option(dose.option))
}

impl Suspect {
    /// A cause that nothing tests and nothing shows yet.
    fn untested(family: &'static CauseFamily, cause: &'static Cause) -> Suspect {
        let why_untested = match cause.knob {
            Knob::Missing(why) => why.to_owned(),
            _ => String::new(),
        };
        let (sighting, hint, counted, trial, proof) = (None, None, None, None, None);
        Suspect { family, cause, sighting, hint, counted, trial, why_untested, proof }
    }

    /// Whether something points at the cause, or a test can.
    fn is_suspected(&self) -> bool {
        self.sighting.is_some() || self.hint.is_some() || self.counted.is_some() || self.trial.is_some()
    }

    /// Median of the baseline in the pairs, in ns.
    pub(super) fn baseline_ns(&self) -> Option<f64> {
        if matches!(self.trial, Some(Trial::TailSwitch(_))) {
            return None;
        }
        let pairs = &self.proof.as_ref()?.pairs;
        stats::median(&pairs.iter().map(|(baseline, _)| *baseline).collect::<Vec<_>>())
    }

    /// The part of the median that does not depend on the message size, in ns, if it is proved what each byte takes.
    fn rest_of_sizes_ns(&self, screen: &Screen) -> Option<f64> {
        let proof = self.proof.as_ref().filter(|proof| proof.outcome == TrialOutcome::Proved)?;
        let dose = proof.dose.as_ref().filter(|_| matches!(self.trial, Some(Trial::Sizes(_))))?;
        Some(self.baseline_ns()? - dose.slope * f64::from(screen.closed.result.message_bytes))
    }

    /// The settings and the cost of a proved cause that a setting removes.
    pub(super) fn proved_switch(&self) -> Option<(Vec<Change>, f64)> {
        match (&self.trial, &self.proof) {
            (Some(Trial::Switch(changes)), Some(proof)) if proof.outcome == TrialOutcome::Proved => {
                Some((changes.clone(), proof.cost_ns))
            }
            _ => None,
        }
    }

    /// The proof of a proved cause, and the dose that shows how the round trip follows it.
    pub(super) fn proved_dose(&mut self, target: &Target) -> Option<(&'static Dose, &mut Proof)> {
        let dose = dose_of(self.cause, target)?;
        let proof = self.proof.as_mut().filter(|proof| proof.outcome == TrialOutcome::Proved)?;
        Some((dose, proof))
    }

    /// Adds the outcome of the test. `why_none`: reason why no test has pairs; without one the setting was refused, as by a driver that
    /// lacks it.
    pub(super) fn set_proof(&mut self, proof: Option<Proof>, why_none: Option<&str>) {
        self.proof = proof.filter(|proof| !proof.pairs.is_empty());
        if let (Some(Trial::TailSwitch(_)), Some(proof)) = (&self.trial, &mut self.proof)
            && proof.outcome == TrialOutcome::RuledOut
        {
            // Counters show the waits; another CPU may be as busy, and the threads of the server may wait.
            proof.outcome = TrialOutcome::NotShown;
        }
        if self.proof.is_none() {
            let changes = self.trial.take().map_or_else(Vec::new, |trial| trial.changes(0));
            let names: Vec<String> = changes.iter().map(Change::describe).collect();
            let refused = || format!("this link refuses {}", names.join(", "));
            self.why_untested = why_none.map_or_else(refused, str::to_owned);
        }
    }

    /// Priority of the test: a suspect with a higher one is tested earlier.
    fn priority(&self) -> u32 {
        2 * u32::from(self.sighting.is_some()) + u32::from(self.hint.is_some())
    }
}

/// Settings that the tests may change.
pub(super) struct Allowed<'a> {
    pub(super) options: &'a LiveOptions,
    /// The protocol leaves the message size open.
    pub(super) can_resize: bool,
}

impl Allowed<'_> {
    fn setting(&self, name: &str) -> bool {
        let changer = self.options.change_device.as_ref();
        changer.is_some_and(|changer| changer.names.iter().any(|known| known == name))
    }
}

/// The causes that the screen shows or points at, and those that can be tested.
pub(super) fn suspects(screen: &Screen, target: &Target, allowed: &Allowed) -> Vec<Suspect> {
    let mut sightings = signatures::sightings(screen, target);
    places::relocate(&mut sightings, screen, target);
    if cpu_waits(screen).any(|wait| wait.per_request_ns >= MIN_HOST_SHARE * wait.excess_ns) {
        // Then this host pauses or wakes up late, and nothing is known about pauses and sleep of the server.
        let is_alike = |kind| matches!(kind, Signature::RandomPauses | Signature::Idle { .. });
        sightings.retain(|sighting| !is_alike(sighting.cause.signature));
    }
    // The wake-ups of many hosts have two lengths, which look like a timer of microseconds.
    let latencies = screen.closed.latencies_ns();
    let least_ns = LARGE_WAIT_SHARE * latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
    let is_short =
        |signature| matches!(signature, Signature::Timer { delay_ms, .. } if delay_ms < SHORT_TIMER_MS);
    sightings.retain(|sighting| {
        !is_short(sighting.cause.signature) || sighting.cost_ns.max(sighting.mean_ns) >= least_ns
    });
    let median_ns = screen.median_ns();
    let mut suspects = Vec::new();
    for (family, cause) in causes::all().filter(|(_, cause)| (cause.applies)(target)) {
        let seen = sightings.iter().position(|sighting| sighting.cause.id == cause.id);
        let sighting = seen.map(|index| sightings.swap_remove(index));
        // Other things of a host become cold as well: only the setting shows what the sleep states cost.
        let (sighting, cold) = match cause.knob {
            Knob::CpuWakeLatency => (None, sighting.map(|sighting| sighting.evidence)),
            _ => (sighting, None),
        };
        let hint = signatures::is_near_timer(cause, median_ns).then(|| match cause.signature {
            Signature::Timer { delay_ms, .. } => {
                format!("the median is about as long as this timer ({})", format_nanoseconds(delay_ms * 1e6))
            }
            _ => "the median is about as long as this timer".to_owned(),
        });
        let is_large = cause.knob == Knob::MessageSize && screen.closed.result.message_bytes > LARGE_BYTES;
        let large = is_large.then(|| "the packets of a handshake are smaller".to_owned());
        let hint = hint.or(cold).or(large);
        let counted = count(cause, screen);
        let (trial, why_untested) = match find_trial(cause, screen, target, allowed) {
            Ok(trial) => (Some(trial), String::new()),
            Err(why) => (None, why),
        };
        suspects.push(Suspect { family, cause, sighting, hint, counted, trial, why_untested, proof: None });
    }
    suspects.retain(Suspect::is_suspected);
    suspects
}

/// Updates the suspects once the cost of each byte is proved: the rest belongs to the device server that packs, or is a timer of
/// a known number of characters.
pub(super) fn use_cost_of_bytes(
    suspects: &mut Vec<Suspect>,
    screen: &Screen,
    target: &Target,
    allowed: &Allowed,
) {
    let Some(rest_ns) = suspects.iter().find_map(|suspect| suspect.rest_of_sizes_ns(screen)) else { return };
    let mut sightings = suspects.iter_mut().filter_map(|suspect| suspect.sighting.as_mut());
    if let Some(sighting) = sightings.find(|sighting| sighting.cost_ns > 0.0) {
        if sighting.cause.signature == Signature::LineExcess {
            sighting.cost_ns = (rest_ns - signatures::network_ns(screen)).max(0.0);
            sighting.cost_limits_ns = None;
        }
        return;
    }
    for (family, sighting) in signatures::character_timers(target, rest_ns) {
        let why_untested = find_trial(sighting.cause, screen, target, allowed).err();
        add_sighting(suspects, family, sighting, why_untested);
    }
}

/// Updates what handshakes of the whole explanation show of the path. A queue that never empties releases packets at multiples of the
/// time of a packet, which looks like a clock.
pub(super) fn update_path(suspects: &mut Vec<Suspect>, screen: &Screen, target: &Target, path: &Path) {
    for (family, cause) in causes::all().filter(|(_, cause)| (cause.applies)(target)) {
        let is_new = cause.id == causes::SERVER && screen.path.is_none();
        if !places::ON_PATH.contains(&cause.id) && !is_new {
            continue;
        }
        let counted = places::part_on(cause, screen, Some(path)).map(Count::from);
        match suspects.iter_mut().find(|suspect| suspect.cause.id == cause.id) {
            Some(known) => known.counted = counted,
            None if counted.is_some() => {
                suspects.push(Suspect { counted, ..Suspect::untested(family, cause) });
            }
            None => {}
        }
    }
    let is_clock = |suspect: &Suspect| suspect.cause.id == "path_clock" && places::never_empties(path);
    let is_gone = |suspect: &Suspect| places::ON_PATH.contains(&suspect.cause.id) && !suspect.is_suspected();
    suspects.retain(|suspect| !is_clock(suspect) && !is_gone(suspect));
}

/// Requests after longer pauses show whether the rate of replies is limited.
pub(super) fn update_losses(
    suspects: &mut Vec<Suspect>,
    screen: &Screen,
    target: &Target,
    (later, pause): (&Block, Duration),
) {
    let Some(cause) = causes::named(target, causes::REPLY_LIMIT) else { return };
    let Some((family, _)) = causes::all().find(|(_, known)| known.id == cause.id) else { return };
    let Some(part) = lost::limited_later(screen, later, pause) else { return };
    suspects.retain(|suspect| ![causes::LOST, causes::REPLY_LIMIT].contains(&suspect.cause.id));
    suspects.push(Suspect { counted: Some(part.into()), ..Suspect::untested(family, cause) });
}

/// Adds what was found after the tests.
fn add_sighting(
    suspects: &mut Vec<Suspect>,
    family: &'static CauseFamily,
    sighting: Sighting,
    why_untested: Option<String>,
) {
    let cause = sighting.cause;
    match suspects.iter_mut().find(|suspect| suspect.cause.id == cause.id) {
        Some(known) => known.sighting = Some(sighting),
        None => {
            let mut suspect = Suspect { sighting: Some(sighting), ..Suspect::untested(family, cause) };
            why_untested.into_iter().for_each(|why| suspect.why_untested = why);
            suspects.push(suspect);
        }
    }
}

/// Adds rare pauses, unless the screen has shown them, or what sleeps or is lost looks like them.
pub(super) fn add_rare(suspects: &mut Vec<Suspect>, rare: Option<Sighting>) {
    let is_alike =
        |suspect: &Suspect| suspect.sighting.is_some() && causes::slows_some_requests(suspect.cause.id);
    let Some(rare) = rare.filter(|_| !suspects.iter().any(is_alike)) else { return };
    let Some((family, _)) = causes::all().find(|(_, cause)| cause.id == rare.cause.id) else { return };
    add_sighting(suspects, family, rare, None);
}

/// A setting of the device that proves the cause, if the user allows it.
fn device_setting(
    cause: &Cause,
    allowed: &Allowed,
) -> Option<&'static (&'static str, &'static str, &'static str)> {
    DEVICE_SETTINGS.iter().find(|(of, name, _)| *of == cause.id && allowed.setting(name))
}

/// The test of a cause, or why there is none.
fn find_trial(cause: &Cause, screen: &Screen, target: &Target, allowed: &Allowed) -> Result<Trial, String> {
    let switch = |change| Ok(Trial::Switch(vec![change]));
    if let Some(&(_, name, value)) = device_setting(cause, allowed) {
        return switch(Change::DeviceSetting(name, value));
    }
    match cause.knob {
        Knob::Missing(why) => Err(why.to_owned()),
        Knob::Rate(_) => Err("it limits a rate. Try: linkgauge explain URL --workload throughput".to_owned()),
        Knob::UrlOption { name, value } if !target.has_option(name) => {
            Err(format!("this link has no option {name}={value}"))
        }
        Knob::UrlOption { name, value } if target.endpoint.option(name) == Some(value) => {
            Err(format!("{name}={value} is set already"))
        }
        Knob::UrlOption { name, value } => switch(Change::UrlOption(name, value)),
        Knob::DeviceSetting { name, value } if allowed.setting(name) => {
            switch(Change::DeviceSetting(name, value))
        }
        Knob::DeviceSetting { name, value } => Err(format!(
            "this changes the device for all programs. Try: --allow-change {name}={value}, as root"
        )),
        Knob::BusyPoll => switch(Change::BusyPoll),
        Knob::Pin => pinning(screen, target).map(|pinning| Trial::TailSwitch(vec![Change::Pin(pinning)])),
        Knob::CpuWakeLatency => {
            if power::idle_states().iter().all(|state| state.exit_latency_us == 0 || state.is_disabled) {
                return Err("the CPUs of this host have no sleep states".to_owned());
            }
            let fail = |error| format!("/dev/cpu_dma_latency: {error}. Try as root");
            power::request_wake_latency(0).map_err(fail)?;
            switch(Change::CpuWakeLatency)
        }
        Knob::MessageSize if !allowed.can_resize => {
            Err("the protocol determines the message size".to_owned())
        }
        Knob::MessageSize => {
            let factors = if target.caps.link_rate.is_some() { SIZE_FACTORS_ON_LINES } else { SIZE_FACTORS };
            let bytes = screen.closed.result.message_bytes;
            let largest = target.caps.max_message_bytes.unwrap_or(usize::MAX);
            let multiples = factors.map(|factor| bytes.saturating_mul(factor));
            let is_one_packet = target.caps.link_rate.is_some() || multiples[1] <= ONE_PACKET_BYTES;
            let sizes = match is_one_packet || bytes < 2 * SIZE_FACTORS[0] * SMALLEST_BYTES {
                true => multiples,
                false => factors.map(|factor| (bytes / factor).max(SMALLEST_BYTES)),
            };
            match sizes.iter().all(|&size| size as usize <= largest) {
                true => Ok(Trial::Sizes(sizes.to_vec())),
                false => Err("the messages of this link cannot be larger".to_owned()),
            }
        }
    }
}

/// The CPUs that threads of both ends can be bound to, away from other programs; those of a server only if it runs here and the
/// protocol allows that.
fn pinning(screen: &Screen, target: &Target) -> Result<CpuPinning, String> {
    if cpu_waits(screen).next().is_none() {
        return Err("no request waits long for a CPU".to_owned());
    }
    let Some(cpu) = screen.quiet_cpu else {
        return Err("all CPUs have as much load. Try: stop the other programs".to_owned());
    };
    let can_pin_server = target.is_local && screen.closed.result.protocol == PROTOCOL_THAT_PINS;
    Ok(CpuPinning { client: Some(cpu), server: can_pin_server.then_some(cpu) })
}

/// Time that threads of both ends waited for a CPU, as far as slow requests show it.
struct CpuWait {
    /// Wait per request, in ns: at most the mean excess of requests that took [`LONG_WAIT_NS`] more than the median. The wake-up
    /// of a thread waits as well, in every request.
    per_request_ns: f64,
    /// The mean round trip, in ns.
    mean_ns: f64,
    /// Time of the slow requests above the median, per request, in ns.
    excess_ns: f64,
    /// The share of the server in all waits, 0 to 1.
    server_share: f64,
}

/// Whether other programs keep the threads of both ends from their CPUs: the waits are a share of the mean round trip, and more than
/// some microseconds.
fn cpu_wait(block: &Block) -> Option<CpuWait> {
    const NAME: &str = "thread_run_queue_wait_ns";
    let evidence = block.result.evidence.as_ref()?;
    let reported = evidence.server.as_ref().and_then(|server| server.counter(NAME));
    let of_server = reported.max(block.server_wait_ns).unwrap_or(0);
    let waited = evidence.client.counter(NAME)?.saturating_add(of_server) as f64;
    let latencies = block.latencies_ns();
    let median = stats::median(&latencies)?;
    let excess: f64 =
        latencies.iter().map(|latency| latency - median).filter(|more| *more > LONG_WAIT_NS).sum();
    let count = latencies.len() as f64;
    let wait = CpuWait {
        per_request_ns: excess.min(waited) / count,
        mean_ns: latencies.iter().sum::<f64>() / count,
        excess_ns: excess / count,
        server_share: of_server as f64 / waited.max(1.0),
    };
    let least_ns = MIN_WAIT_NS.min(LARGE_WAIT_SHARE * wait.mean_ns).max(MIN_WAIT_SHARE * wait.mean_ns);
    (wait.per_request_ns >= least_ns).then_some(wait)
}

impl CpuWait {
    fn describe(&self) -> String {
        let whose = match self.server_share {
            share if share > 0.8 => "mostly at the server",
            share if share < 0.2 => "mostly here",
            _ => "at both ends",
        };
        format!(
            "slow requests waited for a CPU: {} of {} per request on average, {whose}",
            format_nanoseconds(self.per_request_ns),
            format_nanoseconds(self.mean_ns)
        )
    }
}

/// Waits of threads for a CPU in each kind of round trips.
fn cpu_waits(screen: &Screen) -> impl Iterator<Item = CpuWait> {
    [&screen.closed, &screen.paused].into_iter().filter_map(cpu_wait)
}

/// Evidence that the systems counted during the round trips without a pause.
fn count(cause: &Cause, screen: &Screen) -> Option<Count> {
    let result = &screen.closed.result;
    match cause.id {
        "run_queue" => {
            let wait = cpu_waits(screen).next()?;
            Some(Count { text: wait.describe(), cost_ns: None, mean_ns: wait.per_request_ns })
        }
        "steal" => {
            let percent = result.placement.host_load.steal_percent?;
            let text = format!(
                "the hypervisor ran other guests {percent:.0} % of the time: it delays single requests"
            );
            (percent >= MIN_STEAL_PERCENT).then_some(Count { text, cost_ns: None, mean_ns: 0.0 })
        }
        "delayed_ack_nagle" if signatures::is_near_timer(cause, screen.median_ns()) => {
            let text = counters::delayed_acknowledgements(result)?.evidence;
            let cost_ns = screen.median_ns() - signatures::network_ns(screen);
            Some(Count { text, cost_ns: Some(cost_ns), mean_ns: cost_ns })
        }
        "server_time" => {
            let turnaround = result.figures.one_way.as_ref()?.turnaround_ns.percentile("p50")? as f64;
            let text =
                format!("the server reports {} from a request to its reply", format_nanoseconds(turnaround));
            (turnaround >= MIN_SERVER_SHARE * screen.median_ns()).then_some(Count {
                text,
                cost_ns: Some(turnaround),
                mean_ns: turnaround,
            })
        }
        causes::NAME => places::look_up(screen).map(Count::from),
        causes::LOST | causes::REPLY_LIMIT => lost::part(cause, screen).map(Count::from),
        _ => places::part(cause, screen).map(Count::from),
    }
}

/// Adds that large messages have no reply.
pub(super) fn add_size_limit(suspects: &mut Vec<Suspect>, limit: &SizeLimit, target: &Target) {
    let Some(cause) = causes::named(target, causes::LARGE) else { return };
    let Some((family, _)) = causes::all().find(|(_, known)| known.id == cause.id) else { return };
    add_sighting(suspects, family, Sighting::new(cause, 0.0, limit.to_string()), None);
}

/// Adds how the time of the server follows the number of clients.
pub(super) fn add_growth(suspects: &mut [Suspect], growth: &str, several_ns: f64) {
    let server = suspects.iter_mut().find(|suspect| suspect.cause.id == causes::SERVER);
    if let Some(count) = server.and_then(|server| server.counted.as_mut()) {
        let several = format_nanoseconds(several_ns);
        count.text += &format!("; {several} with {} clients at once: {growth}", places::CLIENTS);
    }
}

/// Whether the server takes so much of a round trip that it matters how.
pub(super) fn has_slow_server(suspects: &[Suspect]) -> bool {
    let is_slow = |suspect: &Suspect| {
        let count = suspect.counted.as_ref().filter(|_| suspect.cause.id == causes::SERVER);
        count.is_some_and(|count| count.cost_ns.is_some_and(|cost| cost > SLOW_SERVER_NS))
    };
    suspects.iter().any(is_slow)
}

/// Leaves out the least likely tests, so that at most `most` remain.
pub(super) fn leave_out_trials(suspects: &mut [Suspect], most: usize, why: &str) {
    let mut tested: Vec<usize> =
        (0..suspects.len()).filter(|&index| suspects[index].trial.is_some()).collect();
    tested.sort_by_key(|&index| std::cmp::Reverse(suspects[index].priority()));
    for &index in tested.iter().skip(most) {
        suspects[index].trial = None;
        suspects[index].why_untested = why.to_owned();
    }
}

/// Findings about each suspect: those that take time first, the most expensive at the top. Estimates explain at most what the
/// proved causes leave of `median_ns`.
pub(super) fn findings(suspects: Vec<Suspect>, screen: &Screen, median_ns: f64) -> Vec<CauseFinding> {
    let mut findings: Vec<CauseFinding> =
        suspects.into_iter().map(|suspect| finding(suspect, screen)).collect();
    limit_estimates(&mut findings, median_ns);
    let latencies = screen.closed.latencies_ns();
    let of_sizes = |finding: &CauseFinding| {
        let dose = finding.effect.dose.as_ref().filter(|_| finding.id == "per_byte_cost");
        dose.and_then(|dose| dose.slope_interval)
            .map(|slope| slope.low)
            .filter(|_| !finding.verdict.is_found())
    };
    let byte_ns = findings.iter().find_map(of_sizes).unwrap_or(0.0);
    let of_bytes_ns = byte_ns * f64::from(screen.closed.result.message_bytes);
    let mean_ns = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
    leave_rest(&mut findings, mean_ns, of_bytes_ns);
    findings.sort_by(|a, b| {
        let by_cost = || b.rank_ns().total_cmp(&a.rank_ns()).then(a.verdict.cmp(&b.verdict));
        match (a.verdict.is_found(), b.verdict.is_found()) {
            (true, true) => by_cost(),
            (false, false) => a.verdict.cmp(&b.verdict).then_with(by_cost),
            (a, b) => b.cmp(&a),
        }
    });
    findings
}

/// Limits the estimates so that two causes do not explain the same time twice.
fn limit_estimates(findings: &mut [CauseFinding], median_ns: f64) {
    let proved = findings.iter().filter(|finding| finding.verdict == CauseVerdict::Proved);
    let mut rest = (median_ns - proved.filter_map(|finding| finding.effect.cost_ns).sum::<f64>()).max(0.0);
    let estimated =
        |finding: &&mut CauseFinding| matches!(finding.verdict, CauseVerdict::Seen | CauseVerdict::Counted);
    for finding in findings.iter_mut().filter(estimated) {
        let effect = &mut finding.effect;
        if let Some(cost) = &mut effect.cost_ns {
            *cost = cost.min(rest);
            if let Some(limits) = &mut effect.cost_interval_ns {
                *limits = Interval { low: limits.low.min(rest), high: limits.high.min(rest) };
            }
            rest -= *cost;
        }
    }
}

/// Gives a cause that is known only by its place the time that no cause of another name takes; little of it is not worth a name.
/// `of_bytes_ns`: time that the bytes of a message take at least, without a proof.
fn leave_rest(findings: &mut Vec<CauseFinding>, mean_ns: f64, of_bytes_ns: f64) {
    const BY_PLACE: [&str; 5] = ["path_delay", PATH_QUEUE, causes::SERVER, causes::ACCEPT, causes::NAME];
    let others = |findings: &[CauseFinding], place: CausePlace, of: fn(&CauseFinding) -> f64| -> f64 {
        let counts = |finding: &&CauseFinding| {
            let is_there = place == CausePlace::Server || finding.place == place;
            finding.verdict.is_found() && is_there && !BY_PLACE.contains(&finding.id)
        };
        findings.iter().filter(counts).map(of).sum()
    };
    for (id, place) in [(PATH_QUEUE, CausePlace::Path), (causes::SERVER, CausePlace::Server)] {
        let named_ns = others(findings, place, CauseFinding::rank_ns);
        let named_cost_ns = others(findings, place, |finding| finding.share_ns().unwrap_or(0.0));
        let Some(index) = findings.iter().position(|finding| finding.id == id) else { continue };
        // Repairs of losses make the mean long, and replies that the server sent again are not counted.
        let has_losses = findings.iter().any(|finding| finding.id == PATH_LOSS && finding.verdict.is_found());
        let effect = &mut findings[index].effect;
        if has_losses && id == causes::SERVER {
            effect.mean_ns = effect.cost_ns;
        }
        effect.mean_ns = effect.mean_ns.map(|own| (own - named_ns).max(0.0));
        effect.cost_ns = effect.cost_ns.map(|own| (own - named_cost_ns).max(0.0));
        let own = findings[index].rank_ns();
        // Time that grows with the size of a message is not the work of the server for each request.
        if own < places::MIN_SHARE * mean_ns || id == causes::SERVER && of_bytes_ns > BYTES_SHARE * own {
            findings.remove(index);
        }
    }
}

fn finding(suspect: Suspect, screen: &Screen) -> CauseFinding {
    let Suspect { family, cause, sighting, hint, counted, trial, proof, why_untested } = suspect;
    // The figures of such a test are means, and the costs of the others are parts of the median.
    let is_tail = matches!(trial, Some(Trial::TailSwitch(_)));
    let outcome = proof.as_ref().map(|proof| proof.outcome);
    let verdict = match (outcome, &sighting, &counted) {
        (Some(TrialOutcome::Proved), ..) => CauseVerdict::Proved,
        (Some(TrialOutcome::RuledOut), ..) => CauseVerdict::RuledOut,
        (_, Some(_), _) => CauseVerdict::Seen,
        (_, None, Some(_)) => CauseVerdict::Counted,
        (Some(TrialOutcome::NotShown), ..) => CauseVerdict::NotShown,
        (None, ..) => CauseVerdict::CannotTest,
    };
    let mut evidence = Vec::new();
    evidence.extend(sighting.as_ref().map(|sighting| sighting.evidence.clone()));
    evidence.extend(counted.as_ref().map(|counted| counted.text.clone()));
    evidence.extend(hint);
    match &proof {
        Some(proof) => {
            evidence.push(describe_proof(trial.as_ref(), proof, screen));
            evidence.extend(proof.dose.as_ref().and_then(describe_dose));
        }
        None => evidence.push(format!("not tested: {why_untested}")),
    }
    let seen = [sighting.as_ref().map(|seen| seen.mean_ns), counted.as_ref().map(|count| count.mean_ns)];
    let tail_ns = proof.as_ref().filter(|_| is_tail).map(|proof| proof.cost_ns);
    let mean_ns = verdict.is_found().then(|| seen.into_iter().chain([tail_ns]).flatten().fold(0.0, f64::max));
    let proved_cost = |proof: &Proof| (Some(proof.cost_ns), proof.cost_interval_ns);
    let (cost_ns, cost_interval_ns) = match verdict {
        _ if is_tail => (None, None),
        CauseVerdict::Proved | CauseVerdict::NotShown => proof.as_ref().map_or((None, None), proved_cost),
        CauseVerdict::Seen => {
            sighting.map_or((None, None), |sighting| (Some(sighting.cost_ns), sighting.cost_limits_ns))
        }
        CauseVerdict::Counted => (counted.and_then(|counted| counted.cost_ns), None),
        CauseVerdict::RuledOut => (None, proof.as_ref().and_then(|proof| proof.cost_interval_ns)),
        CauseVerdict::CannotTest => (None, None),
    };
    CauseFinding {
        id: cause.id,
        family: family.name,
        place: causes::place(family, cause.id),
        name: cause.name,
        verdict,
        effect: DelayEffect {
            cost_ns,
            cost_interval_ns,
            mean_ns: mean_ns.filter(|mean_ns| *mean_ns > 0.0),
            dose: proof.as_ref().and_then(|proof| proof.dose.clone()),
            p: proof.as_ref().and_then(|proof| proof.p),
            pairs_ns: proof
                .map(|proof| proof.pairs.into_iter().map(|(a, b)| [a, b]).collect())
                .unwrap_or_default(),
        },
        evidence,
        remedy: cause.remedy,
    }
}

/// Text such as `quickack=1: −43.9 ms [−44.0 ms, −43.8 ms], 10 pairs`.
fn describe_proof(trial: Option<&Trial>, proof: &Proof, screen: &Screen) -> String {
    let pairs = format_plural(proof.pairs.len() as u64, "pair");
    if let (Some(Trial::Sizes(_)), Some(dose)) = (trial, &proof.dose) {
        let line =
            screen.closed.result.line.as_ref().map(|line| line.bits_per_byte / line.bits_per_second * 1e9);
        let line = line.map(|needed| format!(" (the line needs {} each way)", format_nanoseconds(needed)));
        let byte =
            if dose.slope < 1.0 { "less than 1 ns".to_owned() } else { format_nanoseconds(dose.slope) };
        return format!("each byte takes {byte}{}, {pairs}", line.unwrap_or_default());
    }
    let changes = trial.map_or_else(Vec::new, |trial| trial.changes(0));
    let knob: Vec<String> = changes.iter().map(Change::describe).collect();
    let knob = knob.join(", ");
    let effect = |saved: f64| {
        let sign = if saved > 0.0 { "−" } else { "+" };
        format!("{sign}{}", format_nanoseconds(saved.abs()))
    };
    let interval = proof
        .cost_interval_ns
        .map(|interval| format!(" [{}, {}]", effect(interval.high), effect(interval.low)));
    let power = proof.cost_interval_ns.filter(|_| proof.outcome == TrialOutcome::NotShown);
    let power = power.map(|interval| {
        format!("; an effect above {} would show", format_nanoseconds(0.5 * (interval.high - interval.low)))
    });
    let (interval, power) = (interval.unwrap_or_default(), power.unwrap_or_default());
    format!("{knob}: {}{interval}, {pairs}{power}", effect(proof.cost_ns))
}

/// Text such as `each ms of delack_max costs 0.98 ms [0.91 ms, 1.02 ms], 16 blocks`; of times only.
fn describe_dose(dose: &DoseResponse) -> Option<String> {
    if dose.knob == "message_bytes" {
        return None;
    }
    let interval = dose.slope_interval.map(|range| format!(" [{:.2} ms, {:.2} ms]", range.low, range.high));
    Some(format!(
        "each ms of {} costs {:.2} ms{}, {}",
        dose.knob,
        dose.slope,
        interval.unwrap_or_default(),
        format_plural(dose.points.len() as u64, "block")
    ))
}

#[cfg(test)]
mod tests;
