//! A file that gets a result: whole, or as it was. Not for what is written while running (samples, events, downloads).

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Finds out whether a file can be written, and leaves it as it is.
pub fn check_file(path: &Path) -> Result<()> {
    let new = match fs::metadata(path) {
        // Opening a pipe waits for its reader, and closing it ends him.
        Ok(there) if !there.is_file() && !there.is_dir() => return Ok(()),
        there => there.is_err(),
    };
    let opened = File::options().append(true).create(true).open(path);
    opened.with_context(|| format!("{}: cannot be written", path.display()))?;
    // Nothing is left behind if nothing gets measured; a link that led nowhere stays.
    if new {
        let _ = path.canonicalize().and_then(fs::remove_file);
    }
    Ok(())
}

/// Writes a file. What was in it stays if that fails.
pub fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let written = match replaceable(path) {
        Some(whole) => replace(&whole, write),
        None => File::create(path).and_then(|file| fill(&file, write)),
    };
    written.with_context(|| format!("{}: could not be written", path.display()))
}

/// The name, links followed, of a file that another may take the place of: no device, no pipe, nothing that is open here.
fn replaceable(path: &Path) -> Option<PathBuf> {
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    match fs::metadata(path) {
        Ok(there) => there.is_file().then(|| path.canonicalize().ok())?,
        Err(_) => (!path.is_symlink()).then(|| path.to_owned()),
    }
}

/// Writes beside the file, then takes its place, with its owner and permissions.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().display();
    let beside = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let file = match File::options().write(true).create_new(true).open(&beside) {
        // A directory that takes no new file may hold one that can be written.
        Err(_) if path.is_file() => return File::create(path).and_then(|file| fill(&file, write)),
        file => file?,
    };
    let written = fill(&file, write)
        .and_then(|()| fs::metadata(path).map_or(Ok(()), |old| keep(&old, &file)))
        // A disk may say only now that it is full.
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out).and_then(|()| out.flush())
}

/// Gives a new file the owner and permissions of the old one.
fn keep(old: &fs::Metadata, file: &File) -> io::Result<()> {
    // Only the superuser may give files away; to others it is theirs, as a new one would be.
    let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}
