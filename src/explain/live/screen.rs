//! The screen: round trips without a pause, and round trips after random pauses.
//!
//! With one request at a time and exponential pauses, clocks and sleep show, and neither queues nor a constant latency look
//! like them. The round trips without a pause give the figure that is explained.

use std::time::Duration;

use super::LiveError;
use super::blocks::{Block, BlockPlan, BlockRunner};
use crate::link::UnpacedScope;
use crate::plan::Pacing;
use crate::stats;

/// Share of the budget for round trips without a pause, and for those after pauses.
const CLOSED_SHARE: f64 = 0.05;
const PAUSED_SHARE: f64 = 0.28;

/// Requests without a pause at most: enough for rare groups.
const MAX_CLOSED_REQUESTS: u64 = 20_000;
/// Requests after a pause that the mean pause is chosen for.
const PAUSED_REQUESTS: f64 = 300.0;
/// Limits of the mean pause. Periods are found up to twice the mean: a minute suffices for the beacon of Wi-Fi, ten minutes
/// for the sniff intervals of Bluetooth.
const MIN_MEAN_PAUSE: Duration = Duration::from_millis(2);
const MAX_MEAN_PAUSE: Duration = Duration::from_millis(600);
/// Hosts limit the rate of replies where requests must not be sent without a pause.
const LIMITED_MEAN_PAUSE: Duration = Duration::from_millis(110);

/// First requests that are left out: cold caches and slow start.
pub(super) const WARM_UP_REQUESTS: u64 = 5;

/// What the screen measured.
pub(super) struct Screen {
    /// One request after the other.
    pub(super) closed: Block,
    /// One request at a time after random pauses.
    pub(super) paused: Block,
    /// The mean of these pauses.
    pub(super) mean_pause: Duration,
}

impl Screen {
    /// Measures both, in about a third of the budget.
    ///
    /// # Errors
    ///
    /// The link cannot be measured, or the user interrupts.
    pub(super) fn measure(runner: &BlockRunner, budget: Duration, seed: u64) -> Result<Screen, LiveError> {
        let closed = runner.run(
            &[],
            BlockPlan {
                pacing: Pacing::Closed,
                count: MAX_CLOSED_REQUESTS,
                time: budget.mul_f64(CLOSED_SHARE),
                warm_up: WARM_UP_REQUESTS,
            },
        )?;
        let time = budget.mul_f64(PAUSED_SHARE);
        let caps = crate::link::endpoint_caps(&runner.case.endpoints[0]);
        let is_limited = caps.is_ok_and(|caps| caps.unpaced_scope == UnpacedScope::Nowhere);
        let mean_pause = match is_limited {
            true => LIMITED_MEAN_PAUSE,
            false => time.div_f64(PAUSED_REQUESTS).clamp(MIN_MEAN_PAUSE, MAX_MEAN_PAUSE),
        };
        let pacing = Pacing::ThinkTime { mean_seconds: mean_pause.as_secs_f64(), seed };
        let paused = runner.run(&[], BlockPlan { pacing, count: 10_000, time, warm_up: 1 })?;
        Ok(Screen { closed, paused, mean_pause })
    }

    /// Median round trip without a pause.
    pub(super) fn median_ns(&self) -> f64 {
        stats::median(&self.closed.latencies_ns()).unwrap_or(0.0)
    }

    /// The fastest round trip of all.
    pub(super) fn fastest_ns(&self) -> f64 {
        let all = self.closed.samples.iter().chain(&self.paused.samples);
        all.map(|sample| sample.service_ns() as f64).fold(f64::INFINITY, f64::min)
    }
}
