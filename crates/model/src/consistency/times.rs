//! Rules of distributions of times: min ≤ p50 ≤ p90 ≤ p99 ≤ max, the mean between min and max, shares from 0 to 1.

use super::{Contradiction, LeftOut};
use crate::run::{Distribution, Figures};
use crate::units::{format_nanoseconds, format_number};

/// The rounding of means to floating-point numbers.
const ROUNDING: f64 = 1e-9;

/// A distribution of the figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TimesName {
    Latency,
    Response,
    Connect,
    OneWay,
}

impl TimesName {
    /// Leaves out the impossible deviations alone.
    pub(super) fn clear_deviation(self, figures: &mut Figures) {
        let times = &mut figures.times;
        let ways = figures.one_way.as_mut();
        let all: Vec<Option<&mut Distribution>> = match self {
            TimesName::Latency => vec![times.latency_ns.as_mut()],
            TimesName::Response => vec![times.response_ns.as_mut()],
            TimesName::Connect => vec![times.connect_ns.as_mut()],
            TimesName::OneWay => ways.map_or(Vec::new(), |ways| {
                let variations = [&mut ways.forward_variation_ns, &mut ways.reverse_variation_ns];
                let both = [&mut ways.turnaround_ns, &mut ways.path_ns].into_iter().chain(variations);
                both.map(Some).collect()
            }),
        };
        let impossible = all.into_iter().flatten().filter(|times| impossible_deviation(times).is_some());
        impossible.for_each(|times| times.standard_deviation = None);
    }

    pub(super) fn clear(self, figures: &mut Figures) {
        match self {
            TimesName::Latency => {
                (figures.times.latency_ns, figures.times.jitter_ns) = (None, None);
                figures.histogram_hdr_v2 = None;
                figures.intervals.retain(|name, _| !name.starts_with("latency_ns"));
                figures.within_run_intervals.retain(|name, _| !name.starts_with("latency_ns"));
            }
            TimesName::Response => {
                (figures.times.response_ns, figures.times.missed_frames) = (None, None);
                figures.within_run_intervals.retain(|name, _| !name.starts_with("response_ns"));
            }
            TimesName::Connect => figures.times.connect_ns = None,
            TimesName::OneWay => figures.one_way = None,
        }
    }
}

pub(super) fn check(figures: &Figures, is_imported: bool) -> Vec<Contradiction> {
    let times = &figures.times;
    let ways = figures.one_way.as_ref();
    let all = [
        (TimesName::Latency, "latency", times.latency_ns.as_ref()),
        (TimesName::Response, "response", times.response_ns.as_ref()),
        (TimesName::Connect, "connect", times.connect_ns.as_ref()),
        (TimesName::OneWay, "turnaround", ways.map(|ways| &ways.turnaround_ns)),
        (TimesName::OneWay, "path", ways.map(|ways| &ways.path_ns)),
        (TimesName::OneWay, "forward variation", ways.map(|ways| &ways.forward_variation_ns)),
        (TimesName::OneWay, "reverse variation", ways.map(|ways| &ways.reverse_variation_ns)),
    ];
    let found = all.into_iter().filter_map(|(name, title, times)| {
        let of_times = disorder(times?).or_else(|| zero_time(name, times?, is_imported));
        let (suspect, text) = match of_times {
            Some(text) => (LeftOut::Times(name), text),
            None => (LeftOut::Deviation(name), impossible_deviation(times?)?),
        };
        Some(Contradiction { suspect, text: format!("{title}: {text}") })
    });
    found.collect()
}

/// A round trip takes time; one that is shorter than the resolution of a file has a limit (`below_ns`). The virtual clock of the tests is exempt.
fn zero_time(name: TimesName, times: &Distribution, is_imported: bool) -> Option<String> {
    (is_imported && name != TimesName::OneWay && times.min == 0)
        .then(|| "its smallest time is 0 ns, which is impossible".to_owned())
}

/// The first thing of a distribution that cannot be.
fn disorder(times: &Distribution) -> Option<String> {
    let Distribution { min, mean, max, .. } = *times;
    let (low, high) = (min as f64 * (1.0 - ROUNDING), max as f64 * (1.0 + ROUNDING));
    if times.count == 0 {
        return Some("it has no sample".to_owned());
    }
    if min > max {
        return Some(format!("min {min} ns is above max {max} ns"));
    }
    if !(low..=high).contains(&mean) {
        return Some(format!(
            "mean {} is not between min {min} ns and max {max} ns",
            format_nanoseconds(mean)
        ));
    }
    if let Some(fastest) = times
        .mean_fastest_95_percent
        .filter(|fastest| !(low..=high.min(mean * (1.0 + ROUNDING))).contains(fastest))
    {
        return Some(format!(
            "mean of the fastest 95 % {} is not between min {min} ns and mean {}",
            format_nanoseconds(fastest),
            format_nanoseconds(mean)
        ));
    }
    percentile_disorder(times).or_else(|| share_disorder(times))
}

/// A deviation that cannot be, in words. Of two samples it is the largest one in relation to their distance, 1 ÷ √2.
fn impossible_deviation(times: &Distribution) -> Option<String> {
    let Distribution { min, max, .. } = *times;
    let range = (max as f64 * (1.0 + ROUNDING) - min as f64 * (1.0 - ROUNDING)).max(0.0);
    let deviation = times.standard_deviation.filter(|deviation| !(0.0..=range).contains(deviation))?;
    let deviation = format_nanoseconds(deviation);
    Some(format!("deviation {deviation} is not possible from {min} ns to {max} ns"))
}

fn percentile_disorder(times: &Distribution) -> Option<String> {
    let rank = |name: &str| name.strip_prefix('p')?.parse::<f64>().ok();
    let mut percentiles: Vec<(&String, Option<u64>)> =
        times.percentiles.iter().map(|(name, value)| (name, *value)).collect();
    percentiles.sort_by(|a, b| rank(a.0).unwrap_or(f64::MAX).total_cmp(&rank(b.0).unwrap_or(f64::MAX)));
    let mut before = ("min", Some(times.min));
    for (name, value) in percentiles {
        match (before.1, value) {
            (Some(lower), Some(value)) if value < lower => {
                return Some(format!("{name} {value} ns is below {} {lower} ns", before.0));
            }
            (None, Some(value)) => {
                return Some(format!("{name} {value} ns was reached, but {} was not", before.0));
            }
            (_, Some(value)) if value > times.max => {
                return Some(format!("{name} {value} ns is above max {} ns", times.max));
            }
            _ => before = (name, value),
        }
    }
    None
}

fn share_disorder(times: &Distribution) -> Option<String> {
    let shares = times.later_than_ms.iter();
    let mut shares: Vec<(f64, f64)> =
        shares.map(|(limit, share)| (limit.parse().unwrap_or(f64::MAX), *share)).collect();
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let is_share = |share: f64| (0.0..=1.0).contains(&share);
    if let Some((limit, share)) = shares.iter().find(|(_, share)| !is_share(*share)) {
        return Some(format!("the share {} later than {limit} ms is not from 0 to 1", format_number(*share)));
    }
    let rises = shares.windows(2).find(|pair| pair[0].1 < pair[1].1)?;
    Some(format!("more were later than {} ms than later than {} ms", rises[1].0, rises[0].0))
}
