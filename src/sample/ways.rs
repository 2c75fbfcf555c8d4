//! The way there and the way back, told apart by a far end that says when a request came and when its answer left.
//!
//! The two clocks need not agree: what they differ by falls out of every difference along one way, and how far they may
//! differ at most is known from the fastest round trip. Only a clock that is set in the middle of a run spoils it, and that shows.

use std::ops::Range;

use super::figures::distribution;
use super::{Counts, Times};
use crate::clock::Time;
use crate::run;
use crate::stats;

/// What a far end told of an exchange: times by its clock, laid on ours, off by as much as the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    pub received: i64,
    pub sent: i64,
    /// Which of its answers it was.
    pub number: u32,
}

/// Exchanges whose ways are kept one by one; those beyond count for the turn-around and the path alone (2.4 MB).
const KEPT: usize = 100_000;

/// A far end's clock may run so much faster than ours that its turn-around seems longer than the round trip, and its
/// time stamps are rounded: so much is no lie.
const LEEWAY_NS: u64 = 1_000;
const LEEWAY_SHARE: u64 = 1_000;

/// No oscillator runs further off than this (NTP's own limit); what seems to is the way itself.
const FASTEST_DRIFT: f64 = 500e-6;

/// Below so many exchanges, or nanoseconds, a drift cannot be told from chance.
const FEWEST: usize = 100;
const SHORTEST_NS: u64 = 100_000_000;

/// One exchange: nanoseconds from sending here to receipt there, and from sending there to receipt here, both off by
/// the difference of the clocks.
#[derive(Debug, Clone, Copy)]
struct Kept {
    at: Time,
    there: i64,
    back: i64,
}

/// What is known of the ways of one flow, or of several together.
#[derive(Debug, Clone)]
pub struct Ways {
    turnaround: Times,
    path: Times,
    kept: Vec<Kept>,
    /// Number of the first and of the newest exchange, each with the far end's number of its answer.
    first: Option<(u64, u32)>,
    newest: Option<(u64, u32)>,
    /// The far end counted for itself: some answer had another number than its request.
    counts: bool,
    /// Made of what was kept, when the flow ends.
    settled: Option<Settled>,
}

#[derive(Debug, Clone)]
struct Settled {
    there: Times,
    back: Times,
    clocks: Clocks,
    /// How often the far clock was set.
    steps: u64,
}

impl Settled {
    /// Joins another's; what is told of the clocks is of the one that knows them least.
    fn merge(&mut self, other: &Settled) {
        self.there.merge(&other.there);
        self.back.merge(&other.back);
        self.steps += other.steps;
        if other.clocks.bound_ns > self.clocks.bound_ns {
            self.clocks = other.clocks;
        }
    }
}

/// How the two clocks stand to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Clocks {
    /// Half of the shortest path, and so the furthest that a one-way delay may be off.
    bound_ns: f64,
    offset_ns: f64,
    drift: f64,
    /// The shortest way there and back by the clock set right.
    there_ns: f64,
    back_ns: f64,
}

impl Ways {
    pub(super) fn new() -> Ways {
        Ways {
            turnaround: Times::new(),
            path: Times::new(),
            kept: Vec::with_capacity(KEPT),
            first: None,
            newest: None,
            counts: false,
            settled: None,
        }
    }

    /// An answered exchange; `false` if the far end cannot have taken so long.
    pub(super) fn answered(&mut self, sequence: u64, sent: Time, received: Time, stages: Stages) -> bool {
        let whole = received.0.saturating_sub(sent.0);
        let Ok(turnaround) = u64::try_from(stages.sent.wrapping_sub(stages.received)) else { return false };
        if turnaround > whole + LEEWAY_NS + whole / LEEWAY_SHARE {
            return false;
        }
        self.turnaround.record(turnaround);
        self.path.record(whole.saturating_sub(turnaround));
        self.counts |= stages.number != sequence as u32;
        self.first.get_or_insert((sequence, stages.number));
        if self.newest.is_none_or(|(newest, _)| newest < sequence) {
            self.newest = Some((sequence, stages.number));
        }
        if self.kept.len() < KEPT {
            self.kept.push(Kept {
                at: sent,
                there: stages.received.wrapping_sub(sent.0 as i64),
                back: (received.0 as i64).wrapping_sub(stages.sent),
            });
        }
        true
    }

    /// The flow has ended: its clocks are compared. Several flows may have several far ends, so each does so alone.
    pub(super) fn settle(&mut self) {
        if self.settled.is_some() || self.kept.is_empty() {
            return;
        }
        self.kept.sort_by_key(|kept| kept.at);
        let parts = between_steps(&self.kept);
        let steps = parts.len() as u64 - 1;
        let mut parts = parts.into_iter().map(|part| settled(&self.kept[part]));
        let mut all = parts.next().expect("something was kept");
        parts.for_each(|part| all.merge(&part));
        all.steps = steps;
        self.settled = Some(all);
        self.kept = Vec::new();
    }

    /// Joins another flow's.
    pub(super) fn merge(&mut self, other: &Ways) {
        self.turnaround.merge(&other.turnaround);
        self.path.merge(&other.path);
        self.first = self.first.or(other.first);
        self.newest = self.newest.or(other.newest);
        self.counts |= other.counts;
        match (&mut self.settled, &other.settled) {
            (Some(own), Some(other)) => own.merge(other),
            (own, other) => *own = own.take().or_else(|| other.clone()),
        }
    }

    /// The figures, if there were answers.
    pub(super) fn figures(&self, counts: &Counts) -> Option<run::Ways> {
        let settled = self.settled.as_ref()?;
        let clocks = &settled.clocks;
        let of = |times: &Times, lost: u64| distribution(times, lost, &[]).0;
        let median = |times: &Times| times.ranks().value(stats::rank(times.count(), 0.5)) as f64;
        let lost_there = self.lost_there(counts);
        Some(run::Ways {
            turnaround_ns: of(&self.turnaround, 0)?,
            path_ns: of(&self.path, counts.lost)?,
            there_variation_ns: of(&settled.there, 0)?,
            back_variation_ns: of(&settled.back, 0)?,
            there_p50_ns: clocks.there_ns + median(&settled.there),
            back_p50_ns: clocks.back_ns + median(&settled.back),
            one_way_error_bound_ns: clocks.bound_ns,
            clock_offset_ns: clocks.offset_ns,
            clock_drift_ppm: clocks.drift * 1e6,
            clock_steps: settled.steps,
            lost_there,
            lost_back: lost_there.map(|there| counts.lost - there),
        })
    }

    /// How many of the lost requests never came to the far end, up to the last answer; `None` if it does not count.
    fn lost_there(&self, counts: &Counts) -> Option<u64> {
        if counts.lost == 0 {
            return Some(0);
        }
        let ((first, first_number), (newest, newest_number)) = (self.first?, self.newest?);
        let answers = u64::from(newest_number.wrapping_sub(first_number));
        self.counts.then(|| (newest - first).saturating_sub(answers).min(counts.lost))
    }
}

/// The exchanges between which the far clock went on, the oldest first.
///
/// What it is ahead is at most what it shows at a receipt there, and at least what it lacks at a receipt here: neither way takes
/// less than nothing. It was set where these limits contradict those before, widened by as much as any clock drifts.
fn between_steps(kept: &[Kept]) -> Vec<Range<usize>> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut least, mut most, mut at) = (i128::MIN, i128::MAX, Time(0));
    for (index, kept) in kept.iter().enumerate() {
        let drifted = (kept.at.since(at).as_nanos() as f64 * FASTEST_DRIFT) as i128 + i128::from(LEEWAY_NS);
        let (low, high) = (-i128::from(kept.back), i128::from(kept.there));
        (least, most) = (least.saturating_sub(drifted), most.saturating_add(drifted));
        if low > most || high < least {
            parts.push(begin..index);
            (begin, least, most) = (index, low, high);
        } else {
            (least, most) = (least.max(low), most.min(high));
        }
        at = kept.at;
    }
    parts.push(begin..kept.len());
    parts
}

/// Compares the clocks over exchanges, of which there is at least one.
fn settled(kept: &[Kept]) -> Settled {
    let drift = drift(kept).unwrap_or(0.0);
    // Counted from the first, so that no digits are lost to an offset of years.
    let first = kept[0];
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for kept in kept {
        let gained = drift * (kept.at.0 - first.at.0) as f64;
        there.push(kept.there.wrapping_sub(first.there) as f64 - gained);
        back.push(kept.back.wrapping_sub(first.back) as f64 + gained);
    }
    let least = |ways: &[f64]| ways.iter().copied().fold(f64::INFINITY, f64::min);
    let (shortest_there, shortest_back) = (least(&there), least(&back));
    let above = |ways: &[f64], shortest: f64| {
        let mut times = Times::new();
        ways.iter().for_each(|way| times.record((way - shortest).round() as u64));
        times
    };
    let half_first = first.there.wrapping_add(first.back) as f64 / 2.0;
    let fastest = there.iter().zip(&back).min_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
    let (there_of_fastest, back_of_fastest) = fastest.map_or((0.0, 0.0), |(there, back)| (*there, *back));
    let offset = (there_of_fastest - back_of_fastest) / 2.0;
    Settled {
        there: above(&there, shortest_there),
        back: above(&back, shortest_back),
        clocks: Clocks {
            bound_ns: (half_first + (there_of_fastest + back_of_fastest) / 2.0).max(0.0),
            offset_ns: first.there as f64 / 2.0 - first.back as f64 / 2.0 + offset,
            drift,
            there_ns: half_first + shortest_there - offset,
            back_ns: half_first + shortest_back + offset,
        },
        steps: 0,
    }
}

/// How fast the far clock gains on ours, by the slopes under both ways: what the way itself does is the same in both, or
/// in one alone; a clock shows in both, with opposite signs. `None` where it cannot be told.
fn drift(kept: &[Kept]) -> Option<f64> {
    let (first, last) = (kept.first()?, kept.last()?);
    if kept.len() < FEWEST || last.at.0 - first.at.0 < SHORTEST_NS {
        return None;
    }
    let points = |way: fn(&Kept) -> i64| -> Vec<(f64, f64)> {
        let height = |kept: &Kept| way(kept).wrapping_sub(way(first)) as f64;
        kept.iter().map(|kept| ((kept.at.0 - first.at.0) as f64, height(kept))).collect()
    };
    let there = stats::slope_below(&points(|kept| kept.there))?;
    let back = stats::slope_below(&points(|kept| kept.back))?;
    let drift = (there - back) / 2.0;
    (drift.abs() <= FASTEST_DRIFT).then_some(drift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Exchanges every 10 ms over ways of these lengths, with a far clock that is `offset` ahead and gains `drift`.
    fn measured(ways: &[(u64, u64, u64)], offset: i64, drift: f64) -> (Ways, run::Ways) {
        let mut measured = Ways::new();
        for (number, &(there, at, back)) in ways.iter().enumerate() {
            let sent = 1_000 * MS + number as u64 * 10 * MS;
            let far = |time: u64| time as i64 + offset + (drift * (time - 1_000 * MS) as f64).round() as i64;
            let stages =
                Stages { received: far(sent + there), sent: far(sent + there + at), number: number as u32 };
            assert!(measured.answered(number as u64, Time(sent), Time(sent + there + at + back), stages));
        }
        measured.settle();
        let counts = Counts { received: ways.len() as u64, ..Counts::default() };
        let figures = measured.figures(&counts).unwrap();
        (measured, figures)
    }

    /// There 3 ms, and 0 to 9 ms more; 2 ms at the far end; back 1 ms, and now and then 5 ms more.
    fn uneven() -> Vec<(u64, u64, u64)> {
        (0..500)
            .map(|n| ((3 + n * 7 % 10) * MS, 2 * MS, (1 + if n % 50 == 7 { 5 } else { 0 }) * MS))
            .collect()
    }

    #[test]
    fn ways_are_told_apart_whatever_the_clocks_say() {
        for offset in [0, 1, -7_000_000_000_123, 2_000_000_000_000_000_000] {
            let (_, ways) = measured(&uneven(), offset, 0.0);
            assert_eq!((ways.turnaround_ns.min, ways.turnaround_ns.max), (2 * MS, 2 * MS));
            assert_eq!((ways.path_ns.min, ways.path_ns.max), (4 * MS, 18 * MS));
            let p = |distribution: &run::Distribution, name| distribution.percentile(name).unwrap();
            assert_eq!((p(&ways.there_variation_ns, "p50"), ways.there_variation_ns.max), (4 * MS, 9 * MS));
            assert_eq!((p(&ways.back_variation_ns, "p90"), ways.back_variation_ns.max), (0, 5 * MS));
            // The truth, 3 ms against 1 ms at their shortest, lies within the bound of what is told.
            assert_eq!(ways.one_way_error_bound_ns, 2e6);
            assert!(
                (ways.there_p50_ns - 7e6).abs() <= 2e6 && (ways.back_p50_ns - 1e6).abs() <= 2e6,
                "{ways:?}"
            );
            assert!((ways.clock_offset_ns - offset as f64).abs() <= 2e6 + 300.0, "{ways:?}");
        }
    }

    #[test]
    fn a_clock_that_gains_is_set_right() {
        for drift in [40e-6, -40e-6] {
            let (_, ways) = measured(&uneven(), 5, drift);
            assert!((ways.clock_drift_ppm - drift * 1e6).abs() < 0.5, "{}", ways.clock_drift_ppm);
            assert!(ways.there_variation_ns.max.abs_diff(9 * MS) < 5_000, "{:?}", ways.there_variation_ns);
            assert!(
                ways.back_variation_ns.percentile("p90").unwrap() < 5_000,
                "{:?}",
                ways.back_variation_ns
            );
        }
        // A queue that grows on the way there is no clock: half of the slope at most is taken for one, and this is too much.
        let growing: Vec<_> = (0..500).map(|n| (MS + n * MS, MS, MS)).collect();
        let (_, ways) = measured(&growing, 5, 0.0);
        assert_eq!((ways.clock_drift_ppm, ways.there_variation_ns.max), (0.0, 499 * MS));
    }

    /// A far clock that goes from one offset to another after 250 of 500 exchanges, 10 ms apart.
    fn stepped(before: i64, after: i64, drift: f64) -> run::Ways {
        let mut measured = Ways::new();
        for (number, (there, at, back)) in (0u64..).zip(uneven()) {
            let sent = 1_000 * MS + number * 10 * MS;
            let offset = if number < 250 { before } else { after };
            let far = |time: u64| time as i64 + offset + (drift * (time - 1_000 * MS) as f64).round() as i64;
            let stages =
                Stages { received: far(sent + there), sent: far(sent + there + at), number: number as u32 };
            assert!(measured.answered(number, Time(sent), Time(sent + there + at + back), stages));
        }
        measured.settle();
        measured.figures(&Counts { received: 500, ..Counts::default() }).unwrap()
    }

    #[test]
    fn a_clock_that_is_set_shows_and_spoils_nothing() {
        let (ms, second) = (MS as i64, 1_000 * MS as i64);
        for (before, after) in [(0, 20 * ms), (0, -20 * ms), (-3 * second, 3_600 * second), (5 << 60, 0)] {
            for drift in [0.0, 40e-6] {
                let ways = stepped(before, after, drift);
                assert_eq!(ways.clock_steps, 1, "{before} to {after}");
                assert!(
                    ways.there_variation_ns.max.abs_diff(9 * MS) < 10_000,
                    "{:?}",
                    ways.there_variation_ns
                );
                assert!(ways.back_variation_ns.max.abs_diff(5 * MS) < 10_000, "{:?}", ways.back_variation_ns);
                assert!(ways.one_way_error_bound_ns < 2.1e6, "{ways:?}");
            }
        }
        // What the ways themselves may have done, or a clock that drifts, is no step.
        for (offset, drift) in [(0, 0.0), (0, 400e-6), (7 * second, -400e-6)] {
            assert_eq!(stepped(offset, offset, drift).clock_steps, 0);
        }
    }

    #[test]
    fn a_turn_around_beyond_the_round_trip_is_a_lie() {
        let mut ways = Ways::new();
        let mut answered = |turnaround: i64| {
            ways.answered(0, Time(0), Time(MS), Stages { received: 0, sent: turnaround, number: 0 })
        };
        assert!(answered(0) && answered(MS as i64) && answered(MS as i64 + 1_500));
        assert!(!answered(MS as i64 + 3_000) && !answered(-1) && !answered(i64::MAX));
        assert_eq!(ways.turnaround.count(), 3);
    }

    #[test]
    fn a_far_end_that_counts_tells_where_packets_were_lost() {
        let lost = |answers: &[(u64, u32)], lost: u64| {
            let mut ways = Ways::new();
            for &(sequence, number) in answers {
                let sent = Time(sequence * 10 * MS);
                let at = sent.0 as i64 + 1;
                ways.answered(sequence, sent, Time(sent.0 + MS), Stages { received: at, sent: at, number });
            }
            ways.settle();
            let figures = ways.figures(&Counts { lost, ..Counts::default() }).unwrap();
            figures.lost_there.zip(figures.lost_back)
        };
        assert_eq!(lost(&[(0, 0), (1, 1)], 0), Some((0, 0)));
        // 2 and 3 never came, the answer to 5 was lost.
        assert_eq!(lost(&[(1, 1), (4, 2), (6, 4)], 3), Some((2, 1)));
        assert_eq!(lost(&[(1, 1), (4, 4), (6, 6)], 3), None, "numbers that are copied tell nothing");
        assert_eq!(
            lost(&[(1, 9), (4, 2_000_000)], 3),
            Some((0, 3)),
            "and absurd ones nothing more than there is"
        );
    }

    #[test]
    fn flows_are_settled_before_they_are_joined() {
        let (mut one, _) = measured(&uneven(), 1_000_000, 0.0);
        let (other, _) = measured(&uneven(), -9_000_000_000, 0.0);
        one.merge(&other);
        let ways = one.figures(&Counts::default()).unwrap();
        assert_eq!((ways.there_variation_ns.count, ways.there_variation_ns.max), (1_000, 9 * MS));
        let mut blank = Ways::new();
        blank.merge(&one);
        assert_eq!(blank.figures(&Counts::default()).unwrap(), ways);
    }
}
