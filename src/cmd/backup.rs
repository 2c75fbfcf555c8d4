//! `linkgauge backup` and `linkgauge restore`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::store::StoreContents;
use linkgauge::system::create_private_file;
use linkgauge::units::format_plural;

use super::output::print_message;
use super::status::Status;
use super::store::StoreFlags;

/// Copy the whole store to a file: runs, tags, windows and incidents, also while a monitor runs
///
/// The copy is as of one moment, and a store of its own: '--store FILE' reads it. 'restore' adds it to a store.
#[derive(Args)]
pub struct Flags {
    /// The file, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreFlags,
}

/// Add a backup to the store: what the store has already stays as it is
///
/// Of two windows of the same time the one with more probes stays. A monitor may run meanwhile.
#[derive(Args)]
pub struct RestoreFlags {
    /// A file that 'backup' wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let store = flags.store.open()?;
    let file = flags.file.as_path();
    if file.exists() {
        bail!("{}: this file exists: name another", file.display());
    }
    // A copy that is interrupted never has the name of a whole one.
    let part = PathBuf::from(format!("{}.part", file.display()));
    let cannot = || format!("{}: the backup cannot be written", part.display());
    remove(&part).and_then(|()| create_private_file(&part)).with_context(cannot)?;
    let copied = store.back_up(&part).map_err(anyhow::Error::from);
    let copied = copied.and_then(|contents| {
        std::fs::rename(&part, file).with_context(cannot)?;
        Ok(contents)
    });
    if copied.is_err() {
        let _ = remove(&part);
    }
    print_message(format_args!("{}: {}", file.display(), describe(copied?)));
    Ok(Status::Complete)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub fn restore(flags: RestoreFlags) -> Result<Status> {
    if !flags.file.exists() {
        bail!("{}: there is no such file: name one that 'linkgauge backup' wrote", flags.file.display());
    }
    let added = flags.store.create()?.restore(&flags.file)?;
    print_message(format_args!("added from {}: {}", flags.file.display(), describe(added)));
    Ok(Status::Complete)
}

fn describe(contents: StoreContents) -> String {
    let StoreContents { runs, windows, incidents } = contents;
    let [runs, windows, incidents] =
        [(runs, "run"), (windows, "window"), (incidents, "incident")].map(|(n, what)| format_plural(n, what));
    format!("{runs}, {windows}, {incidents}")
}
