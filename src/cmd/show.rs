//! `linkgauge show`, alias `report`.

use anyhow::Result;
use clap::Args;
use linkgauge::report::RunGroup;
use linkgauge::run::Run;

use super::output::{OutputFlags, RunText};
use super::status::Status;
use super::store::{RUN_HELP, RUN_LONG_HELP, StoreFlags, load_runs};

/// Show saved runs, in any format
///
/// With several runs, --html writes one page that overlays up to 8 of them. A set (tag:NAME) has one colour.
#[derive(Args)]
pub struct Flags {
    #[arg(
        value_name = "RUN",
        default_value = "last",
        help = RUN_HELP,
        long_help = RUN_LONG_HELP
    )]
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
        // The runs of a single set are shown separately.
        [(name, runs)] => runs.chunks(1).map(|runs| RunGroup { name, runs }).collect(),
        several => several.iter().map(|(name, runs)| RunGroup { name, runs }).collect(),
    };
    match sides.as_slice() {
        [RunGroup { runs: [run], .. }] => flags.output.write(run, RunText::Printed)?,
        sides => flags.output.write_all(sides)?,
    }
    Ok(Status::Complete)
}
