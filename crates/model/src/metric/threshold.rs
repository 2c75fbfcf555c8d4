//! Thresholds: `p99 < 2ms`, `loss = 0`, `rate > 99 %`. Parsed before a run, evaluated after it.
//!
//! `verdict` compares runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use super::{Metric, MetricUnit, UnknownMetric};
use crate::run::{CaseResult, NOT_MEASURED, ThresholdResult};
use crate::units;

/// A limit that a figure of a case must meet.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    metric: Metric,
    relation: Relation,
    /// Limit in the metric's unit.
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Below,
    AtMost,
    Equal,
    AtLeast,
    Above,
}

impl Relation {
    /// All relations, longer operators first, because the first prefix match counts.
    const ALL: [(&'static str, Relation); 5] = [
        ("<=", Relation::AtMost),
        (">=", Relation::AtLeast),
        ("<", Relation::Below),
        (">", Relation::Above),
        ("=", Relation::Equal),
    ];

    fn sign(self) -> &'static str {
        Relation::ALL.iter().find(|(_, relation)| *relation == self).map_or("", |(sign, _)| sign)
    }

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Relation::Below => value < limit,
            Relation::AtMost => value <= limit,
            Relation::Equal => value == limit,
            Relation::AtLeast => value >= limit,
            Relation::Above => value > limit,
        }
    }
}

/// Error of a threshold that could not be parsed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    #[error(
        "'{0}' is not a threshold: write a metric, a sign and a limit, like 'p99 < 2ms', 'loss = 0', 'rate > 99 %'"
    )]
    /// The text is not a metric, a sign and a limit.
    Syntax(String),
    /// The metric is unknown.
    #[error(transparent)]
    Metric(#[from] UnknownMetric),
    /// The limit does not fit the unit of the metric.
    #[error("'{text}': {error}")]
    Limit {
        /// The threshold as typed.
        text: String,
        /// Error of the limit.
        error: units::UnitError,
    },
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Threshold, ThresholdError> {
        let form = || ThresholdError::Syntax(text.to_owned());
        let at = text.find(['<', '>', '=']).ok_or_else(form)?;
        let (name, rest) = text.split_at(at);
        let (sign, relation) =
            Relation::ALL.iter().find(|(sign, _)| rest.starts_with(sign)).ok_or_else(form)?;
        let limit = rest[sign.len()..].trim();
        if limit.is_empty() {
            return Err(form());
        }
        let mut metric: Metric = name.trim().parse()?;
        if metric.name() == "rate" && limit.ends_with('%') {
            metric = "line_rate".parse()?;
        }
        let limit = parse_limit(limit, metric.unit())
            .map_err(|error| ThresholdError::Limit { text: text.to_owned(), error })?;
        Ok(Threshold { metric, relation: *relation, limit })
    }
}

fn parse_limit(limit: &str, unit: MetricUnit) -> Result<f64, units::UnitError> {
    // Zero is zero in every unit.
    if limit == "0" {
        return Ok(0.0);
    }
    match unit {
        MetricUnit::Nanoseconds => units::parse_duration_with_unit(limit).map(|time| time.as_nanos() as f64),
        MetricUnit::BitsPerSecond => units::parse_bit_rate_with_unit(limit),
        MetricUnit::PerSecond => units::parse_message_rate(limit),
        MetricUnit::Share => units::parse_share(limit),
        MetricUnit::Bytes => units::parse_bytes(limit).map(|bytes| bytes as f64),
        MetricUnit::Count => units::parse_count(limit).map(|count| count as f64),
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} {}", self.metric.name(), self.relation.sign(), self.format_limit())
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Threshold, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl Threshold {
    /// Formats the limit. Uses full precision where rounding would change it, so that it can be typed again.
    fn format_limit(&self) -> String {
        let (limit, unit) = (self.limit, self.metric.unit());
        let short = unit.format(limit);
        let means_it = parse_limit(&short, unit).is_ok_and(|value| (value - limit).abs() <= limit * 1e-3);
        match unit {
            _ if means_it => short,
            _ if limit == 0.0 => "0".to_owned(),
            MetricUnit::Nanoseconds => format!("{limit}ns"),
            MetricUnit::BitsPerSecond => format!("{limit}bit/s"),
            MetricUnit::PerSecond => format!("{limit}/s"),
            MetricUnit::Share => format!("{}%", limit * 100.0),
            MetricUnit::Bytes | MetricUnit::Count => format!("{limit}"),
        }
    }

    /// Evaluates the threshold for a case. A figure that was not measured fails.
    pub fn evaluate(&self, case: &CaseResult) -> ThresholdResult {
        let measured = self.metric.value_of_case(case);
        ThresholdResult {
            threshold: self.to_string(),
            measured: match measured {
                Some(value) => self.metric.unit().format(value),
                None => NOT_MEASURED.to_owned(),
            },
            passed: measured.is_some_and(|value| self.relation.holds(value, self.limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sample_runs;

    #[test]
    fn thresholds_print_as_typed() {
        for (typed, meant) in [
            ("p99 < 2ms", "p99 < 2.000 ms"),
            ("p99.9<=250us", "p99.9 <= 250.0 µs"),
            ("loss = 0", "loss = 0 %"),
            ("loss<0.1%", "loss < 0.1 %"),
            ("rate > 99 %", "line_rate > 99 %"),
            ("rate>10Mbit/s", "rate > 10.00 Mbit/s"),
            ("messages >= 60Hz", "messages >= 60/s"),
            (" later50ms < 1% ", "later50ms < 1 %"),
            // Rounding would change the limit.
            ("rate > 0", "rate > 0"),
            ("messages > 0", "messages > 0"),
            ("messages > 0.0001/s", "messages > 0.0001/s"),
            ("loss < 0.00001%", "loss < 0.00001%"),
            ("duplicate = 0", "duplicate = 0"),
            ("records >= 1k", "records >= 1000"),
            ("delivered_bytes > 1M", "delivered_bytes > 1.000 MB"),
        ] {
            assert_eq!(
                typed.parse::<Threshold>().map(|threshold| threshold.to_string()),
                Ok(meant.to_owned())
            );
        }
    }

    #[test]
    fn mistakes_are_named() {
        let slip = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        insta::assert_snapshot!(
            ["p99", "p99 2ms", "p99 <", "< 2ms", "p99 < 2", "loss = 1", "p100 < 2ms", "p99 == 2ms"].map(slip).join("\n"),
            @r"
        'p99' is not a threshold: write a metric, a sign and a limit, like 'p99 < 2ms', 'loss = 0', 'rate > 99 %'
        'p99 2ms' is not a threshold: write a metric, a sign and a limit, like 'p99 < 2ms', 'loss = 0', 'rate > 99 %'
        'p99 <' is not a threshold: write a metric, a sign and a limit, like 'p99 < 2ms', 'loss = 0', 'rate > 99 %'
        '' is not a metric (known: p50, p99, mean, max, jitter, loss, rate, line_rate, messages and more: see docs/metrics.md)
        'p99 < 2': '2' is not a duration with its unit (like 250ms, 10s, 2min)
        'loss = 1': '1' is not a share in percent (like 1%)
        'p100' is not a metric (known: p50, p99, mean, max, jitter, loss, rate, line_rate, messages and more: see docs/metrics.md)
        'p99 == 2ms': '= 2ms' is not a duration with its unit (like 250ms, 10s, 2min)
        ");
    }

    #[test]
    fn thresholds_are_evaluated_by_figures() {
        let run = sample_runs::full();
        let judge = |text: &str, case: usize| {
            let judged = text.parse::<Threshold>().unwrap().evaluate(&run.cases[case]);
            (judged.passed, judged.measured)
        };
        assert_eq!(judge("p50 < 14us", 0), (true, "13.82 µs".to_owned()));
        assert_eq!(judge("p50 < 13us", 0), (false, "13.82 µs".to_owned()));
        assert_eq!(judge("loss = 0", 0), (true, "0 %".to_owned()));
        assert_eq!(judge("p99 < 1h", 2), (false, "not reached".to_owned()));
        assert_eq!(judge("rate > 1bit/s", 0), (false, "not measured".to_owned()));
    }
}
