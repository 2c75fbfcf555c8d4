//! The text output of `ping`: of Linux (iputils, busybox), macOS, the BSDs and Windows. Each target makes one case.
//!
//! Where each reply has its line, the figures are those of the replies. Of quiet output (`-q`) only the summary is known, and it
//! counts where it has a deviation, as that of iputils and the BSDs; it has no percentiles. Losses are those of the summary.

use std::io::BufRead;
use std::sync::Arc;

use super::line_reader::{LineReader, quote};
use super::{ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error};
use crate::clock::Time;
use crate::plan::Direction;
use crate::run::{CaseResult, Distribution, Warning, WarningCode};
use crate::sample::{RecordedTimes, Recorder, Sample};

pub(crate) const FORMAT: ImportFormat =
    ImportFormat { name: "ping", summary: "text output of ping (Linux, busybox, macOS, BSD, Windows)", read };

const MAX_LINE_BYTES: u64 = 4096;
/// A day: no real ping waits longer.
const MAX_LATENCY_MS: f64 = 86_400_000.0;
/// Maximum number of targets in one file.
const MAX_CASES: usize = 1000;
/// Larger counts are no counts.
const MAX_COUNT: u64 = 1 << 53;

/// The output about one target.
struct PingTarget {
    name: String,
    message_bytes: u32,
    recorder: Recorder,
    /// Requests sent and replies received, of the summary.
    counted: Option<(u64, u64)>,
    duplicates: u64,
    /// Smallest, mean and largest time of the summary, and its deviation, in ms.
    summary: Option<[f64; 4]>,
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut targets: Vec<PingTarget> = Vec::new();
    while let Some(line) = lines.next_line()? {
        let line = line.trim();
        if let Some(target) = PingTarget::of_heading(line) {
            targets.push(target);
            if targets.len() > MAX_CASES {
                return Err(lines.error(format!("more than {MAX_CASES} targets")));
            }
        } else if let Some(target) = targets.last_mut() {
            target.read_line(line);
        }
    }
    if targets.is_empty() {
        return Err(format_error(
            "not the output of ping in English: no line begins with 'PING' or 'Pinging'. Try: LC_ALL=C ping",
        ));
    }
    let (mut warnings, mut cases) = (Vec::new(), Vec::new());
    for target in targets {
        let (case, warning) = target.into_case(about)?;
        warnings.extend(warning);
        cases.push(case);
    }
    warnings.dedup();
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "ping".to_owned(),
        started: None,
        elapsed_ns: 0,
        cases,
        warnings,
    }))
}

impl PingTarget {
    /// `PING gw (192.0.2.1) 56(84) bytes of data.`, `PING gw (192.0.2.1): 56 data bytes`,
    /// `Pinging gw [192.0.2.1] with 32 bytes of data:`.
    fn of_heading(line: &str) -> Option<PingTarget> {
        let rest = line.strip_prefix("PING ").or_else(|| line.strip_prefix("Pinging "));
        let rest = rest.or_else(|| Some(line.strip_prefix("PING6(")?.split_once("--> ")?.1))?;
        // Before an address in brackets, which may follow without a space.
        let name = rest.split_whitespace().next()?.split('(').next()?.trim_end_matches(':');
        let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        // The payload is the last number before "bytes" or "data bytes", without the headers in brackets.
        let before_bytes = rest.split(" bytes").next()?.trim_end_matches(" data");
        let size = before_bytes.rsplit([' ', ':']).next()?.split('(').next()?;
        Some(PingTarget {
            name,
            message_bytes: size.parse().ok().filter(|size| *size <= 1 << 20).unwrap_or(0),
            recorder: Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None),
            counted: None,
            duplicates: 0,
            summary: None,
        })
    }

    fn read_line(&mut self, line: &str) {
        let lower = line.to_ascii_lowercase();
        if let Some(counted) = transmitted_and_received(&lower) {
            self.counted = Some(counted);
        } else if let Some(summary) = times_of_summary(&lower) {
            self.summary = Some(summary);
        } else if let Some(milliseconds) = time_of_reply(&lower) {
            if lower.contains("dup!") {
                self.duplicates += 1;
                return;
            }
            let received = Time((milliseconds * 1e6).round() as u64);
            let sequence = self.recorder.counts.received;
            self.recorder.record_reply(Sample { sequence, intended: Time(0), sent: Time(0), received }, 0);
        }
    }

    /// The case, and what is doubtful about it.
    fn into_case(mut self, about: &ImportOptions) -> Result<(CaseResult, Option<Warning>), ImportError> {
        let replies = self.recorder.counts.received;
        // A summary with fewer replies than there are lines is another target's, or false.
        let counted = self.counted.filter(|(sent, received)| received <= sent && *received >= replies);
        if replies == 0 && counted.is_none() {
            return Err(format_error(format!(
                "the output of ping about {} has neither a reply nor a summary",
                quote(&self.name)
            )));
        }
        if let Some((sent, received)) = counted {
            self.recorder.counts.lost = sent - received;
        }
        self.recorder.counts.duplicate = self.duplicates;
        let mut figures = self.recorder.latency_figures(&about.late_limits);
        let mut warning = None;
        match counted {
            Some((sent, received)) => (figures.counts.sent, figures.counts.received) = (sent, received),
            None => {
                figures.counts.forget_losses();
                warning = Some(Warning::new(
                    WarningCode::LossesUnknown,
                    "the output of ping has no summary, so what was lost is unknown",
                    "end ping with Ctrl-C or -c, so that it prints its summary",
                ));
            }
        }
        let is_listed = counted.is_none_or(|(_, received)| received == replies);
        if !is_listed {
            // Some replies have no line: the figures of the summary cover all of them.
            figures.times = Default::default();
            (figures.histogram_hdr_v2, figures.within_run_intervals) = Default::default();
            let received = figures.counts.received;
            let times = self.summary.and_then(|times| distribution(times, received));
            figures.times.latency_ns = Some(times.ok_or_else(|| {
                let name = quote(&self.name);
                format_error(format!(
                    "the output of ping about {name} lists {replies} of {received} replies, and its summary has no \
                     deviation: run ping without -q"
                ))
            })?);
        }
        figures.delivery.messages_per_second = None;
        let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
        case.protocol = "echo".to_owned();
        case.endpoint = about.endpoint.clone().unwrap_or_else(|| format!("icmp://{}", self.name));
        case.message_bytes = about.message_bytes.unwrap_or(self.message_bytes);
        Ok((case, warning))
    }
}

/// The distribution that a summary holds. Its percentiles are not known.
fn distribution([min, mean, max, deviation]: [f64; 4], count: u64) -> Option<Distribution> {
    let nanoseconds = |milliseconds: f64| (milliseconds * 1e6).round();
    (count > 0 && min <= mean && mean <= max).then(|| Distribution {
        count,
        min: nanoseconds(min) as u64,
        mean: nanoseconds(mean),
        standard_deviation: nanoseconds(deviation),
        max: nanoseconds(max) as u64,
        mean_fastest_95_percent: None,
        percentiles: Default::default(),
        later_than_ms: Default::default(),
    })
}

/// `4 packets transmitted, 3 received, 25% packet loss`, `4 packets transmitted, 3 packets received`,
/// `Packets: Sent = 4, Received = 3, Lost = 1 (25% loss),`.
fn transmitted_and_received(line: &str) -> Option<(u64, u64)> {
    let number_before = |words: &str| {
        let (before, _) = line.split_once(words)?;
        before.split([' ', ',']).rfind(|word| !word.is_empty())?.parse::<u64>().ok()
    };
    let number_after = |words: &str| {
        let (_, after) = line.split_once(words)?;
        after.split([' ', ',']).next()?.parse::<u64>().ok()
    };
    let sent = number_before(" packets transmitted").or_else(|| number_after("sent = "))?;
    let received = number_after("received = ")
        .or_else(|| number_before(" packets received"))
        .or_else(|| number_before(" received"))?;
    (sent < MAX_COUNT && received < MAX_COUNT).then_some((sent, received))
}

/// `rtt min/avg/max/mdev = 0.031/0.042/0.061/0.012 ms`, `round-trip min/avg/max/stddev = …`. `None` without a deviation.
fn times_of_summary(line: &str) -> Option<[f64; 4]> {
    let is_time = |time: &f64| (0.0..MAX_LATENCY_MS).contains(time);
    let (_, after) = line.split_once("min/avg/max")?.1.split_once("= ")?;
    let numbers = after.split_whitespace().next()?.split('/').map(parse_decimal);
    let numbers: [f64; 4] = numbers.collect::<Option<Vec<f64>>>()?.try_into().ok()?;
    numbers.iter().all(is_time).then_some(numbers)
}

/// A number, also with the decimal comma that ping writes in some languages.
fn parse_decimal(text: &str) -> Option<f64> {
    text.replace(',', ".").parse().ok()
}

/// The time of `64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=0.031 ms` or `Reply from 192.0.2.1: bytes=32 time<1ms TTL=64`,
/// in ms. A time below a limit counts as the limit.
fn time_of_reply(line: &str) -> Option<f64> {
    let is_reply = line.contains(" bytes from ") || line.contains("bytes=");
    let (_, after) = line.split_once("time=").or_else(|| line.split_once("time<"))?;
    let digits = after.find(|c: char| !c.is_ascii_digit() && !".,".contains(c)).unwrap_or(after.len());
    let time = parse_decimal(&after[..digits])?;
    let unit = after[digits..].trim_start();
    let milliseconds = if unit.starts_with("ms") || unit.is_empty() {
        time
    } else if unit.starts_with("us") || unit.starts_with('µ') {
        time / 1e3
    } else {
        time * 1e3
    };
    (is_reply && milliseconds < MAX_LATENCY_MS).then_some(milliseconds)
}

#[cfg(test)]
mod tests;
