//! How well a monitor keeps its promises, on the virtual clock: planted trouble in 24 days of a link through watcher, alarms, windows
//! and store, and the alarms of 1,000 months of a steady link. The figures of `docs/monitor.md` are its output; every number follows
//! from a seed.
//!
//! `cargo bench --bench month -- [LINKS [MONTHS [DAYS]]] [KIND …]`; a kind is `loss`, `late`, `p99` or `shift`, all without one.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use linkgauge::monitor::{Alert, LEVEL_WINDOW_S, LevelWatch, Transition};
use linkgauge::sample::{Window, WindowCounts};
use linkgauge::stats::SplitMix64;

#[path = "month/simulation.rs"]
mod simulation;

use simulation::{Finding, Outcome, Plant, RULES, SHIFT, Trouble, simulate};

/// Probes per second.
const RATE: f64 = 1.0;

const HOUR: Duration = Duration::from_secs(3600);
const PROBES_IN_A_MONTH: f64 = 30.0 * 86_400.0 * RATE;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (numbers, kinds): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.parse::<u64>().is_ok());
    let mut numbers = numbers.into_iter().filter_map(|number| number.parse::<u64>().ok());
    let is_wanted = |kind: &str| kinds.is_empty() || kinds.iter().any(|wanted| *wanted == kind);
    let (links, months) = (numbers.next().unwrap_or(10), numbers.next().unwrap_or(1000));
    let days = numbers.next().unwrap_or(24) as u32;
    if links > 0 {
        planted_trouble(links, days);
    }
    for (word, rule) in RULES.into_iter().filter(|(word, _)| is_wanted(word)) {
        steady_months(word, rule, months);
    }
    if is_wanted(SHIFT) {
        steady_levels(months);
    }
}

/// Each day: loss, late replies and a new level, each of the size of its rule; on some days a killed monitor, a set clock, a suspended
/// machine, an outage.
fn plants(seed: u64, days: u32) -> Vec<Plant> {
    let mut random = SplitMix64::new(seed);
    let mut plants = Vec::new();
    for day in 0..days {
        let mut plant = |hour: f64, minutes: u32, trouble: Trouble| {
            let from = 24 * day * HOUR + HOUR.mul_f64(hour + 0.5 * random.uniform());
            plants.push(Plant { from, to: from + minutes * HOUR / 60, trouble });
        };
        plant(2.0, 25, Trouble::Loss(0.05));
        plant(4.0, 25, Trouble::Late(0.1));
        plant(6.0, 180, Trouble::Level(Duration::from_millis(3)));
        match day % 4 {
            0 => plant(14.0, 0, Trouble::Killed(Duration::ZERO)),
            1 => plant(14.0, 0, Trouble::Killed(2 * HOUR)),
            2 => plant(14.0, 0, Trouble::Suspended(HOUR)),
            _ => plant(14.0, 5, Trouble::Loss(1.0)),
        }
        match day {
            7 => plant(18.0, 0, Trouble::Set(SignedDuration::from_hours(1))),
            15 => plant(18.0, 0, Trouble::Set(SignedDuration::from_mins(-30))),
            _ => {}
        }
    }
    plants
}

fn planted_trouble(links: u64, days: u32) {
    let began = Instant::now();
    let folder = std::env::temp_dir().join(format!("linkgauge-month-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let outcomes: Vec<Outcome> = (1..=links)
        .map(|seed| simulate(&plants(seed, days), 24 * days * HOUR, RATE, seed, &folder))
        .collect();
    let _ = std::fs::remove_dir_all(&folder);
    println!("{links} links for {days} days at {RATE} probe/s, in {:.0} s", began.elapsed().as_secs_f64());
    println!(
        "| planted | found | mean delay | printed | longest delay | printed for 99 of 100 | within 1.2 of it |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, is_of) in [
        (
            "loss of 5 %",
            (|trouble| matches!(trouble, Trouble::Loss(share) if share < 1.0)) as fn(Trouble) -> bool,
        ),
        ("outage", |trouble| trouble == Trouble::Loss(1.0)),
        ("10 % late", |trouble| matches!(trouble, Trouble::Late(_))),
        ("new level, +30 %", |trouble| matches!(trouble, Trouble::Level(_))),
    ] {
        let findings = outcomes.iter().flat_map(|outcome| &outcome.findings);
        print_row(name, &findings.filter(|finding| is_of(finding.plant.trouble)).collect::<Vec<_>>());
    }
    let sum = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
    println!(
        "false alarms: {:?}",
        outcomes.iter().flat_map(|outcome| &outcome.false_alarms).collect::<Vec<_>>()
    );
    println!(
        "{} probes, {} of them not in the store after {} kills; {} lost without planted loss ({:.2} per 1000); {} clock events",
        sum(|outcome| outcome.measured.counts.due),
        sum(|outcome| outcome.measured.counts.due - outcome.stored.counts.due),
        links * u64::from(days).div_ceil(4) + links * u64::from(days + 2) / 4,
        sum(|outcome| outcome.unexplained_losses),
        1e3 * sum(|outcome| outcome.unexplained_losses) as f64
            / sum(|outcome| outcome.measured.counts.due) as f64,
        sum(|outcome| outcome.clock_events as u64),
    );
}

fn print_row(name: &str, findings: &[&Finding]) {
    let Some(first) = findings.first() else { return };
    let delays: Vec<f64> =
        findings.iter().filter_map(|finding| finding.delay).map(|delay| delay.as_secs_f64()).collect();
    let mean = delays.iter().sum::<f64>() / delays.len().max(1) as f64;
    let longest = delays.iter().copied().fold(0.0, f64::max);
    let limit = 1.2 * first.printed.as_secs_f64();
    println!(
        "| {name} | {} of {} | {mean:.0} s | {:.0} s | {longest:.0} s | {:.0} s | {} |",
        delays.len(),
        findings.len(),
        first.printed_mean.as_secs_f64(),
        first.printed.as_secs_f64(),
        delays.iter().filter(|delay| **delay <= limit).count(),
    );
}

/// The alarms of a link whose share of bad probes is the normal one.
fn steady_months(word: &str, rule: &str, months: u64) {
    let mut alert = Alert::new(rule.parse().expect("a rule"), RATE).expect("a threshold");
    alert.set_learnt(1);
    let limit_ns = alert.limit_ns().unwrap_or(1);
    let normal = if word == "loss" { 0.005 } else { 0.01 };
    let mut random = SplitMix64::new(months);
    let mut alarms = 0;
    for _ in 0..(months as f64 * PROBES_IN_A_MONTH) as u64 {
        let reply = (random.uniform() >= normal).then_some(limit_ns.min(1));
        alarms += u64::from(alert.record(reply) == Some(Transition::Raised));
    }
    print_rate(word, alarms, months);
}

/// The shifts of a link whose medians of ten minutes vary by 10 %.
fn steady_levels(months: u64) {
    let (mut watch, mut random) = (LevelWatch::default(), SplitMix64::new(3));
    let mut shifts = 0;
    for index in 0..months as i64 * 30 * 86_400 / LEVEL_WINDOW_S {
        let median = 1e7 * (0.9 + 0.2 * random.uniform());
        let mut window = Window::new(WindowCounts { due: 20, ..WindowCounts::default() });
        (0..20).for_each(|_| window.record(median as u64));
        shifts += u64::from(watch.record(index * LEVEL_WINDOW_S, &window).is_some());
    }
    print_rate(SHIFT, shifts, months);
}

/// A rate with its 95 % interval (Poisson, by the square root).
fn print_rate(word: &str, count: u64, months: u64) {
    let (root, months_) = ((count as f64).sqrt(), months as f64);
    let (low, high) = ((root - 0.98).max(0.0).powi(2) / months_, (root + 0.98).powi(2) / months_);
    println!(
        "false alarms of '{word}': {count} in {months} months: {:.3} a month [{low:.3}, {high:.3}]",
        count as f64 / months_
    );
}
