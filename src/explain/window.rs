//! The window: what one round trip buys of a download by request and answer, and what another window would.
//!
//! The model is 1/rate = 1/capacity + RTT/W: every W bytes wait for a round trip and then take their time on the link.
//! Three fits of the same line, because they disagree where the model is wrong, and what each misses.

use serde::Serialize;
use serde_json::json;

use super::{Evidence, ExplainError, Finding, Model};
use crate::stats::Interval;
use crate::stats::fit::{FitPoint, LinearFit, least_squares, relative_least_squares, theil_sen};

mod render;
mod rows;

pub use rows::shaped_facts;
use rows::{DownloadRow, DownloadRows, ExcludedRow};

pub const MODEL: Model = Model {
    name: "window",
    summary: "what one round trip buys of a download, and the window that would fill the link",
    explain: |evidence, _| WindowModel::fit(evidence).map(|window| window.to_finding()),
};

/// As it is printed.
const FORMULA: &str = "1/rate = 1/capacity + RTT/W";
const CONFIDENCE_LEVEL: f64 = 0.95;
/// A line through two points misses nothing.
pub const MIN_ROUND_TRIPS: usize = 3;
/// The model does not fit where it is wrong by more than this, root mean square over the rows.
const MAX_RMS_RESIDUAL_PERCENT: f64 = 20.0;
/// A row that a fit is wrong about by more than this is named.
const NOTABLE_RESIDUAL_PERCENT: f64 = 50.0;
/// What a real logger may bear; nobody knows of more.
pub const SAFE_WINDOW_REQUESTS: u32 = 4;
/// With several requests under way the far end's work and the link overlap: two that take turns otherwise.
const MAX_OVERLAP_FACTOR: f64 = 2.0;

/// A way to fit the line.
struct FitMethod {
    name: &'static str,
    weights: &'static str,
    fit: fn(&[FitPoint]) -> Option<LinearFit>,
}

/// The last one makes every row count alike, whatever its rate: the others see little of the fast ones.
static METHODS: [FitMethod; 3] = [
    FitMethod {
        name: "least squares",
        weights: "rows alike in 1/rate",
        fit: |points| least_squares(points, CONFIDENCE_LEVEL),
    },
    FitMethod {
        name: "Theil–Sen",
        weights: "median of all pairs",
        fit: |points| theil_sen(points, CONFIDENCE_LEVEL),
    },
    FitMethod {
        name: "relative",
        weights: "rate²: shares alike",
        fit: |points| relative_least_squares(points, CONFIDENCE_LEVEL),
    },
];

/// What limits a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Round trips that every W bytes wait for.
    Window,
    /// Whatever takes its time for every byte.
    Rate,
    /// The rows do not lie on such a line.
    ThisModelDoesNotFit,
}

/// The line by one of the methods. What a line cannot tell is `None`: W where the rate does not fall with the round trip,
/// the capacity where it is above what these rows show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowFit {
    pub method: &'static str,
    pub weights: &'static str,
    pub window_bytes: Option<f64>,
    pub window_bytes_interval: Option<Interval>,
    pub capacity_bps: Option<f64>,
    pub capacity_bps_interval: Option<Interval>,
    /// Rate by the line ÷ rate seen − 1, row by row.
    pub residuals_percent: Vec<f64>,
    #[serde(skip)]
    line: LinearFit,
}

/// What is said of one row, by the relative fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssessedRow {
    #[serde(flatten)]
    pub row: DownloadRow,
    pub limit: Bottleneck,
    /// Requests under way at once that would fill the link, and what fewer give.
    pub filling_window: Option<u32>,
    pub careful_window_bps: Option<f64>,
}

/// The finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowModel {
    pub form: &'static str,
    pub published: bool,
    pub stand_in: Option<String>,
    pub chunk_bytes: Option<u32>,
    pub rows: Vec<AssessedRow>,
    pub left_out: Vec<ExcludedRow>,
    pub fits: Vec<WindowFit>,
    pub limit: Bottleneck,
    pub careful_window: u32,
}

impl WindowFit {
    fn from_rows(method: &FitMethod, rows: &[DownloadRow]) -> Option<WindowFit> {
        let points: Vec<FitPoint> =
            rows.iter().map(|row| (row.round_trip_seconds(), 1.0 / row.bytes_per_second())).collect();
        let line = (method.fit)(&points)?;
        let residual = |row: &DownloadRow| {
            100.0 * (1.0 / (line.predict(row.round_trip_seconds()) * row.bytes_per_second()) - 1.0)
        };
        Some(WindowFit {
            method: method.name,
            weights: method.weights,
            window_bytes: inverse(line.slope),
            window_bytes_interval: line.slope_interval.and_then(inverse_interval),
            capacity_bps: inverse(line.intercept).map(|rate| 8.0 * rate),
            capacity_bps_interval: line
                .intercept_interval
                .and_then(inverse_interval)
                .map(|interval| Interval { low: 8.0 * interval.low, high: 8.0 * interval.high }),
            residuals_percent: rows.iter().map(residual).collect(),
            line,
        })
    }

    /// Seconds that a byte takes at this round trip, as far as the line is one of rates.
    fn seconds_per_byte(&self, round_trip: f64) -> Option<f64> {
        Some(self.line.predict(round_trip)).filter(|seconds| *seconds > 0.0)
    }

    /// Root mean square of what it misses.
    fn rms_residual_percent(&self) -> f64 {
        let squares = self.residuals_percent.iter().map(|residual| residual * residual);
        (squares.sum::<f64>() / self.residuals_percent.len() as f64).sqrt()
    }

    fn bottleneck(&self) -> Bottleneck {
        let is_flat =
            self.line.slope <= 0.0 || self.line.slope_interval.is_some_and(|slope| slope.low <= 0.0);
        let misses = self.rms_residual_percent();
        // Not a number where the line leaves the rates that there can be.
        if misses.is_nan()
            || misses > MAX_RMS_RESIDUAL_PERCENT
            || self.residuals_percent.iter().any(|r| *r <= -100.0)
        {
            Bottleneck::ThisModelDoesNotFit
        } else if is_flat {
            Bottleneck::Rate
        } else {
            Bottleneck::Window
        }
    }
}

fn inverse(value: f64) -> Option<f64> {
    (value > 0.0).then(|| 1.0 / value)
}

fn inverse_interval(interval: Interval) -> Option<Interval> {
    Some(Interval { low: inverse(interval.high)?, high: inverse(interval.low)? })
}

impl WindowModel {
    /// Fits the rows that the evidence has.
    pub fn fit(evidence: &Evidence) -> Result<WindowModel, ExplainError> {
        let DownloadRows { rows, excluded: left_out, chunk_bytes, stand_in, published } =
            DownloadRows::from_evidence(evidence)?;
        let lacking = || ExplainError::InsufficientData(missing_rows_text(&rows, &left_out));
        if count_round_trips(&rows) < MIN_ROUND_TRIPS {
            return Err(lacking());
        }
        let fits: Option<Vec<WindowFit>> =
            METHODS.iter().map(|method| WindowFit::from_rows(method, &rows)).collect();
        let fits = fits.ok_or_else(lacking)?;
        let relative = &fits[fits.len() - 1];
        let whole = relative.bottleneck();
        let rows: Vec<AssessedRow> = rows.into_iter().map(|row| assess_row(row, relative, whole)).collect();
        let limit = match whole {
            Bottleneck::Window if 2 * count_limited_by(&rows, Bottleneck::Window) < rows.len() => {
                Bottleneck::Rate
            }
            whole => whole,
        };
        let form = FORMULA;
        let careful_window = SAFE_WINDOW_REQUESTS;
        Ok(WindowModel {
            form,
            published,
            stand_in,
            chunk_bytes,
            rows,
            left_out,
            fits,
            limit,
            careful_window,
        })
    }

    /// The fit that windows are chosen by.
    pub fn relative_fit(&self) -> &WindowFit {
        &self.fits[self.fits.len() - 1]
    }

    /// Requests under way at once that fill a link of this rate (bit/s of payload) at this round trip (s). `None` where
    /// the model does not fit.
    pub fn filling_window(&self, round_trip: f64, bits_per_second: f64) -> Option<u32> {
        if self.limit == Bottleneck::ThisModelDoesNotFit {
            return None;
        }
        requests_to_fill(self.relative_fit(), round_trip, bits_per_second)
    }

    fn to_finding(&self) -> Finding {
        Finding { model: MODEL.name, figures: json!(self), blocks: self.blocks() }
    }
}

/// While the answer to one request is under way, this many others must be: the time of W bytes over their time on the
/// link.
fn requests_to_fill(fit: &WindowFit, round_trip: f64, bits_per_second: f64) -> Option<u32> {
    let requests = fit.seconds_per_byte(round_trip)? * bits_per_second / 8.0;
    Some((requests.ceil() as u32).max(1))
}

fn assess_row(row: DownloadRow, fit: &WindowFit, whole: Bottleneck) -> AssessedRow {
    let waiting = fit.line.slope * row.round_trip_seconds();
    let limit = match whole {
        Bottleneck::Window if waiting < fit.line.intercept => Bottleneck::Rate,
        whole => whole,
    };
    let fits = whole != Bottleneck::ThisModelDoesNotFit;
    let overlapped = fit.capacity_bps.map_or(f64::INFINITY, |capacity| MAX_OVERLAP_FACTOR * capacity);
    let configured = row.configured_bps.map(|configured| configured.min(overlapped));
    let goal = configured.or(fit.capacity_bps).filter(|_| fits);
    let filling_window = goal.and_then(|goal| requests_to_fill(fit, row.round_trip_seconds(), goal));
    let careful_window_bps =
        goal.zip(fit.seconds_per_byte(row.round_trip_seconds())).map(|(goal, seconds)| {
            let rate = 8.0 / seconds;
            // A window never slows down what one request at a time brings.
            (f64::from(SAFE_WINDOW_REQUESTS) * rate).min(goal.max(rate))
        });
    AssessedRow { row, limit, filling_window, careful_window_bps }
}

fn count_limited_by(rows: &[AssessedRow], limit: Bottleneck) -> usize {
    rows.iter().filter(|row| row.limit == limit).count()
}

fn count_round_trips(rows: &[DownloadRow]) -> usize {
    let mut round_trips: Vec<f64> = rows.iter().map(|row| row.round_trip_ns).collect();
    round_trips.sort_unstable_by(f64::total_cmp);
    round_trips.dedup();
    round_trips.len()
}

/// What there is instead of what is needed.
fn missing_rows_text(rows: &[DownloadRow], left_out: &[ExcludedRow]) -> String {
    let found = match rows.len() {
        0 => "there are none".to_owned(),
        count => format!("there are {count} at {}", count_round_trips(rows)),
    };
    let left_out: Vec<String> = left_out.iter().map(|row| format!("{}: {}", row.name, row.why)).collect();
    let but =
        if left_out.is_empty() { String::new() } else { format!(" (left out: {})", left_out.join("; ")) };
    format!(
        "downloads at {MIN_ROUND_TRIPS} different round trips are needed, {found}{but}; a latency case with the same URL \
         and peer in the run tells the round trip"
    )
}

#[cfg(test)]
mod tests;
