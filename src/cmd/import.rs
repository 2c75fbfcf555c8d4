//! `linkgauge import`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use jiff::Timestamp;
use linkgauge::import::{ImportFormat, ImportOptions, TimeUnit, read};
use linkgauge::lists::{IMPORT_FORMATS, import_format};
use linkgauge::plan::{Pacing, ZERO_LATE_LIMIT, default_late_limits};
use linkgauge::report::RunGroup;
use linkgauge::run::{Run, WarningCode};
use linkgauge::store::StoreError;
use linkgauge::units::{Bytes, Span};

use super::output::{OutputFlags, RunText, finish_all, is_dash, print_message};
use super::status::Status;
use super::store::{SaveFlags, print_saved, short_id};

/// Import results of other programs: same statistics, same report
///
/// Importing a file again gives the same run. Figures that a file does not contain are absent.
#[derive(Args)]
pub struct Flags {
    /// Format of the files
    #[arg(id = "what", value_name = "FORMAT", value_parser = format_values())]
    format: String,
    /// Files ('-': standard input)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Unit of the times in the file: ns, us, ms or s (samples, csv, hdr)
    #[arg(long, value_name = "UNIT")]
    unit: Option<TimeUnit>,
    /// Column of the latencies (csv), or the metric (k6) [default of k6: http_req_duration]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Column that names the test of each row; each of its values becomes a case (csv)
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// The text or number that marks a lost request, like 999, -1, '*' or '' (samples, csv)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    lost: Option<String>,
    /// Count the requests without a reply within these times [default: 50ms,100ms,200ms,300ms]
    #[arg(long, value_name = "TIMES", value_delimiter = ',')]
    late: Vec<Span>,
    /// Endpoint of the report [default: that of the file, else the file's name]
    #[arg(long, value_name = "TEXT")]
    endpoint: Option<String>,
    /// Message size, if the file does not contain it
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    save: SaveFlags,
}

impl Flags {
    /// Refuses flags that mean nothing for the format.
    fn check_used_by(&self, format: &ImportFormat) -> Result<()> {
        let given = [
            ("unit", self.unit.is_some()),
            ("lost", self.lost.is_some()),
            ("column", self.column.is_some()),
            ("by", self.by.is_some()),
        ];
        let unused = |(name, is_given): &(&str, bool)| *is_given && !format.flags.contains(name);
        let Some((name, _)) = given.into_iter().find(unused) else { return Ok(()) };
        let users =
            IMPORT_FORMATS.iter().filter(|format| format.flags.contains(&name)).map(|format| format.name);
        let users: Vec<&str> = users.collect();
        bail!("--{name} is for {}, not for {}: leave it out", users.join(", "), format.name)
    }
}

fn format_values() -> PossibleValuesParser {
    let formats = IMPORT_FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.summary));
    formats.collect::<Vec<_>>().into()
}

pub fn run(flags: Flags) -> Result<Status> {
    flags.output.check_writable(0)?;
    flags.save.check()?;
    let format = import_format(&flags.format).context("clap knows only these")?;
    flags.check_used_by(format)?;
    let mut runs = Vec::new();
    let mut import = |path: &PathBuf| {
        let run = import_file(format, path, &flags)?;
        let kept = flags.save.save(&run).or_else(|error| match error.downcast_ref() {
            // A run document brings its id; any other id is that of the content, which had another file name.
            Some(StoreError::ConflictingRun(id)) if format.name != "run" => {
                print_message(format_args!(
                    "{}: the store has this result already, as {}",
                    path.display(),
                    short_id(id)
                ));
                Ok(false)
            }
            _ => Err(error),
        });
        runs.push((run, matches!(kept, Ok(true))));
        kept.map(drop)
    };
    let imported = finish_all(flags.files.iter().map(&mut import));
    let groups = runs.iter().map(|(run, _)| RunGroup {
        name: run.title.as_deref().unwrap_or(&run.id),
        runs: std::slice::from_ref(run),
    });
    let written = match groups.collect::<Vec<_>>().as_slice() {
        [] => Ok(()),
        [RunGroup { runs: [run], .. }] => flags.output.write(run, RunText::Printed),
        several => flags.output.write_all(several),
    };
    if !flags.output.quiet {
        runs.iter().filter(|(_, is_kept)| *is_kept).for_each(|(run, _)| print_saved(run));
    }
    finish_all([imported, written])?;
    let is_complete = runs.iter().all(|(run, _)| is_whole(run));
    Ok(if is_complete { Status::Complete } else { Status::Incomplete })
}

fn import_file(format: &ImportFormat, path: &Path, flags: &Flags) -> Result<Run> {
    let size = flags.size.map(|size| u32::try_from(size.0)).transpose();
    let Ok(message_bytes) = size else { bail!("a message has at most 4 GB") };
    if flags.late.iter().any(|limit| limit.0.is_zero()) {
        bail!("--late: {ZERO_LATE_LIMIT}");
    }
    let late = match flags.late.is_empty() {
        true => default_late_limits(Pacing::Closed),
        false => flags.late.iter().map(|span| span.0).collect(),
    };
    let mut about = ImportOptions {
        file_name: if is_dash(path) { "standard input".to_owned() } else { file_name(path) },
        modified: None,
        title: flags.title.clone(),
        endpoint: flags.endpoint.clone(),
        message_bytes,
        unit: flags.unit,
        lost_marker: flags.lost.clone(),
        column: flags.column.clone(),
        by: flags.by.clone(),
        late_limits: late,
    };
    let name = if is_dash(path) { about.file_name.clone() } else { path.display().to_string() };
    let mut file: Box<dyn Read> = match is_dash(path) {
        true => Box::new(std::io::stdin().lock()),
        false => {
            let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
            let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
            about.modified = modified.and_then(|time| Timestamp::try_from(time).ok());
            Box::new(file)
        }
    };
    read(format, &mut file, &about).context(name)
}

/// Whether the file has the whole result of each of its tests.
fn is_whole(run: &Run) -> bool {
    run.is_complete() && !run.warnings.iter().any(|warning| warning.code == WarningCode::Incomplete)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
