//! Signatures: what the samples of the screen show. Each finding names one cause of the catalogue.

use super::super::causes::{self, Cause, CauseFamily, Signature, Target};
use super::blocks::Block;
use super::screen::Screen;
use linkgauge_engine::link::LinkRate;
use linkgauge_model::clock::Time;
use linkgauge_model::sample::Sample;
use linkgauge_model::stats::{self, Grid, Interval, SideBand};
use linkgauge_model::units::format_nanoseconds;

/// Tests at this level find something by chance in one of a hundred screens.
pub(super) const LEVEL: f64 = 0.01;
/// A clock for fewer of the requests does not matter.
const MIN_CLOCK_SHARE: f64 = 0.3;
/// Shortest period, in ms, at which a clock may be one of links that sleep without traffic, such as Wi-Fi and Bluetooth.
const SHORTEST_SLEEP_PERIOD_MS: f64 = 100.0;
/// A clock for this share of the requests is the only one.
const COMPLETE_SHARE: f64 = 0.8;
/// A measured period fits a known one if it is this close.
const PERIOD_TOLERANCE: f64 = 2e-3;
/// A period is a part of another one if their ratio is this close to a whole number.
const WHOLE_TOLERANCE: f64 = 0.01;
/// A request is slow if it takes this much longer than the median, and 5 times as long.
const SLOW_FROM_MS: f64 = 2.0;
const SLOW_FACTOR: f64 = 5.0;
/// The longest and the shortest pauses: this part of all.
const PAUSE_PARTS: [usize; 3] = [3, 6, 12];
/// Minimum number and share of slow requests that show anything: hosts have pauses, too.
const MIN_SLOW: usize = 5;
const MIN_SLOW_SHARE: f64 = 0.003;
/// Limits of slow requests between which the period of the slowest is looked for, as multiples: a busy host delays many by a
/// little. The first has the level to itself, the others share half of it.
const SLOW_LIMITS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Periods of pauses in requests with and without a pause together fit into the time of the latter this often.
const CYCLES_OF_SHORT_BLOCK: f64 = 2.5;
/// Minimum number of slow requests that show an unknown period; fewer rarely do, even if all of them end at one phase of it.
const MIN_ENDS_OF_PERIOD: usize = 12;
/// Maximum share of slow requests; if more are slow, they are no exceptions.
const MAX_SLOW_SHARE: f64 = 1.0 / 3.0;
/// Requests that are late by this part of the limit belong to a tail that reaches the slow ones: three times as many as those if
/// half of the requests are late by one time, a quarter by twice this time, and an eighth by four times.
const TAIL_PART: f64 = 4.0;
/// TCP sends a segment again after this time at the soonest, on links without a queue. One repair can be by chance, and repairs for
/// this share of the slow requests explain them.
const MIN_REPAIR_NS: f64 = 4e6;
const MIN_REPAIRS: u64 = 2;
const MIN_REPAIRED_SHARE: f64 = 0.3;
/// Significance level of a group: five slow requests and none that is almost slow are one.
const GROUP_LEVEL: f64 = 0.05;
/// Slow requests of which the period is looked for; shorter periods are clocks.
const SHORTEST_PAUSE_PERIOD_MS: f64 = 90.0;
/// A time fits a number of characters if it is this close, in characters.
const CHARACTER_TOLERANCE: f64 = 0.1;
/// Minimum time that device servers take beyond their line, in ns, without packing or waiting.
const MIN_LINE_EXCESS_NS: f64 = 0.5e6;
/// Periods that causes of the catalogue name, besides those of the signatures.
const COMMON_PERIODS_MS: [f64; 9] = [5.0, 10.0, 15.625, 16.667, 20.0, 30.0, 50.0, 100.0, 1000.0];

/// A cause that the samples show.
pub(super) struct Sighting {
    pub(super) cause: &'static Cause,
    /// Part of the median round trip that the sighting explains, in ns; 0 if it affects others only.
    pub(super) cost_ns: f64,
    /// Part of the mean round trip that the sighting explains, in ns, of requests with or without pauses: the larger one.
    pub(super) mean_ns: f64,
    /// Limits of the cost, in ns, where the samples leave it open.
    pub(super) cost_limits_ns: Option<Interval>,
    /// Description of the evidence, in words.
    pub(super) evidence: String,
}

impl Sighting {
    pub fn new(cause: &'static Cause, cost_ns: f64, evidence: String) -> Sighting {
        Sighting { cause, cost_ns, mean_ns: cost_ns, cost_limits_ns: None, evidence }
    }

    pub fn with_mean(self, mean_ns: f64) -> Sighting {
        Sighting { mean_ns: mean_ns.max(self.cost_ns), ..self }
    }
}

/// All sightings, at most one of each cause.
pub(super) fn sightings(screen: &Screen, target: &Target) -> Vec<Sighting> {
    let mut all = clocks(screen, target);
    all.extend(timers(screen, target));
    let idle = idle(screen, target);
    all.extend(pauses(screen, target, idle.as_ref().map_or(0.0, |idle| idle.delay_ns)));
    all.extend(idle.map(|idle| idle.sighting));
    if all.iter().all(|sighting| sighting.cost_ns == 0.0) {
        all.extend(line_excess(screen, target));
    }
    if let Some(losses) = losses([&screen.closed, &screen.paused], target) {
        // The requests that a loss slows show nothing else.
        all.retain(|sighting| sighting.cost_ns > 0.0);
        all.push(losses);
    }
    all
}

/// The first applicable cause with a signature that fits.
fn find_cause(target: &Target, fits: impl Fn(&Signature) -> bool) -> Option<&'static Cause> {
    let mut fitting = causes::all().map(|(_, cause)| cause).filter(|cause| (cause.applies)(target));
    fitting.find(|cause| fits(&cause.signature))
}

fn latencies_ms(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.service_ns() as f64 / 1e6).collect()
}

fn received_ms(samples: &[Sample]) -> Vec<f64> {
    let first = samples.first().map_or(0, |sample| sample.received.0);
    // The phase from the clock's own origin would be as good; small numbers keep their digits.
    samples.iter().map(|sample| (sample.received.0 - first) as f64 / 1e6).collect()
}

/// The periods of all signatures of this kind.
fn known_periods(of: impl Fn(&Signature) -> Option<&'static [f64]>) -> Vec<f64> {
    let named = causes::all().filter_map(|(_, cause)| of(&cause.signature)).flatten().copied();
    let mut periods: Vec<f64> = named.chain(COMMON_PERIODS_MS).collect();
    periods.sort_by(f64::total_cmp);
    periods.dedup();
    periods
}

fn has_period(periods: &[f64], period: f64) -> bool {
    periods.is_empty() || periods.iter().any(|known| (period / known - 1.0).abs() < PERIOD_TOLERANCE)
}

pub(super) fn format_period(grid: &Grid) -> String {
    let resolution = grid.resolution.max(1e-6 * grid.period);
    format!("{} ± {}", format_nanoseconds(grid.period * 1e6), format_nanoseconds(resolution * 1e6))
}

/// Replies at one phase of a period.
fn clocks(screen: &Screen, target: &Target) -> Vec<Sighting> {
    let instants = received_ms(&screen.paused.samples);
    let longest = 2.0 * screen.mean_pause.as_secs_f64() * 1e3;
    let periods = known_periods(|signature| match signature {
        Signature::Clock { periods_ms } | Signature::Tick { periods_ms } => Some(periods_ms),
        _ => None,
    });
    let mut grids = stats::known_grids(&instants, &periods, longest, LEVEL);
    // A clock of 7 ms acts at one phase of 1 ms as well.
    let any = stats::unknown_grid(&instants, 2.0, longest, LEVEL);
    let is_part_of = |whole: &Grid, part: &Grid| {
        let ratio = whole.period / part.period;
        ratio > 1.5 && (ratio - ratio.round()).abs() < WHOLE_TOLERANCE
    };
    if let Some(any) = any.filter(|any| grids.iter().all(|known| is_part_of(any, known))) {
        grids = vec![any];
    }
    // If all replies wait for one clock, their phases of any shorter period depend on each other.
    let is_complete = |grid: &&Grid| (grid.z / instants.len() as f64).sqrt() >= COMPLETE_SHARE;
    if let Some(complete) = grids.iter().filter(is_complete).max_by(|a, b| a.period.total_cmp(&b.period)) {
        grids = vec![*complete];
    }
    // Without a pause the fastest waits as well, but handshakes do not.
    let of_path = screen.path.as_ref().map_or(f64::INFINITY, |path| path.median_ns);
    let least_ns = of_path.min(screen.fastest_ns());
    let mut found: Vec<Sighting> = Vec::new();
    for grid in grids {
        let fits = |signature: &Signature| match signature {
            Signature::Clock { periods_ms } | Signature::Tick { periods_ms } => {
                has_period(periods_ms, grid.period)
            }
            _ => false,
        };
        let Some(cause) = find_cause(target, fits).filter(|_| is_waited_for(&grid, screen)) else { continue };
        if found.iter().all(|sighting| sighting.cause.id != cause.id) {
            let waits = match cause.signature {
                Signature::Tick { .. } => 0.0,
                _ => (screen.median_ns() - least_ns).max(0.0),
            };
            let evidence = format!(
                "replies arrive at one phase of {} (z = {:.0} of n = {})",
                format_period(&grid),
                grid.z,
                instants.len()
            );
            found.push(Sighting::new(cause, waits.min(grid.period * 1e6), evidence));
        }
    }
    found
}

/// Whether requests wait for the clock, as far as their share shows: half of the period on average, and without a pause whole
/// periods, unless only what sleeps waits for it. A host that is busy at its own tick shows a phase without such waits.
fn is_waited_for(grid: &Grid, screen: &Screen) -> bool {
    let count = screen.paused.samples.len().max(1) as f64;
    let share = (grid.z / count).sqrt();
    let mean_of = |samples: &[Sample]| {
        let latencies = latencies_ms(samples);
        latencies.iter().sum::<f64>() / latencies.len().max(1) as f64
    };
    let mean_wait = mean_of(&screen.paused.samples) - screen.fastest_ns() / 1e6;
    // A request that leaves with the reply of its predecessor takes whole periods.
    let is_for_sleepers = grid.period >= SHORTEST_SLEEP_PERIOD_MS;
    share >= MIN_CLOCK_SHARE
        && mean_wait >= 0.5 * share * grid.period / 2.0
        && (is_for_sleepers || mean_of(&screen.closed.samples) >= 0.5 * share * grid.period)
}

/// A second group of latencies at a known distance, or all of them at it.
fn timers(screen: &Screen, target: &Target) -> Vec<Sighting> {
    let character_ms = target.caps.link_rate.map(|line| line.transmission_time(1).as_secs_f64() * 1e3);
    let bands: Vec<(&Cause, SideBand)> = causes::all()
        .filter(|(_, cause)| (cause.applies)(target))
        .filter_map(|(_, cause)| {
            let (distance, half_width) = match cause.signature {
                Signature::Timer { delay_ms, tolerance_ms } => (delay_ms, tolerance_ms),
                Signature::CharacterTimer { characters } => {
                    (characters * character_ms?, CHARACTER_TOLERANCE * character_ms?)
                }
                _ => return None,
            };
            Some((cause, SideBand { distance, half_width }))
        })
        .collect();
    let mut found = Vec::new();
    for (name, samples) in
        [("requests without a pause", &screen.closed.samples), ("requests", &screen.paused.samples)]
    {
        let latencies = latencies_ms(samples);
        let shapes: Vec<SideBand> = bands.iter().map(|(_, band)| *band).collect();
        let counts = stats::count_side_bands(&latencies, &shapes);
        let adjusted = stats::holm_adjusted(
            &counts.iter().map(|count| count.map_or(1.0, |count| count.p)).collect::<Vec<_>>(),
        );
        for (((cause, band), count), p) in bands.iter().zip(&counts).zip(adjusted) {
            let is_new = found.iter().all(|sighting: &Sighting| sighting.cause.id != cause.id);
            if let Some(count) = count.filter(|_| p < LEVEL && is_new) {
                let evidence = format!(
                    "{} of {} {name} take {} more",
                    count.inside,
                    latencies.len(),
                    format_nanoseconds(band.distance * 1e6)
                );
                let mean_ns = band.distance * 1e6 * count.inside as f64 / latencies.len() as f64;
                found.push(Sighting::new(cause, 0.0, evidence).with_mean(mean_ns));
            }
        }
    }
    found
}

/// Timers of characters that every request waits for. `rest_ns`: the part of the round trip that does not grow with the size.
pub(super) fn character_timers(target: &Target, rest_ns: f64) -> Vec<(&'static CauseFamily, Sighting)> {
    let Some(line) = target.caps.link_rate else { return Vec::new() };
    let character_ns = line.transmission_time(1).as_secs_f64() * 1e9;
    let sighting = |(family, cause): (&'static CauseFamily, &'static Cause)| match cause.signature {
        Signature::CharacterTimer { characters }
            if (rest_ns / character_ns - characters).abs() <= CHARACTER_TOLERANCE =>
        {
            let evidence = format!(
                "{} of each request do not depend on its size: {characters} characters of {}",
                format_nanoseconds(rest_ns),
                format_nanoseconds(character_ns)
            );
            Some((family, Sighting::new(cause, rest_ns, evidence)))
        }
        _ => None,
    };
    causes::all().filter(|(_, cause)| (cause.applies)(target)).filter_map(sighting).collect()
}

/// Whether the median is about as long as the timer of a cause: a reason to test it, not a finding.
pub(super) fn is_near_timer(cause: &Cause, median_ns: f64) -> bool {
    match cause.signature {
        Signature::Timer { delay_ms, tolerance_ms } => {
            (median_ns / 1e6 - delay_ms).abs() <= tolerance_ms + 0.1 * delay_ms
        }
        _ => false,
    }
}

/// Latency that grows with the pause before the request.
struct IdleDelay {
    sighting: Sighting,
    /// The length.
    delay_ns: f64,
}

/// The longest pauses against the shortest. What sleeps late shows only after the longest, what sleeps early spares only the
/// shortest, so several parts of them are tried.
fn idle(screen: &Screen, target: &Target) -> Option<IdleDelay> {
    let pairs = screen.paused.samples.windows(2);
    let mut by_pause: Vec<(u64, f64)> = pairs
        .map(|pair| (pair[1].sent.0.saturating_sub(pair[0].received.0), pair[1].service_ns() as f64))
        .collect();
    by_pause.sort_by_key(|(pause, _)| *pause);
    let latencies = |part: &[(u64, f64)]| part.iter().map(|(_, latency)| *latency).collect::<Vec<_>>();
    let shift_of = |part: &usize| {
        let count = by_pause.len() / part;
        let (short, long) = (latencies(&by_pause[..count]), latencies(&by_pause[by_pause.len() - count..]));
        let (shift, interval) = stats::hodges_lehmann_shift(&short, &long)?;
        let p = stats::mann_whitney_p(&short, &long) * PAUSE_PARTS.len() as f64;
        let least = 0.2 * stats::median(&short)?;
        (p < LEVEL && interval?.low > least).then_some((shift, count))
    };
    let shifts = PAUSE_PARTS.iter().filter_map(shift_of);
    let (delay_ns, count) = shifts.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let fits =
        |signature: &Signature| matches!(signature, Signature::Idle { from_ms } if delay_ns >= from_ms * 1e6);
    let evidence = format!(
        "{} more after pauses above {} than below {}",
        format_nanoseconds(delay_ns),
        format_nanoseconds(by_pause[by_pause.len() - count].0 as f64),
        format_nanoseconds(by_pause[count].0 as f64),
    );
    // The paced requests pay for it, those without a pause do not.
    let mean_of = |latencies: Vec<f64>| latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
    let mean_ns = mean_of(screen.paused.latencies_ns()) - screen.median_ns();
    let sighting = Sighting::new(find_cause(target, fits)?, 0.0, evidence);
    Some(IdleDelay { sighting: sighting.with_mean(mean_ns.min(delay_ns)), delay_ns })
}

/// Requests that take longer than this are slow, in ns.
pub(super) fn slow_limit(median_ns: f64) -> f64 {
    (SLOW_FACTOR * median_ns).max(median_ns + SLOW_FROM_MS * 1e6)
}

/// The slow requests of a block.
struct SlowRequests {
    /// Number of slow requests, number of all requests, the limit and the longest.
    count: usize,
    of: usize,
    limit_ns: f64,
    longest_ns: f64,
    /// Time of the slow requests above the median, in ns, together.
    excess_ns: f64,
    /// Requests that are late by a [`TAIL_PART`] of the limit or more, without being slow.
    almost: usize,
    /// End times of the slow requests, in ms; of neighbours only the last, because they have one reason.
    ends_ms: Vec<f64>,
}

/// Finds the slow requests in these samples; `usual_ns` more are not slow. `factor`: a higher limit. Times are since `origin`.
fn slow_requests(samples: &[Sample], origin: Time, usual_ns: f64, factor: f64) -> Option<SlowRequests> {
    let latencies: Vec<f64> = samples.iter().map(|sample| sample.service_ns() as f64).collect();
    let median = stats::median(&latencies)?;
    let limit_ns = median + factor * (slow_limit(median) - median + usual_ns);
    let almost_ns = median + (limit_ns - median) / TAIL_PART;
    let is_slow = |index: usize| latencies.get(index).is_some_and(|latency| *latency > limit_ns);
    let slow: Vec<usize> = (0..latencies.len()).filter(|&index| is_slow(index)).collect();
    let end_ms = |index: usize| samples[index].received.since(origin).as_secs_f64() * 1e3;
    Some(SlowRequests {
        count: slow.len(),
        of: samples.len(),
        limit_ns,
        longest_ns: latencies.iter().copied().fold(0.0, f64::max),
        excess_ns: slow.iter().map(|&index| latencies[index] - median).sum(),
        almost: latencies.iter().filter(|latency| (almost_ns..=limit_ns).contains(latency)).count(),
        ends_ms: slow.iter().filter(|&&index| !is_slow(index + 1)).map(|&index| end_ms(index)).collect(),
    })
}

impl SlowRequests {
    /// Whether the slow requests are enough to show something, and few enough to be exceptions.
    fn is_shown(&self) -> bool {
        let share = self.count as f64 / self.of.max(1) as f64;
        self.count >= MIN_SLOW && (MIN_SLOW_SHARE..=MAX_SLOW_SHARE).contains(&share)
    }

    /// Whether the slow requests are a separate group. Delays of networks have a continuous tail: more are almost slow. Of a few
    /// requests, chance decides.
    fn is_group(&self) -> bool {
        stats::more_often_p((self.count as u64, 1.0), (self.almost as u64, 1.0)) <= GROUP_LEVEL
    }

    /// Time that the slow requests add to the mean, in ns.
    fn mean_ns(&self) -> f64 {
        self.excess_ns / self.of.max(1) as f64
    }

    fn describe(&self) -> String {
        let (limit, longest) = (format_nanoseconds(self.limit_ns), format_nanoseconds(self.longest_ns));
        format!("{} of {} requests take more than {limit}, at most {longest}", self.count, self.of)
    }
}

/// The period of the ends of slow requests, at most `longest_ms`.
pub(super) fn pause_period(ends_ms: &[f64], longest_ms: f64, level: f64) -> Option<Grid> {
    let known = known_periods(|signature| match signature {
        Signature::PeriodicPauses { periods_ms } | Signature::Clock { periods_ms } => Some(periods_ms),
        _ => None,
    });
    let known: Vec<f64> = known.into_iter().filter(|period| *period >= SHORTEST_PAUSE_PERIOD_MS).collect();
    let known = stats::known_grids(ends_ms, &known, longest_ms, level).into_iter().next();
    let any = stats::unknown_grid(ends_ms, SHORTEST_PAUSE_PERIOD_MS, longest_ms, level);
    // Requests that end at one phase of 500 ms end at one of 100 ms as well.
    match (known, any) {
        (Some(known), Some(any)) if any.period > 1.5 * known.period => Some(any),
        (known, any) => known.or(any),
    }
}

impl SlowRequests {
    /// Adds the slow requests of another block.
    fn and(&self, other: &SlowRequests) -> SlowRequests {
        SlowRequests {
            count: self.count + other.count,
            of: self.of + other.of,
            limit_ns: self.limit_ns.max(other.limit_ns),
            longest_ns: self.longest_ns.max(other.longest_ns),
            excess_ns: self.excess_ns + other.excess_ns,
            almost: self.almost + other.almost,
            ends_ms: self.ends_ms.iter().chain(&other.ends_ms).copied().collect(),
        }
    }
}

/// The slowest requests that end at one phase of a period: all slow ones, or those above a higher limit; those after pauses, or
/// those of both blocks. Requests without a pause are many, so they show rarer pauses; but if they are not short against the
/// period, their own length looks like one.
fn periodic_pauses(screen: &Screen, usual_ns: f64) -> Option<(Grid, SlowRequests)> {
    let is_short = screen.median_ns() / 1e6 < SHORTEST_PAUSE_PERIOD_MS / 5.0;
    let origin = screen.closed.samples.first()?.received;
    SLOW_LIMITS.iter().enumerate().find_map(|(index, &factor)| {
        let level = if index == 0 { LEVEL } else { 0.5 * LEVEL / (SLOW_LIMITS.len() - 1) as f64 };
        let paused = slow_requests(&screen.paused.samples, origin, usual_ns, factor)?;
        let closed = slow_requests(&screen.closed.samples, origin, 0.0, factor).filter(|_| is_short);
        let both = closed.as_ref().map(|closed| paused.and(closed));
        // The dense requests of the short block have all phases only of a part of its length.
        let longest_of_both = screen.closed.duration_ms() / CYCLES_OF_SHORT_BLOCK;
        // Where one block shows enough slow requests, those of the other count as well.
        let is_shown = paused.is_shown() || closed.as_ref().is_some_and(SlowRequests::is_shown);
        let sets = [(Some(paused), f64::INFINITY), (closed, f64::INFINITY), (both, longest_of_both)];
        let sets = sets.into_iter().filter_map(|(slow, longest)| Some((slow?, longest)));
        let mut shown = sets.filter(|(slow, _)| is_shown && slow.count >= MIN_SLOW);
        shown.find_map(|(slow, longest)| Some((pause_period(&slow.ends_ms, longest, level)?, slow)))
    })
}

/// Slow requests, and as many segments that the sockets of the connection sent again: each repair takes a timer of TCP.
fn losses(blocks: [&Block; 2], target: &Target) -> Option<Sighting> {
    let cause = find_cause(target, |signature| *signature == Signature::Retransmissions)?;
    let (mut again, mut sent, mut slow, mut of, mut excess_ns) = (0, 0, 0, 0, 0.0);
    let mut least_share = MIN_REPAIRED_SHARE;
    for block in blocks {
        let evidence = block.result.evidence.as_ref()?;
        let both = [Some(&evidence.client), evidence.server.as_ref()];
        if evidence.server.is_none() {
            // Replies are sent again by the server.
            least_share = 0.5 * MIN_REPAIRED_SHARE;
        }
        let count = |name: &str| both.iter().flatten().filter_map(|end| end.counter(name)).sum::<u64>();
        let repaired = count("tcp_retransmitted_segments");
        let latencies = block.latencies_ns();
        let median = stats::median(&latencies)?;
        let mut late: Vec<f64> =
            latencies.iter().map(|latency| latency - median).filter(|more| *more > MIN_REPAIR_NS).collect();
        late.sort_by(|a, b| b.total_cmp(a));
        let explained = late.len().min(repaired as usize);
        excess_ns += late[..explained].iter().sum::<f64>();
        (again, sent, slow, of) =
            (again + repaired, sent + count("tcp_sent_segments"), slow + late.len(), of + latencies.len());
    }
    if again < MIN_REPAIRS || (again as f64) < least_share * slow as f64 {
        return None;
    }
    let evidence = format!(
        "{again} of {sent} segments were sent again ({:.1} %), {slow} of {of} requests were slow: this costs {} per request in the mean",
        100.0 * again as f64 / sent.max(1) as f64,
        format_nanoseconds(excess_ns / of.max(1) as f64),
    );
    Some(Sighting::new(cause, 0.0, evidence).with_mean(excess_ns / of.max(1) as f64))
}

/// A few requests that take much longer than the others, with or without a period. Requests that are late by `idle_delay_ns`
/// because something slept are not slow.
fn pauses(screen: &Screen, target: &Target, idle_delay_ns: f64) -> Option<Sighting> {
    let usual_ns = 2.0 * idle_delay_ns;
    if let Some((grid, slow)) = periodic_pauses(screen, usual_ns) {
        let fits = |signature: &Signature| matches!(signature, Signature::PeriodicPauses { periods_ms } if has_period(periods_ms, grid.period));
        let evidence = format!("{}; they end at one phase of {}", slow.describe(), format_period(&grid));
        return Some(Sighting::new(find_cause(target, fits)?, 0.0, evidence).with_mean(slow.mean_ns()));
    }
    let origin = screen.closed.samples.first()?.received;
    let paused = slow_requests(&screen.paused.samples, origin, usual_ns, 1.0)?;
    let closed = slow_requests(&screen.closed.samples, origin, 0.0, 1.0)?;
    let both = paused.and(&closed);
    let shown = [&paused, &closed, &both].into_iter().find(|slow| slow.is_shown() && slow.is_group())?;
    let cause = find_cause(target, |signature| *signature == Signature::RandomPauses)?;
    let caution = if shown.ends_ms.len() < MIN_ENDS_OF_PERIOD { "; too few to show a period" } else { "" };
    Some(Sighting::new(cause, 0.0, shown.describe() + caution).with_mean(shown.mean_ns()))
}

/// The shortest round trip that the kernel measured for a TCP connection, in ns; 0 if there is none.
pub(super) fn network_ns(screen: &Screen) -> f64 {
    let evidence = screen.closed.result.evidence.as_ref();
    let shortest = evidence.and_then(|evidence| evidence.client.gauge("tcp_min_rtt_ns"));
    shortest.map_or(0.0, |shortest| shortest.min as f64)
}

/// Device servers: all requests take longer than their line and the network need. The line needs the time of both ways, or that
/// of one if the device replies while the request still arrives.
fn line_excess(screen: &Screen, target: &Target) -> Option<Sighting> {
    let line: LinkRate = target.caps.link_rate.filter(|_| target.is_device_server())?;
    let bytes = u64::from(screen.closed.result.message_bytes);
    let network = network_ns(screen);
    let (fastest, needed) = (screen.fastest_ns(), 2e9 * line.transmission_time(bytes).as_secs_f64());
    let excess = fastest - needed - network;
    let fits = |signature: &Signature| *signature == Signature::LineExcess;
    let cause = find_cause(target, fits).filter(|_| excess > MIN_LINE_EXCESS_NS && excess > 0.2 * needed)?;
    let of_network = match network > 0.0 {
        true => format!(", the network {}", format_nanoseconds(network)),
        false => String::new(),
    };
    let evidence = format!(
        "the fastest request takes {}, the line needs at most {}{of_network}",
        format_nanoseconds(fastest),
        format_nanoseconds(needed)
    );
    let cost_limits_ns = Some(Interval { low: excess, high: excess + needed / 2.0 });
    Some(Sighting { cost_limits_ns, ..Sighting::new(cause, excess, evidence) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::run::{EndEvidence, Evidence};
    use linkgauge_model::stats::SplitMix64;

    /// Requests with these latencies in ms, one every 20 ms.
    fn samples(latencies_ms: impl Iterator<Item = f64>) -> Vec<Sample> {
        let sample = |(sequence, latency): (usize, f64)| {
            let sent = Time(20_000_000 * sequence as u64);
            let received = sent + std::time::Duration::from_secs_f64(latency / 1e3);
            Sample { sequence: sequence as u64, intended: sent, sent, received }
        };
        latencies_ms.enumerate().map(sample).collect()
    }

    #[test]
    fn the_tail_of_a_network_is_no_group_of_pauses() {
        let mut random = SplitMix64::new(1);
        // Half of the delays grow by more than 1 ms, one in 10 by more than 9 ms, one in 100 by more than 99 ms.
        let tail: Vec<f64> = (0..1000).map(|_| 9.0 + 1.0 / (1.0 - random.uniform())).collect();
        let slow = slow_requests(&samples(tail.into_iter()), Time(0), 0.0, 1.0).unwrap();
        assert!(slow.is_shown() && !slow.is_group(), "{}", slow.describe());
        let paused = (0..1000).map(|index| if index % 50 == 0 { 50.0 } else { 1.0 });
        let slow = slow_requests(&samples(paused), Time(0), 0.0, 1.0).unwrap();
        assert!(slow.is_shown() && slow.is_group(), "{}", slow.describe());
        // In a tail of delays, the slow ones are sometimes more by chance.
        let few = (0..72).map(|index| {
            if index < 8 {
                100.0
            } else if index < 14 {
                40.0
            } else {
                10.0
            }
        });
        let slow = slow_requests(&samples(few), Time(0), 0.0, 1.0).unwrap();
        assert!(slow.is_shown() && !slow.is_group(), "{}", slow.describe());
    }

    #[test]
    fn segments_that_were_sent_again_explain_as_many_slow_requests() {
        let target = Target::new("tcp://192.0.2.7:7333".parse().unwrap()).unwrap();
        // 1000 requests of 1 ms, of which this many take 200 ms more.
        let block = |slow: usize, again: u64, has_server: bool| {
            let counters = [("tcp_sent_segments", 1000), ("tcp_retransmitted_segments", again)];
            let mut end = EndEvidence::default();
            end.connections.counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
            let mut result = crate::report::sample_runs::minimal().cases.remove(0);
            let server = has_server.then(EndEvidence::default);
            result.evidence = Some(Evidence { client: end, server });
            let latencies = (0..1000).map(|index| if index < slow { 201.0 } else { 1.0 });
            Block { samples: samples(latencies), result, server_wait_ns: None }
        };
        let none = block(0, 0, true);
        let seen = |block: Block| losses([&block, &none], &target).map(|sighting| sighting.evidence);
        let expected = "10 of 2000 segments were sent again (0.5 %), 12 of 2000 requests were slow: this costs 1.000 ms per request in \
                        the mean";
        assert_eq!(seen(block(12, 10, true)).as_deref(), Some(expected));
        assert_eq!(seen(block(0, 1, true)), None, "one by chance");
        assert_eq!(seen(block(40, 10, true)), None, "most slow requests have another reason");
        assert!(seen(block(40, 10, false)).is_some(), "the server may have sent replies again");
    }

    #[test]
    fn pauses_every_500_ms_are_not_those_of_a_cpu_quota() {
        let every = |period_ms: f64| -> f64 {
            let ends: Vec<f64> =
                (0..24).map(|index| period_ms * f64::from(index) + f64::from(index % 3)).collect();
            pause_period(&ends, 600.0, LEVEL).unwrap().period
        };
        assert!((every(500.0) / 500.0 - 1.0).abs() < 0.01, "{}", every(500.0));
        assert!((every(100.0) / 100.0 - 1.0).abs() < 0.01, "{}", every(100.0));
    }
}
