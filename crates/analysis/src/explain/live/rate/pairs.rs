//! Pairs of blocks: in each round one of the baseline and one of each test, in random order.

use std::time::Duration;

use super::LiveError;
use super::blocks::{RateBlock, RateBlocks};
use super::trials::{RateTest, TestPlan};
use crate::explain::causes::RateKnob;
use crate::explain::counters::rates;
use crate::explain::live::prove::{ENOUGH_ROUNDS, ROUNDS, is_over, shuffled};
use linkgauge_model::run::EndEvidence;
use linkgauge_model::stats::{self, SplitMix64};

/// Shorter blocks show mostly their start.
const MIN_BLOCK_TIME: Duration = Duration::from_millis(250);
/// Longer blocks gain nothing.
pub const MAX_BLOCK_TIME: Duration = Duration::from_secs(3);

/// What is compared of a block.
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
    /// Results of each test, one entry for each round; `None` if the block failed.
    pub(super) tests: Vec<Vec<Option<RateReading>>>,
    /// The user interrupted.
    pub(super) is_interrupted: bool,
}

impl RateSequence {
    /// Number of measured rounds.
    pub(super) fn rounds(&self) -> usize {
        self.baseline.len()
    }

    /// Median rate of the baseline.
    pub(super) fn baseline_bps(&self) -> Option<f64> {
        stats::median(&self.baseline.iter().map(|reading| reading.rate_bps).collect::<Vec<_>>())
    }

    /// The pairs of a test: baseline and changed block.
    pub(super) fn pairs(&self, test: usize) -> Vec<(RateReading, RateReading)> {
        let changed = self.tests.get(test).into_iter().flatten();
        self.baseline.iter().zip(changed).filter_map(|(base, changed)| Some((*base, (*changed)?))).collect()
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

/// Measures the tests of the plan in rounds, after leaving out those for which there is no time. `setup`: how much longer
/// a block takes than planned. Calls `progress` with the share of the rounds before each.
pub(super) fn measure(
    runner: &RateBlocks,
    plan: &mut TestPlan,
    (time, mut setup): (Duration, Duration),
    random: &mut SplitMix64,
    progress: &dyn Fn(f64),
) -> Result<RateSequence, LiveError> {
    let began = runner.now();
    if !plan.tests.is_empty() && tests_that_fit(time, setup) == 0 {
        // One message that was late or lost makes one transfer slow, but seldom two.
        let other = runner.run(&[], MIN_BLOCK_TIME);
        setup = setup.min(other.map_or(setup, |block| block.setup()));
    }
    plan.truncate(tests_that_fit(time, setup));
    let blocks = plan.tests.len() + 1;
    let mut sequence = RateSequence { tests: vec![Vec::new(); plan.tests.len()], ..RateSequence::default() };
    if plan.tests.is_empty() {
        return Ok(sequence);
    }
    for round in 0..ROUNDS {
        progress(round as f64 / ROUNDS as f64);
        let elapsed = runner.now().since(began);
        let left = time.saturating_sub(elapsed);
        if is_over(round, elapsed, left, time) {
            break;
        }
        let block = block_time(left.div_f64(((ROUNDS - round) * blocks) as f64), setup);
        match measure_round(runner, &plan.tests, block, random)? {
            Some(readings) => sequence.add_round(&readings),
            None => {
                sequence.is_interrupted = true;
                break;
            }
        }
        let of_round = runner.now().since(began).saturating_sub(elapsed);
        setup = of_round.div_f64(blocks as f64).saturating_sub(block);
    }
    Ok(sequence)
}

impl RateSequence {
    /// Adds the readings of a round, that of the baseline first.
    fn add_round(&mut self, readings: &[Option<RateReading>]) {
        let Some((Some(baseline), changed)) = readings.split_first() else { return };
        self.baseline.push(*baseline);
        self.tests.iter_mut().zip(changed).for_each(|(list, reading)| list.push(*reading));
    }
}

/// The readings of one round, that of the baseline first; `None` if the user interrupts.
fn measure_round(
    runner: &RateBlocks,
    tests: &[RateTest],
    time: Duration,
    random: &mut SplitMix64,
) -> Result<Option<Vec<Option<RateReading>>>, LiveError> {
    let mut readings = vec![None; tests.len() + 1];
    for index in shuffled(tests.len() + 1, random) {
        let changes = index.checked_sub(1).map_or(&[][..], |test| &tests[test].changes);
        match runner.run(changes, time) {
            Ok(block) => readings[index] = Some(RateReading::of(&block)),
            Err(LiveError::Interrupted) => return Ok(None),
            // A setting that cannot be changed fails alone; without the baseline nothing can be compared.
            Err(error) if index == 0 => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Some(readings))
}

/// Number of tests for which a proof fits into the time.
fn tests_that_fit(time: Duration, setup: Duration) -> usize {
    let round = time.div_f64(ENOUGH_ROUNDS as f64);
    ((round.as_secs_f64() / (MIN_BLOCK_TIME + setup).as_secs_f64()) as usize).saturating_sub(1)
}

/// The length of a block that may take this time including its setup.
fn block_time(per_block: Duration, setup: Duration) -> Duration {
    per_block.saturating_sub(setup).clamp(MIN_BLOCK_TIME, MAX_BLOCK_TIME)
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
        assert_eq!(block_time(ms(700), ms(100)), ms(600));
        assert_eq!(block_time(ms(100), ms(400)), MIN_BLOCK_TIME);
    }
}
