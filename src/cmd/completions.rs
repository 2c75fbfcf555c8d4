//! `linkgauge completions` and the man pages: from the same definitions as the command line itself.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};

use super::output::print_data;
use super::status::Status;

/// Print shell completions
#[derive(Args)]
pub struct Flags {
    /// Shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Write the manual pages to a directory
#[derive(Args)]
pub struct ManFlags {
    /// Directory; created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub fn run(flags: Flags, mut command: Command) -> Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut command, "linkgauge", &mut script);
    print_data(|stdout| stdout.write_all(&script))?;
    Ok(Status::Complete)
}

pub fn write_man_pages(flags: ManFlags, command: Command) -> Result<Status> {
    let name = flags.directory.display();
    std::fs::create_dir_all(&flags.directory).with_context(|| format!("{name}: cannot be created"))?;
    clap_mangen::generate_to(command, &flags.directory)
        .with_context(|| format!("{name}: cannot be written"))?;
    Ok(Status::Complete)
}
