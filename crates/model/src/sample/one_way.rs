//! One-way delays, from a server that reports when a request arrived and when its reply left.
//!
//! The two clocks need not agree: their offset cancels in every difference within one direction, and the
//! fastest round trip bounds it. Only a clock that is set during a run breaks this, and that is detected.

mod remote_clock;

use std::ops::Range;

use super::QueueingDelay;
use super::figures::distribution;
use super::{Counts, Sample, TimeSamples};
use crate::clock::Time;
use crate::run;
use crate::run::BoundSource;
use crate::stats::{self, Line, LineBounds};

/// Server timestamps of one round trip: server clock times on the client's time line, wrong by the offset of
/// the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTimestamps {
    /// Arrival time of the request, in nanoseconds.
    pub received_ns: i64,
    /// Departure time of the reply, in nanoseconds.
    pub sent_ns: i64,
    /// The server's own number of this reply.
    pub reply_number: u32,
}

/// Statement of the hosts about their clocks, which both follow common time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonTime {
    /// Server clock minus client clock in nanoseconds, in the form of [`ServerTimestamps`].
    pub offset_ns: i64,
    /// The largest error of it: that of both hosts together, in nanoseconds.
    pub error_ns: u64,
    /// Time of the statement. From then on each clock may gain on common time.
    pub stated_at: Time,
}

/// Round trips whose delays are stored (2.4 MB). Later ones count only for server time and network time.
const MAX_TIMED_REPLIES: usize = 100_000;

/// Tolerance for a server time that exceeds the round trip: the server's clock may run faster than the
/// client's, and its timestamps are rounded.
const CLOCK_TOLERANCE_NS: u64 = 1_000;
const CLOCK_TOLERANCE_DIVISOR: u64 = 1_000;

/// Largest drift of an oscillator (the limit of NTP). A larger slope comes from the network.
const MAX_CLOCK_DRIFT: f64 = 500e-6;

/// Minimum number of samples, and of nanoseconds, for a drift; below, it cannot be distinguished from chance.
const MIN_DRIFT_SAMPLES: usize = 100;
const MIN_DRIFT_TIME_NS: u64 = 100_000_000;

/// One round trip: nanoseconds from the client's send to the server's receipt, and from the server's send to
/// the client's receipt. Both contain the offset of the clocks, with opposite signs.
#[derive(Debug, Clone, Copy)]
struct TimedReply {
    sent_at: Time,
    received_at: Time,
    forward_ns: i64,
    reverse_ns: i64,
    phase: ProbePhase,
}

impl TimedReply {
    /// Times at which the server received the request and sent its reply, by its clock.
    fn server_times_ns(&self) -> [i64; 2] {
        [
            (self.sent_at.0 as i64).wrapping_add(self.forward_ns),
            (self.received_at.0 as i64).wrapping_sub(self.reverse_ns),
        ]
    }

    fn round_trip_ns(&self) -> i64 {
        self.received_at.since(self.sent_at).as_nanos() as i64
    }
}

/// Whether a round trip counts, or only shows the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbePhase {
    Measured,
    Idle,
}

/// The turnaround of the server; `None` if it is impossible.
fn turnaround_ns(sample: &Sample, stages: ServerTimestamps) -> Option<u64> {
    let round_trip = sample.service_ns();
    let turnaround = u64::try_from(stages.sent_ns.wrapping_sub(stages.received_ns)).ok()?;
    let most = round_trip + CLOCK_TOLERANCE_NS + round_trip / CLOCK_TOLERANCE_DIVISOR;
    (turnaround <= most).then_some(turnaround)
}

/// The one-way delays of one flow, or of several flows merged.
#[derive(Debug, Clone)]
pub struct OneWayDelays {
    turnaround: TimeSamples,
    network_time: TimeSamples,
    round_trips: Vec<TimedReply>,
    /// Number of the first and of the newest request, each with the server's number of its reply.
    first_reply: Option<(u64, u32)>,
    newest_reply: Option<(u64, u32)>,
    /// Sum of the results of [`OneWayDelays::numbered`] for the merged flows.
    merged_numbers: (u64, u64),
    /// The server numbers its replies itself: the number of a reply differed from that of its request.
    has_reply_numbers: bool,
    /// Common time, where both hosts follow it.
    common_time: Option<CommonTime>,
    /// Facts that make one-way delays uncertain or impossible.
    remote_clock: Option<run::RemoteClock>,
    /// Excess of each impossible turnaround over its round trip, in nanoseconds.
    too_long_ns: Vec<u64>,
    /// Comparison of the clocks, computed from the stored samples when the flow ends.
    comparison: Option<ClockComparison>,
    /// Delays of all stored round trips, in the order of their replies.
    queueing: Vec<QueueingDelay>,
}

#[derive(Debug, Clone)]
struct ClockComparison {
    forward: TimeSamples,
    reverse: TimeSamples,
    /// Clock relations, one for each flow and for each time between two steps of the server's clock.
    clock_relations: Vec<ClockRelation>,
    /// Number of times the server's clock was set.
    clock_steps: u64,
    /// The round trips contradict what the hosts say about their clocks, by this many nanoseconds.
    disagreement_ns: Option<f64>,
}

impl ClockComparison {
    /// Merges another comparison.
    fn merge(&mut self, other: &ClockComparison) {
        self.forward.merge(&other.forward);
        self.reverse.merge(&other.reverse);
        self.clock_steps += other.clock_steps;
        self.disagreement_ns =
            [self.disagreement_ns, other.disagreement_ns].into_iter().flatten().reduce(f64::max);
        self.clock_relations.extend(&other.clock_relations);
    }

    /// Clock relation of the middle flow, by its median path: the one-way medians and their error belong together.
    fn clock_relation(&self) -> Option<ClockRelation> {
        let mut all: Vec<&ClockRelation> = self.clock_relations.iter().collect();
        all.sort_by(|a, b| a.path_p50_ns().total_cmp(&b.path_p50_ns()));
        all.get(all.len().saturating_sub(1) / 2).copied().copied()
    }
}

/// Relation of the two clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ClockRelation {
    /// The largest possible error of a one-way delay, and how it is known.
    error_bound_ns: f64,
    source: BoundSource,
    offset_ns: f64,
    drift: f64,
    /// Median forward and reverse delay after correction of the clock.
    forward_p50_ns: f64,
    reverse_p50_ns: f64,
}

impl ClockRelation {
    fn path_p50_ns(&self) -> f64 {
        self.forward_p50_ns + self.reverse_p50_ns
    }
}

impl OneWayDelays {
    pub(crate) fn new() -> OneWayDelays {
        OneWayDelays {
            turnaround: TimeSamples::new(),
            network_time: TimeSamples::new(),
            round_trips: Vec::with_capacity(MAX_TIMED_REPLIES),
            first_reply: None,
            newest_reply: None,
            merged_numbers: (0, 0),
            has_reply_numbers: false,
            common_time: None,
            remote_clock: None,
            too_long_ns: Vec::new(),
            comparison: None,
            queueing: Vec::new(),
        }
    }

    /// Uses the common time that both hosts follow.
    pub fn use_common_time(&mut self, common_time: CommonTime) {
        self.common_time = Some(common_time);
    }

    /// Records a round trip. Returns `false` if the reported server time is impossible.
    pub(super) fn record_reply(&mut self, sample: Sample, stages: ServerTimestamps) -> bool {
        let Some(turnaround) = turnaround_ns(&sample, stages) else {
            let too_long =
                stages.sent_ns.checked_sub(stages.received_ns).and_then(|ns| u64::try_from(ns).ok());
            if let Some(turnaround) = too_long.filter(|_| self.too_long_ns.len() < MAX_TIMED_REPLIES) {
                self.too_long_ns.push(turnaround - sample.service_ns());
            }
            return false;
        };
        self.turnaround.record(turnaround);
        self.network_time.record(sample.service_ns().saturating_sub(turnaround));
        let number = sample.sequence;
        self.has_reply_numbers |= stages.reply_number != number as u32;
        self.first_reply.get_or_insert((number, stages.reply_number));
        if self.newest_reply.is_none_or(|(newest, _)| newest < number) {
            self.newest_reply = Some((number, stages.reply_number));
        }
        self.store(sample, stages, ProbePhase::Measured);
        true
    }

    /// Records a round trip of the idle link around a load: it shows the clocks, and counts for nothing else. Returns `false` if
    /// the reported server time is impossible.
    pub(super) fn record_idle_reply(&mut self, sample: Sample, stages: ServerTimestamps) -> bool {
        let is_possible = turnaround_ns(&sample, stages).is_some();
        if is_possible {
            self.store(sample, stages, ProbePhase::Idle);
        }
        is_possible
    }

    fn store(&mut self, sample: Sample, stages: ServerTimestamps, phase: ProbePhase) {
        if self.round_trips.len() < MAX_TIMED_REPLIES {
            self.round_trips.push(TimedReply {
                sent_at: sample.sent,
                received_at: sample.received,
                forward_ns: stages.received_ns.wrapping_sub(sample.sent.0 as i64),
                reverse_ns: (sample.received.0 as i64).wrapping_sub(stages.sent_ns),
                phase,
            });
        }
    }

    /// The flow has ended: compares its clocks. Each flow does so alone, because flows may have different
    /// servers.
    pub fn finish(&mut self) {
        if self.comparison.is_some() || self.round_trips.is_empty() {
            return;
        }
        self.round_trips.sort_by_key(|timed| timed.sent_at);
        self.remote_clock = remote_clock::find(&self.round_trips);
        let clock = self.remote_clock.unwrap_or_default();
        if !remote_clock::permits_delays(&clock, &self.round_trips) {
            self.round_trips = Vec::new();
            return;
        }
        let tick_ns = clock.tick_ns.unwrap_or(0.0).round() as u64;
        let parts = split_at_clock_steps(&self.round_trips, CLOCK_TOLERANCE_NS + tick_ns);
        let steps = parts.len() as u64 - 1;
        // After a step a clock does not follow common time.
        let common_time = self.common_time.filter(|_| steps == 0);
        let mut queueing = Vec::with_capacity(self.round_trips.len());
        let mut parts = parts
            .into_iter()
            .map(|part| compare_clocks(&self.round_trips[part], tick_ns, common_time, &mut queueing));
        let mut all = parts.next().expect("at least one part exists");
        parts.for_each(|part| all.merge(&part));
        self.queueing = queueing;
        self.queueing.sort_by_key(|delay| delay.received);
        all.clock_steps = steps;
        self.comparison = Some(all);
        self.round_trips = Vec::new();
    }

    /// Facts that make one-way delays uncertain or impossible, after the flow has ended.
    pub(super) fn remote_clock(&self) -> Option<run::RemoteClock> {
        self.remote_clock
    }

    /// Replies whose turnaround is possible after all, because the server's clock is coarse.
    pub(super) fn explained_by_tick(&self) -> u64 {
        let Some(tick_ns) = self.remote_clock.and_then(|clock| clock.tick_ns) else { return 0 };
        let is_explained = |too_long: &&u64| **too_long as f64 <= tick_ns + CLOCK_TOLERANCE_NS as f64;
        self.too_long_ns.iter().filter(is_explained).count() as u64
    }

    /// Delay of each request and reply above the fastest, in the order of the replies, after the flow has ended.
    pub fn queueing(&self) -> &[QueueingDelay] {
        &self.queueing
    }

    /// Merges another flow.
    pub(super) fn merge(&mut self, other: &OneWayDelays) {
        self.turnaround.merge(&other.turnaround);
        self.network_time.merge(&other.network_time);
        let (requests, replies) = other.numbered();
        self.merged_numbers = (self.merged_numbers.0 + requests, self.merged_numbers.1 + replies);
        self.has_reply_numbers |= other.has_reply_numbers;
        self.remote_clock = self.remote_clock.or(other.remote_clock);
        self.queueing.extend(&other.queueing);
        self.queueing.sort_by_key(|delay| delay.received);
        self.queueing.truncate(MAX_TIMED_REPLIES);
        match (&mut self.comparison, &other.comparison) {
            (Some(own), Some(other)) => own.merge(other),
            (own, other) => *own = own.take().or_else(|| other.clone()),
        }
    }

    /// The figures, if there were replies.
    pub fn figures(&self, counts: &Counts) -> Option<run::OneWayFigures> {
        let settled = self.comparison.as_ref()?;
        let clocks = settled.clock_relation()?;
        let of = |times: &TimeSamples, lost: u64| distribution(times, lost, &[]);
        let forward_lost = self.lost_forward(counts);
        Some(run::OneWayFigures {
            turnaround_ns: of(&self.turnaround, 0)?,
            path_ns: of(&self.network_time, counts.lost)?,
            forward_variation_ns: of(&settled.forward, 0)?,
            reverse_variation_ns: of(&settled.reverse, 0)?,
            forward_p50_ns: clocks.forward_p50_ns,
            reverse_p50_ns: clocks.reverse_p50_ns,
            one_way_error_bound_ns: clocks.error_bound_ns,
            bound_source: clocks.source,
            clock_disagreement_ns: settled.disagreement_ns,
            clock_offset_ns: clocks.offset_ns,
            clock_drift_ppm: clocks.drift * 1e6,
            clock_steps: settled.clock_steps,
            forward_lost,
            reverse_lost: forward_lost.map(|forward| counts.lost - forward),
        })
    }

    /// Requests lost in forward direction, up to the last reply. `None` if the server does not number its
    /// replies.
    fn lost_forward(&self, counts: &Counts) -> Option<u64> {
        if counts.lost == 0 {
            return Some(0);
        }
        let (requests, replies) = self.numbered();
        self.has_reply_numbers.then(|| requests.saturating_sub(replies).min(counts.lost))
    }

    /// Requests sent and replies made between the first reply and the newest, of all merged flows.
    fn numbered(&self) -> (u64, u64) {
        let (requests, replies) = self.merged_numbers;
        let (Some((first, first_number)), Some((newest, newest_number))) =
            (self.first_reply, self.newest_reply)
        else {
            return (requests, replies);
        };
        (requests + newest - first, replies + u64::from(newest_number.wrapping_sub(first_number)))
    }
}

/// The ranges between steps of the server's clock, oldest first.
///
/// Delays are never negative. So each forward sample gives an upper bound of the clock offset, and each
/// reverse sample a lower bound. The clock was set where these bounds contradict the earlier ones, widened by
/// the largest drift of a clock.
fn split_at_clock_steps(timed: &[TimedReply], tolerance_ns: u64) -> Vec<Range<usize>> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut lower, mut upper, mut at) = (i128::MIN, i128::MAX, Time(0));
    for (index, timed) in timed.iter().enumerate() {
        let drifted =
            (timed.sent_at.since(at).as_nanos() as f64 * MAX_CLOCK_DRIFT) as i128 + i128::from(tolerance_ns);
        let (low, high) = (-i128::from(timed.reverse_ns), i128::from(timed.forward_ns));
        (lower, upper) = (lower.saturating_sub(drifted), upper.saturating_add(drifted));
        if low > upper || high < lower {
            parts.push(begin..index);
            (begin, lower, upper) = (index, low, high);
        } else {
            (lower, upper) = (lower.max(low), upper.min(high));
        }
        at = timed.sent_at;
    }
    parts.push(begin..timed.len());
    parts
}

/// Compares the clocks over at least one round trip.
fn compare_clocks(
    timed: &[TimedReply],
    tick_ns: u64,
    common_time: Option<CommonTime>,
    queueing: &mut Vec<QueueingDelay>,
) -> ClockComparison {
    let ClockLine { line, error_ns, source, disagreement_ns } = clock_line(timed, tick_ns, common_time);
    let first = timed[0];
    let (mut forward, mut reverse) = (Vec::new(), Vec::new());
    // Delays are relative to those of the first sample, so that an offset of years costs no digits.
    let half_first = first.forward_ns.wrapping_add(first.reverse_ns) as f64 / 2.0;
    for timed in timed {
        let offset = line.at_zero + line.slope * (timed.sent_at.0 - first.sent_at.0) as f64;
        forward.push(half_first + timed.forward_ns.wrapping_sub(first.forward_ns) as f64 - offset);
        reverse.push(half_first + timed.reverse_ns.wrapping_sub(first.reverse_ns) as f64 + offset);
    }
    let minimum = |delays: &[f64]| delays.iter().copied().fold(f64::INFINITY, f64::min);
    let (shortest_forward, shortest_reverse) = (minimum(&forward), minimum(&reverse));
    let above_shortest = |delay: f64, shortest: f64| (delay - shortest).round() as u64;
    queueing.extend(timed.iter().zip(forward.iter().zip(&reverse)).map(|(timed, (forward, reverse))| {
        QueueingDelay {
            received: timed.received_at,
            forward_ns: above_shortest(*forward, shortest_forward),
            reverse_ns: above_shortest(*reverse, shortest_reverse),
        }
    }));
    let above = |delays: &[f64], shortest: f64| {
        let mut times = TimeSamples::new();
        let measured = delays.iter().zip(timed).filter(|(_, timed)| timed.phase == ProbePhase::Measured);
        measured.for_each(|(delay, _)| times.record(above_shortest(*delay, shortest)));
        times
    };
    let (forward, reverse) = (above(&forward, shortest_forward), above(&reverse, shortest_reverse));
    let median =
        |times: &TimeSamples| times.ranks().value_at_rank(stats::nearest_rank(times.count(), 0.5)) as f64;
    let measured = (forward.count() > 0).then(|| ClockRelation {
        // No part of a round trip is longer than the shortest one.
        error_bound_ns: if tick_ns > 0 { error_ns.min(shortest_round_trip(timed) / 2.0) } else { error_ns },
        source,
        offset_ns: first.forward_ns as f64 / 2.0 - first.reverse_ns as f64 / 2.0 + line.at_zero,
        drift: line.slope,
        forward_p50_ns: shortest_forward + median(&forward),
        reverse_p50_ns: shortest_reverse + median(&reverse),
    });
    ClockComparison {
        forward,
        reverse,
        clock_relations: measured.into_iter().collect(),
        clock_steps: 0,
        disagreement_ns,
    }
}

fn shortest_round_trip(timed: &[TimedReply]) -> f64 {
    timed.iter().map(TimedReply::round_trip_ns).min().unwrap_or(0) as f64
}

/// The offset of the clocks over time, relative to half of the difference of the first two delays.
struct ClockLine {
    line: Line,
    /// The largest error of the line.
    error_ns: f64,
    source: BoundSource,
    disagreement_ns: Option<f64>,
}

/// A drift that the delays show is used if the largest error grows by no more than this share.
const MAX_ERROR_GROWTH: f64 = 0.05;

/// The best line for the offset of the clocks. Its error comes from the round trips, or from common time, if that is better.
fn clock_line(timed: &[TimedReply], tick_ns: u64, common_time: Option<CommonTime>) -> ClockLine {
    let drift = clock_drift(timed);
    let tick_ns = tick_ns as f64;
    let widened = |(at, upper, lower): (f64, f64, f64)| (at, upper + tick_ns, lower - tick_ns);
    let points: Vec<_> = offset_points(timed).into_iter().map(widened).collect();
    let best_of = |points: &[(f64, f64, f64)]| {
        let bounds = LineBounds::new(points, MAX_CLOCK_DRIFT)?;
        let (middle, least_error) = bounds.middle();
        // An unknown drift counts as none.
        let (line, error) = bounds.with_slope(drift.unwrap_or(0.0));
        Some(if error <= least_error * (1.0 + MAX_ERROR_GROWTH) {
            (line, error)
        } else {
            (middle, least_error)
        })
    };
    let by_round_trips = best_of(&points);
    let first = timed[0];
    let half_difference = first.forward_ns as f64 / 2.0 - first.reverse_ns as f64 / 2.0;
    // Each clock may gain on common time as long as the hosts do not state their errors again.
    let growth = |elapsed_ns: f64| 2.0 * MAX_CLOCK_DRIFT * elapsed_ns;
    let common = common_time.map(|common| {
        let since_statement = first.sent_at.since(common.stated_at).as_nanos() as f64;
        (common.offset_ns as f64 - half_difference, common.error_ns as f64 + growth(since_statement))
    });
    let narrowed: Option<Vec<(f64, f64, f64)>> = common.map(|(offset, error)| {
        let narrow = |&(at, upper, lower): &(f64, f64, f64)| {
            let error = error + growth(at);
            (at, upper.min(offset + error), lower.max(offset - error))
        };
        points.iter().map(narrow).collect()
    });
    let by_common_time = narrowed.and_then(|points| best_of(&points));
    // Delays are whole nanoseconds, and an offset is half of a difference.
    let half_ns = |value: f64| (2.0 * value).round() / 2.0;
    let of = |(line, error_ns): (Line, f64), source| ClockLine {
        line: Line { at_zero: half_ns(line.at_zero), ..line },
        error_ns,
        source,
        disagreement_ns: None,
    };
    match (by_round_trips, by_common_time, common) {
        (Some(own), Some(better), _) if better.1 < own.1 => of(better, BoundSource::CommonTime),
        (Some(own), None, Some((offset, error))) => {
            let disagreement = (own.0.at_zero - offset).abs() - own.1 - error;
            ClockLine { disagreement_ns: Some(disagreement.max(0.0)), ..of(own, BoundSource::RoundTrips) }
        }
        (Some(own), ..) => of(own, BoundSource::RoundTrips),
        // Rounded times of round trips without a delay can contradict each other.
        (None, ..) => of(line_between_minima(&points, drift.unwrap_or(0.0)), BoundSource::RoundTrips),
    }
}

/// The line in the middle between the fastest messages of both directions, and half of the distance.
fn line_between_minima(points: &[(f64, f64, f64)], slope: f64) -> (Line, f64) {
    let upper = points.iter().map(|(at, upper, _)| upper - slope * at).fold(f64::INFINITY, f64::min);
    let lower = points.iter().map(|(at, _, lower)| lower - slope * at).fold(f64::NEG_INFINITY, f64::max);
    (Line { at_zero: (upper + lower) / 2.0, slope }, ((upper - lower) / 2.0).max(0.0))
}

/// The bounds of the offset that each round trip sets, because no delay is negative: position, upper and lower bound. They are
/// relative to half of the difference of the first two delays.
fn offset_points(timed: &[TimedReply]) -> Vec<(f64, f64, f64)> {
    let first = timed[0];
    let half_first = first.forward_ns.wrapping_add(first.reverse_ns) as f64 / 2.0;
    let point = |timed: &TimedReply| {
        let upper = timed.forward_ns.wrapping_sub(first.forward_ns) as f64 + half_first;
        let lower = -(timed.reverse_ns.wrapping_sub(first.reverse_ns) as f64) - half_first;
        ((timed.sent_at.0 - first.sent_at.0) as f64, upper, lower)
    };
    timed.iter().map(point).collect()
}

/// The drift of the server's clock against the client's, from the slopes below the delays of both directions.
/// A network effect shows with the same sign in both, or in one alone; a clock shows in both with opposite
/// signs. `None` if the drift cannot be determined.
fn clock_drift(timed: &[TimedReply]) -> Option<f64> {
    let (forward, reverse) = hull_slopes(timed)?;
    let drift = (forward - reverse) / 2.0;
    (drift.abs() <= MAX_CLOCK_DRIFT).then_some(drift)
}

/// The slopes below the delays of both directions. `None` if there are too few round trips.
fn hull_slopes(timed: &[TimedReply]) -> Option<(f64, f64)> {
    let (first, last) = (timed.first()?, timed.last()?);
    if timed.len() < MIN_DRIFT_SAMPLES || last.sent_at.0 - first.sent_at.0 < MIN_DRIFT_TIME_NS {
        return None;
    }
    let points = |direction: fn(&TimedReply) -> i64| -> Vec<(f64, f64)> {
        let height = |timed: &TimedReply| direction(timed).wrapping_sub(direction(first)) as f64;
        timed.iter().map(|timed| ((timed.sent_at.0 - first.sent_at.0) as f64, height(timed))).collect()
    };
    let forward = stats::lower_hull_slope(&points(|timed| timed.forward_ns))?;
    let reverse = stats::lower_hull_slope(&points(|timed| timed.reverse_ns))?;
    Some((forward, reverse))
}

#[cfg(test)]
mod tests;
