//! Times of a distribution. Some of those of other programs are only limits.

use super::{ABSENT, LOST_TEXT};
use linkgauge_model::run::Distribution;
use linkgauge_model::units::format_nanoseconds;

/// A named percentile: `13.25 µs`, `lost` or `–`.
pub(crate) fn format_percentile(distribution: Option<&Distribution>, name: &str) -> String {
    let Some(distribution) = distribution else { return ABSENT.to_owned() };
    match distribution.percentiles.get(name) {
        Some(Some(nanoseconds)) => format_time_of(distribution, *nanoseconds, format_nanoseconds),
        Some(None) => LOST_TEXT.to_owned(),
        None => ABSENT.to_owned(),
    }
}

/// A mean of the distribution. `≤` is before it if some times are only limits.
pub(crate) fn format_mean(times: &Distribution, mean: f64, format: fn(f64) -> String) -> String {
    format!("{}{}", if times.below_ns.is_some() { "≤ " } else { "" }, format(mean))
}

/// A time of the distribution: its smallest or largest one, or a percentile. `≤` is before one that is only a limit.
pub(crate) fn format_time_of(times: &Distribution, nanoseconds: u64, format: fn(f64) -> String) -> String {
    let is_limit = times.below_ns.is_some_and(|limit| nanoseconds <= limit);
    format!("{}{}", if is_limit { "≤ " } else { "" }, format(nanoseconds as f64))
}

/// The standard deviation, if it is known.
pub(crate) fn format_deviation(times: &Distribution) -> String {
    times.standard_deviation.map_or(ABSENT.to_owned(), format_nanoseconds)
}
