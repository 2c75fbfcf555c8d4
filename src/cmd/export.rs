//! `linkgauge export`.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::report::{self, ReportOptions};
use linkgauge::run::{Run, is_valid_id};
use linkgauge::store::Filter;
use linkgauge::units::format_plural;

use super::output::{finish_all, print_message};
use super::status::Status;
use super::store::{RUN_HELP, StoreFlags, load_runs, read_document};

/// Write saved runs to files, one document each
///
/// The ids become the names of the files. Existing files are never overwritten. 'import run' reads the files.
#[derive(Args)]
pub struct Flags {
    /// Directory; created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    #[arg(value_name = "RUN", help = format!("{RUN_HELP} [default: all]"))]
    runs: Vec<String>,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let directory = flags.directory.as_path();
    std::fs::create_dir_all(directory)
        .with_context(|| format!("{}: cannot be created", directory.display()))?;
    let mut all = Vec::new();
    if flags.runs.is_empty() {
        let store = flags.store.open()?;
        for id in store.ids(&Filter::default())? {
            all.push(store.load(&id).map_err(Into::into).and_then(|run| write_run(&run, directory)));
        }
    }
    for named in &flags.runs {
        match load_runs(named, &flags.store) {
            Ok(runs) => all.extend(runs.iter().map(|run| write_run(run, directory))),
            Err(error) => all.push(Err(error)),
        }
    }
    let written = all.iter().filter(|one| one.is_ok()).count();
    print_message(format_args!(
        "{} written to {}",
        format_plural(written as u64, "run"),
        directory.display()
    ));
    // A failure does not stop the others.
    finish_all(all)?;
    Ok(Status::Complete)
}

/// Writes a run to the file named by its id. The file may already hold the same run.
fn write_run(run: &Run, directory: &Path) -> Result<()> {
    if !is_valid_id(&run.id) {
        bail!("run '{}': this id is not usable as a file name", report::printable(&run.id));
    }
    let path = directory.join(format!("{}.json", run.id));
    let name = path.display();
    let mut file = match File::create_new(&path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if read_document(&path)? != *run {
                bail!("{name}: the file holds another run and was not changed");
            }
            return Ok(());
        }
        file => file.with_context(|| format!("{name}: cannot be written"))?,
    };
    let json = linkgauge::lists::report_format("json").context("no JSON format")?;
    let written = (json.write)(run, &ReportOptions::default(), &mut file).and_then(|()| file.flush());
    if written.is_err() {
        // An incomplete document is removed.
        let _ = std::fs::remove_file(&path);
    }
    written.with_context(|| format!("{name}: could not be written"))
}
