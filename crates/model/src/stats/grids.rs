//! Clock grids: do instants fall on one phase of a period, as those of a program that looks only every 10 ms?
//!
//! For: receive instants of requests that were sent at random times, one at a time, each a random time after the previous
//! reply. Not for: open schedules and closed loops without a pause. There replies that queue, or a constant latency, look
//! like a grid.
//! Source: Rayleigh's test of uniform phases, with a bound for the number of periods that are tried.

use std::f64::consts::TAU;

/// A grid that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// The period, in the unit of the instants.
    pub period: f64,
    /// Half of the distance to the next period that the duration can tell apart, in the same unit.
    pub resolution: f64,
    /// Rayleigh's statistic: the number of instants if all have the same phase, about 1 if they have none.
    pub z: f64,
    /// Probability of such a statistic without a grid, 0 to 1, corrected for the number of periods that were tried.
    pub p: f64,
}

/// Minimum number of periods in the whole duration that show a grid.
const MIN_CYCLES: f64 = 8.0;
/// The clock of another machine differs from ours by up to this share.
const CLOCK_TOLERANCE: f64 = 100e-6;
/// Scanned frequencies for each one that the duration can tell apart.
const OVERSAMPLING: f64 = 4.0;
/// A multiple of the strongest period is the period if its statistic is at least this share of the largest, and its own
/// probability is small enough. If half of 150 messages pass a grid, the statistics of its parts differ by a factor of two
/// by chance.
const SHARE_OF_LARGEST: f64 = 0.4;
/// Share of the largest statistic from which the own probability of a multiple does not matter: few instants that have one phase
/// of 100 ms by chance seldom have one of 1 s.
const SUFFICIENT_SHARE: f64 = 0.6;
/// Factor by which the own probability of a multiple must be below the level if its share is small: instants on a grid of 5 ms at
/// random seldom look like one of 20 ms.
const LEVEL_OF_MULTIPLES: f64 = 0.01;
/// Tolerance: one of two grids is a part of the other if their ratio is this close to a whole number.
const WHOLE_TOLERANCE: f64 = 2e-3;
/// Tolerance if the resolutions of the two grids allow it: this part of a whole number.
const WHOLE_BLUR: f64 = 0.1;
/// Maximum ratio of two grids; larger ratios are whole numbers by chance.
const MAX_RATIO: f64 = 200.0;

/// Rayleigh's statistic z of the instants for one period: |Σ exp(2πi·t/period)|² ÷ n. 0 without instants.
pub fn phase_concentration(instants: &[f64], period: f64) -> f64 {
    let (mut cosines, mut sines) = (0.0, 0.0);
    for instant in instants {
        let (sine, cosine) = (TAU * (instant / period).fract()).sin_cos();
        cosines += cosine;
        sines += sine;
    }
    if instants.is_empty() { 0.0 } else { (cosines * cosines + sines * sines) / instants.len() as f64 }
}

/// The grids among `periods`, the strongest first, with a probability below `level`. Periods above `longest` are not
/// tried: send times a mean pause m apart are random enough for periods up to 2·m. Of a grid and its parts and multiples
/// only one is returned.
pub fn known_grids(instants: &[f64], periods: &[f64], longest: f64, level: f64) -> Vec<Grid> {
    let duration = duration(instants);
    let is_tried = |period: &&f64| **period <= longest && duration / **period >= MIN_CYCLES;
    let tried: Vec<f64> = periods.iter().filter(is_tried).copied().collect();
    let found = tried.iter().map(|&period| {
        let width = CLOCK_TOLERANCE / period;
        let steps = (2.0 * width * duration * OVERSAMPLING).ceil() + 1.0;
        let scan =
            (0..steps as u64).map(|step| 1.0 / period - width + step as f64 / (OVERSAMPLING * duration));
        let frequency = strongest(instants, std::iter::once(1.0 / period).chain(scan));
        grid(instants, refine(instants, frequency, duration), (steps + 1.0) * tried.len() as f64)
    });
    without_parts(found.collect(), level)
}

/// The strongest grid of any period between `shortest` and `longest`, if its probability is below `level`.
pub fn unknown_grid(instants: &[f64], shortest: f64, longest: f64, level: f64) -> Option<Grid> {
    let duration = duration(instants);
    let lowest = 1.0 / longest.min(duration / MIN_CYCLES);
    let independent = duration * (1.0 / shortest - lowest);
    if !(independent > 0.0 && independent.is_finite()) {
        return None;
    }
    let steps = (independent * OVERSAMPLING) as u64;
    let scan = (0..=steps).map(|step| lowest + step as f64 / (OVERSAMPLING * duration));
    let strongest_frequency = strongest(instants, scan);
    // The longest period whose parts the others are: twice to eight times the strongest.
    let candidates = (1..=8).map(|multiple| strongest_frequency / f64::from(multiple));
    let found = candidates
        .filter(|frequency| *frequency >= lowest)
        .map(|frequency| grid(instants, refine(instants, frequency, duration), OVERSAMPLING * independent));
    without_parts(found.collect(), level).into_iter().next()
}

/// Time from the first to the last instant.
fn duration(instants: &[f64]) -> f64 {
    let (first, last) = instants
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &at| (low.min(at), high.max(at)));
    (last - first).max(0.0)
}

fn strongest(instants: &[f64], frequencies: impl Iterator<Item = f64>) -> f64 {
    let rated = frequencies.map(|frequency| (phase_concentration(instants, 1.0 / frequency), frequency));
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(0.0, |(_, frequency)| frequency)
}

/// The frequency of the peak next to `frequency`.
fn refine(instants: &[f64], frequency: f64, duration: f64) -> f64 {
    let fine = (-20..=20).map(|step| frequency + f64::from(step) / (20.0 * OVERSAMPLING * duration));
    strongest(instants, fine)
}

fn grid(instants: &[f64], frequency: f64, tried: f64) -> Grid {
    let (period, z) = (1.0 / frequency, phase_concentration(instants, 1.0 / frequency));
    let resolution = period * period / (OVERSAMPLING * duration(instants));
    Grid { period, resolution, z, p: (tried * (-z).exp()).min(1.0) }
}

/// Leaves out parts and multiples: a grid of 10 ms is also one of 5 ms. The longest period is the one that something waits
/// for, even if late messages make a part of it stronger.
fn without_parts(mut found: Vec<Grid>, level: f64) -> Vec<Grid> {
    let mut grids: Vec<Grid> = Vec::new();
    let strongest_of = |found: &[Grid]| {
        found.iter().filter(|grid| grid.p < level).max_by(|a, b| a.z.total_cmp(&b.z)).copied()
    };
    while let Some(strongest) = strongest_of(&found) {
        let is_multiple = |grid: &&Grid| {
            let share = grid.z / strongest.z;
            let is_shown = share >= SUFFICIENT_SHARE
                || (share >= SHARE_OF_LARGEST && grid.p < level)
                || grid.p < LEVEL_OF_MULTIPLES * level;
            grid.period > strongest.period && is_shown && is_part(grid, &strongest)
        };
        let multiples = found.iter().filter(is_multiple);
        let longest = multiples.max_by(|a, b| a.period.total_cmp(&b.period)).copied().unwrap_or(strongest);
        grids.push(longest);
        found.retain(|grid| !is_part(grid, &longest) && !is_part(grid, &strongest));
    }
    grids
}

fn is_part(a: &Grid, b: &Grid) -> bool {
    let ratio = (a.period / b.period).max(b.period / a.period);
    // Limit to which the duration separates their periods.
    let blur = a.resolution / a.period + b.resolution / b.period;
    let tolerance = blur.min(WHOLE_BLUR / ratio).max(WHOLE_TOLERANCE);
    ratio <= MAX_RATIO && (ratio / ratio.round() - 1.0).abs() < tolerance
}

#[cfg(test)]
mod tests {
    use super::super::SplitMix64;
    use super::*;

    const TABLE_MS: [f64; 14] =
        [0.125, 0.625, 1.0, 1.25, 2.5, 4.0, 5.0, 10.0, 15.625, 16.0, 20.0, 50.0, 100.0, 102.4];

    /// Receive instants in ms: a pause with this mean, then a latency, and this share of the messages waits for the grid.
    fn received(
        n: usize,
        think: f64,
        latency: impl Fn(&mut SplitMix64) -> f64,
        grid: (f64, f64),
        seed: u64,
    ) -> Vec<f64> {
        let random = &mut SplitMix64::new(seed);
        let mut now = 1e5;
        let instants = (0..n).map(|_| {
            now += -think * (1.0 - random.uniform()).ln() + latency(random);
            if random.uniform() < grid.1 {
                now = (now / grid.0).ceil() * grid.0;
            }
            now
        });
        instants.collect()
    }

    #[test]
    fn agrees_with_vectors() {
        assert!((phase_concentration(&[3.0, 13.0, 53.0, 93.0], 10.0) - 4.0).abs() < 1e-9);
        assert!(phase_concentration(&[0.0, 2.5, 5.0, 7.5], 10.0).abs() < 1e-12);
        // abs(sum(exp(2j*pi*x/10)))**2/5 with NumPy.
        let z = phase_concentration(&[0.1, 10.2, 30.05, 50.1, 70.15], 10.0);
        assert!((z - 4.99487).abs() < 1e-5, "{z}");
        assert_eq!(phase_concentration(&[], 10.0), 0.0);
        assert!(known_grids(&[], &TABLE_MS, 100.0, 0.01).is_empty());
        assert_eq!(unknown_grid(&[1.0], 1.0, 100.0, 0.01), None);
    }

    #[test]
    fn one_grid_is_found_at_its_period() {
        for (period, share) in [(10.0, 1.0), (16.0, 1.0), (20.0, 0.5), (1.25, 1.0), (10.0, 0.5)] {
            let instants = received(150, 50.0, |random| 0.2 + 0.1 * random.uniform(), (period, share), 3);
            let found = known_grids(&instants, &TABLE_MS, 100.0, 0.01);
            assert_eq!(found.len(), 1, "{period}: {found:?}");
            assert!((found[0].period - period).abs() < 2.0 * found[0].resolution, "{period}: {found:?}");
        }
        // A clock that is 50 ppm slow, and a period that no table has.
        let instants = received(150, 50.0, |_| 0.2, (10.0 * 1.000_05, 1.0), 4);
        assert_eq!(known_grids(&instants, &TABLE_MS, 100.0, 0.01).len(), 1);
        let instants = received(150, 50.0, |_| 0.2, (7.3, 1.0), 5);
        assert!(known_grids(&instants, &TABLE_MS, 100.0, 0.01).is_empty());
        let found = unknown_grid(&instants, 2.0, 100.0, 0.01).unwrap();
        assert!((found.period - 7.3).abs() < 2.0 * found.resolution, "{found:?}");
    }

    #[test]
    fn the_longest_period_is_named_even_if_a_part_of_it_is_stronger() {
        // Replies of a clock of 20 ms, of which 45 % leave 5 to 15 ms late, as from a busy host.
        let random = &mut SplitMix64::new(6);
        let late = |random: &mut SplitMix64| match random.uniform() < 0.55 {
            true => 0.0,
            false => 5.0 * (1.0 + 3.0 * random.uniform()).floor(),
        };
        let on_time = received(300, 50.0, |_| 0.2, (20.0, 1.0), 7);
        let instants: Vec<f64> = on_time.into_iter().map(|instant| instant + late(random)).collect();
        assert!(phase_concentration(&instants, 20.0) < 0.25 * phase_concentration(&instants, 5.0));
        let found = known_grids(&instants, &TABLE_MS, 100.0, 0.01);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((found[0].period - 20.0).abs() < 0.01, "{found:?}");
        let found = unknown_grid(&instants, 2.0, 100.0, 0.01).unwrap();
        assert!((found.period - 20.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn few_instants_have_their_longest_period() {
        // Eleven pauses that end at full seconds, and two others, of which one ends at a multiple of 100 ms.
        let seconds = [0.0, 1.0, 2.0, 4.0, 5.0, 7.0, 9.0, 10.0, 12.0, 14.0, 16.0];
        let ends: Vec<f64> = seconds.iter().map(|at| 1e3 * at + 50.0).chain([3350.0, 11_687.0]).collect();
        let periods = [100.0, 204.8, 500.0, 640.0, 800.0, 1000.0];
        let found = known_grids(&ends, &periods, 16_000.0, 0.01);
        let is_near = |period: f64| (found[0].period - period).abs() < found[0].resolution;
        assert!(found.len() == 1 && is_near(1000.0), "{found:?}");
        let tenths: Vec<f64> =
            [1.0, 4.0, 15.0, 27.0, 38.0, 52.0, 66.0, 79.0, 93.0, 101.0, 117.0, 134.0, 159.0]
                .iter()
                .map(|at| 100.0 * at)
                .collect();
        let found = known_grids(&tenths, &periods, 16_000.0, 0.01);
        assert!(found.len() == 1 && (found[0].period - 100.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn random_instants_seldom_show_a_grid() {
        let exponential = |random: &mut SplitMix64| -3.0 * (1.0 - random.uniform()).ln();
        let two_modes = |random: &mut SplitMix64| if random.uniform() < 0.3 { 44.0 } else { 0.1 };
        let mut alarms = [0, 0];
        for seed in 0..60 {
            for instants in [
                received(150, 50.0, exponential, (1.0, 0.0), seed),
                received(150, 50.0, two_modes, (1.0, 0.0), seed),
                received(150, 50.0, |_| 4.21, (1.0, 0.0), seed),
            ] {
                alarms[0] += usize::from(!known_grids(&instants, &TABLE_MS, 100.0, 0.01).is_empty());
                alarms[1] += usize::from(unknown_grid(&instants, 20.0, 100.0, 0.01).is_some());
            }
        }
        // 1 % of 180 is 1.8; 7 or more come by chance in less than 1 of 300 tests.
        assert!(alarms[0] <= 6 && alarms[1] <= 6, "{alarms:?}");
    }

    #[test]
    fn a_third_of_the_messages_shows_the_grid() {
        let latency = |random: &mut SplitMix64| 0.2 + 0.1 * random.uniform();
        let finds = |share, n| {
            let of =
                |seed| known_grids(&received(n, 50.0, latency, (10.0, share), seed), &TABLE_MS, 100.0, 0.01);
            (0..50).filter(|&seed| of(seed).iter().any(|grid| (grid.period - 10.0).abs() < 0.01)).count()
        };
        // 0.82 of 50 is 41; 0.97 is 48.
        assert!((33..=48).contains(&finds(0.3, 150)), "{}", finds(0.3, 150));
        assert!(finds(0.2, 500) >= 43);
    }
}
