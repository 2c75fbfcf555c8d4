//! The data files of Flent (`.flent.gz`, format 1 to 4). Each series with a raw value for each request makes a case of round trips, each
//! transfer with a value for each interval a case of throughput. Averages and sums that Flent computes from them are left out.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use jiff::Timestamp;
use serde::Deserialize;

use super::line_reader::quote;
use super::neighbours::{RecentTimes, sample_of_duration};
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error,
    latency_recorder,
};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{CaseResult, Delivery, Figures, SeriesEntry, Warning, WarningCode};
use linkgauge_model::sample::append_entries;
use linkgauge_model::stats;

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "flent",
    summary: "data files of Flent (.flent.gz): pings and transfers",
    flags: &[],
    read,
};

/// Hours of a test with many series. The file is held in memory.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Maximum number of series with a case.
const MAX_CASES: usize = 1000;
/// A day, in ms: no ping waits longer.
const MAX_LATENCY_MS: f64 = 86_400_000.0;
/// 100 Tbit/s.
const MAX_RATE_MBPS: f64 = 1e8;
/// A hundred years; no real test takes longer.
const MAX_SECONDS: f64 = 3.2e9;

#[derive(Deserialize)]
#[serde(expecting = "an object with metadata, results and raw values")]
struct FlentDocument {
    metadata: Metadata,
    results: BTreeMap<String, Vec<Option<f64>>>,
    #[serde(default)]
    raw_values: BTreeMap<String, Vec<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "UPPERCASE")]
struct Metadata {
    name: Option<String>,
    title: Option<String>,
    host: Option<String>,
    t0: Option<String>,
    time: Option<String>,
    total_length: Option<f64>,
    flent_version: Option<String>,
    series_meta: BTreeMap<String, SeriesFacts>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "UPPERCASE")]
struct SeriesFacts {
    units: Option<String>,
    mean_value: Option<f64>,
    elapsed_time: Option<f64>,
    bytes_recvd: Option<u64>,
    packets_sent: Option<u64>,
    packets_received: Option<u64>,
}

/// A ping: `val` and, from most programs, `seq`. An interval of a transfer: `val` and `dur`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawValue {
    t: Option<f64>,
    val: Option<f64>,
    seq: Option<f64>,
    dur: Option<f64>,
}

/// A series with the names and facts that belong to it.
struct Series<'a> {
    name: &'a str,
    host: &'a str,
    facts: SeriesFacts,
    raw: &'a [RawValue],
    /// The values that Flent computed for its plots.
    plotted: &'a [Option<f64>],
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format_error("longer than 256 MiB: import a shorter test"));
    }
    let document: FlentDocument = serde_json::from_slice(&bytes).map_err(|error| match error.is_eof() {
        true => format_error("the file is empty or cut off: import the whole file of Flent"),
        false => format_error(format!("not a data file of Flent: {error}")),
    })?;
    let FlentDocument { metadata, results, raw_values } = document;
    let host = metadata.host.as_deref().unwrap_or_default();
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for (name, plotted) in &results {
        let raw = raw_values.get(name).map(Vec::as_slice).unwrap_or_default();
        let facts = metadata.series_meta.get(name).cloned().unwrap_or_default();
        let series = Series { name, host, facts, raw, plotted };
        match series.case(about) {
            Some(_) if cases.len() == MAX_CASES => {
                return Err(format_error(format!("more than {MAX_CASES} series")));
            }
            Some(case) => cases.push(case),
            None if !raw.is_empty() => skipped.push(name.as_str()),
            None => {}
        }
    }
    if cases.is_empty() {
        return Err(format_error("the file has neither pings nor transfers with their raw values"));
    }
    let started = [&metadata.t0, &metadata.time].into_iter().flatten().find_map(|text| date(text));
    let about_test = [metadata.name, metadata.title.filter(|title| !title.is_empty())];
    let test: Vec<String> = about_test.into_iter().flatten().collect();
    for case in &mut cases {
        case.effective.insert("test".to_owned(), test.join(", ").into());
    }
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: metadata.flent_version.map_or("Flent".to_owned(), |version| format!("Flent {version}")),
        started,
        elapsed_ns: nanoseconds(metadata.total_length),
        cases,
        warnings: skipped_warning(&skipped).into_iter().collect(),
    }))
}

/// A date; files of older versions have no time zone, and mean UTC.
fn date(text: &str) -> Option<Timestamp> {
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}

fn nanoseconds(seconds: Option<f64>) -> u64 {
    seconds.filter(|seconds| (0.0..MAX_SECONDS).contains(seconds)).map_or(0, |seconds| (seconds * 1e9) as u64)
}

fn skipped_warning(names: &[&str]) -> Option<Warning> {
    let first = names.first()?;
    let text = format!(
        "{} of the file has means of intervals only, or another kind of figure, and is left out: {}",
        if names.len() == 1 { "1 series".to_owned() } else { format!("{} series", names.len()) },
        quote(first)
    );
    Some(Warning::new(WarningCode::SkippedText, text, "look at them with flent-gui"))
}

impl Series<'_> {
    /// The case of the series; `None` if it is neither a ping nor a transfer.
    fn case(&self, about: &ImportOptions) -> Option<CaseResult> {
        let units = self.facts.units.as_deref();
        // Sums and averages have no raw values.
        let has_intervals = self.raw.iter().any(|value| value.dur.is_some());
        let mut case = match (units, self.direction()) {
            (Some("ms"), _) if !has_intervals => self.pings(about)?,
            (Some("Mbits/s"), Some(direction)) if has_intervals => self.transfer(about, direction)?,
            _ => return None,
        };
        let host = about.endpoint.as_deref().unwrap_or(self.host);
        case.endpoint = format!("{host}, {}", self.name);
        Some(case)
    }

    fn direction(&self) -> Option<Direction> {
        let name = self.name.to_lowercase();
        match (name.contains("download"), name.contains("upload")) {
            (true, false) => Some(Direction::Receive),
            (false, true) => Some(Direction::Send),
            _ => None,
        }
    }

    /// Milliseconds in a raw value: some programs report seconds, and Flent converts them for its plots only.
    fn raw_scale(&self) -> f64 {
        let middle = |values: Vec<f64>| stats::median(&values).filter(|middle| *middle > 0.0);
        let raw = middle(self.raw.iter().filter_map(|value| value.val).collect());
        let plotted = middle(self.plotted.iter().flatten().copied().collect());
        if raw.zip(plotted).is_some_and(|(raw, plotted)| plotted / raw > 30.0) { 1000.0 } else { 1.0 }
    }

    fn pings(&self, about: &ImportOptions) -> Option<CaseResult> {
        let mut recorder = latency_recorder();
        let (mut recent, scale) = (RecentTimes::default(), self.raw_scale());
        let mut numbers: Option<(u64, u64)> = None;
        for value in self.raw {
            let number = value.seq.filter(|number| (0.0..1e15).contains(number)).map(|number| number as u64);
            let times = value.val.map(|time| time * scale);
            let Some(milliseconds) = times.filter(|time| (0.0..MAX_LATENCY_MS).contains(time)) else {
                continue;
            };
            let number = match number {
                // ping counts to 65535 and begins again.
                Some(number) if number <= u64::from(u16::MAX) => recent.unwrapped(number),
                Some(number) => number,
                None => recent.next(0),
            };
            let (first, last) = numbers.unwrap_or((number, number));
            numbers = Some((first.min(number), last.max(number)));
            recent.record(&mut recorder, sample_of_duration(number, (milliseconds * 1e6).round() as u64));
        }
        let (first, last) = numbers?;
        let received = recorder.counts.received;
        let counted = self.facts.packets_sent.zip(self.facts.packets_received);
        let has_numbers = self.raw.iter().any(|value| value.seq.is_some());
        let sent = match counted {
            Some((sent, counted)) if counted == received && sent >= received => Some(sent),
            Some(_) => None,
            None => has_numbers.then_some(last - first + 1).filter(|sent| *sent >= received),
        };
        recorder.counts.lost = sent.map_or(0, |sent| sent - received);
        let mut figures = recorder.latency_figures(&about.late_limits);
        figures.delivery.messages_per_second = None;
        match sent {
            Some(sent) => figures.counts.sent = sent,
            None => figures.counts.forget_losses(),
        }
        let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
        case.elapsed_ns = self.span_ns();
        if sent.is_none() {
            let text =
                format!("the requests of {} have no numbers, so what was lost is unknown", quote(self.name));
            let remedy = "use a ping of Flent that numbers its requests (ping, fping or irtt)";
            case.warnings.push(Warning::new(WarningCode::LossesUnknown, text, remedy));
        }
        Some(case)
    }

    /// From the first raw value to the last one.
    fn span_ns(&self) -> u64 {
        let times = || self.raw.iter().filter_map(|value| value.t);
        let (first, last) =
            (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
        nanoseconds(Some(last - first))
    }

    fn transfer(&self, about: &ImportOptions, direction: Direction) -> Option<CaseResult> {
        let start = self.raw.iter().filter_map(|value| value.t).fold(f64::INFINITY, f64::min);
        let mut entries = Vec::new();
        let mut sum = (0.0, 0.0);
        for value in self.raw {
            let (Some(end), Some(rate), Some(length)) = (value.t, value.val, value.dur) else { continue };
            if !(0.0..MAX_RATE_MBPS).contains(&rate) || !(0.0..MAX_SECONDS).contains(&length) || length == 0.0
            {
                continue;
            }
            sum = (sum.0 + rate * length, sum.1 + length);
            entries.push(SeriesEntry {
                start_ns: nanoseconds(Some(end - start)),
                length_ns: nanoseconds(Some(length)),
                bytes: (rate * 1e6 / 8.0 * length) as u64,
                ..SeriesEntry::default()
            });
        }
        if sum.1 <= 0.0 {
            return None;
        }
        let seconds = self.facts.elapsed_time.filter(|seconds| (1e-3..MAX_SECONDS).contains(seconds));
        let received = seconds.zip(self.facts.bytes_recvd).filter(|_| direction == Direction::Receive);
        let of_bytes = received.map(|(seconds, bytes)| bytes as f64 * 8.0 / seconds);
        let mean = self.facts.mean_value.filter(|rate| (0.0..MAX_RATE_MBPS).contains(rate));
        let rate_bps = of_bytes.unwrap_or(mean.unwrap_or(sum.0 / sum.1) * 1e6);
        let delivery = Delivery {
            throughput_bps: Some(rate_bps),
            delivered_bytes: received.map(|(_, bytes)| bytes),
            ..Delivery::default()
        };
        let figures = Figures { delivery, ..Figures::default() };
        let mut case = base_case(about, &FORMAT, "throughput", direction, figures);
        case.elapsed_ns = nanoseconds(seconds.or(Some(sum.1)));
        append_entries(&mut case.series, entries, 0);
        Some(case)
    }
}

#[cfg(test)]
mod tests;
