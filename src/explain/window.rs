//! The window: what one round trip buys of a download by request and answer, and what another window would.
//!
//! The model is 1/rate = 1/capacity + RTT/W: every W bytes wait for a round trip and then take their time on the link.
//! Three fits of the same line, because they disagree where the model is wrong, and what each misses.

use serde::Serialize;
use serde_json::json;

use super::{Evidence, Finding, NotExplained, Piece};
use crate::stats::Interval;
use crate::stats::fit::{Line, Point, least_squares, relative_least_squares, theil_sen};

mod rows;
mod told;

pub use rows::shaped;
use rows::{LeftOut, Row, Rows};

pub const PIECE: Piece = Piece {
    name: "window",
    summary: "what one round trip buys of a download, and the window that would fill the link",
    explain: |evidence, _| Window::of(evidence).map(|window| window.finding()),
};

/// As it is printed.
const FORM: &str = "1/rate = 1/capacity + RTT/W";
const CONFIDENCE: f64 = 0.95;
/// A line through two points misses nothing.
pub const FEWEST_ROUND_TRIPS: usize = 3;
/// The model does not fit where it is wrong by more than this, root mean square over the rows.
const MISFIT_PERCENT: f64 = 20.0;
/// A row that a fit is wrong about by more than this is named.
const MISS_PERCENT: f64 = 50.0;
/// What a real logger may bear; nobody knows of more.
pub const CAREFUL_WINDOW: u32 = 4;
/// With several requests under way the far end's work and the link overlap: two that take turns otherwise.
const MOST_OVERLAP: f64 = 2.0;

/// A way to fit the line.
struct Method {
    name: &'static str,
    weights: &'static str,
    fit: fn(&[Point]) -> Option<Line>,
}

/// The last one makes every row count alike, whatever its rate: the others see little of the fast ones.
static METHODS: [Method; 3] = [
    Method {
        name: "least squares",
        weights: "rows alike in 1/rate",
        fit: |points| least_squares(points, CONFIDENCE),
    },
    Method {
        name: "Theil–Sen", weights: "median of all pairs", fit: |points| theil_sen(points, CONFIDENCE)
    },
    Method {
        name: "relative",
        weights: "rate²: shares alike",
        fit: |points| relative_least_squares(points, CONFIDENCE),
    },
];

/// What limits a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
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
pub struct Fit {
    pub method: &'static str,
    pub weights: &'static str,
    pub window_bytes: Option<f64>,
    pub window_bytes_interval: Option<Interval>,
    pub capacity_bps: Option<f64>,
    pub capacity_bps_interval: Option<Interval>,
    /// Rate by the line ÷ rate seen − 1, row by row.
    pub residuals_percent: Vec<f64>,
    #[serde(skip)]
    line: Line,
}

/// What is said of one row, by the relative fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    #[serde(flatten)]
    pub row: Row,
    pub limit: Limit,
    /// Requests under way at once that would fill the link, and what fewer give.
    pub filling_window: Option<u32>,
    pub careful_window_bps: Option<f64>,
}

/// The finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    pub form: &'static str,
    pub published: bool,
    pub stand_in: Option<String>,
    pub chunk_bytes: Option<u32>,
    pub rows: Vec<Judged>,
    pub left_out: Vec<LeftOut>,
    pub fits: Vec<Fit>,
    pub limit: Limit,
    pub careful_window: u32,
}

impl Fit {
    fn of(method: &Method, rows: &[Row]) -> Option<Fit> {
        let points: Vec<Point> = rows.iter().map(|row| (row.round_trip(), 1.0 / row.rate())).collect();
        let line = (method.fit)(&points)?;
        let residual = |row: &Row| 100.0 * (1.0 / (line.at(row.round_trip()) * row.rate()) - 1.0);
        Some(Fit {
            method: method.name,
            weights: method.weights,
            window_bytes: inverse(line.slope),
            window_bytes_interval: line.slope_interval.and_then(inverse_of_interval),
            capacity_bps: inverse(line.intercept).map(|rate| 8.0 * rate),
            capacity_bps_interval: line
                .intercept_interval
                .and_then(inverse_of_interval)
                .map(|interval| Interval { low: 8.0 * interval.low, high: 8.0 * interval.high }),
            residuals_percent: rows.iter().map(residual).collect(),
            line,
        })
    }

    /// Seconds that a byte takes at this round trip, as far as the line is one of rates.
    fn seconds(&self, round_trip: f64) -> Option<f64> {
        Some(self.line.at(round_trip)).filter(|seconds| *seconds > 0.0)
    }

    /// Root mean square of what it misses.
    fn misses_percent(&self) -> f64 {
        let squares = self.residuals_percent.iter().map(|residual| residual * residual);
        (squares.sum::<f64>() / self.residuals_percent.len() as f64).sqrt()
    }

    fn limit(&self) -> Limit {
        let is_flat =
            self.line.slope <= 0.0 || self.line.slope_interval.is_some_and(|slope| slope.low <= 0.0);
        let misses = self.misses_percent();
        // Not a number where the line leaves the rates that there can be.
        if misses.is_nan() || misses > MISFIT_PERCENT || self.residuals_percent.iter().any(|r| *r <= -100.0) {
            Limit::ThisModelDoesNotFit
        } else if is_flat {
            Limit::Rate
        } else {
            Limit::Window
        }
    }
}

fn inverse(value: f64) -> Option<f64> {
    (value > 0.0).then(|| 1.0 / value)
}

fn inverse_of_interval(interval: Interval) -> Option<Interval> {
    Some(Interval { low: inverse(interval.high)?, high: inverse(interval.low)? })
}

impl Window {
    /// Fits the rows that the evidence has.
    pub fn of(evidence: &Evidence) -> Result<Window, NotExplained> {
        let Rows { rows, left_out, chunk_bytes, stand_in, published } = Rows::of(evidence)?;
        let lacking = || NotExplained::Lacking(lacking(&rows, &left_out));
        if round_trips(&rows) < FEWEST_ROUND_TRIPS {
            return Err(lacking());
        }
        let fits: Option<Vec<Fit>> = METHODS.iter().map(|method| Fit::of(method, &rows)).collect();
        let fits = fits.ok_or_else(lacking)?;
        let relative = &fits[fits.len() - 1];
        let whole = relative.limit();
        let rows: Vec<Judged> = rows.into_iter().map(|row| judged(row, relative, whole)).collect();
        let limit = match whole {
            Limit::Window if 2 * limited_by(&rows, Limit::Window) < rows.len() => Limit::Rate,
            whole => whole,
        };
        let form = FORM;
        let careful_window = CAREFUL_WINDOW;
        Ok(Window { form, published, stand_in, chunk_bytes, rows, left_out, fits, limit, careful_window })
    }

    /// The fit that windows are chosen by.
    pub fn relative(&self) -> &Fit {
        &self.fits[self.fits.len() - 1]
    }

    /// Requests under way at once that fill a link of this rate (bit/s of payload) at this round trip (s). `None` where
    /// the model does not fit.
    pub fn filling(&self, round_trip: f64, bits_per_second: f64) -> Option<u32> {
        if self.limit == Limit::ThisModelDoesNotFit {
            return None;
        }
        filling(self.relative(), round_trip, bits_per_second)
    }

    fn finding(&self) -> Finding {
        Finding { piece: PIECE.name, figures: json!(self), blocks: self.blocks() }
    }
}

/// While the answer to one request is under way, this many others must be: the time of W bytes over their time on the
/// link.
fn filling(fit: &Fit, round_trip: f64, bits_per_second: f64) -> Option<u32> {
    let requests = fit.seconds(round_trip)? * bits_per_second / 8.0;
    Some((requests.ceil() as u32).max(1))
}

fn judged(row: Row, fit: &Fit, whole: Limit) -> Judged {
    let waiting = fit.line.slope * row.round_trip();
    let limit = match whole {
        Limit::Window if waiting < fit.line.intercept => Limit::Rate,
        whole => whole,
    };
    let fits = whole != Limit::ThisModelDoesNotFit;
    let overlapped = fit.capacity_bps.map_or(f64::INFINITY, |capacity| MOST_OVERLAP * capacity);
    let configured = row.configured_bps.map(|configured| configured.min(overlapped));
    let goal = configured.or(fit.capacity_bps).filter(|_| fits);
    let filling_window = goal.and_then(|goal| filling(fit, row.round_trip(), goal));
    let careful_window_bps = goal.zip(fit.seconds(row.round_trip())).map(|(goal, seconds)| {
        let rate = 8.0 / seconds;
        // A window never slows down what one request at a time brings.
        (f64::from(CAREFUL_WINDOW) * rate).min(goal.max(rate))
    });
    Judged { row, limit, filling_window, careful_window_bps }
}

fn limited_by(rows: &[Judged], limit: Limit) -> usize {
    rows.iter().filter(|row| row.limit == limit).count()
}

fn round_trips(rows: &[Row]) -> usize {
    let mut round_trips: Vec<f64> = rows.iter().map(|row| row.round_trip_ns).collect();
    round_trips.sort_unstable_by(f64::total_cmp);
    round_trips.dedup();
    round_trips.len()
}

/// What there is instead of what is needed.
fn lacking(rows: &[Row], left_out: &[LeftOut]) -> String {
    let found = match rows.len() {
        0 => "there are none".to_owned(),
        count => format!("there are {count} at {}", round_trips(rows)),
    };
    let left_out: Vec<String> = left_out.iter().map(|row| format!("{}: {}", row.name, row.why)).collect();
    let but =
        if left_out.is_empty() { String::new() } else { format!(" (left out: {})", left_out.join("; ")) };
    format!(
        "downloads at {FEWEST_ROUND_TRIPS} different round trips are needed, {found}{but}; a latency case with the same URL \
         and peer in the run tells the round trip"
    )
}

#[cfg(test)]
mod tests;
