//! Metrics: the figures of a case by a name that people can type, for thresholds, comparisons and trends.
//!
//! Not for computing them: a run holds them, `docs/metrics.md` defines them.

mod threshold;

use std::str::FromStr;

use crate::run::{CaseResult, Distribution, Figures};
use crate::units;

pub use threshold::{Threshold, ThresholdError};

/// The names there are and what they hold, for help and documents.
pub static METRICS: &[(&str, &str)] = &[
    ("p50 … p99.9999", "percentile of the latency"),
    ("min, mean, max", "fastest, mean and slowest exchange of those answered"),
    ("mean95", "mean of the fastest 95 % of those sent"),
    ("sd", "standard deviation of the latency"),
    ("jitter", "mean difference of consecutive latencies"),
    ("later50ms", "share of exchanges later than that, or lost; one of the limits of --late"),
    ("missed50ms", "share of scheduled exchanges answered later than that after they were due, or lost"),
    ("response.p99", "the same of the response time: any of the above behind response."),
    ("loaded.p99", "the same of the probe beside a load: any of the above behind loaded."),
    ("rate", "payload delivered a second; compared with a share, that of the line rate"),
    ("rate_back", "payload delivered a second the other way"),
    ("line_rate", "throughput as a share of what the line can carry"),
    ("messages", "messages exchanged or delivered a second"),
    ("loss", "share of the messages sent that were lost"),
    ("corrupt", "share of the messages received that arrived changed"),
];

/// What a metric's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    BitsPerSecond,
    PerSecond,
    /// 0 to 1.
    Share,
}

impl Unit {
    /// A value for people.
    pub fn print(self, value: f64) -> String {
        match self {
            _ if value.is_infinite() => "not reached".to_owned(),
            Unit::Nanoseconds => units::print_nanoseconds(value),
            Unit::BitsPerSecond => units::print_bit_rate(value),
            Unit::PerSecond if value < 1e6 => format!("{}/s", digits(value)),
            Unit::PerSecond => format!("{value:.0}/s"),
            Unit::Share => format!("{} %", digits(value * 100.0)),
        }
    }
}

/// Up to three decimals, without zeros at the end.
fn digits(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Which distribution of the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    Latency,
    Response,
    Loaded,
}

impl Times {
    const ALL: [(&'static str, Times); 3] =
        [("response.", Times::Response), ("loaded.", Times::Loaded), ("", Times::Latency)];

    fn of<'a>(self, figures: &'a Figures, under_load: Option<&'a Figures>) -> Option<&'a Distribution> {
        match self {
            Times::Latency => figures.latency_ns.as_ref(),
            Times::Response => figures.response_ns.as_ref(),
            Times::Loaded => under_load?.latency_ns.as_ref(),
        }
    }
}

/// A figure by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    name: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// Of the distribution: `min`, `mean`, `max`, `mean95`, `sd`, or a percentile as the document names it.
    Time(Times, String),
    /// Share later than so many milliseconds, as the document names them.
    Later(Times, String),
    /// Share of missed frames, by the limit as the document names it.
    Missed(String),
    Jitter,
    Rate,
    RateBack,
    LineRate,
    Messages,
    Loss,
    Corrupt,
}

/// A name that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no metric (known: p50, p99, mean, max, jitter, loss, rate, line_rate, messages and more: see docs/metrics.md)"
)]
pub struct UnknownMetric(String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Metric, UnknownMetric> {
        let what = match name {
            "jitter" => What::Jitter,
            "rate" => What::Rate,
            "rate_back" => What::RateBack,
            "line_rate" => What::LineRate,
            "messages" => What::Messages,
            "loss" => What::Loss,
            "corrupt" => What::Corrupt,
            _ => missed(name).or_else(|| time(name)).ok_or_else(|| UnknownMetric(name.to_owned()))?,
        };
        Ok(Metric { name: name.to_owned(), what })
    }
}

/// A limit as the document names it.
fn limit_ms(limit: &str) -> Option<String> {
    units::duration_with_unit(limit).ok().map(units::milliseconds)
}

fn missed(name: &str) -> Option<What> {
    limit_ms(name.strip_prefix("missed")?).map(What::Missed)
}

/// What a name of a distribution's figure stands for.
fn time(name: &str) -> Option<What> {
    let (prefix, times) = *Times::ALL.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    let rest = &name[prefix.len()..];
    if let Some(limit) = rest.strip_prefix("later") {
        return Some(What::Later(times, limit_ms(limit)?));
    }
    let known = matches!(rest, "min" | "mean" | "mean95" | "max" | "sd") || is_percentile(rest);
    known.then(|| What::Time(times, rest.to_owned()))
}

/// `p50`, `p99.9`: above 0 and below 100, written as the document writes it.
fn is_percentile(name: &str) -> bool {
    let number = name.strip_prefix('p').filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    let value = number.and_then(|number| number.parse::<f64>().ok());
    value.is_some_and(|value| value > 0.0 && value < 100.0 && format!("p{value}") == name)
}

impl Metric {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn unit(&self) -> Unit {
        match self.what {
            What::Time(..) | What::Jitter => Unit::Nanoseconds,
            What::Rate | What::RateBack => Unit::BitsPerSecond,
            What::Messages => Unit::PerSecond,
            What::Later(..) | What::Missed(_) | What::LineRate | What::Loss | What::Corrupt => Unit::Share,
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(&self) -> bool {
        matches!(self.what, What::Rate | What::RateBack | What::LineRate | What::Messages)
    }

    /// Its value in a case, in the metric's unit; infinite for a percentile that was not reached, `None` where it was
    /// not measured.
    pub fn of_case(&self, case: &CaseResult) -> Option<f64> {
        self.of(&case.figures, case.under_load.as_ref())
    }

    /// Its value in a part of a case: a repetition or a port. Parts have no probe.
    pub fn of_part(&self, figures: &Figures) -> Option<f64> {
        self.of(figures, None)
    }

    fn of(&self, figures: &Figures, under_load: Option<&Figures>) -> Option<f64> {
        match &self.what {
            What::Time(times, name) => time_of(times.of(figures, under_load)?, name),
            What::Later(times, limit) => times.of(figures, under_load)?.later_than_ms.get(limit).copied(),
            What::Missed(limit) => {
                let missed = figures.missed_frames.as_ref()?.count_later_than_ms.get(limit)?;
                share(*missed, figures.sent)
            }
            What::Jitter => figures.jitter_ns,
            What::Rate => figures.throughput_bps,
            What::RateBack => figures.throughput_back_bps,
            What::LineRate => figures.line_rate_percent.map(|percent| percent / 100.0),
            What::Messages => figures.messages_per_second,
            What::Loss => figures.loss_share(),
            What::Corrupt => share(figures.corrupt_messages, figures.received),
        }
    }

    /// Every metric that a case has a value for.
    pub fn all_of(case: &CaseResult) -> Vec<(Metric, f64)> {
        const PLAIN: [&str; 7] = ["jitter", "rate", "rate_back", "line_rate", "messages", "loss", "corrupt"];
        let mut names: Vec<String> = PLAIN.map(str::to_owned).to_vec();
        for (prefix, times) in Times::ALL {
            let Some(distribution) = times.of(&case.figures, case.under_load.as_ref()) else { continue };
            let percentiles = distribution.percentiles.keys().map(String::as_str);
            let those = percentiles.chain(["min", "mean", "mean95", "max", "sd"]);
            names.extend(those.map(|name| format!("{prefix}{name}")));
            names.extend(distribution.later_than_ms.keys().map(|limit| format!("{prefix}later{limit}ms")));
        }
        let missed = case.figures.missed_frames.iter().flat_map(|missed| missed.count_later_than_ms.keys());
        names.extend(missed.map(|limit| format!("missed{limit}ms")));
        let metrics = names.iter().filter_map(|name| name.parse::<Metric>().ok());
        metrics.filter_map(|metric| metric.of_case(case).map(|value| (metric, value))).collect()
    }

    /// The one figure that stands for a case of this workload.
    pub fn headline(case: &CaseResult) -> Metric {
        let name = if case.figures.throughput_bps.is_some() { "rate" } else { "p50" };
        name.parse().expect("a name of the list")
    }
}

fn time_of(distribution: &Distribution, name: &str) -> Option<f64> {
    Some(match name {
        "min" => distribution.min as f64,
        "mean" => distribution.mean,
        "mean95" => distribution.mean_fastest_95_percent.unwrap_or(f64::INFINITY),
        "max" => distribution.max as f64,
        "sd" => distribution.standard_deviation,
        percentile => distribution.percentiles.get(percentile)?.map_or(f64::INFINITY, |ns| ns as f64),
    })
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_run;

    fn metric(name: &str) -> Metric {
        name.parse().unwrap()
    }

    #[test]
    fn names_find_their_figures() {
        let run = sample_run::full();
        let case = &run.cases[0];
        for (name, value) in [
            ("p50", 13_823.0),
            ("max", 273_663.0),
            ("later50ms", 0.0),
            ("missed16.7ms", 0.0002),
            ("response.p99", 27_375.0),
            ("loss", 0.0),
            ("jitter", 410.5),
        ] {
            assert_eq!(metric(name).of_case(case), Some(value), "{name}");
        }
        assert_eq!(metric("rate").of_case(case), None);
        assert_eq!(metric("loaded.p50").of_case(case), None);
        let lossy = &run.cases[2];
        assert_eq!(metric("p99").of_case(lossy), Some(f64::INFINITY), "among the lost");
        let names: Vec<String> = Metric::all_of(case).iter().map(|(m, _)| m.name().to_owned()).collect();
        assert!(names.contains(&"later100ms".to_owned()) && names.contains(&"response.p50".to_owned()));
        for (metric, value) in Metric::all_of(case) {
            assert_eq!(metric.of_case(case), Some(value));
        }
    }

    #[test]
    fn names_that_are_none() {
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
        assert_eq!(metric("later0.5s").what, metric("later500ms").what);
    }

    #[test]
    fn values_for_people() {
        let print = |unit: Unit, values: &[f64]| values.iter().map(|v| unit.print(*v)).collect::<Vec<_>>();
        assert_eq!(print(Unit::Share, &[0.0, 0.00012, 0.5, 1.0]), ["0 %", "0.012 %", "50 %", "100 %"]);
        assert_eq!(print(Unit::PerSecond, &[60.0, 1234.5678]), ["60/s", "1234.568/s"]);
        assert_eq!(print(Unit::Nanoseconds, &[1e6, f64::INFINITY]), ["1.000 ms", "not reached"]);
    }
}
