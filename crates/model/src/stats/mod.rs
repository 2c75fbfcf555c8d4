//! The statistics of a measurement: numbers in, numbers out.
//!
//! For: summaries of samples, confidence intervals, and tests for drift. Not for: recording samples, units,
//! or wording. Nothing here reads a clock, a file or the environment, and every random choice comes from a
//! seed, so results are reproducible.

mod binomial;
mod centre;
mod change;
mod clock_bounds;
mod cusum;
mod detectable;
mod fairness;
pub mod fit;
mod grids;
mod groups;
mod holm;
mod hull;
mod interval_shift;
mod jitter;
mod joint;
mod moments;
mod percentile;
mod prediction;
mod rank;
mod repetitions;
mod series;
mod series_interval;
mod side_bands;
mod signed_rank;
pub mod simulate;
mod within_run;

mod kendall;
mod kolmogorov;
mod normal;
mod random;
mod student;
mod sum;

pub use binomial::more_often_p;
pub use centre::median;
pub use change::level_changes;
pub(crate) use clock_bounds::{Line, LineBounds};
pub use cusum::{Cusum, ShareShift};
pub use detectable::{repetitions_to_detect, smallest_detectable_shift};
pub use fairness::jain_index;
pub use grids::{Grid, known_grids, phase_concentration, unknown_grid};
pub use groups::{Group, separate_groups};
pub use holm::holm_adjusted;
pub(crate) use hull::lower_hull_slope;
pub use interval_shift::{Estimate, EstimatedShift};
pub use jitter::Jitter;
pub use joint::{joint_p_of_lists, joint_p_of_pairs, least_p_of_lists, least_p_of_pairs};
pub use moments::Moments;
pub use percentile::{interval_ranks, is_supported, nearest_rank};
pub use prediction::{MIN_EARLIER_RESULTS, Usual, prediction_interval, usual};
pub use random::SplitMix64;
pub use rank::{hodges_lehmann_shift, mann_whitney_p};
pub use repetitions::{
    MIN_INTERVAL_REPETITIONS, error_interval, interval_with_earlier_runs, relative_deviation, run_interval,
};
pub use series::{Drift, detect_drift, starts_higher, warm_up_samples};
pub use series_interval::{SeriesIntervals, series_intervals};
pub use side_bands::{BandCount, SideBand, count_side_bands, half_sample_mode};
pub use signed_rank::{hodges_lehmann_centre, signed_rank_p};
pub use within_run::{Dependence, dependence, within_run_ranks};

use serde::{Deserialize, Serialize};

/// A confidence interval, both ends included, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end; never above `high`.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}
