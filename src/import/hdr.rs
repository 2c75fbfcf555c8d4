//! Logs of HdrHistogram, as many load generators write them: one histogram per interval, deflated, in base64 (version
//! 1.3 of the log, encoding V2). Each tag makes one case.
//!
//! The import has no time series: its figures cover all intervals together.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use jiff::Timestamp;

use super::line_reader::{LineReader, quote};
use super::samples::TimeUnit;
use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error};
use crate::plan::Direction;
use crate::run::{Warning, WarningCode};
use crate::sample::{RecordedTimes, Recorder, decode_histogram};

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "hdr", summary: "interval logs of HdrHistogram (--unit, default ns)", read };

/// Larger than any histogram of five digits.
const MAX_LINE_BYTES: u64 = 8 << 20;
/// Maximum size after inflating.
const MAX_HISTOGRAM_BYTES: u64 = 4 << 20;
/// `0x1c849304 0x10`: deflated encoding V2. The length of the data follows.
const DEFLATED_V2_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
const HEADER_BYTES: usize = 8;
/// Maximum total of all intervals; real logs have fewer.
const MAX_REQUESTS: u64 = 1 << 53;
/// Maximum number of different tags in one file.
const MAX_CASES: usize = 100;

/// The data of one tag.
struct TaggedCase {
    recorder: Recorder,
    elapsed_seconds: f64,
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let unit = about.unit.unwrap_or(TimeUnit::Nanoseconds).nanoseconds();
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut tags: BTreeMap<String, TaggedCase> = BTreeMap::new();
    let (mut started, mut total) = (None, 0u64);
    while let Some(line) = lines.next_line()? {
        let line = line.trim();
        if let Some(remark) = line.strip_prefix('#') {
            started = started.or_else(|| parse_start_time(remark));
            continue;
        }
        if line.is_empty() || line.starts_with('"') {
            continue;
        }
        let Some(row) = LogInterval::parse(line) else {
            let what = format!("{} is no interval of an HdrHistogram log (encoding V2)", quote(line));
            return Err(lines.error(what));
        };
        total = total.saturating_add(row.histogram.len());
        if total > MAX_REQUESTS || tags.len() >= MAX_CASES {
            return Err(lines.error("more than a log can hold".to_owned()));
        }
        tags.entry(row.tag).or_insert_with(TaggedCase::new).add(&row.histogram, unit, row.seconds);
    }
    tags.retain(|_, tagged| tagged.recorder.counts.received > 0);
    if tags.is_empty() {
        return Err(format_error("no log of HdrHistogram: there is no interval with a value in it"));
    }
    let cases = tags.into_iter().map(|(tag, tagged)| {
        let mut case = base_case(
            about,
            &FORMAT,
            "latency",
            Direction::Loop,
            tagged.recorder.latency_figures(&about.late_limits),
        );
        case.elapsed_ns = (tagged.elapsed_seconds.clamp(0.0, 3.2e9) * 1e9) as u64;
        if !tag.is_empty() {
            case.endpoint = format!("{} {tag}", case.endpoint);
        }
        case
    });
    let cases: Vec<_> = cases.collect();
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "another program".to_owned(),
        started,
        elapsed_ns: cases.iter().map(|case| case.elapsed_ns).max().unwrap_or(0),
        cases,
        warnings: vec![Warning::new(
            WarningCode::LossesUnknown,
            "the log does not count lost messages",
            "its figures describe the received replies only",
        )],
    }))
}

impl TaggedCase {
    fn new() -> TaggedCase {
        TaggedCase {
            recorder: Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None),
            elapsed_seconds: 0.0,
        }
    }

    fn add(&mut self, histogram: &Histogram<u64>, unit: f64, seconds: f64) {
        for step in histogram.iter_recorded() {
            let middle = histogram.median_equivalent(step.value_iterated_to());
            let nanoseconds = (middle as f64 * unit) as u64;
            let count = step.count_since_last_iteration();
            self.recorder.service_times.record_many(nanoseconds, count);
            self.recorder.counts.received += count;
        }
        self.recorder.counts.sent = self.recorder.counts.received;
        self.elapsed_seconds += seconds;
    }
}

/// An interval: `[Tag=NAME,]start,length,greatest,histogram`.
struct LogInterval {
    tag: String,
    seconds: f64,
    histogram: Histogram<u64>,
}

impl LogInterval {
    fn parse(line: &str) -> Option<LogInterval> {
        let (tag, rest) = match line.strip_prefix("Tag=") {
            Some(tagged) => tagged.split_once(',')?,
            None => ("", line),
        };
        let mut cells = rest.split(',');
        let _start: f64 = cells.next()?.trim().parse().ok()?;
        let seconds: f64 = cells.next()?.trim().parse().ok()?;
        let _greatest: f64 = cells.next()?.trim().parse().ok()?;
        let histogram = inflate_histogram(cells.next()?.trim())?;
        let sound = seconds.is_finite() && seconds >= 0.0 && tag.len() <= 100;
        sound.then(|| LogInterval { tag: tag.to_owned(), seconds, histogram })
    }
}

fn inflate_histogram(text: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(text).ok()?;
    let deflated = bytes.strip_prefix(&DEFLATED_V2_COOKIE)?.get(HEADER_BYTES - DEFLATED_V2_COOKIE.len()..)?;
    let mut encoded = Vec::new();
    ZlibDecoder::new(deflated).take(MAX_HISTOGRAM_BYTES + 1).read_to_end(&mut encoded).ok()?;
    decode_histogram(&encoded)
}

/// `[StartTime: 1441812279.474 (seconds since epoch), …]`.
fn parse_start_time(remark: &str) -> Option<Timestamp> {
    let (_, rest) = remark.split_once("[StartTime: ")?;
    let seconds: f64 = rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()?;
    Timestamp::from_millisecond((seconds * 1e3) as i64).ok()
}
