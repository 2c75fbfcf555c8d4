//! `linkgauge tag`.

use anyhow::Result;
use clap::Args;

use super::Status;
use super::store::{StoreFlags, parse_tag};

/// Name a run in the store, so that it is found again, not pruned, and one of a set (tag:NAME)
#[derive(Args)]
pub struct Flags {
    /// A run in the store: its id, how it begins or ends, or 'last'
    #[arg(value_name = "RUN")]
    run: String,
    /// What to name it
    #[arg(required = true, value_name = "NAME", value_parser = parse_tag)]
    names: Vec<String>,
    /// Take the names away
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
