//! Metrics as a request of Prometheus remote write 1.0: protobuf, packed with snappy. Histograms are classic, which every receiver
//! reads.

use jiff::Timestamp;

use super::families::{FamilyKind, MetricLabel, MetricSample, MetricValue, Snapshot, classic_buckets};
use super::protobuf::ProtobufMessage;

/// The body of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WriteRequest {
    pub(super) body: Vec<u8>,
    /// The number of points.
    pub(super) points: u64,
}

impl WriteRequest {
    /// Makes a request with all metrics, measured at this time.
    pub fn new(snapshot: &Snapshot, at: Timestamp) -> WriteRequest {
        let mut request = Request { at, message: ProtobufMessage::default(), points: 0 };
        for family in &snapshot.families {
            family.samples.iter().for_each(|sample| request.add(family.name, family.kind, sample));
        }
        let message = request.message.into_bytes();
        let body = snap::raw::Encoder::new().compress_vec(&message).unwrap_or_default();
        WriteRequest { body, points: request.points }
    }
}

/// A request with its time series so far, each of one point.
struct Request {
    at: Timestamp,
    message: ProtobufMessage,
    points: u64,
}

impl Request {
    pub fn add(&mut self, family: &str, kind: FamilyKind, sample: &MetricSample) {
        let suffix = match kind {
            FamilyKind::Counter => "_total",
            FamilyKind::Info => "_info",
            FamilyKind::Gauge | FamilyKind::Histogram => "",
        };
        match &sample.value {
            MetricValue::Count(count) => self.point(family, suffix, sample, None, *count as f64),
            MetricValue::Number(number) => self.point(family, suffix, sample, None, *number),
            MetricValue::Times(times) => {
                for (limit, within) in classic_buckets(times) {
                    let limit = if limit.is_finite() { limit.to_string() } else { "+Inf".to_owned() };
                    self.point(family, "_bucket", sample, Some(("le", limit)), within as f64);
                }
                self.point(family, "_count", sample, None, times.replies() as f64);
                self.point(family, "_sum", sample, None, times.sum_ns() / 1e9);
            }
        }
    }

    fn point(
        &mut self,
        family: &str,
        suffix: &str,
        sample: &MetricSample,
        limit: Option<MetricLabel>,
        value: f64,
    ) {
        let mut labels: Vec<(&str, &str)> =
            sample.labels().chain(&limit).map(|(name, value)| (*name, value.as_str())).collect();
        let name = format!("{family}{suffix}");
        labels.push(("__name__", &name));
        // Receivers require the order of names.
        labels.sort_unstable();
        let mut series = ProtobufMessage::default();
        for (name, value) in labels {
            let mut label = ProtobufMessage::default();
            label.text(1, name);
            label.text(2, value);
            series.message(1, &label);
        }
        let mut point = ProtobufMessage::default();
        point.double(1, value);
        point.unsigned(2, self.at.as_millisecond() as u64);
        series.message(2, &point);
        self.message.message(1, &series);
        self.points += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::families::tests::probed_state;

    #[test]
    fn every_sample_is_a_point_with_sorted_labels() {
        let snapshot = Snapshot::new(&[probed_state()], "here");
        let batch = WriteRequest::new(&snapshot, Timestamp::from_second(1_000).unwrap());
        // 23 buckets, count and sum; 4 percentiles; 2 results; corrupt, missed, up, alarm, version.
        assert_eq!(batch.points, 25 + 4 + 2 + 5);
        let message = snap::raw::Decoder::new().decompress_vec(&batch.body).unwrap();
        let has = |part: &[u8]| message.windows(part.len()).any(|found| found == part);
        assert!(
            has(b"\x0a\x28\x0a\x08__name__\x12\x1clinkgauge_missed_sends_total\x0a"),
            "the name is first"
        );
        assert!(has(b"\x0a\x02le\x12\x04+Inf") && has(b"\x0a\x02le\x12\x070.00001"), "limits are texts");
        assert!(has(b"\x10\xc0\x84\x3d"), "the time in ms");
    }
}
