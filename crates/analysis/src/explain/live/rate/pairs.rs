//! Pairs of blocks: in each round one of the baseline and one of each test, in random order.

use std::time::Duration;

use super::LiveError;
use super::blocks::{RateBlock, RateBlocks};
use super::trials::{RateTest, TestPlan};
use crate::explain::causes::RateKnob;
use crate::explain::counters::rates;
use crate::explain::live::prove::{ENOUGH_ROUNDS, MIN_ROUNDS, ROUNDS, is_over, longest_time, shuffled};
use linkgauge_model::run::EndEvidence;
use linkgauge_model::stats::{self, SplitMix64};

/// Minimum time of a block; shorter ones show mostly their start.
const MIN_BLOCK_TIME: Duration = Duration::from_millis(250);
/// Maximum time of a block; longer ones gain nothing.
pub const MAX_BLOCK_TIME: Duration = Duration::from_secs(3);

/// Figures of a block that are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateReading {
    pub(super) rate_bps: f64,
    pub(super) round_trip_ns: Option<f64>,
    pub(super) loss_share: Option<f64>,
    /// Buffers of the receiver and of the sender.
    pub(super) receive_buffer_bytes: Option<f64>,
    pub(super) send_buffer_bytes: Option<f64>,
}

impl RateReading {
    fn of(block: &RateBlock) -> RateReading {
        let gauge = |end: Option<&EndEvidence>, name: &str| Some(end?.gauge(name)?.max as f64);
        RateReading {
            rate_bps: block.rate_bps,
            round_trip_ns: block.round_trip_ns(),
            loss_share: block.loss_share(),
            receive_buffer_bytes: gauge(rates::receiving_end(&block.result), "socket_receive_buffer_bytes"),
            send_buffer_bytes: gauge(rates::sending_end(&block.result), "socket_send_buffer_bytes"),
        }
    }

    /// The quantity that a test changes, as far as the block shows it.
    fn quantity(&self, knob: RateKnob) -> Option<f64> {
        match knob {
            RateKnob::ReceiveBuffer => self.receive_buffer_bytes,
            RateKnob::SendBuffer => self.send_buffer_bytes,
            _ => None,
        }
    }
}

/// The measured rounds.
#[derive(Debug, Default)]
pub(super) struct RateSequence {
    pub(super) baseline: Vec<RateReading>,
    /// Baseline and changed block of each round in which both were measured, for each test that had time.
    pub(super) tests: Vec<Vec<(RateReading, RateReading)>>,
    /// The rounds of each group of tests.
    rounds: Vec<usize>,
    /// The user interrupted.
    pub(super) is_interrupted: bool,
    /// Reason for the loss of the link.
    pub(super) lost: Option<String>,
}

impl RateSequence {
    /// Whether nothing more can be measured.
    fn has_ended(&self) -> bool {
        self.is_interrupted || self.lost.is_some()
    }
}

impl RateSequence {
    /// Number of measured rounds: the smallest of all tests.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.iter().copied().min().unwrap_or(0)
    }

    /// The pairs of a test: baseline and changed block.
    pub(super) fn pairs(&self, test: usize) -> Vec<(RateReading, RateReading)> {
        self.tests.get(test).cloned().unwrap_or_default()
    }

    /// The factor by which a test really changed its quantity: kernels limit what was requested.
    pub(super) fn factor(&self, index: usize, test: &RateTest) -> Option<f64> {
        let ratios: Vec<f64> = self
            .pairs(index)
            .iter()
            .filter_map(|(base, changed)| Some(changed.quantity(test.knob)? / base.quantity(test.knob)?))
            .collect();
        stats::median(&ratios).or(test.factor)
    }
}

/// Measures the tests of the plan, as many at once as fit into the time. `setup`: how much longer a block takes than planned.
/// Tests for which no time was left are left out. Calls `progress` with the share of the time that passed, before each round.
pub(super) fn measure(
    runner: &RateBlocks,
    plan: &mut TestPlan,
    (time, mut setup): (Duration, Duration),
    random: &mut SplitMix64,
    progress: &dyn Fn(f64),
) -> RateSequence {
    let began = runner.now();
    if tests_that_fit(time, setup) < plan.tests.len() {
        // One message that was late or lost makes one transfer slow, but seldom two.
        let other = runner.run(&[], MIN_BLOCK_TIME);
        setup = setup.min(other.map_or(setup, |block| block.setup()));
    }
    let mut sequence = RateSequence::default();
    while sequence.tests.len() < plan.tests.len() && !sequence.has_ended() {
        let elapsed = runner.now().since(began);
        let left = time.saturating_sub(elapsed);
        let waiting = &plan.tests[sequence.tests.len()..];
        let group = &waiting[..tests_that_fit(left, setup).min(waiting.len())];
        if group.is_empty() {
            break;
        }
        // Short blocks leave time for the tests that wait.
        let longest = if group.len() < waiting.len() { 2 * MIN_BLOCK_TIME } else { MAX_BLOCK_TIME };
        let report = |share: f64| {
            progress((elapsed + left.mul_f64(share)).as_secs_f64() / time.as_secs_f64().max(1e-9))
        };
        setup = sequence.measure_group(runner, group, &GroupTime { left, setup, longest }, random, &report);
    }
    plan.truncate(sequence.tests.len(), time_for(plan.tests.len(), setup));
    sequence
}

/// The time that a group of tests has.
struct GroupTime {
    left: Duration,
    /// Time that a block takes beyond the plan.
    setup: Duration,
    /// The longest block.
    longest: Duration,
}

impl RateSequence {
    /// Measures these tests in rounds. Returns how much longer a block of the last round took than planned.
    fn measure_group(
        &mut self,
        runner: &RateBlocks,
        tests: &[RateTest],
        time: &GroupTime,
        random: &mut SplitMix64,
        progress: &dyn Fn(f64),
    ) -> Duration {
        let (began, blocks) = (runner.now(), tests.len() + 1);
        let (first, mut rounds, mut setup) = (self.tests.len(), 0, time.setup);
        let longest = longest_time(time.left, runner.left());
        self.tests.resize(first + tests.len(), Vec::new());
        for round in 0..ROUNDS {
            progress(round as f64 / ROUNDS as f64);
            let elapsed = runner.now().since(began);
            let left = time.left.saturating_sub(elapsed);
            if is_over(round, elapsed, time.left, longest) {
                break;
            }
            let block = block_time(left.div_f64(((ROUNDS - round) * blocks) as f64), setup, time.longest);
            let readings = match measure_round(runner, tests, block, random) {
                Ok(Some(readings)) => readings,
                Ok(None) => break,
                Err(LiveError::Interrupted) => {
                    self.is_interrupted = true;
                    break;
                }
                Err(error) => {
                    self.lost = Some(error.to_string());
                    break;
                }
            };
            self.add_round(first, &readings);
            rounds += 1;
            let of_round = runner.now().since(began).saturating_sub(elapsed);
            setup = of_round.div_f64(blocks as f64).saturating_sub(block);
        }
        self.rounds.push(rounds);
        setup
    }

    /// Adds the readings of a round, that of the baseline first, to the tests from this index on.
    fn add_round(&mut self, first: usize, readings: &[Option<RateReading>]) {
        let Some((Some(baseline), changed)) = readings.split_first() else { return };
        self.baseline.push(*baseline);
        for (list, reading) in self.tests[first..].iter_mut().zip(changed) {
            list.extend(reading.map(|reading| (*baseline, reading)));
        }
    }
}

/// The readings of one round, that of the baseline first. `None`: the budget has ended before all were measured.
fn measure_round(
    runner: &RateBlocks,
    tests: &[RateTest],
    time: Duration,
    random: &mut SplitMix64,
) -> Result<Option<Vec<Option<RateReading>>>, LiveError> {
    let mut readings = vec![None; tests.len() + 1];
    for index in shuffled(tests.len() + 1, random) {
        if runner.left() < time {
            return Ok(None);
        }
        let changes = index.checked_sub(1).map_or(&[][..], |test| &tests[test].changes);
        match runner.run(changes, time) {
            Ok(block) => readings[index] = Some(RateReading::of(&block)),
            // A setting that cannot be changed fails alone; without the baseline nothing can be compared.
            Err(error) if index == 0 || matches!(error, LiveError::Interrupted) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Some(readings))
}

/// Number of tests for which a proof fits into the time. One test alone needs fewer rounds.
fn tests_that_fit(time: Duration, setup: Duration) -> usize {
    let tests_in = |rounds: usize| {
        let blocks = time.as_secs_f64() / rounds as f64 / (MIN_BLOCK_TIME + setup).as_secs_f64();
        (blocks as usize).saturating_sub(1)
    };
    tests_in(ENOUGH_ROUNDS).max(tests_in(MIN_ROUNDS).min(1))
}

/// The time into which a proof of this number of tests fits.
fn time_for(tests: usize, setup: Duration) -> Duration {
    (MIN_BLOCK_TIME + setup).saturating_mul((ENOUGH_ROUNDS * (tests + 1)) as u32)
}

/// The length of a block that may take this time including its setup.
fn block_time(per_block: Duration, setup: Duration, longest: Duration) -> Duration {
    per_block.saturating_sub(setup).clamp(MIN_BLOCK_TIME, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_blocks_leave_room_for_fewer_tests() {
        let ms = Duration::from_millis;
        assert_eq!(tests_that_fit(ms(46_000), ms(0)), 19);
        assert_eq!(tests_that_fit(ms(46_000), ms(1_000)), 3);
        assert_eq!(tests_that_fit(ms(2_000), ms(2_000)), 0);
        assert_eq!(tests_that_fit(ms(15_100), ms(1_000)), 1, "6 rounds of one test");
        for (tests, setup) in [(2, 0), (4, 1_000), (8, 3_000)] {
            let needed = time_for(tests, ms(setup)) + ms(1);
            assert_eq!(tests_that_fit(needed, ms(setup)), tests);
            assert!(tests_that_fit(needed.mul_f64(0.95), ms(setup)) < tests);
        }
        assert_eq!(block_time(ms(700), ms(100), MAX_BLOCK_TIME), ms(600));
        assert_eq!(block_time(ms(100), ms(400), MAX_BLOCK_TIME), MIN_BLOCK_TIME);
    }
}
