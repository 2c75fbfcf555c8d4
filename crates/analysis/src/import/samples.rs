//! Plain sample logs: one latency per line, in sending order, with a special number for lost requests.
//!
//! Logs with sending times are not supported. Without such times there is no rate and no time series.

use std::io::BufRead;
use std::str::FromStr;

use super::line_reader::{LineReader, only_unfinished_line, quote, unfinished_line};
use super::neighbours::sample_of_duration;
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, below, format_error,
    latency_recorder,
};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Warning, WarningCode};
use linkgauge_model::sample::Recorder;

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "samples",
    summary: "plain logs: one latency per line (--unit), optionally a text or number that marks lost requests (--lost)",
    flags: &["unit", "lost"],
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

/// Minimum number of steps in one direction that is not a coincidence: one in a million, if both directions are equally likely.
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
pub(super) fn is_same_value(marker: &str, line: &str) -> bool {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    marker.trim() == line || number(marker).is_some_and(|marker| number(line) == Some(marker))
}

/// Text that gives the reason why a line is not a latency, and how to fix it.
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

/// Latencies in sending order, of a file or of one test in it.
pub(super) struct SampleLog {
    recorder: Recorder,
    order: OrderCheck,
    unit_ns: f64,
    /// The finest step between two numbers, in ns.
    step_ns: f64,
}

impl SampleLog {
    pub(super) fn new(unit: TimeUnit) -> SampleLog {
        let unit_ns = unit.nanoseconds();
        SampleLog { recorder: latency_recorder(), order: OrderCheck::default(), unit_ns, step_ns: unit_ns }
    }

    pub(super) fn add_lost(&mut self) {
        self.recorder.counts.sent += 1;
        self.recorder.record_loss(Time(0));
    }

    /// Adds the latency in this text. `None`: the text is no latency.
    pub(super) fn add(&mut self, text: &str) -> Option<()> {
        let value: f64 = text.parse().ok()?;
        if !(value >= 0.0 && value * self.unit_ns < MAX_LATENCY_NS) {
            return None;
        }
        self.recorder.counts.sent += 1;
        self.step_ns = self.step_ns.min(below::step_ns(text, self.unit_ns));
        self.order.add(value);
        let nanoseconds = (value * self.unit_ns).round() as u64;
        self.recorder.record_reply(sample_of_duration(self.recorder.counts.received, nanoseconds), 0);
        Some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.recorder.counts.sent == 0
    }

    /// The case, and the doubts about it.
    pub(super) fn into_case(
        mut self,
        about: &ImportOptions,
        format: &ImportFormat,
    ) -> (CaseResult, Vec<Warning>) {
        let mut warnings = Vec::new();
        let (mut figures, below) =
            below::resolved_figures(&mut self.recorder, &about.late_limits, self.step_ns);
        if about.lost_marker.is_none() {
            figures.counts.forget_losses();
            warnings.push(Warning::new(
                WarningCode::LossesUnknown,
                "nothing marks lost requests, so the figures describe the received replies only",
                "name what marks a lost request: --lost 999, --lost=-1 or --lost '*'",
            ));
        }
        if self.order.is_sorted() {
            figures.times.jitter_ns = None;
            warnings.push(Warning::new(
                WarningCode::Sorted,
                "the latencies are in order of size, not of time, so there is no jitter",
                "import the log in the order in which it was measured",
            ));
        }
        let mut case = base_case(about, format, "latency", Direction::Loop, figures);
        case.warnings.extend(below);
        (case, warnings)
    }
}

/// The unit that the user names.
pub(super) fn named_unit(about: &ImportOptions) -> Result<TimeUnit, ImportError> {
    about.unit.ok_or_else(|| {
        format_error("the file does not contain the unit of the times: use --unit ms, us, ns or s")
    })
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut log = SampleLog::new(named_unit(about)?);
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut is_cut_off = false;
    while let Some(line) = lines.next_line()? {
        // A marker may hold a '#'.
        let is_marker = |line: &str| about.lost_marker.as_ref().is_some_and(|it| is_same_value(it, line));
        let whole = line.trim().to_owned();
        let line =
            if is_marker(&whole) { &whole } else { whole.split('#').next().unwrap_or_default().trim() };
        let is_lost = is_marker(line);
        if !is_lost && line.is_empty() {
            continue;
        }
        if lines.is_unfinished() {
            // `12` may be the beginning of `125`.
            is_cut_off = true;
        } else if is_lost {
            log.add_lost();
        } else {
            log.add(line).ok_or_else(|| lines.error(invalid_latency(&whole)))?;
        }
    }
    match (log.is_empty(), is_cut_off) {
        (true, false) => return Err(format_error("there is no sample in it")),
        (true, true) => return Err(only_unfinished_line()),
        _ => {}
    }
    let (case, doubts) = log.into_case(about, &FORMAT);
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "another program".to_owned(),
        started: None,
        elapsed_ns: 0,
        cases: vec![case],
        warnings: is_cut_off.then(unfinished_line).into_iter().chain(doubts).collect(),
    }))
}
