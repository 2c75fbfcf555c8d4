//! Simulated measurements with known properties, to measure how often the statistics of this folder are right.
//!
//! For: tests and `benches/coverage.rs`. Every value follows from a seed.

use super::SplitMix64;

/// Value of a variable of the build. If set, all of the simulations run that a limit was set with, instead of the part that every
/// check runs.
const ALL: Option<&str> = option_env!("LINKGAUGE_TEST_ALL_SIMULATIONS");

/// The number of simulations: a fifth of `all`, or `all` if the environment asks for them.
pub fn simulations(all: u64) -> u64 {
    if ALL.is_some() { all } else { all / 5 }
}

/// A standard normal number (Box and Muller 1958).
pub fn normal(random: &mut SplitMix64) -> f64 {
    let mut uniform = || random.uniform() + f64::EPSILON / 4.0;
    let radius = (-2.0 * uniform().ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform()).cos()
}

/// n independent log-normal values: median 1, `sigma` the deviation of the logarithm.
pub fn log_normal(n: usize, sigma: f64, seed: u64) -> Vec<f64> {
    let random = &mut SplitMix64::new(seed);
    (0..n).map(|_| (sigma * normal(random)).exp()).collect()
}

/// n values of x_i = rho·x_(i−1) + e_i: mean 0, variance 1.
pub fn autoregressive(n: usize, rho: f64, seed: u64) -> Vec<f64> {
    let random = &mut SplitMix64::new(seed);
    let mut state = Autoregression::new(rho, random);
    (0..n).map(|_| state.next(random)).collect()
}

/// A first-order autoregressive series of mean 0 and variance 1.
struct Autoregression {
    rho: f64,
    value: f64,
}

impl Autoregression {
    pub fn new(rho: f64, random: &mut SplitMix64) -> Self {
        Autoregression { rho, value: normal(random) }
    }

    fn next(&mut self, random: &mut SplitMix64) -> f64 {
        self.value = self.rho * self.value + (1.0 - self.rho * self.rho).sqrt() * normal(random);
        self.value
    }
}

/// Disturbance of a simulated run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// Samples with this autocorrelation, 0 to below 1.
    Samples {
        /// Correlation of successive samples.
        rho: f64,
    },
    /// One sample in fifty is delayed by a Pareto variable with the exponent 1.5, which has no variance.
    HeavyTails,
    /// Each repetition is in one of two places. The second is three times as slow.
    TwoPlacements {
        /// Share of repetitions in the slow place, 0 to 1.
        slow_share: f64,
    },
    /// All repetitions from a random one on are slower by twice the deviation of the repetitions.
    LevelShift,
    /// Repetitions resemble their predecessors, with this correlation.
    Repetitions {
        /// Correlation of successive repetitions.
        rho: f64,
    },
}

/// Deviations of the logarithm: of the samples of a repetition, of the repetitions of a run, and of the runs. On loopback
/// the last two were alike.
const SAMPLE_DEVIATION: f64 = 0.1;
const REPETITION_DEVIATION: f64 = 0.03;
const RUN_DEVIATION: f64 = 0.03;

/// The samples of a run, in order of time: `repetitions` × `samples` latencies around 100.
pub fn run(noise: Noise, repetitions: usize, samples: usize, random: &mut SplitMix64) -> Vec<Vec<f64>> {
    let of_samples = if let Noise::Samples { rho } = noise { rho } else { 0.0 };
    let of_repetitions = if let Noise::Repetitions { rho } = noise { rho } else { 0.0 };
    let mut sample_state = Autoregression::new(of_samples, random);
    let mut repetition_state = Autoregression::new(of_repetitions, random);
    let shift_at = (random.uniform() * repetitions as f64) as usize;
    let of_run = RUN_DEVIATION * normal(random);
    let repetition = |index: usize| {
        let mut level = 100.0 * (of_run + REPETITION_DEVIATION * repetition_state.next(random)).exp();
        match noise {
            Noise::TwoPlacements { slow_share } if random.uniform() < slow_share => level *= 3.0,
            Noise::LevelShift if index >= shift_at => level *= 1.0 + 2.0 * REPETITION_DEVIATION,
            _ => {}
        }
        let sample = |_| {
            let delay = match noise {
                Noise::HeavyTails if random.uniform() < 0.02 => (1.0 - random.uniform()).powf(-1.0 / 1.5),
                _ => 0.0,
            };
            level * ((SAMPLE_DEVIATION * sample_state.next(random)).exp() + delay)
        };
        (0..samples).map(sample).collect()
    };
    (0..repetitions).map(repetition).collect()
}
