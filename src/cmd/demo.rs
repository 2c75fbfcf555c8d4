//! `linkgauge demo`.

use anyhow::Result;
use clap::Args;

use super::Status;

/// Start far ends of its own, gauge every link of this host, print and write report.html
#[derive(Args)]
pub struct Flags {}

pub fn run(_flags: Flags) -> Result<Status> {
    Ok(Status::Complete)
}
