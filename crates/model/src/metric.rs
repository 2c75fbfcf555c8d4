//! Metrics: the figures of a case by name, for thresholds, comparisons and trends.
//!
//! A run holds the values. `docs/metrics.md` defines them.

mod counted;
mod threshold;

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::run::{CaseResult, Distribution, Figures, Goal, NUMBERS, Number, ReadNumber};
use crate::units;

pub use threshold::{Threshold, ThresholdError};

/// Metrics that are computed, with their meanings.
const COMPUTED: [(&str, &str); 11] = [
    ("p50 … p99.9999", "percentile of the latency"),
    ("min, mean, max", "fastest, mean and slowest round trip with a reply"),
    ("mean95", "mean of the fastest 95 % of the requests sent"),
    ("sd", "standard deviation of the latency"),
    ("later50ms", "share of requests with a later reply, or none; one of the limits of --late"),
    ("missed50ms", "share of scheduled requests with a reply later than that after they were due, or none"),
    ("response.p99", "the same of the response time: any of the above behind response."),
    ("connect.p99", "the same of the time to open a connection (--reconnect-every)"),
    ("loaded.p99", "the same of the probe beside a load: any of the above behind loaded."),
    ("loss", "share of the messages sent that were lost"),
    ("corrupt", "share of the messages received that arrived changed"),
];

/// All names and their meanings, for help and documents: those that are computed, and [`NUMBERS`].
pub fn list_metrics() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMPUTED.into_iter().chain(NUMBERS.iter().map(|number| (number.metric, number.meaning)))
}

/// The unit of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// Times.
    Nanoseconds,
    /// Rates of payload.
    BitsPerSecond,
    /// Rates of messages.
    PerSecond,
    /// A share, 0 to 1.
    Share,
    /// Payload.
    Bytes,
    /// Whole numbers.
    Count,
}

impl MetricUnit {
    /// The unit in the name of a field. A percentage is a share.
    fn of_field(field: &str) -> MetricUnit {
        const SUFFIXES: [(&str, MetricUnit); 5] = [
            ("_ns", MetricUnit::Nanoseconds),
            ("_bps", MetricUnit::BitsPerSecond),
            ("_per_second", MetricUnit::PerSecond),
            ("_percent", MetricUnit::Share),
            ("_bytes", MetricUnit::Bytes),
        ];
        SUFFIXES
            .iter()
            .find(|(suffix, _)| field.ends_with(suffix))
            .map_or(MetricUnit::Count, |(_, unit)| *unit)
    }

    /// Formats a value for people.
    pub fn format(self, value: f64) -> String {
        match self {
            _ if value.is_infinite() => "not reached".to_owned(),
            MetricUnit::Nanoseconds => units::format_nanoseconds(value),
            MetricUnit::BitsPerSecond => units::format_bit_rate(value),
            MetricUnit::PerSecond => format!("{}/s", units::format_number(value)),
            MetricUnit::Share => format!("{} %", format_decimals(value * 100.0)),
            MetricUnit::Bytes if value < 0.0 => format!("-{}", units::format_bytes(-value as u64)),
            MetricUnit::Bytes => units::format_bytes(value as u64),
            MetricUnit::Count if value.fract() == 0.0 => format_decimals(value),
            MetricUnit::Count => units::format_number(value),
        }
    }
}

/// Formats a value with up to three decimals, without trailing zeros.
fn format_decimals(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A distribution of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeDistribution {
    Latency,
    Response,
    Connect,
    Loaded,
}

impl TimeDistribution {
    const PREFIXES: [(&'static str, TimeDistribution); 4] = [
        ("response.", TimeDistribution::Response),
        ("connect.", TimeDistribution::Connect),
        ("loaded.", TimeDistribution::Loaded),
        ("", TimeDistribution::Latency),
    ];

    fn of_figures<'a>(
        self,
        figures: &'a Figures,
        under_load: Option<&'a Figures>,
    ) -> Option<&'a Distribution> {
        match self {
            TimeDistribution::Latency => figures.times.latency_ns.as_ref(),
            TimeDistribution::Response => figures.times.response_ns.as_ref(),
            TimeDistribution::Connect => figures.times.connect_ns.as_ref(),
            TimeDistribution::Loaded => under_load?.times.latency_ns.as_ref(),
        }
    }
}

/// The name of the interval of the share of lost messages.
pub const LOSS_INTERVAL: &str = "loss";

/// A figure by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    name: String,
    kind: MetricKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MetricKind {
    /// A statistic: `min`, `mean`, `max`, `mean95`, `sd`, or a percentile by its name in the document.
    Statistic(TimeDistribution, String),
    /// Share later than a number of milliseconds, by its name in the document.
    LaterThan(TimeDistribution, String),
    /// Share of missed frames, by the limit's name in the document.
    MissedFrames(String),
    Loss,
    Corrupt,
    /// Index in [`NUMBERS`].
    Number(usize),
}

/// An unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a metric (known: p50, p99, mean, max, jitter, loss, rate, line_rate, messages and more: see docs/metrics.md)"
)]
pub struct UnknownMetric(String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Metric, UnknownMetric> {
        let what = match name {
            "loss" => MetricKind::Loss,
            "corrupt" => MetricKind::Corrupt,
            _ => find_number(name)
                .or_else(|| parse_missed_frames(name))
                .or_else(|| parse_time_metric(name))
                .ok_or_else(|| UnknownMetric(name.to_owned()))?,
        };
        Ok(Metric { name: name.to_owned(), kind: what })
    }
}

fn find_number(name: &str) -> Option<MetricKind> {
    NUMBERS.iter().position(|number| number.metric == name).map(MetricKind::Number)
}

/// The name of a limit in the document.
fn parse_limit_ms(limit: &str) -> Option<String> {
    units::parse_duration_with_unit(limit).ok().map(units::format_milliseconds)
}

fn parse_missed_frames(name: &str) -> Option<MetricKind> {
    parse_limit_ms(name.strip_prefix("missed")?).map(MetricKind::MissedFrames)
}

/// Parses the name of a distribution's statistic.
fn parse_time_metric(name: &str) -> Option<MetricKind> {
    let (prefix, times) = *TimeDistribution::PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    let rest = &name[prefix.len()..];
    if let Some(limit) = rest.strip_prefix("later") {
        return Some(MetricKind::LaterThan(times, parse_limit_ms(limit)?));
    }
    let known = matches!(rest, "min" | "mean" | "mean95" | "max" | "sd") || is_percentile(rest);
    known.then(|| MetricKind::Statistic(times, rest.to_owned()))
}

/// Whether a name is a percentile like `p50` and `p99.9`: above 0 and below 100, spelled as in the document.
fn is_percentile(name: &str) -> bool {
    let number = name.strip_prefix('p').filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    let value = number.and_then(|number| number.parse::<f64>().ok());
    value.is_some_and(|value| value > 0.0 && value < 100.0 && format!("p{value}") == name)
}

impl Metric {
    /// The name in thresholds and in the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its interval in a document, if it may have one.
    pub fn interval_name(&self) -> Option<String> {
        match &self.kind {
            MetricKind::Statistic(TimeDistribution::Latency, name) if is_percentile(name) => {
                Some(format!("latency_ns.{name}"))
            }
            MetricKind::Number(index) => Some(NUMBERS[*index].field)
                .filter(|field| field.starts_with("throughput_") || *field == "added_p50_ns")
                .map(str::to_owned),
            MetricKind::Loss => Some(LOSS_INTERVAL.to_owned()),
            _ => None,
        }
    }

    /// The unit of its values.
    pub fn unit(&self) -> MetricUnit {
        match self.kind {
            MetricKind::Statistic(..) => MetricUnit::Nanoseconds,
            MetricKind::LaterThan(..)
            | MetricKind::MissedFrames(_)
            | MetricKind::Loss
            | MetricKind::Corrupt => MetricUnit::Share,
            MetricKind::Number(index) => MetricUnit::of_field(NUMBERS[index].field),
        }
    }

    /// Whether higher values are better.
    pub(crate) fn is_higher_better(&self) -> bool {
        matches!(self.kind, MetricKind::Number(index) if NUMBERS[index].goal == Goal::Higher)
    }

    /// The value in a case, in the metric's unit. Infinite for a percentile that was not reached, `None` if it was not
    /// measured.
    pub fn value_of_case(&self, case: &CaseResult) -> Option<f64> {
        self.value_of(case, &case.figures, case.under_load.as_ref())
    }

    /// The value in a part of a case: a repetition or a port. Parts have no probe.
    pub fn value_of_part(&self, case: &CaseResult, part: &Figures) -> Option<f64> {
        self.value_of(case, part, None)
    }

    fn value_of(&self, case: &CaseResult, figures: &Figures, under_load: Option<&Figures>) -> Option<f64> {
        let value = self.read(figures, under_load);
        value.filter(|value| *value != 0.0 || counted::is_counted(self.name(), case))
    }

    fn read(&self, figures: &Figures, under_load: Option<&Figures>) -> Option<f64> {
        match &self.kind {
            MetricKind::Statistic(times, name) => {
                distribution_value(times.of_figures(figures, under_load)?, name)
            }
            MetricKind::LaterThan(times, limit) => {
                times.of_figures(figures, under_load)?.later_than_ms.get(limit).copied()
            }
            MetricKind::MissedFrames(limit) => {
                let missed = figures.times.missed_frames.as_ref()?.count_later_than_ms.get(limit)?;
                ratio(*missed, figures.counts.reference())
            }
            MetricKind::Loss => figures.loss_share(),
            MetricKind::Corrupt => ratio(figures.counts.corrupt_messages, figures.counts.received),
            MetricKind::Number(index) => number_value(&NUMBERS[*index], figures),
        }
    }

    /// All metrics that a case has values for.
    pub fn all_of_case(case: &CaseResult) -> Vec<(Metric, f64)> {
        let plain = NUMBERS.iter().map(|number| number.metric).chain(["loss", "corrupt"]);
        let mut names: Vec<String> = plain.map(str::to_owned).collect();
        for (prefix, times) in TimeDistribution::PREFIXES {
            let Some(distribution) = times.of_figures(&case.figures, case.under_load.as_ref()) else {
                continue;
            };
            let percentiles = distribution.percentiles.keys().map(String::as_str);
            let those = percentiles.chain(["min", "mean", "mean95", "max", "sd"]);
            names.extend(those.map(|name| format!("{prefix}{name}")));
            names.extend(distribution.later_than_ms.keys().map(|limit| format!("{prefix}later{limit}ms")));
        }
        let missed =
            case.figures.times.missed_frames.iter().flat_map(|missed| missed.count_later_than_ms.keys());
        names.extend(missed.map(|limit| format!("missed{limit}ms")));
        let metrics = names.iter().filter_map(|name| name.parse::<Metric>().ok());
        metrics.filter_map(|metric| metric.value_of_case(case).map(|value| (metric, value))).collect()
    }

    /// All metrics of a case by name, for a store. `null`: not reached.
    pub fn json_of_case(case: &CaseResult) -> Map<String, Value> {
        let values = Metric::all_of_case(case).into_iter();
        values.map(|(metric, value)| (metric.name, value.into())).collect()
    }

    /// The headline figure of a case, by its workload.
    pub fn headline(case: &CaseResult) -> Metric {
        let name = if case.figures.delivery.throughput_bps.is_some() { "rate" } else { "p50" };
        name.parse().expect("a name of the list")
    }
}

fn distribution_value(distribution: &Distribution, name: &str) -> Option<f64> {
    Some(match name {
        "min" => distribution.min as f64,
        "mean" => distribution.mean,
        "mean95" => distribution.mean_fastest_95_percent.unwrap_or(f64::INFINITY),
        "max" => distribution.max as f64,
        "sd" => distribution.standard_deviation?,
        percentile => distribution.percentiles.get(percentile)?.map_or(f64::INFINITY, |ns| ns as f64),
    })
}

/// Value of a number in the metric's unit. Without any measurement a count of zero has no value.
fn number_value(number: &Number, figures: &Figures) -> Option<f64> {
    let value = match number.read {
        ReadNumber::Count(read) => read(figures).filter(|_| figures.has_measurements())? as f64,
        ReadNumber::Value(read) => read(figures)?,
    };
    Some(if number.field.ends_with("_percent") { value / 100.0 } else { value })
}

/// All numbers that were measured, with their values for people. A count that always exists is left out while it is 0, except
/// those of messages sent, received and lost.
pub fn measured_numbers(figures: &Figures) -> impl Iterator<Item = (&'static Number, String)> {
    let empty = Figures::default();
    NUMBERS.iter().filter_map(move |number| {
        let text = match number.read {
            ReadNumber::Count(read) => {
                let count = read(figures)?;
                let is_usual = ["sent", "received", "lost"].contains(&number.field) || read(&empty).is_none();
                match MetricUnit::of_field(number.field) {
                    _ if count == 0 && !is_usual => return None,
                    MetricUnit::Count => units::format_count(count),
                    unit => unit.format(count as f64),
                }
            }
            ReadNumber::Value(_) => MetricUnit::of_field(number.field).format(number_value(number, figures)?),
        };
        Some((number, text))
    })
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sample_runs;

    fn parse_metric(name: &str) -> Metric {
        name.parse().unwrap()
    }

    #[test]
    fn names_select_their_figures() {
        let run = sample_runs::full();
        let case = &run.cases[0];
        for (name, value) in [
            ("p50", 13_823.0),
            ("max", 273_663.0),
            ("later50ms", 0.0),
            ("missed16.7ms", 0.0002),
            ("response.p99", 27_375.0),
            ("loss", 0.0),
            ("jitter", 410.5),
            ("duplicate", 0.0),
            ("sent", 10_000.0),
        ] {
            assert_eq!(parse_metric(name).value_of_case(case), Some(value), "{name}");
        }
        assert_eq!(parse_metric("rate").value_of_case(case), None);
        assert_eq!(parse_metric("loaded.p50").value_of_case(case), None);
        let lossy = &run.cases[2];
        assert_eq!(parse_metric("p99").value_of_case(lossy), Some(f64::INFINITY), "among the lost");
        let names: Vec<String> = Metric::all_of_case(case).iter().map(|(m, _)| m.name().to_owned()).collect();
        assert!(names.contains(&"later100ms".to_owned()) && names.contains(&"response.p50".to_owned()));
        for (metric, value) in Metric::all_of_case(case) {
            assert_eq!(metric.value_of_case(case), Some(value));
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        for name in [
            "",
            "p",
            "p0",
            "p100",
            "p5e1",
            "p050",
            "p-1",
            "latency",
            "later",
            "later50",
            "response.loss",
            "missed",
            "missed50",
            "response.missed50ms",
            "loaded.",
        ] {
            assert!(name.parse::<Metric>().is_err(), "{name}");
        }
        assert_eq!(parse_metric("later0.5s").kind, parse_metric("later500ms").kind);
    }

    #[test]
    fn each_number_is_a_metric_in_its_unit() {
        for (name, unit) in [
            ("jitter", MetricUnit::Nanoseconds),
            ("rate_reverse", MetricUnit::BitsPerSecond),
            ("messages", MetricUnit::PerSecond),
            ("line_rate", MetricUnit::Share),
            ("delivered_bytes", MetricUnit::Bytes),
            ("window", MetricUnit::Count),
        ] {
            assert_eq!(parse_metric(name).unit(), unit, "{name}");
        }
        let mut names: Vec<&str> = NUMBERS.iter().map(|number| number.metric).collect();
        assert!(names.iter().all(|name| parse_metric(name).name() == *name));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NUMBERS.len());
        assert!(parse_metric("records").is_higher_better() && !parse_metric("late").is_higher_better());
    }

    #[test]
    fn nothing_measured_has_no_counts() {
        assert_eq!(
            parse_metric("duplicate").value_of_part(&sample_runs::full().cases[0], &Figures::default()),
            None
        );
    }

    #[test]
    fn values_are_formatted() {
        let print =
            |unit: MetricUnit, values: &[f64]| values.iter().map(|v| unit.format(*v)).collect::<Vec<_>>();
        assert_eq!(print(MetricUnit::Share, &[0.0, 0.00012, 0.5, 1.0]), ["0 %", "0.012 %", "50 %", "100 %"]);
        assert_eq!(print(MetricUnit::PerSecond, &[60.0, 1234.5678]), ["60/s", "1 235/s"]);
        assert_eq!(print(MetricUnit::Count, &[0.0, 2.5, 185.726, 12_345.0]), ["0", "2.5", "185.7", "12345"]);
        assert_eq!(print(MetricUnit::Bytes, &[14.0, -2048.0]), ["14 B", "-2.048 kB"]);
        assert_eq!(print(MetricUnit::Nanoseconds, &[1e6, f64::INFINITY]), ["1.000 ms", "not reached"]);
    }
}
