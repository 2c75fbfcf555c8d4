//! Results of other programs as runs, so that they get the same statistics and the same report.
//!
//! Not for measuring and not for keeping. A figure that a file does not hold is not made up: summaries without samples give
//! the figures they have. Every file is hostile: read in fixed memory, refused with the line that is wrong.

mod hdr;
mod iperf3;
mod line_reader;
mod run;
mod samples;
mod sockperf;

use std::io::{self, BufReader, Read};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::clock::wall_clock_date;
use crate::plan::Direction;
use crate::run::{CaseResult, Environment, Figures, Run, RunError, SCHEMA, TOOL, Warning};

pub use samples::TimeUnit;

/// A format that can be read.
#[derive(Debug)]
pub struct ImportFormat {
    /// As `import` takes it.
    pub name: &'static str,
    /// One line for `--help`.
    pub summary: &'static str,
    /// Reads a whole file.
    pub read: fn(&mut dyn io::BufRead, &ImportOptions) -> Result<ImportedFile, ImportError>,
}

/// Every format that can be read.
pub static IMPORT_FORMATS: &[ImportFormat] =
    &[run::FORMAT, samples::FORMAT, iperf3::FORMAT, sockperf::FORMAT, hdr::FORMAT];

/// The format of that name.
pub fn import_format(name: &str) -> Option<&'static ImportFormat> {
    IMPORT_FORMATS.iter().find(|format| format.name == name)
}

/// What a file does not say itself.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Name of the file.
    pub file_name: String,
    /// When it was last written: when the run began, if the file does not tell.
    pub modified: Option<Timestamp>,
    pub title: Option<String>,
    /// Where the link led.
    pub endpoint: Option<String>,
    pub message_bytes: Option<u32>,
    /// Of the times in the file.
    pub unit: Option<TimeUnit>,
    /// In that unit: the number that stands for a lost exchange.
    pub lost_value: Option<f64>,
    /// Limits of the shares of late exchanges.
    pub late_limits: Vec<Duration>,
}

/// What was wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot be read")]
    Read(#[from] io::Error),
    #[error("line {line}: {what}")]
    Line { line: u64, what: String },
    #[error("{0}")]
    Format(String),
    #[error(transparent)]
    Run(#[from] RunError),
}

fn format_error(what: impl Into<String>) -> ImportError {
    ImportError::Format(what.into())
}

/// What a reader makes of a file.
#[derive(Debug)]
pub enum ImportedFile {
    /// It was a run document.
    Run(Box<Run>),
    /// It was another program's.
    Foreign(ForeignResult),
}

/// Another program's result.
#[derive(Debug)]
pub struct ForeignResult {
    /// That program, with its version where the file tells.
    measured_by: String,
    started: Option<Timestamp>,
    elapsed_ns: u64,
    cases: Vec<CaseResult>,
    warnings: Vec<Warning>,
}

/// Reads a file of this format to its end.
pub fn read(format: &ImportFormat, file: &mut dyn Read, about: &ImportOptions) -> Result<Run, ImportError> {
    let mut hashing = HashingReader { file, hash: Sha256::new() };
    let mut reader = BufReader::with_capacity(1 << 16, &mut hashing);
    let found = match (format.read)(&mut reader, about)? {
        ImportedFile::Run(run) => return Ok(*run),
        ImportedFile::Foreign(found) => found,
    };
    io::copy(&mut reader, &mut io::sink())?;
    drop(reader);
    // The same file read in the same way is the same run, however often it is imported.
    let how = (
        &about.title,
        &about.endpoint,
        about.message_bytes,
        about.unit,
        about.lost_value,
        &about.late_limits,
    );
    hashing.hash.update(format!("{} {how:?}", format.name));
    let hash = hashing.hash.finalize();
    let started = found.started.or(about.modified).unwrap_or_else(wall_clock_date);
    Ok(build_run(found, about, started, [hash[0], hash[1], hash[2]]))
}

fn build_run(found: ForeignResult, about: &ImportOptions, started: Timestamp, random: [u8; 3]) -> Run {
    let [a, b, c] = random;
    let text = format!("{} was measured by {}, not by linkgauge", about.file_name, found.measured_by);
    let imported =
        Warning::new("imported", text, "docs/import.md says what its figures are, and which are missing");
    Run {
        schema: SCHEMA.to_owned(),
        id: format!("{}-{a:02x}{b:02x}{c:02x}", started.strftime("%Y%m%dT%H%M%SZ")),
        title: about.title.clone().or_else(|| Some(about.file_name.clone())),
        tool: TOOL.to_owned(),
        started,
        elapsed_ns: found.elapsed_ns,
        interrupted: false,
        cases: found.cases,
        paper: None,
        environment: Environment::default(),
        warnings: [imported].into_iter().chain(found.warnings).collect(),
    }
}

/// Hashes what is read.
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

/// A case of a file, without what only a link of ours knows.
fn base_case(
    about: &ImportOptions,
    format: &ImportFormat,
    workload: &str,
    direction: Direction,
    figures: Figures,
) -> CaseResult {
    let mut asked = Map::new();
    asked.insert("imported_as".to_owned(), Value::from(format.name));
    asked.insert("imported_from".to_owned(), Value::from(about.file_name.clone()));
    CaseResult {
        endpoint: about.endpoint.clone().unwrap_or_else(|| about.file_name.clone()),
        peer: "unknown".to_owned(),
        workload: workload.to_owned(),
        direction,
        message_bytes: about.message_bytes.unwrap_or(0),
        ports: 1,
        parallel: 1,
        method: format!("{workload}/imported/{}", format.name),
        complete: true,
        elapsed_ns: 0,
        figures,
        under_load: None,
        fairness: None,
        latency_spread: None,
        series: Vec::new(),
        cpu: None,
        asked,
        got: Map::new(),
        line: Map::new(),
        shaped: Map::new(),
        placement: Map::new(),
        repeats: Vec::new(),
        per_port: Vec::new(),
        thresholds: Vec::new(),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
