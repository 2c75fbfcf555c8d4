//! Writes a result to a file: completely, or the old file stays. Not for files that grow during a measurement.
//!
//! A path may name a terminal (/dev/stdout, /dev/tty). Then unprintable characters are replaced, as on standard output.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::terminal;
use anyhow::{Context, Result};
use linkgauge::system::{check_folder_writable, copy_ownership};

/// Checks that a file can be written, without changing or creating it.
pub fn check_file_writable(path: &Path) -> Result<()> {
    let checked = match fs::metadata(path) {
        // Opening a pipe waits for its reader, and closing it ends the reader.
        Ok(there) if !there.is_file() && !there.is_dir() => Ok(()),
        Ok(_) => File::options().append(true).open(path).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => check_folder_writable(&parent_directory(path)),
        Err(error) => Err(error),
    };
    checked.with_context(|| format!("{}: cannot be written", path.display()))
}

/// The directory in which a file of that name would be created, with a symbolic link followed.
fn parent_directory(path: &Path) -> PathBuf {
    let beside = |path: &Path| match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    match fs::read_link(path) {
        Ok(target) => beside(&beside(path).join(target)),
        Err(_) => beside(path),
    }
}

/// Whether both paths name one file, of which the later result would replace the earlier. Not devices and pipes.
pub fn replace_each_other(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let whole = path.canonicalize().or_else(|_| {
            Ok::<_, io::Error>(
                parent_directory(path).canonicalize()?.join(path.file_name().unwrap_or_default()),
            )
        });
        whole.ok().filter(|whole| !whole.exists() || whole.is_file())
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Writes a file. On failure the old content stays.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let written = match replaceable_path(path) {
        Some(whole) => replace_file(&whole, write),
        None => File::create(path).and_then(|file| match file.is_terminal() {
            true => show(&file, write),
            false => write_buffered(&file, write),
        }),
    };
    written.with_context(|| format!("{}: could not be written", path.display()))
}

/// The path, links followed, of a file that may be replaced. `None` for devices, pipes and open descriptors.
fn replaceable_path(path: &Path) -> Option<PathBuf> {
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return None;
    }
    match fs::metadata(path) {
        Ok(there) => there.is_file().then(|| path.canonicalize().ok())?,
        Err(_) => (!path.is_symlink()).then(|| path.to_owned()),
    }
}

/// Writes a new file beside the old one, then replaces it, with the old owner and permissions.
fn replace_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().display();
    let beside = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let file = match File::options().write(true).create_new(true).open(&beside) {
        // The file itself may be writable although no new one can be created, or the longer name is too long.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidFilename) => {
            return File::create(path).and_then(|file| write_buffered(&file, write));
        }
        file => file?,
    };
    let written = write_buffered(&file, write)
        .and_then(|()| fs::metadata(path).map_or(Ok(()), |old| copy_ownership(&old, &file)))
        // A full disk may be reported only now.
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes a result to a terminal, without unprintable characters.
fn show(mut terminal: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    terminal.write_all(terminal::sanitize_text(&String::from_utf8_lossy(&text)).as_bytes())
}

fn write_buffered(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out).and_then(|()| out.flush())
}
