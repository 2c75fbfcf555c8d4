//! Metrics for Prometheus and what reads its formats: as text, or as OpenMetrics or protobuf for those that prefer it.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::exposition::{self, PROTOBUF_TYPE};
use super::families::{
    FamilyKind, MetricFamily, MetricLabel, MetricSample, MetricValue, Snapshot, classic_buckets,
};
use super::plain_text::{self, PLAIN_TEXT_TYPE};
use linkgauge_model::sample::Window;

/// The media type of OpenMetrics.
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An encoding of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format 0.0.4 of Prometheus, with classic histograms.
    PlainText,
    /// The text of OpenMetrics 1.0.0, with classic histograms.
    OpenMetrics,
    /// Messages of Prometheus, with classic and native histograms.
    Protobuf,
}

impl MetricsFormat {
    /// The format that a reader prefers, by its `Accept`: of those with the highest quality the first. Without a known one it is the text
    /// format, which all readers understand.
    pub fn accepted(accept: &str) -> MetricsFormat {
        let (mut best, mut best_quality) = (MetricsFormat::PlainText, 0.0);
        for range in accept.split(',') {
            if let Some((format, quality)) = MetricsFormat::of_range(range)
                && quality > best_quality
            {
                (best, best_quality) = (format, quality);
            }
        }
        best
    }

    /// The format that a media range of `Accept` names, with its quality from 0 to 1.
    fn of_range(range: &str) -> Option<(MetricsFormat, f64)> {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut version) = (1.0, "");
        let (mut is_family, mut is_delimited) = (false, false);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0),
                "version" => version = value,
                "proto" => is_family = value == "io.prometheus.client.MetricFamily",
                "encoding" => is_delimited = value == "delimited",
                _ => {}
            }
        }
        let format = match media_type.as_str() {
            "application/vnd.google.protobuf" if is_family && is_delimited => MetricsFormat::Protobuf,
            "application/openmetrics-text" if matches!(version, "" | "1.0.0") => MetricsFormat::OpenMetrics,
            // With names of letters, 1.0.0 is the same.
            "text/plain" if matches!(version, "" | "0.0.4" | "1.0.0") => MetricsFormat::PlainText,
            _ => return None,
        };
        Some((format, quality))
    }

    /// The media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            MetricsFormat::PlainText => PLAIN_TEXT_TYPE,
            MetricsFormat::OpenMetrics => OPENMETRICS_TYPE,
            MetricsFormat::Protobuf => PROTOBUF_TYPE,
        }
    }

    /// The metrics in this format.
    pub fn render(self, snapshot: &Arc<Snapshot>) -> Vec<u8> {
        match self {
            MetricsFormat::PlainText => plain_text::render(snapshot).into_bytes(),
            MetricsFormat::OpenMetrics => render_openmetrics(snapshot).into_bytes(),
            MetricsFormat::Protobuf => exposition::render(snapshot),
        }
    }
}

/// The metrics as OpenMetrics.
fn render_openmetrics(snapshot: &Arc<Snapshot>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(snapshot.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all text");
    text
}

#[derive(Debug)]
struct Families(Arc<Snapshot>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        self.0.families.iter().try_for_each(|family| encode_family(&mut encoder, family))
    }
}

fn encode_family(encoder: &mut DescriptorEncoder, family: &MetricFamily) -> std::fmt::Result {
    let kind = match family.kind {
        FamilyKind::Counter => MetricType::Counter,
        FamilyKind::Gauge => MetricType::Gauge,
        FamilyKind::Histogram => MetricType::Histogram,
        FamilyKind::Info => MetricType::Info,
    };
    let mut encoder = encoder.encode_descriptor(family.name, family.help, None, kind)?;
    family.samples.iter().try_for_each(|sample| encode_sample(&mut encoder, family.kind, sample))
}

fn encode_sample(encoder: &mut MetricEncoder, kind: FamilyKind, sample: &MetricSample) -> std::fmt::Result {
    let labels: Vec<MetricLabel> = sample.labels().cloned().collect();
    if kind == FamilyKind::Info {
        return encoder.encode_info(&labels);
    }
    match labels.is_empty() {
        true => encode_value(encoder, kind, &sample.value),
        false => encode_value(&mut encoder.encode_family(&labels)?, kind, &sample.value),
    }
}

fn encode_value(encoder: &mut MetricEncoder, kind: FamilyKind, value: &MetricValue) -> std::fmt::Result {
    match value {
        MetricValue::Count(count) if kind == FamilyKind::Gauge => encoder.encode_gauge(&(*count as i64)),
        MetricValue::Count(count) => encoder.encode_counter::<NoLabelSet, _, f64>(count, None),
        MetricValue::Number(number) => encoder.encode_gauge(number),
        MetricValue::Times(times) => {
            let sum = times.sum_ns() / 1e9;
            encoder.encode_histogram::<NoLabelSet>(sum, times.replies(), &buckets(times), None)
        }
    }
}

/// The replies in each bucket.
fn buckets(times: &Window) -> Vec<(f64, u64)> {
    let mut below = 0;
    classic_buckets(times)
        .map(|(limit, within)| (limit, within - std::mem::replace(&mut below, within)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::families::tests::probed_state;

    #[test]
    fn states_become_metrics_in_base_units() {
        let text = render_openmetrics(&Arc::new(Snapshot::new(&[probed_state()], "here")));
        let labels = r#"host="here",link="a \"link\"",endpoint="mem://server",protocol="echo",workload="latency",direction="loop""#;
        for line in [
            "# TYPE linkgauge_latency_seconds histogram".to_owned(),
            format!("linkgauge_latency_seconds_bucket{{le=\"0.00001\",{labels}}} 0"),
            format!("linkgauge_latency_seconds_bucket{{le=\"0.00002\",{labels}}} 1"),
            format!("linkgauge_latency_seconds_bucket{{le=\"1.0\",{labels}}} 2"),
            format!("linkgauge_latency_seconds_bucket{{le=\"+Inf\",{labels}}} 3"),
            format!("linkgauge_minute_latency_seconds{{{labels},percentile=\"100\"}} inf"),
            format!("linkgauge_probes_total{{{labels},result=\"lost\"}} 1"),
            format!("linkgauge_up{{{labels}}} 1"),
            format!("linkgauge_alarm{{{labels},rule=\"loss > 5 %\"}} 0"),
            format!("linkgauge_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_reader_gets_the_format_that_it_prefers() {
        let native =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let open = "application/openmetrics-text;version=1.0.0";
        // As Prometheus 2.53 and 3.4 send it.
        let older = format!(
            "{open};q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
        );
        let newer = format!(
            "{open};escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
        );
        for (accept, format) in [
            (String::new(), MetricsFormat::PlainText),
            ("*/*".to_owned(), MetricsFormat::PlainText),
            ("text/html,application/xhtml+xml,*/*;q=0.8".to_owned(), MetricsFormat::PlainText),
            ("text/plain;version=0.0.4".to_owned(), MetricsFormat::PlainText),
            (open.to_owned(), MetricsFormat::OpenMetrics),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8".to_owned(),
                MetricsFormat::OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1".to_owned(), MetricsFormat::PlainText),
            (older.clone(), MetricsFormat::OpenMetrics),
            (newer, MetricsFormat::OpenMetrics),
            (format!("{native};q=0.6,{older}"), MetricsFormat::Protobuf),
            (format!("text/plain;q=0.5,{open};q=0.4"), MetricsFormat::PlainText),
            (format!("text/plain;q=0.4,{open};q=0.5"), MetricsFormat::OpenMetrics),
            (format!("{open};q=0,*/*"), MetricsFormat::PlainText),
            (format!("{open};q=inf,text/plain;q=0.1"), MetricsFormat::PlainText),
            (format!("{native},{open};q=0.8,*/*;q=0.1"), MetricsFormat::Protobuf),
            (format!("{open};q=0.5, {}", native.replace(';', "; ")), MetricsFormat::Protobuf),
            (format!("{open},{native};q=0.6"), MetricsFormat::OpenMetrics),
            (format!("{native};q=0"), MetricsFormat::PlainText),
            ("application/vnd.google.protobuf".to_owned(), MetricsFormat::PlainText),
            (
                "application/vnd.google.protobuf;proto=other;encoding=text;q=x".to_owned(),
                MetricsFormat::PlainText,
            ),
        ] {
            assert_eq!(MetricsFormat::accepted(&accept), format, "{accept}");
        }
    }
}
