//! The state of a monitor in the text format of OpenMetrics, for Prometheus and what reads its format.
//!
//! Base units: seconds, bits per second. A lost probe is a counter and makes quantiles infinite; it is never a time of zero.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::alert::Alert;
use super::ledger::WatchState;
use crate::sample::Window;
use crate::traffic::Direction;
use crate::workload::latency;

/// The media type of the text.
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper limits of the buckets in ns: 1, 2 and 5 of each decade from 10 µs to 100 s. The last bucket has no limit.
const BUCKET_LIMITS_NS: [u64; 22] = {
    let mut limits = [0; 22];
    let (mut decade, mut at) = (10_000, 0);
    while at < 22 {
        limits[at] = decade * [1, 2, 5][at % 3];
        at += 1;
        if at % 3 == 0 {
            decade *= 10;
        }
    }
    limits
};

/// The percentiles of the last minute, in percent.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 100.0];

/// What is known of one link.
#[derive(Debug)]
struct Link {
    labels: Labels,
    is_up: Option<bool>,
    total: Window,
    minute: Window,
    missed_sends: u64,
    bits_per_second: Option<f64>,
    /// The alarms, and whether each is raised.
    alerts: Vec<(String, bool)>,
}

type Labels = Vec<(&'static str, String)>;

/// All links at one time.
#[derive(Debug)]
struct Snapshot(Vec<Link>);

/// The states as text.
pub fn render(states: &[WatchState], host: &str) -> String {
    let mut registry = Registry::default();
    registry
        .register_collector(Box::new(Snapshot(states.iter().map(|state| Link::new(state, host)).collect())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all text");
    text
}

impl Link {
    fn new(state: &WatchState, host: &str) -> Link {
        let direction = match (&state.last_test, state.workload == latency::WORKLOAD.name) {
            (Some(test), _) => Some(test.direction.name()),
            (None, true) => Some(Direction::Loop.name()),
            (None, false) => None,
        };
        let direction = direction.map(|name| ("direction", name.to_owned()));
        let labels = [
            ("host", host.to_owned()),
            ("link", state.name.clone()),
            ("endpoint", state.endpoint.clone()),
            ("protocol", state.protocol.clone()),
            ("workload", state.workload.clone()),
        ];
        Link {
            labels: labels.into_iter().chain(direction).collect(),
            is_up: state.is_up,
            total: state.total.clone(),
            minute: state.last_minutes(1),
            missed_sends: state.missed_sends,
            bits_per_second: state.last_test.as_ref().and_then(|test| test.figures.delivery.throughput_bps),
            alerts: state
                .alerts
                .iter()
                .map(|alert: &Alert| (alert.rule.text.clone(), alert.is_raised()))
                .collect(),
        }
    }

    fn labels_and(&self, name: &'static str, value: impl Into<String>) -> Labels {
        self.labels.iter().cloned().chain([(name, value.into())]).collect()
    }

    /// The replies in each bucket. The last bucket takes those above all limits.
    fn buckets(&self) -> Vec<(f64, u64)> {
        let mut below = 0;
        let limits =
            BUCKET_LIMITS_NS.iter().map(|limit| (*limit as f64 / 1e9, self.total.replies_within(*limit)));
        let rest = (f64::INFINITY, self.total.replies());
        limits
            .chain([rest])
            .map(|(limit, within)| (limit, within - std::mem::replace(&mut below, within)))
            .collect()
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        let probed = || self.0.iter().filter(|link| link.total.counts.due > 0);
        let help = "Round-trip time of the probes that have a reply, from when they were due";
        let mut family =
            encoder.encode_descriptor("linkgauge_latency_seconds", help, None, MetricType::Histogram)?;
        for link in probed() {
            family.encode_family(&link.labels)?.encode_histogram::<NoLabelSet>(
                link.total.sum_ns() / 1e9,
                link.total.replies(),
                &link.buckets(),
                None,
            )?;
        }
        let help = "Percentile of the last minute over all probes; infinite if it is a lost one";
        let mut family =
            encoder.encode_descriptor("linkgauge_minute_latency_seconds", help, None, MetricType::Gauge)?;
        for link in probed() {
            for percentile in PERCENTILES {
                let Some(time) = link.minute.quantile_with_losses_ns(percentile / 100.0) else { continue };
                let labels = link.labels_and("percentile", percentile.to_string());
                family.encode_family(&labels)?.encode_gauge(&(time / 1e9))?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "linkgauge_probes",
            "Probes by their result",
            None,
            MetricType::Counter,
        )?;
        for link in probed() {
            for (result, count) in [("replied", link.total.replies()), ("lost", link.total.counts.lost)] {
                encode_count(&mut family, &link.labels_and("result", result), count)?;
            }
        }
        let corrupt: fn(&Link) -> u64 = |link| link.total.counts.corrupt;
        let missed: fn(&Link) -> u64 = |link| link.missed_sends;
        for (name, help, count) in [
            ("linkgauge_corrupt_replies", "Replies with unexpected content", corrupt),
            ("linkgauge_missed_sends", "Probes that this host could not send in time", missed),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for link in probed() {
                encode_count(&mut family, &link.labels, count(link))?;
            }
        }
        self.encode_states(&mut encoder)
    }
}

impl Snapshot {
    fn encode_states(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let help = "1 if the link replies, 0 if the last three probes were lost or the last test failed";
        let mut family = encoder.encode_descriptor("linkgauge_up", help, None, MetricType::Gauge)?;
        for link in &self.0 {
            if let Some(is_up) = link.is_up {
                family.encode_family(&link.labels)?.encode_gauge(&i64::from(is_up))?;
            }
        }
        let help = "Payload delivered in the last test";
        let name = "linkgauge_throughput_bits_per_second";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for link in &self.0 {
            if let Some(rate) = link.bits_per_second {
                family.encode_family(&link.labels)?.encode_gauge(&rate)?;
            }
        }
        let help = "1 while an alarm is on";
        let mut family = encoder.encode_descriptor("linkgauge_alarm", help, None, MetricType::Gauge)?;
        for link in &self.0 {
            for (rule, is_raised) in &link.alerts {
                let labels = link.labels_and("rule", rule.clone());
                family.encode_family(&labels)?.encode_gauge(&i64::from(*is_raised))?;
            }
        }
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor("linkgauge_build", "The version of the monitor", None, MetricType::Info)?
            .encode_info(&version)
    }
}

fn encode_count(family: &mut MetricEncoder, labels: &Labels, count: u64) -> std::fmt::Result {
    family.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(&count, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Config;
    use crate::sample::WindowCounts;

    #[test]
    fn states_become_metrics_in_base_units() {
        let text = "[[watch]]\nname = \"a \\\"link\\\"\"\nurl = \"mem://server\"\nprotocol = \"echo\"\nalert = [\"loss > 5 %\"]";
        let config = Config::from_toml(text).unwrap();
        let mut state = WatchState::new(&config.watches[0]);
        assert!(
            !render(&[state.clone()], "here").contains("linkgauge_latency_seconds_count"),
            "nothing was measured"
        );
        let counts = WindowCounts { measured_ms: 10_000, due: 4, lost: 1, ..WindowCounts::default() };
        let mut window = Window::new(counts);
        [15_000, 30_000, 2_000_000_000].iter().for_each(|time| window.record(*time));
        state.is_up = Some(true);
        state.total = window.clone();
        state.recent.push_back((0, window));
        let text = render(&[state], "here");
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
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn bucket_limits_are_the_usual_ones() {
        let seconds = [0, 1, 2, 3, 21].map(|at| BUCKET_LIMITS_NS[at] as f64 / 1e9);
        assert_eq!(seconds, [1e-5, 2e-5, 5e-5, 1e-4, 100.0]);
    }
}
