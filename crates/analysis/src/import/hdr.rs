//! Logs of HdrHistogram, as many load generators write them: one histogram per interval, deflated, in base64 (`encoding`).
//! Each tag makes one case.
//!
//! The import has no time series: its figures cover all intervals together. Writers differ in what the second column means
//! (`intervals`).

mod encoding;
mod intervals;

use std::collections::BTreeMap;
use std::io::BufRead;

use hdrhistogram::Histogram;
use jiff::Timestamp;

use super::line_reader::{LineReader, quote, unfinished_line};
use super::samples::TimeUnit;
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, below, format_error,
    latency_recorder,
};
use encoding::HistogramFault;
use intervals::LogDuration;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Warning, WarningCode};
use linkgauge_model::sample::Recorder;
use linkgauge_model::units::format_plural;

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "hdr",
    summary: "interval logs of HdrHistogram (--unit, default ns)",
    flags: &["unit"],
    read,
};

/// Maximum length of a line, in bytes, above that of any histogram of five digits.
const MAX_LINE_BYTES: u64 = 8 << 20;
/// Maximum total of all intervals; real logs have fewer.
const MAX_REQUESTS: u64 = 1 << 53;
/// Maximum number of different tags in one file.
const MAX_CASES: usize = 100;

/// The data of one tag.
struct TaggedCase {
    recorder: Recorder,
    intervals: LogDuration,
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let unit = about.unit.unwrap_or(TimeUnit::Nanoseconds).nanoseconds();
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut tags: BTreeMap<String, TaggedCase> = BTreeMap::new();
    let (mut started, mut first_start, mut total, mut is_cut_off) = (None, None, 0u64, false);
    while let Some(line) = lines.next_line()? {
        let line = line.trim().to_owned();
        let line = line.as_str();
        if let Some(remark) = line.strip_prefix('#') {
            started = started.or_else(|| parse_start_time(remark));
            continue;
        }
        if line.is_empty() || line.starts_with('"') {
            continue;
        }
        let Some(row) = parse_row(line, &lines)? else {
            is_cut_off = true;
            continue;
        };
        total = total.saturating_add(row.histogram.len());
        if total > MAX_REQUESTS {
            return Err(
                lines.error(format!("the log has more than {MAX_REQUESTS} requests, the most that is read"))
            );
        }
        if tags.len() >= MAX_CASES && !tags.contains_key(&row.tag) {
            return Err(
                lines.error(format!("the log has more than {MAX_CASES} tags: split the file by its tags"))
            );
        }
        first_start = first_start.or(Some(row.start));
        tags.entry(row.tag.clone()).or_insert_with(TaggedCase::new).add(&row, unit);
    }
    tags.retain(|_, tagged| tagged.recorder.counts.received > 0);
    if tags.is_empty() {
        return Err(format_error("no log of HdrHistogram: there is no interval with a value in it"));
    }
    let mut warnings: Vec<Warning> = is_cut_off.then(unfinished_line).into_iter().collect();
    warnings.push(Warning::new(
        WarningCode::LossesUnknown,
        "the log does not count lost messages",
        "its figures describe the received replies only",
    ));
    if tags.values().any(|tagged| tagged.intervals.total_ns().is_none()) {
        warnings.push(Warning::new(
            WarningCode::Contradiction,
            "the lengths of the log's intervals contradict their starts, so the duration is left out",
            "the second column should hold lengths in seconds",
        ));
    }
    let cases: Vec<_> = tags.into_iter().map(|(tag, tagged)| tagged.into_case(&tag, about, unit)).collect();
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "another program".to_owned(),
        started: started.or_else(|| intervals::date_of_start(first_start?)),
        elapsed_ns: cases.iter().map(|case| case.elapsed_ns).max().unwrap_or(0),
        cases,
        warnings,
    }))
}

/// The interval in a line; `None` if the line is cut off.
fn parse_row(line: &str, lines: &LineReader) -> Result<Option<LogInterval>, ImportError> {
    match LogInterval::parse(line) {
        Ok(row) => Ok(Some(row)),
        Err(_) if lines.is_unfinished() => Ok(None),
        Err(reason) => {
            Err(lines.error(format!("{} is no interval of an HdrHistogram log: {reason}", quote(line))))
        }
    }
}

impl TaggedCase {
    pub fn new() -> TaggedCase {
        TaggedCase { recorder: latency_recorder(), intervals: LogDuration::default() }
    }

    fn into_case(mut self, tag: &str, about: &ImportOptions, unit: f64) -> CaseResult {
        let (mut figures, below) = below::resolved_figures(&mut self.recorder, &about.late_limits, unit);
        figures.counts.forget_losses();
        let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
        case.warnings.extend(below);
        case.elapsed_ns = self.intervals.total_ns().unwrap_or(0);
        if !tag.is_empty() {
            case.endpoint = format!("{} {tag}", case.endpoint);
        }
        case
    }

    pub fn add(&mut self, row: &LogInterval, unit: f64) {
        let histogram = &row.histogram;
        for step in histogram.iter_recorded() {
            let middle = histogram.median_equivalent(step.value_iterated_to());
            let nanoseconds = (middle as f64 * unit) as u64;
            let count = step.count_since_last_iteration();
            self.recorder.service_times.record_many(nanoseconds, count);
            self.recorder.counts.received += count;
        }
        self.recorder.counts.sent = self.recorder.counts.received;
        self.intervals.add(row.start, row.second);
    }
}

/// An interval: `[Tag=NAME,]start,length,greatest,histogram`. Instead of the length some writers put the end.
struct LogInterval {
    tag: String,
    start: f64,
    second: f64,
    histogram: Histogram<u64>,
}

impl LogInterval {
    fn parse(line: &str) -> Result<LogInterval, IntervalFault> {
        let (tag, rest) = match line.strip_prefix("Tag=") {
            Some(tagged) => tagged.split_once(',').unwrap_or_default(),
            None => ("", line),
        };
        if tag.len() > 100 {
            return Err(IntervalFault::LongTag);
        }
        let cells: Vec<&str> = rest.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
        let [start, second, greatest, histogram] = cells[..] else {
            return Err(IntervalFault::Columns(format_plural(cells.len() as u64, "column")));
        };
        let number = |cell: &str| {
            let number = cell.parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
            number.ok_or_else(|| IntervalFault::Time(quote(cell)))
        };
        number(greatest)?;
        Ok(LogInterval {
            tag: tag.to_owned(),
            start: number(start)?,
            second: number(second)?,
            histogram: encoding::parse_histogram(histogram)?,
        })
    }
}

/// Reason why a line is not an interval.
#[derive(Debug, thiserror::Error)]
enum IntervalFault {
    #[error("its tag is too long")]
    LongTag,
    #[error("it has {0}, not 4 columns")]
    Columns(String),
    #[error("{0} is not a time")]
    Time(String),
    #[error(transparent)]
    Histogram(#[from] HistogramFault),
}

/// Start time in a remark such as `[StartTime: 1441812279.474 (seconds since epoch), …]`.
fn parse_start_time(remark: &str) -> Option<Timestamp> {
    let (_, rest) = remark.split_once("[StartTime: ")?;
    let seconds: f64 = rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()?;
    Timestamp::from_millisecond((seconds * 1e3) as i64).ok()
}
