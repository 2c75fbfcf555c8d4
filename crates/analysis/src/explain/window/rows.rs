//! The rows that the window model is fitted to: rates and round trips of downloads, from a run or from a study's
//! tables.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::super::{ExplainError, ModelInput};
use linkgauge_model::run::{CaseResult, Run};
use linkgauge_studies::study::{PublishedDownload, Study};

/// The rate at one delay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DownloadRow {
    /// The name of the row, as printed.
    pub name: String,
    /// Index of the case in the run, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<usize>,
    /// The round trip: the median where it was measured.
    pub(crate) round_trip_ns: f64,
    /// Measured in the same run; otherwise the configured delay of the link.
    pub(crate) round_trip_measured: bool,
    /// Configured rate of the link from the remote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) configured_bps: Option<f64>,
    /// Rate of the payload.
    pub throughput_bps: f64,
}

impl DownloadRow {
    /// The round trip in seconds.
    pub(crate) fn round_trip_seconds(&self) -> f64 {
        self.round_trip_ns / 1e9
    }

    /// Bytes per second.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.throughput_bps / 8.0
    }
}

/// Rows of one kind and their common facts.
#[derive(Debug, Default)]
pub(crate) struct DownloadRows {
    /// The rows to fit.
    pub(crate) rows: Vec<DownloadRow>,
    /// The rows that are not fitted.
    pub(crate) excluded: Vec<ExcludedRow>,
    /// Payload bytes of one reply, if all rows have the same.
    pub(crate) chunk_bytes: Option<u32>,
    /// The replacement for hardware.
    pub(crate) stand_in: Option<String>,
    /// The rows are those of a study.
    pub(crate) published: bool,
}

/// A row that is not fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExcludedRow {
    /// The name of the row, as printed.
    pub name: String,
    /// The reason, as printed.
    pub why: String,
}

impl DownloadRows {
    /// The downloads of a run or of a study.
    pub(crate) fn from_input(input: &ModelInput) -> Result<DownloadRows, ExplainError> {
        let mut rows = match input {
            ModelInput::Run(run) => DownloadRows::from_run(run),
            ModelInput::Study(study) => DownloadRows::from_study(study)?,
        };
        rows.exclude_other_rates();
        Ok(rows)
    }

    fn from_study(study: &Study) -> Result<DownloadRows, ExplainError> {
        let mut rows = DownloadRows { published: true, ..DownloadRows::default() };
        for PublishedDownload { row, bytes_per_second, download } in study.published_downloads()? {
            rows.chunk_bytes = Some(download.protocol.published_chunk_bytes);
            match download.link {
                Some(path) => rows.rows.push(DownloadRow {
                    name: row,
                    case: None,
                    round_trip_ns: path.round_trip().as_nanos() as f64,
                    round_trip_measured: false,
                    configured_bps: Some(path.rate_from),
                    throughput_bps: bytes_per_second * 8.0,
                }),
                None => rows.exclude(row, UNKNOWN_ROUND_TRIP),
            }
        }
        Ok(rows)
    }

    fn from_run(run: &Run) -> DownloadRows {
        let mut rows = DownloadRows::default();
        let mut chunks = BTreeSet::new();
        for (index, case) in run.cases.iter().enumerate().filter(|(_, case)| case.workload == "download") {
            let name = row_name(run, index);
            let rate = case.figures.delivery.throughput_bps.filter(|rate| PLAUSIBLE_RATES_BPS.contains(rate));
            let measured = median_round_trip_ns(run, case);
            let configured = case.shaped.map(|shaped| 2.0 * shaped.delay_ns as f64);
            let configured = configured.filter(|round_trip| PLAUSIBLE_ROUND_TRIPS_NS.contains(round_trip));
            if case.figures.requests.is_some_and(|requests| requests.window > 1) {
                rows.exclude(name, "it had several concurrent requests");
                continue;
            }
            match (rate, measured.or(configured)) {
                (None, _) => rows.exclude(name, "its rate is impossible"),
                (_, None) => rows.exclude(name, UNKNOWN_ROUND_TRIP),
                (Some(throughput_bps), Some(round_trip_ns)) => {
                    chunks.insert(case.message_bytes);
                    rows.stand_in = rows.stand_in.or(stand_in_name(case));
                    rows.rows.push(DownloadRow {
                        name,
                        case: Some(index + 1),
                        round_trip_ns,
                        round_trip_measured: measured.is_some(),
                        configured_bps: case
                            .shaped
                            .map(|shaped| shaped.rate_from_bps)
                            .filter(|rate| PLAUSIBLE_RATES_BPS.contains(rate)),
                        throughput_bps,
                    });
                }
            }
        }
        // Chunks of different sizes have different windows, so the chunk size is unknown then.
        rows.chunk_bytes = if chunks.len() == 1 { chunks.first().copied() } else { None };
        rows
    }

    fn exclude(&mut self, name: String, why: &str) {
        self.excluded.push(ExcludedRow { name, why: why.to_owned() });
    }

    /// Removes rows of another configured rate, because one capacity is fitted. They stay if the rate makes no
    /// difference: rows with the same round trip have the same rate. The majority's rate stays.
    fn exclude_other_rates(&mut self) {
        let like = |row: &DownloadRow, rate: Option<f64>| row.configured_bps == rate;
        let count = |rate| self.rows.iter().filter(|row| like(row, rate)).count();
        let Some(usual) = self.rows.iter().map(|row| row.configured_bps).max_by_key(|rate| count(*rate))
        else {
            return;
        };
        let usual_rows: Vec<DownloadRow> = self.rows.iter().filter(|row| like(row, usual)).cloned().collect();
        let differs = |other: &DownloadRow| {
            usual_rows.iter().any(|row| {
                is_close(row.round_trip_seconds(), other.round_trip_seconds())
                    && !is_close(row.bytes_per_second(), other.bytes_per_second())
            })
        };
        let others: Vec<Option<f64>> =
            self.rows.iter().filter(|row| differs(row)).map(|row| row.configured_bps).collect();
        let (out, rows): (Vec<DownloadRow>, Vec<DownloadRow>) = std::mem::take(&mut self.rows)
            .into_iter()
            .partition(|row| !like(row, usual) && others.contains(&row.configured_bps));
        self.rows = rows;
        for row in out {
            self.exclude(row.name, "its link has another rate, and that makes a difference");
        }
    }
}

/// Plausible link rates and round trips. A document may contain anything.
const PLAUSIBLE_RATES_BPS: std::ops::RangeInclusive<f64> = 1.0..=1e15;
const PLAUSIBLE_ROUND_TRIPS_NS: std::ops::RangeInclusive<f64> = 0.0..=1e14;

const UNKNOWN_ROUND_TRIP: &str = "its round trip is not known";

/// Whether the figures differ by at most a tenth. Delays and rates usually differ by a factor of two or more.
fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 0.1 * one.abs().max(other.abs())
}

/// The name of a case: as in the study, or its number.
fn row_name(run: &Run, index: usize) -> String {
    let rows = run.study.iter().flat_map(|paper| &paper.tables).flat_map(|table| &table.rows);
    let mut named = rows.filter(|row| row.case == Some(index + 1)).map(|row| row.row.clone());
    named.next().unwrap_or_else(|| format!("case {}", index + 1))
}

/// The median round trip of the latency case at the same endpoint in the run, in nanoseconds.
fn median_round_trip_ns(run: &Run, case: &CaseResult) -> Option<f64> {
    let is_same_endpoint = |other: &&CaseResult| {
        other.workload == "latency" && other.protocol == case.protocol && other.endpoint == case.endpoint
    };
    let latency = run
        .cases
        .iter()
        .filter(is_same_endpoint)
        .find_map(|other| other.figures.times.latency_ns.as_ref())?;
    // Small samples have no percentiles.
    let typical = latency.percentile("p50").map_or(latency.mean, |p50| p50 as f64);
    PLAUSIBLE_ROUND_TRIPS_NS.contains(&typical).then_some(typical)
}

/// The replacement for hardware, as declared by the user or reported by the remote.
fn stand_in_name(case: &CaseResult) -> Option<String> {
    let named = case.placement.stand_in.clone();
    let emulated = case.effective.get("emulated").and_then(Value::as_bool).filter(|emulated| *emulated);
    named.or(emulated.map(|_| "emulated logger".to_owned()))
}
