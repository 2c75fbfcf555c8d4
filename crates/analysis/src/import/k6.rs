//! The data points of k6 (`k6 run --out json=FILE`): one JSON object per line. Each URL of the metric makes a case.
//!
//! The metric is `http_req_duration` unless another one is named: the time from sending a request until its response has arrived, by
//! the clock of k6. The points are in the order in which the requests ended, of several virtual users at a time, so there is no jitter.
//! A request without a response has the status 0.

use std::io::BufRead;

use jiff::Timestamp;
use serde::Deserialize;

use super::by_name::ByName;
use super::line_reader::{LineReader, quote, unfinished_line};
use super::neighbours::sample_of_duration;
use super::{
    ForeignResult, ImportError, ImportFormat, ImportOptions, ImportedFile, base_case, format_error,
    latency_recorder,
};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;
use linkgauge_model::sample::Recorder;

pub(crate) const FORMAT: ImportFormat = ImportFormat {
    name: "k6",
    summary: "data points of k6 run --out json=FILE (--column: the metric, default http_req_duration)",
    flags: &["column"],
    read,
};

const MAX_LINE_BYTES: u64 = 1 << 16;
/// A day: no request of k6 takes longer.
const MAX_LATENCY_MS: f64 = 86_400_000.0;
const USUAL_METRIC: &str = "http_req_duration";

#[derive(Deserialize)]
struct K6Line {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    metric: String,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    time: Option<String>,
    value: Option<f64>,
    /// Kind of the values of a metric: `time` if they are milliseconds.
    contains: Option<String>,
    tags: Option<Tags>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tags {
    name: Option<String>,
    url: Option<String>,
    status: Option<String>,
}

/// The points of a metric.
struct K6Points<'a> {
    metric: &'a str,
    has_metric: bool,
    /// Requests by URL.
    requests: ByName<Recorder>,
    /// Begin of the first request and end of the last one.
    span: Option<(Timestamp, Timestamp)>,
}

impl K6Points<'_> {
    /// Adds a line.
    fn add(&mut self, line: K6Line) -> Result<(), ImportError> {
        if line.metric != self.metric {
            return Ok(());
        }
        self.has_metric = true;
        if line.kind != "Point" {
            return match line.data.contains.as_deref() {
                None | Some("time") => Ok(()),
                Some(other) => Err(format_error(format!(
                    "the metric {} has no times but {}",
                    quote(self.metric),
                    quote(other)
                ))),
            };
        }
        let value = line.data.value.filter(|value| (0.0..MAX_LATENCY_MS).contains(value));
        let milliseconds = value.ok_or_else(|| format_error("the point has no time in milliseconds"))?;
        let tags = line.data.tags.unwrap_or_default();
        let is_lost = tags.status.as_deref() == Some("0");
        let url = tags.name.or(tags.url).unwrap_or_default();
        let recorder = self.requests.entry(&url, latency_recorder)?;
        recorder.counts.sent += 1;
        let nanoseconds = (milliseconds * 1e6).round() as u64;
        if is_lost {
            recorder.record_loss(Time(0));
        } else {
            recorder.record_reply(sample_of_duration(recorder.counts.received, nanoseconds), 0);
        }
        self.extend_span(line.data.time.as_deref(), nanoseconds);
        Ok(())
    }

    fn extend_span(&mut self, ended: Option<&str>, nanoseconds: u64) {
        let Some(ended) = ended.and_then(|text| text.parse::<Timestamp>().ok()) else { return };
        let began = ended.checked_sub(std::time::Duration::from_nanos(nanoseconds)).unwrap_or(ended);
        let (first, last) = self.span.unwrap_or((began, ended));
        self.span = Some((first.min(began), last.max(ended)));
    }
}

fn read(file: &mut dyn BufRead, about: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let metric = about.column.as_deref().unwrap_or(USUAL_METRIC);
    let mut points = K6Points { metric, has_metric: false, requests: ByName::new(), span: None };
    let mut lines = LineReader::new(file, MAX_LINE_BYTES);
    let mut warnings = Vec::new();
    while let Some(text) = lines.next_line()? {
        if text.trim().is_empty() {
            continue;
        }
        let parsed = serde_json::from_str::<K6Line>(text);
        let is_unfinished = lines.is_unfinished();
        match parsed {
            Ok(line) => points.add(line).map_err(|error| lines.error(error.to_string()))?,
            Err(_) if is_unfinished => warnings.push(unfinished_line()),
            Err(error) => return Err(lines.error(format!("not a data point of k6: {error}"))),
        }
    }
    if points.requests.is_empty() {
        return Err(format_error(match points.has_metric {
            true => format!("there is no data point of {}", quote(metric)),
            false => format!("the file has no metric {}: name another one with --column", quote(metric)),
        }));
    }
    let elapsed_ns =
        points.span.map_or(0, |(first, last)| last.duration_since(first).as_nanos().max(0) as u64);
    let cases = points.requests.into_values().into_iter().map(|(url, recorder)| {
        let mut figures = recorder.latency_figures(&about.late_limits);
        figures.times.jitter_ns = None;
        figures.delivery.messages_per_second = None;
        let mut case = base_case(about, &FORMAT, "latency", Direction::Loop, figures);
        if about.endpoint.is_none() && !url.is_empty() {
            case.endpoint = url;
        }
        case.elapsed_ns = elapsed_ns;
        case
    });
    Ok(ImportedFile::Foreign(ForeignResult {
        measured_by: "k6".to_owned(),
        started: points.span.map(|(first, _)| first),
        elapsed_ns,
        cases: cases.collect(),
        warnings,
    }))
}

#[cfg(test)]
mod tests;
