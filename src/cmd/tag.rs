//! `linkgauge tag`.

use anyhow::Result;
use clap::Args;

use super::Status;
use super::store::{StoreFlags, parse_tag};

/// Name a saved run, to find it, keep it and group it with others
///
/// 'prune' keeps tagged runs, and tag:NAME stands for all runs of that name.
#[derive(Args)]
pub struct Flags {
    /// Id of a saved run (its beginning or end suffices), or 'last'
    #[arg(value_name = "RUN")]
    run: String,
    /// Names
    #[arg(required = true, value_name = "NAME", value_parser = parse_tag)]
    names: Vec<String>,
    /// Remove the names
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let mut store = flags.store.open()?;
    let id = store.resolve_id(&flags.run)?;
    match flags.remove {
        true => store.untag(&id, &flags.names)?,
        false => store.tag(&id, &flags.names)?,
    }
    Ok(Status::Complete)
}
