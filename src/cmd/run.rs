//! `linkgauge run`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::input::read_text;
use super::measure::{PlanFlags, run_plan_file};
use super::status::Status;

/// Run the cases of a plan file
#[derive(Args)]
pub struct Flags {
    /// Plan file in TOML (docs/plan.md)
    #[arg(value_name = "PLAN.toml")]
    file: PathBuf,
    #[command(flatten)]
    plan: PlanFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let text = read_text(&flags.file, "the plan")?;
    run_plan_file(&flags.file, &text, &flags.plan)
}
