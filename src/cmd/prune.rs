//! `linkgauge prune`.

use anyhow::{Result, bail};
use clap::Args;
use linkgauge::store::{Filter, Listing, RunEntry};

use super::Status;
use super::history::{FilterFlags, PointInTime};
use super::output::print_text;
use super::store::{StoreFlags, warn_of_damaged_rows};

/// Take old runs out of the store
///
/// Those that have a tag stay, unless --tag or --tagged says otherwise.
#[derive(Args)]
pub struct Flags {
    /// Those that began before [YYYY-MM-DD, or how long ago: 90d]
    #[arg(long, value_name = "WHEN")]
    before: Option<PointInTime>,
    /// All but the newest N
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Those with tags as well
    #[arg(long)]
    tagged: bool,
    /// Print what would go; take nothing out
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    if flags.before.is_none() && flags.keep.is_none() && flags.filter.tag.is_none() {
        bail!("say which runs are to go: --before WHEN, --keep N or --tag NAME");
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
    let what = if flags.dry_run { "would go" } else { "removed" };
    print_text(|out| {
        gone.iter().try_for_each(|id| writeln!(out, "{what}: {}", linkgauge::report::printable(id)))?;
        writeln!(out, "{} {what}", gone.len())
    })?;
    Ok(warn_of_damaged_rows(&damaged))
}
