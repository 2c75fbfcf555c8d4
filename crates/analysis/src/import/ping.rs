//! The text output of `ping`: of Linux (iputils, busybox), macOS, the BSDs and Windows, in English or German, of fping -c and -C, and
//! of hping3. Each target makes one case.
//!
//! Where each reply has its line, the figures are those of the replies. Of quiet output (`-q`) only the summary is known; it has no
//! percentiles, and that of busybox and fping no deviation. Losses are those of the summary.
//! Windows counts messages of routers as received; here such a request is lost. A summary with other replies than the lines counts
//! for nothing.

mod fping;
mod hping;

use std::io::BufRead;

use super::line_reader::{LineReader, only_unfinished_line, quote, unfinished_line};
use super::neighbours::{RecentTimes, sample_of_duration};
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, below, format_error,
    latency_recorder,
};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Distribution, Warning, WarningCode};
use linkgauge_model::sample::Recorder;

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "ping",
    summary: "text output of ping (Linux, busybox, macOS, BSD, Windows), fping and hping3",
    flags: &[],
    read,
};

const MAX_LINE_BYTES: u64 = 4096;
/// Start of the URL of a host that replies to echo requests.
const ICMP: &str = "icmp://";
/// A day: no real ping waits longer.
const MAX_LATENCY_MS: f64 = 86_400_000.0;
/// Maximum number of targets in one file.
const MAX_CASES: usize = 1000;
/// Rounding of the percentage of a summary.
const MAX_PERCENT_ERROR: f64 = 1.0;
/// Maximum of a count; larger numbers are no counts.
const MAX_COUNT: u64 = 1 << 53;

/// Smallest, mean and largest time of a summary, and its deviation if it has one, in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TimesOfSummary {
    least_mean_most: [f64; 3],
    deviation: Option<f64>,
}

/// The output about one target.
struct PingTarget {
    name: String,
    /// Start of the URL of the link: how the requests are sent.
    link: &'static str,
    message_bytes: u32,
    recorder: Recorder,
    recent: RecentTimes,
    /// Failures before the last reply.
    failed_before: u64,
    /// Requests sent and replies received, of the summary, and the percentage that it calls lost.
    counted: Option<(u64, u64)>,
    lost_percent: Option<f64>,
    /// Replies whose line has no time, or one that cannot be true, and the first of those.
    untimed: u64,
    impossible_time: Option<String>,
    /// Largest limit of the replies of which only a limit is known.
    limit_ns: Option<u64>,
    duplicates: u64,
    /// Replies with changed content, as the summary counts them.
    corrupted: u64,
    /// Requests of which a line says that they got no reply, and those of them that Windows counts as received.
    failed: u64,
    rejected: u64,
    /// The program writes a line about each request, as Windows and fping do.
    lists_failures: bool,
    /// The times of the summary.
    summary: Option<TimesOfSummary>,
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut targets: Vec<PingTarget> = Vec::new();
    let mut warnings = Vec::new();
    while let Some(line) = lines.next_lossy_line()? {
        let line = line.into_owned();
        let line = line.trim();
        if lines.is_unfinished() && !ends_whole(line) {
            warnings.push(unfinished_line());
        } else if let Some(target) = PingTarget::of_heading(line) {
            targets.push(target);
        } else if let Some(heading) = hping::parse_heading(line) {
            hping::add(&mut targets, heading);
        } else if let Some((name, event)) = fping::parse_line(line) {
            fping::add(&mut targets, name, event);
        } else if let Some(target) = targets.last_mut() {
            target.read_line(line);
        }
        if targets.len() > MAX_CASES {
            return Err(lines.error(format!("more than {MAX_CASES} targets")));
        }
    }
    if targets.is_empty() && !warnings.is_empty() {
        return Err(only_unfinished_line());
    }
    if targets.is_empty() {
        return Err(format_error(
            "not the output of ping in English or German: no line begins with 'PING' or 'Pinging'. Try: LC_ALL=C ping",
        ));
    }
    let (mut cases, mut failures) = (Vec::new(), Vec::new());
    let count = targets.len();
    for target in targets {
        match target.into_case(about) {
            Ok((case, warning)) => {
                warnings.extend(warning);
                cases.push(case);
            }
            Err(error) => failures.push(error),
        }
    }
    let failed = failures.len();
    if let Some(error) = failures.into_iter().next() {
        if cases.is_empty() {
            return Err(error);
        }
        let text = format!("{failed} of {count} targets in the file have no result: {error}");
        warnings.push(Warning::new(WarningCode::Incomplete, text, "measure them again if they matter"));
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
    pub fn new(name: String, message_bytes: Option<u32>) -> PingTarget {
        PingTarget {
            name,
            link: ICMP,
            message_bytes: message_bytes.filter(|size| *size <= 1 << 20).unwrap_or(0),
            recorder: latency_recorder(),
            recent: RecentTimes::default(),
            failed_before: 0,
            counted: None,
            lost_percent: None,
            untimed: 0,
            impossible_time: None,
            limit_ns: None,
            duplicates: 0,
            corrupted: 0,
            failed: 0,
            rejected: 0,
            lists_failures: false,
            summary: None,
        }
    }

    /// `PING gw (192.0.2.1) 56(84) bytes of data.`, `PING gw (192.0.2.1): 56 data bytes`,
    /// `Pinging gw [192.0.2.1] with 32 bytes of data:`, `Ping wird ausgeführt für gw [192.0.2.1] mit 32 Bytes Daten:`.
    fn of_heading(line: &str) -> Option<PingTarget> {
        // The encoding of the umlauts is that of a console.
        let german = || line.strip_prefix("Ping wird ausgef")?.splitn(3, ' ').nth(2);
        let of_windows = line.strip_prefix("Pinging ").or_else(german);
        let rest = of_windows.or_else(|| line.strip_prefix("PING "));
        let rest = rest.or_else(|| Some(line.strip_prefix("PING6(")?.split_once("--> ")?.1))?;
        // Before an address in brackets, which may follow without a space.
        let name = rest.split_whitespace().next()?.split('(').next()?.trim_end_matches(':');
        // The payload is the last number before "bytes" or "data bytes", without the headers in brackets.
        let lower = rest.to_ascii_lowercase().replace(" datenbytes", " bytes");
        let before_bytes = lower.split(" bytes").next()?.trim_end_matches(" data");
        let size = before_bytes.rsplit([' ', ':']).next()?.split('(').next()?;
        let target = PingTarget::new(host_of_url(name), size.parse().ok());
        Some(PingTarget { lists_failures: of_windows.is_some(), ..target })
    }

    fn read_line(&mut self, line: &str) {
        let lower = line.to_ascii_lowercase();
        if let Some(counted) = transmitted_and_received(&lower) {
            (self.counted, self.lost_percent) = (Some(counted), lost_percent(&lower));
            self.corrupted = number_before(&lower, " corrupted").unwrap_or(0);
        } else if let Some(summary) = times_of_summary(&lower) {
            self.summary = Some(summary);
        } else if let Some(time) = time_of_reply(&lower) {
            if lower.contains("dup!") {
                self.duplicates += 1;
            } else {
                self.add_timed(number_of_reply(&lower), time);
            }
        } else if is_windows_reply(&lower) {
            (self.failed, self.rejected) = (self.failed + 1, self.rejected + 1);
        } else if is_failure(&lower) {
            self.failed += 1;
        }
    }

    fn add_timed(&mut self, number: Option<u64>, time: ReplyTime) {
        match time {
            ReplyTime::Is(milliseconds) => self.add_reply(number, milliseconds),
            ReplyTime::Below(limit_ns) => {
                self.limit_ns = self.limit_ns.max(Some(limit_ns));
                self.add_reply(number, 0.0);
            }
            ReplyTime::Missing => self.untimed += 1,
            ReplyTime::Impossible(text) => {
                self.untimed += 1;
                self.impossible_time.get_or_insert(text);
            }
        }
    }

    /// Adds a reply. Output without numbers has the requests in order, with a line for each lost one.
    fn add_reply(&mut self, number: Option<u64>, milliseconds: f64) {
        let number = match number {
            Some(number) => self.recent.unwrapped(number),
            None => self.recent.next(self.failed - self.failed_before),
        };
        self.failed_before = self.failed;
        let sample = sample_of_duration(number, (milliseconds * 1e6).round() as u64);
        self.recent.record(&mut self.recorder, sample);
    }

    /// Number of sent requests and of received replies; a warning if they are not known.
    fn counts(&self) -> Result<(u64, u64), Warning> {
        let replies = self.recorder.counts.received + self.untimed;
        let Some((sent, received)) = self.counted else {
            if self.lists_failures {
                return Ok((replies + self.failed, replies));
            }
            return Err(Warning::new(
                WarningCode::LossesUnknown,
                "the output of ping has no summary, so what was lost is unknown",
                "end ping with Ctrl-C or -c, so that it prints its summary",
            ));
        };
        let contradiction =
            |text| Warning::new(WarningCode::Contradiction, text, "check the file, or measure again");
        if let Some(text) = self.impossible_counts(sent, received) {
            return Err(contradiction(text));
        }
        let wrong_percent = self.wrong_percent(sent, received);
        let received = match received >= replies + self.rejected {
            true => received - self.rejected,
            false => received,
        };
        // All replies have a line, or the summary has the figures of those without one.
        let is_listed = received == replies || received > replies && self.summary.is_some();
        if received <= sent && (is_listed || replies == 0) {
            return wrong_percent.map_or(Ok((sent, received)), |text| Err(contradiction(text)));
        }
        let name = quote(&self.name);
        Err(Warning::new(
            WarningCode::Contradiction,
            format!(
                "the summary of ping about {name} has {received} replies to {sent} requests, and {replies} replies are \
                 listed, so the losses are unknown"
            ),
            "check that the file holds the whole output of one ping after another",
        ))
    }

    fn impossible_counts(&self, sent: u64, received: u64) -> Option<String> {
        let name = quote(&self.name);
        (sent.max(received) >= MAX_COUNT).then(|| {
            format!(
                "the summary of ping about {name} has impossible counts ({sent} sent, {received} received), so the losses \
                 are unknown"
            )
        })
    }

    /// The percentage of the summary contradicts its counts.
    fn wrong_percent(&self, sent: u64, received: u64) -> Option<String> {
        let name = quote(&self.name);
        let percent = self.lost_percent.filter(|_| sent > 0 && received <= sent)?;
        let counted = 100.0 * (sent - received) as f64 / sent as f64;
        ((percent - counted).abs() > MAX_PERCENT_ERROR).then(|| {
            format!(
                "the summary of ping about {name} calls {percent} % lost, but {received} of {sent} were received, so the \
                 losses are unknown"
            )
        })
    }

    /// Warning with the reason why the times are left out although there are replies.
    fn untimed_warning(&self) -> Warning {
        let name = quote(&self.name);
        match &self.impossible_time {
            Some(text) => Warning::new(
                WarningCode::Contradiction,
                format!("ping about {name} prints the impossible time {}, so no time counts", quote(text)),
                "check the file, or measure again while no program sets the clock",
            ),
            None => Warning::new(
                WarningCode::SkippedText,
                format!(
                    "the replies of ping about {name} have no times: its messages are too short for them"
                ),
                "measure with -s 16 or more",
            ),
        }
    }

    /// Warning that some replies have no line.
    fn lines_missing(&self, listed: u64, received: u64) -> Warning {
        let name = quote(&self.name);
        let text = format!(
            "ping about {name} lists {listed} of {received} replies, so the times are those of its summary"
        );
        Warning::new(WarningCode::SkippedText, text, "import the whole output of ping for percentiles")
    }

    /// Warning that there are no times although there are replies: they have no line, and the times of the summary cannot be
    /// true.
    fn impossible_summary(&self, received: u64) -> Warning {
        let (name, replies) = (quote(&self.name), self.recorder.counts.received);
        let times = self.summary.map_or(String::new(), |times| {
            let [least, mean, most] = times.least_mean_most;
            format!(", and the times of its summary cannot be true (min {least}, avg {mean}, max {most} ms)")
        });
        let text =
            format!("ping about {name} lists {replies} of {received} replies{times}, so there are no times");
        match self.summary {
            Some(_) => Warning::new(WarningCode::Contradiction, text, "check the file, or measure again"),
            None => Warning::new(WarningCode::SkippedText, text, "import the whole output of ping"),
        }
    }

    /// Names the link that the requests used.
    fn name_link(&self, case: &mut CaseResult, about: &ImportOptions) {
        if self.link == ICMP {
            case.protocol = "echo".to_owned();
        }
        case.endpoint = about.endpoint.clone().unwrap_or_else(|| format!("{}{}", self.link, self.name));
    }

    /// The case, and what is doubtful about it.
    fn into_case(mut self, about: &ImportOptions) -> Result<(CaseResult, Option<Warning>), ImportError> {
        let replies = self.recorder.counts.received + self.untimed;
        let counted = self.counts();
        if let Err(warning) = &counted
            && replies == 0
        {
            let name = quote(&self.name);
            return Err(format_error(match self.counted {
                Some(_) => warning.text.clone(),
                None => format!(
                    "the output of ping about {name} has neither a reply nor a summary in English or German. Try: LC_ALL=C ping"
                ),
            }));
        }
        if let Ok((sent, received)) = counted {
            self.recorder.counts.lost = sent - received;
        }
        (self.recorder.counts.duplicate, self.recorder.counts.corrupt_messages) =
            (self.duplicates, self.corrupted);
        let (mut figures, limited) =
            below::latency_figures(&mut self.recorder, &about.late_limits, self.limit_ns);
        // Each program marks duplicates.
        figures.counts.said_zeros.insert("duplicate");
        match counted {
            Ok((sent, received)) => (figures.counts.sent, figures.counts.received) = (sent, received),
            Err(_) => {
                figures.counts.received = replies;
                figures.counts.forget_losses();
            }
        }
        let received = figures.counts.received;
        if self.untimed > 0 || received != replies {
            figures.times = Default::default();
            (figures.histogram_hdr_v2, figures.within_run_intervals) = Default::default();
        }
        let mut doubt_of_summary = None;
        if self.untimed == 0 && received > replies {
            // Some replies have no line: the figures of the summary cover all of them.
            let times = self.summary.and_then(|times| distribution(times, received));
            doubt_of_summary = match times {
                None => Some(self.impossible_summary(received)),
                // Quiet output lists none.
                Some(_) => (replies > 0).then(|| self.lines_missing(replies, received)),
            };
            figures.times.latency_ns = times;
        }
        figures.delivery.messages_per_second = None;
        let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
        self.name_link(&mut case, about);
        case.message_bytes = about.message_bytes.unwrap_or(self.message_bytes);
        if self.untimed > 0 {
            case.warnings.push(self.untimed_warning());
        } else if let Some(warning) = doubt_of_summary {
            case.warnings.push(warning);
        } else if let Some(limit_ns) = self.limit_ns.filter(|_| received == replies) {
            case.warnings.push(limit_warning(limited, received, limit_ns));
        }
        Ok((case, counted.err()))
    }
}

/// Warning that only a limit of some times is known.
fn limit_warning(limited: u64, received: u64, limit_ns: u64) -> Warning {
    let limit = below::format_limit(limit_ns);
    let text = format!(
        "{limited} of {received} times are known to be below {limit} only and count as {limit}, so the figures are upper \
         bounds"
    );
    Warning::new(WarningCode::UpperBound, text, "measure short links with 'linkgauge latency icmp://HOST'")
}

/// Whether a last line without its line end is whole: the last number of a summary has its unit behind it.
fn ends_whole(line: &str) -> bool {
    line.is_empty()
        || line.contains("% ")
        || line.ends_with('%')
        || line.contains("min/avg/max") && line.ends_with("ms")
}

/// The host of a URL: an IPv6 address stands in brackets there.
fn host_of_url(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}

/// The distribution that a summary holds. Its percentiles are not known. `None` if its times are in no order.
fn distribution(summary: TimesOfSummary, count: u64) -> Option<Distribution> {
    let nanoseconds = |milliseconds: f64| (milliseconds * 1e6).round();
    let [min, mean, max] = summary.least_mean_most;
    (min <= mean && mean <= max).then(|| Distribution {
        count,
        min: nanoseconds(min) as u64,
        mean: nanoseconds(mean),
        // One time has no deviation.
        standard_deviation: summary.deviation.filter(|_| count > 1).map(nanoseconds),
        max: nanoseconds(max) as u64,
        below_ns: None,
        mean_fastest_95_percent: None,
        percentiles: Default::default(),
        later_than_ms: Default::default(),
    })
}

/// `4 packets transmitted, 3 received, 25% packet loss`, `4 packets transmitted, 3 packets received`,
/// `Packets: Sent = 4, Received = 3, Lost = 1 (25% loss),`, `Pakete: Gesendet = 4, Empfangen = 3, Verloren = 1`.
fn transmitted_and_received(line: &str) -> Option<(u64, u64)> {
    let number_after = |words: &str| {
        let (_, after) = line.split_once(words)?;
        parse_count(after.split([' ', ',']).next()?)
    };
    let before = |all: &[&str]| all.iter().find_map(|words| number_before(line, words));
    let after = |all: &[&str]| all.iter().find_map(|words| number_after(words));
    let sent = before(&[" packets transmitted", " pakete übertragen"])
        .or_else(|| after(&["sent = ", "gesendet = "]))?;
    let received = after(&["received = ", "empfangen = "])
        .or_else(|| before(&[" packets received", " received", " empfangen"]))?;
    Some((sent, received))
}

/// The count before these words: `+1 corrupted`.
fn number_before(line: &str, words: &str) -> Option<u64> {
    let (before, _) = line.split_once(words)?;
    parse_count(before.split([' ', ',']).rfind(|word| !word.is_empty())?.trim_start_matches('+'))
}

/// A count; one that is too large is the largest.
fn parse_count(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The percentage in `25% packet loss` or `(25% loss)`.
fn lost_percent(line: &str) -> Option<f64> {
    let (before, _) = line.split_once('%')?;
    let number = before.rsplit(|c: char| !c.is_ascii_digit() && !".,".contains(c)).next()?;
    parse_decimal(number.trim_start_matches(','))
}

/// `rtt min/avg/max/mdev = 0.031/0.042/0.061/0.012 ms`, `round-trip min/avg/max = 0.031/0.042/0.061 ms`, and that of fping.
fn times_of_summary(line: &str) -> Option<TimesOfSummary> {
    let is_time = |time: &f64| (0.0..MAX_LATENCY_MS).contains(time);
    let (_, after) = line.split_once("min/avg/max")?.1.split_once("= ")?;
    let numbers = after.split_whitespace().next()?.split('/').map(|text| parse_decimal(text).filter(is_time));
    let numbers = numbers.collect::<Option<Vec<f64>>>()?;
    let least_mean_most = numbers.get(..3)?.try_into().ok()?;
    (numbers.len() <= 4).then(|| TimesOfSummary { least_mean_most, deviation: numbers.get(3).copied() })
}

/// A number, also with the decimal comma that ping writes in some languages.
fn parse_decimal(text: &str) -> Option<f64> {
    text.replace(',', ".").parse().ok()
}

/// A line of Windows about a message that came back: a reply, or the message of a router, which has no time.
fn is_windows_reply(line: &str) -> bool {
    line.starts_with("reply from ") || line.starts_with("antwort von ")
}

/// A line of Windows about a request without a reply. The encoding of its umlauts is that of a console.
fn is_failure(line: &str) -> bool {
    let is_timeout = line.starts_with("zeit") && line.ends_with("der anforderung.");
    let failures = [
        "request timed out",
        "general failure",
        "allgemeiner fehler",
        "ping: transmit failed",
        "ping: fehler",
    ];
    is_timeout || failures.iter().any(|failure| line.starts_with(failure))
}

/// The number in `icmp_seq=1`, or `seq=1`.
fn number_of_reply(line: &str) -> Option<u64> {
    let (_, after) = line.split_once("seq=")?;
    parse_count(after.split(|c: char| !c.is_ascii_digit()).next()?)
}

/// Time in the line of a reply, in ms.
#[derive(Debug, PartialEq)]
enum ReplyTime {
    Is(f64),
    /// The limit, in ns.
    Below(u64),
    Missing,
    /// The text of the time.
    Impossible(String),
}

/// The time of `64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=0.031 ms` or `Reply from 192.0.2.1: bytes=32 time<1ms TTL=64`.
/// `None` if the line is about no reply.
fn time_of_reply(line: &str) -> Option<ReplyTime> {
    let of_unix = line.contains(" bytes from ") || line.contains(" bytes von ");
    if !of_unix && !is_windows_reply(line) && !hping::is_reply(line) {
        return None;
    }
    let names = ["time=", "time<", "zeit=", "zeit<", " rtt="];
    let Some((name, (_, after))) = names.iter().find_map(|name| Some((name, line.split_once(name)?))) else {
        return (of_unix && line.contains("seq=") && line.contains("ttl=")).then_some(ReplyTime::Missing);
    };
    let impossible = || ReplyTime::Impossible(after.split("ttl=").next().unwrap_or(after).trim().to_owned());
    let digits = after.find(|c: char| !c.is_ascii_digit() && !".,".contains(c)).unwrap_or(after.len());
    let (number, rest) = (&after[..digits], after[digits..].trim_start());
    let unit = rest.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let unit_ns = match unit {
        "" | "ms" | "msec" => Some(1e6),
        "us" | "usec" | "µs" | "μs" => Some(1e3),
        "s" | "sec" => Some(1e9),
        _ => None,
    };
    // `time=nan`, `time=-3 ms`, `time=1e2 ms`.
    let is_word = rest.starts_with(|c: char| c.is_alphanumeric()) || rest.is_empty() || rest.starts_with('(');
    let Some(unit_ns) = unit_ns.filter(|_| is_word) else { return Some(impossible()) };
    let Some(time) = parse_time(number, unit_ns) else { return Some(impossible()) };
    Some(match (name.ends_with('<'), time) {
        (true, ReplyTime::Is(milliseconds)) => ReplyTime::Below((milliseconds * 1e6).round() as u64),
        (_, time) => time,
    })
}

/// The time of a reply. A time of 0 is below the last digit of its text.
fn parse_time(number: &str, unit_ns: f64) -> Option<ReplyTime> {
    let milliseconds = parse_decimal(number)? * unit_ns / 1e6;
    Some(match below::limit_ns(below::step_ns(number, unit_ns)) {
        _ if milliseconds >= MAX_LATENCY_MS => ReplyTime::Impossible(number.to_owned()),
        _ if milliseconds > 0.0 => ReplyTime::Is(milliseconds),
        Some(limit) => ReplyTime::Below(limit),
        None => ReplyTime::Impossible(number.to_owned()),
    })
}

#[cfg(test)]
mod tests;
