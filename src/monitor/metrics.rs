//! Metrics for Prometheus and what reads its formats: as text (OpenMetrics), or as protobuf for those that prefer it.

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
use crate::sample::Window;

/// The media type of the text.
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An encoding of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics, with classic histograms.
    Text,
    /// Messages of Prometheus, with classic and native histograms.
    Protobuf,
}

impl MetricsFormat {
    /// The format that a reader prefers, by its `Accept`. Text unless it asks for the messages.
    pub fn accepted(accept: &str) -> MetricsFormat {
        let (mut text, mut protobuf) = (0.0_f64, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let mut quality = 1.0;
            let (mut is_family, mut is_delimited) = (false, false);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match (name.trim(), value.trim().trim_matches('"')) {
                    ("q", value) => quality = value.parse().unwrap_or(0.0),
                    ("proto", value) => is_family = value == "io.prometheus.client.MetricFamily",
                    ("encoding", value) => is_delimited = value == "delimited",
                    _ => {}
                }
            }
            match media_type {
                "application/vnd.google.protobuf" if is_family && is_delimited => {
                    protobuf = protobuf.max(quality)
                }
                "application/openmetrics-text" | "text/plain" => text = text.max(quality),
                _ => {}
            }
        }
        if protobuf > 0.0 && protobuf >= text { MetricsFormat::Protobuf } else { MetricsFormat::Text }
    }

    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            MetricsFormat::Text => OPENMETRICS_TYPE,
            MetricsFormat::Protobuf => PROTOBUF_TYPE,
        }
    }

    /// The metrics in this format.
    pub fn render(self, snapshot: &Arc<Snapshot>) -> Vec<u8> {
        match self {
            MetricsFormat::Text => render_text(snapshot).into_bytes(),
            MetricsFormat::Protobuf => exposition::render(snapshot),
        }
    }
}

/// The metrics as text.
fn render_text(snapshot: &Arc<Snapshot>) -> String {
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
        let text = render_text(&Arc::new(Snapshot::new(&[probed_state()], "here")));
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
        let text = "application/openmetrics-text;version=1.0.0";
        for (accept, format) in [
            (String::new(), MetricsFormat::Text),
            ("*/*".to_owned(), MetricsFormat::Text),
            (format!("{native},{text};q=0.8,*/*;q=0.1"), MetricsFormat::Protobuf),
            (format!("{text};q=0.5, {}", native.replace(';', "; ")), MetricsFormat::Protobuf),
            (format!("{text},{native};q=0.6"), MetricsFormat::Text),
            (format!("{native};q=0"), MetricsFormat::Text),
            ("application/vnd.google.protobuf".to_owned(), MetricsFormat::Text),
            ("application/vnd.google.protobuf;proto=other;encoding=text;q=x".to_owned(), MetricsFormat::Text),
        ] {
            assert_eq!(MetricsFormat::accepted(&accept), format, "{accept}");
        }
    }
}
