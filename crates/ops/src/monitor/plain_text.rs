//! Metrics in the text format 0.0.4 of Prometheus, which every reader of metrics understands. Names of counters end in `_total` there,
//! and an info is a gauge.

use std::fmt::{Display, Formatter, Write};

use super::families::{FamilyKind, MetricFamily, MetricSample, MetricValue, Snapshot, classic_buckets};

/// The media type.
pub(super) const PLAIN_TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics as text.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    // A family without samples is an error for some readers.
    for family in snapshot.families.iter().filter(|family| !family.samples.is_empty()) {
        write_family(&mut text, family).expect("a string takes all text");
    }
    text
}

fn write_family(text: &mut String, family: &MetricFamily) -> std::fmt::Result {
    let (suffix, kind) = match family.kind {
        FamilyKind::Counter => ("_total", "counter"),
        FamilyKind::Gauge => ("", "gauge"),
        FamilyKind::Info => ("_info", "gauge"),
        FamilyKind::Histogram => ("", "histogram"),
    };
    let name = format!("{}{suffix}", family.name);
    writeln!(text, "# HELP {name} {}", Escaped { text: family.help, is_quoted: false })?;
    writeln!(text, "# TYPE {name} {kind}")?;
    family.samples.iter().try_for_each(|sample| write_sample(text, &name, sample))
}

fn write_sample(text: &mut String, name: &str, sample: &MetricSample) -> std::fmt::Result {
    let labels = Labels { sample, limit: None };
    match &sample.value {
        MetricValue::Count(count) => writeln!(text, "{name}{labels} {count}"),
        MetricValue::Number(number) => writeln!(text, "{name}{labels} {}", PrintedNumber(*number)),
        MetricValue::Times(times) => {
            for (limit, within) in classic_buckets(times) {
                let labels = Labels { sample, limit: Some(limit) };
                writeln!(text, "{name}_bucket{labels} {within}")?;
            }
            writeln!(text, "{name}_sum{labels} {}", PrintedNumber(times.sum_ns() / 1e9))?;
            writeln!(text, "{name}_count{labels} {}", times.replies())
        }
    }
}

/// The labels of a sample, with the upper limit of a bucket.
struct Labels<'a> {
    sample: &'a MetricSample,
    limit: Option<f64>,
}

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut before = '{';
        for (name, value) in self.sample.labels() {
            write!(f, "{before}{name}=\"{}\"", Escaped { text: value, is_quoted: true })?;
            before = ',';
        }
        if let Some(limit) = self.limit {
            write!(f, "{before}le=\"{}\"", PrintedNumber(limit))?;
            before = ',';
        }
        if before == ',' { f.write_char('}') } else { Ok(()) }
    }
}

/// A text in one line. Only between quotes a quote is escaped.
struct Escaped<'a> {
    text: &'a str,
    is_quoted: bool,
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.text.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '"' if self.is_quoted => f.write_str("\\\""),
            c => f.write_char(c),
        })
    }
}

/// A number as in OpenMetrics, so that a series keeps its labels when its reader changes the format: `1.0`, `+Inf`.
struct PrintedNumber(f64);

impl Display for PrintedNumber {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            whole if whole.fract() == 0.0 => write!(f, "{whole:.1}"),
            number => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::monitor::families::tests::probed_state;

    #[test]
    fn states_become_metrics_in_base_units() {
        let text = render(&Snapshot::new(&[probed_state()], "here"));
        let labels = r#"host="here",link="a \"link\"",endpoint="mem://server",protocol="echo",workload="latency",direction="loop""#;
        for line in [
            "# HELP linkgauge_probes_total Probes by their result".to_owned(),
            "# TYPE linkgauge_probes_total counter".to_owned(),
            "# TYPE linkgauge_latency_seconds histogram".to_owned(),
            "# TYPE linkgauge_build_info gauge".to_owned(),
            format!("linkgauge_latency_seconds_bucket{{{labels},le=\"0.00001\"}} 0"),
            format!("linkgauge_latency_seconds_bucket{{{labels},le=\"1.0\"}} 2"),
            format!("linkgauge_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
            // The sum of bins that are 1 % wide.
            format!("linkgauge_latency_seconds_sum{{{labels}}} 2.000728032"),
            format!("linkgauge_latency_seconds_count{{{labels}}} 3"),
            format!("linkgauge_minute_latency_seconds{{{labels},percentile=\"100\"}} +Inf"),
            format!("linkgauge_probes_total{{{labels},result=\"lost\"}} 1"),
            format!("linkgauge_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("throughput"), "no test was made: {text}");
    }

    #[test]
    fn a_text_stays_in_its_line() {
        let shared = Arc::from([("link", "a\\b\n\"c\"".to_owned())]);
        let (help, value) = ("a\\b\n\"c\"", MetricValue::Number(f64::NAN));
        let samples = vec![MetricSample::new(&shared, None, value)];
        let family = MetricFamily { name: "x", help, kind: FamilyKind::Gauge, samples };
        insta::assert_snapshot!(render(&Snapshot { families: vec![family] }), @r#"
        # HELP x a\\b\n"c"
        # TYPE x gauge
        x{link="a\\b\n\"c\""} NaN
        "#);
    }
}
