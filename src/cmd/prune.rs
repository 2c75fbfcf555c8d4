//! `linkgauge prune`.

use anyhow::{Result, bail};
use clap::Args;
use linkgauge::store::{Filter, Listing, RunEntry};
use linkgauge::units::format_plural;

use super::history::{FilterFlags, PointInTime};
use super::output::print_text;
use super::status::Status;
use super::store::{StoreFlags, warn_of_damaged_rows};

/// Delete old runs
///
/// Tagged runs stay, except with --tag or --tagged.
#[derive(Args)]
pub struct Flags {
    /// Delete runs that started before this [YYYY-MM-DD, or how long ago: 90d]
    #[arg(long, value_name = "WHEN")]
    before: Option<PointInTime>,
    /// Keep the newest N
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Delete tagged runs as well
    #[arg(long)]
    tagged: bool,
    /// Print the runs, but delete nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    if flags.before.is_none() && flags.keep.is_none() && flags.filter.tag.is_none() {
        bail!("no selection. Use --before WHEN, --keep N or --tag NAME");
    }
    let mut store = flags.store.open()?;
    let filter = Filter { until: flags.before.map(|when| when.0), ..flags.filter.filter() };
    let tagged = flags.tagged || flags.filter.tag.is_some();
    let goes = |entry: &RunEntry| tagged || entry.tags.is_empty();
    let Listing { entries, damaged } = store.runs(&filter)?;
    let found = entries.into_iter().skip(flags.keep.unwrap_or(0));
    let gone: Vec<String> = found.filter(goes).map(|entry| entry.id).collect();
    if !flags.dry_run {
        store.remove(&gone)?;
    }
    let what = if flags.dry_run { "would be deleted" } else { "deleted" };
    print_text(|out| {
        writeln!(out, "{} {what}", format_plural(gone.len() as u64, "run"))?;
        gone.iter().try_for_each(|id| writeln!(out, "  {}", linkgauge::report::printable(id)))
    })?;
    Ok(warn_of_damaged_rows(&damaged))
}
