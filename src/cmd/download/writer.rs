//! The destination of a download: standard output, or a file that gets its name when it is complete.
//!
//! The measuring loop does not wait for disks: a thread writes the bytes that arrive through a channel.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, bail};
use linkgauge::system::without_links;
use linkgauge::units::format_count;
use linkgauge::workload::download::{ContentSender, MAX_QUEUED_CHUNKS, PartialContent};

use crate::cmd::output::{Messages, is_dash, print_message};

/// A download on its way to a file.
pub struct DownloadWriter {
    path: PathBuf,
    /// The name until it is whole; none on standard output.
    partial_path: Option<PathBuf>,
    /// Bytes of an earlier download that are continued.
    kept_bytes: u64,
    thread: JoinHandle<io::Result<u64>>,
}

impl DownloadWriter {
    /// Begins to write to a path, `-` for standard output. With `may_resume` what an earlier download has left is continued.
    pub fn create(
        path: &Path,
        may_resume: bool,
    ) -> Result<(DownloadWriter, ContentSender, Option<PartialContent>)> {
        let mut kept = None;
        let (to, partial_path): (Box<dyn Write + Send>, _) = if is_dash(path) {
            (Box::new(io::stdout()), None)
        } else {
            let partial = partial_path(path, 1);
            let (file, partial) = match may_resume.then(|| open_earlier(&partial)).flatten() {
                Some((file, content)) => {
                    kept = Some(content).filter(|content| content.bytes > 0);
                    (file, partial)
                }
                None => create_partial(path)?,
            };
            (Box::new(file), Some(partial))
        };
        let (content, chunks) = sync_channel(MAX_QUEUED_CHUNKS);
        let thread = Builder::new().name("content".to_owned()).spawn(move || write_chunks(to, chunks))?;
        let kept_bytes = kept.as_ref().map_or(0, |kept| kept.bytes);
        Ok((DownloadWriter { path: path.to_owned(), partial_path, kept_bytes, thread }, content, kept))
    }

    /// Prints what is continued, if something is.
    pub fn print_resumption(&self, kept: Option<&PartialContent>) {
        if let (Some(kept), Some(partial)) = (kept, &self.partial_path) {
            print_message(format_args!(
                "{}: continues after {} bytes; the last {} are requested again and compared",
                partial.display(),
                format_count(kept.bytes),
                format_count(kept.tail.len() as u64)
            ));
        }
    }

    /// Ends the writing. A complete download gets its name. Prints the result.
    pub fn finish(self, whole: bool, messages: Messages) -> Result<()> {
        let DownloadWriter { path: whole_path, partial_path: partial, kept_bytes, thread: writer } = self;
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
            (Ok(0), Some(partial)) if !whole && kept_bytes == 0 => Ok(std::fs::remove_file(partial)?),
            (Ok(0), Some(partial)) if !whole => {
                print_message(format_args!(
                    "partial: {} still holds {} bytes of an earlier download",
                    partial.display(),
                    format_count(kept_bytes)
                ));
                Ok(())
            }
            (Ok(bytes), Some(partial)) if !whole => {
                print_message(format_args!(
                    "partial: {} holds the first {} bytes",
                    partial.display(),
                    format_count(kept_bytes + bytes)
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
                    let earlier = match kept_bytes {
                        0 => String::new(),
                        kept => format!(", {} of them from an earlier download", format_count(kept)),
                    };
                    print_message(format_args!(
                        "{path}: {} bytes{earlier}",
                        format_count(kept_bytes + bytes)
                    ));
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

/// Bytes at the end of a partial file that are requested again: some chunks.
const COMPARED_BYTES: u64 = 4096;

/// The name of a partial file with this number.
fn partial_path(path: &Path, number: u32) -> PathBuf {
    let suffix = if number == 1 { ".part".to_owned() } else { format!(".{number}.part") };
    let mut partial = path.as_os_str().to_owned();
    partial.push(suffix);
    PathBuf::from(partial)
}

/// Opens what an earlier download has left, to continue it. `None` if there is none, it is no file, it cannot be written, or
/// another program still writes it.
fn open_earlier(partial: &Path) -> Option<(File, PartialContent)> {
    let mut file = without_links(File::options().read(true).write(true)).open(partial).ok()?;
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
    file.try_lock().ok()?;
    let bytes = metadata.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(bytes.saturating_sub(COMPARED_BYTES))).ok()?;
    (&file).take(COMPARED_BYTES).read_to_end(&mut tail).ok()?;
    // It is longer only if something else has written it meanwhile.
    let bytes = file.stream_position().ok()?;
    Some((file, PartialContent { bytes, tail }))
}

/// Creates `NAME.part`, or `NAME.2.part` and so on where an earlier download has left one. Never opens what is there, and
/// follows no link.
fn create_partial(path: &Path) -> Result<(File, PathBuf)> {
    for number in 1..=MAX_PARTIAL_FILES {
        let partial = partial_path(path, number);
        match File::options().write(true).create_new(true).open(&partial) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("{}: cannot be written", partial.display()));
            }
            Ok(file) => {
                // Until it is closed, no other download continues it.
                let _ = file.try_lock();
                return Ok((file, partial));
            }
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
