//! `reproduce --parameters`: the values of the twins, and what the published figures say about them.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use linkgauge::report::{Detail, wrap};
use linkgauge::study::Study;
use linkgauge::twin::{self, ProfileInterval, TwinProfile};
use linkgauge::units::format_plural;

use super::super::output::{print_text, terminal_options};
use super::super::status::Status;
use super::twin::align;

/// Prints each value of each twin with its interval and its origin.
pub fn print_parameters(study: &Study, detail: Detail) -> Result<Status> {
    let profiles: Vec<TwinProfile> =
        twin::profile(study)?.into_iter().filter(|profile| profile.figures > 0).collect();
    if profiles.is_empty() {
        bail!("the selected tables of {} have no twin. Select others with --table", study.name);
    }
    let options = terminal_options();
    let mut text = options.format_answer(&answer(study, &profiles)) + "\n";
    text += &wrap(
        "The interval: the mean deviation of all figures of the twin stays within 10 % of the best, with its other parameters fitted \
         again. *: the value is outside; the fitted figures determined it, or another twin, and the others would move it.",
        options.width,
        "",
        "  ",
    );
    for profile in &profiles {
        text += &format!("\n{}", profile_text(study, profile, detail, options.width));
    }
    if detail == Detail::Summary {
        text +=
            &format!("\nHow each twin was fitted: linkgauge reproduce {} --parameters --all\n", study.name);
    }
    print_text(|stdout| write!(stdout, "{text}"))?;
    Ok(Status::Complete)
}

fn answer(study: &Study, profiles: &[TwinProfile]) -> String {
    let values = || profiles.iter().flat_map(|profile| &profile.values);
    let fitted = values().filter(|value| value.fitted).count();
    // Twins share parameters.
    let different: BTreeSet<(&str, &str)> =
        values().filter(|value| value.fitted).map(|value| (&*value.name, &*value.value)).collect();
    let open = values().filter(|value| !value.interval.is_determined()).count();
    let fitted_open = values().filter(|value| value.fitted && !value.interval.is_determined()).count();
    format!(
        "{}: {} of {} and {} constants; the figures do not limit {open} of them on both sides, {fitted_open} of those fitted.",
        study.name,
        format_plural(different.len() as u64, "fitted parameter"),
        format_plural(profiles.len() as u64, "twin"),
        values().count() - fitted
    )
}

fn profile_text(study: &Study, profile: &TwinProfile, detail: Detail, width: usize) -> String {
    let mut lines = vec![["", "value", "figures allow"].map(str::to_owned)];
    let mut sources = vec!["origin"];
    for value in &profile.values {
        lines.push([value.name.clone(), value.value.clone(), interval_text(&value.interval)]);
        sources.push(if value.fitted { "fitted" } else { &value.source });
    }
    let columns = align(&lines, [false, true, false]);
    let start = columns.lines().map(|line| line.chars().count()).max().unwrap_or(0) + "    ".len();
    let heading = format!(
        "{}: mean deviation {:.1} % of {} by formula",
        profile.twin,
        profile.deviation_percent,
        format_plural(profile.figures as u64, "figure")
    );
    let mut text = wrap(&heading, width, "", "  ");
    for (columns, source) in columns.lines().zip(sources) {
        let first = format!("{:<start$}", format!("  {columns}"));
        text += &wrap(source, width, &first, &" ".repeat(start));
    }
    if detail == Detail::Full {
        let derivation =
            study.twins().iter().find(|twin| twin.name == profile.twin).map(|twin| &twin.derivation);
        text += &derivation.map_or(String::new(), |derivation| {
            let words: Vec<&str> = derivation.split_whitespace().collect();
            wrap(&format!("fit: {}", words.join(" ")), width, "  ", "    ")
        });
    }
    text
}

fn interval_text(interval: &ProfileInterval) -> String {
    match interval {
        ProfileInterval::Any => "any value".to_owned(),
        ProfileInterval::Between { low, high, has_gaps, has_value } => {
            let gaps = match (has_gaps, has_value) {
                (true, true) => ", with gaps",
                (true, false) => ", with gaps *",
                (false, true) => "",
                (false, false) => " *",
            };
            match (low, high) {
                (Some(low), Some(high)) if low == high => format!("{low}{gaps}"),
                (Some(low), Some(high)) => format!("{low} to {high}{gaps}"),
                (Some(low), None) => format!("{low} or more{gaps}"),
                (None, Some(high)) => format!("{high} or less{gaps}"),
                (None, None) => format!("any value{gaps}"),
            }
        }
    }
}
