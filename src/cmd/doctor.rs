//! `linkgauge doctor`.

use anyhow::Result;
use clap::Args;

use super::Status;

/// Is this host fit to measure? Clocks, timers, permissions, transports, with the remedy
#[derive(Args)]
pub struct Flags {}

pub fn run(_flags: Flags) -> Result<Status> {
    Ok(Status::Complete)
}
