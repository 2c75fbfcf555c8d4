//! `linkgauge monitor --replay`: when a rule would have fired on the stored history.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use linkgauge::monitor::{Alert, Config, Replay, ReplayedAlarm, Rule, Watch, WatchSchedule};
use linkgauge::report::printable;
use linkgauge::store::Store;
use linkgauge::units::format_plural;

use crate::cmd::output::print_text;

/// Prints the alarms that the rule would have raised on each link that is probed all the time.
pub fn print(config: &Config, rule: &Rule, store: &Store, since: Timestamp) -> Result<()> {
    let mut found = Vec::new();
    for watch in &config.watches {
        let WatchSchedule::Continuous { per_second } = watch.schedule else { continue };
        let alert = Alert::new(rule.clone(), per_second).ok_or_else(|| {
            anyhow!(
                "alert '{}': at this rate of probes such a change cannot be noticed: raise the share",
                rule.text
            )
        })?;
        found.push((watch, Replay::of(alert, store, &watch.name, since)?));
    }
    let known: Vec<&Replay> = found.iter().filter_map(|(_, replay)| replay.as_ref()).collect();
    if known.is_empty() {
        bail!(
            "the store has no probes of these links since {since:.0}: run the monitor first, or name its store with --store"
        );
    }
    let alarms = known.iter().map(|replay| replay.alarms.len() as u64).sum();
    let alone = known.iter().map(|replay| replay.without_outage()).sum::<usize>();
    print_text(|out| {
        writeln!(out, "{} since {since:.0}:", printable(&rule.text))?;
        for (watch, replay) in &found {
            writeln!(out, "{}", describe(watch, replay.as_ref()))?;
            for alarm in replay.iter().flat_map(|replay| &replay.alarms) {
                writeln!(out, "  {}", describe_alarm(alarm))?;
            }
        }
        writeln!(out, "all links: {}, {alone} without an outage near it", format_plural(alarms, "alarm"))
    })
}

fn describe(watch: &Watch, replay: Option<&Replay>) -> String {
    let name = printable(&watch.name);
    match replay {
        None => format!("{name}: no history"),
        Some(replay) => format!(
            "{name}: {} in {} of probes, {} without an outage near it",
            format_plural(replay.alarms.len() as u64, "alarm"),
            rounded(replay.measured),
            replay.without_outage()
        ),
    }
}

fn describe_alarm(alarm: &ReplayedAlarm) -> String {
    let began = alarm.began;
    let lasted = alarm.ended.map(|ended| ended.duration_since(began).unsigned_abs());
    let lasted = lasted.map_or_else(|| "not ended".to_owned(), |lasted| format!("for {}", rounded(lasted)));
    let outage = if alarm.is_near_outage { "near an outage" } else { "no outage near it" };
    format!("{began:.0} {lasted}: {outage}")
}

/// A period in its largest unit.
fn rounded(period: Duration) -> String {
    let seconds = period.as_secs_f64();
    match seconds {
        86_400.0.. => format!("{:.1} d", seconds / 86_400.0),
        3600.0.. => format!("{:.1} h", seconds / 3600.0),
        60.0.. => format!("{:.0} min", seconds / 60.0),
        _ => format!("{seconds:.0} s"),
    }
}
