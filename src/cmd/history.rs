//! `linkgauge history`: the saved runs, and a figure over time.

mod trend;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use clap::Args;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use linkgauge::clock::wall_clock_date;
use linkgauge::metric::Metric;
use linkgauge::report::{HistoryTrend, ReportOptions, printable, shorten, to_ascii, write_history};
use linkgauge::store::{Filter, Listing, RunEntry};
use linkgauge::units;
use serde_json::{Value, json};

use super::help::{OUTPUT, TARGET};
use super::output::{
    is_dash, print_data, print_json, print_message, print_text, terminal_options, write_file,
};
use super::status::Status;
use super::store::{StoreFlags, short_id, tag_of, warn_of_damaged_rows};

/// Which saved runs.
#[derive(Args, Clone)]
pub struct FilterFlags {
    /// Only runs with an endpoint that contains this text
    #[arg(long, help_heading = TARGET, value_name = "TEXT")]
    pub endpoint: Option<String>,
    /// Only runs of this machine
    #[arg(long, help_heading = TARGET, value_name = "NAME")]
    pub host: Option<String>,
    /// Only runs with this tag, or of the link of a monitor with this name
    #[arg(long, help_heading = TARGET, value_name = "NAME")]
    pub tag: Option<String>,
    /// Only runs with a case of this workload
    #[arg(long, help_heading = TARGET, value_name = "NAME")]
    pub workload: Option<String>,
}

impl FilterFlags {
    pub fn filter(&self) -> Filter {
        Filter {
            endpoint: self.endpoint.clone(),
            host: self.host.clone(),
            tag: self.tag.as_deref().map(tag_of),
            workload: self.workload.clone(),
            ..Filter::default()
        }
    }
}

/// A point in time: a day (UTC), an instant, or how long ago.
#[derive(Debug, Clone, Copy)]
pub struct PointInTime(pub Timestamp);

impl FromStr for PointInTime {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<PointInTime> {
        if let Ok(instant) = text.parse() {
            return Ok(PointInTime(instant));
        }
        let day = text.parse::<Date>().and_then(|day| day.to_zoned(TimeZone::UTC));
        let ago = || {
            // A number without a unit is ambiguous: days or seconds.
            if text.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let ago = SignedDuration::try_from(units::parse_duration(text).ok()?).ok()?;
            wall_clock_date().checked_sub(ago).ok()
        };
        let found = day.ok().map(|day| day.timestamp()).or_else(ago);
        found.map(PointInTime).ok_or_else(|| {
            anyhow!("'{text}' is not a time. Use a day (2026-11-21), an instant (2026-11-21T10:00:00Z) or how long ago (7d, at most 100 years)")
        })
    }
}

/// List saved runs; show a figure over time
#[derive(Args)]
pub struct Flags {
    /// Show this metric over time for each case, with a chart: p50, p99, loss, rate …
    #[arg(long, help_heading = OUTPUT, value_name = "METRIC")]
    metric: Option<Metric>,
    /// Only runs that started then or later [YYYY-MM-DD, or how long ago: 7d]
    #[arg(long, help_heading = TARGET, value_name = "WHEN")]
    since: Option<PointInTime>,
    /// Only runs that started before
    #[arg(long, help_heading = TARGET, value_name = "WHEN")]
    until: Option<PointInTime>,
    /// Only the newest N; 0: all [default: 20; all with --metric]
    #[arg(long, short = 'n', help_heading = OUTPUT, value_name = "N")]
    limit: Option<usize>,
    /// Print JSON
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// With --metric: write a self-contained HTML page with charts ('-': standard output)
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", requires = "metric", conflicts_with = "json")]
    html: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// Fits on a screen.
const DEFAULT_LISTED_RUNS: usize = 20;

pub fn run(flags: Flags) -> Result<Status> {
    let store = flags.store.open()?;
    let limit = flags.limit.unwrap_or(if flags.metric.is_some() { 0 } else { DEFAULT_LISTED_RUNS });
    let filter = Filter {
        since: flags.since.map(|when| when.0),
        until: flags.until.map(|when| when.0),
        limit: (limit > 0).then_some(limit),
        ..flags.filter.filter()
    };
    let options = terminal_options();
    let (document, text, damaged) = match &flags.metric {
        Some(metric) => {
            let Listing { entries, damaged } = store.trends(&filter, metric)?;
            if let Some(path) = &flags.html {
                let trends: Vec<HistoryTrend> =
                    entries.iter().map(|one| trend::page_trend(one, metric)).collect();
                let answer = trend::summary(&entries, metric);
                if is_dash(path) {
                    print_data(|out| write_history(&trends, &answer, out))?;
                    return Ok(warn_of_damaged_rows(&damaged));
                }
                write_file(path, |file| write_history(&trends, &answer, file))?;
            }
            let text = (!entries.is_empty()).then(|| trend::format_trends(&entries, metric, &options));
            (trend::trends_json(&entries, metric), text, damaged)
        }
        None => {
            let Listing { entries, damaged } = store.runs(&filter)?;
            let text = (!entries.is_empty()).then(|| format_list(&entries, filter.limit, &options));
            (list_json(&entries), text, damaged)
        }
    };
    if flags.json {
        print_json(|out| writeln!(out, "{document:#}"))?;
    } else if let Some(text) = text {
        print_text(|out| write!(out, "{}", if options.unicode { text } else { to_ascii(&text) }))?;
    }
    let status = warn_of_damaged_rows(&damaged);
    let has_values = document.as_array().is_some_and(|found| !found.is_empty());
    match (&flags.metric, has_values) {
        (_, true) => Ok(status),
        (Some(metric), _) if !store.runs(&filter)?.entries.is_empty() => {
            print_message(format_args!(
                "{}: not measured in the saved runs that match. Try: linkgauge history, and another metric.",
                metric.name()
            ));
            Ok(Status::Incomplete)
        }
        _ => {
            print_message("No saved run matches.");
            Ok(status)
        }
    }
}

/// Widths of the columns whose content varies.
const HOST_COLUMNS: usize = 8;
const TAGS_COLUMNS: usize = 12;
/// Where that leaves too few columns for the endpoint.
const NARROW_TAGS_COLUMNS: usize = 6;
const ENOUGH_ENDPOINT_COLUMNS: usize = 18;
/// The endpoint gets the rest of a line, but at least these columns.
const MIN_ENDPOINT_COLUMNS: usize = 12;

fn format_list(runs: &[RunEntry], limit: Option<usize>, options: &ReportOptions) -> String {
    let width = options.width;
    let hosts: BTreeSet<Option<&str>> = runs.iter().map(|run| run.host.as_deref()).collect();
    let host = if hosts.len() > 1 { "host" } else { "" };
    let years: BTreeSet<String> = runs.iter().map(|run| run.started.strftime("%Y").to_string()).collect();
    // The first line has the year.
    let date = if years.len() > 1 { "%Y-%m-%d %H:%M" } else { "%m-%d %H:%M" };
    let head = ["id", "began (UTC)", host, "test", "figure", "tags", "endpoint"];
    let cells = |run: &RunEntry| {
        let figure = headline_text(run);
        let host = run.host.as_deref().filter(|_| hosts.len() > 1).unwrap_or_default();
        [
            shorten(&printable(short_id(&run.id)), 8),
            run.started.strftime(date).to_string(),
            shorten(&printable(host), HOST_COLUMNS),
            printable(run.workload.as_deref().unwrap_or("–")),
            figure.unwrap_or_else(|| if run.complete { "–" } else { "incomplete" }.to_owned()),
            shorten(&printable(&run.tags.join(" ")), TAGS_COLUMNS),
            String::new(),
        ]
    };
    let mut rows: Vec<[String; 7]> =
        [head.map(str::to_owned)].into_iter().chain(runs.iter().map(cells)).collect();
    if width.saturating_sub(width_before_last_column(&rows)) < ENOUGH_ENDPOINT_COLUMNS {
        rows.iter_mut().for_each(|row| row[5] = shorten(&row[5], NARROW_TAGS_COLUMNS));
    }
    let room = width.saturating_sub(width_before_last_column(&rows)).max(MIN_ENDPOINT_COLUMNS);
    for (row, run) in rows.iter_mut().skip(1).zip(runs) {
        let more = if run.cases > 1 { format!(" +{}", run.cases - 1) } else { String::new() };
        let endpoint = printable(run.endpoint.as_deref().unwrap_or("–"));
        row[6] = shorten(&endpoint, room.saturating_sub(more.len())) + &more;
    }
    options.format_answer(&list_answer(runs, limit)) + &align_columns(&rows)
}

/// How many runs, of which time, and the last result. With `limit` runs there may be earlier ones.
fn list_answer(runs: &[RunEntry], limit: Option<usize>) -> String {
    let days = runs.iter().map(|run| run.started).min().zip(runs.iter().map(|run| run.started).max());
    let Some((last, (from, to))) = runs.iter().max_by_key(|run| run.started).zip(days) else {
        return String::new();
    };
    let [from, to] = [from, to].map(|instant| instant.strftime("%Y-%m-%d").to_string());
    let when = if from == to { format!("of {from}") } else { format!("from {from} to {to}") };
    let figure = headline_text(last).unwrap_or_else(|| "incomplete".to_owned());
    let subject = last.workload.as_deref().zip(last.endpoint.as_deref());
    let subject = subject
        .map_or(String::new(), |(workload, endpoint)| printable(&format!("{workload} of {endpoint}, ")));
    let newest = if limit == Some(runs.len()) { "newest " } else { "" };
    let runs = units::format_plural(runs.len() as u64, &format!("{newest}saved run"));
    format!("{runs} {when}; the last: {subject}{figure}.")
}

/// The figure of the first case with its name.
fn headline_text(run: &RunEntry) -> Option<String> {
    let (name, value) = run.headline.as_ref()?;
    let metric: Metric = name.parse().ok()?;
    Some(format!("{name} {}", metric.unit().format((*value)?)))
}

fn column_widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
}

/// Width of a line before its last column, gaps as well.
fn width_before_last_column<const N: usize>(rows: &[[String; N]]) -> usize {
    column_widths(rows)[..N - 1]
        .iter()
        .filter(|width| **width > 0)
        .map(|width| width + COLUMN_GAP.len())
        .sum()
}

const COLUMN_GAP: &str = "  ";

/// Rows with their columns below each other; an empty column takes no room.
fn align_columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths = column_widths(rows);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join(COLUMN_GAP).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn list_json(runs: &[RunEntry]) -> Value {
    let run = |run: &RunEntry| {
        json!({
            "id": run.id,
            "started": run.started,
            "host": run.host,
            "title": run.title,
            "complete": run.complete,
            "cases": run.cases,
            "endpoint": run.endpoint,
            "workload": run.workload,
            "metric": run.headline.as_ref().map(|(name, _)| name),
            "value": run.headline.as_ref().and_then(|(_, value)| *value),
            "tags": run.tags,
        })
    };
    runs.iter().map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_parsed() {
        let at = |text: &str| text.parse::<PointInTime>().map(|when| when.0.to_string());
        assert_eq!(at("2026-11-21").unwrap(), "2026-11-21T00:00:00Z");
        assert_eq!(at("2026-11-21T10:00:00+01:00").unwrap(), "2026-11-21T09:00:00Z");
        assert!("7d".parse::<PointInTime>().unwrap().0 < Timestamp::now());
        for slip in ["yesterday", "2026-13-01", "7", "99999d"] {
            assert!(at(slip).unwrap_err().to_string().starts_with(&format!("'{slip}' is not a time")));
        }
    }
}
