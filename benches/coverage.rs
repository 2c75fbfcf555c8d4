//! How often the statistics of `linkgauge::stats` are right, on simulated measurements with known properties. The tables
//! of `docs/metrics.md` are its output. Every number follows from a seed.
//!
//! `cargo bench --bench coverage [TRIALS] [PART …]`

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

const PARTS: [Part; 7] = [
    ("repetitions", repetition_intervals),
    ("rounds", |trials| rounds_until_narrow(trials / 10)),
    ("earlier-runs", |trials| earlier_runs(trials / 10)),
    ("within-run", within_run_intervals),
    ("histories", histories),
    ("groups", groups),
    ("detectable", detectable_differences),
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
                let corrected =
                    own.map(|own| stats::interval_with_earlier_runs(own, value, &repetitions, &levels[..at]));
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
