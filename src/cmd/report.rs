//! `linkgauge report`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use linkgauge::run::Run;

use super::Status;
use super::output::OutputFlags;

/// Show stored run documents again, in any format
#[derive(Args)]
pub struct Flags {
    /// Run documents (JSON files)
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    flags.output.check(0)?;
    for path in &flags.runs {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("{name}: cannot be read"))?;
        let run = Run::from_json(&text).with_context(|| name.to_string())?;
        flags.output.write(&run, true)?;
    }
    Ok(Status::Complete)
}
