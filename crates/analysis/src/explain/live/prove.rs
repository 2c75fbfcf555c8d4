//! Proofs: one setting is changed at a time, in pairs with the baseline, all suspects in one random sequence.
//!
//! A round holds two blocks of the baseline and one of each suspect, in random order. So slow changes of the host meet all
//! alike, and one block of the baseline serves all suspects. The pairs are compared by their ranks; the second block of the
//! baseline shows what two blocks differ by without a change, and a proof has to exceed it.

use std::time::Duration;

use serde::Serialize;

use super::super::causes::Dose;
use super::LiveError;
use super::blocks::{Block, BlockPlan, BlockRunner, Change};
use linkgauge_model::plan::Pacing;
use linkgauge_model::stats::{self, Interval, SplitMix64, fit};

/// Pairs of each suspect: p can reach 0.002, enough for 25 suspects at once.
pub(super) const ROUNDS: usize = 10;
/// Minimum number of pairs that can prove anything.
pub(super) const MIN_ROUNDS: usize = 6;
/// Blocks of the baseline in each round.
const UNCHANGED: usize = 2;
/// Requests of a block without which its median means little.
const MIN_BLOCK_REQUESTS: f64 = 5.0;
/// Maximum number of requests of a block.
const MAX_BLOCK_REQUESTS: u64 = 5_000;
/// Maximum time of a block; longer ones gain nothing.
const MAX_BLOCK_TIME: Duration = Duration::from_secs(2);
/// Setting up a block: connecting, threads.
const BLOCK_SETUP: Duration = Duration::from_millis(4);
/// Pairs of a proof: with eight suspects p must be below 0.006 (Holm), and nine pairs reach 0.004.
pub(super) const ENOUGH_ROUNDS: usize = 9;
/// The rounds that a proof needs may take this multiple of the time, as far as the budget lasts.
const MAX_OVERRUN: f64 = 1.5;
/// A round can become this much shorter than the ones before, as a share of them.
const MIN_SHRUNK_SHARE: f64 = 0.7;
/// Minimum effect that matters, as a share of the median.
const MARGIN: f64 = 0.05;
pub(super) const SIGNIFICANCE_LEVEL: f64 = 0.05;
/// A line through the sizes fits a block that is this close to it.
const MAX_RELATIVE_RESIDUAL: f64 = 0.1;
/// Minimum share of the blocks that the line fits: a pause may meet one of them.
const MIN_STRAIGHT_SHARE: f64 = 0.8;

/// A change to be tested.
#[derive(Debug, Clone)]
pub(super) enum Trial {
    /// The settings that remove the cause, or all proved causes.
    Switch(Vec<Change>),
    /// The settings that remove a cause of few slow requests: their effect is that on the mean.
    TailSwitch(Vec<Change>),
    /// Messages of other sizes, one size in each round.
    Sizes(Vec<u32>),
}

impl Trial {
    /// The changes of a round.
    pub(super) fn changes(&self, round: usize) -> Vec<Change> {
        match self {
            Trial::Switch(changes) | Trial::TailSwitch(changes) => changes.clone(),
            Trial::Sizes(sizes) => vec![Change::MessageBytes(sizes[round % sizes.len()])],
        }
    }
}

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialOutcome {
    Proved,
    RuledOut,
    NotShown,
}

/// A trial with its figures.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    pub(super) outcome: TrialOutcome,
    /// Median (of a [`Trial::TailSwitch`] the mean) of the baseline and of the changed block of each pair, in ns.
    pub(super) pairs: Vec<(f64, f64)>,
    /// Cost of the cause: the shortening by the switch, or the slope times the size; in ns.
    pub(super) cost_ns: f64,
    /// The 95 % interval.
    pub(super) cost_interval_ns: Option<Interval>,
    /// p-value of the pairs, corrected for the number of suspects. `None` for sizes.
    pub(super) p: Option<f64>,
    /// Dependence of the round trip on the size, for tests of sizes.
    pub(super) dose: Option<DoseResponse>,
}

/// Dependence of the round trip on a value that is changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoseResponse {
    /// Name of the changed value: `message_bytes`, or an option of the URL in ns.
    pub knob: &'static str,
    /// Each value, and the median round trip of a block with it in ns.
    pub points: Vec<[f64; 2]>,
    /// Time in ns that each unit of the value costs: of a byte, or of a ns.
    pub slope: f64,
    /// The 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slope_interval: Option<Interval>,
}

impl DoseResponse {
    /// The line through the points (Theil–Sen). `None` if all values are equal.
    fn fit(knob: &'static str, points: Vec<[f64; 2]>) -> Option<DoseResponse> {
        let pairs: Vec<fit::FitPoint> = points.iter().map(|[value, ns]| (*value, *ns)).collect();
        let line = fit::theil_sen(&pairs, 0.95)?;
        Some(DoseResponse { knob, points, slope: line.slope, slope_interval: line.slope_interval })
    }
}

/// The round trips of a block, in ns; NaN if it failed.
#[derive(Debug, Clone, Copy)]
struct BlockTimes {
    median: f64,
    mean: f64,
}

impl BlockTimes {
    const FAILED: BlockTimes = BlockTimes { median: f64::NAN, mean: f64::NAN };

    fn of(block: &Block) -> BlockTimes {
        let latencies = block.latencies_ns();
        let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
        BlockTimes { median: stats::median(&latencies).unwrap_or(f64::NAN), mean }
    }
}

/// The measured sequence.
pub(super) struct Sequence {
    /// The blocks of the baseline, one of each round.
    baseline: Vec<BlockTimes>,
    /// Further blocks of the baseline: the difference between two blocks without a change.
    null: Vec<BlockTimes>,
    /// The blocks of each trial, one of each round.
    trials: Vec<Vec<BlockTimes>>,
    /// The user interrupted.
    pub(super) is_interrupted: bool,
    /// Reason for the loss of the link meanwhile.
    pub(super) lost: Option<String>,
}

/// Time that a block needs at least for requests of this length.
fn shortest_block(median: Duration) -> Duration {
    BLOCK_SETUP + median.mul_f64(MIN_BLOCK_REQUESTS + 2.0)
}

/// The number of trials that fit into this time. One trial alone needs fewer rounds.
pub(super) fn trials_that_fit(time: Duration, median: Duration) -> usize {
    let blocks_of =
        |rounds: usize| (time.as_secs_f64() / rounds as f64 / shortest_block(median).as_secs_f64()) as usize;
    blocks_of(ROUNDS).saturating_sub(UNCHANGED).max(blocks_of(MIN_ROUNDS).saturating_sub(UNCHANGED).min(1))
}

/// The time into which this number of trials fits.
pub(super) fn time_for(trials: usize, median: Duration) -> Duration {
    shortest_block(median).saturating_mul((ROUNDS * (trials + UNCHANGED)) as u32)
}

/// A trial that failed this often in a row is refused by the link.
const MAX_FAILURES: u32 = 2;

/// Measures all trials in rounds. Calls `progress` with the share of the rounds before each. Where blocks take longer than
/// planned, as on a busy host, the next ones become shorter, and the last rounds are left out.
pub(super) fn measure(
    runner: &BlockRunner,
    trials: &[Trial],
    (time, median): (Duration, Duration),
    random: &mut SplitMix64,
    progress: &dyn Fn(f64),
) -> Result<Sequence, LiveError> {
    let mut sequence = Sequence {
        baseline: Vec::new(),
        null: Vec::new(),
        trials: vec![Vec::new(); trials.len()],
        is_interrupted: false,
        lost: None,
    };
    let mut failures = vec![0; trials.len()];
    let (began, mut setup) = (runner.dialer.now(), BLOCK_SETUP);
    let longest = longest_time(time, runner.left());
    for round in 0..ROUNDS {
        progress(round as f64 / ROUNDS as f64);
        let elapsed = runner.dialer.now().since(began);
        let blocks = trials.len() + UNCHANGED;
        let left = time.saturating_sub(elapsed);
        if is_over(round, elapsed, time, longest) {
            break;
        }
        let block = block_plan(left.div_f64(((ROUNDS - round) * blocks) as f64), median, setup);
        let times = match measure_round(runner, trials, (round, block), &mut failures, random) {
            RoundOutcome::Measured(times) => times,
            RoundOutcome::OutOfTime => break,
            RoundOutcome::Interrupted => {
                sequence.is_interrupted = true;
                return Ok(sequence);
            }
            RoundOutcome::Lost(reason) => {
                sequence.lost = Some(reason);
                return Ok(sequence);
            }
        };
        sequence.baseline.push(times[0]);
        sequence.null.push(times[1]);
        sequence.trials.iter_mut().zip(&times[UNCHANGED..]).for_each(|(list, times)| list.push(*times));
        let of_round = runner.dialer.now().since(began).saturating_sub(elapsed);
        setup = of_round.div_f64(blocks as f64).saturating_sub(block.time).max(BLOCK_SETUP);
    }
    Ok(sequence)
}

/// Outcome of a round.
enum RoundOutcome {
    /// The blocks of the baseline first, then one of each trial.
    Measured(Vec<BlockTimes>),
    /// The user interrupted.
    Interrupted,
    /// The link was lost, for this reason.
    Lost(String),
    /// The budget has ended, and the blocks so far are no whole round.
    OutOfTime,
}

/// Measures the blocks of a round in random order. `failures`: those in a row of each trial.
fn measure_round(
    runner: &BlockRunner,
    trials: &[Trial],
    (round, block): (usize, BlockPlan),
    failures: &mut [u32],
    random: &mut SplitMix64,
) -> RoundOutcome {
    let mut times = vec![BlockTimes::FAILED; trials.len() + UNCHANGED];
    for index in shuffled(times.len(), random) {
        let trial = index.checked_sub(UNCHANGED);
        if trial.is_some_and(|trial| failures[trial] == MAX_FAILURES) {
            continue;
        }
        if runner.left() < block.time {
            return RoundOutcome::OutOfTime;
        }
        let changes = trial.map(|trial| trials[trial].changes(round)).unwrap_or_default();
        let measured = runner.run(&changes, block);
        if let Some(trial) = trial {
            failures[trial] = if measured.is_ok() { 0 } else { failures[trial] + 1 };
        }
        // A setting that cannot be changed fails alone, a lost link without it as well.
        let measured = measured.map(|block| (index, block)).or_else(|error| match error {
            LiveError::Interrupted => Err(error),
            _ => runner.run(&[], block).map(|baseline| (0, baseline)),
        });
        match measured {
            Ok((measured, block)) => times[measured] = BlockTimes::of(&block),
            Err(LiveError::Interrupted) => return RoundOutcome::Interrupted,
            Err(error) => return RoundOutcome::Lost(error.to_string()),
        }
    }
    RoundOutcome::Measured(times)
}

/// Longest time of the rounds that a proof needs. `left`: the rest of the budget.
pub(super) fn longest_time(time: Duration, left: Duration) -> Duration {
    time.mul_f64(MAX_OVERRUN).min(left)
}

/// Whether no further round fits into the time: into the longest one as long as a proof needs more rounds.
pub(super) fn is_over(rounds: usize, elapsed: Duration, time: Duration, longest: Duration) -> bool {
    let per_round = elapsed.div_f64(rounds.max(1) as f64);
    let until = if rounds < ENOUGH_ROUNDS { longest } else { time };
    rounds > 0 && until.saturating_sub(elapsed) < per_round.mul_f64(MIN_SHRUNK_SHARE)
}

/// The blocks of a round, each of which may take this time including its setup.
fn block_plan(per_block: Duration, median: Duration, setup: Duration) -> BlockPlan {
    let length = per_block
        .saturating_sub(setup)
        .clamp(median.mul_f64(MIN_BLOCK_REQUESTS + 1.0), MAX_BLOCK_TIME.max(median.mul_f64(8.0)));
    let expected = (length.as_secs_f64() / median.as_secs_f64().max(1e-9)).min(MAX_BLOCK_REQUESTS as f64);
    BlockPlan {
        pacing: Pacing::Closed,
        count: MAX_BLOCK_REQUESTS,
        time: length,
        warm_up: ((expected / 10.0) as u64).clamp(1, 100),
    }
}

/// The numbers below `count` in random order.
pub(super) fn shuffled(count: usize, random: &mut SplitMix64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (random.uniform() * (last + 1) as f64) as usize);
    }
    order
}

impl Sequence {
    /// Number of measured rounds.
    pub(super) fn rounds(&self) -> usize {
        self.baseline.len()
    }

    /// The proof of each trial. `base_bytes`: the message size of the baseline.
    pub(super) fn proofs(&self, trials: &[Trial], base_bytes: u32) -> Vec<Proof> {
        let pairs: Vec<Vec<(f64, f64)>> =
            trials.iter().zip(&self.trials).map(|(trial, blocks)| self.pairs(blocks, trial)).collect();
        let is_switch = |index: &usize| !matches!(trials[*index], Trial::Sizes(_));
        let switches: Vec<usize> = (0..trials.len()).filter(is_switch).collect();
        let p_values: Vec<f64> =
            switches.iter().map(|&index| stats::signed_rank_p(&log_ratios(&pairs[index]))).collect();
        let mut adjusted = stats::holm_adjusted(&p_values).into_iter();
        let judged = trials.iter().zip(pairs).map(|(trial, pairs)| match trial {
            Trial::Switch(_) | Trial::TailSwitch(_) => {
                judge_switch(pairs, adjusted.next().unwrap_or(1.0), noise(&self.pairs(&self.null, trial)))
            }
            Trial::Sizes(sizes) => judge_sizes(pairs, sizes, base_bytes),
        });
        judged.collect()
    }

    /// The blocks of each round with those of the baseline.
    fn pairs(&self, blocks: &[BlockTimes], trial: &Trial) -> Vec<(f64, f64)> {
        let of = |times: &BlockTimes| match trial {
            Trial::TailSwitch(_) => times.mean,
            Trial::Switch(_) | Trial::Sizes(_) => times.median,
        };
        let pairs = self.baseline.iter().map(of).zip(blocks.iter().map(of));
        pairs.filter(|(baseline, changed)| baseline.is_finite() && changed.is_finite()).collect()
    }
}

fn log_ratios(pairs: &[(f64, f64)]) -> Vec<f64> {
    pairs.iter().map(|(baseline, changed)| (changed / baseline).ln()).collect()
}

/// Difference of blocks without a change, as a logarithm of their ratio: the outer end of its 95 % interval.
fn noise(null: &[(f64, f64)]) -> f64 {
    let interval = stats::hodges_lehmann_centre(&log_ratios(null)).and_then(|(_, interval)| interval);
    interval.map_or(0.0, |interval| interval.low.abs().max(interval.high.abs()))
}

/// A proof needs an effect that is beyond what blocks without a change differ by.
fn judge_switch(pairs: Vec<(f64, f64)>, p: f64, noise: f64) -> Proof {
    let relative = stats::hodges_lehmann_centre(&log_ratios(&pairs)).and_then(|(_, interval)| interval);
    let savings: Vec<f64> = pairs.iter().map(|(baseline, changed)| baseline - changed).collect();
    let (cost_ns, cost_interval_ns) = stats::hodges_lehmann_centre(&savings).unwrap_or((0.0, None));
    let outcome = match relative {
        Some(interval) if p < SIGNIFICANCE_LEVEL && interval.high < -MARGIN.max(noise) => {
            TrialOutcome::Proved
        }
        // A setting that makes requests slower removes nothing either.
        Some(interval) if pairs.len() >= MIN_ROUNDS && interval.low > -MARGIN => TrialOutcome::RuledOut,
        _ => TrialOutcome::NotShown,
    };
    Proof { outcome, pairs, cost_ns, cost_interval_ns, p: Some(p), dose: None }
}

fn judge_sizes(pairs: Vec<(f64, f64)>, sizes: &[u32], base_bytes: u32) -> Proof {
    let base = f64::from(base_bytes);
    let others = pairs
        .iter()
        .enumerate()
        .map(|(round, (_, changed))| (f64::from(sizes[round % sizes.len()]), *changed));
    let points: Vec<fit::FitPoint> =
        pairs.iter().map(|(baseline, _)| (base, *baseline)).chain(others).collect();
    let medians = stats::median(&pairs.iter().map(|(baseline, _)| *baseline).collect::<Vec<_>>());
    let mut proof = Proof {
        outcome: TrialOutcome::NotShown,
        pairs,
        cost_ns: 0.0,
        cost_interval_ns: None,
        p: None,
        dose: DoseResponse::fit("message_bytes", points.iter().map(|(size, ns)| [*size, *ns]).collect()),
    };
    let (Some(line), Some(median)) = (fit::theil_sen(&points, 0.95), medians) else { return proof };
    let Some(slope) = line.slope_interval else { return proof };
    proof.cost_ns = line.slope * base;
    proof.cost_interval_ns = Some(Interval { low: slope.low * base, high: slope.high * base });
    let is_near = |point: &&fit::FitPoint| line.residual(**point).abs() < MAX_RELATIVE_RESIDUAL * point.1;
    let is_straight =
        points.iter().filter(is_near).count() as f64 >= MIN_STRAIGHT_SHARE * points.len() as f64;
    proof.outcome = if slope.high * base < MARGIN * median {
        TrialOutcome::RuledOut
    } else if is_straight && slope.low * base > MARGIN * median {
        TrialOutcome::Proved
    } else {
        TrialOutcome::NotShown
    };
    proof
}

/// A block of a few requests that may take this time.
pub(super) fn short_block(time: Duration, median: Duration) -> BlockPlan {
    let least = median.mul_f64(MIN_BLOCK_REQUESTS / 2.0);
    let time = time.saturating_sub(BLOCK_SETUP).clamp(least, MAX_BLOCK_TIME.max(least));
    BlockPlan { pacing: Pacing::Closed, count: MAX_BLOCK_REQUESTS, time, warm_up: 1 }
}

/// Blocks of each dose.
const DOSE_ROUNDS: usize = 4;

/// Measures the round trip at each value of an option that sets the time of a cause, in random order. `None` if the link
/// refuses them.
pub(super) fn measure_doses(
    runner: &BlockRunner,
    dose: &Dose,
    (time, median): (Duration, Duration),
    random: &mut SplitMix64,
) -> Result<Option<DoseResponse>, LiveError> {
    let block = short_block(time.div_f64((DOSE_ROUNDS * dose.values.len()) as f64), median);
    let mut points = Vec::new();
    for _ in 0..DOSE_ROUNDS {
        for index in shuffled(dose.values.len(), random) {
            let (text, value) = dose.values[index];
            match runner.run(&[Change::UrlOption(dose.option, text)], block) {
                Ok(block) => {
                    points.extend(stats::median(&block.latencies_ns()).map(|median| [value, median]))
                }
                Err(LiveError::Interrupted) => return Err(LiveError::Interrupted),
                Err(_) => return Ok(None),
            }
        }
    }
    Ok(DoseResponse::fit(dose.option, points))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_saves_time_is_proved_and_one_that_does_not_is_ruled_out() {
        let noise = |index: usize| 1.0 + 0.002 * (index as f64 * 7.0 % 5.0);
        let pairs =
            |factor: f64| (0..10).map(|i| (1e6 * noise(i), factor * 1e6 * noise(i + 3))).collect::<Vec<_>>();
        let proof = judge_switch(pairs(0.5), 0.002, 0.0);
        assert_eq!(proof.outcome, TrialOutcome::Proved);
        assert!((proof.cost_ns / 5e5 - 1.0).abs() < 0.02, "{proof:?}");
        assert_eq!(judge_switch(pairs(1.0), 0.9, 0.0).outcome, TrialOutcome::RuledOut);
        assert_eq!(judge_switch(pairs(1.4), 0.002, 0.0).outcome, TrialOutcome::RuledOut);
        // Within the margin, significant or not.
        assert_eq!(judge_switch(pairs(0.98), 0.002, 0.0).outcome, TrialOutcome::RuledOut);
        assert_eq!(judge_switch(pairs(0.5)[..4].to_vec(), 0.125, 0.0).outcome, TrialOutcome::NotShown);
        assert_eq!(judge_switch(Vec::new(), 1.0, 0.0).outcome, TrialOutcome::NotShown);
    }

    #[test]
    fn a_proof_beats_blocks_without_a_change() {
        // 20 % less, where blocks without a change differ by up to 40 % either way, all in one direction.
        let pairs: Vec<(f64, f64)> = (0..10).map(|i| (1e6, 8e5 + 1e3 * f64::from(i))).collect();
        assert_eq!(judge_switch(pairs.clone(), 0.002, 0.02).outcome, TrialOutcome::Proved);
        let null: Vec<(f64, f64)> = (0..10).map(|i| (1e6, 6e5 + 8e4 * f64::from(i))).collect();
        assert!(noise(&null) > 0.2, "{}", noise(&null));
        assert_eq!(judge_switch(pairs, 0.002, noise(&null)).outcome, TrialOutcome::NotShown);
        assert_eq!(noise(&[]), 0.0);
    }

    #[test]
    fn rare_delays_show_in_the_mean() {
        let times = |mean: f64| BlockTimes { median: 1e6, mean };
        let noise = |round: usize| 1e3 * (7 * round % 5) as f64;
        let sequence = Sequence {
            baseline: (0..10).map(|round| times(2e6 + noise(round))).collect(),
            null: (0..10).map(|round| times(2e6 + noise(round + 1))).collect(),
            trials: vec![(0..10).map(|round| times(1.1e6 + noise(round + 3))).collect(); 2],
            is_interrupted: false,
            lost: None,
        };
        let trials = [Trial::TailSwitch(Vec::new()), Trial::Switch(Vec::new())];
        let proofs = sequence.proofs(&trials, 64);
        assert_eq!((proofs[0].outcome, proofs[1].outcome), (TrialOutcome::Proved, TrialOutcome::RuledOut));
        assert!((proofs[0].cost_ns / 9e5 - 1.0).abs() < 0.01, "{:?}", proofs[0]);
    }

    #[test]
    fn sizes_on_a_line_are_proved_and_a_constant_is_ruled_out() {
        let sizes = [256, 1024];
        let pairs = |fixed: f64, byte: f64| {
            (0..10)
                .map(|i| (fixed + 64.0 * byte + i as f64, fixed + f64::from(sizes[i % 2]) * byte))
                .collect::<Vec<_>>()
        };
        let proof = judge_sizes(pairs(1e4, 2e3), &sizes, 64);
        assert_eq!(proof.outcome, TrialOutcome::Proved);
        assert!((proof.dose.as_ref().unwrap().slope / 2e3 - 1.0).abs() < 0.01, "{proof:?}");
        assert_eq!(judge_sizes(pairs(44e6, 1.0), &sizes, 64).outcome, TrialOutcome::RuledOut);
    }

    #[test]
    fn every_order_contains_all_numbers() {
        let random = &mut SplitMix64::new(1);
        for _ in 0..100 {
            let mut order = shuffled(7, random);
            order.sort_unstable();
            assert_eq!(order, Vec::from_iter(0..7));
        }
    }

    #[test]
    fn rounds_that_take_too_long_are_left_out() {
        let ms = Duration::from_millis;
        let over_of = |left| {
            move |rounds, elapsed| {
                is_over(rounds, ms(elapsed), ms(10_000), longest_time(ms(10_000), ms(left)))
            }
        };
        let over = over_of(60_000);
        assert!(!over(0, 0) && !over(9, 9_000), "as planned");
        assert!(!over(8, 13_600) && over(8, 14_000), "a proof needs nine rounds");
        assert!(over(9, 9_500) && !over(9, 9_000));
        assert!(over_of(12_000)(8, 11_500) && !over_of(12_000)(8, 10_500), "as far as the budget lasts");
        let block = |setup| block_plan(ms(100), ms(1), ms(setup)).time;
        assert_eq!(
            (block(4), block(40), block(400)),
            (ms(96), ms(60), ms(6)),
            "shorter where the setup takes longer"
        );
    }

    #[test]
    fn long_round_trips_leave_room_for_fewer_trials() {
        assert!(trials_that_fit(Duration::from_secs(36), Duration::from_micros(20)) > 100);
        assert_eq!(trials_that_fit(Duration::from_secs(36), Duration::from_millis(44)), 9);
        assert_eq!(trials_that_fit(Duration::from_millis(5700), Duration::from_millis(44)), 1, "six rounds");
        assert_eq!(trials_that_fit(Duration::from_secs(6), Duration::from_secs(1)), 0);
    }
}
