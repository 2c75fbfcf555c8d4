//! `linkgauge run`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use linkgauge::plan::Plan;

use super::Status;
use super::input::read_text;
use super::measure::{PlanFlags, run_plan_file};

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
    let name = flags.file.display();
    let text = read_text(&flags.file, "the plan")?;
    let plan = Plan::from_toml(&text).with_context(|| name.to_string())?;
    run_plan_file(plan, &flags.file, &flags.plan)
}
