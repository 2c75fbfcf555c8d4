//! The destination of a download: standard output, or a file that gets its name when it is complete.
//!
//! The measuring loop does not wait for disks: a thread writes the bytes that arrive through a channel.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, bail};
use linkgauge::units::format_count;
use linkgauge::workload::download::{ContentSender, MAX_QUEUED_CHUNKS};

use crate::cmd::output::{Messages, is_dash, print_message};

/// A download on its way to a file.
pub struct DownloadWriter {
    path: PathBuf,
    /// The name until it is whole; none on standard output.
    partial_path: Option<PathBuf>,
    thread: JoinHandle<io::Result<u64>>,
}

impl DownloadWriter {
    /// Begins to write to a path, `-` for standard output.
    pub fn create(path: &Path) -> Result<(DownloadWriter, ContentSender)> {
        let (to, partial): (Box<dyn Write + Send>, _) = if is_dash(path) {
            (Box::new(io::stdout()), None)
        } else {
            let (file, partial) = create_partial(path)?;
            (Box::new(file), Some(partial))
        };
        let (content, chunks) = sync_channel(MAX_QUEUED_CHUNKS);
        let writer = Builder::new().name("content".to_owned()).spawn(move || write_chunks(to, chunks))?;
        Ok((DownloadWriter { path: path.to_owned(), partial_path: partial, thread: writer }, content))
    }

    /// Ends the writing. A complete download gets its name. Prints the result.
    pub fn finish(self, whole: bool, messages: Messages) -> Result<()> {
        let DownloadWriter { path: whole_path, partial_path: partial, thread: writer } = self;
        let path = whole_path.display();
        let ended = writer.join().map_err(|_| io::Error::other("the writing thread failed")).flatten();
        match (ended, partial) {
            // A reader that has seen enough.
            (Err(error), None) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            (Err(error), partial) => {
                let partial =
                    partial.map_or(String::new(), |partial| format!("; {} is partial", partial.display()));
                Err(error).with_context(|| format!("{path}: could not be written{partial}"))
            }
            (Ok(0), Some(partial)) if !whole => Ok(std::fs::remove_file(partial)?),
            (Ok(bytes), Some(partial)) if !whole => {
                print_message(format_args!(
                    "partial: {} holds the first {} bytes",
                    partial.display(),
                    format_count(bytes)
                ));
                Ok(())
            }
            (Ok(bytes), Some(partial)) => {
                std::fs::rename(&partial, &whole_path).with_context(|| {
                    format!(
                        "{path}: the file could not be renamed; {} holds the complete download",
                        partial.display()
                    )
                })?;
                if messages == Messages::All {
                    print_message(format_args!("{path}: {} bytes", format_count(bytes)));
                }
                Ok(())
            }
            (Ok(bytes), None) if !whole => {
                print_message(format_args!("partial: the first {} bytes were written", format_count(bytes)));
                Ok(())
            }
            (Ok(_), None) => Ok(()),
        }
    }
}

/// Most partial files of one name. A download that fails again and again does not fill a directory without being noticed.
const MAX_PARTIAL_FILES: u32 = 99;

/// Creates `NAME.part`, or `NAME.2.part` and so on where an earlier download has left one. Never opens what is there, and
/// follows no link.
fn create_partial(path: &Path) -> Result<(File, PathBuf)> {
    for number in 1..=MAX_PARTIAL_FILES {
        let suffix = if number == 1 { ".part".to_owned() } else { format!(".{number}.part") };
        let mut partial = path.as_os_str().to_owned();
        partial.push(suffix);
        let partial = PathBuf::from(partial);
        match File::options().write(true).create_new(true).open(&partial) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("{}: cannot be written", partial.display()));
            }
            Ok(file) => return Ok((file, partial)),
        }
    }
    bail!(
        "{}: {MAX_PARTIAL_FILES} partial downloads of this name exist. Remove them (*.part), or use another file (--output)",
        path.display()
    )
}

fn write_chunks(to: Box<dyn Write + Send>, chunks: Receiver<Vec<u8>>) -> io::Result<u64> {
    let (mut to, mut bytes) = (BufWriter::new(to), 0);
    loop {
        let chunk = match chunks.try_recv() {
            Ok(chunk) => chunk,
            // During a pause the file holds everything that has arrived.
            Err(_) => {
                to.flush()?;
                let Ok(chunk) = chunks.recv() else { return Ok(bytes) };
                chunk
            }
        };
        to.write_all(&chunk)?;
        bytes += chunk.len() as u64;
    }
}
