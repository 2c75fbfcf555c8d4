//! The window model: the rate of a download by request and reply at one window, and at another.
//!
//! The model is 1/rate = 1/capacity + RTT/W: every W bytes wait for a round trip, and then take their time on the
//! link. Three methods fit the same line, because they disagree where the model is wrong. Each comes with its
//! residuals.

use serde::Serialize;
use serde_json::json;

use super::{ExplainError, Finding, Model, ModelInput};
use linkgauge_model::stats::Interval;
use linkgauge_model::stats::fit::{FitPoint, LinearFit, least_squares, relative_least_squares, theil_sen};

mod render;
mod rows;

use rows::{DownloadRow, DownloadRows, ExcludedRow};

/// The window model in the list of models.
pub(crate) const MODEL: Model = Model {
    name: "window",
    summary: "bytes that one round trip delivers of a download, and the window that fills the link",
    explain: |input, _| WindowModel::fit(input).map(|window| window.to_finding()),
};

/// Formula of the model, as printed.
const FORMULA: &str = "1/rate = 1/capacity + RTT/W";
const CONFIDENCE_LEVEL: f64 = 0.95;
/// A line through two points always fits.
pub const MIN_ROUND_TRIPS: usize = 3;
/// The model does not fit if the root mean square of the residuals exceeds this.
const MAX_RMS_RESIDUAL_PERCENT: f64 = 20.0;
/// A row with a larger residual is named.
const NOTABLE_RESIDUAL_PERCENT: f64 = 50.0;
/// The window that real loggers are assumed to support.
pub const SAFE_WINDOW_REQUESTS: u32 = 4;
/// Maximum factor of the overlap: with several requests in flight, processing and transmission overlap; with one they alternate.
const MAX_OVERLAP_FACTOR: f64 = 2.0;

/// A way to fit the line.
struct FitMethod {
    name: &'static str,
    weights: &'static str,
    fit: fn(&[FitPoint]) -> Option<LinearFit>,
}

/// The last method weights all rows equally, whatever their rate. The others give fast rows little weight.
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

/// The limit of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The round trip for every W bytes.
    Window,
    /// A time that every byte takes.
    Rate,
    /// The rows do not lie on such a line.
    ThisModelDoesNotFit,
}

/// The line by one method. `None` where the line determines no value: W if the rate does not fall with the round trip,
/// the capacity if it is above the range of these rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowFit {
    /// Name of the method.
    pub method: &'static str,
    /// Weights that the method gives the rows, as printed.
    pub(crate) weights: &'static str,
    /// W: the bytes transferred in each round trip.
    pub(crate) window_bytes: Option<f64>,
    /// 95 % interval of W.
    pub(crate) window_bytes_interval: Option<Interval>,
    /// Capacity in bit/s.
    pub capacity_bps: Option<f64>,
    /// 95 % interval of the capacity.
    pub(crate) capacity_bps_interval: Option<Interval>,
    /// Fitted rate ÷ measured rate − 1, row by row.
    pub(crate) residuals_percent: Vec<f64>,
    #[serde(skip)]
    line: LinearFit,
}

/// The assessment of one row, by the relative fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssessedRow {
    /// The measured or published download.
    #[serde(flatten)]
    pub row: DownloadRow,
    /// Bottleneck of this row.
    pub limit: Bottleneck,
    /// Requests in flight that would fill the link, and the rate of fewer.
    pub filling_window: Option<u32>,
    /// Predicted bit/s with [`SAFE_WINDOW_REQUESTS`] requests in flight.
    pub(crate) careful_window_bps: Option<f64>,
}

/// The finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowModel {
    /// The formula of the model, as printed.
    pub form: &'static str,
    /// Whether the rates are those of a study, not of a run.
    pub published: bool,
    /// The emulated device, if the rows were not measured with hardware.
    pub stand_in: Option<String>,
    /// Payload bytes of one reply, if all rows have the same.
    pub chunk_bytes: Option<u32>,
    /// The rows that the line is fitted to.
    pub rows: Vec<AssessedRow>,
    /// The rows that the fits do not use.
    pub left_out: Vec<ExcludedRow>,
    /// One fit for each method; the relative fit is the last.
    pub fits: Vec<WindowFit>,
    /// Bottleneck of the downloads as a whole.
    pub limit: Bottleneck,
    /// Requests in flight in `careful_window_bps`: [`SAFE_WINDOW_REQUESTS`].
    pub(crate) careful_window: u32,
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

    /// Fitted seconds per byte at this round trip, if the result is a possible rate.
    fn seconds_per_byte(&self, round_trip: f64) -> Option<f64> {
        Some(self.line.predict(round_trip)).filter(|seconds| *seconds > 0.0)
    }

    /// Root mean square of the residuals.
    fn rms_residual_percent(&self) -> f64 {
        let squares = self.residuals_percent.iter().map(|residual| residual * residual);
        (squares.sum::<f64>() / self.residuals_percent.len() as f64).sqrt()
    }

    fn bottleneck(&self) -> Bottleneck {
        let is_flat =
            self.line.slope <= 0.0 || self.line.slope_interval.is_some_and(|slope| slope.low <= 0.0);
        let misses = self.rms_residual_percent();
        // NaN if a fitted rate is impossible.
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
    /// Fits the rows of the input.
    ///
    /// # Errors
    ///
    /// Fails if downloads at fewer than [`MIN_ROUND_TRIPS`] round trips are usable, or if the texts of the study
    /// are invalid.
    pub fn fit(input: &ModelInput) -> Result<WindowModel, ExplainError> {
        let DownloadRows { rows, excluded: left_out, chunk_bytes, stand_in, published } =
            DownloadRows::from_input(input)?;
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

    /// The fit that window recommendations use.
    pub(crate) fn relative_fit(&self) -> &WindowFit {
        &self.fits[self.fits.len() - 1]
    }

    /// Requests in flight that fill a link of this payload rate (bit/s) at this round trip (s). `None` if the model
    /// does not fit.
    pub fn filling_window(&self, round_trip: f64, bits_per_second: f64) -> Option<u32> {
        if self.limit == Bottleneck::ThisModelDoesNotFit {
            return None;
        }
        requests_to_fill(self.relative_fit(), round_trip, bits_per_second)
    }

    fn to_finding(&self) -> Finding {
        Finding { model: MODEL.name, figures: json!(self), summary: self.summary(), blocks: self.blocks() }
    }
}

/// The number of requests in flight: the time for W bytes divided by their time on the link.
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
            // A larger window is never slower than one request at a time.
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

/// Describes the available rows when there are too few.
fn missing_rows_text(rows: &[DownloadRow], left_out: &[ExcludedRow]) -> String {
    let available = match rows.len() {
        0 => "there are none".to_owned(),
        count => format!("there are {count} at {}", count_round_trips(rows)),
    };
    let left_out: Vec<String> = left_out.iter().map(|row| format!("{}: {}", row.name, row.why)).collect();
    let but =
        if left_out.is_empty() { String::new() } else { format!(" (left out: {})", left_out.join("; ")) };
    format!(
        "downloads at {MIN_ROUND_TRIPS} different round trips are needed, {available}{but}; a latency case with the same URL \
         and protocol in the run measures the round trip"
    )
}

#[cfg(test)]
mod tests;
