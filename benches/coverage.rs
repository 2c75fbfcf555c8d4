//! How often the statistics of `linkgauge::stats` are right, on simulated measurements with known properties. The tables
//! of `docs/statistics.md` and `docs/explain.md` are its output. Every number follows from a seed.
//!
//! `cargo bench --bench coverage -- [TRIALS] [PART …]`

#![allow(clippy::print_stdout)]

use linkgauge::stats::simulate::{self, Noise};
use linkgauge::stats::{self, Interval, SplitMix64};

/// Samples of a repetition.
const SAMPLES: usize = 200;

const NOISES: [(&str, Noise); 11] = [
    ("independent samples", Noise::Samples { rho: 0.0 }),
    ("AR(1) samples, ρ = 0.5", Noise::Samples { rho: 0.5 }),
    ("AR(1) samples, ρ = 0.9", Noise::Samples { rho: 0.9 }),
    ("AR(1) samples, ρ = 0.99", Noise::Samples { rho: 0.99 }),
    ("heavy tails (Pareto 1.5)", Noise::HeavyTails),
    ("two placements, 30 % slow", Noise::TwoPlacements { slow_share: 0.3 }),
    ("two placements, 50 % slow", Noise::TwoPlacements { slow_share: 0.5 }),
    ("level shift of 2 sd within the run", Noise::LevelShift),
    ("AR(1) repetitions, ρ = 0.3", Noise::Repetitions { rho: 0.3 }),
    ("AR(1) repetitions, ρ = 0.6", Noise::Repetitions { rho: 0.6 }),
    ("AR(1) repetitions, ρ = 0.9", Noise::Repetitions { rho: 0.9 }),
];

/// A part by name; it takes the number of trials.
type Part = (&'static str, fn(usize));

const PARTS: [Part; 11] = [
    ("repetitions", repetition_intervals),
    ("rounds", |trials| rounds_until_narrow(trials / 10)),
    ("earlier-runs", |trials| earlier_runs(trials / 10)),
    ("within-run", within_run_intervals),
    ("histories", histories),
    ("groups", groups),
    ("detectable", detectable_differences),
    ("pairs", |trials| pairs(trials / 5)),
    ("suspects", |trials| suspects(trials / 5)),
    ("clocks", |trials| clocks(trials / 40)),
    ("timers", |trials| timers(trials / 10)),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let trials = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(10_000);
    let is_wanted = |name: &str| arguments.iter().any(|argument| argument == name);
    let any = PARTS.iter().any(|(name, _)| is_wanted(name));
    for (_, part) in PARTS.iter().filter(|(name, _)| !any || is_wanted(name)) {
        part(trials);
    }
}

fn share(count: usize, of: usize) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of.max(1) as f64)
}

/// The middle, and the width of the range of the central 95 %.
fn centre_and_spread(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |p: f64| sorted[(p * (sorted.len() - 1) as f64).round() as usize];
    (at(0.5), at(0.975) - at(0.025))
}

/// Coverage, share without an interval, and the median width in proportion to the real range of 95 % of all runs.
fn summary(runs: &[(f64, Option<Interval>)]) -> String {
    let (centre, spread) = centre_and_spread(&runs.iter().map(|(figure, _)| *figure).collect::<Vec<_>>());
    let intervals: Vec<Interval> = runs.iter().filter_map(|(_, interval)| *interval).collect();
    let covered =
        intervals.iter().filter(|interval| (interval.low..=interval.high).contains(&centre)).count();
    let widths: Vec<f64> = intervals.iter().map(|interval| interval.high - interval.low).collect();
    let width = stats::median(&widths).unwrap_or(0.0) / spread;
    let none = share(runs.len() - intervals.len(), runs.len());
    format!("{} | {none} | {width:.2}", share(covered, intervals.len()))
}

/// The nearest-rank percentile of values in any order.
fn percentile(values: &[f64], p: f64) -> f64 {
    let mut values = values.to_vec();
    let rank = stats::nearest_rank(values.len() as u64, p) as usize - 1;
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

fn repetition_intervals(trials: usize) {
    println!("\nIntervals over repetitions of {SAMPLES} samples, {trials} runs\n");
    println!("| noise | repetitions | p50 | none | width | p90 | none | width | rate | none | width |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (name, noise) in NOISES {
        for repetitions in [6, 10, 20] {
            let random = &mut SplitMix64::new(1);
            let mut columns = [const { Vec::new() }; 3];
            for _ in 0..trials {
                let run = simulate::run(noise, repetitions, SAMPLES, random);
                for (column, p) in [0.5, 0.9].into_iter().enumerate() {
                    let of_each: Vec<f64> = run.iter().map(|samples| percentile(samples, p)).collect();
                    let value = percentile(&run.concat(), p);
                    columns[column].push((value, stats::run_interval(value, &of_each)));
                }
                let rates: Vec<f64> =
                    run.iter().map(|samples| SAMPLES as f64 / samples.iter().sum::<f64>()).collect();
                let rate = stats::median(&rates).unwrap_or(0.0);
                columns[2].push((rate, stats::run_interval(rate, &rates)));
            }
            println!("| {name} | {repetitions} | {} |", columns.map(|runs| summary(&runs)).join(" | "));
        }
    }
}

/// A rule that ends a measurement in rounds, each twice as long as the one before.
#[derive(Clone, Copy, PartialEq)]
enum EndingRule {
    /// The first narrow round is the result.
    FirstNarrow,
    /// The round after it is the result, as in `schedule::run_until`.
    NextAfterNarrow,
}

/// The limit of the rounds: 2⁵ times the first one.
const MAX_ROUNDS: u32 = 6;

/// The figure of the last round, its interval, and the number of rounds.
fn until_narrow(
    noise: Noise,
    half_width: f64,
    rule: EndingRule,
    random: &mut SplitMix64,
) -> (f64, Option<Interval>, u32) {
    let mut is_narrow = false;
    for round in 0..MAX_ROUNDS {
        let run = simulate::run(noise, 10, (SAMPLES / 10) << round, random);
        let of_each: Vec<f64> = run.iter().map(|samples| percentile(samples, 0.5)).collect();
        let value = percentile(&run.concat(), 0.5);
        let interval = stats::run_interval(value, &of_each);
        let was_narrow = is_narrow;
        is_narrow =
            interval.is_some_and(|found| (found.high - value).max(value - found.low) <= half_width * value);
        let ends = if rule == EndingRule::FirstNarrow { is_narrow } else { was_narrow };
        if ends || round + 1 == MAX_ROUNDS {
            return (value, interval, round + 1);
        }
    }
    unreachable!("the last round returns")
}

fn rounds_until_narrow(trials: usize) {
    println!("\nRounds until an interval of p50 is narrow, {trials} measurements each\n");
    println!("| noise | wanted | result | coverage | none | width | rounds |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, noise) in NOISES {
        for half_width in [0.05, 0.1] {
            for (rule, label) in [
                (EndingRule::FirstNarrow, "first narrow round"),
                (EndingRule::NextAfterNarrow, "the round after it"),
            ] {
                let random = &mut SplitMix64::new(5);
                let all: Vec<_> =
                    (0..trials).map(|_| until_narrow(noise, half_width, rule, random)).collect();
                let runs: Vec<_> = all.iter().map(|(value, interval, _)| (*value, *interval)).collect();
                let rounds: Vec<f64> = all.iter().map(|(_, _, rounds)| f64::from(*rounds)).collect();
                let rounds = rounds.iter().sum::<f64>() / rounds.len() as f64;
                println!(
                    "| {name} | ± {:.0} % | {label} | {} | {rounds:.1} |",
                    100.0 * half_width,
                    summary(&runs)
                );
            }
        }
    }
}

/// Runs whose level resembles that of the runs before: the interval by a run alone, and with the runs before it.
fn earlier_runs(trials: usize) {
    println!(
        "\nIntervals with earlier runs, {trials} histories of 100 runs; a run differs by 10 % (sd), its repetitions by 2 %\n"
    );
    println!("| ρ of the runs | earlier runs | alone | none | width | with earlier runs | none | width |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for rho in [0.0, 0.3, 0.7, 0.9] {
        for at in [8, 15, 20, 50, 99] {
            let (mut alone, mut with) = (Vec::new(), Vec::new());
            for seed in 0..trials as u64 {
                let levels: Vec<f64> =
                    simulate::autoregressive(100, rho, seed).iter().map(|x| (0.1 * x).exp()).collect();
                let repetitions: Vec<f64> =
                    simulate::log_normal(10, 0.02, !seed).iter().map(|x| levels[at] * x).collect();
                let value = stats::median(&repetitions).unwrap_or(0.0);
                let own = stats::run_interval(value, &repetitions);
                let corrected = own.map(|own| {
                    stats::interval_with_earlier_runs(
                        own,
                        value,
                        stats::error_interval(value, &repetitions),
                        &levels[..at],
                    )
                });
                alone.push((value, own));
                with.push((value, corrected));
            }
            println!("| {rho} | {at} | {} | {} |", summary(&alone), summary(&with));
        }
    }
}

fn within_run_intervals(trials: usize) {
    println!("\nIntervals within one run, {trials} runs\n");
    println!(
        "| noise | samples | p50: coverage | none | width ÷ spread | p99: coverage | none | width ÷ spread |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for rho in [0.0, 0.5, 0.9, 0.95, 0.99] {
        for samples in [500, 2000, 10_000] {
            let columns = [0.5, 0.99].map(|p| {
                let runs: Vec<(f64, Option<Interval>)> = (0..trials / 5)
                    .map(|seed| {
                        let series = simulate::autoregressive(samples, rho, seed as u64);
                        (percentile(&series, p), within_run_interval(&series, p))
                    })
                    .collect();
                summary(&runs)
            });
            println!("| AR(1), ρ = {rho} | {samples} | {} |", columns.join(" | "));
        }
    }
}

fn within_run_interval(series: &[f64], p: f64) -> Option<Interval> {
    let (low, high) = stats::within_run_ranks(series.len() as u64, p, stats::dependence(series, p)?)?;
    let mut sorted = series.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(Interval { low: sorted[low as usize - 1], high: sorted[high as usize - 1] })
}

/// A kind of history: `n` results.
type History = (&'static str, fn(usize, u64) -> Vec<f64>);

const HISTORIES: [History; 4] = [
    ("log-normal, sd 5 %", |n, seed| simulate::log_normal(n, 0.05, seed)),
    ("log-normal, sd 50 %", |n, seed| simulate::log_normal(n, 0.5, seed)),
    ("heavy tails (1 in 10 up to 5 times as slow)", |n, seed| {
        let random = &mut SplitMix64::new(seed);
        let slow =
            |random: &mut SplitMix64| if random.uniform() < 0.1 { 1.0 + 4.0 * random.uniform() } else { 1.0 };
        (0..n).map(|_| slow(random) * (0.05 * simulate::normal(random)).exp()).collect()
    }),
    ("AR(1), ρ = 0.3, sd 5 %", |n, seed| {
        simulate::autoregressive(n, 0.3, seed).iter().map(|x| (0.05 * x).exp()).collect()
    }),
];

fn histories(trials: usize) {
    println!("\nHistories, {trials} each: a new result called unusual, a change of level found\n");
    println!(
        "| history | earlier results | unusual | a change although there is none | a shift of 2 sd found within 10 runs |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (name, history) in HISTORIES {
        for n in [8, 20, 50, 100] {
            let (mut unusual, mut changed, mut found) = (0, 0, 0);
            for seed in 0..trials as u64 {
                let mut values = history(n + 1, seed);
                let newest = values.pop().unwrap_or_default();
                let is_usual =
                    |usual: stats::Usual| (usual.interval.low..=usual.interval.high).contains(&newest);
                unusual += usize::from(stats::usual(&values).is_some_and(|usual| !is_usual(usual)));
                changed += usize::from(!stats::level_changes(&values).is_empty());
                if seed < trials as u64 / 10 {
                    found += usize::from(is_shift_found(&history(n + 10, seed + 1_000_000), n));
                }
            }
            let found = share(found, trials / 10);
            println!("| {name} | {n} | {} | {} | {found} |", share(unusual, trials), share(changed, trials));
        }
    }
}

/// Whether a shift by two standard deviations at `at` is found by the last result.
fn is_shift_found(values: &[f64], at: usize) -> bool {
    let deviation = values.iter().copied().collect::<stats::Moments>().standard_deviation().unwrap_or(0.0);
    let later = |index: usize| if index < at { 0.0 } else { 2.0 * deviation };
    let shifted: Vec<f64> = values.iter().enumerate().map(|(index, value)| value + later(index)).collect();
    stats::level_changes(&shifted).iter().any(|change| change.abs_diff(at) <= 3)
}

fn groups(trials: usize) {
    println!("\nSeparate groups found, {trials} runs\n");
    println!("| repetitions | normal | heavy tails | two placements 1 : 3, 50 % slow, with two in each |");
    println!("| --- | --- | --- | --- |");
    for n in [6, 10, 20, 50] {
        let found = |history: fn(usize, u64) -> Vec<f64>| {
            share(
                (0..trials as u64)
                    .filter(|&seed| !stats::separate_groups(&history(n, seed)).is_empty())
                    .count(),
                trials,
            )
        };
        let (mut split, mut right) = (0, 0);
        for seed in 0..trials as u64 {
            let random = &mut SplitMix64::new(seed);
            let place = |random: &mut SplitMix64| if random.uniform() < 0.5 { 3.0 } else { 1.0 };
            let places: Vec<f64> = (0..n).map(|_| place(random)).collect();
            let slow = places.iter().filter(|&&place| place > 2.0).count();
            if (2..=n - 2).contains(&slow) {
                let values: Vec<f64> =
                    places.iter().map(|p| p * (0.05 * simulate::normal(random)).exp()).collect();
                let sizes: Vec<usize> =
                    stats::separate_groups(&values).iter().map(|group| group.size).collect();
                split += 1;
                right += usize::from(sizes == [n - slow, slow]);
            }
        }
        println!("| {n} | {} | {} | {} |", found(HISTORIES[0].1), found(HISTORIES[2].1), share(right, split));
    }
}

fn detectable_differences(trials: usize) {
    println!("\nPower of a comparison at the smallest detectable difference, {} trials\n", trials / 10);
    println!("| repetitions | difference in sd | shown |");
    println!("| --- | --- | --- |");
    for n in [4, 6, 10, 20] {
        let shift = stats::smallest_detectable_shift(1.0, n).unwrap_or(f64::NAN);
        let shown = (0..trials as u64 / 10).filter(|&seed| {
            let a = simulate::autoregressive(n as usize, 0.0, 2 * seed);
            let b: Vec<f64> =
                simulate::autoregressive(n as usize, 0.0, 2 * seed + 1).iter().map(|x| x + shift).collect();
            stats::mann_whitney_p(&a, &b) < 0.05
        });
        println!("| {n} | {shift:.2} | {} |", share(shown.count(), trials / 10));
    }
}

/// Logarithms of 2·n medians of successive blocks.
type Blocks = (&'static str, fn(usize, u64) -> Vec<f64>);

const BLOCKS: [Blocks; 4] = [
    ("independent, sd 3 %", |n, seed| scaled(simulate::autoregressive(2 * n, 0.0, seed), 0.03)),
    ("AR(1), ρ = 0.87, sd 3 %", |n, seed| scaled(simulate::autoregressive(2 * n, 0.87, seed), 0.03)),
    ("AR(1), ρ = 0.99, sd 3 %", |n, seed| scaled(simulate::autoregressive(2 * n, 0.99, seed), 0.03)),
    ("1 in 10 blocks up to 5 times as slow", |n, seed| {
        let random = &mut SplitMix64::new(seed);
        let slow =
            |random: &mut SplitMix64| if random.uniform() < 0.1 { 1.0 + 4.0 * random.uniform() } else { 1.0 };
        (0..2 * n).map(|_| slow(random).ln() + 0.03 * simulate::normal(random)).collect()
    }),
];

fn scaled(values: Vec<f64>, by: f64) -> Vec<f64> {
    values.into_iter().map(|value| by * value).collect()
}

/// The differences of neighbouring blocks, in random order within each pair; the second of the two has this effect.
fn paired(blocks: &[f64], effect: f64, random: &mut SplitMix64) -> Vec<f64> {
    let difference =
        |pair: &[f64]| if random.uniform() < 0.5 { pair[1] - pair[0] } else { pair[0] - pair[1] };
    blocks.chunks_exact(2).map(difference).map(|apart| apart + effect).collect()
}

fn pairs(trials: usize) {
    println!(
        "\nPairs of blocks, {trials} trials: signed-rank test at 5 %, Hodges–Lehmann interval of 95 %\n"
    );
    println!("| blocks | pairs | false alarms | coverage | power at 2 % | 5 % | 10 % |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, blocks) in BLOCKS {
        for n in [6, 8, 10, 20] {
            let random = &mut SplitMix64::new(11);
            let shown = |effect: f64, random: &mut SplitMix64| {
                let trial = |seed| {
                    let differences = paired(&blocks(n, seed as u64), effect, random);
                    let covers = stats::hodges_lehmann_centre(&differences)
                        .and_then(|(_, interval)| interval)
                        .is_some_and(|interval| (interval.low..=interval.high).contains(&effect));
                    (stats::signed_rank_p(&differences) < 0.05, covers)
                };
                let all: Vec<(bool, bool)> = (0..trials).map(trial).collect();
                let count = |which: fn(&(bool, bool)) -> bool| {
                    share(all.iter().filter(|one| which(one)).count(), trials)
                };
                (count(|one| one.0), count(|one| one.1))
            };
            let (alarms, coverage) = shown(0.0, random);
            let power = [0.02f64, 0.05, 0.1].map(|effect| shown(effect.ln_1p(), random).0);
            println!("| {name} | {n} | {alarms} | {coverage} | {} |", power.join(" | "));
        }
    }
}

/// Several suspects share the blocks of one baseline, as in `explain`.
fn suspects(trials: usize) {
    const PAIRS: usize = 10;
    println!(
        "\nSuspects without an effect that share a baseline, {PAIRS} rounds, {trials} trials: any p < 5 %\n"
    );
    println!("| suspects | without correction | Holm |");
    println!("| --- | --- | --- |");
    for suspects in [1, 2, 4, 8] {
        let (mut plain, mut corrected) = (0, 0);
        for seed in 0..trials as u64 {
            // Rounds of one baseline and all suspects, in random order: one slow series.
            let random = &mut SplitMix64::new(seed);
            let series = simulate::autoregressive(PAIRS * (suspects + 1), 0.87, seed);
            let rounds: Vec<Vec<f64>> = series
                .chunks_exact(suspects + 1)
                .map(|round| {
                    let mut round = round.to_vec();
                    for last in (1..round.len()).rev() {
                        round.swap(last, (random.uniform() * (last + 1) as f64) as usize);
                    }
                    round
                })
                .collect();
            let p: Vec<f64> = (1..=suspects)
                .map(|suspect| {
                    let apart: Vec<f64> = rounds.iter().map(|round| round[suspect] - round[0]).collect();
                    stats::signed_rank_p(&apart)
                })
                .collect();
            plain += usize::from(p.iter().any(|p| *p < 0.05));
            corrected += usize::from(stats::holm_adjusted(&p).iter().any(|p| *p < 0.05));
        }
        println!("| {suspects} | {} | {} |", share(plain, trials), share(corrected, trials));
    }
}

/// A shape of latencies, in ms.
type Latency = (&'static str, fn(&mut SplitMix64) -> f64);

const LATENCIES: [Latency; 7] = [
    ("constant", |_| 4.21),
    ("log-normal, σ = 0.1", |random| (0.1 * simulate::normal(random)).exp()),
    ("log-normal, σ = 0.5", |random| 5.0 * (0.5 * simulate::normal(random)).exp()),
    ("exponential, 20 ms", |random| -20.0 * (1.0 - random.uniform()).ln()),
    ("Pareto 1.5", |random| (1.0 - random.uniform()).powf(-1.0 / 1.5)),
    ("30 % at 44 ms", |random| if random.uniform() < 0.3 { 44.0 } else { 0.1 }),
    ("uniform, 0–10 ms", |random| 10.0 * random.uniform()),
];

/// The periods that `explain` knows, in ms.
const PERIODS_MS: [f64; 23] = [
    0.125,
    0.625,
    1.0,
    1.25,
    2.0,
    2.5,
    10.0 / 3.0,
    4.0,
    5.0,
    7.5,
    10.0,
    15.625,
    16.0,
    16.667,
    20.0,
    30.0,
    40.0,
    50.0,
    100.0,
    102.4,
    204.8,
    307.2,
    500.0,
];

/// Receive times after random pauses; a share of the replies waits for a clock.
fn received(n: usize, pause: f64, latency: Latency, clock: (f64, f64), seed: u64) -> Vec<f64> {
    let random = &mut SplitMix64::new(seed);
    let mut now = 1e5;
    let next = |_| {
        now += -pause * (1.0 - random.uniform()).ln() + latency.1(random);
        if random.uniform() < clock.1 {
            now = (now / clock.0).ceil() * clock.0;
        }
        now
    };
    (0..n).map(next).collect()
}

fn clocks(trials: usize) {
    println!("\nClocks found at a level of 1 % although there is none, {trials} trials\n");
    println!("| latency | mean pause | requests | known periods | any period |");
    println!("| --- | --- | --- | --- | --- |");
    for latency in LATENCIES {
        for (pause, n) in [(20.0, 150), (50.0, 150), (50.0, 300), (100.0, 500)] {
            let (mut known, mut any) = (0, 0);
            for seed in 0..trials as u64 {
                let instants = received(n, pause, latency, (1.0, 0.0), seed);
                known +=
                    usize::from(!stats::known_grids(&instants, &PERIODS_MS, 2.0 * pause, 0.01).is_empty());
                // With more requests the scan takes seconds in a debug build.
                if n <= 150 {
                    any += usize::from(stats::unknown_grid(&instants, 2.0, 2.0 * pause, 0.01).is_some());
                }
            }
            let any = if n <= 150 { share(any, trials) } else { "–".to_owned() };
            let known = share(known, trials);
            println!("| {} | {pause} ms | {n} | {known} | {any} |", latency.0);
        }
    }
    println!(
        "\nA clock of 10 ms found, by the share of the replies that wait for it, {trials} trials, mean pause 50 ms\n"
    );
    println!("| share | 150 requests | 300 requests | 500 requests |");
    println!("| --- | --- | --- | --- |");
    for part in [0.1, 0.2, 0.3, 0.5, 1.0] {
        let found = [150, 300, 500].map(|n| {
            let is_found = |seed: &usize| {
                let instants = received(n, 50.0, LATENCIES[1], (10.0, part), *seed as u64);
                let grids = stats::known_grids(&instants, &PERIODS_MS, 100.0, 0.01);
                grids.iter().any(|grid| (grid.period - 10.0).abs() < 0.01)
            };
            share((0..trials).filter(is_found).count(), trials)
        });
        println!("| {:.0} % | {} |", 100.0 * part, found.join(" | "));
    }
}

/// The timers that `explain` knows, in ms.
const TIMERS_MS: [(f64, f64); 3] = [(42.0, 2.5), (200.0, 3.0), (206.0, 8.0)];

fn timers(trials: usize) {
    let bands = TIMERS_MS.map(|(distance, half_width)| stats::SideBand { distance, half_width });
    let is_found = |values: &[f64]| {
        let counts = stats::count_side_bands(values, &bands);
        let p: Vec<f64> = counts.iter().map(|count| count.map_or(1.0, |count| count.p)).collect();
        stats::holm_adjusted(&p).iter().any(|p| *p < 0.01)
    };
    println!(
        "\nTimers found at a level of 1 %, {trials} trials: none, and a delayed ACK for a share of the requests\n"
    );
    println!("| latency | requests | none | 2 % | 5 % | 10 % |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for latency in LATENCIES {
        for n in [300, 1000] {
            let found = [0.0, 0.02, 0.05, 0.1].map(|part| {
                let trial = |seed: &usize| {
                    let random = &mut SplitMix64::new(*seed as u64);
                    let late = |random: &mut SplitMix64| {
                        if random.uniform() < part { 40.0 + 4.0 * random.uniform() } else { 0.0 }
                    };
                    let values: Vec<f64> = (0..n).map(|_| latency.1(random) + late(random)).collect();
                    is_found(&values)
                };
                share((0..trials).filter(trial).count(), trials)
            });
            println!("| {} | {n} | {} |", latency.0, found.join(" | "));
        }
    }
}
