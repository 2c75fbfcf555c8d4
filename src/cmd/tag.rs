//! `linkgauge tag`.

use anyhow::Result;
use clap::Args;

use super::status::Status;
use super::store::{StoreFlags, find_saved_runs, parse_tag};

/// Name a saved run, to find it, keep it and group it with others
///
/// 'prune' keeps tagged runs, and tag:NAME stands for all runs of that name.
#[derive(Args)]
pub struct Flags {
    /// Saved runs: ids (their beginning or end suffices), 'last', tags (tag:NAME or NAME); several with commas between
    #[arg(value_name = "RUN")]
    runs: String,
    /// Names [default: with --remove all names of the run]
    #[arg(required_unless_present = "remove", value_name = "NAME", value_parser = parse_tag)]
    names: Vec<String>,
    /// Remove the names
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut store = flags.store.open()?;
    for id in find_saved_runs(&store, &flags.runs)? {
        match flags.remove {
            true if flags.names.is_empty() => {
                let all = store.tags_of(&id)?;
                store.untag(&id, &all)?;
            }
            true => store.untag(&id, &flags.names)?,
            false => store.tag(&id, &flags.names)?,
        }
    }
    Ok(Status::Complete)
}
