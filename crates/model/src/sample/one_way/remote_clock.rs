//! Properties of the server's clock that its times show: a coarse step, or a rate that no clock has.

use super::{CLOCK_TOLERANCE_NS, MAX_CLOCK_DRIFT, TimedReply, hull_slopes, offset_points};
use crate::run::RemoteClock;
use crate::stats::LineBounds;

/// Tolerance of the times, in ns: some servers compute them with doubles.
const TOLERANCE_NS: i64 = 2 * CLOCK_TOLERANCE_NS as i64;

/// Shortest step that is looked for. Times of a finer clock are seldom all on its steps.
const MIN_TICK_NS: i64 = 20 * TOLERANCE_NS;

/// Different times that all have to be on the steps.
const MIN_TIMES: usize = 8;

/// A larger step, as a share of the shortest round trip, hides the one-way delays.
const MAX_TICK_SHARE: f64 = 0.05;

/// Maximum rate that is looked for.
const MAX_RATE: f64 = 0.1;

/// The slopes of both directions differ by at most this share if a clock makes them.
const MAX_SLOPE_DIFFERENCE: f64 = 0.2;

/// The step of the server's clock, and its rate if that is too large; `None`: neither.
pub(super) fn find(timed: &[TimedReply]) -> Option<RemoteClock> {
    let clock = RemoteClock {
        tick_ns: tick_ns(timed).map(|tick| tick as f64),
        excessive_drift_ppm: drift_ppm(timed),
    };
    (clock.tick_ns.is_some() || clock.excessive_drift_ppm.is_some()).then_some(clock)
}

/// Whether the one-way delays are still known with such a clock.
pub(super) fn permits_delays(clock: &RemoteClock, timed: &[TimedReply]) -> bool {
    let shortest = timed.iter().map(TimedReply::round_trip_ns).min().unwrap_or(0);
    clock.excessive_drift_ppm.is_none()
        && clock.tick_ns.is_none_or(|tick| tick <= MAX_TICK_SHARE * shortest as f64)
}

/// A drift above that of clocks: it shows in both directions alike, and explains all round trips.
fn drift_ppm(timed: &[TimedReply]) -> Option<f64> {
    let (forward, reverse) = hull_slopes(timed)?;
    let drift = (forward - reverse) / 2.0;
    let is_clock = (forward + reverse).abs() <= MAX_SLOPE_DIFFERENCE * drift.abs();
    let is_excessive = drift.abs() > MAX_CLOCK_DRIFT && is_clock;
    (is_excessive && LineBounds::new(&offset_points(timed), MAX_RATE).is_some()).then_some(drift * 1e6)
}

/// The step that all times of the server are multiples of. If those of the client have one too, it is not that of a clock.
fn tick_ns(timed: &[TimedReply]) -> Option<i64> {
    let sent = distinct(timed.iter().map(|timed| timed.sent_at.0 as i64).collect());
    let server = distinct(timed.iter().flat_map(TimedReply::server_times_ns).collect());
    let step = step_of(&server).filter(|_| step_of(&sent).is_none());
    // In a short measurement the clock stands still while the client sends several requests.
    let stands_still = sent.len() >= MIN_TIMES && 2 * server.len() <= sent.len();
    step.or_else(|| {
        let span = sent.last()?.wrapping_sub(sent[0]);
        stands_still.then(|| gaps(&server).min().unwrap_or(span))
    })
}

/// Distinct times, in order.
fn distinct(mut times: Vec<i64>) -> Vec<i64> {
    times.sort_unstable();
    times.dedup_by(|later, earlier| later.wrapping_sub(*earlier) <= TOLERANCE_NS);
    times
}

fn gaps(times: &[i64]) -> impl Iterator<Item = i64> {
    times.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]))
}

/// The step that all these times are multiples of, up to a constant.
fn step_of(times: &[i64]) -> Option<i64> {
    if times.len() < MIN_TIMES {
        return None;
    }
    let mut gaps: Vec<i64> = gaps(times).collect();
    gaps.sort_unstable();
    let mut step = gaps[0] as f64;
    for gap in &gaps {
        step = common_step(step, *gap as f64);
        if step < MIN_TICK_NS as f64 {
            return None;
        }
    }
    let step = step.round() as i64;
    let is_multiple = |gap: i64| {
        let beyond = gap.rem_euclid(step);
        beyond.min(step - beyond) <= TOLERANCE_NS
    };
    gaps.into_iter().all(is_multiple).then_some(step)
}

/// The largest step that both are multiples of, within the tolerance. The longer one shows it more exactly.
fn common_step(step: f64, longer: f64) -> f64 {
    let (mut small, mut large) = (step.min(longer), step.max(longer));
    loop {
        let count = (large / small).round();
        let beyond = (large - count * small).abs();
        if beyond <= TOLERANCE_NS as f64 * count.max(2.0) || small < MIN_TICK_NS as f64 {
            return large / count;
        }
        (large, small) = (small, beyond);
    }
}
