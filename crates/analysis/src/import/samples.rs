//! Plain sample logs: one latency per line, in sending order, with a special number for lost requests.
//!
//! Logs with sending times are not supported. Without such times there is no rate and no time series.

use std::io::BufRead;
use std::str::FromStr;
use std::sync::Arc;

use super::line_reader::{LineReader, only_unfinished_line, quote, unfinished_line};
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, below, format_error,
};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{Warning, WarningCode};
use linkgauge_model::sample::{RecordedTimes, Recorder, Sample};

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "samples",
    summary: "plain logs: one latency per line (--unit), optionally a text or number that marks lost requests (--lost)",
    read,
};

/// A number with its unit and separators.
const MAX_LINE_BYTES: u64 = 4096;
/// A hundred years; no real latency is longer.
const MAX_LATENCY_NS: f64 = 3.2e18;

/// Unit of the times in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// 10⁻⁹ s.
    Nanoseconds,
    /// 10⁻⁶ s.
    Microseconds,
    /// 10⁻³ s.
    Milliseconds,
    /// 1 s.
    Seconds,
}

impl TimeUnit {
    /// All units with their names in commands.
    pub const ALL: [(&'static str, TimeUnit); 4] = [
        ("ns", TimeUnit::Nanoseconds),
        ("us", TimeUnit::Microseconds),
        ("ms", TimeUnit::Milliseconds),
        ("s", TimeUnit::Seconds),
    ];

    /// The number of nanoseconds in one unit.
    pub fn nanoseconds(self) -> f64 {
        match self {
            TimeUnit::Nanoseconds => 1.0,
            TimeUnit::Microseconds => 1e3,
            TimeUnit::Milliseconds => 1e6,
            TimeUnit::Seconds => 1e9,
        }
    }
}

/// A text that is not a unit of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a unit (known: ns, us, ms, s)")]
pub struct UnknownTimeUnit {
    text: String,
}

impl FromStr for TimeUnit {
    type Err = UnknownTimeUnit;

    fn from_str(text: &str) -> Result<TimeUnit, UnknownTimeUnit> {
        let unit = TimeUnit::ALL.iter().find(|(name, _)| *name == text);
        unit.map(|(_, unit)| *unit).ok_or_else(|| UnknownTimeUnit { text: text.to_owned() })
    }
}

/// Detects latencies sorted by size. In measured order they are not.
#[derive(Default)]
struct OrderCheck {
    last: Option<f64>,
    rises: u64,
    falls: u64,
}

/// This many steps in one direction are not a coincidence: one in a million, if both directions are equally likely.
const MIN_SORTED_STEPS: u64 = 20;

impl OrderCheck {
    pub fn add(&mut self, value: f64) {
        if let Some(last) = self.last.replace(value) {
            self.rises += u64::from(value > last);
            self.falls += u64::from(value < last);
        }
    }

    fn is_sorted(&self) -> bool {
        self.rises.max(self.falls) >= MIN_SORTED_STEPS && self.rises.min(self.falls) == 0
    }
}

/// Whether both are the same text, or the same number.
fn is_same_value(marker: &str, line: &str) -> bool {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    marker.trim() == line || number(marker).is_some_and(|marker| number(line) == Some(marker))
}

/// Why a line is no latency, and what to do about it.
fn invalid_latency(line: &str) -> String {
    let quoted = quote(line);
    let is_number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    if is_number(&line.replacen(',', ".", 1)) && line.contains(',') {
        return format!("{quoted} has a decimal comma: write it with a point");
    }
    // A marker is short: `-`, `*`, `-1`, `timeout`.
    let is_marker = is_number(line) || line.len() <= 10 && !line.contains(|c: char| c.is_ascii_digit());
    match is_marker {
        true => format!(
            "{quoted} is not a latency: write one number per line, and '#' before comments. If it marks a lost \
             request: --lost={quoted}"
        ),
        false => format!("{quoted} is not a latency: write one number per line, and '#' before comments"),
    }
}

/// The samples of a file.
struct SampleLog {
    recorder: Recorder,
    order: OrderCheck,
    /// The finest step between two numbers, in ns.
    step_ns: f64,
    is_cut_off: bool,
}

fn read_lines(file: &mut dyn BufRead, unit_ns: f64, marker: Option<&str>) -> Result<SampleLog, ImportError> {
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None);
    let mut log = SampleLog { recorder, order: OrderCheck::default(), step_ns: unit_ns, is_cut_off: false };
    while let Some(line) = lines.next_line()? {
        // A marker may hold a '#'.
        let is_marker = |line: &str| marker.is_some_and(|marker| is_same_value(marker, line));
        let whole = line.trim().to_owned();
        let line =
            if is_marker(&whole) { &whole } else { whole.split('#').next().unwrap_or_default().trim() };
        let is_lost = is_marker(line);
        if !is_lost && line.is_empty() {
            continue;
        }
        if lines.is_unfinished() {
            // `12` may be the beginning of `125`.
            log.is_cut_off = true;
            continue;
        }
        log.recorder.counts.sent += 1;
        if is_lost {
            log.recorder.record_loss(Time(0));
            continue;
        }
        let value: Option<f64> = line.parse().ok();
        let Some(value) = value.filter(|value| *value >= 0.0 && value * unit_ns < MAX_LATENCY_NS) else {
            return Err(lines.error(invalid_latency(&whole)));
        };
        log.step_ns = log.step_ns.min(below::step_ns(line, unit_ns));
        let received = Time((value * unit_ns).round() as u64);
        log.order.add(value);
        let sequence = log.recorder.counts.received;
        log.recorder.record_reply(Sample { sequence, intended: Time(0), sent: Time(0), received }, 0);
    }
    match (log.recorder.counts.sent, log.is_cut_off) {
        (0, false) => Err(format_error("there is no sample in it")),
        (0, true) => Err(only_unfinished_line()),
        _ => Ok(log),
    }
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let unit = about.unit.ok_or_else(|| {
        format_error("the file does not contain the unit of the times: use --unit ms, us, ns or s")
    })?;
    let SampleLog { mut recorder, order, step_ns, is_cut_off } =
        read_lines(file, unit.nanoseconds(), about.lost_marker.as_deref())?;
    let mut warnings: Vec<Warning> = is_cut_off.then(unfinished_line).into_iter().collect();
    let (mut figures, below) = below::resolved_figures(&mut recorder, &about.late_limits, step_ns);
    if about.lost_marker.is_none() {
        figures.counts.forget_losses();
        let text = "nothing marks lost requests, so the figures describe the received replies only";
        warnings.push(Warning::new(
            WarningCode::LossesUnknown,
            text,
            "name what marks a lost request: --lost 999, --lost=-1 or --lost '*'",
        ));
    }
    if order.is_sorted() {
        figures.times.jitter_ns = None;
        let text = "the latencies are in order of size, not of time, so there is no jitter";
        warnings.push(Warning::new(
            WarningCode::Sorted,
            text,
            "import the log in the order in which it was measured",
        ));
    }
    let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
    case.warnings.extend(below);
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "another program".to_owned(),
        started: None,
        elapsed_ns: 0,
        cases: vec![case],
        warnings,
    }))
}
