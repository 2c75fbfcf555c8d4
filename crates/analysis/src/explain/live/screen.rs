//! The screen: round trips without a pause, and round trips after random pauses.
//!
//! With one request at a time and exponential pauses, clocks and sleep show, and neither queues nor a constant latency look
//! like them. The round trips without a pause give the figure that is explained.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::causes::Target;
use super::LiveError;
use super::blocks::{Block, BlockPlan, BlockRunner};
use super::path::{Path, PathWatch, slow_start_ns};
use linkgauge_engine::host::cpu::{self, CpuTicks};
use linkgauge_engine::link::UnpacedScope;
use linkgauge_model::clock::Clock;
use linkgauge_model::plan::Pacing;
use linkgauge_model::stats;
use linkgauge_model::units::{format_nanoseconds, format_plural};

/// Share of the budget for round trips without a pause, and for those after pauses.
const CLOSED_SHARE: f64 = 0.05;
const PAUSED_SHARE: f64 = 0.28;
/// Share of the budget after which no further first reply is measured.
const FIRST_SHARE: f64 = 0.1;

/// Maximum number of requests without a pause: the time limits them, and this only the memory.
const MAX_CLOSED_REQUESTS: u64 = 400_000;
/// Requests after a pause that the mean pause is chosen for.
const PAUSED_REQUESTS: f64 = 300.0;
/// Minimum number of requests after a pause, if a longer pause is needed: a clock makes a request without a pause as long as its
/// period, and periods are found up to twice the mean.
const FEWEST_PAUSED_REQUESTS: f64 = 60.0;
/// Limits of the mean pause. Periods are found up to twice the mean: a minute suffices for the beacon of Wi-Fi, ten minutes
/// for the sniff intervals of Bluetooth.
const MIN_MEAN_PAUSE: Duration = Duration::from_millis(2);
const MAX_MEAN_PAUSE: Duration = Duration::from_millis(600);
/// Hosts limit the rate of replies where requests must not be sent without a pause.
const LIMITED_MEAN_PAUSE: Duration = Duration::from_millis(110);

/// Connections whose first reply is measured, and the time above which further connections are a burden.
const FIRST_REPLIES: u32 = 4;
const LATE_FIRST_NS: f64 = 100e6;

/// Lost messages cost their timeout, which is this multiple of the longest round trip.
const TIMEOUT_RATIO: f64 = 20.0;

/// A CPU with less load differs by this share of its time.
const MIN_LOAD_DIFFERENCE: f64 = 0.2;

/// First requests that are left out: cold caches and slow start.
pub(super) const WARM_UP_REQUESTS: u64 = 5;

/// Measurements of the screen.
pub(super) struct Screen {
    /// Block of one request after the other.
    pub(super) closed: Block,
    /// Block of one request at a time after random pauses.
    pub(super) paused: Block,
    /// The mean of these pauses.
    pub(super) mean_pause: Duration,
    /// The CPU with the least load meanwhile, if others had clearly more.
    pub(super) quiet_cpu: Option<u32>,
    /// The first reply of each of some connections, in ns, where the path is measured alone.
    pub(super) first_ns: Vec<f64>,
    /// Time of the look-up of the server's name.
    pub(super) look_up: Option<Duration>,
    /// The path alone, beside the requests.
    pub(super) path: Option<Path>,
    /// Measures it further, until the last test.
    watch: Option<PathWatch>,
    /// Minimum time between two requests.
    least_gap: Duration,
}

/// The mean pause of requests that share this time.
fn mean_pause(time: Duration, closed: &Block) -> Duration {
    let median = Duration::from_nanos(stats::median(&closed.latencies_ns()).unwrap_or(0.0) as u64);
    let least = median.min(time.div_f64(FEWEST_PAUSED_REQUESTS));
    time.div_f64(PAUSED_REQUESTS).max(least).clamp(MIN_MEAN_PAUSE, MAX_MEAN_PAUSE)
}

/// Requests after random pauses, for this time.
pub(super) fn paused_block(time: Duration, mean_pause: Duration, seed: u64) -> BlockPlan {
    let pacing = Pacing::ThinkTime { mean_seconds: mean_pause.as_secs_f64(), seed };
    BlockPlan { pacing, count: 10_000, time, warm_up: 1 }
}

/// The CPU of this process with the least load between two readings, if another had clearly more.
fn quiet_cpu(before: &BTreeMap<u32, CpuTicks>, after: &BTreeMap<u32, CpuTicks>) -> Option<u32> {
    let busy = |cpu: u32| Some((cpu, after.get(&cpu)?.since(before.get(&cpu)?)?.busy_share));
    let loads: Vec<(u32, f64)> = cpu::current_affinity().into_iter().filter_map(busy).collect();
    let least = loads.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    loads.iter().any(|load| load.1 - least.1 >= MIN_LOAD_DIFFERENCE).then_some(least.0)
}

/// The first replies of a connection.
struct FirstReplies {
    first_ns: f64,
    /// Time of the first one above the second and slow start, which the path needs as well.
    excess_ns: f64,
}

/// The first replies of some connections, where the network can be measured alone. Finds the protocol out.
fn first_replies(
    runner: &mut BlockRunner,
    target: &Target,
    budget: Duration,
) -> Result<Vec<FirstReplies>, LiveError> {
    let is_measured = matches!(runner.dialer.clock, Clock::System) && target.handshake_endpoint().is_some();
    let plan =
        BlockPlan { pacing: Pacing::Closed, count: 2, time: budget.mul_f64(2.0 * FIRST_SHARE), warm_up: 0 };
    let mut all = Vec::new();
    for _ in 0..if is_measured { FIRST_REPLIES } else { 0 } {
        // Handshakes that are lost take seconds.
        if runner.left() < budget.mul_f64(1.0 - FIRST_SHARE) {
            break;
        }
        match runner.run(&[], plan) {
            Ok(block) => {
                runner.use_protocol(&block.result.protocol);
                // Threads that wait for a CPU are no server that accepts late.
                let replies: Vec<f64> =
                    block.latencies_ns().iter().map(|reply| (reply - block.waited_ns()).max(0.0)).collect();
                all.extend(replies.first().map(|&first_ns| {
                    let second_ns = replies.get(1).copied().unwrap_or(0.0);
                    let window_ns = slow_start_ns(block.result.message_bytes, second_ns);
                    FirstReplies { first_ns, excess_ns: first_ns - second_ns - window_ns }
                }));
            }
            Err(LiveError::Interrupted) => return Err(LiveError::Interrupted),
            // The round trips that follow say why.
            Err(_) => break,
        }
    }
    Ok(all)
}

impl Screen {
    /// Measures both, in about a third of the budget.
    ///
    /// # Errors
    ///
    /// The link cannot be measured, or the user interrupts.
    pub(super) fn measure(
        runner: &mut BlockRunner,
        target: &Target,
        budget: Duration,
        seed: u64,
    ) -> Result<Screen, LiveError> {
        let first = first_replies(runner, target, budget)?;
        // A server that accepts late makes the next connections wait; one lost handshake does not, and a long path neither.
        let excess_ns: Vec<f64> = first.iter().map(|replies| replies.excess_ns).collect();
        let is_prompt = stats::median(&excess_ns).is_none_or(|excess| excess < LATE_FIRST_NS);
        let start =
            || PathWatch::start(&runner.dialer, target, budget.mul_f64(CLOSED_SHARE + PAUSED_SHARE), seed);
        let watch = if is_prompt { start() } else { None };
        let screen = Screen::measure_requests(runner, budget, seed)?;
        let first_ns = first.iter().map(|replies| replies.first_ns).collect();
        Ok(Screen { first_ns, path: watch.as_ref().and_then(PathWatch::path), watch, ..screen })
    }

    fn measure_requests(runner: &mut BlockRunner, budget: Duration, seed: u64) -> Result<Screen, LiveError> {
        let closed = runner.run(
            &[],
            BlockPlan {
                pacing: Pacing::Closed,
                count: MAX_CLOSED_REQUESTS,
                time: budget.mul_f64(CLOSED_SHARE),
                warm_up: WARM_UP_REQUESTS,
            },
        )?;
        let longest = closed.latencies_ns().into_iter().fold(0.0, f64::max);
        if closed.lost() > 0 {
            runner.limit_timeout(Duration::from_nanos((TIMEOUT_RATIO * longest) as u64));
        }
        let time = budget.mul_f64(PAUSED_SHARE);
        let caps = runner.dialer.transports.caps(&runner.case.endpoints[0]);
        let is_limited = caps.is_ok_and(|caps| caps.unpaced_scope == UnpacedScope::Nowhere);
        let mean_pause = match is_limited {
            true => LIMITED_MEAN_PAUSE,
            false => mean_pause(time, &closed),
        };
        let ticks = CpuTicks::of_each();
        let paused = runner.run(&[], paused_block(time, mean_pause, seed));
        let paused = paused.map_err(|error| match error {
            LiveError::Measurement(reason) => LiveError::Measurement(format!(
                "{reason}. Before, {} took {} (median)",
                format_plural(closed.samples.len() as u64, "round trip"),
                format_nanoseconds(stats::median(&closed.latencies_ns()).unwrap_or(0.0))
            )),
            error => error,
        })?;
        let quiet_cpu = quiet_cpu(&ticks, &CpuTicks::of_each());
        let least_gap = if is_limited { LIMITED_MEAN_PAUSE } else { Duration::ZERO };
        Ok(Screen {
            closed,
            paused,
            mean_pause,
            quiet_cpu,
            least_gap,
            first_ns: Vec::new(),
            look_up: None,
            path: None,
            watch: None,
        })
    }

    /// Screen of these blocks, without handshakes.
    #[cfg(test)]
    pub(super) fn of_blocks(closed: Block, paused: Block) -> Screen {
        let (mean_pause, least_gap) = (Duration::from_millis(10), Duration::ZERO);
        let (quiet_cpu, first_ns, look_up, path, watch) = (None, Vec::new(), None, None, None);
        Screen { closed, paused, mean_pause, quiet_cpu, first_ns, look_up, path, watch, least_gap }
    }

    /// Median round trip without a pause.
    pub(super) fn median_ns(&self) -> f64 {
        stats::median(&self.closed.latencies_ns()).unwrap_or(0.0)
    }

    /// Time that a request without a pause takes: the median round trip, and longer where the rate is limited.
    pub(super) fn request_time(&self) -> Duration {
        self.least_gap.max(Duration::from_nanos(self.median_ns() as u64))
    }

    /// The path until now.
    pub(super) fn path_now(&self) -> Option<Path> {
        self.watch.as_ref().and_then(PathWatch::path)
    }

    /// Requests with a reply.
    pub(super) fn replies(&self) -> u64 {
        (self.closed.samples.len() + self.paused.samples.len()) as u64
    }

    /// Requests without a reply.
    pub(super) fn lost(&self) -> u64 {
        self.closed.lost() + self.paused.lost()
    }

    /// The fastest round trip of all.
    pub(super) fn fastest_ns(&self) -> f64 {
        let all = self.closed.samples.iter().chain(&self.paused.samples);
        all.map(|sample| sample.service_ns() as f64).fold(f64::INFINITY, f64::min)
    }
}
