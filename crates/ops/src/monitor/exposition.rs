//! Metrics as protobuf (`io.prometheus.client.MetricFamily`), the only form in which Prometheus reads native histograms. Each
//! histogram is classic and native at once; the server decides which one it stores.

use super::families::{FamilyKind, MetricFamily, MetricSample, MetricValue, Snapshot, classic_buckets};
use super::protobuf::ProtobufMessage;
use linkgauge_model::sample::Window;

/// The media type of the messages.
pub(super) const PROTOBUF_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The finest resolution of a native histogram: 2^4 buckets for each power of two, so a bucket is 4.4 % wide.
const FINEST_SCHEMA: i32 = 4;

/// Maximum number of buckets. With more buckets, two neighbours become one.
const MAX_BUCKETS: usize = 160;

/// Times up to this are in the zero bucket, which a logarithm has no place for.
const ZERO_THRESHOLD_NS: u64 = 1;

/// The metrics as messages, each after its length.
pub(super) fn render(snapshot: &Snapshot) -> Vec<u8> {
    let mut stream = Vec::new();
    // A family without samples is an error for some readers.
    for family in snapshot.families.iter().filter(|family| !family.samples.is_empty()) {
        family_message(family).append_delimited(&mut stream);
    }
    stream
}

fn family_message(family: &MetricFamily) -> ProtobufMessage {
    let mut message = ProtobufMessage::default();
    let (suffix, kind) = match family.kind {
        FamilyKind::Counter => ("_total", 0),
        FamilyKind::Gauge => ("", 1),
        FamilyKind::Info => ("_info", 1),
        FamilyKind::Histogram => ("", 4),
    };
    message.text(1, &format!("{}{suffix}", family.name));
    message.text(2, family.help);
    message.unsigned(3, kind);
    family.samples.iter().for_each(|sample| message.message(4, &metric(family.kind, sample)));
    message
}

fn metric(kind: FamilyKind, sample: &MetricSample) -> ProtobufMessage {
    let mut metric = ProtobufMessage::default();
    for (name, value) in sample.labels() {
        let mut label = ProtobufMessage::default();
        label.text(1, name);
        label.text(2, value);
        metric.message(1, &label);
    }
    let mut value = ProtobufMessage::default();
    match &sample.value {
        MetricValue::Count(count) => value.double(1, *count as f64),
        MetricValue::Number(number) => value.double(1, *number),
        MetricValue::Times(times) => value = histogram(times),
    }
    let field = match kind {
        FamilyKind::Gauge | FamilyKind::Info => 2,
        FamilyKind::Counter => 3,
        FamilyKind::Histogram => 7,
    };
    metric.message(field, &value);
    metric
}

fn histogram(times: &Window) -> ProtobufMessage {
    let mut message = ProtobufMessage::default();
    message.unsigned(1, times.replies());
    message.double(2, times.sum_ns() / 1e9);
    for (limit, within) in classic_buckets(times) {
        let mut bucket = ProtobufMessage::default();
        bucket.unsigned(1, within);
        bucket.double(2, limit);
        message.message(3, &bucket);
    }
    let native = NativeHistogram::new(times);
    message.signed(5, native.schema.into());
    message.double(6, ZERO_THRESHOLD_NS as f64 / 1e9);
    message.unsigned(7, native.zeros);
    for (offset, length) in native.spans() {
        let mut span = ProtobufMessage::default();
        span.signed(1, offset.into());
        span.unsigned(2, length);
        message.message(12, &span);
    }
    message.packed_signed(13, &native.deltas());
    message
}

/// A native histogram: bucket `i` holds times above `base^(i - 1)` and up to `base^i` seconds, where `base` is `2^(2^-schema)`.
struct NativeHistogram {
    schema: i32,
    zeros: u64,
    /// The buckets that are not empty, in order.
    buckets: Vec<(i32, u64)>,
}

impl NativeHistogram {
    pub fn new(times: &Window) -> NativeHistogram {
        let mut native = NativeHistogram { schema: FINEST_SCHEMA, zeros: 0, buckets: Vec::new() };
        for (time, count) in times.bins() {
            if time <= ZERO_THRESHOLD_NS {
                native.zeros += count;
                continue;
            }
            let index = ((time as f64 / 1e9).log2() * f64::from(1 << FINEST_SCHEMA)).ceil() as i32;
            native.add(index, count);
        }
        while native.buckets.len() > MAX_BUCKETS {
            native.halve_resolution();
        }
        native
    }

    /// Adds to a bucket that is not before the last one.
    pub fn add(&mut self, index: i32, count: u64) {
        match self.buckets.last_mut() {
            Some((last, sum)) if *last == index => *sum += count,
            _ => self.buckets.push((index, count)),
        }
    }

    fn halve_resolution(&mut self) {
        self.schema -= 1;
        for (index, count) in std::mem::take(&mut self.buckets) {
            self.add((index + 1).div_euclid(2), count);
        }
    }

    /// Runs of buckets: the distance from the end of the run before, of the first one from bucket 0, and the number of buckets.
    fn spans(&self) -> Vec<(i32, u64)> {
        let mut spans: Vec<(i32, u64)> = Vec::new();
        let mut next = 0;
        for (index, _) in &self.buckets {
            match spans.last_mut() {
                Some((_, length)) if *index == next => *length += 1,
                _ => spans.push((index - next, 1)),
            }
            next = index + 1;
        }
        spans
    }

    /// The count of the first bucket, and the difference of each other one from the one before.
    fn deltas(&self) -> Vec<i64> {
        let mut before = 0;
        let delta = |(_, count): &(i32, u64)| *count as i64 - std::mem::replace(&mut before, *count as i64);
        self.buckets.iter().map(delta).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::monitor::families::tests::probed_state;
    use linkgauge_model::sample::WindowCounts;

    fn window(times: &[u64]) -> Window {
        let mut window = Window::new(WindowCounts::default());
        times.iter().for_each(|time| window.record(*time));
        window
    }

    #[test]
    fn a_native_histogram_has_the_buckets_of_its_times() {
        // Of bins within 1 %: 1 ms and 12.5 ms, whose buckets are known: ⌈log2(v) · 16⌉.
        let native =
            NativeHistogram::new(&window(&[1, 1_000_000, 1_000_000, 12_500_000, 12_500_000, 12_500_000]));
        let indices: Vec<i32> = native.buckets.iter().map(|(index, _)| *index).collect();
        assert_eq!((native.schema, native.zeros, indices), (4, 1, vec![-159, -101]));
        assert_eq!((native.spans(), native.deltas()), (vec![(-159, 1), (57, 1)], vec![2, 1]));
    }

    #[test]
    fn neighbours_are_joined_until_the_buckets_are_few() {
        let times: Vec<u64> = (0..2_000).map(|n| (1_000.0 * 1.011_f64.powi(n)) as u64).collect();
        let all = window(&times);
        let native = NativeHistogram::new(&all);
        assert!(native.buckets.len() <= MAX_BUCKETS && native.schema < FINEST_SCHEMA, "{}", native.schema);
        assert_eq!(native.buckets.iter().map(|(_, count)| count).sum::<u64>(), all.replies());
        let base = 2_f64.powf(2_f64.powi(-native.schema));
        // Each bucket holds as many as lie between its limits, but for those within a bin of a limit.
        for (index, count) in &native.buckets {
            let (low, high) = (base.powi(index - 1), base.powi(*index));
            let (within, near) = times.iter().fold((0, 0), |(within, near), time| {
                let seconds = *time as f64 / 1e9;
                let is_near = [low, high].iter().any(|limit| (seconds / limit - 1.0).abs() < 0.02);
                (within + u64::from(low < seconds && seconds <= high), near + u64::from(is_near))
            });
            assert!(within.abs_diff(*count) <= near, "{index}: {within} {count} {near}");
        }
    }

    #[test]
    fn families_without_samples_are_left_out() {
        let bytes = render(&Snapshot::new(&[probed_state()], "here"));
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("linkgauge_probes_total") && has("linkgauge_build_info") && has("a \"link\""));
        assert!(!has("linkgauge_throughput_bytes_per_second"));
        let empty = Arc::new(Snapshot::new(&[], "here"));
        assert!(!render(&empty).is_empty(), "the version is always there");
    }
}
