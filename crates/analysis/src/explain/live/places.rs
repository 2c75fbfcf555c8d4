//! Place of the time of a round trip: the path, the server or this host, as far as handshakes beside the requests show it.
//!
//! A handshake needs the network and both kernels, a round trip the programs as well. So what handshakes need belongs to the
//! path, and what requests need beyond that to the server or to what lies behind it.

use super::super::causes::{self, Cause, CausePlace, Signature, Target};
use super::path::{Path, slow_start_ns};
use super::screen::Screen;
use super::signatures::Sighting;
use linkgauge_model::sample::Sample;
use linkgauge_model::stats;
use linkgauge_model::units::{format_nanoseconds, format_plural};

/// Minimum share of the mean round trip that matters.
pub(super) const MIN_SHARE: f64 = 0.15;
/// Minimum difference that shows the server, in ns: both programs must wake up.
const MIN_SERVER_NS: f64 = 150e3;
/// A shorter path is the work of both kernels.
const MIN_DELAY_NS: f64 = 200e3;
/// Handshakes have a queue if they take this much longer than the shortest on average, and this share of it.
const MIN_QUEUE_NS: f64 = 300e3;
const MIN_QUEUE_SHARE: f64 = 0.3;
/// The same for one that fills and drains slowly.
const MIN_SLOW_QUEUE_NS: f64 = 1e6;
const MIN_SLOW_QUEUE_SHARE: f64 = 0.05;
/// Minimum excess of handshakes with a queue, as a multiple of the mean delay of wake-ups of threads of this host, where these
/// take part.
const HOST_RATIO: f64 = 3.0;
/// Minimum number of slow handshakes that show a queue.
const MIN_QUEUED: usize = 3;
/// Minimum number of lost handshakes (one can be by chance), and the shortest timer of a repair (Linux).
const MIN_RESENT: usize = 2;
const SHORTEST_REPAIR_NS: f64 = 200e6;
/// Handshakes with this share of a delay of the requests show that it is on the path.
const PATH_SHARE: f64 = 0.5;
/// Divisor of the wake-ups of this host: if more than this part of them are as late as the requests, this host pauses; without
/// any meanwhile, the share of all wake-ups counts.
const HOST_PART: usize = 3;
const MAX_LATE_SHARE: f64 = 0.01;
/// First replies that are this late, and by this multiple of a round trip, wait for the server to accept.
const MIN_ACCEPT_NS: f64 = 20e6;
const MIN_ACCEPT_RATIO: f64 = 3.0;
/// Minimum number of late first replies, which differ by this ratio at most.
const MIN_ACCEPTED: usize = 3;
const MAX_ACCEPT_SPREAD: f64 = 1.5;
/// The middle half of the round trips differs by this share of the median at most: they are constant.
const CONSTANT_SPREAD: f64 = 0.25;
/// Minimum share of the variance that two groups explain, and of the requests in the smaller group.
const MIN_BETWEEN: f64 = 0.8;
const MIN_GROUP_SHARE: f64 = 0.05;
/// Minimum distance of the groups, as a share of the median.
const MIN_APART: f64 = 0.5;

/// A part of the round trip at one place.
pub(super) struct PlacePart {
    pub(super) cost_ns: f64,
    pub(super) mean_ns: f64,
    pub(super) text: String,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The part of this cause, if the handshakes of the screen show it.
pub(super) fn part(cause: &Cause, screen: &Screen) -> Option<PlacePart> {
    part_on(cause, screen, screen.path.as_ref())
}

/// Causes that handshakes show during the whole explanation; what the server takes is compared with those of the screen.
pub(super) const ON_PATH: [&str; 3] = ["path_loss", "path_delay", "path_queue"];

/// The part of this cause on this path.
pub(super) fn part_on(cause: &Cause, screen: &Screen, path: Option<&Path>) -> Option<PlacePart> {
    let latencies = screen.closed.latencies_ns();
    match cause.id {
        causes::ACCEPT => {
            let (bytes, median_ns) = (screen.closed.result.message_bytes, stats::median(&latencies)?);
            let round_trip_ns = path.map_or(median_ns, |path| path.median_ns);
            accepting(&screen.first_ns, (median_ns, slow_start_ns(bytes, round_trip_ns)), path)
        }
        "path_loss" => lost_handshakes(path?),
        "path_delay" => delay(path?, &latencies),
        "path_queue" => queue(path?, &latencies),
        causes::SERVER => server(path?, &latencies),
        _ => None,
    }
}

/// The shortest round trip of the path.
fn delay(path: &Path, latencies: &[f64]) -> Option<PlacePart> {
    let shortest = path.shortest_ns.min(latencies.iter().copied().fold(f64::INFINITY, f64::min));
    let text = format!("the fastest of {} takes {}", count(path), format_nanoseconds(shortest));
    let matters = shortest >= MIN_DELAY_NS.max(MIN_SHARE * stats::median(latencies)?);
    matters.then_some(PlacePart { cost_ns: shortest, mean_ns: shortest, text })
}

/// Handshakes that were lost: as many segments of requests are, and each repair takes a timer.
fn lost_handshakes(path: &Path) -> Option<PlacePart> {
    let all = path.handshakes.len() + path.resent;
    let text = format!("{} of {all} handshakes were lost and sent again", path.resent);
    let mean_ns = SHORTEST_REPAIR_NS * path.resent as f64 / all as f64;
    (path.resent >= MIN_RESENT).then_some(PlacePart { cost_ns: 0.0, mean_ns, text })
}

fn count(path: &Path) -> String {
    format_plural(path.handshakes.len() as u64, "handshake")
}

/// Time of handshakes above the shortest: a queue, of which the median shows the standing part.
fn queue(path: &Path, latencies: &[f64]) -> Option<PlacePart> {
    let excess = path.mean_ns - path.shortest_ns;
    let of_host = HOST_RATIO * path.mean_late_ns();
    let least = MIN_QUEUE_NS.max(MIN_QUEUE_SHARE * path.shortest_ns).max(of_host);
    let queued =
        path.handshakes.iter().filter(|handshake| handshake.took_ns - path.shortest_ns > least).count();
    let shows_queue = excess >= least.max(MIN_SHARE * mean(latencies)) && queued >= MIN_QUEUED;
    let never_empties = !shows_queue && never_empties(path);
    if !shows_queue && !never_empties {
        return None;
    }
    let standing = path.median_ns - path.shortest_ns;
    let kind = match standing > 0.5 * excess {
        _ if never_empties => "longer and shorter over many handshakes: the queue may never be empty",
        true => "most of the time",
        false => "at times",
    };
    let text = format!(
        "{} take {} on average, the fastest {}: packets wait {kind}",
        count(path),
        format_nanoseconds(path.mean_ns),
        format_nanoseconds(path.shortest_ns)
    );
    Some(PlacePart { cost_ns: standing, mean_ns: excess, text })
}

/// Whether handshakes show a queue that fills and drains slowly, also where none of them finds it empty.
pub(super) fn never_empties(path: &Path) -> bool {
    let excess = path.mean_ns - path.shortest_ns;
    let of_host = HOST_RATIO * path.mean_late_ns();
    excess > MIN_SLOW_QUEUE_NS.max(MIN_SLOW_QUEUE_SHARE * path.shortest_ns).max(of_host)
        && path.changes_slowly()
}

/// Time of requests above handshakes.
fn server(path: &Path, latencies: &[f64]) -> Option<PlacePart> {
    let median = stats::median(latencies)?;
    let (cost_ns, mean_ns) = ((median - path.median_ns).max(0.0), mean(latencies) - path.mean_ns);
    if cost_ns.max(mean_ns) < MIN_SERVER_NS.max(MIN_SHARE * mean(latencies)) {
        return None;
    }
    let text = format!(
        "the kernel of the server answers after {} (median of {}), its program after {}: {} more on average, {}",
        format_nanoseconds(path.median_ns),
        count(path),
        format_nanoseconds(median),
        format_nanoseconds(mean_ns.max(0.0)),
        shape(latencies)
    );
    Some(PlacePart { cost_ns, mean_ns, text })
}

/// Time of the look-up of the server's name, which each new connection to it needs.
pub(super) fn look_up(screen: &Screen) -> Option<PlacePart> {
    let took_ns = screen.look_up?.as_nanos() as f64;
    let text = format!(
        "the second look-up of the name takes {}, and programs make one for each connection",
        format_nanoseconds(took_ns)
    );
    (took_ns > MIN_ACCEPT_NS).then_some(PlacePart { cost_ns: 0.0, mean_ns: took_ns, text })
}

/// Time of the first reply of each new connection above the others. The first of all may find a server that waits for it, and a
/// busy host delays some of them by any time.
fn accepting(
    first_ns: &[f64],
    (median_ns, slow_start_ns): (f64, f64),
    path: Option<&Path>,
) -> Option<PlacePart> {
    let least = MIN_ACCEPT_NS.max(MIN_ACCEPT_RATIO * median_ns).max(slow_start_ns);
    let is_late = |ns: &f64| ns - median_ns > least;
    let mut late: Vec<f64> = first_ns.iter().copied().filter(is_late).collect();
    late.sort_by(f64::total_cmp);
    let (least, most) = late.first().copied().zip(late.last().copied())?;
    let excess = stats::median(&late)? - median_ns;
    let text = format!(
        "the first reply of {} of {} takes {}, the later ones {}",
        late.len(),
        format_plural(first_ns.len() as u64, "connection"),
        format_nanoseconds(median_ns + excess),
        format_nanoseconds(median_ns)
    );
    // A path that is as slow at times delays the first reply as well.
    let is_path = path.is_some_and(|path| path.slow(PATH_SHARE * excess) > 0);
    let is_shown =
        late.len() >= MIN_ACCEPTED && late.len() + 1 >= first_ns.len() && most < MAX_ACCEPT_SPREAD * least;
    (is_shown && !is_path).then_some(PlacePart { cost_ns: 0.0, mean_ns: excess, text })
}

/// Shape of the latencies: `constant`, `two groups (20 % take 8.01 ms more)` or `random`.
pub(super) fn shape(latencies: &[f64]) -> String {
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = |share: f64| sorted.get((share * sorted.len() as f64) as usize).copied().unwrap_or(0.0);
    // The split of which the groups explain most of the variance. The slowest hundredth would be a group of its own.
    let all = &sorted[..(0.99 * sorted.len() as f64) as usize];
    let (whole, variance) = (mean(all), mean(&all.iter().map(|ns| ns * ns).collect::<Vec<_>>()));
    let variance = variance - whole * whole;
    let (mut below, mut best) = (0.0, (0.0, 0));
    for (index, ns) in all.iter().enumerate().take(all.len().saturating_sub(1)) {
        below += ns;
        let (count, share) = ((index + 1) as f64, (index + 1) as f64 / all.len() as f64);
        let apart = (whole * all.len() as f64 - below) / (all.len() as f64 - count) - below / count;
        let between = share * (1.0 - share) * apart * apart;
        if between > best.0 && share.min(1.0 - share) >= MIN_GROUP_SHARE {
            best = (between, index + 1);
        }
    }
    let (low, high) = all.split_at(best.1);
    // Between two groups is a gap; a continuous spread has none.
    let gap = high.first().zip(low.last()).map_or(0.0, |(high, low)| high - low);
    let apart = mean(high) - mean(low);
    let is_large = apart > MIN_APART * rank(0.5);
    match best.0 >= MIN_BETWEEN * variance && gap > 0.2 * apart && is_large {
        true => format!(
            "two groups: {:.0} % take {} more",
            100.0 * high.len() as f64 / all.len() as f64,
            format_nanoseconds(apart)
        ),
        false if rank(0.75) - rank(0.25) <= CONSTANT_SPREAD * rank(0.5) => "constant".to_owned(),
        false => "random".to_owned(),
    }
}

/// Connections at once that show whether clients wait for each other.
pub(super) const CLIENTS: u32 = 4;
/// Ratio from which all round trips with these connections count as longer than any of one client, and ratio below which none
/// does.
const GROWS: f64 = 1.5;
const CONSTANT: f64 = 1.25;

/// Dependence of the time of the server on the number of clients, from the medians of blocks with one and with [`CLIENTS`].
pub(super) fn growth(one: &[f64], several: &[f64]) -> Option<&'static str> {
    let (least, most) = (
        |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min),
        |all: &[f64]| all.iter().copied().fold(0.0, f64::max),
    );
    match () {
        () if one.is_empty() || several.is_empty() => None,
        () if least(several) > GROWS * most(one) => Some("it grows with the number of clients"),
        () if most(several) < CONSTANT * least(one) => Some("clients do not wait for each other"),
        () => None,
    }
}

/// Place of the cause of a sighting: a cause on the path delays handshakes as well, one in the server does not.
fn place(sighting: &Sighting, screen: &Screen, path: &Path) -> CausePlace {
    let excess = path.mean_ns - path.shortest_ns;
    match sighting.cause.signature {
        Signature::Clock { .. } if excess > PATH_SHARE * sighting.cost_ns => CausePlace::Path,
        Signature::Clock { .. } => CausePlace::Server,
        Signature::PeriodicPauses { .. } | Signature::RandomPauses => place_of_slow(screen, path),
        _ => CausePlace::Unknown,
    }
}

/// Place where requests wait that take `limit_ns` more than the others, or longer: if threads of this host are delayed meanwhile,
/// it is this host.
pub(super) fn place_of_pauses(slow: &[Sample], limit_ns: f64, path: &Path) -> CausePlace {
    // Busy hosts wake threads up some ms late all the time.
    let late_ns = 2.0 * limit_ns;
    let is_host = match path.late_meanwhile(slow, late_ns) {
        (_, 0) => path.late_share(late_ns) > MAX_LATE_SHARE,
        (late, all) => HOST_PART * late > all,
    };
    match path.meanwhile(slow, limit_ns) {
        _ if is_host => CausePlace::Host,
        (_, 0) if path.slow(limit_ns) < MIN_QUEUED => CausePlace::Unknown,
        (_, 0) => CausePlace::Path,
        (late, all) if 2 * late > all => CausePlace::Path,
        _ => CausePlace::Server,
    }
}

/// Place where the slow requests of the screen wait.
fn place_of_slow(screen: &Screen, path: &Path) -> CausePlace {
    let limits = [&screen.closed, &screen.paused].map(|block| {
        stats::median(&block.latencies_ns()).map_or(f64::INFINITY, super::signatures::slow_limit)
    });
    let limit = limits[0].max(limits[1]);
    let all = screen.closed.samples.iter().chain(&screen.paused.samples);
    let slow: Vec<Sample> = all.filter(|sample| sample.service_ns() as f64 > limit).copied().collect();
    place_of_pauses(&slow, 0.5 * limit, path)
}

/// Gives each sighting the cause at its place: what delays handshakes as well is no clock and no pause of the server, and what delays
/// threads of this host is neither.
pub(super) fn relocate(sightings: &mut Vec<Sighting>, screen: &Screen, target: &Target) {
    let Some(path) = &screen.path else { return };
    sightings.retain(|sighting| place(sighting, screen, path) != CausePlace::Host);
    for sighting in sightings {
        let on_path = match sighting.cause.signature {
            Signature::Clock { .. } => "path_clock",
            _ => "path_stall",
        };
        let (id, why) = match place(sighting, screen, path) {
            CausePlace::Path => (on_path, "handshakes are late as well"),
            CausePlace::Server if matches!(sighting.cause.signature, Signature::Clock { .. }) => {
                ("remote_clock", "handshakes do not wait for it")
            }
            CausePlace::Server => (sighting.cause.id, "handshakes meanwhile are not late"),
            _ => continue,
        };
        sighting.cause = causes::named(target, id).unwrap_or(sighting.cause);
        sighting.evidence = format!("{}; {why}", sighting.evidence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::live::path::Handshake;
    use linkgauge_model::clock::Time;

    /// The path whose handshakes take these times in ms.
    fn path(times_ms: impl Iterator<Item = f64>) -> Path {
        let handshakes = times_ms.enumerate().map(|(index, ms)| Handshake::at(Time(index as u64), 1e6 * ms));
        Path::of(handshakes.collect()).unwrap()
    }

    fn constant(ms: f64) -> Path {
        path((0..100).map(|index| ms + 0.001 * f64::from(index % 5)))
    }

    fn latencies(ms: impl Fn(u32) -> f64) -> Vec<f64> {
        (0..1000).map(|index| 1e6 * ms(index)).collect()
    }

    #[test]
    fn what_requests_take_above_handshakes_is_the_server() {
        let part = server(&constant(0.02), &latencies(|_| 5.12)).unwrap();
        assert!((part.cost_ns / 5.1e6 - 1.0).abs() < 0.01 && (part.mean_ns / 5.1e6 - 1.0).abs() < 0.01);
        assert!(part.text.ends_with(" more on average, constant"), "{}", part.text);
        assert!(server(&constant(0.02), &latencies(|_| 0.06)).is_none(), "both programs wake up");
        assert!(server(&constant(20.0), &latencies(|_| 20.4)).is_none(), "a small share");
        assert!(delay(&constant(20.0), &latencies(|_| 20.4)).is_some());
        assert!(delay(&constant(0.02), &latencies(|_| 0.06)).is_none());
    }

    #[test]
    fn handshakes_above_the_shortest_are_a_queue_and_no_server() {
        let standing = path((0..100).map(|index| if index < 3 { 0.2 } else { 40.0 }));
        let requests = latencies(|_| 40.2);
        let part = queue(&standing, &requests).unwrap();
        assert!(
            (part.cost_ns / 39.8e6 - 1.0).abs() < 0.01 && part.text.ends_with("wait most of the time"),
            "{}",
            part.text
        );
        assert!(server(&standing, &requests).is_none_or(|part| part.cost_ns < 1e6));
        let bursty = path((0..100).map(|index| if index % 3 == 0 { 30.0 } else { 0.2 }));
        let part = queue(&bursty, &latencies(|index| if index % 3 == 0 { 30.2 } else { 0.3 })).unwrap();
        assert!(
            part.cost_ns < 1e6 && part.mean_ns > 9e6 && part.text.ends_with("wait at times"),
            "{}",
            part.text
        );
        assert!(queue(&constant(10.0), &latencies(|_| 10.1)).is_none());
        let one = path((0..100).map(|index| if index == 7 { 800.0 } else { 0.2 }));
        assert!(queue(&one, &latencies(|_| 0.3)).is_none(), "one handshake");
        let mut busy = bursty.clone();
        busy.handshakes.iter_mut().for_each(|handshake| {
            (handshake.late_ns, handshake.is_of_kernel) = (5e6, false);
        });
        assert!(queue(&busy, &latencies(|_| 0.3)).is_none(), "threads of this host wake up late");
        let sawtooth = path((0..120).map(|index| 60.0 + 0.2 * f64::from(index % 40)));
        let part = queue(&sawtooth, &latencies(|_| 64.0)).unwrap();
        assert!(part.text.contains("over many handshakes") && (part.mean_ns / 3.9e6 - 1.0).abs() < 0.01);
        let mut late = sawtooth.clone();
        late.handshakes.iter_mut().for_each(|handshake| {
            (handshake.late_ns, handshake.is_of_kernel) = (5e6, false);
        });
        assert!(queue(&late, &latencies(|_| 64.0)).is_none(), "threads of this host wake up late");
        let jitter = path((0..120).map(|index| 60.0 + 1.3 * f64::from(7 * index % 6)));
        assert!(queue(&jitter, &latencies(|_| 64.0)).is_none(), "random delays");
        let lost = path((0..100).map(|index| if index % 40 == 7 { 1010.0 } else { 0.2 }));
        assert!(queue(&lost, &latencies(|_| 0.3)).is_none(), "a loss is no queue");
        assert_eq!(lost_handshakes(&lost).unwrap().text, "3 of 100 handshakes were lost and sent again");
        assert!(lost_handshakes(&one).is_none());
    }

    #[test]
    fn shapes_are_constant_two_groups_or_random() {
        assert_eq!(shape(&latencies(|index| 5.0 + 0.0001 * f64::from(index))), "constant");
        assert_eq!(
            shape(&latencies(|index| if index % 5 == 0 { 8.02 } else { 0.02 })),
            "two groups: 19 % take 8.000 ms more"
        );
        assert_eq!(shape(&latencies(|index| 0.01 * f64::from(index))), "random");
        assert_eq!(shape(&[]), "constant");
    }

    #[test]
    fn a_server_that_serialises_clients_takes_longer_for_several() {
        let grows = Some("it grows with the number of clients");
        assert_eq!(growth(&[3.1, 3.2, 3.0], &[12.2, 12.6, 11.9]), grows);
        assert_eq!(growth(&[5.1, 5.2, 5.0], &[5.3, 5.2, 5.4]), Some("clients do not wait for each other"));
        assert_eq!(growth(&[3.1, 9.2, 3.0], &[12.2, 5.6, 11.9]), None, "they overlap");
        assert_eq!(growth(&[3.1], &[]), None);
    }

    #[test]
    fn a_server_that_accepts_late_delays_the_first_reply() {
        assert!(accepting(&[4e8, 3.9e8, 4.1e8], (1e4, 0.0), None).is_some());
        let slow_at_times = path((0..100).map(|index| if index % 20 == 7 { 300.0 } else { 0.2 }));
        assert!(accepting(&[4e8, 3.9e8, 4.1e8], (1e4, 0.0), Some(&slow_at_times)).is_none(), "the path");
        assert!(accepting(&[4e5, 3.9e5, 4.1e5], (1e4, 0.0), None).is_none(), "threads of the server start");
        assert!(accepting(&[4e8, 1e4, 1e4, 1e4], (1e4, 0.0), None).is_none(), "only the first connection");
        assert!(
            accepting(&[1e4, 3.9e8, 4.1e8, 4e8], (1e4, 0.0), None).is_some(),
            "the server has waited for the first"
        );
        assert!(accepting(&[4e8, 1e8, 2e8, 5e7], (1e4, 0.0), None).is_none(), "a busy host");
        assert!(accepting(&[4e8, 3.9e8, 4.1e8], (1e4, 5e8), None).is_none(), "slow start");
        assert_eq!((slow_start_ns(200_000, 6e7), slow_start_ns(64, 6e7)), (4.8e8, 0.0));
        assert!(accepting(&[], (1e4, 0.0), None).is_none());
    }
}
