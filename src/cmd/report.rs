//! `linkgauge report` and `linkgauge show`, which is the same by a shorter word.

use anyhow::Result;
use clap::Args;
use linkgauge::report::RunGroup;
use linkgauge::run::Run;

use super::Status;
use super::output::OutputFlags;
use super::store::{RUN_HELP, StoreFlags, load_runs};

/// Show stored runs again, in any format
///
/// Several runs: --html writes one page with all of them over each other, up to 8, a set (tag:NAME) in one colour.
#[derive(Args)]
pub struct Flags {
    #[arg(required = true, value_name = "RUN", help = RUN_HELP)]
    runs: Vec<String>,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    flags.output.check_writable(0)?;
    let named: Vec<(&str, Vec<Run>)> = flags
        .runs
        .iter()
        .map(|named| Ok((named.as_str(), load_runs(named, &flags.store)?)))
        .collect::<Result<_>>()?;
    let sides: Vec<RunGroup> = match named.as_slice() {
        // The runs of a single set are told apart.
        [(name, runs)] => runs.chunks(1).map(|runs| RunGroup { name, runs }).collect(),
        several => several.iter().map(|(name, runs)| RunGroup { name, runs }).collect(),
    };
    match sides.as_slice() {
        [RunGroup { runs: [run], .. }] => flags.output.write(run, true)?,
        sides => flags.output.write_all(sides)?,
    }
    Ok(Status::Complete)
}
