//! The size: what a message costs, whatever its size, and what each byte of it costs on top.
//!
//! The model is time = α + β·size, fitted to cases that differ in nothing but the size of their messages. α is a time, β
//! shows as a rate (1/β), and α/β is the size at which half of that rate is reached: n½ of Hockney and Jesshope, "Parallel
//! Computers", 1981. Where a line lies under it, its rate stands beside the slope between the two largest sizes, for
//! nowhere else does α matter less.

use serde::Serialize;
use serde_json::json;

use super::{Declared, Evidence, Finding, NotExplained, Piece};
use crate::run::Run;
use crate::stats::Interval;
use crate::stats::fit::{Line, Point, broken, relative_least_squares, theil_sen};

mod sweeps;
mod told;

pub use sweeps::{Limit, Measured};
use sweeps::{LineBy, Sweep};

pub const PIECE: Piece = Piece {
    name: "size",
    summary: "what a message costs whatever its size, and what each byte of it",
    explain: |evidence, declared| Sizes::of(evidence, declared).map(|sizes| sizes.finding()),
};

/// As it is printed.
const FORM: &str = "time of a message = its own cost + size ÷ rate";
const CONFIDENCE: f64 = 0.95;
/// A line through two points misses nothing.
const FEWEST_SIZES: usize = 3;
/// A slope within this share of what the line carries is the line's, and none can be above: what clocks, rounded figures
/// and the headers of a protocol make uncertain.
const LIKE_THE_LINE: f64 = 0.05;

/// How the slope between the two largest sizes lies to what the line carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// Slower: something else takes the time.
    NotTheLine,
    TheLine,
    /// Faster than it can be.
    BeyondTheLine,
}

/// A line in words that programs and people understand. What is not shown is `None`: the cost of a message where the line
/// has none above zero; the rate where a byte may cost nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    pub message_ns: Option<f64>,
    pub byte_ns: f64,
    pub byte_ns_interval: Option<Interval>,
    pub rate_bps: Option<f64>,
    pub rate_bps_interval: Option<Interval>,
    pub half_performance_bytes: Option<f64>,
}

/// Two lines that fit clearly better than one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Break {
    pub last_below_bytes: u32,
    pub first_above_bytes: u32,
    /// Sizes that link or interface told, by name, which lie between the two.
    pub between: Vec<String>,
    pub below: Costs,
    pub above: Costs,
}

/// A size, and how far the line is off.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub measured: Measured,
    /// Time by the line ÷ time seen − 1.
    pub residual_percent: f64,
}

/// The line of one sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// Table or workload, and which of its sweeps.
    pub group: String,
    pub name: String,
    /// From the smallest size to the largest.
    pub rows: Vec<Row>,
    #[serde(flatten)]
    pub costs: Costs,
    /// Between the two largest sizes; `None` where the larger one took no longer.
    pub last_rate_bps: Option<f64>,
    #[serde(flatten)]
    pub limit: Option<Limit>,
    pub last_of_line_percent: Option<f64>,
    pub against_line: Option<Against>,
    /// The slope of all sizes is more than the line carries: then it is no cost of a byte.
    pub beyond_line: bool,
    #[serde(rename = "break")]
    pub broken: Option<Break>,
}

/// The finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizes {
    pub form: &'static str,
    pub published: bool,
    pub fits: Vec<Fit>,
}

impl Costs {
    /// `shown`: a byte costs something, beyond doubt.
    fn of(line: &Line, shown: bool) -> Costs {
        let interval = line.slope_interval;
        let shown = shown && line.slope > 0.0;
        // Bits a second of nanoseconds a byte.
        let rate = |byte_ns: f64| 8e9 / byte_ns;
        let message_ns = Some(line.intercept).filter(|cost| *cost > 0.0);
        Costs {
            message_ns,
            byte_ns: line.slope,
            byte_ns_interval: interval,
            rate_bps: shown.then(|| rate(line.slope)),
            rate_bps_interval: interval
                .filter(|interval| shown && interval.low > 0.0)
                .map(|interval| Interval { low: rate(interval.high), high: rate(interval.low) }),
            half_performance_bytes: message_ns.filter(|_| shown).map(|cost| cost / line.slope),
        }
    }
}

impl Fit {
    fn of(sweep: Sweep) -> Option<Fit> {
        let mut sizes: Vec<u32> = sweep.measured.iter().map(|measured| measured.message_bytes).collect();
        sizes.dedup();
        let points: Vec<Point> = sweep.measured.iter().map(Measured::point).collect();
        let line = theil_sen(&points, CONFIDENCE).filter(|_| sizes.len() >= FEWEST_SIZES)?;
        let costs = Costs::of(
            &line,
            rises(&line) || relative_least_squares(&points, CONFIDENCE).is_some_and(|l| rises(&l)),
        );
        let last_rate_bps = last_rate(&points, &sizes);
        let of_line = |rate: Option<f64>| Some(rate? / sweep.limit?.line_limit_bps);
        let last = of_line(last_rate_bps);
        let residual = |measured: &Measured| 100.0 * (line.at(measured.point().0) / measured.time_ns - 1.0);
        Some(Fit {
            rows: sweep
                .measured
                .iter()
                .map(|measured| Row { measured: *measured, residual_percent: residual(measured) })
                .collect(),
            last_rate_bps,
            last_of_line_percent: last.map(|share| 100.0 * share),
            against_line: last.map(Against::of),
            beyond_line: of_line(costs.rate_bps).is_some_and(|share| share > 1.0 + LIKE_THE_LINE),
            broken: broken(&points, CONFIDENCE).map(|broken| Break {
                last_below_bytes: broken.between.0 as u32,
                first_above_bytes: broken.between.1 as u32,
                between: sweep.told_between(broken.between),
                below: Costs::of(&broken.below, rises(&broken.below)),
                above: Costs::of(&broken.above, rises(&broken.above)),
            }),
            group: sweep.group,
            name: sweep.name,
            limit: sweep.limit,
            costs,
        })
    }
}

impl Against {
    fn of(share: f64) -> Against {
        match share {
            share if share > 1.0 + LIKE_THE_LINE => Against::BeyondTheLine,
            share if share >= 1.0 - LIKE_THE_LINE => Against::TheLine,
            _ => Against::NotTheLine,
        }
    }
}

/// Whether the slope is above zero, as far as anybody can tell.
fn rises(line: &Line) -> bool {
    line.slope_interval.is_none_or(|interval| interval.low > 0.0)
}

/// Bits a second between the two largest of these sizes, each by the mean of its points.
fn last_rate(points: &[Point], sizes: &[u32]) -> Option<f64> {
    let [.., before, last] = sizes else { return None };
    let mean = |size: u32| {
        let at = points.iter().filter(|point| point.0 == f64::from(size)).map(|point| point.1);
        at.clone().sum::<f64>() / at.count() as f64
    };
    let longer = mean(*last) - mean(*before);
    (longer > 0.0).then(|| 8e9 * f64::from(last - before) / longer)
}

/// The lines of a run's sweeps, in the order of their first cases.
pub fn of_run(run: &Run, declared: &Declared) -> Vec<Fit> {
    sweeps::measured(run, declared).into_iter().filter_map(Fit::of).collect()
}

impl Sizes {
    /// Fits the sweeps that the evidence has.
    pub fn of(evidence: &Evidence, declared: &Declared) -> Result<Sizes, NotExplained> {
        let (fits, published): (Vec<Fit>, bool) = match evidence {
            Evidence::Run(run) => (of_run(run, declared), false),
            Evidence::Study(study) => {
                (sweeps::published(study, declared)?.into_iter().filter_map(Fit::of).collect(), true)
            }
        };
        match fits.is_empty() {
            true => Err(NotExplained::Lacking(format!(
                "{FEWEST_SIZES} message sizes are needed in cases that are alike otherwise, there are not so many"
            ))),
            false => Ok(Sizes { form: FORM, published, fits }),
        }
    }

    fn finding(&self) -> Finding {
        Finding { piece: PIECE.name, figures: json!(self), blocks: self.blocks() }
    }
}

#[cfg(test)]
mod tests;
