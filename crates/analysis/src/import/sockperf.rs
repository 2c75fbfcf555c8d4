//! The full log of sockperf (`--full-log`): the sending time of each message and the receiving time of its reply.
//!
//! The summary of the log is ignored and computed again. Latency is always the round trip here, whatever the log's
//! last column holds (sockperf halves it by default).

use std::io::BufRead;

use super::line_reader::{LineReader, quote, unfinished_line};
use super::neighbours::RecentTimes;
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error,
    latency_recorder,
};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{SaidZeros, Warning, WarningCode};
use linkgauge_model::sample::{Recorder, Sample};

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "sockperf", summary: "full logs of sockperf (--full-log FILE)", flags: &[], read };

const MAX_LINE_BYTES: u64 = 64 << 10;
const TABLE_HEADER: &str = "packet, txTime(sec), rxTime(sec)";

/// Header and rows of the log.
struct FullLog {
    recorder: Recorder,
    recent: RecentTimes,
    message_bytes: Option<u32>,
    /// The summary counts the dropped messages.
    counts_drops: bool,
    /// Replies that the summary counts in the time that the rows cover; 0: it does not say.
    valid_replies: u64,
    said_zeros: SaidZeros,
    /// The summary has a count that cannot be one.
    has_wrong_count: bool,
    first_sent: Option<Time>,
    last_received: Time,
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let recorder = latency_recorder();
    let mut log = FullLog {
        recorder,
        message_bytes: about.message_bytes,
        counts_drops: false,
        valid_replies: 0,
        said_zeros: SaidZeros::default(),
        has_wrong_count: false,
        recent: RecentTimes::default(),
        first_sent: None,
        last_received: Time(0),
    };
    let (mut in_table, mut is_unfinished) = (false, false);
    while let Some(line) = lines.next_line()? {
        let line = line.trim().to_owned();
        let line = line.as_str();
        if lines.is_unfinished() {
            is_unfinished = true;
        } else if line.starts_with(TABLE_HEADER) {
            in_table = true;
        } else if line.starts_with("---") || line.is_empty() {
            in_table = false;
        } else if !in_table {
            log.read_header_line(line);
        } else if log.read_row(line).is_none() {
            let line = quote(line);
            return Err(lines.error(format!("{line} is not a row of '{TABLE_HEADER}, …'")));
        }
    }
    let Some(first) = log.first_sent else {
        return Err(format_error(format!(
            "not a full log of sockperf: no row follows '{TABLE_HEADER}, …'. Try: sockperf … --full-log FILE"
        )));
    };
    let counts = &mut log.recorder.counts;
    counts.sent = counts.received.saturating_add(counts.lost);
    let mut figures = log.recorder.latency_figures(&about.late_limits);
    figures.counts.said_zeros = log.said_zeros;
    let mut warnings = log.loss_warning(figures.counts.received);
    if !warnings.is_empty() {
        figures.counts.forget_losses();
    }
    warnings.extend(is_unfinished.then(unfinished_line));
    let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
    case.protocol = "sockperf".to_owned();
    case.message_bytes = log.message_bytes.unwrap_or(0);
    case.elapsed_ns = log.last_received.since(first).as_nanos() as u64;
    case.series = log.recorder.time_series.entries(case.elapsed_ns);
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "sockperf".to_owned(),
        // The times of the log start at zero with the run.
        started: None,
        elapsed_ns: case.elapsed_ns,
        cases: vec![case],
        warnings,
    }))
}

impl FullLog {
    fn read_header_line(&mut self, line: &str) {
        if let Some(size) = number_after(line, "--msg-size=") {
            self.message_bytes = self.message_bytes.or(u32::try_from(size).ok());
        }
        if line.contains("[Valid Duration]") {
            let replies = number_after(line, "ReceivedMessages=").unwrap_or(0);
            self.valid_replies = self.valid_replies.saturating_add(replies);
        }
        let counts = &mut self.recorder.counts;
        for (words, count, name) in [
            ("# dropped messages = ", &mut counts.lost, "lost"),
            ("# duplicated messages = ", &mut counts.duplicate, "duplicate"),
            ("# out-of-order messages = ", &mut counts.reordered, "reordered"),
        ] {
            if !line.contains(words) {
                continue;
            }
            self.counts_drops = true;
            self.said_zeros.insert(name);
            match number_after(line, words) {
                // The sum over several servers.
                Some(number) => *count = count.saturating_add(number),
                None => self.has_wrong_count = true,
            }
        }
    }

    /// Warning about losses. `rows`: the replies that the log lists.
    fn loss_warning(&self, rows: u64) -> Vec<Warning> {
        let text = match (self.counts_drops, self.has_wrong_count) {
            (true, false) if self.valid_replies > rows => format!(
                "the log has {rows} of {} replies, so the losses are unknown: its end is missing",
                self.valid_replies
            ),
            (true, false) => return Vec::new(),
            (_, true) => "a count of the summary is impossible, so no loss is known".to_owned(),
            (false, false) => "the log has no summary, so no loss is known".to_owned(),
        };
        let remedy = "import the whole file that sockperf wrote after its end";
        vec![Warning::new(WarningCode::LossesUnknown, text, remedy)]
    }

    /// Reads a row; `None` if it is invalid.
    fn read_row(&mut self, line: &str) -> Option<()> {
        let mut cells = line.split(',').map(str::trim);
        let sequence = cells.next()?.parse().ok()?;
        let (sent, received) = (parse_seconds(cells.next()?)?, parse_seconds(cells.next()?)?);
        if received < sent {
            return None;
        }
        if self.first_sent.is_none() {
            self.first_sent = Some(sent);
            self.recorder.begin(sent);
        }
        self.recent.record(&mut self.recorder, Sample { sequence, intended: sent, sent, received });
        self.last_received = self.last_received.max(received);
        Some(())
    }
}

/// The integer after these words; at most 2^53, so that sums do not overflow.
fn number_after(line: &str, words: &str) -> Option<u64> {
    let (_, rest) = line.split_once(words)?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    rest[..digits].parse().ok().filter(|number| *number < 1 << 53)
}

/// Parses seconds with up to nine decimals, exactly; at most a hundred years.
fn parse_seconds(text: &str) -> Option<Time> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits =
        |text: &str| (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(());
    digits(whole).and_then(|()| digits(part)).filter(|()| part.len() <= 9)?;
    let whole: u64 = whole.parse().ok().filter(|seconds| *seconds < 3_200_000_000)?;
    let part: u64 = format!("{part:0<9}").parse().ok()?;
    Some(Time(whole * 1_000_000_000 + part))
}
