//! Signatures: what the samples of the screen show. Each finding names one cause of the catalogue.

use super::super::causes::{self, Cause, Signature, Target};
use super::screen::Screen;
use crate::link::LinkRate;
use crate::sample::Sample;
use crate::stats::{self, Grid, SideBand};
use crate::units::format_nanoseconds;

/// Tests at this level find something by chance in one of a hundred screens.
const LEVEL: f64 = 0.01;
/// A clock for fewer of the requests does not matter.
const MIN_CLOCK_SHARE: f64 = 0.3;
/// A measured period fits a known one if it is this close.
const PERIOD_TOLERANCE: f64 = 2e-3;
/// A request is slow if it takes this much longer than the median, and 5 times as long.
const SLOW_FROM_MS: f64 = 2.0;
const SLOW_FACTOR: f64 = 5.0;
/// Fewer slow requests show nothing.
const MIN_SLOW: usize = 5;
/// Slow requests of which the period is looked for; shorter periods are clocks.
const SHORTEST_PAUSE_PERIOD_MS: f64 = 90.0;
/// Periods that causes of the catalogue name, besides those of the signatures.
const COMMON_PERIODS_MS: [f64; 9] = [5.0, 10.0, 15.625, 16.667, 20.0, 30.0, 50.0, 100.0, 1000.0];

/// A cause that the samples show.
pub(super) struct Sighting {
    pub(super) cause: &'static Cause,
    /// How much of the median round trip it explains; 0 if it affects others only.
    pub(super) cost_ns: f64,
    /// What was seen, in words.
    pub(super) evidence: String,
}

/// All sightings, at most one of each cause.
pub(super) fn sightings(screen: &Screen, target: &Target) -> Vec<Sighting> {
    let mut all = clocks(screen, target);
    all.extend(timers(screen, target));
    all.extend(idle(screen, target));
    all.extend(pauses(screen, target));
    if all.iter().all(|sighting| sighting.cost_ns == 0.0) {
        all.extend(line_excess(screen, target));
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
    // From the clock's own origin the phase would be as good; small numbers keep their digits.
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

fn format_period(grid: &Grid) -> String {
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
    if grids.is_empty() {
        grids.extend(stats::unknown_grid(&instants, 2.0, longest, LEVEL));
    }
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
                _ => (screen.median_ns() - screen.fastest_ns()).max(0.0),
            };
            let evidence = format!(
                "replies arrive at one phase of {} (z = {:.0} of n = {})",
                format_period(&grid),
                grid.z,
                instants.len()
            );
            found.push(Sighting { cause, cost_ns: waits.min(grid.period * 1e6), evidence });
        }
    }
    found
}

/// Whether requests wait for the clock, as far as their share shows: half of the period on average. A host that is busy at
/// its own tick shows a phase without such waits.
fn is_waited_for(grid: &Grid, screen: &Screen) -> bool {
    let latencies = latencies_ms(&screen.paused.samples);
    let count = latencies.len().max(1) as f64;
    let share = (grid.z / count).sqrt();
    let mean_wait = latencies.iter().sum::<f64>() / count - screen.fastest_ns() / 1e6;
    share >= MIN_CLOCK_SHARE && mean_wait >= 0.5 * share * grid.period / 2.0
}

/// A second group of latencies at a known distance, or all of them at it.
fn timers(screen: &Screen, target: &Target) -> Vec<Sighting> {
    let character_ms = target.caps.link_rate.map(|line| line.transmission_time(1).as_secs_f64() * 1e3);
    let bands: Vec<(&Cause, SideBand)> = causes::all()
        .filter(|(_, cause)| (cause.applies)(target))
        .filter_map(|(_, cause)| {
            let (distance, half_width) = match cause.signature {
                Signature::Timer { delay_ms, tolerance_ms } => (delay_ms, tolerance_ms),
                Signature::CharacterTimer { characters } => (characters * character_ms?, 0.1 * character_ms?),
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
                found.push(Sighting { cause, cost_ns: 0.0, evidence });
            }
        }
    }
    found
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
fn idle(screen: &Screen, target: &Target) -> Option<Sighting> {
    let pairs = screen.paused.samples.windows(2);
    let mut by_pause: Vec<(u64, f64)> = pairs
        .map(|pair| (pair[1].sent.0.saturating_sub(pair[0].received.0), pair[1].service_ns() as f64))
        .collect();
    by_pause.sort_by_key(|(pause, _)| *pause);
    let third = by_pause.len() / 3;
    let latencies = |part: &[(u64, f64)]| part.iter().map(|(_, latency)| *latency).collect::<Vec<_>>();
    let (short, long) = (latencies(&by_pause[..third]), latencies(&by_pause[by_pause.len() - third..]));
    let (shift, interval) = stats::hodges_lehmann_shift(&short, &long)?;
    let (interval, p) = (interval?, stats::mann_whitney_p(&short, &long));
    let is_seen = p < LEVEL && interval.low > 0.2 * stats::median(&short)?;
    let fits =
        |signature: &Signature| matches!(signature, Signature::Idle { from_ms } if shift >= from_ms * 1e6);
    let cause = find_cause(target, fits).filter(|_| is_seen)?;
    let pause_ns = |index: usize| by_pause[index].0 as f64;
    let evidence = format!(
        "{} more after pauses above {} than below {}",
        format_nanoseconds(shift),
        format_nanoseconds(pause_ns(by_pause.len() - third)),
        format_nanoseconds(pause_ns(third)),
    );
    Some(Sighting { cause, cost_ns: 0.0, evidence })
}

/// A few requests that take much longer than the others, with or without a period.
fn pauses(screen: &Screen, target: &Target) -> Option<Sighting> {
    let samples = &screen.paused.samples;
    let latencies = latencies_ms(samples);
    let median = stats::median(&latencies)?;
    let limit = (SLOW_FACTOR * median).max(median + SLOW_FROM_MS);
    let slow: Vec<usize> = (0..samples.len()).filter(|&index| latencies[index] > limit).collect();
    if slow.len() < MIN_SLOW || slow.len() * 3 > samples.len() {
        return None;
    }
    // Of neighbouring slow requests only the last counts: they have one reason.
    let ends = slow.iter().filter(|index| !slow.contains(&(*index + 1)));
    let instants: Vec<f64> = {
        let all = received_ms(samples);
        ends.map(|&index| all[index]).collect()
    };
    let periods: Vec<f64> = known_periods(|signature| match signature {
        Signature::PeriodicPauses { periods_ms } => Some(periods_ms),
        Signature::Clock { periods_ms } => Some(periods_ms),
        _ => None,
    });
    let periods: Vec<f64> =
        periods.into_iter().filter(|period| *period >= SHORTEST_PAUSE_PERIOD_MS).collect();
    let duration = instants.last().zip(instants.first()).map_or(0.0, |(last, first)| last - first);
    let grid = stats::known_grids(&instants, &periods, duration, LEVEL).into_iter().next();
    let longest = slow.iter().map(|&index| latencies[index]).fold(0.0, f64::max);
    let share = format!(
        "{} of {} requests take more than {}, at most {}",
        slow.len(),
        samples.len(),
        format_nanoseconds(limit * 1e6),
        format_nanoseconds(longest * 1e6)
    );
    let fits = |signature: &Signature| match (signature, &grid) {
        (Signature::PeriodicPauses { periods_ms }, Some(grid)) => has_period(periods_ms, grid.period),
        (Signature::RandomPauses, None) => true,
        _ => false,
    };
    let evidence = match &grid {
        Some(grid) => format!("{share}; they end at one phase of {}", format_period(grid)),
        None => share,
    };
    Some(Sighting { cause: find_cause(target, fits)?, cost_ns: 0.0, evidence })
}

/// Device servers: all requests take longer than their line needs.
fn line_excess(screen: &Screen, target: &Target) -> Option<Sighting> {
    let line: LinkRate = target.caps.link_rate.filter(|_| target.is_device_server())?;
    let bytes = u64::from(screen.closed.result.message_bytes);
    let (fastest, needed) = (screen.fastest_ns(), 2e9 * line.transmission_time(bytes).as_secs_f64());
    let excess = fastest - needed;
    let fits = |signature: &Signature| *signature == Signature::LineExcess;
    let cause = find_cause(target, fits).filter(|_| excess > 1e6 && excess > 0.2 * needed)?;
    let evidence = format!(
        "the fastest request takes {}, the line needs at most {}",
        format_nanoseconds(fastest),
        format_nanoseconds(needed)
    );
    Some(Sighting { cause, cost_ns: excess, evidence })
}
