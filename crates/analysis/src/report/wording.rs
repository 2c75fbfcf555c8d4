//! Text and figures in the form that all reports share: percentiles, shares, intervals, case numbers, one sentence per
//! case.
//!
//! `units` formats values with units.

mod losses;
mod round_trip_parts;
mod times;

pub(crate) use losses::{LOSS_UNKNOWN, format_loss_count, loss_text};
pub(crate) use round_trip_parts::{common_time_source, one_way_sentence, stages_sentence};
use std::net::{IpAddr, SocketAddr};
pub(crate) use times::{format_deviation, format_mean, format_percentile, format_time_of};

use serde_json::{Map, Value};

use crate::explain::size::SizeFit;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::metric::Metric;
use linkgauge_model::plan::{Direction, WaitMode};
use linkgauge_model::run::{
    CaseResult, Distribution, EARLIER_RUNS_FACT, Figures, MissedFrame, ONE_REPETITION_FACT, Run,
    ThresholdResult,
};
use linkgauge_model::units::{self, format_bit_rate, format_bytes, format_count, format_nanoseconds};
use linkgauge_model::verdict::{Sensitivity, case_sensitivity};

/// Wait mode of client and server; blocking by default.
pub(crate) fn wait_mode(case: &CaseResult) -> WaitMode {
    case.placement.wait.unwrap_or_default()
}

/// Text for a figure that was not measured, or whose sample was too small.
pub(crate) const ABSENT: &str = "–";
/// A percentile that falls among the lost requests.
pub(crate) const LOST_TEXT: &str = "lost";

/// Foreign text without characters that move the cursor, ring the bell, end the line or change the writing direction.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Whether a character has other effects than display: control characters (C0, C1), line and paragraph separators, and invisible
/// or direction-changing characters (Unicode category Cf, except the two joiners that scripts need).
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Shortens a text to at most `width` characters (3 or more), with the middle omitted: `tcp://very…name:7100`.
pub fn shorten(text: &str, width: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= width {
        return text.to_owned();
    }
    // The end contains the port, which distinguishes neighbours.
    let tail = width / 2;
    let head = width.saturating_sub(tail + 1);
    let (head, tail) = (&characters[..head], &characters[characters.len() - tail..]);
    head.iter().chain(['…'].iter()).chain(tail).collect()
}

/// Units that stay on the line of their number.
const UNITS: [&str; 28] = [
    "%", "ns", "µs", "ms", "s", "min", "h", "d", "/", "/s", "B", "kB", "MB", "GB", "TB", "B/s", "kB/s",
    "MB/s", "GB/s", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Hz", "MHz", "ppm", "dBm", "RPM",
];

/// The words of a text. A number with its groups of digits and its unit is one word: `10 000`, `2.5 %`, `20 / s`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches(['.', ',', ';', ':', ')']);
        let is_group = bare.len() == 3 && bare.bytes().all(|byte| byte.is_ascii_digit());
        match words.last_mut() {
            Some(number)
                if number.ends_with(|c: char| c.is_ascii_digit()) && (is_group || UNITS.contains(&bare))
                    || number.ends_with(" /") =>
            {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Wraps text to lines of at most `width` printable characters, never between a number and its unit. The first line
/// starts with `first`, the others with `rest`.
pub fn wrap(text: &str, width: usize, first: &str, rest: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut empty = true;
    for word in words(text) {
        let mut word: Vec<char> = printable(&word).chars().collect();
        while !word.is_empty() {
            let line = lines.last_mut().expect("never empty");
            let room = width.saturating_sub(line.chars().count() + usize::from(!empty));
            if word.len() <= room || (empty && room < 2) {
                if !empty {
                    line.push(' ');
                }
                line.extend(word.drain(..));
                empty = false;
            } else if empty {
                line.extend(word.drain(..room));
                empty = false;
            } else {
                lines.push(rest.to_owned());
                empty = true;
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Converts a text for ASCII terminals. Each character becomes one character, so columns stay aligned.
pub fn to_ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            'µ' => 'u',
            '–' | '−' => '-',
            '×' => 'x',
            '÷' => '/',
            '±' => '~',
            '…' => '~',
            '→' => '>',
            '’' => '\'',
            '·' => '|',
            '▁' => '_',
            '▂' => '.',
            '▃' => ':',
            '▄' => '-',
            '▅' => '=',
            '▆' => '+',
            '▇' => '*',
            '█' => '#',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}

/// Time of the message on the line, one way, in nanoseconds.
pub(crate) fn line_time_ns(case: &CaseResult) -> Option<f64> {
    Some(case.line?.transmission_ns? as f64)
}

/// Maximum payload rate of all lines of the case together, in bits per second.
pub(crate) fn line_limit_bps(case: &CaseResult) -> Option<f64> {
    case.line?.max_payload_bps
}

/// The rate of one line of the case, in bits per second including framing.
pub(crate) fn line_rate_bps(case: &CaseResult) -> Option<f64> {
    Some(case.line?.bits_per_second)
}

/// Percentage of the line rate: `99.9 %`.
pub(crate) fn format_percent(percent: f64) -> String {
    format!("{percent:.1} %")
}

pub(crate) fn median_ns(distribution: Option<&Distribution>) -> Option<u64> {
    distribution.and_then(|distribution| distribution.percentile("p50"))
}

/// Half the 95 % interval (its longer side) as a share of the value: `1.2 %`.
pub(crate) fn format_half_interval(figures: &Figures, name: &str, value: Option<f64>) -> String {
    let (Some(interval), Some(value)) = (figures.intervals.get(name), value) else {
        return ABSENT.to_owned();
    };
    let half = (interval.high - value).max(value - interval.low);
    let percent = half / value.abs() * 100.0;
    if !percent.is_finite() || percent < 0.0 {
        return ABSENT.to_owned();
    }
    match percent {
        p if p < 0.05 => "<0.1 %".to_owned(),
        p if p < 10.0 => format!("{p:.1} %"),
        p if p < 1000.0 => format!("{p:.0} %"),
        _ => ">999 %".to_owned(),
    }
}

/// A share (0 to 1) in percent: `0 %`, `0.12 %`, `50.0 %`.
pub(crate) fn format_share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p < 0.01 => "<0.01 %".to_owned(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

pub(crate) fn format_loss(figures: &Figures) -> String {
    figures.loss_share().map_or(ABSENT.to_owned(), format_share)
}

/// List of cases such as `case 3`, `cases 1–4 and 7`; numbers start at 1.
pub(crate) fn format_case_list(cases: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &case in cases {
        match ranges.last_mut() {
            Some((_, last)) if *last == case => {}
            Some((_, last)) if *last + 1 == case => *last = case,
            _ => ranges.push((case, case)),
        }
    }
    let print = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    let word = if ranges.len() == 1 && ranges[0].0 == ranges[0].1 { "case" } else { "cases" };
    match ranges.as_slice() {
        [] => String::new(),
        [one] => format!("{word} {}", print(one)),
        [start @ .., last] => {
            let start: Vec<String> = start.iter().map(print).collect();
            format!("{word} {} and {}", start.join(", "), print(last))
        }
    }
}

/// The measured value of a threshold.
pub(crate) fn measured_text(judged: &ThresholdResult) -> String {
    match judged.measured.starts_with("not ") {
        true => judged.measured.clone(),
        false => format!("measured {}", judged.measured),
    }
}

/// The failed thresholds, each with its case if there are several, and the number of thresholds met.
pub(crate) fn threshold_results(run: &Run) -> (Vec<String>, usize) {
    let all = run
        .cases
        .iter()
        .zip(1..)
        .flat_map(|(case, number)| case.thresholds.iter().map(move |one| (one, number)));
    let (passed, failed): (Vec<_>, Vec<_>) = all.partition(|(judged, _)| judged.passed);
    let describe = |(judged, number): &(&ThresholdResult, usize)| {
        let case = if run.cases.len() > 1 { format!("case {number}: ") } else { String::new() };
        printable(&format!("{case}{}, {}", judged.threshold, measured_text(judged)))
    };
    (failed.iter().map(describe).collect(), passed.len())
}

/// Formats a count with its word: `3 cases`, `1 case`.
pub(crate) fn plural(count: usize, word: &str) -> String {
    units::format_plural(count as u64, word)
}

/// A statistic of a study with its unit: `latency mean (ms)`.
pub(crate) fn statistic_label(name: &str) -> String {
    const UNITS: [(&str, &str); 9] = [
        ("_kbyte_per_second", "KByte/s"),
        ("_kbit_per_second", "kbit/s"),
        ("_bytes_per_second", "B/s"),
        ("_percent", "%"),
        ("_seconds", "s"),
        ("_bytes", "B"),
        ("_bps", "bit/s"),
        ("_ms", "ms"),
        ("_us", "µs"),
    ];
    let found = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
    found.map_or(name.replace('_', " "), |(name, unit)| format!("{} ({unit})", name.replace('_', " ")))
}

/// Name of the local machine.
pub(crate) fn local_host(run: &Run) -> Option<String> {
    host_name(&run.environment.client)
}

fn host_name(machine: &Map<String, Value>) -> Option<String> {
    let name = ["host", "hostname"].iter().find_map(|key| machine.get(*key))?;
    name.as_str().map(printable)
}

/// Names of both machines. The remote one only if it reported its name and is the same in all cases.
pub(crate) fn host_names(run: &Run) -> Option<String> {
    let local = local_host(run)?;
    let place = |case: &CaseResult| {
        let endpoint: Endpoint = case.endpoint.parse().ok()?;
        Some(endpoint.host_port().ok()?.0.to_owned())
    };
    let first = run.cases.first().and_then(place);
    let one = first.is_some() && run.cases.iter().all(|case| place(case) == first);
    match host_name(&run.environment.server).filter(|remote| one && *remote != local) {
        Some(remote) => Some(format!("{local} → {remote}")),
        None => Some(local),
    }
}

pub(crate) fn format_date(run: &Run) -> String {
    run.started.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Host names and date: `gauge-1 → gauge-2 · 2026-11-20 10:00 UTC`.
pub(crate) fn host_and_date(run: &Run) -> String {
    match host_names(run) {
        Some(hosts) => format!("{hosts} · {}", format_date(run)),
        None => format_date(run),
    }
}

/// The number of scheduled requests that were late, for each limit from the shortest to the first that none exceeded.
pub(crate) fn format_missed_frames(figures: &Figures) -> Option<String> {
    let counts = figures.times.missed_frames.as_ref()?.by_limit();
    let last = counts.iter().position(|(_, count)| *count == 0).unwrap_or(counts.len());
    let each = |&(limit, count): &(&str, u64)| match count {
        0 => format!("none over {} ms", printable(limit)),
        _ => {
            let part = format_share(count as f64 / figures.counts.reference().max(1) as f64);
            format!("{} over {} ms ({part})", format_count(count), printable(limit))
        }
    };
    let parts: Vec<String> = counts.iter().take(last + 1).map(each).collect();
    let lost = if figures.counts.lost > 0 { "; the lost are among them" } else { "" };
    (!parts.is_empty()).then(|| parts.join(", ") + lost)
}

/// The share of late requests, for each limit from the shortest to the first that none exceeded, and the mean of the
/// fastest. `None` if none was late.
pub(crate) fn format_late(figures: &Figures) -> Option<String> {
    let times = figures.times.latency_ns.as_ref()?;
    let mut shares: Vec<(&str, f64)> =
        times.later_than_ms.iter().map(|(limit, part)| (limit.as_str(), *part)).collect();
    let length = |limit: &str| limit.parse().unwrap_or(f64::MAX);
    shares.sort_by(|a, b| length(a.0).total_cmp(&length(b.0)));
    let last = shares.iter().position(|(_, part)| *part == 0.0).unwrap_or(shares.len());
    let each = |(limit, part): &(&str, f64)| format!("{} over {} ms", format_share(*part), printable(limit));
    let parts: Vec<String> = shares.iter().take(last).map(each).collect();
    let lost = if figures.counts.lost > 0 { "; the lost are among them" } else { "" };
    let mean = times.mean_fastest_95_percent.map(format_nanoseconds);
    let mean = mean.map_or(String::new(), |mean| format!(". Mean of the fastest 95 %: {mean}"));
    (!parts.is_empty()).then(|| parts.join(", ") + lost + &mean)
}

/// The first missed frames: repetition if there were several, number, due time, and response time.
pub(crate) fn format_first_missed_frames(figures: &Figures) -> Option<String> {
    const SHOWN: usize = 3;
    let first = &figures.times.missed_frames.as_ref()?.first;
    let each = |frame: &MissedFrame| {
        let due = format_nanoseconds(frame.due_ns as f64);
        let response = frame
            .response_ns
            .map_or(LOST_TEXT.to_owned(), |ns| format!("+{}", format_nanoseconds(ns as f64)));
        let repetition = frame.repetition.map_or(String::new(), |number| format!("repetition {number}, "));
        format!("{repetition}{} at {due}: {response}", frame.sequence)
    };
    let more = first.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; {more} more in the document") } else { String::new() };
    (!first.is_empty()).then(|| first.iter().take(SHOWN).map(each).collect::<Vec<_>>().join("; ") + &more)
}

/// Explains the fit lines.
pub(crate) const FIT_NOTE: &str = "fit: time of a message (of a latency: the median) = overhead + size ÷ rate; half: the size with half of that rate; \
     last: between the two largest sizes, =: share of the line rate. linkgauge explain shows more.";

/// A line for each fit with cases among these: `fit 4–7: 21.21 µs + size ÷ 91.64 MB/s …`.
pub(crate) fn fit_lines(fits: &[SizeFit], cases: &[usize]) -> Vec<String> {
    let here =
        |fit: &&SizeFit| fit.rows.iter().any(|row| row.sample.case.is_some_and(|case| cases.contains(&case)));
    fits.iter()
        .filter(here)
        .map(|fit| format!("fit {}: {}", fit.case_numbers().unwrap_or_default(), fit.summary_line()))
        .collect()
}

/// The range of the repetitions: `per run: 12.40 µs … 15.41 µs`; `None` with one repetition.
pub(crate) fn per_run_text(case: &CaseResult) -> Option<String> {
    let metric = Metric::headline(case);
    let values = case.repeats.iter().filter_map(|part| metric.value_of_part(case, &part.figures));
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let print = |value: f64| metric.unit().format(value);
    (case.repeats.len() > 1 && low <= high).then(|| format!("per run: {} … {}", print(low), print(high)))
}

/// Notes on the reason why a case has no interval, and on the smallest change that a comparison with another run like it would
/// show.
pub(crate) fn repetition_notes(case: &CaseResult) -> Vec<String> {
    let reason = case.requested.get(ONE_REPETITION_FACT).and_then(Value::as_str);
    let reason = reason.filter(|_| case.figures.intervals.is_empty()).map(|reason| {
        format!("One repetition, so the figures have no interval: {reason}. --repeat 10 measures ten times as long.")
    });
    let sensitivity = case_sensitivity(case).map(|sensitivity| {
        let Sensitivity { smallest_change, with_repetitions, would_show } = sensitivity;
        let repetitions = case.repeats.len();
        let smallest = smallest_change
            .map(|change| format!("{} with --repeat {repetitions}, ", format_change(change)))
            .unwrap_or_default();
        format!(
            "Smallest change that a comparison would show in 4 of 5 cases: {smallest}{} with --repeat \
             {with_repetitions}, if repetitions differ as much as here.",
            format_change(would_show)
        )
    });
    reason.into_iter().chain(sensitivity).collect()
}

/// A share that is not signed: `3.4 %`, `14 %`.
pub(crate) fn format_change(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// The sample that a case's interval refers to.
pub(crate) fn interval_basis(case: &CaseResult) -> String {
    let earlier = case.effective.get(EARLIER_RUNS_FACT).and_then(Value::as_u64);
    if case.repeats.len() < 2 && !case.figures.intervals.contains_key("throughput_bps") {
        return "within the run".to_owned();
    }
    match (case.repeats.len(), earlier) {
        (0 | 1, Some(runs)) => {
            format!("by the course of the transfer and the differences among {runs} earlier runs")
        }
        (0 | 1, None) => "by the course of the transfer and the usual difference between runs".to_owned(),
        (repeats, Some(runs)) => {
            format!("by {repeats} repetitions and the differences among {runs} earlier runs")
        }
        (repeats, None) => format!("over {repeats} repetitions"),
    }
}

/// Whether the case is a download by request and reply, whose round trips are shown beside the rate.
pub(crate) fn is_download(case: &CaseResult) -> bool {
    case.figures.requests.is_some()
}

/// The direction of the payload, as users see it.
pub(crate) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "upload",
        Direction::Receive => "download",
        Direction::Both => "both",
        Direction::Loop => "loop",
    }
}

/// A time for a sentence, with three significant digits: `13.6 µs`.
pub(crate) fn brief_time(nanoseconds: f64) -> String {
    three_digits(nanoseconds, format_nanoseconds)
}

/// Formats an elapsed time for a sentence: whole seconds from ten on.
pub(crate) fn brief_elapsed(nanoseconds: u64) -> String {
    const WHOLE_SECONDS_NS: u64 = 10_000_000_000;
    match nanoseconds {
        0..WHOLE_SECONDS_NS => brief_time(nanoseconds as f64),
        _ => format!("{:.0} s", nanoseconds as f64 / 1e9),
    }
}

/// A rate for a sentence, with three significant digits: `93.8 Mbit/s`.
pub(crate) fn brief_rate(bits_per_second: f64) -> String {
    three_digits(bits_per_second, format_bit_rate)
}

/// `format` prints four digits, the last of which is zero here.
fn three_digits(value: f64, format: fn(f64) -> String) -> String {
    if value == 0.0 || !value.is_finite() {
        return format(value);
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    let text = format(if rounded.is_finite() { rounded } else { value });
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number[..number.len() - 1].trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A message size: `64 B`, `1.4 kB`.
pub(crate) fn brief_bytes(bytes: u64) -> String {
    // Larger sizes need no fourth digit.
    const EXACT_BYTES: u64 = 10_000;
    let text = match bytes {
        0..EXACT_BYTES => format_bytes(bytes),
        _ => three_digits(bytes as f64, |bytes| format_bytes(bytes as u64)),
    };
    units::trim_zeros(&text)
}

/// The kind of link and the target of a case: `TCP`, and `gw:7100 (echo) over 4 connections`.
pub(crate) fn link_and_target(case: &CaseResult) -> (String, String) {
    const LONGEST_ABBREVIATION: usize = 4;
    // The name of an imported file says nothing about the link.
    let is_name = case.is_imported() && !case.endpoint.contains("://");
    let (link, mut target) = match case.endpoint.parse::<Endpoint>() {
        _ if is_name => (String::new(), printable(&case.endpoint)),
        Ok(endpoint) if endpoint.scheme().len() <= LONGEST_ABBREVIATION => {
            (endpoint.scheme().to_uppercase(), printable(endpoint.address()))
        }
        Ok(endpoint) => (endpoint.scheme().to_owned(), printable(endpoint.address())),
        Err(_) => (String::new(), printable(&case.endpoint)),
    };
    if case.ports > 1 {
        target += &format!(" and {} more", plural(case.ports as usize - 1, "port"));
    }
    // For responsiveness, the plan has the largest number only.
    let used = case.figures.responsiveness.map(|result| result.load_connections as u32);
    let connections = used.unwrap_or(case.parallel);
    if connections > 1 {
        let unit =
            if ["connect", "path"].contains(&case.workload.as_str()) { "flows" } else { "connections" };
        target += &format!(" over {connections} {unit}");
    }
    let mut details = Vec::from_iter(address_of_name(case).map(|address| address.to_string()));
    if !UNMENTIONED_PROTOCOLS.contains(&case.protocol.as_str()) && !link.eq_ignore_ascii_case(&case.protocol)
    {
        details.push(printable(&case.protocol));
    }
    if wait_mode(case) == WaitMode::BusyPoll {
        details.push("busy-poll".to_owned());
    }
    if !details.is_empty() {
        target += &format!(" ({})", details.join(", "));
    }
    (link, target)
}

/// The address that was measured, if the endpoint has a name instead.
fn address_of_name(case: &CaseResult) -> Option<IpAddr> {
    let endpoint: Endpoint = case.endpoint.parse().ok()?;
    let (host, _) = endpoint.host_port().ok()?;
    let remote = case.effective.get("remote")?.as_str()?;
    let address = remote.parse::<SocketAddr>().map(|remote| remote.ip()).or_else(|_| remote.parse()).ok()?;
    host.parse::<IpAddr>().is_err().then_some(address).filter(|_| !host.contains('%'))
}

/// The protocols that need no mention: the default, none, one that was not detected, and one that a file does not name.
const UNMENTIONED_PROTOCOLS: [&str; 4] = ["linkgauge", "none", "auto", "unknown"];

/// The extent of a measurement: `10 runs × 1000 requests of 64 B, 4.2 s`.
pub(crate) fn format_context(run: &Run, case: &CaseResult, requests: Option<&str>) -> String {
    let runs = case.repeats.len().max(1) as u64;
    // The number of chunks of a download that arrived: its table has the same.
    let replied = case.figures.requests.map(|requests| requests.round_trips);
    // The number has no separator, at which a line could break.
    let per_run = replied.unwrap_or(case.figures.counts.reference()) / runs;
    let size = brief_bytes(case.message_bytes.into());
    let is_of_received = case.figures.counts.known_sent().is_none();
    let mut words = match (requests, case.message_bytes) {
        (Some(_), 0) if is_of_received => format!("{per_run} received"),
        (Some(_), _) if is_of_received => format!("{per_run} of {size} received"),
        (Some(unit), 0) => format!("{per_run} {}", of_count(unit, per_run)),
        (Some(unit), _) => format!("{per_run} {} of {size}", of_count(unit, per_run)),
        (None, 0) => String::new(),
        (None, _) => format!("{size} messages"),
    };
    if runs > 1 {
        let joint = if requests.is_some() { " ×" } else { "," };
        words = format!("{runs} runs{joint} {words}");
    }
    let elapsed = format_elapsed(run);
    [words, elapsed].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The unit of a count: `request` of 1, `probe of each hop`.
fn of_count(unit: &str, count: u64) -> String {
    let (first, rest) = unit.split_at(unit.find(' ').unwrap_or(unit.len()));
    let singular = first.strip_suffix('s').filter(|_| count == 1);
    format!("{}{rest}", singular.unwrap_or(first))
}

/// The duration of a run. Empty if unknown, as for imported runs.
pub(crate) fn format_elapsed(run: &Run) -> String {
    if run.elapsed_ns == 0 { String::new() } else { brief_time(run.elapsed_ns as f64) }
}

/// Marks of the messages by direction, where they were read.
pub(crate) fn marks_sentence(case: &CaseResult) -> Option<String> {
    let marks = &case.figures.marks;
    let direction = |name: &str, [ce, ecn, dscp]: [Option<u64>; 3]| {
        let of = |count: Option<u64>, what: &str| Some(format!("{what} {}", format_count(count?)));
        let counts = [of(ce, "CE"), of(ecn, "ECN changed"), of(dscp, "DSCP changed")];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        (!counts.is_empty()).then(|| format!("{name} {}", counts.join(", ")))
    };
    let parts = [
        direction(
            "to the server:",
            [marks.forward_ce, marks.forward_ecn_changed, marks.forward_dscp_changed],
        ),
        direction("from it:", [marks.reverse_ce, marks.reverse_ecn_changed, marks.reverse_dscp_changed]),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("marks {}.", parts.join("; ")))
}

/// Messages with a congestion mark, in both directions together; `None` without any. A stream counts segments.
pub(crate) fn ce_text(case: &CaseResult) -> Option<String> {
    let marks = &case.figures.marks;
    let marked = marks.forward_ce.unwrap_or(0).saturating_add(marks.reverse_ce.unwrap_or(0));
    let unit = if marks.forward_dscp_changed.or(marks.reverse_dscp_changed).is_some() {
        "message"
    } else {
        "segment"
    };
    (marked > 0).then(|| format!("{} marked CE (congestion)", units::format_plural(marked, unit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn marks_are_printed_by_direction() {
        let mut case = sample_runs::full().cases.remove(0);
        assert_eq!((marks_sentence(&case), ce_text(&case)), (None, None));
        case.figures.marks.forward_ce = Some(12);
        assert_eq!(marks_sentence(&case).unwrap(), "marks to the server: CE 12.");
        assert_eq!(ce_text(&case).unwrap(), "12 segments marked CE (congestion)");
        (case.figures.marks.reverse_ce, case.figures.marks.reverse_dscp_changed) = (Some(0), Some(100));
        assert_eq!(
            marks_sentence(&case).unwrap(),
            "marks to the server: CE 12; from it: CE 0, DSCP changed 100."
        );
        assert_eq!(ce_text(&case).unwrap(), "12 messages marked CE (congestion)");
    }

    #[test]
    fn remote_host_is_named_when_known() {
        let mut run = sample_runs::full();
        assert_eq!(host_names(&run), Some("gauge-1".to_owned()), "several servers, one environment");
        run.cases.truncate(1);
        assert_eq!(host_and_date(&run), "gauge-1 → gauge-2 · 2026-11-20 10:00 UTC");
        run.environment.server = run.environment.client.clone();
        assert_eq!(host_names(&run), Some("gauge-1".to_owned()));
    }

    #[test]
    fn cases_become_sentences() {
        let run = sample_runs::full();
        let mut cases = run.cases.clone();
        cases.extend(sample_runs::minimal().cases);
        let sentences: Vec<String> = cases.iter().map(crate::report::case_sentence).collect();
        insta::assert_snapshot!(sentences.join("\n"), @r"
        TCP round trip to 127.0.0.1:7100: 13.8 µs median, 23.4 µs p99; no loss.
        TCP round trip to moxa-5610.example:7001 and 2 ports more (echo): 2.22 ms median, 3.76 ms p99, 1.17 ms above the line's minimum; no loss.
        UDP round trip to gauge-2.example:7100: 893 µs median, p99 not reached; 600 of 10 000 lost (6.00 %), 5 reordered, 2 bytes corrupt; stopped early.
        TCP to 127.0.0.1:7100: upload 310 Mbit/s, download 288 Mbit/s, 0.7 % of the line rate; RTT 310 → 330 µs under load (lowest, p50).
        TCP to 127.0.0.1:7100: upload 4.20 Gbit/s, download 3.91 Gbit/s, 10.0 % of the line rate; RTT 310 → 330 µs under load (lowest, p50).
        TCP to 127.0.0.1:7100: upload 28.6 Gbit/s, download 26.6 Gbit/s, 68.1 % of the line rate; RTT 310 → 330 µs under load (lowest, p50).
        TCP to 127.0.0.1:7100: upload 41.3 Gbit/s, download 38.4 Gbit/s, 98.3 % of the line rate; adds 297 µs of latency (RTT 33.0 → 330 µs, p50).
        MEM round trip to a: no times; 2 of 3 lost (66.7 %).
        ");
    }

    #[test]
    fn short_texts_are_formatted() {
        assert_eq!(format_case_list(&[1]), "case 1");
        assert_eq!(format_case_list(&[1, 2, 3, 4, 7]), "cases 1–4 and 7");
        assert_eq!(format_case_list(&[2, 3, 3]), "cases 2, 3");
        assert_eq!(format_case_list(&[1, 3, 5]), "cases 1, 3 and 5");
        assert_eq!(
            statistic_label("latency_mean_fastest_95_percent_ms"),
            "latency mean fastest 95 percent (ms)"
        );
        assert_eq!(statistic_label("sent_kbyte_per_second"), "sent (KByte/s)");
        assert_eq!(format_share(0.0), "0 %");
        assert_eq!(format_share(1e-6), "<0.01 %");
        assert_eq!(format_share(0.5), "50.0 %");
        assert_eq!(shorten("tcp://a-very-long-name.example:7100", 20), "tcp://a-v…ample:7100");
        assert_eq!(shorten("tcp://a:1", 20), "tcp://a:1");
        assert_eq!(printable("a\u{1b}[31mb\u{202e}c\n"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
        assert_eq!(wrap("one two three", 9, "- ", "  "), "- one two\n  three\n");
        assert_eq!(wrap("abcdefghij", 6, "- ", "  "), "- abcd\n  efgh\n  ij\n");
        assert_eq!(
            wrap("takes 2.5 ms, or 10 000 requests", 9, "", ""),
            "takes\n2.5 ms,\nor 10 000\nrequests\n"
        );
        assert_eq!(
            wrap("within (2.5 %) 20.0 / s of 3 series", 11, "", ""),
            "within\n(2.5 %)\n20.0 / s of\n3 series\n"
        );
    }
}
