//! The statistics of a measurement: numbers in, numbers out.
//!
//! For: summing up samples, saying how sure a figure is, and telling whether a run was steady.
//! Not for: recording samples, units, or wording. Nothing here reads a clock, a file or the
//! environment, and every random choice comes from a seed, so a result can be worked out again.

pub mod bootstrap;
pub mod centre;
pub mod jitter;
pub mod moments;
pub mod percentile;
pub mod series;

mod kendall;
mod kolmogorov;
mod normal;
mod random;
mod sum;

pub use bootstrap::{median_interval, moving_block_mean_interval, ratio_interval};
pub use centre::{mean_of_fastest, median};
pub use jitter::Jitter;
pub use moments::Moments;
pub use percentile::{interval_ranks, rank, supported};
pub use series::{Drift, autocorrelation, drift, effective_size, warm_up};

use serde::{Deserialize, Serialize};

/// A confidence interval, both ends included, in the unit of the values it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end; never above `high`.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}
