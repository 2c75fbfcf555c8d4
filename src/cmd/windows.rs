//! `linkgauge windows`.

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use linkgauge::report::printable;
use linkgauge::spreadsheet::escape_formula;
use linkgauge::store::{Store, StoredSeries, StoredWindow, TIERS, Tier};
use linkgauge::units::{Span, format_period};

use super::history::PointInTime;
use super::output::print_data;
use super::status::Status;
use super::store::StoreFlags;

/// Print what a monitor stored of its links as CSV: windows with their percentiles, or incidents
///
/// Percentiles are those of all probes of a window, and inf if one is a lost probe. A cell is empty where nothing was measured.
#[derive(Args)]
pub struct Flags {
    /// Names of links [default: all]
    #[arg(value_name = "LINK")]
    links: Vec<String>,
    /// Only from then on [YYYY-MM-DD, or how long ago: 7d]
    #[arg(long, value_name = "WHEN")]
    since: Option<PointInTime>,
    /// Only what was before
    #[arg(long, value_name = "WHEN")]
    until: Option<PointInTime>,
    /// Length of the windows: 1min (kept for 7 days), 10min (30 days) or 1h (2 years)
    #[arg(long, value_name = "TIME", default_value = "1h", conflicts_with = "incidents")]
    length: Span,
    /// Print incidents: outages, alarms, new levels, clock changes
    #[arg(long)]
    incidents: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// The columns of windows. Percentiles are at 50, 90, 99 and 100 %.
const WINDOW_COLUMNS: [&str; 13] = [
    "link",
    "endpoint",
    "start",
    "length_s",
    "measured_ms",
    "due",
    "lost",
    "corrupt",
    "down_ms",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "max_ns",
];

const INCIDENT_COLUMNS: [&str; 5] = ["link", "endpoint", "at", "kind", "text"];

pub fn run(flags: Flags) -> Result<Status> {
    let store = flags.store.open()?;
    let tier = TIERS.into_iter().find(|tier| tier.length == flags.length.0.as_secs() as i64);
    let Some(tier) = tier else {
        bail!("--length {}: windows have 1min, 10min or 1h", format_period(flags.length.0));
    };
    let mut series = store.all_series()?;
    if let Some(unknown) = flags.links.iter().find(|name| series.iter().all(|one| one.name != **name)) {
        bail!(
            "'{unknown}': the store has no link of this name. 'linkgauge windows --incidents' lists the names"
        );
    }
    series.retain(|one| flags.links.is_empty() || flags.links.contains(&one.name));
    let columns = if flags.incidents { &INCIDENT_COLUMNS[..] } else { &WINDOW_COLUMNS };
    print_data(|out| writeln!(out, "{}", columns.join(",")))?;
    for one in &series {
        let rows = match flags.incidents {
            true => incident_rows(&store, one, &flags)?,
            false => window_rows(&store, one, (tier, &flags))?,
        };
        // One link at a time: a store has millions of windows.
        print_data(|out| rows.iter().try_for_each(|row| writeln!(out, "{}", line(row))))?;
    }
    Ok(Status::Complete)
}

fn seconds(flags: &Flags) -> (i64, i64) {
    let second = |when: Option<PointInTime>| when.map(|when| when.0.as_second());
    (second(flags.since).unwrap_or(i64::MIN), second(flags.until).unwrap_or(i64::MAX))
}

fn window_rows(
    store: &Store,
    series: &StoredSeries,
    (tier, flags): (Tier, &Flags),
) -> Result<Vec<Vec<String>>> {
    let (from, until) = seconds(flags);
    let row = |StoredWindow { start, window }: StoredWindow| {
        let counts = window.counts;
        let numbers = [counts.measured_ms, counts.due, counts.lost, counts.corrupt, counts.down_ms];
        let percentile =
            |share: f64| window.quantile_with_losses_ns(share).map_or_else(String::new, |ns| ns.to_string());
        let start = Timestamp::from_second(start).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
        let head = [series.name.clone(), series.endpoint.clone(), start, tier.length.to_string()];
        let percentiles = [0.5, 0.9, 0.99, 1.0].map(percentile);
        head.into_iter().chain(numbers.map(|number| number.to_string())).chain(percentiles).collect()
    };
    Ok(store.windows(series.number, tier, from, until)?.into_iter().map(row).collect())
}

fn incident_rows(store: &Store, series: &StoredSeries, flags: &Flags) -> Result<Vec<Vec<String>>> {
    let (from, until) = seconds(flags);
    let mut incidents = store.incidents(series.number, usize::MAX)?;
    incidents.retain(|incident| (from..until).contains(&incident.at.as_second()));
    incidents.reverse();
    let row = |incident: linkgauge::store::Incident| {
        vec![
            series.name.clone(),
            series.endpoint.clone(),
            incident.at.to_string(),
            incident.kind,
            incident.text,
        ]
    };
    Ok(incidents.into_iter().map(row).collect())
}

/// A row of CSV (RFC 4180).
fn line(cells: &[String]) -> String {
    let quoted = |cell: &String| {
        // Texts come from outside, and spreadsheets open the file.
        let cell = escape_formula(&printable(cell)).into_owned();
        match cell.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell,
        }
    };
    cells.iter().map(quoted).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let cells = ["a", "b,c", "say \"d\""].map(str::to_owned);
        assert_eq!(line(&cells), "a,\"b,c\",\"say \"\"d\"\"\"");
    }
}
