//! `linkgauge report` and `linkgauge show`, which is the same by a shorter word.

use anyhow::Result;
use clap::Args;

use super::Status;
use super::output::OutputFlags;
use super::store::{RUN_HELP, StoreFlag, runs};

/// Show stored runs again, in any format
#[derive(Args)]
pub struct Flags {
    #[arg(required = true, value_name = "RUN", help = RUN_HELP)]
    runs: Vec<String>,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    store: StoreFlag,
}

pub fn run(flags: Flags) -> Result<Status> {
    flags.output.check(0)?;
    for named in &flags.runs {
        for run in runs(named, &flags.store)? {
            flags.output.write(&run, true)?;
        }
    }
    Ok(Status::Complete)
}
