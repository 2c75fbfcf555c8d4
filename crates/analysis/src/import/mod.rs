//! Imports results of other programs as runs, for the same statistics and reports.
//!
//! Missing figures are not invented: summaries without samples yield only the figures they contain. Every file is
//! treated as hostile: it is read in bounded memory and rejected with the number of the invalid line.

mod below;
mod by_name;
pub(crate) mod csv;
pub(crate) mod flent;
pub(crate) mod hdr;
pub(crate) mod iperf3;
pub(crate) mod irtt;
pub(crate) mod k6;
mod line_reader;
mod neighbours;
pub(crate) mod ping;
pub(crate) mod run;
pub(crate) mod samples;
pub(crate) mod sockperf;
pub(crate) mod ss;
pub(crate) mod udpst;

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use linkgauge_model::clock::wall_clock_date;
use linkgauge_model::consistency;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{
    CaseResult, Environment, Figures, IMPORTED_FROM, Run, RunError, SCHEMA, TOOL, Warning, WarningCode,
};

use linkgauge_model::sample::{RecordedTimes, Recorder};

pub use samples::TimeUnit;

/// A supported format.
#[derive(Debug)]
pub struct ImportFormat {
    /// Name for `import`.
    pub name: &'static str,
    /// Description for `--help`, one line.
    pub summary: &'static str,
    /// Flags of `import` that it uses, of those that only some formats do.
    pub flags: &'static [&'static str],
    /// Reads a whole file.
    pub read: fn(&mut dyn io::BufRead, &ImportOptions) -> Result<ImportedFile, ImportError>,
}

/// Facts that a file may lack.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// File name.
    pub file_name: String,
    /// Modification time: the start of the run if the file does not report one.
    pub modified: Option<Timestamp>,
    /// Title of the run.
    pub title: Option<String>,
    /// Endpoint of the link.
    pub endpoint: Option<String>,
    /// Payload bytes of one message; `None`: as the file reports.
    pub message_bytes: Option<u32>,
    /// Unit of the times in the file.
    pub unit: Option<TimeUnit>,
    /// The text that marks a lost request; of a number only the value counts.
    pub lost_marker: Option<String>,
    /// Column of the latencies in a table, or the metric.
    pub column: Option<String>,
    /// Column of a table that names the test of each row.
    pub by: Option<String>,
    /// Limits for the shares of late requests.
    pub late_limits: Vec<Duration>,
}

/// Error of the import of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[from] io::Error),
    /// A line of the file is invalid.
    #[error("line {line}: {what}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// Fault of the line.
        what: String,
    },
    /// The file as a whole is invalid.
    #[error("{0}")]
    Format(String),
    /// The file is a run document, and is invalid.
    #[error(transparent)]
    Run(#[from] RunError),
}

fn format_error(what: impl Into<String>) -> ImportError {
    ImportError::Format(what.into())
}

/// The result of reading a file.
#[derive(Debug)]
pub enum ImportedFile {
    /// A run document of linkgauge.
    Run(Box<Run>),
    /// A result of another program.
    Foreign(ForeignResult),
}

/// Result of another program.
#[derive(Debug)]
pub struct ForeignResult {
    /// Name of the program, with its version if the file reports it.
    measured_by: String,
    started: Option<Timestamp>,
    elapsed_ns: u64,
    cases: Vec<CaseResult>,
    warnings: Vec<Warning>,
}

/// Reads a file of this format to its end.
///
/// # Errors
///
/// Fails if the file cannot be read or is invalid; the error names the line.
pub fn read(format: &ImportFormat, file: &mut dyn Read, about: &ImportOptions) -> Result<Run, ImportError> {
    let mut hashing = HashingReader { file, hash: Sha256::new() };
    let mut reader = unpacked(BufReader::with_capacity(1 << 16, &mut hashing))?;
    check_encoding(&mut reader)?;
    let imported = match (format.read)(&mut reader, about)? {
        ImportedFile::Run(run) => return checked(*run),
        ImportedFile::Foreign(imported) => imported,
    };
    io::copy(&mut reader, &mut io::sink())?;
    drop(reader);
    // Importing the same file with the same options yields the same run.
    let identity = (
        &about.title,
        &about.endpoint,
        about.message_bytes,
        about.unit,
        &about.lost_marker,
        (&about.column, &about.by),
        &about.late_limits,
    );
    let started = imported.started.or(about.modified).unwrap_or_else(wall_clock_date);
    hashing.hash.update(format!("{} {identity:?} {started}", format.name));
    let hash = hashing.hash.finalize();
    checked(build_run(imported, about, started, [hash[0], hash[1], hash[2]]))
}

/// The run without figures that contradict each other.
fn checked(mut run: Run) -> Result<Run, ImportError> {
    match consistency::drop_contradictions(&mut run) {
        true => Ok(run),
        false => Err(format_error("its figures contradict each other, and none is left")),
    }
}

/// The content of a file that may be compressed by gzip.
fn unpacked<'a>(mut file: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
    Ok(match file.fill_buf()?.starts_with(&GZIP_MAGIC) {
        true => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// Skips the byte order mark of UTF-8, and refuses files that are not text.
fn check_encoding(file: &mut dyn io::BufRead) -> Result<(), ImportError> {
    let head = file.fill_buf()?;
    if head.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
        return Ok(());
    }
    let is_utf16 = match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [high, low, ..] => (*high == 0) != (*low == 0),
        _ => false,
    };
    if is_utf16 {
        return Err(format_error(
            "the text is UTF-16, not UTF-8: convert it with 'iconv -f UTF-16 -t UTF-8 FILE'",
        ));
    }
    Ok(())
}

fn build_run(imported: ForeignResult, about: &ImportOptions, started: Timestamp, random: [u8; 3]) -> Run {
    let [a, b, c] = random;
    let text = format!("{} was measured by {}, not by linkgauge", about.file_name, imported.measured_by);
    let warning = Warning::new(
        WarningCode::Imported,
        text,
        "docs/import.md describes its figures and names the missing ones",
    );
    Run {
        schema: SCHEMA.to_owned(),
        id: format!("{}-{a:02x}{b:02x}{c:02x}", started.strftime("%Y%m%dT%H%M%SZ")),
        title: about.title.clone().or_else(|| Some(about.file_name.clone())),
        tool: TOOL.to_owned(),
        started,
        elapsed_ns: imported.elapsed_ns,
        interrupted: false,
        cases: imported.cases,
        study: None,
        mesh: None,
        environment: Environment::default(),
        warnings: [warning].into_iter().chain(imported.warnings).collect(),
    }
}

/// Hashes the data that it reads.
struct HashingReader<'a> {
    file: &'a mut dyn Read,
    hash: Sha256,
}

impl Read for &mut HashingReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(into)?;
        self.hash.update(&into[..length]);
        Ok(length)
    }
}

/// A recorder of round trips whose times of sending are not known.
fn latency_recorder() -> Recorder {
    Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None)
}

/// A case from a file, without the facts that need a link.
fn base_case(
    about: &ImportOptions,
    format: &ImportFormat,
    workload: &str,
    direction: Direction,
    mut figures: Figures,
) -> CaseResult {
    let counts = &mut figures.counts;
    // No format counts wrong bytes.
    figures.byte_errors.are_unknown = true;
    counts.messages_unknown = !counts.losses_unknown && counts.sent == 0 && counts.received == 0;
    let mut requested = Map::new();
    requested.insert("imported_as".to_owned(), Value::from(format.name));
    requested.insert(IMPORTED_FROM.to_owned(), Value::from(about.file_name.clone()));
    let endpoint = about.endpoint.clone().unwrap_or_else(|| about.file_name.clone());
    CaseResult {
        message_bytes: about.message_bytes.unwrap_or(0),
        method: format!("{workload}/imported/{}", format.name),
        requested,
        ..CaseResult::of_figures(endpoint, workload, direction, figures)
    }
}

#[cfg(test)]
mod tests;
